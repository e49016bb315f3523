"""What evaluations share: exact search in blocks, and what was trained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode
from lmk_viz.embedding_encoder import trained_poolings
from lmk_viz.similarity import top_ranked

__all__ = ["is_trained", "rank_documents"]

BLOCK_SCORES = 8_000_000
"""Scores held at a time: 32 MB of float32."""
SCORE_DECIMALS = 6
"""Cosines of unit vectors in float32 are not told apart beyond this: the same vector in
another row of a matrix product can differ in the last digit, and would break its tie at random."""


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


def is_trained(encoder: Any, mode: PoolingMode) -> bool:
    """Returns whether an encoder, or the member of its family, was trained for a pooling."""
    return mode in trained_poolings(encoder)
