import copy
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lmk_viz import attention
from lmk_viz.attention import (
    ATTENTION_NAME,
    SCALARS,
    AttentionProfile,
    BinnedRows,
    bin_edges,
    capture_rows,
    profile_groups,
    row_scalars,
)
from lmk_viz.config import AttentionConfig, ChunkingConfig, LayerKind, LayoutKind, PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.landmarks import build_layout

EAGER_MODELS = ("bert", "modernbert", "gte", "jina", "qwen3", "qwen3_local", "gemma3")
LENGTHS = (20, 13, 7)
TEXT = (
    "A landmark token is placed after every chunk of a long document. The vector of the "
    "document is the mean of its landmarks, and the first token forgets the end."
)


class FullRows:
    """Keeps every row; for tests only, since this is what the product never does."""

    def __init__(self) -> None:
        self.tiles: dict[tuple[int, int], list[torch.Tensor]] = {}
        self.firsts: list[int] = []

    def add(self, layer: int, item: int, first: int, rows: torch.Tensor) -> None:
        tiles = self.tiles.setdefault((layer, item), [])
        assert first == sum(tile.shape[1] for tile in tiles)
        tiles.append(rows.clone())
        self.firsts.append(first)

    def of(self, layer: int, item: int = 0) -> torch.Tensor:
        return torch.cat(self.tiles[layer, item], dim=1)  # (H, Q, T)


def make_batch(padding: str) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """Returns inputs and the attended columns of each row."""
    generator = torch.Generator().manual_seed(2)
    rows = len(LENGTHS) if padding != "none" else 1
    longest = LENGTHS[0]
    input_ids = torch.randint(5, 190, (rows, longest), generator=generator)
    attention_mask = torch.zeros_like(input_ids)
    columns = []
    for row, length in enumerate(LENGTHS[:rows]):
        start = longest - length if padding == "left" else 0
        attention_mask[row, start : start + length] = 1
        columns.append(torch.arange(start, start + length))
    return {"input_ids": input_ids, "attention_mask": attention_mask}, columns


def capture_full(model: Any, inputs: dict[str, torch.Tensor], columns: Any) -> Any:
    rows = FullRows()
    with torch.no_grad(), capture_rows(columns, rows) as capture:
        states = model(**inputs).last_hidden_state
    return rows, states, capture


def call_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    columns: list[torch.Tensor] | None = None,
    module: torch.nn.Module | None = None,
    **kwargs: Any,
) -> FullRows:
    """Runs our attention function alone, as a layer would."""
    batch, heads, length, _ = query.shape
    module = make_module(is_causal=False) if module is None else module
    module.num_key_value_groups = heads // key.shape[1]
    rows = FullRows()
    with capture_rows(columns or [torch.arange(length)] * batch, rows):
        ALL_ATTENTION_FUNCTIONS[ATTENTION_NAME](module, query, key, key, mask, **kwargs)
    return rows


def make_module(**attributes: Any) -> torch.nn.Module:
    module = torch.nn.Module()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def make_query_and_key(batch: int = 2, heads: int = 4, key_heads: int = 2, length: int = 9) -> Any:
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(batch, heads, length, 8, generator=generator)
    return query, torch.randn(batch, key_heads, length, 8, generator=generator)


