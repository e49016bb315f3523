"""Results of the position page: figures, captions, numbers, downloads."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from lmk_viz.figures import probes as figures
from lmk_viz.figures.segments import segment_alt, segment_figure
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.probe_dilution import dilution_code
from lmk_viz.ui.probe_lengths import show_length
from lmk_viz.ui.probe_parts import (
    needle_code,
    poolings_code,
    probe_snippet,
    show_frame,
    show_scalars,
    show_table,
)
from lmk_viz.ui.text import escape_markdown

__all__ = ["LEADS", "show_result"]

LEADS = {
    "needle": "A fact is hidden at several depths of a text. How close is its question to the "
    "document's vector?",
    "influence": "One part of the document is left out at a time. How far does the vector move, "
    "and does attention tell?",
    "segments": "Each tenth of the document, embedded alone: how close is it to the whole?",
    "shuffle": "The same chunks in other orders: how much of the vector stays?",
    "dilution": "Unrelated text is added step by step. How long does a query still find its "
    "document?",
    "length": "The needle at one, two, four and eight times a length.",
}
RANDOM_LINE = "Dash-dotted: the same on random weights. "
FEW = 5
"""Needles below which a bootstrap interval holds the truth too seldom."""
MISPLACED = 0.06
"""Half the distance of ten depths: two of them may have become one."""


def show_result(view: str, result: Any, inputs: Inputs, encoder: Any) -> None:
    """Draws a probe's result: figure, caption, badge, numbers, downloads."""
    draw: Callable[[Any, Inputs], None] = {
        "needle": _show_needle,
        "influence": _show_influence,
        "segments": _show_segments,
        "shuffle": _show_shuffle,
        "dilution": _show_dilution,
        "length": show_length,
    }[view]
    # Said before the figure: whoever reads the curves has to know it.
    panels.show_badge(encoder, state.PROBE_POOLINGS.get())
    draw(result, inputs)


def _show_needle(results: Any, inputs: Inputs) -> None:
    result, control = _with_control(results)
    if not result.needles:
        st.info("No needle was finished before the stop.", icon=":material/info:")
        return
    control = control if control is not None and control.needles else None
    figure = figures.needle_figure(result, control, state.PROBE_CENTRED.get())
    panels.show_figure(figure, "probe.needle", figures.needle_alt(result))
    many = len(result.needles) > 1
    st.caption(
        f"Each of {len(result.needles)} facts stands at {result.config.depths} depths of "
        f"{len(result.fillers)} filler{'s' * (len(result.fillers) > 1)} "
        f"({_listed(result.fillers)}), {result.config.tokens:,} text tokens in all; "
        f"{result.chunking.describe()}. "
        + (
            "Bands are 95 % bootstrap intervals over needles, paired over depths. Dotted: the mean "
            "cosine of the other needles' questions. Below: how often the right document comes "
            "first among the same filler and depth with the other needles; dashed, by lot. "
            if many
            else "One needle has neither interval nor rank. "
        )
        + RANDOM_LINE * (control is not None)
        + (
            f"Sentences are long for this length: some needles stand {result.misplaced:.2f} from "
            "the depth that was wanted. "
            if result.misplaced > MISPLACED
            else ""
        )
        + (
            "So few needles give intervals that are too narrow. "
            if 1 < len(result.needles) < FEW
            else ""
        )
        + ("Each curve is drawn less its own mean. " if state.PROBE_CENTRED.get() else "")
        + "It does not show what a reader would search for: needles are sentences out of place."
    )
    show_scalars(result.scalars_frame())
    show_table(result.to_frame(), "probe.needle.table")
    panels.show_downloads(
        "needle", result.to_frame(), _data(result, control), figure, needle_code(inputs, result)
    )


def _show_influence(results: Any, inputs: Inputs) -> None:
    result, control = _with_control(results)
    is_shuffled = state.PROBE_SHUFFLED.get()
    title = ("chunks shuffled: " if is_shuffled else "") + inputs.document.title
    figure = figures.influence_figure(result, title, state.PROBE_SHARE.get(), control)
    panels.show_figure(figure, "probe.influence", figures.influence_alt(result))
    cut = (
        f" {result.tokens_cut:,} of {result.tokens:,} tokens do not fit and have no part."
        if result.tokens_cut
        else ""
    )
    st.caption(
        f"Above: 1 - cosine of the vectors with and without each of {len(result.borders) - 1} "
        f"{result.unit.value}s"
        + (
            ", as share of each pooling's sum; the raw value is in brackets"
            * state.PROBE_SHARE.get()
        )
        + ". A chunk goes with its landmark and nothing is cut anew. "
        + (
            "Dotted: the same for a neutral filler put in at that place and left out again. "
            if result.floor
            else ""
        )
        + (
            "Below: the attention of the row that the pooling reads on the same parts, mean over "
            "global layers and heads, specials left out; dashed, even attention. Mean and every "
            "k-th token have no row of their own. "
            if result.attention
            else "This encoder does not report attention. "
        )
        + RANDOM_LINE * (control is not None)
        + f"One document, so no interval.{cut}"
    )
    show_frame(
        result.scalars_frame(),
        "probe.influence.scalars",
        {
            "total": "sum",
            "first_tenth": "on the first tenth",
            "centre_of_mass": "centre of mass",
            "floor": "mean of the filler",
            "above_floor": "parts above the filler",
            "attention_correlation": "r with attention",
        },
    )
    show_table(result.to_frame(), "probe.influence.table")
    lines = [
        f"result = leave_one_out(encoder, {'shuffled' if is_shuffled else 'text'}, "
        f"{poolings_code()}, chunking,",
        f"    {inputs.max_length}, Unit({result.unit.value!r}), "
        f"{'NEUTRAL_TEXT' if result.floor else 'None'})",
        "print(result.scalars_frame())",
    ]
    imports = ["from lmk_viz.probes.influence import NEUTRAL_TEXT, Unit, leave_one_out"]
    if is_shuffled:
        imports.append("from lmk_viz.probes.shuffle import shuffled_text")
        seed = state.PROBE_SEED.get()
        lines.insert(
            0,
            f"shuffled = shuffled_text(encoder, text, chunking, {inputs.max_length}, {seed})",
        )
    panels.show_downloads(
        "influence",
        result.to_frame(),
        _data(result, control),
        figure,
        probe_snippet(inputs, imports, lines),
    )


