"""The map of a corpus under several poolings: panels, numbers, and what they allow to say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.alignment import Placed, alignment_error, project_together
from lmk_viz.config import PoolingConfig, PoolingMode, ProjectionConfig
from lmk_viz.map_metrics import (
    Estimate,
    label_silhouette,
    layout_quality,
    length_correlation,
    linear_cka,
    mean_cosine,
    mean_estimate,
    neighbour_overlap,
    neighbour_purity,
    neighbour_shares,
)

__all__ = ["CorpusMap", "MapPanel", "PoolingPair", "build_map", "map_findings", "numbers_frame"]

MAX_MEASURED = 3_000
"""Documents that numbers are measured on; they need tables of documents by documents."""
NUMBERS = {
    "purity": "Neighbours with the same label",
    "silhouette": "Silhouette of labels",
    "trustworthiness": "Trustworthiness of the map",
    "continuity": "Continuity of the map",
    "mean_cosine": "Mean cosine of two documents",
    "length_1": "Length in component 1",
    "length_2": "Length in component 2",
}
"""The numbers of a panel, by key, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, eq=False)
class MapPanel:
    """One pooling's map and what it can be trusted for."""

    mode: PoolingMode
    placed: Placed
    numbers: Mapping[str, Estimate]
    """By the keys of `NUMBERS`; those that cannot be had are missing."""

    @property
    def points(self) -> NDArray[np.float64] | None:
        """In correspondence with the first panel, (N, 2); None where nothing is drawn."""
        return self.placed.points

    def to_dict(self) -> dict[str, Any]:
        """Returns the panel's numbers as plain JSON types."""
        return {
            "pooling": self.mode.value,
            "method": self.placed.projection.method.value,
            "numbers": {name: asdict(estimate) for name, estimate in self.numbers.items()},
            "notes": list(self.placed.projection.notes),
        }


@dataclass(frozen=True, slots=True)
class PoolingPair:
    """Two poolings of the same documents compared."""

    one: PoolingMode
    other: PoolingMode
    overlap: Estimate | None
    """Mean Jaccard overlap of the nearest neighbours in the full spaces."""
    cka: Estimate | None
    """Linear CKA of the spaces."""
    purity_gain: Estimate | None
    """Purity under `other` less that under `one`, paired by document; None without labels."""
    moved: float | None
    """How far a document lies from itself in the two panels, in radii of a layout."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return asdict(self) | {"one": self.one.value, "other": self.other.value}


@dataclass(frozen=True, slots=True, eq=False)
class CorpusMap:
    """A corpus under several poolings."""

    panels: tuple[MapPanel, ...]
    pairs: tuple[PoolingPair, ...]
    n: int
    """Documents drawn."""
    measured: int
    """Documents that the numbers are measured on, a seeded sample where there are many."""

    def __iter__(self) -> Iterator[MapPanel]:
        return iter(self.panels)

    def pair(self, one: PoolingMode, other: PoolingMode) -> PoolingPair | None:
        """Returns the comparison of two poolings, in either order; None for one with itself."""
        wanted = {one, other}
        return next((pair for pair in self.pairs if {pair.one, pair.other} == wanted), None)

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers as plain JSON types."""
        return {
            "documents": self.n,
            "measured_on": self.measured,
            "panels": [panel.to_dict() for panel in self.panels],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "findings": list(map_findings(self)),
        }


def build_map(
    vectors: Mapping[PoolingMode, NDArray[np.floating]],
    labels: Sequence[str | None],
    lengths: NDArray[np.integer] | None = None,
    config: ProjectionConfig | None = None,
) -> CorpusMap:
    """Returns the map of a corpus: a panel a pooling, their numbers, their comparisons.

    Args:
        vectors: the same documents in the same order under each pooling, each (N, D).
        labels: one a document.
        lengths: tokens of each document, shape (N,); None leaves out what is about length.
        config: how to lay them out.
    """
    config = config or ProjectionConfig()
    placed = project_together(vectors, config)
    n = len(labels)
    rows = np.arange(n)
    if n > MAX_MEASURED:
        rows = np.sort(np.random.default_rng(config.seed).choice(n, MAX_MEASURED, replace=False))
    names = [labels[row] for row in rows.tolist()]
    tables = {mode: table[rows] for mode, table in vectors.items()}
    long = None if lengths is None else np.asarray(lengths)[rows]
    panels = tuple(
        MapPanel(mode, placed[mode], _numbers(table, placed[mode], rows, names, long))
        for mode, table in tables.items()
    )
    pairs = tuple(
        _compare(one, other, tables, placed, names) for one, other in combinations(tables, 2)
    )
    return CorpusMap(panels, pairs, n, len(rows))


