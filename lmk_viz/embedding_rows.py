"""Rows of a corpus under one pooling, made batch by batch, and a store that may know them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.embedding_encoder import EmbeddingEncoder
from lmk_viz.landmarks import Layout
from lmk_viz.pooling import POOLINGS

__all__ = ["PoolingRows", "RowStore", "plan_batches", "rows_in_batches"]


@dataclass(frozen=True, slots=True, eq=False)
class PoolingRows:
    """What one pooling makes of some texts, one row a text."""

    vectors: NDArray[np.float32]
    """Shape (N, D)."""
    fell_back: NDArray[np.bool_]
    """Where the pooling had no position of its own and took the mean, shape (N,)."""
    tokens: NDArray[np.int64]
    """Text tokens before cutting, as this pooling's layout counts them, shape (N,)."""
    tokens_cut: NDArray[np.int64]
    """Text tokens that the layout lost to the length limit, shape (N,)."""
    landmarks: NDArray[np.int64]
    """Landmarks in the layout, shape (N,)."""
    seconds: NDArray[np.float64]
    """Of tokenising and of the row's share of its forward pass, shape (N,)."""

    def __len__(self) -> int:
        return len(self.vectors)

    @classmethod
    def zeros(cls, n: int, dim: int) -> "PoolingRows":
        """Returns rows to be filled in.

        Args:
            n: how many.
            dim: size of a vector.
        """
        return cls(
            vectors=np.zeros((n, dim), dtype=np.float32),
            fell_back=np.zeros(n, dtype=bool),
            tokens=np.zeros(n, dtype=np.int64),
            tokens_cut=np.zeros(n, dtype=np.int64),
            landmarks=np.zeros(n, dtype=np.int64),
            seconds=np.zeros(n, dtype=np.float64),
        )

    @classmethod
    def join(cls, parts: Sequence["PoolingRows"]) -> "PoolingRows":
        """Returns the rows of several parts, one part behind the other."""
        return cls(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        )

    def fill(self, places: Sequence[int] | NDArray[np.int64], rows: "PoolingRows") -> None:
        """Writes other rows to some places of these."""
        for field in fields(self):
            getattr(self, field.name)[places] = getattr(rows, field.name)

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> "PoolingRows":
        """Returns the rows at some places, in that order."""
        return PoolingRows(**{f.name: getattr(self, f.name)[places] for f in fields(self)})


class RowStore(Protocol):
    """What knows rows of earlier calls with the same encoder and settings."""

    def find(
        self, pooling: PoolingConfig, texts: Sequence[str]
    ) -> tuple[NDArray[np.int64], PoolingRows]:
        """Returns the places of the texts that are known, rising, and their rows."""

    def keep(self, pooling: PoolingConfig, texts: Sequence[str], rows: PoolingRows) -> None:
        """Takes new rows."""


def plan_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Returns groups of row numbers, longest rows first, each within a padded token budget.

    Args:
        lengths: input length of each row.
        budget: most padded tokens a batch; a longer row makes a batch of its own.

    Returns:
        Groups that together hold every row once. Rows of a group have similar lengths.

    Example:
        >>> plan_batches([3, 9, 4, 4], budget=8)
        [[1], [2, 3], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    batches: list[list[int]] = []
    for row in order:
        # The first row of a batch is its longest.
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def rows_in_batches(
    encoder: EmbeddingEncoder,
    texts: Sequence[str],
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig,
    max_length: int | None,
    normalize: bool,
    batch_tokens: int,
) -> Iterator[tuple[list[int], dict[PoolingMode, PoolingRows]]]:
    """Yields the places of a batch's texts and its rows by pooling, batch after batch.

    Args:
        encoder: the encoder.
        texts: none blank.
        poolings: resolved, all of one layout.
        chunking: where landmarks go.
        max_length: longest input; None takes the encoder's usable length.
        normalize: scale each vector to length 1.
        batch_tokens: padded tokens a batch.
    """
    kind = POOLINGS[poolings[0].mode].layout
    layouts: list[Layout] = []
    making = np.zeros(len(texts), dtype=np.float64)
    for place, text in enumerate(texts):
        started = time.perf_counter()
        layouts.append(encoder.layout(text, kind, chunking, max_length))
        making[place] = time.perf_counter() - started
    # Variants run one after the other, so each pooling takes its part of the time.
    passes = len(poolings) if getattr(encoder, "variants", None) else 1
    for batch in plan_batches([len(layout) for layout in layouts], batch_tokens):
        chosen = [layouts[place] for place in batch]
        lengths = np.asarray([len(layout) for layout in chosen], dtype=np.float64)
        started = time.perf_counter()
        found, flags = encoder.embed_layouts(chosen, poolings, normalize)
        spent = (time.perf_counter() - started) / passes
        rows = {
            pooling.mode: PoolingRows(
                vectors=vectors,
                fell_back=flag,
                tokens=np.asarray([layout.n_tokens for layout in chosen], dtype=np.int64),
                tokens_cut=np.asarray([layout.n_cut for layout in chosen], dtype=np.int64),
                landmarks=np.asarray([layout.n_landmarks for layout in chosen], dtype=np.int64),
                seconds=making[batch] + spent * lengths / lengths.sum(),
            )
            for pooling, vectors, flag in zip(poolings, found, flags, strict=True)
        }
        yield batch, rows
