import numpy as np
import pytest

from lmk_viz.corpus import Corpus
from lmk_viz.documents import Document
from lmk_viz.retrieval.made_queries import EvidencePlace, dataset_from_documents
from lmk_viz.text import sentence_spans


def long_text(name: str, sentences: int = 9) -> str:
    return " ".join(f"Sentence number {i} of {name} is here." for i in range(sentences))


def corpus_of(*texts: str) -> Corpus:
    return Corpus("mine", tuple(Document(f"d{i}", f"d{i}", text) for i, text in enumerate(texts)))


LONG = corpus_of(*(long_text(f"text {i}") for i in range(30)))


@pytest.mark.parametrize("place", list(EvidencePlace))
def test_every_query_is_a_sentence_that_its_document_no_longer_has(place):
    made = dataset_from_documents(LONG, place)
    assert list(made.queries) == [f"q-d{i}" for i in range(30)]
    for whole, rest in zip(LONG.documents, made.corpus, strict=True):
        query = made.queries[f"q-{whole.id}"]
        sentences = [whole.text[a:b] for a, b in sentence_spans(whole.text)]
        assert query in sentences
        assert rest.text == " ".join(s for s in sentences if s != query)
        assert made.qrels[f"q-{whole.id}"] == {whole.id: 1}


@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_sentences_come_from_the_stated_third(place):
    made = dataset_from_documents(LONG, place)
    assert set(made.bins.values()) == {place}


def test_spread_takes_as_many_from_each_third():
    made = dataset_from_documents(LONG, "spread")
    counts = {third: list(made.bins.values()).count(third) for third in ("start", "middle", "end")}
    assert all(8 <= count <= 12 for count in counts.values()), counts


def test_recorded_depths_say_where_the_sentence_stood():
    made = dataset_from_documents(LONG, "spread")
    for whole, rest in zip(LONG.documents, made.corpus, strict=True):
        name = f"q-{whole.id}"
        start = whole.text.index(made.queries[name])
        assert made.depth[name] == pytest.approx(min(1.0, start / len(rest.text)))


def test_the_seed_decides_and_repeats():
    first, again = (dataset_from_documents(LONG, "spread", 1).queries for _ in range(2))
    assert first == again
    assert first != dataset_from_documents(LONG, "spread", 2).queries


def test_short_documents_are_left_out_and_named_and_the_making_is_said():
    made = dataset_from_documents(corpus_of(long_text("one"), "Only one.", "One. Two."))
    assert [d.id for d in made.corpus] == ["d0"]
    assert "The queries were made: one sentence was taken out of each document" in made.notes[0]
    assert "2 documents have fewer than 3 sentences: left out (d1, d2)" in made.notes[1]


def test_many_short_documents_are_counted_behind_the_first():
    made = dataset_from_documents(corpus_of(long_text("one"), *["Short."] * 25))
    assert made.notes[1].endswith("d20 and 5 more)")


def test_no_document_of_three_sentences_is_refused():
    with pytest.raises(ValueError, match="mine has no document of 3 sentences or more"):
        dataset_from_documents(corpus_of("One. Two.", ""))


def test_headings_and_interjections_are_not_asked_with():
    text = "Oh. A river carries water down from hills. No. Well. Ah. Yes."
    for place in EvidencePlace:
        made = dataset_from_documents(corpus_of(text), place)
        assert made.queries == {"q-d0": "A river carries water down from hills."}


def test_paragraphs_and_scripts_without_spaces_are_kept():
    text = (
        "今日は雨が降っていて、とても寒い一日でした。\n\n明日は晴れて、暖かくなると聞いた。"
        "また雨が降るかもしれないので傘を持つ。"
    )
    made = dataset_from_documents(corpus_of(text), "middle")
    (query,) = made.queries.values()
    assert query not in made.corpus[0].text
    assert len(made.corpus[0].text) + len(query) == len(text)


def test_an_unknown_place_is_refused():
    with pytest.raises(ValueError, match="allowed: start, middle, end, spread"):
        dataset_from_documents(LONG, "nowhere")


def test_depths_of_a_spread_are_even():
    made = dataset_from_documents(LONG, "spread")
    depths = np.sort(list(made.depth.values()))
    # Nine sentences a document: each is at most half a sentence from the depth it was dealt.
    assert np.abs(depths - (np.arange(30) + 0.5) / 30).max() < 0.12
