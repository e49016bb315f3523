"""Colours, dashes and margins that every figure shares.

A pooling has one colour, one dash and one marker everywhere, so that a figure can be read
without its colours. The hues keep apart under the common colour deficiencies and have enough
contrast on a white and on a dark ground.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode

__all__ = [
    "CATEGORY_COLOURS",
    "GREY",
    "SEQUENTIAL",
    "STYLES",
    "TraceStyle",
    "assign_colours",
    "error_bars",
    "finish",
    "landmark_marks",
]

GREY = "#8A8F98"
SEQUENTIAL = "Viridis"
"""Readable under the common colour deficiencies, and in grey."""


@dataclass(frozen=True, slots=True)
class TraceStyle:
    """How one pooling is drawn."""

    colour: str
    dash: str
    marker: str


STYLES = {
    PoolingMode.CLS: TraceStyle("#E0671B", "longdash", "circle"),
    PoolingMode.MEAN: TraceStyle("#3D8BD0", "dash", "square"),
    PoolingMode.LANDMARK: TraceStyle("#14946B", "solid", "diamond"),
    PoolingMode.EVERY_K: TraceStyle("#A060C8", "dot", "triangle-up"),
    PoolingMode.MULTI_CLS: TraceStyle("#B0891B", "dashdot", "x"),
    PoolingMode.LATENT_ATTENTION: TraceStyle("#C9467F", "longdashdot", "cross"),
}

CATEGORY_COLOURS = (
    "#3D8BD0",
    "#E0671B",
    "#14946B",
    "#A060C8",
    "#B0891B",
    "#D65C93",
    "#5B6FD8",
    "#7F8C2A",
    "#C0504D",
    "#2A9DA8",
)
CATEGORY_SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "cross",
    "x",
    "triangle-up",
    "star",
    "triangle-down",
    "pentagon",
    "hexagon",
)


def assign_colours(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns a colour and a marker for each name, in order; both repeat after ten.

    Marker and colour repeat out of step, so a hundred names stay distinguishable.
    """
    found = {}
    for i, name in enumerate(names):
        lap = i // len(CATEGORY_COLOURS)
        colour = CATEGORY_COLOURS[i % len(CATEGORY_COLOURS)]
        found[name] = (colour, CATEGORY_SYMBOLS[(i + lap) % len(CATEGORY_SYMBOLS)])
    return found


def landmark_marks(places: NDArray[np.integer], yaxis: str, **hover: str) -> go.Scatter:
    """Returns a tick at each landmark's place, on a y axis of its own.

    Args:
        places: text tokens before each landmark, shape (K,).
        yaxis: name of that axis.
        hover: `hovertemplate` or `hoverinfo`.
    """
    return go.Scatter(
        x=places,
        y=[0.0] * len(places),
        yaxis=yaxis,
        mode="markers",
        name="landmarks",
        marker={
            "symbol": "line-ns-open",
            "size": 9,
            "color": STYLES[PoolingMode.LANDMARK].colour,
        },
        **hover,
    )


def error_bars(
    values: Sequence[float] | NDArray[np.float64],
    lows: Sequence[float] | NDArray[np.float64],
    highs: Sequence[float] | NDArray[np.float64],
    **look: Any,
) -> dict[str, Any]:
    """Returns the bars of intervals that need not lie evenly round their values.

    Args:
        values: of the marks.
        lows: lower limits, as many.
        highs: upper limits, as many.
        look: colour, thickness, width.
    """
    return {
        "type": "data",
        "symmetric": False,
        "array": np.subtract(highs, values),
        "arrayminus": np.subtract(values, lows),
        **look,
    }


def finish(figure: go.Figure, title: str, height: int = 420, subtitle: str = "") -> go.Figure:
    """Returns the figure with the shared title, legend and margins.

    Args:
        figure: changed and returned.
        title: a few words, since Plotly does not wrap them on a narrow screen.
        height: in pixels.
        subtitle: what is averaged.
    """
    figure.update_layout(
        title={
            "text": title,
            "subtitle": {"text": subtitle, "font": {"size": 12, "color": GREY}},
            "x": 0,
            "xanchor": "left",
            "font": {"size": 15},
        },
        height=height,
        margin={"l": 64, "r": 16, "t": 64, "b": 56},
        legend={"orientation": "h", "yanchor": "top", "y": -0.22, "xanchor": "left", "x": 0},
        hoverlabel={"align": "left"},
    )
    return figure
