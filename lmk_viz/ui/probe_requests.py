"""The runs that the position page asks for, one a probe, each with its own controls."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from lmk_viz.config import LayoutKind, PoolingConfig, digest
from lmk_viz.documents import Document
from lmk_viz.ui import cache, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.jobs import JobControl
from lmk_viz.ui.probe_inputs import (
    Request,
    pick_filler_kind,
    pick_fillers,
    pick_needle_settings,
    pick_needles,
    pick_number,
)

__all__ = ["pick_request"]

LENGTH_FACTORS = (1, 2, 4, 8)


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
        "length": _length_request,
    }[view]
    poolings = tuple(PoolingConfig(mode) for mode in state.PROBE_POOLINGS.get())
    return build(inputs, encoder, poolings)


def _needle_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.needle import NeedleConfig, needle_curves
    from lmk_viz.probes.placing import Border

    pick_needle_settings(with_length=True)
    can_randomise = hasattr(encoder, "with_random_weights")
    if can_randomise:
        st.toggle(
            "Random weights as control",
            help="The same run with weights drawn at random; takes as long again.",
            **state.PROBE_RANDOM.widget(),
        )
    needles, fillers = pick_needles(), pick_fillers(inputs)
    with_control = can_randomise and state.PROBE_RANDOM.get()
    control_encoder = cache.get_random_encoder(inputs.encoder) if with_control else None
    config = NeedleConfig(
        _fitting(encoder, inputs, state.PROBE_TOKENS.get()),
        state.PROBE_DEPTHS.get(),
        Border(state.PROBE_BORDER.get()),
        state.PROBE_SEED.get(),
    )
    each = len(needles) * (len(fillers) * config.depths + 1) * _per_text(encoder, poolings)

    def run(control: JobControl) -> Any:
        encoders = [encoder, *([control_encoder] if control_encoder is not None else [])]
        results = []
        for number, model in enumerate(encoders):
            results.append(
                needle_curves(
                    model,
                    needles,
                    fillers,
                    poolings,
                    config,
                    inputs.chunking,
                    _counted(control, number, len(encoders)),
                    lambda: control.is_stopped,
                )
            )
            if results[-1].is_partial:
                break
        return tuple(results)

    key = digest(
        "needle",
        inputs.encoder,
        inputs.chunking,
        _names(poolings),
        _needles_key(needles),
        _texts(fillers),
        repr(config),
        with_control,
    )
    passes = ((each * (2 if with_control else 1), config.tokens),)
    return Request(key, run, "Hiding needles, pass", passes, encoder)


def _length_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.lengths import needle_by_length
    from lmk_viz.probes.needle import NeedleConfig
    from lmk_viz.probes.placing import Border

    pick_needle_settings(with_length=False)
    needles, fillers = pick_needles(), pick_fillers(inputs)
    base = state.PROBE_BASE.get()
    longest = _fitting(encoder, inputs, base * LENGTH_FACTORS[-1])
    factors = tuple(factor for factor in LENGTH_FACTORS if base * factor <= longest)
    if not factors:
        raise ValueError(
            f"{base:,} tokens do not fit: the encoder takes {longest:,}; choose a shorter length."
        )
    if len(factors) < len(LENGTH_FACTORS):
        st.caption(
            f":orange[This encoder takes {longest:,} tokens at most, so only "
            f"{', '.join(f'{base * factor:,}' for factor in factors)} are measured.]"
        )
    config = NeedleConfig(
        base,
        state.PROBE_DEPTHS.get(),
        Border(state.PROBE_BORDER.get()),
        state.PROBE_SEED.get(),
    )
    each = len(needles) * (len(fillers) * config.depths + 1) * _per_text(encoder, poolings)

    def run(control: JobControl) -> Any:
        return needle_by_length(
            encoder,
            needles,
            fillers,
            poolings,
            config,
            factors,
            inputs.chunking,
            control.report,
            lambda: control.is_stopped,
        )

    key = digest(
        "length",
        inputs.encoder,
        inputs.chunking,
        _names(poolings),
        _needles_key(needles),
        _texts(fillers),
        repr(config),
        factors,
    )
    passes = tuple((each, base * factor) for factor in factors)
    return Request(key, run, "Hiding needles, pass", passes, encoder)


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
    unit = Unit(state.PROBE_UNIT.get())
    neutral = NEUTRAL_TEXT if state.PROBE_FLOOR.get() else None
    is_shuffled, seed = state.PROBE_SHUFFLED.get(), state.PROBE_SEED.get()

    def run(control: JobControl) -> Any:
        text = inputs.document.text
        if is_shuffled:
            text = shuffled_text(encoder, text, inputs.chunking, inputs.max_length, seed)
        return leave_one_out(
            encoder,
            text,
            poolings,
            inputs.chunking,
            inputs.max_length,
            unit,
            neutral,
            progress=control.report,
            should_stop=lambda: control.is_stopped,
        )

    key = digest(
        "influence",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        _names(poolings),
        inputs.document.text,
        unit.value,
        neutral or "",
        is_shuffled,
        seed,
    )
    tokens = _document_tokens(inputs)
    parts = _parts_of(inputs, tokens)
    count = (parts * (2 if neutral else 1) + 1) * _per_text(encoder, poolings)
    return Request(key, run, "Leaving parts out, pass", ((count, tokens),), encoder)


def _segments_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes import segment_cosines

    other = _unrelated(inputs)

    def run(_: JobControl) -> Any:
        return segment_cosines(
            encoder,
            inputs.document.text,
            poolings,
            inputs.chunking,
            inputs.max_length,
            unrelated=other.text,
        )

    key = digest(
        "segments",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        _names(poolings),
        inputs.document.text,
        other.text,
    )
    tokens = _document_tokens(inputs)
    passes = (
        (_per_text(encoder, poolings), tokens),
        (20 * _per_text(encoder, poolings), max(1, tokens // 10)),
    )
    return Request(key, run, "Embedding tenths", passes, encoder)


def _shuffle_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.shuffle import shuffle_cosines

    with st.container(horizontal=True, vertical_alignment="bottom"):
        orders = pick_number(
            "Orders", 1, 100, 4, state.PROBE_SHUFFLES, "Random orders of the chunks."
        )
        seed = pick_number("Seed", 0, 2**32 - 1, 1, state.PROBE_SEED, "Of the orders.")
    other = _unrelated(inputs)

    def run(control: JobControl) -> Any:
        return shuffle_cosines(
            encoder,
            inputs.document.text,
            poolings,
            inputs.chunking,
            inputs.max_length,
            orders,
            seed,
            other.text,
            control.report,
            lambda: control.is_stopped,
        )

    key = digest(
        "shuffle",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        _names(poolings),
        inputs.document.text,
        other.text,
        orders,
        seed,
    )
    count = (orders + 3) * _per_text(encoder, poolings)
    passes = ((count, _document_tokens(inputs)),)
    return Request(key, run, "Shuffling, pass", passes, encoder)


def _dilution_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.dilution import Side, dilution_curves, steps_up_to

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
    documents, filler = pick_needles(), pick_fillers(inputs)[0]
    # A fact of some forty tokens stands beside the text.
    most = min(
        state.PROBE_TOKENS.get(), _fitting(encoder, inputs, state.PROBE_TOKENS.get() + 64) - 64
    )
    added = steps_up_to(max(1, most))
    side, seed = Side(state.PROBE_SIDE.get()), state.PROBE_SEED.get()

    def run(control: JobControl) -> Any:
        return dilution_curves(
            encoder,
            documents,
            filler,
            poolings,
            added,
            inputs.chunking,
            side,
            seed,
            control.report,
            lambda: control.is_stopped,
        )

    key = digest(
        "dilution",
        inputs.encoder,
        inputs.chunking,
        _names(poolings),
        _needles_key(documents),
        _texts([filler]),
        added,
        side.value,
        seed,
    )
    count = len(documents) * _per_text(encoder, poolings)
    passes = ((count, 32), *((count, step + 32) for step in added))
    return Request(key, run, "Adding text, pass", passes, encoder)


def _fitting(encoder: Any, inputs: Inputs, wanted: int) -> int:
    """Returns how many of the wanted tokens the encoder takes, and says so where it is fewer."""
    from lmk_viz.probes.runs import fitting_tokens

    used = fitting_tokens(encoder, inputs.chunking, wanted)
    if used < wanted and state.PROBE_VIEW.get() != "length":
        st.caption(f":orange[{wanted:,} tokens do not fit this encoder; {used:,} are used.]")
    return used


def _counted(control: JobControl, number: int, runs: int) -> Callable[[int, int], None]:
    return lambda done, total: control.report(number * total + done, runs * total)


def _unrelated(inputs: Inputs) -> Document:
    from lmk_viz.probes.needles import bundled_fillers

    return next(text for text in bundled_fillers() if text.text != inputs.document.text)


def _document_tokens(inputs: Inputs) -> int:
    layout = cache.get_layout(
        inputs.encoder, inputs.document.text, LayoutKind.PLAIN, inputs.chunking, inputs.max_length
    )
    return max(1, int(layout.n_kept))


def _parts_of(inputs: Inputs, tokens: int) -> int:
    """Returns about how many parts the document has."""
    if state.PROBE_UNIT.get() == "sentence":
        return max(1, tokens // 20)
    layout = cache.get_layout(
        inputs.encoder,
        inputs.document.text,
        LayoutKind.LANDMARK,
        inputs.chunking,
        inputs.max_length,
    )
    return max(1, len(layout.chunks))


def _texts(documents: Sequence[Document]) -> list[tuple[str, str]]:
    return [(document.id, document.text) for document in documents]


def _needles_key(needles: Sequence[Any]) -> list[tuple[str, str, str]]:
    return [(needle.id, needle.fact, needle.question) for needle in needles]


def _names(poolings: Sequence[PoolingConfig]) -> list[str]:
    return [repr(pooling) for pooling in poolings]


def _per_text(encoder: Any, poolings: Sequence[PoolingConfig]) -> int:
    from lmk_viz.probes.runs import count_passes

    return count_passes(encoder, [pooling.mode for pooling in poolings])
