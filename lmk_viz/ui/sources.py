"""Where a document comes from: samples, pasted text, an upload."""

from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from lmk_viz.documents import Document, document_from_bytes
from lmk_viz.ui import state
from lmk_viz.ui.messages import show_error, stop_with

__all__ = ["UPLOAD_MEGABYTES", "pick_document"]

T = TypeVar("T")

MAX_PASTED = 1_200_000
UPLOAD_MEGABYTES = 10

_UPLOAD = "shared.upload"


def pick_document(samples: tuple[Document, ...]) -> Document:
    """Draws the document picker and returns the document; its own widgets lie in the page."""
    titles = {sample.id: sample.title for sample in samples}
    options = [*titles, state.PASTED, state.UPLOADED]
    if state.DOCUMENT.get() not in options:
        show_error(f"There is no sample {state.DOCUMENT.get()!r}; another one is shown.")
        state.DOCUMENT.set(options[0])
    names = {state.PASTED: "Your text, pasted", state.UPLOADED: "Your text file"}
    with st.sidebar:
        chosen = st.selectbox(
            "Document",
            options,
            format_func=lambda option: titles.get(option, names.get(option, option)),
            **state.DOCUMENT.widget(),
        )
    if chosen == state.PASTED:
        return _pasted_document()
    if chosen == state.UPLOADED:
        return _uploaded_document()
    return next(sample for sample in samples if sample.id == chosen)


def _pasted_document() -> Document:
    text = st.text_area(
        "Your text",
        height=180,
        max_chars=MAX_PASTED,
        placeholder="Paste a document here; it stays in this session and never enters the link.",
        **state.TEXT.widget(),
    )
    if not (text or "").strip():
        stop_with("Paste some text above, or choose a sample in the side bar.")
    try:
        return Document(state.PASTED, "Your text", text or "")
    except ValueError as error:
        show_error(error)
        st.stop()


def _uploaded_document() -> Document:
    document = _upload("A text file in UTF-8", None, "_upload", _UPLOAD, document_from_bytes)
    if document is None:
        stop_with("Choose a text file above, or a sample in the side bar.")
    return document


def _upload(
    label: str,
    types: list[str] | None,
    key: str,
    kept: str,
    read: Callable[[bytes, str], T],
) -> T | None:
    """Draws an uploader and returns what was read last, also after the widget forgot its file.

    Args:
        label: of the widget.
        types: file endings that are taken; None takes any.
        key: of the widget.
        kept: session key of what was read.
        read: takes content and name; raises ValueError for what it cannot read, which ends
            the page with a message.
    """
    file = st.file_uploader(label, type=types, max_upload_size=UPLOAD_MEGABYTES, key=key)
    if file is not None:
        try:
            st.session_state[kept] = read(file.getvalue(), file.name)
        except ValueError as error:
            show_error(error)
            st.stop()
    found: T | None = st.session_state.get(kept)
    return found
