"""Map panels: one pooling's documents on a plane."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.config import ProjectionMethod
from lmk_viz.embedding import EmbeddingTable
from lmk_viz.figures.theme import GREY, SEQUENTIAL, assign_colours, finish

__all__ = [
    "METHOD_LABELS",
    "Colouring",
    "LandmarkPoints",
    "colour_values",
    "document_hover",
    "map_figure",
    "wrap_hover",
]

WEBGL_FROM = 1000
"""Points above which the browser's SVG drawing gets slow."""
UNLABELLED = "no label"
NO_VALUE = "no value"
OTHERS = "all others"
MAX_CATEGORIES = 40
"""Categories with a colour of their own; the rarest beyond these share grey."""
HOVER_WIDTH = 42
"""Characters a line; a panel is a third of a page."""
FEW_NUMBERS = 6
"""So many distinct numbers or fewer are read as categories."""
METHOD_LABELS = {
    ProjectionMethod.UMAP: "UMAP",
    ProjectionMethod.PCA: "PCA",
    ProjectionMethod.TSNE: "t-SNE",
}


@dataclass(frozen=True, slots=True, eq=False)
class Colouring:
    """What the colours of a map stand for: categories, or a scale."""

    title: str
    categories: tuple[str | None, ...] | None = None
    """One a document; None of a document for none."""
    numbers: NDArray[np.float64] | None = None
    """In place of categories, shape (N,), NaN where there is none."""
    missing: str = UNLABELLED
    """What a document without a value is called."""


@dataclass(frozen=True, slots=True, eq=False)
class LandmarkPoints:
    """Where the landmark states of one document lie in a panel."""

    row: int
    """Of the document."""
    points: NDArray[np.float64]
    """One a landmark, shape (K, 2)."""
    mean: NDArray[np.float64]
    """Of the document's vector, shape (2,)."""
    hover: tuple[str, ...]
    """Escaped, one a landmark."""


def colour_values(title: str, values: Sequence[Any]) -> Colouring:
    """Returns the colouring of a column: a scale where it holds many numbers, else categories.

    Args:
        title: names the column.
        values: one a document; None and NaN are no value.
    """
    given = [None if value is None or value != value else value for value in values]
    present = [value for value in given if value is not None]
    is_number = all(
        isinstance(value, int | float | np.number) and not isinstance(value, bool)
        for value in present
    )
    if present and is_number and len(set(present)) > FEW_NUMBERS:
        numbers = np.array([np.nan if value is None else float(value) for value in given])
        return Colouring(title, numbers=numbers, missing=NO_VALUE)
    names = [None if value is None else str(value) for value in given]
    counts = Counter(name for name in names if name is not None)
    if len(counts) > MAX_CATEGORIES:
        # Ties go by name, so that a colour does not depend on the order of documents.
        ranked = sorted(counts, key=lambda name: (-counts[name], name))
        kept = set(ranked[: MAX_CATEGORIES - 1])
        names = [name if name is None or name in kept else OTHERS for name in names]
    return Colouring(title, tuple(names), missing=UNLABELLED if title == "label" else NO_VALUE)


def document_hover(table: EmbeddingTable) -> list[str]:
    """Returns what hovering a document shows, escaped: title, label, length, first words."""
    cut = table.was_cut
    return [
        f"<b>{wrap_hover(d.title[:80])}</b><br>{wrap_hover((d.label or UNLABELLED)[:80])} · "
        f"{table.tokens[i]:,} tokens{', cut' if cut[i] else ''}<br>"
        f"{wrap_hover(d.text[:90])}..."
        for i, d in enumerate(table.documents)
    ]


def wrap_hover(text: str) -> str:
    """Returns text escaped, in lines short enough for the box beside a point."""
    return "<br>".join(escape(line) for line in textwrap.wrap(text, HOVER_WIDTH))


