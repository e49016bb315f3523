"""Toy texts, tokenisers without a vocabulary, and random cases for the layout tests."""

from dataclasses import dataclass
from itertools import groupby
from random import Random

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
    max_examples=200,
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
    """The input as reference cases are written: special ids, and content from id 10 up as `c`."""
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


# Scripts, end marks, controls, joiners, accents, flags, typed special tokens.
_PIECES = [
    *"abZ.!?。！؟।\x00\u200b\u200d\u0301é日本ไทย\u0e35عر\u064eक\u094dष",
    *("Dr. ", "[SEP]", "</s>", "e\u0301", "\u00e9", "🇩🇪", "🇩", "👍🏽", FAMILY),
]
_SPACES = [*" \t\r\n\x1c\x85\xa0\u2028\u3000", "  ", "\r\n", "\n\n"]


def _random_text(rng: Random) -> str:
    def piece() -> str:
        kind = rng.random()
        if kind < 0.2:
            return chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
        return rng.choice(_SPACES if kind < 0.4 else _PIECES)

    return "".join(piece() for _ in range(rng.choice([0, 1, 2, 4, 8, 16, 24])))


def _random_offsets(rng: Random, length: int) -> list[tuple[int, int]]:
    style = rng.choice(["characters", "walked", "sorted"])
    if style == "characters":
        return [(i, i + 1) for i in range(length)]
    if style == "sorted":
        # Anything whose starts and ends rise: overlapping, zero-width, with holes.
        pairs = [sorted(rng.choices(range(length + 1), k=2)) for _ in range(rng.randrange(25))]
        return list(zip(sorted(a for a, _ in pairs), sorted(b for _, b in pairs), strict=True))
    # Token after token: gaps that no token covers, characters that several tokens share.
    offsets: list[tuple[int, int]] = []
    end = 0
    while (start := end + rng.choice([0, 0, 0, 1, 2])) < length:
        end = min(length, start + rng.randint(1, 4))
        offsets += [(start, end)] * rng.choice([1, 1, 2, 4])
    return offsets


def _random_tokens(rng: Random) -> Tokens:
    """Consistent offsets and sentence starts; some ids equal those of CLS, SEP and pad."""
    text = _random_text(rng)
    offsets = _random_offsets(rng, len(text))
    n = len(offsets)
    ids = [rng.randrange(20) for _ in range(n)]
    starts = sorted({0, *(rng.randrange(n) for _ in range(rng.randrange(5)))}) if n else []
    return Tokens.from_offsets(text, ids, offsets, starts)


def _random_chunking(rng: Random) -> ChunkingConfig:
    return ChunkingConfig(
        mode=rng.choice(list(ChunkingMode)),
        granularity=rng.randint(1, 9),
        granularities=tuple(rng.choices(range(1, 10), k=rng.randint(1, 4))),
        per_chunk=rng.random() < 0.5,
        seed=rng.randrange(5),
        sentence_cap=rng.randint(1, 6),
        close_tail=rng.random() < 0.5,
    )


# One seed a case: drawn part by part, five of six cases are small mutations of the one before.
_rngs = st.randoms(use_true_random=True)
texts = st.one_of(st.text(max_size=40), _rngs.map(_random_text))
tokenised = _rngs.map(_random_tokens)
chunkings = _rngs.map(_random_chunking)


@dataclass(frozen=True)
class Case:
    """One call of build_layout."""

    tokens: Tokens
    special: SpecialIds
    kind: LayoutKind
    chunking: ChunkingConfig
    max_length: int | None

    def build(self) -> Layout:
        """The layout of this case."""
        return build_layout(self.tokens, self.special, self.kind, self.chunking, self.max_length)


def cases(kind: LayoutKind | None = None, limited: bool | None = None) -> st.SearchStrategy[Case]:
    """Any cases, or those of one kind, or those with or without a length limit."""

    def random_case(rng: Random) -> Case:
        tokens, chunking = _random_tokens(rng), _random_chunking(rng)
        chosen = rng.choice(list(LayoutKind)) if kind is None else kind
        has_cls = chosen is LayoutKind.MULTI_CLS or rng.random() < 0.7
        # About as long as the text, so that limits fall into it, behind it, on its landmarks.
        limit = rng.randint(3, max(4, len(tokens) * 3 // 2))
        with_limit = rng.random() < 0.7 if limited is None else limited
        special = SpecialIds(cls=CLS if has_cls else None, landmark=LANDMARK, pad=PAD)
        return Case(tokens, special, chosen, chunking, limit if with_limit else None)

    return _rngs.map(random_case)
