"""More than one vector a document: a landmark's state, a chunk's mean, a passage by itself.

All three cut a text at the same places, which are those of the landmarks. In a family each reads
the variant that was trained for what it averages: landmark states that of landmark pooling, the
other two that of mean pooling.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbedFunction, embed_documents, plan_batches
from lmk_viz.embedding_encoder import default_batch_tokens, member_for
from lmk_viz.landmarks import Layout, character_spans, chunk_sizes
from lmk_viz.pooling import read_positions
from lmk_viz.similarity import unit_rows

__all__ = [
    "ChunkCosines",
    "ChunkVectors",
    "MultiVector",
    "PlannedChunks",
    "chunk_cosines",
    "embed_chunks",
    "plan_chunks",
]

NO_TOKEN = "no token: the vocabulary has none of its text"
NOT_FINITE = "a vector is not finite (NaN or inf)"


class MultiVector(StrEnum):
    """A way to keep several vectors of a document; its score is the highest cosine of one."""

    MAX_SIM = "max_sim"
    """The states of its landmarks, which landmark pooling would average. A chunk whose landmark
    the length limit cut off has none."""
    LATE_CHUNKING = "late_chunking"
    """The mean of the token states of each chunk, from one pass over the whole document. What
    the length limit cut has no vector."""
    PASSAGES = "passages"
    """Each chunk as an input of its own, mean pooling: what retrieval for generation usually
    does. The length limit holds for a chunk, so that the document is covered to its end."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        raise ValueError(f"multi_vector is {value!r}; allowed: {', '.join(cls)}.")

    @property
    def pooling(self) -> PoolingMode:
        """The pooling of the queries, whose variant of a family is read."""
        return PoolingMode.LANDMARK if self is MultiVector.MAX_SIM else PoolingMode.MEAN

    @property
    def label(self) -> str:
        """The name shown."""
        return {
            MultiVector.MAX_SIM: "Max-sim over landmarks",
            MultiVector.LATE_CHUNKING: "Late chunking",
            MultiVector.PASSAGES: "Passages apart",
        }[self]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChunks:
    """Where the vectors of one document will be read, before it is encoded."""

    document: Document
    layout: Layout | None
    """What goes into the encoder; None where each chunk goes in by itself."""
    borders: NDArray[np.int64]
    """Of late chunking: kept text tokens where chunks begin and end, shape (K + 1,)."""
    spans: tuple[tuple[int, int], ...]
    """Characters of each chunk that has a vector, length K."""
    was_cut: bool
    """The length limit took text from it."""
    fell_back: bool
    """It has no landmark; the mean of all states stands in, as in landmark pooling."""

    def __len__(self) -> int:
        return len(self.spans)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkVectors:
    """The vectors of one document, one a chunk."""

    document: Document
    vectors: NDArray[np.float32]
    """Of length 1, shape (K, D)."""
    spans: tuple[tuple[int, int], ...]
    """Characters of each chunk, length K."""
    was_cut: bool
    fell_back: bool
    problem: str
    """Why it has no vector to be found by; empty where all is well."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkCosines:
    """How close each chunk of a document is to a query."""

    kind: MultiVector
    spans: tuple[tuple[int, int], ...]
    """Characters of each chunk, length K."""
    cosines: NDArray[np.float64]
    """Shape (K,)."""

    @property
    def best(self) -> int:
        """The chunk that answers: that with the highest cosine, the first of equal ones."""
        return int(np.argmax(self.cosines))


def plan_chunks(
    encoder: Any,
    kind: MultiVector,
    document: Document,
    chunking: ChunkingConfig,
    max_length: int | None = None,
) -> PlannedChunks:
    """Returns where the vectors of a document will be read.

    Args:
        encoder: the encoder, or a family.
        kind: which vectors.
        document: with or without text; without a token there is no chunk.
        chunking: where landmarks go.
        max_length: longest input; None takes the encoder's usable length.
    """
    if kind is MultiVector.MAX_SIM:
        layout = encoder.layout(document.text, LayoutKind.LANDMARK, chunking, max_length)
        marked = [chunk for chunk in layout.chunks if chunk.landmark_position is not None]
        spans = [(chunk.char_start, chunk.char_end) for chunk in marked]
        fell_back = bool(layout.n_tokens and not marked)
        if fell_back:
            spans = [(0, layout.kept_chars)]
        none = np.zeros(0, dtype=np.int64)
        cut = layout.n_cut > 0
        return PlannedChunks(document, layout, none, tuple(spans), cut, fell_back)
    plain = encoder.layout(document.text, LayoutKind.PLAIN, chunking, max_length)
    tokens = plain.tokens
    if chunking.mode is ChunkingMode.SENTENCE:
        # Sentences are tokenised one by one there, so that only characters are common.
        tokens = encoder.layout(document.text, LayoutKind.LANDMARK, chunking, max_length).tokens
    sizes, _ = chunk_sizes(tokens, chunking)
    borders = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    spans, _ = character_spans(tokens, borders) if len(tokens) else ([], [])
    if kind is MultiVector.PASSAGES:
        spans = [(start, end) for start, end in spans if document.text[start:end].strip()]
        return PlannedChunks(document, None, borders, tuple(spans), False, False)
    if tokens is not plain.tokens and spans:
        starts = np.searchsorted(plain.tokens.starts, [start for start, _ in spans])
        borders = np.concatenate([[0], starts[1:], [len(plain.tokens)]]).astype(np.int64)
    borders = np.minimum(borders, plain.n_kept)
    kept = np.flatnonzero(np.diff(borders) > 0)
    borders = np.concatenate([borders[kept], [plain.n_kept]]).astype(np.int64)
    spans = [
        (start, min(end, plain.kept_chars)) for start, end in (spans[k] for k in kept.tolist())
    ]
    return PlannedChunks(document, plain, borders, tuple(spans), plain.n_cut > 0, False)


def embed_chunks(
    encoder: Any,
    kind: MultiVector,
    planned: Sequence[PlannedChunks],
    chunking: ChunkingConfig,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    embed: EmbedFunction = embed_documents,
    progress: Callable[[int], None] | None = None,
) -> list[ChunkVectors]:
    """Returns the vectors of documents, in order; all of them are held at once.

    Args:
        encoder: the encoder, or a family, of which the variant of `kind.pooling` is read.
        kind: which vectors.
        planned: of `plan_chunks` with the same arguments.
        chunking: where landmarks go.
        max_length: longest input.
        batch_tokens: padded tokens a batch; None chooses by device.
        embed: what embeds passages.
        progress: called with the documents done, of these. May raise to cancel.
    """
    if kind is MultiVector.PASSAGES:
        return _embed_passages(
            encoder, planned, chunking, max_length, batch_tokens, embed, progress
        )
    member = member_for(encoder, kind.pooling)
    found: list[ChunkVectors | None] = [None] * len(planned)
    some = [row for row, plan in enumerate(planned) if len(plan)]
    layouts = [plan.layout for row in some if (plan := planned[row]).layout is not None]
    budget = batch_tokens or default_batch_tokens(encoder)
    done = 0
    for batch in plan_batches([len(layout) for layout in layouts], budget):
        states = member.token_states([layouts[i] for i in batch]).float().cpu().numpy()
        for i, of_document in zip(batch, states, strict=True):
            plan = planned[some[i]]
            found[some[i]] = _finished(plan, _read(plan, of_document))
        done += len(batch)
        if progress is not None:
            progress(done)
    nothing = np.zeros((0, encoder.embedding_dim), dtype=np.float32)
    return [_finished(p, nothing) if f is None else f for p, f in zip(planned, found, strict=True)]


def chunk_cosines(
    encoder: Any,
    kind: MultiVector,
    query: str,
    document: Document,
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    embed: EmbedFunction = embed_documents,
) -> ChunkCosines:
    """Returns how close each chunk of a document is to a query: which one answers.

    Args:
        encoder: the encoder, or a family.
        kind: which vectors.
        query: embedded whole by `kind.pooling`.
        document: the one to look into.
        chunking: where landmarks go.
        max_length: longest input; None takes the encoder's usable length.
        embed: what embeds the query and passages.

    Raises:
        ValueError: when the query or the document has no vector.
    """
    chunking = chunking or ChunkingConfig()
    asked = embed(
        encoder,
        [Document("query", "", query)],
        [PoolingConfig(kind.pooling)],
        chunking,
        max_length,
    )
    if not len(asked):
        raise ValueError(f"the query has no vector: {asked.excluded[0].reason}.")
    plan = plan_chunks(encoder, kind, document, chunking, max_length)
    (found,) = embed_chunks(encoder, kind, [plan], chunking, max_length, embed=embed)
    if found.problem:
        raise ValueError(f"document {document.id!r} has no vector: {found.problem}.")
    cosines = (found.vectors @ asked.vectors[kind.pooling][0]).astype(np.float64)
    return ChunkCosines(kind, found.spans, cosines)


def _read(plan: PlannedChunks, states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the vectors of a document out of its states (T, D), not yet of length 1."""
    layout = plan.layout
    if layout is None:
        raise AssertionError("passages are not read from a pass over the document.")
    if layout.kind is LayoutKind.PLAIN:
        tokens = states[layout.content_positions]
        sums = np.add.reduceat(tokens, plan.borders[:-1], axis=0, dtype=np.float64)
        means: NDArray[np.float64] = sums / np.diff(plan.borders)[:, None]
        return means.astype(np.float32)
    read = read_positions(layout, PoolingConfig(PoolingMode.LANDMARK))
    rows = states[read.positions]
    return rows.mean(axis=0, keepdims=True) if plan.fell_back else rows


