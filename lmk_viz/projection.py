"""Vectors on a plane, and the numbers that say what such a map can be trusted for."""

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.similarity import cos_sim

__all__ = [
    "MIN_UMAP",
    "SMALL_N",
    "Estimate",
    "MapPanel",
    "Projection",
    "align_points",
    "layout_trustworthiness",
    "map_panels",
    "neighbour_purity",
    "project",
    "warm_up",
]

MIN_UMAP = 4
"""UMAP fails or means nothing below four distinct documents."""
SMALL_N = 15
"""Below this many distinct documents PCA is the default."""

# Numba's threading layer aborts the process when two threads enter it on some platforms.
_umap_lock = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Points of one table of vectors."""

    points: NDArray[np.float64] | None
    """Shape (N, 2); None where there are too few distinct documents to draw."""
    method: ProjectionMethod
    """What was used: UMAP or PCA."""
    config: ProjectionConfig
    n_neighbors: int | None
    """Of UMAP, after lowering it to the number of documents."""
    n_distinct: int
    copies: NDArray[np.int64]
    """How many documents share each document's vector, itself included, shape (N,)."""
    notes: tuple[str, ...] = field(default=())
    """What a reader has to know: fallbacks and limits."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its bootstrap interval and its chance level."""

    value: float
    low: float
    high: float
    chance: float
    k: int
    """Neighbours looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class MapPanel:
    """One pooling's map and what it can be trusted for."""

    mode: PoolingMode
    projection: Projection
    points: NDArray[np.float64] | None
    """Turned onto the first panel's, shape (N, 2); None where there are too few documents."""
    trustworthiness: tuple[float, int] | None
    """And the neighbours it was measured with."""
    purity: Estimate | None
    """Neighbours of the same label; None without labels."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the panel's numbers as plain JSON types."""
        return {
            "pooling": self.mode.value,
            "method": self.projection.method.value,
            "purity": None if self.purity is None else asdict(self.purity),
            "trustworthiness": self.trustworthiness[0] if self.trustworthiness else None,
            "notes": list(self.projection.notes),
        }


def map_panels(
    vectors: Mapping[PoolingMode, NDArray[np.floating]],
    labels: Sequence[str | None],
    config: ProjectionConfig | None = None,
) -> tuple[MapPanel, ...]:
    """Returns a map a pooling, turned and mirrored to match the first.

    Args:
        vectors: the same documents in the same order under each pooling, each (N, D).
        labels: one a document.
        config: how to lay them out.
    """
    panels: list[MapPanel] = []
    reference: NDArray[np.float64] | None = None
    for mode, rows in vectors.items():
        projection = project(rows, config)
        points, trust = projection.points, None
        if points is not None:
            trust = layout_trustworthiness(rows, points)
            points = points if reference is None else align_points(reference, points)
            reference = points if reference is None else reference
        panels.append(MapPanel(mode, projection, points, trust, neighbour_purity(rows, labels)))
    return tuple(panels)


def project(vectors: NDArray[np.floating], config: ProjectionConfig | None = None) -> Projection:
    """Returns two-dimensional points for a table of vectors.

    Equal vectors are projected once. Rows are sorted by content first, so that the order of
    the documents changes nothing.

    Args:
        vectors: shape (N, D), finite; compared by cosine.
        config: method, its parameters and the seed.

    Raises:
        ValueError: when the shape is wrong or a value is not finite.
    """
    config = config or ProjectionConfig()
    if vectors.ndim != 2:
        raise ValueError(f"vectors have shape {vectors.shape}; allowed: (N, D).")
    if not np.isfinite(vectors).all():
        rows = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
        raise ValueError(f"vectors of rows {rows[:5]} are not finite; leave them out first.")
    # `unique` sorts the rows, which makes the order canonical; -0.0 and 0.0 are one value.
    distinct, inverse, counts = np.unique(
        vectors + 0.0, axis=0, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)
    n = len(distinct)
    notes: list[str] = []
    if n < len(vectors):
        notes.append(f"{len(vectors) - n} documents share another one's vector and its point.")
    method = config.method
    if method is ProjectionMethod.AUTO:
        method = ProjectionMethod.UMAP if n >= SMALL_N else ProjectionMethod.PCA
        if MIN_UMAP <= n < SMALL_N:
            notes.append(f"PCA, since {n} distinct documents are few for UMAP.")
    points: NDArray[np.float64] | None = None
    used: int | None = None
    if n < (MIN_UMAP if method is ProjectionMethod.UMAP or config.method is not method else 2):
        notes.append(
            f"{n} distinct document{'s' * (n != 1)}: too few to lay out on a plane; "
            "read the cosines instead."
        )
    elif method is ProjectionMethod.PCA:
        points = _pca(distinct)[inverse]
    else:
        used = min(config.n_neighbors, n - 1)
        if used < config.n_neighbors:
            notes.append(f"n_neighbors lowered from {config.n_neighbors} to {used}.")
        points = _umap(distinct, used, config)[inverse]
    return Projection(
        points=points,
        method=method,
        config=config,
        n_neighbors=used,
        n_distinct=n,
        copies=counts[inverse],
        notes=tuple(notes),
    )


