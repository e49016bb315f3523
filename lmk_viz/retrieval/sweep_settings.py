"""The settings of a sweep: which poolings at which granularities, and what each is called."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lmk_viz.config import (
    DEFAULT_GRANULARITY,
    ChunkingConfig,
    ChunkingMode,
    LayoutKind,
    PoolingConfig,
    PoolingMode,
)
from lmk_viz.pooling import POOLINGS
from lmk_viz.retrieval.metrics import check_metrics

__all__ = ["DEFAULT_POOLINGS", "SweepConfig", "SweepSetting", "plan_settings", "settings_code"]

DEFAULT_GRANULARITIES = (8, 16, 32, 64, 128, 256, 512)
DEFAULT_POOLINGS = (
    PoolingMode.CLS,
    PoolingMode.MEAN,
    PoolingMode.LANDMARK,
    PoolingMode.EVERY_K,
    PoolingMode.MULTI_CLS,
)
METRICS = ("ndcg@10", "recall@1", "mrr@10")


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """What a sweep goes through."""

    poolings: tuple[PoolingMode, ...] = DEFAULT_POOLINGS
    granularities: tuple[int, ...] = DEFAULT_GRANULARITIES
    """Of landmark pooling, tokens a chunk."""
    with_variable: bool = True
    """Add variable chunking to landmark pooling."""
    with_sentence: bool = True
    """Add sentence chunking to landmark pooling."""
    every_granularity: bool = False
    """Measure MultiCLS and every-k at each granularity too, not at `reference` alone."""
    reference: int = DEFAULT_GRANULARITY
    """Granularity of MultiCLS, and step of every-k."""
    query_granularity: int | None = None
    """Of the queries; None takes the documents'."""
    baseline: str = ""
    """Name of the row that differences are taken to; empty takes the first."""
    metrics: tuple[str, ...] = METRICS
    """The first one decides the recommendation."""
    seed: int = 0
    """Of the bootstrap."""

    def __post_init__(self) -> None:
        modes = tuple(PoolingMode(mode) for mode in self.poolings)
        object.__setattr__(self, "poolings", modes)
        if not modes or len(set(modes)) != len(modes):
            raise ValueError(
                f"poolings {[mode.value for mode in modes]} came; give at least one, each once."
            )
        if len(set(self.granularities)) != len(self.granularities):
            raise ValueError(f"granularities {self.granularities} name one twice.")
        # ChunkingConfig's message names what is allowed.
        for size in (*self.granularities, self.reference):
            ChunkingConfig(granularity=size)
        if self.query_granularity is not None:
            ChunkingConfig(granularity=self.query_granularity)
        check_metrics(self.metrics)

    def baseline_of(self, settings: Sequence["SweepSetting"]) -> str:
        """Returns the name of the baseline's row.

        Raises:
            ValueError: when no setting has it.
        """
        names = [setting.name for setting in settings]
        if self.baseline and self.baseline not in names:
            raise ValueError(f"baseline is {self.baseline!r}; allowed: {', '.join(names)}.")
        return self.baseline or names[0]


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """One row of a sweep: a pooling with where documents and queries are cut."""

    pooling: PoolingConfig
    chunking: ChunkingConfig
    query_pooling: PoolingConfig
    query_chunking: ChunkingConfig

    @property
    def granularity(self) -> int | str | None:
        """Tokens a chunk, `variable`, `sentence`, or None for a pooling that has none."""
        if self.pooling.mode is PoolingMode.EVERY_K:
            return self.pooling.k
        if POOLINGS[self.pooling.mode].layout is LayoutKind.PLAIN:
            return None
        is_fixed = self.chunking.mode is ChunkingMode.FIXED
        return self.chunking.granularity if is_fixed else self.chunking.mode.value

    @property
    def name(self) -> str:
        """Short and unique in a sweep, such as `cls`, `landmark:64` or `landmark:sentence`."""
        mode, granularity = self.pooling.mode.value, self.granularity
        return mode if granularity is None else f"{mode}:{granularity}"

    @property
    def label(self) -> str:
        """The name in words."""
        plain = PoolingConfig(self.pooling.mode).label
        if self.pooling.mode is PoolingMode.EVERY_K:
            return self.pooling.label
        if self.granularity is None:
            return plain
        words = {"variable": "variable", "sentence": "by sentence"}
        return f"{plain}, {words.get(str(self.granularity), str(self.granularity))}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the setting as plain JSON types, with what it leaves at its default."""
        return {
            "pooling": self.pooling.mode.value,
            "granularity": self.granularity,
            "k": self.pooling.k,
            "chunking": _plain(self.chunking),
            "query_chunking": _plain(self.query_chunking),
            "query_k": self.query_pooling.k,
        }


