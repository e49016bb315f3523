"""Parts of the position page: figures, numbers, captions, what to look for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.figures import probes as figures
from lmk_viz.figures.segments import segment_alt, segment_figure
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.text import escape_markdown

__all__ = ["LEADS", "show_result", "show_teaching"]

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
NUMBER = "%.3f"
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
        "length": _show_length,
    }[view]
    # Said before the figure: whoever reads the curves has to know it.
    panels.show_badge(encoder, state.PROBE_POOLINGS.get())
    draw(result, inputs)


def show_teaching() -> None:
    """Draws what to look for, and what it does not prove."""
    with st.expander("What to look for, and what this does not prove", icon=":material/school:"):
        st.markdown(
            "- **How CLS can show a bias**: a needle's cosine that falls with depth, influence "
            "that lies on the first chunks, a first tenth that is closest to the whole. It shows "
            "most on texts longer than those it was trained on. **Where it need not show**: on "
            "short texts, in ranks among documents that suffer alike, and in an encoder whose "
            "training data had its evidence everywhere.\n"
            "- **The direction of the bias follows the training data as much as the pooling.** "
            "Encoders trained on passages whose answer comes first come to prefer the start; the "
            "same models trained on evidence at the end came to prefer the end (arXiv 2605.26578; "
            "see also 2412.15241 and 2404.04163). A slope seen here is that of this encoder, not "
            "of a pooling as such.\n"
            "- Compare poolings by shape, not by level: each has a space of its own, and in some "
            "all vectors are close to each other. The dotted lines are the controls: questions of "
            "other needles, a neutral filler, unrelated text.\n"
            "- **Attention is not influence.** A part can be looked at and change little, or be "
            "read through other tokens and change much.\n"
            "- Where two intervals overlap, this run cannot tell the poolings apart. PSI is never "
            "below zero, so noise alone gives a small one; read it beside the slope.\n"
            "- One filler is one text: its own words lie at fixed depths. More fillers, or another "
            "one, show how much of a curve is theirs."
        )


def _show_needle(results: Any, inputs: Inputs) -> None:
    result, control = results[0], results[1] if len(results) > 1 else None
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
        + ("Dash-dotted: the same on random weights. " if control is not None else "")
        + (
            f"Sentences are long for this length: some needles stand {result.misplaced:.2f} from "
            "the depth that was wanted. "
            if result.misplaced > MISPLACED
            else ""
        )
        + ("Each curve is drawn less its own mean. " if state.PROBE_CENTRED.get() else "")
        + "It does not show what a reader would search for: needles are sentences out of place."
    )
    _show_scalars(result.scalars_frame())
    data: dict[str, Any] = result.to_dict()
    if control is not None:
        data["random_weights"] = control.to_dict()["rows"]
    _show_table(result.to_frame(), "probe.needle.table")
    panels.show_downloads("needle", result.to_frame(), data, figure, _needle_code(inputs, result))


def _show_length(result: Any, inputs: Inputs) -> None:
    if not result.results:
        st.info("No needle was finished before the stop.", icon=":material/info:")
        return
    figure = figures.length_curves_figure(result, state.PROBE_CENTRED.get())
    panels.show_figure(figure, "probe.length", figures.length_alt(result))
    panels.show_figure(
        figures.length_numbers_figure(result), "probe.length.numbers", figures.length_alt(result)
    )
    st.caption(
        "The same needles and filler at each length; bands and bars are 95 % bootstrap intervals "
        "over needles. Levels fall with length for every pooling, as one vector holds more text; "
        "what counts for position is the shape within a panel. The longer filler also holds other "
        "words, so a length is not compared with itself plus text."
    )
    _show_scalars(result.scalars_frame())
    _show_table(result.to_frame(), "probe.length.table")
    first = result.results[0]
    code = _needle_code(inputs, first, by_length=tuple(r.config.tokens for r in result.results))
    panels.show_downloads("needle_by_length", result.to_frame(), result.to_dict(), figure, code)


def _show_influence(result: Any, inputs: Inputs) -> None:
    is_shuffled = state.PROBE_SHUFFLED.get()
    title = ("chunks shuffled: " if is_shuffled else "") + inputs.document.title
    figure = figures.influence_figure(result, title, state.PROBE_SHARE.get())
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
        + f"One document, so no interval.{cut}"
    )
    _show_frame(
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
    _show_table(result.to_frame(), "probe.influence.table")
    lines = [
        f"result = leave_one_out(encoder, {'shuffled' if is_shuffled else 'text'}, "
        f"{_poolings_code()}, chunking,",
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
        result.to_dict(),
        figure,
        _snippet(inputs, imports, lines),
    )


def _show_segments(result: Any, inputs: Inputs) -> None:
    figure = segment_figure(result, "Which part is the vector close to?", inputs.document.title)
    panels.show_figure(figure, "probe.segments", segment_alt(result))
    cut = (
        f" {result.tokens_cut:,} of {result.tokens:,} tokens are cut, and no tenth lies there."
        if result.tokens_cut
        else ""
    )
    st.caption(
        "Each tenth of the text embedded alone and compared with the whole by cosine, less the "
        "mean cosine of tenths of an unrelated text. A part whose subject comes again elsewhere is "
        f"close for that reason too. One document, so no interval.{cut}"
    )
    frame = panels.segment_frame(result)
    _show_table(frame, "probe.segments.table")
    imports = ["from lmk_viz.probes import segment_cosines"]
    lines = [
        f"result = segment_cosines(encoder, text, {_poolings_code()}, chunking, "
        f"{inputs.max_length})",
        "print(result.cosines)",
    ]
    code = _snippet(inputs, imports, lines)
    panels.show_downloads("segments", frame, result.to_dict(), figure, code)


def _show_shuffle(result: Any, inputs: Inputs) -> None:
    figure = figures.shuffle_figure(result, inputs.document.title)
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
        f"chunks count: a vector that reads little moves little.{cut}"
    )
    _show_frame(
        result.to_frame(),
        "probe.shuffle.numbers",
        {"mean": "mean cosine", "mean_low": "low", "mean_high": "high"},
    )
    seed, orders = state.PROBE_SEED.get(), state.PROBE_SHUFFLES.get()
    imports = ["from lmk_viz.probes.shuffle import shuffle_cosines"]
    lines = [
        f"result = shuffle_cosines(encoder, text, {_poolings_code()}, chunking,",
        f"    {inputs.max_length}, shuffles={orders}, seed={seed})",
        "print(result.to_frame())",
    ]
    code = _snippet(inputs, imports, lines)
    panels.show_downloads("shuffle", result.to_frame(), result.to_dict(), figure, code)


def _show_dilution(result: Any, inputs: Inputs) -> None:
    if not result.documents:
        st.info("No document was finished before the stop.", icon=":material/info:")
        return
    figure = figures.dilution_figure(result)
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
        + "Dilution is not position: text put on either side falls under both."
    )
    _show_table(result.to_frame(), "probe.dilution.table", opened=True)
    imports = [
        "from lmk_viz.probes.dilution import Side, dilution_curves",
        "from lmk_viz.probes.needles import draw_needles, load_needles",
    ]
    lines = [
        f"documents = draw_needles(load_needles(), {len(result.documents)}, "
        f"{state.PROBE_SEED.get()})",
        f"filler = next(d for d in sample_documents() if d.id == {result.filler!r})",
        f"result = dilution_curves(encoder, documents, filler, {_poolings_code()},",
        f"    {tuple(result.added.tolist())}, chunking, Side({result.side.value!r}))",
        "print(result.to_frame())",
    ]
    code = _snippet(inputs, imports, lines)
    panels.show_downloads("dilution", result.to_frame(), result.to_dict(), figure, code)


def _show_scalars(frame: pd.DataFrame) -> None:
    """Draws PSI, slope and the difference of the thirds with their intervals."""
    table = frame[[name for name in ("tokens", "pooling") if name in frame]].copy()
    for name, title in (
        ("psi", "PSI"),
        ("slope", "slope"),
        ("first_minus_last", "first less last third"),
    ):
        table[title] = [_ranged(row, name) for row in frame.to_dict("records")]
    table["highest at depth"] = frame["peak_depth"]
    table["lowest at depth"] = frame["lowest_depth"]
    table["range of the mean"] = [
        "undefined" if pd.isna(low) else f"{low:.3f} to {high:.3f}"
        for low, high in zip(frame["lowest"], frame["peak"], strict=True)
    ]
    number = st.column_config.NumberColumn
    st.dataframe(
        table,
        hide_index=True,
        key="probe.scalars",
        column_config={
            name: number(format="%.2f") for name in ("highest at depth", "lowest at depth")
        },
    )


def _show_table(frame: pd.DataFrame, key: str, opened: bool = False) -> None:
    with st.expander("The numbers as a table", icon=":material/table:", expanded=opened):
        _show_frame(frame, key, {})


def _show_frame(frame: pd.DataFrame, key: str, titles: Mapping[str, str]) -> None:
    floats = {name for name in frame.columns if pd.api.types.is_float_dtype(frame[name])}
    column = st.column_config.Column
    number = st.column_config.NumberColumn
    st.dataframe(
        frame,
        hide_index=True,
        key=key,
        column_config={
            name: number(titles.get(name, name), format=NUMBER)
            if name in floats
            else column(titles.get(name, name))
            for name in frame.columns
        },
    )


def _ranged(row: Mapping[Any, Any], name: str) -> str:
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    if pd.isna(value):
        return "undefined"
    return f"{value:.3f}" + ("" if pd.isna(low) else f" ({low:.3f} to {high:.3f})")


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(escape_markdown(name) for name in ids)


def _poolings_code() -> str:
    names = ",".join(mode.value for mode in state.PROBE_POOLINGS.get())
    return f'parse_poolings("{names}")'


def _snippet(inputs: Inputs, imports: Sequence[str], lines: Sequence[str]) -> str:
    return panels.snippet(inputs, ["from lmk_viz.pooling import parse_poolings", *imports], lines)


def _needle_code(inputs: Inputs, result: Any, by_length: tuple[int, ...] = ()) -> str:
    """Returns Python that gives the numbers of the needle, at one length or several."""
    config = result.config
    call = "needle_by_length" if by_length else "needle_curves"
    own = result.needles == ("own",)
    factors = [length // config.tokens for length in by_length]
    imports = [
        "from lmk_viz.probes.needle import NeedleConfig, needle_curves",
        "from lmk_viz.probes.placing import Border",
        "from lmk_viz.probes.needles import Needle, bundled_fillers, draw_needles, load_needles",
        *(["from lmk_viz.probes.lengths import needle_by_length"] if by_length else []),
    ]
    bundled = state.PROBE_FILLER.get() == "bundled"
    filler = (
        f"bundled_fillers({len(result.fillers)})"
        if bundled
        else '[Document("filler", "filler", text)]'
    )
    if not bundled:
        imports.append("from lmk_viz.documents import Document")
    lines = [
        'needles = [Needle("own", "your sentence", "its question")]'
        if own
        else f"needles = draw_needles(load_needles(), {result.needles_wanted}, {config.seed})",
        f"config = NeedleConfig({config.tokens}, {config.depths}, "
        f"Border({config.border.value!r}), {config.seed})",
        f"result = {call}(",
        f"    encoder, needles, {filler}, {_poolings_code()}, config, "
        + (f"{factors}, " if by_length else "")
        + "chunking",
        ")",
        "print(result.scalars_frame())",
    ]
    return _snippet(inputs, imports, lines)
