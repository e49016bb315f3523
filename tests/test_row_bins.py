"""Rows reduced to bins, against whole rows binned by plain loops."""

import itertools
import math

import numpy as np
import pytest
import torch

from lmk_viz.attention_profile import SCALARS, bin_edges, distance_edges, distance_keys
from lmk_viz.config import AttentionConfig, ChunkingConfig, LayoutKind, PoolingMode
from lmk_viz.landmarks import SpecialIds, Tokens, build_layout
from lmk_viz.row_bins import RowBins


def toy_layout(n, granularity=3, kind=LayoutKind.LANDMARK, cls=1):
    tokens = Tokens.from_offsets("x" * n, range(10, 10 + n), [(i, i + 1) for i in range(n)])
    return build_layout(
        tokens, SpecialIds(cls, 2, 0), kind, ChunkingConfig(granularity=granularity)
    )


def random_rows(layout, heads, queries, seed=0, sharp=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(heads, queries, len(layout), generator=generator)
    return torch.softmax(logits, dim=-1)


def naive_scalars(row, token_index):
    """Loops over the text tokens of one row."""
    weights = {int(t): float(w) for t, w in zip(token_index, row, strict=True) if t >= 0}
    n, total = len(weights), sum(weights.values())
    if not n or total <= 0:
        return [0.0] * 4
    p = [weights[t] / total for t in range(n)]
    tenth = sum(p[t] * min(1.0, max(0.0, n / 10 - t)) for t in range(n))
    centre = sum(p[t] * t for t in range(n)) / max(n - 1, 1)
    half, mass = 0, 0.0
    for t in range(n):
        mass += p[t]
        if mass >= 0.5 - 1e-6:
            half = t
            break
    entropy = -sum(w * math.log(w) for w in p if w > 0)
    return [tenth, centre, half / max(n - 1, 1), entropy / math.log(n) if n > 1 else 1.0]


def naive_bins(row, token_index, edges):
    return [
        sum(float(w) for t, w in zip(token_index, row, strict=True) if a <= t < b and t >= 0)
        for a, b in itertools.pairwise(edges)
    ]


def naive_distance(row, token_index, query, edges):
    return [
        sum(
            float(w)
            for position, (t, w) in enumerate(zip(token_index, row, strict=True))
            if t >= 0 and a <= position - query < b
        )
        for a, b in itertools.pairwise(edges)
    ]


def feed(layout, rows, tile, config, layers=1):
    reducer = RowBins(layout, config, torch.device("cpu"))
    for layer in range(layers):
        for first in range(0, rows.shape[1], tile):
            reducer.add(layer, 0, first, rows[:, first : first + tile], 0)
    return reducer


@pytest.mark.parametrize("n", [1, 2, 7, 10, 23, 40, 90])
@pytest.mark.parametrize("tile", [1, 2, 100])
def test_bins_of_whole_rows_equal_loops(n, tile):
    layout = toy_layout(n)
    queries = [0, *layout.landmark_positions.tolist()]
    rows = random_rows(layout, 2, len(queries))
    found = feed(layout, rows, tile, AttentionConfig(bins=5)).rows(1)
    edges = bin_edges(n, 5)
    for mode, picked in ((PoolingMode.CLS, [0]), (PoolingMode.LANDMARK, range(1, len(queries)))):
        for head in range(2):
            mass = np.mean(
                [naive_bins(rows[head, q], layout.token_index, edges) for q in picked], axis=0
            )
            np.testing.assert_allclose(found[mode].mass[0, head], mass, atol=2e-6)
            scalars = np.mean(
                [naive_scalars(rows[head, q], layout.token_index) for q in picked], axis=0
            )
            np.testing.assert_allclose(found[mode].scalars[0, head], scalars, atol=5e-6)
            distance = np.mean(
                [
                    naive_distance(
                        rows[head, q], layout.token_index, queries[q], distance_edges(len(layout))
                    )
                    for q in picked
                ],
                axis=0,
            )
            np.testing.assert_allclose(found[mode].distance_mass[0, head], distance, atol=2e-6)


def test_bins_and_special_groups_share_out_the_whole_row():
    layout = toy_layout(23)
    rows = random_rows(layout, 3, 1 + layout.n_landmarks)
    for row in feed(layout, rows, 4, AttentionConfig(bins=4)).rows(1).values():
        total = row.mass.sum(axis=-1) + row.special.sum(axis=-1)
        np.testing.assert_allclose(total, 1.0, atol=1e-5)
        np.testing.assert_allclose(row.distance_mass.sum(-1), row.mass.sum(-1), atol=1e-5)


def test_special_groups_are_cls_landmarks_and_others_in_that_order():
    layout = toy_layout(4, granularity=2)  # CLS t t LMK t t LMK
    rows = torch.tensor([[[0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.3]] * 3])
    row = feed(layout, rows, 3, AttentionConfig()).rows(1)[PoolingMode.CLS]
    np.testing.assert_allclose(row.special[0, 0], [0.1, 0.5, 0.0], atol=1e-6)
    plain = toy_layout(4, kind=LayoutKind.PLAIN)  # CLS t t t t SEP
    rows = torch.tensor([[[0.1, 0.1, 0.1, 0.1, 0.1, 0.5]]])
    row = feed(plain, rows, 1, AttentionConfig()).rows(1)[PoolingMode.CLS]
    np.testing.assert_allclose(row.special[0, 0], [0.1, 0.0, 0.5], atol=1e-6)


@pytest.mark.parametrize("start", [0, 1, 5, 12])
@pytest.mark.parametrize("width", [1, 3, 9])
def test_rows_over_a_slice_of_the_keys_equal_whole_rows_with_zeros(start, width):
    layout = toy_layout(30)
    queries = 1 + layout.n_landmarks
    part = torch.softmax(
        torch.randn(2, queries, width, generator=torch.Generator().manual_seed(1)), -1
    )
    whole = torch.zeros(2, queries, len(layout))
    whole[:, :, start : start + width] = part
    config = AttentionConfig(bins=7, keep_landmarks=True)
    sliced = RowBins(layout, config, torch.device("cpu"))
    sliced.add(0, 0, 0, part, start)
    full = feed(layout, whole, queries, config)
    for mode, row in full.rows(1).items():
        for name in ("mass", "special", "scalars", "distance_mass"):
            np.testing.assert_allclose(
                getattr(sliced.rows(1)[mode], name), getattr(row, name), atol=2e-6, err_msg=name
            )
    np.testing.assert_allclose(sliced.landmark_map(1), full.landmark_map(1), atol=2e-6)


def test_the_landmark_map_averages_to_the_mean_row():
    layout = toy_layout(20)
    rows = random_rows(layout, 3, 1 + layout.n_landmarks)
    reducer = feed(layout, rows, 2, AttentionConfig(bins=4, keep_landmarks=True), layers=2)
    kept = reducer.landmark_map(2)
    assert kept.shape == (2, layout.n_landmarks, 4)
    mean = reducer.rows(2)[PoolingMode.LANDMARK].mass.mean(axis=1)
    np.testing.assert_allclose(kept.mean(axis=1), mean, atol=1e-6)


def test_without_being_asked_no_landmark_is_kept():
    layout = toy_layout(9)
    reducer = feed(layout, random_rows(layout, 1, 4), 4, AttentionConfig())
    assert reducer.landmark_map(1) is None


def test_a_second_text_is_refused():
    layout = toy_layout(4)
    reducer = RowBins(layout, AttentionConfig(), torch.device("cpu"))
    with pytest.raises(ValueError, match="one text at a time"):
        reducer.add(0, 1, 0, random_rows(layout, 1, 3), 0)


def test_an_even_row_has_the_scalars_of_even_attention():
    layout = toy_layout(40, granularity=100)
    rows = torch.full((1, 2, len(layout)), 1 / len(layout))
    scalars = feed(layout, rows, 2, AttentionConfig()).rows(1)[PoolingMode.CLS].scalars[0, 0]
    expected = {
        "first_tenth": 0.1,
        "centre_of_mass": 0.5,
        "half_mass_position": 19 / 39,
        "entropy": 1.0,
    }
    np.testing.assert_allclose(scalars, [expected[name] for name in SCALARS], atol=1e-5)


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
    layout = toy_layout(len(row), kind=LayoutKind.PLAIN)  # CLS t ... t SEP
    rows = torch.tensor([[[0.0, *row, 0.0]]])
    got = feed(layout, rows, 1, AttentionConfig()).rows(1)[PoolingMode.CLS].scalars[0, 0]
    np.testing.assert_allclose(got, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 7, 100, 8192])
def test_distance_bins_cover_every_distance_once_and_mirror(length):
    edges = distance_edges(length)
    assert (np.diff(edges) > 0).all()
    assert edges[0] <= -(length - 1)
    assert edges[-1] > length - 1
    zero = int(np.flatnonzero(edges == 0)[0])
    assert edges[zero + 1] == 1
    np.testing.assert_array_equal(1 - edges[::-1], edges)


def test_keys_by_distance_equal_a_count():
    layout = toy_layout(17)
    is_content = layout.token_index >= 0
    edges = distance_edges(len(layout))
    queries = layout.landmark_positions
    counts = [
        np.mean([sum(a <= k - q < b for k in range(len(layout)) if is_content[k]) for q in queries])
        for a, b in itertools.pairwise(edges)
    ]
    np.testing.assert_allclose(distance_keys(is_content, queries, edges), counts)
