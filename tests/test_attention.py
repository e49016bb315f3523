"""Attention rows as they are captured, against the library's eager attention."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lmk_viz import attention
from lmk_viz.attention import ATTENTION_NAME, CaptureStoppedError, capture_rows
from lmk_viz.config import ChunkingConfig, LayerKind

EAGER_MODELS = ("bert", "modernbert", "gte", "jina", "qwen3", "qwen3_local", "gemma3")
LOCAL_MODELS = ("modernbert", "qwen3_local", "gemma3")
LENGTHS = (20, 13, 7)
LONGER = (150, 101, 7)
"""Long enough for several tiles and several blocks a local layer."""
TEXT = (
    "A landmark token is placed after every chunk of a long document. The vector of the "
    "document is the mean of its landmarks, and the first token forgets the end."
)


class FullRows:
    """Keeps every row at full width; for tests only: this is what the product never does."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tiles: dict[tuple[int, int], list[torch.Tensor]] = {}
        self.spans: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self.firsts: list[int] = []

    def add(self, layer: int, item: int, first: int, rows: torch.Tensor, start: int) -> None:
        tiles = self.tiles.setdefault((layer, item), [])
        assert first == sum(tile.shape[1] for tile in tiles)
        assert rows.dtype == torch.float32
        stop = start + rows.shape[2]
        assert 0 <= start < stop <= self.length
        whole = torch.zeros(*rows.shape[:2], self.length)
        whole[..., start:stop] = rows
        tiles.append(whole)
        self.spans.setdefault((layer, item), []).append((rows.shape[1], start, stop))
        self.firsts.append(first)

    def of(self, layer: int, item: int = 0) -> torch.Tensor:
        return torch.cat(self.tiles[layer, item], dim=1)  # (H, Q, T)


