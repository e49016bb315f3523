"""Attention figures: hand-made profiles, and random ones against plain numpy."""

import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest

from lmk_viz.attention_profile import (
    SCALARS,
    AttentionProfile,
    ProfileRow,
    bin_edges,
    distance_edges,
)
from lmk_viz.config import LayerKind, PoolingMode
from lmk_viz.figures.attention import (
    Curve,
    decay_alt,
    decay_figure,
    distance_alt,
    distance_figure,
    special_share_alt,
    special_share_figure,
    spread_figure,
)
from lmk_viz.figures.attention_maps import (
    MAP_SCALARS,
    head_map_alt,
    head_map_figure,
    head_values,
    landmark_map_alt,
    landmark_map_figure,
)
from lmk_viz.figures.rope import rope_alt, rope_figure
from lmk_viz.figures.theme import STYLES
from lmk_viz.rope import inverse_frequencies, rope_kernel, smoothed_kernel

CLS, LMK = PoolingMode.CLS, PoolingMode.LANDMARK
LARGEST_JSON = 1.5e6
"""Characters of one figure: more makes a page slow to load."""

# Two layers of two heads, three position bins of ten, ten and twenty tokens.
CLS_MASS = np.array(
    [[[0.4, 0.2, 0.2], [0.2, 0.1, 0.1]], [[0.5, 0.0, 0.0], [0.3, 0.3, 0.0]]], dtype=np.float32
)
CLS_SPECIAL = np.array(
    [[[0.1, 0.1, 0.0], [0.3, 0.2, 0.1]], [[0.2, 0.2, 0.1], [0.2, 0.1, 0.1]]], dtype=np.float32
)
FIRST_TENTH = np.array([[0.32, 0.28], [0.9, 0.5]], dtype=np.float32)
# Distances -5..-3, -2, -1, 0, 1, 2, 3, 4..5.
DISTANCES = np.array([-5, -2, -1, 0, 1, 2, 3, 4, 6])
CLS_DISTANCE = np.zeros((2, 2, 8), dtype=np.float32)
CLS_DISTANCE[0] = [[0, 0, 0, 0, 0.4, 0.2, 0.0, 0.2], [0, 0, 0, 0, 0.1, 0.1, 0.1, 0.1]]
CLS_DISTANCE[1] = [[0, 0, 0, 0, 0.5, 0, 0, 0], [0, 0, 0, 0, 0.3, 0.3, 0, 0]]
CLS_KEYS = np.array([0, 0, 0, 0, 1.0, 1.0, 1.0, 2.0])
LMK_DISTANCE = np.full((2, 2, 8), 0.075, dtype=np.float32)
LMK_KEYS = np.array([3.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.5, 0.5])


def scalars_of(first_tenth: np.ndarray) -> np.ndarray:
    rest = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 16
    return np.concatenate([first_tenth[..., None], rest], axis=-1)


CLS_ROW = ProfileRow(CLS_MASS, CLS_SPECIAL, scalars_of(FIRST_TENTH), CLS_DISTANCE, CLS_KEYS)
LMK_ROW = ProfileRow(
    np.full((2, 2, 3), 0.2, dtype=np.float32),
    np.tile(np.array([0.1, 0.3, 0.0], dtype=np.float32), (2, 2, 1)),
    scalars_of(np.full((2, 2), 0.25, dtype=np.float32)),
    LMK_DISTANCE,
    LMK_KEYS,
)


def profile_of(**changes: object) -> AttentionProfile:
    settings: dict[str, object] = {
        "layer_kinds": (LayerKind.GLOBAL, LayerKind.LOCAL),
        "windows": (None, 4),
        "layers_expected": 2,
        "edges": np.array([0, 10, 20, 40]),
        "distance_edges": DISTANCES,
        "n_content": 40,
        "landmark_tokens": np.array([16, 32, 40]),
        "rows": {CLS: CLS_ROW, LMK: LMK_ROW},
    }
    return AttentionProfile(**{**settings, **changes})


def plain_profile() -> AttentionProfile:
    return profile_of(rows={CLS: CLS_ROW}, landmark_tokens=np.array([], dtype=np.int64))


