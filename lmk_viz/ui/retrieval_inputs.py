"""Where documents with judged queries come from: bundled, tables, an archive, documents alone."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from lmk_viz.config import digest
from lmk_viz.corpus import TABLE_SUFFIXES, CorpusTable, table_from_bytes
from lmk_viz.corpus_sources import read_upload
from lmk_viz.retrieval.archives import dataset_from_zip, splits_of_zip
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.made_queries import dataset_from_documents
from lmk_viz.retrieval.uploads import dataset_from_tables, limit_dataset
from lmk_viz.ui import cache, state
from lmk_viz.ui.controls import read_limits
from lmk_viz.ui.messages import show_error
from lmk_viz.ui.retrieval_uploads import (
    ARCHIVE,
    DOCUMENTS,
    QUERIES,
    corpus_of,
    document_columns,
    pick_document_columns,
    pick_option,
    pick_query_columns,
    query_columns,
    upload_files,
)
from lmk_viz.ui.text import escape_markdown

__all__ = ["dataset_key", "pick_dataset"]

NAMES = {
    "bundled": "Bundled: questions on documents written for this project",
    "tables": "Your documents and your queries (two tables)",
    "beir": "Your data set in BEIR layout (a ZIP)",
    "documents": "Your documents alone (queries are made from them)",
}
PLACES = {
    "spread": "Spread evenly",
    "start": "The start",
    "middle": "The middle",
    "end": "The end",
}
TABLES = [suffix[1:] for suffix in TABLE_SUFFIXES]

_BUILT = "retrieval.built"


def pick_dataset() -> RetrievalDataset | None:
    """Draws the controls of the data set and a receipt, and returns what was chosen.

    A page that calls this adds `state.RETRIEVAL_DATA` to its choices. What was uploaded is kept
    over other pages.

    Returns:
        None as long as nothing is chosen, or what is cannot be used; why is drawn.
    """
    chosen = st.selectbox(
        "Data set", list(NAMES), format_func=NAMES.__getitem__, **state.DATASET.widget()
    )
    try:
        found = {
            "bundled": _bundled,
            "tables": _from_tables,
            "beir": _from_archive,
            "documents": _from_documents,
        }[chosen]()
        if found is None:
            return None
        limited = limit_dataset(found, read_limits().max_documents)
    except ValueError as error:
        show_error(error)
        return None
    _show_receipt(limited)
    return limited


def dataset_key(dataset: RetrievalDataset) -> str:
    """Returns a digest of all that results on a data set depend on, and of what they say of it.

    Names are in it, since results are shared by all sessions: the same texts uploaded by someone
    else must not come back under the name of that one's file.
    """
    return digest(
        dataset.name,
        list(dataset.notes),
        [(d.id, d.text) for d in dataset.corpus],
        list(dataset.queries.items()),
        [(query, list(grades.items())) for query, grades in dataset.qrels.items()],
        list(dataset.depth.items()),
        list(dataset.bins.items()),
    )


def _bundled() -> RetrievalDataset:
    found: RetrievalDataset = cache.get_sample_dataset(_pick_titles())
    return found


def _from_tables() -> RetrievalDataset | None:
    left, right = st.columns(2)
    with left:
        documents = upload_files(
            f"Documents: a table ({', '.join(TABLE_SUFFIXES)}), a ZIP of texts, or texts",
            [*TABLES, "zip", "txt", "md"],
            DOCUMENTS,
            read_upload,
        )
        if documents is not None and isinstance(documents.content, CorpusTable):
            pick_document_columns(documents.content)
    with right:
        queries = upload_files(
            f"Queries: a table ({', '.join(TABLE_SUFFIXES)}) with the id of the right document",
            TABLES,
            QUERIES,
            lambda files: table_from_bytes(files[0][1], files[0][0]),
            several=False,
        )
        if queries is not None:
            pick_query_columns(queries.content)
    with_titles = _pick_titles()
    if documents is None or queries is None:
        st.info(
            "Choose both tables above. Documents need a column of texts and one of ids; queries "
            "a column of texts and one with the id of the right document, one row for each "
            "right document.",
            icon=":material/info:",
        )
        return None
    columns = query_columns()
    return _built(
        lambda: dataset_from_tables(corpus_of(documents), queries.content, columns, with_titles),
        documents.key,
        queries.key,
        document_columns(),
        repr(columns),
        with_titles,
    )


def _from_archive() -> RetrievalDataset | None:
    archive = upload_files(
        "A ZIP with corpus.jsonl, queries.jsonl, qrels/*.tsv and, if known, positions.tsv; each "
        "may be gzipped",
        ["zip"],
        ARCHIVE,
        lambda files: (*files[0], splits_of_zip(files[0][1], files[0][0])),
        several=False,
    )
    if archive is None:
        st.info(
            "Choose a ZIP above. A folder of this machine is read by the command line: "
            "`python -m lmk_viz sweep DIR`, `evaluate DIR`.",
            icon=":material/info:",
        )
        return None
    name, data, splits = archive.content
    with st.container(horizontal=True, vertical_alignment="bottom"):
        split = pick_option("Split", state.DATA_SPLIT, splits[0], splits)
        with_titles = _pick_titles()
    return _built(
        lambda: dataset_from_zip(data, name, split, with_titles), archive.key, split, with_titles
    )


def _from_documents() -> RetrievalDataset | None:
    documents = upload_files(
        f"A table ({', '.join(TABLE_SUFFIXES)}), a ZIP of .txt and .md files, or several of them",
        [*TABLES, "zip", "txt", "md"],
        DOCUMENTS,
        read_upload,
    )
    if documents is not None and isinstance(documents.content, CorpusTable):
        pick_document_columns(documents.content)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Where the sentences are taken from",
            list(PLACES),
            format_func=PLACES.__getitem__,
            required=True,
            help="One sentence is taken out of each document and has to find the rest of it.",
            **state.DATA_PLACE.widget(),
        )
        st.number_input("Seed", 0, 2**32 - 1, step=1, width=150, **state.DATA_SEED.widget())
        with_titles = _pick_titles()
    if documents is None:
        st.info("Choose documents above, or the bundled data set in the list.")
        return None
    place, seed = state.DATA_PLACE.get(), state.DATA_SEED.get()
    return _built(
        lambda: dataset_from_documents(corpus_of(documents), place, seed, with_titles),
        documents.key,
        document_columns(),
        place,
        seed,
        with_titles,
    )


def _pick_titles() -> bool:
    st.toggle(
        "Titles before the texts",
        help="Off by default: a title often answers a question by itself, wherever its answer "
        "stands in the text.",
        **state.DATA_TITLES.widget(),
    )
    return state.DATA_TITLES.get()


def _built(build: Callable[[], RetrievalDataset], *settings: Any) -> RetrievalDataset:
    """Returns a data set, made anew only when what it is made of has changed."""
    key = digest(*settings)
    before = st.session_state.get(_BUILT)
    if before is None or before[0] != key:
        with st.spinner("Reading documents and queries"):
            before = st.session_state[_BUILT] = (key, build())
    found: RetrievalDataset = before[1]
    return found


def _show_receipt(dataset: RetrievalDataset) -> None:
    """Draws what the data set holds, and in full what was left out of it or made up."""
    characters = sorted(len(document.text) for document in dataset.corpus)
    st.markdown(
        f"**{escape_markdown(dataset.name)}** · {len(dataset.corpus):,} documents, the middle "
        f"one of {characters[len(characters) // 2]:,} characters · "
        f"{len(dataset.queries):,} queries"
        + (f", {len(dataset.depth):,} with a known depth" if dataset.depth else "")
        + (" · titles encoded" if dataset.with_titles else "")
    )
    for note in dataset.notes:
        st.caption(f":orange[{escape_markdown(note)}.]")
