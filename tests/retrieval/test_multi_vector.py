import json
import tracemalloc

import numpy as np
import pytest
import torch
from fakes import BagEncoder

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.landmark_points import landmark_states
from lmk_viz.pooling import parse_poolings
from lmk_viz.retrieval import multi_vector
from lmk_viz.retrieval.chunk_vectors import (
    MultiVector,
    chunk_cosines,
    embed_chunks,
    plan_chunks,
)
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.evaluate import evaluate
from lmk_viz.retrieval.multi_vector import BestDocuments, search_multi_vector

TWOS = ChunkingConfig(granularity=2)
KINDS = list(MultiVector)


class ChunkBag(BagEncoder):
    """The bag of words, with token states for whoever reads more than one vector."""

    def token_states(self, layouts):
        longest = max(map(len, layouts))
        states = np.full((len(layouts), longest, self.embedding_dim), np.nan, dtype=np.float32)
        for row, layout in enumerate(layouts):
            of_layout = self.states(layout)
            if self.spoil is not None:
                self.spoil(layout, of_layout)
            states[row, : len(layout)] = of_layout  # NaN where padding would be read.
        self.calls.append((layouts[0].kind, (), [layout.text for layout in layouts]))
        return torch.from_numpy(states)


def bag(**settings):
    return ChunkBag("abcdxy", reach=2, **settings)


def documents_of(texts):
    return [Document(name, "", text) for name, text in texts.items()]


def unit(vector):
    return np.asarray(vector, dtype=float) / max(np.linalg.norm(vector), 1e-12)


def counts(words):
    return np.asarray([words.count(word) for word in "abcdxy"], dtype=float)


def pairs(text):
    words = text.split()
    return [words[i : i + 2] for i in range(0, len(words), 2)]


def mean_of_input(words):
    """Mean pooling by hand: CLS counts the first two words, SEP nothing."""
    return (counts(words[:2]) + counts(words)) / (len(words) + 2)


def vectors_by_hand(kind, text):
    """The vectors of a document, chunk by chunk, of length 1."""
    if kind is MultiVector.PASSAGES:
        return [unit(mean_of_input(words)) for words in pairs(text)]
    return [unit(counts(words)) for words in pairs(text)]


def query_by_hand(kind, text):
    if kind is MultiVector.MAX_SIM:
        return unit(np.mean([counts(words) for words in pairs(text)], axis=0))
    return unit(mean_of_input(text.split()))


# What is found.


@pytest.mark.parametrize("kind", KINDS)
def test_one_chunk_that_answers_finds_its_document_among_words_that_do_not(kind):
    # The mean of "long" is mostly x, so that one vector a document prefers "near".
    texts = {"long": "x x x x x x a b x x x x x x", "near": "a c a d", "other": "y y"}
    documents, queries = documents_of(texts), [Document("q", "", "a b")]
    found = search_multi_vector(bag(), kind, documents, queries, TWOS)
    assert found.rankings["q"][0] == "long"
    table = embed_documents(bag(), [*documents, *queries], parse_poolings("mean,landmark"), TWOS)
    for vectors in table.vectors.values():
        assert int(np.argmax(vectors[:3] @ vectors[3])) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_rankings_are_those_of_a_comparison_one_by_one(kind):
    rng = np.random.default_rng(0)
    texts = {f"d{i}": " ".join(rng.choice(list("abcdxy"), rng.integers(1, 14))) for i in range(40)}
    queries = {f"q{i}": " ".join(rng.choice(list("abcdxy"), 3)) for i in range(15)}
    found = search_multi_vector(
        bag(), kind, documents_of(texts), documents_of(queries), TWOS, top_k=7, batch_tokens=40
    )
    for name, query in queries.items():
        asked = query_by_hand(kind, query)
        scores = {
            document: round(max(float(asked @ v) for v in vectors_by_hand(kind, text)), 6)
            for document, text in texts.items()
        }
        # Cosines of float32 can fall on either side of a rounding, so scores are compared.
        best = sorted(scores.values(), reverse=True)[:7]
        own = [scores[document] for document in found.rankings[name]]
        assert own == pytest.approx(best, abs=2e-6)
        assert len(set(found.rankings[name])) == 7


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_a_portion_and_the_order_of_the_corpus_change_nothing(kind):
    rng = np.random.default_rng(1)
    texts = {f"d{i:02}": " ".join(rng.choice(list("abx"), 6)) for i in range(30)}
    queries = documents_of({"q1": "a b", "q2": "b x x"})
    whole = search_multi_vector(bag(), kind, documents_of(texts), queries, TWOS)
    turned = documents_of(dict(reversed(texts.items())))
    parts = search_multi_vector(bag(), kind, turned, queries, TWOS, portion_vectors=4)
    # Most documents tie, so ties are broken by id whatever came first.
    assert parts.rankings == whole.rankings
    assert parts.cost.vectors == whole.cost.vectors == 90


