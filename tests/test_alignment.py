import numpy as np
import pytest
from scipy.spatial.distance import pdist

from lmk_viz.alignment import (
    align_points,
    alignment_error,
    layout_stability,
    nearest_points,
    project_together,
)
from lmk_viz.config import PoolingMode, ProjectionConfig
from lmk_viz.map_metrics import jaccard_by_chance
from lmk_viz.projection import project, warm_up

UMAP, PCA, TSNE = (ProjectionConfig(method) for method in ("umap", "pca", "tsne"))
CLS, MEAN, LMK = PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK


def rows_of(n: int, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def tables(n: int) -> dict[PoolingMode, np.ndarray]:
    return {CLS: rows_of(n), LMK: rows_of(n, seed=1), MEAN: rows_of(n, seed=2)}


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    warm_up()


# Two layouts.


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


def test_alignment_error_by_hand():
    square = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    quarter = square[[1, 2, 3, 0]]
    # Radius 1, and every point lies a side of the square from itself.
    assert alignment_error(square, quarter) == pytest.approx(np.sqrt(2))
    assert alignment_error(square, 7 * square + 3) == pytest.approx(0, abs=1e-12)


def test_points_dealt_out_at_random_lie_about_as_far_apart_as_is_said():
    points = rows_of(4000, 2).astype(np.float64)
    assert alignment_error(points, points[::-1]) == pytest.approx(1.25, abs=0.06)


def test_equal_points_have_no_alignment_error():
    assert alignment_error(np.ones((3, 2)), np.zeros((3, 2))) == 0.0


def test_nearest_points_are_those_of_all_distances():
    points = rows_of(30, 2).astype(np.float64)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(nearest_points(points, 4), np.argsort(distances, axis=1)[:, :4])


# Several layouts.


@pytest.mark.parametrize("config", [UMAP, PCA, TSNE], ids=lambda c: c.method.value)
def test_equal_tables_lie_equal(config):
    rows = rows_of(24)
    found = project_together({CLS: rows, LMK: rows.copy()}, config)
    np.testing.assert_allclose(found[CLS].points, found[LMK].points, rtol=0, atol=1e-3)


@pytest.mark.parametrize("config", [UMAP, PCA], ids=lambda c: c.method.value)
def test_a_turned_space_lies_as_the_space_itself(config):
    rows = np.repeat(np.eye(4, 8, dtype=np.float32), 8, axis=0) + 0.2 * rows_of(32, 8)
    rotation = np.linalg.qr(rows_of(8, 8, seed=3))[0]
    found = project_together({CLS: rows, LMK: rows @ rotation}, config)
    assert alignment_error(found[CLS].points, found[LMK].points) < 0.15


@pytest.mark.parametrize("config", [UMAP, PCA, TSNE], ids=lambda c: c.method.value)
def test_shuffling_the_documents_shuffles_every_layout_and_no_more(config):
    order = np.random.default_rng(4).permutation(24)
    found = project_together(tables(24), config)
    shuffled = project_together({m: rows[order] for m, rows in tables(24).items()}, config)
    for mode, placed in found.items():
        np.testing.assert_allclose(shuffled[mode].points, placed.points[order], atol=1e-4)


def test_a_pooling_behind_the_others_changes_none_of_them():
    all_three = project_together(tables(20), UMAP)
    two = project_together({m: tables(20)[m] for m in (CLS, LMK)}, UMAP)
    for mode, placed in two.items():
        np.testing.assert_array_equal(placed.points, all_three[mode].points)


def test_every_later_layout_is_turned_onto_the_first():
    found = project_together(tables(9), PCA)
    assert list(found) == [CLS, LMK, MEAN]
    for mode in (LMK, MEAN):
        own = project(tables(9)[mode], PCA).points
        np.testing.assert_allclose(
            found[mode].points, align_points(found[CLS].points, own), atol=1e-5
        )


def test_the_first_layout_that_can_be_drawn_is_the_one_to_turn_to():
    tables_ = {CLS: np.ones((5, 4)), LMK: rows_of(5), MEAN: rows_of(5, seed=1)}
    found = project_together(tables_, PCA)
    assert found[CLS].points is None
    own = project(rows_of(5, seed=1), PCA).points
    np.testing.assert_array_equal(found[LMK].points, project(rows_of(5), PCA).points)
    np.testing.assert_allclose(found[MEAN].points, align_points(found[LMK].points, own), atol=1e-5)


def test_copies_under_one_pooling_keep_their_own_places_under_another():
    rows = rows_of(20)
    rows[1] = rows[0]
    found = project_together({CLS: rows, LMK: rows_of(20, seed=1)}, UMAP)
    assert np.array_equal(found[CLS].points[0], found[CLS].points[1])
    assert not np.array_equal(found[LMK].points[0], found[LMK].points[1])


@pytest.mark.parametrize("config", [UMAP, PCA], ids=lambda c: c.method.value)
def test_further_vectors_are_turned_with_their_layout(config):
    rows = np.repeat(np.eye(4, 8, dtype=np.float32), 6, axis=0) + 0.1 * rows_of(24, 8)
    turned_rows = rows @ np.linalg.qr(rows_of(8, 8, seed=3))[0]
    placed = project_together({CLS: rows, LMK: turned_rows}, config)[LMK]
    again = placed.place(turned_rows[:5])
    error = np.linalg.norm(again - placed.points[:5], axis=1).max()
    assert error < 0.7 * placed.points.std()


def test_tables_of_other_numbers_of_documents_are_refused():
    with pytest.raises(ValueError, match="give the same documents in each"):
        project_together({CLS: rows_of(4), LMK: rows_of(5)})


def test_no_document_gives_no_layout():
    assert project_together({CLS: np.zeros((0, 3))}, UMAP)[CLS].points is None


# Seeds.


def test_clumps_far_apart_are_stable_and_noise_is_not():
    clumps = np.repeat(np.eye(6, 9, dtype=np.float32), 11, axis=0) + 0.01 * rows_of(66, 9)
    firm = layout_stability(clumps, UMAP)
    loose = layout_stability(rows_of(66, 60), UMAP)
    assert firm.low > loose.high
    assert firm.k == 10
    assert firm.chance == loose.chance == jaccard_by_chance(10, 65)


def test_components_have_no_seed_to_be_stable_over():
    assert layout_stability(rows_of(20), PCA) is None
    assert layout_stability(rows_of(3), UMAP) is None


def test_one_seed_is_nothing_to_compare():
    with pytest.raises(ValueError, match="seeds is 1; allowed: 2 and more"):
        layout_stability(rows_of(20), UMAP, seeds=1)
