"""The distance kernel of rotary positions.

Rotary positions turn pair i of query and key by position times an angle theta_i. What is left
of two equal vectors at a distance delta is the mean of cos(delta theta_i). The kernel bounds
one logit of one layer from above, in expectation; content, softmax, depth, residuals and local
layers can override it. It is not the attention.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["inverse_frequencies", "rope_kernel", "smoothed_kernel"]


def inverse_frequencies(base: float, size: int) -> NDArray[np.float64]:
    """Returns the angles theta_i = base^(-2i/d) of plain rotary positions.

    Args:
        base: over 1, such as 10,000.
        size: of a head, d; even.

    Returns:
        Radians a position, shape (d/2,), falling from 1.

    Raises:
        ValueError: when the base is not over 1 or the size not even.

    References:
        RoFormer, arXiv 2104.09864, equation 15.
    """
    if not base > 1 or size < 2 or size % 2:
        raise ValueError(f"base {base} and size {size} came; allowed: over 1, and even.")
    return np.asarray(base ** (-np.arange(0, size, 2) / size), dtype=np.float64)


def rope_kernel(
    frequencies: NDArray[np.float64], distances: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the mean of cos(distance x theta_i) over the pairs of a head.

    Args:
        frequencies: theta_i, shape (d/2,).
        distances: in positions, shape (M,).

    Returns:
        Shape (M,), 1 at distance 0, in -1..1.

    Example:
        >>> kernel = rope_kernel(inverse_frequencies(10_000, 64), np.array([0.0, 1.0, 8.0]))
        >>> kernel.round(3).tolist()
        [1.0, 0.966, 0.7]
    """
    kernel: NDArray[np.float64] = np.cos(np.outer(distances, frequencies)).mean(axis=1)
    return kernel


def smoothed_kernel(
    frequencies: NDArray[np.float64], distances: NDArray[np.float64], half_width: int = 16
) -> NDArray[np.float64]:
    """Returns the kernel averaged over the distances within `half_width`, its ripple gone.

    The mean of cos((delta + s) theta) over s = -w..w is cos(delta theta) times the Dirichlet
    kernel of theta, so each pair is damped by its own factor and nothing is summed twice.
    """
    half = np.asarray(frequencies) / 2
    count = 2 * half_width + 1
    still = half < 1e-12
    ripple = np.sin(count * half) / (count * np.sin(np.where(still, 1.0, half)))
    damping = np.where(still, 1.0, ripple)
    smooth: NDArray[np.float64] = (np.cos(np.outer(distances, frequencies)) * damping).mean(axis=1)
    return smooth
