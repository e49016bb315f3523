import json
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import BagEncoder
from helpers import fixed
from probes.weighted import WeightedEncoder, falling, uniform

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes.dilution import Side, dilution_curves, steps_up_to
from lmk_viz.probes.influence import NEUTRAL_TEXT, leave_one_out, summarise_influence
from lmk_viz.probes.needles import Needle
from lmk_viz.probes.placing import filler_head
from lmk_viz.probes.runs import (
    Embedder,
    fitting_tokens,
    length_limit,
    paired_cosines,
    plain_tokens,
)
from lmk_viz.probes.shuffle import shuffle_cosines, shuffled_text

CLS, MEAN, LMK, MULTI = (PoolingMode(m) for m in ("cls", "mean", "landmark", "multi_cls"))
POOLINGS = parse_poolings("cls,landmark,multi_cls")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXT = " ".join("abcdefghijkl")
NEUTRAL = "z z z"


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def influence_in_closed_form(weights, n, size):
    """Of n words that differ, `size` at a time: weights by place, before and after."""
    whole = weights(n)
    found = []
    for start in range(0, n, size):
        left = np.delete(np.arange(n), np.r_[start : min(start + size, n)])
        without = np.zeros(n)
        without[left] = weights(len(left))
        found.append(1 - cosine(whole, without))
    return np.array(found)


# Influence in closed form.


@pytest.mark.parametrize("weights", [uniform, falling])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_influence_of_a_known_bias_is_recovered(weights, size):
    encoder = WeightedEncoder(LETTERS, weights)
    found = leave_one_out(encoder, TEXT, POOLINGS, fixed(size), neutral=None)
    wanted = influence_in_closed_form(weights, 12, size)
    for mode in (CLS, LMK, MULTI):
        np.testing.assert_allclose(found.values[mode], wanted, rtol=0, atol=1e-6)
        assert found.summaries[mode].total == pytest.approx(wanted.sum(), abs=1e-6)


def test_an_even_encoder_has_flat_influence():
    found = leave_one_out(WeightedEncoder(LETTERS, uniform), TEXT, POOLINGS, fixed(1), neutral=None)
    # One of twelve words less: cosine sqrt(11 / 12).
    np.testing.assert_allclose(found.values[LMK], np.full(12, 1 - (11 / 12) ** 0.5), atol=1e-6)
    assert found.summaries[LMK].centre_of_mass == pytest.approx(0.5, abs=1e-6)
    assert found.summaries[LMK].first_tenth == pytest.approx(0.1, abs=1e-6)


def test_the_noise_floor_is_the_influence_of_filler_that_was_put_in():
    encoder = WeightedEncoder(LETTERS, uniform)
    found = leave_one_out(encoder, TEXT, POOLINGS, fixed(3), neutral=NEUTRAL)
    # Three z beside twelve words: cosine with the twelve 12 / sqrt(12 (12 + 9)).
    np.testing.assert_allclose(found.floor[CLS], np.full(4, 1 - (12 / 21) ** 0.5), atol=1e-6)
    # Three words of their own add less than z three times.
    assert found.summaries[CLS].above_floor == 0.0


def test_a_cls_that_sees_only_the_start_has_all_its_influence_there():
    found = leave_one_out(
        BagEncoder(LETTERS, reach=3), TEXT, parse_poolings("cls,landmark"), fixed(3), neutral=None
    )
    # Without a b c it counts d e f; without any other chunk nothing changes.
    np.testing.assert_allclose(found.values[CLS], [1, 0, 0, 0], atol=1e-6)
    assert found.summaries[CLS].first_tenth == pytest.approx(1.2 / 3)
    assert found.summaries[CLS].centre_of_mass == pytest.approx(1.5 / 12)
    # The landmarks' mean loses a quarter whichever chunk goes: cosine sqrt(3 / 4).
    np.testing.assert_allclose(found.values[LMK], np.full(4, 1 - 0.75**0.5), atol=1e-6)


def test_the_filler_of_a_landmark_input_brings_its_own_landmark():
    seen = []
    encoder = WeightedEncoder(LETTERS, uniform)
    vector = encoder.vector
    encoder.vector = lambda layout: seen.append(layout) or vector(layout)
    leave_one_out(encoder, TEXT, parse_poolings("landmark"), fixed(4), neutral=NEUTRAL)
    assert sorted(layout.n_landmarks for layout in seen) == [2, 2, 2, 3, 4, 4, 4]
    assert sorted(layout.n_kept for layout in seen) == [8, 8, 8, 12, 16, 16, 16]


