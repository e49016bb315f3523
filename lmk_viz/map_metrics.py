"""Numbers beside a map: each a mean over documents, with its interval and its control.

Everything is measured in the full space, by cosine, except where a layout is judged. Where a
number is a mean over documents its interval is the 95 % percentile bootstrap over documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode
from lmk_viz.similarity import cos_sim, top_ranked, unit_rows

__all__ = [
    "Estimate",
    "Neighbours",
    "jaccard_by_chance",
    "label_silhouette",
    "layout_quality",
    "length_correlation",
    "linear_cka",
    "mean_cosine",
    "mean_estimate",
    "nearest_rows",
    "neighbour_lists",
    "neighbour_overlap",
    "neighbour_purity",
    "neighbour_shares",
    "neighbours_of",
    "rows_overlap",
]

RESAMPLES = 2_000
"""Of the bootstrap."""
SHUFFLES = 20
"""Of labels or rows, where a chance level has no closed form."""
BLOCK_ROWS = 1_000
"""Rows of a cosine table that are held at once."""
FOLDS = 20
"""Groups left out in turn for the interval of CKA."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval and its chance level."""

    value: float
    low: float
    high: float
    chance: float
    """Its value where nothing is there: random neighbours, shuffled labels or rows."""
    k: int | None = None
    """Neighbours looked at, where it looks at neighbours."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The nearest documents of one document under one pooling."""

    rows: NDArray[np.int64]
    """Nearest first, shape (k,)."""
    cosines: NDArray[np.float64]
    """Shape (k,)."""
    in_all: NDArray[np.bool_]
    """Whether each is among the nearest under every pooling, shape (k,)."""


