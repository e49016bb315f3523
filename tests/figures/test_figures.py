import json
from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest
from fakes import BagEncoder

from lmk_viz.attention import AttentionProfile
from lmk_viz.config import LayerKind, PoolingConfig, PoolingMode, ProjectionMethod
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.figures.attention import (
    decay_alt,
    decay_figure,
    special_share_alt,
    special_share_figure,
    special_shares,
)
from lmk_viz.figures.projection import UNLABELLED, WEBGL_FROM, document_hover, map_figure
from lmk_viz.figures.segments import segment_alt, segment_figure
from lmk_viz.figures.theme import STYLES, assign_colours
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes import SegmentCosines

CLS, MEAN, LMK = PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK
MARKUP = "<script>alert('x')</script> & \"more\""


def named(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.name: trace for trace in figure.data}


# Attention by position: two layers of two heads, three bins of ten, ten and twenty tokens.

CLS_MASS = np.array(
    [[[0.4, 0.2, 0.2], [0.2, 0.1, 0.1]], [[0.5, 0.0, 0.0], [0.3, 0.3, 0.0]]], dtype=np.float32
)
CLS_SPECIAL = np.array(
    [[[0.1, 0.1, 0.0], [0.3, 0.2, 0.1]], [[0.2, 0.2, 0.1], [0.2, 0.1, 0.1]]], dtype=np.float32
)
LMK_MASS = np.full((2, 2, 3), 0.2, dtype=np.float32)
LMK_SPECIAL = np.tile(np.array([0.1, 0.3, 0.0], dtype=np.float32), (2, 2, 1))
FIRST_TENTH = np.array([[0.32, 0.28], [0.9, 0.5]], dtype=np.float32)


def profile_of(**changes: object) -> AttentionProfile:
    scalars = np.zeros((2, 2, 4), dtype=np.float32)
    scalars[..., 0] = FIRST_TENTH
    settings: dict[str, object] = {
        "layer_kinds": (LayerKind.GLOBAL, LayerKind.LOCAL),
        "windows": (None, 4),
        "edges": np.array([0, 10, 20, 40]),
        "n_content": 40,
        "landmark_tokens": np.array([16, 32, 40]),
        "cls_mass": CLS_MASS,
        "cls_special": CLS_SPECIAL,
        "landmark_mass": LMK_MASS,
        "landmark_special": LMK_SPECIAL,
        "cls_scalars": scalars,
        "landmark_scalars": np.full((2, 2, 4), 0.25, dtype=np.float32),
    }
    return AttentionProfile(**{**settings, **changes})


def plain_profile() -> AttentionProfile:
    return profile_of(
        landmark_mass=None,
        landmark_special=None,
        landmark_scalars=None,
        landmark_tokens=np.array([], dtype=np.int64),
    )


def test_decay_has_a_line_a_row_the_uniform_line_and_the_landmarks():
    figure = decay_figure(profile_of(), [0], None, "words")
    assert list(named(figure)) == [
        "CLS row",
        "mean landmark row",
        "uniform, 1/n = 0.025",
        "landmarks",
    ]


def test_decay_of_a_plain_layout_has_no_landmarks():
    figure = decay_figure(plain_profile(), [0], None, "words")
    assert list(named(figure)) == ["CLS row", "uniform, 1/n = 0.025"]


@pytest.mark.parametrize(
    ("layers", "head", "wanted"),
    [
        # 0.4, 0.2, 0.2 of 0.8 over 10, 10 and 20 tokens.
        ([0], 0, [0.05, 0.025, 0.0125]),
        # The other head's 0.2, 0.1, 0.1 of 0.4 are the same shares.
        ([0], None, [0.05, 0.025, 0.0125]),
        ([1], 1, [0.05, 0.05, 0.0]),
        # 1, 0, 0 and 1/2, 1/2, 0.
        ([1], None, [0.075, 0.025, 0.0]),
        ([0, 1], None, [0.0625, 0.025, 0.00625]),
    ],
    ids=["one head", "mean over heads", "other head", "other layer", "both layers"],
)
def test_decay_draws_the_mean_weight_of_a_token_at_the_middle_of_each_bin(layers, head, wanted):
    trace = named(decay_figure(profile_of(), layers, head, "words", log=False))["CLS row"]
    assert list(trace.x) == [5.0, 15.0, 30.0]
    np.testing.assert_allclose(trace.y, wanted, rtol=0, atol=1e-7)