def test_sentences_leave_landmarks_where_they_are():
    seen = []
    text = "Rain falls. Snow melts slowly. Wind blows."
    encoder = WeightedEncoder([w.strip(".") for w in text.split()], uniform)
    vector = encoder.vector
    encoder.vector = lambda layout: seen.append(layout) or vector(layout)
    found = leave_one_out(
        encoder, text, parse_poolings("landmark"), fixed(4), unit="sentence", neutral=None
    )
    assert found.borders.tolist() == [0, 2, 5, 7]
    np.testing.assert_allclose(found.values[LMK], 1 - np.sqrt(np.array([5, 4, 5]) / 7), atol=1e-6)
    assert sorted(layout.n_landmarks for layout in seen) == [2, 2, 2, 2]


def test_parts_are_the_same_for_all_poolings_under_sentence_chunking(tiny_encoder):
    encoder = tiny_encoder("roberta")
    text = "It ends here. Is this a question? Rivers carry water."
    found = leave_one_out(
        encoder,
        text,
        parse_poolings("cls,landmark"),
        ChunkingConfig(ChunkingMode.SENTENCE),
        40,
        neutral=None,
    )
    assert len(found.borders) == 4
    assert np.isfinite(found.values[CLS]).all()
    assert np.isfinite(found.values[LMK]).all()


# Numbers of a curve.


def test_numbers_of_a_curve_by_hand():
    values, borders = np.array([0.3, 0.1, 0.0, 0.0]), np.array([0, 5, 10, 15, 20])
    found = summarise_influence(values, borders, np.full(4, 0.05), np.array([0.4, 0.2, 0.2, 0.2]))
    # The first tenth is two of the five tokens of the first part.
    assert found.total == pytest.approx(0.4)
    assert found.first_tenth == pytest.approx(0.3 * 2 / 5 / 0.4)
    assert found.centre_of_mass == pytest.approx((0.3 * 2.5 + 0.1 * 7.5) / 20 / 0.4)
    assert found.floor == pytest.approx(0.05)
    assert found.above_floor == 0.5
    wanted = np.corrcoef(values, [0.4, 0.2, 0.2, 0.2])[0, 1]
    assert found.attention_correlation == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("values", "attention"),
    [(np.zeros(3), np.ones(3)), (np.ones(3), np.arange(3.0)), (np.arange(2.0), np.arange(2.0))],
    ids=["no influence", "flat", "two parts"],
)
def test_numbers_that_are_undefined_are_none(values, attention):
    found = summarise_influence(values, np.arange(len(values) + 1), None, attention)
    assert found.attention_correlation is None
    assert found.floor is None
    assert json.dumps(found.to_dict(), allow_nan=False)


# Attention.


def test_attention_of_a_real_encoder_is_shared_out_over_the_parts(tiny_encoder):
    encoder = tiny_encoder("bert")
    text = "A landmark token is placed after every chunk. Rivers carry water from the hills."
    found = leave_one_out(
        encoder, text, parse_poolings("cls,mean,landmark"), fixed(8), neutral=None
    )
    assert set(found.attention) == {CLS, LMK}
    for shares in found.attention.values():
        assert shares.sum() == pytest.approx(1, abs=1e-5)
        assert len(shares) == len(found.values[CLS])
    layout = encoder.layout(text, LayoutKind.LANDMARK, fixed(8))
    assert found.landmark_tokens.tolist() == [c.token_end for c in layout.chunks]


def test_a_family_is_asked_for_the_attention_of_each_variant(tiny_encoder):
    encoder = tiny_encoder("bert")
    asked = []

    class Family(WeightedEncoder):
        def encoder_for(self, mode):
            asked.append(mode)
            return SimpleNamespace() if mode is LMK else encoder

    family = Family(LETTERS, uniform)
    found = leave_one_out(family, TEXT, parse_poolings("landmark"), fixed(3), neutral=None)
    assert (asked, found.attention) == ([LMK], {})


# The limit.


def test_what_no_pooling_sees_has_no_part():
    encoder = WeightedEncoder(LETTERS, uniform)
    found = leave_one_out(encoder, TEXT, POOLINGS, fixed(3), max_length=9, neutral=None)
    assert (found.tokens, found.tokens_cut) == (12, 12 - found.borders[-1])
    assert found.borders[-1] < 9


