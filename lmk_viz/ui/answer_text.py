"""A document as HTML with the chunks that answer a query, the evidence, and what was cut."""

from collections.abc import Sequence
from html import escape

from lmk_viz.retrieval.chunk_vectors import ChunkCosines

__all__ = ["answer_html"]

MAX_SHOWN = 60_000
"""Characters drawn of a document, round the chunk that answers."""
STRONGEST, FAINTEST = 0.42, 0.04
"""Opacity of the tint at the highest and the lowest cosine of a document."""


def answer_html(text: str, found: Sequence[ChunkCosines], evidence: int | None, kept: int) -> str:
    """Returns a text tinted by how close each chunk is to the query.

    Args:
        text: of the document.
        found: at least one; the first tints, all mark the chunk that answers.
        evidence: character at which the evidence stands; None where nobody said.
        kept: characters that went into the encoder as one text; what is behind is struck out.

    Returns:
        One escaped HTML block; of a long text the part round the first answer.
    """
    answers: dict[int, list[str]] = {}
    for cosines in found:
        start, _ = cosines.spans[cosines.best]
        value = float(cosines.cosines[cosines.best])
        answers.setdefault(start, []).append(f"{cosines.kind.label} {value:.3f}")
    marks = {
        start: _mark(f"◆ {', '.join(labels)}", "the chunk that answers")
        for start, labels in answers.items()
    }
    if evidence is not None:
        own = _mark("▼ evidence", "where the evidence stands")
        marks[evidence] = marks.get(evidence, "") + own
    tints = _tints(found[0])
    first, last = _window(len(text), found[0].spans[found[0].best][0])
    places = {first, last, kept, *marks, *tints, *(end for _, end in found[0].spans)}
    borders = sorted(place for place in places if first <= place <= last)
    parts = ['<div class="lmk-doc" dir="auto">']
    if first:
        parts.append(f'<span class="note">... {first:,} characters before this.\n</span>')
    alpha, until = 0.0, first
    for left, right in zip(borders, [*borders[1:], last], strict=True):
        until, alpha = tints.get(left, (until, alpha))
        parts.append(marks.get(left, ""))
        parts.append(_run(text[left:right], alpha if left < until else 0.0, left >= kept))
    if last < len(text):
        parts.append(f'<span class="note">\n... {len(text) - last:,} more characters.</span>')
    parts.append("</div>")
    return "".join(parts)


def _mark(label: str, tip: str) -> str:
    return f'<span class="mark" title="{escape(tip)}">{escape(label)}</span>'


def _run(text: str, alpha: float, is_cut: bool) -> str:
    """Returns a run of text, struck out where it was cut, else tinted."""
    if not text:
        return ""
    if is_cut:
        return f'<span class="gone">{escape(text)}</span>'
    if not alpha:
        return escape(text)
    return f'<span style="background: rgba(20, 148, 107, {alpha:.2f})">{escape(text)}</span>'


def _window(length: int, centre: int) -> tuple[int, int]:
    """Returns the characters to draw, as many as allowed, round a place."""
    first = max(0, min(centre - MAX_SHOWN // 2, length - MAX_SHOWN))
    return first, min(length, first + MAX_SHOWN)


def _tints(cosines: ChunkCosines) -> dict[int, tuple[int, float]]:
    """Returns by the first character of each chunk where it ends and how strong its tint is."""
    values = cosines.cosines
    low, spread = float(values.min()), float(values.max() - values.min())
    shares = (values - low) / spread if spread else values * 0.0 + 1.0
    return {
        start: (end, FAINTEST + (STRONGEST - FAINTEST) * share)
        for (start, end), share in zip(cosines.spans, shares.tolist(), strict=True)
    }
