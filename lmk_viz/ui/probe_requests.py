"""The runs that the position page asks for, one a probe, each with its own controls."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from lmk_viz.config import PoolingConfig, digest
from lmk_viz.ui import cache, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.probe_dilution import BESIDE, dilution_request
from lmk_viz.ui.probe_inputs import (
    Request,
    pick_filler_kind,
    pick_fillers,
    pick_needle_settings,
    pick_needles,
    pick_number,
)
from lmk_viz.ui.probe_lengths import length_request
from lmk_viz.ui.probe_runs import (
    Progress,
    ShouldStop,
    document_tokens,
    fitting,
    in_turn,
    names,
    needles_key,
    parts_of,
    per_text,
    pick_encoders,
    texts_key,
    unrelated_text,
)

__all__ = ["pick_request"]


def pick_request(view: str, inputs: Inputs, encoder: Any) -> Request:
    """Draws the controls of a probe and returns the run that they ask for.

    Raises:
        ValueError: when what was chosen cannot be measured.
    """
    build: Callable[[Inputs, Any, tuple[PoolingConfig, ...]], Request] = {
        "needle": _needle_request,
        "influence": _influence_request,
        "segments": _segments_request,
        "shuffle": _shuffle_request,
        "dilution": _dilution_request,
        "length": length_request,
    }[view]
    poolings = tuple(PoolingConfig(mode) for mode in state.PROBE_POOLINGS.get())
    return build(inputs, encoder, poolings)


def _needle_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.needle import NeedleConfig, needle_curves
    from lmk_viz.probes.placing import Border

    pick_needle_settings(with_length=True)
    encoders = pick_encoders(inputs, encoder)
    needles, fillers = pick_needles(), pick_fillers(inputs)
    config = NeedleConfig(
        fitting(encoder, inputs, state.PROBE_TOKENS.get()),
        state.PROBE_DEPTHS.get(),
        Border(state.PROBE_BORDER.get()),
        state.PROBE_SEED.get(),
    )
    each = len(needles) * (len(fillers) * config.depths + 1) * per_text(encoder, poolings)

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        return needle_curves(
            model, needles, fillers, poolings, config, inputs.chunking, progress, should_stop
        )

    key = digest(
        "needle",
        inputs.encoder,
        inputs.chunking,
        names(poolings),
        needles_key(needles),
        texts_key(fillers),
        repr(config),
        len(encoders),
    )
    passes = ((each * len(encoders), config.tokens),)
    return Request(key, in_turn(encoders, run), "Hiding needles, pass", passes, encoder)


def _influence_request(
    inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]
) -> Request:
    from lmk_viz.probes.influence import NEUTRAL_TEXT, Unit, leave_one_out
    from lmk_viz.probes.shuffle import shuffled_text

    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Leave out",
            ["chunk", "sentence"],
            format_func={"chunk": "A chunk", "sentence": "A sentence"}.__getitem__,
            required=True,
            **state.PROBE_UNIT.widget(),
        )
        st.toggle(
            "Noise floor",
            help="What a neutral filler of the same length does at the same place.",
            **state.PROBE_FLOOR.widget(),
        )
        st.toggle(
            "As share of the sum",
            help="Off: 1 - cosine itself, which is smaller where all vectors are alike.",
            **state.PROBE_SHARE.widget(),
        )
        st.toggle(
            "Chunks shuffled",
            help="The control: what stays in place when the words move belongs to the place.",
            **state.PROBE_SHUFFLED.widget(),
        )
    encoders = pick_encoders(inputs, encoder)
    unit = Unit(state.PROBE_UNIT.get())
    neutral = NEUTRAL_TEXT if state.PROBE_FLOOR.get() else None
    is_shuffled, seed = state.PROBE_SHUFFLED.get(), state.PROBE_SEED.get()

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        text = inputs.document.text
        if is_shuffled:
            text = shuffled_text(encoder, text, inputs.chunking, inputs.max_length, seed)
        return leave_one_out(
            model,
            text,
            poolings,
            inputs.chunking,
            inputs.max_length,
            unit,
            neutral,
            progress=progress,
            should_stop=should_stop,
        )

    key = digest(
        "influence",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        names(poolings),
        inputs.document.text,
        unit.value,
        neutral or "",
        is_shuffled,
        seed,
        len(encoders),
    )
    tokens = document_tokens(inputs)
    parts = parts_of(inputs, tokens)
    count = (parts * (2 if neutral else 1) + 1) * per_text(encoder, poolings) * len(encoders)
    passes = ((count, tokens),)
    return Request(key, in_turn(encoders, run), "Leaving parts out, pass", passes, encoder)


def _segments_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes import segment_cosines

    encoders = pick_encoders(inputs, encoder)
    other = unrelated_text(inputs)

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        result = segment_cosines(
            model,
            inputs.document.text,
            poolings,
            inputs.chunking,
            inputs.max_length,
            unrelated=other.text,
        )
        progress(1, 1)
        return result

    key = digest(
        "segments",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        names(poolings),
        inputs.document.text,
        other.text,
        len(encoders),
    )
    tokens = document_tokens(inputs)
    passes = (
        (per_text(encoder, poolings) * len(encoders), tokens),
        (20 * per_text(encoder, poolings) * len(encoders), max(1, tokens // 10)),
    )
    return Request(key, in_turn(encoders, run), "Embedding tenths, run", passes, encoder)


def _shuffle_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.shuffle import shuffle_cosines

    with st.container(horizontal=True, vertical_alignment="bottom"):
        orders = pick_number(
            "Orders", 1, 100, 4, state.PROBE_SHUFFLES, "Random orders of the chunks."
        )
        seed = pick_number("Seed", 0, 2**32 - 1, 1, state.PROBE_SEED, "Of the orders.")
    encoders = pick_encoders(inputs, encoder)
    other = unrelated_text(inputs)

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        return shuffle_cosines(
            model,
            inputs.document.text,
            poolings,
            inputs.chunking,
            inputs.max_length,
            orders,
            seed,
            other.text,
            progress,
            should_stop,
        )

    key = digest(
        "shuffle",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        names(poolings),
        inputs.document.text,
        other.text,
        orders,
        seed,
        len(encoders),
    )
    count = (orders + 3) * per_text(encoder, poolings) * len(encoders)
    passes = ((count, document_tokens(inputs)),)
    return Request(key, in_turn(encoders, run), "Shuffling, pass", passes, encoder)


def _dilution_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.dilution import steps_up_to

    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_number(
            "Most text added (tokens)",
            8,
            100_000,
            64,
            state.PROBE_TOKENS,
            "The last step; each step before it is half the next.",
        )
        pick_number(
            "Documents",
            1,
            len(cache.get_needles()),
            4,
            state.PROBE_NEEDLES,
            "Bundled facts with their questions; intervals are over them.",
        )
        pick_number("Seed", 0, 2**32 - 1, 1, state.PROBE_SEED, "Of the draw and the bootstrap.")
        st.segmented_control(
            "Added",
            ["after", "before", "around"],
            format_func=str.capitalize,
            required=True,
            **state.PROBE_SIDE.widget(),
        )
        pick_filler_kind()
    wanted = state.PROBE_TOKENS.get()
    most = min(wanted, fitting(encoder, inputs, wanted + BESIDE) - BESIDE)
    return dilution_request(inputs, encoder, poolings, steps_up_to(max(1, most)), "dilution")