def test_an_encoder_with_a_table_of_positions_leaves_room_for_the_filler(tiny_encoder):
    encoder = tiny_encoder("bert")
    text = "Rivers carry water from the hills to the sea. " * 30
    found = leave_one_out(
        encoder, text, parse_poolings("cls,landmark"), fixed(16), with_attention=False
    )
    assert 60 < found.borders[-1] <= encoder.max_length - 17
    assert np.isfinite(found.floor[LMK]).all()


def test_a_part_as_long_as_the_input_leaves_no_room_for_a_filler(tiny_encoder):
    text = "Rivers carry water from the hills to the sea. " * 30
    with pytest.raises(ValueError, match="leaves no room for a filler"):
        leave_one_out(tiny_encoder("bert"), text, parse_poolings("cls"), fixed(1000))


# A stop, JSON, what is refused.


def test_parts_that_were_done_are_kept_after_a_stop():
    encoder = WeightedEncoder(LETTERS, falling)
    left = iter([False])
    found = leave_one_out(
        encoder, TEXT, POOLINGS, fixed(1), neutral=None, should_stop=lambda: next(left, True)
    )
    assert found.is_partial
    # Inputs of two kinds were done, the third was not begun.
    assert np.isfinite(found.values[CLS]).all()
    assert np.isnan(found.values[MULTI]).all()
    assert found.summaries[MULTI].total is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_long_document_is_edited_a_few_parts_at_a_time(monkeypatch):
    wanted = leave_one_out(
        WeightedEncoder(LETTERS, falling), TEXT, POOLINGS, fixed(2), neutral=NEUTRAL
    )
    monkeypatch.setattr("lmk_viz.probes.influence.ROWS_AT_ONCE", 3)
    found = leave_one_out(
        WeightedEncoder(LETTERS, falling), TEXT, POOLINGS, fixed(2), neutral=NEUTRAL
    )
    for mode in (CLS, LMK, MULTI):
        np.testing.assert_array_equal(found.values[mode], wanted.values[mode])
        np.testing.assert_array_equal(found.floor[mode], wanted.floor[mode])
    left = iter([False] * 5)
    partial = leave_one_out(
        WeightedEncoder(LETTERS, falling),
        TEXT,
        POOLINGS,
        fixed(2),
        neutral=NEUTRAL,
        should_stop=lambda: next(left, True),
    )
    # Two groups of three inputs: the document and five parts, under every pooling.
    for mode in (CLS, LMK, MULTI):
        assert np.isfinite(partial.values[mode]).tolist() == [True] * 5 + [False]


def test_a_document_of_m_parts_takes_m_passes_and_one_a_kind():
    seen = []
    encoder = WeightedEncoder(LETTERS, uniform)
    leave_one_out(
        encoder, TEXT, POOLINGS, fixed(3), neutral=None, progress=lambda *step: seen.append(step)
    )
    assert seen[-1] == (15, 15)


def test_the_result_is_json_and_a_table_of_parts():
    found = leave_one_out(
        WeightedEncoder(LETTERS, uniform), TEXT, POOLINGS, fixed(3), None, "chunk", NEUTRAL
    )
    rows = json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"]
    assert [row["pooling"] for row in rows] == ["cls", "landmark", "multi_cls"]
    assert len(rows[0]["influence"]) == len(rows[0]["noise_floor"]) == 4
    frame = found.to_frame()
    assert frame["to_token"].tolist() == [3, 6, 9, 12]
    np.testing.assert_array_equal(frame["cls_influence"], found.values[CLS])
    assert found.scalars_frame()["pooling"].tolist() == ["cls", "landmark", "multi_cls"]


@pytest.mark.parametrize("text", ["", " \n"], ids=["empty", "blank"])
def test_a_text_without_a_token_is_refused(text):
    with pytest.raises(ValueError, match="no token to look at"):
        leave_one_out(WeightedEncoder(LETTERS, uniform), text, POOLINGS)


@pytest.mark.parametrize("text", ["a", "a b c"])
def test_a_document_of_one_part_is_refused(text):
    with pytest.raises(ValueError, match="one chunk alone, and without it nothing is left"):
        leave_one_out(WeightedEncoder(LETTERS, uniform), text, POOLINGS, fixed(3), neutral=None)


def test_a_neutral_text_without_a_token_is_refused():
    with pytest.raises(ValueError, match="neutral text has no token"):
        leave_one_out(WeightedEncoder(LETTERS, uniform), TEXT, POOLINGS, fixed(3), neutral=" ")


