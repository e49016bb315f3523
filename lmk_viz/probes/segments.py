"""Segments: how close each part of a document, embedded alone, is to the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.embedding_encoder import EmbeddingEncoder
from lmk_viz.landmarks import Layout, Tokens, character_spans
from lmk_viz.pooling import POOLINGS
from lmk_viz.similarity import cos_sim

__all__ = ["SegmentCosines", "segment_cosines"]


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCosines:
    """How close each part of a document, embedded alone, is to the whole."""

    borders: NDArray[np.int64]
    """Text tokens where the parts begin and end, shape (S + 1,)."""
    cosines: Mapping[PoolingMode, NDArray[np.float64]]
    """Each shape (S,)."""
    unrelated: Mapping[PoolingMode, float]
    """Mean cosine of as many parts of an unrelated text with the whole: the control. Empty
    where no unrelated text was given."""
    poolings: tuple[PoolingConfig, ...]
    tokens: int
    """Text tokens of the document before cutting."""
    tokens_cut: int
    """Text tokens that at least one pooling's layout did not see; no part lies there."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return {
            "borders": self.borders.tolist(),
            "cosines": {
                mode.value: [None if np.isnan(value) else value for value in values.tolist()]
                for mode, values in self.cosines.items()
            },
            "unrelated": {mode.value: value for mode, value in self.unrelated.items()},
            "tokens": self.tokens,
            "tokens_cut": self.tokens_cut,
        }


def segment_cosines(
    encoder: EmbeddingEncoder,
    text: str,
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    segments: int = 10,
    unrelated: str | None = None,
) -> SegmentCosines:
    """Returns the cosine of each equal part of a document with the whole, by pooling.

    The parts are of the text that every pooling's layout keeps, so that no part is compared
    with a vector that never saw it. Levels differ between poolings for reasons other than the
    document (some spaces are narrow), so an unrelated text serves as control.

    Args:
        encoder: the encoder.
        text: the document.
        poolings: at least one.
        chunking: where landmarks go.
        max_length: longest input; None takes the encoder's usable length.
        segments: wanted number of parts; fewer where there are fewer tokens.
        unrelated: another text, whose parts of the same length are the control.

    Raises:
        ValueError: when the text has no token or its vector is not finite, or when no part is
            asked for.

    References:
        The probe of arXiv 2404.04163, section on segment similarity.
    """
    if segments < 1:
        raise ValueError(f"segments is {segments}; allowed: 1 and more. Ten are usual.")
    chunking = chunking or ChunkingConfig()
    plain = encoder.layout(text, LayoutKind.PLAIN, chunking, max_length)
    kinds = {POOLINGS[pooling.mode].layout for pooling in poolings}
    kept = min(
        (
            _tokens_seen(plain.tokens, encoder.layout(text, kind, chunking, max_length))
            for kind in kinds
        ),
        default=plain.n_kept,
    )
    if not kept:
        raise ValueError("the document has no token to compare; give a text with words in it.")
    count = min(segments, kept)
    borders = (np.arange(count + 1, dtype=np.int64) * kept) // count
    spans, _ = character_spans(plain.tokens, borders)
    parts = [text[start:end] for start, end in spans]
    others = _parts_like(encoder, unrelated, borders) if unrelated else []
    documents = [
        Document("whole", "whole", text[spans[0][0] : spans[-1][1]]),
        *(Document(f"part-{i}", "part", part) for i, part in enumerate(parts)),
        *(Document(f"other-{i}", "unrelated part", part) for i, part in enumerate(others)),
    ]
    table = embed_documents(encoder, documents, poolings, chunking, max_length)
    names = [document.id for document in table.documents]
    if "whole" not in names:
        reason = next(left_out.reason for left_out in table.excluded if left_out.id == "whole")
        raise ValueError(f"the document has no vector to compare its parts with: {reason}.")
    part_rows = [i for i, name in enumerate(names) if name.startswith("part-")]
    other_rows = [i for i, name in enumerate(names) if name.startswith("other-")]
    places = [int(names[row].removeprefix("part-")) for row in part_rows]
    cosines, control = {}, {}
    for mode, vectors in table.vectors.items():
        to_whole = cos_sim(vectors, vectors[[names.index("whole")]])[:, 0]
        # A part of white space alone has no vector; it stays a gap in the curve.
        cosines[mode] = np.full(count, np.nan)
        cosines[mode][places] = to_whole[part_rows]
        if other_rows:
            control[mode] = float(to_whole[other_rows].mean())
    return SegmentCosines(
        borders, cosines, control, table.poolings, plain.n_tokens, plain.n_tokens - kept
    )


def _tokens_seen(tokens: Tokens, layout: Layout) -> int:
    """Returns how many of the whole text's tokens a layout keeps."""
    if not layout.n_cut:
        return len(tokens)
    if np.array_equal(layout.tokens.ends, tokens.ends):
        return layout.n_kept
    # Made sentence by sentence, tokens differ in number; characters are the common measure.
    return int(np.searchsorted(tokens.ends, layout.kept_chars, side="right"))


def _parts_like(encoder: EmbeddingEncoder, text: str, borders: NDArray[np.int64]) -> list[str]:
    """Returns parts of a text with the token counts between the borders, as far as it goes."""
    tokens = encoder.layout(text, LayoutKind.PLAIN, ChunkingConfig(), None).tokens
    spans, _ = character_spans(tokens, borders[borders <= len(tokens)])
    return [text[start:end] for start, end in spans]
