"""Retrieval data sets from two tables, and a stated part of a large one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lmk_viz.corpus import Columns, Corpus, CorpusTable, cell_name, guess_columns
from lmk_viz.documents import Document
from lmk_viz.retrieval.dataset import RetrievalDataset, depth_third

__all__ = [
    "QueryColumns",
    "dataset_from_tables",
    "excluded_notes",
    "guess_document_columns",
    "guess_query_columns",
    "limit_dataset",
    "listed",
    "with_titles_before",
]

MAX_LISTED = 20
"""Ids that a note names; more are counted."""
ID_NAMES = ("id", "_id", "doc_id", "docid", "document_id", "doc-id", "corpus-id", "corpus_id")
QUERY_NAMES = ("query", "question", "text", "query_text", "q")
QUERY_ID_NAMES = ("query_id", "query-id", "qid", "id", "_id")
DOCUMENT_NAMES = (
    *("document", "document_id", "document-id", "doc", "doc_id", "doc-id", "docid"),
    *("corpus-id", "corpus_id", "answer_id", "positive", "relevant"),
)


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """Which columns of a table of queries hold what."""

    text: str = "query"
    document: str = "document"
    """Id of the right document; a query with several stands in several rows."""
    id: str = ""
    """Empty where the table has none: rows with the same text are then one query."""
    depth: str = ""
    """Where the answer stands in the document, 0 to 1; empty where that is not known."""


def guess_document_columns(table: CorpusTable) -> Columns:
    """Returns which columns of a table of documents most likely hold what."""
    guess = guess_columns(table)
    return replace(guess, id=_first_of(ID_NAMES, table.columns) or guess.id)


def guess_query_columns(table: CorpusTable) -> QueryColumns:
    """Returns which columns of a table of queries most likely hold what.

    Example:
        >>> guess_query_columns(CorpusTable("q.csv", ({"question": "Why?", "doc_id": "a"},)))
        QueryColumns(text='question', document='doc_id', id='', depth='')
    """
    names = table.columns
    text = _first_of(QUERY_NAMES, names) or guess_columns(table).text
    others = tuple(name for name in names if name != text)
    document = _first_of(DOCUMENT_NAMES, others)
    own = tuple(name for name in others if name != document)
    # Of two columns that are left, one without a telling name has to be the document's.
    return QueryColumns(
        text,
        document or (others[0] if len(others) == 1 else ""),
        _first_of(QUERY_ID_NAMES, own),
        _first_of(("depth",), own),
    )


def _first_of(wanted: Sequence[str], names: Sequence[str]) -> str:
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in wanted if name in by_lower), "")


def dataset_from_tables(
    corpus: Corpus,
    queries: CorpusTable,
    columns: QueryColumns | None = None,
    with_titles: bool = False,
) -> RetrievalDataset:
    """Returns a data set of documents and of queries with the ids of their right documents.

    Args:
        corpus: the documents, as `corpus_from_table` or `read_upload` give them.
        queries: one row a query and right document.
        columns: which column holds what; None guesses.
        with_titles: put the title and a line break before each document's text.

    Raises:
        ValueError: when a row cannot be used; names file and row and what was expected.
    """
    columns = columns or guess_query_columns(queries)
    if not len(corpus):
        raise ValueError(f"{corpus.name} has no document with text; give at least one.")
    known = {document.id for document in corpus.documents}
    lost = {excluded.id for excluded in corpus.excluded}
    texts: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    depth: dict[str, float] = {}
    blank = without = 0
    by_text: dict[str, str] = {}
    for number, row in enumerate(queries.rows, start=1):
        place = f"{queries.name}, row {number}"
        text, document = _query_cells(row, columns, place)
        if not text.strip():
            blank += 1
            continue
        if document in lost:
            without += 1
            continue
        if document not in known:
            raise ValueError(
                f"{place}: document {document!r} is not in {corpus.name}; expected the id of one "
                f"of its {len(known):,} documents, such as {min(known)!r}."
            )
        name = cell_name(row.get(columns.id)) if columns.id else ""
        name = name or by_text.setdefault(text, f"row-{number}")
        if texts.setdefault(name, text) != text:
            raise ValueError(
                f"{place}: query {name!r} has another text than before; expected one text an id."
            )
        if document in qrels.setdefault(name, {}):
            raise ValueError(
                f"{place}: query {name!r} and document {document!r} came before; expected each "
                "pair once."
            )
        qrels[name][document] = 1
        found = _query_depth(row, columns, place)
        if found is not None:
            depth.setdefault(name, found)
    if not texts:
        raise ValueError(
            f"{queries.name} has no query with a text and a right document; expected one a row."
        )
    notes = (
        *excluded_notes(corpus),
        *([f"{blank:,} rows of queries have no text: left out"] if blank else []),
        *(
            [f"{without:,} rows of queries ask for a document that was left out: left out too"]
            if without
            else []
        ),
    )
    return RetrievalDataset(
        name=corpus.name,
        split="",
        queries=texts,
        corpus=with_titles_before(corpus.documents, with_titles),
        qrels=qrels,
        depth=depth,
        bins={query: depth_third(value) for query, value in depth.items()},
        with_titles=with_titles,
        notes=notes,
    )


def _query_cells(row: Mapping[str, Any], columns: QueryColumns, place: str) -> tuple[str, str]:
    """Returns the text of a query and the id of its document."""
    for name, what in ((columns.text, "the query"), (columns.document, "the document's id")):
        if name not in row:
            missing = f"no column {name!r} for {what}"
            if not name:  # It could not be guessed.
                missing = f"no column's name says that it is {what}, as 'query' and 'document' do"
            raise ValueError(
                f"{place}: {missing}; it has {', '.join(map(repr, row)) or 'none'}, as cut at "
                "commas, or tabs in a .tsv. Name the column that holds it."
            )
    text = row[columns.text]
    if isinstance(text, list | tuple | dict | bytes):
        raise ValueError(f"{place}: the query is of type {type(text).__name__}; expected a string.")
    document = cell_name(row[columns.document])
    if not document:
        raise ValueError(f"{place}: no id of a document; expected one in {columns.document!r}.")
    return cell_name(text), document


def _query_depth(row: Mapping[str, Any], columns: QueryColumns, place: str) -> float | None:
    cell = cell_name(row.get(columns.depth)) if columns.depth else ""
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{place}: depth is {cell[:40]!r}; expected a number from 0 to 1.")
    return value


def with_titles_before(documents: Sequence[Document], with_titles: bool) -> tuple[Document, ...]:
    """Returns the documents, with their titles before their texts where that is asked for."""
    if not with_titles:
        return tuple(documents)
    # A document without a title of its own is titled by its id, which is no text.
    return tuple(
        replace(d, text=f"{d.title}\n{d.text}") if d.title.strip() and d.title != d.id else d
        for d in documents
    )


def excluded_notes(corpus: Corpus) -> tuple[str, ...]:
    """Returns what a corpus says of how it was drawn and what was left out of it."""
    notes = [corpus.note] if corpus.note else []
    if corpus.excluded:
        names = listed([f"{e.id} ({e.reason})" for e in corpus.excluded])
        notes.append(f"{len(corpus.excluded):,} documents left out: {names}")
    return tuple(notes)


def listed(names: Sequence[str]) -> str:
    """Returns names with commas; of many the first ones, and how many more there are."""
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def limit_dataset(dataset: RetrievalDataset, documents: int, seed: int = 0) -> RetrievalDataset:
    """Returns the data set with at most so many documents, drawn with a seed.

    Every judged document of a kept query is kept, so that no answer is lost; where there are
    more of those than the limit, queries are drawn too. A smaller corpus is an easier one,
    which the note of the result says.

    Raises:
        ValueError: when the limit is below 1, or below what a single query needs.
    """
    if documents < 1:
        raise ValueError(f"document limit is {documents}; allowed: 1 and more.")
    if len(dataset.corpus) <= documents:
        return dataset
    rng = np.random.default_rng(seed)
    known = {document.id for document in dataset.corpus}
    ids = list(dataset.queries)
    needed: set[str] = set()
    chosen: set[str] = set()
    for place in rng.permutation(len(ids)).tolist():
        own = needed | (set(dataset.qrels[ids[place]]) & known)
        if len(own) <= documents:
            needed = own
            chosen.add(ids[place])
    if not chosen:
        raise ValueError(
            f"document limit is {documents:,}; every query of {dataset.name} has more judged "
            "documents than that."
        )
    others = [document.id for document in dataset.corpus if document.id not in needed]
    drawn = rng.permutation(len(others))[: documents - len(needed)].tolist()
    kept = needed | {others[row] for row in drawn}
    queries = {query: text for query, text in dataset.queries.items() if query in chosen}
    note = (
        f"{len(kept):,} of {len(dataset.corpus):,} documents and {len(queries):,} of "
        f"{len(ids):,} queries, drawn with seed {seed}: a smaller corpus is an easier one"
    )
    return replace(
        dataset,
        queries=queries,
        corpus=tuple(document for document in dataset.corpus if document.id in kept),
        qrels={query: dataset.qrels[query] for query in queries},
        depth={query: dataset.depth[query] for query in queries if query in dataset.depth},
        bins={query: dataset.bins[query] for query in queries if query in dataset.bins},
        notes=(*dataset.notes, note),
    )
