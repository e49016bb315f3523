import numpy as np
import pytest
from scipy import stats

from lmk_viz.retrieval.metrics import (
    Interval,
    bootstrap_interval,
    deepest_cutoff,
    parse_metrics,
    score_rankings,
)

METRICS = ("ndcg@10", "recall@1", "recall@10", "mrr@10")


def values(qrels, rankings, metrics=METRICS):
    return {
        name: found.tolist() for name, found in score_rankings(qrels, rankings, metrics).items()
    }


def test_one_relevant_document_at_rank_three():
    found = values({"q": {"a": 1}}, {"q": ["x", "y", "a"]})
    # Discount at rank 3 is 1 / log2(4).
    assert found == {"ndcg@10": [0.5], "recall@1": [0.0], "recall@10": [1.0], "mrr@10": [1 / 3]}


def test_grades_are_the_gain_of_ndcg():
    # Ranking b (1), a (3): 1 + 3 / log2(3) against 3 + 1 / log2(3).
    found = values({"q": {"a": 3, "b": 1}}, {"q": ["b", "a"]})
    wanted = (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3))
    assert found["ndcg@10"] == [pytest.approx(wanted)]
    assert found["recall@1"] == [0.5]


def test_a_query_without_results_counts_nothing():
    qrels = {"empty": {"a": 1}, "absent": {"a": 1}, "good": {"a": 1}}
    found = values(qrels, {"empty": [], "good": ["a"]})
    assert found == {name: [0.0, 0.0, 1.0] for name in METRICS}


def test_no_result_at_all_counts_nothing():
    assert values({"q": {"a": 1}}, {}) == {name: [0.0] for name in METRICS}


def test_documents_without_a_judgement_or_with_grade_zero_are_not_relevant():
    found = values({"q": {"a": 1, "b": 0, "c": -1}}, {"q": ["b", "c", "unjudged", "a"]})
    assert found["mrr@10"] == [0.25]
    assert found["ndcg@10"] == [pytest.approx(1 / np.log2(5))]


def test_a_relevant_document_that_was_not_found_lowers_recall_and_ndcg():
    found = values({"q": {"a": 1, "gone": 1}}, {"q": ["a", "x"]})
    assert found["recall@10"] == [0.5]
    assert found["ndcg@10"] == [pytest.approx(1 / (1 + 1 / np.log2(3)))]


def test_rank_eleven_is_beyond_a_cutoff_of_ten():
    found = values({"q": {"a": 1}}, {"q": [*"bcdefghijk", "a"]}, (*METRICS, "recall@11"))
    assert [found[name] for name in METRICS] == [[0.0]] * 4
    assert found["recall@11"] == [1.0]


def test_order_is_that_of_the_list_whatever_the_ids_sort_like():
    # Both back ends of ir-measures get distinct scores, so no tie of theirs decides.
    qrels = {"q": {"m": 1}}
    for ranking in (["m", "a", "z"], ["a", "m", "z"], ["z", "m", "a"], ["z", "a", "m"]):
        found = values(qrels, {"q": ranking}, ("mrr@10", "mrr@2"))
        place = ranking.index("m") + 1
        assert found["mrr@10"] == [pytest.approx(1 / place)]
        assert found["mrr@2"] == [pytest.approx(1 / place if place <= 2 else 0.0)]


def test_values_come_in_the_order_of_the_judgements():
    qrels = {"z": {"a": 1}, "b": {"a": 1}, "m": {"a": 1}}
    rankings = {"m": ["a"], "b": ["x", "a"], "z": ["x", "y", "a"]}
    assert values(qrels, rankings, ("mrr@10",))["mrr@10"] == pytest.approx([1 / 3, 1 / 2, 1])


def test_a_ranking_that_holds_a_document_twice_is_refused():
    with pytest.raises(ValueError, match="'q' holds a document twice"):
        score_rankings({"q": {"a": 1}}, {"q": ["a", "a"]})


