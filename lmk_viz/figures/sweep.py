"""Quality against cost, a point a setting of a sweep."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.figures.theme import GREY, STYLES, error_bars, finish

__all__ = ["METRIC_NAMES", "sweep_alt", "sweep_figure"]

METRIC_NAMES = {"ndcg@10": "nDCG@10", "recall@1": "recall@1", "mrr@10": "MRR@10"}
TICKS = 5
SHORT = {"variable": "var.", "sentence": "sent."}
SIDE_STEP = 0.012
"""Share of the axis between points of equal cost, which would hide each other."""

Rows = Sequence[Mapping[str, Any]]
"""Rows as `Sweep.row_dicts` gives them."""


def sweep_figure(
    rows: Rows, metric: str, marked: str | None, mark: str, title: str, subtitle: str = ""
) -> go.Figure:
    """Returns a metric with its intervals against the tokens that the encoder reads a document.

    Args:
        rows: at least one.
        metric: which to draw, such as `ndcg@10`.
        marked: name of the row to ring; None rings none.
        mark: what the ring means, in the legend.
        title: a few words.
        subtitle: names data set and encoder; escaped here, since Plotly reads markup in it.

    Raises:
        ValueError: when there is no row.
    """
    if not rows:
        raise ValueError("no row to draw; give at least one.")
    figure = go.Figure()
    places = _places(rows)
    for mode, own in _by_pooling(rows).items():
        fixed = [row for row in own if not isinstance(row["granularity"], str)]
        others = [row for row in own if isinstance(row["granularity"], str)]
        for group, is_line in ((fixed, mode is PoolingMode.LANDMARK), (others, False)):
            if group:
                figure.add_trace(_points(group, mode, metric, places, is_line))
    if marked is not None:
        row = next(row for row in rows if row["name"] == marked)
        figure.add_trace(
            go.Scatter(
                x=[places[marked]],
                y=[row[metric]],
                mode="markers",
                name=mark,
                marker={"symbol": "circle-open", "size": 26, "color": GREY, "line": {"width": 3}},
                hoverinfo="skip",
            )
        )
    ticks = _ticks(list(places.values()))
    figure.update_xaxes(
        title="tokens read a document (log)",
        type="log",
        tickvals=ticks,
        ticktext=[f"{tick:,}" for tick in ticks],
    )
    figure.update_yaxes(title=f"{METRIC_NAMES.get(metric, metric)} (0 to 1)")
    return finish(figure, title, 480, escape(subtitle[:80]))


def sweep_alt(rows: Rows, metric: str, marked: str | None, mark: str) -> str:
    """Returns the figure in a sentence with its numbers."""
    parts = [
        f"{_name(row)} {row[metric]:.2f} ({row[f'{metric}_low']:.2f} to "
        f"{row[f'{metric}_high']:.2f}) at {row['tokens_per_document']:,.0f} tokens"
        + (f", {mark}" if row["name"] == marked else "")
        for row in rows
    ]
    name = METRIC_NAMES.get(metric, metric)
    return f"{name} against tokens read a document: {'; '.join(parts)}."


def _points(
    rows: Rows, mode: PoolingMode, metric: str, places: Mapping[str, float], is_line: bool
) -> go.Scatter:
    style = STYLES[mode]
    is_other = isinstance(rows[0]["granularity"], str)
    values = [row[metric] for row in rows]
    label = PoolingConfig(mode).label
    name = f"{label}, variable and by sentence" if is_other else label
    if not all(row["trained"] for row in rows):
        name += " (not trained for it)"
    symbol = f"{style.marker}-open" if is_other else style.marker
    return go.Scatter(
        x=[places[row["name"]] for row in rows],
        y=values,
        error_y=error_bars(
            values,
            [row[f"{metric}_low"] for row in rows],
            [row[f"{metric}_high"] for row in rows],
            thickness=1.2,
            width=3,
        ),
        mode="lines+markers+text" if is_line else "markers+text",
        text=[_short(row) for row in rows],
        textposition="middle right",
        textfont={"size": 11, "color": style.colour},
        name=name,
        line={"color": style.colour, "dash": style.dash, "width": 1.5},
        marker={"symbol": symbol, "size": 10, "color": style.colour},
        customdata=[
            [
                _name(row),
                row["tokens_per_document"],
                row[f"{metric}_low"],
                row[f"{metric}_high"],
                row["landmarks_per_document"],
                row["overhead"],
                row["seconds"],
            ]
            for row in rows
        ],
        hovertemplate="%{customdata[0]}<br>"
        f"{METRIC_NAMES.get(metric, metric)} %{{y:.3f}} "
        "(%{customdata[2]:.3f} to %{customdata[3]:.3f})<br>"
        "%{customdata[1]:,.1f} tokens a document, of which %{customdata[4]:,.1f} inserted "
        "(%{customdata[5]:.1%} of the text)<br>%{customdata[6]:,.1f} s<extra></extra>",
    )


def _places(rows: Rows) -> dict[str, float]:
    """Returns the place of each row on the axis; rows of equal cost stand side by side."""
    tokens = {row["name"]: max(1.0, float(row["tokens_per_document"])) for row in rows}
    span = float(np.log(max(tokens.values()) / min(tokens.values()))) or 1.0
    found: dict[str, float] = {}
    for value in set(tokens.values()):
        same = [name for name, own in tokens.items() if own == value]
        for number, name in enumerate(same):
            aside = (number - (len(same) - 1) / 2) * SIDE_STEP * span
            found[name] = value * float(np.exp(aside))
    return found


def _ticks(places: Sequence[float]) -> list[int]:
    """Returns round numbers over the range: Plotly has none between two powers of ten."""
    low, high = min(places), max(places)
    digits = -int(np.floor(np.log10(max(high - low, 1.0)))) + 1
    return sorted({int(round(x, min(0, digits))) for x in np.geomspace(low, high, TICKS).tolist()})


def _by_pooling(rows: Rows) -> dict[PoolingMode, list[Mapping[str, Any]]]:
    found: dict[PoolingMode, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(PoolingMode(row["pooling"]), []).append(row)
    return found


def _short(row: Mapping[str, Any]) -> str:
    granularity = row["granularity"]
    return "" if granularity is None else SHORT.get(str(granularity), str(granularity))


def _name(row: Mapping[str, Any]) -> str:
    label = PoolingConfig(PoolingMode(row["pooling"])).label
    return label if row["granularity"] is None else f"{label}, {row['granularity']}"