def random_profile(
    layers: int = 3, heads: int = 2, n: int = 400, bins: int = 20, landmarks: int = 5, seed: int = 0
) -> AttentionProfile:
    """A profile of random masses that sum to 1 in each row, as those of an encoder do."""
    rng = np.random.default_rng(seed)
    edges, reach = bin_edges(n, bins), distance_edges(n + landmarks + 2)

    def row(sides: int) -> ProfileRow:
        whole = rng.random((layers, heads, len(edges) + 2), dtype=np.float32)
        whole /= whole.sum(axis=-1, keepdims=True)
        keys = np.diff(reach).astype(float)
        if sides == 1:
            keys[reach[:-1] <= 0] = 0.0
        shares = rng.random((layers, heads, len(keys))) * (keys > 0)
        distance = shares / shares.sum(axis=-1, keepdims=True)
        distance *= whole[..., :-3].sum(axis=-1, keepdims=True)
        scalars = rng.random((layers, heads, len(SCALARS)), dtype=np.float32)
        return ProfileRow(
            whole[..., :-3], whole[..., -3:], scalars, distance.astype(np.float32), keys
        )

    return AttentionProfile(
        layer_kinds=tuple(LayerKind.LOCAL if i % 3 else LayerKind.GLOBAL for i in range(layers)),
        windows=tuple(64 if i % 3 else None for i in range(layers)),
        layers_expected=layers,
        edges=edges,
        distance_edges=reach,
        n_content=n,
        landmark_tokens=np.arange(1, landmarks + 1) * n // landmarks,
        rows={CLS: row(1), LMK: row(2)},
        landmark_map=rng.random((layers, landmarks, len(edges) - 1), dtype=np.float32),
    )


def named(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.name: trace for trace in figure.data}


def decay(profile: AttentionProfile, layers: list[int], head: int | None, **more: object):
    return decay_figure([Curve(profile)], [layers], head, "words", **more)


def distance(profile: AttentionProfile, layers: list[int], head: int | None, log: bool = True):
    return distance_figure([Curve(profile)], [layers], head, "words", log)


# By position.


def test_decay_has_a_line_a_row_the_uniform_line_and_the_landmarks():
    names = list(named(decay(profile_of(), [0], None)))
    assert names == ["CLS row", "mean landmark row", "uniform, 1/n = 0.025", "landmarks"]


def test_decay_of_a_plain_layout_has_no_landmarks():
    assert list(named(decay(plain_profile(), [0], None))) == ["CLS row", "uniform, 1/n = 0.025"]


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
    trace = named(decay(profile_of(), layers, head, log=False))["CLS row"]
    assert list(trace.x) == [5.0, 15.0, 30.0]
    np.testing.assert_allclose(trace.y, wanted, rtol=0, atol=1e-7)


def test_decay_draws_the_weights_of_the_profile():
    profile = random_profile()
    trace = named(decay(profile, [0, 2], 1))["mean landmark row"]
    np.testing.assert_array_equal(trace.y, profile.weight_per_token(LMK, [0, 2], 1))


def test_a_logarithmic_axis_has_a_gap_where_there_is_no_weight():
    figure = decay(profile_of(), [1], None)
    y = np.asarray(named(figure)["CLS row"].y, dtype=float)
    assert figure.layout.yaxis.type == "log"
    np.testing.assert_allclose(y, [0.075, 0.025, np.nan], rtol=1e-6)


def test_a_linear_axis_shows_the_zero_and_starts_there():
    figure = decay(profile_of(), [1], None, log=False)
    assert named(figure)["CLS row"].y[2] == 0.0
    assert (figure.layout.yaxis.type, figure.layout.yaxis.rangemode) == ("linear", "tozero")


def test_logarithmic_ticks_are_written_as_the_numbers_they_stand_at():
    axis = decay(profile_of(), [0], None).layout.yaxis
    assert [float(text) for text in axis.ticktext] == pytest.approx(list(axis.tickvals))


def test_the_uniform_line_stands_at_one_nth_along_the_whole_text():
    trace = named(decay(profile_of(), [0], None))["uniform, 1/n = 0.025"]
    assert (list(trace.x), list(trace.y)) == ([0, 40], [1 / 40, 1 / 40])


def test_landmarks_stand_behind_their_tokens():
    assert list(named(decay(profile_of(), [0], None))["landmarks"].x) == [16, 32, 40]


