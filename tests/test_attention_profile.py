"""What is kept of attention rows, against the library's eager attention binned by hand."""

import copy
import itertools
import json
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmk_viz.attention_profile import (
    SCALARS,
    AttentionProfile,
    ProfileRow,
    bin_edges,
    content_weights,
)
from lmk_viz.config import AttentionConfig, ChunkingConfig, LayerKind, LayoutKind, PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.landmarks import build_layout

MODELS = ("bert", "modernbert", "gte", "jina", "qwen3", "qwen3_local", "gemma3")
CLS, LANDMARK = PoolingMode.CLS, PoolingMode.LANDMARK
TEXT = (
    "A landmark token is placed after every chunk of a long document. The vector of the "
    "document is the mean of its landmarks, and the first token forgets the end."
)
LONG = " ".join([TEXT] * 4)


@given(n=st.integers(0, 5000), bins=st.integers(1, 1024))
def test_bins_tile_the_tokens_in_equal_parts(n, bins):
    edges = bin_edges(n, bins)
    widths = np.diff(edges)
    assert (edges[0], edges[-1], len(widths)) == (0, n, min(n, bins))
    assert n == 0 or (widths.min() >= 1 and widths.max() - widths.min() <= 1)


# Profiles against binning the library's eager attention by hand.


def eager_rows(build_model: Any, name: str, layout: Any) -> np.ndarray:
    """Returns full attention, shape (L, H, S, S), in float64."""
    ids = torch.from_numpy(layout.input_ids.copy())[None]
    with torch.no_grad():
        output = build_model(name, "eager")(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True
        )
    return torch.stack(output.attentions)[:, 0].double().numpy()


@pytest.mark.parametrize("bins", [5, 64], ids=["binned", "a token a bin"])
@pytest.mark.parametrize("kind", list(LayoutKind))
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_profiles_equal_eager_attention_binned_by_hand(name, kind, bins, tiny_encoder, build_model):
    encoder = tiny_encoder(name)
    layout = encoder.layout(TEXT, kind, ChunkingConfig(granularity=6), max_length=40)
    profile = encoder.attention_profile(layout, AttentionConfig(bins, keep_landmarks=True))
    full = eager_rows(build_model, name, layout)

    tokens_in_bin = [range(a, b) for a, b in zip(profile.edges, profile.edges[1:], strict=False)]
    assert [t for tokens in tokens_in_bin for t in tokens] == list(range(layout.n_kept))
    position = {int(t): i for i, t in enumerate(layout.token_index) if t >= 0}
    others = sorted(
        set(range(len(layout)))
        - set(position.values())
        - set(layout.cls_positions.tolist())
        - set(layout.landmark_positions.tolist())
    )

    def over_bins(rows: np.ndarray) -> np.ndarray:
        columns = [[position[t] for t in tokens] for tokens in tokens_in_bin]
        return np.stack([rows[..., c].sum(-1) for c in columns], axis=-1)

    def over_special(rows: np.ndarray) -> np.ndarray:
        columns = (layout.cls_positions, layout.landmark_positions, others)
        return np.stack([rows[..., list(c)].sum(-1) for c in columns], axis=-1)

    close = {"atol": 1e-5, "rtol": 0}
    first = full[:, :, 0]
    np.testing.assert_allclose(profile.rows[CLS].mass, over_bins(first), **close)
    np.testing.assert_allclose(profile.rows[CLS].special, over_special(first), **close)
    if kind is not LayoutKind.LANDMARK:
        assert list(profile.rows) == [CLS]
        assert profile.landmark_map is None
        return
    landmarks = full[:, :, layout.landmark_positions]  # (L, H, K, S)
    np.testing.assert_allclose(profile.rows[LANDMARK].mass, over_bins(landmarks.mean(2)), **close)
    np.testing.assert_allclose(
        profile.rows[LANDMARK].special, over_special(landmarks.mean(2)), **close
    )
    np.testing.assert_allclose(profile.landmark_map, over_bins(landmarks.mean(1)), **close)


