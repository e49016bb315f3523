from types import SimpleNamespace

import numpy as np
import pytest

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding_encoder import pooling_passes
from lmk_viz.retrieval import search
from lmk_viz.retrieval.bm25 import bm25_rankings, bm25_words
from lmk_viz.retrieval.search import is_trained, rank_documents
from lmk_viz.similarity import top_ranked


def slow_top(scores, top_k):
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:top_k]


@pytest.mark.parametrize("top_k", [1, 3, 10, 50, 60])
def test_top_is_that_of_a_full_sort_with_many_ties(top_k):
    scores = np.random.default_rng(top_k).integers(0, 6, size=50).astype(float)
    assert top_ranked(scores, top_k).tolist() == slow_top(scores, top_k)


def unit(rows):
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_ties_are_broken_by_document_id_and_not_by_the_order_of_the_corpus():
    documents = unit([[1, 0], [0, 1], [1, 0], [1, 0]])
    assert rank_documents(unit([[1, 0]]), documents, ["c", "d", "b", "a"], 3) == [["a", "b", "c"]]


def test_cosines_that_differ_by_rounding_alone_are_ties():
    documents = np.asarray([[1.0, 0.0], [1.0 - 1e-7, 0.0]], dtype=np.float32)
    assert rank_documents(unit([[1, 0]]), documents[::-1], ["b", "a"], 2) == [["a", "b"]]


def test_blocks_of_queries_make_no_difference(monkeypatch):
    rng = np.random.default_rng(0)
    queries, documents = unit(rng.normal(size=(7, 5))), unit(rng.normal(size=(20, 5)))
    ids = [f"d{i}" for i in range(20)]
    whole = rank_documents(queries, documents, ids, 4)
    monkeypatch.setattr(search, "BLOCK_SCORES", 40)
    assert rank_documents(queries, documents, ids, 4) == whole
    assert whole == [[ids[i] for i in np.argsort(-(documents @ q))[:4]] for q in queries]


def test_an_encoder_is_trained_for_the_pooling_it_names_and_a_family_for_all_of_its_own():
    one = SimpleNamespace(trained_for=PoolingMode.MEAN)
    family = SimpleNamespace(trained_for=None, trained_poolings=frozenset({PoolingMode.CLS}))
    assert [is_trained(one, m) for m in ("mean", "cls")] == [True, False]
    assert [is_trained(family, m) for m in ("mean", "cls")] == [False, True]
    assert not is_trained(SimpleNamespace(), PoolingMode.CLS)


def test_poolings_of_one_layout_share_a_pass_except_in_a_family():
    poolings = [PoolingConfig(PoolingMode(m)) for m in ("cls", "landmark", "mean")]

    def modes(encoder):
        return [[p.mode.value for p in group] for group in pooling_passes(encoder, poolings)]

    assert modes(SimpleNamespace()) == [["cls", "mean"], ["landmark"]]
    alone = SimpleNamespace(trained_poolings=frozenset({PoolingMode.MEAN}))
    assert modes(alone) == [["cls", "mean"], ["landmark"]]
    family = SimpleNamespace(variants=frozenset({PoolingMode.LANDMARK}))
    assert modes(family) == [["cls"], ["landmark"], ["mean"]]


# BM25.

CORPUS = {
    "b": "river river hill",
    "a": "river sea sea sea sand",
    "c": "Hill; town, 1984 town",
    "d": "",
}


def slow_bm25(query, texts, k1=1.2, b=0.75):
    """Lucene's formula, word by word."""
    words = {name: bm25_words(text) for name, text in texts.items()}
    mean = np.mean([len(found) for found in words.values()])
    scores = dict.fromkeys(texts, 0.0)
    for term in set(bm25_words(query)):
        n = sum(term in found for found in words.values())
        idf = np.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
        for name, found in words.items():
            tf = found.count(term)
            scores[name] += idf * tf / (tf + k1 * (1 - b + b * len(found) / mean))
    return sorted((n for n in texts if scores[n] > 0), key=lambda n: (-scores[n], n))


@pytest.mark.parametrize("query", ["river", "hill town", "sea hill hill river", "1984 HILL"])
def test_bm25_ranks_as_the_formula_worked_out_slowly(query):
    corpus = [Document(name, "", text) for name, text in CORPUS.items()]
    assert bm25_rankings({"q": query}, corpus)["q"] == slow_bm25(query, CORPUS)


def test_a_query_of_unknown_words_finds_nothing():
    corpus = [Document(name, "", text) for name, text in CORPUS.items()]
    assert bm25_rankings({"q": "glacier", "r": "!?"}, corpus) == {"q": [], "r": []}


def test_equal_documents_tie_and_go_by_id():
    corpus = [Document(name, "", "river town") for name in ("z", "b", "m")]
    corpus.append(Document("a", "", "nothing here"))
    assert bm25_rankings({"q": "river"}, corpus, 2)["q"] == ["b", "m"]


def test_a_corpus_without_a_word_finds_nothing():
    assert bm25_rankings({"q": "river"}, [Document("a", "", "…")]) == {"q": []}