def test_decay_draws_the_weights_of_the_result():
    profile = profile_of()
    trace = named(decay_figure(profile, [0, 1], 1, "words"))["mean landmark row"]
    wanted = profile.weight_per_token(profile.rows()[LMK].mass, [0, 1], 1)
    np.testing.assert_array_equal(trace.y, wanted)


def test_a_logarithmic_axis_has_a_gap_where_there_is_no_weight():
    figure = decay_figure(profile_of(), [1], None, "words", log=True)
    y = np.asarray(named(figure)["CLS row"].y, dtype=float)
    assert figure.layout.yaxis.type == "log"
    np.testing.assert_allclose(y, [0.075, 0.025, np.nan], rtol=1e-6)


def test_a_linear_axis_shows_the_zero_and_starts_there():
    figure = decay_figure(profile_of(), [1], None, "words", log=False)
    assert named(figure)["CLS row"].y[2] == 0.0
    assert (figure.layout.yaxis.type, figure.layout.yaxis.rangemode) == ("linear", "tozero")


def test_the_uniform_line_stands_at_one_nth_along_the_whole_text():
    trace = named(decay_figure(profile_of(), [0], None, "words"))["uniform, 1/n = 0.025"]
    assert list(trace.y) == [1 / 40, 1 / 40]
    assert list(trace.x) == [0, 40]


def test_landmarks_stand_behind_their_tokens():
    trace = named(decay_figure(profile_of(), [0], None, "words"))["landmarks"]
    assert list(trace.x) == [16, 32, 40]


def test_single_landmarks_are_drawn_from_the_kept_rows():
    kept = np.zeros((2, 3, 3), dtype=np.float32)
    kept[:, 2] = [0.1, 0.1, 0.2]
    figure = decay_figure(profile_of(landmark_map=kept), [0, 1], None, "words", landmarks=[2])
    trace = named(figure)["landmark 2 (mean over heads)"]
    np.testing.assert_allclose(trace.y, [0.025, 0.025, 0.025], rtol=1e-6)


def test_single_landmarks_need_the_kept_rows():
    assert len(decay_figure(profile_of(), [0], None, "words", landmarks=[0, 1]).data) == 4


def test_the_control_is_drawn_thin_beside_each_row():
    control = profile_of(cls_mass=np.full((2, 2, 3), 0.1, dtype=np.float32))
    traces = named(decay_figure(profile_of(), [0], None, "words", control=control))
    np.testing.assert_allclose(
        traces["random weights, CLS row"].y, [1 / 30, 1 / 30, 1 / 60], rtol=1e-6
    )
    assert traces["random weights, CLS row"].line.width < traces["CLS row"].line.width
    assert "random weights, mean landmark row" in traces


def test_decay_axes_name_what_they_count():
    figure = decay_figure(profile_of(), [0], None, "words")
    assert figure.layout.xaxis.title.text == "position in the text (tokens)"
    assert figure.layout.yaxis.title.text == "mean weight per text token"


def test_decay_names_layers_and_heads_under_its_title():
    figure = decay_figure(profile_of(), [0], None, "layer L0, mean over heads")
    assert figure.layout.title.subtitle.text == "layer L0, mean over heads"


def test_decay_hover_gives_the_tokens_of_the_bin():
    trace = named(decay_figure(profile_of(), [0], None, "words"))["CLS row"]
    assert list(trace.customdata) == ["0-10", "10-20", "20-40"]
    assert "tokens %{customdata}" in trace.hovertemplate


