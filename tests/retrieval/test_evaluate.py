import json

import numpy as np
import pytest
from fakes import BagEncoder

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.pooling import parse_poolings
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.evaluate import compare_to, evaluate
from lmk_viz.retrieval.significance import holm, paired_p_values

POOLINGS = parse_poolings("cls,mean,landmark")
TWOS = ChunkingConfig(granularity=2)
# CLS counts the first two words; the mean holds the CLS state beside all words.
TEXTS = {
    "head": "a b x x x x",
    "tail": "x x x x c d",
    "other": "x y y y",
    "none": "y y",
}


def dataset_of(queries, qrels, bins=None, texts=TEXTS):
    return RetrievalDataset(
        name="toy",
        split="test",
        queries=queries,
        corpus=tuple(Document(name, "", text) for name, text in texts.items()),
        qrels=qrels,
        depth={},
        bins=bins or {},
        with_titles=False,
        notes=(),
    )


TOY = dataset_of(
    {"q-start": "a b", "q-end": "c d"},
    {"q-start": {"head": 1}, "q-end": {"tail": 1}},
    {"q-start": "start", "q-end": "end"},
)


def bag(**settings):
    return BagEncoder("abcdxy", reach=2, **settings)


@pytest.fixture(scope="module")
def toy():
    return evaluate(bag(), TOY, POOLINGS, TWOS)


def row_of(result, name):
    return next(row for row in result.rows if row.name == name)


def test_mean_finds_both_and_cls_only_what_stands_at_the_start(toy):
    assert row_of(toy, "mean").per_query["recall@1"].tolist() == [1.0, 1.0]
    assert row_of(toy, "landmark").per_query["recall@1"].tolist() == [1.0, 1.0]
    # Nothing of c and d is in any CLS vector: all tie at 0, and "tail" is last of four by id.
    assert row_of(toy, "cls").per_query["recall@1"].tolist() == [1.0, 0.0]
    assert row_of(toy, "cls").rankings["q-end"] == ["head", "none", "other", "tail"]
    assert row_of(toy, "cls").per_query["mrr@10"].tolist() == [1.0, 0.25]


def test_rows_come_in_the_order_asked_for_and_bm25_apart(toy):
    assert [row.name for row in toy.rows] == ["cls", "mean", "landmark"]
    assert toy.bm25.name == "bm25"
    assert toy.bm25.per_query["recall@1"].tolist() == [1.0, 1.0]
    assert toy.bm25.trained is None


def test_differences_are_to_the_baseline_query_by_query(toy):
    assert toy.baseline == "landmark"
    assert row_of(toy, "landmark").overall.differences == {}
    found = row_of(toy, "cls").overall.differences["recall@1"]
    assert (found.value, found.low, found.high) == (-0.5, -1.0, 0.0)


def test_every_difference_has_a_p_value_corrected_for_the_comparisons():
    rng = np.random.default_rng(2)
    texts = {f"d{i:02}": " ".join(rng.choice(list("abcdxy"), size=9)) for i in range(30)}
    queries = {f"q{i:02}": " ".join(rng.choice(list("abcdxy"), size=3)) for i in range(30)}
    qrels = {q: {f"d{i:02}": 1} for i, q in enumerate(queries)}
    result = evaluate(bag(), dataset_of(queries, qrels, texts=texts), POOLINGS, TWOS)
    assert row_of(result, "landmark").overall.p_values == {}
    rows = [row_of(result, "cls"), row_of(result, "mean"), result.bm25]
    for metric in ("ndcg@10", "recall@1"):
        base = row_of(result, "landmark").per_query[metric]
        alone = paired_p_values(np.stack([row.per_query[metric] - base for row in rows]))
        assert [row.overall.p_values[metric].alone for row in rows] == alone.tolist()
        corrected = [row.overall.p_values[metric].corrected for row in rows]
        assert corrected == holm(alone.tolist())
    # Groups are too many and too small to be tested one by one.
    assert all(group.p_values == {} for row in rows for group in row.by_length)
    found = result.to_dict()["rows"][0]["difference"]
    assert found["ndcg@10_p"] <= found["ndcg@10_p_holm"] <= 1.0


def test_another_baseline_needs_no_new_pass_and_changes_differences_alone(toy):
    mean = compare_to(toy, TOY, "mean")
    wanted = evaluate(bag(), TOY, POOLINGS, TWOS, baseline=PoolingMode.MEAN)
    assert mean.baseline == "mean"
    for row, own in zip(mean.systems, wanted.systems, strict=True):
        assert row.overall.to_dict() == own.overall.to_dict()
        assert [g.to_dict() for g in row.by_depth] == [g.to_dict() for g in own.by_depth]
    bm25 = compare_to(toy, TOY, "bm25")
    assert bm25.bm25.overall.differences == {}
    assert row_of(bm25, "cls").overall.differences["recall@1"].value == -0.5
    with pytest.raises(ValueError, match="allowed: cls, mean, landmark, bm25"):
        compare_to(toy, TOY, "max_sim")


