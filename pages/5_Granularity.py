"""Which granularity and pooling to take for one's own documents and queries."""

import streamlit as st

from lmk_viz.ui import cache, panels, probe_inputs, state, sweep_inputs, sweep_views
from lmk_viz.ui.controls import pick_inputs
from lmk_viz.ui.messages import show_error
from lmk_viz.ui.retrieval_inputs import pick_dataset

panels.begin_page(
    "Granularity",
    "How many tokens a chunk, or no landmarks at all? Quality of search against cost on your own "
    "documents and queries, and the cheapest setting that the data cannot tell from the best.",
)
inputs, encoder = pick_inputs(state.SWEEP_PAGE, with_document=False)
dataset = pick_dataset()
if dataset is None:
    st.stop()
try:
    config = sweep_inputs.pick_config(encoder)
    request = sweep_inputs.sweep_request(inputs, encoder, dataset, config, cache.cached_embed())
    sweep = probe_inputs.measure(request)
except ValueError as error:
    show_error(error)
    st.stop()
if sweep is not None:
    sweep_views.show_sweep(sweep, dataset, inputs, encoder)
panels.show_cache()
