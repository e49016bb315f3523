"""What an evaluation finds: means with intervals, overall and by group of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig
from lmk_viz.corpus import Excluded
from lmk_viz.retrieval.metrics import Interval

__all__ = ["Evaluation", "GroupScores", "SystemScores"]


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Means over a group of queries, or over all of them."""

    name: str
    queries: int
    metrics: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    """This system minus the baseline, query by query; empty where there is no baseline."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, each metric with its limits."""
        found: dict[str, Any] = {"group": self.name, "queries": self.queries}
        return found | self.scores()

    def scores(self) -> dict[str, Any]:
        """Returns the metrics with their limits, and the differences where there are any."""
        found: dict[str, Any] = {}
        for name, interval in self.metrics.items():
            found |= interval.to_dict(name)
        differences: dict[str, float] = {}
        for name, interval in self.differences.items():
            differences |= interval.to_dict(name)
        return found | {"difference": differences or None}


@dataclass(frozen=True, slots=True, eq=False)
class SystemScores:
    """How one pooling, or BM25, did."""

    name: str
    """The pooling's value, or bm25."""
    trained: bool | None
    """Whether the encoder was trained for the pooling; None for BM25."""
    overall: GroupScores
    by_length: tuple[GroupScores, ...]
    """By tokens of the relevant document, groups without a query left out."""
    by_depth: tuple[GroupScores, ...]
    """By bin of the positions; empty where there are none."""
    per_query: Mapping[str, NDArray[np.float64]]
    """Values by metric, each shape (Q,), queries in the order of the data set."""
    rankings: Mapping[str, Sequence[str]]
    """Documents found by query, best first, as deep as the metrics need."""
    documents_cut: int
    """Documents that lost tokens to the length limit."""
    queries_cut: int
    seconds: float
    """Of embedding both sides, shared by poolings that read the same layout; of BM25, all."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, without what was found query by query."""
        return {
            "pooling": self.name,
            "trained": self.trained,
            **self.overall.scores(),
            "by_length": [group.to_dict() for group in self.by_length],
            "by_depth": [group.to_dict() for group in self.by_depth],
            "documents_cut": self.documents_cut,
            "queries_cut": self.queries_cut,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Several poolings of one encoder on one data set."""

    dataset: str
    encoder_name: str
    chunking: ChunkingConfig
    max_length: int | None
    with_titles: bool
    baseline: str | None
    """What differences are taken to; None where it was not among the poolings."""
    documents: int
    query_ids: tuple[str, ...]
    length_edges: tuple[float, float]
    """Tokens: short documents have at most the first, long ones more than the second."""
    rows: tuple[SystemScores, ...]
    bm25: SystemScores | None
    excluded: tuple[Excluded, ...]
    """Documents and queries that have no vector; such a query counts 0."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return {
            "dataset": self.dataset,
            "encoder": self.encoder_name,
            "chunking": self.chunking.describe(),
            "max_length": self.max_length,
            "with_titles": self.with_titles,
            "baseline": self.baseline,
            "documents": self.documents,
            "queries": len(self.query_ids),
            "length_edges": list(self.length_edges),
            "rows": [row.to_dict() for row in self.rows],
            "bm25": self.bm25.to_dict() if self.bm25 else None,
            "excluded": [{"id": e.id, "reason": e.reason} for e in self.excluded],
            "notes": list(self.notes),
        }
