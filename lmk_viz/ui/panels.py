"""Parts of pages that draw results: receipts, downloads, badges, progress."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from lmk_viz.config import ChunkingConfig, PoolingMode
from lmk_viz.corpus import Excluded
from lmk_viz.landmarks import Layout, LayoutStats
from lmk_viz.probes import SegmentCosines
from lmk_viz.ui import cache
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.text import PAGE_CSS, escape_markdown

__all__ = [
    "begin_page",
    "chunking_code",
    "chunks_frame",
    "document_receipt",
    "segment_frame",
    "show_badge",
    "show_cache",
    "show_downloads",
    "show_excluded",
    "show_figure",
    "show_metrics",
    "snippet",
]

PAGES = (
    ("app.py", "Home", ":material/home:"),
    ("pages/1_Landmarks.py", "Landmarks", ":material/anchor:"),
    ("pages/2_Attention.py", "Attention", ":material/visibility:"),
    ("pages/3_Embedding_map.py", "Embedding map", ":material/scatter_plot:"),
    ("pages/4_Position_bias.py", "Position bias", ":material/straighten:"),
    ("pages/5_Granularity.py", "Granularity", ":material/tune:"),
    ("pages/6_Retrieval.py", "Retrieval", ":material/search:"),
)
FIGURE_CONFIG = {
    "displaylogo": False,
    "toImageButtonOptions": {"format": "png", "scale": 2, "filename": "lmk_viz"},
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}


def begin_page(title: str, lead: str) -> None:
    """Sets the page up and draws its heading and one sentence that says what it answers."""
    st.set_page_config(f"{title} · lmk_viz", "⚓", layout="wide")
    st.html(PAGE_CSS)
    with st.sidebar:
        for path, label, icon in PAGES:
            st.page_link(path, label=label, icon=icon)
        st.divider()
    st.title(title, anchor=False)
    st.markdown(lead)


def document_receipt(inputs: Inputs, encoder: Any, layout: Layout, stats: LayoutStats) -> None:
    """Draws what happened to the document on its way into the encoder."""
    parts = [
        f"**{escape_markdown(inputs.document.title)}**",
        f"{stats.characters:,} characters",
        f"{stats.tokens:,} tokens",
    ]
    if stats.tokens_unknown:
        parts.append(f"{stats.tokens_unknown:,} unknown to the vocabulary")
    if stats.tokens_cut:
        parts.append(
            f":orange[{stats.tokens_cut:,} tokens ({stats.characters_cut:,} characters) cut by "
            f"the limit of {inputs.max_length:,}]"
        )
    spelled = encoder.spelled_special_tokens(inputs.document.text)
    if spelled:
        tokens = ", ".join(f"{escape_markdown(t)} ×{n}" for t, n in spelled.items())
        parts.append(f"spells {tokens}, read as plain text")
    if layout.tokens.offsets_repaired:
        parts.append(":orange[character positions are approximate with this tokenizer]")
    st.markdown(" · ".join(parts))


def chunks_frame(layout: Layout) -> pd.DataFrame:
    """Returns one row a chunk: its tokens, characters and landmark."""
    return pd.DataFrame(layout.to_dict()["chunks"])


def segment_frame(result: SegmentCosines) -> pd.DataFrame:
    """Returns one row a part of a document: its tokens and cosines."""
    frame = pd.DataFrame({"from_token": result.borders[:-1], "to_token": result.borders[1:]})
    for mode, cosines in result.cosines.items():
        frame[f"{mode.value}_cosine"] = cosines
        frame[f"{mode.value}_unrelated"] = result.unrelated.get(mode)
    return frame


def show_metrics(values: Sequence[tuple[str, str, str]]) -> None:
    """Draws numbers with their names and a line of help each."""
    with st.container(horizontal=True):
        for name, value, help_text in values:
            st.metric(name, value, help=help_text, width="content")


def show_badge(encoder: Any, shown: Sequence[PoolingMode]) -> None:
    """Says for which of the poolings on show the encoder was never trained.

    Of a family it also says that each pooling has a space of its own.

    Args:
        encoder: the encoder, or the pooling or poolings that it was trained for, or None.
        shown: what is on show.
    """
    if len(shown) > 1 and getattr(encoder, "variants", None):
        st.caption(
            "Each pooling is read from the variant that was trained for it. The vectors of two "
            "variants are not one space: everything compared here is compared within a variant."
        )
    trained = _trained_poolings(encoder)
    untrained = [mode.value for mode in shown if mode not in trained]
    if not untrained:
        return
    names = ", ".join(mode.value for mode in PoolingMode if mode in trained)
    known = f"trained for {names}" if names else "not trained for any pooling"
    st.markdown(
        f":orange-badge[:material/warning: {known}] This encoder was never trained for "
        f"{', '.join(untrained)}: what is seen here shows what an untrained pooling does with "
        "it, and is no verdict on those poolings."
    )


def _trained_poolings(encoder: Any) -> frozenset[PoolingMode]:
    if encoder is None:
        return frozenset()
    if isinstance(encoder, PoolingMode):  # Before iterables: a string is one.
        return frozenset({encoder})
    known: Iterable[PoolingMode] = getattr(encoder, "trained_poolings", encoder)
    return frozenset(known)


def show_cache() -> None:
    """Draws how large the cache of vectors on disk is, with a button that clears it.

    Nothing where there is none. What a page has in memory stays, so that clearing does not
    embed anew what is on show.
    """
    try:
        kept = cache.get_embedding_cache()
    except ValueError:  # The call that embeds says so.
        return
    size = 0 if kept is None else kept.size()
    if not size:
        return
    st.button(
        f"Clear the cache of vectors ({size / 1e6:,.1f} MB)",
        key="_shared.clear_cache",
        icon=":material/delete_sweep:",
        type="tertiary",
        help="Vectors of texts that were embedded before are kept on this machine's disk, by a "
        "digest of the text; the texts are not kept. Cleared, they are embedded again when they "
        "are next needed.",
        on_click=kept.clear,
    )


def show_figure(figure: go.Figure, key: str, alt: str) -> None:
    """Draws a figure with its text alternative."""
    st.plotly_chart(figure, key=key, config=FIGURE_CONFIG, alt=alt)


def show_downloads(
    name: str, frame: pd.DataFrame, result: Mapping[str, Any], figure: go.Figure | None, code: str
) -> None:
    """Draws what a reader takes away: CSV, JSON, the figure as a page, and the Python lines.

    Args:
        name: stem of the file names.
        frame: the numbers as a table.
        result: the numbers as JSON types.
        figure: self-contained HTML is made of it on request.
        code: Python that gives the same numbers.
    """
    with st.expander("Take it with you: data, figure, Python", icon=":material/download:"):
        with st.container(horizontal=True):
            st.download_button(
                "CSV",
                lambda: frame.to_csv(index=False).encode(),
                f"{name}.csv",
                "text/csv",
                key=f"{name}.csv",
                on_click="ignore",
            )
            st.download_button(
                "JSON",
                lambda: json.dumps(result, ensure_ascii=False).encode(),
                f"{name}.json",
                "application/json",
                key=f"{name}.json",
                on_click="ignore",
            )
            if figure is not None:
                st.download_button(
                    "Figure (HTML, works offline)",
                    lambda: figure.to_html(include_plotlyjs=True).encode(),
                    f"{name}.html",
                    "text/html",
                    key=f"{name}.html",
                    on_click="ignore",
                )
        st.caption(
            "A PNG is behind the camera above the figure. The address of this page holds all "
            "its settings, never your text."
        )
        st.code(code, language="python")


def snippet(inputs: Inputs, imports: Sequence[str], lines: Sequence[str]) -> str:
    """Returns Python that reproduces a view: the shared part, then the page's own lines."""
    own = inputs.document.id not in {sample.id for sample in cache.get_samples()}
    source = "read_document" if own else "sample_documents"
    read = (
        'text = read_document("document.txt").text'
        if own
        else f"text = next(d for d in sample_documents() if d.id == {inputs.document.id!r}).text"
    )
    return "\n".join(
        [
            "from lmk_viz.config import AttentionConfig, ChunkingConfig, LayoutKind",
            f"from lmk_viz.documents import {source}",
            "from lmk_viz.encoder import Encoder",
            *imports,
            "",
            f"encoder = Encoder.from_pretrained({inputs.encoder.name!r})",
            read,
            f"chunking = {chunking_code(inputs.chunking)}",
            *lines,
        ]
    )


def chunking_code(chunking: ChunkingConfig) -> str:
    """Returns the expression that makes a chunking, with what differs from the defaults."""
    default = ChunkingConfig()
    arguments = []
    for name in chunking.__dataclass_fields__:
        value = getattr(chunking, name)
        if value != getattr(default, name):
            arguments.append(f"{name}={str(value)!r}" if name == "mode" else f"{name}={value!r}")
    return f"ChunkingConfig({', '.join(arguments)})"


def show_excluded(excluded: Sequence[Excluded], what: str, key: str) -> None:
    """Draws under a heading that opens which texts were left out and why, if any.

    Args:
        excluded: the texts.
        what: they are, behind their number.
        key: of the table.
    """
    if not excluded:
        return
    with st.expander(f"{len(excluded):,} {what}", icon=":material/block:"):
        st.dataframe(
            pd.DataFrame([{"id": e.id, "reason": e.reason} for e in excluded]),
            hide_index=True,
            key=key,
        )