def test_single_landmarks_are_drawn_from_the_kept_rows():
    kept = np.zeros((2, 3, 3), dtype=np.float32)
    kept[:, 2] = [0.1, 0.1, 0.2]
    figure = decay(profile_of(landmark_map=kept), [0, 1], None, landmarks=[2])
    trace = named(figure)["landmark 2 (mean over heads)"]
    np.testing.assert_allclose(trace.y, [0.025, 0.025, 0.025], rtol=1e-6)


def test_single_landmarks_need_the_kept_rows():
    assert len(decay(profile_of(), [0], None, landmarks=[0, 1]).data) == 4


def test_single_landmarks_have_a_colour_each_that_no_row_has():
    figure = decay(random_profile(), [0], None, landmarks=[0, 1, 3, 4])
    lines = [t.line.color for t in figure.data if t.name and t.name.startswith("landmark ")]
    assert len({*lines, STYLES[CLS].colour, STYLES[LMK].colour}) == 6


def test_decay_axes_name_what_they_count():
    layout = decay(profile_of(), [0], None).layout
    assert layout.xaxis.title.text == "position in the text (tokens)"
    assert layout.yaxis.title.text == "mean weight per text token"


def test_decay_names_layers_and_heads_under_its_title():
    figure = decay_figure([Curve(profile_of())], [[0]], None, "layer L0, mean over heads")
    assert figure.layout.title.subtitle.text == "layer L0, mean over heads"


def test_decay_hover_gives_the_tokens_of_the_bin():
    trace = named(decay(profile_of(), [0], None))["CLS row"]
    assert list(trace.customdata) == ["0-10", "10-20", "20-40"]
    assert "tokens %{customdata}" in trace.hovertemplate


@pytest.mark.parametrize("mode", [CLS, LMK])
def test_a_row_is_drawn_in_the_style_of_its_pooling(mode):
    name = {CLS: "CLS row", LMK: "mean landmark row"}[mode]
    line = named(decay(profile_of(), [0], None))[name].line
    assert (line.color, line.dash) == (STYLES[mode].colour, STYLES[mode].dash)


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


# Several curves.


def three_curves() -> tuple[list[Curve], list[list[int]]]:
    """The page's own profile, its control, and an encoder with other tokens and layers."""
    other = random_profile(layers=5, heads=3, n=90, bins=9, landmarks=2, seed=2)
    curves = [
        Curve(random_profile()),
        Curve(random_profile(seed=1), "random weights", "dot", 1.2),
        Curve(other, "acme/other", "dashdot", 1.2),
    ]
    return curves, [[0, 1], [0, 1], [4]]


@pytest.mark.parametrize("draw", [decay_figure, distance_figure])
def test_every_curve_has_its_rows_under_its_own_name(draw):
    names = [trace.name for trace in draw(*three_curves(), None, "words").data]
    assert names[:6] == [
        *("CLS row", "mean landmark row"),
        *("random weights, CLS row", "random weights, mean landmark row"),
        *("acme/other, CLS row", "acme/other, mean landmark row"),
    ]


@pytest.mark.parametrize("draw", [decay_figure, distance_figure])
@pytest.mark.parametrize("row", ["CLS row", "mean landmark row"])
def test_curves_of_one_row_share_its_colour_and_differ_in_their_dash(draw, row):
    traces = named(draw(*three_curves(), None, "words"))
    lines = [traces[name].line for name in (row, f"random weights, {row}", f"acme/other, {row}")]
    assert len({line.color for line in lines}) == 1
    assert len({line.dash for line in lines}) == 3


@pytest.mark.parametrize("draw", [decay_figure, distance_figure])
def test_the_control_is_drawn_thinner_than_the_encoder(draw):
    traces = named(draw(*three_curves(), None, "words"))
    assert traces["random weights, CLS row"].line.width < traces["CLS row"].line.width


def test_each_curve_is_averaged_over_its_own_layers_on_its_own_tokens():
    curves, layers = three_curves()
    trace = named(decay_figure(curves, layers, 1, "words"))["acme/other, CLS row"]
    other = curves[2].profile
    np.testing.assert_array_equal(trace.y, other.weight_per_token(CLS, [4], 1))
    np.testing.assert_array_equal(trace.x, np.arange(9) * 10 + 5)


def test_a_second_curve_changes_neither_the_uniform_line_nor_the_axis():
    figure = decay_figure(*three_curves(), None, "words")
    assert list(named(figure)["uniform, 1/n = 0.0025"].y) == [1 / 400, 1 / 400]
    assert tuple(figure.layout.xaxis.range) == (0, 400)


