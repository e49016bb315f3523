"""Uploaded documents and queries: kept over pages, and which column holds what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from lmk_viz.config import digest
from lmk_viz.corpus import Corpus, CorpusTable, corpus_from_table
from lmk_viz.retrieval.uploads import QueryColumns, guess_document_columns, guess_query_columns
from lmk_viz.ui import state
from lmk_viz.ui.corpora import show_preview
from lmk_viz.ui.sources import UPLOAD_MEGABYTES

__all__ = [
    "ARCHIVE",
    "DOCUMENTS",
    "QUERIES",
    "Upload",
    "corpus_of",
    "document_columns",
    "named",
    "pick_document_columns",
    "pick_option",
    "pick_query_columns",
    "query_columns",
    "upload_files",
]

NONE = "none"
DOCUMENTS, QUERIES, ARCHIVE = "retrieval.documents", "retrieval.queries", "retrieval.archive"
"""Session keys of what was uploaded last."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What was read from files last, with a digest of their bytes."""

    key: str
    content: Any


def upload_files(
    label: str,
    types: list[str],
    kept: str,
    read: Callable[[Sequence[tuple[str, bytes]]], Any],
    several: bool = True,
) -> Upload | None:
    """Draws an uploader and returns what was read last, also after the widget forgot its files.

    Raises:
        ValueError: when the files cannot be read.
    """
    chosen: Any = st.file_uploader(
        label,
        type=types,
        accept_multiple_files=several,
        max_upload_size=UPLOAD_MEGABYTES,
        key=f"_{kept}",
    )
    files = chosen if several else ([chosen] if chosen is not None else [])
    if files:
        named = [(file.name, file.getvalue()) for file in files]
        key = digest(*(part for pair in named for part in pair))
        before: Upload | None = st.session_state.get(kept)
        if before is None or before.key != key:
            st.session_state[kept] = Upload(key, read(named))
    found: Upload | None = st.session_state.get(kept)
    return found


def corpus_of(documents: Upload) -> Corpus:
    """Returns the documents of an upload, by the columns that are chosen."""
    if isinstance(documents.content, CorpusTable):
        columns = replace(
            guess_document_columns(documents.content),
            text=state.DOCUMENT_TEXT.get(),
            title=named(state.DOCUMENT_TITLE),
            id=named(state.DOCUMENT_ID),
            label="",
        )
        return corpus_from_table(documents.content, columns)
    found: Corpus = documents.content
    return found


def document_columns() -> str:
    """Returns the chosen columns of documents in a word, for keys of results."""
    return repr([state.DOCUMENT_TEXT.get(), state.DOCUMENT_TITLE.get(), state.DOCUMENT_ID.get()])


def pick_document_columns(table: CorpusTable) -> None:
    """Draws which column of documents holds what, with a preview.

    Raises:
        ValueError: when the table has none.
    """
    if not table.columns:
        raise ValueError(f"{table.name} has no rows; give a table with at least one document.")
    guess = guess_document_columns(table)
    with st.container(horizontal=True):
        text = pick_option("Text column", state.DOCUMENT_TEXT, guess.text, table.columns)
        others = (NONE, *(name for name in table.columns if name != text))
        pick_option("Title column", state.DOCUMENT_TITLE, guess.title or NONE, others)
        pick_option("Id column", state.DOCUMENT_ID, guess.id or NONE, others)
    show_preview(table)


def pick_query_columns(table: CorpusTable) -> None:
    """Draws which column of queries holds what, with a preview.

    Raises:
        ValueError: when the table has fewer than two.
    """
    if len(table.columns) < 2:
        raise ValueError(
            f"{table.name} has the columns {list(table.columns)}; expected one with queries and "
            "one with the id of the right document."
        )
    guess = guess_query_columns(table)
    with st.container(horizontal=True):
        text = pick_option("Query column", state.QUERY_TEXT, guess.text, table.columns)
        others = tuple(name for name in table.columns if name != text)
        pick_option("Document id column", state.QUERY_DOCUMENT, guess.document, others)
        pick_option("Query id column", state.QUERY_ID, guess.id or NONE, (NONE, *others))
        pick_option("Depth column", state.QUERY_DEPTH, guess.depth or NONE, (NONE, *others))
    show_preview(table)


def query_columns() -> QueryColumns:
    """Returns the chosen columns of queries."""
    return QueryColumns(
        state.QUERY_TEXT.get(),
        state.QUERY_DOCUMENT.get(),
        named(state.QUERY_ID),
        named(state.QUERY_DEPTH),
    )


def named(choice: state.Choice[str]) -> str:
    """Returns the chosen column, empty for none."""
    return "" if choice.get() == NONE else choice.get()


def pick_option(label: str, choice: state.Choice[str], default: str, options: Sequence[str]) -> str:
    """Draws a choice among what an upload holds, and returns it.

    Args:
        label: of the widget.
        choice: where it is kept; what is not among the options gives way to the default.
        default: first choice; where it is no option, the first of them.
        options: at least one.
    """
    if choice.get() not in options:
        choice.set(default if default in options else options[0])
    st.selectbox(
        label,
        list(options),
        format_func=lambda name: "(none)" if name == NONE else name,
        width=180,
        **choice.widget(),
    )
    return choice.get()
