import json

import numpy as np
import pytest
from fakes import BagEncoder
from helpers import fixed
from probes.weighted import WeightedEncoder, falling, uniform
from scipy import stats

from lmk_viz.config import PoolingMode
from lmk_viz.documents import Document
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes.lengths import needle_by_length
from lmk_viz.probes.needle import NeedleConfig, needle_curves, rank_of_own
from lmk_viz.probes.needles import (
    NEEDLES_FILE,
    Needle,
    bundled_fillers,
    draw_needles,
    load_needles,
)
from lmk_viz.probes.placing import Border, filler_head, place_needle
from lmk_viz.probes.runs import count_passes

CLS, MEAN, LMK = (PoolingMode(m) for m in ("cls", "mean", "landmark"))
POOLINGS = parse_poolings("cls,mean,landmark")
NAMES = [f"n{i}" for i in range(8)]
NEEDLES = tuple(Needle(name, name, name) for name in NAMES)
FILLER = Document("x", "x", " ".join(["x"] * 400))
OTHER = Document("y", "y", " ".join(["y"] * 400))
# Ninety words of filler and one needle: at depth i / 9 it is word 10 i, exactly.
CONFIG = NeedleConfig(tokens=91, border=Border.TOKEN)


def encoder_of(weights):
    return WeightedEncoder([*NAMES, "x", "y"], weights)


def cosines_in_closed_form(weights, places):
    """A needle of weight w among x of weight W - w: w / sqrt(w^2 + (W - w)^2)."""
    own = weights[places]
    return own / np.hypot(own, weights.sum() - own)


# Values in closed form.


@pytest.mark.parametrize("mode", [CLS, MEAN, LMK])
def test_the_curve_of_a_known_bias_is_recovered(mode):
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, CONFIG, fixed(13))
    wanted = cosines_in_closed_form(falling(91), np.arange(0, 91, 10))
    np.testing.assert_allclose(found.curves[mode].mean, wanted, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.placed, np.arange(10) / 9, rtol=0, atol=1e-12)


def test_the_weights_of_a_known_bias_are_recovered_from_the_curve():
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, CONFIG)
    cosine = found.curves[CLS].mean
    odds = cosine / np.sqrt(1 - cosine**2)  # w / (W - w)
    weights = falling(91)
    wanted = weights[::10] / weights.sum()
    np.testing.assert_allclose(odds / (1 + odds), wanted, rtol=0, atol=1e-6)


def test_psi_slope_and_thirds_of_a_known_bias_are_recovered():
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, CONFIG).curves[CLS]
    wanted = cosines_in_closed_form(falling(91), np.arange(0, 91, 10))
    assert found.psi.value == pytest.approx(1 - wanted.min() / wanted.max(), abs=1e-6)
    slope = stats.linregress(np.arange(10) / 9, wanted).slope
    assert found.slope.value == pytest.approx(slope, abs=1e-6)
    thirds = wanted[:3].mean() - wanted[-3:].mean()
    assert found.first_minus_last.value == pytest.approx(thirds, abs=1e-6)


def test_an_even_encoder_has_no_bias():
    found = needle_curves(encoder_of(uniform), NEEDLES, [FILLER], POOLINGS, CONFIG).curves[LMK]
    for estimate in (found.psi, found.slope, found.first_minus_last):
        assert [estimate.value, estimate.low, estimate.high] == pytest.approx([0] * 3, abs=1e-6)


def test_an_encoder_that_sees_no_needle_has_no_psi():
    encoder = BagEncoder([*NAMES, "x"], reach=4)
    config = NeedleConfig(tokens=91, depths=2, border=Border.TOKEN)
    found = needle_curves(encoder, NEEDLES, [FILLER], parse_poolings("cls"), config)
    # At the start CLS counts the needle and three x; at the end it counts four x.
    np.testing.assert_allclose(found.curves[CLS].mean, [10**-0.5, 0], atol=1e-6)
    assert found.curves[CLS].psi.value is None
    np.testing.assert_allclose(found.ranks[CLS][:, 0, 0], 1)
    # All documents look the same there: by lot, its own is first once in eight.
    np.testing.assert_allclose(found.ranks[CLS][:, 0, 1], 4.5)
    np.testing.assert_allclose(found.hits[CLS][:, 0, 1], 1 / 8)


