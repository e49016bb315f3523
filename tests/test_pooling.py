import numpy as np
import pytest
import torch
from helpers import PAD, SPECIAL, THREES, cases, seeded, toy_tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.landmarks import SpecialIds, Tokens, build_layout, collate
from lmk_viz.pooling import (
    POOLINGS,
    ReadPositions,
    masked_mean,
    parse_poolings,
    pool,
    pool_mask,
    read_positions,
    resolve,
)

CLS = PoolingConfig("cls")
MEAN = PoolingConfig("mean")
CONTENT = PoolingConfig("mean", include_special=False)
EVERY_3 = PoolingConfig("every_k", k=3)
MULTI_CLS = PoolingConfig("multi_cls")
LANDMARK = PoolingConfig("landmark")
EVERY_POOLING = [CLS, MEAN, CONTENT, EVERY_3, MULTI_CLS, LANDMARK]
each_pooling = pytest.mark.parametrize("config", EVERY_POOLING, ids=lambda c: c.label)


def toy_layout(n, config, max_length=None, special=SPECIAL):
    kind = POOLINGS[config.mode].layout
    return build_layout(toy_tokens(n), special, kind, THREES, max_length)


# Reference cases of the method and its baselines.
@pytest.mark.parametrize(
    ("config", "n", "max_length", "positions", "fell_back"),
    [
        (LANDMARK, 7, None, [4, 8, 10], False),
        (LANDMARK, 6, None, [4, 8], False),
        (LANDMARK, 6, 9, [4, 8], False),
        (LANDMARK, 1, None, [2], False),
        (LANDMARK, 6, 8, [4], False),
        (LANDMARK, 7, 7, [4], False),
        (LANDMARK, 2, 3, [0, 1, 2], True),
        (LANDMARK, 0, None, [1], False),
        (MULTI_CLS, 7, None, [0, 4, 8], False),
        (MULTI_CLS, 7, 6, [0, 4], False),
        (EVERY_3, 7, None, [0, 3, 6], False),
        (EVERY_3, 5, None, [0, 3, 6], False),
        (EVERY_3, 7, 8, [0, 3, 6], False),
        (EVERY_3, 7, 5, [0, 3], False),
        (EVERY_3, 0, None, [0], False),
        (PoolingConfig("every_k", k=1), 2, None, [0, 1, 2, 3], False),
        (PoolingConfig("every_k", k=99), 7, None, [0], False),
        (CLS, 7, None, [0], False),
        (CLS, 0, None, [0], False),
        (MEAN, 3, None, [0, 1, 2, 3, 4], False),
        (MEAN, 7, 4, [0, 1, 2, 3], False),
        (MEAN, 0, None, [0, 1], False),
        (CONTENT, 3, None, [1, 2, 3], False),
        (CONTENT, 7, 4, [1, 2], False),
        (CONTENT, 0, None, [0, 1], True),
    ],
    ids=lambda x: x.label if isinstance(x, PoolingConfig) else "",
)
def test_a_pooling_reads_the_positions_of_the_reference_case(
    config, n, max_length, positions, fell_back
):
    read = read_positions(toy_layout(n, config, max_length), config)
    assert (read.positions.tolist(), read.fell_back) == (positions, fell_back)


def test_the_authors_training_would_not_fall_back_and_neither_does_a_closed_tail():
    # Two tokens in three positions: training makes the last token a landmark, pooled at 2.
    closed = ChunkingConfig(granularity=3, close_tail=True)
    layout = build_layout(toy_tokens(2), SPECIAL, chunking=closed, max_length=3)
    read = read_positions(layout, LANDMARK)
    assert (read.positions.tolist(), read.fell_back) == ([2], False)


@pytest.mark.parametrize("n", [1, 2, 3], ids=str)
def test_landmark_reads_the_final_separator_alone_where_the_text_fits_one_chunk(n):
    # Up to g tokens LMK is "pool the final SEP", input included.
    landmark, plain = toy_layout(n, LANDMARK), toy_layout(n, CLS)
    assert landmark.input_ids.tolist() == plain.input_ids.tolist()
    assert read_positions(landmark, LANDMARK).positions.tolist() == [plain.separator_position]