def test_the_rank_of_the_right_document_is_told_or_unknown(toy):
    cls = row_of(toy, "cls")
    assert cls.rank_of("q-end", {"tail": 1}) == 4
    assert cls.rank_of("q-end", {"tail": 0, "head": 2, "none": 1}) == 1
    assert cls.rank_of("q-end", {"lost": 1}) is None
    assert cls.rank_of("stranger", {"tail": 1}) is None


def test_stopped_early_what_was_measured_is_scored():
    seen = []
    result = evaluate(
        bag(),
        TOY,
        POOLINGS,
        TWOS,
        progress=lambda done, total: seen.append(done),
        should_stop=lambda: seen[-1] > 6,
    )
    assert result.is_partial
    assert [row.name for row in result.rows] == ["cls", "mean"]
    assert result.bm25.per_query["recall@1"].tolist() == [1.0, 1.0]
    assert result.to_dict()["partial"] is True
    at_once = evaluate(bag(), TOY, POOLINGS, TWOS, should_stop=lambda: True)
    assert (at_once.rows, at_once.is_partial, at_once.baseline) == ((), True, None)


def test_rankings_go_as_deep_as_asked_for():
    shallow = evaluate(bag(), TOY, POOLINGS, TWOS, metrics=["recall@1"])
    deep = evaluate(bag(), TOY, POOLINGS, TWOS, metrics=["recall@1"], ranking_depth=3)
    assert [len(r.rankings["q-end"]) for r in (shallow.rows[0], deep.rows[0])] == [1, 3]
    assert shallow.rows[0].to_dict()["recall@1"] == deep.rows[0].to_dict()["recall@1"]


def test_what_embeds_can_be_put_in_front():
    asked = []

    def embed(encoder, documents, *rest):
        asked.append(len(documents))
        return embed_documents(encoder, documents, *rest)

    result = evaluate(bag(), TOY, POOLINGS, TWOS, embed=embed)
    assert asked == [4, 2, 4, 2]
    assert not result.is_partial


def test_a_pooling_keeps_a_vector_a_document(toy):
    assert {(row.cost.vectors, row.cost.bytes) for row in toy.rows} == {(4, 4 * 6 * 4)}
    assert toy.bm25.cost is None


def test_without_the_baseline_there_are_no_differences():
    result = evaluate(bag(), TOY, parse_poolings("cls,mean"), TWOS)
    assert result.baseline is None
    assert all(row.overall.differences == {} for row in result.rows)


def test_another_baseline_can_be_chosen():
    result = evaluate(bag(), TOY, parse_poolings("cls,mean"), TWOS, baseline=PoolingMode.MEAN)
    assert row_of(result, "cls").overall.differences["recall@1"].value == -0.5


def test_depth_groups_hold_their_own_queries(toy):
    groups = {group.name: group for group in row_of(toy, "cls").by_depth}
    assert list(groups) == ["start", "end"]
    assert [groups[name].queries for name in groups] == [1, 1]
    assert groups["start"].metrics["recall@1"].value == 1.0
    assert groups["end"].metrics["recall@1"].value == 0.0
    assert groups["end"].differences["recall@1"].value == -1.0


def test_length_groups_are_terciles_of_the_relevant_document():
    texts = {f"d{n}": " ".join("a" * n) for n in range(1, 10)}
    queries = {f"q{n}": "a" for n in range(1, 10)}
    dataset = dataset_of(queries, {f"q{n}": {f"d{n}": 1} for n in range(1, 10)}, texts=texts)
    result = evaluate(bag(), dataset, POOLINGS, TWOS)
    assert result.length_edges == pytest.approx((3 + 2 / 3, 6 + 1 / 3))
    groups = row_of(result, "mean").by_length
    assert [(g.name, g.queries) for g in groups] == [("short", 3), ("medium", 3), ("long", 3)]
    own = row_of(result, "mean").per_query["ndcg@10"]
    assert [g.metrics["ndcg@10"].value for g in groups] == pytest.approx(
        [own[:3].mean(), own[3:6].mean(), own[6:].mean()]
    )


def test_documents_of_one_length_make_one_group(toy):
    assert [group.name for group in row_of(toy, "mean").by_length] == ["short"]


