"""Exact search where a document has several vectors and scores by its closest one.

Vectors of a corpus are never all there at once: documents are encoded in portions, each portion
is compared with every query, and of each query only the best documents so far are kept.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, PoolingConfig
from lmk_viz.corpus import Excluded
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbedFunction, embed_documents
from lmk_viz.retrieval.chunk_vectors import (
    ChunkVectors,
    MultiVector,
    PlannedChunks,
    embed_chunks,
    plan_chunks,
)
from lmk_viz.retrieval.scores import SearchCost
from lmk_viz.retrieval.search import BLOCK_SCORES, SCORE_DECIMALS

__all__ = [
    "PORTION_VECTORS",
    "BestDocuments",
    "MultiVectorSearch",
    "search_multi_vector",
]

PORTION_VECTORS = 32_768
"""Document vectors held at a time: 48 MB with 384 dimensions in float32, twice that while they
are searched."""
PORTION_TEXT = 4_000_000
"""Characters held at a time as tokens: their ids and places take some 50 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class MultiVectorSearch:
    """What was found, and what it took."""

    kind: MultiVector
    rankings: Mapping[str, Sequence[str]]
    """Documents by query, best first."""
    cost: SearchCost
    documents_cut: int
    """Documents that lost text to the length limit."""
    queries_cut: int
    fell_back: int
    """Documents without a landmark of their own."""
    excluded: tuple[Excluded, ...]
    seconds: float
    """Of encoding both sides; the search is in `cost`."""


class BestDocuments:
    """The best documents of each query among those seen so far.

    Ties are broken by rank, so that the order in which documents come makes no difference.
    """

    def __init__(self, queries: int, top_k: int) -> None:
        """Makes an empty list for each query.

        Args:
            queries: how many, Q.
            top_k: documents kept a query, k.
        """
        self.scores = np.full((queries, top_k), -np.inf, dtype=np.float32)
        """Shape (Q, k), best first; minus infinity where nothing was seen."""
        self.ranks = np.full((queries, top_k), np.iinfo(np.int64).max)
        """Which document, shape (Q, k)."""

    def add(self, scores: NDArray[np.float32], ranks: NDArray[np.int64], first: int = 0) -> None:
        """Takes in the scores of further documents for a run of queries.

        Args:
            scores: shape (B, N).
            ranks: of the documents, each its own, shape (N,); lower comes first among equals.
            first: the query that row 0 belongs to.
        """
        rows = slice(first, first + len(scores))
        wide = np.broadcast_to(ranks, scores.shape)
        all_scores = np.concatenate([self.scores[rows], scores], axis=1)
        all_ranks = np.concatenate([self.ranks[rows], wide], axis=1)
        order = np.lexsort((all_ranks, -all_scores), axis=1)[:, : self.scores.shape[1]]
        self.scores[rows] = np.take_along_axis(all_scores, order, axis=1)
        self.ranks[rows] = np.take_along_axis(all_ranks, order, axis=1)

    def rankings(self, names: Sequence[str]) -> list[list[str]]:
        """Returns the names of the documents of each query, best first."""
        return [
            [names[rank] for rank, score in zip(*row, strict=True) if score > -np.inf]
            for row in zip(self.ranks.tolist(), self.scores.tolist(), strict=True)
        ]