def test_equal_scores_go_by_rank_and_what_was_not_seen_is_not_listed():
    best = BestDocuments(queries=2, top_k=3)
    best.add(np.asarray([[0.5, 0.9]], dtype=np.float32), np.asarray([3, 1]), first=1)
    best.add(np.asarray([[0.9]], dtype=np.float32), np.asarray([0]), first=1)
    best.add(np.asarray([[0.1]], dtype=np.float32), np.asarray([2]), first=1)
    assert best.rankings(["a", "b", "c", "d"]) == [[], ["a", "b", "d"]]


# What it costs.


def test_an_index_counts_its_vectors_bytes_and_dot_products():
    texts = {"five": "a b c d x", "two": "a b"}
    for kind in KINDS:
        cost = search_multi_vector(
            bag(), kind, documents_of(texts), documents_of({"q": "a"}), TWOS
        ).cost
        # Chunks of two words: three and one; six dimensions of four bytes.
        assert (cost.vectors, cost.bytes) == (4, 96)
        assert cost.to_dict()["dot_products"] == 4
        assert cost.seconds_a_query >= 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_than_a_portion_of_vectors_is_ever_held(kind, monkeypatch):
    held = []
    search = multi_vector._search

    def counting(queries, found, ranks, best):
        held.append(sum(len(f.vectors) for f in found))
        search(queries, found, ranks, best)

    monkeypatch.setattr(multi_vector, "_search", counting)
    texts = {f"d{i}": " ".join("abcdxy"[: 1 + i % 6]) for i in range(60)}
    documents = documents_of({**texts, "long": "a " * 50})
    cost = search_multi_vector(
        bag(), kind, documents, documents_of({"q": "a"}), TWOS, portion_vectors=10
    ).cost
    assert sum(held) == cost.vectors == 145
    # One document alone has 25, and is a portion of its own.
    assert sorted(held)[-1] == 25
    assert sorted(held)[-2] <= 10


def test_memory_does_not_grow_with_the_corpus():
    class Flat(ChunkBag):
        """Any word is known, and states are wide."""

        embedding_dim = 512

        def states(self, layout):
            return np.ones((len(layout), 512), dtype=np.float32)

    encoder = Flat("ab", reach=2)
    documents = documents_of({f"d{i}": "a b " * 8 for i in range(200)})
    queries = documents_of({"q": "a"})

    def peak(corpus):
        tracemalloc.start()
        cost = search_multi_vector(
            encoder,
            MultiVector.MAX_SIM,
            corpus,
            queries,
            ChunkingConfig(granularity=1),
            batch_tokens=200,
            portion_vectors=200,
        ).cost
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return cost.bytes, highest

    _, small = peak(documents[:40])
    index, large = peak(documents)
    # The index has 16 x 200 vectors of 2 KB, 6.5 MB; a portion 0.4 MB.
    assert index == 16 * 200 * 512 * 4
    assert large < index / 4
    assert large < 1.3 * small


def test_progress_counts_queries_and_documents_up_to_the_total():
    for kind in KINDS:
        seen = []
        search_multi_vector(
            bag(),
            kind,
            documents_of({f"d{i}": "a b c" for i in range(9)}),
            documents_of({"q1": "a", "q2": "b"}),
            TWOS,
            batch_tokens=14,
            progress=lambda done, total, seen=seen: seen.append((done, total)),
            portion_vectors=6,
        )
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert (seen[0][0], seen[-1]) == (2, (11, 11))
        assert len(seen) > 4


# Where vectors are read.


def test_chunks_end_where_landmarks_stand():
    text = "a b  c d\nx"
    for kind in KINDS:
        plan = plan_chunks(bag(), kind, Document("d", "", text), TWOS)
        assert [text[start:end] for start, end in plan.spans] == ["a b", "c d", "x"]


def test_chunks_of_sentences_are_found_among_the_tokens_of_the_whole_text():
    text = "a b c\n\nd\n\nx y"
    chunking = ChunkingConfig(ChunkingMode.SENTENCE)
    encoder = bag()
    for kind in KINDS:
        plan = plan_chunks(encoder, kind, Document("d", "", text), chunking)
        assert [text[start:end] for start, end in plan.spans] == ["a b c", "d", "x y"]
        (found,) = embed_chunks(encoder, kind, [plan], chunking)
        if kind is not MultiVector.PASSAGES:
            wanted = [unit(counts(words)) for words in ("abc", "d", "xy")]
            np.testing.assert_allclose(found.vectors, wanted, atol=1e-6)