def _show_segments(results: Any, inputs: Inputs) -> None:
    result, control = _with_control(results)
    figure = segment_figure(
        result, "Which part is the vector close to?", inputs.document.title, control
    )
    panels.show_figure(figure, "probe.segments", segment_alt(result))
    cut = (
        f" {result.tokens_cut:,} of {result.tokens:,} tokens are cut, and no tenth lies there."
        if result.tokens_cut
        else ""
    )
    st.caption(
        "Each tenth of the text embedded alone and compared with the whole by cosine, less the "
        "mean cosine of tenths of an unrelated text. A part whose subject comes again elsewhere is "
        "close for that reason too. "
        + RANDOM_LINE * (control is not None)
        + f"One document, so no interval.{cut}"
    )
    frame = panels.segment_frame(result)
    show_table(frame, "probe.segments.table")
    imports = ["from lmk_viz.probes import segment_cosines"]
    lines = [
        f"result = segment_cosines(encoder, text, {poolings_code()}, chunking, "
        f"{inputs.max_length})",
        "print(result.cosines)",
    ]
    code = probe_snippet(inputs, imports, lines)
    panels.show_downloads("segments", frame, _data(result, control), figure, code)


def _show_shuffle(results: Any, inputs: Inputs) -> None:
    result, control = _with_control(results)
    figure = figures.shuffle_figure(result, inputs.document.title, control)
    panels.show_figure(figure, "probe.shuffle", figures.shuffle_alt(result))
    cut = (
        f" {result.tokens_cut:,} of {result.tokens:,} tokens do not fit."
        if result.tokens_cut
        else ""
    )
    st.caption(
        f"Each mark is one random order of the document's {result.chunks} chunks, each moved with "
        "its landmark. A cosine near 1 is a vector that hardly knows the order; the crosses are "
        "the level of an unrelated text of the same length. A high cosine is no proof that all "
        "chunks count: a vector that reads little moves little."
        + " Open diamonds: random weights." * (control is not None)
        + cut
    )
    show_frame(
        result.to_frame(),
        "probe.shuffle.numbers",
        {"mean": "mean cosine", "mean_low": "low", "mean_high": "high"},
    )
    seed, orders = state.PROBE_SEED.get(), state.PROBE_SHUFFLES.get()
    imports = ["from lmk_viz.probes.shuffle import shuffle_cosines"]
    lines = [
        f"result = shuffle_cosines(encoder, text, {poolings_code()}, chunking,",
        f"    {inputs.max_length}, shuffles={orders}, seed={seed})",
        "print(result.to_frame())",
    ]
    code = probe_snippet(inputs, imports, lines)
    panels.show_downloads("shuffle", result.to_frame(), _data(result, control), figure, code)


def _show_dilution(results: Any, inputs: Inputs) -> None:
    result, control = _with_control(results)
    if not result.documents:
        st.info("No document was finished before the stop.", icon=":material/info:")
        return
    figure = figures.dilution_figure(result, control)
    panels.show_figure(figure, "probe.dilution", figures.dilution_alt(result))
    many = len(result.documents) > 1
    st.caption(
        f"{len(result.documents)} facts, each with the same unrelated text {result.side.value} it. "
        + (
            "Bands are 95 % bootstrap intervals over facts. Below: how often the right one comes "
            "first among all at the same step; dashed, by lot. "
            if many
            else "One document has neither interval nor rank. "
        )
        + RANDOM_LINE * (control is not None)
        + "Dilution is not position: text put on either side falls under both."
    )
    show_table(result.to_frame(), "probe.dilution.table", opened=True)
    code = dilution_code(result, inputs)
    panels.show_downloads("dilution", result.to_frame(), _data(result, control), figure, code)


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(escape_markdown(name) for name in ids)


def _with_control(results: Any) -> tuple[Any, Any]:
    """Returns a run's result and the control's, None where there is none."""
    return results[0], results[1] if len(results) > 1 else None


def _data(result: Any, control: Any) -> dict[str, Any]:
    """Returns what is downloaded as JSON."""
    data: dict[str, Any] = result.to_dict()
    if control is not None:
        found = control.to_dict()
        data["random_weights"] = found.get("rows", found)
    return data
