"""Attention curves: by position, by distance, over documents; and what specials take."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.attention_profile import SCALARS, AttentionProfile, content_weights
from lmk_viz.config import PoolingMode
from lmk_viz.figures.theme import CATEGORY_COLOURS, GREY, STYLES, finish, landmark_marks

__all__ = [
    "ROW_NAMES",
    "Curve",
    "decay_alt",
    "decay_figure",
    "distance_alt",
    "distance_figure",
    "special_share_alt",
    "special_share_figure",
    "spread_figure",
]

ROW_NAMES = {PoolingMode.CLS: "CLS row", PoolingMode.LANDMARK: "mean landmark row"}


@dataclass(frozen=True, slots=True)
class Curve:
    """A profile drawn with others: which one it is, and how it is told apart."""

    profile: AttentionProfile
    name: str = ""
    """Put before the row's name; empty for the page's own encoder."""
    dash: str | None = None
    """None takes the row's own."""
    width: float = 2.5


def decay_figure(
    curves: Sequence[Curve],
    layers: Sequence[Sequence[int]],
    head: int | None,
    words: str,
    log: bool = True,
    landmarks: Sequence[int] = (),
) -> go.Figure:
    """Returns mean attention weight per text token against position.

    Args:
        curves: the page's own profile first, each with at least one text token.
        layers: layers averaged, for each curve.
        head: one head, or None for the mean over heads.
        words: names layers and heads.
        log: logarithmic weight axis; bins without any weight leave a gap there.
        landmarks: single landmarks of the first profile to draw too, when it kept them.
    """
    figure = go.Figure()
    for curve, chosen in zip(curves, layers, strict=True):
        for mode in curve.profile.rows:
            weights = curve.profile.weight_per_token(mode, chosen, head)
            _add_position_line(figure, curve, mode, weights, log)
    first = curves[0].profile
    if first.landmark_map is not None:
        for number, colour in zip(landmarks, CATEGORY_COLOURS[3:], strict=False):
            single = content_weights(first.landmark_map)[list(layers[0]), number].mean(axis=0)
            name = f"landmark {number} (mean over heads)"
            _add_line(figure, first, single / np.diff(first.edges), name, log, colour, "solid", 1.2)
    uniform = 1 / first.n_content
    figure.add_trace(
        go.Scatter(
            x=[0, first.n_content],
            y=[uniform, uniform],
            mode="lines",
            name=f"uniform, 1/n = {uniform:.2g}",
            line={"color": GREY, "dash": "dash", "width": 1.5},
            hovertemplate="uniform: every token alike<br>weight %{y:.3g}<extra></extra>",
        )
    )
    if len(first.landmark_tokens):
        hover = "a landmark stands behind token %{x:,}<extra></extra>"
        figure.add_trace(landmark_marks(first.landmark_tokens, "y2", hovertemplate=hover))
    figure.update_xaxes(title="position in the text (tokens)", range=[0, first.n_content])
    figure.update_yaxes(title="mean weight per text token")
    figure.update_layout(
        yaxis=_weight_axis(log),
        yaxis2={"overlaying": "y", "visible": False, "range": [-0.03, 1], "fixedrange": True},
    )
    return finish(figure, "Attention by position", 480, words)


def distance_figure(
    curves: Sequence[Curve],
    layers: Sequence[Sequence[int]],
    head: int | None,
    words: str,
    log: bool = True,
) -> go.Figure:
    """Returns mean attention weight per text token against signed distance.

    The axis is logarithmic to both sides: sign times log2(1 + distance). CLS stands first and
    sees to the right alone; landmarks see both ways.

    Args:
        curves: the page's own profile first.
        layers: layers averaged, for each curve.
        head: one head, or None for the mean over heads.
        words: names layers and heads.
        log: logarithmic weight axis.
    """
    figure = go.Figure()
    for curve, chosen in zip(curves, layers, strict=True):
        edges = curve.profile.distance_edges
        centres = (edges[:-1] + edges[1:] - 1) / 2
        names = [_range(a, b - 1) for a, b in pairwise(edges.tolist())]
        for mode in curve.profile.rows:
            style = STYLES[mode]
            weights = curve.profile.weight_by_distance(mode, chosen, head)
            label = _label(curve, mode)
            figure.add_trace(
                go.Scatter(
                    x=_folded(centres),
                    y=np.where(weights > 0, weights, np.nan) if log else weights,
                    mode="lines+markers",
                    name=label,
                    line={
                        "color": style.colour,
                        "dash": curve.dash or style.dash,
                        "width": curve.width,
                    },
                    marker={"symbol": style.marker, "size": 5},
                    customdata=names,
                    hovertemplate=f"{label}<br>distance %{{customdata}} tokens<br>weight "
                    "%{y:.3g} a token<extra></extra>",
                )
            )
    reach = int(curves[0].profile.distance_edges[-1])
    ticks = [0] + [s * 4**p for p in range(12) if 4**p <= reach for s in (-1, 1)]
    ticks.sort()
    figure.update_xaxes(
        title="distance, key position less query position (tokens)",
        tickvals=_folded(np.asarray(ticks, dtype=float)),
        ticktext=[f"{tick:,}" for tick in ticks],
    )
    figure.update_yaxes(title="mean weight per text token")
    figure.update_layout(yaxis=_weight_axis(log))
    return finish(figure, "Attention by distance", 440, words)


