"""What a document vector depends on, by position."""

import streamlit as st

from lmk_viz.ui import panels, probe_inputs, probe_requests, probe_teaching, probe_views, state
from lmk_viz.ui.controls import pick_inputs
from lmk_viz.ui.messages import show_error

panels.begin_page(
    "Position bias",
    "What does a document's vector really depend on, by position? Attention says where tokens "
    "look; these probes change the text and measure what the vector does.",
)
inputs, encoder = pick_inputs(state.PROBE_PAGE)
view = probe_inputs.pick_view(encoder)
st.markdown(probe_views.LEADS[view])
try:
    request = probe_requests.pick_request(view, inputs, encoder)
    result = probe_inputs.measure(request)
except ValueError as error:
    show_error(error)
    st.stop()
if result is not None:
    probe_views.show_result(view, result, inputs, encoder)
probe_teaching.show_teaching()