def test_documents_cut_by_the_limit_are_counted_under_each_layout():
    result = evaluate(bag(), TOY, POOLINGS, TWOS, max_length=7)
    # Six words and CLS and SEP make 8; four words and two landmarks and CLS fit in 7.
    assert [row.documents_cut for row in result.rows] == [2, 2, 2]
    assert evaluate(bag(), TOY, POOLINGS, TWOS, max_length=8).rows[0].documents_cut == 0
    assert evaluate(bag(), TOY, POOLINGS, TWOS, max_length=8).rows[2].documents_cut == 2


def test_a_query_or_document_without_text_counts_nothing_and_is_named():
    texts = {**TEXTS, "blank": "  "}
    dataset = dataset_of({"q": "a b", "e": " "}, {"q": {"blank": 1}, "e": {"head": 1}}, texts=texts)
    result = evaluate(bag(), dataset, POOLINGS, TWOS)
    assert row_of(result, "mean").per_query["recall@10"].tolist() == [0.0, 0.0]
    assert sorted(e.id for e in result.excluded) == ["blank", "e"]
    assert [g.queries for g in row_of(result, "mean").by_length] == [1]


def test_poolings_of_one_layout_share_their_passes_and_a_family_gets_one_each():
    encoder = bag()
    evaluate(encoder, TOY, POOLINGS, TWOS, with_bm25=False)
    assert {modes for _, modes, _ in encoder.calls} == {
        (PoolingMode.CLS, PoolingMode.MEAN),
        (PoolingMode.LANDMARK,),
    }
    family = bag()
    family.trained_poolings = frozenset({PoolingMode.LANDMARK})
    family.variants = frozenset({PoolingMode.LANDMARK})
    result = evaluate(family, TOY, POOLINGS, TWOS, with_bm25=False)
    assert {len(modes) for _, modes, _ in family.calls} == {1}
    assert [row.trained for row in result.rows] == [False, False, True]
    assert result.bm25 is None


def test_progress_counts_every_text_of_every_pass_up_to_the_total():
    seen = []
    evaluate(bag(), TOY, POOLINGS, TWOS, progress=lambda done, total: seen.append((done, total)))
    counts = [done for done, _ in seen]
    assert counts == sorted(counts)
    assert seen[-1] == (12, 12)
    assert {total for _, total in seen} == {12}


def test_the_order_of_the_corpus_makes_no_difference(toy):
    turned = dataset_of(TOY.queries, TOY.qrels, TOY.bins, dict(reversed(TEXTS.items())))
    result = evaluate(bag(), turned, POOLINGS, TWOS)
    assert [dict(row.rankings) for row in result.rows] == [dict(row.rankings) for row in toy.rows]


def test_the_result_is_json_with_a_row_a_pooling(toy):
    found = json.loads(json.dumps(toy.to_dict(), allow_nan=False))
    cls = found["rows"][0]
    assert cls["pooling"] == "cls"
    assert cls["ndcg@10_low"] <= cls["ndcg@10"] <= cls["ndcg@10_high"]
    assert cls["difference"]["recall@1"] == -0.5
    assert found["rows"][2]["difference"] is None
    assert found["bm25"]["recall@1"] == 1.0
    assert [group["group"] for group in cls["by_depth"]] == ["start", "end"]
    assert (found["documents"], found["queries"], found["with_titles"]) == (4, 2, False)


def test_nothing_that_cannot_be_had_is_measured():
    encoder = bag()
    encoder.refused = {PoolingMode.MEAN}
    with pytest.raises(ValueError, match="mean cannot be had"):
        evaluate(encoder, TOY, POOLINGS, TWOS)
    assert encoder.calls == []
    with pytest.raises(ValueError, match="give at least one, each once"):
        evaluate(bag(), TOY, [PoolingConfig(PoolingMode.CLS)] * 2)
    with pytest.raises(ValueError, match="metric is 'x'"):
        evaluate(bag(), TOY, POOLINGS, metrics=["x"])


def test_values_per_query_are_those_of_a_slow_search():
    rng = np.random.default_rng(0)
    texts = {f"d{i}": " ".join(rng.choice(list("abcdxy"), size=12)) for i in range(30)}
    queries = {f"q{i}": " ".join(rng.choice(list("abcdxy"), size=4)) for i in range(20)}
    qrels = {q: {f"d{i}": 1} for i, q in enumerate(queries)}
    # CLS counts words of its own, so the mean of content alone is the plain bag of words.
    mean = PoolingConfig(PoolingMode.MEAN, include_special=False)
    result = evaluate(bag(), dataset_of(queries, qrels, texts=texts), [mean], TWOS)

    def counts(text):
        vector = np.asarray([text.split().count(word) for word in "abcdxy"], dtype=float)
        return vector / np.linalg.norm(vector)

    for query, text in queries.items():
        order = sorted(
            texts, key=lambda name: (-round(float(counts(text) @ counts(texts[name])), 6), name)
        )
        assert list(row_of(result, "mean").rankings[query]) == order[:10]
