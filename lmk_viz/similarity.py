"""Similarity between vectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["cos_sim", "top_ranked", "unit_rows"]


def cos_sim(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns the cosine of every row of a with every row of b.

    Args:
        a: shape (N, D).
        b: shape (M, D).

    Returns:
        Shape (N, M), in -1..1; a zero row has cosine 0 with everything.

    Raises:
        ValueError: when the shapes do not match or a value is not finite.

    Example:
        >>> cos_sim(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.0]]
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"shapes {a.shape} and {b.shape} came; allowed: (N, D) and (M, D).")
    units = []
    for name, rows in (("a", a), ("b", b)):
        if not np.isfinite(rows).all():
            raise ValueError(f"{name} holds values that are not finite.")
        units.append(unit_rows(rows))
    # Rounding can carry the cosine of equal vectors a hair over 1.
    cosines: NDArray[np.float64] = np.clip(units[0] @ units[1].T, -1.0, 1.0)
    return cosines


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns rows scaled to length 1 in float64, (N, D); a zero row stays zero."""
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    units: NDArray[np.float64] = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)
    return units


def top_ranked(scores: NDArray[Any], top_k: int) -> NDArray[np.int64]:
    """Returns the columns with the highest scores, best first, ties by column number.

    Args:
        scores: of one query, shape (N,).
        top_k: how many; all of them where there are fewer.

    Example:
        >>> top_ranked(np.asarray([0.5, 0.9, 0.5, 0.9]), 3).tolist()
        [1, 3, 0]
    """
    n = len(scores)
    if top_k < n:
        threshold = np.partition(scores, n - top_k)[n - top_k]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(n)
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order][:top_k]