def test_multi_cls_without_fixed_splitting_is_plain_cls():
    whole = ChunkingConfig(granularity=99)
    layout = build_layout(toy_tokens(7), SPECIAL, LayoutKind.MULTI_CLS, whole)
    assert layout.input_ids.tolist() == toy_layout(7, CLS).input_ids.tolist()
    assert read_positions(layout, MULTI_CLS).positions.tolist() == [0]


def test_a_typed_separator_is_not_read_as_a_landmark():
    tokens = Tokens.from_offsets("a [SEP] b", [10, SPECIAL.landmark, 11], [(0, 1), (2, 7), (8, 9)])
    layout = build_layout(tokens, SPECIAL, chunking=THREES)
    assert read_positions(layout, LANDMARK).positions.tolist() == [4]


def test_a_typed_cls_is_not_read_as_a_chunks_cls():
    tokens = Tokens.from_offsets("a [CLS] b", [10, 1, 11], [(0, 1), (2, 7), (8, 9)])
    layout = build_layout(tokens, SPECIAL, LayoutKind.MULTI_CLS, THREES)
    assert read_positions(layout, MULTI_CLS).positions.tolist() == [0]


def test_content_is_told_from_special_tokens_without_a_cls_too():
    layout = toy_layout(3, CONTENT, special=SpecialIds(cls=None, landmark=2, pad=0))
    assert read_positions(layout, CONTENT).positions.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        (LANDMARK, LayoutKind.PLAIN, "landmark reads a landmark layout; a plain layout came"),
        (MEAN, LayoutKind.LANDMARK, "mean reads a plain layout; a landmark layout came"),
        (CLS, LayoutKind.MULTI_CLS, "cls reads a plain layout; a multi_cls layout came"),
        (EVERY_3, LayoutKind.LANDMARK, "every_k reads a plain layout; a landmark layout came"),
        (MULTI_CLS, LayoutKind.PLAIN, "multi_cls reads a multi_cls layout; a plain layout came"),
    ],
    ids=["landmark", "mean", "cls", "every_k", "multi_cls"],
)
def test_a_layout_of_another_kind_is_refused(config, kind, message):
    with pytest.raises(ValueError, match=message):
        read_positions(build_layout(toy_tokens(3), SPECIAL, kind), config)


def test_every_k_without_its_step_is_refused():
    with pytest.raises(ValueError, match="every_k has no step; give k, or resolve it"):
        read_positions(toy_layout(3, EVERY_3), PoolingConfig("every_k"))


def test_every_pooling_mode_is_registered():
    assert set(POOLINGS) == set(PoolingMode)


@pytest.mark.parametrize(
    ("config", "resolved"),
    [
        (PoolingConfig("every_k"), PoolingConfig("every_k", k=3)),
        (PoolingConfig("every_k", k=8), PoolingConfig("every_k", k=8)),
        (CONTENT, CONTENT),
    ],
    ids=["without-step", "with-step", "other-mode"],
)
def test_the_step_of_every_k_is_the_granularity_unless_it_is_given(config, resolved):
    assert resolve(config, THREES) == resolved


