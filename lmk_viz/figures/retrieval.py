"""Retrieval against document length and depth of the answer, a line a pooling."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.figures.theme import STYLES, finish

__all__ = ["depth_alt", "depth_figure", "extrapolation_alt", "extrapolation_figure"]

METRIC = "ndcg@10"
THIRDS = ("start", "middle", "end")

Rows = Sequence[Mapping[str, Any]]
"""Rows as `Extrapolation.to_dict` gives them."""


def extrapolation_figure(rows: Rows, title: str, subtitle: str = "") -> go.Figure:
    """Returns nDCG@10 against multiples of the training length, with intervals as bands.

    Args:
        rows: one a pooling and multiple, in any order.
        title: a few words.
        subtitle: names encoder and documents; escaped here, since Plotly reads markup in it.
    """
    figure = go.Figure()
    multiples = sorted({int(row["multiple"]) for row in rows})
    for mode, own in _by_pooling(rows).items():
        style, name = STYLES[mode], _name(mode, own)
        places = [int(row["multiple"]) for row in own]
        low, high = ([row[f"{METRIC}_{end}"] for row in own] for end in ("low", "high"))
        figure.add_trace(
            go.Scatter(
                x=[*places, *reversed(places)],
                y=[*high, *reversed(low)],
                fill="toself",
                fillcolor=style.colour,
                opacity=0.15,
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                legendgroup=mode.value,
                showlegend=False,
                name=f"{name}, interval",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=places,
                y=[row[METRIC] for row in own],
                mode="lines+markers",
                name=name,
                legendgroup=mode.value,
                line={"color": style.colour, "dash": style.dash, "width": 2},
                marker={"symbol": style.marker, "size": 9},
                customdata=[
                    [row["tokens"], a, b] for row, a, b in zip(own, low, high, strict=True)
                ],
                hovertemplate=f"{name}<br>%{{x}}×, %{{customdata[0]:,.0f}} tokens<br>"
                "nDCG@10 %{y:.3f} (%{customdata[1]:.3f} to %{customdata[2]:.3f})<extra></extra>",
            )
        )
    figure.update_xaxes(
        title="document length, multiples of the training length",
        type="log",
        tickvals=multiples,
        ticktext=[f"{multiple}×" for multiple in multiples],
    )
    figure.update_yaxes(title="nDCG@10", range=[0, 1.02])
    return finish(figure, title, 420, escape(subtitle[:80]))


def extrapolation_alt(rows: Rows) -> str:
    """Returns the figure of lengths in a sentence with its numbers."""
    parts = []
    for mode, own in _by_pooling(rows).items():
        values = ", ".join(
            f"{row[METRIC]:.2f} ({row[f'{METRIC}_low']:.2f} to {row[f'{METRIC}_high']:.2f}) at "
            f"{row['multiple']}×"
            for row in (own if len(own) < 3 else (own[0], own[len(own) // 2], own[-1]))
        )
        parts.append(f"{_name(mode, own)}: {values}")
    return f"nDCG@10 by multiple of the training length: {'; '.join(parts)}."


def depth_figure(rows: Rows, multiple: int, title: str = "") -> go.Figure:
    """Returns nDCG@10 by the third of the document in which the answer stands.

    Args:
        rows: one a pooling and multiple.
        multiple: which length to draw.
        title: a few words; empty names the multiple.

    Raises:
        ValueError: when no row has that multiple.
    """
    figure = go.Figure()
    for mode, row in _at(rows, multiple).items():
        style, name = STYLES[mode], _name(mode, [row])
        figure.add_trace(
            go.Scatter(
                x=list(THIRDS),
                y=[row[third] for third in THIRDS],
                mode="lines+markers",
                name=name,
                line={"color": style.colour, "dash": style.dash, "width": 2},
                marker={"symbol": style.marker, "size": 9},
                hovertemplate=f"{name}<br>%{{x}}<br>nDCG@10 %{{y:.3f}}<extra></extra>",
            )
        )
    figure.update_xaxes(
        title="third of the document", categoryorder="array", categoryarray=list(THIRDS)
    )
    figure.update_yaxes(title="nDCG@10", range=[0, 1.02])
    return finish(figure, title or f"Depth of the answer, {multiple}× the training length", 380)


def depth_alt(rows: Rows, multiple: int) -> str:
    """Returns the figure of depths in a sentence with its numbers."""
    parts = [
        f"{_name(mode, [row])}: "
        + ", ".join(
            f"{third} {'unknown' if row[third] is None else format(row[third], '.2f')}"
            for third in THIRDS
        )
        for mode, row in _at(rows, multiple).items()
    ]
    return f"nDCG@10 by third of the document at {multiple}×: {'; '.join(parts)}."


def _by_pooling(rows: Rows) -> dict[PoolingMode, list[Mapping[str, Any]]]:
    """Returns the rows of each pooling by multiple, poolings as they come first."""
    found: dict[PoolingMode, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: int(row["multiple"])):
        found.setdefault(PoolingMode(row["pooling"]), []).append(row)
    return found


def _at(rows: Rows, multiple: int) -> dict[PoolingMode, Mapping[str, Any]]:
    found = {PoolingMode(row["pooling"]): row for row in rows if row["multiple"] == multiple}
    if not found:
        known = ", ".join(map(str, sorted({int(row["multiple"]) for row in rows}))) or "none"
        raise ValueError(f"no row is of {multiple} times the length; allowed: {known}.")
    return found


def _name(mode: PoolingMode, rows: Rows) -> str:
    label = PoolingConfig(mode).label
    return label if all(row["trained"] for row in rows) else f"{label} (not trained for it)"
