"""Map panels: one pooling's documents on a plane."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.config import ProjectionMethod
from lmk_viz.embedding import EmbeddingTable
from lmk_viz.figures.theme import GREY, assign_colours, finish

__all__ = ["document_hover", "map_figure"]

WEBGL_FROM = 1000
"""Points above which the browser's SVG drawing gets slow."""
UNLABELLED = "no label"


def document_hover(table: EmbeddingTable) -> list[str]:
    """Returns what hovering a document shows, escaped: title, label, length, first words."""
    cut = table.was_cut
    return [
        f"<b>{escape(d.title[:80])}</b><br>{escape(d.label or UNLABELLED)} · "
        f"{table.tokens[i]:,} tokens{', cut' if cut[i] else ''}<br>"
        f"{escape(' '.join(d.text[:90].split()))}..."
        for i, d in enumerate(table.documents)
    ]


def map_figure(
    points: NDArray[np.float64],
    labels: Sequence[str | None],
    hover: Sequence[str],
    title: str,
    method: ProjectionMethod,
) -> go.Figure:
    """Returns one panel of documents, coloured and marked by label.

    Args:
        points: shape (N, 2).
        labels: one a row.
        hover: escaped text a row.
        title: names the pooling.
        method: named on the axes.
    """
    names = sorted({label for label in labels if label is not None})
    styles = assign_colours(names)
    rows: dict[str, list[int]] = {name: [] for name in names}
    for row, label in enumerate(labels):
        rows.setdefault(label if label is not None else UNLABELLED, []).append(row)
    scatter = go.Scattergl if len(points) > WEBGL_FROM else go.Scatter
    figure = go.Figure()
    for name, members in rows.items():
        colour, symbol = styles.get(name, (GREY, "circle"))
        figure.add_trace(
            scatter(
                x=points[members, 0],
                y=points[members, 1],
                mode="markers",
                name=escape(name),
                marker={"color": colour, "symbol": symbol, "size": 8, "opacity": 0.85},
                text=[hover[row] for row in members],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    kind = "UMAP" if method is ProjectionMethod.UMAP else "PCA"
    # Only distances can be read; the numbers on the axes mean nothing.
    frame = {
        "showticklabels": False,
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "mirror": True,
        "linecolor": GREY,
    }
    figure.update_xaxes(title=f"{kind} 1", **frame)
    figure.update_yaxes(title=f"{kind} 2", scaleanchor="x", scaleratio=1, **frame)
    return finish(figure, title, height=470)
