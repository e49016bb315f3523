import json

import numpy as np
import pytest
from fakes import BagEncoder

from lmk_viz.config import ChunkingConfig, PoolingMode
from lmk_viz.pooling import parse_poolings
from lmk_viz.retrieval.extrapolate import extrapolate, training_length
from lmk_viz.retrieval.extrapolation import ExtrapolationConfig
from lmk_viz.retrieval.metrics import bootstrap_interval
from lmk_viz.retrieval.passages import Passage

# Every sentence of a passage is eight times the passage's own word, so that a query and the
# rest of its passage have the same direction and fillers are orthogonal to both.
WORDS = [f"W{p}" for p in range(60)]
PASSAGES = [
    Passage(f"p{p:02d}", f"p{p:02d}", "", " ".join([" ".join([word] * 8) + "."] * 3))
    for p, word in enumerate(WORDS)
]
POOLINGS = parse_poolings("cls,mean,landmark")
CONFIG = ExtrapolationConfig(length=34, multiples=(1, 4), documents=24)
FOURS = ChunkingConfig(granularity=4)
DOCUMENTS = 24


def bag(**settings):
    return BagEncoder(WORDS, **settings)


@pytest.fixture(scope="module")
def result():
    return extrapolate(bag(), PASSAGES, POOLINGS, CONFIG, FOURS)


def row_of(result, pooling, multiple):
    return next(r for r in result.rows if (r.pooling.value, r.multiple) == (pooling, multiple))


def test_pooling_over_the_whole_finds_every_document_at_every_length(result):
    for multiple in (1, 4):
        for pooling in ("mean", "landmark"):
            row = row_of(result, pooling, multiple)
            assert row.per_query["ndcg@10"].tolist() == [1.0] * DOCUMENTS


def test_cls_of_a_short_reach_finds_only_golds_that_begin_the_document(result):
    # The fake CLS sees four words; the gold has 16 of 134, and fillers fill what is before it.
    row = row_of(result, "cls", 4)
    seen = np.round(row.places * (134 - 16)) < 4
    found = row.per_query["recall@1"] == 1
    assert found[seen].all()
    # The others tie at zero, which the first document by id wins.
    assert found[~seen].sum() <= 1
    assert 1 <= seen.sum() < DOCUMENTS / 3


def test_rows_come_by_multiple_and_pooling_with_whole_documents(result):
    keys = [(row.multiple, row.pooling.value) for row in result.rows]
    assert keys == [(m, p) for m in (1, 4) for p in ("cls", "mean", "landmark")]
    assert [row.tokens for row in result.rows] == [32.0] * 3 + [134.0] * 3


def test_a_row_says_its_interval_its_thirds_and_the_paired_difference(result):
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    cls = next(r for r in found["rows"] if (r["pooling"], r["multiple"]) == ("cls", 4))
    own = row_of(result, "cls", 4)
    ndcg = own.per_query["ndcg@10"]
    interval = bootstrap_interval(ndcg)
    assert (cls["ndcg@10"], cls["ndcg@10_low"], cls["ndcg@10_high"]) == (
        interval.value,
        interval.low,
        interval.high,
    )
    start = ndcg[own.places < 1 / 3].mean()
    end = ndcg[own.places >= 2 / 3].mean()
    assert (cls["start"], cls["end"]) == pytest.approx((start, end))
    assert cls["end_to_start"] == pytest.approx(end / start)
    assert cls["difference"]["mean"] == pytest.approx(ndcg.mean() - 1.0)
    assert (cls["documents"], cls["tokens"]) == (DOCUMENTS, 134.0)
    landmark = next(r for r in found["rows"] if r["pooling"] == "landmark")
    assert landmark["difference"] is None
    assert found["settings"]["length"] == 34


def test_a_pooling_that_finds_nothing_at_the_start_has_no_ratio(result):
    row = row_of(result, "cls", 4)
    nothing = {name: np.zeros(DOCUMENTS) for name in row.per_query}
    empty = type(row)(row.pooling, 4, False, nothing, row.places, 134.0, 1.0, row.probe)
    assert empty.to_dict(None, 0)["end_to_start"] is None


def test_what_is_known_is_handed_out_after_every_pass():
    seen = []
    extrapolate(
        bag(), PASSAGES, POOLINGS, CONFIG, FOURS, on_rows=lambda found: seen.append(found.rows)
    )
    assert [len(rows) for rows in seen] == [2, 3, 5, 6]


def test_kept_rows_are_not_measured_again(result):
    encoder = bag()
    kept = json.loads(json.dumps(result.to_dict()))
    again = extrapolate(encoder, PASSAGES, POOLINGS, CONFIG, FOURS, kept=kept)
    assert again.to_dict() == result.to_dict()
    # One query under each layout tells whether the weights are still the same.
    assert [len(texts) for _, _, texts in encoder.calls] == [1, 1]


