import base64
import json
import re

import numpy as np
import pytest

from lmk_viz.config import PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.figures.map_html import PageDocument, map_page
from lmk_viz.figures.map_page import number_words, render_map_page
from lmk_viz.figures.projection import (
    MAX_CATEGORIES,
    NO_VALUE,
    OTHERS,
    UNLABELLED,
    Colouring,
    LandmarkPoints,
    colour_values,
    map_figure,
    wrap_hover,
)
from lmk_viz.figures.theme import GREY, SEQUENTIAL
from lmk_viz.map_metrics import Estimate
from lmk_viz.map_table import load_vectors
from lmk_viz.maps import build_map

MARKUP = "</script><script>alert(1)</script><!--<b>"


def figure_of(values, selected=(), landmarks=(), **more):
    n = len(values)
    points = np.arange(2.0 * n).reshape(-1, 2)
    return map_figure(
        points,
        colour_values("size", values),
        [f"row {i}" for i in range(n)],
        "CLS",
        ProjectionMethod.UMAP,
        selected,
        landmarks,
        **more,
    )


# Colours.


def test_a_column_of_many_numbers_is_a_scale_with_a_bar():
    (trace,) = figure_of([3, 1, 4, 1.5, 9, 2, 6, 5]).data
    assert list(trace.marker.color) == [3, 1, 4, 1.5, 9, 2, 6, 5]
    assert trace.marker.colorbar.title.text == "size"
    assert trace.marker.colorscale[0][1].lower() == "#440154"  # The first of Viridis.
    assert SEQUENTIAL == "Viridis"


def test_a_few_numbers_and_flags_are_categories():
    assert [trace.name for trace in figure_of([1, 2, 2, 3]).data] == ["1", "2", "3"]
    assert [trace.name for trace in figure_of([True, False]).data] == ["False", "True"]


@pytest.mark.parametrize("missing", [None, float("nan")], ids=str)
def test_what_has_no_value_is_grey_and_said_to_have_none(missing):
    for values in (["a", missing], [*range(9), missing]):
        last = figure_of(values).data[-1]
        assert (last.name, last.marker.color, list(last.customdata)) == (
            NO_VALUE,
            GREY,
            [len(values) - 1],
        )
        assert last.showlegend


def test_the_rarest_of_too_many_categories_share_grey():
    values = [f"c{i % 60:02}" for i in range(150)]
    colours = colour_values("kind", values)
    assert len(set(colours.categories)) == MAX_CATEGORIES
    assert set(colours.categories[30:60]) >= {OTHERS}
    assert figure_of(values).data[-1].name == OTHERS


def test_labels_without_a_name_are_unlabelled():
    assert colour_values("label", ["a", None]).missing == UNLABELLED


# Points.


def test_every_point_carries_its_row():
    traces = figure_of(["b", "a", "b"]).data
    assert {t.name: list(t.customdata) for t in traces} == {"a": [1], "b": [0, 2]}


def test_selected_rows_are_brought_out_in_every_trace():
    traces = figure_of(["b", "a", "b", "c"], selected=[2, 1]).data
    assert {t.name: list(t.selectedpoints) for t in traces} == {"a": [0], "b": [1], "c": []}


def test_without_a_selection_all_points_look_alike():
    assert [t.selectedpoints for t in figure_of(["b", "a"]).data] == [None, None]


def test_dragging_draws_round_points_unless_it_is_to_move():
    assert figure_of(["a"]).layout.dragmode == "lasso"
    assert figure_of(["a"], dragmode="pan").layout.dragmode == "pan"


def test_landmarks_are_small_points_joined_to_their_document():
    marks = LandmarkPoints(
        1, np.array([[5.0, 5.0], [6.0, 7.0]]), np.array([2.0, 3.0]), ("one", "two")
    )
    *_, lines, states = figure_of(["a", "a"], landmarks=[marks]).data
    assert list(lines.x) == [5.0, 2.0, None, 6.0, 2.0, None]
    assert list(lines.y) == [5.0, 3.0, None, 7.0, 3.0, None]
    assert list(states.customdata) == [1, 1]
    assert list(states.hovertext) == ["one", "two"]


