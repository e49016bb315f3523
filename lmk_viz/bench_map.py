"""What a map costs: our layouts against umap-learn called plainly, and another colour.

Side by side in one run on the same vectors, never against a figure from elsewhere.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.alignment import project_together
from lmk_viz.config import PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.projection import warm_up

__all__ = ["MapBench", "bench_map", "clustered_vectors"]

MODES = (PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK)
COLOURINGS = 5
"""Changes of colour that are timed."""

Draw = Callable[[NDArray[np.float64], list[Any]], int]


@dataclass(frozen=True, slots=True)
class MapBench:
    """What `bench map` measures."""

    documents: int = 5_000
    dimensions: int = 384
    clusters: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("documents", 20), ("dimensions", 2), ("clusters", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: {low} and more.")


def bench_map(
    settings: MapBench, draw: Draw, report: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Returns seconds in our layouts and in plain umap-learn, and milliseconds of a new colour.

    `umap_ratio` is ours, three aligned panels, by three plain calls with the same parameters
    and seed on the same vectors. Compilation happens before both.

    Args:
        settings: how many documents of what kind.
        draw: builds one panel of points with a column of values, ready to be sent; returns
            its size in bytes.
        report: told what is being measured.
    """
    vectors, labels = clustered_vectors(settings)
    config = ProjectionConfig(ProjectionMethod.UMAP, seed=settings.seed)
    report("compiling")
    warm_up()
    import umap

    with warnings.catch_warnings():
        # A fixed seed always draws this one.
        warnings.filterwarnings("ignore", message="n_jobs value .* overridden")
        # What plain calls compile beyond the warm-up is no part of their time.
        _plain(umap, next(iter(vectors.values()))[:100], config)
        report(f"umap-learn, plainly, {len(vectors)} tables of {settings.documents:,}")
        started = time.perf_counter()
        for rows in vectors.values():
            _plain(umap, rows, config)
        plain = time.perf_counter() - started
    report("aligned layouts of the same tables")
    started = time.perf_counter()
    placed = project_together(vectors, config)
    ours = time.perf_counter() - started
    report("another colour")
    lengths = np.random.default_rng(settings.seed).integers(10, 900, settings.documents).tolist()
    times, size = [], 0
    for number in range(COLOURINGS):
        values = labels if number % 2 else lengths
        started = time.perf_counter()
        size = sum(draw(p.points, values) for p in placed.values() if p.points is not None)
        times.append(time.perf_counter() - started)
    return {
        "settings": asdict(settings),
        "umap_ratio": ours / plain,
        "ours_seconds": ours,
        "plain_seconds": plain,
        "colour_milliseconds": 1e3 * statistics.median(times),
        "figures_megabytes": size / 1e6,
    }


def clustered_vectors(
    settings: MapBench,
) -> tuple[Mapping[PoolingMode, NDArray[np.float32]], list[str]]:
    """Returns made-up vectors in clusters, a noisy turned copy a pooling, and their clusters."""
    rng = np.random.default_rng(settings.seed)
    n, d = settings.documents, settings.dimensions
    group = rng.integers(settings.clusters, size=n)
    base = rng.normal(size=(settings.clusters, d))[group] + 0.9 * rng.normal(size=(n, d))
    vectors = {}
    for mode in MODES:
        rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
        rows = (base + 0.5 * rng.normal(size=(n, d))) @ rotation
        vectors[mode] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return vectors, [f"cluster {number}" for number in group.tolist()]


def _plain(umap: Any, rows: NDArray[np.float32], config: ProjectionConfig) -> None:
    umap.UMAP(
        n_neighbors=config.n_neighbors,
        min_dist=config.min_dist,
        metric=config.metric,
        random_state=config.seed,
    ).fit_transform(rows)
