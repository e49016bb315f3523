"""Embedding a corpus: batches by length, several poolings from one pass, nothing lost."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode, digest
from lmk_viz.corpus import Excluded
from lmk_viz.documents import Document
from lmk_viz.embedding_encoder import (
    EmbeddingEncoder,
    checked_modes,
    default_batch_tokens,
    pooling_passes,
)
from lmk_viz.landmarks import Layout
from lmk_viz.pooling import POOLINGS, resolve

__all__ = [
    "EmbeddingTable",
    "embed_documents",
    "forecast_embedding",
    "plan_batches",
]

CHARACTERS_A_TOKEN = 4
"""In English text, roughly; for forecasts alone."""


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingTable:
    """Vectors of a corpus under several poolings, one row a kept document, in order."""

    encoder_name: str
    chunking: ChunkingConfig
    poolings: tuple[PoolingConfig, ...]
    documents: tuple[Document, ...]
    excluded: tuple[Excluded, ...]
    vectors: Mapping[PoolingMode, NDArray[np.float32]]
    """Each shape (N, D)."""
    fell_back: Mapping[PoolingMode, NDArray[np.bool_]]
    """Where a pooling had no position of its own and took the mean, each shape (N,)."""
    tokens: NDArray[np.int64]
    """Text tokens of each document before cutting, shape (N,)."""
    tokens_cut: Mapping[PoolingMode, NDArray[np.int64]]
    """Text tokens that each pooling's layout lost to the length limit, each shape (N,)."""
    landmarks: NDArray[np.int64]
    """Landmarks of each document's landmark layout, zero where none was made, shape (N,)."""
    seconds: float

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def was_cut(self) -> NDArray[np.bool_]:
        """Whether any pooling lost tokens of a document, shape (N,)."""
        cuts = [cut > 0 for cut in self.tokens_cut.values()]
        return np.any(cuts, axis=0) if cuts else np.zeros(len(self), dtype=bool)

    def fingerprint(self) -> str:
        """Returns a digest of the vectors and labels, every byte of them."""
        return digest(
            [(d.id, d.label) for d in self.documents],
            *(
                (mode.value, v.shape, hashlib.sha256(v.tobytes()).hexdigest())
                for mode, v in self.vectors.items()
            ),
        )

    def to_frame(self, with_vectors: bool = True) -> pd.DataFrame:
        """Returns one row a document: what it is, what was cut, and a vector a pooling."""
        columns: dict[str, Any] = {
            "id": [d.id for d in self.documents],
            "title": [d.title for d in self.documents],
            "label": [d.label for d in self.documents],
            "tokens": self.tokens,
            "landmarks": self.landmarks,
        }
        for pooling in self.poolings:
            mode = pooling.mode
            columns[f"tokens_cut_{mode.value}"] = self.tokens_cut[mode]
            columns[f"fell_back_{mode.value}"] = self.fell_back[mode]
        if with_vectors:
            columns |= {p.mode.value: list(self.vectors[p.mode]) for p in self.poolings}
        return pd.DataFrame(columns)


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


