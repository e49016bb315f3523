import json
from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest
from fakes import BagEncoder

from lmk_viz.config import PoolingConfig, PoolingMode, ProjectionMethod
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.figures.projection import UNLABELLED, WEBGL_FROM, document_hover, map_figure
from lmk_viz.figures.segments import segment_alt, segment_figure
from lmk_viz.figures.theme import STYLES, assign_colours
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes import SegmentCosines

CLS, MEAN = PoolingMode.CLS, PoolingMode.MEAN
MARKUP = "<script>alert('x')</script> & \"more\""


def named(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.name: trace for trace in figure.data}


# Parts of a document.


def segments_of(**changes: object) -> SegmentCosines:
    settings: dict[str, object] = {
        "borders": np.array([0, 1000, 2000, 3001]),
        "cosines": {CLS: np.array([0.9, 0.5, 0.3]), MEAN: np.array([0.6, np.nan, 0.8])},
        "unrelated": {CLS: 0.1, MEAN: 0.5},
        "poolings": (PoolingConfig(CLS), PoolingConfig(MEAN, include_special=False)),
        "tokens": 3001,
        "tokens_cut": 0,
    }
    return SegmentCosines(**{**settings, **changes})


def test_segments_are_drawn_above_unrelated_text():
    traces = named(segment_figure(segments_of(), "title", "document"))
    assert list(traces) == ["CLS", "Mean, content only"]
    np.testing.assert_allclose(traces["CLS"].y, [0.8, 0.4, 0.2])
    np.testing.assert_allclose(traces["Mean, content only"].y, [0.1, np.nan, 0.3])
    assert list(traces["CLS"].x) == [1, 2, 3]


def test_segments_without_a_control_are_drawn_as_they_are():
    trace = named(segment_figure(segments_of(unrelated={}), "title", "document"))["CLS"]
    np.testing.assert_allclose(trace.y, [0.9, 0.5, 0.3])


def test_segment_axes_name_what_they_count():
    figure = segment_figure(segments_of(), "title", "document")
    assert figure.layout.xaxis.title.text == "part of the document, in order"
    assert figure.layout.yaxis.title.text == "cosine above unrelated text"


def test_the_level_of_unrelated_text_is_marked():
    figure = segment_figure(segments_of(), "title", "document")
    assert [shape.y0 for shape in figure.layout.shapes] == [0]
    assert figure.layout.annotations[0].text == "no closer than unrelated text"


def test_segment_hover_gives_tokens_and_cosine():
    trace = named(segment_figure(segments_of(), "title", "document"))["CLS"]
    assert trace.customdata.tolist() == [
        ["0-1,000", 0.9],
        ["1,000-2,000", 0.5],
        ["2,000-3,001", 0.3],
    ]
    assert "tokens %{customdata[0]}<br>cosine %{customdata[1]:.3f}" in trace.hovertemplate


def test_segments_are_told_with_lowest_and_highest_part():
    assert segment_alt(segments_of()) == (
        "Cosine of 3 equal parts with the whole document, above that of unrelated text: "
        "CLS 0.20 (part 3) to 0.80 (part 1); "
        "Mean, content only 0.10 (part 1) to 0.30 (part 3)."
    )


def test_the_name_of_the_document_is_cut_and_escaped():
    figure = segment_figure(segments_of(), "title", MARKUP + "x" * 99)
    shown = figure.layout.title.subtitle.text
    assert shown.startswith("&lt;script&gt;")
    assert shown.endswith("x")
    assert "x" * 40 not in shown


# Maps.

POINTS = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
LABELS = ["sea", None, "land", "sea"]


def map_of(labels: list[str | None], method: ProjectionMethod = ProjectionMethod.UMAP) -> go.Figure:
    points = np.arange(2.0 * len(labels)).reshape(-1, 2)
    return map_figure(points, labels, [f"row {i}" for i in range(len(labels))], "CLS", method)


def test_a_map_has_a_trace_a_label_in_order_and_one_for_none():
    traces = named(map_of(LABELS))
    assert list(traces) == ["land", "sea", UNLABELLED]
    assert (list(traces["sea"].x), list(traces["sea"].y)) == ([0, 6], [1, 7])
    assert (list(traces["land"].x), list(traces[UNLABELLED].y)) == ([4], [3])


