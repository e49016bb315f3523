"""What the runs of the position page share: encoders in turn, lengths that fit, keys."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from lmk_viz.config import LayoutKind, PoolingConfig
from lmk_viz.documents import Document
from lmk_viz.ui import cache, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.jobs import JobControl

__all__ = [
    "document_tokens",
    "fitting",
    "in_turn",
    "names",
    "needles_key",
    "parts_of",
    "per_text",
    "pick_encoders",
    "texts_key",
    "unrelated_text",
]

Progress = Callable[[int, int], None]
ShouldStop = Callable[[], bool]
Run = Callable[[Any, Progress, ShouldStop], Any]
"""Takes an encoder, whom to tell how far it is, and whom to ask whether to stop."""


def pick_encoders(inputs: Inputs, encoder: Any) -> tuple[Any, ...]:
    """Draws the choice of the control and returns the encoder, and its shape on random weights."""
    if not hasattr(encoder, "with_random_weights"):
        return (encoder,)
    st.toggle(
        "Random weights as control",
        help="The same run with weights drawn at random; takes as long again.",
        **state.PROBE_RANDOM.widget(),
    )
    if not state.PROBE_RANDOM.get():
        return (encoder,)
    return encoder, cache.get_random_encoder(inputs.encoder)


def in_turn(encoders: Sequence[Any], run: Run) -> Callable[[JobControl], Any]:
    """Returns a call that runs a probe on each encoder and gives all results that there are."""

    def call(control: JobControl) -> Any:
        results: list[Any] = []
        for number, model in enumerate(encoders):
            progress = _counted(control, number, len(encoders))
            results.append(run(model, progress, lambda: control.is_stopped))
            if getattr(results[-1], "is_partial", False):
                break
        return tuple(results)

    return call


def _counted(control: JobControl, number: int, runs: int) -> Progress:
    return lambda done, total: control.report(number * total + done, runs * total)


def fitting(encoder: Any, inputs: Inputs, wanted: int) -> int:
    """Returns how many of the wanted tokens the encoder takes, and says so where it is fewer."""
    from lmk_viz.probes.runs import fitting_tokens

    used = fitting_tokens(encoder, inputs.chunking, wanted)
    if used < wanted and state.PROBE_VIEW.get() != "length":
        st.caption(f":orange[{wanted:,} tokens do not fit this encoder; {used:,} are used.]")
    return used


def unrelated_text(inputs: Inputs) -> Document:
    """Returns a bundled text other than the document, the control of having nothing in common."""
    from lmk_viz.probes.needles import bundled_fillers

    return next(text for text in bundled_fillers() if text.text != inputs.document.text)


def document_tokens(inputs: Inputs) -> int:
    """Returns the text tokens of the document that fit."""
    layout = cache.get_layout(
        inputs.encoder, inputs.document.text, LayoutKind.PLAIN, inputs.chunking, inputs.max_length
    )
    return max(1, int(layout.n_kept))


def parts_of(inputs: Inputs, tokens: int) -> int:
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


def texts_key(documents: Sequence[Document]) -> list[tuple[str, str]]:
    """Returns what tells texts apart in a key."""
    return [(document.id, document.text) for document in documents]


def needles_key(needles: Sequence[Any]) -> list[tuple[str, str, str]]:
    """Returns what tells needles apart in a key."""
    return [(needle.id, needle.fact, needle.question) for needle in needles]


def names(poolings: Sequence[PoolingConfig]) -> list[str]:
    """Returns what tells poolings apart in a key."""
    return [repr(pooling) for pooling in poolings]


def per_text(encoder: Any, poolings: Sequence[PoolingConfig]) -> int:
    """Returns the forward passes that one text takes."""
    from lmk_viz.probes.runs import count_passes

    return count_passes(encoder, [pooling.mode for pooling in poolings])
