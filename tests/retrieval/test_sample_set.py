"""The bundled retrieval set: what its description promises."""

import json
from collections import Counter
from pathlib import Path

import pytest

from lmk_viz.retrieval.dataset import depth_third, load_dataset

FOLDER = Path(__file__).resolve().parents[2] / "sample_docs" / "retrieval"


@pytest.fixture(scope="module")
def dataset():
    return load_dataset(FOLDER)


@pytest.fixture(scope="module")
def evidence():
    """The words that answer each query, by query."""
    lines = (FOLDER / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["_id"]: record["evidence"] for record in map(json.loads, lines)}


def answer(dataset, query):
    """The one document that is judged for a query."""
    texts = {document.id: document.text for document in dataset.corpus}
    ((name, grade),) = dataset.qrels[query].items()
    assert grade == 1
    return texts[name]


def test_there_are_120_documents_of_which_most_are_long_and_150_queries(dataset):
    words = [len(document.text.split()) for document in dataset.corpus]
    assert (len(words), len(dataset.queries)) == (120, 150)
    assert sum(count > 600 for count in words) == 84
    assert sum(count > 1500 for count in words) == 24
    assert dataset.notes == ()


def test_each_of_twelve_topics_has_ten_documents_with_titles_of_their_own(dataset):
    topics = Counter(document.id.rsplit("-", 1)[0] for document in dataset.corpus)
    assert set(topics.values()) == {10}
    assert len(topics) == 12
    assert len({document.title for document in dataset.corpus}) == 120


def test_evidence_stands_once_in_its_document_at_the_depth_that_is_stated(dataset, evidence):
    for query, words in evidence.items():
        text = answer(dataset, query)
        assert text.count(words) == 1, query
        depth = (text.index(words) + len(words) / 2) / len(text)
        assert dataset.depth[query] == pytest.approx(depth, abs=1e-4)
        assert dataset.bins[query] == depth_third(depth)


def test_evidence_is_spread_over_start_middle_and_end(dataset):
    assert Counter(dataset.bins.values()) == {"start": 48, "middle": 52, "end": 50}


def test_a_query_is_a_question_in_other_words_than_its_evidence(dataset, evidence):
    assert len(set(dataset.queries.values())) == 150

    def long_words(text):
        return {word.strip(".,;?!\"'").lower() for word in text.split() if len(word) > 3}

    for query, text in dataset.queries.items():
        assert text.endswith("?"), query
        assert 6 <= len(text.split()) <= 25, query
        shared = long_words(text) & long_words(evidence[query])
        assert len(shared) <= 0.5 * len(long_words(text)), (query, shared)


def test_no_run_of_ten_words_stands_in_two_documents(dataset):
    seen = {}
    for document in dataset.corpus:
        words = document.text.lower().split()
        for start in range(len(words) - 9):
            run = tuple(words[start : start + 10])
            assert seen.setdefault(run, document.id) == document.id, run
