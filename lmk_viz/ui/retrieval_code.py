"""Python that loads the data set that a page works on."""

import streamlit as st

from lmk_viz.corpus import CorpusTable
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.ui import state
from lmk_viz.ui.controls import read_limits
from lmk_viz.ui.retrieval_uploads import ARCHIVE, DOCUMENTS, QUERIES, named, query_columns

__all__ = ["dataset_code"]


def dataset_code(dataset: RetrievalDataset) -> tuple[list[str], list[str]]:
    """Returns the imports and lines of Python that load what is chosen, as `dataset`."""
    imports, lines = {
        "bundled": _bundled_code,
        "tables": _tables_code,
        "beir": _archive_code,
        "documents": _documents_code,
    }[state.DATASET.get()](dataset)
    most = read_limits().max_documents
    if len(dataset.corpus) == most:
        # Perhaps a part; of a whole of just this size the line changes nothing.
        imports = [*imports, "from lmk_viz.retrieval.uploads import limit_dataset"]
        lines = [*lines, f"dataset = limit_dataset(dataset, {most})"]
    return imports, lines


def _bundled_code(dataset: RetrievalDataset) -> tuple[list[str], list[str]]:
    titles = "with_titles=True" if dataset.with_titles else ""
    return (
        ["from lmk_viz.retrieval.dataset import sample_dataset"],
        [f"dataset = sample_dataset({titles})"],
    )


def _archive_code(dataset: RetrievalDataset) -> tuple[list[str], list[str]]:
    name = st.session_state[ARCHIVE].content[0]
    return (
        ["from lmk_viz.retrieval.sources import open_dataset"],
        [f"dataset = open_dataset({name!r}, None, {dataset.split!r}, {dataset.with_titles})"],
    )


def _documents_code(dataset: RetrievalDataset) -> tuple[list[str], list[str]]:
    imports, lines = _corpus_code()
    place, seed = state.DATA_PLACE.get(), state.DATA_SEED.get()
    return (
        [*imports, "from lmk_viz.retrieval.made_queries import dataset_from_documents"],
        [
            *lines,
            f"dataset = dataset_from_documents(corpus, {place!r}, {seed}, {dataset.with_titles})",
        ],
    )


def _tables_code(dataset: RetrievalDataset) -> tuple[list[str], list[str]]:
    imports, lines = _corpus_code()
    name = st.session_state[QUERIES].content.name
    return (
        [
            "from pathlib import Path",
            *imports,
            "from lmk_viz.corpus import table_from_bytes",
            "from lmk_viz.retrieval.uploads import QueryColumns, dataset_from_tables",
        ],
        [
            *lines,
            f"queries = table_from_bytes(Path({name!r}).read_bytes(), {name!r})",
            f"columns = {query_columns()!r}",
            f"dataset = dataset_from_tables(corpus, queries, columns, {dataset.with_titles})",
        ],
    )


def _corpus_code() -> tuple[list[str], list[str]]:
    """Returns the imports and lines that read uploaded documents, as `corpus`."""
    content = st.session_state[DOCUMENTS].content
    if not isinstance(content, CorpusTable):
        return (
            ["from lmk_viz.corpus import load_corpus"],
            ['corpus = load_corpus("documents")  # A folder of the texts.'],
        )
    columns = (
        f"Columns({state.DOCUMENT_TEXT.get()!r}, {named(state.DOCUMENT_ID)!r}, "
        f"{named(state.DOCUMENT_TITLE)!r}, '')"
    )
    return (
        ["from lmk_viz.corpus import Columns, load_corpus"],
        [f"corpus = load_corpus({content.name!r}, {columns})"],
    )
