"""Settings: string enums and frozen dataclasses that check themselves when made.

Settings are hashable, so the same object serves as argument, cache key, URL content and
report header. Nothing here imports anything but the standard library.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

__all__ = [
    "AttentionConfig",
    "ChunkingConfig",
    "ChunkingMode",
    "EncoderConfig",
    "LayerKind",
    "LayoutKind",
    "PoolingConfig",
    "PoolingMode",
    "ProjectionConfig",
    "ProjectionMethod",
    "digest",
]

DEFAULT_GRANULARITY = 32
"""Tokens a chunk, the value of the method's own inference example."""
DEFAULT_GRANULARITIES = (32, 64, 128, 256)
"""What variable chunking draws from, as in the authors' fine-tuning."""
DEFAULT_ENCODER = "lmk-mini"
"""The encoder family that comes with the package; `default` means the same."""
MAX_GRANULARITY = 1_000_000
MAX_SEED = 2**32 - 1


class _NamedMode(StrEnum):
    """A string enum whose lookup error names what came and what is allowed."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"{_NOUNS[cls.__name__]} is {value!r}; allowed: {allowed}.")


_NOUNS = {
    "ChunkingMode": "chunking",
    "LayoutKind": "layout",
    "PoolingMode": "pooling",
    "LayerKind": "layer kind",
    "ProjectionMethod": "projection method",
}


class ChunkingMode(_NamedMode):
    """How a token sequence is cut into chunks.

    The authors' names for the three are `lmk_fixed`, `lmk_var` and `lmk_en`.
    """

    FIXED = "fixed"
    """Every `granularity` tokens."""
    VARIABLE = "variable"
    """As fixed, with a granularity drawn uniformly from a set, per text or per chunk."""
    SENTENCE = "sentence"
    """At sentence ends, each sentence tokenised alone and capped in length."""


class LayoutKind(_NamedMode):
    """What goes into the encoder around the text."""

    PLAIN = "plain"
    """`[CLS] text [SEP]`."""
    LANDMARK = "landmark"
    """`[CLS] chunk [LMK] chunk [LMK] ...`."""
    MULTI_CLS = "multi_cls"
    """`[CLS] chunk [CLS] chunk ... [SEP]`."""


class PoolingMode(_NamedMode):
    """How token states become one vector."""

    CLS = "cls"
    """The state of the first attended token of `[CLS] text [SEP]`."""
    MEAN = "mean"
    """The mean over all attended tokens of `[CLS] text [SEP]`, specials included by default."""
    LANDMARK = "landmark"
    """The mean over the landmarks inserted after every chunk (arXiv 2601.21525)."""
    EVERY_K = "every_k"
    """The mean over positions 0, k, 2k, ... of `[CLS] text [SEP]`: spread out, nothing inserted."""
    MULTI_CLS = "multi_cls"
    """The mean over a CLS put before every chunk (BGE-M3's MCLS, arXiv 2402.03216)."""
    LATENT_ATTENTION = "latent_attention"
    """The mean over states that looked up learned latents: a layer of its own, trained with the
    encoder (NV-Embed, arXiv 2405.17428)."""


class LayerKind(_NamedMode):
    """Which keys a layer's attention can reach."""

    GLOBAL = "global"
    LOCAL = "local"


class ProjectionMethod(_NamedMode):
    """How vectors become points on a plane."""

    AUTO = "auto"
    """PCA below 15 distinct documents, else UMAP."""
    UMAP = "umap"
    PCA = "pca"
    TSNE = "tsne"


def _check_int(name: str, value: object, low: int, high: int, hint: str) -> int:
    """Returns the value when it is a whole number inside the range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; it has to be a whole number. {hint}")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; allowed: {low:,} to {high:,}. {hint}")
    return value


def _check_granularity(value: object, name: str = "granularity") -> int:
    return _check_int(
        name, value, 1, MAX_GRANULARITY, "It is the number of tokens a chunk; try 32, 64 or 128."
    )


@dataclass(frozen=True, slots=True)
class ChunkingConfig:
    """Where a text is cut, and whether its last chunk always gets a landmark."""

    mode: ChunkingMode = ChunkingMode.FIXED
    granularity: int = DEFAULT_GRANULARITY
    """Tokens a chunk; read by fixed chunking."""
    granularities: tuple[int, ...] = DEFAULT_GRANULARITIES
    """What variable chunking draws from."""
    per_chunk: bool = False
    """Variable chunking: draw anew for every chunk (as in pre-training), not once a text."""
    seed: int = 0
    """Of variable chunking; the draw depends on this and on the text, not on its neighbours."""
    language: str | None = None
    """Sentence chunking: ISO 639 code, or None to guess it from the script of the text."""
    sentence_cap: int = 256
    """Sentence chunking: the longest chunk, in tokens; a longer sentence is cut there."""
    close_tail: bool = False
    """Give the last kept chunk its landmark at the cost of content when the text is cut."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", ChunkingMode(self.mode))
        _check_granularity(self.granularity)
        if not isinstance(self.granularities, tuple):
            raise TypeError(
                f"granularities is {self.granularities!r}; give a tuple such as (32, 64, 128)."
            )
        if not self.granularities:
            raise ValueError("granularities is empty; give at least one size, such as (32, 64).")
        for size in self.granularities:
            _check_granularity(size, "granularities")
        _check_int("seed", self.seed, 0, MAX_SEED, "Any fixed number makes the draw repeatable.")
        _check_int(
            "sentence_cap",
            self.sentence_cap,
            1,
            MAX_GRANULARITY,
            "It is the longest sentence chunk in tokens.",
        )
        if self.language is not None and not (
            self.language.isascii()
            and self.language.replace("-", "").isalpha()
            and 2 <= len(self.language) <= 12
        ):
            raise ValueError(
                f"language is {self.language!r}; allowed: an ISO 639 code such as en, zh or ar, "
                "or nothing to guess it from the script."
            )

    def describe(self) -> str:
        """Returns the setting in words, for captions and report headers."""
        match self.mode:
            case ChunkingMode.FIXED:
                words = f"fixed, {self.granularity} tokens"
            case ChunkingMode.VARIABLE:
                unit = "chunk" if self.per_chunk else "text"
                sizes = ", ".join(map(str, self.granularities))
                words = f"variable, drawn per {unit} from {{{sizes}}}, seed {self.seed}"
            case ChunkingMode.SENTENCE:
                words = f"sentences of at most {self.sentence_cap} tokens"
        return f"{words}, tail closed" if self.close_tail else words


