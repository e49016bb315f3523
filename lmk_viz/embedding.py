"""Embedding a corpus: batches by length, several poolings from one pass, nothing lost."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
from lmk_viz.embedding_rows import PoolingRows, RowStore, plan_batches, rows_in_batches
from lmk_viz.pooling import POOLINGS, resolve

__all__ = [
    "EmbedFunction",
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
    """Of this call."""
    pooling_seconds: Mapping[PoolingMode, float] = field(default_factory=dict)
    """What each pooling's vectors took when they were made, as if it were the only one; a cache
    gives the seconds that it saved, so that costs can be compared with and without it."""

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


class EmbedFunction(Protocol):
    """What embeds a corpus: `embed_documents`, or a cache in front of it."""

    def __call__(
        self,
        encoder: EmbeddingEncoder,
        documents: Sequence[Document],
        poolings: Sequence[PoolingConfig],
        chunking: ChunkingConfig | None = None,
        max_length: int | None = None,
        normalize: bool = True,
        batch_tokens: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> EmbeddingTable:
        """Returns what `embed_documents` returns for the same arguments."""


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
    store: RowStore | None = None,
) -> EmbeddingTable:
    """Returns the vectors of a corpus under several poolings.

    Poolings that read the same layout share one forward pass. Documents without text, and
    those whose vector is not finite, are left out and named with their reason. What a store
    does not know goes through the encoder in batches of its own, so that its last digits can
    differ from those of a call that embeds the whole corpus: padding changes the order of sums.

    Args:
        encoder: the encoder.
        documents: in any order, which the result keeps.
        poolings: at least one, each mode once.
        chunking: where landmarks go, and the step of every_k.
        max_length: longest input; None takes the encoder's usable length.
        normalize: scale each vector to length 1.
        batch_tokens: padded tokens a batch; None chooses by device.
        progress: called with (passes done, passes in all); a document takes one pass for
            each layout that the poolings need, and those that the store spares count as done
            from the start. May raise to cancel.
        store: asked for each text and pooling, and given what is new; None embeds everything.

    Raises:
        ValueError: when no pooling is given, or one twice, or one that cannot be had.
    """
    started = time.monotonic()
    chunking = chunking or ChunkingConfig()
    resolved = tuple(resolve(pooling, chunking) for pooling in poolings)
    checked_modes(encoder, resolved)
    kept = [document for document in documents if not document.is_blank]
    texts = [document.text for document in kept]
    by_layout: dict[LayoutKind, list[PoolingConfig]] = {}
    for pooling in resolved:
        by_layout.setdefault(POOLINGS[pooling.mode].layout, []).append(pooling)
    rows = {p.mode: PoolingRows.zeros(len(texts), encoder.embedding_dim) for p in resolved}
    tasks = [
        task for group in by_layout.values() for task in _missing_rows(store, group, texts, rows)
    ]
    total = len(texts) * len(by_layout)
    done = total - sum(len(places) for _, places in tasks)
    for group, places in tasks:
        for batch, found in rows_in_batches(
            encoder,
            [texts[place] for place in places],
            group,
            chunking,
            max_length,
            normalize,
            batch_tokens or default_batch_tokens(encoder),
        ):
            inside = [places[row] for row in batch]
            for pooling in group:
                rows[pooling.mode].fill(inside, found[pooling.mode])
                if store is not None:
                    store.keep(pooling, [texts[place] for place in inside], found[pooling.mode])
            done += len(batch)
            if progress is not None:
                progress(done, total)
    return _build_table(
        encoder.name, chunking, resolved, documents, kept, rows, time.monotonic() - started
    )


def _missing_rows(
    store: RowStore | None,
    group: Sequence[PoolingConfig],
    texts: Sequence[str],
    rows: Mapping[PoolingMode, PoolingRows],
) -> list[tuple[tuple[PoolingConfig, ...], list[int]]]:
    """Fills in what a store knows; returns poolings with the places that lack just these.

    Args:
        store: may be None.
        group: poolings that share a layout, hence a pass.
        texts: of all documents.
        rows: of all documents, by pooling.
    """
    missing: dict[int, tuple[PoolingConfig, ...]] = dict.fromkeys(range(len(texts)), ())
    for pooling in group:
        known: set[int] = set()
        if store is not None:
            places, found = store.find(pooling, texts)
            rows[pooling.mode].fill(places, found)
            known = set(places.tolist())
        for place in missing:
            if place not in known:
                missing[place] = (*missing[place], pooling)
    tasks: dict[tuple[PoolingConfig, ...], list[int]] = {}
    for place, lacking in missing.items():
        if lacking:
            tasks.setdefault(lacking, []).append(place)
    return list(tasks.items())


def _build_table(
    encoder_name: str,
    chunking: ChunkingConfig,
    poolings: tuple[PoolingConfig, ...],
    documents: Sequence[Document],
    kept: Sequence[Document],
    rows: Mapping[PoolingMode, PoolingRows],
    seconds: float,
) -> EmbeddingTable:
    """Returns the table, without the rows that have no vector under some pooling.

    Args:
        encoder_name: of the encoder.
        chunking: where landmarks went.
        poolings: resolved.
        documents: all that came.
        kept: those with text, a row each.
        rows: by pooling.
        seconds: of the call.
    """
    modes = [pooling.mode for pooling in poolings]
    finite, unfit = _finite_rows({m: rows[m].vectors for m in modes}, [d.id for d in kept])
    for row, tokens in enumerate(rows[modes[0]].tokens.tolist()):
        if not tokens and finite[row]:
            # Such as zero-width characters alone: the vector would be of special tokens only.
            finite[row] = False
            unfit.append(Excluded(kept[row].id, "no token: the vocabulary has none of its text"))

    def first_of(kind: LayoutKind) -> PoolingMode:
        return next((m for m in modes if POOLINGS[m].layout is kind), modes[0])

    return EmbeddingTable(
        encoder_name=encoder_name,
        chunking=chunking,
        poolings=poolings,
        documents=tuple(d for d, keep in zip(kept, finite, strict=True) if keep),
        excluded=(*(Excluded(d.id, "empty text") for d in documents if d.is_blank), *unfit),
        vectors={m: rows[m].vectors[finite] for m in modes},
        fell_back={m: rows[m].fell_back[finite] for m in modes},
        # Sentence chunking tokenises anew; a document's own length is that of its whole text.
        tokens=rows[first_of(LayoutKind.PLAIN)].tokens[finite],
        tokens_cut={m: rows[m].tokens_cut[finite] for m in modes},
        landmarks=rows[first_of(LayoutKind.LANDMARK)].landmarks[finite],
        seconds=seconds,
        pooling_seconds={m: float(rows[m].seconds.sum()) for m in modes},
    )


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
