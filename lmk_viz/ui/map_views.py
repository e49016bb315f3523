"""Parts of the embedding map page that stand above and below the panels."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.corpus import Corpus
from lmk_viz.embedding import EmbeddingTable
from lmk_viz.figures.map_page import render_map_page
from lmk_viz.map_table import VectorTable, coordinates_frame
from lmk_viz.maps import CorpusMap, MapPanel
from lmk_viz.similarity import cos_sim
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.text import escape_markdown

__all__ = [
    "embedding_progress",
    "pick_projection",
    "show_cosines",
    "show_downloads",
    "show_receipt",
    "vector_table",
]

MAX_COSINES = 30
FORECAST_FROM_SECONDS = 2.0
"""Shorter waits need no announcement."""
METHOD_NAMES = {
    ProjectionMethod.AUTO: "Automatic",
    ProjectionMethod.UMAP: "UMAP",
    ProjectionMethod.PCA: "PCA",
    ProjectionMethod.TSNE: "t-SNE",
}


def pick_projection() -> ProjectionConfig:
    """Draws the controls of poolings and projection and returns how to lay out.

    Raises:
        ValueError: when a choice is out of range.
    """
    st.multiselect(
        "Poolings",
        list(PoolingMode),
        format_func=lambda mode: PoolingConfig(mode).label,
        **state.POOLINGS.widget(),
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Projection",
            list(ProjectionMethod),
            format_func=METHOD_NAMES.__getitem__,
            required=True,
            help="Automatic: PCA below 15 distinct documents, else UMAP.",
            **state.METHOD.widget(),
        )
        st.number_input(
            "Neighbours",
            2,
            200,
            step=1,
            width=130,
            help="How many neighbours hold a point: UMAP's n_neighbors, t-SNE's perplexity.",
            **state.NEIGHBOURS.widget(),
        )
        st.number_input(
            "Smallest distance",
            0.0,
            1.0,
            step=0.05,
            width=150,
            help="UMAP's min_dist: how tightly points of a clump may lie.",
            **state.MIN_DIST.widget(),
        )
        st.selectbox(
            "Metric",
            ProjectionConfig.METRICS,
            width=150,
            help="What the layout takes for the distance of two vectors. The numbers are by "
            "cosine always.",
            **state.METRIC.widget(),
        )
        st.number_input("Seed", 0, 2**32 - 1, step=1, width=130, **state.MAP_SEED.widget())
    return ProjectionConfig(
        state.METHOD.get(),
        state.NEIGHBOURS.get(),
        state.MIN_DIST.get(),
        state.MAP_SEED.get(),
        state.METRIC.get(),
    )


@contextmanager
def embedding_progress(forecast: float | None = None) -> Iterator[Callable[[int, int], None]]:
    """Shows how far embedding is and about how long the rest takes; hits show nothing.

    Args:
        forecast: seconds that the whole is expected to take, told until the first batch is done.

    Yields:
        A callback that takes passes done and passes in all.
    """
    place, started = st.empty(), time.monotonic()
    if forecast is not None and forecast > FORECAST_FROM_SECONDS:
        place.progress(0.0, text=f"Embedding: forecast to take about {forecast:,.0f} s")

    def show(done: int, total: int) -> None:
        left = (time.monotonic() - started) / max(done, 1) * (total - done)
        # Long documents come first, so the estimate errs on the long side.
        place.progress(
            done / total,
            text=f"Embedding: pass {done:,} of {total:,}, at most about {left:,.0f} s left",
        )

    try:
        yield show
    finally:
        place.empty()


def show_receipt(corpus: Corpus, table: EmbeddingTable, inputs: Inputs) -> None:
    """Draws what was embedded, how, and what was cut or left out."""
    cut = int(table.was_cut.sum())
    parts = [
        f"**{escape_markdown(corpus.name)}**",
        f"{len(table):,} documents",
        f"{len(corpus.labels):,} labels",
        f":orange[{cut:,} cut by the limit of {inputs.max_length:,} tokens]" if cut else "none cut",
        f"{len(corpus.excluded) + len(table.excluded):,} left out",
        inputs.chunking.describe(),
    ]
    if corpus.note:
        parts.insert(2, f":orange[{escape_markdown(corpus.note)}]")
    for pooling in table.poolings:
        count = int(table.fell_back[pooling.mode].sum())
        if count:
            parts.append(f"{count:,} without a position under {pooling.label}, so averaged whole")
    st.markdown(" · ".join(parts))


def show_cosines(table: EmbeddingTable, pooling: PoolingConfig, panel: MapPanel) -> None:
    """Draws the cosines of documents that are too few for a plane.

    Many documents come here only as copies of each other, so the first are enough.
    """
    vectors = table.vectors[panel.mode][:MAX_COSINES]
    # Numbered, since titles may repeat and a table's columns may not.
    names = [f"{i + 1} · {d.title}" for i, d in enumerate(table.documents[:MAX_COSINES])]
    shown = f" of the first {MAX_COSINES} documents" if len(table) > MAX_COSINES else ""
    st.markdown(f"**{pooling.label}**: cosines{shown}")
    st.dataframe(pd.DataFrame(cos_sim(vectors, vectors), names, names).round(4))
    st.caption(" ".join(panel.placed.projection.notes))


def vector_table(table: EmbeddingTable, corpus: Corpus) -> VectorTable:
    """Returns an embedded corpus with the further columns of its source."""
    frame = table.to_frame(with_vectors=False)
    rows = {document.id: row for row, document in enumerate(corpus.documents)}
    for name, values in corpus.extra.items():
        if name not in frame:
            frame[name] = [values[rows[document.id]] for document in table.documents]
    frame["cut"] = table.was_cut
    return VectorTable(frame, table.vectors)


def show_downloads(
    inputs: Inputs,
    table: EmbeddingTable,
    vectors: VectorTable,
    found: CorpusMap,
    config: ProjectionConfig,
) -> None:
    """Draws what a reader takes away: the map as a page, coordinates, numbers, Python."""
    coordinates = coordinates_frame(vectors, found)
    if any(panel.points is not None for panel in found.panels):
        colour = state.COLOUR.get() if state.COLOUR.get() in vectors.frame else "label"
        st.download_button(
            "The map as a page (HTML, linked panels, works offline)",
            lambda: render_map_page(
                "Embedding map", vectors, found, config, colour, vectors.column(colour)
            ).encode(),
            "map.html",
            "text/html",
            key="map.page",
            on_click="ignore",
            icon=":material/download:",
        )
    panels.show_downloads(
        "map",
        coordinates,
        found.to_dict()
        | {
            "points": coordinates.astype(object).where(coordinates.notna(), None).to_dict("records")
        },
        None,
        _snippet(inputs, table, config),
    )


def _snippet(inputs: Inputs, table: EmbeddingTable, config: ProjectionConfig) -> str:
    names = ",".join(pooling.mode.value for pooling in table.poolings)
    return "\n".join(
        [
            "from lmk_viz.config import ChunkingConfig, ProjectionConfig",
            "from lmk_viz.corpus import load_corpus",
            "from lmk_viz.embedding import embed_documents",
            "from lmk_viz.encoder import Encoder",
            "from lmk_viz.maps import build_map, numbers_frame",
            "from lmk_viz.pooling import parse_poolings",
            "",
            f"encoder = Encoder.from_pretrained({inputs.encoder.name!r})",
            'corpus = load_corpus("sample_docs/topics.jsonl")  # or your own table',
            f'poolings = parse_poolings("{names}")',
            f"chunking = {panels.chunking_code(inputs.chunking)}",
            "table = embed_documents(",
            f"    encoder, corpus.documents, poolings, chunking, max_length={inputs.max_length}",
            ")",
            f"config = ProjectionConfig({config.method.value!r}, {config.n_neighbors}, "
            f"{config.min_dist}, {config.seed}, {config.metric!r})",
            "labels = [document.label for document in table.documents]",
            "print(numbers_frame(build_map(table.vectors, labels, table.tokens, config)))",
        ]
    )
