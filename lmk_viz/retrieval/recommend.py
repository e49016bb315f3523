"""Which setting to take: the cheapest that the queries cannot tell from the best one.

The best setting is found on the same queries that it is then compared on, and the best of many
looks better than it is (the winner's curse). So differences are not judged one by one: the
queries are resampled for all settings together (a paired bootstrap), and the intervals are made
so wide that those of all pairs of settings hold at once. Whichever pair is looked at afterwards,
and for whatever reason, its interval is wide enough.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.retrieval.metrics import CONFIDENCE, RESAMPLES, Interval

__all__ = ["Candidate", "Comparison", "Recommendation", "Verdict", "queries_needed", "recommend"]

MIN_QUERIES = 10
"""With fewer, differences that all point one way come up by chance too often to be resampled."""
POWER = 0.8
"""How often so many queries as `queries_needed` says would tell a difference of that size."""
SAME_SECONDS = 1.1
"""Times that differ by less are taken for equal: runs of the same work differ by as much."""
_BLOCK_DRAWS = 4_000_000
_NOISE = 1e-12


class Verdict(StrEnum):
    """What the queries say."""

    RECOMMENDED = "recommended"
    """Some settings are told from the best; of those that are not, the cheapest is named."""
    CANNOT_TELL = "cannot_tell"
    """No setting is told from the best. The cheapest is named, until more queries tell."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One setting with what it found and what it costs."""

    name: str
    scores: NDArray[np.float64]
    """Value of the measure by query, shape (Q,), the same queries for every candidate."""
    tokens: float
    """That the encoder reads, a document or in all."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The best setting less another, with an interval that holds for all pairs at once."""

    name: str
    difference: Interval
    is_told_apart: bool
    """Whether the interval leaves 0 out, and there are enough queries to say so."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The setting to take, and what the queries say about the others."""

    metric: str
    verdict: Verdict
    name: str
    """The cheapest setting that is not told from the best."""
    best: str
    """The setting with the highest mean, the cheaper one of two that tie."""
    mean: float
    """Of the measure under the recommended setting."""
    comparisons: tuple[Comparison, ...]
    """A row a setting, in the order given; that of the best itself is 0."""
    queries: int
    confidence: float
    needed_to_tell: str | None
    """The setting that `queries_needed` would tell from the best: the recommended one, or where
    nothing is told, the one that is nearest to being told. None where all find the same."""
    queries_needed: int | None
    """About how many queries would tell the two apart, were they to differ as they do here."""

    def of(self, name: str) -> Comparison:
        """Returns the comparison of a setting."""
        return next(row for row in self.comparisons if row.name == name)

    def words(self, label: Callable[[str], str] = str) -> str:
        """Returns the recommendation in a few sentences.

        Args:
            label: how to call a setting.
        """
        own = self.of(self.name).difference
        inside = sum(not row.is_told_apart for row in self.comparisons)
        parts = []
        if self.verdict is Verdict.CANNOT_TELL:
            parts.append(
                f"The data cannot tell: with {self.queries:,} queries no setting is told from "
                f"the best, {label(self.best)}"
                + (
                    ", which is the cheapest too."
                    if self.name == self.best
                    else f". The cheapest, {label(self.name)}, is {_ranged(own)} {self.metric} "
                    "behind it, which may be chance."
                )
            )
        elif self.name == self.best:
            parts.append(
                f"Take {label(self.name)}: it has the highest {self.metric}, {self.mean:.3f}, "
                + (
                    "and every other setting is told from it."
                    if inside == 1
                    else f"and is the cheapest of the {inside} settings that are not told apart."
                )
            )
        else:
            parts.append(
                f"Take {label(self.name)}: the cheapest of the {inside} settings that are not "
                f"told from the best, {label(self.best)}; it is {_ranged(own)} {self.metric} "
                "behind it."
            )
        if self.queries < MIN_QUERIES:
            parts.append(f"Fewer than {MIN_QUERIES} queries tell nothing, however they come out.")
        if self.queries_needed is not None and self.needed_to_tell is not None:
            parts.append(
                f"About {self.queries_needed:,} queries would tell {label(self.needed_to_tell)} "
                f"from {label(self.best)}, were they to differ as they do here."
            )
        return " ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return {
            "verdict": self.verdict.value,
            "name": self.name,
            "best": self.best,
            "metric": self.metric,
            "mean": self.mean,
            "queries": self.queries,
            "confidence": self.confidence,
            "behind_best": self.of(self.name).difference.to_dict("difference"),
            "not_told_from_best": [c.name for c in self.comparisons if not c.is_told_apart],
            "comparisons": [
                {"name": c.name, "is_told_apart": c.is_told_apart}
                | c.difference.to_dict("difference")
                for c in self.comparisons
            ],
            "needed_to_tell": self.needed_to_tell,
            "queries_needed": self.queries_needed,
            "words": self.words(),
        }