@pytest.mark.parametrize("kind", list(LayoutKind))
@pytest.mark.parametrize("name", ["bert", "modernbert", "gte", "jina", "qwen3", "roberta"])
def test_bins_and_special_shares_of_a_row_sum_to_one(name, kind, tiny_encoder):
    encoder = tiny_encoder(name)
    layout = encoder.layout(TEXT, kind, ChunkingConfig(granularity=6), max_length=40)
    profile = encoder.attention_profile(layout, AttentionConfig(bins=9))
    assert len(profile.rows) == (2 if kind is LayoutKind.LANDMARK else 1)
    for row in profile.rows.values():
        whole = row.mass.sum(-1) + row.special.sum(-1)
        np.testing.assert_allclose(whole, 1, atol=1e-5, rtol=0)
        by_distance = row.distance_mass.sum(-1)
        np.testing.assert_allclose(by_distance, row.mass.sum(-1), atol=1e-5, rtol=0)


def test_the_map_of_landmarks_averages_to_their_mean_row(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=4))
    profile = encoder.attention_profile(layout, AttentionConfig(bins=11, keep_landmarks=True))
    assert profile.landmark_map.shape == (4, layout.n_landmarks, 11)
    np.testing.assert_allclose(
        profile.landmark_map.mean(1), profile.rows[LANDMARK].mass.mean(1), atol=1e-6, rtol=0
    )


def test_the_map_of_landmarks_is_not_kept_by_default(tiny_encoder):
    encoder = tiny_encoder("bert")
    assert encoder.attention_profile(encoder.layout(TEXT)).landmark_map is None


def test_landmarks_stand_behind_the_tokens_before_them(tiny_encoder):
    encoder = tiny_encoder("bert")
    layout = encoder.layout("a a a a a a a a", chunking=ChunkingConfig(granularity=3))
    profile = encoder.attention_profile(layout)
    assert layout.n_kept == profile.n_content == 8
    assert profile.landmark_tokens.tolist() == [3, 6, 8]


def test_a_profile_tells_kinds_and_windows_of_its_layers(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    profile = encoder.attention_profile(encoder.layout(TEXT))
    assert (profile.n_layers, profile.n_heads) == (4, 2)
    assert profile.layers_of(LayerKind.GLOBAL) == (0, 3)
    assert profile.layers_of(LayerKind.LOCAL) == (1, 2)
    assert profile.windows == (None, 4, 4, None)


def test_a_text_shorter_than_the_bins_has_a_bin_for_each_token(tiny_encoder):
    encoder = tiny_encoder("bert")
    profile = encoder.attention_profile(encoder.layout("a a a"), AttentionConfig(bins=64))
    assert profile.edges.tolist() == [0, 1, 2, 3]
    assert profile.rows[CLS].mass.shape == (2, 2, 3)


@pytest.mark.parametrize("text", ["", " \n\t "], ids=["empty", "white space"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_an_empty_text_has_a_profile_of_special_shares_alone(name, text, tiny_encoder):
    encoder = tiny_encoder(name)
    profile = encoder.attention_profile(encoder.layout(text), AttentionConfig(keep_landmarks=True))
    assert (profile.n_content, profile.edges.tolist()) == (0, [0])
    assert profile.rows[CLS].mass.shape[-1] == profile.rows[LANDMARK].mass.shape[-1] == 0
    assert profile.landmark_map.shape == (encoder.n_layers, 1, 0)
    np.testing.assert_allclose(profile.rows[CLS].special.sum(-1), 1, atol=1e-6, rtol=0)
    written = profile.to_dict()
    assert written["uniform_weight"] is None
    assert written["layers"][0]["heads"][0]["cls"]["weights"] == []


def test_without_cls_a_profile_has_landmark_rows_alone(tiny_encoder, build_tokenizer, build_model):
    encoder = Encoder(build_model("qwen3"), build_tokenizer("byte_bpe", bos_token=None))
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    profile = encoder.attention_profile(layout, AttentionConfig(bins=9))
    assert list(profile.rows) == [LANDMARK]
    assert profile.n_heads == 4
    rows = eager_rows(build_model, "qwen3", layout)[:, :, layout.landmark_positions].mean(2)
    shares = rows[..., layout.landmark_positions].sum(-1)
    np.testing.assert_allclose(profile.rows[LANDMARK].special[..., 1], shares, atol=1e-5, rtol=0)
    assert set(profile.to_dict()["layers"][0]["heads"][0]) == {"head", "landmark"}


def test_a_layout_with_neither_cls_nor_landmark_has_a_profile_without_rows(
    build_tokenizer, build_model
):
    encoder = Encoder(build_model("qwen3"), build_tokenizer("byte_bpe", bos_token=None))
    profile = encoder.attention_profile(
        encoder.layout(TEXT, max_length=10), AttentionConfig(keep_landmarks=True)
    )
    assert (profile.rows, profile.landmark_map) == ({}, None)
    assert profile.n_heads == 0
    assert profile.to_dict()["layers"][1]["heads"] == []


def test_no_layer_told_means_the_class_is_named(tiny_encoder):
    encoder = tiny_encoder("mpnet")
    with pytest.raises(ValueError, match="MPNetModel reported attention for 0 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"))
    assert not encoder.reports_attention


@pytest.mark.parametrize("name", MODELS)
def test_classes_that_use_the_attention_interface_report(name, tiny_encoder):
    assert tiny_encoder(name).reports_attention


def test_a_model_loaded_with_another_attention_does_not_report(build_model, wordpiece_tokenizer):
    encoder = Encoder(build_model("bert", "sdpa"), wordpiece_tokenizer)
    with pytest.raises(ValueError, match="0 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"))


def test_a_layer_that_does_not_report_makes_the_profile_fail(build_model, wordpiece_tokenizer):
    model = build_model("bert")
    inner = next(m for m in model.encoder.layer[1].modules() if hasattr(m, "query"))
    inner.config = copy.deepcopy(model.config)
    inner.config._attn_implementation = "sdpa"
    encoder = Encoder(model, wordpiece_tokenizer)
    with pytest.raises(ValueError, match="reported attention for 1 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"))