def test_curves_without_layers_of_their_own_are_an_error():
    curves, layers = three_curves()
    with pytest.raises(ValueError, match="shorter"):
        decay_figure(curves, layers[:2], None, "words")


# By distance.


def test_distance_has_a_line_a_row():
    assert list(named(distance(profile_of(), [0], None))) == ["CLS row", "mean landmark row"]


def test_distance_draws_the_mean_weight_of_a_token_at_each_distance():
    trace = named(distance(profile_of(), [0], 0, log=False))["CLS row"]
    # 0.4, 0.2, 0, 0.2 of 0.8 over one, one, one and two tokens; behind CLS alone.
    wanted = [np.nan] * 4 + [0.5, 0.25, 0.0, 0.125]
    np.testing.assert_allclose(trace.y, wanted, rtol=1e-6)


def test_distance_draws_the_weights_of_the_profile():
    profile = random_profile()
    trace = named(distance(profile, [1, 2], 0))["mean landmark row"]
    np.testing.assert_array_equal(trace.y, profile.weight_by_distance(LMK, [1, 2], 0))


def test_logarithmic_distance_has_a_gap_where_there_is_no_weight():
    y = np.asarray(named(distance(profile_of(), [0], 0))["CLS row"].y, dtype=float)
    np.testing.assert_allclose(y, [np.nan] * 4 + [0.5, 0.25, np.nan, 0.125], rtol=1e-6)


def test_distance_is_drawn_on_a_logarithm_to_both_sides_of_zero():
    trace = named(distance(profile_of(), [0], None))["CLS row"]
    middles = [-4, -2, -1, 0, 1, 2, 3, 4.5]
    wanted = [math.copysign(math.log2(1 + abs(middle)), middle) for middle in middles]
    np.testing.assert_allclose(trace.x, wanted, atol=1e-12)


def test_distance_ticks_are_powers_of_four_written_where_they_stand():
    profile = random_profile(n=3000)
    axis = distance(profile, [0], None).layout.xaxis
    wanted = [-1024, -256, -64, -16, -4, -1, 0, 1, 4, 16, 64, 256, 1024]
    assert list(axis.ticktext) == [f"{tick:,}" for tick in wanted]
    back = [math.copysign(2 ** abs(place) - 1, place) for place in axis.tickvals]
    np.testing.assert_allclose(back, wanted, rtol=1e-12)


def test_distance_hover_gives_the_range_of_the_bin():
    profile = random_profile(n=20, landmarks=1)
    trace = named(distance(profile, [0], None))["CLS row"]
    middle = list(trace.customdata).index("0")
    assert list(trace.customdata)[middle : middle + 6] == ["0", "1", "2", "3", "4 to 5", "6 to 7"]
    assert list(trace.customdata)[middle - 4 : middle] == ["-5 to -4", "-3", "-2", "-1"]
    assert "distance %{customdata} tokens" in trace.hovertemplate


def test_distance_axes_name_what_they_count():
    layout = distance(profile_of(), [0], None).layout
    assert layout.xaxis.title.text == "distance, key position less query position (tokens)"
    assert layout.yaxis.title.text == "mean weight per text token"


def test_distance_is_told_with_the_heaviest_distance_of_each_row():
    # Landmarks: 0.075 of 0.6 a bin, over half a token at distance 3 and at 4 to 5.
    assert distance_alt(profile_of(), [0], 0) == (
        "Attention weight per token by distance: the CLS row weighs tokens at distance 1 most, "
        "0.5 each; the mean landmark row weighs tokens at distance 3 most, 0.25 each; uniform is "
        "0.025."
    )


# Over documents.


def three_documents() -> list[tuple[str, AttentionProfile]]:
    # Twenty equal bins each, so that their middles are the places drawn.
    sizes = enumerate([40, 200, 4000])
    return [(f"doc {i}", random_profile(n=n, bins=20, seed=i)) for i, n in sizes]


def relative_weights(mode: PoolingMode, layers: list[int], head: int) -> np.ndarray:
    """Weight by uniform in each twentieth of three documents, shape (3, 20), by hand."""
    found = []
    for _, profile in three_documents():
        mass = profile.rows[mode].mass[layers, head].astype(float)
        found.append((mass / mass.sum(axis=-1, keepdims=True)).mean(axis=0) * 20)
    return np.stack(found)


