"""Vectors on a plane: UMAP, PCA and t-SNE, with few documents and copies handled."""

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ProjectionConfig, ProjectionMethod

__all__ = ["MIN_UMAP", "SMALL_N", "Projection", "project", "warm_up"]

MIN_UMAP = 4
"""UMAP and t-SNE fail or mean nothing below four distinct documents."""
SMALL_N = 15
"""Below this many distinct documents PCA is the default."""
SETTLE_EPOCHS = 200
"""Of UMAP from a given start; its own number for a fresh one is 500 up to 10,000 rows."""
SETTLE_RATE = 0.03
"""Learning rate of UMAP from a given start; its own is 1. In small steps points move where
their neighbours draw them, and not across the map by chance."""
REUSE_FROM = 4096
"""UMAP keeps a neighbour graph that can be handed on from so many rows."""

# Numba's threading layer aborts the process when two threads enter it on some platforms.
_umap_lock = threading.Lock()

Place = Callable[[NDArray[np.floating]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Points of one table of vectors."""

    points: NDArray[np.float64] | None
    """Shape (N, 2); None where there are too few distinct documents to draw."""
    method: ProjectionMethod
    """What was used: UMAP, PCA or t-SNE."""
    config: ProjectionConfig
    n_neighbors: int | None
    """Of UMAP, and t-SNE's perplexity, after lowering it to the number of documents."""
    n_distinct: int
    copies: NDArray[np.int64]
    """How many documents share each document's vector, itself included, shape (N,)."""
    notes: tuple[str, ...] = field(default=())
    """What a reader has to know: fallbacks and limits."""
    place: Place | None = None
    """Puts further vectors (M, D) of the same space into the layout as it stands, (M, 2);
    None where nothing is drawn, and for t-SNE, which cannot."""
    neighbours: Any = None
    """UMAP's neighbour graph, for another layout of the same rows; None for small tables."""


def project(
    vectors: NDArray[np.floating],
    config: ProjectionConfig | None = None,
    start: NDArray[np.float64] | None = None,
    order: NDArray[np.int64] | None = None,
    neighbours: Any = None,
) -> Projection:
    """Returns two-dimensional points for a table of vectors.

    Equal vectors are projected once. Rows are sorted by content first, so that the order of
    the documents changes nothing.

    Args:
        vectors: shape (N, D), finite.
        config: method, its parameters, the metric and the seed.
        start: points to begin from, shape (N, 2); UMAP settles from there with small steps,
            t-SNE begins there, PCA reads nothing of it.
        order: rank of each row, shape (N,), in place of the sort by content.
        neighbours: of a projection of the same vectors with the same settings.

    Raises:
        ValueError: when the shape is wrong or a value is not finite.
    """
    config = config or ProjectionConfig()
    if vectors.ndim != 2:
        raise ValueError(f"vectors have shape {vectors.shape}; allowed: (N, D).")
    if not np.isfinite(vectors).all():
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
        raise ValueError(f"vectors of rows {bad[:5]} are not finite; leave them out first.")
    distinct, inverse, counts = _distinct_rows(vectors, order)
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
    place, graph = None, None
    asked_for_pca = config.method is ProjectionMethod.PCA
    if n < (2 if asked_for_pca else MIN_UMAP):
        notes.append(
            f"{n} distinct document{'s' * (n != 1)}: too few to lay out on a plane; "
            "read the cosines instead."
        )
    elif method is ProjectionMethod.PCA:
        points, place = _pca(distinct, config.metric)
    else:
        begin = None if start is None else _mean_start(start, inverse, counts)
        # A perplexity has to stay below a third of the rows to mean anything.
        most = n - 1 if method is ProjectionMethod.UMAP else max(1, (n - 1) // 3)
        used = min(config.n_neighbors, most)
        name = "n_neighbors" if method is ProjectionMethod.UMAP else "perplexity"
        if used < config.n_neighbors:
            notes.append(f"{name} lowered from {config.n_neighbors} to {used}.")
        if method is ProjectionMethod.UMAP:
            points, place, graph = _umap(distinct, used, config, begin, neighbours)
        else:
            points = _tsne(distinct, used, config, begin)
    return Projection(
        points=None if points is None else points[inverse],
        method=method,
        config=config,
        n_neighbors=used,
        n_distinct=n,
        copies=counts[inverse],
        notes=tuple(notes),
        place=place,
        neighbours=graph,
    )


def warm_up() -> None:
    """Imports UMAP and compiles what a first map needs; takes seconds, once a process."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(SMALL_N, 4))
    _, place, _ = _umap(rows, 5, ProjectionConfig(), rng.normal(size=(SMALL_N, 2)), None)
    place(rows[:2])


def _distinct_rows(
    vectors: NDArray[np.floating], order: NDArray[np.int64] | None
) -> tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.int64]]:
    """Returns distinct rows, which of them each row is, and how often each comes."""
    # `unique` sorts the rows, which makes the order canonical; -0.0 and 0.0 are one value.
    distinct, inverse, counts = np.unique(
        vectors + 0.0, axis=0, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)
    if order is not None and len(vectors):
        first = np.full(len(distinct), len(vectors), dtype=np.int64)
        np.minimum.at(first, inverse, order)
        by_rank = np.argsort(first, kind="stable")
        place = np.empty_like(by_rank)
        place[by_rank] = np.arange(len(by_rank))
        distinct, counts, inverse = distinct[by_rank], counts[by_rank], place[inverse]
    return distinct, inverse, counts


def _mean_start(
    start: NDArray[np.float64], inverse: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns where each distinct row begins: the middle of its documents' starts."""
    sums = np.zeros((len(counts), 2))
    np.add.at(sums, inverse, start)
    means: NDArray[np.float64] = sums / counts[:, None]
    return means


def _prepared(rows: NDArray[np.floating], metric: str) -> tuple[NDArray[np.floating], str]:
    """Returns rows and the metric to compare them by; correlation is cosine of centred rows."""
    if metric == "correlation":
        return rows - rows.mean(axis=1, keepdims=True), "cosine"
    return rows, metric


def _pca(distinct: NDArray[np.floating], metric: str) -> tuple[NDArray[np.float64], Place]:
    from sklearn.decomposition import PCA

    def prepare(rows: NDArray[np.floating]) -> NDArray[np.floating]:
        rows, name = _prepared(rows, metric)
        if name == "cosine":
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        if rows.shape[1] < 2:
            rows = np.pad(rows, ((0, 0), (0, 2 - rows.shape[1])))
        return rows

    # The full solver has no random part, and its signs are fixed by the data.
    model = PCA(n_components=2, svd_solver="full")
    # Vectors of one direction have no variance to take shares of.
    with np.errstate(invalid="ignore"):
        points = model.fit_transform(prepare(distinct))

    def place(rows: NDArray[np.floating]) -> NDArray[np.float64]:
        return np.asarray(model.transform(prepare(rows)), dtype=np.float64)

    return np.asarray(points, dtype=np.float64), place


def _tsne(
    distinct: NDArray[np.floating],
    perplexity: int,
    config: ProjectionConfig,
    start: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    from sklearn.manifold import TSNE

    rows, metric = _prepared(distinct, config.metric)
    init: Any = "random"
    if start is None:
        start = _pca(distinct, config.metric)[0]
    if np.ptp(start):
        # scikit-learn's own scale for a start: points so close that all can pass each other.
        init = ((start - start.mean(axis=0)) / start.std() * 1e-4).astype(np.float32)
    model = TSNE(
        perplexity=float(perplexity),
        metric=metric,
        init=init,
        random_state=config.seed,
        n_jobs=1,
    )
    return np.asarray(model.fit_transform(rows), dtype=np.float64)


def _umap(
    distinct: NDArray[np.floating],
    n_neighbors: int,
    config: ProjectionConfig,
    start: NDArray[np.float64] | None,
    neighbours: Any,
) -> tuple[NDArray[np.float64], Place, Any]:
    rows, metric = _prepared(distinct, config.metric)
    settings: dict[str, Any] = {}
    if start is not None:
        settings = {
            "init": start.astype(np.float32),
            "n_epochs": SETTLE_EPOCHS,
            "learning_rate": SETTLE_RATE,
        }
    if neighbours is not None:
        settings["precomputed_knn"] = neighbours
    with _umap_lock, warnings.catch_warnings():
        _quieten()
        import umap

        reducer: Any = umap.UMAP(
            **{
                "n_neighbors": n_neighbors,
                "min_dist": config.min_dist,
                "metric": metric,
                "random_state": config.seed,
                # The spectral start needs more points than a small set has.
                "init": "spectral" if len(distinct) > SMALL_N else "random",
                **settings,
            }
        )
        points = reducer.fit_transform(rows)

    def place(more: NDArray[np.floating]) -> NDArray[np.float64]:
        with _umap_lock, warnings.catch_warnings():
            _quieten()
            found = reducer.transform(_prepared(more, config.metric)[0].astype(rows.dtype))
        return np.asarray(found, dtype=np.float64)

    graph = None
    if len(distinct) >= REUSE_FROM:
        graph = (reducer._knn_indices, reducer._knn_dists, reducer._knn_search_index)
    return np.asarray(points, dtype=np.float64), place, graph


def _quieten() -> None:
    # Numba and umap warn of their own changes while they are imported and compiled.
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", ImportWarning)
    # A fixed seed always draws this one.
    warnings.filterwarnings("ignore", message="n_jobs value .* overridden", category=UserWarning)