def test_questions_of_other_needles_are_the_shuffled_control():
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, CONFIG)
    np.testing.assert_allclose(found.unrelated[MEAN], np.zeros(10), atol=1e-9)
    # A question of filler words is as close to every document.
    same = tuple(Needle(n, n, "x") for n in NAMES)
    found = needle_curves(encoder_of(falling), same, [FILLER], POOLINGS, CONFIG)
    np.testing.assert_allclose(found.unrelated[MEAN], found.curves[MEAN].mean, atol=1e-9)


def test_every_filler_gets_every_needle_at_every_depth():
    config = NeedleConfig(tokens=31, depths=4, border=Border.TOKEN)
    found = needle_curves(encoder_of(falling), NEEDLES[:3], [FILLER, OTHER], POOLINGS, config)
    assert found.scores[CLS].shape == found.ranks[CLS].shape == (3, 2, 4)
    assert found.fillers == ("x", "y")
    assert found.curves[CLS].count == 3


def test_all_documents_have_the_length_that_was_asked_for():
    seen = []
    encoder = encoder_of(uniform)
    vector = encoder.vector
    encoder.vector = lambda layout: seen.append(layout.n_kept) or vector(layout)
    needles = (Needle("a", "n0 n1 n2", "n0"), Needle("b", "n3", "n3"))
    config = NeedleConfig(tokens=40, depths=3, border=Border.TOKEN)
    needle_curves(encoder, needles, [FILLER], parse_poolings("mean"), config)
    assert sorted(seen) == [1, 1, *[40] * 6]


# Placing.


def place(text, depth, border):
    words = ["Rain", "falls", "Snow", "melts", "slowly", "Wind", "blows", "a"]
    return place_needle(BagEncoder(words).tokenize(text), "N", depth, border)


@pytest.mark.parametrize(
    ("depth", "wanted"),
    [
        (0.0, ("N Rain falls. Snow melts slowly. Wind blows.", 0.0)),
        (0.3, ("Rain falls. N Snow melts slowly. Wind blows.", 2 / 7)),
        (0.6, ("Rain falls. Snow melts slowly. N Wind blows.", 5 / 7)),
        (1.0, ("Rain falls. Snow melts slowly. Wind blows. N", 1.0)),
    ],
)
def test_a_needle_stands_between_two_sentences(depth, wanted):
    assert place("Rain falls. Snow melts slowly. Wind blows.", depth, Border.SENTENCE) == wanted


@pytest.mark.parametrize(
    ("depth", "wanted"),
    [
        (0.3, ("Rain falls. N Snow melts slowly. Wind blows.", 2 / 7)),
        (0.5, ("Rain falls. Snow N melts slowly. Wind blows.", 3 / 7)),
    ],
)
def test_a_needle_stands_between_two_tokens(depth, wanted):
    assert place("Rain falls. Snow melts slowly. Wind blows.", depth, Border.TOKEN) == wanted


@pytest.mark.parametrize("border", Border)
def test_one_token_has_two_borders(border):
    assert place("a", 0.2, border) == ("N a", 0.0)
    assert place("a", 0.8, border) == ("a N", 1.0)


@pytest.mark.parametrize("depth", np.linspace(0, 1, 7))
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_needle_never_splits_a_word(tiny_encoder, name, depth):
    text = "Unquestionably landmarks remember Wednesday's conversations, notwithstanding."
    tokens = tiny_encoder(name).tokenize(text)
    placed, _ = place_needle(tokens, "NEEDLE", float(depth), Border.TOKEN)
    without = placed.replace("NEEDLE", " ").split()
    assert without == text.split()