def test_twenty_thousand_points_are_drawn_by_webgl():
    figure = figure_of([f"c{i % 9}" for i in range(20_000)])
    assert {trace.type for trace in figure.data} == {"scattergl"}
    assert sum(len(trace.x) for trace in figure.data) == 20_000


def test_hover_text_is_escaped_and_broken_into_lines():
    shown = wrap_hover("<b> " + "word " * 20)
    assert shown.startswith("&lt;b&gt; word")
    assert max(len(line) for line in shown.split("<br>")) <= 50


# The page.


def page_of(title="T", documents=None, findings=("Said.",), alts=("A map.",)) -> str:
    documents = documents or [PageDocument("1", "one", "a", "5"), PageDocument("2", "two", "", "")]
    return map_page(
        title,
        {"CLS": figure_of(["x", "y"])},
        alts,
        documents,
        {"CLS": [[(1, 0.5)], [(0, 0.5)]]},
        [["", "CLS"], ["purity", "0.5"]],
        findings,
        "note",
    )


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="map-data">(.*?)</script>', page)
    return json.loads(found.group(1))


def test_the_page_holds_plotly_once_and_asks_for_nothing():
    page = page_of()
    assert page.count("plotly.js v") == 1
    outside = page.replace(re.search(r"<script>(.*?)</script>", page, re.DOTALL).group(1), "")
    assert re.findall(r"(?:src|href)\s*=", outside) == []
    assert "http" not in outside.replace("http-equiv", "")


def test_the_page_knows_rows_documents_and_neighbours():
    data = data_of(page_of())
    assert data["rows"] == [[[0], [1]]]
    assert data["documents"] == [["1", "one", "a", "5"], ["2", "two", "", ""]]
    assert data["neighbours"] == {"CLS": [[[1, 0.5]], [[0, 0.5]]]}


def test_markup_never_reaches_the_page_as_markup():
    documents = [PageDocument(MARKUP, MARKUP, MARKUP, MARKUP)] * 2
    page = page_of(MARKUP, documents, (MARKUP,), (MARKUP,))
    assert "<script>alert" not in page
    assert "<!--" not in re.sub(r"<script>.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert data_of(page)["documents"][0][1] == MARKUP


def test_the_page_of_a_file_has_a_panel_a_pooling_and_its_numbers(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"d{i}" for i in range(9)],
            "label": list("aaabbbccc"),
            "cls": list(rng.normal(size=(9, 4))),
            "mean": list(rng.normal(size=(9, 4))),
        }
    )
    frame.to_parquet(tmp_path / "v.parquet")
    table = load_vectors(tmp_path / "v.parquet")
    found = build_map(table.vectors, table.labels)
    page = render_map_page("T", table, found, ProjectionConfig(), "label", table.labels)
    data = data_of(page)
    assert data["titles"] == ["CLS", "Mean"]
    assert page.count('class="panel"') == 2
    assert len(data["neighbours"]["Mean"]) == 9
    purity = found.panels[0].numbers["purity"]
    assert f"<td>{number_words(purity)}</td>" in page
    packed = data["figures"][0]["data"][0]["x"]
    xs = np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"])
    rows = data["rows"][0][0]
    np.testing.assert_allclose(xs, found.panels[0].points[rows, 0])
    assert [panel.mode for panel in found] == [PoolingMode.CLS, PoolingMode.MEAN]


def test_a_number_is_told_with_interval_and_chance():
    assert number_words(Estimate(0.5, 0.4, 0.61, 0.1)) == "0.50 (0.40 to 0.61; by chance 0.10)"
    assert number_words(None) == "-"


def test_a_scale_can_be_given_directly():
    figure = map_figure(
        np.zeros((2, 2)),
        Colouring("n", numbers=np.array([1.0, 2.0])),
        ["a", "b"],
        "CLS",
        ProjectionMethod.TSNE,
    )
    assert figure.layout.xaxis.title.text == "t-SNE 1"
