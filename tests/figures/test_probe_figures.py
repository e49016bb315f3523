import numpy as np
import pytest
from fakes import BagEncoder
from helpers import fixed
from probes.weighted import WeightedEncoder, falling

from lmk_viz.config import PoolingMode
from lmk_viz.documents import Document
from lmk_viz.figures.probe_lengths import (
    document_length_alt,
    document_length_figure,
    length_alt,
    length_curves_figure,
    length_numbers_figure,
)
from lmk_viz.figures.probes import (
    dilution_alt,
    dilution_figure,
    influence_alt,
    influence_figure,
    needle_alt,
    needle_figure,
    shuffle_alt,
    shuffle_figure,
)
from lmk_viz.figures.segments import segment_figure
from lmk_viz.figures.theme import STYLES
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes import segment_cosines
from lmk_viz.probes.dilution import dilution_curves
from lmk_viz.probes.document_lengths import NUMBERS, document_by_length
from lmk_viz.probes.influence import leave_one_out
from lmk_viz.probes.lengths import needle_by_length
from lmk_viz.probes.needle import NeedleConfig, needle_curves
from lmk_viz.probes.needles import Needle
from lmk_viz.probes.placing import Border
from lmk_viz.probes.shuffle import shuffle_cosines

CLS, LMK = PoolingMode.CLS, PoolingMode.LANDMARK
POOLINGS = parse_poolings("cls,landmark")
NAMES = [f"n{i}" for i in range(5)]
NEEDLES = tuple(Needle(name, name, name) for name in NAMES)
FILLER = Document("x", "x", " ".join("x" for _ in range(200)))
CONFIG = NeedleConfig(tokens=19, depths=4, border=Border.TOKEN)
LETTERS = "abcdefghijkl"
MARKUP = "<b>bold</b> <script>alert(1)</script> " * 9


def encoder():
    return WeightedEncoder([*NAMES, "x", "y", *LETTERS], falling)


@pytest.fixture(scope="module")
def needles():
    return needle_curves(encoder(), NEEDLES, [FILLER], POOLINGS, CONFIG)


@pytest.fixture(scope="module")
def influence():
    return leave_one_out(encoder(), " ".join(LETTERS), POOLINGS, fixed(3), neutral="y y")


@pytest.fixture(scope="module")
def with_attention(tiny_encoder):
    text = "A landmark token is placed after every chunk. Rivers carry water from the hills."
    return leave_one_out(tiny_encoder("bert"), text, POOLINGS, fixed(6))


def named(figure):
    """Traces by axis and name."""
    return {(trace.yaxis or "y", trace.name): trace for trace in figure.data}


# Needle.


def test_a_needle_curve_is_drawn_in_its_pooling_s_style(needles):
    trace = named(needle_figure(needles))["y", "CLS"]
    np.testing.assert_allclose(trace.x, np.arange(4) / 3)
    np.testing.assert_array_equal(trace.y, needles.curves[CLS].mean)
    assert (trace.line.color, trace.line.dash) == (STYLES[CLS].colour, STYLES[CLS].dash)


def test_an_interval_is_a_closed_band_round_its_curve(needles):
    band = named(needle_figure(needles))["y", "CLS, 95 % interval"]
    curve = needles.curves[CLS]
    np.testing.assert_array_equal(band.y[:4], curve.high)
    np.testing.assert_array_equal(band.y[4:], curve.low[::-1])
    assert band.fill == "toself"
    assert band.hoverinfo == "skip"


def test_ranks_are_under_the_curves_on_the_same_axis(needles):
    figure = needle_figure(needles)
    hits = named(figure)["y2", "CLS"]
    np.testing.assert_allclose(hits.y, np.ones(4))
    assert {trace.xaxis or "x" for trace in figure.data} == {"x"}
    assert figure.layout.hoversubplots == "axis"
    assert figure.layout.yaxis2.domain[1] < figure.layout.yaxis.domain[0]
    (by_lot,) = figure.layout.shapes
    assert (by_lot.yref, by_lot.y0) == ("y2", 0.2)


def test_questions_of_other_needles_are_a_dotted_line(needles):
    trace = named(needle_figure(needles))["y", "CLS, other questions"]
    assert trace.line.dash == "dot"
    np.testing.assert_array_equal(trace.y, needles.unrelated[CLS])


def test_a_control_is_drawn_thin_beside(needles):
    figure = needle_figure(needles, needles)
    trace = named(figure)["y", "CLS, random weights"]
    assert trace.line.width < named(figure)["y", "CLS"].line.width