def _fail(*_: Any) -> None:
    raise RuntimeError("stop here")


def test_a_cancelled_profile_frees_the_model(tiny_encoder):
    encoder = tiny_encoder("bert")
    layout = encoder.layout(TEXT)
    with pytest.raises(RuntimeError, match="stop here"):
        encoder.attention_profile(layout, on_layer=_fail)
    got = []
    # Another thread, since the lock lets its own thread in again.
    thread = threading.Thread(target=lambda: got.append(encoder.token_states([layout])))
    thread.start()
    thread.join(timeout=30)
    assert len(got) == 1


# What a profile computes.


def make_profile(mass: np.ndarray, edges: list[int], special: np.ndarray | None = None) -> Any:
    layers, heads, _ = mass.shape
    row = ProfileRow(
        mass=mass.astype(np.float32),
        special=np.zeros((layers, heads, 3), np.float32) if special is None else special,
        scalars=np.arange(layers * heads * 4, dtype=np.float32).reshape(layers, heads, 4),
        distance_mass=mass.sum(-1, keepdims=True).astype(np.float32),
        distance_keys=np.array([float(edges[-1])]),
    )
    return AttentionProfile(
        layer_kinds=(LayerKind.GLOBAL,) * layers,
        windows=(None,) * layers,
        layers_expected=layers,
        edges=np.array(edges),
        distance_edges=np.array([-edges[-1], 1]),
        n_content=edges[-1],
        landmark_tokens=np.array([edges[-1]]),
        rows={CLS: row},
    )


def test_content_weights_sum_to_one_whatever_the_special_tokens_took():
    mass = np.array([[[0.1, 0.3], [0.002, 0.002]]])
    expected = [[[0.25, 0.75], [0.5, 0.5]]]
    np.testing.assert_allclose(content_weights(mass.astype(np.float32)), expected, atol=1e-6)


def test_content_weights_of_a_row_without_content_mass_stay_zero():
    assert content_weights(np.zeros((1, 1, 3), np.float32)).tolist() == [[[0, 0, 0]]]


