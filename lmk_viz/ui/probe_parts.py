"""Parts that the results of all probes share: tables and the Python that gives the numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs

__all__ = [
    "needle_code",
    "poolings_code",
    "probe_snippet",
    "show_frame",
    "show_scalars",
    "show_table",
]

NUMBER = "%.3f"


def show_scalars(frame: pd.DataFrame) -> None:
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


def show_table(frame: pd.DataFrame, key: str, opened: bool = False) -> None:
    """Draws a table under a heading that opens it."""
    with st.expander("The numbers as a table", icon=":material/table:", expanded=opened):
        show_frame(frame, key, {})


def show_frame(frame: pd.DataFrame, key: str, titles: Mapping[str, str]) -> None:
    """Draws a table, decimals to three places.

    Args:
        frame: the numbers.
        key: of the widget.
        titles: of columns; others are headed by their name.
    """
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


def poolings_code() -> str:
    """Returns Python that names the chosen poolings."""
    names = ",".join(mode.value for mode in state.PROBE_POOLINGS.get())
    return f'parse_poolings("{names}")'


def probe_snippet(inputs: Inputs, imports: Sequence[str], lines: Sequence[str]) -> str:
    """Returns Python that gives the numbers of a probe."""
    return panels.snippet(inputs, ["from lmk_viz.pooling import parse_poolings", *imports], lines)


def needle_code(inputs: Inputs, result: Any, by_length: tuple[int, ...] = ()) -> str:
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
        f"    encoder, needles, {filler}, {poolings_code()}, config, "
        + (f"{factors}, " if by_length else "")
        + "chunking",
        ")",
        "print(result.scalars_frame())",
    ]
    return probe_snippet(inputs, imports, lines)
