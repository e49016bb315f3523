"""Shuffle: how much of a vector stays when the document's chunks change places."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.embedding_encoder import EmbeddingEncoder, trained_poolings
from lmk_viz.landmarks import Layout
from lmk_viz.probes.curves import Estimate, estimate_mean
from lmk_viz.probes.edits import permute_units, unit_borders
from lmk_viz.probes.influence import Unit, split_units, uncut_text
from lmk_viz.probes.placing import filler_head
from lmk_viz.probes.runs import (
    Embedder,
    Progress,
    ShouldStop,
    Steps,
    json_number,
    paired_cosines,
    plain_tokens,
)

__all__ = ["ShuffleCosines", "shuffle_cosines", "shuffled_text"]

MAX_SHUFFLES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class ShuffleCosines:
    """How close a document with its chunks in another order is to the original."""

    encoder_name: str
    trained: frozenset[PoolingMode]
    chunking: ChunkingConfig
    poolings: tuple[PoolingConfig, ...]
    cosines: Mapping[PoolingMode, NDArray[np.float64]]
    """One a random order, each shape (S,); NaN where a stop left it undone."""
    means: Mapping[PoolingMode, Estimate]
    """With intervals over the orders."""
    reversed: Mapping[PoolingMode, float]
    """Cosine of the chunks from last to first."""
    unrelated: Mapping[PoolingMode, float]
    """Cosine of an unrelated text of the same length: what having nothing in common looks
    like. Empty where none was given."""
    chunks: int
    tokens: int
    tokens_cut: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, one row a pooling."""
        return {
            "encoder": self.encoder_name,
            "chunking": self.chunking.describe(),
            "chunks": self.chunks,
            "tokens": self.tokens,
            "tokens_cut": self.tokens_cut,
            "seconds": self.seconds,
            "rows": [
                {
                    "pooling": mode.value,
                    "trained": mode in self.trained,
                    "cosines": [json_number(value) for value in values],
                    **self.means[mode].to_dict("mean"),
                    "reversed": json_number(self.reversed[mode]),
                    "unrelated": json_number(self.unrelated.get(mode)),
                }
                for mode, values in self.cosines.items()
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a pooling."""
        return pd.DataFrame(self.to_dict()["rows"]).drop(columns="cosines")


def shuffle_cosines(
    encoder: EmbeddingEncoder,
    text: str,
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    shuffles: int = 8,
    seed: int = 0,
    unrelated: str | None = None,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> ShuffleCosines:
    """Returns the cosine of a document with itself in other orders of its chunks.

    Each chunk keeps its tokens and its landmark; nothing is tokenised or cut anew. All
    poolings see the same orders.

    Args:
        encoder: the encoder.
        text: the document.
        poolings: at least one.
        chunking: where landmarks go, and what a chunk is for all poolings.
        max_length: longest input; None takes the encoder's usable length.
        shuffles: random orders.
        seed: of the orders.
        unrelated: another text, for the level of nothing in common.
        progress: called with passes done and passes in all.
        should_stop: asked after each batch.

    Raises:
        ValueError: when the document has fewer than two chunks, or no order is asked for.

    References:
        After arXiv 2601.16934, which shuffles sentences.
    """
    started = time.monotonic()
    if not 1 <= shuffles <= MAX_SHUFFLES:
        raise ValueError(f"shuffles is {shuffles}; allowed: 1 to {MAX_SHUFFLES:,}. Eight will do.")
    embedder = Embedder.build(encoder, poolings, chunking, max_length)
    text, tokens, cut = uncut_text(embedder, text)
    borders = split_units(embedder, text, tokens, Unit.CHUNK)
    count = len(borders) - 1
    if count < 2:
        raise ValueError(
            "the document has one chunk alone, which has no other order; give a longer text, or "
            "choose smaller chunks."
        )
    base = embedder.inputs(text)
    orders = _orders(count, shuffles, seed)
    rows = [base]
    for order in orders:
        rows.append({k: _permuted(layout, tokens, borders, order) for k, layout in base.items()})
    if unrelated:
        others = plain_tokens(encoder, unrelated)
        if len(others):
            size = min(len(tokens), len(others))
            rows.append(embedder.inputs(filler_head(others, size, "unrelated text").text))
    steps = Steps(len(rows) * len(embedder.kinds), progress, should_stop)
    vectors = embedder.embed(rows, steps)
    to_whole = {mode: paired_cosines(found, found[0]) for mode, found in vectors.items()}
    cosines = {mode: values[2 : 2 + shuffles] for mode, values in to_whole.items()}
    return ShuffleCosines(
        encoder_name=encoder.name,
        trained=trained_poolings(encoder),
        chunking=embedder.chunking,
        poolings=embedder.poolings,
        cosines=cosines,
        means={mode: estimate_mean(values, seed) for mode, values in cosines.items()},
        reversed={mode: float(values[1]) for mode, values in to_whole.items()},
        unrelated={
            mode: float(values[2 + shuffles])
            for mode, values in to_whole.items()
            if len(values) > 2 + shuffles
        },
        chunks=count,
        tokens=len(tokens) + cut,
        tokens_cut=cut,
        seconds=time.monotonic() - started,
    )


def shuffled_text(
    encoder: EmbeddingEncoder,
    text: str,
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> str:
    """Returns a document with its chunks in a random order: a control for probes by position.

    What stays on a place when the chunks move belongs to the place; what moves with them, to
    their words.
    """
    embedder = Embedder.build(encoder, [PoolingConfig()], chunking, max_length)
    text, tokens, _ = uncut_text(embedder, text)
    borders = split_units(embedder, text, tokens, Unit.CHUNK)
    if len(borders) < 3:
        return text  # One chunk has no other order.
    order = _orders(len(borders) - 1, 1, seed)[1]
    (layout,) = embedder.inputs(text).values()
    return _permuted(layout, tokens, borders, order).text


def _orders(count: int, shuffles: int, seed: int) -> list[list[int]]:
    """Returns the order from last to first, then random ones other than the original."""
    rng = np.random.default_rng(seed)
    original = list(range(count))
    orders = [original[::-1]]
    while len(orders) <= shuffles:
        order = rng.permutation(count).tolist()
        if order != original:
            orders.append(order)
    return orders


def _permuted(
    layout: Layout, tokens: Any, borders: NDArray[np.int64], order: Sequence[int]
) -> Layout:
    own = unit_borders(layout, tokens, borders)
    if len(np.unique(own)) == len(own):
        return permute_units(layout, own, order)
    raise ValueError(
        "a chunk has no token of its own under one of the poolings; choose fixed chunking."
    )
