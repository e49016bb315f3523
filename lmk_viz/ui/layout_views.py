"""Parts of the landmarks page."""

from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import ChunkingConfig, LayoutKind
from lmk_viz.landmarks import Layout, LayoutStats
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.text import layout_html, layout_pages

__all__ = ["show_layout"]

TEXT_HEIGHT = 520


def show_layout(inputs: Inputs, encoder: Any, chunking: ChunkingConfig, name: str) -> None:
    """Draws the text under one chunking with its numbers.

    Args:
        inputs: what the page works on.
        encoder: the loaded encoder.
        chunking: where to cut, which may differ from that of the inputs.
        name: tells the widgets of two such views apart.
    """
    place = (inputs.encoder, inputs.document.text, LayoutKind.LANDMARK, chunking, inputs.max_length)
    layout, stats = cache.get_layout(*place), cache.get_layout_stats(*place)
    st.markdown(f"**{chunking.describe()}**")
    _show_numbers(stats)
    pages = layout_pages(layout)
    number = 1
    if len(pages) > 1:
        number = int(
            st.number_input(
                f"Part of the text (1 to {len(pages)})", 1, len(pages), step=1, key=f"part.{name}"
            )
        )
    token = encoder.token_text(encoder.special_ids.landmark)
    with st.container(height=TEXT_HEIGHT, key=f"document-{name}"):
        st.html(layout_html(layout, token, pages[number - 1]))
    if state.SHOW_TOKENS.get():
        st.dataframe(
            tokens_frame(layout, encoder), height=300, hide_index=True, key=f"tokens.{name}"
        )


def _show_numbers(stats: LayoutStats) -> None:
    lengths = f"{stats.chunk_tokens_min} / {stats.chunk_tokens_median:g} / {stats.chunk_tokens_max}"
    panels.show_metrics(
        [
            ("Landmarks", f"{stats.landmarks:,}", "States that are averaged into the vector."),
            ("Overhead", f"{stats.overhead:.1%}", "Landmarks for every text token kept."),
            ("Tail", f"{stats.tail_tokens:,}", "Text tokens behind the last landmark."),
            (
                "Cuts in a word",
                f"{stats.boundaries_in_word} / {stats.boundaries}",
                "Chunk boundaries inside a word, of all boundaries.",
            ),
            (
                "Cuts in a sentence",
                f"{stats.boundaries_in_sentence} / {stats.boundaries}",
                "Chunk boundaries inside a sentence, of all boundaries.",
            ),
            ("Chunk length", lengths, "Tokens a chunk: shortest, median, longest."),
        ]
    )
    if stats.landmarks == 1:
        st.caption("One landmark: the vector is the state of one separator alone.")
    if not stats.landmarks:
        st.caption(":orange[No landmark is left: the vector falls back to the mean of all states.]")
    if stats.boundaries_in_character:
        st.caption(
            f":orange[{stats.boundaries_in_character} boundaries fall inside a character, which "
            "is drawn with the chunk it begins in.]"
        )


def tokens_frame(layout: Layout, encoder: Any) -> pd.DataFrame:
    """Returns the encoder's input, one row a position."""
    index = layout.token_index
    role = pd.Series("special", index=range(len(layout)))
    role[layout.content_positions] = "text"
    role[layout.landmark_positions] = "landmark"
    role[layout.cls_positions] = "CLS"
    spans = [
        f"{layout.tokens.starts[place]}-{layout.tokens.ends[place]}" if place >= 0 else ""
        for place in index.tolist()
    ]
    return pd.DataFrame(
        {
            "position": range(len(layout)),
            "id": layout.input_ids,
            "token": [encoder.token_text(token_id) for token_id in layout.input_ids.tolist()],
            "role": role,
            "characters": spans,
        }
    )