@pytest.mark.parametrize(("mode", "at"), [(CLS, 0), (LMK, 2)])
def test_the_band_runs_from_the_lowest_to_the_highest_document(mode, at):
    band = spread_figure(three_documents(), [0, 2], 1, "words").data[at]
    wanted = relative_weights(mode, [0, 2], 1)
    np.testing.assert_allclose(band.y[:20], wanted.max(axis=0), rtol=1e-5)
    np.testing.assert_allclose(band.y[20:], wanted.min(axis=0)[::-1], rtol=1e-5)
    np.testing.assert_allclose(band.x[:20], (np.arange(20) + 0.5) / 20)
    np.testing.assert_allclose(band.x[20:], band.x[:20][::-1])


@pytest.mark.parametrize(("mode", "at"), [(CLS, 1), (LMK, 3)])
def test_the_line_is_the_mean_of_the_documents_and_carries_the_band(mode, at):
    line = spread_figure(three_documents(), [1], 0, "words").data[at]
    wanted = relative_weights(mode, [1], 0)
    np.testing.assert_allclose(line.y, wanted.mean(axis=0), rtol=1e-5)
    ends = np.stack([wanted.min(axis=0), wanted.max(axis=0)], axis=1)
    np.testing.assert_allclose(line.customdata, ends, rtol=1e-5)


def test_spread_names_its_bands_its_lines_and_how_many_documents():
    assert [t.name for t in spread_figure(three_documents(), [0], None, "words").data] == [
        "CLS row: lowest to highest document",
        "CLS row: mean of 3 documents",
        "mean landmark row: lowest to highest document",
        "mean landmark row: mean of 3 documents",
    ]


def test_spread_of_plain_inputs_has_the_cls_row_alone():
    profiles = [("one", plain_profile()), ("two", plain_profile())]
    assert len(spread_figure(profiles, [0], None, "words").data) == 2


def test_spread_axes_name_what_they_count_and_uniform_is_one():
    layout = spread_figure(three_documents(), [0], None, "words").layout
    assert layout.xaxis.title.text == "position in the text (share of its length)"
    assert layout.yaxis.title.text == "weight per token / uniform"
    assert [shape.y0 for shape in layout.shapes] == [1]


# What specials take.


def test_the_share_figure_stacks_the_shares_of_each_row():
    figure = special_share_figure(profile_of(), [0], None, "words")
    assert [bar.name for bar in figure.data] == ["text", "CLS", "landmarks", "other specials"]
    assert figure.layout.barmode == "stack"
    wanted = [[0.6, 0.6], [0.2, 0.1], [0.15, 0.3], [0.05, 0.0]]
    np.testing.assert_allclose([bar.x for bar in figure.data], wanted, atol=1e-6)
    assert {tuple(bar.y) for bar in figure.data} == {("CLS row", "mean landmark row")}


def test_the_bars_of_a_row_reach_one():
    figure = special_share_figure(random_profile(), [0, 1], None, "words")
    np.testing.assert_allclose(np.sum([bar.x for bar in figure.data], axis=0), 1.0, atol=1e-6)


def test_only_bars_wide_enough_carry_their_number():
    figure = special_share_figure(profile_of(), [0], 0, "words")
    assert [bar.text[0] for bar in figure.data] == ["80%", "10%", "10%", ""]


def test_the_share_axis_is_a_share_of_the_row():
    axis = special_share_figure(profile_of(), [0], None, "words").layout.xaxis
    assert axis.title.text == "share of the row"
    assert (tuple(axis.range), axis.tickformat) == ((0, 1), ".0%")


def test_shares_are_told_with_their_numbers():
    assert special_share_alt(profile_of(), [0], 0) == (
        "the CLS row puts 80% on text, 10% on CLS, 10% on landmarks, 0% on other specials; "
        "the mean landmark row puts 60% on text, 10% on CLS, 30% on landmarks, 0% on other "
        "specials"
    )


# Layer by head.


