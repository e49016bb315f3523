"""A labelled corpus under several poolings, side by side."""

import streamlit as st

from lmk_viz.config import PoolingConfig, ProjectionConfig
from lmk_viz.figures.projection import document_hover, map_figure
from lmk_viz.ui import cache, map_views, panels, state
from lmk_viz.ui.controls import pick_inputs, read_limits
from lmk_viz.ui.messages import show_error, stop_with
from lmk_viz.ui.sources import pick_corpus

panels.begin_page(
    "Embedding map",
    "The same documents under several poolings. Points near each other are vectors near each "
    "other, as far as a plane allows; the numbers under each panel are measured in the full "
    "space.",
)
inputs, encoder = pick_inputs(state.MAP_PAGE, with_document=False)
corpus = pick_corpus(read_limits())
map_views.pick_projection()
modes = state.POOLINGS.get()
if not modes:
    stop_with("Choose at least one pooling above.")
if not len(corpus):
    map_views.show_excluded(corpus.excluded)
    stop_with("No document is left to draw; the list says why each was left out.")

try:
    config = ProjectionConfig(
        state.METHOD.get(), state.NEIGHBOURS.get(), state.MIN_DIST.get(), state.MAP_SEED.get()
    )
    with panels.with_progress("Embedding, passes") as show:
        table = cache.get_embeddings(
            inputs.encoder,
            corpus.documents,
            tuple(PoolingConfig(mode) for mode in modes),
            inputs.chunking,
            inputs.max_length,
            show,
        )
except ValueError as error:
    show_error(error)
    st.stop()
excluded = (*corpus.excluded, *table.excluded)
if not len(table):
    map_views.show_excluded(excluded)
    stop_with("No document gave a vector; the list says why.")
with st.spinner("Laying out; the first UMAP of a process compiles for some seconds"):
    maps = cache.get_map_panels(table, config)

map_views.show_receipt(corpus, table, inputs)
labels = [document.label for document in table.documents]
hover = document_hover(table)
figures = []
columns = st.columns(min(3, len(maps)))
for number, (pooling, panel) in enumerate(zip(table.poolings, maps, strict=True)):
    with columns[number % len(columns)]:
        if panel.points is None:
            map_views.show_cosines(table, pooling, panel)
        else:
            figures.append(
                map_figure(panel.points, labels, hover, pooling.label, panel.projection.method)
            )
            panels.show_figure(
                figures[-1], f"map.{panel.mode.value}", map_views.panel_alt(pooling, panel)
            )
        st.markdown(map_views.panel_numbers(panel))

panels.show_badge(encoder.trained_for, modes)
st.caption(
    "Read the numbers before the picture. The share of nearest neighbours (by cosine, in the "
    "full space) with the same label has its 95 % bootstrap interval over documents; where two "
    "intervals overlap much, this corpus cannot tell the poolings apart. Trustworthiness says "
    "how many neighbours on the map are neighbours in the space: 1 all, about 0.5 a random map. "
    "Panels are turned and mirrored to match the first, nothing more; under UMAP, distances "
    "between far clumps mean nothing."
)
map_views.show_excluded(excluded)
with st.expander("The documents", icon=":material/table:"):
    st.dataframe(table.to_frame(with_vectors=False), hide_index=True, key="map.documents")
frame = map_views.points_frame(table, maps)
panels.show_downloads(
    "map",
    frame,
    {"panels": [panel.to_dict() for panel in maps], "points": frame.to_dict("records")},
    figures[0] if figures else None,
    map_views.snippet(inputs, table, config),
)