def spread_figure(
    profiles: Sequence[tuple[str, AttentionProfile]],
    layers: Sequence[int],
    head: int | None,
    words: str,
) -> go.Figure:
    """Returns each row's weight by relative position over several documents, with its spread.

    Args:
        profiles: name and profile of at least two documents.
        layers: layers averaged.
        head: one head, or None for the mean over heads.
        words: names layers and heads.
    """
    figure = go.Figure()
    grid = np.linspace(0.025, 0.975, 20)
    for mode, style in ((m, STYLES[m]) for m in ROW_NAMES):
        lines = []
        for _, profile in profiles:
            if mode in profile.rows:
                centres = (profile.edges[:-1] + profile.edges[1:]) / (2 * profile.n_content)
                weights = profile.weight_per_token(mode, layers, head) * profile.n_content
                lines.append(np.interp(grid, centres, weights))
        if not lines:
            continue
        low, middle, high = np.min(lines, axis=0), np.mean(lines, axis=0), np.max(lines, axis=0)
        figure.add_trace(
            go.Scatter(
                x=np.concatenate([grid, grid[::-1]]),
                y=np.concatenate([high, low[::-1]]),
                fill="toself",
                fillcolor=style.colour,
                opacity=0.18,
                line={"width": 0},
                hoverinfo="skip",
                name=f"{ROW_NAMES[mode]}: lowest to highest document",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=grid,
                y=middle,
                mode="lines+markers",
                name=f"{ROW_NAMES[mode]}: mean of {len(lines)} documents",
                line={"color": style.colour, "dash": style.dash, "width": 2.5},
                marker={"symbol": style.marker, "size": 6},
                customdata=np.stack([low, high], axis=1),
                hovertemplate=f"{ROW_NAMES[mode]}<br>at %{{x:.0%}} of the text<br>%{{y:.2f}} times "
                "uniform (%{customdata[0]:.2f} to %{customdata[1]:.2f})<extra></extra>",
            )
        )
    figure.add_hline(y=1, line={"color": GREY, "dash": "dash"})
    figure.update_xaxes(title="position in the text (share of its length)", tickformat=".0%")
    figure.update_yaxes(title="weight per token / uniform", rangemode="tozero")
    return finish(figure, "Over several documents", 440, words)


