from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_samples

from lmk_viz.config import PoolingMode
from lmk_viz.map_metrics import (
    jaccard_by_chance,
    label_silhouette,
    layout_quality,
    length_correlation,
    linear_cka,
    mean_cosine,
    nearest_rows,
    neighbour_lists,
    neighbour_overlap,
    neighbour_purity,
    neighbours_of,
)


def rows_of(n: int, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def circle(*degrees: float) -> np.ndarray:
    """Unit vectors on a circle: the smaller the angle between two, the higher their cosine."""
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


# Neighbours of the same label.

TOY = circle(0, 10, 25, 90, 100, 112)
TOY_LABELS = ["a", "a", "b", "b", "b", "a"]


def test_purity_by_hand():
    # Two nearest of each: a -> a b, a -> a b, b -> a a, b -> b a, b -> b a, a -> b b.
    found = neighbour_purity(TOY, TOY_LABELS)
    assert found.k == 2
    assert found.value == pytest.approx((0.5 + 0.5 + 0 + 0.5 + 0.5 + 0) / 6)


def test_purity_by_hand_with_one_neighbour():
    # a -> a, a -> a, b -> a, b -> b, b -> b, a -> b.
    assert neighbour_purity(TOY, TOY_LABELS, k=1).value == pytest.approx(4 / 6)


def test_purity_looks_at_directions_and_not_at_lengths():
    longer = TOY * np.array([[1], [50], [2], [9], [0.1], [3]])
    assert neighbour_purity(longer, TOY_LABELS) == neighbour_purity(TOY, TOY_LABELS)


def test_the_chance_level_by_hand():
    # Of five others, 1 shares the label of each a, 3 that of each b.
    found = neighbour_purity(TOY, ["a", "a", "b", "b", "b", "b"])
    assert found.chance == pytest.approx((2 * 1 / 5 + 4 * 3 / 5) / 6)


@pytest.mark.parametrize("labels", ["aabbb", "aabbcc", "abbbb"])
def test_the_chance_level_is_the_mean_over_all_ways_to_hand_out_the_labels(labels):
    rows = TOY[: len(labels)]
    found = [neighbour_purity(rows, list(dealt)) for dealt in sorted(set(permutations(labels)))]
    assert np.mean([f.value for f in found]) == pytest.approx(found[0].chance)


@pytest.mark.parametrize(
    ("labels", "k", "used"),
    [
        ("aabbbb", 10, 1),
        ("aaabbb", 10, 2),
        ("aaaaaa", 10, 5),
        ("aaaaaa", 3, 3),
        ("abbbbb", 10, 4),  # A label of one document has no other member to find.
        ("abcdef", 10, 1),
    ],
)
def test_k_is_lowered_to_what_the_smallest_label_can_reach(labels, k, used):
    assert neighbour_purity(TOY, list(labels), k=k).k == used


def test_clean_clumps_reach_a_purity_of_one():
    found = neighbour_purity(circle(0, 1, 90, 91, 92), list("aabbb"))
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_documents_without_a_label_are_left_out_on_both_sides():
    rows = circle(0, 5, 10, 25, 30, 90, 100, 112)
    labels = ["a", None, "a", "b", None, "b", "b", "a"]
    assert neighbour_purity(rows, labels) == neighbour_purity(TOY, TOY_LABELS)


@pytest.mark.parametrize("labels", [[], [None, None, None], ["a", None, None]], ids=str)
def test_there_is_no_purity_without_two_labelled_documents(labels):
    assert neighbour_purity(TOY[: len(labels)], labels) is None


def clumps(n: int = 120) -> tuple[np.ndarray, list[str]]:
    rows = rows_of(n, 8) + 1.5 * np.eye(8)[np.arange(n) % 4]
    return rows, [str(i % 4) for i in range(n)]


def test_the_interval_holds_the_value():
    found = neighbour_purity(*clumps())
    assert 0 < found.low < found.value < found.high < 1


def test_the_interval_is_that_of_a_percentile_bootstrap_over_documents():
    rows, labels = clumps()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    shares = []
    for i in range(len(rows)):
        nearest = [j for j in np.argsort(-units @ units[i]) if j != i][:10]
        shares.append(np.mean([labels[j] == labels[i] for j in nearest]))
    draws = np.random.default_rng(9).choice(shares, size=(20_000, len(shares))).mean(axis=1)
    found = neighbour_purity(rows, labels)
    assert found.value == pytest.approx(np.mean(shares))
    assert [found.low, found.high] == pytest.approx(np.percentile(draws, [2.5, 97.5]), abs=4e-3)


def test_the_interval_follows_its_seed_alone():
    one, same, other = (neighbour_purity(*clumps(), seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert (one.low, one.high) != (other.low, other.high)
    assert one.value == other.value


# Trustworthiness and continuity.


@pytest.mark.parametrize(
    ("n", "k"), [(4, 1), (5, 2), (6, 2), (20, 9), (21, 10), (22, 10), (40, 10)]
)
def test_trustworthiness_and_continuity_are_scikit_learns_at_the_largest_k_it_allows(n, k):
    rows, points = rows_of(n), rows_of(n, 2, seed=1).astype(np.float64)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    trust, continuity = layout_quality(rows, points)
    wanted = trustworthiness(rows, points, n_neighbors=k, metric="cosine")
    assert (trust.value, trust.k) == (pytest.approx(wanted), k)
    # The same with the two sides changed; by angle and by chord neighbours are the same.
    assert continuity.value == pytest.approx(trustworthiness(points, units, n_neighbors=k))


def test_a_map_that_keeps_all_neighbours_is_trusted_fully():
    rows = circle(*np.linspace(0, 90, 30) ** 1.1)
    assert [estimate.value for estimate in layout_quality(rows, rows)] == [1.0, 1.0]


def test_two_clumps_drawn_as_one_lose_trust_and_not_continuity():
    # The map drops the column that sets the clumps apart.
    rows = np.column_stack([rows_of(60, 2), np.repeat([0.0, 50.0], 30)])
    flat = rows[:, :2].astype(np.float64)
    padded = np.column_stack([rows, np.full(60, 60.0)])
    trust, continuity = layout_quality(padded, flat)
    assert trust.value < continuity.value


def test_points_dealt_out_anew_score_about_a_half():
    for estimate in layout_quality(rows_of(300), rows_of(300, 2, seed=1).astype(np.float64)):
        assert estimate.chance == pytest.approx(0.5, abs=0.03)
        assert estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize("n", [0, 3])
def test_too_few_documents_have_no_quality(n):
    assert layout_quality(rows_of(n), np.zeros((n, 2))) is None


def test_equal_rows_and_points_have_a_quality():
    for estimate in layout_quality(np.ones((12, 3)), np.zeros((12, 2))):
        assert 0.0 <= estimate.value <= 1.0


# Silhouette.


def test_the_silhouette_is_scikit_learns():
    rows, labels = clumps()
    wanted = silhouette_samples(rows, labels, metric="cosine").mean()
    found = label_silhouette(rows, labels)
    assert found.value == pytest.approx(wanted, abs=1e-6)
    assert found.low < found.value < found.high


def test_a_label_of_one_document_has_silhouette_zero_as_in_scikit_learn():
    labels = ["a", "a", "b", "b", "b", "c"]
    wanted = silhouette_samples(TOY, labels, metric="cosine").mean()
    assert label_silhouette(TOY, labels).value == pytest.approx(wanted)


def test_shuffled_labels_have_a_silhouette_of_about_zero_or_below():
    assert -0.1 < label_silhouette(*clumps()).chance < 0.02


@pytest.mark.parametrize(
    "labels", [[None] * 6, ["a"] * 6, list("abcdef"), ["a", "b", *[None] * 4]], ids=str
)
def test_labels_that_group_nothing_have_no_silhouette(labels):
    assert label_silhouette(TOY, labels) is None


# The space.


def test_the_mean_cosine_is_that_of_all_pairs():
    rows = rows_of(9)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = [float(units[i] @ units[j]) for i, j in combinations(range(9), 2)]
    found = mean_cosine(rows)
    assert found.value == pytest.approx(np.mean(pairs), abs=1e-6)
    assert found.low <= found.value <= found.high
    assert found.chance == 0.0


def test_one_direction_has_a_mean_cosine_of_one():
    found = mean_cosine(np.outer(np.arange(1, 6), [1.0, 2.0]))
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1))


def test_the_interval_of_the_mean_cosine_holds_its_true_value_about_as_often_as_it_says():
    held = 0
    for seed in range(60):
        found = mean_cosine(rows_of(40, 5, seed=seed) + np.float32(0.4))
        held += found.low <= 0.1318 <= found.high
    assert 50 <= held <= 60


@pytest.mark.parametrize("n", [0, 1])
def test_one_document_has_no_mean_cosine(n):
    assert mean_cosine(rows_of(n)) is None


def test_length_correlation_is_that_of_components_and_ranks():
    rows, lengths = rows_of(40), np.random.default_rng(5).integers(5, 900, size=40)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    scores = PCA(2, svd_solver="full").fit_transform(units.astype(np.float64))
    for column, found in enumerate(length_correlation(rows, lengths)):
        wanted = abs(spearmanr(scores[:, column], lengths).statistic)
        assert found.value == pytest.approx(wanted, abs=1e-6)
        assert 0.08 < found.chance < 0.2  # About 0.8 by the root of the documents.


def test_a_space_that_is_ordered_by_length_is_found_out():
    degrees = np.linspace(0, 40, 50)
    (first, *_) = length_correlation(circle(*degrees), np.arange(50))
    assert first.value == pytest.approx(1.0)
    assert first.low > 0.95


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [(rows_of(3), [1, 2, 3]), (rows_of(9), [7] * 9), (np.ones((9, 3)), range(9))],
    ids=["three", "one length", "one direction"],
)
def test_there_is_no_length_correlation_where_nothing_varies(rows, lengths):
    assert length_correlation(rows, np.array(lengths)) == ()