def test_a_needle_between_long_sentences_is_said_to_stand_elsewhere():
    text = "Rain falls all day long here. Snow melts slowly and then it freezes over again."
    encoder = WeightedEncoder([*NAMES, *{w.strip(".") for w in text.split()}], falling)
    config = NeedleConfig(tokens=16, depths=3)
    found = needle_curves(encoder, NEEDLES, [Document("t", "t", text)], POOLINGS, config)
    # Six words of fifteen stand before the only inner border; the middle was wanted.
    np.testing.assert_allclose(found.placed, [0, 6 / 15, 1])
    assert found.misplaced == pytest.approx(0.1)
    np.testing.assert_array_equal(found.curves[CLS].depths, found.placed)


def test_a_head_of_a_filler_is_a_text_of_its_own():
    head = filler_head(BagEncoder("abcd").tokenize("  a b  c d"), 3, "f")
    assert head.text == "a b  c"
    assert [head.text[s:e] for s, e in zip(head.starts, head.ends, strict=True)] == list("abc")


# Ranks.


def test_ranks_with_ties_are_those_of_scipy():
    cosines = np.random.default_rng(0).integers(0, 4, (12, 12)) / 4
    ranks, hits = rank_of_own(cosines)
    wanted = [stats.rankdata(-row, "average")[i] for i, row in enumerate(cosines)]
    np.testing.assert_allclose(ranks, wanted)
    best = [(row[i] == row.max()) / (row == row.max()).sum() for i, row in enumerate(cosines)]
    np.testing.assert_allclose(hits, best)


def test_a_lone_document_is_first():
    ranks, hits = rank_of_own(np.array([[-0.5]]))
    assert (ranks.tolist(), hits.tolist()) == ([1.0], [1.0])


# Progress, a stop, what is kept.


def test_progress_counts_questions_and_documents_to_the_end():
    seen = []
    config = NeedleConfig(tokens=20, depths=5, border=Border.TOKEN)
    needle_curves(
        encoder_of(uniform),
        NEEDLES[:3],
        [FILLER],
        POOLINGS,
        config,
        progress=lambda *step: seen.append(step),
    )
    total = 2 * (3 + 3 * 5)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


@pytest.mark.parametrize("calls", range(7))
def test_needles_that_were_done_are_kept_after_a_stop(calls):
    left = iter([False] * calls)
    config = NeedleConfig(tokens=20, depths=5, border=Border.TOKEN)
    found = needle_curves(
        encoder_of(falling),
        NEEDLES[:3],
        [FILLER],
        parse_poolings("mean"),
        config,
        should_stop=lambda: next(left, True),
    )
    # One batch of questions, then one a needle.
    done = min(calls, 3)
    assert len(found.needles) == len(found.scores[MEAN]) == found.curves[MEAN].count == done
    assert found.is_partial is (done < 3)
    assert np.isfinite(found.scores[MEAN]).all()
    json.dumps(found.to_dict(), allow_nan=False)


def test_vectors_that_are_not_finite_are_left_out_of_the_mean():
    encoder = encoder_of(falling)
    clean = encoder.vector

    def spoil(layout):
        return clean(layout) * (np.nan if "n0" in layout.text.split() else 1)

    encoder.vector = spoil
    found = needle_curves(encoder, NEEDLES[:3], [FILLER], parse_poolings("mean"), CONFIG)
    assert found.curves[MEAN].count == 2
    json.dumps(found.to_dict(), allow_nan=False)


# What is refused.


def test_a_needle_that_leaves_no_room_is_refused_with_its_size():
    needle = Needle("long", "n0 " * 30, "n0")
    with pytest.raises(ValueError, match=r"needle 'long' has 30 tokens and the document 30"):
        needle_curves(encoder_of(uniform), [needle], [FILLER], POOLINGS, NeedleConfig(tokens=30))