def test_what_the_length_limit_cuts_has_no_vector_but_as_a_passage():
    document = Document("d", "", "a b c d x y")
    spans = {}
    for kind in KINDS:
        plan = plan_chunks(bag(), kind, document, TWOS, max_length=6)
        spans[kind] = ([document.text[s:e] for s, e in plan.spans], plan.was_cut)
    # CLS a b LMK c d: the second chunk has no landmark. CLS a b c d SEP: both chunks are read.
    assert spans[MultiVector.MAX_SIM] == (["a b"], True)
    assert spans[MultiVector.LATE_CHUNKING] == (["a b", "c d"], True)
    assert spans[MultiVector.PASSAGES] == (["a b", "c d", "x y"], False)


def test_a_limit_inside_a_chunk_leaves_late_chunking_its_first_part():
    plan = plan_chunks(
        bag(), MultiVector.LATE_CHUNKING, Document("d", "", "a b c d"), TWOS, max_length=5
    )
    assert plan.borders.tolist() == [0, 2, 3]
    (found,) = embed_chunks(bag(), MultiVector.LATE_CHUNKING, [plan], TWOS, 5)
    np.testing.assert_allclose(found.vectors, [unit(counts("ab")), unit(counts("c"))], atol=1e-6)


def test_passages_longer_than_the_limit_are_counted_as_cut():
    found = search_multi_vector(
        bag(),
        MultiVector.PASSAGES,
        documents_of({"long": "a b c d", "short": "a"}),
        documents_of({"q": "a"}),
        ChunkingConfig(granularity=4),
        max_length=4,
    )
    assert (found.documents_cut, found.queries_cut) == (1, 0)


def test_a_document_without_a_landmark_falls_back_to_its_mean():
    found = search_multi_vector(
        bag(),
        MultiVector.MAX_SIM,
        documents_of({"d": "a b c d", "e": "x"}),
        documents_of({"q": "a"}),
        ChunkingConfig(granularity=4),
        max_length=4,
    )
    # CLS a b c: the limit leaves no room for the landmark.
    assert found.fell_back == 1
    assert found.rankings["q"] == ["d", "e"]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_without_a_vector_are_left_out_and_named(kind):
    encoder = bag()

    def spoil(layout, states):
        if "y" in layout.text:
            states[:] = np.nan

    encoder.spoil = spoil
    found = search_multi_vector(
        encoder,
        kind,
        documents_of({"good": "a b", "blank": " \n", "spoilt": "a b y y"}),
        documents_of({"q": "a b", "nothing": " "}),
        TWOS,
    )
    assert found.rankings == {"q": ["good"]}
    reasons = {e.id: e.reason for e in found.excluded}
    assert sorted(reasons) == ["blank", "nothing", "spoilt"]
    assert "not finite" in reasons["spoilt"]


def test_one_chunk_over_all_is_the_pooling_itself(minilm_encoder):
    """With chunks longer than the text each way is a pooling that is tested elsewhere."""
    chunking = ChunkingConfig(granularity=500)
    texts = ["A lock gate leaks at night.", "Bread rises slower when the kitchen is cold."]
    documents = [Document(str(n), "", text) for n, text in enumerate(texts)]
    wanted = {
        MultiVector.MAX_SIM: PoolingConfig(PoolingMode.LANDMARK),
        MultiVector.LATE_CHUNKING: PoolingConfig(PoolingMode.MEAN, include_special=False),
        MultiVector.PASSAGES: PoolingConfig(PoolingMode.MEAN),
    }
    for kind, pooling in wanted.items():
        plans = [plan_chunks(minilm_encoder, kind, d, chunking) for d in documents]
        found = np.concatenate(
            [f.vectors for f in embed_chunks(minilm_encoder, kind, plans, chunking)]
        )
        np.testing.assert_allclose(
            found, minilm_encoder.encode(texts, pooling, chunking), atol=1e-5
        )


def test_a_family_reads_each_way_from_the_variant_trained_for_it(tiny_family):
    chunking = ChunkingConfig(granularity=4)
    document = Document("d", "", "a landmark token is placed after every chunk of the document")
    plan = plan_chunks(tiny_family, MultiVector.MAX_SIM, document, chunking)
    (found,) = embed_chunks(tiny_family, MultiVector.MAX_SIM, [plan], chunking)
    (states,) = landmark_states(tiny_family, [document], chunking)
    np.testing.assert_allclose(found.vectors, states.states, atol=1e-5)
    plan = plan_chunks(tiny_family, MultiVector.LATE_CHUNKING, document, chunking)
    (late,) = embed_chunks(tiny_family, MultiVector.LATE_CHUNKING, [plan], chunking)
    member = tiny_family.encoder_for(PoolingMode.MEAN)
    layout = member.layout(document.text, LayoutKind.PLAIN)
    tokens = member.token_states([layout])[0].numpy()[layout.content_positions]
    first = tokens[:4].mean(axis=0)
    np.testing.assert_allclose(late.vectors[0], first / np.linalg.norm(first), atol=1e-5)


