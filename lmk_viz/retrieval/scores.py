"""What an evaluation finds: means with intervals, overall and by group of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig
from lmk_viz.corpus import Excluded
from lmk_viz.retrieval.metrics import Interval

__all__ = ["Evaluation", "GroupScores", "PValue", "SearchCost", "SystemScores"]

BYTES_A_NUMBER = 4
"""Of float32, in which vectors are kept."""


@dataclass(frozen=True, slots=True)
class PValue:
    """How often chance alone gives a difference as large as one that was seen."""

    alone: float
    """Of a two-sided paired randomisation test, over 0 and up to 1."""
    corrected: float
    """After Holm's correction for all comparisons to the baseline under the same metric."""


@dataclass(frozen=True, slots=True)
class SearchCost:
    """What an index takes, and what a query costs in exact search."""

    vectors: int
    """Held in the index; each is one dot product a query."""
    bytes: int
    """Of the vectors in float32, without ids."""
    seconds_a_query: float
    """Of comparing and ranking alone, all queries together, a query's share; the query's own
    encoding is not in it."""

    @classmethod
    def of(cls, vectors: int, dimensions: int, seconds: float, queries: int) -> "SearchCost":
        """Returns the cost of an index of so many vectors that queries took seconds to search."""
        size = vectors * dimensions * BYTES_A_NUMBER
        return cls(vectors, size, seconds / queries if queries else 0.0)

    def to_dict(self) -> dict[str, float]:
        """Returns plain JSON types."""
        return {
            "vectors": self.vectors,
            "bytes": self.bytes,
            "dot_products": self.vectors,
            "seconds_a_query": self.seconds_a_query,
        }


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Means over a group of queries, or over all of them."""

    name: str
    queries: int
    metrics: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    """This system minus the baseline, query by query; empty where there is no baseline."""
    p_values: Mapping[str, PValue] = field(default_factory=dict)
    """Of those differences, over all queries alone: groups are too many and too small to test."""

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
        for name, p in self.p_values.items():
            differences |= {f"{name}_p": p.alone, f"{name}_p_holm": p.corrected}
        return found | {"difference": differences or None}


@dataclass(frozen=True, slots=True, eq=False)
class SystemScores:
    """How one pooling, one way to keep several vectors, or BM25 did."""

    name: str
    """The value of the pooling or of the way to keep several vectors, or bm25."""
    trained: bool | None
    """Whether the encoder was trained for the pooling that is read; None for BM25."""
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
    cost: SearchCost | None = None
    """None for BM25, which keeps words."""
    fell_back: int = 0
    """Documents that had no position of their own to read and took the mean."""

    def rank_of(self, query: str, grades: Mapping[str, int]) -> int | None:
        """Returns the rank of a query's first relevant document, from 1; None if not found.

        Args:
            query: its id.
            grades: by document, of that query; above 0 is relevant.
        """
        found = enumerate(self.rankings.get(query, ()), start=1)
        return next((rank for rank, document in found if grades.get(document, 0) > 0), None)

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
            "index": self.cost.to_dict() if self.cost else None,
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
    lengths: NDArray[np.float64]
    """Tokens of each query's best judged document, shape (Q,); NaN where it has no vector."""
    rows: tuple[SystemScores, ...]
    """The poolings, then what keeps several vectors a document, each in the order asked for."""
    bm25: SystemScores | None
    excluded: tuple[Excluded, ...]
    """Documents and queries that have no vector; such a query counts 0."""
    notes: tuple[str, ...]
    is_partial: bool = False
    """Stopped before the end; `rows` holds what was measured until then."""

    @property
    def systems(self) -> tuple[SystemScores, ...]:
        """All rows, BM25 last where it is there."""
        return (*self.rows, *([self.bm25] if self.bm25 else []))

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
            "partial": self.is_partial,
        }
