"""Where texts come from: samples, pasted text, uploads."""

from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from lmk_viz.corpus import TABLE_SUFFIXES, Corpus, corpus_from_bytes
from lmk_viz.documents import Document, document_from_bytes
from lmk_viz.ui import cache, state
from lmk_viz.ui.limits import Limits
from lmk_viz.ui.messages import show_error, stop_with

__all__ = ["pick_corpus", "pick_document"]

T = TypeVar("T")

MAX_PASTED = 1_200_000
UPLOAD_MEGABYTES = 10
BUNDLED = "bundled"

_UPLOAD = "shared.upload"
_CORPUS_UPLOAD = "map.upload"


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


def pick_corpus(limits: Limits) -> Corpus:
    """Draws the corpus picker and returns the corpus, or stops the page with what is wrong."""
    names = {BUNDLED: "Bundled: 72 texts on eight topics", state.UPLOADED: "Your table"}
    if state.CORPUS.get() not in names:
        show_error(f"There is no corpus {state.CORPUS.get()!r}; the bundled one is shown.")
        state.CORPUS.set(BUNDLED)
    chosen = st.selectbox(
        "Corpus", list(names), format_func=names.__getitem__, **state.CORPUS.widget()
    )
    if chosen == BUNDLED:
        return cache.get_sample_corpus()
    corpus = _upload(
        f"A table ({', '.join(TABLE_SUFFIXES)}) with a column text, and id, title, label if any",
        [suffix[1:] for suffix in TABLE_SUFFIXES],
        "_corpus_upload",
        _CORPUS_UPLOAD,
        corpus_from_bytes,
    )
    if corpus is None:
        stop_with("Choose a table above, or the bundled corpus in the list.")
    if len(corpus) > limits.max_documents:
        show_error(
            f"{corpus.name} has {len(corpus):,} documents; at most {limits.max_documents:,} are "
            "embedded at once here. Give a smaller table; nothing is sampled silently."
        )
        st.stop()
    return corpus
