"""Where CLS and the landmarks look, by position and by distance."""

import streamlit as st

from lmk_viz.config import AttentionConfig
from lmk_viz.figures.attention import (
    decay_alt,
    decay_figure,
    distance_alt,
    distance_figure,
    special_share_alt,
    special_share_figure,
)
from lmk_viz.ui import attention_views as views
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.controls import pick_inputs, read_limits
from lmk_viz.ui.messages import show_error, stop_with

panels.begin_page(
    "Attention",
    "Where do the tokens look that pooling reads? The weight that the **CLS row** and the **mean "
    "landmark row** put on each text token. Flat is even-handed; falling from the left is a "
    "preference for the start.",
)
inputs, encoder = pick_inputs(state.ATTENTION_PAGE)
limits = read_limits()
view = views.pick_view(encoder)
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
    panels.document_receipt(inputs, encoder, layout, stats)
    views.show_forecast(encoder, layout, limits)
    profile = views.read_profile(inputs, encoder, layout, config, "Reading attention")
    curves: list[views.Drawn] = [(profile, view.layers, "", None)]
    if state.RANDOM.get():
        control = cache.get_random_encoder(inputs.encoder)
        curves.append(
            (
                views.read_profile(inputs, control, layout, config, "Reading random weights", True),
                view.layers,
                "random weights",
                "dot",
            )
        )
except ValueError as error:
    show_error(error)
    st.stop()
second = views.pick_second_encoder(limits)
if second is not None:
    try:
        curves.append(views.read_second(inputs, second, limits, config))
    except ValueError as error:
        show_error(error)

drawn = views.present(curves)
if not drawn:
    stop_with("The layers read so far hold none of this group; read all layers, or choose others.")
singles = views.pick_single_landmarks(layout)
layers = drawn[0][1]
view = views.narrow_view(view, profile, layers)
if state.AXIS.get() == "distance":
    figure = distance_figure(
        [curve for curve, _ in drawn],
        [at for _, at in drawn],
        view.head,
        view.words,
        log=state.LOG.get(),
    )
    alt = distance_alt(profile, layers, view.head)
else:
    figure = decay_figure(
        [curve for curve, _ in drawn],
        [at for _, at in drawn],
        view.head,
        view.words,
        log=state.LOG.get(),
        landmarks=singles,
    )
    alt = decay_alt(profile, layers, view.head)
panels.show_figure(figure, f"attention.{state.AXIS.get()}", alt)
st.caption(views.decay_caption(profile, layout, view, encoder))
panels.show_badge(encoder, list(profile.rows))

panels.show_figure(
    special_share_figure(profile, layers, view.head, view.words),
    "attention.sinks",
    special_share_alt(profile, layers, view.head),
)
st.caption(
    "The whole row, before specials are left out. A special token that takes much is an "
    "attention sink: a landmark is the tokenizer's separator, which many encoders use as one "
    "(arXiv 1906.04341, 2309.17453)."
)

st.subheader("By layer and head", anchor=False)
views.show_head_map(profile, view)
with st.expander("The same as a table, by layer", icon=":material/table:"):
    views.show_scalars(profile, view)
if layout.n_landmarks:
    st.subheader("By landmark", anchor=False)
    views.show_landmark_map(profile, view, layers)
st.subheader("Over several documents", anchor=False)
try:
    views.show_spread(inputs, encoder, config, view)
except ValueError as error:
    show_error(error)
st.subheader("What rotation alone would do", anchor=False)
views.show_rope(encoder)
with st.expander("What to look for, and what this does not prove", icon=":material/school:"):
    st.markdown(
        "- Compare each curve with the dashed line and with random weights: a slope that random "
        "weights have too comes from the architecture.\n"
        "- The mean landmark row is flat almost by construction: some landmark is near every "
        "token. What counts is how far CLS is from it.\n"
        "- By distance, CLS has keys on one side alone; landmarks look both ways. A peak near "
        "zero is local reading.\n"
        "- **Attention is not influence.** Values, residuals, depth and the feed-forward layers "
        "decide what reaches a vector.\n"
        "- In encoders with local layers, such as ModernBERT, CLS cannot look further than the "
        "window in those layers, whatever position encoding does: part of the front-loading of "
        "its CLS is the window.\n"
        "- These curves are our reconstruction of the argument in arXiv 2601.21525, not a figure "
        "of that paper."
    )
panels.show_downloads(
    "attention",
    profile.bins_frame(layers, view.head),
    profile.to_dict(),
    figure,
    panels.snippet(
        inputs,
        [],
        [
            f"layout = encoder.layout(text, LayoutKind({state.INPUT.get().value!r}), chunking, "
            f"{inputs.max_length})",
            f"profile = encoder.attention_profile(layout, AttentionConfig(bins={config.bins}))",
            f"print(profile.bins_frame({layers}, {view.head}))",
        ],
    ),
)
