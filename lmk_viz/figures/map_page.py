"""From a map and its table to a page of its own."""

from collections.abc import Sequence
from html import escape
from typing import Any

from lmk_viz.config import PoolingConfig, ProjectionConfig
from lmk_viz.figures.map_html import PageDocument, map_page
from lmk_viz.figures.projection import METHOD_LABELS, colour_values, map_figure, wrap_hover
from lmk_viz.map_metrics import Estimate, neighbour_lists
from lmk_viz.map_table import VectorTable
from lmk_viz.maps import NUMBERS, CorpusMap, map_findings

__all__ = ["number_words", "render_map_page"]

NEIGHBOURS = 10


def number_words(estimate: Estimate | None) -> str:
    """Returns a number with its interval and its chance level."""
    if estimate is None:
        return "-"
    return (
        f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f}; "
        f"by chance {estimate.chance:.2f})"
    )


def render_map_page(
    title: str,
    table: VectorTable,
    found: CorpusMap,
    config: ProjectionConfig,
    colour: str,
    values: Sequence[Any],
) -> str:
    """Returns the self-contained page of a map; see `map_page`.

    Args:
        title: of the page.
        table: the documents.
        found: their map.
        config: how they were laid out.
        colour: name of the column that colours stand for.
        values: of that column, one a document.

    Raises:
        ValueError: when there are too few documents for any panel.
    """
    drawn = [panel for panel in found.panels if panel.points is not None]
    if not drawn:
        notes = [note for panel in found.panels for note in panel.placed.projection.notes]
        raise ValueError(f"nothing can be drawn: {notes[-1] if notes else 'there is no vector'}")
    colouring = colour_values(colour, values)
    titles = table.column("title", required=False)
    tokens = table.column("tokens", required=False)
    labels = table.labels
    documents = [
        PageDocument(
            name,
            name if titles[row] is None else str(titles[row]),
            labels[row] or "",
            "" if tokens[row] is None else str(tokens[row]),
        )
        for row, name in enumerate(table.ids)
    ]
    hover = [
        f"<b>{wrap_hover(d.title[:80])}</b><br>{wrap_hover((d.label or 'no label')[:80])}"
        + (f" · {escape(d.tokens)} tokens" if d.tokens else "")
        for d in documents
    ]
    names = {panel.mode: PoolingConfig(panel.mode).label for panel in drawn}
    figures = {
        names[panel.mode]: map_figure(
            panel.points, colouring, hover, names[panel.mode], panel.placed.projection.method
        )
        for panel in drawn
        if panel.points is not None
    }
    head = ["", *names.values()]
    lines = [
        [words, *(number_words(panel.numbers.get(key)) for panel in drawn)]
        for key, words in NUMBERS.items()
        if any(key in panel.numbers for panel in drawn)
    ]
    for kind, words in (("overlap", "Neighbours shared with"), ("cka", "Linear CKA with")):
        for other in drawn:
            pairs = [found.pair(panel.mode, other.mode) for panel in drawn]
            lines.append(
                [
                    f"{words} {names[other.mode]}",
                    *(number_words(getattr(pair, kind) if pair else None) for pair in pairs),
                ]
            )
    methods = sorted({METHOD_LABELS[panel.placed.projection.method] for panel in drawn})
    return map_page(
        title,
        figures,
        [f"{found.n:,} documents under {names[panel.mode]} on a plane." for panel in drawn],
        documents,
        {
            names[panel.mode]: neighbour_lists(table.vectors[panel.mode], NEIGHBOURS)
            for panel in drawn
        },
        [head, *lines],
        map_findings(found),
        f"{found.n:,} documents, {', '.join(methods)}, {config.metric} distance, neighbours "
        f"{config.n_neighbors}, smallest distance {config.min_dist}, seed {config.seed}; coloured "
        f"by {colour}. Numbers are measured in the full space"
        + (f", on {found.measured:,} documents" if found.measured < found.n else "")
        + ", each with a 95 % interval and its chance level.",
    )