def test_a_point_carries_the_hover_of_its_row():
    assert list(named(map_of(LABELS))["sea"].text) == ["row 0", "row 3"]


@pytest.mark.parametrize(("method", "name"), [("umap", "UMAP"), ("pca", "PCA")])
def test_map_axes_name_the_method_and_show_no_numbers(method, name):
    layout = map_of(LABELS, ProjectionMethod(method)).layout
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == (f"{name} 1", f"{name} 2")
    assert not layout.xaxis.showticklabels
    assert not layout.yaxis.showticklabels


def test_a_unit_is_as_long_across_a_map_as_up():
    axis = map_of(LABELS).layout.yaxis
    assert (axis.scaleanchor, axis.scaleratio) == ("x", 1)


@pytest.mark.parametrize(
    ("n", "kind"), [(WEBGL_FROM, "scatter"), (WEBGL_FROM + 1, "scattergl")], ids=["svg", "webgl"]
)
def test_more_than_a_thousand_points_are_drawn_by_webgl(n, kind):
    assert WEBGL_FROM == 1000
    assert {trace.type for trace in map_of([str(i % 3) for i in range(n)]).data} == {kind}


def test_every_point_is_drawn():
    labels = [str(i % 7) if i % 5 else None for i in range(1234)]
    assert sum(len(trace.x) for trace in map_of(labels).data) == 1234


def hovers(**changes: str | None) -> list[str]:
    settings = {"id": "1", "title": "Title", "text": "a b", "label": "sea", **changes}
    encoder = BagEncoder(settings["text"].split())
    return document_hover(embed_documents(encoder, [Document(**settings)], parse_poolings("mean")))


def test_hover_tells_title_label_length_and_first_words():
    assert hovers() == ["<b>Title</b><br>sea · 2 tokens<br>a b..."]


def test_hover_of_a_document_without_a_label_says_so():
    assert hovers(label=None) == ["<b>Title</b><br>no label · 2 tokens<br>a b..."]


def test_hover_says_where_a_document_was_cut():
    table = embed_documents(
        BagEncoder("a"),
        [Document("1", "long", "a a a"), Document("2", "short", "a")],
        parse_poolings("mean"),
        max_length=4,
    )
    long, short = document_hover(table)
    assert "3 tokens, cut<br>" in long
    assert "1 tokens<br>" in short


@pytest.mark.parametrize("field", ["title", "text", "label"])
def test_markup_in_a_document_never_reaches_its_hover(field):
    (shown,) = hovers(**{field: MARKUP})
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown


def test_markup_in_a_label_never_reaches_the_figure():
    figure = map_of([MARKUP, "sea"])
    assert "<script" not in json.dumps(figure.to_plotly_json(), default=str)
    assert figure.data[0].name.startswith("&lt;script&gt;")


# Shared looks.


@pytest.mark.parametrize("pair", list(combinations(PoolingMode, 2)), ids="-".join)
def test_no_two_poolings_share_a_colour_a_dash_or_a_marker(pair):
    one, other = (STYLES[mode] for mode in pair)
    assert one.colour != other.colour
    assert one.dash != other.dash
    assert one.marker != other.marker


def test_every_pooling_is_drawn_in_its_own_style():
    poolings = tuple(PoolingConfig(mode) for mode in PoolingMode)
    result = segments_of(
        cosines=dict.fromkeys(PoolingMode, np.ones(3)), unrelated={}, poolings=poolings
    )
    traces = segment_figure(result, "title", "document").data
    for mode, trace in zip(PoolingMode, traces, strict=True):
        drawn = (trace.line.color, trace.line.dash, trace.marker.symbol)
        assert drawn == (STYLES[mode].colour, STYLES[mode].dash, STYLES[mode].marker)


def test_a_hundred_labels_look_different():
    assert len(set(assign_colours([str(i) for i in range(100)]).values())) == 100


@pytest.mark.parametrize(
    "figure",
    [
        segment_figure(segments_of(), "title", "document"),
        map_of(LABELS),
    ],
    ids=["segments", "map"],
)
def test_every_figure_has_a_short_title_and_turns_to_json(figure):
    assert 0 < len(figure.layout.title.text) <= 40
    assert json.loads(figure.to_json())["data"]
