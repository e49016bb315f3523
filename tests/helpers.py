"""Toy texts, tokenisers without a vocabulary, and random cases for the layout tests."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import regex
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind
from lmk_viz.landmarks import Layout, SpecialIds, Tokens, build_layout

CLS, LANDMARK, PAD = 1, 2, 0
SPECIAL = SpecialIds(cls=CLS, landmark=LANDMARK, pad=PAD)
THREES = ChunkingConfig(granularity=3)
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
"""One user-perceived character of five code points and 18 bytes."""

seeded = settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def toy_tokens(n: int) -> Tokens:
    """A text of n letters, one token a letter, ids from 10 up."""
    text = ("abcdefghijklmnopqrstuvwxyz" * (n // 26 + 1))[:n]
    at = np.arange(n)
    return Tokens.from_offsets(text, at + 10, np.stack([at, at + 1], axis=1))


def character_tokens(text: str) -> Tokens:
    """One token a code point."""
    n = len(text)
    return Tokens.from_offsets(text, range(10, 10 + n), [(i, i + 1) for i in range(n)])


def byte_tokens(text: str) -> Tokens:
    """One token a UTF-8 byte, offsets in characters: byte-level BPE without any merge."""
    offsets = [(i, i + 1) for i, c in enumerate(text) for _ in c.encode("utf-8")]
    return Tokens.from_offsets(text, range(10, 10 + len(offsets)), offsets)


def word_tokens(text: str) -> Tokens:
    """One token a run of characters other than white space."""
    offsets = [m.span() for m in regex.finditer(r"\S+", text)]
    return Tokens.from_offsets(text, range(10, 10 + len(offsets)), offsets)


def drawing(layout: Layout) -> str:
    """The input as method.md writes it: special ids, and content from id 10 up as `c`."""
    letters = ["c" if i >= 10 else str(i) for i in layout.input_ids.tolist()]
    return " ".join(
        "".join(group) if kind else " ".join(group)
        for kind, group in ((k, list(g)) for k, g in groupby(letters, lambda x: x == "c"))
    )


def seen_characters(text: str) -> set[int]:
    """Where user-perceived characters begin and the last one ends."""
    return set(np.cumsum([0, *map(len, regex.findall(r"\X", text))]).tolist())


def chunk_texts(layout: Layout) -> list[str]:
    """The characters of each chunk."""
    return [layout.text[c.char_start : c.char_end] for c in layout.chunks]


def fixed(granularity: int) -> ChunkingConfig:
    """Fixed chunking."""
    return ChunkingConfig(granularity=granularity)


_TRICKY = (
    "ab Z.!?。！؟। \t\r\n\x00\x1c\x85\xa0\u2028\u3000"  # End marks, every kind of white space.
    "\u200b\u200d\u0301é🇩🇪👨👩👧🏽日本語ไทยที่عربक्षि"  # Joiners, accents, flags, scripts.
)

texts = st.text(
    st.one_of(st.sampled_from(_TRICKY), st.characters(exclude_categories=["Cs"])), max_size=40
)


@st.composite
def _walked_offsets(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Token after token, with gaps that no token covers and characters shared by several."""
    offsets: list[tuple[int, int]] = []
    position = 0
    steps = st.tuples(
        st.sampled_from([0, 0, 0, 1, 2]), st.integers(1, 4), st.sampled_from([1, 1, 2, 3, 4])
    )
    for gap, width, copies in draw(st.lists(steps, max_size=20)):
        start = position + gap
        if start >= length:
            break
        position = min(length, start + width)
        offsets += [(start, position)] * copies
    return offsets


@st.composite
def _sorted_offsets(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Any offsets whose starts and ends rise: overlapping, zero-width, with holes."""
    place = st.integers(0, length)
    pairs = [sorted(pair) for pair in draw(st.lists(st.tuples(place, place), max_size=20))]
    return list(zip(sorted(a for a, _ in pairs), sorted(b for _, b in pairs), strict=True))


@st.composite
def tokenised(draw: st.DrawFn) -> Tokens:
    """A text with consistent offsets and sentence starts; some ids equal the special ones."""
    text = draw(texts)
    offsets = draw(st.one_of(_walked_offsets(len(text)), _sorted_offsets(len(text))))
    n = len(offsets)
    ids = draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    later = draw(st.sets(st.integers(1, n - 1))) if n > 1 else set()
    return Tokens.from_offsets(text, ids, offsets, sorted({0, *later}) if n else [])


chunkings = st.builds(
    ChunkingConfig,
    mode=st.sampled_from(ChunkingMode),
    granularity=st.integers(1, 9),
    granularities=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    per_chunk=st.booleans(),
    seed=st.integers(0, 5),
    sentence_cap=st.integers(1, 6),
    close_tail=st.booleans(),
)


@dataclass(frozen=True)
class Case:
    """One call of build_layout."""

    tokens: Tokens
    special: SpecialIds
    kind: LayoutKind
    chunking: ChunkingConfig
    max_length: int | None

    def build(self) -> Layout:
        return build_layout(self.tokens, self.special, self.kind, self.chunking, self.max_length)


@st.composite
def cases(draw: st.DrawFn, kind: LayoutKind | None = None, limited: bool | None = None) -> Case:
    """Any case, or those of one kind, or those with or without a length limit."""
    kind = draw(st.sampled_from(LayoutKind)) if kind is None else kind
    limited = draw(st.booleans()) if limited is None else limited
    has_cls = kind is LayoutKind.MULTI_CLS or draw(st.sampled_from([True, True, False]))
    special = SpecialIds(cls=CLS if has_cls else None, landmark=LANDMARK, pad=PAD)
    max_length = draw(st.integers(3, 30)) if limited else None
    return Case(draw(tokenised()), special, kind, draw(chunkings), max_length)