def test_centred_curves_are_less_their_own_mean(needles):
    curve = needles.curves[CLS]
    traces = named(needle_figure(needles, needles, centred=True))
    np.testing.assert_allclose(traces["y", "CLS"].y, curve.mean - curve.mean.mean())
    band = traces["y", "CLS, 95 % interval"]
    np.testing.assert_allclose(band.y[:4], curve.high - curve.mean.mean())
    assert np.mean(traces["y", "CLS, other questions"].y) == pytest.approx(0)
    # Shares ranked first have a level that means something.
    np.testing.assert_allclose(traces["y2", "CLS"].y, np.ones(4))


def test_one_needle_has_neither_band_nor_ranks():
    found = needle_curves(encoder(), NEEDLES[:1], [FILLER], POOLINGS, CONFIG)
    assert {(trace.yaxis or "y") for trace in needle_figure(found).data} == {"y"}
    assert [t.name for t in needle_figure(found).data] == ["CLS", "Landmark (LMK)"]


def test_a_needle_figure_is_told_in_words(needles):
    curve = needles.curves[CLS]
    assert (
        f"CLS {curve.mean[0]:.3f} at the start, {curve.mean[-1]:.3f} at the end, PSI "
        f"{curve.psi.value:.3f} ({curve.psi.low:.3f} to {curve.psi.high:.3f})"
    ) in needle_alt(needles)


def test_an_undefined_psi_is_told_as_such():
    blind = BagEncoder([*NAMES, "x"], reach=2)
    found = needle_curves(blind, NEEDLES, [FILLER], parse_poolings("cls"), CONFIG)
    assert "PSI undefined" in needle_alt(found)
    needle_figure(found)


# Influence.


def test_influence_attention_and_landmarks_stand_on_one_axis(with_attention):
    figure = influence_figure(with_attention, "document")
    assert {trace.xaxis or "x" for trace in figure.data} == {"x"}
    assert {trace.yaxis or "y" for trace in figure.data} == {"y", "y2", "y3"}
    assert (figure.layout.hovermode, figure.layout.hoversubplots) == ("x unified", "axis")
    axes = [getattr(figure.layout, name).domain for name in ("yaxis", "yaxis3", "yaxis2")]
    assert axes[0][0] >= axes[1][1]
    assert axes[1][0] >= axes[2][1]
    marks = named(figure)["y3", "landmarks"]
    np.testing.assert_array_equal(marks.x, with_attention.landmark_tokens)


def test_influence_as_share_sums_to_one_and_keeps_its_value_for_the_hover(influence):
    trace = named(influence_figure(influence, "document"))["y", "CLS"]
    assert np.sum(trace.y) == pytest.approx(1)
    np.testing.assert_array_equal(trace.customdata, influence.values[CLS])
    raw = named(influence_figure(influence, "document", as_share=False))["y", "CLS"]
    np.testing.assert_array_equal(raw.y, influence.values[CLS])


def test_the_floor_is_scaled_as_its_influence_is(influence):
    traces = named(influence_figure(influence, "document"))
    total = influence.summaries[LMK].total
    floor = traces["y", "Landmark (LMK), neutral filler"]
    np.testing.assert_allclose(floor.y, influence.floor[LMK] / total)


def test_parts_stand_at_the_middle_of_their_tokens(influence):
    trace = named(influence_figure(influence, "document"))["y", "CLS"]
    assert trace.x.tolist() == [1.5, 4.5, 7.5, 10.5]


def test_without_attention_there_is_one_panel(influence):
    figure = influence_figure(influence, "document")
    assert {trace.yaxis or "y" for trace in figure.data} == {"y", "y3"}


def test_influence_is_told_in_words(influence, with_attention):
    share = influence.summaries[CLS].first_tenth
    assert f"CLS has {share:.0%} of its influence on the first tenth" in influence_alt(influence)
    assert "correlation with attention" in influence_alt(with_attention)


# Shuffle, dilution, length.


def test_every_order_is_a_mark_in_its_pooling_s_column():
    found = shuffle_cosines(encoder(), " ".join(LETTERS), POOLINGS, fixed(3), unrelated="x x x")
    figure = shuffle_figure(found, "document")
    trace = named(figure)["y", "Landmark (LMK)"]
    np.testing.assert_array_equal(trace.y, found.cosines[LMK])
    assert (np.asarray(trace.x) > 0.5).all()
    assert figure.layout.xaxis.ticktext == ("cls", "landmark")
    assert [t.name for t in figure.data].count("unrelated text") == 2
    mean = found.means[LMK]
    assert f"Landmark (LMK) {mean.value:.3f} ({mean.low:.3f}" in shuffle_alt(found)


def test_dilution_steps_are_spaced_evenly_and_named_by_their_tokens():
    found = dilution_curves(encoder(), NEEDLES, FILLER, POOLINGS, (0, 5, 50))
    figure = dilution_figure(found)
    assert figure.layout.xaxis.ticktext == ("0", "5", "50")
    trace = named(figure)["y", "CLS"]
    np.testing.assert_allclose(trace.y, [mean.value for mean in found.means[CLS]])
    assert "up to 50 tokens" in dilution_alt(found)


