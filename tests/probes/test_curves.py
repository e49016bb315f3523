import json

import numpy as np
import pytest

from lmk_viz.probes.curves import (
    bootstrap_interval,
    estimate_mean,
    position_sensitivity,
    summarise_curve,
)

DEPTHS = np.linspace(0, 1, 10)
TRUTH = 0.6 - 0.3 * DEPTHS
SCALARS = ("psi", "slope", "first_minus_last")
REPETITIONS = 400
OWN = 10**6
"""Draws of the bootstrap have to be others than those of the data."""


def noisy(seed: int, n: int = 30, spread: float = 0.05) -> np.ndarray:
    """Scores whose rows share a level, as those of one needle do."""
    rng = np.random.default_rng(seed)
    return TRUTH + rng.normal(0, 0.1, (n, 1)) + rng.normal(0, spread, (n, 10))


# Values.


def test_scalars_of_a_straight_line_by_hand():
    found = summarise_curve(np.stack([TRUTH, TRUTH]), DEPTHS)
    assert found.psi.value == pytest.approx(0.5, abs=1e-12)
    assert found.slope.value == pytest.approx(-0.3, abs=1e-12)
    # Thirds of three depths each: 0.3 times (8 - 1) / 9.
    assert found.first_minus_last.value == pytest.approx(0.3 * 7 / 9, abs=1e-12)
    assert (found.peak_depth, found.lowest_depth) == (0.0, 1.0)


def test_slope_is_that_of_least_squares():
    rows = noisy(0)
    wanted = np.polyfit(DEPTHS, rows.mean(axis=0), 1)[0]
    assert summarise_curve(rows, DEPTHS).slope.value == pytest.approx(wanted, abs=1e-12)


def test_slope_is_over_the_depths_given_not_over_their_number():
    depths = np.array([0.0, 0.1, 1.0])
    found = summarise_curve((2 * depths)[None], depths)
    assert found.slope.value == pytest.approx(2.0)


def test_psi_is_of_the_mean_curve_not_the_mean_of_curves():
    rows = np.array([[1.0, 0.5], [0.5, 1.0]])
    assert summarise_curve(rows, np.array([0.0, 1.0])).psi.value == 0.0


@pytest.mark.parametrize("lowest", [0.0, -0.1])
def test_psi_is_undefined_with_its_reason_where_the_curve_is_not_positive(lowest):
    rows = np.array([[0.5, lowest], [0.5, lowest]])
    found = summarise_curve(rows, np.array([0.0, 1.0]))
    assert found.psi.value is None
    assert f"falls to {lowest:.3f}" in found.psi.reason
    assert found.slope.value == pytest.approx(lowest - 0.5)


def test_psi_has_no_interval_where_a_resample_falls_to_zero():
    rows = np.array([[1.0, 1.0], [1.0, -0.5], [1.0, 1.0]])
    found = summarise_curve(rows, np.array([0.0, 1.0])).psi
    assert (found.value, found.low) == (pytest.approx(0.5), None)
    assert "some resamples" in found.reason


def test_position_sensitivity_of_the_published_definition():
    assert position_sensitivity(np.array([0.433, 0.25, 0.5])).item() == pytest.approx(0.5)


# Intervals.


@pytest.mark.parametrize("n", [8, 30])
@pytest.mark.parametrize("name", SCALARS)
def test_interval_of_a_scalar_covers_the_truth_in_nine_of_ten_repetitions(name, n):
    truth = {"psi": 0.5, "slope": -0.3, "first_minus_last": 0.3 * 7 / 9}[name]
    covered = 0
    for seed in range(REPETITIONS):
        found = getattr(summarise_curve(noisy(seed, n), DEPTHS, OWN + seed, 800), name)
        covered += found.low <= truth <= found.high
    assert 0.9 <= covered / REPETITIONS < 0.99


@pytest.mark.parametrize("n", [12, 40])
def test_interval_of_the_mean_covers_the_truth_in_nine_of_ten_repetitions(n):
    covered = np.zeros(10)
    for seed in range(REPETITIONS):
        found = summarise_curve(noisy(seed, n), DEPTHS, OWN + seed, 800)
        covered += (found.low <= TRUTH) & (found.high >= TRUTH)
    assert (covered / REPETITIONS >= 0.9).all()


def test_interval_is_wider_than_plain_percentiles_where_rows_are_few():
    samples = np.random.default_rng(0).normal(size=20_000)
    plain = np.quantile(samples, [0.025, 0.975])
    low, high = bootstrap_interval(samples, 5)
    assert low < plain[0] - 0.5
    assert high > plain[1] + 0.5
    np.testing.assert_allclose(bootstrap_interval(samples, 100_000), plain, atol=0.01)


def test_intervals_are_paired_over_depths():
    # Needles differ by a level of their own, which cancels in a slope.
    rows = TRUTH + np.arange(10.0)[:, None]
    found = summarise_curve(rows, DEPTHS)
    assert found.high[0] - found.low[0] > 2
    assert found.slope.high - found.slope.low < 1e-9


def test_intervals_depend_on_the_seed_alone():
    rows = noisy(1)
    first, again, other = (summarise_curve(rows, DEPTHS, seed) for seed in (1, 1, 2))
    assert (first.psi, first.slope) == (again.psi, again.slope)
    assert first.psi.low != other.psi.low
    assert first.psi.value == other.psi.value


# Edges.


def test_one_repetition_has_numbers_and_no_interval():
    found = summarise_curve(TRUTH[None], DEPTHS)
    assert (found.psi.low, found.slope.high) == (None, None)
    assert found.psi.reason == "no interval: one repetition"
    assert np.isnan(found.low).all()
    assert found.slope.value == pytest.approx(-0.3)


def test_nothing_measured_has_no_number():
    found = summarise_curve(np.zeros((0, 10)), DEPTHS)
    assert (found.psi.value, found.slope.value, found.peak_depth, found.count) == (
        None,
        None,
        None,
        0,
    )


def test_one_depth_has_a_psi_of_zero_and_no_direction():
    found = summarise_curve(np.array([[0.5], [0.6]]), np.array([0.0]))
    assert (found.psi.value, found.slope.value, found.first_minus_last.value) == (0.0, None, None)


def test_rows_that_were_not_measured_are_left_out():
    rows = noisy(0)
    spoilt = np.vstack([rows, np.full(10, np.nan)])
    found = summarise_curve(spoilt, DEPTHS)
    assert found.count == 30
    np.testing.assert_array_equal(found.mean, rows.mean(axis=0))


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.ones((1, 3)), np.eye(3)])
def test_a_summary_is_plain_json(rows):
    text = json.dumps(summarise_curve(rows, np.linspace(0, 1, 3)).to_dict(), allow_nan=False)
    assert {"depths", "mean", "low", "high", "psi", "psi_low", "slope_high"} <= set(
        json.loads(text)
    )


def test_mean_of_values_with_its_interval():
    found = estimate_mean(np.array([1.0, 2.0, 3.0, np.nan]))
    assert found.value == pytest.approx(2.0)
    assert found.low < 2.0 < found.high
    assert estimate_mean(np.array([np.nan])).value is None
