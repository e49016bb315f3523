from itertools import product

import numpy as np
import pytest
from scipy.stats import permutation_test, wilcoxon

from lmk_viz.retrieval.significance import holm, paired_p_values


def exhaustive(values):
    """The share of all sign flips at least as far from zero, one flip after the other."""
    seen = abs(sum(values))
    sums = [
        sum(sign * value for sign, value in zip(signs, values, strict=True))
        for signs in product((1, -1), repeat=len(values))
    ]
    return sum(abs(total) >= seen - 1e-12 for total in sums) / len(sums)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_few_queries_give_the_exhaustive_p_value(n):
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    (found,) = paired_p_values(values[None])
    assert found == pytest.approx(exhaustive(values), abs=1e-12)


def test_exact_p_values_are_those_of_scipy():
    # Values of a metric come in steps, so that many flips tie.
    values = np.random.default_rng(3).choice([-1.0, -0.5, 0.0, 0.5, 1.0], 12)
    wanted = permutation_test(
        (values,), lambda x, axis: x.mean(axis=axis), permutation_type="samples", vectorized=True
    )
    (found,) = paired_p_values(values[None])
    assert found == pytest.approx(wanted.pvalue, abs=1e-12)


def test_drawn_p_values_come_close_to_the_exhaustive_one():
    values = np.random.default_rng(1).normal(0.35, 1.0, 13)
    (exact,) = paired_p_values(values[None])
    (drawn,) = paired_p_values(values[None], resamples=8_000)
    assert drawn != exact
    # Three standard errors of a share of 8,000 draws are at most 0.017.
    assert drawn == pytest.approx(exact, abs=0.017)


def test_ranks_that_differ_always_one_way_agree_with_wilcoxon():
    # All differences of one size: the sum of signs is the sum of signed ranks.
    values = np.full(8, 0.25)
    (found,) = paired_p_values(values[None])
    assert found == pytest.approx(2 / 2**8) == pytest.approx(wilcoxon(values).pvalue)


def test_queries_without_a_difference_change_nothing():
    values = np.asarray([0.5, 1.0, -0.5, 1.0])
    padded = np.concatenate([values, np.zeros(500)])
    assert paired_p_values(padded[None]).tolist() == paired_p_values(values[None]).tolist()


def test_no_difference_at_all_is_certain_chance():
    assert paired_p_values(np.zeros((2, 40))).tolist() == [1.0, 1.0]


def test_neither_the_order_of_systems_nor_their_company_changes_a_p_value():
    rng = np.random.default_rng(5)
    both = rng.normal(0.1, 1.0, (2, 60))
    found = paired_p_values(both, seed=4)
    assert paired_p_values(both[:1], seed=4)[0] == found[0]
    assert paired_p_values(-both[::-1], seed=4).tolist() == found[::-1].tolist()


def test_a_seed_repeats_its_draws_and_another_draws_anew():
    values = np.random.default_rng(6).normal(0.1, 1.0, (1, 50))
    assert paired_p_values(values, 1).tolist() == paired_p_values(values, 1).tolist()
    assert paired_p_values(values, 1).tolist() != paired_p_values(values, 2).tolist()


def test_blocks_of_draws_give_what_one_block_gives(monkeypatch):
    values = np.random.default_rng(7).normal(0.2, 1.0, (3, 30))
    whole = paired_p_values(values, resamples=500)
    monkeypatch.setattr("lmk_viz.retrieval.significance._BLOCK_SIGNS", 30 * 7)
    assert paired_p_values(values, resamples=500).tolist() == whole.tolist()


def test_p_values_of_equal_systems_are_spread_evenly():
    """Under no difference a level of 20 % is passed by about 20 % of runs."""
    values = np.random.default_rng(8).normal(0.0, 1.0, (400, 40))
    found = paired_p_values(values, resamples=999)
    # Three standard errors of a share of 400 runs are 0.06.
    assert (found <= 0.2).mean() == pytest.approx(0.2, abs=0.06)
    assert (found <= 0.5).mean() == pytest.approx(0.5, abs=0.075)


@pytest.mark.parametrize(
    ("differences", "resamples", "message"),
    [
        (np.zeros(3), 9, r"allowed: \(C, Q\)"),
        (np.asarray([[np.nan]]), 9, "all values finite"),
        (np.zeros((1, 3)), 0, "resamples is 0"),
    ],
)
def test_what_cannot_be_tested_is_refused(differences, resamples, message):
    with pytest.raises(ValueError, match=message):
        paired_p_values(differences, resamples=resamples)


def test_holm_by_hand():
    # Sorted .01 .02 .03 .20: times 4, 3, 2, 1 are .04 .06 .06 .20.
    assert holm([0.03, 0.20, 0.01, 0.02]) == pytest.approx([0.06, 0.20, 0.04, 0.06])
    # 2 x .01 = .02 would fall below the 3 x .009 = .027 of the smaller one.
    assert holm([0.009, 0.01, 0.9]) == pytest.approx([0.027, 0.027, 0.9])


def test_holm_of_one_is_itself_and_never_over_one():
    assert holm([0.4]) == [0.4]
    assert holm([]) == []
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="0 to 1"):
        holm([1.5])


def test_thousands_of_queries_are_no_overflow():
    values = np.full(2_000, 0.1)
    values[::2] = -0.1
    assert paired_p_values(values[None], resamples=99).tolist() == [1.0]