def make_batch(
    padding: str, lengths: tuple[int, ...] = LENGTHS
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """Returns inputs and the attended columns of each row."""
    generator = torch.Generator().manual_seed(2)
    rows = len(lengths) if padding != "none" else 1
    longest = lengths[0]
    input_ids = torch.randint(5, 190, (rows, longest), generator=generator)
    attention_mask = torch.zeros_like(input_ids)
    columns = []
    for row, length in enumerate(lengths[:rows]):
        start = longest - length if padding == "left" else 0
        attention_mask[row, start : start + length] = 1
        columns.append(torch.arange(start, start + length))
    return {"input_ids": input_ids, "attention_mask": attention_mask}, columns


def capture_full(model: Any, inputs: dict[str, torch.Tensor], columns: Any) -> Any:
    rows = FullRows(inputs["input_ids"].shape[1])
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
    rows = FullRows(length)
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


CASES = [(name, LENGTHS) for name in EAGER_MODELS] + [(name, LONGER) for name in LOCAL_MODELS]
CASE_NAMES = [f"{name}-{lengths[0]}" for name, lengths in CASES]


@pytest.mark.parametrize("padding", ["right", "left", "none"])
@pytest.mark.parametrize(("name", "lengths"), CASES, ids=CASE_NAMES)
def test_captured_rows_equal_eager_attention(name, lengths, padding, build_model):
    inputs, columns = make_batch(padding, lengths)
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
@pytest.mark.parametrize(("name", "lengths"), CASES, ids=CASE_NAMES)
def test_hidden_states_under_capture_equal_plain_sdpa(name, lengths, padding, build_model):
    inputs, columns = make_batch(padding, lengths)
    # Local layers take their keys in another order, which rounding shows.
    tolerance = 1e-5 if name in LOCAL_MODELS else 1e-6
    with torch.no_grad():
        plain = build_model(name, "sdpa")(**inputs).last_hidden_state
    _, states, _ = capture_full(build_model(name), inputs, columns)
    for item, attended in enumerate(columns):
        torch.testing.assert_close(
            states[item, attended], plain[item, attended], atol=tolerance, rtol=0
        )


@pytest.mark.parametrize("padding", ["right", "left", "none"])
@pytest.mark.parametrize(("name", "lengths"), CASES, ids=CASE_NAMES)
def test_rows_sum_to_one_and_give_padding_nothing(name, lengths, padding, build_model):
    inputs, columns = make_batch(padding, lengths)
    rows, _, capture = capture_full(build_model(name), inputs, columns)
    for layer in range(capture.layers_seen):
        for item in range(len(columns)):
            got = rows.of(layer, item)
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
    columns = [torch.tensor([0, 3, 7]), torch.tensor([8])]
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


@pytest.mark.parametrize(("name", "before", "after"), [("modernbert", 4, 4), ("qwen3_local", 4, 0)])
def test_tiles_of_local_layers_hold_the_keys_in_reach_and_no_others(
    name, before, after, build_model, monkeypatch
):
    monkeypatch.setattr("lmk_viz.attention.MIN_TILE_WIDTH", 64)
    inputs, columns = make_batch("none", LONGER)
    rows, _, _ = capture_full(build_model(name), inputs, columns)
    last = LONGER[0]
    first = 0
    for count, start, stop in rows.spans[1, 0]:
        assert start == max(0, first - before)
        assert stop == min(last, first + count + after)
        first += count
    assert (len(rows.spans[1, 0]), first) == (3, last)
    assert rows.spans[0, 0] == [(last, 0, last)]


def test_far_apart_queries_of_a_local_layer_have_tiles_of_their_own(build_model, monkeypatch):
    monkeypatch.setattr("lmk_viz.attention.MIN_TILE_WIDTH", 64)
    inputs, _ = make_batch("none", LONGER)
    columns = [torch.tensor([0, 70, 140, 141])]
    model = build_model("modernbert")
    with torch.no_grad():
        eager = build_model("modernbert", "eager")(**inputs, output_attentions=True).attentions
    rows, _, _ = capture_full(model, inputs, columns)
    assert rows.spans[1, 0] == [(1, 0, 5), (1, 66, 75), (2, 136, 146)]
    for layer, expected in enumerate(eager):
        torch.testing.assert_close(rows.of(layer), expected[0][:, columns[0]], atol=1e-5, rtol=0)


def test_tiles_of_local_layers_hold_the_stated_bytes_too(build_model, monkeypatch):
    inputs, columns = make_batch("none", LONGER)
    model = build_model("modernbert")
    whole, _, _ = capture_full(model, inputs, columns)
    limit = 2 * 4 * 9 * 13  # Heads, bytes, rows, keys.
    monkeypatch.setattr("lmk_viz.attention.TILE_BYTES", limit)
    tiled, _, _ = capture_full(model, inputs, columns)
    counts = [count for count, _, _ in tiled.spans[1, 0]]
    for count, start, stop in tiled.spans[1, 0]:
        assert count == 1 or 2 * 4 * count * (stop - start) <= limit
    assert counts[:3] == [9, 7, 7]  # The first nine reach 13 keys, the next nine would 17.
    for layer in range(4):
        torch.testing.assert_close(tiled.of(layer), whole.of(layer), atol=1e-6, rtol=0)


# Stopping between layers.


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_a_forward_that_should_stop_ends_after_the_layer_it_is_in(after, build_model):
    inputs, columns = make_batch("right")
    model = build_model("modernbert")
    whole, _, _ = capture_full(model, inputs, columns)
    rows, told = FullRows(LENGTHS[0]), []
    with (
        torch.no_grad(),
        pytest.raises(CaptureStoppedError),
        capture_rows(columns, rows, told.append, lambda: len(told) >= after) as capture,
    ):
        model(**inputs)
    assert (capture.layers_seen, told) == (after, list(range(after)))
    assert {layer for layer, _ in rows.tiles} == set(range(after))
    for layer, item in rows.tiles:
        assert torch.equal(rows.of(layer, item), whole.of(layer, item))


def test_a_forward_that_need_not_stop_runs_to_its_end(build_model):
    inputs, columns = make_batch("none")
    asked = []

    def never() -> bool:
        asked.append(True)
        return False

    rows = FullRows(LENGTHS[0])
    with torch.no_grad(), capture_rows(columns, rows, None, never) as capture:
        build_model("modernbert")(**inputs)
    assert (capture.layers_seen, len(asked)) == (4, 4)


# The capture and its context.


def test_nothing_is_captured_outside_the_context(build_model):
    inputs, columns = make_batch("none")
    model, rows = build_model("bert"), FullRows(LENGTHS[0])
    with torch.no_grad():
        model(**inputs)
        with capture_rows(columns, rows) as capture:
            pass
        model(**inputs)
    assert (rows.tiles, capture.layers_seen) == ({}, 0)


def test_an_inner_capture_gives_back_to_the_outer_one(build_model):
    inputs, columns = make_batch("none")
    model, outer, inner = build_model("bert"), FullRows(LENGTHS[0]), FullRows(LENGTHS[0])
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

    reducer: Any = SimpleNamespace(add=note) if where == "reducer" else FullRows(LENGTHS[0])
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
    rows = FullRows(LENGTHS[0])
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
    jobs = (inputs, columns), (other, [torch.tensor([1, 3])])
    serial = [capture_full(model, *job)[0] for job in jobs]
    together = threading.Barrier(2, timeout=30)
    parallel = [FullRows(LENGTHS[0]), FullRows(LENGTHS[0])]
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
    model, rows = build_model("bert"), FullRows(LENGTHS[0])

    def forward() -> None:
        with torch.no_grad():
            model(**inputs)

    with capture_rows(columns, rows):
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
    assert rows.tiles == {}


def test_attention_of_a_batch_of_one_needs_no_padding_to_be_right(tiny_encoder):
    """The mask is None without padding, and a tensor with it: both have to give the same."""
    encoder = tiny_encoder("bert")
    layout = encoder.layout(TEXT, chunking=ChunkingConfig(granularity=6))
    query = torch.from_numpy(np.concatenate([[0], layout.landmark_positions]))
    alone, padded = FullRows(len(layout)), FullRows(len(layout) + 9)
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
