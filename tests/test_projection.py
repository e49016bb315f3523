import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.manifold import TSNE

from lmk_viz.config import ProjectionConfig, ProjectionMethod
from lmk_viz.map_metrics import layout_quality
from lmk_viz.projection import project, warm_up

AUTO, UMAP, PCA, TSNE_ = (ProjectionConfig(m) for m in ("auto", "umap", "pca", "tsne"))


def rows_of(n: int, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


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


# t-SNE, metrics, starts, further vectors.


def test_tsne_points_are_scikit_learns_from_a_start_of_components():
    rows = rows_of(24)
    order = np.lexsort(rows.T[::-1])
    start = project(rows[order], PCA).points
    start = ((start - start.mean(axis=0)) / start.std() * 1e-4).astype(np.float32)
    model = TSNE(perplexity=7, metric="cosine", init=start, random_state=0, n_jobs=1)
    wanted = np.empty((24, 2))
    wanted[order] = model.fit_transform(rows[order])
    found = project(rows, TSNE_)
    assert found.notes == ("perplexity lowered from 15 to 7.",)
    np.testing.assert_allclose(found.points, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("n", [4, 5, 14])
def test_tsne_draws_few_documents(n):
    assert np.isfinite(project(rows_of(n), TSNE_).points).all()


@pytest.mark.parametrize("metric", ProjectionConfig.METRICS)
@pytest.mark.parametrize("method", ["umap", "pca", "tsne"])
def test_every_metric_draws_and_survives_zero_and_constant_rows(method, metric):
    rows = rows_of(17)
    rows[3], rows[5] = 0.0, 2.0
    found = project(rows, ProjectionConfig(method, metric=metric))
    assert np.isfinite(found.points).all()


def test_correlation_looks_past_what_is_added_to_all_of_a_row():
    rows = rows_of(9).astype(np.float64)
    config = ProjectionConfig("pca", metric="correlation")
    shifted = project(rows + np.arange(9)[:, None], config).points
    found = np.abs(shifted), np.abs(project(rows, config).points)
    np.testing.assert_allclose(*found, rtol=0, atol=1e-9)


def test_euclidean_components_look_at_lengths():
    rows = rows_of(9) * np.linspace(1, 9, 9, dtype=np.float32)[:, None]
    one, other = (
        project(rows, ProjectionConfig("pca", metric=m)).points for m in ("euclidean", "cosine")
    )
    assert np.abs(one).max() > 2 * np.abs(other).max()


def test_umap_settles_near_its_start():
    rows = np.repeat(np.eye(4, 8, dtype=np.float32), 10, axis=0) + 0.05 * rows_of(40, 8)
    first = project(rows, UMAP).points
    found = project(rows, UMAP, start=first[:, ::-1].copy()).points
    # Mirrored at the start, so mirrored at the end.
    corners = [np.corrcoef(found[:, axis], first[:, 1 - axis])[0, 1] for axis in (0, 1)]
    assert min(corners) > 0.9


def test_settling_keeps_as_many_neighbours_as_a_layout_from_scratch():
    rows = np.repeat(np.eye(5, 9, dtype=np.float32), 14, axis=0) + 0.3 * rows_of(70, 9)
    first = project(rows, UMAP).points
    settled = project(rows, UMAP, start=first).points
    trust = [layout_quality(rows, points)[0].value for points in (first, settled)]
    assert trust[1] > trust[0] - 0.02


def test_the_order_that_is_given_stands_in_for_the_sort():
    rows = rows_of(20)
    order = np.random.default_rng(1).permutation(20)
    by_order = project(rows, UMAP, order=order).points
    again = project(rows[::-1].copy(), UMAP, order=order[::-1].copy()).points
    np.testing.assert_array_equal(by_order, again[::-1])


@pytest.mark.parametrize("config", [UMAP, PCA], ids=["umap", "pca"])
def test_documents_of_the_layout_are_placed_where_they_lie(config):
    rows = np.repeat(np.eye(4, 8, dtype=np.float32), 6, axis=0) + 0.1 * rows_of(24, 8)
    found = project(rows, config)
    again = found.place(rows[:5])
    spread = found.points.std()
    assert np.linalg.norm(again - found.points[:5], axis=1).max() < 0.7 * spread


def test_components_place_a_mean_of_directions_between_them():
    rows = rows_of(12).astype(np.float64)
    found = project(rows, ProjectionConfig("pca", metric="euclidean"))
    middle = found.place(rows[:2].mean(axis=0, keepdims=True))[0]
    np.testing.assert_allclose(middle, found.points[:2].mean(axis=0), atol=1e-9)


def test_tsne_places_nothing_further_and_too_few_documents_neither():
    assert project(rows_of(9), TSNE_).place is None
    assert project(rows_of(3), UMAP).place is None