def test_the_weight_of_a_token_in_a_uniform_row_is_one_over_n():
    edges = bin_edges(10, 4).tolist()  # Widths 2, 3, 2, 3.
    mass = np.broadcast_to(np.diff(edges) / 10 * 0.6, (2, 3, 4))
    profile = make_profile(mass, edges)
    weights = profile.weight_per_token(CLS, (0, 1), None)
    np.testing.assert_allclose(weights, 0.1, atol=1e-7)


def test_weights_of_tokens_average_the_chosen_layers_and_heads():
    #                 layer 0, head 0 / 1        layer 1, head 0 / 1
    mass = np.array([[[1, 0], [0.5, 0.5]], [[0.25, 0.75], [0, 1]]])
    profile = make_profile(mass, [0, 1, 3])
    per_token = {
        ((0,), 0): [1, 0],
        ((0,), 1): [0.5, 0.25],
        ((0,), None): [0.75, 0.125],
        ((1,), None): [0.125, 0.4375],
        ((0, 1), 1): [0.25, 0.375],
        ((0, 1), None): [0.4375, 0.28125],
    }
    for (layers, head), expected in per_token.items():
        got = profile.weight_per_token(CLS, layers, head)
        np.testing.assert_allclose(got, expected, atol=1e-7)


def test_weights_of_tokens_times_bin_widths_sum_to_one(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    profile = encoder.attention_profile(encoder.layout(TEXT), AttentionConfig(bins=7))
    for mode in (CLS, LANDMARK):
        weights = profile.weight_per_token(mode, profile.layers_of(LayerKind.LOCAL), 1)
        assert (weights * np.diff(profile.edges)).sum() == pytest.approx(1, abs=1e-6)


VIEWS = ("weight_per_token", "weight_by_distance", "special_shares")


@pytest.mark.parametrize("view", VIEWS)
def test_no_layer_to_average_is_refused(view):
    profile = make_profile(np.ones((1, 1, 1)), [0, 1])
    with pytest.raises(ValueError, match="no layer to average"):
        getattr(profile, view)(CLS, profile.layers_of(LayerKind.LOCAL), None)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("layer", "head"), [(0, 2), (1, 0), (1, None)])
def test_a_layer_or_head_that_is_not_there_is_an_error_and_not_nan(layer, head, view):
    profile = make_profile(np.ones((1, 2, 1)), [0, 1])
    with pytest.raises(IndexError, match="out of bounds"):
        getattr(profile, view)(CLS, [layer], head)


def test_a_head_that_is_not_there_has_no_table_of_scalars():
    profile = make_profile(np.ones((1, 2, 1)), [0, 1])
    with pytest.raises(IndexError, match="out of bounds"):
        profile.scalars_frame(2)


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_a_profile_is_written_as_json_with_weights_that_sum_to_one(name, tiny_encoder):
    encoder = tiny_encoder(name)
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    profile = encoder.attention_profile(layout, AttentionConfig(bins=9))
    written = json.loads(json.dumps(profile.to_dict()))
    assert written["bin_edges"] == bin_edges(layout.n_kept, 9).tolist()
    assert written["content_tokens"] == layout.n_kept
    assert written["uniform_weight"] == 1 / layout.n_kept
    assert written["landmark_tokens"] == profile.landmark_tokens.tolist()
    assert [layer["layer"] for layer in written["layers"]] == list(range(encoder.n_layers))
    assert [layer["window"] for layer in written["layers"]] == list(encoder.windows)
    for layer in written["layers"]:
        assert layer["kind"] == encoder.layer_kinds[layer["layer"]].value
        assert [head["head"] for head in layer["heads"]] == list(range(encoder.n_heads))
        for head in layer["heads"]:
            # A causal CLS comes before all text and can see none of it.
            blind = name == "qwen3"
            assert sum(head["cls"]["weights"]) == pytest.approx(0 if blind else 1, abs=1e-6)
            assert sum(head["landmark"]["weights"]) == pytest.approx(1, abs=1e-6)
            for row in (head["cls"], head["landmark"]):
                whole = row["content_share"] + sum(row["special_share"].values())
                assert whole == pytest.approx(1, abs=1e-5)