def align_points(
    reference: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns points turned and mirrored to lie on the reference as closely as possible.

    Distances between points stay as they are (orthogonal Procrustes without scaling), so an
    alignment adds nothing and hides nothing; it only takes away an arbitrary turn.

    Args:
        reference: shape (N, 2).
        points: the same documents in the same order, shape (N, 2).
    """
    from scipy.linalg import orthogonal_procrustes

    if reference.shape != points.shape:
        raise ValueError(f"shapes {reference.shape} and {points.shape} came; they have to match.")
    centred = points - points.mean(axis=0)
    rotation, _ = orthogonal_procrustes(centred, reference - reference.mean(axis=0))
    return np.asarray(centred @ rotation + reference.mean(axis=0))


def neighbour_purity(
    vectors: NDArray[np.floating], labels: Sequence[str | None], k: int = 10, seed: int = 0
) -> Estimate | None:
    """Returns how many of a document's nearest neighbours share its label, on average.

    Measured by cosine in the space of the vectors, not on the map.

    Args:
        vectors: shape (N, D).
        labels: one a row; rows without a label are left out.
        k: neighbours, lowered to the other members of the smallest label that has any, so
            that a share of 1 can be reached.
        seed: of the bootstrap.

    Returns:
        Mean share in 0..1, with the 95 % percentile bootstrap interval over documents and the
        share expected of neighbours drawn at random; None with fewer than 2 labelled rows.
    """
    from scipy.stats import bootstrap

    rows = [i for i, label in enumerate(labels) if label is not None]
    n = len(rows)
    if n < 2:
        return None
    names = np.asarray([labels[i] for i in rows])
    sizes = np.asarray([(names == name).sum() for name in names])
    k = min(k, n - 1, int(sizes[sizes > 1].min()) - 1 if (sizes > 1).any() else 1)
    cosines = cos_sim(vectors[rows], vectors[rows])
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    shares = (names[nearest] == names[:, None]).mean(axis=1)
    value = float(shares.mean())
    low = high = value
    if np.ptp(shares) > 0:
        interval = bootstrap(
            (shares,),
            np.mean,
            method="percentile",
            batch=500,  # All resamples at once take 400 MB for 2,000 documents.
            rng=np.random.default_rng(seed),
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    return Estimate(value, low, high, chance=float((sizes - 1).mean() / (n - 1)), k=k)


def layout_trustworthiness(
    vectors: NDArray[np.floating], points: NDArray[np.float64], k: int = 10
) -> tuple[float, int] | None:
    """Returns how far neighbours on the map are neighbours in the space, 0..1, and the k used.

    A random map scores about 0.5. k is lowered to what the definition allows, below half the
    number of documents; None where there are fewer than 4.
    """
    from sklearn.manifold import trustworthiness

    n = len(vectors)
    if n < MIN_UMAP:
        return None
    k = max(1, min(k, (n - 1) // 2))
    return float(trustworthiness(vectors, points, n_neighbors=k, metric="cosine")), k


def warm_up() -> None:
    """Imports UMAP and compiles what a first map needs; takes seconds, once a process."""
    rng = np.random.default_rng(0)
    _umap(rng.normal(size=(SMALL_N, 4)), 5, ProjectionConfig())


def _pca(distinct: NDArray[np.floating]) -> NDArray[np.float64]:
    from sklearn.decomposition import PCA

    # The full solver has no random part, and its signs are fixed by the data.
    units = distinct / np.maximum(np.linalg.norm(distinct, axis=1, keepdims=True), 1e-12)
    if units.shape[1] < 2:
        units = np.pad(units, ((0, 0), (0, 2 - units.shape[1])))
    # Vectors of one direction have no variance to take shares of.
    with np.errstate(invalid="ignore"):
        points = PCA(n_components=2, svd_solver="full").fit_transform(units)
    return np.asarray(points, dtype=np.float64)


def _umap(
    distinct: NDArray[np.floating], n_neighbors: int, config: ProjectionConfig
) -> NDArray[np.float64]:
    with _umap_lock, warnings.catch_warnings():
        # Numba and umap warn of their own changes while they are imported and compiled.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ImportWarning)
        import umap

        # A fixed seed always draws this one.
        warnings.filterwarnings(
            "ignore", message="n_jobs value .* overridden", category=UserWarning
        )
        reducer: Any = umap.UMAP(
            n_neighbors=n_neighbors,
            min_dist=config.min_dist,
            metric="cosine",
            random_state=config.seed,
            # The spectral start needs more points than a small set has.
            init="spectral" if len(distinct) > SMALL_N else "random",
        )
        points = reducer.fit_transform(distinct)
    return np.asarray(points, dtype=np.float64)
