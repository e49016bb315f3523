"""Where landmarks fall in a document."""

from dataclasses import replace

import streamlit as st

from lmk_viz.config import ChunkingMode, LayoutKind
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.controls import pick_inputs
from lmk_viz.ui.layout_views import show_layout
from lmk_viz.ui.messages import show_error
from lmk_viz.ui.query_views import show_query

panels.begin_page(
    "Landmarks",
    "A **landmark** is a special token put behind every chunk of a text; the mean of the "
    "landmarks' states is the document's vector. Here is where they fall, and what the length "
    "limit takes away.",
)
inputs, encoder = pick_inputs(state.LANDMARKS_PAGE)
place = (
    inputs.encoder,
    inputs.document.text,
    LayoutKind.LANDMARK,
    inputs.chunking,
    inputs.max_length,
)
try:
    layout, stats = cache.get_layout(*place), cache.get_layout_stats(*place)
except ValueError as error:
    show_error(error)
    st.stop()

panels.document_receipt(inputs, encoder, layout, stats)
with st.container(horizontal=True):
    st.toggle("Compare with a second granularity", **state.COMPARE.widget())
    st.toggle("Show the tokens", **state.SHOW_TOKENS.widget())
if state.COMPARE.get():
    st.number_input(
        "Second granularity (tokens a chunk)",
        1,
        1_000_000,
        step=8,
        width=260,
        **state.SECOND.widget(),
    )
    left, right = st.columns(2)
    with left:
        show_layout(inputs, encoder, inputs.chunking, "first")
    with right:
        second = replace(inputs.chunking, mode=ChunkingMode.FIXED, granularity=state.SECOND.get())
        show_layout(inputs, encoder, second, "second")
else:
    show_layout(inputs, encoder, inputs.chunking, "first")

st.caption(
    "Tints alternate from chunk to chunk; ◆ is a landmark with its chunk's number; hatched text "
    "is kept but has no landmark behind it; struck text was cut. Point at a chunk, or move to it "
    "with Tab, to read its tokens and characters at the foot of the page."
)
show_query(inputs, encoder, layout)
with st.expander("How to read this, and what it does not show", icon=":material/school:"):
    st.markdown(
        "- A text shorter than one chunk has exactly one landmark: pooling then reads one "
        "separator alone. Most queries are like that.\n"
        "- Landmarks go in first, then the input is cut, as in the authors' code. What is kept "
        "behind the last landmark still reaches earlier ones through attention; *Close the tail* "
        "gives it a landmark of its own at the cost of content.\n"
        "- The other poolings keep the limit less two tokens of text; landmarks cost one token a "
        "chunk more.\n"
        "- A boundary inside a word or sentence is no fault in itself: states see both sides. "
        "Whether a granularity suits your documents only retrieval can tell.\n"
        "- Two other things are called landmark: BGE Landmark Embedding (arXiv 2402.11573), "
        "where every landmark is a unit of retrieval, and Landmark Attention (arXiv 2305.16300)."
    )
panels.show_downloads(
    "landmarks",
    panels.chunks_frame(layout),
    {**layout.to_dict(), "stats": stats.to_dict()},
    None,
    panels.snippet(
        inputs,
        ["from lmk_viz.landmarks import measure_layout"],
        [
            f'layout = encoder.layout(text, LayoutKind("landmark"), chunking, {inputs.max_length})',
            "print(layout.landmark_positions, measure_layout(layout))",
        ],
    ),
)