def test_a_written_profile_holds_the_shares_under_their_names():
    special = np.array([[[0.1, 0.2, 0.3]]], np.float32)
    written = make_profile(np.array([[[0.1, 0.3]]]), [0, 1, 2], special).to_dict()
    row = written["layers"][0]["heads"][0]["cls"]
    assert row["special_share"] == pytest.approx(
        {"cls": 0.1, "landmark": 0.2, "other_special": 0.3}
    )
    assert row["content_share"] == pytest.approx(0.4)
    assert row["weights"] == pytest.approx([0.25, 0.75])
    assert row["scalars"] == {
        "first_tenth": 0,
        "centre_of_mass": 1,
        "half_mass_position": 2,
        "entropy": 3,
    }


def test_rows_go_by_the_pooling_that_reads_them(tiny_encoder):
    encoder = tiny_encoder("bert")
    assert list(encoder.attention_profile(encoder.layout(TEXT)).rows) == [CLS, LANDMARK]
    plain = encoder.attention_profile(encoder.layout(TEXT, LayoutKind.PLAIN))
    assert list(plain.rows) == [CLS]


def test_a_table_of_bins_holds_tokens_and_weights_a_token():
    mass = np.array([[[1, 0], [0.5, 0.5]], [[0.25, 0.75], [0, 1]]])
    frame = make_profile(mass, [0, 1, 3]).bins_frame((0,), 1)
    assert frame.to_dict("list") == {
        "from_token": [0, 1],
        "to_token": [1, 3],
        "cls_weight_per_token": [0.5, 0.25],
        "uniform": [1 / 3, 1 / 3],
    }


def test_a_table_of_bins_of_an_empty_text_is_empty(tiny_encoder):
    encoder = tiny_encoder("bert")
    frame = encoder.attention_profile(encoder.layout("")).bins_frame((0, 1), None)
    assert frame.shape == (0, 5)


@pytest.mark.parametrize(
    ("head", "first"), [(1, [4, 5, 6, 7]), (None, [2, 3, 4, 5])], ids=["one head", "mean"]
)
def test_a_table_of_scalars_has_a_line_for_each_layer_and_row(head, first):
    frame = make_profile(np.ones((2, 2, 1)), [0, 1]).scalars_frame(head)
    assert frame.columns.tolist() == ["layer", "kind", "row", *SCALARS]
    assert frame.iloc[0].tolist() == ["L0", "global", "cls", *first]
    assert frame.iloc[1].tolist() == ["L1", "global", "cls", *(value + 8 for value in first)]


def test_layouts_built_by_hand_have_profiles_too(tiny_encoder):
    encoder = tiny_encoder("bert")
    layout = build_layout(encoder.tokenize(TEXT), encoder.special_ids)
    assert encoder.attention_profile(layout).n_content == layout.n_kept


# Scalars.


def naive_scalars(row: np.ndarray) -> list[float]:
    n, weights = len(row), row.astype(np.float64) / row.astype(np.float64).sum()
    first = sum(w * min(1.0, max(0.0, n / 10 - place)) for place, w in enumerate(weights))
    centre = sum(w * place for place, w in enumerate(weights)) / max(n - 1, 1)
    half = next(at for at in range(n) if weights[: at + 1].sum() >= 0.5 - 1e-6)
    entropy = -sum(w * np.log(w) for w in weights if w > 0) / np.log(n) if n > 1 else 1.0
    return [first, centre, half / max(n - 1, 1), entropy]


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_scalars_of_a_profile_equal_those_of_eager_rows(name, tiny_encoder, build_model):
    encoder = tiny_encoder(name)
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    profile = encoder.attention_profile(layout)
    full = eager_rows(build_model, name, layout)[..., layout.content_positions]
    for layer in range(encoder.n_layers):
        for head in range(encoder.n_heads):
            cls = naive_scalars(full[layer, head, 0])
            each = [naive_scalars(full[layer, head, at]) for at in layout.landmark_positions]
            np.testing.assert_allclose(
                profile.rows[CLS].scalars[layer, head], cls, atol=1e-4, rtol=0
            )
            np.testing.assert_allclose(
                profile.rows[LANDMARK].scalars[layer, head],
                np.mean(each, axis=0),
                atol=1e-4,
                rtol=0,
            )
    written = profile.to_dict()["layers"][1]["heads"][0]["landmark"]["scalars"]
    assert written == pytest.approx(
        dict(zip(SCALARS, profile.rows[LANDMARK].scalars[1, 0].tolist(), strict=True))
    )


