"""Controls of the position page, and the calls that they ask for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from lmk_viz.config import PoolingConfig
from lmk_viz.documents import Document
from lmk_viz.ui import cache, state
from lmk_viz.ui.controls import Inputs, available_poolings
from lmk_viz.ui.jobs import JobControl, await_job
from lmk_viz.ui.messages import stop_with

__all__ = [
    "Request",
    "measure",
    "pick_base",
    "pick_filler_kind",
    "pick_fillers",
    "pick_needle_settings",
    "pick_needles",
    "pick_number",
    "pick_view",
]

AUTO_SECONDS = 8.0
"""A run that takes no longer, on a slow machine, starts by itself."""
MAX_OWN = 2000
"""Characters of a needle of one's own."""
VIEW_NAMES = {
    "needle": "Needle",
    "influence": "Influence",
    "segments": "Segments",
    "shuffle": "Shuffle",
    "dilution": "Dilution",
    "length": "Length",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One run that the controls ask for."""

    key: str
    run: Callable[[JobControl], Any]
    label: str
    """What is counted while it runs."""
    passes: tuple[tuple[int, int], ...]
    """Forward passes as (how many, of how many tokens)."""
    encoder: Any

    def rough_seconds(self) -> float:
        """Returns seconds on a slow machine, from counting alone; 0 where it cannot be told."""
        tell = getattr(self.encoder, "rough_seconds", None)
        return 0.0 if tell is None else sum(n * tell(tokens) for n, tokens in self.passes)

    def seconds(self) -> float | None:
        """Returns seconds on this machine, measured in about a second at first use."""
        tell = getattr(self.encoder, "forecast", None)
        if tell is None:
            return None
        return float(sum(n * tell(tokens).seconds for n, tokens in self.passes))


def pick_view(encoder: Any) -> str:
    """Draws the choice of the probe and of the poolings, and returns the probe."""
    offered = available_poolings(encoder)
    # A link or another encoder may name a pooling that this encoder has not got.
    state.PROBE_POOLINGS.set(tuple(m for m in state.PROBE_POOLINGS.get() if m in offered))
    st.segmented_control(
        "Probe",
        list(VIEW_NAMES),
        format_func=VIEW_NAMES.__getitem__,
        required=True,
        **state.PROBE_VIEW.widget(),
    )
    st.multiselect(
        "Poolings",
        offered,
        format_func=lambda mode: PoolingConfig(mode).label,
        help="Every k-th token is the control that is spread out without a token of its own.",
        **state.PROBE_POOLINGS.widget(),
    )
    if not state.PROBE_POOLINGS.get():
        stop_with("Choose at least one pooling above.")
    return state.PROBE_VIEW.get()


def measure(request: Request) -> Any:
    """Returns a run's result; a long one is forecast first and waits for a button.

    Returns:
        None as long as nothing was asked for.

    Raises:
        ValueError: when the probe refuses its input.
    """
    job = cache.find_probe(request.key)
    if job is None:
        if request.rough_seconds() > AUTO_SECONDS and not _is_wanted(request):
            return None
        job = cache.start_probe(request.key, request.run)
    try:
        result = await_job(job, request.label)
    except Exception:
        # A failed call is not kept: what failed it, such as full memory, may be gone.
        cache.forget_probe(request.key)
        raise
    if any(getattr(part, "is_partial", False) for part in _parts(result)):
        st.warning("Stopped before the end; what follows holds for what was measured until then.")
        if st.button("Measure all of it", key="probe.again"):
            cache.forget_probe(request.key)
            cache.start_probe(request.key, request.run)
            st.rerun()
    return result


def _is_wanted(request: Request) -> bool:
    seconds = request.seconds()
    count = sum(n for n, _ in request.passes)
    longest = max(tokens for _, tokens in request.passes)
    words = "" if seconds is None else f"about {_time(seconds)} on this machine, "
    st.caption(
        f"{count:,} forward passes of up to {longest:,} tokens: {words}counted as it runs. It can "
        "be stopped, and what is done by then is kept; the result stays as long as the app runs."
    )
    return st.button(
        "Measure", type="primary", icon=":material/play_arrow:", key=f"probe.run.{request.key}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 90 else f"{seconds / 60:,.1f} minutes"


def _parts(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


# Controls that several probes share.


def pick_needles() -> Any:
    """Draws the choice of needles and returns them."""
    from lmk_viz.probes.needles import Needle, draw_needles

    bundled = cache.get_needles()
    state.PROBE_NEEDLES.set(min(state.PROBE_NEEDLES.get(), len(bundled)))
    with st.expander("A sentence of your own", icon=":material/edit:"):
        st.text_input("Sentence to hide", max_chars=MAX_OWN, **state.OWN_FACT.widget())
        st.text_input("Its question", max_chars=MAX_OWN, **state.OWN_QUESTION.widget())
        st.caption(
            "With both filled in, this one is measured alone, so there are neither intervals nor "
            "ranks. It stays out of the address."
        )
    fact, question = state.OWN_FACT.get().strip(), state.OWN_QUESTION.get().strip()
    if bool(fact) != bool(question):
        stop_with("Fill in both the sentence and its question, or neither.")
    if fact:
        return (Needle("own", fact, question),)
    return draw_needles(bundled, state.PROBE_NEEDLES.get(), state.PROBE_SEED.get())


def pick_fillers(inputs: Inputs) -> tuple[Document, ...]:
    """Returns the chosen texts to hide needles in."""
    from lmk_viz.probes.needles import bundled_fillers

    if state.PROBE_FILLER.get() == "document":
        return (inputs.document,)
    return bundled_fillers(state.PROBE_FILLERS.get())


def pick_number(
    label: str, low: int, high: int, step: int, choice: state.Choice[int], tip: str
) -> int:
    """Draws a whole number and returns it."""
    # A link may hold a number that only another view allows.
    choice.set(min(max(choice.get(), low), high))
    st.number_input(label, low, high, step=step, width=150, help=tip, **choice.widget())
    return choice.get()


def pick_filler_kind(
    label: str = "Filler", tip: str = "The text that the sentences are hidden in."
) -> None:
    """Draws the choice of the texts to hide needles in, or to measure."""
    st.segmented_control(
        label,
        ["bundled", "document"],
        format_func={"bundled": "Bundled texts", "document": "The chosen document"}.__getitem__,
        required=True,
        help=tip,
        **state.PROBE_FILLER.widget(),
    )
    if state.PROBE_FILLER.get() == "bundled":
        each = "Each needle goes into each of them." if label == "Filler" else "How many."
        pick_number("Bundled texts", 1, 4, 1, state.PROBE_FILLERS, each)


def _pick_border() -> None:
    st.segmented_control(
        "Between",
        ["sentence", "token"],
        format_func={"sentence": "Sentences", "token": "Words"}.__getitem__,
        required=True,
        help="Where a needle may stand.",
        **state.PROBE_BORDER.widget(),
    )


def pick_base() -> None:
    """Draws the choice of the shortest of several lengths."""
    pick_number(
        "Shortest (tokens)",
        8,
        10_000,
        32,
        state.PROBE_BASE,
        "Measured at 1, 2, 4 and 8 times this.",
    )


def pick_needle_settings(with_length: bool) -> None:
    """Draws how needles are placed.

    Args:
        with_length: one length; else the shortest of several.
    """
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if with_length:
            pick_number(
                "Length (tokens)",
                8,
                100_000,
                64,
                state.PROBE_TOKENS,
                "Text tokens of each document, needle included.",
            )
        else:
            pick_base()
        pick_number(
            "Needles",
            1,
            len(cache.get_needles()),
            4,
            state.PROBE_NEEDLES,
            "Drawn from the bundled facts; intervals are over them.",
        )
        pick_number("Depths", 2, 100, 1, state.PROBE_DEPTHS, "Equally spaced.")
        pick_number("Seed", 0, 2**32 - 1, 1, state.PROBE_SEED, "Of the draw and the bootstrap.")
        _pick_border()
        pick_filler_kind()
    st.toggle(
        "Each less its own mean",
        help="Levels differ between poolings for reasons that are not position; this leaves the "
        "shapes.",
        **state.PROBE_CENTRED.widget(),
    )
