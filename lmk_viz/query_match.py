"""A question against one document: its pooled vector, and each landmark behind it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.landmarks import Layout
from lmk_viz.pooling import read_positions
from lmk_viz.similarity import cos_sim, unit_rows

__all__ = ["LandmarkVectors", "QueryMatch", "landmark_vectors", "match_query"]


@dataclass(frozen=True, slots=True, eq=False)
class LandmarkVectors:
    """A document's vector under landmark pooling, and the states that it is the mean of."""

    pooled: NDArray[np.float64]
    """Of length 1, shape (D,)."""
    states: NDArray[np.float64]
    """Of each landmark, as directions of length 1, shape (K, D); K may be 0."""
    chunks: NDArray[np.int64]
    """Number of the chunk that each landmark closes, shape (K,)."""
    token_starts: NDArray[np.int64]
    """First text token of that chunk, shape (K,)."""
    token_ends: NDArray[np.int64]
    """One past its last, shape (K,)."""
    fell_back: bool
    """No landmark was left, so the vector is the mean over all positions."""

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True, eq=False)
class QueryMatch:
    """How close a question is to a document and to each of its landmarks."""

    pooled: float
    """Cosine of the question's vector with the document's."""
    cosines: NDArray[np.float64]
    """With each landmark, shape (K,)."""
    document: LandmarkVectors
    query_tokens: int
    query_tokens_cut: int
    """Tokens of the question that the length limit cut."""
    query_landmarks: int
    """Landmarks that the question's own vector is the mean of."""
    query_fell_back: bool
    """The question had room for none; its vector is the mean over all positions."""

    @property
    def best(self) -> int | None:
        """The landmark that is closest, the first of equals; None where there is none."""
        return int(np.argmax(self.cosines)) if len(self.cosines) else None

    @property
    def mean(self) -> float | None:
        """Mean cosine over the landmarks: what a chunk reaches that answers nothing."""
        return float(self.cosines.mean()) if len(self.cosines) else None

    @property
    def median(self) -> float | None:
        """Median cosine over the landmarks; the chunk that answers moves it least."""
        return float(np.median(self.cosines)) if len(self.cosines) else None

    def ranks(self) -> NDArray[np.int64]:
        """Returns the rank of each landmark, 1 for the closest, ties by place, shape (K,)."""
        ranks = np.empty(len(self.cosines), dtype=np.int64)
        ranks[np.argsort(-self.cosines, kind="stable")] = np.arange(1, len(self.cosines) + 1)
        return ranks

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers as plain JSON types, without any text."""
        best = self.best
        return {
            "pooled": self.pooled,
            "mean": self.mean,
            "median": self.median,
            "best_chunk": None if best is None else int(self.document.chunks[best]),
            "document_fell_back": self.document.fell_back,
            "query_tokens": self.query_tokens,
            "query_tokens_cut": self.query_tokens_cut,
            "query_landmarks": self.query_landmarks,
            "query_fell_back": self.query_fell_back,
            "landmarks": [
                {
                    "chunk": chunk,
                    "token_start": start,
                    "token_end": end,
                    "cosine": cosine,
                    "rank": rank,
                }
                for chunk, start, end, cosine, rank in zip(
                    self.document.chunks.tolist(),
                    self.document.token_starts.tolist(),
                    self.document.token_ends.tolist(),
                    self.cosines.tolist(),
                    self.ranks().tolist(),
                    strict=True,
                )
            ],
        }


def landmark_vectors(encoder: Any, layout: Layout) -> LandmarkVectors:
    """Returns a document's vector and the states of its landmarks, from one forward pass.

    Of a family of trained variants the one for landmark pooling is asked.

    Args:
        encoder: an encoder, or a family with `encoder_for(mode)`.
        layout: a landmark layout of the document.

    Raises:
        ValueError: when the layout is of another kind or has no text.
    """
    if not layout.n_kept:
        raise ValueError("the document has no token; nothing can be asked of it.")
    states, read, fell_back = _states(encoder, layout)
    marked = [chunk for chunk in layout.chunks if chunk.landmark_position is not None]
    at = np.asarray([chunk.landmark_position for chunk in marked], dtype=np.int64)
    return LandmarkVectors(
        pooled=_mean_direction(states[read]),
        states=unit_rows(states[at]),
        chunks=np.asarray([chunk.index for chunk in marked], dtype=np.int64),
        token_starts=np.asarray([chunk.token_start for chunk in marked], dtype=np.int64),
        token_ends=np.asarray([chunk.token_end for chunk in marked], dtype=np.int64),
        fell_back=fell_back,
    )


def match_query(
    encoder: Any,
    document: LandmarkVectors,
    query: str,
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
) -> QueryMatch:
    """Returns how close a question is to a document's vector and to each of its landmarks.

    Args:
        encoder: the one that the document's vectors are of.
        document: from `landmark_vectors`.
        query: the question.
        chunking: where its own landmarks go; most questions are shorter than a chunk, and have
            one.
        max_length: longest input; what is over is cut.

    Raises:
        ValueError: when the question has no token, or a state is not finite.
    """
    if not query.strip():
        raise ValueError("the question is empty; type one.")
    variant = _variant(encoder)
    layout = variant.layout(query, LayoutKind.LANDMARK, chunking or ChunkingConfig(), max_length)
    if not layout.n_tokens:
        raise ValueError("the question has no token: the vocabulary has none of its text.")
    states, read, fell_back = _states(encoder, layout)
    vector = _mean_direction(states[read])[None]
    return QueryMatch(
        pooled=float(cos_sim(vector, document.pooled[None])[0, 0]),
        cosines=cos_sim(vector, document.states)[0],
        document=document,
        query_tokens=layout.n_tokens,
        query_tokens_cut=layout.n_cut,
        query_landmarks=layout.n_landmarks,
        query_fell_back=fell_back,
    )


def _variant(encoder: Any) -> Any:
    encoder_for = getattr(encoder, "encoder_for", lambda mode: encoder)
    return encoder_for(PoolingMode.LANDMARK)


def _states(encoder: Any, layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.int64], bool]:
    """Returns states (S, D), the positions that landmark pooling reads, and if it fell back."""
    read = read_positions(layout, PoolingConfig(PoolingMode.LANDMARK))
    # A batch of one, so that no padding is among the states.
    states = _variant(encoder).token_states([layout])[0].float().cpu()
    return np.asarray(states, dtype=np.float64), read.positions, read.fell_back


def _mean_direction(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = unit_rows(rows.mean(axis=0, keepdims=True))[0]
    return unit
