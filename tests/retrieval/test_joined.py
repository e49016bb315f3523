import numpy as np
import pytest
from helpers import word_tokens

from lmk_viz.retrieval.joined import DocumentBuilder, split_passages
from lmk_viz.retrieval.passages import Passage


def sentence(name, words):
    return " ".join([name.title(), *(f"{name}{i}" for i in range(words - 1))]) + "."


def passages_of(count, sentences=4, words=10):
    return [
        Passage(
            f"p{p:03d}",
            f"doc{p:03d}",
            "",
            " ".join(sentence(f"p{p}s{s}x", words) for s in range(sentences)),
        )
        for p in range(count)
    ]


PASSAGES = passages_of(60)


def builder_of(passages=PASSAGES, documents=12, seed=0):
    golds, fillers = split_passages(passages, documents, seed)
    return DocumentBuilder(golds, fillers, word_tokens, seed), golds, fillers


def test_golds_and_fillers_are_all_passages_and_share_none():
    golds, fillers = split_passages(PASSAGES, 12, 0)
    assert len(golds) == 12
    ids = [*(gold.passage_id for gold in golds), *(filler.id for filler in fillers)]
    assert sorted(ids) == [passage.id for passage in PASSAGES]


def test_a_query_is_one_whole_sentence_and_no_longer_in_its_gold():
    texts = {passage.id: passage.text for passage in PASSAGES}
    golds, _ = split_passages(PASSAGES, 12, 0)
    for gold in golds:
        assert " ".join((*gold.before, gold.query, *gold.after)) == texts[gold.passage_id]
        assert len(gold.before) + len(gold.after) == 3


def test_golds_come_from_different_works():
    shared = [Passage(p.id, f"work{i % 15}", "", p.text) for i, p in enumerate(PASSAGES)]
    work = {passage.id: passage.doc for passage in shared}
    golds, _ = split_passages(shared, 15, 3)
    assert len({work[gold.passage_id] for gold in golds}) == 15
    with pytest.raises(ValueError, match="16 documents were asked for and 15 of 15 works"):
        split_passages(shared, 16, 3)


def test_passages_of_two_sentences_and_queries_of_other_lengths_are_not_taken():
    two = passages_of(5, sentences=2)
    brief = [Passage(f"b{p.id}", f"b{p.doc}", "", p.text) for p in passages_of(5, words=7)]
    long = [Passage(f"l{p.id}", f"l{p.doc}", "", p.text) for p in passages_of(5, words=41)]
    fit = [Passage(f"f{p.id}", f"f{p.doc}", "", p.text) for p in passages_of(2, words=8)]
    golds, fillers = split_passages([*two, *brief, *long, *fit], 2, 0)
    assert {gold.passage_id for gold in golds} == {passage.id for passage in fit}
    assert len(fillers) == 15


def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_the_file():
    drawn = split_passages(PASSAGES, 12, 0)
    assert split_passages(PASSAGES[::-1], 12, 0) == drawn
    assert split_passages(PASSAGES, 12, 1)[0] != drawn[0]


@pytest.mark.parametrize("budget", [40, 64, 126, 511, 1000])
def test_every_document_has_exactly_its_budget_of_tokens(budget):
    joined = builder_of()[0].build(budget)
    assert joined.tokens.tolist() == [budget] * 12
    assert [len(word_tokens(d.text)) for d in joined.documents] == [budget] * 12


def test_every_document_holds_its_gold_whole_and_never_its_query():
    builder, golds, _ = builder_of()
    for document, query, gold in zip(
        builder.build(300).documents, builder.queries, golds, strict=True
    ):
        assert " ".join((*gold.before, *gold.after)) in document.text
        assert gold.query == query.text
        assert gold.query not in document.text
        assert document.id == query.id


def test_no_filler_comes_twice_in_a_document_and_no_gold_is_one():
    builder, golds, _ = builder_of()
    for document, gold in zip(builder.build(1200).documents, golds, strict=True):
        words = document.text.split()
        assert len(set(words)) == len(words)
        others = [other for other in golds if other is not gold]
        assert not any(set(other.query.split()) & set(words) for other in others)
        assert not any(set(" ".join(o.before + o.after).split()) & set(words) for o in others)


def test_places_are_spread_evenly_and_are_the_same_at_every_length():
    builder, _, _ = builder_of()
    short, long = builder.build(100), builder.build(1000)
    assert sorted(builder.places) == pytest.approx((np.arange(12) + 0.5) / 12)
    np.testing.assert_array_equal(short.places, long.places)
    assert short.queries == long.queries
    # A gold of 30 words in 1,000 leaves 970 in front of it and behind it.
    np.testing.assert_allclose(long.depths, (builder.places * 970 + 15) / 1000, atol=0.001)
    assert np.bincount((long.places * 3).astype(int)).tolist() == [4, 4, 4]


def test_gold_stands_at_the_depth_that_is_stated():
    builder, golds, _ = builder_of()
    joined = builder.build(500)
    for document, depth, gold in zip(joined.documents, joined.depths, golds, strict=True):
        words, own = document.text.split(), " ".join((*gold.before, *gold.after)).split()
        assert words.index(own[0]) + len(own) / 2 == pytest.approx(depth * 500)


def test_a_longer_document_holds_the_fillers_of_the_shorter_one():
    builder, _, _ = builder_of()
    for short, long in zip(builder.build(200).documents, builder.build(800).documents, strict=True):
        # The last word of a cut filler is whole here, as words are tokens.
        assert set(short.text.split()) <= set(long.text.split())


def test_a_gold_longer_than_the_budget_keeps_sentences_round_the_gap():
    builder, golds, _ = builder_of()
    for document, gold in zip(builder.build(20).documents, golds, strict=True):
        left = (*gold.before, *gold.after)
        kept = [s for s in left if s in document.text]
        assert document.text == " ".join(kept)
        assert len(kept) == 2
        nearest = {*gold.before[-1:], *gold.after[:1]}
        assert nearest <= set(kept)


def test_a_sentence_longer_than_the_budget_is_cut():
    joined = builder_of()[0].build(6)
    assert joined.tokens.tolist() == [6] * 12


def test_fillers_that_do_not_last_are_refused():
    builder, _, fillers = builder_of()
    most = 30 + 40 * len(fillers)
    assert builder.build(most).tokens.tolist() == [most] * 12
    with pytest.raises(ValueError, match="48 filler passages do not make a document of 1,951"):
        builder.build(most + 1)
