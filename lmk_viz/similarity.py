"""Similarity between vectors."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["cos_sim"]


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
        wide = rows.astype(np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        units.append(np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0))
    # Rounding can carry the cosine of equal vectors a hair over 1.
    cosines: NDArray[np.float64] = np.clip(units[0] @ units[1].T, -1.0, 1.0)
    return cosines
