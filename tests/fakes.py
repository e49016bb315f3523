"""A transparent encoder: every state is a count of words, so each result is worked out by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import regex
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.landmarks import Layout, SpecialIds, Tokens, build_layout
from lmk_viz.pooling import read_positions
from lmk_viz.text import sentence_spans

SPECIAL = SpecialIds(cls=1, landmark=2, pad=0)
FIRST_WORD_ID = 10


class BagEncoder:
    """Words are tokens, and a state counts words of the vocabulary, shape (D,).

    A text token's state is the one-hot of its word. CLS counts the first `reach` words of the
    input, whatever stands behind them. A landmark counts the words of its chunk, a CLS before
    a chunk those of the chunk behind it, and the final separator nothing.
    """

    def __init__(
        self, vocabulary: str | Sequence[str], reach: int = 4, max_length: int = 100_000
    ) -> None:
        self.name = "bag of words"
        self.words = {word: place for place, word in enumerate(vocabulary)}
        self.reach = reach
        self.max_length = max_length
        self.refused: set[PoolingMode] = set()
        self.spoil: Callable[[Layout, NDArray[np.float32]], None] | None = None
        """May write into the states (S, D) of a layout before they are pooled."""
        self.calls: list[tuple[LayoutKind, tuple[PoolingMode, ...], list[str]]] = []
        """Layout kind, poolings and texts of every forward pass."""

    @property
    def embedding_dim(self) -> int:
        return len(self.words)

    def check_pooling(self, mode: PoolingMode) -> None:
        if mode in self.refused:
            raise ValueError(f"{mode.value} cannot be had")

    def tokenize(self, text: str, by_sentence: bool = False) -> Tokens:
        found = list(regex.finditer(r"\S+", text))
        ids = [FIRST_WORD_ID + self.words[match.group().strip(".")] for match in found]
        starts = None
        if by_sentence:
            begins = [match.start() for match in found]
            starts = np.searchsorted(begins, [start for start, _ in sentence_spans(text)]).tolist()
        return Tokens.from_offsets(text, ids, [match.span() for match in found], starts)

    def layout(
        self, text: str, kind: LayoutKind, chunking: ChunkingConfig, max_length: int | None
    ) -> Layout:
        by_sentence = chunking.mode is ChunkingMode.SENTENCE and kind is not LayoutKind.PLAIN
        tokens = self.tokenize(text, by_sentence)
        return build_layout(tokens, SPECIAL, kind, chunking, max_length or self.max_length)

    def states(self, layout: Layout) -> NDArray[np.float32]:
        one_hot = np.zeros((layout.n_kept, len(self.words)), dtype=np.float32)
        one_hot[np.arange(layout.n_kept), layout.tokens.ids[: layout.n_kept] - FIRST_WORD_ID] = 1
        states = np.zeros((len(layout), len(self.words)), dtype=np.float32)
        states[layout.content_positions] = one_hot
        if layout.kind is LayoutKind.MULTI_CLS:
            # The limit can leave a CLS with nothing behind it.
            for position, chunk in zip(layout.cls_positions, layout.chunks, strict=False):
                states[position] = one_hot[chunk.token_start : chunk.token_end].sum(axis=0)
        else:
            states[layout.cls_positions] = one_hot[: self.reach].sum(axis=0)
        for chunk in layout.chunks:
            if chunk.landmark_position is not None:
                inside = one_hot[chunk.token_start : chunk.token_end]
                states[chunk.landmark_position] = inside.sum(axis=0)
        return states

    def embed_layouts(
        self, layouts: Sequence[Layout], poolings: Sequence[PoolingConfig], normalize: bool
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.bool_]]]:
        kind = layouts[0].kind
        modes = tuple(pooling.mode for pooling in poolings)
        self.calls.append((kind, modes, [layout.text for layout in layouts]))
        states = [self.states(layout) for layout in layouts]
        if self.spoil is not None:
            for layout, of_layout in zip(layouts, states, strict=True):
                self.spoil(layout, of_layout)
        vectors, flags = [], []
        for pooling in poolings:
            reads = [read_positions(layout, pooling) for layout in layouts]
            rows = np.stack(
                [
                    state[read.positions].mean(axis=0)
                    for state, read in zip(states, reads, strict=True)
                ]
            )
            if normalize:
                rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
            vectors.append(rows)
            flags.append(np.asarray([read.fell_back for read in reads]))
        return vectors, flags
