"""The length view of the position page: its controls, its runs, its figures."""

from typing import Any

import streamlit as st

from lmk_viz.config import PoolingConfig, digest
from lmk_viz.figures import probe_lengths as figures
from lmk_viz.figures.probes import dilution_alt, dilution_figure
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.probe_dilution import BESIDE, dilution_code, dilution_request
from lmk_viz.ui.probe_inputs import (
    Request,
    pick_base,
    pick_filler_kind,
    pick_fillers,
    pick_needle_settings,
    pick_needles,
)
from lmk_viz.ui.probe_parts import (
    needle_code,
    poolings_code,
    probe_snippet,
    show_scalars,
    show_table,
)
from lmk_viz.ui.probe_runs import (
    Progress,
    ShouldStop,
    fitting,
    in_turn,
    names,
    needles_key,
    per_text,
    pick_encoders,
    texts_key,
    unrelated_text,
)

__all__ = ["length_request", "show_length"]

LENGTH_FACTORS = (1, 2, 4, 8)
MEASURED = {
    "needle": "Needle",
    "influence": "Influence",
    "segments": "Segments",
    "shuffle": "Shuffle",
    "dilution": "Dilution",
}
WHAT_TO_SEE = {
    "influence": "Above: the share of the influence that lies on the first tenth of the text (0.1 "
    "where every part counts alike); below: its centre of mass (0.5). ",
    "segments": "Cosine of each tenth with the whole: the first third less the last (above), and "
    "the slope of a line through all tenths (below); 0 where every part counts alike. ",
    "shuffle": "Cosine of the text with itself, its chunks in eight random orders (above) and from "
    "last to first (below). ",
}


