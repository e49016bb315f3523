"""Numbers of a score by position, with bootstrap intervals over what was repeated."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.probes.runs import json_number

__all__ = [
    "CONFIDENCE",
    "CurveSummary",
    "Estimate",
    "bootstrap_interval",
    "estimate_mean",
    "position_sensitivity",
    "summarise_curve",
]

CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float | None
    """None where it is undefined."""
    low: float | None
    high: float | None
    """Both None where there is nothing to resample."""
    reason: str = ""
    """Why the number or its interval is undefined."""

    def to_dict(self, name: str) -> dict[str, Any]:
        """Returns value and borders under a name; the reason only where there is one."""
        found: dict[str, Any] = {
            name: self.value,
            f"{name}_low": self.low,
            f"{name}_high": self.high,
        }
        return found | ({f"{name}_reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True, eq=False)
class CurveSummary:
    """A mean curve over positions and its scalars."""

    depths: NDArray[np.float64]
    """0 the start, 1 the end, shape (P,)."""
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    """Interval of the mean, each shape (P,); NaN where there is nothing to resample."""
    psi: Estimate
    """1 - min / max of the mean curve. Noise alone makes it larger than 0, so a small one has
    to be read beside slope and intervals. Cosines' PSI is not comparable with published ones,
    which are of retrieval scores (arXiv 2605.26578)."""
    slope: Estimate
    """Of a straight line through the mean curve: score a document's length."""
    first_minus_last: Estimate
    """Mean of the first third of the depths less that of the last third."""
    count: int
    """Rows that the mean is of."""

    @property
    def peak_depth(self) -> float | None:
        """Depth of the highest mean."""
        return float(self.depths[np.nanargmax(self.mean)]) if self.count else None

    @property
    def lowest_depth(self) -> float | None:
        """Depth of the lowest mean."""
        return float(self.depths[np.nanargmin(self.mean)]) if self.count else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return {
            "depths": self.depths.tolist(),
            "mean": [json_number(v) for v in self.mean],
            "low": [json_number(v) for v in self.low],
            "high": [json_number(v) for v in self.high],
            **self.psi.to_dict("psi"),
            **self.slope.to_dict("slope"),
            **self.first_minus_last.to_dict("first_minus_last"),
            "peak": json_number(self.mean.max()) if self.count else None,
            "peak_depth": self.peak_depth,
            "lowest": json_number(self.mean.min()) if self.count else None,
            "lowest_depth": self.lowest_depth,
            "count": self.count,
        }


def position_sensitivity(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns 1 - min / max over the last axis; NaN where not every value is positive.

    Example:
        >>> position_sensitivity(np.array([[0.5, 0.4, 0.2], [0.5, 0.0, 0.2]])).tolist()
        [0.6, nan]
    """
    lowest, highest = curve.min(axis=-1), curve.max(axis=-1)
    ratio = np.full(np.shape(lowest), np.nan)
    np.divide(lowest, highest, out=ratio, where=lowest > 0)
    found: NDArray[np.float64] = 1.0 - ratio
    return found


def summarise_curve(
    rows: NDArray[np.float64],
    depths: NDArray[np.float64],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> CurveSummary:
    """Returns the mean over rows by position, its scalars, and their intervals.

    A whole row is drawn at a time, so that the comparison of two positions is paired.

    Args:
        rows: a score for each repetition and position, shape (N, P); rows with a NaN are left
            out.
        depths: of the positions, rising, shape (P,).
        seed: of the bootstrap.
        resamples: draws.
    """
    kept = rows[np.isfinite(rows).all(axis=1)]
    if not len(kept):
        nothing = np.full(len(depths), np.nan)
        none = Estimate(None, None, None, "nothing was measured")
        return CurveSummary(depths, nothing, nothing, nothing, none, none, none, 0)
    means = _resampled_means(kept, seed, resamples)
    mean = kept.mean(axis=0)
    low, high = bootstrap_interval(means, len(kept))
    return CurveSummary(
        depths=depths,
        mean=mean,
        low=low,
        high=high,
        psi=_psi(mean, means, len(kept)),
        slope=_linear(mean, means, len(kept), _slope_weights(depths)),
        first_minus_last=_linear(mean, means, len(kept), _third_weights(len(depths))),
        count=len(kept),
    )


def estimate_mean(
    values: NDArray[np.float64], seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """Returns the mean of some values with its interval; NaN values are left out.

    Args:
        values: shape (N,).
        seed: of the bootstrap.
        resamples: draws.
    """
    kept = values[np.isfinite(values)]
    if not len(kept):
        return Estimate(None, None, None, "nothing was measured")
    return _linear(
        kept.mean(keepdims=True),
        _resampled_means(kept[:, None], seed, resamples),
        len(kept),
        np.ones(1),
    )


def bootstrap_interval(
    samples: NDArray[np.float64], n: int, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the borders of an expanded percentile interval over the first axis.

    Plain percentiles are too narrow where n is small; here they are moved out as far as
    Student's t is wider than the normal distribution. Of five rows they still hold the truth
    about nine times in ten only.

    Args:
        samples: a statistic of each resample, shape (R, ...).
        n: how many rows were resampled; with one, the borders are NaN.
        confidence: share of the time that the interval is to hold the truth.

    References:
        Hesterberg, What Teachers Should Know About the Bootstrap (arXiv 1411.5279), section
        on the expanded percentile interval.
    """
    if n < 2:
        nothing = np.full(samples.shape[1:], np.nan)
        return nothing, nothing
    from scipy.stats import norm, t

    wide = np.sqrt(n / (n - 1)) * t.ppf((1 + confidence) / 2, n - 1)
    tail = float(norm.cdf(-wide))
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return low, high


def _resampled_means(rows: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    n = len(rows)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    means: NDArray[np.float64] = counts @ rows / n
    return means


def _psi(mean: NDArray[np.float64], means: NDArray[np.float64], n: int) -> Estimate:
    value = float(position_sensitivity(mean))
    if np.isnan(value):
        reason = f"undefined: the mean falls to {mean.min():.3f}, and PSI needs all above 0"
        return Estimate(None, None, None, reason)
    samples = position_sensitivity(means)
    if np.isnan(samples).any():
        return Estimate(value, None, None, "no interval: some resamples fall to 0 or below")
    return _with_interval(value, samples, n)


def _linear(
    mean: NDArray[np.float64],
    means: NDArray[np.float64],
    n: int,
    weights: NDArray[np.float64] | None,
) -> Estimate:
    if weights is None:
        return Estimate(None, None, None, "undefined: one depth has no direction")
    return _with_interval(float(mean @ weights), means @ weights, n)


def _with_interval(value: float, samples: NDArray[np.float64], n: int) -> Estimate:
    low, high = bootstrap_interval(samples, n)
    reason = "" if n > 1 else "no interval: one repetition"
    return Estimate(value, json_number(float(low)), json_number(float(high)), reason)


def _slope_weights(depths: NDArray[np.float64]) -> NDArray[np.float64] | None:
    centred = depths - depths.mean()
    spread = float(centred @ centred)
    return centred / spread if spread > 0 else None


def _third_weights(count: int) -> NDArray[np.float64] | None:
    if count < 2:
        return None
    third = max(1, count // 3)
    weights = np.zeros(count)
    weights[:third] = 1 / third
    weights[-third:] -= 1 / third
    return weights