@dataclass(frozen=True, slots=True)
class PoolingConfig:
    """One pooling with the settings it reads."""

    mode: PoolingMode = PoolingMode.LANDMARK
    k: int | None = None
    """Step of every_k; None takes the chunking's granularity, as the authors' evaluation does."""
    include_special: bool = True
    """Whether mean counts CLS and SEP, as in the authors' code."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", PoolingMode(self.mode))
        if self.k is not None:
            _check_granularity(self.k, "k")

    @property
    def label(self) -> str:
        """The name shown for this pooling."""
        names = {
            PoolingMode.CLS: "CLS",
            PoolingMode.MEAN: "Mean" if self.include_special else "Mean, content only",
            PoolingMode.LANDMARK: "Landmark (LMK)",
            PoolingMode.EVERY_K: "Every k-th token"
            if self.k is None
            else f"Every k-th token, k = {self.k}",
            PoolingMode.MULTI_CLS: "MultiCLS",
            PoolingMode.LATENT_ATTENTION: "Latent attention",
        }
        return names[self.mode]


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Which encoder to load and where to run it."""

    name: str = DEFAULT_ENCODER
    """`lmk-mini` or `default` for the bundled family, `all-minilm-l6-v2` for the other encoder
    that needs no network, else a hub id or a local folder."""
    device: str = "auto"
    """`auto` (CUDA, else MPS, else CPU), or a torch device such as `cpu` or `cuda:1`."""
    dtype: str = "auto"
    """`auto` (bfloat16 on an accelerator, float32 on CPU), float32, bfloat16 or float16."""
    revision: str | None = None
    """Hub revision; None takes the main branch."""

    DTYPES = ("auto", "float32", "bfloat16", "float16")

    def __post_init__(self) -> None:
        name = self.name.strip()
        if not name:
            raise ValueError(
                "encoder is empty; give a hub id such as answerdotai/ModernBERT-base, "
                "a local folder, or 'default'."
            )
        if "\x00" in name or len(name) > 4096:
            raise ValueError("encoder is not a name or path: it holds NUL or is too long.")
        # One spelling, so that results are cached and reported under one name.
        object.__setattr__(self, "name", DEFAULT_ENCODER if name == "default" else name)
        if self.dtype not in self.DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; allowed: {', '.join(self.DTYPES)}.")


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """How attention rows are reduced."""

    bins: int = 32
    """Number of equal position bins; fewer where the text has fewer tokens."""
    keep_landmarks: bool = False
    """Also keep one row of bins for every single landmark, averaged over heads."""

    MAX_BINS = 1024

    def __post_init__(self) -> None:
        _check_int("bins", self.bins, 1, self.MAX_BINS, "More than 1,024 cannot be seen.")


@dataclass(frozen=True, slots=True)
class ProjectionConfig:
    """How a table of vectors is laid out on a plane."""

    method: ProjectionMethod = ProjectionMethod.AUTO
    n_neighbors: int = 15
    """Of UMAP: how many neighbours hold a point; lowered where there are fewer documents."""
    min_dist: float = 0.1
    """Of UMAP: the smallest distance between points of a clump, 0 to 1."""
    seed: int = 0
    metric: str = "cosine"
    """Distance between vectors: cosine, euclidean, manhattan or correlation."""

    METRICS = ("cosine", "euclidean", "manhattan", "correlation")

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", ProjectionMethod(self.method))
        if self.metric not in self.METRICS:
            raise ValueError(f"metric is {self.metric!r}; allowed: {', '.join(self.METRICS)}.")
        _check_int("n_neighbors", self.n_neighbors, 2, 200, "UMAP's usual value is 15.")
        if not (math.isfinite(self.min_dist) and 0.0 <= self.min_dist <= 1.0):
            raise ValueError(f"min_dist is {self.min_dist}; allowed: 0 to 1. UMAP's own is 0.1.")
        _check_int("seed", self.seed, 0, MAX_SEED, "Any fixed number makes the map repeatable.")


def digest(*parts: Any) -> str:
    """Returns a short stable digest of settings and texts.

    Args:
        parts: strings, bytes, numbers, settings dataclasses, or tuples of these.

    Returns:
        Sixteen hexadecimal digits: the same for the same content in any process.

    Example:
        >>> digest("a", 1) == digest("a", 1), digest("a", 1) == digest("a1")
        (True, False)
    """

    def plain(part: Any) -> Any:
        if hasattr(part, "__dataclass_fields__"):
            return [type(part).__name__, asdict(part)]
        if isinstance(part, tuple):
            return [plain(inner) for inner in part]
        return {"bytes": part.hex()} if isinstance(part, bytes) else part

    text = json.dumps([plain(part) for part in parts], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
