"""Attention heat maps: layer by head, and landmark by position."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.attention_profile import SCALARS, AttentionProfile, content_weights
from lmk_viz.config import PoolingMode
from lmk_viz.figures.attention import ROW_NAMES
from lmk_viz.figures.theme import SEQUENTIAL, STYLES, finish

__all__ = [
    "MAP_SCALARS",
    "head_map_alt",
    "head_map_figure",
    "head_values",
    "landmark_map_alt",
    "landmark_map_figure",
]

MAX_MAP_BINS = 128
MAX_MAP_LANDMARKS = 256
"""Rows and columns of the landmark map that are sent to the browser at most."""

MAP_SCALARS = {
    "first_tenth": ("mass on the first tenth", 0.1),
    "centre_of_mass": ("centre of mass (0 start, 1 end)", 0.5),
    "half_mass_position": ("position of half the mass", 0.5),
    "entropy": ("entropy / log n", 1.0),
    "landmark_share": ("share on landmarks", None),
}
"""What the layer x head map can show, and what even attention would have."""


def head_values(profile: AttentionProfile, mode: PoolingMode, scalar: str) -> NDArray[np.float32]:
    """Returns one of `MAP_SCALARS` in every layer and head, shape (L, H)."""
    row = profile.rows[mode]
    if scalar == "landmark_share":
        return row.special[:, :, 1]
    return row.scalars[:, :, SCALARS.index(scalar)]


def head_map_figure(
    profile: AttentionProfile, mode: PoolingMode, scalar: str, chosen: tuple[int, int] | None
) -> go.Figure:
    """Returns a layer x head heat map of one number of the rows.

    Args:
        profile: of one text.
        mode: whose row.
        scalar: one of `MAP_SCALARS`.
        chosen: layer and head that the curves show, framed.
    """
    values = head_values(profile, mode, scalar)
    title, even = MAP_SCALARS[scalar]
    layers = [f"L{i} {kind.value}" for i, kind in enumerate(profile.layer_kinds)]
    heads = [f"H{i}" for i in range(profile.n_heads)]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=heads,
            y=layers,
            colorscale=SEQUENTIAL,
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 14},
            hovertemplate="%{y}, %{x}<br>" + title + " %{z:.3f}<extra></extra>",
        )
    )
    # A heat map cannot be clicked in every front end; its cells' centres can.
    figure.add_trace(
        go.Scatter(
            x=[head for _ in layers for head in heads],
            y=[layer for layer in layers for _ in heads],
            mode="markers",
            marker={"size": 18, "opacity": 0, "symbol": "square"},
            customdata=[[i, j] for i in range(len(layers)) for j in range(len(heads))],
            text=[f"{v:.3f}" for v in values.reshape(-1)],
            hovertemplate="%{y}, %{x}<br>" + title + " %{text}<extra></extra>",
            showlegend=False,
        )
    )
    if chosen is not None:
        layer, head = chosen
        figure.add_shape(
            type="rect",
            x0=head - 0.5,
            x1=head + 0.5,
            y0=layer - 0.5,
            y1=layer + 0.5,
            line={"color": STYLES[PoolingMode.CLS].colour, "width": 3},
        )
    figure.update_xaxes(title="head", fixedrange=True)
    figure.update_yaxes(title="layer", autorange="reversed", fixedrange=True)
    words = f"{ROW_NAMES[mode]}: {title}" + (f"; even attention {even:g}" if even else "")
    return finish(figure, "Layer by head", 180 + 26 * len(layers), words)


def landmark_map_figure(profile: AttentionProfile, layers: Sequence[int], words: str) -> go.Figure:
    """Returns each landmark's weight per text token by position, by uniform, as a heat map.

    Args:
        profile: with its landmark map kept.
        layers: layers averaged.
        words: names them.

    Raises:
        ValueError: when the profile kept no landmark.
    """
    ratio, edges, places = _landmark_ratio(profile, layers)
    # Powers of two round 1: even attention lies in the middle of the scale.
    z = np.log2(np.maximum(ratio, 2.0**-6))
    bound = max(1.0, float(np.abs(z).max()))
    ticks = np.arange(-int(bound), int(bound) + 1)
    figure = go.Figure(
        go.Heatmap(
            z=np.round(z, 3),
            x=(edges[:-1] + edges[1:]) / 2,
            y=places,
            zmid=0,
            zmin=-bound,
            zmax=bound,
            colorscale="RdBu_r",
            customdata=np.round(ratio, 2),
            colorbar={
                "title": {"text": "weight / uniform", "side": "right"},
                "tickvals": ticks,
                "ticktext": [f"{2.0**t:g}×" for t in ticks],
                "thickness": 14,
            },
            hovertemplate="landmark %{y} on tokens round %{x:.0f}<br>%{customdata}× uniform"
            "<extra></extra>",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=profile.landmark_tokens,
            y=np.arange(len(profile.landmark_tokens)),
            mode="markers",
            name="the landmark itself",
            marker={"color": "#111111", "size": 4, "symbol": "diamond"},
            hoverinfo="skip",
        )
    )
    figure.update_xaxes(title="position in the text (tokens)", range=[0, profile.n_content])
    figure.update_yaxes(title="landmark, in order", autorange="reversed")
    return finish(figure, "Landmark by position", 460, words)


def head_map_alt(profile: AttentionProfile, mode: PoolingMode, scalar: str) -> str:
    """Returns the layer x head map in a sentence with its numbers."""
    values = head_values(profile, mode, scalar)
    low = np.unravel_index(int(values.argmin()), values.shape)
    high = np.unravel_index(int(values.argmax()), values.shape)
    return (
        f"{ROW_NAMES[mode]}, {MAP_SCALARS[scalar][0]} in {values.shape[0]} layers by "
        f"{values.shape[1]} heads: lowest {values[low]:.3f} at L{low[0]} H{low[1]}, highest "
        f"{values[high]:.3f} at L{high[0]} H{high[1]}, mean {values.mean():.3f}"
    )


def landmark_map_alt(profile: AttentionProfile, layers: Sequence[int]) -> str:
    """Returns the landmark map in a sentence with its numbers."""
    ratio, edges, places = _landmark_ratio(profile, layers)
    tokens = profile.landmark_tokens[places.astype(int)]
    own = np.clip(np.searchsorted(edges, tokens - 1, side="right") - 1, 0, ratio.shape[1] - 1)
    near = ratio[np.arange(len(ratio)), own].mean()
    return (
        f"{len(ratio)} rows of landmarks by {ratio.shape[1]} position bins: a landmark weighs the "
        f"bin it stands in {near:.1f} times as much as even attention would, on average"
    )


def _landmark_ratio(
    profile: AttentionProfile, layers: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns weight by uniform, bin edges and landmark numbers, small enough to be sent.

    Neighbouring bins are merged and neighbouring landmarks averaged where there are many.
    """
    if profile.landmark_map is None:
        raise ValueError("this profile kept no landmarks; ask for keep_landmarks.")
    weights = content_weights(profile.landmark_map[list(layers)]).mean(axis=0)  # (K, N)
    step = -(-weights.shape[1] // MAX_MAP_BINS)
    starts = np.arange(0, weights.shape[1], step)
    edges = np.append(profile.edges[:-1][starts], profile.edges[-1])
    weights = np.add.reduceat(weights, starts, axis=1)
    group = -(-len(weights) // MAX_MAP_LANDMARKS)
    firsts = np.arange(0, len(weights), group)
    sizes = np.diff(np.append(firsts, len(weights)))
    weights = np.add.reduceat(weights, firsts, axis=0) / sizes[:, None]
    ratio: NDArray[np.float64] = weights / np.diff(edges) * profile.n_content
    return ratio, edges, firsts + (sizes - 1) / 2
