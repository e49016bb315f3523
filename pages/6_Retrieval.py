"""Which pooling finds the right documents, where it fails, and which chunk answered."""

import streamlit as st

from lmk_viz.ui import (
    panels,
    retrieval_data,
    retrieval_query,
    retrieval_runs,
    retrieval_views,
    state,
)
from lmk_viz.ui.controls import pick_inputs
from lmk_viz.ui.measured_views import show_extrapolation
from lmk_viz.ui.messages import show_error, stop_with
from lmk_viz.ui.probe_inputs import measure
from lmk_viz.ui.retrieval_inputs import pick_dataset

panels.begin_page(
    "Retrieval",
    "Documents, questions, and which document answers each: does the pooling matter for finding "
    "it, and is the difference more than chance?",
)
inputs, encoder = pick_inputs(state.SEARCH_PAGE, with_document=False)
dataset = pick_dataset()
if dataset is None:
    st.stop()
poolings, kinds = retrieval_runs.pick_systems(encoder)
modes = [pooling.mode for pooling in poolings]
try:
    request = retrieval_runs.build_request(inputs, encoder, dataset, poolings, kinds)
    found = measure(request)
except ValueError as error:
    show_error(error)
    st.stop()
if found is not None:
    if not found.rows:
        stop_with("No pooling was finished before the stop.")
    retrieval_views.show_receipt(found, inputs)
    # Said before the figures: whoever reads them has to know it.
    panels.show_badge(encoder, modes)
    found = retrieval_views.compared(request.key, found, dataset)
    retrieval_views.show_scores(found)
    retrieval_query.show_queries(found, dataset, inputs, modes)
    retrieval_data.show_downloads(found, dataset, inputs, encoder, modes)
show_extrapolation(encoder)
retrieval_views.show_teaching()
panels.show_cache()
