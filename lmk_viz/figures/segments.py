"""The home figure: which tenths of a document its vector is close to."""

from html import escape

import numpy as np
import plotly.graph_objects as go

from lmk_viz.figures.probe_traces import add_thin
from lmk_viz.figures.theme import GREY, STYLES, finish
from lmk_viz.probes import SegmentCosines

__all__ = ["segment_alt", "segment_figure"]


def segment_figure(
    result: SegmentCosines, title: str, subtitle: str, control: SegmentCosines | None = None
) -> go.Figure:
    """Returns how much closer each part is to the whole than unrelated text, by pooling.

    Args:
        result: with its unrelated control.
        title: a few words.
        subtitle: names the document; escaped here, since Plotly reads markup in it.
        control: the same on random weights, drawn thin.
    """
    figure = go.Figure()
    ranges = [f"{a:,}-{b:,}" for a, b in zip(result.borders[:-1], result.borders[1:], strict=True)]
    places = np.arange(1, len(ranges) + 1)
    for pooling in result.poolings:
        style = STYLES[pooling.mode]
        cosines = result.cosines[pooling.mode]
        figure.add_trace(
            go.Scatter(
                x=places,
                y=cosines - result.unrelated.get(pooling.mode, 0.0),
                mode="lines+markers",
                name=pooling.label,
                line={"color": style.colour, "dash": style.dash, "width": 2},
                marker={"symbol": style.marker, "size": 9},
                customdata=np.stack([np.asarray(ranges, dtype=object), cosines], axis=1),
                hovertemplate=f"{pooling.label}<br>tokens %{{customdata[0]}}<br>cosine "
                "%{customdata[1]:.3f}, above unrelated text %{y:.3f}<extra></extra>",
            )
        )
    if control is not None:
        for pooling in control.poolings:
            above = control.cosines[pooling.mode] - control.unrelated.get(pooling.mode, 0.0)
            name = f"{pooling.label}, random weights"
            add_thin(figure, pooling, places.astype(np.float64), above, name, "dashdot")
    figure.add_hline(y=0, line={"color": GREY, "dash": "dash"})
    figure.add_annotation(
        x=1,
        xref="paper",
        y=0,
        text="no closer than unrelated text",
        showarrow=False,
        xanchor="right",
        yanchor="bottom",
        font={"color": GREY, "size": 12},
    )
    figure.update_xaxes(title="part of the document, in order", dtick=1)
    figure.update_yaxes(title="cosine above unrelated text", tickformat=".2f")
    return finish(figure, title, 420, escape(subtitle[:60]))


def segment_alt(result: SegmentCosines) -> str:
    """Returns the home figure in a sentence with its numbers."""
    parts = []
    for pooling in result.poolings:
        values = result.cosines[pooling.mode] - result.unrelated.get(pooling.mode, 0.0)
        parts.append(
            f"{pooling.label} {np.nanmin(values):.2f} (part {int(np.nanargmin(values)) + 1}) to "
            f"{np.nanmax(values):.2f} (part {int(np.nanargmax(values)) + 1})"
        )
    return (
        f"Cosine of {len(result.borders) - 1} equal parts with the whole document, above that "
        f"of unrelated text: {'; '.join(parts)}."
    )