def test_a_run_that_was_interrupted_is_taken_up_where_it_stopped(result):
    kept = json.loads(json.dumps(result.to_dict()))
    kept["rows"] = [row for row in kept["rows"] if (row["multiple"], row["pooling"]) != (4, "mean")]
    encoder = bag()
    again = extrapolate(encoder, PASSAGES, POOLINGS, CONFIG, FOURS, kept=kept)
    measured = {modes for _, modes, texts in encoder.calls if len(texts) > 1}
    assert measured == {(PoolingMode.MEAN,)}
    assert [r.per_query["ndcg@10"].tolist() for r in again.rows] == [
        r.per_query["ndcg@10"].tolist() for r in result.rows
    ]


def test_rows_of_poolings_and_multiples_not_asked_for_stay(result):
    kept = json.loads(json.dumps(result.to_dict()))
    config = ExtrapolationConfig(length=34, multiples=(2,), documents=24)
    found = extrapolate(bag(), PASSAGES, parse_poolings("mean"), config, FOURS, kept=kept)
    assert len(found.rows) == 7
    assert (found.rows[0].multiple, found.rows[0].pooling.value) == (2, "mean")


def test_kept_rows_of_other_weights_are_measured_again(result):
    kept = json.loads(json.dumps(result.to_dict()))
    for row in kept["rows"]:
        row["probe"][0] += 0.05
    encoder = bag()
    extrapolate(encoder, PASSAGES, POOLINGS, CONFIG, FOURS, kept=kept)
    assert max(len(texts) for _, _, texts in encoder.calls) > 1


def test_kept_rows_of_other_settings_are_refused(result):
    kept = json.loads(json.dumps(result.to_dict()))
    for chunking, config, name in (
        (ChunkingConfig(granularity=5), CONFIG, "chunking"),
        (FOURS, ExtrapolationConfig(length=34, multiples=(1,), documents=23), "documents"),
    ):
        with pytest.raises(ValueError, match=f"other settings .*{name}"):
            extrapolate(bag(), PASSAGES, POOLINGS, config, chunking, kept=kept)
    with pytest.raises(ValueError, match=r"other settings .*passages"):
        extrapolate(bag(), PASSAGES[:-1], POOLINGS, CONFIG, FOURS, kept=kept)


def test_a_kept_row_that_is_damaged_is_refused(result):
    kept = json.loads(json.dumps(result.to_dict()))
    del kept["rows"][0]["places"]
    with pytest.raises(ValueError, match="a kept row cannot be read"):
        extrapolate(bag(), PASSAGES, POOLINGS, CONFIG, FOURS, kept=kept)


def test_a_document_that_does_not_fit_whole_is_refused_before_it_is_encoded():
    encoder = bag(max_length=140)
    encoder.has_hard_limit = True
    # 134 words and CLS and SEP fit; with a landmark every four words they do not.
    extrapolate(encoder, PASSAGES, parse_poolings("cls,mean"), CONFIG, FOURS)
    encoder.calls.clear()
    with pytest.raises(ValueError, match=r"134 tokens, .* do not fit .* \(at most 140\)"):
        extrapolate(encoder, PASSAGES, parse_poolings("landmark"), CONFIG, FOURS)
    assert max(len(word) for _, _, texts in encoder.calls for word in texts) < 300
    encoder.max_length = 100
    encoder.calls.clear()
    with pytest.raises(ValueError, match="136 tokens"):
        extrapolate(encoder, PASSAGES, POOLINGS, CONFIG, FOURS)
    assert encoder.calls == []


def test_a_soft_limit_is_no_limit():
    found = extrapolate(bag(max_length=40), PASSAGES, POOLINGS, CONFIG, FOURS)
    assert row_of(found, "landmark", 4).per_query["ndcg@10"].tolist() == [1.0] * DOCUMENTS


def test_a_vector_that_is_not_finite_stops_the_run():
    encoder = bag()

    def spoil(layout, states):
        if layout.n_tokens > 100:
            states[:] = np.nan

    encoder.spoil = spoil
    with pytest.raises(ValueError, match=r"cannot be measured: .*not finite"):
        extrapolate(encoder, PASSAGES, POOLINGS, CONFIG, FOURS)


def test_the_training_length_is_the_encoders_own_where_it_has_one():
    encoder = bag()
    assert training_length(encoder) == 256
    encoder.training_length = None
    assert training_length(encoder) == 256
    encoder.training_length = 512
    assert training_length(encoder) == 512


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 15}, "length is 15; allowed: 16 to"),
        ({"multiples": ()}, "give at least one, each once"),
        ({"multiples": (1, 1)}, "give at least one, each once"),
        ({"multiples": (0,)}, "allowed: 1 to 1,024"),
        ({"documents": 1}, "documents is 1; allowed: 2 to"),
        ({"seed": -1}, "seed is -1; allowed"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ExtrapolationConfig(**settings)
