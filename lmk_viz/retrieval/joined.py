"""Documents of a chosen length with one passage to be found at a chosen depth."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmk_viz.documents import Document
from lmk_viz.landmarks import Tokens, character_spans
from lmk_viz.retrieval.passages import Passage
from lmk_viz.text import sentence_spans

__all__ = ["DocumentBuilder", "Gold", "JoinedDocuments", "split_passages"]

MIN_SENTENCES = 3
QUERY_WORDS = (8, 40)


@dataclass(frozen=True, slots=True)
class Gold:
    """A passage whose one sentence became the query, and what is left of it."""

    passage_id: str
    query: str
    before: tuple[str, ...]
    """Sentences in front of the gap."""
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class JoinedDocuments:
    """One document a gold, and its query under the same id; all documents are as long."""

    documents: tuple[Document, ...]
    queries: tuple[Document, ...]
    places: NDArray[np.float64]
    """Share of the other text that stands before the gold, 0 to 1, shape (N,)."""
    depths: NDArray[np.float64]
    """Where the gold's middle stands in the document, in tokens, 0 to 1, shape (N,)."""
    tokens: NDArray[np.int64]
    """Text tokens of each document, shape (N,)."""


def split_passages(
    passages: Iterable[Passage], documents: int, seed: int
) -> tuple[tuple[Gold, ...], tuple[Passage, ...]]:
    """Returns golds, one a work, and all other passages as fillers.

    A gold has at least three sentences, one of which, of 8 to 40 words, is taken out as its
    query. The draw depends on the seed and the passages' ids, not on their order.

    Args:
        passages: each id once.
        documents: how many golds.
        seed: of the draw.

    Raises:
        ValueError: when there are fewer works than that with a passage that fits.
    """
    by_doc: dict[str, list[Passage]] = {}
    ordered = sorted(passages, key=lambda passage: passage.id)
    for passage in ordered:
        by_doc.setdefault(passage.doc, []).append(passage)
    works = sorted(by_doc)
    rng = np.random.default_rng([seed, 0])
    golds: list[Gold] = []
    for number in rng.permutation(len(works)).tolist():
        if len(golds) == documents:
            break
        choices = [cut for passage in by_doc[works[number]] for cut in _possible_golds(passage)]
        if choices:
            golds.append(choices[int(rng.integers(len(choices)))])
    if len(golds) < documents:
        low, high = QUERY_WORDS
        raise ValueError(
            f"{documents:,} documents were asked for and {len(golds):,} of {len(works):,} works "
            f"have a passage of {MIN_SENTENCES} sentences or more with one of {low} to {high} "
            "words; ask for fewer documents or give more passages."
        )
    taken = {gold.passage_id for gold in golds}
    return tuple(golds), tuple(passage for passage in ordered if passage.id not in taken)


def _possible_golds(passage: Passage) -> list[Gold]:
    sentences = [passage.text[start:end] for start, end in sentence_spans(passage.text)]
    if len(sentences) < MIN_SENTENCES:
        return []
    low, high = QUERY_WORDS
    return [
        Gold(passage.id, sentence, tuple(sentences[:place]), tuple(sentences[place + 1 :]))
        for place, sentence in enumerate(sentences)
        if low <= len(sentence.split()) <= high
    ]


