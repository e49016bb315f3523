"""Sliding windows in blocks, against dense attention under a mask."""

import copy

import pytest
import torch
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from lmk_viz.local_attention import LocalMask, build_mask, local_attention


def dense(query, key, value, mask, scaling=None):
    """Softmax over the whole map, masked by the window's own words."""
    length = query.shape[2]
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
    logits = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    for item in range(query.shape[0]):
        for q in range(length):
            for k in range(length):
                near = -mask.before <= k - q <= mask.after
                if not near or (mask.padding is not None and not mask.padding[item, k]):
                    logits[item, :, q, k] = float("-inf")
    return torch.softmax(logits, dim=-1) @ value


def states(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 1), (4, 4), (7, 0), (3, 9), (64, 64)])
@pytest.mark.parametrize("length", [1, 5, 37])
def test_blocks_equal_dense_attention_for_any_window(before, after, length, monkeypatch):
    monkeypatch.setattr("lmk_viz.local_attention.MIN_BLOCK", 8)
    query, key, value = (states(2, 3, length, 4, seed=s) for s in range(3))
    mask = LocalMask(before, after, None)
    torch.testing.assert_close(
        local_attention(query, key, value, mask), dense(query, key, value, mask), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_is_never_seen_and_never_nan(side, monkeypatch):
    monkeypatch.setattr("lmk_viz.local_attention.MIN_BLOCK", 8)
    length = 41
    padding = torch.ones(3, length, dtype=torch.bool)
    padding[1, 9:], padding[2, 1:] = False, False
    if side == "left":
        padding = padding.flip(1)
    query, key, value = (states(3, 2, length, 4, seed=s) for s in range(3))
    mask = LocalMask(3, 3, padding)
    found, expected = local_attention(query, key, value, mask), dense(query, key, value, mask)
    assert torch.isfinite(found).all()
    attended = padding[:, None, :, None].expand_as(found)
    torch.testing.assert_close(found[attended], expected[attended], atol=1e-5, rtol=0)
    loud = value.masked_fill(~padding[:, None, :, None], 1e4)
    torch.testing.assert_close(
        local_attention(query, key, loud, mask)[attended], found[attended], atol=1e-5, rtol=0
    )


def test_grouped_heads_and_scaling_are_respected(monkeypatch):
    monkeypatch.setattr("lmk_viz.local_attention.MIN_BLOCK", 8)
    query = states(1, 4, 20, 4)
    key, value = (states(1, 2, 20, 4, seed=s) for s in (1, 2))
    mask = LocalMask(5, 2, None)
    torch.testing.assert_close(
        local_attention(query, key, value, mask, 0.7),
        dense(query, key, value, mask, 0.7),
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize(
    ("function", "size", "window"),
    [
        (sliding_window_bidirectional_mask_function(5), 5, (5, 5)),
        (sliding_window_causal_mask_function(5), 5, (4, 0)),
    ],
    ids=["both sides", "causal"],
)
def test_a_window_is_read_off_the_mask_function(function, size, window):
    mask = build_mask(1, 50, 50, mask_function=function, local_size=size)
    assert isinstance(mask, LocalMask)
    assert (mask.before, mask.after) == window
    assert mask.padding is None


@pytest.mark.parametrize("function", [causal_mask_function, bidirectional_mask_function])
def test_masks_without_a_window_are_the_librarys_own(function):
    padding = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    ours = build_mask(2, 6, 6, mask_function=function, attention_mask=padding)
    assert torch.equal(ours, sdpa_mask(2, 6, 6, mask_function=function, attention_mask=padding))


def test_a_mask_function_that_is_not_one_window_stays_dense():
    def holes(batch, head, q, k):
        return ((q - k).abs() <= 4) & ((q - k) % 2 == 0)

    assert not isinstance(build_mask(1, 30, 30, mask_function=holes, local_size=4), LocalMask)


def test_padding_travels_with_the_window_only_where_there_is_some():
    function = sliding_window_bidirectional_mask_function(3)
    full = torch.ones(2, 9, dtype=torch.bool)
    some = full.clone()
    some[1, 5:] = False
    bare = build_mask(2, 9, 9, mask_function=function, attention_mask=full, local_size=3)
    assert bare.padding is None
    mask = build_mask(2, 9, 9, mask_function=function, attention_mask=some, local_size=3)
    assert torch.equal(mask.padding, some)


def test_rows_of_a_window_say_which_keys_a_query_sees():
    padding = torch.tensor([[True, True, True, False, True, True]])
    mask = LocalMask(1, 2, padding)
    rows = mask.rows(0, torch.tensor([1, 4]), 0, 6)
    assert rows.tolist() == [
        [True, True, True, False, False, False],
        [False, False, False, False, True, True],
    ]


@pytest.mark.parametrize("length", [3, 40, 300])
@pytest.mark.parametrize("padded", [False, True])
def test_modernbert_in_blocks_equals_stock_transformers(length, padded, build_model):
    ours = build_model("modernbert")
    stock = copy.deepcopy(ours)
    stock.set_attn_implementation("sdpa")
    ids = torch.randint(5, 50, (2, length), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    if padded:
        mask[1, max(1, length // 3) :] = 0
    with torch.no_grad():
        a = ours(input_ids=ids, attention_mask=mask).last_hidden_state
        b = stock(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.isfinite(a).all()
    torch.testing.assert_close(a[mask.bool()], b[mask.bool()], atol=1e-5, rtol=0)


def test_no_mask_of_a_local_layer_is_as_large_as_the_map(build_model, monkeypatch):
    seen = []
    from lmk_viz import attention

    original = attention.local_attention

    def spy(query, key, value, mask, scaling=None):
        seen.append(type(mask))
        return original(query, key, value, mask, scaling)

    monkeypatch.setattr(attention, "local_attention", spy)
    model = build_model("modernbert")
    ids = torch.randint(5, 50, (1, 64), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    local = list(model.config.layer_types).count("sliding_attention")
    assert seen == [LocalMask] * local