@pytest.mark.parametrize(
    ("layers", "head", "cls"),
    [([0], None, "30%"), ([1], 0, "90%"), ([0, 1], None, "50%")],
    ids=["mean over heads", "one head", "both layers"],
)
def test_decay_is_told_with_the_share_on_the_first_tenth(layers, head, cls):
    said = decay_alt(profile_of(), layers, head)
    assert f"the CLS row puts {cls} of its text weight on the first tenth" in said
    assert "the mean landmark row puts 25% of its" in said
    assert "over 40 text tokens" in said


# What specials take.


@pytest.mark.parametrize(
    ("layers", "head", "wanted"),
    [
        ([0], 0, (0.8, 0.1, 0.1, 0.0)),
        ([0], None, (0.6, 0.2, 0.15, 0.05)),
        ([0, 1], None, (0.575, 0.2, 0.15, 0.075)),
    ],
    ids=["one head", "mean over heads", "both layers"],
)
def test_special_shares_by_hand(layers, head, wanted):
    assert special_shares(profile_of(), layers, head)[CLS] == pytest.approx(wanted, abs=1e-6)


def test_the_share_figure_stacks_the_shares_of_each_row():
    figure = special_share_figure(profile_of(), [0], None, "words")
    assert [bar.name for bar in figure.data] == ["text", "CLS", "landmarks", "other specials"]
    assert figure.layout.barmode == "stack"
    for i, bar in enumerate(figure.data):
        assert list(bar.y) == ["CLS row", "mean landmark row"]
        wanted = [share[i] for share in special_shares(profile_of(), [0], None).values()]
        assert list(bar.x) == wanted


def test_the_bars_of_a_row_reach_one():
    figure = special_share_figure(profile_of(), [0, 1], None, "words")
    np.testing.assert_allclose(np.sum([bar.x for bar in figure.data], axis=0), 1.0, atol=1e-6)


def test_only_bars_wide_enough_carry_their_number():
    figure = special_share_figure(profile_of(), [0], 0, "words")
    assert [bar.text[0] for bar in figure.data] == ["80%", "10%", "10%", ""]


def test_the_share_axis_is_a_share_of_the_row():
    axis = special_share_figure(profile_of(), [0], None, "words").layout.xaxis
    assert axis.title.text == "share of the row"
    assert tuple(axis.range) == (0, 1)
    assert axis.tickformat == ".0%"


def test_shares_are_told_with_their_numbers():
    assert special_share_alt(profile_of(), [0], 0) == (
        "the CLS row puts 80% on text, 10% on CLS, 10% on landmarks, 0% on other specials; "
        "the mean landmark row puts 60% on text, 10% on CLS, 30% on landmarks, 0% on other "
        "specials"
    )


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


@pytest.mark.parametrize("mode", [CLS, LMK])
def test_a_row_is_drawn_in_the_style_of_its_pooling(mode):
    name = {CLS: "CLS row", LMK: "mean landmark row"}[mode]
    line = named(decay_figure(profile_of(), [0], None, "words"))[name].line
    assert (line.color, line.dash) == (STYLES[mode].colour, STYLES[mode].dash)


def test_a_hundred_labels_look_different():
    assert len(set(assign_colours([str(i) for i in range(100)]).values())) == 100


@pytest.mark.parametrize(
    "figure",
    [
        decay_figure(profile_of(), [0], None, "words"),
        special_share_figure(profile_of(), [0], None, "words"),
        segment_figure(segments_of(), "title", "document"),
        map_of(LABELS),
    ],
    ids=["decay", "shares", "segments", "map"],
)
def test_every_figure_has_a_short_title_and_turns_to_json(figure):
    assert 0 < len(figure.layout.title.text) <= 40
    assert json.loads(figure.to_json())["data"]
