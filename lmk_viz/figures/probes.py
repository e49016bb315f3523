"""Probe figures: needle by depth, influence beside attention, shuffle, dilution."""

from html import escape

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.figures.probe_traces import (
    add_band,
    add_line,
    add_thin,
    level_of,
    numbers,
    told,
    two_panels,
)
from lmk_viz.figures.theme import GREY, STYLES, finish, landmark_marks
from lmk_viz.probes.dilution import Dilution
from lmk_viz.probes.influence import Influence
from lmk_viz.probes.needle import NeedleResult
from lmk_viz.probes.shuffle import ShuffleCosines

__all__ = [
    "dilution_alt",
    "dilution_figure",
    "influence_alt",
    "influence_figure",
    "needle_alt",
    "needle_figure",
    "shuffle_alt",
    "shuffle_figure",
]


def needle_figure(
    result: NeedleResult, control: NeedleResult | None = None, centred: bool = False
) -> go.Figure:
    """Returns the cosine of the question by the needle's depth, over the share ranked first.

    Args:
        result: at least one needle.
        control: the same run on random weights, drawn thin.
        centred: draw each curve less its own mean, so that shapes can be compared.
    """
    figure = go.Figure()
    for pooling in result.poolings:
        curve = result.curves[pooling.mode]
        level = level_of(curve.mean, centred)
        add_band(figure, pooling, curve.depths, curve.low - level, curve.high - level)
        add_line(figure, pooling, curve.depths, curve.mean - level, pooling.label, "%{y:.3f}")
        if len(result.needles) > 1:
            others = result.unrelated[pooling.mode]
            others = others - level_of(others, centred)
            name = f"{pooling.label}, other questions"
            add_thin(figure, pooling, curve.depths, others, name, "dot")
            hits = result.hits[pooling.mode].mean(axis=(0, 1))
            add_line(figure, pooling, curve.depths, hits, pooling.label, "%{y:.0%}", lower=True)
    if control is not None:
        for pooling in control.poolings:
            curve = control.curves[pooling.mode]
            name = f"{pooling.label}, random weights"
            mean = curve.mean - level_of(curve.mean, centred)
            add_thin(figure, pooling, curve.depths, mean, name, "dashdot")
    ranked = len(result.needles) > 1
    figure.update_xaxes(title="depth of the needle (0 the start, 1 the end)", range=[-0.03, 1.03])
    figure.update_layout(
        yaxis={
            "title": "cosine less its mean" if centred else "cosine with its question",
            "tickformat": ".2f",
        }
    )
    if ranked:
        chance = 1 / len(result.needles)
        figure.add_hline(y=chance, yref="y2", line={"color": GREY, "dash": "dash", "width": 1.5})
        two_panels(figure, "ranked first", ".0%", (-0.03, 1.03))
    words = (
        f"{len(result.needles)} needles, {len(result.fillers)} "
        f"filler{'s' * (len(result.fillers) > 1)}, {result.config.tokens:,} tokens"
    )
    return finish(figure, "Needle by depth", 560 if ranked else 420, words)


def needle_alt(result: NeedleResult) -> str:
    """Returns the needle figure in a sentence with its numbers."""
    parts = [
        f"{pooling.label} {curve.mean[0]:.3f} at the start, {curve.mean[-1]:.3f} at the end, "
        f"PSI {told(curve.psi)}, slope {told(curve.slope)}"
        for pooling in result.poolings
        if (curve := result.curves[pooling.mode]).count
    ]
    return (
        f"Cosine of {len(result.needles)} questions with documents of {result.config.tokens:,} "
        f"tokens by the depth of the needle: {'; '.join(parts)}."
    )


