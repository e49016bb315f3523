"""Landmark layouts: what goes into the encoder, and which characters each part came from.

A layout is made once from text and settings; everything downstream takes it, and nobody
finds landmarks again by their token id. The rules are those of the authors' evaluation code
(landmark after every chunk, then cut to the length limit); each deliberate difference is a
setting or is named in a docstring.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, digest
from lmk_viz.text import grapheme_starts, is_inside_word, sentence_spans

__all__ = [
    "MIN_LENGTH",
    "Batch",
    "Chunk",
    "Layout",
    "LayoutStats",
    "SpecialIds",
    "Tokens",
    "build_layout",
    "character_spans",
    "chunk_sizes",
    "collate",
    "measure_layout",
]

MIN_LENGTH = 3
"""Shortest length limit: a CLS, one token and a landmark."""

_NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the tokens put round and into the text, as the tokenizer gives them."""

    cls: int | None
    """None where the tokenizer has neither CLS nor BOS."""
    landmark: int
    """The tokenizer's SEP, else its EOS; also closes plain layouts."""
    pad: int


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A tokenised text without special tokens.

    Offsets never fall and stay inside the text; several tokens may share one character.
    """

    text: str
    ids: NDArray[np.int64]
    """Shape (n,)."""
    starts: NDArray[np.int64]
    """First character of each token, shape (n,)."""
    ends: NDArray[np.int64]
    """One past its last character, shape (n,)."""
    sentence_starts: NDArray[np.int64] | None = None
    """Index of the first token of each sentence, when sentences were tokenised one by one."""
    n_unknown: int = 0
    """Tokens that the vocabulary does not have."""
    offsets_repaired: bool = False
    """The tokenizer's offsets were not monotone; character positions are approximate."""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_offsets(
        cls,
        text: str,
        ids: Sequence[int] | NDArray[np.int64],
        offsets: Sequence[tuple[int, int]] | NDArray[np.int64],
        sentence_starts: Sequence[int] | None = None,
        unknown_id: int | None = None,
    ) -> "Tokens":
        """Returns tokens with offsets checked and, where they fall back, made monotone.

        Args:
            text: the text that was tokenised.
            ids: token ids, length n.
            offsets: (start, end) of each token in characters, length n.
            sentence_starts: token index of each sentence's first token.
            unknown_id: id of the unknown token, to count it.

        Raises:
            ValueError: when offsets and ids do not match or leave the text, or when sentences
                do not begin at token 0 and rise.
        """
        # A copy, since it is kept and made read-only, and the caller's array is not ours.
        id_array = np.array(ids, dtype=np.int64).reshape(-1)
        spans = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
        if len(id_array) != len(spans):
            raise ValueError(f"{len(id_array)} ids came with {len(spans)} offsets.")
        if len(spans) and (spans.min() < 0 or spans.max() > len(text)):
            raise ValueError("the tokenizer's offsets leave the text; it cannot be drawn.")
        starts = np.maximum.accumulate(spans[:, 0]) if len(spans) else spans[:, 0]
        ends = np.maximum(spans[:, 1], starts)
        ends = np.maximum.accumulate(ends) if len(ends) else ends
        repaired = bool((starts != spans[:, 0]).any() or (ends != spans[:, 1]).any())
        sentences = None
        if sentence_starts is not None:
            sentences = np.array(sentence_starts, dtype=np.int64).reshape(-1)
            steps = np.diff(np.append(sentences, len(id_array)))
            if sentences[:1].tolist() != [0][: len(id_array)] or (steps <= 0).any():
                raise ValueError(
                    f"sentence_starts is {sentences[:8].tolist()} for {len(id_array)} tokens; "
                    "it has to begin at 0, rise, and stay below the number of tokens."
                )
        return cls(
            text=text,
            ids=_frozen(id_array),
            starts=_frozen(starts),
            ends=_frozen(ends),
            sentence_starts=None if sentences is None else _frozen(sentences),
            n_unknown=0 if unknown_id is None else int((id_array == unknown_id).sum()),
            offsets_repaired=repaired,
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of kept text tokens and, behind it, its landmark where it has one."""

    index: int
    token_start: int
    """First text token, counted from the start of the text."""
    token_end: int
    char_start: int
    """First character; white space at both ends is left out."""
    char_end: int
    landmark_position: int | None
    """Input position of its landmark; None for a tail without one, and in other layouts."""
    splits_character: bool
    """Its end falls inside a user-perceived character, which is counted to this chunk."""

    @property
    def n_tokens(self) -> int:
        """Text tokens in the chunk."""
        return self.token_end - self.token_start


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What goes into the encoder for one text.

    Chunk token ranges tile the kept tokens; chunk character spans are disjoint, rise, and
    join to the kept text with nothing but white space between.
    """

    kind: LayoutKind
    text: str
    tokens: Tokens
    input_ids: NDArray[np.int64]
    """Shape (S,)."""
    token_index: NDArray[np.int64]
    """Text token at each input position, shape (S,); -1 at special tokens."""
    cls_positions: NDArray[np.int64]
    landmark_positions: NDArray[np.int64]
    """Input positions of the landmarks that were inserted, shape (K,)."""
    separator_position: int | None
    """Input position of the final SEP of plain and multi-CLS layouts."""
    chunks: tuple[Chunk, ...]
    n_kept: int
    """Text tokens that went in."""
    max_length: int | None
    drawn: tuple[int, ...]
    """Granularities that variable chunking drew: one a text, or one a chunk."""

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def n_tokens(self) -> int:
        """Text tokens before cutting."""
        return len(self.tokens)

    @property
    def n_cut(self) -> int:
        """Text tokens that the length limit cut off the end."""
        return self.n_tokens - self.n_kept

    @property
    def kept_chars(self) -> int:
        """Characters of the text that went in, counted from its start."""
        if not self.n_cut:
            return len(self.text)
        return self.chunks[-1].char_end if self.chunks else 0

    @property
    def n_landmarks(self) -> int:
        """Landmarks in the input."""
        return len(self.landmark_positions)

    @property
    def n_tail(self) -> int:
        """Kept text tokens behind the last landmark (landmark layouts only)."""
        if self.kind is not LayoutKind.LANDMARK:
            return 0
        return sum(c.n_tokens for c in self.chunks if c.landmark_position is None)

    @property
    def content_positions(self) -> NDArray[np.int64]:
        """Input positions of text tokens, shape (n_kept,)."""
        return np.flatnonzero(self.token_index != _NO_TOKEN)

    def to_dict(self) -> dict[str, Any]:
        """Returns the layout as plain JSON types, without the text."""
        return {
            "layout": self.kind.value,
            "input_ids": self.input_ids.tolist(),
            "landmark_positions": self.landmark_positions.tolist(),
            "cls_positions": self.cls_positions.tolist(),
            "separator_position": self.separator_position,
            "chunks": [
                {
                    "index": c.index,
                    "token_start": c.token_start,
                    "token_end": c.token_end,
                    "char_start": c.char_start,
                    "char_end": c.char_end,
                    "landmark_position": c.landmark_position,
                    "splits_character": c.splits_character,
                }
                for c in self.chunks
            ],
            "drawn_granularities": list(self.drawn),
            "max_length": self.max_length,
        }


@dataclass(frozen=True, slots=True)
class LayoutStats:
    """Counts that describe a layout."""

    characters: int
    tokens: int
    tokens_kept: int
    tokens_cut: int
    characters_cut: int
    tokens_unknown: int
    input_length: int
    chunks: int
    landmarks: int
    overhead: float
    """Landmarks, or CLS tokens beyond the first, a kept text token."""
    tail_tokens: int
    boundaries: int
    """Cuts between two chunks, and the one where the length limit fell."""
    boundaries_in_character: int
    boundaries_in_word: int
    boundaries_in_sentence: int
    chunk_tokens_min: int
    chunk_tokens_median: float
    chunk_tokens_max: int

    def to_dict(self) -> dict[str, int | float]:
        """Returns the counts by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Padded layouts. Row b of layout b starts at column `shifts[b]`."""

    input_ids: NDArray[np.int64]
    """Shape (B, T)."""
    attention_mask: NDArray[np.int64]
    """1 at input, 0 at padding, shape (B, T)."""
    shifts: NDArray[np.int64]
    """Columns of padding before each row, shape (B,)."""


def chunk_sizes(
    tokens: Tokens, chunking: ChunkingConfig
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Returns the token count of each chunk, and the granularities that were drawn.

    Args:
        tokens: the tokenised text; for sentence chunking made sentence by sentence.
        chunking: how to cut.

    Returns:
        Positive sizes that sum to the number of tokens, shape (number of chunks,), and the
        draws of variable chunking (empty for the other modes).

    Raises:
        ValueError: when sentence chunking is asked of tokens made from the whole text.

    References:
        Per text as in the authors' fine-tuning, per chunk as in their RetroMAE pre-training
        (arXiv 2601.21525).
    """
    n = len(tokens)
    if chunking.mode is ChunkingMode.SENTENCE:
        if tokens.sentence_starts is None:
            raise ValueError("sentence chunking needs tokens made sentence by sentence.")
        lengths = np.diff(np.append(tokens.sentence_starts, n))
        sizes = [_equal_sizes(int(length), chunking.sentence_cap) for length in lengths]
        return np.concatenate(sizes) if sizes else np.zeros(0, dtype=np.int64), ()
    if chunking.mode is ChunkingMode.FIXED:
        return _equal_sizes(n, chunking.granularity), ()
    # The text is part of the seed, so that neither batch nor order changes a draw.
    rng = np.random.default_rng([chunking.seed, int(digest(tokens.text), 16)])
    if not chunking.per_chunk:
        drawn = int(rng.choice(chunking.granularities))
        return _equal_sizes(n, drawn), (drawn,)
    draws: list[int] = []
    remaining = n
    while remaining > 0:
        draws.append(int(rng.choice(chunking.granularities)))
        remaining -= draws[-1]
    drawn_sizes = np.asarray(draws, dtype=np.int64)
    if draws:
        drawn_sizes[-1] += remaining  # The last chunk holds what is left.
    return drawn_sizes, tuple(draws)


def build_layout(
    tokens: Tokens,
    special: SpecialIds,
    kind: LayoutKind = LayoutKind.LANDMARK,
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
) -> Layout:
    """Returns the encoder input for one text.

    Landmark layouts follow the authors' evaluation: a landmark after every chunk, the last
    one included, CLS in front, then a cut to the length limit, which may leave a tail
    without a landmark; `chunking.close_tail` gives that tail its landmark at the cost of
    content. Plain layouts keep their final SEP and are one chunk. Multi-CLS layouts put a CLS
    before every chunk of any chunking mode and a SEP at the end.

    Args:
        tokens: the tokenised text.
        special: ids of CLS and landmark.
        kind: which layout.
        chunking: how to cut; None means the defaults.
        max_length: longest input, specials included; None for no limit.

    Raises:
        ValueError: when the limit is below 3, or a multi-CLS layout is asked of a tokenizer
            without CLS.

    Example:
        >>> toy = Tokens.from_offsets("abcdefg", range(10, 17), [(i, i + 1) for i in range(7)])
        >>> ids = SpecialIds(cls=1, landmark=2, pad=0)
        >>> layout = build_layout(toy, ids, chunking=ChunkingConfig(granularity=3))
        >>> layout.input_ids.tolist()
        [1, 10, 11, 12, 2, 13, 14, 15, 2, 16, 2]
        >>> layout.landmark_positions.tolist()
        [4, 8, 10]
    """
    if max_length is not None and max_length < MIN_LENGTH:
        raise ValueError(
            f"length limit is {max_length}; allowed: {MIN_LENGTH} and more "
            "(CLS, one token and a landmark)."
        )
    if kind is LayoutKind.MULTI_CLS and special.cls is None:
        raise ValueError(
            "multi_cls needs a CLS token and this tokenizer has neither CLS nor BOS; "
            "choose landmark, mean or every_k."
        )
    chunking = chunking or ChunkingConfig()
    drawn: tuple[int, ...] = ()
    if kind is LayoutKind.PLAIN:
        sizes = np.asarray([len(tokens)] if len(tokens) else [], dtype=np.int64)
    else:
        sizes, drawn = chunk_sizes(tokens, chunking)

    index, role = _assemble(len(tokens), sizes, kind, special.cls is not None)
    index, role = _cut(index, role, kind, max_length, chunking.close_tail)

    input_ids = np.where(
        role == _TEXT,
        tokens.ids[np.maximum(index, 0)] if len(tokens) else 0,
        np.where(role == _CLS, special.cls if special.cls is not None else 0, special.landmark),
    ).astype(np.int64)
    landmarks = np.flatnonzero(role == _LANDMARK)
    separators = np.flatnonzero(role == _SEPARATOR)
    n_kept = int((role == _TEXT).sum())
    return Layout(
        kind=kind,
        text=tokens.text,
        tokens=tokens,
        input_ids=_frozen(input_ids),
        token_index=_frozen(index),
        cls_positions=_frozen(np.flatnonzero(role == _CLS)),
        landmark_positions=_frozen(landmarks),
        separator_position=int(separators[0]) if len(separators) else None,
        chunks=_build_chunks(tokens, sizes, n_kept, landmarks),
        n_kept=n_kept,
        max_length=max_length,
        drawn=drawn,
    )


def collate(layouts: Sequence[Layout], pad_id: int, padding_side: str = "right") -> Batch:
    """Returns layouts padded to the longest.

    Args:
        layouts: at least one layout.
        pad_id: what padding columns hold; never read, since the mask hides them.
        padding_side: `right` or `left`.

    Raises:
        ValueError: when there is no layout or the side is unknown.
    """
    if not layouts:
        raise ValueError("a batch needs at least one layout.")
    if padding_side not in ("right", "left"):
        raise ValueError(f"padding_side is {padding_side!r}; allowed: right, left.")
    longest = max(len(layout) for layout in layouts)
    input_ids = np.full((len(layouts), longest), pad_id, dtype=np.int64)
    attention_mask = np.zeros_like(input_ids)
    shifts = np.zeros(len(layouts), dtype=np.int64)
    for row, layout in enumerate(layouts):
        shift = longest - len(layout) if padding_side == "left" else 0
        input_ids[row, shift : shift + len(layout)] = layout.input_ids
        attention_mask[row, shift : shift + len(layout)] = 1
        shifts[row] = shift
    return Batch(_frozen(input_ids), _frozen(attention_mask), _frozen(shifts))


def measure_layout(layout: Layout, language: str | None = None) -> LayoutStats:
    """Returns what a layout costs and where its boundaries fall.

    Args:
        layout: any layout.
        language: ISO 639 code for the sentence rules; None guesses it from the script.
    """
    text, chunks = layout.text, layout.chunks
    # A boundary stands where the next chunk begins, or where the length limit cut; white space
    # alone in a chunk is skipped, as it belongs to no sentence.
    cuts = [_skip_space(text, c.char_start) for c in chunks[1:]]
    if layout.n_cut and chunks:
        cuts.append(_skip_space(text, chunks[-1].char_end))
    sentence_starts = {start for start, _ in sentence_spans(text, language)} | {len(text)}
    split = [c.splits_character for c in (chunks if layout.n_cut else chunks[:-1])]
    sizes = np.asarray([c.n_tokens for c in chunks] or [0])
    inserted = layout.n_landmarks + max(0, len(layout.cls_positions) - 1)
    return LayoutStats(
        characters=len(text),
        tokens=layout.n_tokens,
        tokens_kept=layout.n_kept,
        tokens_cut=layout.n_cut,
        characters_cut=len(text) - layout.kept_chars if layout.n_cut else 0,
        tokens_unknown=layout.tokens.n_unknown,
        input_length=len(layout),
        chunks=len(chunks),
        landmarks=layout.n_landmarks,
        overhead=inserted / layout.n_kept if layout.n_kept else 0.0,
        tail_tokens=layout.n_tail,
        boundaries=len(cuts),
        boundaries_in_character=sum(split),
        boundaries_in_word=sum(is_inside_word(text, cut) for cut in cuts),
        boundaries_in_sentence=sum(cut not in sentence_starts for cut in cuts),
        chunk_tokens_min=int(sizes.min()),
        chunk_tokens_median=float(np.median(sizes)),
        chunk_tokens_max=int(sizes.max()),
    )


_TEXT, _CLS, _LANDMARK, _SEPARATOR = range(4)


def _assemble(
    n: int, sizes: NDArray[np.int64], kind: LayoutKind, has_cls: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns text token index and role of each input position, before any cut."""
    index = np.arange(n, dtype=np.int64)
    role = np.full(n, _TEXT, dtype=np.int64)
    ends = np.cumsum(sizes)
    if kind is LayoutKind.LANDMARK:
        # An empty text has one landmark, as in the authors' evaluation: CLS SEP.
        at, inserted = (ends if n else np.zeros(1, dtype=np.int64)), _LANDMARK
    elif kind is LayoutKind.MULTI_CLS:
        at, inserted = ends[:-1], _CLS
    else:
        at, inserted = ends[:0], _CLS
    index = np.insert(index, at, _NO_TOKEN)
    role = np.insert(role, at, inserted)
    if has_cls:
        index, role = np.insert(index, 0, _NO_TOKEN), np.insert(role, 0, _CLS)
    if kind is not LayoutKind.LANDMARK:
        index, role = np.append(index, _NO_TOKEN), np.append(role, _SEPARATOR)
    return index, role


def _cut(
    index: NDArray[np.int64],
    role: NDArray[np.int64],
    kind: LayoutKind,
    max_length: int | None,
    close_tail: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the positions that the length limit keeps."""
    if max_length is None or len(role) <= max_length:
        return index, role
    if kind is not LayoutKind.LANDMARK:
        return (
            np.append(index[: max_length - 1], _NO_TOKEN),
            np.append(role[: max_length - 1], _SEPARATOR),
        )
    if not close_tail:
        return index[:max_length], role[:max_length]
    if role[max_length - 2] == _LANDMARK:
        # One lone token would be all the last chunk has room for; its landmark has none.
        return index[: max_length - 1], role[: max_length - 1]
    return (
        np.append(index[: max_length - 1], _NO_TOKEN),
        np.append(role[: max_length - 1], _LANDMARK),
    )


def _build_chunks(
    tokens: Tokens,
    sizes: NDArray[np.int64],
    n_kept: int,
    landmarks: NDArray[np.int64],
) -> tuple[Chunk, ...]:
    """Returns the chunks with anything kept, landmark k belonging to chunk k."""
    if not n_kept:
        return ()
    ends = np.minimum(np.cumsum(sizes), n_kept)
    ends = ends[: int(np.searchsorted(ends, n_kept)) + 1]
    borders = np.concatenate([[0], ends])
    spans, split = character_spans(tokens, borders)
    return tuple(
        Chunk(
            index=k,
            token_start=int(borders[k]),
            token_end=int(borders[k + 1]),
            char_start=left,
            char_end=right,
            landmark_position=int(landmarks[k]) if k < len(landmarks) else None,
            splits_character=split[k],
        )
        for k, (left, right) in enumerate(spans)
    )


def character_spans(
    tokens: Tokens, borders: NDArray[np.int64]
) -> tuple[list[tuple[int, int]], list[bool]]:
    """Returns the characters of token ranges, and whether each range's end splits one.

    A border inside a grapheme moves behind it, so the grapheme stays with the range in which
    it begins. Characters that no token covers stay with the range before them.

    Args:
        tokens: the tokenised text.
        borders: rising token indices b_0 ... b_m; range k is b_k to b_(k+1).

    Returns:
        Disjoint rising (start, end) pairs without the white space at their ends, length m,
        and m flags.
    """
    places, split = _character_borders(tokens, borders)
    spans = [_strip(tokens.text, left, right) for left, right in pairwise(places)]
    return spans, split[1:]


def _character_borders(tokens: Tokens, at: NDArray[np.int64]) -> tuple[list[int], list[bool]]:
    """Returns the character where each token border falls, and whether it splits one."""
    n = len(tokens)
    inner = (at > 0) & (at < n)
    borders = np.where(at >= n, len(tokens.text), 0)
    before, after = tokens.ends[at[inner] - 1], tokens.starts[at[inner]]
    wanted = np.maximum(before, after)
    shared = before > after
    if tokens.text.isascii() and "\r" not in tokens.text:
        snapped = wanted  # CRLF is the only grapheme of several ASCII characters.
    else:
        graphemes = grapheme_starts(tokens.text)
        snapped = graphemes[np.searchsorted(graphemes, wanted)]
    borders[inner] = snapped
    split = np.zeros(len(at), dtype=bool)
    split[inner] = shared | (snapped != wanted)
    return borders.tolist(), split.tolist()


def _strip(text: str, left: int, right: int) -> tuple[int, int]:
    piece = text[left:right]
    if not piece.strip():
        return left, left
    return left + len(piece) - len(piece.lstrip()), right - len(piece) + len(piece.rstrip())


def _skip_space(text: str, position: int) -> int:
    rest = text[position : position + 4096]
    return position + len(rest) - len(rest.lstrip())


def _equal_sizes(n: int, size: int) -> NDArray[np.int64]:
    full, rest = divmod(n, size)
    return np.asarray([size] * full + [rest] * (rest > 0), dtype=np.int64)


def _frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.setflags(write=False)
    return array
