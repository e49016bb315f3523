"""From rankings to scores: over all queries, and by length and depth of the right document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.metrics import bootstrap_interval, score_rankings
from lmk_viz.retrieval.scores import GroupScores, PValue, SearchCost, SystemScores
from lmk_viz.retrieval.significance import holm, paired_p_values

__all__ = ["Found", "LengthGroups", "score_systems"]

LENGTHS = ("short", "medium", "long")
DEPTHS = ("start", "middle", "end")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Rankings of one system before they are scored."""

    name: str
    trained: bool | None
    rankings: Mapping[str, Sequence[str]]
    documents_cut: int
    queries_cut: int
    seconds: float
    cost: SearchCost | None = None
    fell_back: int = 0

    @classmethod
    def of(cls, scores: SystemScores) -> "Found":
        """Returns what was found, out of its scores."""
        return cls(**{name: getattr(scores, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True, eq=False)
class LengthGroups:
    """Queries in three groups by the tokens of the document that answers them."""

    lengths: NDArray[np.float64]
    """Of each query's best judged document, shape (Q,); NaN where it has no vector."""
    edges: tuple[float, float]
    """Terciles of those lengths."""

    @classmethod
    def of(cls, dataset: RetrievalDataset, tokens: Mapping[str, int]) -> "LengthGroups":
        """Returns the groups, from the tokens of each document by id."""
        lengths = _relevant_lengths(dataset, tokens)
        return cls(lengths, _terciles(lengths))


def score_systems(
    dataset: RetrievalDataset,
    systems: Sequence[Found],
    metrics: Sequence[str],
    baseline: str | None,
    seed: int,
    groups: LengthGroups,
    per_query: Mapping[str, Mapping[str, NDArray[np.float64]]] | None = None,
) -> list[SystemScores]:
    """Returns the scores of each system, in order, with its differences to the baseline.

    Args:
        dataset: what was searched.
        systems: their rankings; the baseline may be among them.
        metrics: names such as `ndcg@10`.
        baseline: name of the system that differences are taken to; None for none.
        seed: of bootstrap and randomisation test.
        groups: by length.
        per_query: values by system and metric where they are known; None takes the rankings.
    """
    if per_query is None:
        per_query = {s.name: score_rankings(dataset.qrels, s.rankings, metrics) for s in systems}
    reference = per_query.get(baseline) if baseline else None
    p_values = _p_values(per_query, metrics, baseline, seed)
    everything = np.ones(len(dataset.queries), dtype=bool)
    lengths, edges = groups.lengths, groups.edges
    by_length = _groups(
        np.asarray(LENGTHS)[np.searchsorted(edges, lengths)[np.isfinite(lengths)]].tolist(),
        np.flatnonzero(np.isfinite(lengths)),
        len(lengths),
        LENGTHS,
    )
    placed = [row for row, query in enumerate(dataset.queries) if query in dataset.bins]
    ids = tuple(dataset.queries)
    by_depth = _groups(
        [dataset.bins[ids[row]] for row in placed],
        np.asarray(placed, dtype=np.int64),
        len(ids),
        DEPTHS,
    )

    def score(system: str, name: str, chosen: NDArray[np.bool_]) -> GroupScores:
        own = per_query[system]
        against = None if system == baseline else reference
        return GroupScores(
            name=name,
            queries=int(chosen.sum()),
            metrics={m: bootstrap_interval(own[m][chosen], seed) for m in metrics},
            differences={
                m: bootstrap_interval(own[m][chosen] - against[m][chosen], seed) for m in metrics
            }
            if against is not None
            else {},
            p_values=p_values.get(system, {}) if chosen is everything else {},
        )

    return [
        SystemScores(
            name=system.name,
            trained=system.trained,
            overall=score(system.name, "all", everything),
            by_length=tuple(score(system.name, n, chosen) for n, chosen in by_length.items()),
            by_depth=tuple(score(system.name, n, chosen) for n, chosen in by_depth.items()),
            per_query=per_query[system.name],
            rankings=system.rankings,
            documents_cut=system.documents_cut,
            queries_cut=system.queries_cut,
            seconds=system.seconds,
            cost=system.cost,
            fell_back=system.fell_back,
        )
        for system in systems
    ]


def _p_values(
    per_query: Mapping[str, Mapping[str, NDArray[np.float64]]],
    metrics: Sequence[str],
    baseline: str | None,
    seed: int,
) -> dict[str, dict[str, PValue]]:
    """Returns by system and metric whether its difference to the baseline is chance.

    Corrected within a metric: who reads one metric makes as many comparisons as there are
    systems besides the baseline.
    """
    others = [name for name in per_query if name != baseline]
    if baseline is None or baseline not in per_query or not others:
        return {}
    found: dict[str, dict[str, PValue]] = {name: {} for name in others}
    for metric in metrics:
        against = per_query[baseline][metric]
        differences = np.stack([per_query[name][metric] - against for name in others])
        alone = paired_p_values(differences, seed).tolist()
        for name, p, corrected in zip(others, alone, holm(alone), strict=True):
            found[name][metric] = PValue(p, corrected)
    return found


def _relevant_lengths(dataset: RetrievalDataset, tokens: Mapping[str, int]) -> NDArray[np.float64]:
    """Returns the tokens of each query's best judged document, NaN where it has no vector."""
    found = []
    for grades in dataset.qrels.values():
        best = min(grades, key=lambda document: (-grades[document], document))
        found.append(float(tokens.get(best, np.nan)))
    return np.asarray(found)


def _terciles(lengths: NDArray[np.float64]) -> tuple[float, float]:
    known = lengths[np.isfinite(lengths)]
    if not len(known):
        return 0.0, 0.0
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    return float(low), float(high)


def _groups(
    names: Sequence[str], rows: NDArray[np.int64], n: int, order: Sequence[str]
) -> dict[str, NDArray[np.bool_]]:
    """Returns the queries of each group as a mask, known names first and in their order."""
    known = [name for name in order if name in names]
    others = sorted(set(names) - set(order))
    found: dict[str, NDArray[np.bool_]] = {}
    for name in (*known, *others):
        mask = np.zeros(n, dtype=bool)
        mask[[row for row, of_row in zip(rows.tolist(), names, strict=True) if of_row == name]] = (
            True
        )
        found[name] = mask
    return found
