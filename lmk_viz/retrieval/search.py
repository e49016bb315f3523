"""What evaluations share: exact search in blocks, poolings by pass, and what was trained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.embedding import EmbeddingEncoder
from lmk_viz.pooling import POOLINGS

__all__ = ["checked_modes", "is_trained", "pooling_passes", "rank_documents", "top_ranked"]

BLOCK_SCORES = 8_000_000
"""Scores held at a time: 32 MB of float32."""
SCORE_DECIMALS = 6
"""Cosines of unit vectors in float32 are not told apart beyond this: the same vector in
another row of a matrix product can differ in the last digit, and would break its tie at random."""


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


def rank_documents(
    queries: NDArray[np.float32],
    documents: NDArray[np.float32],
    ids: Sequence[str],
    top_k: int = 10,
) -> list[list[str]]:
    """Returns the documents nearest to each query by cosine, exact, best first.

    Ties, which are cosines that agree to six decimals, are broken by document id.

    Args:
        queries: unit vectors, shape (Q, D).
        documents: unit vectors, shape (N, D).
        ids: of the documents, length N.
        top_k: how many a query.
    """
    by_id = np.asarray(sorted(range(len(ids)), key=lambda row: ids[row]), dtype=np.int64)
    names = [ids[row] for row in by_id]
    ordered = documents[by_id]
    block = max(1, BLOCK_SCORES // max(1, len(ids)))
    found: list[list[str]] = []
    for start in range(0, len(queries), block):
        scores = np.round(queries[start : start + block] @ ordered.T, SCORE_DECIMALS)
        found.extend([names[column] for column in top_ranked(row, top_k)] for row in scores)
    return found


def checked_modes(
    encoder: EmbeddingEncoder, poolings: Sequence[PoolingConfig]
) -> list[PoolingMode]:
    """Returns the modes of the poolings.

    Raises:
        ValueError: when there is none, or one twice, or one that cannot be had.
    """
    modes = [pooling.mode for pooling in poolings]
    if not modes or len(set(modes)) != len(modes):
        raise ValueError(f"poolings {[m.value for m in modes]} came; give at least one, each once.")
    for mode in modes:
        encoder.check_pooling(mode)
    return modes


def is_trained(encoder: Any, mode: PoolingMode) -> bool:
    """Returns whether an encoder, or the member of its family, was trained for a pooling."""
    trained = getattr(encoder, "trained_poolings", None)
    if trained is None:
        return bool(getattr(encoder, "trained_for", None) == mode)
    return mode in trained


def pooling_passes(
    encoder: Any, poolings: Sequence[PoolingConfig]
) -> list[tuple[PoolingConfig, ...]]:
    """Returns the poolings in groups that take one pass over a corpus each, in order.

    Poolings that read the same layout share a pass, except in a family, whose members have
    weights of their own: there nothing is gained and each pooling's seconds are its own.
    """
    if getattr(encoder, "trained_poolings", None) is not None:
        return [(pooling,) for pooling in poolings]
    groups: dict[LayoutKind, list[PoolingConfig]] = {}
    for pooling in poolings:
        groups.setdefault(POOLINGS[pooling.mode].layout, []).append(pooling)
    return [tuple(group) for group in groups.values()]
