import pytest

from lmk_viz.config import PoolingMode
from lmk_viz.figures.retrieval import (
    depth_alt,
    depth_figure,
    extrapolation_alt,
    extrapolation_figure,
)
from lmk_viz.figures.theme import STYLES


def row(pooling, multiple, ndcg, trained=True, **changes):
    return {
        "pooling": pooling,
        "multiple": multiple,
        "trained": trained,
        "ndcg@10": ndcg,
        "ndcg@10_low": ndcg - 0.1,
        "ndcg@10_high": ndcg + 0.05,
        "start": ndcg,
        "middle": ndcg - 0.1,
        "end": ndcg - 0.2,
        "tokens": 256 * multiple - 2,
        **changes,
    }


ROWS = [
    row("cls", 4, 0.4, trained=False),
    row("cls", 1, 0.8, trained=False),
    row("landmark", 1, 0.9),
    row("landmark", 2, 0.85),
    row("landmark", 4, 0.7),
]
CLS_NAME = "CLS (not trained for it)"


def lines(figure):
    return {trace.name: trace for trace in figure.data if "interval" not in trace.name}


def test_lines_rise_in_length_and_say_what_was_not_trained():
    found = lines(extrapolation_figure(ROWS, "title"))
    assert list(found) == [CLS_NAME, "Landmark (LMK)"]
    assert list(found[CLS_NAME].x) == [1, 4]
    assert list(found[CLS_NAME].y) == [0.8, 0.4]
    assert list(found["Landmark (LMK)"].y) == [0.9, 0.85, 0.7]


def test_bands_run_along_the_upper_and_back_along_the_lower_limit():
    figure = extrapolation_figure(ROWS, "title")
    band = next(t for t in figure.data if t.name == "Landmark (LMK), interval")
    assert list(band.x) == [1, 2, 4, 4, 2, 1]
    assert list(band.y) == pytest.approx([0.95, 0.9, 0.75, 0.6, 0.75, 0.8])
    assert not band.showlegend


def test_length_axis_is_logarithmic_with_a_tick_a_multiple():
    axis = extrapolation_figure(ROWS, "title").layout.xaxis
    assert axis.type == "log"
    assert list(axis.tickvals) == [1, 2, 4]
    assert list(axis.ticktext) == ["1×", "2×", "4×"]


@pytest.mark.parametrize("mode", PoolingMode)
def test_every_pooling_has_its_own_style(mode):
    rows = [row(mode.value, 1, 0.5)]
    for figure in (extrapolation_figure(rows, "title"), depth_figure(rows, 1)):
        (trace,) = lines(figure).values()
        style = STYLES[mode]
        assert (trace.line.color, trace.line.dash, trace.marker.symbol) == (
            style.colour,
            style.dash,
            style.marker,
        )


def test_subtitle_is_escaped_and_kept_short():
    figure = extrapolation_figure(ROWS, "title", "<b>" + "x" * 200)
    text = figure.layout.title.subtitle.text
    assert text.startswith("&lt;b&gt;x")
    assert len(text) < 100


def test_length_figure_in_words_holds_first_middle_and_last():
    assert extrapolation_alt(ROWS) == (
        "nDCG@10 by multiple of the training length: CLS (not trained for it): "
        "0.80 (0.70 to 0.85) at 1×, 0.40 (0.30 to 0.45) at 4×; Landmark (LMK): "
        "0.90 (0.80 to 0.95) at 1×, 0.85 (0.75 to 0.90) at 2×, 0.70 (0.60 to 0.75) at 4×."
    )


def test_depth_figure_draws_the_thirds_of_one_multiple():
    found = lines(depth_figure(ROWS, 4))
    assert list(found) == [CLS_NAME, "Landmark (LMK)"]
    assert list(found["Landmark (LMK)"].x) == ["start", "middle", "end"]
    assert list(found["Landmark (LMK)"].y) == pytest.approx([0.7, 0.6, 0.5])
    assert lines(depth_figure(ROWS, 2)).keys() == {"Landmark (LMK)"}


def test_depth_figure_in_words_says_what_is_unknown():
    rows = [row("mean", 2, 0.5, end=None)]
    assert depth_alt(rows, 2) == (
        "nDCG@10 by third of the document at 2×: Mean: start 0.50, middle 0.40, end unknown."
    )
    assert list(lines(depth_figure(rows, 2))["Mean"].y)[2] is None


@pytest.mark.parametrize("draw", [depth_figure, depth_alt])
def test_a_multiple_that_was_not_measured_is_refused(draw):
    with pytest.raises(ValueError, match="no row is of 8 times the length; allowed: 1, 2, 4"):
        draw(ROWS, 8)


def test_no_rows_make_an_empty_figure():
    assert len(extrapolation_figure([], "title").data) == 0
