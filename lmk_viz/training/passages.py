"""Pairs from plain passages: one sentence is the query, the text round it the document.

The inverse cloze task (arXiv 1906.00300) over documents of one or several passages. Where the
evidence stands is drawn evenly, so that position in the data is not a reason for position in
the vector; `evidence` moves it to the start for those who want to see what that does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lmk_viz.text import sentence_spans

__all__ = [
    "CutPair",
    "Passage",
    "PassageSettings",
    "TokenCounter",
    "cut_pairs",
    "load_passages",
]

MIN_QUERY_WORDS = 6
MAX_QUERY_WORDS = 40
NAMELESS = frozenset({"austen", "moby-dick", "world-english-bible"})
"""Sources whose titles name only work and chapter, so that many passages share one."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of some sentences."""

    id: str
    doc: str
    """Passages of one document follow each other and may be joined in order."""
    title: str
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PassageSettings:
    """How pairs are cut from passages."""

    lengths: tuple[int, ...] = (96, 160, 224)
    """Document length in tokens by `count`; one is drawn for every batch."""
    parts: tuple[float, ...] = (0.4, 0.2, 0.2, 0.2)
    """Chance of a document of 1, 2, 3, ... passages."""
    same_document: float = 0.3
    """Chance that the other passages come from the query's own document."""
    same_source: float = 0.5
    """Chance that a batch takes its queries from one source, which makes its in-batch negatives
    harder."""
    removed: float = 0.7
    """Chance that the query's sentence is taken out of the document."""
    titles: float = 0.15
    """Chance that the title is the query, where titles tell passages apart."""
    evidence: str = "anywhere"
    """Place of the query's passage: `anywhere` or `start`."""

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 16:
            raise ValueError(f"lengths is {self.lengths}; give sizes of 16 tokens and more.")
        if not self.parts or min(self.parts) < 0 or not sum(self.parts) > 0:
            raise ValueError(f"parts is {self.parts}; give chances that add up to over 0.")
        for name in ("same_document", "same_source", "removed", "titles"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 0 to 1.")
        if self.evidence not in ("anywhere", "start"):
            raise ValueError(f"evidence is {self.evidence!r}; allowed: anywhere, start.")


@dataclass(frozen=True, slots=True)
class CutPair:
    """A query with the parts of its document in order."""

    query: str
    parts: tuple[str, ...]
    answer: int
    """Which part holds the evidence."""

    @property
    def document(self) -> str:
        """The parts joined."""
        return " ".join(self.parts)


@dataclass(frozen=True, slots=True)
class _Source:
    """Passages to draw from, by document and by source."""

    passages: Sequence[Passage]
    by_doc: dict[str, list[int]] = field(default_factory=dict)
    by_source: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row, passage in enumerate(self.passages):
            self.by_doc.setdefault(passage.doc, []).append(row)
            self.by_source.setdefault(passage.source, []).append(row)


def load_passages(
    rows: Iterable[Mapping[str, Any]], exclude: frozenset[str] = frozenset()
) -> tuple[Passage, ...]:
    """Returns passages from rows with `text` and, where given, `id`, `doc`, `title`, `source`.

    Args:
        rows: as `lmk_viz.training.data.read_rows` yields them.
        exclude: ids to leave out, such as those held out for evaluation.

    Raises:
        ValueError: when a row has no text.
    """
    passages = []
    for number, row in enumerate(rows, start=1):
        text = row.get("text")
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"row {number}: text is missing or empty; a passage is expected.")
        key = str(row.get("id") or f"row-{number}")
        if key not in exclude:
            passages.append(
                Passage(
                    key,
                    str(row.get("doc") or key),
                    str(row.get("title") or ""),
                    text,
                    str(row.get("source") or ""),
                )
            )
    return tuple(passages)


