"""Page 1's question: which chunk of the document answers, and what one vector makes of it."""

from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import PoolingMode
from lmk_viz.figures.query import query_alt, query_figure
from lmk_viz.landmarks import Layout
from lmk_viz.query_match import QueryMatch
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.controls import Inputs, read_limits
from lmk_viz.ui.messages import show_error
from lmk_viz.ui.text import layout_html, layout_pages

__all__ = ["show_query"]

TEXT_HEIGHT = 420
MAX_CHARACTERS = 20_000
WORDED_FROM_SECONDS = 2.0
"""A document that takes longer is announced with its seconds."""


def show_query(inputs: Inputs, encoder: Any, layout: Layout) -> None:
    """Draws the question box, and once there is a question how each landmark answers it.

    Args:
        inputs: what the page works on.
        encoder: the loaded encoder.
        layout: of the document, with landmarks.
    """
    st.subheader("Ask the document", anchor=False)
    st.text_input(
        "Question",
        placeholder="A question that one place in the document answers",
        max_chars=MAX_CHARACTERS,
        help="It stays in this session: the address of the page never holds it.",
        **state.QUERY.widget(),
    )
    query = state.QUERY.get()
    if not query.strip():
        st.caption(
            "Type a question to see its cosine with the document's one vector and with every "
            "landmark behind it: which chunk answers, and how much of that the mean keeps."
        )
        return
    try:
        encoder.check_memory(len(layout), 0, read_limits().memory_bytes)
        with st.spinner(_announce(encoder, layout)):
            match = cache.get_query_match(inputs.encoder, encoder, layout, inputs.chunking, query)
    except ValueError as error:
        show_error(error)
        return
    panels.show_badge(encoder, [PoolingMode.LANDMARK])
    _show_numbers(match)
    _show_notes(match)
    figure = None
    if match.best is not None:
        figure = query_figure(match)
        panels.show_figure(figure, "query", query_alt(match))
        st.caption(
            "A bar as wide as its chunk for every landmark; the closest is green and labelled. "
            "Where it stands far above the median, one place answers; where the pooled vector's "
            "line lies near the median, the mean has averaged that place away. Neighbours of the "
            "answering chunk are often high too, as every landmark sees the whole text."
        )
    _show_text(encoder, layout, match)
    limit = inputs.max_length
    panels.show_downloads(
        "question",
        pd.DataFrame(match.to_dict()["landmarks"]),
        match.to_dict(),
        figure,
        panels.snippet(
            inputs,
            ["from lmk_viz.query_match import landmark_vectors, match_query"],
            [
                f'layout = encoder.layout(text, LayoutKind("landmark"), chunking, {limit})',
                "document = landmark_vectors(encoder, layout)",
                f"found = match_query(encoder, document, {query!r}, chunking, {limit})",
                "print(found.pooled, found.cosines)",
            ],
        ),
    )


def _announce(encoder: Any, layout: Layout) -> str:
    text = f"Reading the document once, {len(layout):,} tokens"
    seconds = encoder.rough_seconds(len(layout))
    if seconds < WORDED_FROM_SECONDS:
        return text
    return f"{text}; about {encoder.forecast(len(layout)).seconds:,.0f} s"


def _show_numbers(match: QueryMatch) -> None:
    best, of = match.best, match.document
    values = [
        (
            "Pooled vector",
            f"{match.pooled:.3f}",
            "Cosine of the question with the document's one vector.",
        )
    ]
    if best is not None:
        values += [
            (
                "Closest landmark",
                f"{match.cosines[best]:.3f}",
                f"Of chunk {of.chunks[best]}, tokens {of.token_starts[best]:,} to "
                f"{of.token_ends[best]:,}.",
            ),
            ("Answering chunk", f"{of.chunks[best]}", "Number of the chunk, as in the text below."),
            (
                "Median / mean landmark",
                f"{match.median:.3f} / {match.mean:.3f}",
                "The control: what a chunk reaches that need not answer anything.",
            ),
        ]
    values.append(
        (
            "Landmarks of the question",
            f"{match.query_landmarks:,}",
            "Its own vector is the mean of these states; most questions have one.",
        )
    )
    panels.show_metrics(values)


def _show_notes(match: QueryMatch) -> None:
    if match.query_tokens_cut:
        st.caption(
            f":orange[The length limit cut {match.query_tokens_cut:,} of the question's "
            f"{match.query_tokens:,} tokens.]"
        )
    if match.query_fell_back:
        st.caption(":orange[The question had room for no landmark: its mean is taken.]")
    if match.document.fell_back:
        st.caption(
            ":orange[No landmark of the document is left, so that no chunk can be named; the "
            "pooled vector is the mean of all its states.]"
        )


def _show_text(encoder: Any, layout: Layout, match: QueryMatch) -> None:
    """Draws the document, each chunk tinted by its landmark's cosine."""
    if match.best is None:
        return
    scores = dict(zip(match.document.chunks.tolist(), match.cosines.tolist(), strict=True))
    pages = layout_pages(layout)
    answering = int(match.document.chunks[match.best])
    number = 1
    if len(pages) > 1:
        holds = next(i for i, (first, last) in enumerate(pages) if first <= answering < last)
        number = int(
            st.number_input(
                f"Part of the text (1 to {len(pages)})",
                1,
                len(pages),
                value=holds + 1,
                step=1,
                help=f"Chunk {answering} is in part {holds + 1}.",
            )
        )
    token = encoder.token_text(encoder.special_ids.landmark)
    with st.container(height=TEXT_HEIGHT, key="asked-document"):
        st.html(layout_html(layout, token, pages[number - 1], scores))
    st.caption(
        f"The deeper the tint, the higher the cosine, from {match.cosines.min():.3f} to "
        f"{match.cosines.max():.3f} in this document; the number stands behind each chunk's ◆. "
        f"Chunk {answering} is the closest. Hatched text has no landmark, struck text was cut."
    )
