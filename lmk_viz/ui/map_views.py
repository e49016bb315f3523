"""Parts of the embedding map page."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode, ProjectionConfig, ProjectionMethod
from lmk_viz.corpus import Corpus, Excluded
from lmk_viz.embedding import EmbeddingTable
from lmk_viz.projection import MapPanel
from lmk_viz.similarity import cos_sim
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.text import escape_markdown

__all__ = [
    "panel_alt",
    "panel_numbers",
    "pick_projection",
    "points_frame",
    "show_cosines",
    "show_excluded",
    "show_receipt",
    "snippet",
]

MAX_COSINES = 30
METHOD_NAMES = {
    ProjectionMethod.AUTO: "Automatic",
    ProjectionMethod.UMAP: "UMAP",
    ProjectionMethod.PCA: "PCA",
}


def pick_projection() -> None:
    """Draws the controls of poolings and projection; the choices hold what is picked."""
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
            help="UMAP's n_neighbors: how many neighbours hold a point.",
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
        st.number_input("Seed", 0, 2**32 - 1, step=1, width=130, **state.MAP_SEED.widget())


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
    for pooling in table.poolings:
        count = int(table.fell_back[pooling.mode].sum())
        if count:
            parts.append(f"{count:,} without a position under {pooling.label}, so averaged whole")
    st.markdown(" · ".join(parts))


def show_excluded(excluded: Sequence[Excluded]) -> None:
    """Draws which documents were left out and why, if any."""
    if not excluded:
        return
    with st.expander(f"{len(excluded):,} documents left out, and why", icon=":material/block:"):
        st.dataframe(
            pd.DataFrame([{"id": e.id, "reason": e.reason} for e in excluded]),
            hide_index=True,
            key="map.excluded",
        )


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


def panel_numbers(panel: MapPanel) -> str:
    """Returns a panel's numbers as markdown, each with its control."""
    lines = []
    if panel.purity is not None:
        purity = panel.purity
        lines.append(
            f"Neighbours with the same label: **{purity.value:.2f}** "
            f"({purity.low:.2f} to {purity.high:.2f}); by chance {purity.chance:.2f}, "
            f"k = {purity.k}"
        )
    if panel.trustworthiness is not None:
        value, k = panel.trustworthiness
        lines.append(f"Trustworthiness of the map: **{value:.2f}**, k = {k}")
    return "  \n".join([*lines, *panel.projection.notes])


def panel_alt(pooling: PoolingConfig, panel: MapPanel) -> str:
    """Returns a panel in a sentence with its numbers."""
    count = 0 if panel.points is None else len(panel.points)
    numbers = panel_numbers(panel).replace("**", "").replace("  \n", ". ")
    return f"{count:,} documents under {pooling.label} on a plane. {numbers}"


def points_frame(table: EmbeddingTable, maps: Sequence[MapPanel]) -> pd.DataFrame:
    """Returns one row a document with its point in every panel."""
    frame = pd.DataFrame(
        {"id": [d.id for d in table.documents], "label": [d.label for d in table.documents]}
    )
    for panel in maps:
        if panel.points is not None:
            frame[f"{panel.mode.value}_x"] = panel.points[:, 0]
            frame[f"{panel.mode.value}_y"] = panel.points[:, 1]
    return frame


def snippet(inputs: Inputs, table: EmbeddingTable, config: ProjectionConfig) -> str:
    """Returns Python that gives the numbers of the page."""
    names = ",".join(pooling.mode.value for pooling in table.poolings)
    return "\n".join(
        [
            "from lmk_viz.config import ChunkingConfig, ProjectionConfig",
            "from lmk_viz.corpus import load_corpus",
            "from lmk_viz.embedding import embed_documents",
            "from lmk_viz.encoder import Encoder",
            "from lmk_viz.pooling import parse_poolings",
            "from lmk_viz.projection import map_panels",
            "",
            f"encoder = Encoder.from_pretrained({inputs.encoder.name!r})",
            'corpus = load_corpus("sample_docs/topics.jsonl")  # or your own table',
            f'poolings = parse_poolings("{names}")',
            f"chunking = {panels.chunking_code(inputs.chunking)}",
            "table = embed_documents(",
            f"    encoder, corpus.documents, poolings, chunking, max_length={inputs.max_length}",
            ")",
            f"config = ProjectionConfig({config.method.value!r}, {config.n_neighbors}, "
            f"{config.min_dist}, {config.seed})",
            "labels = [document.label for document in table.documents]",
            "for panel in map_panels(table.vectors, labels, config):",
            "    print(panel.to_dict())",
        ]
    )