def test_an_unknown_unit_is_refused():
    with pytest.raises(ValueError, match="unit is 'word'; allowed: chunk, sentence"):
        leave_one_out(WeightedEncoder(LETTERS, uniform), TEXT, POOLINGS, unit="word")


# Shuffle.


def test_a_bag_of_words_does_not_see_the_order():
    found = shuffle_cosines(WeightedEncoder(LETTERS, uniform), TEXT, POOLINGS, fixed(3))
    for mode in (CLS, LMK, MULTI):
        np.testing.assert_allclose(found.cosines[mode], np.ones(8), atol=1e-9)
        assert found.reversed[mode] == pytest.approx(1)


def test_the_reversed_document_in_closed_form():
    found = shuffle_cosines(WeightedEncoder(LETTERS, falling), TEXT, POOLINGS, fixed(3))
    weights = falling(12)
    turned = weights.reshape(4, 3)[::-1].reshape(-1)
    for mode in (CLS, LMK, MULTI):
        assert found.reversed[mode] == pytest.approx(cosine(weights, turned), abs=1e-6)
        assert found.cosines[mode].max() < 1


def test_orders_depend_on_the_seed_and_are_shared_by_the_poolings():
    encoder = WeightedEncoder(LETTERS, falling)
    first, again, other = (
        shuffle_cosines(encoder, TEXT, POOLINGS, fixed(2), seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.cosines[CLS], again.cosines[CLS])
    np.testing.assert_allclose(first.cosines[CLS], first.cosines[LMK])
    assert not np.array_equal(first.cosines[CLS], other.cosines[CLS])


def test_unrelated_text_shows_what_nothing_in_common_is():
    encoder = WeightedEncoder(LETTERS, uniform)
    found = shuffle_cosines(encoder, "a b c d", POOLINGS, fixed(2), unrelated="c d x y z")
    assert found.unrelated[CLS] == pytest.approx(0.5)
    assert shuffle_cosines(encoder, TEXT, POOLINGS, fixed(2)).unrelated == {}


def test_a_shuffle_is_plain_json():
    found = shuffle_cosines(WeightedEncoder(LETTERS, falling), TEXT, POOLINGS, fixed(2), shuffles=1)
    rows = json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"]
    assert rows[0]["mean"] == rows[0]["cosines"][0]
    assert rows[0]["mean_low"] is None
    assert len(found.to_frame()) == 3


def test_a_document_of_one_chunk_has_no_other_order():
    with pytest.raises(ValueError, match="one chunk alone, which has no other order"):
        shuffle_cosines(WeightedEncoder(LETTERS, uniform), "a b", POOLINGS, fixed(2))


@pytest.mark.parametrize("shuffles", [0, 1001])
def test_a_number_of_orders_out_of_range_is_refused(shuffles):
    with pytest.raises(ValueError, match=f"shuffles is {shuffles}; allowed: 1 to 1,000"):
        shuffle_cosines(WeightedEncoder(LETTERS, uniform), TEXT, POOLINGS, shuffles=shuffles)


def test_a_shuffled_text_has_the_same_chunks():
    encoder = WeightedEncoder(LETTERS, uniform)
    text = shuffled_text(encoder, TEXT, fixed(3), seed=1)
    assert text != TEXT
    chunks = [" ".join(text.split()[i : i + 3]) for i in range(0, 12, 3)]
    assert sorted(chunks) == ["a b c", "d e f", "g h i", "j k l"]


# Dilution.

FACTS = (Needle("1", "a b", "a"), Needle("2", "c d", "c"), Needle("3", "e f", "e"))
FILLER = Document("filler", "filler", " ".join("z" for _ in range(50)))


@pytest.mark.parametrize("side", Side)
def test_dilution_of_an_even_encoder_in_closed_form(side):
    encoder = WeightedEncoder(LETTERS, uniform)
    found = dilution_curves(encoder, FACTS, FILLER, POOLINGS, (0, 1, 3, 10), fixed(2), side)
    # a + b + k z against a: 1 / sqrt(2 + k^2).
    wanted = 1 / np.sqrt(2 + np.array([0, 1, 3, 10]) ** 2)
    for mode in (CLS, LMK):
        np.testing.assert_allclose([m.value for m in found.means[mode]], wanted, atol=1e-6)
        np.testing.assert_array_equal(found.ranks[mode], np.ones((3, 4)))
        # Two documents share their k z: k^2 / (2 + k^2).
        k = np.array([0, 1, 3, 10])
        np.testing.assert_allclose(found.pairwise[mode], k**2 / (2 + k**2), atol=1e-6)


def test_unrelated_text_goes_where_it_is_told():
    def texts(side):
        seen = []
        encoder = WeightedEncoder(LETTERS, uniform)
        vector = encoder.vector
        encoder.vector = lambda layout: seen.append(layout.text) or vector(layout)
        dilution_curves(encoder, FACTS[:1], FILLER, parse_poolings("mean"), (0, 3), None, side)
        return seen[1:]

    assert sorted(texts("after")) == ["a b", "a b z z z"]
    assert sorted(texts("before")) == ["a b", "z z z a b"]
    assert sorted(texts("around")) == ["a b", "z a b z z"]


def test_a_vector_that_sees_only_the_end_loses_its_document():
    def last_three(n):
        return np.r_[np.zeros(max(n - 3, 0)), np.ones(min(n, 3))]

    encoder = WeightedEncoder(LETTERS, last_three)
    found = dilution_curves(encoder, FACTS, FILLER, parse_poolings("mean"), (0, 5))
    np.testing.assert_allclose(found.ranks[MEAN], [[1, 2]] * 3)
    np.testing.assert_allclose(found.hits[MEAN], [[1, 1 / 3]] * 3)


@pytest.mark.parametrize("steps", [(), (5, 5), (3, 1), (-1, 0)])
def test_steps_have_to_rise(steps):
    with pytest.raises(ValueError, match="give rising numbers of tokens"):
        dilution_curves(WeightedEncoder(LETTERS, uniform), FACTS, FILLER, POOLINGS, steps)


@pytest.mark.parametrize(
    ("documents", "words"), [((), "no document came"), ((FACTS[0],) * 2, "share an id")]
)
def test_dilution_needs_documents_with_ids_of_their_own(documents, words):
    with pytest.raises(ValueError, match=words):
        dilution_curves(WeightedEncoder(LETTERS, uniform), documents, FILLER, POOLINGS)


def test_a_filler_shorter_than_the_last_step_is_refused():
    with pytest.raises(ValueError, match="filler 'filler' has 50 tokens and 51 are wanted"):
        dilution_curves(WeightedEncoder(LETTERS, uniform), FACTS, FILLER, POOLINGS, (0, 51))


def test_documents_that_were_done_are_kept_after_a_stop():
    left = iter([False])
    found = dilution_curves(
        WeightedEncoder(LETTERS, uniform),
        FACTS,
        FILLER,
        parse_poolings("mean"),
        (0, 2),
        should_stop=lambda: next(left, True),
    )
    assert found.documents == ("1",)
    assert found.is_partial
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.to_frame()) == 2


