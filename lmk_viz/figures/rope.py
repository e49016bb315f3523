"""The rotary kernel by distance."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.figures.theme import CATEGORY_COLOURS, GREY, finish

__all__ = ["rope_alt", "rope_figure"]


def rope_figure(
    kernels: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    distances: NDArray[np.float64],
    words: str,
) -> go.Figure:
    """Returns the rotary kernel by distance, raw and smoothed, for each kind of layer.

    Args:
        kernels: raw and smoothed values by kind of layer, each shape (M,).
        distances: in positions, shape (M,), rising from 1.
        words: names the head size and encoder.
    """
    figure = go.Figure()
    for (kind, (raw, smooth)), colour in zip(kernels.items(), CATEGORY_COLOURS, strict=False):
        for values, name, width, opacity in (
            (raw, f"{kind} layers, raw", 1.0, 0.45),
            (smooth, f"{kind} layers, mean over ±16", 2.5, 1.0),
        ):
            figure.add_trace(
                go.Scatter(
                    x=distances,
                    y=np.round(values, 4),
                    mode="lines",
                    name=name,
                    opacity=opacity,
                    line={"color": colour, "width": width},
                    hovertemplate=name + "<br>distance %{x:,.0f}<br>%{y:.3f}<extra></extra>",
                )
            )
    figure.add_hline(y=0, line={"color": GREY, "dash": "dash"})
    figure.update_xaxes(title="distance (tokens)", type="log")
    figure.update_yaxes(title="kernel, 1 at distance 0")
    return finish(figure, "Rotary kernel", 380, words)


def rope_alt(
    kernels: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    distances: NDArray[np.float64],
) -> str:
    """Returns the kernel figure in a sentence with its numbers."""
    places = [0, len(distances) // 2, len(distances) - 1]
    return "; ".join(
        f"{kind} layers, smoothed: "
        + ", ".join(f"{smooth[i]:.2f} at distance {distances[i]:,.0f}" for i in places)
        for kind, (_, smooth) in kernels.items()
    )