class DocumentBuilder:
    """Joins fillers round golds, the same golds at the same places at every length.

    Document i takes its fillers from a fixed order of its own, so a longer document holds the
    text of the shorter one and more on both sides.
    """

    def __init__(
        self,
        golds: Sequence[Gold],
        fillers: Sequence[Passage],
        tokenize: Callable[[str], Tokens],
        seed: int,
    ) -> None:
        """Takes what to join.

        Args:
            golds: one a document.
            fillers: drawn without replacement within a document.
            tokenize: returns the text tokens of a text.
            seed: of places and fillers.
        """
        self.golds = tuple(golds)
        self._fillers = tuple(fillers)
        self._tokenize = tokenize
        self._seed = seed
        self._tokens: dict[str, Tokens] = {}
        n = len(self.golds)
        order = np.random.default_rng([seed, 1]).permutation(n)
        self.places: NDArray[np.float64] = (order + 0.5) / max(1, n)
        """Evenly spread over 0 to 1, so that thirds are equally frequent, shape (N,)."""
        width = len(str(max(0, n - 1)))
        self.queries = tuple(
            Document(f"{i:0{width}d}", gold.passage_id, gold.query)
            for i, gold in enumerate(self.golds)
        )

    def build(self, budget: int) -> JoinedDocuments:
        """Returns the documents at a length.

        Args:
            budget: text tokens a document. Pieces are cut at token borders and counted again
                when cut, so a document can be a few tokens shorter, never longer where the
                tokenizer treats joined pieces as it does single ones.

        Raises:
            ValueError: when the fillers do not last.
        """
        documents, depths, tokens = [], [], []
        for i, gold in enumerate(self.golds):
            text = self._gold_text(gold, budget)
            n_gold = len(self._read(text))
            rest = budget - n_gold
            n_before = round(float(self.places[i]) * rest)
            order = np.random.default_rng([self._seed, 2, i]).permutation(len(self._fillers))
            before, used = self._fill(order.tolist(), n_before, budget)
            after, _ = self._fill(
                order[::-1].tolist()[: len(order) - used], rest - n_before, budget
            )
            joined = " ".join((*before, text, *after))
            n_joined = len(self._tokenize(joined))
            got_before = sum(len(self._read(piece)) for piece in before)
            documents.append(Document(self.queries[i].id, gold.passage_id, joined))
            depths.append((got_before + n_gold / 2) / max(1, n_joined))
            tokens.append(n_joined)
        return JoinedDocuments(
            documents=tuple(documents),
            queries=self.queries,
            places=self.places,
            depths=np.asarray(depths),
            tokens=np.asarray(tokens, dtype=np.int64),
        )

    def _read(self, text: str) -> Tokens:
        if text not in self._tokens:
            self._tokens[text] = self._tokenize(text)
        return self._tokens[text]

    def _cut(self, text: str, budget: int) -> str:
        """Returns the start of a text that has at most so many tokens."""
        tokens = self._read(text)
        if len(tokens) <= budget:
            return text
        for size in range(budget, 0, -1):
            # A word that is cut can fall into more tokens than it had.
            spans, _ = character_spans(tokens, np.asarray([0, size], dtype=np.int64))
            piece = text[slice(*spans[0])]
            if len(self._tokenize(piece)) <= budget:
                return piece
        return ""

    def _gold_text(self, gold: Gold, budget: int) -> str:
        """Returns the gold without its query, or a run of sentences round the gap that fits."""
        before, after = list(gold.before), list(gold.after)
        while len(before) + len(after) > 1:
            text = " ".join((*before, *after))
            if len(self._read(text)) <= budget:
                return text
            # The longer side loses the sentence that is farthest from the gap.
            if len(before) > len(after):
                before.pop(0)
            else:
                after.pop()
        return self._cut(" ".join((*before, *after)), budget)

    def _fill(self, order: Sequence[int], budget: int, whole: int) -> tuple[list[str], int]:
        """Returns fillers of so many tokens, the last one cut, and how many were used."""
        pieces: list[str] = []
        for number, filler in enumerate(order):
            if budget <= 0:
                return pieces, number
            text = self._fillers[filler].text
            size = len(self._read(text))
            piece = text if size <= budget else self._cut(text, budget)
            if piece:
                pieces.append(piece)
            budget -= size
        if budget > 0:
            raise ValueError(
                f"{len(self._fillers):,} filler passages do not make a document of {whole:,} "
                "tokens; ask for lower multiples, a shorter length or fewer documents, or give "
                "more passages."
            )
        return pieces, len(order)