def test_an_unknown_side_is_refused():
    with pytest.raises(ValueError, match="side is 'left'; allowed: after, before, around"):
        dilution_curves(WeightedEncoder(LETTERS, uniform), FACTS, FILLER, POOLINGS, side="left")


def test_steps_double_up_to_a_length():
    assert steps_up_to(3) == (0, 1, 3)


# What the probes share.


def test_cosines_are_paired_and_mark_what_is_missing():
    a = np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]])
    np.testing.assert_array_equal(paired_cosines(a, np.array([1.0, 0.0])), [0.6, 0.0, np.nan])


@pytest.mark.parametrize(
    "chunking", [fixed(4), ChunkingConfig("variable", granularities=(4, 8)), fixed(1)]
)
def test_tokens_that_fit_are_not_cut_by_any_pooling(tiny_encoder, chunking):
    encoder = tiny_encoder("bert")
    count = fitting_tokens(encoder, chunking, 10_000)
    text = filler_head(plain_tokens(encoder, "Rivers carry water. " * 99), count, "text").text
    embedder = Embedder.build(encoder, parse_poolings("cls,landmark,multi_cls"), chunking)
    assert {layout.n_cut for layout in embedder.inputs(text).values()} == {0}
    assert fitting_tokens(encoder, chunking, 5) == 5


def test_only_a_table_of_positions_limits_a_length(tiny_encoder):
    assert length_limit(tiny_encoder("bert"), 5000) == tiny_encoder("bert").max_length
    assert length_limit(tiny_encoder("modernbert"), 5000) >= 10_000


def test_the_neutral_text_is_an_english_sentence_or_two():
    assert NEUTRAL_TEXT.count(".") == 2