# The chunk that answers.


@pytest.mark.parametrize("kind", KINDS)
def test_the_chunk_that_answers_has_the_highest_cosine(kind):
    document = Document("d", "", "x x a b y y")
    found = chunk_cosines(bag(), kind, "a b", document, TWOS)
    assert found.best == 1
    assert document.text[slice(*found.spans[found.best])] == "a b"
    wanted = [query_by_hand(kind, "a b") @ v for v in vectors_by_hand(kind, document.text)]
    np.testing.assert_allclose(found.cosines, wanted, atol=1e-6)


def test_a_query_or_document_without_a_vector_has_no_answering_chunk():
    with pytest.raises(ValueError, match="the query has no vector: empty text"):
        chunk_cosines(bag(), MultiVector.MAX_SIM, " ", Document("d", "", "a"), TWOS)
    with pytest.raises(ValueError, match="document 'd' has no vector"):
        chunk_cosines(bag(), MultiVector.PASSAGES, "a", Document("d", "", ""), TWOS)


# In an evaluation.


@pytest.fixture(scope="module")
def toy():
    texts = {"long": "x x x x x x a b x x x x x x", "near": "a c a d", "other": "y y"}
    return RetrievalDataset(
        name="toy",
        split="test",
        queries={"q": "a b"},
        corpus=tuple(documents_of(texts)),
        qrels={"q": {"long": 1}},
        depth={"q": 0.5},
        bins={"q": "middle"},
        with_titles=False,
        notes=(),
    )


def test_an_evaluation_has_a_row_for_each_way_with_its_index(toy):
    encoder = bag()
    encoder.trained_poolings = frozenset({PoolingMode.MEAN})
    poolings = parse_poolings("mean,landmark")
    result = evaluate(encoder, toy, poolings, TWOS, multi_vector=KINDS)
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))["rows"]
    names = ["mean", "landmark", "max_sim", "late_chunking", "passages"]
    assert [row["pooling"] for row in found] == names
    assert [row["recall@1"] for row in found] == [0, 0, 1, 1, 1]
    assert [row["index"]["vectors"] for row in found] == [3, 3, 10, 10, 10]
    assert [row["index"]["bytes"] for row in found] == [72, 72, 240, 240, 240]
    assert [row["trained"] for row in found] == [True, False, False, True, True]
    assert found[2]["difference"]["recall@1"] == 1.0
    assert result.bm25.cost is None


def test_several_vectors_count_among_the_comparisons(toy):
    plain = evaluate(bag(), toy, parse_poolings("mean,landmark"), TWOS)
    more = evaluate(bag(), toy, parse_poolings("mean,landmark"), TWOS, multi_vector=KINDS)
    # One query cannot tell anything: both flips are as far from zero.
    for result in (plain, more):
        assert result.rows[0].overall.p_values["recall@1"].alone == 1.0
    assert set(more.rows[2].overall.p_values) == set(more.rows[2].overall.metrics)


def test_a_way_that_comes_twice_or_is_unknown_is_refused(toy):
    with pytest.raises(ValueError, match="allowed: max_sim, late_chunking, passages"):
        evaluate(bag(), toy, parse_poolings("mean"), TWOS, multi_vector=["colbert"])
    with pytest.raises(ValueError, match="give each once"):
        evaluate(bag(), toy, parse_poolings("mean"), TWOS, multi_vector=["passages", "passages"])


def test_the_best_documents_are_those_of_one_long_sort():
    rng = np.random.default_rng(4)
    # Few different scores, so that most of them tie.
    scores = rng.integers(0, 4, (5, 60)).astype(np.float32) / 4
    ranks = rng.permutation(60)
    best = BestDocuments(queries=5, top_k=8)
    for part in np.array_split(np.arange(60), [3, 4, 20, 41]):
        for first in (0, 2):
            rows = slice(first, first + (2 if first == 0 else 3))
            best.add(scores[rows][:, part], ranks[part], first)
    wanted = [np.lexsort((ranks, -row))[:8] for row in scores]
    assert best.ranks.tolist() == [ranks[order].tolist() for order in wanted]