def cut_pairs(
    passages: Sequence[Passage],
    count: int,
    batch_size: int,
    tokens: "TokenCounter",
    settings: PassageSettings | None = None,
    seed: int = 0,
) -> list[CutPair]:
    """Returns pairs in the order in which they are to be trained on, batch by batch.

    Args:
        passages: what to cut from.
        count: pairs wanted.
        batch_size: pairs that are trained on together; they share length and maybe source, and
            come from different documents where there are enough.
        tokens: counts the tokens of a text.
        settings: how to cut.
        seed: of every draw.

    Raises:
        ValueError: when no passage has a sentence that can be a query.
    """
    settings = settings or PassageSettings()
    rng = np.random.default_rng(seed)
    source = _Source(passages)
    names = sorted(source.by_source)
    sizes = np.asarray([len(source.by_source[name]) for name in names], dtype=float)
    pairs: list[CutPair] = []
    misses = 0
    while len(pairs) < count:
        length = int(rng.choice(settings.lengths))
        pool: Sequence[int] = range(len(passages))
        if rng.random() < settings.same_source:
            pool = source.by_source[names[rng.choice(len(names), p=sizes / sizes.sum())]]
        docs: set[str] = set()
        batch: list[CutPair] = []
        tries = 0
        while len(batch) < min(batch_size, count - len(pairs)):
            row = pool[int(rng.integers(len(pool)))]
            tries += 1
            if passages[row].doc in docs and tries < 20 * batch_size:
                continue
            pair = _cut(source, row, length, tokens, settings, rng)
            if pair is None:
                misses += 1
                if misses > 1000 + 50 * len(pairs):
                    raise ValueError(
                        "no passage has two sentences of which one has "
                        f"{MIN_QUERY_WORDS} to {MAX_QUERY_WORDS} words; give longer passages."
                    )
                continue
            docs.add(passages[row].doc)
            batch.append(pair)
        pairs += batch
    return pairs


class TokenCounter:
    """Counts tokens of texts, each text once."""

    def __init__(self, count: Callable[[str], int]) -> None:
        """Takes a function from a text to its number of tokens."""
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Returns the number of tokens of a text."""
        if text not in self._known:
            self._known[text] = self._count(text)
        return self._known[text]


def _cut(
    source: _Source,
    row: int,
    length: int,
    tokens: TokenCounter,
    settings: PassageSettings,
    rng: np.random.Generator,
) -> CutPair | None:
    """Returns a pair whose evidence is in a passage, or None where it has no fit sentence."""
    passage = source.passages[row]
    sentences = _sentences(passage.text)
    fit = [
        i
        for i, sentence in enumerate(sentences)
        if MIN_QUERY_WORDS <= len(sentence.split()) <= MAX_QUERY_WORDS
    ]
    if len(sentences) < 2 or not fit:
        return None
    weights = np.asarray(settings.parts, dtype=float)
    n_parts = 1 + int(rng.choice(len(weights), p=weights / weights.sum()))
    chosen = fit[int(rng.integers(len(fit)))]
    with_title = bool(passage.title) and passage.source not in NAMELESS
    query = sentences[chosen]
    if with_title and rng.random() < settings.titles:
        query = passage.title
    elif rng.random() < settings.removed:
        sentences = [s for i, s in enumerate(sentences) if i != chosen]
        chosen = min(chosen, len(sentences) - 1)
    share = length // n_parts
    gold = _run(sentences, chosen, share, tokens, rng)
    others = [
        _run(text, int(rng.integers(len(text))), share, tokens, rng)
        for text in (_sentences(p.text) for p in _others(source, row, n_parts - 1, settings, rng))
    ]
    place = 0 if settings.evidence == "start" else int(rng.integers(len(others) + 1))
    return CutPair(query, (*others[:place], gold, *others[place:]), place)


def _others(
    source: _Source, row: int, count: int, settings: PassageSettings, rng: np.random.Generator
) -> list[Passage]:
    """Returns passages to stand round one, none of them the passage itself."""
    siblings = [r for r in source.by_doc[source.passages[row].doc] if r != row]
    if count and len(siblings) >= count and rng.random() < settings.same_document:
        # Neighbours in reading order, so that the document reads on.
        place = int(np.searchsorted(siblings, row))
        first = min(max(0, place - count // 2), len(siblings) - count)
        return [source.passages[r] for r in siblings[first : first + count]]
    found: list[Passage] = []
    while len(found) < count and len(source.passages) > 1:
        other = int(rng.integers(len(source.passages)))
        if other != row:
            found.append(source.passages[other])
    return found


def _run(
    sentences: Sequence[str],
    inside: int,
    budget: int,
    tokens: TokenCounter,
    rng: np.random.Generator,
) -> str:
    """Returns consecutive sentences round one, within a token budget, grown to random sides."""
    first = last = inside
    total = tokens(sentences[inside])
    while True:
        sides = [s for s in ((first - 1), (last + 1)) if 0 <= s < len(sentences)]
        sides = [s for s in sides if total + tokens(sentences[s]) <= budget]
        if not sides:
            return " ".join(sentences[first : last + 1])
        side = sides[int(rng.integers(len(sides)))]
        total += tokens(sentences[side])
        first, last = min(first, side), max(last, side)


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, "en")]