# Two spaces.


def test_neighbour_overlap_by_hand():
    # Nearest row of each: 1 0 1 2 in one space, 2 2 1 1 in the other.
    one, other = circle(0, 10, 25, 90), circle(0, 30, 25, 90)
    assert neighbour_overlap(one, other, k=1).value == 0.25
    # By twos both find rows 12, 02, 01, 12.
    assert neighbour_overlap(one, other, k=2).value == 1.0


def test_a_space_shares_all_neighbours_with_itself_turned():
    rows = rows_of(30)
    turned = rows @ np.linalg.qr(rows_of(6, 6, seed=1))[0]
    found = neighbour_overlap(rows, turned)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_unrelated_spaces_share_neighbours_by_chance():
    found = neighbour_overlap(rows_of(400), rows_of(400, seed=1))
    assert found.low < found.chance < found.high


@pytest.mark.parametrize(("k", "others"), [(1, 1), (2, 5), (3, 4)])
def test_the_chance_of_overlap_is_the_mean_over_all_pairs_of_sets(k, others):
    sets = [set(s) for s in combinations(range(others), k)]
    wanted = np.mean([len(a & b) / len(a | b) for a in sets for b in sets])
    assert jaccard_by_chance(k, others) == pytest.approx(wanted)


def test_nearest_rows_are_those_of_all_cosines_block_by_block(monkeypatch):
    rows = rows_of(23)
    whole = nearest_rows(rows, 5)
    monkeypatch.setattr("lmk_viz.map_metrics.BLOCK_ROWS", 4)
    np.testing.assert_array_equal(nearest_rows(rows, 5), whole)