def _finished(plan: PlannedChunks, rows: NDArray[np.float32]) -> ChunkVectors:
    problem = "" if len(rows) else NO_TOKEN
    if not np.isfinite(rows).all():
        problem, rows = NOT_FINITE, rows[:0]
    units = unit_rows(rows).astype(np.float32)
    spans = plan.spans if len(rows) else ()
    return ChunkVectors(plan.document, units, spans, plan.was_cut, plan.fell_back, problem)


def _embed_passages(
    encoder: Any,
    planned: Sequence[PlannedChunks],
    chunking: ChunkingConfig,
    max_length: int | None,
    batch_tokens: int | None,
    embed: EmbedFunction,
    progress: Callable[[int], None] | None,
) -> list[ChunkVectors]:
    """Returns the vectors of chunks that are each an input of their own."""
    places = [(row, k) for row, plan in enumerate(planned) for k in range(len(plan))]
    passages = []
    for number, (row, k) in enumerate(places):
        start, end = planned[row].spans[k]
        passages.append(Document(str(number), "", planned[row].document.text[start:end]))
    mode = MultiVector.PASSAGES.pooling
    poolings = [PoolingConfig(mode)]

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(len(planned) * done // max(1, total))

    table = embed(encoder, passages, poolings, chunking, max_length, True, batch_tokens, report)
    rows_of: list[list[int]] = [[] for _ in planned]
    for place, passage in enumerate(table.documents):
        rows_of[places[int(passage.id)][0]].append(place)
    unfit = {places[int(left.id)][0] for left in table.excluded if "finite" in left.reason}
    found = []
    for row, (plan, rows) in enumerate(zip(planned, rows_of, strict=True)):
        problem = NOT_FINITE if row in unfit else "" if rows else NO_TOKEN
        kept = [] if problem else rows
        spans = [plan.spans[places[int(table.documents[place].id)][1]] for place in kept]
        cut = bool((table.tokens_cut[mode][kept] > 0).any())
        vectors = table.vectors[mode][kept]
        found.append(ChunkVectors(plan.document, vectors, tuple(spans), cut, False, problem))
    return found
