"""Parts of the attention page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from lmk_viz.attention_profile import AttentionProfile
from lmk_viz.config import AttentionConfig, EncoderConfig, LayerKind, LayoutKind, PoolingMode
from lmk_viz.figures.attention import ROW_NAMES, Curve, spread_figure
from lmk_viz.figures.attention_maps import (
    MAP_SCALARS,
    head_map_alt,
    head_map_figure,
    landmark_map_alt,
    landmark_map_figure,
)
from lmk_viz.figures.rope import rope_alt, rope_figure
from lmk_viz.landmarks import Layout
from lmk_viz.rope import rope_kernel, smoothed_kernel
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.controls import Inputs, offered_encoders
from lmk_viz.ui.jobs import await_job
from lmk_viz.ui.limits import Limits
from lmk_viz.ui.messages import show_error
from lmk_viz.ui.text import escape_markdown

__all__ = [
    "View",
    "chosen_layers",
    "decay_caption",
    "narrow_view",
    "pick_second_encoder",
    "pick_single_landmarks",
    "pick_view",
    "present",
    "read_profile",
    "read_second",
    "show_forecast",
    "show_head_map",
    "show_landmark_map",
    "show_rope",
    "show_scalars",
    "show_spread",
]

SINGLE = "single"
ALL = "all"
CALIBRATE_FROM_SECONDS = 2.0
"""Shorter runs are not worth the second that a calibration takes."""
INPUT_NAMES = {LayoutKind.LANDMARK: "With landmarks", LayoutKind.PLAIN: "Plain"}


@dataclass(frozen=True, slots=True)
class View:
    """Which layers and head the curves show."""

    layers: tuple[int, ...]
    head: int | None
    """None is the mean over heads."""
    words: str
    """The same, for titles and captions."""


def pick_view(encoder: Any) -> View:
    """Draws the controls of the curves and returns what they show."""
    kinds: tuple[LayerKind, ...] = encoder.layer_kinds
    groups = {
        kind.value: f"{kind.value.capitalize()} ({kinds.count(kind)})"
        for kind in LayerKind
        if kind in kinds
    }
    if len(groups) > 1:
        groups[ALL] = "All, mixed"
    groups[SINGLE] = "One layer"
    # A link or another encoder may name a layer or head that this encoder has not got.
    if state.GROUP.get() not in groups:
        state.GROUP.set(next(iter(groups)))
    state.LAYER.set(min(state.LAYER.get(), encoder.n_layers - 1))
    state.HEAD.set(min(state.HEAD.get(), encoder.n_heads - 1))
    if state.INPUT.get() not in INPUT_NAMES:
        state.INPUT.set(LayoutKind.LANDMARK)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Layers",
            list(groups),
            format_func=groups.__getitem__,
            required=True,
            help="Local layers see a window round each token and are never averaged with global "
            "ones.",
            **state.GROUP.widget(),
        )
        if state.GROUP.get() == SINGLE:
            st.selectbox(
                "Layer",
                range(encoder.n_layers),
                format_func=lambda i: f"L{i} ({kinds[i].value})",
                width=150,
                **state.LAYER.widget(),
            )
        st.selectbox(
            "Head",
            range(-1, encoder.n_heads),
            format_func=lambda h: "mean over heads" if h < 0 else f"H{h}",
            width=180,
            **state.HEAD.widget(),
        )
        st.segmented_control(
            "Axis",
            ["position", "distance"],
            format_func=str.capitalize,
            required=True,
            help="Position in the text, or signed distance from the token that looks.",
            **state.AXIS.widget(),
        )
        st.number_input(
            "Bins", 1, AttentionConfig.MAX_BINS, step=16, width=130, **state.BINS.widget()
        )
        st.segmented_control(
            "Input",
            list(INPUT_NAMES),
            format_func=INPUT_NAMES.__getitem__,
            required=True,
            help="CLS pooling reads the plain input, [CLS] text [SEP]; landmark pooling the other.",
            **state.INPUT.widget(),
        )
    with st.container(horizontal=True):
        st.toggle("Logarithmic weights", **state.LOG.widget())
        st.toggle(
            "Random weights as control",
            help="The same shape with weights drawn at random: what the architecture does alone.",
            **state.RANDOM.widget(),
        )
    layers = chosen_layers(kinds, encoder.n_layers)
    head = state.HEAD.get() if state.HEAD.get() >= 0 else None
    return View(layers, head, _describe_view(kinds, layers, head))


def narrow_view(view: View, profile: AttentionProfile, layers: tuple[int, ...]) -> View:
    """Returns the view of those of its layers that were read."""
    return View(layers, view.head, _describe_view(profile.layer_kinds, layers, view.head))


def _describe_view(kinds: Sequence[LayerKind], layers: Sequence[int], head: int | None) -> str:
    group = state.GROUP.get()
    if group == SINGLE:
        words = f"layer L{layers[0]} ({kinds[layers[0]].value})"
    else:
        kind = "local and global" if group == ALL else group
        words = f"mean of {len(layers)} {kind} layer{'s' * (len(layers) > 1)}"
    return words + (", mean over heads" if head is None else f", head H{head}")


def chosen_layers(kinds: Sequence[LayerKind], n_layers: int) -> tuple[int, ...]:
    """Returns the layers of an encoder that the chosen group names, as far as it has them.

    Args:
        kinds: of the encoder's layers.
        n_layers: how many of them were read.
    """
    group = state.GROUP.get()
    if group == SINGLE:
        return (state.LAYER.get(),) if state.LAYER.get() < n_layers else ()
    return tuple(i for i, kind in enumerate(kinds[:n_layers]) if group in (ALL, kind.value))


def pick_single_landmarks(layout: Layout) -> tuple[int, ...]:
    """Draws the picker of single landmarks and returns their numbers."""
    if not layout.n_landmarks:
        return ()
    state.SINGLE.set(tuple(n for n in state.SINGLE.get() if n < layout.n_landmarks))
    st.multiselect(
        "Single landmarks to draw too",
        range(layout.n_landmarks),
        max_selections=state.MAX_SINGLE,
        placeholder="none",
        help="Each is the mean over heads.",
        **state.SINGLE.widget(),
    )
    return state.SINGLE.get()


def decay_caption(
    profile: AttentionProfile, layout: Layout, view: View, encoder: Any = None
) -> str:
    """Returns what the decay figure shows, with its numbers and limits.

    Args:
        profile: that is drawn.
        layout: of the text.
        view: layers and head on show.
        encoder: that was read; a family reads each row from another of its variants.
    """
    widths = profile.edges[1:] - profile.edges[:-1]
    size = f"{widths.min()}" + (f" to {widths.max()}" if widths.max() != widths.min() else "")
    parts = [
        f"{profile.n_content:,} text tokens in {len(widths)} bins of {size} tokens; {view.words}.",
        "Special tokens are left out and the rest scaled to sum to 1, so the dashed line, 1/n, is "
        "what even attention would be.",
    ]
    if layout.n_cut:
        parts.append(f"{layout.n_cut:,} tokens behind the length limit are not seen at all.")
    if any(profile.layer_kinds[i] is LayerKind.LOCAL for i in view.layers):
        parts.append("A local layer sees no further than its window; empty bins leave a gap.")
    if getattr(encoder, "variants", None):
        sources = encoder.row_sources(layout)
        cls, landmark = (
            escape_markdown(sources[mode]) if mode in profile.rows else ""
            for mode in (PoolingMode.CLS, PoolingMode.LANDMARK)
        )
        parts.append(f"The CLS row is that of {cls}, read from `[CLS] text [SEP]` as CLS pooling")
        parts.append(
            f"reads it; the landmark rows are those of {landmark}, read from the input with "
            "landmarks. Both cover the same text tokens."
            if landmark
            else "reads it."
        )
    elif layout.n_landmarks:
        parts.append("Both rows are read from the input with landmarks.")
    return " ".join(parts)


def show_scalars(profile: AttentionProfile, view: View) -> None:
    """Draws the numbers of every layer."""
    number = st.column_config.NumberColumn
    st.dataframe(
        profile.scalars_frame(view.head),
        hide_index=True,
        key="attention.scalars",
        column_config={
            "first_tenth": number("on the first tenth", format="percent"),
            "centre_of_mass": number("centre of mass", format="%.3f"),
            "half_mass_position": number("half of the mass at", format="%.3f"),
            "entropy": number("entropy / log n", format="%.3f"),
        },
    )
    st.caption(
        "Even attention has 10 % on the first tenth, its centre and half of its mass at 0.5 (0 "
        "is the first text token, 1 the last) and an entropy of 1. "
        + ("Mean over heads." if view.head is None else f"Head H{view.head}.")
    )


def show_forecast(encoder: Any, layout: Layout, limits: Limits) -> None:
    """Says what a long run will take, and refuses one that does not fit.

    Raises:
        ValueError: when the run would not fit, with the longest length that does.
    """
    rows = 1 + layout.n_landmarks
    encoder.check_memory(len(layout), rows, limits.memory_bytes)
    rough = encoder.rough_seconds(len(layout), rows)
    if rough < CALIBRATE_FROM_SECONDS:
        return
    forecast = encoder.forecast(len(layout), rows)
    st.caption(
        f"Forecast for {forecast.tokens:,} tokens and {rows:,} rows: about "
        f"{forecast.seconds:,.0f} s and {forecast.peak_bytes / 2**30:.1f} GiB beyond the weights."
    )


def read_profile(
    inputs: Inputs,
    encoder: Any,
    layout: Layout,
    config: AttentionConfig,
    label: str,
    random_weights: bool = False,
) -> AttentionProfile:
    """Returns a text's profile; shows progress and a stop while it is read.

    Raises:
        ValueError: when the encoder does not report its attention.
    """
    job = cache.start_attention(
        inputs.encoder, encoder, layout, inputs.chunking, config, random_weights
    )
    try:
        profile: AttentionProfile = await_job(job, f"{label}, layer")
    except Exception:
        # A failed call is not kept: what failed it, such as full memory, may be gone.
        cache.forget_attention(inputs.encoder, layout, inputs.chunking, config, random_weights)
        raise
    if profile.is_partial:
        st.warning(
            f"Stopped after {profile.n_layers} of {profile.layers_expected} layers; what follows "
            "holds for those."
        )
        if st.button("Read all layers", key=f"again.{label}"):
            cache.forget_attention(inputs.encoder, layout, inputs.chunking, config, random_weights)
            st.rerun()
    return profile


Drawn = tuple[AttentionProfile, tuple[int, ...], str, str | None]
"""A profile, its layers, its name and its dash."""


def present(curves: Sequence[Drawn]) -> list[tuple[Curve, tuple[int, ...]]]:
    """Returns the curves with the layers that were read of them; those with none are left out.

    Nothing is returned where the page's own curve, the first, has no layer.
    """
    found = []
    for profile, layers, name, dash in curves:
        there = tuple(layer for layer in layers if layer < profile.n_layers)
        if there:
            found.append((Curve(profile, name, dash, 2.5 if not name else 1.2), there))
        elif not found:
            return []
    return found


def read_second(
    inputs: Inputs, config: EncoderConfig, limits: Limits, attention: AttentionConfig
) -> Drawn:
    """Returns the profile of a second encoder on the same text.

    Raises:
        ValueError: when it cannot be loaded or does not fit.
    """
    encoder = cache.get_encoder(config)
    if encoder.has_hard_limit:
        limit = min(encoder.max_length, inputs.max_length)
    else:
        limit = inputs.max_length
    layout = cache.get_layout(
        config, inputs.document.text, state.INPUT.get(), inputs.chunking, limit
    )
    show_forecast(encoder, layout, limits)
    other = replace(inputs, encoder=config, max_length=limit)
    profile = read_profile(other, encoder, layout, attention, f"Reading {config.name}")
    layers = chosen_layers(encoder.layer_kinds, profile.n_layers)
    if state.HEAD.get() >= encoder.n_heads:
        layers = ()
    st.caption(
        f"{escape_markdown(config.name)} reads {layout.n_kept:,} tokens of its own vocabulary"
        + (f", {layout.n_cut:,} cut" if layout.n_cut else "")
        + ". Positions are counted in each encoder's own tokens."
        + ("" if layers else " It has none of the chosen layers and heads, so it is not drawn.")
    )
    return profile, layers, config.name, "dashdot"


def pick_second_encoder(limits: Limits) -> EncoderConfig | None:
    """Draws the picker of a second encoder and returns it, if one is chosen."""
    listed = offered_encoders(limits)
    chosen = state.SECOND_ENCODER.get()
    if chosen and limits.encoders and chosen not in listed:
        show_error(f"Encoder {chosen!r} is not offered here; no second one is shown.")
        state.SECOND_ENCODER.set("")
    options = ["", *dict.fromkeys([*listed, *([chosen] if chosen else [])])]
    st.selectbox(
        "Second encoder on the same text",
        options,
        format_func=lambda name: name or "none",
        accept_new_options=not limits.encoders,
        help="A hub id or a folder may be typed in. Its rows are drawn thin and dashed.",
        **state.SECOND_ENCODER.widget(),
    )
    name = state.SECOND_ENCODER.get()
    return EncoderConfig(name, device=limits.device) if name else None


def show_head_map(profile: AttentionProfile, view: View) -> None:
    """Draws the layer x head map; a click makes its layer and head the curves'."""
    modes = list(profile.rows)
    if state.MAP_ROW.get() not in modes:
        state.MAP_ROW.set(modes[0])
    if state.MAP_SCALAR.get() not in MAP_SCALARS:
        state.MAP_SCALAR.set("first_tenth")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Row", modes, format_func=ROW_NAMES.__getitem__, required=True, **state.MAP_ROW.widget()
        )
        st.selectbox(
            "Number",
            list(MAP_SCALARS),
            format_func=lambda name: MAP_SCALARS[name][0],
            width=280,
            **state.MAP_SCALAR.widget(),
        )
    mode, scalar = state.MAP_ROW.get(), state.MAP_SCALAR.get()
    key = "attention.heads"

    def choose() -> None:
        points = st.session_state[key]["selection"]["points"]
        place = points[0].get("customdata") if points else None
        if isinstance(place, (list, tuple)) and len(place) == 2:
            state.GROUP.set(SINGLE)
            state.LAYER.set(int(place[0]))
            state.HEAD.set(int(place[1]))

    single = view.head is not None and len(view.layers) == 1
    chosen = (view.layers[0], view.head) if single and view.head is not None else None
    st.plotly_chart(
        head_map_figure(profile, mode, scalar, chosen),
        key=key,
        on_select=choose,
        selection_mode="points",
        config=panels.FIGURE_CONFIG,
        alt=head_map_alt(profile, mode, scalar),
    )
    st.caption(
        "Click a cell to see that layer and head in the curves above. Heads differ far more than "
        "a mean over them shows."
    )


