"""Measures of a ranking, a value a query, and their intervals over queries.

The only module that knows ir-measures. Its back ends break ties differently, so rankings come
in as lists that are already in order, and are handed on with scores made from ranks.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DEFAULT_METRICS",
    "Interval",
    "bootstrap_interval",
    "check_metrics",
    "deepest_cutoff",
    "parse_metrics",
    "score_rankings",
]

DEFAULT_METRICS = ("ndcg@10", "recall@1", "recall@10", "mrr@10")
RESAMPLES = 2000
CONFIDENCE = 0.95
MAX_CUTOFF = 1000
_BLOCK_DRAWS = 4_000_000

_NAMES = {"ndcg": "nDCG", "recall": "R", "mrr": "RR", "map": "AP", "precision": "P"}
_PATTERN = re.compile(r"([a-z]+)@([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over queries with the interval of its bootstrap."""

    value: float
    low: float
    high: float

    def to_dict(self, name: str) -> dict[str, float]:
        """Returns the mean under a name, and its limits under name_low and name_high."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def parse_metrics(names: str) -> tuple[str, ...]:
    """Returns the metrics in a comma-separated list such as `ndcg@10,recall@1`."""
    return check_metrics([name.strip().lower() for name in names.split(",") if name.strip()])


def check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names when all are known and none comes twice.

    Raises:
        ValueError: otherwise.
    """
    if not names or len(set(names)) != len(names):
        raise ValueError(f"metrics {list(names)} came; give at least one, each once.")
    for name in names:
        _split(name)
    return tuple(names)


def deepest_cutoff(names: Sequence[str]) -> int:
    """Returns how many documents a ranking needs for all of the metrics.

    Example:
        >>> deepest_cutoff(["ndcg@10", "recall@100"])
        100
    """
    return max(_split(name)[1] for name in names)


def score_rankings(
    qrels: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Sequence[str]],
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> dict[str, NDArray[np.float64]]:
    """Returns the value of each metric for every judged query, in the order of qrels.

    Args:
        qrels: grades by document by query; 0 and below is not relevant.
        rankings: document ids by query, best first, each once. A query that is missing, or
            has an empty ranking, counts 0; documents without a judgement count as not
            relevant.
        metrics: names such as `ndcg@10`. nDCG takes the grade as gain and log2 as discount.

    Returns:
        Values in [0, 1], each shape (Q,).

    Raises:
        ValueError: when a metric is unknown, a ranking holds a document twice, or belongs to
            a query without judgements.

    Example:
        >>> scores = score_rankings({"q": {"a": 1}}, {"q": ["b", "a"]}, ["mrr@10"])
        >>> scores["mrr@10"].tolist()
        [0.5]
    """
    import ir_measures

    metrics = check_metrics(metrics)
    if strangers := [query for query in rankings if query not in qrels]:
        raise ValueError(f"query {strangers[0]!r} has a ranking and no judgement.")
    for query, ranking in rankings.items():
        if len(set(ranking)) != len(ranking):
            raise ValueError(f"the ranking of query {query!r} holds a document twice.")
    place = {query: row for row, query in enumerate(qrels)}
    values = {name: np.zeros(len(qrels)) for name in metrics}
    # Back ends in C crash on names with a NUL or half a character, so they are given numbers.
    known = {*(doc for grades in qrels.values() for doc in grades)}
    known.update(doc for ranking in rankings.values() for doc in ranking)
    number = {doc: str(n) for n, doc in enumerate(known)}
    # Distinct scores that fall by rank leave no tie for a back end to break.
    run = {
        str(place[query]): {number[d]: float(len(ranking) - r) for r, d in enumerate(ranking)}
        for query, ranking in rankings.items()
        if ranking
    }
    if not run:
        return values
    by_measure = {_measure(ir_measures, name): name for name in metrics}
    judged = {
        str(place[query]): {number[doc]: grade for doc, grade in grades.items()}
        for query, grades in qrels.items()
    }
    for result in ir_measures.iter_calc(list(by_measure), judged, run):
        values[by_measure[result.measure]][int(result.query_id)] = result.value
    return values


def bootstrap_interval(
    values: NDArray[np.float64],
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Returns the mean of per-query values with its percentile bootstrap interval.

    The resampled queries depend on the seed and the number of queries alone. So the interval
    of a difference of two systems, query by query, is a paired one over the same resamples as
    the interval of each.

    Args:
        values: one a query, shape (Q,), at least one.
        seed: of the resampling.
        resamples: how often to draw Q queries with replacement.
        confidence: share of the resampled means inside the interval.

    Raises:
        ValueError: when there is no query.
    """
    n = len(values)
    if not n:
        raise ValueError("no query to average over; give at least one value.")
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    block = max(1, _BLOCK_DRAWS // n)
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        means[start : start + count] = values[rng.integers(0, n, size=(count, n))].mean(axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(np.mean(values)), float(low), float(high))


def _split(name: str) -> tuple[str, int]:
    match = _PATTERN.fullmatch(name)
    if match is None or match[1] not in _NAMES or int(match[2]) > MAX_CUTOFF:
        raise ValueError(
            f"metric is {name!r}; allowed: {', '.join(f'{n}@k' for n in _NAMES)} with k from 1 "
            f"to {MAX_CUTOFF:,}, such as ndcg@10."
        )
    return _NAMES[match[1]], int(match[2])


def _measure(ir_measures: Any, name: str) -> Any:
    kind, cutoff = _split(name)
    return getattr(ir_measures, kind) @ cutoff