@pytest.mark.parametrize("text", ["", "x", "x " * 50], ids=["empty", "one token", "short"])
def test_a_filler_that_is_too_short_is_refused_with_its_length(text):
    with pytest.raises(ValueError, match=rf"filler 'f' has {len(text.split())} tokens and 90"):
        needle_curves(encoder_of(uniform), NEEDLES, [Document("f", "f", text)], POOLINGS, CONFIG)


def test_a_filler_of_fewer_tokens_than_depths_says_where_needles_stood():
    config = NeedleConfig(tokens=4, depths=10, border=Border.TOKEN)
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, config)
    assert set(np.round(found.placed * 3).astype(int)) == {0, 1, 2, 3}
    assert found.curves[CLS].slope.value < 0


@pytest.mark.parametrize(
    ("needles", "fillers", "words"),
    [
        ((), [FILLER], "no needle came"),
        (NEEDLES, [], "no filler came"),
        ((NEEDLES[0], NEEDLES[0]), [FILLER], "two needles share an id"),
    ],
)
def test_a_run_without_needles_or_fillers_is_refused(needles, fillers, words):
    with pytest.raises(ValueError, match=words):
        needle_curves(encoder_of(uniform), needles, fillers, POOLINGS, CONFIG)


@pytest.mark.parametrize("poolings", [(), (*POOLINGS, POOLINGS[0])], ids=["none", "twice"])
def test_poolings_have_to_be_given_once_each(poolings):
    with pytest.raises(ValueError, match="give at least one, each once"):
        needle_curves(encoder_of(uniform), NEEDLES, [FILLER], poolings, CONFIG)


def test_documents_that_do_not_fit_are_refused_before_anything_is_embedded(tiny_encoder):
    encoder = tiny_encoder("bert")  # A table of 128 positions.
    filler = Document("f", "f", "rivers carry water to the sea. " * 60)
    needle = Needle("n", "The landmark is red.", "What colour?")
    seen = []
    with pytest.raises(ValueError, match=r"takes 12\d of them with its landmark input"):
        needle_curves(
            encoder,
            [needle],
            [filler],
            parse_poolings("landmark"),
            NeedleConfig(tokens=128),
            progress=lambda *step: seen.append(step),
        )
    assert seen == []


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"tokens": 1}, ValueError, "tokens is 1; allowed: 2 to"),
        ({"depths": 0}, ValueError, "depths is 0; allowed: 1 to 100"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"tokens": 9.5}, TypeError, "whole number"),
        ({"border": "word"}, ValueError, "border is 'word'; allowed: sentence, token"),
    ],
)
def test_settings_out_of_range_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        NeedleConfig(**settings)


# Results.


def test_the_result_is_plain_json_with_a_row_a_pooling():
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, CONFIG)
    rows = json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"]
    assert [row["pooling"] for row in rows] == ["cls", "mean", "landmark"]
    for row in rows:
        for name in ("depths", "mean", "low", "high", "mean_rank", "recall@1", "unrelated"):
            assert len(row[name]) == 10
        for name in ("psi", "slope", "first_minus_last"):
            assert row[f"{name}_low"] - 1e-9 <= row[name] <= row[f"{name}_high"] + 1e-9


def test_tables_hold_the_same_numbers():
    found = needle_curves(encoder_of(falling), NEEDLES, [FILLER], POOLINGS, CONFIG)
    frame = found.to_frame()
    assert len(frame) == 30
    np.testing.assert_array_equal(
        frame.loc[frame["pooling"] == "mean", "mean"], found.curves[MEAN].mean
    )
    assert found.scalars_frame()["psi"].tolist() == [c.psi.value for c in found.curves.values()]