@pytest.mark.parametrize("mode", [CLS, LMK])
@pytest.mark.parametrize("scalar", MAP_SCALARS)
def test_the_head_map_shows_its_number_in_every_layer_and_head(scalar, mode):
    profile = random_profile(layers=4, heads=3)
    heat = head_map_figure(profile, mode, scalar, None).data[0]
    row = profile.rows[mode]
    for layer in range(4):
        for head in range(3):
            wanted = (
                row.special[layer, head, 1]
                if scalar == "landmark_share"
                else row.scalars[layer, head, SCALARS.index(scalar)]
            )
            assert heat.z[layer][head] == wanted
    assert list(heat.x) == ["H0", "H1", "H2"]
    assert list(heat.y) == ["L0 global", "L1 local", "L2 local", "L3 global"]


def test_every_cell_of_the_head_map_can_be_chosen_and_names_its_layer_and_head():
    profile = random_profile(layers=4, heads=3)
    cells = head_map_figure(profile, CLS, "entropy", None).data[1]
    assert len(cells.x) == 12
    for x, y, (layer, head), text in zip(
        cells.x, cells.y, cells.customdata, cells.text, strict=True
    ):
        assert (x, y.split()[0]) == (f"H{head}", f"L{layer}")
        assert text == f"{profile.rows[CLS].scalars[layer, head, 3]:.3f}"


def test_the_chosen_cell_of_the_head_map_is_framed():
    (frame,) = head_map_figure(random_profile(), CLS, "entropy", (2, 1)).layout.shapes
    assert (frame.type, frame.x0, frame.x1, frame.y0, frame.y1) == ("rect", 0.5, 1.5, 1.5, 2.5)


def test_the_head_map_of_a_mean_frames_no_cell():
    assert head_map_figure(random_profile(), CLS, "entropy", None).layout.shapes == ()


def test_head_map_axes_and_colours_name_what_they_show():
    figure = head_map_figure(random_profile(), LMK, "first_tenth", None)
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("head", "layer")
    assert figure.data[0].colorbar.title.text == "mass on the first tenth"
    assert figure.layout.title.subtitle.text == (
        "mean landmark row: mass on the first tenth; even attention 0.1"
    )


def test_the_first_layer_stands_on_top_of_the_head_map():
    axis = head_map_figure(random_profile(), CLS, "entropy", None).layout.yaxis
    assert axis.autorange == "reversed"


def test_no_even_value_is_named_where_there_is_none():
    figure = head_map_figure(random_profile(), CLS, "landmark_share", None)
    assert figure.layout.title.subtitle.text == "CLS row: share on landmarks"


