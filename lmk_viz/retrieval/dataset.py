"""A retrieval data set in BEIR layout: corpus, queries, judgements and, if known, depths."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lmk_viz.documents import SAMPLE_FOLDER, Document
from lmk_viz.retrieval.records import find_file, read_records, read_table, take_text

__all__ = ["RetrievalDataset", "depth_third", "load_dataset", "sample_dataset"]


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalDataset:
    """Queries with judged documents."""

    name: str
    split: str
    queries: Mapping[str, str]
    """Text by id, in the order of the file; only queries that have a relevant document."""
    corpus: tuple[Document, ...]
    qrels: Mapping[str, Mapping[str, int]]
    """Grades by document by query, the queries in the same order; above 0 is relevant."""
    depth: Mapping[str, float]
    """Where the answer stands in the relevant document, 0 to 1, by query; may be empty."""
    bins: Mapping[str, str]
    """Name of the depth bin by query; may be empty."""
    with_titles: bool
    """Whether the title stands before the text of each document."""
    notes: tuple[str, ...]
    """What was left aside or cannot be found, in words."""

    def __post_init__(self) -> None:
        if list(self.queries) != list(self.qrels):
            raise ValueError("queries and qrels do not name the same queries in the same order.")


def depth_third(depth: float) -> str:
    """Returns start, middle or end for a depth from 0 to 1.

    Example:
        >>> [depth_third(d) for d in (0.0, 0.5, 0.7, 1.0)]
        ['start', 'middle', 'end', 'end']
    """
    return ("start", "middle", "end")[min(2, int(depth * 3))]


def load_dataset(
    folder: str | os.PathLike[str], split: str = "test", with_titles: bool = False
) -> RetrievalDataset:
    """Returns the data set in a folder.

    It holds corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv and perhaps positions.tsv, each plain
    or with .gz behind its name. Queries without a relevant document in the split are left aside
    and a relevant document that the corpus lacks counts as never found; `notes` says how many.

    Args:
        folder: in BEIR layout.
        split: which judgements.
        with_titles: put the title and a line break before each document's text. Titles are left
            out by default, since they would answer a question about depth by themselves.

    Raises:
        ValueError: when a file is missing or a line cannot be used; names file, line and what
            was expected.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(
            f"{root} is no folder; give one with corpus.jsonl, queries.jsonl and qrels/{split}.tsv."
        )
    corpus, blank = _read_corpus(_need(root, "corpus.jsonl"), with_titles)
    queries = _read_queries(_need(root, "queries.jsonl"))
    judged = _read_qrels(_need(root, f"qrels/{split}.tsv"), queries)
    relevant = {query for query, grades in judged.items() if max(grades.values()) > 0}
    if not relevant:
        raise ValueError(f"qrels/{split}.tsv of {root} names no relevant document (score over 0).")
    positions = find_file(root, "positions.tsv")
    depth, bins = _read_positions(positions, queries) if positions else ({}, {})
    known = {document.id for document in corpus}
    pairs = [(q, d) for q in relevant for d, grade in judged[q].items() if grade > 0]
    lost = sum(document not in known for _, document in pairs)
    notes = (
        (len(queries) - len(relevant), "queries have no relevant document in this split: left out"),
        (lost, "relevant documents are not in the corpus: they count as not found"),
        (blank, "documents have no text: they cannot be found"),
        (sum(not queries[q].strip() for q in relevant), "queries have no text: they count 0"),
    )
    chosen = [query for query in queries if query in relevant]
    return RetrievalDataset(
        name=root.resolve().name,
        split=split,
        queries={query: queries[query] for query in chosen},
        corpus=corpus,
        qrels={query: judged[query] for query in chosen},
        depth={query: depth[query] for query in chosen if query in depth},
        bins={query: bins[query] for query in chosen if query in bins},
        with_titles=with_titles,
        notes=tuple(f"{count:,} {words}" for count, words in notes if count),
    )


def sample_dataset(folder: Path = SAMPLE_FOLDER, with_titles: bool = False) -> RetrievalDataset:
    """Returns the questions with judged answers that come with the project."""
    return replace(load_dataset(folder / "retrieval", "test", with_titles), name="Bundled")


def _need(root: Path, name: str) -> Path:
    file = find_file(root, name)
    if file is None:
        raise ValueError(f"{root} has no {name} (nor {name}.gz); BEIR layout is expected.")
    return file


def _read_corpus(file: Path, with_titles: bool) -> tuple[tuple[Document, ...], int]:
    """Returns the documents, and how many of them have no text."""
    found: dict[str, Document] = {}
    blank = 0
    for place, record in read_records(file):
        name = take_text(record, "_id", place)
        if name in found:
            raise ValueError(f"{place}: document {name!r} came before; expected each _id once.")
        text, title = take_text(record, "text", place), take_text(record, "title", place, "")
        if with_titles and title.strip():
            text = f"{title}\n{text}"
        try:
            found[name] = Document(name, title, text)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        blank += found[name].is_blank
    if not found:
        raise ValueError(f"{file} holds no document; expected one JSON object a line.")
    return tuple(found.values()), blank


def _read_queries(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, record in read_records(file):
        name = take_text(record, "_id", place)
        if name in found:
            raise ValueError(f"{place}: query {name!r} came before; expected each _id once.")
        found[name] = take_text(record, "text", place)
    return found


def _read_qrels(file: Path, queries: Mapping[str, str]) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for place, row in read_table(file, ("query-id", "corpus-id", "score")):
        query, document = row["query-id"], row["corpus-id"]
        _check_query(query, queries, place)
        try:
            grade = int(row["score"])
        except ValueError as error:
            raise ValueError(
                f"{place}: score is {row['score']!r}; expected a whole number."
            ) from error
        if document in judged.setdefault(query, {}):
            raise ValueError(
                f"{place}: query {query!r} and document {document!r} came before; "
                "expected each pair once."
            )
        judged[query][document] = grade
    return judged


def _read_positions(
    file: Path, queries: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, str]]:
    depths: dict[str, float] = {}
    bins: dict[str, str] = {}
    for place, row in read_table(file, ("query-id", "depth")):
        query = row["query-id"]
        _check_query(query, queries, place)
        if query in depths:
            raise ValueError(f"{place}: query {query!r} came before; expected each query once.")
        try:
            depth = float(row["depth"])
        except ValueError:
            depth = math.nan
        if not 0.0 <= depth <= 1.0:
            raise ValueError(f"{place}: depth is {row['depth']!r}; expected a number from 0 to 1.")
        depths[query] = depth
        bins[query] = row.get("bin") or depth_third(depth)
    return depths, bins


def _check_query(query: str, queries: Mapping[str, str], place: str) -> None:
    if query not in queries:
        raise ValueError(f"{place}: query {query!r} is not in queries.jsonl; expected one of its.")
