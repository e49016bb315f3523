import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from lmk_viz.similarity import cos_sim


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("n", "m", "width"), [(1, 1, 1), (5, 3, 4), (3, 40, 16)])
def test_cosines_equal_scikit_learns(n, m, width, dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(rows, width)).astype(dtype) for rows in (n, m))
    wanted = cosine_similarity(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(cos_sim(a, b), wanted, rtol=0, atol=1e-12)


def test_a_zero_row_has_cosine_zero_with_everything_and_itself():
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_array_equal(cos_sim(rows, rows)[0], [0.0, 0.0])
    np.testing.assert_array_equal(cos_sim(rows, rows)[:, 0], [0.0, 0.0])


def test_half_precision_rows_whose_squares_overflow_have_their_cosine():
    rows = np.array([[60000.0, 0.0], [60000.0, 60000.0]], dtype=np.float16)
    np.testing.assert_allclose(cos_sim(rows, rows)[0], [1.0, np.sqrt(0.5)], rtol=0, atol=1e-12)


def test_rounding_never_carries_a_cosine_over_one():
    rows = np.random.default_rng(0).normal(size=(200, 3))
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert (units @ units.T).max() > 1.0  # Else this would show nothing.
    assert cos_sim(rows, rows).max() == 1.0
    assert cos_sim(rows, -rows).min() == -1.0


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_a_table_without_rows_gives_a_table_without_cosines(n, m):
    assert cos_sim(np.zeros((n, 4)), np.zeros((m, 4))).shape == (n, m)


def test_the_arguments_are_left_as_they_were():
    rows = np.array([[3.0, 4.0]])
    cos_sim(rows, rows)
    np.testing.assert_array_equal(rows, [[3.0, 4.0]])


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((4,), (3, 4), r"shapes \(4,\) and \(3, 4\) came"),
        ((3, 4), (4,), r"shapes \(3, 4\) and \(4,\) came"),
        ((3, 4), (3, 5), r"\(3, 4\) and \(3, 5\) came; allowed: \(N, D\) and \(M, D\)"),
        ((1, 3, 4), (3, 4), r"\(1, 3, 4\)"),
    ],
    ids=["first is a vector", "second is a vector", "other widths", "three axes"],
)
def test_shapes_that_do_not_match_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        cos_sim(np.ones(a), np.ones(b))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_table_that_is_not_finite_is_named(name, bad):
    rows = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    rows[name][1, 0] = bad
    with pytest.raises(ValueError, match=f"^{name} holds values that are not finite"):
        cos_sim(**rows)