def cka_by_hand(one: np.ndarray, other: np.ndarray) -> float:
    n = len(one)
    centre = np.eye(n) - 1 / n
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (one, other)]
    k, m = (centre @ (u @ u.T) @ centre for u in units)
    return float(np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m)))


@pytest.mark.parametrize("n", [5, 40], ids=["fewer than dimensions", "more"])
def test_cka_is_that_of_centred_kernels(n):
    one, other = (rows_of(n, 8, seed=seed).astype(np.float64) for seed in (0, 1))
    found = linear_cka(one, other)
    assert found.value == pytest.approx(cka_by_hand(one, other))
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@pytest.mark.parametrize("n", [5, 40], ids=["fewer than dimensions", "more"])
def test_cka_of_a_turned_space_is_one(n):
    rows = rows_of(n, 8).astype(np.float64)
    found = linear_cka(rows, 3 * rows @ np.linalg.qr(rows_of(8, 8, seed=1))[0])
    assert (found.value, found.low) == pytest.approx((1.0, 1.0), abs=1e-6)
    assert found.chance < 0.9


def test_cka_of_unrelated_spaces_is_at_its_chance_level():
    found = linear_cka(rows_of(200), rows_of(200, seed=1))
    assert abs(found.value - found.chance) < 0.05


@pytest.mark.parametrize("rows", [rows_of(2), np.ones((9, 3))], ids=["two", "one direction"])
def test_there_is_no_cka_where_nothing_spreads(rows):
    assert linear_cka(rows, rows) is None


# One document.

CLS, LMK = PoolingMode.CLS, PoolingMode.LANDMARK


def test_neighbours_of_a_document_by_hand():
    found = neighbours_of({CLS: circle(0, 10, 25, 90), LMK: circle(0, 90, 25, 10)}, 0, k=2)
    assert found[CLS].rows.tolist() == [1, 2]
    assert found[LMK].rows.tolist() == [3, 2]
    assert found[CLS].cosines == pytest.approx(np.cos(np.deg2rad([10, 25])))
    assert found[CLS].in_all.tolist() == [False, True]
    assert found[LMK].in_all.tolist() == [False, True]


def test_a_document_alone_has_no_neighbours():
    assert neighbours_of({CLS: np.ones((1, 3))}, 0)[CLS].rows.tolist() == []


def test_a_document_is_never_its_own_neighbour_even_among_copies():
    assert neighbours_of({CLS: np.ones((4, 3))}, 2)[CLS].rows.tolist() == [0, 1, 3]


@pytest.mark.parametrize("row", [-1, 4])
def test_a_row_that_is_not_there_is_refused(row):
    with pytest.raises(ValueError, match=f"row is {row}; allowed: 0 to 3"):
        neighbours_of({CLS: rows_of(4)}, row)


def test_lists_of_neighbours_are_those_of_each_document():
    rows = rows_of(12)
    for row, near in enumerate(neighbour_lists(rows, 3)):
        single = neighbours_of({CLS: rows}, row, k=3)[CLS]
        assert [other for other, _ in near] == single.rows.tolist()
        assert [cosine for _, cosine in near] == pytest.approx(single.cosines)