@pytest.mark.parametrize(
    ("marks", "wanted"),
    [
        ({"trained_for": MEAN}, [False, True, False]),
        ({"trained_poolings": frozenset({CLS, LMK}), "trained_for": MEAN}, [True, False, True]),
        ({}, [False, False, False]),
    ],
)
def test_rows_say_whether_the_encoder_was_trained_for_their_pooling(marks, wanted):
    encoder = encoder_of(uniform)
    for name, value in marks.items():
        setattr(encoder, name, value)
    rows = needle_curves(encoder, NEEDLES, [FILLER], POOLINGS, CONFIG).to_dict()["rows"]
    assert [row["trained"] for row in rows] == wanted


# Intervals: needles are a sample, and what is told is of all that could have been drawn.

STRENGTHS = (0.5, 1.0, 2.0)
SHORT = NeedleConfig(tokens=10, depths=4, border=Border.TOKEN)
REPETITIONS = 100


class StrongWords(WeightedEncoder):
    """Each needle's word weighs so many times more than its place has it."""

    def __init__(self, strengths):
        super().__init__([*(f"s{i}" for i in range(len(strengths))), "x"], falling)
        self.strengths = np.append(strengths, 1.0)

    def vector(self, layout):
        return super().vector(layout) * self.strengths


@pytest.fixture(scope="module")
def repetitions():
    """Curves of twelve needles drawn anew each time."""
    needles = [Needle(f"s{i}", f"s{i}", f"s{i}") for i in range(12)]
    found = []
    for seed in range(REPETITIONS):
        drawn = np.random.default_rng(10_000 + seed).choice(STRENGTHS, len(needles))
        result = needle_curves(StrongWords(drawn), needles, [FILLER], parse_poolings("mean"), SHORT)
        found.append(result.curves[MEAN])
    return found


def true_curve():
    """The mean over strengths of s w / sqrt(s^2 w^2 + (W - w)^2), at words 1, 4, 7 and 10."""
    weights = falling(10)
    own = weights[[0, 3, 6, 9]]
    others = weights.sum() - own
    return np.mean([s * own / np.hypot(s * own, others) for s in STRENGTHS], axis=0)


def test_the_interval_of_the_mean_holds_the_truth_in_ninety_of_a_hundred_repetitions(repetitions):
    covered = sum((c.low <= true_curve()) & (true_curve() <= c.high) for c in repetitions)
    assert (covered >= 0.9 * REPETITIONS).all(), covered


@pytest.mark.parametrize("name", ["psi", "slope", "first_minus_last"])
def test_the_interval_of_a_scalar_holds_the_truth_in_ninety_of_a_hundred_repetitions(
    repetitions, name
):
    curve = true_curve()
    truth = {
        "psi": 1 - curve.min() / curve.max(),
        "slope": np.polyfit(np.arange(4) / 3, curve, 1)[0],
        "first_minus_last": curve[0] - curve[-1],
    }[name]
    found = [getattr(curve, name) for curve in repetitions]
    covered = sum(estimate.low <= truth <= estimate.high for estimate in found)
    assert covered >= 0.9 * REPETITIONS, covered


# Lengths.


def test_lengths_are_the_needle_probe_at_each():
    config = NeedleConfig(tokens=21, border=Border.TOKEN)
    seen = []
    found = needle_by_length(
        encoder_of(falling),
        NEEDLES,
        [FILLER],
        POOLINGS,
        config,
        (1, 4),
        progress=lambda *step: seen.append(step),
    )
    assert [result.config.tokens for result in found.results] == [21, 84]
    alone = needle_curves(
        encoder_of(falling), NEEDLES, [FILLER], POOLINGS, NeedleConfig(84, border=Border.TOKEN)
    )
    np.testing.assert_array_equal(found.results[1].scores[CLS], alone.scores[CLS])
    assert seen[-1][0] == seen[-1][1] == 2 * 2 * 8 * 11
    assert len(found.scalars_frame()) == 6
    assert {row["tokens"] for row in found.to_dict()["rows"]} == {21, 84}