def influence_figure(
    result: Influence,
    subtitle: str,
    as_share: bool = True,
    control: Influence | None = None,
) -> go.Figure:
    """Returns the influence of each part over the attention on it, on one axis of tokens.

    Args:
        result: of one document.
        subtitle: names the document; escaped here, since Plotly reads markup in it.
        as_share: divide each pooling's influence and floor by its sum, so that poolings whose
            vectors move by different amounts can be compared in shape.
        control: the same run on random weights, drawn thin.
    """
    figure = go.Figure()
    borders = result.borders
    centres = (borders[:-1] + borders[1:]) / 2
    for pooling in result.poolings:
        mode = pooling.mode
        total = result.summaries[mode].total
        scale = 1 / total if as_share and total else 1.0
        raw = result.values[mode]
        add_line(
            figure,
            pooling,
            centres,
            raw * scale,
            pooling.label,
            "%{y:.3f} (%{customdata:.4f})",
            customdata=raw,
        )
        if mode in result.floor:
            floor = result.floor[mode] * scale
            add_thin(figure, pooling, centres, floor, f"{pooling.label}, neutral filler", "dot")
        if mode in result.attention:
            shares = result.attention[mode]
            name = f"{pooling.label}, attention"
            add_line(figure, pooling, centres, shares, name, "%{y:.1%}", lower=True)
    if control is not None:
        for pooling in control.poolings:
            total = control.summaries[pooling.mode].total
            drawn = control.values[pooling.mode] * (1 / total if as_share and total else 1.0)
            name = f"{pooling.label}, random weights"
            add_thin(figure, pooling, centres, drawn, name, "dashdot")
    has_attention = bool(result.attention)
    if has_attention:
        even = np.diff(borders) / borders[-1]
        figure.add_trace(
            go.Scatter(
                x=centres,
                y=even,
                yaxis="y2",
                mode="lines",
                name="even",
                line={"color": GREY, "dash": "dash", "width": 1.5},
                hoverinfo="skip",
            )
        )
    _add_landmarks(figure, result.landmark_tokens)
    figure.update_layout(
        xaxis={
            "title": "position in the text (tokens)",
            "range": [0, int(borders[-1])],
            "tickformat": ",d",
        },
        yaxis={
            "title": "share of the influence" if as_share else "1 - cosine without it",
            "rangemode": "tozero",
        },
    )
    figure.update_layout(hovermode="x unified")
    if has_attention:
        two_panels(figure, "attention on it", ".0%", None)
    return finish(figure, "Influence and attention", 580, escape(subtitle[:60]))


def influence_alt(result: Influence) -> str:
    """Returns the influence figure in a sentence with its numbers."""
    parts = []
    for pooling in result.poolings:
        summary = result.summaries[pooling.mode]
        first = "undefined" if summary.first_tenth is None else f"{summary.first_tenth:.0%}"
        words = f"{pooling.label} has {first} of its influence on the first tenth"
        if summary.attention_correlation is not None:
            words += f" (correlation with attention {summary.attention_correlation:.2f})"
        parts.append(words)
    return (
        f"Influence of {len(result.borders) - 1} {result.unit.value}s on the document's vector, by "
        f"position, over the attention on them: {'; '.join(parts)}."
    )


def shuffle_figure(
    result: ShuffleCosines, subtitle: str, control: ShuffleCosines | None = None
) -> go.Figure:
    """Returns the cosine of shuffled documents with the original, a column a pooling.

    Args:
        result: of one document.
        subtitle: names the document; escaped here.
        control: the same run on random weights; the mean of its random orders is drawn.
    """
    figure = go.Figure()
    for place, pooling in enumerate(result.poolings):
        mode = pooling.mode
        style, values = STYLES[mode], result.cosines[mode]
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        figure.add_trace(
            go.Scatter(
                x=place + spread,
                y=values,
                mode="markers",
                name=pooling.label,
                marker={"color": style.colour, "symbol": style.marker, "size": 8, "opacity": 0.6},
                hovertemplate=f"{pooling.label}<br>random order, cosine %{{y:.3f}}<extra></extra>",
            )
        )
        on_random = control.means[mode].value if control is not None else None
        for name, value, symbol in (
            ("reversed", result.reversed[mode], "arrow-left"),
            ("unrelated text", result.unrelated.get(mode), "x-thin-open"),
            ("random weights", on_random, "diamond-open"),
        ):
            if value is not None:
                figure.add_trace(
                    go.Scatter(
                        x=[place + 0.32],
                        y=[value],
                        mode="markers",
                        name=name,
                        legendgroup=name,
                        showlegend=place == 0,
                        marker={"color": GREY, "symbol": symbol, "size": 10, "line": {"width": 2}},
                        hovertemplate=f"{pooling.label}, {name}<br>cosine %{{y:.3f}}"
                        "<extra></extra>",
                    )
                )
    # Short names, as long ones are turned on a narrow screen and run into the legend.
    labels = [pooling.mode.value for pooling in result.poolings]
    figure.update_xaxes(tickvals=list(range(len(labels))), ticktext=labels, tickangle=0)
    figure.update_yaxes(title="cosine with the original", tickformat=".2f")
    words = f"{escape(subtitle[:60])}, {result.chunks} chunks"
    return finish(figure, "The same chunks in another order", 460, words)


