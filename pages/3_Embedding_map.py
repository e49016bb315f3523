"""A labelled corpus under several poolings, side by side."""

import streamlit as st

from lmk_viz.config import PoolingConfig
from lmk_viz.ui import cache, map_linked, map_numbers, map_views, panels, state
from lmk_viz.ui.controls import pick_inputs, read_limits
from lmk_viz.ui.corpora import pick_corpus
from lmk_viz.ui.messages import show_error, stop_with

panels.begin_page(
    "Embedding map",
    "The same documents under several poolings. Points near each other are vectors near each "
    "other, as far as a plane allows; the numbers under each panel are measured in the full "
    "space.",
)
inputs, encoder = pick_inputs(state.MAP_PAGE, with_document=False)
corpus = pick_corpus(read_limits())
try:
    config = map_views.pick_projection()
except ValueError as error:
    show_error(error)
    st.stop()
modes = state.POOLINGS.get()
if not modes:
    stop_with("Choose at least one pooling above.")
if not len(corpus):
    panels.show_excluded(corpus.excluded, "documents left out, and why", "map.excluded")
    stop_with("No document is left to draw; the list says why each was left out.")

poolings = tuple(PoolingConfig(mode) for mode in modes)
forecast = cache.get_embedding_forecast(encoder, corpus.documents, poolings, inputs.max_length)
try:
    with map_views.embedding_progress(forecast) as show:
        table = cache.get_embeddings(
            inputs.encoder,
            corpus.documents,
            poolings,
            inputs.chunking,
            inputs.max_length,
            show,
        )
except ValueError as error:
    show_error(error)
    st.stop()
excluded = (*corpus.excluded, *table.excluded)
if not len(table):
    panels.show_excluded(excluded, "documents left out, and why", "map.excluded")
    stop_with("No document gave a vector; the list says why.")
with st.spinner("Laying out; the first UMAP of a process compiles for some seconds"):
    found = cache.get_map(table, config)

map_views.show_receipt(corpus, table, inputs)
vectors = map_views.vector_table(table, corpus)
map_linked.show_linked(table, vectors, found, inputs)
panels.show_badge(encoder, modes)
st.caption(
    "Read the numbers before the picture. Panels share the order of documents, the seed and the "
    "start, settle each on its own vectors, and are turned and mirrored to match the first; no "
    "panel knows another's vectors. Trustworthiness says how many neighbours on the map are "
    "neighbours in the space. Under UMAP and t-SNE, distances between far clumps mean nothing."
)
map_numbers.show_numbers(table, found, config)
panels.show_excluded(excluded, "documents left out, and why", "map.excluded")
map_views.show_downloads(inputs, table, vectors, found, config)
panels.show_cache()