def map_figure(
    points: NDArray[np.float64],
    colours: Colouring | Sequence[str | None],
    hover: Sequence[str],
    title: str,
    method: ProjectionMethod,
    selected: Sequence[int] = (),
    landmarks: Sequence[LandmarkPoints] = (),
    dragmode: str = "lasso",
) -> go.Figure:
    """Returns one panel of documents, coloured by a column and marked by category.

    Every point carries its row as custom data, so that a selection can be read from it.

    Args:
        points: shape (N, 2).
        colours: what is coloured by, or labels, one a row.
        hover: escaped text a row.
        title: names the pooling.
        method: named on the axes.
        selected: rows to bring out; none draws all alike.
        landmarks: landmark states to draw, joined to their document.
        dragmode: what dragging does at first: `lasso` draws round points, `pan` moves.
    """
    if not isinstance(colours, Colouring):
        colours = Colouring("label", tuple(colours))
    kind = "scattergl" if len(points) > WEBGL_FROM else "scatter"
    # Traces as dictionaries, since Plotly would build and copy each object twice.
    traces: list[dict[str, Any]] = []
    chosen = np.zeros(len(points), dtype=bool)
    chosen[list(selected)] = True
    texts = np.asarray(hover, dtype=object)
    for name, rows, marker in _groups(colours, len(points)):
        traces.append(
            {
                "type": kind,
                "x": points[rows, 0],
                "y": points[rows, 1],
                "mode": "markers",
                "name": escape(name[:60]),
                "marker": {
                    "size": 8 if len(points) <= WEBGL_FROM else 5,
                    "opacity": 0.85,
                    **marker,
                },
                "text": texts[rows],
                "customdata": rows,
                "hovertemplate": "%{text}<extra></extra>",
                "selectedpoints": np.flatnonzero(chosen[rows]) if chosen.any() else None,
                "unselected": {"marker": {"opacity": 0.17}},
                "selected": {"marker": {"opacity": 1.0}},
                "showlegend": colours.numbers is None or name == colours.missing,
            }
        )
    if landmarks:
        traces += _landmark_traces(kind, landmarks)
    figure = go.Figure(traces)
    axis = METHOD_LABELS[method]
    # Only distances can be read; the numbers on the axes mean nothing.
    frame = {
        "showticklabels": False,
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "mirror": True,
        "linecolor": GREY,
    }
    figure.update_xaxes(title=f"{axis} 1", **frame)
    figure.update_yaxes(title=f"{axis} 2", scaleanchor="x", scaleratio=1, **frame)
    figure.update_layout(dragmode=dragmode, uirevision=title, clickmode="event+select")
    finish(figure, title, height=470)
    # Without tick labels the axes need little room.
    return figure.update_layout(margin={"l": 36, "r": 12, "b": 40}, legend={"y": -0.12})


def _groups(colours: Colouring, n: int) -> list[tuple[str, NDArray[np.int64], dict[str, Any]]]:
    """Returns traces: a name, the rows in it and how their markers look."""
    if colours.numbers is not None:
        known = np.isfinite(colours.numbers)
        scale = {
            "color": colours.numbers[known],
            "colorscale": SEQUENTIAL,
            # Below the panel: beside it, a third of a narrow panel would go.
            "colorbar": {
                "title": {"text": escape(colours.title[:40]), "side": "bottom"},
                "orientation": "h",
                "thickness": 10,
                "len": 0.9,
                "y": -0.13,
                "yanchor": "top",
            },
        }
        found = [(colours.title, np.flatnonzero(known), scale)]
        if not known.all():
            found.append((colours.missing, np.flatnonzero(~known), {"color": GREY}))
        return found
    categories = colours.categories or (None,) * n
    members: dict[str | None, list[int]] = {}
    for row, name in enumerate(categories):
        members.setdefault(name, []).append(row)
    names = sorted(name for name in members if name not in (None, OTHERS))
    styles = assign_colours(names)
    found = []
    for name in (*names, *(rest for rest in (OTHERS, None) if rest in members)):
        colour, symbol = styles.get(name, (GREY, "circle")) if name else (GREY, "circle-open")
        rows = np.asarray(members[name], dtype=np.int64)
        shown = colours.missing if name is None else name
        found.append((shown, rows, {"color": colour, "symbol": symbol}))
    return found


def _landmark_traces(kind: str, landmarks: Sequence[LandmarkPoints]) -> list[dict[str, Any]]:
    """Returns landmark states, drawn small, each joined to its document by a thin line."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for found in landmarks:
        for x, y in found.points.tolist():
            xs += [x, float(found.mean[0]), None]
            ys += [y, float(found.mean[1]), None]
    every = np.concatenate([found.points for found in landmarks])
    lines = {
        "type": kind,
        "x": xs,
        "y": ys,
        "mode": "lines",
        "line": {"color": GREY, "width": 1},
        "opacity": 0.5,
        "hoverinfo": "skip",
        "showlegend": False,
        "name": "to the document",
        "text": [],
    }
    states = {
        "type": kind,
        "x": every[:, 0],
        "y": every[:, 1],
        "mode": "markers",
        "marker": {"size": 5, "color": GREY, "symbol": "diamond", "line": {"width": 0}},
        "name": "landmarks",
        "showlegend": False,
        "hovertext": [text for found in landmarks for text in found.hover],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": np.repeat(
            [found.row for found in landmarks], [len(found.points) for found in landmarks]
        ),
        "text": [],
    }
    return [lines, states]