def test_a_stop_keeps_the_lengths_that_were_done():
    left = iter([False] * 12)
    found = needle_by_length(
        encoder_of(falling),
        NEEDLES,
        [FILLER],
        parse_poolings("mean"),
        NeedleConfig(tokens=21, border=Border.TOKEN),
        (1, 2),
        should_stop=lambda: next(left, True),
    )
    assert found.is_partial
    assert [len(result.needles) for result in found.results] == [3, 8]


@pytest.mark.parametrize("factors", [(), (0, 1), (2, 2), (4, 1)])
def test_factors_have_to_rise_from_one(factors):
    with pytest.raises(ValueError, match="give rising whole numbers"):
        needle_by_length(encoder_of(uniform), NEEDLES, [FILLER], POOLINGS, CONFIG, factors)


# Passes.


def test_passes_are_counted_by_input_or_in_a_family_by_variant():
    encoder = encoder_of(uniform)
    modes = [CLS, MEAN, LMK]
    assert count_passes(encoder, modes) == 2
    encoder.variants = frozenset()
    assert count_passes(encoder, modes) == 2
    encoder.variants = frozenset({CLS})
    assert count_passes(encoder, modes) == 3


# Needles of the project and of a file.


def test_enough_needles_come_with_the_project():
    assert len(load_needles()) >= 40


@pytest.mark.parametrize("needle", load_needles(), ids=lambda n: n.id)
def test_a_bundled_fact_is_one_sentence_of_12_to_30_words(needle):
    assert 12 <= len(needle.fact.split()) <= 30
    assert needle.fact.endswith(".")
    assert ". " not in needle.fact
    assert needle.question.endswith("?")


def test_bundled_fillers_are_long_and_english():
    fillers = bundled_fillers()
    assert len(fillers) >= 4
    assert "multilingual" not in {filler.id for filler in fillers}
    assert min(len(filler.text.split()) for filler in fillers) > 2500


@pytest.mark.parametrize("count", [0, 99])
def test_more_fillers_than_there_are_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} fillers are wanted; allowed: 1 to"):
        bundled_fillers(count)


def test_needles_are_drawn_without_repetition_and_by_seed():
    needles = load_needles()
    first, again, other = (draw_needles(needles, 9, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert len({needle.id for needle in first}) == 9


@pytest.mark.parametrize("count", [0, 9])
def test_more_needles_than_there_are_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} needles are wanted; allowed: 1 to 8"):
        draw_needles(NEEDLES, count)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 has no fact and question"),
        ('{"fact": "a"}', "line 1 has no fact and question"),
        ('{"fact": "a", "question": " "}', "question is ' '"),
        ('{"fact": 3, "question": "a"}', "fact is 3"),
        ('{"id": 1, "fact": "a", "question": "b"}\n' * 2, "two needles share an id"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, line, words):
    file = tmp_path / "own.jsonl"
    file.write_text(line)
    with pytest.raises(ValueError, match=words):
        load_needles(file)


def test_a_file_without_ids_is_numbered(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"fact": "a", "question": "b"}\n\n{"fact": "c", "question": "d"}\n')
    assert [needle.id for needle in load_needles(file)] == ["1", "3"]


def test_bundled_needles_have_only_their_three_fields():
    rows = map(json.loads, NEEDLES_FILE.read_text("utf-8").splitlines())
    assert {tuple(row) for row in rows} == {("id", "fact", "question")}


WORDS_WITHOUT_CONTENT = """
a an the of in on and to is it its was were that which what why how where who when did do does
for with by as has have had not all one be can at are from than so no them they their some any
after before each every must only will would out
"""


@pytest.mark.parametrize("needle", load_needles(), ids=lambda n: n.id)
def test_a_bundled_question_shares_one_content_word_with_its_fact_at_most(needle):
    fact, question = (
        {word.strip(".,?;'").lower() for word in text.split()} - set(WORDS_WITHOUT_CONTENT.split())
        for text in (needle.fact, needle.question)
    )
    assert len(fact & question) <= 1
