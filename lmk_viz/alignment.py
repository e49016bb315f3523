"""Several layouts of the same documents, brought into correspondence.

How was chosen by measurement. A: the 72 texts of the sample corpus under CLS, mean and
landmark pooling, five seeds. B: 500 made-up vectors in 12 clusters, three noisy copies, two
seeds. `trust` is trustworthiness and `recall` the share of the ten nearest in the space that
are among the ten nearest on the map, means over the panels; `moved` is `alignment_error`
between the first panel and the others, `same` and `near` the same for a table against itself
and against itself with 2 % of noise, where nothing ought to move:

    way                                     trust   recall   moved   same    near
    A  each alone, then turned              0.861    0.575   0.587   0.000   0.388
    A  the first layout as start            0.860    0.572   0.582   0.382   0.431
    A  umap.AlignedUMAP                     0.853    0.563   0.442   0.252   0.269
    A  all settle from the first (here)     0.872    0.586   0.345   0.000   0.082
    B  each alone, then turned              0.977    0.432   0.813   0.000   0.410
    B  the first layout as start            0.977    0.434   0.349   0.362   0.297
    B  umap.AlignedUMAP                     0.976    0.413   0.073   0.049   0.051
    B  all settle from the first (here)     0.980    0.479   0.114   0.000   0.080

So a layout of the first pooling is made, every panel, the first included, settles from it in
small steps on its own vectors, and each is then turned onto the first. Neighbours are kept at
least as well as by UMAP alone, equal tables lie equal, and AlignedUMAP, which took five to
twenty times as long, cannot place further vectors, as the landmark view asks for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.map_metrics import Estimate, jaccard_by_chance, mean_estimate, rows_overlap
from lmk_viz.projection import Projection, project

__all__ = [
    "Placed",
    "Turn",
    "align_points",
    "alignment_error",
    "find_turn",
    "layout_stability",
    "nearest_points",
    "project_together",
]


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A shift, then a turn or a mirroring, then a shift; distances stay as they are."""

    rotation: NDArray[np.float64]
    """Orthogonal, shape (2, 2)."""
    centre: NDArray[np.float64]
    """Taken off first, shape (2,)."""
    target: NDArray[np.float64]
    """Added last, shape (2,)."""

    def apply(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the points turned, shape (N, 2)."""
        turned: NDArray[np.float64] = (points - self.centre) @ self.rotation + self.target
        return turned


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """One layout among several of the same documents."""

    projection: Projection
    points: NDArray[np.float64] | None
    """Turned onto the first layout, shape (N, 2); None where nothing is drawn."""
    turn: Turn | None
    """What turned them; None where they are as projected."""

    def place(self, vectors: NDArray[np.floating]) -> NDArray[np.float64] | None:
        """Returns where further vectors of the same space lie in this layout, as it stands.

        Args:
            vectors: shape (M, D).

        Returns:
            Shape (M, 2); None where the method cannot, or nothing is drawn.
        """
        if self.projection.place is None:
            return None
        points = self.projection.place(vectors)
        return points if self.turn is None else self.turn.apply(points)


def project_together(
    vectors: Mapping[PoolingMode, NDArray[np.floating]], config: ProjectionConfig | None = None
) -> dict[PoolingMode, Placed]:
    """Returns a layout for each pooling, such that a document lies in like places.

    Each space is laid out on its own: vectors of different poolings, or of different trained
    variants of an encoder, are never compared. Panels share the order of rows, the seed and
    the start. Adding a pooling behind the others changes none of theirs.

    Args:
        vectors: the same documents in the same order under each pooling, each (N, D).
        config: how to lay them out.

    Raises:
        ValueError: when the tables have different numbers of rows.
    """
    config = config or ProjectionConfig()
    if len({len(rows) for rows in vectors.values()}) > 1:
        sizes = {mode.value: len(rows) for mode, rows in vectors.items()}
        raise ValueError(f"tables of {sizes} rows came; give the same documents in each.")
    order = _canonical_order(list(vectors.values()))
    placed: dict[PoolingMode, Placed] = {}
    start: NDArray[np.float64] | None = None
    reference: NDArray[np.float64] | None = None
    for mode, rows in vectors.items():
        found = project(rows, config, start, order)
        if start is None and found.points is not None and found.method is not ProjectionMethod.PCA:
            # The first layout is where all begin, and it settles from there like the others:
            # two equal tables come out equal.
            start = found.points
            found = project(rows, config, start, order, found.neighbours)
        points, turn = found.points, None
        if points is not None and reference is not None:
            turn = find_turn(reference, points)
            points = turn.apply(points)
        reference = points if reference is None else reference
        placed[mode] = Placed(found, points, turn)
    return placed


def _canonical_order(tables: list[NDArray[np.floating]]) -> NDArray[np.int64]:
    """Returns the rank of each row when sorted by content, the first table counting first."""
    if not tables or any(table.ndim != 2 for table in tables):
        return np.zeros(0, dtype=np.int64)
    wide = np.concatenate(tables, axis=1) + 0.0
    _, inverse = np.unique(wide, axis=0, return_inverse=True)
    return np.asarray(inverse.reshape(-1), dtype=np.int64)


def find_turn(reference: NDArray[np.float64], points: NDArray[np.float64]) -> Turn:
    """Returns the turn that brings points as close to the reference as a turn can.

    Orthogonal Procrustes without scaling: distances between points stay as they are, so an
    alignment adds nothing and hides nothing; it only takes away an arbitrary turn.

    Args:
        reference: shape (N, 2).
        points: the same documents in the same order, shape (N, 2).

    Raises:
        ValueError: when the shapes differ.
    """
    from scipy.linalg import orthogonal_procrustes

    if reference.shape != points.shape:
        raise ValueError(f"shapes {reference.shape} and {points.shape} came; they have to match.")
    centre, target = points.mean(axis=0), reference.mean(axis=0)
    rotation, _ = orthogonal_procrustes(points - centre, reference - target)
    return Turn(np.asarray(rotation), centre, target)


def align_points(
    reference: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns points turned and mirrored to lie on the reference; see `find_turn`."""
    return find_turn(reference, points).apply(points)


def alignment_error(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Returns how far a document lies from itself in two layouts, on average.

    In units of a layout's root mean square radius, both layouts centred and scaled to radius
    1: 0 for layouts that are equal up to shift and scale, about 1.3 for points dealt out at
    random.

    Args:
        one: shape (N, 2).
        other: shape (N, 2).
    """
    scaled = []
    for points in (one, other):
        centred = points - points.mean(axis=0)
        radius = np.sqrt((centred**2).sum(axis=1).mean())
        scaled.append(centred / radius if radius > 0 else centred)
    return float(np.linalg.norm(scaled[0] - scaled[1], axis=1).mean())


def nearest_points(points: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Returns each point's k nearest others on the map, nearest first, shape (N, k)."""
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=k).fit(points)
    return np.asarray(model.kneighbors(return_distance=False), dtype=np.int64)


def layout_stability(
    vectors: NDArray[np.floating],
    config: ProjectionConfig | None = None,
    seeds: int = 3,
    k: int = 10,
) -> Estimate | None:
    """Returns how far layouts of several seeds agree on who lies near whom, 0..1.

    The mean Jaccard overlap of a document's k nearest points between every two seeds.

    Args:
        vectors: shape (N, D).
        config: its seed is the first; the others follow it.
        seeds: how many layouts, 2 and more.
        k: neighbours, lowered to the other documents.

    Returns:
        By chance that of two random sets; None where nothing is drawn, and for PCA, which has
        no seed.

    Raises:
        ValueError: when fewer than two seeds are asked for.
    """
    if seeds < 2:
        raise ValueError(f"seeds is {seeds}; allowed: 2 and more, since layouts are compared.")
    config = config or ProjectionConfig()
    n = len(vectors)
    lists = []
    for number in range(seeds):
        settings = ProjectionConfig(
            config.method,
            config.n_neighbors,
            config.min_dist,
            (config.seed + number) % 2**32,
            config.metric,
        )
        found = project(vectors, settings)
        if found.points is None or found.method is ProjectionMethod.PCA:
            return None
        lists.append(nearest_points(found.points, min(k, n - 1)))
    k = min(k, n - 1)
    pairs = [(a, b) for a in range(seeds) for b in range(a)]
    shares = np.mean([rows_overlap(lists[a], lists[b]) for a, b in pairs], axis=0)
    return mean_estimate(shares, jaccard_by_chance(k, n - 1), config.seed, k)
