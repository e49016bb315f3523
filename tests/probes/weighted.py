"""A transparent encoder whose position bias is known in closed form."""

from collections.abc import Callable, Sequence

import numpy as np
from fakes import FIRST_WORD_ID, BagEncoder
from numpy.typing import NDArray

from lmk_viz.config import PoolingConfig
from lmk_viz.landmarks import Layout

Weights = Callable[[int], NDArray[np.float64]]


class WeightedEncoder(BagEncoder):
    """Every pooling is the mean of the words' one-hots, weighted by their place in the input.

    Landmarks and other special tokens weigh nothing, so an edit that misplaces none of the
    words gives the same vector in every layout.
    """

    def __init__(self, vocabulary: str | Sequence[str], weights: Weights) -> None:
        """Takes the words and a function from a number of tokens to their weights."""
        super().__init__(vocabulary)
        self.name = "weighted words"
        self.weights = weights

    def vector(self, layout: Layout) -> NDArray[np.float64]:
        """The weighted mean of a layout's words, before it is scaled to length 1."""
        order = layout.token_index[layout.content_positions]
        words = layout.tokens.ids[order] - FIRST_WORD_ID
        weights = self.weights(len(words))
        return np.bincount(words, weights, minlength=len(self.words)) / weights.sum()

    def embed_layouts(self, layouts, poolings: Sequence[PoolingConfig], normalize):
        rows = np.stack([self.vector(layout) for layout in layouts])
        if normalize:
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self.calls.append((layouts[0].kind, tuple(p.mode for p in poolings), []))
        return [rows] * len(poolings), [np.zeros(len(rows), dtype=bool)] * len(poolings)


def uniform(n: int) -> NDArray[np.float64]:
    return np.ones(n)


def falling(n: int) -> NDArray[np.float64]:
    """From 1 at the first word to 0.2 at the last."""
    return np.linspace(1.0, 0.2, n)