def _numbers(
    vectors: NDArray[np.floating],
    placed: Placed,
    rows: NDArray[np.int64],
    labels: Sequence[str | None],
    lengths: NDArray[np.integer] | None,
) -> dict[str, Estimate]:
    quality = None if placed.points is None else layout_quality(vectors, placed.points[rows])
    by_length = () if lengths is None else length_correlation(vectors, lengths)
    found = {
        "purity": neighbour_purity(vectors, labels),
        "silhouette": label_silhouette(vectors, labels),
        "trustworthiness": quality[0] if quality else None,
        "continuity": quality[1] if quality else None,
        "mean_cosine": mean_cosine(vectors),
        **{f"length_{number}": estimate for number, estimate in enumerate(by_length, start=1)},
    }
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def _compare(
    one: PoolingMode,
    other: PoolingMode,
    tables: Mapping[PoolingMode, NDArray[np.floating]],
    placed: Mapping[PoolingMode, Placed],
    labels: Sequence[str | None],
) -> PoolingPair:
    points = placed[one].points, placed[other].points
    shares = [neighbour_shares(tables[mode], labels) for mode in (one, other)]
    gain = None
    if shares[0] is not None and shares[1] is not None:
        gain = mean_estimate(shares[1][0] - shares[0][0], 0.0, 0, shares[0][2])
    return PoolingPair(
        one,
        other,
        neighbour_overlap(tables[one], tables[other]),
        linear_cka(tables[one], tables[other]),
        gain,
        None if points[0] is None or points[1] is None else alignment_error(points[0], points[1]),
    )


def numbers_frame(
    found: CorpusMap, stability: Mapping[str, Estimate | None] | None = None
) -> pd.DataFrame:
    """Returns one row a number: where it is from, its value, interval, chance level and k.

    Args:
        found: the map.
        stability: of its layouts over seeds, by pooling, where it was measured.
    """
    rows: list[dict[str, Any]] = [
        {"number": "stability", "pooling": mode} | asdict(estimate)
        for mode, estimate in (stability or {}).items()
        if estimate is not None
    ]
    for panel in found.panels:
        for name, estimate in panel.numbers.items():
            rows.append({"number": name, "pooling": panel.mode.value} | asdict(estimate))
    for pair in found.pairs:
        for name in ("overlap", "cka", "purity_gain"):
            estimate = getattr(pair, name)
            if estimate is not None:
                rows.append(
                    {"number": name, "pooling": pair.one.value, "other": pair.other.value}
                    | asdict(estimate)
                )
    columns = ["number", "pooling", "other", "value", "low", "high", "chance", "k"]
    return pd.DataFrame(rows, columns=columns).astype({"k": "Int64"})


def map_findings(found: CorpusMap) -> tuple[str, ...]:
    """Returns in sentences what the numbers allow to say, and what they do not."""
    sentences = [_labels_sentence(found)]
    with_overlap = [pair for pair in found.pairs if pair.overlap is not None]
    if with_overlap:
        least = min(with_overlap, key=lambda pair: pair.overlap.value if pair.overlap else 1.0)
        overlap = least.overlap
        if overlap is not None:
            sentences.append(
                f"{_name(least.one)} and {_name(least.other)} agree least on who is near whom: "
                f"their {overlap.k}-neighbourhoods overlap by {overlap.value:.2f} "
                f"({overlap.low:.2f} to {overlap.high:.2f}; by chance {overlap.chance:.2f})."
            )
    poor = [
        _name(panel.mode)
        for panel in found.panels
        if "trustworthiness" in panel.numbers and panel.numbers["trustworthiness"].value < 0.8
    ]
    if poor:
        sentences.append(
            f"The picture of {', '.join(poor)} invents neighbours (trustworthiness below 0.80): "
            "go by the numbers there, not by the distances drawn."
        )
    long = [
        _name(panel.mode)
        for panel in found.panels
        if any(
            panel.numbers[name].low > panel.numbers[name].chance and panel.numbers[name].value > 0.5
            for name in ("length_1", "length_2")
            if name in panel.numbers
        )
    ]
    if long:
        sentences.append(
            f"Under {', '.join(long)} a leading direction follows document length, so clumps "
            "there can be of length and not of subject."
        )
    return tuple(sentence for sentence in sentences if sentence)


def _labels_sentence(found: CorpusMap) -> str:
    pure = {p.mode: p.numbers["purity"] for p in found.panels if "purity" in p.numbers}
    if not pure:
        return "Without labels nothing here says which pooling groups these documents better."
    best = max(pure, key=lambda mode: pure[mode].value)
    top = pure[best]
    if top.low <= top.chance:
        return "No pooling groups these labels better than chance would."
    value = (
        f"{_name(best)} has the purest neighbourhoods ({top.value:.2f}; chance {top.chance:.2f})"
    )
    surpassed: list[str] = []
    tied: list[str] = []
    for mode in pure:
        pair = None if mode is best else found.pair(best, mode)
        if pair is None or pair.purity_gain is None:
            continue
        gain = pair.purity_gain
        # The gain is that of the pair's second pooling.
        margin = gain.low if pair.other is best else -gain.high
        (surpassed if margin > 0 else tied).append(_name(mode))
    if not surpassed and not tied:
        return f"{value}."
    if not surpassed:
        return f"{value}, but this corpus cannot tell it from {', '.join(tied)}."
    ending = f", and cannot be told from {', '.join(tied)}" if tied else ""
    return (
        f"{value}, above {', '.join(surpassed)} on the same documents by more than the interval "
        f"of the difference{ending}."
    )


def _name(mode: PoolingMode) -> str:
    return PoolingConfig(mode).label
