"""Home: what each pooling sees of a document, and where to go from here."""

import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.figures.segments import segment_alt, segment_figure
from lmk_viz.ui import cache, panels
from lmk_viz.ui.controls import pick_inputs
from lmk_viz.ui.measured_views import show_extrapolation
from lmk_viz.ui.messages import show_error

# Page, words, icon and settings of each step.
TOUR = (
    (
        "pages/1_Landmarks.py",
        "**1 · See the landmarks** of a story, one behind every 32 tokens",
        ":material/anchor:",
        {"doc": "the_weighbridge", "g": "32"},
    ),
    (
        "pages/1_Landmarks.py",
        "**2 · Make the chunks larger** and watch a tail without a landmark grow",
        ":material/content_cut:",
        {"doc": "the_weighbridge", "g": "32", "compare": "1", "g2": "256"},
    ),
    (
        "pages/2_Attention.py",
        "**3 · Where does CLS look?** Its attention against the mean of the landmarks",
        ":material/visibility:",
        {"doc": "the_weighbridge", "g": "32"},
    ),
    (
        "pages/2_Attention.py",
        "**4 · Is it learned?** The same curves with random weights beside them",
        ":material/casino:",
        {"doc": "the_weighbridge", "g": "32", "random": "1"},
    ),
    (
        "pages/3_Embedding_map.py",
        "**5 · Does it matter?** 72 documents on eight topics under three poolings",
        ":material/scatter_plot:",
        {"poolings": "cls-mean-landmark"},
    ),
)

panels.begin_page(
    "What does a document's vector remember?",
    "An encoder gives every token a state; **pooling** decides which states become the one "
    "vector that search compares. CLS pooling reads the first token, mean pooling all of them, "
    "and landmark pooling a special token put behind every chunk of the text.",
)
inputs, encoder = pick_inputs()
poolings = (
    PoolingConfig(PoolingMode.CLS),
    PoolingConfig(PoolingMode.MEAN),
    PoolingConfig(PoolingMode.LANDMARK),
    PoolingConfig(PoolingMode.EVERY_K),
)
poolings = tuple(p for p in poolings if encoder.special_ids.cls is not None or p.mode != "cls")
samples = cache.get_samples()
unrelated = next(s for s in samples if s.id not in (inputs.document.id, "multilingual"))

try:
    with st.spinner("Embedding the document and its tenths"):
        result = cache.get_segment_cosines(
            inputs.encoder,
            inputs.document.text,
            unrelated.text,
            poolings,
            inputs.chunking,
            inputs.max_length,
        )
except ValueError as error:
    show_error(error)
    st.stop()

figure = segment_figure(result, "Which part is the vector close to?", inputs.document.title)
panels.show_figure(figure, "home.segments", segment_alt(result))
cut = (
    f" The encoder reads {inputs.max_length:,} tokens at most, so {result.tokens_cut:,} of "
    f"{result.tokens:,} tokens are cut and no tenth lies there."
    if result.tokens_cut
    else ""
)
st.caption(
    "Each tenth of the text is embedded alone and compared with the whole by cosine, less the "
    f"mean cosine of tenths of an unrelated text (“{unrelated.title}”). A line that falls from "
    "left to right is a vector that forgets the end; every k-th token is the control that is "
    f"spread out without a landmark. One document, so no interval.{cut}"
)
panels.show_badge(encoder, [p.mode for p in poolings])

st.subheader("A tour in five steps", anchor=False)
for page, label, icon, settings in TOUR:
    st.page_link(page, label=label, icon=icon, query_params=settings)
st.page_link(
    "pages/5_Granularity.py",
    label="**Then your own documents**: which granularity, at which cost, and can the data tell?",
    icon=":material/tune:",
)
show_extrapolation(encoder)
panels.show_downloads(
    "segments",
    panels.segment_frame(result),
    result.to_dict(),
    figure,
    panels.snippet(
        inputs,
        [
            "from lmk_viz.probes import segment_cosines",
            "from lmk_viz.pooling import parse_poolings",
        ],
        [
            f'other = next(d for d in sample_documents() if d.id == "{unrelated.id}").text',
            "result = segment_cosines(",
            f'    encoder, text, parse_poolings("{",".join(p.mode.value for p in poolings)}"),',
            f"    chunking, {inputs.max_length}, unrelated=other,",
            ")",
            "print(result.cosines, result.unrelated)",
        ],
    ),
)
cache.start_warm_up()
