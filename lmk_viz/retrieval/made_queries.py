"""Queries made from documents alone: one sentence is taken out of each and has to find the rest."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Self

import numpy as np

from lmk_viz.corpus import Corpus
from lmk_viz.retrieval.dataset import RetrievalDataset, depth_third
from lmk_viz.retrieval.uploads import excluded_notes, listed, with_titles_before
from lmk_viz.text import sentence_spans

__all__ = ["EvidencePlace", "dataset_from_documents"]

MIN_SENTENCES = 3
MIN_CHARACTERS = 20
"""Of a sentence that is asked with, where a document has one: shorter ones are headings, names
and interjections."""


class EvidencePlace(StrEnum):
    """Where the sentences are taken from."""

    START = "start"
    """The first third."""
    MIDDLE = "middle"
    END = "end"
    SPREAD = "spread"
    """Evenly over the whole length, as many from each depth."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"place of the sentences is {value!r}; allowed: {allowed}.")


def dataset_from_documents(
    corpus: Corpus,
    place: EvidencePlace | str = EvidencePlace.SPREAD,
    seed: int = 0,
    with_titles: bool = False,
) -> RetrievalDataset:
    """Returns a data set whose queries are sentences of the documents.

    One sentence is taken out of each document and becomes a query whose right answer is the
    rest of that document. Wanted depths lie evenly over the place and are dealt to the
    documents with the seed; of each document the sentence nearest to its depth is taken.
    Documents of fewer than three sentences are left out.

    Args:
        corpus: the documents.
        place: from which part.
        seed: of the dealing.
        with_titles: put the title and a line break before each document's text.

    Returns:
        A data set whose `depth` says where each sentence stood: the share of the rest of the
        document's characters before it. Its notes say that the queries were made, and which
        documents were left out.

    Raises:
        ValueError: when no document has three sentences.

    Example:
        >>> from lmk_viz.documents import Document
        >>> text = "Rain fell on the hills. The river rose over its banks. We left the house."
        >>> made = dataset_from_documents(Corpus("", (Document("a", "a", text),)), "middle")
        >>> made.queries, made.corpus[0].text
        ({'q-a': 'The river rose over its banks.'}, 'Rain fell on the hills. We left the house.')
    """
    place = EvidencePlace(place)
    spans = {d.id: sentence_spans(d.text) for d in corpus.documents if not d.is_blank}
    usable = [d for d in corpus.documents if len(spans.get(d.id, ())) >= MIN_SENTENCES]
    short = [d.id for d in corpus.documents if len(spans.get(d.id, ())) < MIN_SENTENCES]
    if not usable:
        raise ValueError(
            f"{corpus.name} has no document of {MIN_SENTENCES} sentences or more, and one is "
            "taken out of each; give longer documents, or queries of your own."
        )
    low, high = _range(place)
    wanted = low + (high - low) * (np.arange(len(usable)) + 0.5) / len(usable)
    dealt = np.random.default_rng(seed).permutation(wanted).tolist()
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    depth: dict[str, float] = {}
    rest = []
    for document, target in zip(usable, dealt, strict=True):
        start, end = _nearest(spans[document.id], len(document.text), target, place)
        name = f"q-{document.id}"
        queries[name] = document.text[start:end]
        text = document.text[:start] + document.text[end:]
        if not start or text[start - 1].isspace():
            # Else the blank before the sentence and the one behind it would both stay.
            text = text[:start] + text[start:].lstrip(" ")
        text = text.rstrip()
        depth[name] = min(1.0, start / max(1, len(text)))
        qrels[name] = {document.id: 1}
        rest.append(replace(document, text=text))
    where = "evenly over its length" if place is EvidencePlace.SPREAD else f"at its {place.value}"
    notes = [
        f"The queries were made: one sentence was taken out of each document, {where} (seed "
        f"{seed}), and has to find the rest. Questions that people ask are harder",
        *excluded_notes(corpus),
    ]
    if short:
        notes.append(
            f"{len(short):,} documents have fewer than {MIN_SENTENCES} sentences: left out "
            f"({listed(short)})"
        )
    return RetrievalDataset(
        name=corpus.name,
        split="",
        queries=queries,
        corpus=with_titles_before(rest, with_titles),
        qrels=qrels,
        depth=depth,
        bins={query: depth_third(value) for query, value in depth.items()},
        with_titles=with_titles,
        notes=tuple(notes),
    )


def _range(place: EvidencePlace) -> tuple[float, float]:
    thirds = {
        EvidencePlace.START: (0.0, 1 / 3),
        EvidencePlace.MIDDLE: (1 / 3, 2 / 3),
        EvidencePlace.END: (2 / 3, 1.0),
    }
    return thirds.get(place, (0.0, 1.0))


def _nearest(
    spans: Sequence[tuple[int, int]], length: int, target: float, place: EvidencePlace
) -> tuple[int, int]:
    """Returns the sentence whose middle is nearest to a depth, of those fit to ask with."""

    def depth(span: tuple[int, int]) -> float:
        return (span[0] + span[1]) / 2 / length

    fit = [span for span in spans if span[1] - span[0] >= MIN_CHARACTERS] or list(spans)
    low, high = _range(place)
    inside = [span for span in fit if low <= depth(span) <= high]
    return min(inside or fit, key=lambda span: (abs(depth(span) - target), span))
