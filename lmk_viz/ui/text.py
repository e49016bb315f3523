"""Document text as HTML and markdown, with everything that came from outside escaped."""

import re
from collections.abc import Mapping
from html import escape

from lmk_viz.landmarks import Chunk, Layout

__all__ = ["PAGE_CSS", "escape_markdown", "layout_html", "layout_pages"]

MAX_CHUNKS_A_PAGE = 2_000
"""Spans that a browser draws and restyles without a noticeable wait."""
MAX_TEXT_A_PAGE = 200_000
"""Characters, for layouts of few and huge chunks."""
HEAT_STEPS = 8
"""Tints that scores are drawn in; more cannot be told apart."""
MAX_CUT_SHOWN = 2_000
"""Characters shown of what the length limit cut."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&^=])")

# Tints are translucent, so that they lie well on a light and on a dark ground. Every
# paragraph takes its own direction (`plaintext`), as texts mix them.
_HEAT_CSS = "\n".join(
    f".lmk-doc .heat{step} {{ background: rgba(20, 148, 107, {0.05 + 0.07 * step:.2f}); }}"
    for step in range(HEAT_STEPS)
)
PAGE_CSS = f"""
<style>
{_HEAT_CSS}"""
PAGE_CSS += """
.stMainBlockContainer { padding-top: 3rem; padding-bottom: 4rem; }
[data-testid="stPageLink"] p { white-space: normal; }
[data-testid="stTextArea"] textarea { unicode-bidi: plaintext; text-align: start; }
.lmk-doc { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext;
  line-height: 1.75; font-size: 0.98rem; text-align: start; }
.lmk-doc .chunk { border-radius: 0.25rem; padding: 0.12rem 0; outline-offset: 1px;
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.lmk-doc .even { background: rgba(61, 139, 208, 0.17); }
.lmk-doc .odd { background: rgba(224, 150, 27, 0.17); }
.lmk-doc .tail { background: repeating-linear-gradient(-45deg, rgba(138, 143, 152, 0.28) 0 6px,
  rgba(138, 143, 152, 0.10) 6px 12px); }
.lmk-doc .chunk:hover { background: rgba(20, 148, 107, 0.30); }
.lmk-doc .chunk:focus { background: rgba(20, 148, 107, 0.30); outline: 2px solid #14946B; }
.lmk-doc .mark { unicode-bidi: isolate; direction: ltr; white-space: nowrap; color: #FFFFFF;
  background: #0B7A58; border-radius: 0.3rem; padding: 0.05rem 0.3rem; margin: 0 0.15rem;
  font-size: 0.72rem; font-weight: 600; vertical-align: 0.08em; user-select: none; }
.lmk-doc .gone { opacity: 0.45; text-decoration: line-through;
  text-decoration-color: rgba(138, 143, 152, 0.9); }
.lmk-doc .note { font-size: 0.85rem; opacity: 0.75; font-style: italic; }
.lmk-doc .chunk:hover::after, .lmk-doc .chunk:focus::after { content: attr(data-tip);
  position: fixed; left: 50%; bottom: 1rem; transform: translateX(-50%); z-index: 1000;
  max-width: 92vw; direction: ltr; unicode-bidi: isolate; white-space: normal;
  background: #1B2420; color: #FFFFFF; border: 1px solid #35B88C; border-radius: 0.4rem;
  padding: 0.4rem 0.8rem; font-size: 0.85rem; line-height: 1.3; }
</style>
"""


def escape_markdown(text: str) -> str:
    r"""Returns text that Streamlit's markdown shows letter by letter, on one line.

    Example:
        >>> escape_markdown("a *b* <i>")
        'a \\*b\\* \\<i\\>'
    """
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def layout_pages(layout: Layout) -> list[tuple[int, int]]:
    """Returns ranges of chunks that are drawn together: first and one past the last.

    One empty range for a layout without chunks.
    """
    pages: list[tuple[int, int]] = []
    first = characters = 0
    for number, chunk in enumerate(layout.chunks):
        characters += chunk.char_end - chunk.char_start
        if number > first and (number - first >= MAX_CHUNKS_A_PAGE or characters > MAX_TEXT_A_PAGE):
            pages.append((first, number))
            first, characters = number, chunk.char_end - chunk.char_start
    pages.append((first, len(layout.chunks)))
    return pages


def layout_html(
    layout: Layout,
    landmark_token: str,
    page: tuple[int, int] | None = None,
    scores: Mapping[int, float] | None = None,
) -> str:
    """Returns a text with its chunks tinted, its landmarks marked and its cut struck through.

    Args:
        layout: any layout.
        landmark_token: how the tokenizer writes the landmark.
        page: range of chunks to draw; None draws all.
        scores: of chunks, by their number; the tint then goes from the lowest to the highest of
            them, the number stands at the landmark, and chunks without one have no tint.

    Returns:
        One escaped HTML block. The text in it is the document's, white space included.
    """
    text, chunks = layout.text, layout.chunks
    first, last = page or (0, len(chunks))
    shown = chunks[first:last]
    parts = ['<div class="lmk-doc" dir="auto">']
    position = 0 if first == 0 else chunks[first].char_start
    low, high = (min(scores.values()), max(scores.values())) if scores else (0.0, 0.0)
    for chunk in shown:
        parts.append(escape(text[position : chunk.char_start]))
        shade, score = "even" if chunk.index % 2 == 0 else "odd", None
        if scores is not None:
            shade, score = "", scores.get(chunk.index)
        if score is not None:
            step = int((score - low) / (high - low) * HEAT_STEPS) if high > low else HEAT_STEPS
            shade = f"heat{min(step, HEAT_STEPS - 1)}"
        parts.append(_chunk_html(chunk, text, landmark_token, shade, score))
        position = chunk.char_end
    if last == len(chunks):
        parts.append(_rest_html(layout, position))
    parts.append("</div>")
    return "".join(parts)


def _chunk_html(
    chunk: Chunk, text: str, landmark_token: str, shade: str, score: float | None
) -> str:
    marked = chunk.landmark_position is not None
    tip = (
        ("" if score is None else f"cosine {score:.3f} · ")
        + f"chunk {chunk.index} · tokens {chunk.token_start:,}-{chunk.token_end:,} "
        f"({chunk.n_tokens:,}) · characters {chunk.char_start:,}-{chunk.char_end:,} · "
        + (f"landmark at input position {chunk.landmark_position:,}" if marked else "no landmark")
        + (" · its end splits a character" if chunk.splits_character else "")
    )
    classes = ["chunk", *([shade] if shade else []), *([] if marked else ["tail"])]
    body = escape(text[chunk.char_start : chunk.char_end])
    html = (
        f'<span class="{" ".join(classes)}" tabindex="0" '
        f'aria-label="{escape(tip)}" data-tip="{escape(tip)}">{body}</span>'
    )
    if marked:
        html += (
            f'<span class="mark" title="{escape(landmark_token)} closes chunk {chunk.index}" '
            f'aria-hidden="true">◆{chunk.index}{"" if score is None else f" {score:.2f}"}</span>'
        )
    return html


def _rest_html(layout: Layout, position: int) -> str:
    rest = layout.text[position:]
    if not layout.n_cut:
        return escape(rest)
    more = len(rest) - MAX_CUT_SHOWN
    note = (
        f'<span class="note">\n... and {more:,} more characters that the length limit cut.</span>'
        if more > 0
        else ""
    )
    return f'<span class="gone">{escape(rest[:MAX_CUT_SHOWN])}</span>{note}'