# By distance, and special shares.


@pytest.mark.parametrize("text", [TEXT, LONG], ids=["short", "several tiles"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3_local"])
def test_weights_by_distance_equal_a_loop_over_eager_rows(name, text, tiny_encoder, build_model):
    encoder = tiny_encoder(name)
    layout = encoder.layout(text, chunking=ChunkingConfig(granularity=6))
    profile = encoder.attention_profile(layout)
    full = eager_rows(build_model, name, layout)
    edges = profile.distance_edges.tolist()
    content = layout.content_positions.tolist()
    queries = {CLS: [0], LANDMARK: layout.landmark_positions.tolist()}
    for (mode, at), layer, head in itertools.product(
        queries.items(), range(encoder.n_layers), (0, 1)
    ):
        rows = full[layer, head]
        total = np.mean([rows[q, content].sum() for q in at])
        expected = []
        for low, high in itertools.pairwise(edges):
            reached = [(q, k) for q in at for k in content if low <= k - q < high]
            mass = sum(rows[q, k] for q, k in reached)
            if not reached:
                expected.append(np.nan)
            else:
                # A causal CLS has no text before it, hence no weight to share out.
                expected.append(mass / len(reached) / total if total > 0 else 0.0)
        got = profile.weight_by_distance(mode, [layer], head)
        np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)
        assert np.isnan(got).any()
        assert (got > 0).any() or (name, mode) == ("qwen3_local", CLS)


def test_weights_by_distance_average_layers_and_heads(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    profile = encoder.attention_profile(
        encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    )
    for mode in (CLS, LANDMARK):
        single = [
            [profile.weight_by_distance(mode, [layer], head) for head in (0, 1)]
            for layer in (0, 1, 2, 3)
        ]
        np.testing.assert_allclose(
            profile.weight_by_distance(mode, (0, 2)), np.mean([single[0], single[2]], axis=(0, 1))
        )
        np.testing.assert_allclose(
            profile.weight_by_distance(mode, (1, 2), 1), np.mean([single[1][1], single[2][1]], 0)
        )


def test_weights_by_distance_times_keys_sum_to_one_and_are_nan_without_keys(tiny_encoder):
    encoder = tiny_encoder("bert")
    profile = encoder.attention_profile(
        encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    )
    for mode, row in profile.rows.items():
        got = profile.weight_by_distance(mode, (0, 1))
        assert (np.isnan(got) == (row.distance_keys == 0)).all()
        assert np.nansum(got * row.distance_keys) == pytest.approx(1, abs=1e-5)
    # CLS comes first: nothing lies before it, and it is no text token itself.
    before = profile.distance_edges[1:] <= 1
    assert np.isnan(profile.weight_by_distance(CLS, (0, 1))[before]).all()


@pytest.mark.parametrize("kind", list(LayoutKind))
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_special_shares_are_means_of_eager_rows_and_sum_to_one(
    name, kind, tiny_encoder, build_model
):
    encoder = tiny_encoder(name)
    layout = encoder.layout(TEXT, kind, ChunkingConfig(granularity=6))
    profile = encoder.attention_profile(layout)
    full = eager_rows(build_model, name, layout)
    named = [layout.content_positions, layout.cls_positions, layout.landmark_positions]
    other = np.setdiff1d(np.arange(len(layout)), np.concatenate(named))
    queries = {CLS: [0], LANDMARK: layout.landmark_positions}
    for mode in profile.rows:
        for layers, head in (((0,), None), ((1,), 1), ((0, 1), 0), ((0, 1), None)):
            got = profile.special_shares(mode, layers, head)
            assert sum(got) == pytest.approx(1, abs=1e-5)
            heads = slice(None) if head is None else slice(head, head + 1)
            rows = full[list(layers)][:, heads][:, :, queries[mode]]
            expected = [rows[..., at].sum(-1).mean() for at in (*named, other)]
            np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)


# Stopping between layers.


def stop_after(layers: int) -> tuple[Any, Any]:
    """Returns `on_layer` and a `should_stop` that says so once, after so many layers."""
    told: list[int] = []
    return told.append, lambda: len(told) == layers and not told.append(-1)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_a_stopped_profile_holds_the_layers_read_until_then(layers, tiny_encoder):
    encoder = tiny_encoder("modernbert")
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    config = AttentionConfig(bins=7, keep_landmarks=True)
    whole = encoder.attention_profile(layout, config)
    part = encoder.attention_profile(layout, config, *stop_after(layers))
    assert (whole.n_layers, whole.is_partial) == (4, False)
    assert (part.n_layers, part.layers_expected) == (layers, 4)
    assert part.is_partial == (layers < 4)
    assert part.layer_kinds == whole.layer_kinds[:layers]
    assert part.windows == whole.windows[:layers]
    assert list(part.rows) == [CLS, LANDMARK]
    for mode, row in part.rows.items():
        for name in ("mass", "special", "scalars", "distance_mass"):
            np.testing.assert_array_equal(
                getattr(row, name), getattr(whole.rows[mode], name)[:layers]
            )
        np.testing.assert_array_equal(row.distance_keys, whole.rows[mode].distance_keys)
    np.testing.assert_array_equal(part.landmark_map, whole.landmark_map[:layers])
    written = json.loads(json.dumps(part.to_dict()))
    assert (len(written["layers"]), written["layers_expected"]) == (layers, 4)
    assert len(part.scalars_frame(None)) == 2 * layers
    with pytest.raises(IndexError, match="out of bounds"):
        part.weight_per_token(CLS, [layers])


def test_a_profile_that_need_not_stop_is_whole(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    profile = encoder.attention_profile(encoder.layout(TEXT), should_stop=lambda: False)
    assert (profile.n_layers, profile.is_partial) == (4, False)


def test_stopping_frees_the_model_and_leaves_no_capture_behind(tiny_encoder):
    encoder = tiny_encoder("bert")
    layout = encoder.layout(TEXT)
    expected = encoder.attention_profile(layout)
    encoder.attention_profile(layout, None, *stop_after(1))
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(encoder.attention_profile(layout)))
    thread.start()
    thread.join(timeout=30)
    np.testing.assert_array_equal(got[0].rows[CLS].mass, expected.rows[CLS].mass)


def test_a_class_that_does_not_report_is_named_even_when_told_to_stop(tiny_encoder):
    encoder = tiny_encoder("mpnet")
    with pytest.raises(ValueError, match="MPNetModel reported attention for 0 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"), should_stop=lambda: True)


# Tiles.


@pytest.mark.parametrize("kind", list(LayoutKind))
def test_profiles_do_not_depend_on_the_tile_size(kind, tiny_encoder, monkeypatch):
    encoder = tiny_encoder("modernbert")
    layout = encoder.layout(TEXT, kind, ChunkingConfig(granularity=5))
    config = AttentionConfig(bins=7, keep_landmarks=True)
    whole = encoder.attention_profile(layout, config)
    monkeypatch.setattr("lmk_viz.attention.TILE_BYTES", 1)
    tiled = encoder.attention_profile(layout, config)
    assert tiled.rows.keys() == whole.rows.keys()
    for mode, row in whole.rows.items():
        for got, expected in zip(tiled.rows[mode], row, strict=True):
            np.testing.assert_allclose(got, expected, atol=2e-6, rtol=0)
    if kind is LayoutKind.LANDMARK:
        np.testing.assert_allclose(tiled.landmark_map, whole.landmark_map, atol=1e-6, rtol=0)
    else:
        assert tiled.landmark_map is whole.landmark_map is None