def show_landmark_map(profile: AttentionProfile, view: View, layers: tuple[int, ...]) -> None:
    """Draws which part of the text each landmark looks at, when the profile kept it."""
    if profile.landmark_map is None:
        return
    panels.show_figure(
        landmark_map_figure(profile, layers, view.words.split(", head")[0]),
        "attention.landmark_map",
        landmark_map_alt(profile, layers),
    )
    st.caption(
        "Each row is a landmark, mean over heads, special keys left out. A bright band along the "
        "dots is a landmark that looks at its own chunk; vertical bands are tokens that everyone "
        "looks at. Many landmarks or bins are merged until they can be sent."
    )


def show_spread(inputs: Inputs, encoder: Any, config: AttentionConfig, view: View) -> None:
    """Draws the picker of further documents and the curves' spread over them."""
    samples = {s.id: s for s in cache.get_samples() if s.id != inputs.document.id}
    state.OTHERS.set(tuple(name for name in state.OTHERS.get() if name in samples))
    st.multiselect(
        "Documents to compare with",
        list(samples),
        format_func=lambda name: samples[name].title,
        placeholder="none",
        **state.OTHERS.widget(),
    )
    chosen = [inputs.document, *(samples[name] for name in state.OTHERS.get())]
    if len(chosen) < 2:
        st.caption("Choose at least one more document to see how far the curves depend on it.")
        return
    profiles = []
    for document in chosen:
        layout = cache.get_layout(
            inputs.encoder, document.text, state.INPUT.get(), inputs.chunking, inputs.max_length
        )
        profile = read_profile(inputs, encoder, layout, config, f"Reading {document.title[:40]}")
        profiles.append((document.title, profile))
    shared = min(profile.n_layers for _, profile in profiles)
    layers = [layer for layer in view.layers if layer < shared]
    panels.show_figure(
        spread_figure(profiles, layers, view.head, view.words),
        "attention.spread",
        f"Mean and range over {len(profiles)} documents of the weight by relative position.",
    )
    st.caption(
        f"{len(profiles)} documents on a relative axis, each by its own uniform weight; the band "
        "runs from the lowest to the highest document. A slope that is smaller than the band is "
        "the document's doing, not the pooling's."
    )


def show_rope(encoder: Any) -> None:
    """Draws the rotary kernel of the encoder, where it has rotary positions."""
    frequencies = encoder.rope_frequencies()
    if not frequencies:
        st.caption(
            f"{escape_markdown(encoder.name)} has {encoder.positional_scheme} positions, not "
            "rotary ones, so there is no kernel to show."
        )
        return
    distances = np.unique(np.geomspace(1, max(encoder.max_length - 1, 2), 400).astype(int)) * 1.0
    kernels = {
        kind: (rope_kernel(angles, distances), smoothed_kernel(angles, distances))
        for kind, angles in frequencies.items()
    }
    size = 2 * len(next(iter(frequencies.values())))
    panels.show_figure(
        rope_figure(kernels, distances, f"{size} rotated dimensions a head"),
        "attention.rope",
        rope_alt(kernels, distances),
    )
    st.caption(
        "What rotation leaves of two equal vectors at a distance. It bounds one logit of one layer "
        "from above, and is not the attention: content, softmax, depth, residuals and local layers "
        "can override it."
    )
