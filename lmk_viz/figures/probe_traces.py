"""What the probe figures are made of: lines, bands, error bars and panels over one axis."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.config import PoolingConfig
from lmk_viz.figures.theme import STYLES, error_bars
from lmk_viz.probes.curves import Estimate

__all__ = [
    "add_band",
    "add_errors",
    "add_line",
    "add_thin",
    "level_of",
    "numbers",
    "told",
    "two_panels",
]

BAND = 0.16
"""Opacity of an interval."""
UPPER, LOWER = (0.40, 1.0), (0.0, 0.30)
"""Heights of two panels over one axis."""


def two_panels(
    figure: go.Figure,
    title: str,
    tickformat: str,
    span: tuple[float, float] | None,
    heights: tuple[tuple[float, float], tuple[float, float]] = (UPPER, LOWER),
) -> None:
    """Puts a second panel under the first, over the same axis and with one hover for both."""
    upper, lower = heights
    figure.update_layout(
        yaxis={"domain": list(upper)},
        yaxis2={
            "domain": list(lower),
            "title": title,
            "tickformat": tickformat,
            "range": None if span is None else list(span),
            "rangemode": "normal" if span else "tozero",
        },
        xaxis={"anchor": "y2"},
        hovermode="x unified",
        hoversubplots="axis",
    )


def add_line(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    name: str,
    hover: str,
    lower: bool = False,
    axis: str = "",
    in_legend: bool = True,
    customdata: NDArray[np.float64] | None = None,
) -> None:
    """Adds a pooling's curve with its marks.

    Args:
        figure: changed.
        pooling: gives colour, dash and mark, and the group in the legend.
        x: places.
        y: values, as many.
        name: in the legend and the hover; escaped here for the hover.
        hover: what is said behind the name.
        lower: draw in the second panel.
        axis: draw on this y axis instead.
        in_legend: whether an upper line is named there; one in the lower panel never is.
        customdata: further values for the hover.
    """
    style = STYLES[pooling.mode]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            yaxis=axis or ("y2" if lower else "y"),
            mode="lines+markers",
            name=name,
            legendgroup=pooling.mode.value,
            showlegend=in_legend and not lower,
            line={"color": style.colour, "dash": style.dash, "width": 2},
            marker={"symbol": style.marker, "size": 7},
            customdata=customdata,
            hovertemplate=f"{escape(name)} {hover}<extra></extra>",
        )
    )


def add_thin(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    name: str,
    dash: str,
    axis: str = "y",
) -> None:
    """Adds a thin line of a pooling's colour, out of the legend: a control."""
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            yaxis=axis,
            mode="lines",
            name=name,
            legendgroup=pooling.mode.value,
            showlegend=False,
            line={"color": STYLES[pooling.mode].colour, "dash": dash, "width": 1},
            hovertemplate=f"{escape(name)} %{{y:.3f}}<extra></extra>",
        )
    )


def add_band(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    axis: str = "y",
) -> None:
    """Adds a closed band between two borders; places where one is unknown are left out."""
    known = np.isfinite(low) & np.isfinite(high)
    if not known.any():
        return
    colour = STYLES[pooling.mode].colour
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([x[known], x[known][::-1]]),
            y=np.concatenate([high[known], low[known][::-1]]),
            yaxis=axis,
            mode="lines",
            line={"width": 0},
            fill="toself",
            fillcolor=f"rgba({red}, {green}, {blue}, {BAND})",
            name=f"{pooling.label}, 95 % interval",
            legendgroup=pooling.mode.value,
            showlegend=False,
            hoverinfo="skip",
        )
    )


def add_errors(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    estimates: Sequence[Estimate],
    lower: bool,
) -> None:
    """Adds numbers with the bars of their intervals, in the upper or the lower panel."""
    style = STYLES[pooling.mode]
    values = numbers([e.value for e in estimates])
    low, high = (numbers([getattr(e, side) for e in estimates]) for side in ("low", "high"))
    figure.add_trace(
        go.Scatter(
            x=x,
            y=values,
            yaxis="y2" if lower else "y",
            mode="lines+markers",
            name=pooling.label,
            legendgroup=pooling.mode.value,
            showlegend=not lower,
            line={"color": style.colour, "dash": style.dash, "width": 1.2},
            marker={"symbol": style.marker, "size": 9},
            error_y=error_bars(values, low, high, thickness=1.5, width=4),
            hovertemplate=f"{pooling.label} %{{y:.3f}}<extra></extra>",
        )
    )


def level_of(curve: NDArray[np.float64], centred: bool) -> float:
    """Returns the mean that a curve is drawn less of: its own, or 0."""
    return float(curve.mean()) if centred else 0.0


def numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Returns values as an array, NaN for None."""
    return np.asarray([np.nan if value is None else value for value in values], dtype=np.float64)


def told(estimate: Estimate) -> str:
    """Returns an estimate in words, its interval in brackets."""
    if estimate.value is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
