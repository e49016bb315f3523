"""Attention figures: decay over positions, and what specials take."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.attention import SCALARS, AttentionProfile
from lmk_viz.config import PoolingMode
from lmk_viz.figures.theme import CATEGORY_COLOURS, GREY, STYLES, finish

__all__ = [
    "decay_alt",
    "decay_figure",
    "special_share_alt",
    "special_share_figure",
    "special_shares",
]

ROW_NAMES = {PoolingMode.CLS: "CLS row", PoolingMode.LANDMARK: "mean landmark row"}


def decay_figure(
    profile: AttentionProfile,
    layers: Sequence[int],
    head: int | None,
    words: str,
    log: bool = True,
    control: AttentionProfile | None = None,
    landmarks: Sequence[int] = (),
) -> go.Figure:
    """Returns mean attention weight per text token against position.

    Args:
        profile: with at least one text token.
        layers: layers averaged, at least one.
        head: one head, or None for the mean over heads.
        words: names layers and heads.
        log: logarithmic weight axis; bins without any weight leave a gap there.
        control: the same input through random weights, drawn thin.
        landmarks: single landmarks to draw too, when the profile kept them.
    """
    figure = go.Figure()
    centres = (profile.edges[:-1] + profile.edges[1:]) / 2
    ranges = [f"{a:,}-{b:,}" for a, b in zip(profile.edges[:-1], profile.edges[1:], strict=True)]

    def add(weights: NDArray[np.float64], name: str, hint: str, **style: object) -> None:
        figure.add_trace(
            go.Scatter(
                x=centres,
                # A logarithm has no place for zero: outside a local window the line stops.
                y=np.where(weights > 0, weights, np.nan) if log else weights,
                mode="lines",
                name=name,
                customdata=ranges,
                hovertemplate=f"{hint}<br>tokens %{{customdata}}<br>weight %{{y:.3g}} a token"
                "<extra></extra>",
                **style,
            )
        )

    for mode, row in profile.rows().items():
        style = STYLES[mode]
        weights = profile.weight_per_token(row.mass, layers, head)
        add(
            weights,
            ROW_NAMES[mode],
            ROW_NAMES[mode],
            line={"color": style.colour, "dash": style.dash, "width": 2.5},
        )
    if profile.landmark_map is not None:
        for number, colour in zip(landmarks, CATEGORY_COLOURS[3:], strict=False):
            single = profile.content_weights(profile.landmark_map)[list(layers), number]
            add(
                single.mean(axis=0) / np.diff(profile.edges),
                f"landmark {number} (mean over heads)",
                f"landmark {number}",
                line={"width": 1.2, "color": colour},
            )
    if control is not None:
        for mode, row in control.rows().items():
            add(
                control.weight_per_token(row.mass, layers, head),
                f"random weights, {ROW_NAMES[mode]}",
                f"random weights, {ROW_NAMES[mode]}",
                line={"color": STYLES[mode].colour, "dash": "dot", "width": 1.2},
                opacity=0.7,
            )
    uniform = 1 / profile.n_content
    figure.add_trace(
        go.Scatter(
            x=[0, profile.n_content],
            y=[uniform, uniform],
            mode="lines",
            name=f"uniform, 1/n = {uniform:.2g}",
            line={"color": GREY, "dash": "dash", "width": 1.5},
            hovertemplate="uniform: every token alike<br>weight %{y:.3g}<extra></extra>",
        )
    )
    if len(profile.landmark_tokens):
        figure.add_trace(
            go.Scatter(
                x=profile.landmark_tokens,
                y=[0.0] * len(profile.landmark_tokens),
                yaxis="y2",
                mode="markers",
                name="landmarks",
                marker={
                    "symbol": "line-ns-open",
                    "size": 9,
                    "color": STYLES[PoolingMode.LANDMARK].colour,
                },
                hovertemplate="a landmark stands behind token %{x:,}<extra></extra>",
            )
        )
    figure.update_xaxes(title="position in the text (tokens)", range=[0, profile.n_content])
    figure.update_yaxes(title="mean weight per text token")
    figure.update_layout(
        yaxis=_log_axis() if log else {"type": "linear", "rangemode": "tozero"},
        yaxis2={
            "overlaying": "y",
            "visible": False,
            "range": [-0.03, 1],
            "fixedrange": True,
        },
    )
    return finish(figure, "Attention by position", 480, words)


def _log_axis() -> dict[str, object]:
    """Returns a logarithmic axis with ticks at 1, 2 and 5 of each decade, written out."""
    ticks = [digit * 10.0**power for power in range(-8, 1) for digit in (1, 2, 5)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [f"{tick:.8f}".rstrip("0").rstrip(".") for tick in ticks],
    }


def decay_alt(profile: AttentionProfile, layers: Sequence[int], head: int | None) -> str:
    """Returns the decay figure in a sentence with its numbers."""
    heads = slice(None) if head is None else slice(head, head + 1)
    parts = []
    for mode, row in profile.rows().items():
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


def special_shares(
    profile: AttentionProfile, layers: Sequence[int], head: int | None
) -> dict[PoolingMode, tuple[float, ...]]:
    """Returns the share of each row on text, CLS, landmarks and other specials."""
    chosen = list(layers)
    heads = slice(None) if head is None else slice(head, head + 1)
    return {
        mode: (
            float(row.mass[chosen, heads].sum(axis=-1).mean()),
            *(float(v) for v in row.special[chosen, heads].mean(axis=(0, 1))),
        )
        for mode, row in profile.rows().items()
    }


def special_share_figure(
    profile: AttentionProfile, layers: Sequence[int], head: int | None, words: str
) -> go.Figure:
    """Returns where the whole of each row goes: text, CLS, landmarks, other specials."""
    shares = special_shares(profile, layers, head)
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


def special_share_alt(profile: AttentionProfile, layers: Sequence[int], head: int | None) -> str:
    """Returns the share figure in a sentence with its numbers."""
    return "; ".join(
        f"the {ROW_NAMES[mode]} puts {text:.0%} on text, {cls:.0%} on CLS, {landmark:.0%} on "
        f"landmarks, {other:.0%} on other specials"
        for mode, (text, cls, landmark, other) in special_shares(profile, layers, head).items()
    )
