"""Linked panels: what is selected in one is selected in all, and listed below."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.embedding import EmbeddingTable
from lmk_viz.figures.projection import (
    Colouring,
    LandmarkPoints,
    colour_values,
    document_hover,
    map_figure,
    wrap_hover,
)
from lmk_viz.landmark_points import MAX_DOCUMENTS
from lmk_viz.map_metrics import neighbours_of
from lmk_viz.map_table import VectorTable
from lmk_viz.maps import CorpusMap, MapPanel
from lmk_viz.ui import cache, map_numbers, map_views, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.text import escape_markdown

__all__ = ["parse_rows", "show_linked"]

CONFIG = {
    "displaylogo": False,
    "toImageButtonOptions": {"format": "png", "scale": 2, "filename": "lmk_viz_map"},
    "modeBarButtonsToRemove": ["autoScale2d"],
}
COLOUR_NAMES = {"label": "Label", "tokens": "Length in tokens", "cut": "Cut by the length limit"}
COLOUR_NAMES |= {"landmarks": "Number of landmarks"}
POINTER_NAMES = {"lasso": "Drawing round", "click": "Clicking"}
HIDDEN = ("id", "title", "tokens_cut_", "fell_back_")
"""Columns, and beginnings of columns, that are nothing to colour by."""


def parse_rows(event: Any, n: int) -> tuple[int, ...]:
    """Returns the rows of a selection event, sorted; what is none of them is ignored.

    Args:
        event: as the browser sent it.
        n: documents there are.
    """
    rows = set()
    try:
        points = event["selection"]["points"]
    except (KeyError, TypeError):
        return ()
    for point in points:
        value: Any = point.get("customdata") if isinstance(point, Mapping) else None
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        is_whole = isinstance(value, int | float) and not isinstance(value, bool)
        if is_whole and value == int(value) and 0 <= value < n:
            rows.add(int(value))
    return tuple(sorted(rows))


@st.fragment
def show_linked(
    table: EmbeddingTable, vectors: VectorTable, found: CorpusMap, inputs: Inputs
) -> None:
    """Draws the panels, what is selected in them, and the neighbours of one document.

    A fragment: a selection or another colour runs this alone, and fits nothing.

    Args:
        table: the embedded corpus.
        vectors: the same with the columns of its source.
        found: its map.
        inputs: of the page.
    """
    drawn = [panel for panel in found.panels if panel.points is not None]
    ids = [document.id for document in table.documents]
    place = {name: row for row, name in enumerate(ids)}
    selected = tuple(place[name] for name in state.SELECTED.get() if name in place)
    colours = _pick_colours(vectors) if drawn else Colouring("label")
    marks = _landmark_points(table, found, inputs, selected) if drawn else {}
    hover = document_hover(table)
    columns = st.columns(min(3, len(found.panels)))
    for number, (pooling, panel) in enumerate(zip(table.poolings, found.panels, strict=True)):
        with columns[number % len(columns)]:
            if panel.points is None:
                map_views.show_cosines(table, pooling, panel)
                continue
            figure = map_figure(
                panel.points,
                colours,
                hover,
                pooling.label,
                panel.placed.projection.method,
                selected,
                marks.get(panel.mode, ()),
                "lasso" if state.POINTER.get() == "lasso" else "pan",
            )
            _show_panel(figure, pooling, panel, ids)
            st.markdown(map_numbers.panel_numbers(panel))
    map_numbers.show_findings(found)
    if drawn:
        _show_selection(table, vectors, selected)
        _show_neighbours(table, found)


def _show_panel(
    figure: go.Figure, pooling: PoolingConfig, panel: MapPanel, ids: Sequence[str]
) -> None:
    key = f"map.{panel.mode.value}"

    def choose() -> None:
        rows = parse_rows(st.session_state[key], len(ids))
        state.SELECTED.set(tuple(ids[row] for row in rows))
        state.FOCUS.set(ids[rows[0]] if len(rows) == 1 else "")

    st.plotly_chart(
        figure,
        key=key,
        on_select=choose,
        selection_mode=("points", "box", "lasso"),
        config=CONFIG,
        alt=map_numbers.panel_alt(pooling, panel),
    )


def _pick_colours(vectors: VectorTable) -> Colouring:
    options = [str(name) for name in vectors.frame.columns if not str(name).startswith(HIDDEN)]
    options.sort(key=lambda name: list(COLOUR_NAMES).index(name) if name in COLOUR_NAMES else 99)
    if state.COLOUR.get() not in options:
        state.COLOUR.set("label")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Colour by",
            options,
            format_func=lambda name: COLOUR_NAMES.get(name, name),
            width=260,
            **state.COLOUR.widget(),
        )
        # Streamlit takes clicks for selections only while dragging selects nothing.
        st.segmented_control(
            "Select by",
            list(POINTER_NAMES),
            format_func=POINTER_NAMES.__getitem__,
            required=True,
            **state.POINTER.widget(),
        )
        st.toggle(
            "Landmark states of the selection",
            help="Draws where the states of a document's landmarks lie in the landmark panel, "
            f"joined to the document; for up to {MAX_DOCUMENTS} selected documents.",
            **state.LANDMARK_POINTS.widget(),
        )
        st.button(
            "Clear selection",
            key="map.clear",
            disabled=not state.SELECTED.get(),
            on_click=_clear,
            icon=":material/deselect:",
        )
    # The address follows a fragment only where the fragment writes it.
    state.sync_url((state.COLOUR, state.POINTER, state.LANDMARK_POINTS))
    name = state.COLOUR.get()
    return colour_values(
        COLOUR_NAMES.get(name, name) if name != "label" else name, vectors.column(name)
    )


def _clear() -> None:
    state.SELECTED.set(())
    state.FOCUS.set("")


def _landmark_points(
    table: EmbeddingTable, found: CorpusMap, inputs: Inputs, selected: Sequence[int]
) -> dict[PoolingMode, list[LandmarkPoints]]:
    """Returns the landmark states to draw, by panel, or says why there are none."""
    if not state.LANDMARK_POINTS.get():
        return {}
    panel = next((p for p in found.panels if p.mode is PoolingMode.LANDMARK), None)
    if panel is None or panel.points is None:
        st.caption(":orange[Landmark states have a place in the landmark panel alone.]")
        return {}
    if panel.placed.projection.place is None:
        st.caption(
            ":orange[t-SNE has no way to put further vectors into a layout; choose UMAP or PCA "
            "to see landmark states.]"
        )
        return {}
    if not selected or len(selected) > MAX_DOCUMENTS:
        st.caption(
            f":orange[Select 1 to {MAX_DOCUMENTS} documents to see their landmark states; "
            f"{len(selected):,} are selected.]"
        )
        return {}
    documents = tuple(table.documents[row] for row in selected)
    states = cache.get_landmark_states(
        inputs.encoder, documents, inputs.chunking, inputs.max_length
    )
    marks = []
    for row, item in zip(selected, states, strict=True):
        points = panel.placed.place(item.states) if len(item) else None
        if points is not None:
            marks.append(LandmarkPoints(row, points, panel.points[row], _hover(item.chunks)))
    st.caption(
        "Small diamonds in the landmark panel are the states of single landmarks, put into the "
        "layout as it stands, each joined to its document, whose vector is their mean. The "
        "layout does not keep means, so a document need not lie amid its landmarks. Vectors of "
        "differently trained variants are no one space: compare within this panel."
    )
    return {PoolingMode.LANDMARK: marks}


def _hover(chunks: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"landmark {number}<br>{wrap_hover(chunk[:90])}" for number, chunk in enumerate(chunks)
    )


def _show_selection(table: EmbeddingTable, vectors: VectorTable, selected: Sequence[int]) -> None:
    """Draws the table of selected documents, or of all."""
    rows = list(selected) or list(range(len(table)))
    st.markdown(
        f"**{len(selected):,} of {len(table):,} documents selected**"
        if selected
        else f"**{len(table):,} documents**; draw round points in any panel to select them in "
        "all; to click single ones, change `Select by`"
    )
    hidden = [str(c) for c in vectors.frame if str(c).startswith(("tokens_cut_", "fell_back_"))]
    frame = vectors.frame.drop(columns=hidden).iloc[rows]
    words = [" ".join(table.documents[row].text[:160].split()) for row in rows]
    st.dataframe(frame.assign(begins=words), hide_index=True, key="map.documents", height=260)


def _show_neighbours(table: EmbeddingTable, found: CorpusMap) -> None:
    """Draws the nearest documents of one under each pooling, in the full space."""
    titles = {document.id: document.title for document in table.documents}
    if state.FOCUS.get() not in titles:
        state.FOCUS.set("")
    st.selectbox(
        "Nearest neighbours of",
        ["", *titles],
        format_func=lambda name: titles.get(name, "(click a point above, or choose here)"),
        **state.FOCUS.widget(),
    )
    focus = state.FOCUS.get()
    if not focus:
        return
    row = list(titles).index(focus)
    near = neighbours_of(table.vectors, row)
    most = max((len(item.rows) for item in near.values()), default=0)
    frame = pd.DataFrame({"": range(1, most + 1)})
    for mode, item in near.items():
        frame[PoolingConfig(mode).label] = [
            f"{'● ' if shared else ''}{table.documents[other].title} ({cosine:.2f})"
            for other, cosine, shared in zip(
                item.rows.tolist(), item.cosines.tolist(), item.in_all.tolist(), strict=True
            )
        ]
    shared = int(next(iter(near.values())).in_all.sum())
    st.dataframe(frame, hide_index=True, key="map.neighbours")
    st.caption(
        f"By cosine in the full space, not on the map. ● stands under every pooling: {shared} of "
        f"{most} for {escape_markdown(titles[focus])}."
    )
