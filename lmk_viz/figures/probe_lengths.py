"""Length figures: probes at multiples of a length."""

import numpy as np
import plotly.graph_objects as go

from lmk_viz.figures.probe_traces import (
    add_band,
    add_errors,
    add_line,
    add_thin,
    level_of,
    numbers,
    told,
    two_panels,
)
from lmk_viz.figures.theme import GREY, finish
from lmk_viz.probes.document_lengths import NUMBERS, DocumentLengths
from lmk_viz.probes.lengths import NeedleLengths
from lmk_viz.probes.needle import NeedleResult

__all__ = [
    "document_length_alt",
    "document_length_figure",
    "length_alt",
    "length_curves_figure",
    "length_numbers_figure",
]

AXES = {
    "first_tenth": "share on the first tenth",
    "centre_of_mass": "centre of mass",
    "first_minus_last": "first less last third",
    "slope": "slope",
    "cosine": "cosine, random orders",
    "reversed": "cosine, reversed",
}
EVEN = {"first_tenth": 0.1, "centre_of_mass": 0.5, "first_minus_last": 0.0, "slope": 0.0}
"""What a vector has that every part counts for alike."""


def length_curves_figure(
    result: NeedleLengths, centred: bool = False, control: NeedleLengths | None = None
) -> go.Figure:
    """Returns the needle's curves by depth, a panel a length over one axis of depth.

    Args:
        result: at least one length.
        centred: draw each curve less its own mean.
        control: the same run on random weights, drawn thin.
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
            level = level_of(curve.mean, centred)
            add_band(figure, pooling, curve.depths, curve.low - level, curve.high - level, axis)
            add_line(
                figure,
                pooling,
                curve.depths,
                curve.mean - level,
                pooling.label,
                "%{y:.3f}",
                axis=axis,
                in_legend=number == 0,
            )
        _add_control(figure, of_length, control, centred, axis)
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
            add_errors(figure, pooling, places, [getattr(c, name) for c in curves], lower)
    figure.add_hline(y=0, yref="y2", line={"color": GREY, "dash": "dash", "width": 1.5})
    figure.update_xaxes(
        title="length (tokens)",
        tickvals=list(range(len(lengths))),
        ticktext=[f"{length:,}" for length in lengths],
    )
    figure.update_layout(yaxis={"title": "PSI, 1 - min / max", "rangemode": "tozero"})
    two_panels(figure, "slope", ".2f", None, ((0.55, 1.0), (0.0, 0.45)))
    figure.update_layout(hovermode="closest")
    return finish(figure, "Bias by length", 560, "95 % intervals over needles")


def document_length_figure(
    result: DocumentLengths, control: DocumentLengths | None = None
) -> go.Figure:
    """Returns the two first numbers of a probe by length, each with its interval.

    Args:
        result: at least one document.
        control: the same run on random weights, drawn thin.
    """
    figure = go.Figure()
    names = NUMBERS[result.probe][:2]
    count = len(result.poolings)
    places = np.arange(len(result.lengths), dtype=np.float64)
    for number, pooling in enumerate(result.poolings):
        # Side by side, so that intervals do not hide each other.
        shift = (number - (count - 1) / 2) * 0.14
        for name, lower in zip(names, (False, True), strict=True):
            add_errors(figure, pooling, places + shift, result.means[pooling.mode][name], lower)
            if control is not None:
                means = numbers([mean.value for mean in control.means[pooling.mode][name]])
                label = f"{pooling.label}, random weights"
                axis = "y2" if lower else "y"
                add_thin(figure, pooling, places, means, label, "dashdot", axis)
    figure.update_xaxes(
        title="length (tokens)",
        tickvals=list(range(len(result.lengths))),
        ticktext=[f"{length:,}" for length in result.lengths],
    )
    figure.update_layout(yaxis={"title": AXES[names[0]], "tickformat": ".2f"})
    two_panels(figure, AXES[names[1]], ".2f", None, ((0.55, 1.0), (0.0, 0.45)))
    figure.update_layout(hovermode="closest", yaxis2={"rangemode": "normal"})
    for name, axis in zip(names, ("y", "y2"), strict=True):
        if name in EVEN:
            line = {"color": GREY, "dash": "dash", "width": 1.5}
            figure.add_hline(y=EVEN[name], yref=axis, line=line)
    titles = f"{len(result.documents)} document{'s' * (len(result.documents) > 1)}"
    return finish(figure, f"{result.probe.value.capitalize()} by length", 560, titles)


def document_length_alt(result: DocumentLengths) -> str:
    """Returns the figure of a document's probe by length in a sentence with its numbers."""
    name = NUMBERS[result.probe][0]
    parts = [
        f"{length:,} tokens: "
        + ", ".join(
            f"{pooling.label} {told(result.means[pooling.mode][name][place])}"
            for pooling in result.poolings
        )
        for place, length in enumerate(result.lengths)
    ]
    return f"{AXES[name].capitalize()} by length. {'; '.join(parts)}."


def _add_control(
    figure: go.Figure,
    of_length: NeedleResult,
    control: NeedleLengths | None,
    centred: bool,
    axis: str,
) -> None:
    """Adds the curves of random weights at the same length, where they were measured."""
    for found in control.results if control is not None else ():
        if found.config.tokens != of_length.config.tokens:
            continue
        for pooling in found.poolings:
            curve = found.curves[pooling.mode]
            mean = curve.mean - level_of(curve.mean, centred)
            name = f"{pooling.label}, random weights"
            add_thin(figure, pooling, curve.depths, mean, name, "dashdot", axis)


def length_alt(result: NeedleLengths) -> str:
    """Returns the length figures in a sentence with their numbers."""
    parts = [
        f"{of_length.config.tokens:,} tokens: "
        + ", ".join(
            f"{pooling.label} {told(of_length.curves[pooling.mode].psi)}"
            for pooling in of_length.poolings
        )
        for of_length in result.results
    ]
    return f"PSI of the needle's curve by length. {'; '.join(parts)}."
