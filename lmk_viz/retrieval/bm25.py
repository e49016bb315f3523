"""BM25 on words: the reference that no encoder takes part in."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from lmk_viz.documents import Document
from lmk_viz.similarity import top_ranked

__all__ = ["bm25_rankings", "bm25_words"]

K1, B = 1.2, 0.75
_WORD = re.compile(r"[a-z0-9]+")


def bm25_words(text: str) -> list[str]:
    """Returns the runs of a-z and 0-9 of the lower-cased text.

    Example:
        >>> bm25_words("Don't stop, 1984!")
        ['don', 't', 'stop', '1984']
    """
    return _WORD.findall(text.lower())


def bm25_rankings(
    queries: Mapping[str, str], corpus: Sequence[Document], top_k: int = 10
) -> dict[str, list[str]]:
    """Returns the documents of each query by BM25, best first, ties by document id.

    Lucene's form with k1 1.2 and b 0.75; no stemming and no stop words. A word that stands in
    a query twice counts once. Documents that share no word with a query are not in its
    ranking, so that a query of unknown words finds nothing.

    Args:
        queries: text by id.
        corpus: the documents, text as it is encoded.
        top_k: how many a query.
    """
    import bm25s

    ordered = sorted(corpus, key=lambda document: document.id)
    words = [bm25_words(document.text) for document in ordered]
    known = {word for of_document in words for word in of_document}
    if not known:
        return {query: [] for query in queries}
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(words, show_progress=False)
    found: dict[str, list[str]] = {}
    for query, text in queries.items():
        terms = [word for word in dict.fromkeys(bm25_words(text)) if word in known]
        # Rounded like cosines: documents with the same words tie.
        scores = (
            np.round(np.asarray(index.get_scores(terms), dtype=np.float64), 5)
            if terms
            else np.zeros(len(ordered))
        )
        best = top_ranked(scores, top_k)
        found[query] = [ordered[row].id for row in best if scores[row] > 0]
    return found
