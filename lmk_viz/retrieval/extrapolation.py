"""Settings and results of a run over multiples of the training length."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode
from lmk_viz.retrieval.dataset import depth_third
from lmk_viz.retrieval.metrics import bootstrap_interval

__all__ = [
    "DEFAULT_LENGTH",
    "METRICS",
    "Extrapolation",
    "ExtrapolationConfig",
    "ExtrapolationRow",
]

METRICS = ("ndcg@10", "recall@1")
DEFAULT_LENGTH = 256
"""Training length where an encoder does not say its own."""
THIRDS = ("start", "middle", "end")


@dataclass(frozen=True, slots=True)
class ExtrapolationConfig:
    """Which documents are built."""

    length: int = DEFAULT_LENGTH
    """The training length in tokens, specials included."""
    multiples: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    documents: int = 150
    seed: int = 0

    def __post_init__(self) -> None:
        if not 16 <= self.length <= 1_000_000:
            raise ValueError(f"length is {self.length:,}; allowed: 16 to 1,000,000 tokens.")
        if not self.multiples or len(set(self.multiples)) != len(self.multiples):
            raise ValueError(f"multiples are {self.multiples}; give at least one, each once.")
        if not all(1 <= multiple <= 1024 for multiple in self.multiples):
            raise ValueError(f"multiples are {self.multiples}; allowed: 1 to 1,024.")
        if not 2 <= self.documents <= 100_000:
            raise ValueError(f"documents is {self.documents:,}; allowed: 2 to 100,000.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}; allowed: 0 to {2**32 - 1:,}.")


@dataclass(frozen=True, slots=True, eq=False)
class ExtrapolationRow:
    """One pooling at one multiple of the length."""

    pooling: PoolingMode
    multiple: int
    trained: bool
    per_query: Mapping[str, NDArray[np.float64]]
    """nDCG@10 and recall@1, each shape (N,)."""
    places: NDArray[np.float64]
    """Share of the other text before the gold, shape (N,)."""
    tokens: float
    """Text tokens a document, on average."""
    seconds: float
    """Of embedding, shared by poolings that took the same pass."""
    probe: tuple[float, ...]
    """First components of the first query's vector: tells other weights apart."""

    def third(self, name: str) -> float | None:
        """Returns nDCG@10 of the documents whose gold stands in a third, None without any."""
        chosen = np.asarray([depth_third(place) == name for place in self.places.tolist()])
        return float(self.per_query["ndcg@10"][chosen].mean()) if chosen.any() else None

    def to_dict(self, baseline: "ExtrapolationRow | None", seed: int) -> dict[str, Any]:
        """Returns plain JSON types, with the paired difference to a row of the same multiple."""
        ndcg = self.per_query["ndcg@10"]
        thirds = {name: self.third(name) for name in THIRDS}
        start, end = thirds["start"], thirds["end"]
        difference = None
        if baseline is not None and baseline.pooling != self.pooling:
            found = bootstrap_interval(ndcg - baseline.per_query["ndcg@10"], seed)
            difference = {"mean": found.value, "low": found.low, "high": found.high}
        return {
            "pooling": self.pooling.value,
            "multiple": self.multiple,
            "trained": self.trained,
            **bootstrap_interval(ndcg, seed).to_dict("ndcg@10"),
            "recall@1": float(self.per_query["recall@1"].mean()),
            **thirds,
            "end_to_start": end / start if start and end is not None else None,
            "difference": difference,
            "documents": len(ndcg),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "per_query": {name: values.tolist() for name, values in self.per_query.items()},
            "places": self.places.tolist(),
            "probe": list(self.probe),
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "ExtrapolationRow":
        """Returns the row that `to_dict` wrote.

        Raises:
            ValueError: when something is missing or of another kind.
        """
        try:
            found = cls(
                pooling=PoolingMode(row["pooling"]),
                multiple=int(row["multiple"]),
                trained=bool(row["trained"]),
                per_query={m: np.asarray(row["per_query"][m], dtype=float) for m in METRICS},
                places=np.asarray(row["places"], dtype=float),
                tokens=float(row["tokens"]),
                seconds=float(row["seconds"]),
                probe=tuple(float(value) for value in row["probe"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a kept row cannot be read: {error!r}.") from error
        if any(values.shape != found.places.shape for values in found.per_query.values()):
            raise ValueError("a kept row cannot be read: its lists differ in length.")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Extrapolation:
    """Poolings by multiples, as far as measured."""

    settings: Mapping[str, Any]
    """What the numbers depend on; rows of other settings cannot be put beside these."""
    baseline: PoolingMode
    rows: tuple[ExtrapolationRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types: settings, and rows by multiple."""
        reference = {row.multiple: row for row in self.rows if row.pooling is self.baseline}
        seed = int(self.settings["seed"])
        return {
            "settings": dict(self.settings),
            "baseline": self.baseline.value,
            "rows": [row.to_dict(reference.get(row.multiple), seed) for row in self.rows],
        }