def test_an_even_row_has_the_even_values_that_the_map_names():
    # Of the row 1/n on n tokens, written as defined: a border, a centre, a median, an entropy.
    n = 1000
    even = np.full(n, 1 / n)
    places = np.arange(n) / (n - 1)
    values = {
        "first_tenth": even[: n // 10].sum(),
        "centre_of_mass": even @ places,
        "half_mass_position": places[np.searchsorted(even.cumsum(), 0.5 - 1e-9)],
        "entropy": -(even * np.log(even)).sum() / math.log(n),
    }
    named_values = {k: v for k, (_, v) in MAP_SCALARS.items() if v is not None}
    assert named_values == pytest.approx(values, abs=1e-3)


def test_the_head_map_is_told_with_its_lowest_highest_and_mean():
    assert head_map_alt(profile_of(), CLS, "first_tenth") == (
        "CLS row, mass on the first tenth in 2 layers by 2 heads: lowest 0.280 at L0 H1, highest "
        "0.900 at L1 H0, mean 0.500"
    )


def test_head_values_of_a_row_that_the_profile_has_not_got_are_an_error():
    with pytest.raises(KeyError):
        head_values(plain_profile(), LMK, "entropy")


# Landmark by position.


def merged_ratio(profile: AttentionProfile, layers: list[int], rows: int, bins: int) -> np.ndarray:
    """Weight by uniform of `rows` landmarks and `bins` bins at a time, cell by cell."""
    kept = profile.landmark_map.astype(float)
    weights = np.zeros(kept.shape[1:])
    for layer in layers:
        for number in range(len(weights)):
            weights[number] += kept[layer, number] / kept[layer, number].sum() / len(layers)
    found = []
    for first in range(0, weights.shape[0], rows):
        line = []
        for start in range(0, weights.shape[1], bins):
            cell = weights[first : first + rows, start : start + bins]
            end = min(start + bins, weights.shape[1])
            tokens = profile.edges[end] - profile.edges[start]
            line.append(cell.sum() / len(cell) / tokens * profile.n_content)
        found.append(line)
    return np.asarray(found)


MERGES = {
    "nothing merged": (5, 20, 1, 1),
    "as many as are sent": (256, 128, 1, 1),
    "bins": (3, 129, 1, 2),
    "bins, a rest": (3, 1024, 1, 8),
    "landmarks": (257, 8, 2, 1),
    "both, with rests": (600, 259, 3, 3),
}


@pytest.mark.parametrize(("landmarks", "bins", "rows", "step"), MERGES.values(), ids=MERGES)
def test_the_landmark_map_shows_weight_by_uniform(landmarks, bins, rows, step):
    profile = random_profile(n=5003, bins=bins, landmarks=landmarks)
    heat = landmark_map_figure(profile, [0, 2], "words").data[0]
    wanted = merged_ratio(profile, [0, 2], rows, step)
    np.testing.assert_allclose(heat.customdata, wanted, atol=0.00501)
    np.testing.assert_allclose(heat.z, np.log2(np.maximum(wanted, 1 / 64)), atol=0.000501)
    assert (len(heat.z) <= 256, len(heat.z[0]) <= 128) == (True, True)


def test_the_landmark_map_places_merged_landmarks_and_bins_in_their_middle():
    heat = landmark_map_figure(random_profile(n=5180, bins=259, landmarks=602), [0], "words").data[
        0
    ]
    groups = [range(first, min(first + 3, 602)) for first in range(0, 602, 3)]
    np.testing.assert_allclose(heat.y, [np.mean(group) for group in groups])
    starts = list(range(0, 259, 3))
    middles = [(start * 20 + min(start + 3, 259) * 20) / 2 for start in starts]
    np.testing.assert_allclose(heat.x, middles)


def small_map() -> AttentionProfile:
    kept = np.zeros((2, 3, 3), dtype=np.float32)
    kept[0] = [[0.4, 0.4, 0.0], [0.1, 0.2, 0.1], [0.0, 0.1, 0.4]]
    kept[1] = [[1.0, 1.0, 1.0]] * 3
    return profile_of(landmark_map=kept)


def test_weightless_cells_of_the_landmark_map_have_the_lowest_colour_and_say_zero():
    heat = landmark_map_figure(small_map(), [0], "words").data[0]
    # 0.5 on a quarter of the tokens is twice even attention; nothing is far below.
    np.testing.assert_allclose(heat.customdata[0], [2.0, 2.0, 0.0])
    np.testing.assert_allclose(heat.z[0], [1.0, 1.0, -6.0])
    assert (heat.zmin, heat.zmid, heat.zmax) == (-6.0, 0, 6.0)


def test_the_colours_of_the_landmark_map_are_named_in_times_uniform():
    bar = landmark_map_figure(small_map(), [0], "words").data[0].colorbar
    assert bar.title.text == "weight / uniform"
    assert dict(zip(bar.tickvals, bar.ticktext, strict=True))[-2] == "0.25×"


def test_the_landmark_map_marks_where_each_landmark_stands():
    marks = landmark_map_figure(small_map(), [0], "words").data[1]
    assert (list(marks.x), list(marks.y)) == ([16, 32, 40], [0, 1, 2])


def test_landmark_map_axes_name_what_they_count():
    layout = landmark_map_figure(small_map(), [0], "words").layout
    assert layout.xaxis.title.text == "position in the text (tokens)"
    assert layout.yaxis.title.text == "landmark, in order"


def test_the_landmark_map_is_told_with_the_weight_of_a_landmarks_own_bin():
    # Landmarks stand in bins 1, 2, 2: 2.0, 0.25 / 0.5 and 0.8 / 0.5 times uniform.
    assert landmark_map_alt(small_map(), [0]) == (
        "3 rows of landmarks by 3 position bins: a landmark weighs the bin it stands in 1.4 times "
        "as much as even attention would, on average"
    )


def test_a_profile_without_kept_landmarks_has_no_map():
    with pytest.raises(ValueError, match="keep_landmarks"):
        landmark_map_figure(profile_of(), [0], "words")


# Rotary kernel.

ANGLES = {
    "global": inverse_frequencies(160_000, 64),
    "local": inverse_frequencies(10_000, 64),
}
PLACES = np.array([1.0, 10.0, 100.0, 1000.0, 8191.0])


def kernels() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {k: (rope_kernel(a, PLACES), smoothed_kernel(a, PLACES)) for k, a in ANGLES.items()}


def test_the_rotary_figure_has_a_raw_and_a_smoothed_line_for_each_kind_of_layer():
    assert list(named(rope_figure(kernels(), PLACES, "words"))) == [
        "global layers, raw",
        "global layers, mean over ±16",
        "local layers, raw",
        "local layers, mean over ±16",
    ]


@pytest.mark.parametrize("kind", ANGLES)
def test_the_rotary_lines_are_mean_cosines_and_their_means_over_sixteen_neighbours(kind):
    traces = named(rope_figure(kernels(), PLACES, "words"))

    def at(distance: float) -> float:
        return float(np.mean([math.cos(distance * angle) for angle in ANGLES[kind]]))

    raw = [at(place) for place in PLACES]
    smooth = [np.mean([at(place + step) for step in range(-16, 17)]) for place in PLACES]
    np.testing.assert_allclose(traces[f"{kind} layers, raw"].y, raw, atol=6e-5)
    np.testing.assert_allclose(traces[f"{kind} layers, mean over ±16"].y, smooth, atol=6e-5)
    np.testing.assert_array_equal(traces[f"{kind} layers, raw"].x, PLACES)


def test_rotary_lines_of_one_kind_share_a_colour_that_no_other_kind_has():
    colours = [t.line.color for t in rope_figure(kernels(), PLACES, "words").data]
    assert colours[0] == colours[1] != colours[2] == colours[3]


def test_rotary_axes_name_what_they_count():
    layout = rope_figure(kernels(), PLACES, "64 rotated dimensions a head").layout
    assert (layout.xaxis.title.text, layout.xaxis.type) == ("distance (tokens)", "log")
    assert layout.yaxis.title.text == "kernel, 1 at distance 0"
    assert layout.title.subtitle.text == "64 rotated dimensions a head"


def test_the_rotary_kernel_is_told_at_its_ends_and_its_middle():
    smooth = np.array([0.9, 0.8, 0.5, 0.3, 0.1])
    assert rope_alt({"global": (smooth * 0, smooth)}, PLACES) == (
        "global layers, smoothed: 0.90 at distance 1, 0.50 at distance 100, 0.10 at distance 8,191"
    )


# All of them, for a long text.


@pytest.fixture(scope="module")
def long_figures() -> dict[str, go.Figure]:
    """Every figure of an 8,192-token text: 22 layers, 12 heads, 249 landmarks, 1,024 bins."""

    def long(seed: int) -> AttentionProfile:
        return random_profile(22, 12, n=8192 - 2 - 249, bins=1024, landmarks=249, seed=seed)

    own, control, second = long(0), long(1), long(2)
    curves = [
        Curve(own),
        Curve(control, "random weights", "dot"),
        Curve(second, "acme/another-encoder", "dashdot"),
    ]
    layers = [list(range(22))] * 3
    places = np.unique(np.geomspace(1, 8191, 400).astype(int)) * 1.0
    lines = {k: (rope_kernel(a, places), smoothed_kernel(a, places)) for k, a in ANGLES.items()}
    return {
        "position": decay_figure(curves, layers, None, "words", landmarks=[0, 80, 160, 248]),
        "distance": distance_figure(curves, layers, None, "words"),
        "spread": spread_figure([("a", own), ("b", control), ("c", second)], [0], None, "words"),
        "shares": special_share_figure(own, layers[0], None, "words"),
        "heads": head_map_figure(own, LMK, "entropy", (21, 11)),
        "landmarks": landmark_map_figure(own, layers[0], "words"),
        "rope": rope_figure(lines, places, "words"),
    }


FIGURES = ("position", "distance", "spread", "shares", "heads", "landmarks", "rope")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_a_long_text_is_small_enough_to_send(long_figures, name):
    written = long_figures[name].to_json()
    assert 2_000 < len(written) < LARGEST_JSON
    assert json.loads(written)["data"]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_short_title(long_figures, name):
    assert 0 < len(long_figures[name].layout.title.text) <= 40


def test_every_figure_of_a_long_text_draws_all_its_bins(long_figures):
    assert len(named(long_figures["position"])["acme/another-encoder, CLS row"].x) == 1024
    assert np.asarray(long_figures["landmarks"].data[0].z).shape == (249, 128)