def search_multi_vector(
    encoder: Any,
    kind: MultiVector,
    corpus: Sequence[Document],
    queries: Sequence[Document],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    top_k: int = 10,
    batch_tokens: int | None = None,
    embed: EmbedFunction = embed_documents,
    progress: Callable[[int, int], None] | None = None,
    portion_vectors: int = PORTION_VECTORS,
) -> MultiVectorSearch:
    """Returns the documents whose closest vector is closest to each query, exact.

    A query has one vector, pooled as `kind.pooling` says; a document's score is the highest
    cosine of one of its vectors. Cosines that agree to six decimals tie, and ties are broken by
    document id, as with one vector a document.

    Args:
        encoder: the encoder, or a family.
        kind: which vectors a document has.
        corpus: the documents, each id once.
        queries: id and text.
        chunking: where landmarks go, and so where chunks end.
        max_length: longest input; None takes the encoder's usable length.
        top_k: documents a query.
        batch_tokens: padded tokens a batch; None chooses by device.
        embed: what embeds queries and passages.
        progress: called with (texts done, texts in all); queries count. May raise to cancel.
        portion_vectors: most document vectors held at a time, but for a single document that
            has more.
    """
    started = time.monotonic()
    chunking = chunking or ChunkingConfig()
    pooling = PoolingConfig(kind.pooling)
    total = len(queries) + len(corpus)
    asked = embed(encoder, queries, [pooling], chunking, max_length, True, batch_tokens)
    vectors = asked.vectors[kind.pooling]
    done = len(queries)
    _tell(progress, done, total)
    names = sorted(document.id for document in corpus)
    rank_of = {name: rank for rank, name in enumerate(names)}
    best = BestDocuments(len(asked), top_k)
    excluded = [*asked.excluded]
    excluded += [Excluded(d.id, "empty text") for d in corpus if d.is_blank]
    held = cut = fell_back = 0
    searching = 0.0
    plans = (
        plan_chunks(encoder, kind, document, chunking, max_length)
        for document in corpus
        if not document.is_blank
    )
    for portion in _portions(plans, portion_vectors):
        found = embed_chunks(
            encoder,
            kind,
            portion,
            chunking,
            max_length,
            batch_tokens,
            embed,
            _counting_on(progress, done, total),
        )
        excluded += [Excluded(f.document.id, f.problem) for f in found if f.problem]
        fit = [f for f in found if not f.problem]
        held += sum(len(f.vectors) for f in fit)
        cut += sum(f.was_cut for f in fit)
        fell_back += sum(f.fell_back for f in fit)
        before = time.monotonic()
        _search(vectors, fit, np.asarray([rank_of[f.document.id] for f in fit]), best)
        searching += time.monotonic() - before
        del found, fit  # Else they would still be there while the next portion is made.
        done += len(portion)
        _tell(progress, done, total)
    _tell(progress, total, total)
    ids = [query.id for query in asked.documents]
    return MultiVectorSearch(
        kind=kind,
        rankings=dict(zip(ids, best.rankings(names), strict=True)),
        cost=SearchCost.of(held, encoder.embedding_dim, searching, len(asked)),
        documents_cut=cut,
        queries_cut=int((asked.tokens_cut[kind.pooling] > 0).sum()),
        fell_back=fell_back,
        excluded=tuple(excluded),
        seconds=time.monotonic() - started - searching,
    )


def _portions(
    plans: Iterable[PlannedChunks], portion_vectors: int
) -> Iterator[list[PlannedChunks]]:
    """Yields runs of documents, each within the budgets or a single document."""
    portion: list[PlannedChunks] = []
    vectors = text = 0
    for plan in plans:
        more, letters = len(plan), len(plan.document.text)
        if portion and (vectors + more > portion_vectors or text + letters > PORTION_TEXT):
            yield portion
            portion, vectors, text = [], 0, 0
        portion.append(plan)
        vectors, text = vectors + more, text + letters
    if portion:
        yield portion


def _search(
    queries: NDArray[np.float32],
    found: Sequence[ChunkVectors],
    ranks: NDArray[np.int64],
    best: BestDocuments,
) -> None:
    """Compares a portion with every query, some queries at a time."""
    if not found:
        return
    vectors = np.concatenate([f.vectors for f in found])
    sizes = np.asarray([len(f.vectors) for f in found])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    block = max(1, BLOCK_SCORES // len(vectors))
    for first in range(0, len(queries), block):
        scores = np.round(queries[first : first + block] @ vectors.T, SCORE_DECIMALS)
        best.add(np.maximum.reduceat(scores, starts, axis=1), ranks, first)


def _counting_on(
    progress: Callable[[int, int], None] | None, before: int, total: int
) -> Callable[[int], None]:
    """Returns a callback that counts on from the texts done before."""
    return lambda done: _tell(progress, before + done, total)


def _tell(progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
