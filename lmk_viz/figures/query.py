"""A question against one document: the cosine of each landmark, by its place."""

import numpy as np
import plotly.graph_objects as go

from lmk_viz.config import PoolingMode
from lmk_viz.figures.theme import GREY, STYLES, finish
from lmk_viz.query_match import QueryMatch

__all__ = ["query_alt", "query_figure"]


def query_figure(match: QueryMatch) -> go.Figure:
    """Returns a bar a landmark over its chunk, with the pooled vector and the median as lines.

    Args:
        match: with at least one landmark.

    Raises:
        ValueError: when the document has no landmark.
    """
    best = match.best
    if best is None:
        raise ValueError("the document has no landmark; there is no bar to draw.")
    of = match.document
    widths = of.token_ends - of.token_starts
    style = STYLES[PoolingMode.LANDMARK]
    # The closest is labelled too, so that it can be told without its colour.
    colours = np.where(np.arange(len(of)) == best, style.colour, GREY)
    figure = go.Figure(
        go.Bar(
            x=of.token_starts + widths / 2,
            y=match.cosines,
            width=widths,
            name="each landmark",
            marker={"color": colours.tolist(), "line": {"width": 0}},
            showlegend=False,
            customdata=np.stack([of.chunks, of.token_starts, of.token_ends, match.ranks()], axis=1),
            hovertemplate="chunk %{customdata[0]}, tokens %{customdata[1]:,}-%{customdata[2]:,}"
            "<br>cosine %{y:.3f}, rank %{customdata[3]}<extra></extra>",
        )
    )
    ends = [int(of.token_starts[0]), int(of.token_ends[-1])]
    lines = (
        ("pooled vector", match.pooled, style.dash, style.colour),
        ("median landmark", match.median, "dash", GREY),
    )
    for name, value, dash, colour in lines:
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=[value, value],
                mode="lines",
                name=f"{name} {value:.3f}",
                line={"color": colour, "dash": dash, "width": 2},
                hovertemplate=f"{name}: %{{y:.3f}}<extra></extra>",
            )
        )
    figure.add_annotation(
        x=float(of.token_starts[best] + widths[best] / 2),
        y=float(match.cosines[best]),
        text=f"chunk {of.chunks[best]}",
        showarrow=False,
        yanchor="bottom" if match.cosines[best] >= 0 else "top",
        font={"size": 12},
    )
    figure.update_xaxes(title="text token that the chunk covers")
    figure.update_yaxes(title="cosine with the question", tickformat=".2f")
    return finish(figure, "Which landmark answers", 360, f"{len(of):,} landmarks")


def query_alt(match: QueryMatch) -> str:
    """Returns the figure in a sentence with its numbers."""
    best = match.best
    if best is None:
        return f"Cosine of the question with the pooled vector: {match.pooled:.3f}; no landmark."
    return (
        f"Cosine of the question with {len(match.cosines):,} landmarks: highest "
        f"{match.cosines[best]:.3f} at chunk {match.document.chunks[best]}, median "
        f"{match.median:.3f}, lowest {match.cosines.min():.3f}; with the pooled vector "
        f"{match.pooled:.3f}."
    )