def recommend(
    candidates: Sequence[Candidate],
    metric: str = "ndcg@10",
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Recommendation:
    """Returns the cheapest setting whose difference to the best has an interval that includes 0.

    Cheapest is what lets the encoder read the fewest tokens; of those, what takes the fewest
    seconds; of times within 10 %, what has the higher mean.

    The interval of a pair is its mean difference d and c standard errors of d on each side.
    c is the 95th percentile, over resamples of the queries, of the greatest deviation of any
    pair from its mean, in standard errors, widened for few queries by the first term between
    Student's and the normal distribution, (c³ + c) / 4(Q − 1).

    Args:
        candidates: at least two, over the same queries.
        metric: what the scores are, for words.
        seed: of the resampling.
        resamples: how often to draw Q queries with replacement.
        confidence: of all intervals together.

    Raises:
        ValueError: when there are fewer than two candidates, two of one name, no query, or
            scores of different queries.
    """
    names = [candidate.name for candidate in candidates]
    if len(names) < 2 or len(set(names)) != len(names):
        raise ValueError(f"settings {names} came; give at least two, each once.")
    sizes = {candidate.scores.shape for candidate in candidates}
    if len(sizes) != 1 or len(candidates[0].scores) == 0:
        raise ValueError(
            f"scores of shapes {sorted(sizes)} came; give one a query, over the same queries."
        )
    scores = np.stack([candidate.scores for candidate in candidates]).astype(np.float64)
    n = scores.shape[1]
    means = scores.mean(axis=1)
    order = _by_cost(candidates, means)
    best = max(order, key=lambda row: (round(float(means[row]), 12), -order.index(row)))
    errors = _standard_errors(scores)
    critical = _critical_value(scores, errors, seed, resamples, confidence)
    widened = critical + (critical**3 + critical) / (4 * max(1, n - 1))
    told = np.zeros(len(names), dtype=bool)
    comparisons = []
    for row, name in enumerate(names):
        d, half = float(means[best] - means[row]), float(widened * errors[best, row])
        told[row] = n >= MIN_QUERIES and d - half > 0
        interval = Interval(d, d - half, d + half)
        comparisons.append(Comparison(name, interval, bool(told[row])))
    chosen = next(row for row in order if not told[row])
    target = _to_be_told(chosen, best, means, errors, bool(told.any()))
    needed = None
    if target is not None:
        spread = float(errors[best, target]) * math.sqrt(n)
        needed = max(
            # More than there are, in any case, as those have not told the two apart.
            *(MIN_QUERIES, n + 1),
            queries_needed(float(means[best] - means[target]), spread, critical),
        )
    return Recommendation(
        metric=metric,
        verdict=Verdict.RECOMMENDED if told.any() else Verdict.CANNOT_TELL,
        name=names[chosen],
        best=names[best],
        mean=float(means[chosen]),
        comparisons=tuple(comparisons),
        queries=n,
        confidence=confidence,
        needed_to_tell=None if target is None else names[target],
        queries_needed=needed,
    )


def queries_needed(difference: float, spread: float, critical: float | None = None) -> int:
    """Returns about how many queries tell a mean difference from 0 in four of five trials.

    n = ((c + z) · s / d)², the sample size of a paired comparison, with d the mean and s the
    standard deviation of the differences by query, c the critical value and z the 80th
    percentile of the normal distribution.

    Args:
        difference: d, not 0.
        spread: s.
        critical: c; None takes that of a single comparison at 95 %, 1.96.

    References:
        T. Sakai, Topic set size design, Information Retrieval Journal 19 (2016), 256-283.

    Example:
        >>> queries_needed(0.05, 0.25)
        197
    """
    if not difference:
        raise ValueError("difference is 0; no number of queries tells what is equal apart.")
    normal = NormalDist()
    c = normal.inv_cdf((1 + CONFIDENCE) / 2) if critical is None else critical
    return max(1, math.ceil(((c + normal.inv_cdf(POWER)) * spread / difference) ** 2))


def _by_cost(candidates: Sequence[Candidate], means: NDArray[np.float64]) -> list[int]:
    """Returns the rows, the cheapest first."""
    found: list[int] = []
    for tokens in sorted({candidate.tokens for candidate in candidates}):
        rows = [row for row, c in enumerate(candidates) if c.tokens == tokens]
        while rows:
            limit = min(candidates[row].seconds for row in rows) * SAME_SECONDS
            level = [row for row in rows if candidates[row].seconds <= limit]
            found += sorted(level, key=lambda row: (-round(float(means[row]), 12), row))
            rows = [row for row in rows if row not in level]
    return found


def _standard_errors(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the standard error of the mean difference of each pair, shape (N, N)."""
    n = scores.shape[1]
    if n < 2:
        return np.zeros((len(scores), len(scores)))
    # Pair by pair: a difference of variances would leave noise where two rows are equal.
    found = np.stack([np.std(scores - row, axis=1, ddof=1) for row in scores])
    # What differs by the same on every query has noise of the last digit alone.
    found[found < _NOISE] = 0.0
    return np.asarray(found / math.sqrt(n))


def _critical_value(
    scores: NDArray[np.float64],
    errors: NDArray[np.float64],
    seed: int,
    resamples: int,
    confidence: float,
) -> float:
    """Returns the quantile of the greatest deviation of any pair, in its standard errors."""
    rows, columns = np.triu_indices(len(scores), 1)
    varying = errors[rows, columns] > 0
    rows, columns = rows[varying], columns[varying]
    if not len(rows):
        return 0.0
    n = scores.shape[1]
    rng = np.random.default_rng(seed)
    means = scores.mean(axis=1)
    greatest = np.empty(resamples)
    block = max(1, _BLOCK_DRAWS // n)
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        drawn = rng.integers(0, n, size=(count, n))
        # Counting draws turns each resample into one matrix product over all candidates.
        flat = drawn + n * np.arange(count)[:, None]
        weights = np.bincount(flat.ravel(), minlength=count * n).reshape(count, n)
        off = weights @ scores.T / n - means
        deviations = np.abs(off[:, rows] - off[:, columns]) / errors[rows, columns]
        greatest[start : start + count] = deviations.max(axis=1)
    return float(np.quantile(greatest, confidence))


def _to_be_told(
    chosen: int,
    best: int,
    means: NDArray[np.float64],
    errors: NDArray[np.float64],
    is_any_told: bool,
) -> int | None:
    """Returns the row whose difference to the best one would want to have told; None for none."""
    behind = means[best] - means
    if is_any_told:
        return chosen if behind[chosen] > 0 else None
    usable = [row for row in range(len(means)) if behind[row] > 0 and errors[best, row] > 0]
    if not usable:
        return None
    return max(usable, key=lambda row: float(behind[row] / errors[best, row]))


def _ranged(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