def expected_rows(
    query: torch.Tensor, key: torch.Tensor, item: int, bias: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Returns the rows of one item by the textbook, head by head."""
    heads, groups = query.shape[1], query.shape[1] // key.shape[1]
    rows = []
    for head in range(heads):
        logits = query[item, head].double() @ key[item, head // groups].double().T * scale
        rows.append(torch.softmax(logits if bias is None else logits + bias, dim=-1))
    return torch.stack(rows).float()


@pytest.fixture(autouse=True)
def _no_capture_is_left_behind() -> Iterator[None]:
    yield
    assert attention._current.get() is None


# Rows against the library's eager attention.


@pytest.mark.parametrize("padding", ["right", "left", "none"])
@pytest.mark.parametrize("name", EAGER_MODELS)
def test_captured_rows_equal_eager_attention(name, padding, build_model):
    inputs, columns = make_batch(padding)
    with torch.no_grad():
        eager = build_model(name, "eager")(**inputs, output_attentions=True).attentions
    rows, _, capture = capture_full(build_model(name), inputs, columns)
    assert capture.layers_seen == len(eager)
    for layer, expected in enumerate(eager):
        for item, attended in enumerate(columns):
            torch.testing.assert_close(
                rows.of(layer, item), expected[item][:, attended], atol=1e-5, rtol=0
            )


@pytest.mark.parametrize("name", EAGER_MODELS)
def test_tiny_models_attend_far_from_uniformly_so_that_a_wrong_scale_would_show(name, build_model):
    inputs, columns = make_batch("none")
    rows, _, _ = capture_full(build_model(name), inputs, columns)
    assert rows.of(0)[:, -1].amax(dim=-1).min() > 2 / LENGTHS[0]


@pytest.mark.parametrize("padding", ["right", "left", "none"])
@pytest.mark.parametrize("name", EAGER_MODELS)
def test_hidden_states_under_capture_equal_plain_sdpa(name, padding, build_model):
    inputs, columns = make_batch(padding)
    with torch.no_grad():
        plain = build_model(name, "sdpa")(**inputs).last_hidden_state
    _, states, _ = capture_full(build_model(name), inputs, columns)
    for item, attended in enumerate(columns):
        torch.testing.assert_close(states[item, attended], plain[item, attended], atol=1e-6, rtol=0)


@pytest.mark.parametrize("padding", ["right", "left", "none"])
@pytest.mark.parametrize("name", EAGER_MODELS)
def test_rows_sum_to_one_and_give_padding_nothing(name, padding, build_model):
    inputs, columns = make_batch(padding)
    rows, _, capture = capture_full(build_model(name), inputs, columns)
    for layer in range(capture.layers_seen):
        for item in range(len(columns)):
            got = rows.of(layer, item)
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.sum(-1), torch.ones(got.shape[:2]), atol=1e-6, rtol=0)
            assert (got[..., inputs["attention_mask"][item] == 0] == 0).all()


@pytest.mark.parametrize(
    ("name", "left_only"),
    [("modernbert", False), ("qwen3_local", True), ("gemma3", False)],
    ids=["modernbert", "causal window", "gemma 3, both sides"],
)
def test_rows_of_local_layers_reach_exactly_the_stated_window(name, left_only, tiny_encoder):
    encoder = tiny_encoder(name)
    inputs, columns = make_batch("none")
    rows, _, _ = capture_full(encoder.model, inputs, columns)
    position = torch.arange(LENGTHS[0])
    distance = position[None, :] - position[:, None]  # key - query
    assert LayerKind.LOCAL in encoder.layer_kinds
    for layer, window in enumerate(encoder.windows):
        reach = LENGTHS[0] if window is None else window
        visible = (distance >= -reach) & (distance <= (0 if left_only else reach))
        for head in rows.of(layer):
            assert torch.equal(head > 0, visible), f"layer {layer}"


# The attention function alone.


def random_mask(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    mask = torch.rand(shape, generator=generator) > 0.4
    return mask | torch.eye(shape[-1], dtype=torch.bool)


@pytest.mark.parametrize(
    "shape",
    [(2, 1, 9, 9), (2, 4, 9, 9), (1, 1, 9, 9), (1, 4, 9, 9)],
    ids=["an item", "an item and head", "shared by all", "a head"],
)
@pytest.mark.parametrize("lowest", [float("-inf"), torch.finfo(torch.float32).min])
def test_additive_masks_give_the_rows_of_boolean_ones(shape, lowest):
    query, key = make_query_and_key()
    mask = random_mask(*shape)
    additive = torch.zeros(shape).masked_fill(~mask, lowest)
    from_bool, from_float = call_attention(query, key, mask), call_attention(query, key, additive)
    for item in range(2):
        assert torch.equal(from_bool.of(0, item), from_float.of(0, item))
        assert torch.equal(from_bool.of(0, item) > 0, mask.expand(2, 4, 9, 9)[item]), (
            "a hidden key got weight, or a visible one got none"
        )


def test_additive_masks_may_hold_any_bias():
    query, key = make_query_and_key()
    bias = torch.randn(1, 1, 9, 9, generator=torch.Generator().manual_seed(5))
    rows = call_attention(query, key, bias)
    for item in range(2):
        expected = expected_rows(query, key, item, bias[0, 0].double(), 8**-0.5)
        torch.testing.assert_close(rows.of(0, item), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("scaling", [None, 0.5], ids=["default scale", "the layer's scale"])
@pytest.mark.parametrize("key_heads", [4, 2, 1], ids=["all heads", "grouped", "one key head"])
def test_rows_are_the_scaled_softmax_of_query_times_key(scaling, key_heads):
    query, key = make_query_and_key(key_heads=key_heads)
    columns = [torch.tensor([0, 7, 3]), torch.tensor([8])]
    rows = call_attention(query, key, None, columns, scaling=scaling)
    for item, at in enumerate(columns):
        expected = expected_rows(query, key, item, None, 8**-0.5 if scaling is None else scaling)
        torch.testing.assert_close(rows.of(0, item), expected[:, at], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("attributes", "argument", "causal"),
    [
        ({"is_causal": True}, None, True),
        ({"is_causal": False}, None, False),
        ({}, None, True),
        ({"is_causal": True}, False, False),
        ({"is_causal": False}, True, True),
    ],
    ids=["layer causal", "layer not", "layer silent", "call says not", "call says causal"],
)
def test_without_a_mask_a_causal_layer_sees_no_later_key(attributes, argument, causal):
    query, key = make_query_and_key()
    module = make_module(**attributes)
    rows = call_attention(query, key, None, module=module, is_causal=argument)
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1) if causal else torch.zeros(9, 9).bool()
    bias = torch.zeros(9, 9, dtype=torch.float64).masked_fill(hidden, float("-inf"))
    for item in range(2):
        expected = expected_rows(query, key, item, bias, 8**-0.5)
        torch.testing.assert_close(rows.of(0, item), expected, atol=1e-6, rtol=0)
    inputs = (module, query, key, key, None)
    states, _ = ALL_ATTENTION_FUNCTIONS[ATTENTION_NAME](*inputs, is_causal=argument)
    plain, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](*inputs, is_causal=argument)
    assert torch.equal(states, plain)


def test_with_a_mask_a_causal_layer_hides_what_the_mask_hides_and_no_more():
    query, key = make_query_and_key()
    mask = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    rows = call_attention(query, key, mask, module=make_module(is_causal=True))
    torch.testing.assert_close(
        rows.of(0), expected_rows(query, key, 0, None, 8**-0.5), atol=1e-6, rtol=0
    )


def test_rows_are_computed_in_float32_from_bfloat16_states():
    query, key = (x.bfloat16() for x in make_query_and_key())
    rows = call_attention(query, key, None)
    expected = expected_rows(query, key, 0, None, 8**-0.5)
    torch.testing.assert_close(rows.of(0), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["position_bias", "softcap", "s_aux"])
def test_attention_that_is_not_plain_softmax_is_refused_by_name(name):
    query, key = make_query_and_key()
    with pytest.raises(ValueError, match=f"Module adds {name} to its attention"):
        call_attention(query, key, None, **{name: torch.zeros(1, 4, 9, 9)})


def test_position_bias_is_left_to_the_library_while_nothing_is_captured():
    query, key = make_query_and_key(key_heads=4)
    function = ALL_ATTENTION_FUNCTIONS[ATTENTION_NAME]
    bias = torch.randn(1, 4, 9, 9, generator=torch.Generator().manual_seed(6))
    module = make_module(is_causal=False)
    with_bias, weights = function(module, query, key, key, None, position_bias=bias)
    expected = ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, key, None, position_bias=bias)
    assert weights is None
    assert torch.equal(with_bias, expected[0])
    assert not torch.allclose(with_bias, function(module, query, key, key, None)[0])


# Tiles.


@pytest.mark.parametrize("rows_a_tile", [1, 3, 100])
def test_tiles_hold_the_stated_bytes_and_together_the_same_rows(
    rows_a_tile, build_model, monkeypatch
):
    inputs, columns = make_batch("right")
    model = build_model("qwen3")
    whole, _, _ = capture_full(model, inputs, columns)
    bytes_a_row = 4 * 4 * LENGTHS[0]  # Heads, bytes, keys.
    monkeypatch.setattr(
        "lmk_viz.attention.TILE_BYTES", rows_a_tile * bytes_a_row + bytes_a_row // 2
    )
    tiled, _, _ = capture_full(model, inputs, columns)
    for at, tiles in tiled.tiles.items():
        sizes = [tile.shape[1] for tile in tiles]
        assert sizes[:-1] == [rows_a_tile] * (len(sizes) - 1)
        assert sizes[-1] <= rows_a_tile
        torch.testing.assert_close(tiled.of(*at), whole.of(*at), atol=1e-6, rtol=0)


def test_a_tile_holds_one_row_even_where_the_limit_is_smaller(build_model, monkeypatch):
    monkeypatch.setattr("lmk_viz.attention.TILE_BYTES", 1)
    inputs, columns = make_batch("none")
    rows, _, _ = capture_full(build_model("bert"), inputs, columns)
    assert rows.firsts == list(range(LENGTHS[0])) * 2


@pytest.mark.parametrize("kind", list(LayoutKind))
def test_profiles_do_not_depend_on_the_tile_size(kind, tiny_encoder, monkeypatch):
    encoder = tiny_encoder("modernbert")
    layout = encoder.layout(TEXT, kind, ChunkingConfig(granularity=5))
    config = AttentionConfig(bins=7, keep_landmarks=True)
    whole = encoder.attention_profile(layout, config)
    monkeypatch.setattr("lmk_viz.attention.TILE_BYTES", 1)
    tiled = encoder.attention_profile(layout, config)
    for name in ("cls_mass", "cls_special", "landmark_mass", "landmark_special", "landmark_map"):
        expected = getattr(whole, name)
        if expected is None:
            assert getattr(tiled, name) is None
        else:
            np.testing.assert_allclose(getattr(tiled, name), expected, atol=1e-6, rtol=0)


# The capture and its context.


def test_nothing_is_captured_outside_the_context(build_model):
    inputs, columns = make_batch("none")
    model, rows = build_model("bert"), FullRows()
    with torch.no_grad():
        model(**inputs)
        with capture_rows(columns, rows) as capture:
            pass
        model(**inputs)
    assert (rows.tiles, capture.layers_seen) == ({}, 0)


def test_an_inner_capture_gives_back_to_the_outer_one(build_model):
    inputs, columns = make_batch("none")
    model, outer, inner = build_model("bert"), FullRows(), FullRows()
    with torch.no_grad(), capture_rows(columns, outer) as capture:
        with capture_rows(columns, inner):
            model(**inputs)
        assert outer.tiles == {}
        model(**inputs)
    assert capture.layers_seen == 2
    assert torch.equal(outer.of(1), inner.of(1))


def _fail(*_: Any) -> None:
    raise RuntimeError("stop here")


@pytest.mark.parametrize("where", ["on_layer", "reducer"])
def test_an_exception_inside_leaves_no_capture_behind(where, build_model):
    inputs, columns = make_batch("none")
    model = build_model("bert")
    asked: list[int] = []

    def note(layer: int, *_: Any) -> None:
        asked.append(layer)
        _fail()

    reducer: Any = SimpleNamespace(add=note) if where == "reducer" else FullRows()
    on_layer = note if where == "on_layer" else None
    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match="stop here"),
        capture_rows(columns, reducer, on_layer),
    ):
        model(**inputs)
    with torch.no_grad():
        model(**inputs)
    assert asked == [0]


def test_on_layer_is_told_each_layer_after_its_rows(build_model):
    inputs, columns = make_batch("none")
    rows = FullRows()
    told = []

    def on_layer(layer: int) -> None:
        assert (layer, 0) in rows.tiles
        assert (layer + 1, 0) not in rows.tiles
        told.append(layer)

    with torch.no_grad(), capture_rows(columns, rows, on_layer):
        build_model("modernbert")(**inputs)
    assert told == [0, 1, 2, 3]


def test_two_threads_capturing_at_once_do_not_mix(build_model):
    model = build_model("modernbert")
    inputs, columns = make_batch("none")
    other = {**inputs, "input_ids": inputs["input_ids"].flip(1)}
    jobs = (inputs, columns), (other, [torch.tensor([3, 1])])
    serial = [capture_full(model, *job)[0] for job in jobs]
    together = threading.Barrier(2, timeout=30)
    parallel = [FullRows(), FullRows()]
    failures: list[BaseException] = []

    def wait(_: int) -> None:
        # Both threads are inside their capture before either goes on, at every layer.
        together.wait()

    def work(index: int) -> None:
        try:
            with torch.no_grad(), capture_rows(jobs[index][1], parallel[index], wait):
                together.wait()
                model(**jobs[index][0])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for expected, got in zip(serial, parallel, strict=True):
        assert got.tiles.keys() == expected.tiles.keys()
        for at in expected.tiles:
            torch.testing.assert_close(got.of(*at), expected.of(*at), atol=1e-6, rtol=0)


def test_a_capture_is_not_seen_by_another_thread(build_model):
    inputs, columns = make_batch("none")
    model, rows = build_model("bert"), FullRows()

    def forward() -> None:
        with torch.no_grad():
            model(**inputs)

    with capture_rows(columns, rows):
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
    assert rows.tiles == {}


# Binning.


@pytest.mark.parametrize("tile", [1, 2, 5, 100])
@pytest.mark.parametrize("n_cls", [0, 1])
def test_binned_rows_equal_numpy_sums_over_groups(n_cls, tile):
    rng = np.random.default_rng(7)
    layers, heads, queries, length, n_groups = 3, 2, 8, 30, 6
    rows = rng.dirichlet(np.ones(length), size=(layers, heads, queries)).astype(np.float32)
    groups = rng.integers(0, n_groups, length)
    reducer = BinnedRows(torch.from_numpy(groups), n_groups, n_cls, keep_landmarks=True)
    for layer in range(layers):
        for first in range(0, queries, tile):
            part = torch.from_numpy(rows[layer][:, first : first + tile])
            reducer.add(layer, 0, first, part)
    sums = np.stack([rows[..., groups == g].sum(-1) for g in range(n_groups)], axis=-1)
    close = {"atol": 1e-6, "rtol": 0}
    for layer in range(layers):
        cls = sums[layer, :, 0] if n_cls else np.zeros((heads, n_groups))
        np.testing.assert_allclose(reducer.cls[layer], cls, **close)
        rest = sums[layer][:, n_cls:]
        np.testing.assert_allclose(reducer.landmark_sum[layer], rest.sum(1), atol=1e-5, rtol=0)
        np.testing.assert_allclose(torch.cat(reducer.landmarks[layer]), rest.mean(0), **close)


def test_single_landmarks_are_kept_only_when_asked():
    reducer = BinnedRows(torch.tensor([0, 1]), 2, 1)
    reducer.add(0, 0, 0, torch.full((1, 2, 2), 0.5))
    assert reducer.landmarks == [[]]


def test_binned_rows_refuse_a_second_text():
    reducer = BinnedRows(torch.tensor([0, 1]), 2, 1)
    with pytest.raises(ValueError, match="one text at a time"):
        reducer.add(0, 1, 0, torch.full((1, 1, 2), 0.5))


@given(n=st.integers(0, 5000), bins=st.integers(1, 1024))
def test_bins_tile_the_tokens_in_equal_parts(n, bins):
    edges = bin_edges(n, bins)
    widths = np.diff(edges)
    assert (edges[0], edges[-1], len(widths)) == (0, n, min(n, bins))
    assert n == 0 or (widths.min() >= 1 and widths.max() - widths.min() <= 1)


def test_profile_groups_are_bins_then_cls_landmark_and_other():
    #                       CLS        LMK           LMK other
    token_index = np.array([-1, 0, 1, 2, -1, 3, 4, 5, -1, -1])
    groups, edges = profile_groups(
        token_index, np.array([4, 8]), np.array([0]), AttentionConfig(bins=4)
    )
    assert edges.tolist() == [0, 1, 3, 4, 6]
    assert groups.tolist() == [4, 0, 1, 1, 5, 2, 3, 3, 5, 6]


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
    np.testing.assert_allclose(profile.cls_mass, over_bins(first), **close)
    np.testing.assert_allclose(profile.cls_special, over_special(first), **close)
    if kind is not LayoutKind.LANDMARK:
        assert profile.landmark_mass is None
        assert profile.landmark_special is None
        assert profile.landmark_map is None
        return
    landmarks = full[:, :, layout.landmark_positions]  # (L, H, K, S)
    np.testing.assert_allclose(profile.landmark_mass, over_bins(landmarks.mean(2)), **close)
    np.testing.assert_allclose(profile.landmark_special, over_special(landmarks.mean(2)), **close)
    np.testing.assert_allclose(profile.landmark_map, over_bins(landmarks.mean(1)), **close)


@pytest.mark.parametrize("kind", list(LayoutKind))
@pytest.mark.parametrize("name", ["bert", "modernbert", "gte", "jina", "qwen3", "roberta"])
def test_bins_and_special_shares_of_a_row_sum_to_one(name, kind, tiny_encoder):
    encoder = tiny_encoder(name)
    layout = encoder.layout(TEXT, kind, ChunkingConfig(granularity=6), max_length=40)
    profile = encoder.attention_profile(layout, AttentionConfig(bins=9))
    pairs = [(profile.cls_mass, profile.cls_special)]
    if kind is LayoutKind.LANDMARK:
        pairs.append((profile.landmark_mass, profile.landmark_special))
    for mass, special in pairs:
        np.testing.assert_allclose(mass.sum(-1) + special.sum(-1), 1, atol=1e-5, rtol=0)


def test_the_map_of_landmarks_averages_to_their_mean_row(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=4))
    profile = encoder.attention_profile(layout, AttentionConfig(bins=11, keep_landmarks=True))
    assert profile.landmark_map.shape == (4, layout.n_landmarks, 11)
    np.testing.assert_allclose(
        profile.landmark_map.mean(1), profile.landmark_mass.mean(1), atol=1e-6, rtol=0
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
    assert profile.cls_mass.shape == (2, 2, 3)


@pytest.mark.parametrize("text", ["", " \n\t "], ids=["empty", "white space"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_an_empty_text_has_a_profile_of_special_shares_alone(name, text, tiny_encoder):
    encoder = tiny_encoder(name)
    profile = encoder.attention_profile(encoder.layout(text), AttentionConfig(keep_landmarks=True))
    assert (profile.n_content, profile.edges.tolist()) == (0, [0])
    assert profile.cls_mass.shape[-1] == profile.landmark_mass.shape[-1] == 0
    assert profile.landmark_map.shape == (encoder.n_layers, 1, 0)
    np.testing.assert_allclose(profile.cls_special.sum(-1), 1, atol=1e-6, rtol=0)
    written = profile.to_dict()
    assert written["uniform_weight"] is None
    assert written["layers"][0]["heads"][0]["cls"]["weights"] == []


def test_without_cls_a_profile_has_landmark_rows_alone(tiny_encoder, build_tokenizer, build_model):
    encoder = Encoder(build_model("qwen3"), build_tokenizer("byte_bpe", bos_token=None))
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    profile = encoder.attention_profile(layout, AttentionConfig(bins=9))
    assert profile.cls_mass is None
    assert profile.cls_special is None
    assert profile.n_heads == 4
    rows = eager_rows(build_model, "qwen3", layout)[:, :, layout.landmark_positions].mean(2)
    shares = rows[..., layout.landmark_positions].sum(-1)
    np.testing.assert_allclose(profile.landmark_special[..., 1], shares, atol=1e-5, rtol=0)
    assert set(profile.to_dict()["layers"][0]["heads"][0]) == {"head", "landmark"}


def test_a_layout_with_neither_cls_nor_landmark_has_a_profile_without_rows(
    build_tokenizer, build_model
):
    encoder = Encoder(build_model("qwen3"), build_tokenizer("byte_bpe", bos_token=None))
    profile = encoder.attention_profile(
        encoder.layout(TEXT, max_length=10), AttentionConfig(keep_landmarks=True)
    )
    assert (profile.cls_mass, profile.landmark_mass, profile.landmark_map) == (None, None, None)
    assert profile.n_heads == 0
    assert profile.to_dict()["layers"][1]["heads"] == []


def test_no_layer_told_means_the_class_is_named(tiny_encoder):
    encoder = tiny_encoder("mpnet")
    with pytest.raises(ValueError, match="MPNetModel reported attention for 0 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"))
    assert not encoder.reports_attention


def test_a_layer_that_does_not_report_makes_the_profile_fail(build_model, wordpiece_tokenizer):
    model = build_model("bert")
    inner = next(m for m in model.encoder.layer[1].modules() if hasattr(m, "query"))
    inner.config = copy.deepcopy(model.config)
    inner.config._attn_implementation = "sdpa"
    encoder = Encoder(model, wordpiece_tokenizer)
    with pytest.raises(ValueError, match="reported attention for 1 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"))


@pytest.mark.parametrize("name", EAGER_MODELS)
def test_classes_that_use_the_attention_interface_report(name, tiny_encoder):
    assert tiny_encoder(name).reports_attention


def test_a_model_loaded_with_another_attention_does_not_report(build_model, wordpiece_tokenizer):
    encoder = Encoder(build_model("bert", "sdpa"), wordpiece_tokenizer)
    with pytest.raises(ValueError, match="0 of 2 layers"):
        encoder.attention_profile(encoder.layout("a chunk"))


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
    special = np.zeros((layers, heads, 3), np.float32) if special is None else special
    return AttentionProfile(
        layer_kinds=(LayerKind.GLOBAL,) * layers,
        windows=(None,) * layers,
        edges=np.array(edges),
        n_content=edges[-1],
        landmark_tokens=np.array([edges[-1]]),
        cls_mass=mass.astype(np.float32),
        cls_special=special,
        landmark_mass=None,
        landmark_special=None,
        cls_scalars=np.arange(layers * heads * 4, dtype=np.float32).reshape(layers, heads, 4),
    )


def test_content_weights_sum_to_one_whatever_the_special_tokens_took():
    mass = np.array([[[0.1, 0.3], [0.002, 0.002]]])
    profile = make_profile(mass, [0, 1, 2])
    expected = [[[0.25, 0.75], [0.5, 0.5]]]
    np.testing.assert_allclose(profile.content_weights(profile.cls_mass), expected, atol=1e-6)


def test_content_weights_of_a_row_without_content_mass_stay_zero():
    profile = make_profile(np.zeros((1, 1, 3)), [0, 1, 2, 3])
    assert profile.content_weights(profile.cls_mass).tolist() == [[[0, 0, 0]]]


def test_the_weight_of_a_token_in_a_uniform_row_is_one_over_n():
    edges = bin_edges(10, 4).tolist()  # Widths 2, 3, 2, 3.
    mass = np.broadcast_to(np.diff(edges) / 10 * 0.6, (2, 3, 4))
    profile = make_profile(mass, edges)
    weights = profile.weight_per_token(profile.cls_mass, (0, 1), None)
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
        got = profile.weight_per_token(profile.cls_mass, layers, head)
        np.testing.assert_allclose(got, expected, atol=1e-7)


def test_weights_of_tokens_times_bin_widths_sum_to_one(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    profile = encoder.attention_profile(encoder.layout(TEXT), AttentionConfig(bins=7))
    for mass in (profile.cls_mass, profile.landmark_mass):
        weights = profile.weight_per_token(mass, profile.layers_of(LayerKind.LOCAL), 1)
        assert (weights * np.diff(profile.edges)).sum() == pytest.approx(1, abs=1e-6)


def test_no_layer_to_average_is_refused():
    profile = make_profile(np.ones((1, 1, 1)), [0, 1])
    with pytest.raises(ValueError, match="no layer to average"):
        profile.weight_per_token(profile.cls_mass, profile.layers_of(LayerKind.LOCAL), None)


@pytest.mark.parametrize(("layer", "head"), [(0, 2), (1, 0)], ids=["head", "layer"])
def test_a_layer_or_head_that_is_not_there_is_an_error_and_not_nan(layer, head):
    profile = make_profile(np.ones((1, 2, 1)), [0, 1])
    with pytest.raises(IndexError, match="out of bounds"):
        profile.weight_per_token(profile.cls_mass, [layer], head)


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
    profile = encoder.attention_profile(encoder.layout(TEXT))
    rows = profile.rows()
    assert list(rows) == [PoolingMode.CLS, PoolingMode.LANDMARK]
    assert rows[PoolingMode.CLS].mass is profile.cls_mass
    assert rows[PoolingMode.CLS].special is profile.cls_special
    assert rows[PoolingMode.CLS].scalars is profile.cls_scalars
    assert rows[PoolingMode.LANDMARK].mass is profile.landmark_mass
    assert rows[PoolingMode.LANDMARK].special is profile.landmark_special
    assert rows[PoolingMode.LANDMARK].scalars is profile.landmark_scalars
    plain = encoder.attention_profile(encoder.layout(TEXT, LayoutKind.PLAIN))
    assert list(plain.rows()) == [PoolingMode.CLS]


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


def test_attention_of_a_batch_of_one_needs_no_padding_to_be_right(tiny_encoder):
    """The mask is None without padding, and a tensor with it: both have to give the same."""
    encoder = tiny_encoder("bert")
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    query = torch.from_numpy(np.concatenate([[0], layout.landmark_positions]))
    alone, padded = FullRows(), FullRows()
    ids = torch.from_numpy(layout.input_ids.copy())[None]
    longer = torch.nn.functional.pad(ids, (0, 9))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (0, 9))
    with torch.no_grad():
        with capture_rows([query], alone):
            encoder.model(input_ids=ids, attention_mask=torch.ones_like(ids))
        with capture_rows([query], padded):
            encoder.model(input_ids=longer, attention_mask=mask)
    for layer in range(2):
        torch.testing.assert_close(
            padded.of(layer)[..., : len(layout)], alone.of(layer), atol=1e-6, rtol=0
        )


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


@pytest.mark.parametrize("n", [1, 2, 9, 10, 25, 300])
def test_scalars_of_random_rows_equal_a_loop_over_tokens(n):
    rows = np.random.default_rng(n).dirichlet(np.full(n, 0.3), size=(2, 3)).astype(np.float32)
    got = row_scalars(torch.from_numpy(rows * np.float32(0.2))).numpy()
    assert got.shape == (2, 3, len(SCALARS))
    expected = [[naive_scalars(row) for row in rows_of_head] for rows_of_head in rows]
    np.testing.assert_allclose(got, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1.0, 0, 0, 0, 0], [0.5, 0, 0, 0]),
        ([0.0, 0, 0, 0, 3], [0, 1, 1, 0]),
        ([0.0, 1, 0, 1, 0], [0, 0.5, 0.25, np.log(2) / np.log(5)]),
        ([0.0, 0, 0, 0, 0], [0, 0, 0, 0]),
        ([0.5], [0.1, 0, 0, 1]),
    ],
    ids=["all on the first", "all on the last", "two places", "no mass", "one token"],
)
def test_scalars_of_simple_rows_are_as_worked_out_by_hand(row, expected):
    got = row_scalars(torch.tensor(row))
    np.testing.assert_allclose(got, expected, atol=1e-6, rtol=0)


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
            np.testing.assert_allclose(profile.cls_scalars[layer, head], cls, atol=1e-4, rtol=0)
            np.testing.assert_allclose(
                profile.landmark_scalars[layer, head], np.mean(each, axis=0), atol=1e-4, rtol=0
            )
    written = profile.to_dict()["layers"][1]["heads"][0]["landmark"]["scalars"]
    assert written == pytest.approx(
        dict(zip(SCALARS, profile.landmark_scalars[1, 0].tolist(), strict=True))
    )
