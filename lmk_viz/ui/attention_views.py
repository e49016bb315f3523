"""Parts of the attention page."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from lmk_viz.attention import AttentionProfile
from lmk_viz.config import AttentionConfig, LayerKind, LayoutKind
from lmk_viz.landmarks import Layout
from lmk_viz.ui import state

__all__ = ["View", "decay_caption", "pick_single_landmarks", "pick_view", "show_scalars"]

SINGLE = "single"
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
    group, head = state.GROUP.get(), state.HEAD.get()
    if group == SINGLE:
        layers: tuple[int, ...] = (state.LAYER.get(),)
        words = f"layer L{layers[0]} ({kinds[layers[0]].value})"
    else:
        layers = tuple(i for i, kind in enumerate(kinds) if kind.value == group)
        words = f"mean of {len(layers)} {group} layer{'s' * (len(layers) > 1)}"
    words += ", mean over heads" if head < 0 else f", head H{head}"
    return View(layers, None if head < 0 else head, words)


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


def decay_caption(profile: AttentionProfile, layout: Layout, view: View) -> str:
    """Returns what the decay figure shows, with its numbers and limits."""
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
    if layout.n_landmarks:
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