def shuffle_alt(result: ShuffleCosines) -> str:
    """Returns the shuffle figure in a sentence with its numbers."""
    parts = [f"{pooling.label} {told(result.means[pooling.mode])}" for pooling in result.poolings]
    return (
        f"Mean cosine of the document with itself, its {result.chunks} chunks in other orders: "
        f"{'; '.join(parts)}."
    )


def dilution_figure(result: Dilution, control: Dilution | None = None) -> go.Figure:
    """Returns the cosine of queries with their documents as text is added, over ranks.

    Args:
        result: at least one document.
        control: the same run on random weights, drawn thin.
    """
    figure = go.Figure()
    places = np.arange(len(result.added), dtype=np.float64)
    for pooling in result.poolings:
        means = result.means[pooling.mode]
        low, high = (numbers([getattr(m, side) for m in means]) for side in ("low", "high"))
        mean = numbers([m.value for m in means])
        add_band(figure, pooling, places, low, high)
        add_line(figure, pooling, places, mean, pooling.label, "%{y:.3f}")
        if len(result.documents) > 1:
            hits = result.hits[pooling.mode].mean(axis=0)
            add_line(figure, pooling, places, hits, pooling.label, "%{y:.0%}", lower=True)
    if control is not None:
        for pooling in control.poolings:
            mean = numbers([m.value for m in control.means[pooling.mode]])
            add_thin(figure, pooling, places, mean, f"{pooling.label}, random weights", "dashdot")
    figure.update_xaxes(
        title="unrelated text added (tokens)",
        tickvals=places,
        ticktext=[f"{count:,}" for count in result.added],
    )
    figure.update_layout(yaxis={"title": "cosine with its query", "tickformat": ".2f"})
    ranked = len(result.documents) > 1
    if ranked:
        chance = 1 / len(result.documents)
        figure.add_hline(y=chance, yref="y2", line={"color": GREY, "dash": "dash", "width": 1.5})
        two_panels(figure, "ranked first", ".0%", (-0.03, 1.03))
    words = f"{len(result.documents)} documents, text {result.side.value} them"
    return finish(figure, "Dilution", 560 if ranked else 420, words)


def dilution_alt(result: Dilution) -> str:
    """Returns the dilution figure in a sentence with its numbers."""
    parts = [
        f"{pooling.label} from {told(result.means[pooling.mode][0])} to "
        f"{told(result.means[pooling.mode][-1])}"
        for pooling in result.poolings
    ]
    return (
        f"Cosine of queries with their documents as up to {result.added[-1]:,} tokens of unrelated "
        f"text are added: {'; '.join(parts)}."
    )


def _add_landmarks(figure: go.Figure, places: NDArray[np.int64]) -> None:
    if not len(places):
        return
    figure.add_trace(landmark_marks(places, "y3", hoverinfo="skip"))
    figure.update_layout(
        yaxis3={"domain": [0.32, 0.38], "visible": False, "range": [-1, 1], "fixedrange": True}
    )
