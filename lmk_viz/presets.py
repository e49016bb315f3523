"""Encoders offered by name, and what each was trained for."""

from dataclasses import dataclass

from lmk_viz.config import DEFAULT_ENCODER, PoolingMode

__all__ = [
    "DEFAULT_NAME",
    "MINILM_NAME",
    "PRESETS",
    "Preset",
    "canonical_name",
    "find_preset",
    "member_name",
]

DEFAULT_NAME = DEFAULT_ENCODER
MINILM_NAME = "all-minilm-l6-v2"
"""The encoder that the family's backbone was made from, offline from a package of its own."""
OFFLINE_NAMES = (DEFAULT_NAME, MINILM_NAME)
BACKBONE = "backbone"
"""What a family without its variants is called: `lmk-mini-backbone`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One encoder on offer."""

    name: str
    """What `EncoderConfig.name` takes: an offline name, or a hub id."""
    title: str
    trained_for: PoolingMode | None
    """The pooling its embeddings were trained with; None for a bare language model."""
    positions: str
    note: str
    variants: tuple[PoolingMode, ...] = ()
    """Of a family: the poolings that have a variant of their own."""

    @property
    def is_offline(self) -> bool:
        """Whether it comes with the installation."""
        return self.name in OFFLINE_NAMES

    @property
    def trained_poolings(self) -> tuple[PoolingMode, ...]:
        """All poolings that it was trained with."""
        return self.variants or ((self.trained_for,) if self.trained_for else ())


PRESETS = (
    Preset(
        DEFAULT_NAME,
        "lmk-mini: one variant a pooling (offline)",
        None,
        "rotary, 8,192",
        "6 layers, 22.4 M parameters; the project's own family, made from all-MiniLM-L6-v2.",
        variants=(
            PoolingMode.CLS,
            PoolingMode.MEAN,
            PoolingMode.LANDMARK,
            PoolingMode.EVERY_K,
            PoolingMode.LATENT_ATTENTION,
        ),
    ),
    Preset(
        MINILM_NAME,
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
        "The same weights as the offline all-minilm-l6-v2.",
    ),
)


def find_preset(name: str) -> Preset | None:
    """Returns the preset of this name, if there is one."""
    return next((preset for preset in PRESETS if preset.name == name), None)


def canonical_name(name: str) -> str:
    """Returns the one spelling of an encoder's name.

    Example:
        >>> canonical_name("default"), canonical_name("acme/one")
        ('lmk-mini', 'acme/one')
    """
    return DEFAULT_NAME if name == "default" else name


def member_name(family: str, member: PoolingMode | str = BACKBONE) -> str:
    """Returns the name of one member of a family, by default of its backbone.

    Example:
        >>> member_name("lmk-mini"), member_name("lmk-mini", PoolingMode.EVERY_K)
        ('lmk-mini-backbone', 'lmk-mini-every_k')
    """
    return f"{canonical_name(family).rstrip('/')}-{member}"
