"""What the probes share: vectors of many inputs in batches, progress, a stop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.embedding import plan_batches
from lmk_viz.embedding_encoder import (
    EmbeddingEncoder,
    checked_modes,
    default_batch_tokens,
    pooling_passes,
)
from lmk_viz.landmarks import Layout, Tokens
from lmk_viz.pooling import POOLINGS, resolve

__all__ = [
    "Embedder",
    "Progress",
    "ShouldStop",
    "Steps",
    "count_passes",
    "fitting_tokens",
    "json_number",
    "length_limit",
    "paired_cosines",
    "plain_tokens",
]

SLACK = 8
"""Tokens by which a text can grow when it is put together from pieces and tokenised anew."""
SHORT_SENTENCE = 8
"""Tokens of sentences that are short on average; each takes a landmark."""

Progress = Callable[[int, int], None]
"""Takes steps done and steps in all; may raise to cancel."""
ShouldStop = Callable[[], bool]
Inputs = Mapping[LayoutKind, Layout]
"""One text, laid out for each kind of input that the poolings read."""


class Steps:
    """How far a run is, and whether it is to go on."""

    def __init__(
        self, total: int, progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> None:
        """Takes the number of steps in all and whom to tell and to ask."""
        self.total = total
        self.done = 0
        self.is_stopped = False
        self._progress = progress
        self._should_stop = should_stop

    def advance(self, count: int) -> None:
        """Notes that so many more steps are done, and asks whether to stop."""
        self.done += count
        if self._progress is not None:
            self._progress(self.done, self.total)
        self.is_stopped = self._should_stop is not None and self._should_stop()


@dataclass(frozen=True, slots=True)
class Embedder:
    """An encoder with the settings of one run."""

    encoder: EmbeddingEncoder
    poolings: tuple[PoolingConfig, ...]
    """Resolved, each mode once."""
    chunking: ChunkingConfig
    max_length: int | None
    """Longest input; None takes the encoder's usable length."""

    @classmethod
    def build(
        cls,
        encoder: EmbeddingEncoder,
        poolings: Sequence[PoolingConfig],
        chunking: ChunkingConfig | None = None,
        max_length: int | None = None,
    ) -> "Embedder":
        """Returns the settings, checked.

        Raises:
            ValueError: when no pooling is given, or one twice, or one that cannot be had.
        """
        chunking = chunking or ChunkingConfig()
        resolved = tuple(resolve(pooling, chunking) for pooling in poolings)
        checked_modes(encoder, resolved)
        return cls(encoder, resolved, chunking, max_length)

    @property
    def modes(self) -> tuple[PoolingMode, ...]:
        """The poolings' modes, in order."""
        return tuple(pooling.mode for pooling in self.poolings)

    @property
    def kinds(self) -> tuple[LayoutKind, ...]:
        """Kinds of input that the poolings read, each once."""
        return tuple(dict.fromkeys(POOLINGS[mode].layout for mode in self.modes))

    def inputs(self, text: str) -> dict[LayoutKind, Layout]:
        """Returns a text's input of every kind that the poolings read."""
        return {
            kind: self.encoder.layout(text, kind, self.chunking, self.max_length)
            for kind in self.kinds
        }

    def embed(
        self, rows: Sequence[Inputs], steps: Steps | None = None
    ) -> dict[PoolingMode, NDArray[np.float64]]:
        """Returns the vectors of many inputs, each shape (N, D).

        Poolings that read the same kind share a pass; a row takes one step a kind. Rows that
        a stop left undone are NaN.
        """
        steps = steps or Steps(len(rows) * len(self.kinds))
        shape = (len(rows), self.encoder.embedding_dim)
        vectors = {mode: np.full(shape, np.nan) for mode in self.modes}
        budget = default_batch_tokens(self.encoder)
        for kind in self.kinds:
            group = [p for p in self.poolings if POOLINGS[p.mode].layout is kind]
            layouts = [row[kind] for row in rows]
            for batch in plan_batches([len(layout) for layout in layouts], budget):
                if steps.is_stopped:
                    break
                found, _ = self.encoder.embed_layouts([layouts[i] for i in batch], group, True)
                for pooling, values in zip(group, found, strict=True):
                    vectors[pooling.mode][batch] = values
                steps.advance(len(batch))
        return vectors

    def embed_texts(
        self, texts: Sequence[str], steps: Steps | None = None
    ) -> dict[PoolingMode, NDArray[np.float64]]:
        """Returns the vectors of texts, each shape (N, D)."""
        return self.embed([self.inputs(text) for text in texts], steps)


def paired_cosines(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the cosine of each row of a with the row of b at the same place.

    Args:
        a: shape (..., D).
        b: shape (..., D), broadcast against a.

    Returns:
        Shape (...), in -1..1. A zero row has cosine 0; a row with NaN has NaN.
    """
    products = np.einsum("...d,...d->...", a, b)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms != 0)
    clipped: NDArray[np.float64] = np.clip(cosines, -1.0, 1.0)
    return clipped


def plain_tokens(encoder: EmbeddingEncoder, text: str) -> Tokens:
    """Returns the whole text as tokens, uncut."""
    return encoder.layout(text, LayoutKind.PLAIN, ChunkingConfig(), None).tokens


def length_limit(encoder: EmbeddingEncoder, tokens: int) -> int | None:
    """Returns a length limit that lets so many text tokens and their landmarks in.

    Encoders with a table of positions have a limit of their own, which is kept; others may
    read past the length they were trained on, and it is a probe's purpose to try.
    """
    usable: int | None = getattr(encoder, "max_length", None)
    if getattr(encoder, "has_hard_limit", False):
        return usable
    # A landmark behind every token is the most there can be.
    return max(usable or 0, 2 * tokens + 8)


def fitting_tokens(encoder: EmbeddingEncoder, chunking: ChunkingConfig, wanted: int) -> int:
    """Returns the text tokens that an encoder takes under every pooling, as many as wanted."""
    if not getattr(encoder, "has_hard_limit", False):
        return wanted
    limit: int = getattr(encoder, "max_length", wanted)
    match chunking.mode:
        case ChunkingMode.FIXED:
            chunk = chunking.granularity
        case ChunkingMode.VARIABLE:
            chunk = min(chunking.granularities)
        case ChunkingMode.SENTENCE:
            chunk = SHORT_SENTENCE
    room = (limit - 2) * chunk // (chunk + 1) - SLACK
    return max(2, min(wanted, room))


def count_passes(encoder: Any, modes: Sequence[PoolingMode]) -> int:
    """Returns the forward passes that one text takes under some poolings, each mode once."""
    return len(pooling_passes(encoder, [PoolingConfig(mode) for mode in dict.fromkeys(modes)]))


def json_number(value: float | None) -> float | None:
    """Returns a number as JSON has it: None in place of NaN."""
    return None if value is None or not np.isfinite(value) else float(value)