def test_a_ranking_of_an_unjudged_query_is_refused():
    with pytest.raises(ValueError, match="'other' has a ranking and no judgement"):
        score_rankings({"q": {"a": 1}}, {"other": ["a"]})


def test_metrics_are_read_from_a_list_with_commas():
    assert parse_metrics(" nDCG@10, recall@100 ") == ("ndcg@10", "recall@100")
    assert deepest_cutoff(("ndcg@10", "recall@100")) == 100


@pytest.mark.parametrize("names", ["", "ndcg@10,ndcg@10"], ids=["none", "twice"])
def test_no_metric_and_one_twice_are_refused(names):
    with pytest.raises(ValueError, match="give at least one, each once"):
        parse_metrics(names)


@pytest.mark.parametrize("name", ["ndcg", "ndcg@0", "ndcg@1001", "hits@10", "ndcg@-1", "ndcg@1.5"])
def test_an_unknown_metric_is_refused_with_what_is_allowed(name):
    with pytest.raises(ValueError, match="allowed: ndcg@k, recall@k"):
        parse_metrics(name)


# Intervals.


def test_interval_agrees_with_scipy():
    sample = np.random.default_rng(3).beta(0.4, 0.6, size=120)
    ours = bootstrap_interval(sample, seed=1, resamples=8000)
    theirs = stats.bootstrap(
        (sample,), np.mean, n_resamples=8000, method="percentile", rng=np.random.default_rng(7)
    ).confidence_interval
    assert ours.value == pytest.approx(sample.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)


def test_interval_of_equal_values_is_a_point():
    assert bootstrap_interval(np.full(9, 0.25)) == Interval(0.25, 0.25, 0.25)


def test_interval_is_the_same_for_a_seed_and_another_for_another():
    sample = np.random.default_rng(0).random(30)
    assert bootstrap_interval(sample, seed=4) == bootstrap_interval(sample, seed=4)
    assert bootstrap_interval(sample, seed=4) != bootstrap_interval(sample, seed=5)


def test_blocks_of_resamples_make_no_difference(monkeypatch):
    sample = np.random.default_rng(0).random(30)
    whole = bootstrap_interval(sample, resamples=101)
    monkeypatch.setattr("lmk_viz.retrieval.metrics._BLOCK_DRAWS", 31)
    assert bootstrap_interval(sample, resamples=101) == whole


def test_interval_of_a_difference_is_paired():
    # Two systems that differ by the same amount on every query: no doubt about the difference,
    # though each alone is uncertain.
    hard = np.random.default_rng(0).random(50) * 0.8
    found = bootstrap_interval((hard + 0.1) - hard)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    assert bootstrap_interval(hard).high - bootstrap_interval(hard).low > 0.05


def test_an_interval_needs_a_query():
    with pytest.raises(ValueError, match="no query to average over"):
        bootstrap_interval(np.zeros(0))


@pytest.mark.parametrize("odd", ["\0", "\ud800", " ", "\t"], ids=["nul", "half", "space", "tab"])
def test_names_of_any_letters_score_like_plain_ones(odd):
    # The C code behind the measures ends the whole process over some of them.
    names = ["map@10", "mrr@10", "ndcg@10", "precision@2", "recall@1"]
    plain = score_rankings(
        {"q1": {"d1": 1, "d2": 2}, "q2": {"d2": 1}}, {"q1": ["d3", "d2", "d1"], "q2": ["d2"]}, names
    )
    found = score_rankings(
        {f"q{odd}1": {f"d{odd}1": 1, f"d{odd}2": 2}, f"q{odd}2": {f"d{odd}2": 1}},
        {f"q{odd}1": [f"d{odd}3", f"d{odd}2", f"d{odd}1"], f"q{odd}2": [f"d{odd}2"]},
        names,
    )
    for name in names:
        assert found[name].tolist() == plain[name].tolist()
