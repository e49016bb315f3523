import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.manifold import trustworthiness

from lmk_viz.config import PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.projection import (
    align_points,
    layout_trustworthiness,
    map_panels,
    neighbour_purity,
    project,
    warm_up,
)

AUTO, UMAP, PCA = (ProjectionConfig(method) for method in ("auto", "umap", "pca"))


def rows_of(n: int, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def circle(*degrees: float) -> np.ndarray:
    """Unit vectors on a circle: the smaller the angle between two, the higher their cosine."""
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    # Once, so that no single test is charged for the seconds it takes.
    warm_up()


# How many documents it takes.

TOO_FEW = "too few to lay out on a plane; read the cosines instead."


@pytest.mark.parametrize(
    ("config", "n", "method", "drawn"),
    [
        (AUTO, 0, "pca", False),
        (AUTO, 1, "pca", False),
        (AUTO, 2, "pca", False),
        (AUTO, 3, "pca", False),
        (AUTO, 4, "pca", True),
        (AUTO, 14, "pca", True),
        (AUTO, 15, "umap", True),
        (UMAP, 0, "umap", False),
        (UMAP, 1, "umap", False),
        (UMAP, 2, "umap", False),
        (UMAP, 3, "umap", False),
        (UMAP, 4, "umap", True),
        (UMAP, 14, "umap", True),
        (UMAP, 15, "umap", True),
        (PCA, 0, "pca", False),
        (PCA, 1, "pca", False),
        (PCA, 2, "pca", True),
        (PCA, 3, "pca", True),
        (PCA, 4, "pca", True),
        (PCA, 14, "pca", True),
        (PCA, 15, "pca", True),
    ],
    ids=lambda value: value.method.value if isinstance(value, ProjectionConfig) else str(value),
)
def test_the_number_of_documents_decides_what_is_drawn(config, n, method, drawn):
    found = project(rows_of(n), config)
    assert found.method is ProjectionMethod(method)
    if drawn:
        assert found.points.shape == (n, 2)
        assert np.isfinite(found.points).all()
    else:
        assert found.points is None


@pytest.mark.parametrize(
    ("n", "words"),
    [(0, "0 distinct documents: "), (1, "1 distinct document: "), (3, "3 distinct documents: ")],
)
def test_the_note_says_how_few_documents_there_are(n, words):
    assert project(rows_of(n)).notes == (words + TOO_FEW,)


@pytest.mark.parametrize(("n", "noted"), [(3, False), (4, True), (14, True), (15, False)])
def test_pca_is_explained_where_it_stands_in_for_umap(n, noted):
    note = f"PCA, since {n} distinct documents are few for UMAP."
    assert (note in project(rows_of(n), AUTO).notes) is noted


def test_pca_is_not_explained_where_it_was_asked_for():
    assert project(rows_of(5), PCA).notes == ()


@pytest.mark.parametrize(
    ("n", "asked", "used"), [(4, 15, 3), (14, 15, 13), (16, 15, 15), (17, 15, 15), (20, 5, 5)]
)
def test_neighbours_are_lowered_to_the_other_documents_and_that_is_noted(n, asked, used):
    found = project(rows_of(n), ProjectionConfig(UMAP.method, n_neighbors=asked))
    assert found.n_neighbors == used
    note = f"n_neighbors lowered from {asked} to {used}."
    assert (note in found.notes) is (used < asked)


def test_pca_has_no_neighbours():
    assert project(rows_of(20), PCA).n_neighbors is None


# Duplicates.


@pytest.mark.parametrize("config", [UMAP, PCA], ids=["umap", "pca"])
def test_equal_vectors_share_a_point_and_know_how_many_they_are(config):
    rows = rows_of(6)[[0, 1, 2, 0, 3, 4, 0, 5, 1]]
    found = project(rows, config)
    np.testing.assert_array_equal(found.points[[3, 6, 8]], found.points[[0, 0, 1]])
    assert len(np.unique(found.points, axis=0)) == found.n_distinct == 6
    assert found.copies.tolist() == [3, 2, 1, 3, 1, 1, 3, 1, 2]
    assert "3 documents share another one's vector and its point." in found.notes


def test_copies_change_no_point_of_the_others():
    rows = rows_of(20)
    twice = project(np.vstack([rows, rows[:5]]), UMAP)
    np.testing.assert_array_equal(twice.points[:20], project(rows, UMAP).points)


def test_minus_zero_is_zero():
    assert project(np.array([[0.0, 1.0], [-0.0, 1.0]]), PCA).n_distinct == 1


@pytest.mark.parametrize("config", [AUTO, UMAP, PCA], ids=["auto", "umap", "pca"])
def test_a_corpus_of_copies_is_one_document(config):
    found = project(np.ones((30, 4)), config)
    assert found.points is None
    assert found.n_distinct == 1
    assert found.copies.tolist() == [30] * 30


def test_the_number_of_distinct_documents_decides_and_not_that_of_all():
    found = project(rows_of(10)[np.arange(100) % 10], AUTO)
    assert found.method is ProjectionMethod.PCA


# The points themselves.


@pytest.mark.parametrize(("n", "start"), [(16, "spectral"), (15, "random"), (5, "random")])
def test_umap_points_are_those_of_umap_itself_on_sorted_rows(n, start):
    import umap

    rows = rows_of(n)
    order = np.lexsort(rows.T[::-1])
    config = ProjectionConfig(UMAP.method, n_neighbors=4, min_dist=0.3, seed=5)
    reducer = umap.UMAP(
        n_neighbors=4, min_dist=0.3, metric="cosine", random_state=5, init=start, n_jobs=1
    )
    wanted = np.empty((n, 2))
    wanted[order] = reducer.fit_transform(rows[order])
    np.testing.assert_allclose(project(rows, config).points, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("n", "width"), [(12, 6), (5, 40), (3, 2)])
def test_pca_points_are_those_of_a_singular_value_decomposition_up_to_sign(n, width):
    rows = rows_of(n, width)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    u, s, _ = np.linalg.svd(units - units.mean(axis=0), full_matrices=False)
    wanted, found = (u * s)[:, :2], project(rows, PCA).points
    signs = np.sign((wanted * found).sum(axis=0))
    np.testing.assert_allclose(found, wanted * signs, rtol=0, atol=1e-5)


def test_pca_looks_at_directions_and_not_at_lengths():
    rows = rows_of(8).astype(np.float64)
    longer = rows * np.arange(1, 9)[:, None]
    np.testing.assert_allclose(
        pdist(project(longer, PCA).points), pdist(project(rows, PCA).points), rtol=0, atol=1e-12
    )


def test_pca_of_one_direction_is_one_point():
    rows = np.arange(1.0, 6.0)[:, None] * np.array([[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(project(rows, PCA).points, np.zeros((5, 2)))


def test_pca_of_one_column_lies_on_a_line():
    points = project(np.array([[2.0], [-1.0], [3.0]]), PCA).points
    np.testing.assert_allclose(points[:, 1], 0.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(pdist(points), [2.0, 0.0, 2.0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", [UMAP, PCA], ids=["umap", "pca"])
def test_a_zero_row_is_drawn(config):
    rows = rows_of(20)
    rows[3] = 0
    assert np.isfinite(project(rows, config).points).all()


@pytest.mark.parametrize("config", [UMAP, PCA], ids=["umap", "pca"])
def test_shuffling_the_documents_shuffles_their_points_and_no_more(config):
    rows = rows_of(30)
    shuffled = np.random.default_rng(1).permutation(30)
    points = project(rows, config).points
    np.testing.assert_array_equal(project(rows[shuffled], config).points, points[shuffled])


def test_one_seed_gives_one_map():
    rows = rows_of(30)
    np.testing.assert_array_equal(project(rows, UMAP).points, project(rows, UMAP).points)


@pytest.mark.parametrize(
    "settings", [{"seed": 1}, {"n_neighbors": 5}, {"min_dist": 0.6}], ids=lambda s: next(iter(s))
)
def test_every_setting_of_umap_moves_points(settings):
    rows = rows_of(30)
    other = project(rows, ProjectionConfig(UMAP.method, **settings)).points
    assert np.abs(other - project(rows, UMAP).points).max() > 0.01


def test_the_rows_are_left_as_they_were():
    rows = rows_of(20)
    before = rows.copy()
    project(rows, PCA)
    project(rows, UMAP)
    np.testing.assert_array_equal(rows, before)


def test_settings_are_kept_with_the_result():
    assert project(rows_of(4), PCA).config == PCA
    assert project(rows_of(4)).config == ProjectionConfig()


# What is refused.


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_named(bad):
    rows = rows_of(12)
    rows[[2, 7], [0, 3]] = bad
    with pytest.raises(ValueError, match=r"vectors of rows \[2, 7\] are not finite; leave them"):
        project(rows)


def test_no_more_than_five_bad_rows_are_named():
    with pytest.raises(ValueError, match=r"rows \[0, 1, 2, 3, 4\] are"):
        project(np.full((9, 2), np.nan))


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4)], ids=str)
def test_what_is_no_table_is_refused(shape):
    with pytest.raises(ValueError, match=r"vectors have shape \(.*\); allowed: \(N, D\)"):
        project(np.ones(shape))


# Threads and warnings.


def test_two_threads_get_the_maps_that_one_gets():
    tables = [rows_of(25, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda rows: project(rows, UMAP).points, tables))
    for points, rows in zip(together, tables, strict=True):
        np.testing.assert_array_equal(points, project(rows, UMAP).points)


def test_umap_never_runs_twice_at_a_time(monkeypatch):
    inside, most = 0, 0
    counting = threading.Lock()

    class Reducer:
        def __init__(self, **_: object) -> None:
            pass

        def fit_transform(self, rows: np.ndarray) -> np.ndarray:
            nonlocal inside, most
            with counting:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with counting:
                inside -= 1
            return rows[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Reducer))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: project(rows_of(20, seed=seed), UMAP), range(4)))
    assert most == 1


# Alignment.


def turned(points: np.ndarray, degrees: float, mirrored: bool) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    mirror = np.diag([-1.0, 1.0]) if mirrored else np.eye(2)
    return points @ mirror @ np.array([[c, s], [-s, c]]) + [30.0, -7.0]


@pytest.mark.parametrize("mirrored", [False, True], ids=["turned", "mirrored"])
@pytest.mark.parametrize("degrees", [0, 40, 180, 275])
def test_alignment_undoes_a_turn_a_mirror_and_a_shift(degrees, mirrored):
    reference = rows_of(9, 2).astype(np.float64)
    found = align_points(reference, turned(reference, degrees, mirrored))
    np.testing.assert_allclose(found, reference, rtol=0, atol=1e-10)


def test_alignment_keeps_every_distance():
    reference, points = rows_of(9, 2).astype(np.float64), 5 * rows_of(9, 2, seed=1)
    found = align_points(reference, points.astype(np.float64))
    np.testing.assert_allclose(pdist(found), pdist(points), rtol=1e-6)


def test_alignment_puts_centre_on_centre():
    reference = rows_of(9, 2).astype(np.float64)
    points = rows_of(9, 2, seed=1).astype(np.float64) + 100.0
    found = align_points(reference, points)
    np.testing.assert_allclose(found.mean(axis=0), reference.mean(axis=0), rtol=0, atol=1e-10)


def test_no_turn_comes_closer_than_alignment():
    reference = rows_of(9, 2).astype(np.float64)
    points = rows_of(9, 2, seed=1).astype(np.float64)

    def distance(candidate: np.ndarray) -> float:
        shift = reference.mean(axis=0) - candidate.mean(axis=0)
        return float(((candidate + shift - reference) ** 2).sum())

    best = min(
        distance(turned(points, degrees, mirrored))
        for degrees in range(360)
        for mirrored in (False, True)
    )
    assert distance(align_points(reference, points)) <= best


def test_alignment_of_other_numbers_of_documents_is_refused():
    with pytest.raises(ValueError, match=r"shapes \(3, 2\) and \(4, 2\) came; they have to match"):
        align_points(np.zeros((3, 2)), np.zeros((4, 2)))


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


# Trustworthiness.


@pytest.mark.parametrize(
    ("n", "k"), [(4, 1), (5, 2), (6, 2), (20, 9), (21, 10), (22, 10), (40, 10)]
)
def test_trustworthiness_is_scikit_learns_at_the_largest_k_it_allows(n, k):
    rows, points = rows_of(n), rows_of(n, 2, seed=1).astype(np.float64)
    wanted = trustworthiness(rows, points, n_neighbors=k, metric="cosine")
    assert layout_trustworthiness(rows, points) == (pytest.approx(wanted), k)


def test_a_map_that_keeps_all_neighbours_is_trusted_fully():
    rows = circle(*np.linspace(0, 90, 30) ** 1.1)
    assert layout_trustworthiness(rows, rows) == (1.0, 10)


@pytest.mark.parametrize("n", [0, 3])
def test_too_few_documents_have_no_trustworthiness(n):
    assert layout_trustworthiness(rows_of(n), np.zeros((n, 2))) is None


# Panels.

CLS, MEAN, LMK = PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK


def tables(n: int) -> dict[PoolingMode, np.ndarray]:
    return {CLS: rows_of(n), LMK: rows_of(n, seed=1), MEAN: rows_of(n, seed=2)}


def test_the_first_panel_is_left_as_it_is_projected():
    panel = map_panels(tables(20), ["a"] * 20, UMAP)[0]
    np.testing.assert_array_equal(panel.points, project(rows_of(20), UMAP).points)


def test_every_later_panel_is_turned_onto_the_first():
    panels = map_panels(tables(9), ["a"] * 9, PCA)
    assert [panel.mode for panel in panels] == [CLS, LMK, MEAN]
    for panel in panels[1:]:
        own = project(tables(9)[panel.mode], PCA).points
        np.testing.assert_array_equal(panel.points, align_points(panels[0].points, own))


def test_a_panel_carries_the_numbers_of_its_own_vectors():
    labels = list("aaabbbccc")
    for panel in map_panels(tables(9), labels, PCA):
        rows = tables(9)[panel.mode]
        assert panel.purity == neighbour_purity(rows, labels)
        assert panel.trustworthiness == layout_trustworthiness(rows, project(rows, PCA).points)


def test_panels_of_too_few_documents_have_numbers_but_no_points():
    panel = map_panels({CLS: rows_of(3)}, ["a", "a", "b"])[0]
    assert panel.points is None
    assert panel.trustworthiness is None
    assert panel.purity.k == 1


def test_the_first_panel_that_can_be_drawn_is_the_one_to_turn_to():
    same = np.ones((5, 4))
    panels = map_panels({CLS: same, LMK: rows_of(5), MEAN: rows_of(5, seed=1)}, [None] * 5, PCA)
    assert panels[0].points is None
    own = project(rows_of(5, seed=1), PCA).points
    np.testing.assert_array_equal(panels[1].points, project(rows_of(5), PCA).points)
    np.testing.assert_array_equal(panels[2].points, align_points(panels[1].points, own))


def test_panels_without_labels_have_no_purity():
    assert map_panels(tables(5), [None] * 5, PCA)[0].purity is None


def test_a_panel_is_plain_json():
    panel = map_panels(tables(5), list("aabbb"), PCA)[1]
    assert json.loads(json.dumps(panel.to_dict(), allow_nan=False)) == {
        "pooling": "landmark",
        "method": "pca",
        "purity": {
            "value": panel.purity.value,
            "low": panel.purity.low,
            "high": panel.purity.high,
            "chance": panel.purity.chance,
            "k": 1,
        },
        "trustworthiness": panel.trustworthiness[0],
        "notes": [],
    }


def test_a_panel_without_numbers_is_plain_json():
    panel = map_panels({CLS: rows_of(2)}, [None, None])[0]
    assert json.loads(json.dumps(panel.to_dict(), allow_nan=False)) == {
        "pooling": "cls",
        "method": "pca",
        "purity": None,
        "trustworthiness": None,
        "notes": ["2 distinct documents: " + TOO_FEW],
    }
