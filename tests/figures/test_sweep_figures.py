import numpy as np
import pytest

from lmk_viz.figures.sweep import sweep_alt, sweep_figure


def row(pooling, granularity, tokens, value=0.5, trained=True):
    return {
        "name": pooling if granularity is None else f"{pooling}:{granularity}",
        "pooling": pooling,
        "granularity": granularity,
        "trained": trained,
        "ndcg@10": value,
        "ndcg@10_low": value - 0.1,
        "ndcg@10_high": value + 0.2,
        "tokens_per_document": tokens,
        "landmarks_per_document": tokens - 100,
        "overhead": (tokens - 100) / 100,
        "seconds": 1.0,
    }


ROWS = [
    row("cls", None, 102.0, 0.3),
    row("mean", None, 102.0, 0.4),
    row("landmark", 8, 113.0, 0.6),
    row("landmark", 32, 104.0, 0.5),
    row("landmark", "sentence", 108.0, 0.45),
    row("multi_cls", 32, 105.0, 0.2, trained=False),
]


def drawn(marked="landmark:32", rows=ROWS):
    return sweep_figure(
        rows, "ndcg@10", marked, "recommended", "Quality against cost", "<b>mine</b>"
    )


def test_each_pooling_has_its_points_with_intervals():
    figure = drawn()
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name) == [
        "CLS",
        "Mean",
        "Landmark (LMK)",
        "Landmark (LMK), variable and by sentence",
        "MultiCLS (not trained for it)",
        "recommended",
    ]
    line = by_name["Landmark (LMK)"]
    assert list(line.x) == pytest.approx([113.0, 104.0])
    assert list(line.y) == [0.6, 0.5]
    assert list(line.text) == ["8", "32"]
    np.testing.assert_allclose(line.error_y.array, 0.2)
    np.testing.assert_allclose(line.error_y.arrayminus, 0.1)
    assert "lines" in line.mode
    assert "lines" not in by_name["CLS"].mode


def test_axes_have_titles_units_and_round_ticks_on_a_log_scale():
    figure = drawn()
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.title.text == "tokens read a document (log)"
    assert figure.layout.yaxis.title.text == "nDCG@10 (0 to 1)"
    assert all(isinstance(tick, int) for tick in figure.layout.xaxis.tickvals)
    assert 3 <= len(figure.layout.xaxis.tickvals) <= 5


def test_points_of_equal_cost_stand_side_by_side_and_tell_their_cost():
    by_name = {trace.name: trace for trace in drawn().data}
    cls, mean = by_name["CLS"], by_name["Mean"]
    assert 0 < mean.x[0] - cls.x[0] < 1
    assert cls.customdata[0][1] == mean.customdata[0][1] == 102.0


def test_the_recommended_setting_is_ringed():
    ring = drawn().data[-1]
    assert (list(ring.x), list(ring.y)) == ([pytest.approx(104.0)], [0.5])
    assert ring.marker.symbol == "circle-open"
    assert [trace.name for trace in drawn(None).data][-1] != "recommended"


def test_names_from_outside_are_escaped():
    assert drawn().layout.title.subtitle.text == "&lt;b&gt;mine&lt;/b&gt;"


def test_equal_costs_alone_can_be_drawn():
    figure = drawn(None, [row("cls", None, 102.0), row("mean", None, 102.0)])
    assert list(figure.layout.xaxis.tickvals) != []


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="no row to draw"):
        drawn(None, [])


def test_the_text_alternative_has_the_numbers():
    said = sweep_alt(ROWS, "ndcg@10", "landmark:32", "recommended")
    assert "Landmark (LMK), 32 0.50 (0.40 to 0.70) at 104 tokens, recommended" in said