def test_a_masked_mean_is_that_of_the_masked_states():
    states = torch.tensor([[[1.0, 10.0], [3.0, 30.0], [100.0, 7.0]], [[5.0, 6.0], [0, 0], [0, 0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    torch.testing.assert_close(
        masked_mean(states, mask), torch.tensor([[2.0, 20.0], [5.0, 6.0]]), rtol=0, atol=0
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30], ids=str)
def test_states_outside_the_mask_have_no_influence(value):
    states = torch.tensor([[[2.0], [value]]])
    assert masked_mean(states, torch.tensor([[True, False]])).tolist() == [[2.0]]


def test_a_broken_state_inside_the_mask_is_not_hidden():
    states = torch.tensor([[[2.0], [float("nan")]]])
    assert masked_mean(states, torch.tensor([[True, True]])).isnan().all()


def test_a_mask_of_whole_numbers_is_read_as_one_of_truth_values():
    states = torch.arange(6.0).reshape(1, 3, 2)
    assert masked_mean(states, torch.tensor([[1, 0, 1]])).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_mean_is_taken_in_float32(dtype):
    # 4/3 has no short binary form: in bfloat16 it would be 1.3359.
    states = torch.tensor([[[1.0], [1.0], [2.0]]], dtype=dtype)
    torch.testing.assert_close(
        masked_mean(states, torch.ones(1, 3, dtype=torch.bool)),
        torch.tensor([[4 / 3]], dtype=torch.float32),
        rtol=0,
        atol=1e-7,
    )


def test_large_states_of_half_precision_do_not_overflow():
    states = torch.full((1, 4, 1), 60000.0, dtype=torch.float16)
    assert masked_mean(states, torch.ones(1, 4, dtype=torch.bool)).tolist() == [[60000.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_are_not_written_into(dtype):
    states = torch.arange(6.0).reshape(1, 3, 2).to(dtype)
    before = states.clone()
    pool(states, torch.tensor([[True, False, False]]), normalize=True)
    assert torch.equal(states, before)


@pytest.mark.parametrize(
    ("states", "mask"),
    [((2, 3, 4), (2, 4)), ((2, 3, 4), (3, 2)), ((2, 3), (2, 3)), ((2, 3, 4), (2, 3, 1))],
    ids=["length", "transposed", "no-width", "mask-width"],
)
def test_shapes_that_do_not_match_are_refused_with_both(states, mask):
    shown = rf"token_embeddings \({', '.join(map(str, states))}\) and mask \({mask[0]}, {mask[1]}"
    with pytest.raises(ValueError, match=shown):
        masked_mean(torch.zeros(states), torch.ones(mask, dtype=torch.bool))


def test_a_row_without_a_position_is_refused():
    mask = torch.tensor([[True, False], [False, False]])
    with pytest.raises(ValueError, match=r"a row has no position to read; .* one True a row"):
        masked_mean(torch.zeros(2, 2, 3), mask)


def test_a_vector_keeps_its_length_by_default():
    assert pool(torch.tensor([[[3.0, 4.0]]]), torch.tensor([[True]])).tolist() == [[3.0, 4.0]]


def test_a_normalised_vector_has_length_one():
    vector = pool(torch.tensor([[[3.0, 4.0]]]), torch.tensor([[True]]), normalize=True)
    torch.testing.assert_close(vector, torch.tensor([[0.6, 0.8]]), rtol=0, atol=1e-7)


def test_states_are_averaged_before_normalising_so_long_ones_weigh_more():
    # Mean of (9, 0) and (0, 3) is (4.5, 1.5); averaging unit vectors would give equal parts.
    states = torch.tensor([[[9.0, 0.0], [0.0, 3.0]]])
    vector = pool(states, torch.tensor([[True, True]]), normalize=True)
    torch.testing.assert_close(vector, torch.tensor([[3.0, 1.0]]) / 10**0.5, rtol=0, atol=1e-6)


def test_each_row_is_normalised_by_itself():
    states = torch.tensor([[[3.0, 4.0]], [[0.0, -2.0]]])
    vectors = pool(states, torch.ones(2, 1, dtype=torch.bool), normalize=True)
    torch.testing.assert_close(vectors, torch.tensor([[0.6, 0.8], [0, -1]]), rtol=0, atol=1e-7)


def test_a_zero_vector_stays_zero_when_normalised():
    assert pool(torch.zeros(1, 2, 3), torch.ones(1, 2), normalize=True).tolist() == [[0, 0, 0]]


def test_a_pooling_may_be_named_by_text():
    states, mask = torch.tensor([[[1.0], [3.0]]]), torch.tensor([[True, True]])
    assert pool(states, mask, "mean").tolist() == [[2.0]]


def test_an_unknown_pooling_is_refused_by_name():
    with pytest.raises(ValueError, match="pooling is 'max'; allowed: cls, mean, landmark"):
        pool(torch.zeros(1, 1, 1), torch.ones(1, 1), "max")


def test_read_positions_become_a_mask_behind_the_padding_of_each_row():
    reads = [ReadPositions(np.array(p), fell_back=False) for p in ([0, 2], [1], [0, 1])]
    found = pool_mask(reads, np.array([1, 0, 2]), length=4)
    assert found.astype(int).tolist() == [[0, 1, 0, 1], [0, 1, 0, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("names", "modes"),
    [
        ("cls", ["cls"]),
        ("cls,mean,landmark", ["cls", "mean", "landmark"]),
        (" every_k , multi_cls,", ["every_k", "multi_cls"]),
    ],
    ids=["one", "three", "spaces"],
)
def test_a_list_of_poolings_is_read_in_its_order(names, modes):
    assert parse_poolings(names) == tuple(PoolingConfig(mode) for mode in modes)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("", "no pooling given; allowed: cls, mean, landmark, every_k, multi_cls, latent_"),
        (" , ", "no pooling given; allowed: cls"),
        ("cls,cls", "pooling list 'cls,cls' names one twice; give each once"),
        ("cls,max", "pooling is 'max'; allowed: cls, mean"),
    ],
    ids=["empty", "commas", "twice", "unknown"],
)
def test_a_bad_list_of_poolings_is_refused(names, message):
    with pytest.raises(ValueError, match=message):
        parse_poolings(names)


def slow_vector(layout, config, states):
    """The pooled vector from one unpadded row, position by position, in float64."""
    chosen = {
        PoolingMode.CLS: lambda p: p == 0,
        PoolingMode.MEAN: lambda p: config.include_special or layout.token_index[p] >= 0,
        PoolingMode.EVERY_K: lambda p: p % (config.k or 0) == 0,
        PoolingMode.MULTI_CLS: lambda p: p in layout.cls_positions.tolist(),
        PoolingMode.LANDMARK: lambda p: p in layout.landmark_positions.tolist(),
    }[config.mode]
    read = [p for p in range(len(layout)) if chosen(p)] or list(range(len(layout)))
    return np.mean([states[p].astype(np.float64) for p in read], axis=0)


def batch_vectors(layouts, config, states, padding_side):
    """The pooled vectors of one padded batch whose padding columns hold NaN."""
    batch = collate(layouts, PAD, padding_side)
    length = batch.input_ids.shape[1]
    padded = np.full((len(layouts), length, states[0].shape[1]), np.nan, dtype=np.float32)
    padded[batch.attention_mask == 1] = np.concatenate(states)
    reads = [read_positions(layout, config) for layout in layouts]
    mask = pool_mask(reads, batch.shifts, length)
    return pool(torch.from_numpy(padded), torch.from_numpy(mask), config.mode).numpy()


@each_pooling
@settings(seeded, max_examples=60)
@given(data=st.data(), side=st.sampled_from(["right", "left"]))
def test_batch_padding_and_order_never_change_a_vector(config, data, side):
    kind = POOLINGS[config.mode].layout
    layouts = [c.build() for c in data.draw(st.lists(cases(kind=kind), min_size=1, max_size=4))]
    rng = np.random.default_rng(7)
    states = [rng.normal(size=(len(layout), 5)).astype(np.float32) for layout in layouts]
    order = data.draw(st.permutations(range(len(layouts))))
    found = batch_vectors([layouts[i] for i in order], config, [states[i] for i in order], side)
    expected = [slow_vector(layouts[i], config, states[i]) for i in order]
    np.testing.assert_allclose(found, np.stack(expected), rtol=0, atol=1e-5)


@seeded
@given(case=cases(kind=LayoutKind.LANDMARK))
def test_landmark_pooling_falls_back_exactly_when_no_landmark_is_left(case):
    layout = case.build()
    assert read_positions(layout, LANDMARK).fell_back is (layout.n_landmarks == 0)


def test_the_fallback_is_the_mean_over_every_position():
    layout = toy_layout(2, LANDMARK, max_length=3)
    states = np.array([[1.0], [2.0], [6.0]], dtype=np.float32)
    assert batch_vectors([layout], LANDMARK, [states], "right").tolist() == [[3.0]]


@each_pooling
@settings(seeded, max_examples=60)
@given(data=st.data())
def test_every_pooling_finds_a_position_to_read_in_any_layout(config, data):
    layout = data.draw(cases(kind=POOLINGS[config.mode].layout)).build()
    positions = read_positions(layout, config).positions
    assert 0 < len(positions) <= len(layout)
    assert positions.max() < len(layout)
