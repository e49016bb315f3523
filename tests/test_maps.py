import json

import numpy as np
import pytest

from lmk_viz.alignment import project_together
from lmk_viz.config import PoolingMode, ProjectionConfig
from lmk_viz.map_metrics import (
    label_silhouette,
    layout_quality,
    length_correlation,
    linear_cka,
    mean_cosine,
    neighbour_overlap,
    neighbour_purity,
)
from lmk_viz.maps import NUMBERS, CorpusMap, build_map, map_findings, numbers_frame

PCA = ProjectionConfig("pca")
CLS, MEAN, LMK = PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK


def rows_of(n: int, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def tables(n: int) -> dict[PoolingMode, np.ndarray]:
    return {CLS: rows_of(n), LMK: rows_of(n, seed=1), MEAN: rows_of(n, seed=2)}


def clumps(n: int = 60, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.eye(8, dtype=np.float32)[np.arange(n) % 4] + noise * rows_of(n, 8, seed)


FOUR = [str(i % 4) for i in range(60)]


def test_a_panel_carries_the_numbers_of_its_own_vectors_and_points():
    labels, lengths = list("aaabbbccc"), np.arange(9) * 7
    placed = project_together(tables(9), PCA)
    for panel in build_map(tables(9), labels, lengths, PCA):
        rows = tables(9)[panel.mode]
        np.testing.assert_array_equal(panel.points, placed[panel.mode].points)
        trust, continuity = layout_quality(rows, panel.points)
        by_length = length_correlation(rows, lengths)
        assert dict(panel.numbers) == {
            "purity": neighbour_purity(rows, labels),
            "silhouette": label_silhouette(rows, labels),
            "trustworthiness": trust,
            "continuity": continuity,
            "mean_cosine": mean_cosine(rows),
            "length_1": by_length[0],
            "length_2": by_length[1],
        }
        assert list(panel.numbers) == list(NUMBERS)


def test_every_two_poolings_are_compared_once():
    found = build_map(tables(9), list("aaabbbccc"), None, PCA)
    assert [(p.one, p.other) for p in found.pairs] == [(CLS, LMK), (CLS, MEAN), (LMK, MEAN)]
    pair = found.pair(MEAN, LMK)
    assert pair.overlap == neighbour_overlap(tables(9)[LMK], tables(9)[MEAN])
    assert pair.cka == linear_cka(tables(9)[LMK], tables(9)[MEAN])
    assert found.pair(CLS, CLS) is None


def test_the_gain_is_the_difference_of_purities_paired_by_document():
    vectors = {CLS: clumps(noise=0.9), LMK: clumps()}
    found = build_map(vectors, FOUR, None, PCA)
    purities = [panel.numbers["purity"].value for panel in found]
    gain = found.pairs[0].purity_gain
    assert gain.value == pytest.approx(purities[1] - purities[0])
    assert gain.low > 0


def test_three_documents_have_numbers_but_no_points():
    (panel,) = build_map({CLS: rows_of(3)}, ["a", "a", "b"])
    assert panel.points is None
    assert "trustworthiness" not in panel.numbers
    assert panel.numbers["purity"].k == 1


@pytest.mark.parametrize("n", [0, 1, 2, 4, 15])
@pytest.mark.parametrize("labelled", [True, False])
def test_any_number_of_documents_gives_plain_json(n, labelled):
    labels = [str(i % 2) if labelled else None for i in range(n)]
    found = build_map(tables(n), labels, np.arange(n), PCA)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["documents"] == n


def test_equal_documents_give_plain_json():
    found = build_map({CLS: np.ones((6, 3)), LMK: np.ones((6, 3))}, list("aabbcc"), np.ones(6))
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_many_documents_are_measured_on_a_seeded_part(monkeypatch):
    monkeypatch.setattr("lmk_viz.maps.MAX_MEASURED", 30)
    one, other = (
        build_map({CLS: clumps()}, FOUR, None, ProjectionConfig("pca", seed=seed))
        for seed in (0, 1)
    )
    assert (one.n, one.measured, len(one.panels[0].points)) == (60, 30, 60)
    same = build_map({CLS: clumps()}, FOUR, None, PCA)
    assert one.panels[0].numbers == same.panels[0].numbers
    assert one.panels[0].numbers != other.panels[0].numbers


def test_numbers_as_a_table_name_pooling_and_pair():
    found = build_map(tables(9), list("aaabbbccc"), np.arange(9), PCA)
    frame = numbers_frame(found, {"cls": None, "mean": found.panels[0].numbers["purity"]})
    assert set(frame["number"]) == {*NUMBERS, "overlap", "cka", "purity_gain", "stability"}
    assert len(frame) == 3 * len(NUMBERS) + 3 * 3 + 1
    cka = frame[frame["number"] == "cka"]
    assert list(zip(cka["pooling"], cka["other"], strict=True)) == [
        ("cls", "landmark"),
        ("cls", "mean"),
        ("landmark", "mean"),
    ]


def said(vectors: dict[PoolingMode, np.ndarray], labels: list, lengths=None) -> str:
    return " ".join(map_findings(build_map(vectors, labels, lengths, PCA)))


def test_a_pooling_that_groups_labels_better_is_named_with_whom_it_surpasses():
    words = said({CLS: clumps(noise=0.9), LMK: clumps()}, FOUR)
    assert "Landmark (LMK) has the purest neighbourhoods (1.00; chance 0.24)" in words
    assert "above CLS on the same documents" in words


def test_poolings_that_cannot_be_told_apart_are_said_to_be():
    nearly = clumps(noise=0.5) + 0.05 * rows_of(60, 8, seed=9)
    words = said({CLS: clumps(noise=0.5), LMK: nearly}, FOUR)
    assert "this corpus cannot tell it from" in words


def test_labels_of_no_meaning_are_said_to_be_grouped_by_chance():
    labels = np.random.default_rng(5).permutation(FOUR).tolist()
    assert said({CLS: rows_of(60), LMK: rows_of(60, seed=1)}, labels).startswith(
        "No pooling groups these labels better than chance would."
    )


def test_without_labels_nothing_is_said_of_groups():
    assert said({CLS: clumps()}, [None] * 60).startswith("Without labels nothing here says")


def test_a_single_pooling_is_compared_with_chance_alone():
    assert said({CLS: clumps()}, FOUR).startswith(
        "CLS has the purest neighbourhoods (1.00; chance 0.24)."
    )


def test_a_picture_that_invents_neighbours_is_called_out():
    assert "The picture of CLS invents neighbours" in said({CLS: rows_of(60, 50)}, [None] * 60)


def test_a_space_ordered_by_length_is_called_out():
    angles = np.linspace(0, 0.8, 60)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert "Under CLS a leading direction follows document length" in said(
        {CLS: rows}, [None] * 60, np.arange(60)
    )


def test_the_least_alike_poolings_are_named_with_their_overlap():
    words = said({CLS: clumps(), MEAN: clumps() * 2, LMK: rows_of(60)}, FOUR)
    assert "CLS and Landmark (LMK) agree least" in words


def test_a_map_is_walked_panel_by_panel():
    found = build_map(tables(5), [None] * 5, None, PCA)
    assert isinstance(found, CorpusMap)
    assert [panel.mode for panel in found] == [CLS, LMK, MEAN]
