"""Probe figures: needle by depth and length, influence beside attention, shuffle, dilution."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lmk_viz.config import PoolingConfig
from lmk_viz.figures.theme import GREY, STYLES, finish, landmark_marks
from lmk_viz.probes.curves import Estimate
from lmk_viz.probes.dilution import Dilution
from lmk_viz.probes.influence import Influence
from lmk_viz.probes.lengths import NeedleLengths
from lmk_viz.probes.needle import NeedleResult
from lmk_viz.probes.shuffle import ShuffleCosines

__all__ = [
    "dilution_alt",
    "dilution_figure",
    "influence_alt",
    "influence_figure",
    "length_alt",
    "length_curves_figure",
    "length_numbers_figure",
    "needle_alt",
    "needle_figure",
    "shuffle_alt",
    "shuffle_figure",
]

BAND = 0.16
"""Opacity of an interval."""
UPPER, LOWER = (0.40, 1.0), (0.0, 0.30)
"""Heights of two panels over one axis."""


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
        level = _level(curve.mean, centred)
        _add_band(figure, pooling, curve.depths, curve.low - level, curve.high - level)
        _add_line(figure, pooling, curve.depths, curve.mean - level, pooling.label, "%{y:.3f}")
        if len(result.needles) > 1:
            others = result.unrelated[pooling.mode]
            others = others - _level(others, centred)
            name = f"{pooling.label}, other questions"
            _add_thin(figure, pooling, curve.depths, others, name, "dot")
            hits = result.hits[pooling.mode].mean(axis=(0, 1))
            _add_line(figure, pooling, curve.depths, hits, pooling.label, "%{y:.0%}", lower=True)
    if control is not None:
        for pooling in control.poolings:
            curve = control.curves[pooling.mode]
            name = f"{pooling.label}, random weights"
            mean = curve.mean - _level(curve.mean, centred)
            _add_thin(figure, pooling, curve.depths, mean, name, "dashdot")
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
        _two_panels(figure, "ranked first", ".0%", (-0.03, 1.03))
    words = (
        f"{len(result.needles)} needles, {len(result.fillers)} "
        f"filler{'s' * (len(result.fillers) > 1)}, {result.config.tokens:,} tokens"
    )
    return finish(figure, "Needle by depth", 560 if ranked else 420, words)


def needle_alt(result: NeedleResult) -> str:
    """Returns the needle figure in a sentence with its numbers."""
    parts = [
        f"{pooling.label} {curve.mean[0]:.3f} at the start, {curve.mean[-1]:.3f} at the end, "
        f"PSI {_told(curve.psi)}, slope {_told(curve.slope)}"
        for pooling in result.poolings
        if (curve := result.curves[pooling.mode]).count
    ]
    return (
        f"Cosine of {len(result.needles)} questions with documents of {result.config.tokens:,} "
        f"tokens by the depth of the needle: {'; '.join(parts)}."
    )


def influence_figure(result: Influence, subtitle: str, as_share: bool = True) -> go.Figure:
    """Returns the influence of each part over the attention on it, on one axis of tokens.

    Args:
        result: of one document.
        subtitle: names the document; escaped here, since Plotly reads markup in it.
        as_share: divide each pooling's influence and floor by its sum, so that poolings whose
            vectors move by different amounts can be compared in shape.
    """
    figure = go.Figure()
    borders = result.borders
    centres = (borders[:-1] + borders[1:]) / 2
    for pooling in result.poolings:
        mode = pooling.mode
        total = result.summaries[mode].total
        scale = 1 / total if as_share and total else 1.0
        raw = result.values[mode]
        _add_line(
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
            _add_thin(figure, pooling, centres, floor, f"{pooling.label}, neutral filler", "dot")
        if mode in result.attention:
            shares = result.attention[mode]
            name = f"{pooling.label}, attention"
            _add_line(figure, pooling, centres, shares, name, "%{y:.1%}", lower=True)
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
        _two_panels(figure, "attention on it", ".0%", None)
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


def shuffle_figure(result: ShuffleCosines, subtitle: str) -> go.Figure:
    """Returns the cosine of shuffled documents with the original, a column a pooling.

    Args:
        result: of one document.
        subtitle: names the document; escaped here.
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
        for name, value, symbol in (
            ("reversed", result.reversed[mode], "arrow-left"),
            ("unrelated text", result.unrelated.get(mode), "x-thin-open"),
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
    parts = [f"{pooling.label} {_told(result.means[pooling.mode])}" for pooling in result.poolings]
    return (
        f"Mean cosine of the document with itself, its {result.chunks} chunks in other orders: "
        f"{'; '.join(parts)}."
    )


def dilution_figure(result: Dilution) -> go.Figure:
    """Returns the cosine of queries with their documents as text is added, over ranks."""
    figure = go.Figure()
    places = np.arange(len(result.added), dtype=np.float64)
    for pooling in result.poolings:
        means = result.means[pooling.mode]
        low, high = (_numbers([getattr(m, side) for m in means]) for side in ("low", "high"))
        mean = _numbers([m.value for m in means])
        _add_band(figure, pooling, places, low, high)
        _add_line(figure, pooling, places, mean, pooling.label, "%{y:.3f}")
        if len(result.documents) > 1:
            hits = result.hits[pooling.mode].mean(axis=0)
            _add_line(figure, pooling, places, hits, pooling.label, "%{y:.0%}", lower=True)
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
        _two_panels(figure, "ranked first", ".0%", (-0.03, 1.03))
    words = f"{len(result.documents)} documents, text {result.side.value} them"
    return finish(figure, "Dilution", 560 if ranked else 420, words)


def dilution_alt(result: Dilution) -> str:
    """Returns the dilution figure in a sentence with its numbers."""
    parts = [
        f"{pooling.label} from {_told(result.means[pooling.mode][0])} to "
        f"{_told(result.means[pooling.mode][-1])}"
        for pooling in result.poolings
    ]
    return (
        f"Cosine of queries with their documents as up to {result.added[-1]:,} tokens of unrelated "
        f"text are added: {'; '.join(parts)}."
    )


def length_curves_figure(result: NeedleLengths, centred: bool = False) -> go.Figure:
    """Returns the needle's curves by depth, a panel a length over one axis of depth.

    Args:
        result: at least one length.
        centred: draw each curve less its own mean.
    """
    figure = go.Figure()
    count = len(result.results)
    gap = 0.06
    height = (1 - gap * (count - 1)) / count
    axes = {}
    for number, of_length in enumerate(result.results):
        axis = "y" if number == 0 else f"y{number + 1}"
        top = 1 - number * (height + gap)
        axes[f"yaxis{axis[1:]}"] = {
            "domain": [max(0.0, top - height), top],
            "title": f"{of_length.config.tokens:,} tokens",
            "tickformat": ".2f",
        }
        for pooling in of_length.poolings:
            curve = of_length.curves[pooling.mode]
            level = _level(curve.mean, centred)
            _add_band(figure, pooling, curve.depths, curve.low - level, curve.high - level, axis)
            _add_line(
                figure,
                pooling,
                curve.depths,
                curve.mean - level,
                pooling.label,
                "%{y:.3f}",
                axis=axis,
                in_legend=number == 0,
            )
    figure.update_layout(
        xaxis={
            "title": "depth of the needle (0 the start, 1 the end)",
            "range": [-0.03, 1.03],
            "anchor": "free",
            "position": 0.0,
        },
        hovermode="x unified",
        hoversubplots="axis",
        **axes,
    )
    needles = len(result.results[0].needles)
    figure = finish(figure, "Needle by depth and length", 180 * count + 190, f"{needles} needles")
    figure.update_layout(legend={"y": -60 / (180 * count + 70)})
    return figure


def length_numbers_figure(result: NeedleLengths) -> go.Figure:
    """Returns PSI over slope by length, each with its interval."""
    figure = go.Figure()
    lengths = [of_length.config.tokens for of_length in result.results]
    poolings = result.results[0].poolings
    for number, pooling in enumerate(poolings):
        # Side by side, so that intervals do not hide each other.
        shift = (number - (len(poolings) - 1) / 2) * 0.14
        places = np.arange(len(lengths), dtype=np.float64) + shift
        curves = [of_length.curves[pooling.mode] for of_length in result.results]
        for name, lower in (("psi", False), ("slope", True)):
            _add_errors(figure, pooling, places, [getattr(c, name) for c in curves], lower)
    figure.add_hline(y=0, yref="y2", line={"color": GREY, "dash": "dash", "width": 1.5})
    figure.update_xaxes(
        title="length (tokens)",
        tickvals=list(range(len(lengths))),
        ticktext=[f"{length:,}" for length in lengths],
    )
    figure.update_layout(yaxis={"title": "PSI, 1 - min / max", "rangemode": "tozero"})
    _two_panels(figure, "slope", ".2f", None, ((0.55, 1.0), (0.0, 0.45)))
    figure.update_layout(hovermode="closest")
    return finish(figure, "Bias by length", 560, "95 % intervals over needles")


def length_alt(result: NeedleLengths) -> str:
    """Returns the length figures in a sentence with their numbers."""
    parts = [
        f"{of_length.config.tokens:,} tokens: "
        + ", ".join(
            f"{pooling.label} {_told(of_length.curves[pooling.mode].psi)}"
            for pooling in of_length.poolings
        )
        for of_length in result.results
    ]
    return f"PSI of the needle's curve by length. {'; '.join(parts)}."


def _two_panels(
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


def _add_line(
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


def _add_thin(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    name: str,
    dash: str,
) -> None:
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            name=name,
            legendgroup=pooling.mode.value,
            showlegend=False,
            line={"color": STYLES[pooling.mode].colour, "dash": dash, "width": 1},
            hovertemplate=f"{escape(name)} %{{y:.3f}}<extra></extra>",
        )
    )


def _add_band(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    axis: str = "y",
) -> None:
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


def _add_errors(
    figure: go.Figure,
    pooling: PoolingConfig,
    x: NDArray[np.float64],
    estimates: Sequence[Estimate],
    lower: bool,
) -> None:
    style = STYLES[pooling.mode]
    values = _numbers([e.value for e in estimates])
    low, high = (_numbers([getattr(e, side) for e in estimates]) for side in ("low", "high"))
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
            error_y={
                "type": "data",
                "symmetric": False,
                "array": high - values,
                "arrayminus": values - low,
                "thickness": 1.5,
                "width": 4,
            },
            hovertemplate=f"{pooling.label} %{{y:.3f}}<extra></extra>",
        )
    )


def _add_landmarks(figure: go.Figure, places: NDArray[np.int64]) -> None:
    if not len(places):
        return
    figure.add_trace(landmark_marks(places, "y3", hoverinfo="skip"))
    figure.update_layout(
        yaxis3={"domain": [0.32, 0.38], "visible": False, "range": [-1, 1], "fixedrange": True}
    )


def _level(curve: NDArray[np.float64], centred: bool) -> float:
    return float(curve.mean()) if centred else 0.0


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.asarray([np.nan if value is None else value for value in values], dtype=np.float64)


def _told(estimate: Estimate) -> str:
    if estimate.value is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