def nearest_rows(vectors: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Returns each row's k nearest others by cosine, nearest first, shape (N, k).

    Among equal cosines the earlier row comes first.
    """
    n = len(vectors)
    found = np.zeros((n, k), dtype=np.int64)
    for start in range(0, n, BLOCK_ROWS):
        cosines = cos_sim(vectors[start : start + BLOCK_ROWS], vectors)
        at = np.arange(len(cosines))
        cosines[at, start + at] = -np.inf
        for row, values in enumerate(cosines, start=start):
            found[row] = top_ranked(values, k)
    return found


def neighbour_lists(vectors: NDArray[np.floating], k: int = 10) -> list[list[tuple[int, float]]]:
    """Returns for each row its k nearest others with their cosines, nearest first."""
    k = max(0, min(k, len(vectors) - 1))
    units = unit_rows(vectors)
    return [
        [(int(row), float(units[number] @ units[row])) for row in rows]
        for number, rows in enumerate(nearest_rows(vectors, k))
    ]


def neighbours_of(
    vectors: Mapping[PoolingMode, NDArray[np.floating]], row: int, k: int = 10
) -> dict[PoolingMode, Neighbours]:
    """Returns the nearest documents of one document under each pooling, in the full space.

    Args:
        vectors: the same documents in the same order under each pooling, each (N, D).
        row: which document.
        k: how many; fewer where there are fewer others.

    Raises:
        ValueError: when there is no such row.
    """
    n = len(next(iter(vectors.values())))
    if not 0 <= row < n:
        raise ValueError(f"row is {row}; allowed: 0 to {n - 1}.")
    found = {}
    for mode, rows in vectors.items():
        cosines = cos_sim(rows[[row]], rows)[0]
        order = np.argsort(-cosines, kind="stable")
        found[mode] = order[order != row][:k], cosines
    shared = set.intersection(*(set(order.tolist()) for order, _ in found.values()))
    return {
        mode: Neighbours(order, cosines[order], np.isin(order, sorted(shared)))
        for mode, (order, cosines) in found.items()
    }


def neighbour_shares(
    vectors: NDArray[np.floating], labels: Sequence[str | None], k: int = 10
) -> tuple[NDArray[np.float64], float, int] | None:
    """Returns, for each labelled row, which share of its neighbours has its label.

    Args:
        vectors: shape (N, D).
        labels: one a row; rows without a label are left out, as neighbours too.
        k: neighbours, lowered to the other members of the smallest label that has any, so
            that a share of 1 can be reached.

    Returns:
        Shares, the share expected of neighbours drawn at random, and the k used; None with
        fewer than 2 labelled rows.
    """
    rows = [i for i, label in enumerate(labels) if label is not None]
    n = len(rows)
    if n < 2:
        return None
    names = np.asarray([labels[i] for i in rows])
    _, inverse, counts = np.unique(names, return_inverse=True, return_counts=True)
    sizes = counts[inverse]
    k = min(k, n - 1, int(sizes[sizes > 1].min()) - 1 if (sizes > 1).any() else 1)
    nearest = nearest_rows(vectors[rows], k)
    shares = (inverse[nearest] == inverse[:, None]).mean(axis=1)
    return shares, float((sizes - 1).mean() / (n - 1)), k


def neighbour_purity(
    vectors: NDArray[np.floating], labels: Sequence[str | None], k: int = 10, seed: int = 0
) -> Estimate | None:
    """Returns how many of a document's nearest neighbours share its label, on average.

    Args:
        vectors: shape (N, D).
        labels: one a row.
        k: neighbours; see `neighbour_shares`.
        seed: of the bootstrap.

    Returns:
        Mean share in 0..1, by chance that of neighbours drawn at random; None with fewer than
        2 labelled rows.
    """
    found = neighbour_shares(vectors, labels, k)
    return None if found is None else mean_estimate(found[0], found[1], seed, found[2])


def label_silhouette(
    vectors: NDArray[np.floating], labels: Sequence[str | None], seed: int = 0
) -> Estimate | None:
    """Returns the mean silhouette of labels by cosine distance, -1..1.

    Its control is the mean over labels shuffled among the same documents. A label of one
    document has silhouette 0, as scikit-learn has it.

    Args:
        vectors: shape (N, D).
        labels: one a row; rows without one are left out.
        seed: of the bootstrap and of the shuffles.

    Returns:
        None with fewer than 2 labels, or with as many labels as labelled rows.
    """
    rows = [i for i, label in enumerate(labels) if label is not None]
    names, inverse = np.unique([labels[i] for i in rows], return_inverse=True)
    if not 1 < len(names) < len(rows):
        return None
    distances = 1.0 - cos_sim(vectors[rows], vectors[rows])
    np.fill_diagonal(distances, 0.0)
    rng = np.random.default_rng(seed)
    shuffled = [_silhouettes(distances, rng.permutation(inverse)).mean() for _ in range(SHUFFLES)]
    return mean_estimate(_silhouettes(distances, inverse), float(np.mean(shuffled)), seed)


def _silhouettes(distances: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the silhouette of each row, given who is in which group."""
    member = np.eye(int(groups.max()) + 1)[groups]  # (N, L)
    sums, sizes = distances @ member, member.sum(axis=0)
    at = np.arange(len(groups))
    own_others = sizes[groups] - 1
    inside = sums[at, groups] / np.maximum(own_others, 1)
    means = sums / sizes
    means[at, groups] = np.inf
    outside = means.min(axis=1)
    largest = np.maximum(inside, outside)
    scores = np.divide(outside - inside, largest, out=np.zeros_like(inside), where=largest > 0)
    return np.where(own_others > 0, scores, 0.0)


def layout_quality(
    vectors: NDArray[np.floating], points: NDArray[np.float64], k: int = 10, seed: int = 0
) -> tuple[Estimate, Estimate] | None:
    """Returns trustworthiness and continuity of a layout, each 0..1.

    Trustworthiness falls where neighbours on the map are far in the space, continuity where
    neighbours in the space are far on the map. The control is the same layout with its points
    dealt out anew, about 0.5.

    Args:
        vectors: shape (N, D), compared by cosine.
        points: shape (N, 2), compared by distance.
        k: neighbours, lowered to what the definition allows, below half the documents.
        seed: of the bootstrap and of the control.

    Returns:
        None with fewer than 4 documents.

    References:
        Venna and Kaski, Neighborhood preservation in nonlinear projection methods, 2001.
    """
    n = len(vectors)
    if n < 4:
        return None
    k = max(1, min(k, (n - 1) // 2))
    in_space = _ranks(1.0 - cos_sim(vectors, vectors))
    squares = (points**2).sum(axis=1)
    on_map = _ranks(squares[:, None] + squares[None, :] - 2.0 * points @ points.T)
    dealt = np.random.default_rng(seed).permutation(n)
    control = on_map[np.ix_(dealt, dealt)]
    return (
        mean_estimate(
            _kept(in_space, on_map, k), float(_kept(in_space, control, k).mean()), seed, k
        ),
        mean_estimate(
            _kept(on_map, in_space, k), float(_kept(control, in_space, k).mean()), seed, k
        ),
    )


def _ranks(distances: NDArray[np.float64]) -> NDArray[np.int32]:
    """Returns each row's ranks of the others, nearest 1; the row itself has rank 0."""
    n = len(distances)
    np.fill_diagonal(distances, -np.inf)
    order = np.argsort(distances, axis=1, kind="stable")
    ranks = np.empty((n, n), dtype=np.int32)
    np.put_along_axis(ranks, order, np.arange(n, dtype=np.int32)[None, :], axis=1)
    return ranks


def _kept(truth: NDArray[np.int32], shown: NDArray[np.int32], k: int) -> NDArray[np.float64]:
    """Returns for each row how near in truth its k shown neighbours are; the mean is T(k)."""
    n = len(truth)
    neighbours = (shown >= 1) & (shown <= k)
    excess = np.where(neighbours, np.maximum(truth - k, 0), 0).sum(axis=1)
    # Kept as whole numbers up to here, since n * k * n overflows nothing then.
    kept: NDArray[np.float64] = 1.0 - excess * (2.0 / (k * (2.0 * n - 3.0 * k - 1.0)))
    return kept


def mean_cosine(vectors: NDArray[np.floating], seed: int = 0) -> Estimate | None:
    """Returns the mean cosine of two documents, the anisotropy of a space.

    Directions drawn at random have 0. The interval resamples documents and leaves out the
    pairs of a document with its own copy.

    Args:
        vectors: shape (N, D).
        seed: of the bootstrap.

    Returns:
        None with fewer than 2 documents.
    """
    n = len(vectors)
    if n < 2:
        return None
    units = unit_rows(vectors)
    own = (units**2).sum(axis=1)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES // 2)
    values = []
    for weights in (np.ones((1, n)), counts.astype(np.float64)):
        sums = weights @ units
        pairs = n**2 - (weights**2).sum(axis=1)
        total = (sums**2).sum(axis=1) - weights**2 @ own
        values.append(np.divide(total, pairs, out=np.full(len(sums), np.nan), where=pairs > 0))
    low, high = np.nanpercentile(values[1], [2.5, 97.5])
    value = float(values[0][0])
    return Estimate(value, float(min(low, value)), float(max(high, value)), chance=0.0)


def length_correlation(
    vectors: NDArray[np.floating], lengths: NDArray[np.integer], components: int = 2, seed: int = 0
) -> tuple[Estimate, ...]:
    """Returns how strongly the first principal components follow document length, 0..1.

    The absolute rank correlation (Spearman), since a component's sign means nothing. Its
    control is the mean over shuffled lengths, which is above 0 for few documents.

    Args:
        vectors: shape (N, D), taken as directions.
        lengths: tokens of each document, shape (N,).
        components: how many.
        seed: of the bootstrap and of the shuffles.

    Returns:
        One a component; none with fewer than 4 documents, where all lengths are equal, or
        where the vectors do not spread.
    """
    n = len(vectors)
    if n < 4 or not np.ptp(lengths):
        return ()
    units = unit_rows(vectors)
    centred = units - units.mean(axis=0)
    scores = _component_scores(centred, components)
    rng = np.random.default_rng(seed)
    by_length = _average_ranks(lengths)
    found = []
    for column in scores.T:
        by_component = _average_ranks(column)
        value = abs(_correlation(by_component, by_length))
        shuffled = np.mean(
            [abs(_correlation(by_component, rng.permutation(by_length))) for _ in range(200)]
        )
        values = []
        for _ in range(RESAMPLES // 4):
            rows = rng.integers(n, size=n)
            values.append(abs(_correlation(by_component[rows], by_length[rows])))
        low, high = np.percentile(values, [2.5, 97.5])
        found.append(Estimate(value, float(low), float(high), float(shuffled)))
    return tuple(found)


def neighbour_overlap(
    one: NDArray[np.floating], other: NDArray[np.floating], k: int = 10, seed: int = 0
) -> Estimate | None:
    """Returns the mean Jaccard overlap of a document's nearest neighbours in two spaces, 0..1.

    Args:
        one: shape (N, D).
        other: the same documents, shape (N, E).
        k: neighbours, lowered to the other documents.
        seed: of the bootstrap.

    Returns:
        By chance that of two sets drawn at random; None with fewer than 2 documents.
    """
    n = len(one)
    if n < 2:
        return None
    k = min(k, n - 1)
    shares = rows_overlap(nearest_rows(one, k), nearest_rows(other, k))
    return mean_estimate(shares, jaccard_by_chance(k, n - 1), seed, k)


def rows_overlap(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the Jaccard overlap of two sets of k rows, row by row.

    Example:
        >>> rows_overlap(np.array([[1, 2]]), np.array([[2, 3]])).round(3).tolist()
        [0.333]
    """
    k = one.shape[1]
    common = (one[:, :, None] == other[:, None, :]).any(axis=2).sum(axis=1)
    overlap: NDArray[np.float64] = common / (2.0 * k - common)
    return overlap


def jaccard_by_chance(k: int, others: int) -> float:
    """Returns the expected Jaccard overlap of two sets of k drawn from so many.

    Example:
        >>> jaccard_by_chance(1, 4)  # The same one in a quarter of all cases.
        0.25
    """
    from scipy.stats import hypergeom

    common = np.arange(k + 1)
    return float((hypergeom.pmf(common, others, k, k) * common / (2 * k - common)).sum())


def linear_cka(
    one: NDArray[np.floating], other: NDArray[np.floating], seed: int = 0
) -> Estimate | None:
    """Returns linear centred kernel alignment of two spaces of the same documents, 0..1.

    It is 1 for spaces that are equal up to a turn and a scale. With fewer documents than
    dimensions it is far above 0 for unrelated spaces too, so read it against its control, the
    mean over shuffled rows. The interval comes from leaving out a twentieth of the documents
    in turn (grouped jackknife): a bootstrap repeats rows, and repeated rows raise CKA.

    Args:
        one: shape (N, D), taken as directions.
        other: shape (N, E).
        seed: of the shuffles and of the groups.

    Returns:
        None with fewer than 3 documents, or where one space does not spread.

    References:
        Kornblith et al., Similarity of neural network representations revisited, 2019.
    """
    n = len(one)
    if n < 3:
        return None
    a, b = unit_rows(one), unit_rows(other)
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(n) for _ in range(SHUFFLES)]
    groups = np.array_split(rng.permutation(n), min(FOLDS, n))
    if n < max(a.shape[1], b.shape[1]):
        # The same number from products of documents by documents, which are smaller.
        left, right = a @ a.T, b @ b.T
        value = _cka_of_products(left, right)
        shuffled = [_cka_of_products(left, right[np.ix_(order, order)]) for order in orders]
        kept = [np.ix_(rest, rest) for rest in (np.delete(np.arange(n), rows) for rows in groups)]
        left_out = np.array([_cka_of_products(left[rest], right[rest]) for rest in kept])
    else:
        value = _cka(a, b)
        shuffled = [_cka(a, b[order]) for order in orders]
        left_out = np.array(
            [_cka(np.delete(a, rows, axis=0), np.delete(b, rows, axis=0)) for rows in groups]
        )
    if np.isnan(value):
        return None
    chance = float(np.mean(shuffled))
    left_out = left_out[~np.isnan(left_out)]
    g = len(left_out)
    spread = 1.96 * np.sqrt((g - 1) / g * ((left_out - left_out.mean()) ** 2).sum()) if g else 0.0
    low, high = np.clip([value - spread, value + spread], 0.0, 1.0)
    return Estimate(value, float(min(low, value)), float(max(high, value)), chance)


def _cka(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Returns linear CKA of two tables, (N, D) and (N, E); NaN where one does not spread."""
    a, b = one - one.mean(axis=0), other - other.mean(axis=0)
    scale = float(np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))
    return float(np.linalg.norm(a.T @ b) ** 2) / scale if scale > 1e-18 else float("nan")


def _cka_of_products(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Returns linear CKA from the inner products of documents, each (N, N), not centred."""
    a, b = _doubly_centred(left), _doubly_centred(right)
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / scale if scale > 1e-18 else float("nan")


def _doubly_centred(products: NDArray[np.float64]) -> NDArray[np.float64]:
    means = products.mean(axis=0)
    centred: NDArray[np.float64] = products - means[None, :] - means[:, None] + means.mean()
    return centred


def _component_scores(centred: NDArray[np.float64], components: int) -> NDArray[np.float64]:
    """Returns the rows' places on the first principal components that spread, (N, <= C)."""
    # The smaller of the two product matrices has all that is wanted, sorted from the small end.
    if len(centred) < centred.shape[1]:
        sizes, vectors = np.linalg.eigh(centred @ centred.T)
        scores = vectors * np.sqrt(np.maximum(sizes, 0.0))
    else:
        sizes, vectors = np.linalg.eigh(centred.T @ centred)
        scores = centred @ vectors
    wide = [c for c in range(1, components + 1) if c <= len(sizes) and sizes[-c] > 1e-12]
    return np.asarray(scores[:, [-c for c in wide]], dtype=np.float64)


def _average_ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


def mean_estimate(
    values: NDArray[np.float64], chance: float, seed: int, k: int | None = None
) -> Estimate:
    """Returns the mean of one number a document with its percentile bootstrap interval.

    Args:
        values: one a document, shape (N,).
        chance: the level to read it against.
        seed: of the bootstrap.
        k: neighbours looked at.
    """
    value = float(values.mean())
    low = high = value
    if np.ptp(values) > 0:
        rng, n = np.random.default_rng(seed), len(values)
        # In batches, so that memory stays small.
        means = [values[rng.integers(n, size=(RESAMPLES // 20, n))].mean(axis=1) for _ in range(20)]
        low, high = (float(bound) for bound in np.percentile(means, [2.5, 97.5]))
    return Estimate(value, low, high, chance, k)