def test_every_length_has_a_panel_over_one_axis():
    found = needle_by_length(encoder(), NEEDLES, [FILLER], POOLINGS, CONFIG, (1, 2, 4))
    figure = length_curves_figure(found)
    assert {trace.xaxis or "x" for trace in figure.data} == {"x"}
    titles = [figure.layout[name].title.text for name in ("yaxis", "yaxis2", "yaxis3")]
    assert titles == ["19 tokens", "38 tokens", "76 tokens"]
    tops = [figure.layout[name].domain[1] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert tops == sorted(tops, reverse=True)
    for axis, result in zip(("y", "y2", "y3"), found.results, strict=True):
        np.testing.assert_array_equal(named(figure)[axis, "CLS"].y, result.curves[CLS].mean)
    assert length_alt(found).count("tokens: CLS") == 3


def test_numbers_by_length_have_their_intervals():
    found = needle_by_length(encoder(), NEEDLES, [FILLER], POOLINGS, CONFIG, (1, 2))
    traces = named(length_numbers_figure(found))
    psi = [result.curves[CLS].psi for result in found.results]
    trace = traces["y", "CLS"]
    np.testing.assert_array_equal(trace.y, [e.value for e in psi])
    np.testing.assert_allclose(trace.error_y.array, [e.high - e.value for e in psi])
    slope = traces["y2", "CLS"]
    np.testing.assert_array_equal(slope.y, [r.curves[CLS].slope.value for r in found.results])


# What users write.


def test_a_document_s_title_is_shown_letter_by_letter_and_cut(influence):
    shuffled = shuffle_cosines(encoder(), " ".join(LETTERS), POOLINGS, fixed(3))
    for figure in (influence_figure(influence, MARKUP), shuffle_figure(shuffled, MARKUP)):
        text = figure.layout.title.subtitle.text
        assert "&lt;b&gt;" in text
        assert "<" not in text
        assert len(text) < 200


# Controls, and other probes by length.


def test_influence_of_random_weights_is_a_thin_line_on_the_same_scale(influence):
    for as_share in (True, False):
        traces = named(influence_figure(influence, "d", as_share, influence))
        own, control = traces["y", "CLS"], traces["y", "CLS, random weights"]
        np.testing.assert_allclose(control.y, own.y)
        assert control.line.width < own.line.width


def test_dilution_of_random_weights_is_a_thin_line():
    found = dilution_curves(encoder(), NEEDLES, FILLER, POOLINGS, (0, 8))
    trace = named(dilution_figure(found, found))["y", "CLS, random weights"]
    np.testing.assert_allclose(trace.y, [mean.value for mean in found.means[CLS]])


def test_segments_of_random_weights_are_a_thin_line():
    text = " ".join(LETTERS)
    found = segment_cosines(encoder(), text, POOLINGS, unrelated="y y y y")
    trace = named(segment_figure(found, "t", "d", found))["y", "CLS, random weights"]
    np.testing.assert_allclose(trace.y, found.cosines[CLS] - found.unrelated[CLS])


@pytest.mark.parametrize(("probe", "even"), [("influence", [0.1, 0.5]), ("shuffle", [])])
def test_a_probe_by_length_has_its_numbers_with_bars_and_the_even_level(probe, even):
    documents = [Document(name, name, f"{name} " * 3 + " ".join(LETTERS)) for name in NAMES[:3]]
    found = document_by_length(encoder(), documents, POOLINGS, probe, 5, (1, 2, 3), fixed(2))
    figure = document_length_figure(found, found)
    traces = named(figure)
    for axis, name in zip(("y", "y2"), NUMBERS[found.probe][:2], strict=True):
        means = found.means[CLS][name]
        trace = traces[axis, "CLS"]
        np.testing.assert_allclose(trace.y, [mean.value for mean in means])
        np.testing.assert_allclose(trace.y + trace.error_y.array, [mean.high for mean in means])
        assert (axis, "CLS, random weights") in traces
    assert figure.layout.xaxis.ticktext == ("5", "10", "15")
    assert [shape.y0 for shape in figure.layout.shapes] == even
    first = found.means[CLS][NUMBERS[found.probe][0]][0]
    assert f"5 tokens: CLS {first.value:.3f} ({first.low:.3f}" in document_length_alt(found)


def test_random_weights_are_drawn_at_each_length():
    found = needle_by_length(encoder(), NEEDLES, [FILLER], POOLINGS, CONFIG, (1, 2))
    traces = named(length_curves_figure(found, control=found))
    for axis, of_length in zip(("y", "y2"), found.results, strict=True):
        np.testing.assert_array_equal(
            traces[axis, "CLS, random weights"].y, of_length.curves[CLS].mean
        )