def length_request(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    """Draws the controls of the length view and returns the run that they ask for."""
    st.segmented_control(
        "Measured by length",
        list(MEASURED),
        format_func=MEASURED.__getitem__,
        required=True,
        **state.PROBE_OF.widget(),
    )
    build = {"needle": _needles, "dilution": _dilution}.get(state.PROBE_OF.get(), _documents)
    return build(inputs, encoder, poolings)


def _needles(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.lengths import needle_by_length
    from lmk_viz.probes.needle import NeedleConfig
    from lmk_viz.probes.placing import Border

    pick_needle_settings(with_length=False)
    encoders = pick_encoders(inputs, encoder)
    needles, fillers = pick_needles(), pick_fillers(inputs)
    base, factors = state.PROBE_BASE.get(), _factors(inputs, encoder)
    config = NeedleConfig(
        base,
        state.PROBE_DEPTHS.get(),
        Border(state.PROBE_BORDER.get()),
        state.PROBE_SEED.get(),
    )

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        return needle_by_length(
            model,
            needles,
            fillers,
            poolings,
            config,
            factors,
            inputs.chunking,
            progress,
            should_stop,
        )

    key = digest(
        "length",
        inputs.encoder,
        inputs.chunking,
        names(poolings),
        needles_key(needles),
        texts_key(fillers),
        repr(config),
        factors,
        len(encoders),
    )
    each = len(needles) * (len(fillers) * config.depths + 1) * per_text(encoder, poolings)
    passes = tuple((each * len(encoders), base * factor) for factor in factors)
    return Request(key, in_turn(encoders, run), "Hiding needles, pass", passes, encoder)


def _documents(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    from lmk_viz.probes.document_lengths import DocumentProbe, document_by_length

    probe = DocumentProbe(state.PROBE_OF.get())
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_base()
        pick_filler_kind("Documents", "The texts whose starts are measured.")
    encoders = pick_encoders(inputs, encoder)
    documents, other = pick_fillers(inputs), unrelated_text(inputs)
    base, seed = state.PROBE_BASE.get(), state.PROBE_SEED.get()
    factors = _factors(inputs, encoder)

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        return document_by_length(
            model,
            documents,
            poolings,
            probe,
            base,
            factors,
            inputs.chunking,
            seed,
            other.text,
            progress,
            should_stop,
        )

    key = digest(
        "length",
        probe.value,
        inputs.encoder,
        inputs.chunking,
        names(poolings),
        texts_key(documents),
        other.text,
        base,
        factors,
        seed,
        len(encoders),
    )
    each = len(documents) * per_text(encoder, poolings) * len(encoders)
    passes = tuple((each * _texts_of(inputs, base * factor), base * factor) for factor in factors)
    return Request(key, in_turn(encoders, run), "Measuring, text", passes, encoder)


def _dilution(inputs: Inputs, encoder: Any, poolings: tuple[PoolingConfig, ...]) -> Request:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_base()
        pick_filler_kind()
    base = state.PROBE_BASE.get()
    added = tuple(base * factor for factor in _factors(inputs, encoder, BESIDE))
    return dilution_request(inputs, encoder, poolings, added, "length")


def _factors(inputs: Inputs, encoder: Any, beside: int = 0) -> tuple[int, ...]:
    """Returns the multiples of the shortest length that fit, and says where some do not.

    Raises:
        ValueError: when none does.
    """
    base = state.PROBE_BASE.get()
    longest = fitting(encoder, inputs, base * LENGTH_FACTORS[-1] + beside) - beside
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
    return factors


def _texts_of(inputs: Inputs, tokens: int) -> int:
    """Returns about how many forward passes of a whole length a document's probe takes."""
    if state.PROBE_OF.get() == "influence":
        return 1 + -(-tokens // max(1, inputs.chunking.granularity))
    return 10 if state.PROBE_OF.get() == "shuffle" else 3


# Results.


def show_length(results: Any, inputs: Inputs) -> None:
    """Draws what was measured by length."""
    result, control = results[0], results[1] if len(results) > 1 else None
    draw = {"needle": _show_needles, "dilution": _show_dilution}
    draw.get(state.PROBE_OF.get(), _show_documents)(result, control, inputs)


def _show_needles(result: Any, control: Any, inputs: Inputs) -> None:
    if not result.results:
        st.info("No needle was finished before the stop.", icon=":material/info:")
        return
    figure = figures.length_curves_figure(result, state.PROBE_CENTRED.get(), control)
    panels.show_figure(figure, "probe.length", figures.length_alt(result))
    panels.show_figure(
        figures.length_numbers_figure(result), "probe.length.numbers", figures.length_alt(result)
    )
    st.caption(
        "The same needles and filler at each length; bands and bars are 95 % bootstrap intervals "
        "over needles. Levels fall with length for every pooling, as one vector holds more text; "
        "what counts for position is the shape within a panel. The longer filler also holds other "
        "words, so a length is not compared with itself plus text."
        + (" Dash-dotted: the same on random weights." if control is not None else "")
    )
    show_scalars(result.scalars_frame())
    show_table(result.to_frame(), "probe.length.table")
    data = _with_control(result, control)
    first = result.results[0]
    code = needle_code(inputs, first, by_length=tuple(r.config.tokens for r in result.results))
    panels.show_downloads("needle_by_length", result.to_frame(), data, figure, code)


def _show_documents(result: Any, control: Any, inputs: Inputs) -> None:
    if not result.documents:
        st.info("No document was finished before the stop.", icon=":material/info:")
        return
    figure = figures.document_length_figure(result, control)
    panels.show_figure(figure, "probe.length", figures.document_length_alt(result))
    many = len(result.documents) > 1
    st.caption(
        f"The start of {len(result.documents)} document{'s' * many}, cut to each length. "
        + WHAT_TO_SEE[result.probe.value]
        + (
            "Bars are 95 % intervals by Student's t over documents, wide since they are few. "
            if many
            else "One document has no interval: choose several bundled ones. "
        )
        + ("Dash-dotted: the same on random weights." if control is not None else "")
    )
    show_table(result.to_frame(), "probe.length.table", opened=True)
    bundled = state.PROBE_FILLER.get() == "bundled"
    documents = (
        f"bundled_fillers({result.documents_wanted})"
        if bundled
        else '[Document("document", "document", text)]'
    )
    imports = [
        "from lmk_viz.documents import Document",
        "from lmk_viz.probes.document_lengths import DocumentProbe, document_by_length",
        "from lmk_viz.probes.needles import bundled_fillers",
    ]
    base = int(result.lengths[0])
    factors = [int(length) // base for length in result.lengths]
    lines = [
        f"result = document_by_length(encoder, {documents}, {poolings_code()},",
        f"    DocumentProbe({result.probe.value!r}), {base}, {factors}, chunking, "
        f"{state.PROBE_SEED.get()})",
        "print(result.to_frame())",
    ]
    code = probe_snippet(inputs, imports, lines)
    name = f"{result.probe.value}_by_length"
    panels.show_downloads(name, result.to_frame(), _with_control(result, control), figure, code)


def _show_dilution(result: Any, control: Any, inputs: Inputs) -> None:
    if not result.documents:
        st.info("No document was finished before the stop.", icon=":material/info:")
        return
    figure = dilution_figure(result, control)
    panels.show_figure(figure, "probe.length", dilution_alt(result))
    st.caption(
        f"{len(result.documents)} facts with as much unrelated text as each length says: dilution "
        "has length for its axis. Bands are 95 % bootstrap intervals over facts."
        + (" Dash-dotted: the same on random weights." if control is not None else "")
    )
    show_table(result.to_frame(), "probe.length.table", opened=True)
    code = dilution_code(result, inputs)
    data = _with_control(result, control)
    panels.show_downloads("dilution_by_length", result.to_frame(), data, figure, code)


def _with_control(result: Any, control: Any) -> dict[str, Any]:
    data: dict[str, Any] = result.to_dict()
    return data if control is None else data | {"random_weights": control.to_dict()["rows"]}
