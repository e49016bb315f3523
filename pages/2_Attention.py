"""Where CLS and the landmarks look, by position."""

import streamlit as st

from lmk_viz.config import AttentionConfig
from lmk_viz.figures.attention import (
    decay_alt,
    decay_figure,
    special_share_alt,
    special_share_figure,
)
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.attention_views import (
    decay_caption,
    pick_single_landmarks,
    pick_view,
    show_scalars,
)
from lmk_viz.ui.controls import pick_inputs
from lmk_viz.ui.messages import show_error, stop_with

panels.begin_page(
    "Attention",
    "Where do the tokens look that pooling reads? The weight that the **CLS row** and the **mean "
    "landmark row** put on each text token, by position. Flat is even-handed; falling from the "
    "left is a preference for the start.",
)
inputs, encoder = pick_inputs(state.ATTENTION_PAGE)
view = pick_view(encoder)
config = AttentionConfig(bins=state.BINS.get(), keep_landmarks=True)
place = (
    inputs.encoder,
    inputs.document.text,
    state.INPUT.get(),
    inputs.chunking,
    inputs.max_length,
)
try:
    layout, stats = cache.get_layout(*place), cache.get_layout_stats(*place)
    if not layout.n_kept:
        stop_with("This text gives no token to look at; choose another document in the side bar.")
    with panels.with_progress("Reading attention, layer") as show:
        profile = cache.get_attention_profile(
            *place, config, on_layer=lambda layer: show(layer + 1, encoder.n_layers)
        )
    control = cache.get_attention_profile(*place, config, True) if state.RANDOM.get() else None
except ValueError as error:
    show_error(error)
    st.stop()

panels.document_receipt(inputs, encoder, layout, stats)
singles = pick_single_landmarks(layout)
figure = decay_figure(
    profile,
    view.layers,
    view.head,
    view.words,
    log=state.LOG.get(),
    control=control,
    landmarks=singles,
)
panels.show_figure(figure, "attention.decay", decay_alt(profile, view.layers, view.head))
st.caption(decay_caption(profile, layout, view))
panels.show_badge(encoder.trained_for, list(profile.rows()))

panels.show_figure(
    special_share_figure(profile, view.layers, view.head, view.words),
    "attention.sinks",
    special_share_alt(profile, view.layers, view.head),
)
st.caption(
    "The whole row, before specials are left out. A special token that takes much is an "
    "attention sink: a landmark is the tokenizer's separator, which many encoders use as one "
    "(arXiv 1906.04341, 2309.17453)."
)

st.subheader("By layer", anchor=False)
show_scalars(profile, view)
with st.expander("What to look for, and what this does not prove", icon=":material/school:"):
    st.markdown(
        "- Compare each curve with the dashed line and with random weights: a slope that random "
        "weights have too comes from the architecture.\n"
        "- The mean landmark row is flat almost by construction: some landmark is near every "
        "token. What counts is how far CLS is from it.\n"
        "- **Attention is not influence.** Values, residuals, depth and the feed-forward layers "
        "decide what reaches a vector.\n"
        "- In encoders with local layers, such as ModernBERT, CLS cannot look further than the "
        "window in those layers, whatever position encoding does.\n"
        "- These curves are our reconstruction of the argument in arXiv 2601.21525, not a figure "
        "of that paper."
    )
panels.show_downloads(
    "attention",
    profile.bins_frame(view.layers, view.head),
    profile.to_dict(),
    figure,
    panels.snippet(
        inputs,
        [],
        [
            f"layout = encoder.layout(text, LayoutKind({state.INPUT.get().value!r}), chunking, "
            f"{inputs.max_length})",
            f"profile = encoder.attention_profile(layout, AttentionConfig(bins={config.bins}))",
            f"print(profile.bins_frame({view.layers}, {view.head}))",
        ],
    ),
)
