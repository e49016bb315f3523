"""The landmark states behind document vectors, for drawing them beside their mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingMode
from lmk_viz.documents import Document

__all__ = ["MAX_DOCUMENTS", "LandmarkStates", "landmark_states"]

MAX_DOCUMENTS = 20
"""Documents whose landmarks are drawn at once; more cannot be told apart."""


@dataclass(frozen=True, slots=True, eq=False)
class LandmarkStates:
    """The states of one document's landmarks, whose mean is its vector."""

    id: str
    """Of the document."""
    states: NDArray[np.float32]
    """As directions of length 1, shape (K, D); K may be 0."""
    chunks: tuple[str, ...]
    """The text in front of each landmark, its chunk."""

    def __len__(self) -> int:
        return len(self.states)


def landmark_states(
    encoder: Any,
    documents: Sequence[Document],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
) -> tuple[LandmarkStates, ...]:
    """Returns the landmark states of documents, one pass a document.

    Of a family of trained variants the one for landmark pooling is asked: states of another
    variant lie in another space, and have no place in this one's layout.

    Args:
        encoder: an encoder, or a family with `encoder_for(mode)`.
        documents: at most `MAX_DOCUMENTS`.
        chunking: where landmarks go, as for the vectors.
        max_length: longest input, as for the vectors.

    Raises:
        ValueError: when too many documents come.
    """
    if len(documents) > MAX_DOCUMENTS:
        raise ValueError(
            f"{len(documents)} documents came; allowed: {MAX_DOCUMENTS}, since landmarks of more "
            "cannot be told apart."
        )
    chunking = chunking or ChunkingConfig()
    encoder_for = getattr(encoder, "encoder_for", lambda mode: encoder)
    variant = encoder_for(PoolingMode.LANDMARK)
    found = []
    for document in documents:
        layout = variant.layout(document.text, LayoutKind.LANDMARK, chunking, max_length)
        marked = [chunk for chunk in layout.chunks if chunk.landmark_position is not None]
        positions = [chunk.landmark_position for chunk in marked]
        # A batch of one, so that no padding is among the states.
        states = np.asarray(variant.token_states([layout])[0].float().cpu(), dtype=np.float32)
        rows = states[positions] if positions else np.zeros((0, states.shape[1]), np.float32)
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        found.append(
            LandmarkStates(
                document.id,
                rows / norms,
                tuple(layout.text[c.char_start : c.char_end] for c in marked),
            )
        )
    return tuple(found)
