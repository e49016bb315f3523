"""An evaluation drawn: scores with intervals, groups of queries, costs, the chunk that answers."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.figures.theme import GREY, STYLES, TraceStyle, error_bars, finish
from lmk_viz.retrieval.chunk_vectors import ChunkCosines, MultiVector

__all__ = [
    "chunks_alt",
    "chunks_figure",
    "cost_alt",
    "cost_figure",
    "groups_alt",
    "groups_figure",
    "scores_alt",
    "scores_figure",
    "system_name",
]

BM25 = "bm25"
OTHER_STYLES = {
    MultiVector.MAX_SIM.value: TraceStyle("#0E6B4D", "solid", "diamond-open"),
    MultiVector.LATE_CHUNKING.value: TraceStyle("#2B6398", "dash", "square-open"),
    MultiVector.PASSAGES.value: TraceStyle("#5B6FD8", "dot", "hexagon"),
    BM25: TraceStyle(GREY, "solid", "line-ns-open"),
}
"""In the hue of the pooling whose variant is read, darker and hollow."""
GROUP_AXES = {
    "by_depth": "where in the document the answer stands",
    "by_length": "length of the document that answers",
}

Rows = Sequence[Mapping[str, Any]]
"""Rows as `Evaluation.to_dict` gives them, BM25 among them where it is drawn."""


def system_name(name: str, trained: bool | None = True) -> str:
    """Returns what a system is called, with a word where the encoder was not trained for it."""
    if name == BM25:
        return "BM25"
    is_pooling = name in list(PoolingMode)
    label = PoolingConfig(PoolingMode(name)).label if is_pooling else MultiVector(name).label
    return f"{label} (not trained for it)" if trained is False else label


def scores_figure(rows: Rows, metric: str, title: str, subtitle: str = "") -> go.Figure:
    """Returns each system's mean under a metric with its interval, a line a system.

    Args:
        rows: at least one.
        metric: such as `ndcg@10`.
        title: a few words.
        subtitle: names the data set; escaped here, since Plotly reads markup in it.
    """
    figure = go.Figure()
    names = [_name(row) for row in rows]
    for row, name in zip(rows, names, strict=True):
        value, low, high = _interval(row, metric)
        style = _style(row)
        figure.add_trace(
            go.Scatter(
                x=[value],
                y=[name],
                mode="markers",
                name=name,
                showlegend=False,
                marker={
                    "symbol": style.marker,
                    "size": 12,
                    "color": style.colour,
                    "line": {"width": 2, "color": style.colour},
                },
                error_x=error_bars([value], [low], [high], color=style.colour, thickness=2),
                customdata=[[low, high]],
                hovertemplate=f"{name}<br>{metric} %{{x:.3f}} "
                "(%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>",
            )
        )
    figure.update_xaxes(title=f"{metric}, mean over queries with its 95 % interval")
    figure.update_yaxes(
        title="", categoryorder="array", categoryarray=names[::-1], automargin=True, type="category"
    )
    return finish(figure, title, 150 + 38 * len(rows), escape(subtitle[:80]))


def scores_alt(rows: Rows, metric: str) -> str:
    """Returns the figure of scores in a sentence with its numbers."""
    return f"{metric}: {'; '.join(f'{_name(row)} {_told(row, metric)}' for row in rows)}."


def groups_figure(rows: Rows, groups: str, metric: str, title: str) -> go.Figure:
    """Returns each system's mean within groups of queries, a line a system.

    Args:
        rows: those that have groups of that kind.
        groups: `by_depth` or `by_length`.
        metric: such as `ndcg@10`.
        title: a few words.
    """
    figure = go.Figure()
    for row in rows:
        style, name = _style(row), _name(row)
        own = row[groups]
        values = [_interval(group, metric) for group in own]
        figure.add_trace(
            go.Scatter(
                x=[_group(group) for group in own],
                y=[value for value, _, _ in values],
                mode="lines+markers",
                name=name,
                line={"color": style.colour, "dash": style.dash, "width": 2},
                marker={"symbol": style.marker, "size": 9, "line": {"width": 2}},
                error_y=error_bars(
                    [value for value, _, _ in values],
                    [low for _, low, _ in values],
                    [high for _, _, high in values],
                    color=style.colour,
                    thickness=1,
                    width=3,
                ),
                customdata=[[low, high] for _, low, high in values],
                hovertemplate=f"{name}<br>%{{x}}<br>{metric} %{{y:.3f}} "
                "(%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>",
            )
        )
    figure.update_xaxes(title=GROUP_AXES[groups], type="category")
    figure.update_yaxes(title=metric, range=[0, 1.02])
    return finish(figure, title, 420)


def groups_alt(rows: Rows, groups: str, metric: str) -> str:
    """Returns a figure of groups in a sentence with its numbers."""
    parts = [
        f"{_name(row)}: " + ", ".join(f"{_group(g)} {_told(g, metric)}" for g in row[groups])
        for row in rows
    ]
    return f"{metric} by {GROUP_AXES[groups]}. {'; '.join(parts)}."


def cost_figure(rows: Rows, metric: str, documents: int) -> go.Figure:
    """Returns quality against the vectors that an index keeps for a document.

    Args:
        rows: those that keep vectors.
        metric: such as `ndcg@10`.
        documents: in the data set.
    """
    figure = go.Figure()
    for row in rows:
        style, name, index = _style(row), _name(row), row["index"]
        value, low, high = _interval(row, metric)
        figure.add_trace(
            go.Scatter(
                x=[index["vectors"] / documents],
                y=[value],
                mode="markers",
                name=name,
                marker={"symbol": style.marker, "size": 12, "color": style.colour},
                error_y=error_bars([value], [low], [high], color=style.colour, thickness=1.5),
                customdata=[[index["vectors"], index["bytes"] / 2**20, low, high]],
                hovertemplate=f"{name}<br>{metric} %{{y:.3f}} (%{{customdata[2]:.3f}} to "
                "%{customdata[3]:.3f})<br>%{customdata[0]:,} vectors, %{customdata[1]:,.2f} MiB"
                "<extra></extra>",
            )
        )
    figure.update_xaxes(title="vectors a document (and dot products a query)", type="log")
    figure.update_yaxes(title=f"{metric}, 95 % interval")
    return finish(figure, "What more vectors buy", 420)


def cost_alt(rows: Rows, metric: str) -> str:
    """Returns the figure of costs in a sentence with its numbers."""
    parts = [
        f"{_name(row)} {_told(row, metric)} with {row['index']['vectors']:,} vectors, "
        f"{row['index']['bytes'] / 2**20:.2f} MiB"
        for row in rows
    ]
    return f"{metric} against the size of the index: {'; '.join(parts)}."


def chunks_figure(
    found: Sequence[ChunkCosines], characters: int, depth: float | None, kept: int
) -> go.Figure:
    """Returns how close each chunk of a document is to a query, by its place in the text.

    Args:
        found: of one document and query; at least one.
        characters: of the document.
        depth: where the evidence stands, 0 to 1; None where nobody said.
        kept: characters that went into the encoder as one text; what is behind was cut.
    """
    figure = go.Figure()
    for cosines in found:
        style = OTHER_STYLES[cosines.kind.value]
        places: list[float] = []
        heights: list[float] = []
        for (start, end), value in zip(cosines.spans, cosines.cosines.tolist(), strict=True):
            places += [start, end, np.nan]
            heights += [value, value, np.nan]
        name = cosines.kind.label
        figure.add_trace(
            go.Scatter(
                x=places,
                y=heights,
                mode="lines",
                name=name,
                line={"color": style.colour, "width": 4 if len(found) == 1 else 3},
                hovertemplate=f"{name}<br>character %{{x:,}}<br>cosine %{{y:.3f}}<extra></extra>",
            )
        )
        start, end = cosines.spans[cosines.best]
        figure.add_trace(
            go.Scatter(
                x=[(start + end) / 2],
                y=[float(cosines.cosines[cosines.best])],
                mode="markers",
                name=f"{name}, the chunk that answers",
                showlegend=False,
                marker={
                    "symbol": style.marker,
                    "size": 13,
                    "color": style.colour,
                    "line": {"width": 2},
                },
                hovertemplate=f"{name}, the chunk that answers<br>cosine %{{y:.3f}}<extra></extra>",
            )
        )
    if depth is not None:
        figure.add_vline(
            x=depth * characters,
            line={"color": GREY, "dash": "dash", "width": 1.5},
            annotation_text="evidence",
            annotation_position="top",
        )
    if kept < characters:
        figure.add_vrect(
            x0=kept,
            x1=characters,
            fillcolor=GREY,
            opacity=0.2,
            line_width=0,
            annotation_text="cut",
            annotation_position="top left",
        )
    figure.update_xaxes(title="place in the document (characters)", range=[0, max(1, characters)])
    figure.update_yaxes(title="cosine with the query", tickformat=".2f")
    return finish(figure, "Which chunk answers?", 380)


def chunks_alt(found: Sequence[ChunkCosines], characters: int, depth: float | None) -> str:
    """Returns the figure of chunks in a sentence with its numbers."""
    parts = []
    for cosines in found:
        start, end = cosines.spans[cosines.best]
        parts.append(
            f"{cosines.kind.label}: chunk {cosines.best + 1} of {len(cosines.spans)} with cosine "
            f"{cosines.cosines[cosines.best]:.3f}, at {(start + end) / 2 / max(1, characters):.0%}"
            " of the document"
        )
    where = "" if depth is None else f" The evidence stands at {depth:.0%}."
    return f"The chunk closest to the query. {'; '.join(parts)}.{where}"


def _name(row: Mapping[str, Any]) -> str:
    return system_name(row["pooling"], row["trained"])


def _style(row: Mapping[str, Any]) -> TraceStyle:
    name = row["pooling"]
    return STYLES[PoolingMode(name)] if name in list(PoolingMode) else OTHER_STYLES[name]


def _interval(row: Mapping[str, Any], metric: str) -> tuple[float, float, float]:
    return row[metric], row[f"{metric}_low"], row[f"{metric}_high"]


def _told(row: Mapping[str, Any], metric: str) -> str:
    value, low, high = _interval(row, metric)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _group(group: Mapping[str, Any]) -> str:
    # A bin's name can come from an upload, and Plotly reads markup.
    return f"{escape(str(group['group'])[:40])} ({group['queries']:,})"