def forecast_embedding(
    encoder: Any,
    documents: Sequence[Document],
    poolings: Sequence[PoolingConfig],
    max_length: int | None = None,
) -> float | None:
    """Returns about how many seconds a corpus will take, without tokenising it.

    Args:
        encoder: the encoder; None comes back where it cannot forecast a forward.
        documents: what will be embedded.
        poolings: how; those that share a layout share a pass, unless each has a variant.
        max_length: longest input; None takes the encoder's usable length.
    """
    tell = getattr(encoder, "forecast", None)
    if tell is None:
        return None
    passes = len(pooling_passes(encoder, poolings))
    limit = max_length or encoder.max_length
    lengths = [min(limit, 2 + len(d.text) // CHARACTERS_A_TOKEN) for d in documents]
    seconds = {length: float(tell(length).seconds) for length in set(lengths)}
    return passes * sum(seconds[length] for length in lengths)


def embed_documents(
    encoder: EmbeddingEncoder,
    documents: Sequence[Document],
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    normalize: bool = True,
    batch_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EmbeddingTable:
    """Returns the vectors of a corpus under several poolings.

    Poolings that read the same layout share one forward pass. Documents without text, and
    those whose vector is not finite, are left out and named with their reason.

    Args:
        encoder: the encoder.
        documents: in any order, which the result keeps.
        poolings: at least one, each mode once.
        chunking: where landmarks go, and the step of every_k.
        max_length: longest input; None takes the encoder's usable length.
        normalize: scale each vector to length 1.
        batch_tokens: padded tokens a batch; None chooses by device.
        progress: called with (passes done, passes in all); a document takes one pass for
            each layout that the poolings need. May raise to cancel.

    Raises:
        ValueError: when no pooling is given, or one twice, or one that cannot be had.
    """
    started = time.monotonic()
    chunking = chunking or ChunkingConfig()
    resolved = tuple(resolve(pooling, chunking) for pooling in poolings)
    modes = checked_modes(encoder, resolved)
    texts = [document for document in documents if not document.is_blank]
    by_layout: dict[LayoutKind, list[PoolingConfig]] = {}
    for pooling in resolved:
        by_layout.setdefault(POOLINGS[pooling.mode].layout, []).append(pooling)
    total = len(texts) * len(by_layout)
    groups: dict[LayoutKind, _GroupRows] = {}
    for number, (kind, group) in enumerate(by_layout.items()):
        groups[kind] = _embed_group(
            encoder,
            [encoder.layout(d.text, kind, chunking, max_length) for d in texts],
            group,
            normalize,
            batch_tokens or default_batch_tokens(encoder),
            _offset(progress, number * len(texts), total),
        )
    of = {mode: groups[POOLINGS[mode].layout] for mode in modes}
    finite, unfit = _finite_rows({m: of[m].vectors[m] for m in modes}, [d.id for d in texts])
    for row, layout in enumerate(next(iter(groups.values())).layouts):
        if not layout.n_tokens and finite[row]:
            # Such as zero-width characters alone: the vector would be of special tokens only.
            finite[row] = False
            unfit.append(Excluded(texts[row].id, "no token: the vocabulary has none of its text"))
    # Sentence chunking tokenises anew; a document's own length is that of its whole text.
    lengths = groups.get(LayoutKind.PLAIN, next(iter(groups.values())))
    marked = groups.get(LayoutKind.LANDMARK)
    return EmbeddingTable(
        encoder_name=encoder.name,
        chunking=chunking,
        poolings=resolved,
        documents=tuple(d for d, keep in zip(texts, finite, strict=True) if keep),
        excluded=(*(Excluded(d.id, "empty text") for d in documents if d.is_blank), *unfit),
        vectors={m: of[m].vectors[m][finite] for m in modes},
        fell_back={m: of[m].fell_back[m][finite] for m in modes},
        tokens=_counts(layout.n_tokens for layout in lengths.layouts)[finite],
        tokens_cut={m: _counts(x.n_cut for x in of[m].layouts)[finite] for m in modes},
        landmarks=_counts(x.n_landmarks for x in (marked or lengths).layouts)[finite],
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _GroupRows:
    """What one pass over the corpus gives to the poolings that share its layout."""

    layouts: list[Layout]
    vectors: dict[PoolingMode, NDArray[np.float32]]
    fell_back: dict[PoolingMode, NDArray[np.bool_]]


def _embed_group(
    encoder: EmbeddingEncoder,
    layouts: list[Layout],
    poolings: Sequence[PoolingConfig],
    normalize: bool,
    batch_tokens: int,
    progress: Callable[[int], None],
) -> _GroupRows:
    """Returns the rows of poolings that share a layout, in the order of the layouts."""
    n = len(layouts)
    modes = [pooling.mode for pooling in poolings]
    vectors = {m: np.zeros((n, encoder.embedding_dim), dtype=np.float32) for m in modes}
    fell_back = {m: np.zeros(n, dtype=bool) for m in modes}
    done = 0
    for batch in plan_batches([len(layout) for layout in layouts], batch_tokens):
        found, flags = encoder.embed_layouts([layouts[i] for i in batch], poolings, normalize)
        for mode, rows, flag in zip(modes, found, flags, strict=True):
            vectors[mode][batch] = rows
            fell_back[mode][batch] = flag
        done += len(batch)
        progress(done)
    return _GroupRows(layouts, vectors, fell_back)


def _finite_rows(
    vectors: Mapping[PoolingMode, NDArray[np.float32]], ids: Sequence[str]
) -> tuple[NDArray[np.bool_], list[Excluded]]:
    """Returns which rows are finite under every pooling, and the others by name."""
    finite = {mode: np.asarray(np.isfinite(rows).all(axis=1)) for mode, rows in vectors.items()}
    keep: NDArray[np.bool_] = np.ones(len(ids), dtype=bool)
    for good in finite.values():
        keep &= good
    unfit = []
    for row in np.flatnonzero(~keep).tolist():
        names = ", ".join(mode.value for mode, good in finite.items() if not good[row])
        unfit.append(Excluded(ids[row], f"the vector under {names} is not finite (NaN or inf)"))
    return keep, unfit


def _offset(
    progress: Callable[[int, int], None] | None, before: int, total: int
) -> Callable[[int], None]:
    """Returns a callback that counts on from the passes done before."""
    return lambda done: None if progress is None else progress(before + done, total)


def _counts(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)