def special_share_figure(
    profile: AttentionProfile, layers: Sequence[int], head: int | None, words: str
) -> go.Figure:
    """Returns where the whole of each row goes: text, CLS, landmarks, other specials."""
    shares = {mode: profile.special_shares(mode, layers, head) for mode in profile.rows}
    names = [ROW_NAMES[mode] for mode in shares]
    parts = (
        ("text", GREY),
        ("CLS", STYLES[PoolingMode.CLS].colour),
        ("landmarks", STYLES[PoolingMode.LANDMARK].colour),
        ("other specials", STYLES[PoolingMode.EVERY_K].colour),
    )
    figure = go.Figure()
    for i, (part, colour) in enumerate(parts):
        values = [share[i] for share in shares.values()]
        figure.add_trace(
            go.Bar(
                y=names,
                x=values,
                name=part,
                orientation="h",
                marker={"color": colour},
                text=[f"{v:.0%}" if v >= 0.04 else "" for v in values],
                textposition="inside",
                insidetextanchor="middle",
                hovertemplate=f"%{{y}}<br>{part}: %{{x:.1%}}<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="share of the row", range=[0, 1], tickformat=".0%")
    figure.update_yaxes(automargin=True)
    figure = finish(figure, "What special tokens take", 260, words)
    figure.update_layout(legend={"y": -0.55, "traceorder": "normal"})
    return figure


def decay_alt(profile: AttentionProfile, layers: Sequence[int], head: int | None) -> str:
    """Returns the decay figure in a sentence with its numbers."""
    heads = slice(None) if head is None else slice(head, head + 1)
    parts = []
    for mode, row in profile.rows.items():
        # Bins can be wider than a tenth, so their weights do not tell.
        share = row.scalars[list(layers), heads, SCALARS.index("first_tenth")].mean()
        parts.append(
            f"the {ROW_NAMES[mode]} puts {share:.0%} of its text weight on the first tenth of the "
            "text"
        )
    return (
        f"Attention weight per token over {profile.n_content:,} text tokens: "
        f"{'; '.join(parts)}; uniform attention would put 10 %."
    )


def distance_alt(profile: AttentionProfile, layers: Sequence[int], head: int | None) -> str:
    """Returns the distance figure in a sentence with its numbers."""
    parts = []
    for mode in profile.rows:
        weights = profile.weight_by_distance(mode, layers, head)
        edges = profile.distance_edges
        best = int(np.nanargmax(weights))
        parts.append(
            f"the {ROW_NAMES[mode]} weighs tokens at distance "
            f"{_range(edges[best], edges[best + 1] - 1)} most, {weights[best]:.2g} each"
        )
    return (
        f"Attention weight per token by distance: {'; '.join(parts)}; uniform is "
        f"{1 / profile.n_content:.2g}."
    )


def special_share_alt(profile: AttentionProfile, layers: Sequence[int], head: int | None) -> str:
    """Returns the share figure in a sentence with its numbers."""
    parts = []
    for mode in profile.rows:
        text, cls, landmark, other = profile.special_shares(mode, layers, head)
        parts.append(
            f"the {ROW_NAMES[mode]} puts {text:.0%} on text, {cls:.0%} on CLS, {landmark:.0%} on "
            f"landmarks, {other:.0%} on other specials"
        )
    return "; ".join(parts)


def _add_position_line(
    figure: go.Figure,
    curve: Curve,
    mode: PoolingMode,
    weights: NDArray[np.float64],
    log: bool,
) -> None:
    style = STYLES[mode]
    dash = curve.dash or style.dash
    _add_line(
        figure, curve.profile, weights, _label(curve, mode), log, style.colour, dash, curve.width
    )


def _add_line(
    figure: go.Figure,
    profile: AttentionProfile,
    weights: NDArray[np.float64],
    name: str,
    log: bool,
    colour: str,
    dash: str,
    width: float,
) -> None:
    ranges = [f"{a:,}-{b:,}" for a, b in zip(profile.edges[:-1], profile.edges[1:], strict=True)]
    figure.add_trace(
        go.Scatter(
            x=(profile.edges[:-1] + profile.edges[1:]) / 2,
            # A logarithm has no place for zero: outside a local window the line stops.
            y=np.where(weights > 0, weights, np.nan) if log else weights,
            mode="lines",
            name=name,
            line={"color": colour, "dash": dash, "width": width},
            customdata=ranges,
            hovertemplate=f"{name}<br>tokens %{{customdata}}<br>weight %{{y:.3g}} a token"
            "<extra></extra>",
        )
    )


def _label(curve: Curve, mode: PoolingMode) -> str:
    return f"{curve.name}, {ROW_NAMES[mode]}" if curve.name else ROW_NAMES[mode]


def _folded(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns distances on an axis that is logarithmic to both sides of zero."""
    folded: NDArray[np.float64] = np.sign(distances) * np.log2(1 + np.abs(distances))
    return folded


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _weight_axis(log: bool) -> dict[str, object]:
    """Returns the weight axis; a logarithmic one has ticks at 1, 2 and 5 of each decade."""
    if not log:
        return {"type": "linear", "rangemode": "tozero"}
    ticks = [digit * 10.0**power for power in range(-8, 1) for digit in (1, 2, 5)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [f"{tick:.8f}".rstrip("0").rstrip(".") for tick in ticks],
    }
