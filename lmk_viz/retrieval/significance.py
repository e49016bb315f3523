"""Whether a difference over queries is more than chance: sign flips, corrected for their number."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["RESAMPLES", "holm", "paired_p_values"]

RESAMPLES = 9_999
"""Draws of signs; the smallest p value that they can give is 1 in 10,000."""
_BLOCK_SIGNS = 8_000_000
"""Signs held at a time: 64 MB of float64."""
_SLACK = 1e-9
"""Sums of the same numbers in another order differ in their last digits; they count as equal."""


def paired_p_values(
    differences: NDArray[np.float64], seed: int = 0, resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """Returns how often chance alone gives a mean difference as large, in either direction.

    Two systems that do equally well could have swapped their values on any query. So the sign
    of each query's difference is flipped at random, and the p value is the share of draws
    whose mean is at least as far from zero as the one seen, which counts as a draw itself. With
    few differences all flips are gone through instead, and the p value is exact. Queries
    without a difference are in neither, as a flip changes nothing there.

    Args:
        differences: one system less another, query by query, shape (C, Q) for C comparisons
            on the same queries. All take the same draws, which makes many as cheap as one.
        seed: of the draws.
        resamples: how many draws; also the most flips that are gone through.

    Returns:
        Shape (C,), over 0 and up to 1; 1 where there is no difference at all.

    Raises:
        ValueError: when the shape is another, a value is not finite, or there is no draw.

    Example:
        >>> # Of the 8 ways to sign 1, 1 and 1, two have a sum of 3 or -3.
        >>> paired_p_values(np.asarray([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])).tolist()
        [0.25, 1.0]
    """
    if differences.ndim != 2 or not np.isfinite(differences).all():
        raise ValueError(
            f"differences of shape {differences.shape} came; allowed: (C, Q), all values finite."
        )
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; allowed: 1 and more. 9,999 are usual.")
    found = np.ones(len(differences))
    sizes = (differences != 0).sum(axis=1)
    is_exact = sizes <= math.log2(resamples)
    for row in np.flatnonzero(is_exact & (sizes > 0)).tolist():
        found[row] = _exact(differences[row][differences[row] != 0])
    if not is_exact.all():
        found[~is_exact] = _drawn(differences[~is_exact], seed, resamples)
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p values corrected for their number by Holm's method, in the same order.

    Held against a level, they keep the chance of a single false finding among all of them
    under that level, whatever the comparisons have to do with each other.

    Args:
        p_values: of all comparisons that were made.

    References:
        Holm, A simple sequentially rejective multiple test procedure, 1979.

    Example:
        >>> holm([0.5, 0.25, 0.0625])  # 1 x 0.5, 2 x 0.25, 3 x 0.0625
        [0.5, 0.5, 0.1875]
    """
    if any(not 0.0 <= p <= 1.0 for p in p_values):
        raise ValueError(f"p values {list(p_values)} came; allowed: 0 to 1.")
    found = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        # A larger p value is never corrected to below a smaller one.
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        found[place] = highest
    return found


def _exact(values: NDArray[np.float64]) -> float:
    """Returns the share of all sign flips whose sum is at least as far from zero."""
    n = len(values)
    signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    return float(_is_as_far(signs @ values, values.sum(), np.abs(values).sum()).mean())


def _drawn(differences: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    """Returns the share of drawn flips at least as far from zero, the one seen among them."""
    n = differences.shape[1]
    rng = np.random.default_rng(seed)
    seen, scale = differences.sum(axis=1), np.abs(differences).sum(axis=1)
    reached = np.zeros(len(differences), dtype=np.int64)
    block = max(1, _BLOCK_SIGNS // n)
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        # Of doubles, so that the size of a block changes no draw.
        signs = np.where(rng.random((count, n)) < 0.5, -1.0, 1.0)
        reached += _is_as_far(signs @ differences.T, seen, scale).sum(axis=0)
    return np.asarray((reached + 1) / (resamples + 1))


def _is_as_far(
    sums: NDArray[np.float64],
    seen: NDArray[np.float64] | np.float64,
    scale: NDArray[np.float64] | np.float64,
) -> NDArray[np.bool_]:
    return np.asarray(np.abs(sums) >= np.abs(seen) - _SLACK * scale)