def plan_settings(
    config: SweepConfig, chunking: ChunkingConfig | None = None
) -> tuple[SweepSetting, ...]:
    """Returns the rows of a sweep, pooling by pooling, granularities rising as given.

    Args:
        config: what to go through.
        chunking: gives variable and sentence rows what they read, and all rows `close_tail`.

    Raises:
        ValueError: when nothing is left, as landmark pooling without any granularity.
    """
    base = chunking or ChunkingConfig()
    fixed = ChunkingConfig(close_tail=base.close_tail)
    each = (config.granularities if config.every_granularity else ()) or (config.reference,)
    found: list[SweepSetting] = []
    for mode in config.poolings:
        if mode is PoolingMode.EVERY_K:
            for k in each:
                own = PoolingConfig(mode, k=k)
                asked = PoolingConfig(mode, k=config.query_granularity or k)
                found.append(SweepSetting(own, ChunkingConfig(), asked, ChunkingConfig()))
            continue
        pooling = PoolingConfig(mode)
        if POOLINGS[mode].layout is LayoutKind.PLAIN:
            found.append(SweepSetting(pooling, ChunkingConfig(), pooling, ChunkingConfig()))
            continue
        sizes = config.granularities if mode is PoolingMode.LANDMARK else each
        cuts = [replace(fixed, granularity=size) for size in sizes]
        if mode is PoolingMode.LANDMARK:
            cuts += [replace(base, mode=ChunkingMode.VARIABLE)] if config.with_variable else []
            cuts += [replace(base, mode=ChunkingMode.SENTENCE)] if config.with_sentence else []
        for cut in cuts:
            size = config.query_granularity
            asked_cut = cut if size is None else replace(fixed, granularity=size)
            found.append(SweepSetting(pooling, cut, pooling, asked_cut))
    if not found:
        raise ValueError(
            "nothing to sweep over; give granularities, variable or sentence chunking, or "
            "further poolings."
        )
    return tuple(found)


def settings_code(setting: SweepSetting, encoder: str, max_length: int | None) -> str:
    """Returns lines of Python that embed documents and queries under a setting.

    Args:
        setting: any row of a sweep.
        encoder: name or folder that the encoder is loaded by.
        max_length: longest input; None takes the encoder's usable length.
    """
    same = setting.query_chunking == setting.chunking and setting.query_pooling == setting.pooling
    limit = "" if max_length is None else f", {max_length}"
    lines = [
        "from lmk_viz.config import ChunkingConfig, PoolingConfig",
        "from lmk_viz.encoder import Encoder",
        "",
        f"encoder = Encoder.from_pretrained({encoder!r})",
        f"pooling = {_code(setting.pooling)}",
        f"chunking = {_code(setting.chunking)}",
    ]
    if not same:
        lines += [
            f"query_pooling = {_code(setting.query_pooling)}",
            f"query_chunking = {_code(setting.query_chunking)}",
        ]
    asked = "pooling, chunking" if same else "query_pooling, query_chunking"
    return "\n".join(
        [
            *lines,
            "",
            'documents = ["The text of one document.", "The text of another."]',
            'queries = ["What is asked?"]',
            f"vectors = encoder.encode(documents, pooling, chunking{limit})",
            f"asked = encoder.encode(queries, {asked}{limit})",
            "scores = asked @ vectors.T  # Cosines: a row a query, a column a document.",
        ]
    )


def _plain(config: ChunkingConfig) -> dict[str, Any]:
    found = {name: getattr(config, name) for name in config.__dataclass_fields__}
    return found | {"mode": config.mode.value, "granularities": list(config.granularities)}


def _code(config: ChunkingConfig | PoolingConfig) -> str:
    """Returns the expression that makes a setting, with what differs from the defaults."""
    default = type(config)()
    arguments = []
    for name in config.__dataclass_fields__:
        value = getattr(config, name)
        if value != getattr(default, name) or (name == "mode" and isinstance(value, PoolingMode)):
            arguments.append(f"{name}={str(value)!r}" if name == "mode" else f"{name}={value!r}")
    return f"{type(config).__name__}({', '.join(arguments)})"
