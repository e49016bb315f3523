"""Length: the needle probe at multiples of a length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pandas as pd

from lmk_viz.config import ChunkingConfig, PoolingConfig
from lmk_viz.documents import Document
from lmk_viz.embedding_encoder import EmbeddingEncoder
from lmk_viz.probes.needle import NeedleConfig, NeedleResult, needle_curves
from lmk_viz.probes.needles import Needle
from lmk_viz.probes.runs import Embedder, Progress, ShouldStop

__all__ = ["FACTORS", "NeedleLengths", "needle_by_length"]

FACTORS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, eq=False)
class NeedleLengths:
    """The needle probe's result at several lengths, shortest first."""

    results: tuple[NeedleResult, ...]
    lengths_wanted: tuple[int, ...]
    """More than there are results when the run was stopped."""

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped before its end."""
        return len(self.results) < len(self.lengths_wanted) or any(
            result.is_partial for result in self.results
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, one row a length and pooling."""
        rows = [
            {"tokens": result.config.tokens, **row}
            for result in self.results
            for row in result.to_dict()["rows"]
        ]
        return {"lengths_wanted": list(self.lengths_wanted), "rows": rows}

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a length, pooling and depth."""
        parts = []
        for result in self.results:
            part = result.to_frame()
            part.insert(0, "tokens", result.config.tokens)
            parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def scalars_frame(self) -> pd.DataFrame:
        """Returns one row a length and pooling."""
        parts = []
        for result in self.results:
            part = result.scalars_frame()
            part.insert(0, "tokens", result.config.tokens)
            parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def needle_by_length(
    encoder: EmbeddingEncoder,
    needles: Sequence[Needle],
    fillers: Sequence[Document],
    poolings: Sequence[PoolingConfig],
    config: NeedleConfig | None = None,
    factors: Sequence[int] = FACTORS,
    chunking: ChunkingConfig | None = None,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> NeedleLengths:
    """Returns the needle probe at multiples of its length, with the same needles.

    Args:
        encoder: the encoder.
        needles: facts with their questions.
        fillers: texts of at least the greatest length in tokens.
        poolings: at least one.
        config: with the length that the factors multiply.
        factors: rising, at least one.
        chunking: where landmarks go.
        progress: called with passes done and passes in all.
        should_stop: asked after each batch; what was done by then is kept.

    Raises:
        ValueError: as the needle probe does, before anything is measured where it can be
            told; or when factors do not rise from 1 or more.
    """
    config = config or NeedleConfig()
    wanted = list(factors)
    rises = all(a < b for a, b in pairwise(wanted))
    if not wanted or wanted[0] < 1 or not rises:
        raise ValueError(f"factors are {wanted}; give rising whole numbers, such as 1, 2, 4, 8.")
    lengths = tuple(config.tokens * factor for factor in wanted)
    kinds = len(Embedder.build(encoder, poolings, chunking).kinds)
    each = kinds * len(needles) * (len(fillers) * config.depths + 1)
    total = each * len(lengths)
    results: list[NeedleResult] = []
    stopped = False

    def stop() -> bool:
        nonlocal stopped
        stopped = stopped or (should_stop is not None and should_stop())
        return stopped

    # Longest first, since it is the one that may not fit.
    for number, tokens in enumerate(reversed(lengths)):
        result = needle_curves(
            encoder,
            needles,
            fillers,
            poolings,
            replace(config, tokens=tokens),
            chunking,
            _offset(progress, number * each, total),
            stop,
        )
        if result.needles:
            results.insert(0, result)
        if stopped:
            break
    return NeedleLengths(tuple(results), lengths)


def _offset(progress: Progress | None, before: int, total: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
