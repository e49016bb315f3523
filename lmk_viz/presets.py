"""Encoders offered by name, and what each was trained for."""

from dataclasses import dataclass

from lmk_viz.config import PoolingMode

__all__ = ["DEFAULT_NAME", "PRESETS", "Preset", "find_preset"]

DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True)
class Preset:
    """One encoder on offer."""

    name: str
    """What `EncoderConfig.name` takes: `default`, or a hub id."""
    title: str
    trained_for: PoolingMode | None
    """The pooling its embeddings were trained with; None for a bare language model."""
    positions: str
    note: str

    @property
    def is_offline(self) -> bool:
        """Whether it comes with the installation."""
        return self.name == DEFAULT_NAME


PRESETS = (
    Preset(
        DEFAULT_NAME,
        "all-MiniLM-L6-v2 (offline)",
        PoolingMode.MEAN,
        "absolute, 512",
        "6 layers, 22.7 M parameters; installed with the requirements, no network needed.",
    ),
    Preset(
        "answerdotai/ModernBERT-base",
        "ModernBERT base",
        None,
        "rotary, 8,192",
        "22 layers, every third global, the others see 64 tokens on each side.",
    ),
    Preset(
        "answerdotai/ModernBERT-large",
        "ModernBERT large",
        None,
        "rotary, 8,192",
        "28 layers, every third global.",
    ),
    Preset(
        "alibaba-nlp-community/gte-multilingual-base",
        "gte multilingual base",
        PoolingMode.CLS,
        "rotary, 8,192",
        "12 global layers; the conversion that needs no remote code.",
    ),
    Preset(
        "Alibaba-NLP/gte-en-mlm-base",
        "gte en MLM base",
        None,
        "rotary, 8,192",
        "12 global layers, base 500,000; its hub files need remote code, which is never run, "
        "so give a converted folder.",
    ),
    Preset(
        "jhu-clsp/mmBERT-base",
        "mmBERT base",
        None,
        "rotary, 8,192",
        "ModernBERT's shape, over 1,800 languages.",
    ),
    Preset(
        "jhu-clsp/ettin-encoder-150m",
        "ettin encoder 150m",
        None,
        "rotary, 8,192",
        "ModernBERT's shape, open data.",
    ),
    Preset(
        "ibm-granite/granite-embedding-english-r2",
        "granite embedding english r2",
        PoolingMode.CLS,
        "rotary, 8,192",
        "ModernBERT's shape, tuned for retrieval.",
    ),
    Preset(
        "BAAI/bge-m3",
        "BGE-M3",
        PoolingMode.CLS,
        "absolute, 8,192",
        "24 global layers, multilingual; MultiCLS was proposed for it.",
    ),
    Preset(
        "sentence-transformers/all-MiniLM-L6-v2",
        "all-MiniLM-L6-v2 (hub)",
        PoolingMode.MEAN,
        "absolute, 512",
        "The same weights as the offline default.",
    ),
)


def find_preset(name: str) -> Preset | None:
    """Returns the preset of this name, if there is one."""
    return next((preset for preset in PRESETS if preset.name == name), None)
