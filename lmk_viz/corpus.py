"""Corpora: tables and folders of documents, with what was left out and why."""

import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lmk_viz.documents import (
    MAX_FILE_BYTES,
    SAMPLE_FOLDER,
    SAMPLE_SUFFIXES,
    Document,
    decode_text,
    document_from_bytes,
    read_document,
)

__all__ = [
    "Columns",
    "Corpus",
    "CorpusTable",
    "Excluded",
    "cell_name",
    "corpus_from_bytes",
    "corpus_from_table",
    "guess_columns",
    "load_corpus",
    "sample_corpus",
    "table_from_bytes",
]

TABLE_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
MAX_EXTRA_COLUMNS = 20
"""Further columns that are kept to colour a map by."""
TEXT_NAMES = ("text", "content", "body", "document", "abstract", "passage")
"""What a column of texts is likely called, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A document that was left out."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in the order of their source."""

    name: str
    documents: tuple[Document, ...]
    excluded: tuple[Excluded, ...] = ()
    extra: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    """Further columns of the table, one value a document, missing ones None."""
    note: str = ""
    """How documents were drawn, where not all were taken."""

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels, sorted."""
        return tuple(sorted({d.label for d in self.documents if d.label is not None}))


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table hold what."""

    text: str = "text"
    id: str = "id"
    title: str = "title"
    label: str = "label"


@dataclass(frozen=True, slots=True)
class CorpusTable:
    """Rows of a table as they were read, before one knows which column holds what."""

    name: str
    rows: tuple[Mapping[str, Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names in the order in which they come up first."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))


def sample_corpus(folder: Path = SAMPLE_FOLDER) -> Corpus:
    """Returns the labelled corpus that comes with the project."""
    return replace(load_corpus(folder / "topics.jsonl"), name="Eight topics")


def load_corpus(path: str | os.PathLike[str], columns: Columns | None = None) -> Corpus:
    """Returns the documents of a table (JSONL, CSV, TSV, Parquet), a folder or a text file.

    A table needs a column `text`; `id`, `title` and `label` are read where they are there. In
    a folder every .txt and .md file is a document, and its subfolder its label.

    Raises:
        ValueError: when there is nothing there, or it cannot be read, naming file and line.
    """
    source = Path(path)
    try:
        is_folder = source.is_dir()
    except OSError as error:  # Too long for a file system, or closed to us.
        raise ValueError(f"{source} cannot be read: {error.strerror}.") from error
    if is_folder:
        files = sorted(
            f for f in source.rglob("*") if f.suffix in SAMPLE_SUFFIXES and f.name != "README.md"
        )
        if not files:
            raise ValueError(f"folder {source} holds no .txt or .md file.")
        return Corpus(source.name, *_from_files(source, files))
    if source.suffix.lower() not in TABLE_SUFFIXES:
        return Corpus(source.name, (read_document(source),))
    try:
        data = source.read_bytes()
    except FileNotFoundError as error:
        raise ValueError(
            f"{source} does not exist; give a table ({', '.join(TABLE_SUFFIXES)}), a folder "
            "of texts or a text file."
        ) from error
    except OSError as error:
        raise ValueError(f"{source} cannot be read: {error.strerror}.") from error
    return corpus_from_bytes(data, source.name, columns)


def corpus_from_bytes(data: bytes, name: str, columns: Columns | None = None) -> Corpus:
    """Returns the documents of an uploaded table or text file; see `load_corpus`."""
    if Path(name).suffix.lower() not in TABLE_SUFFIXES:
        return Corpus(name, (document_from_bytes(data, name),))
    return corpus_from_table(table_from_bytes(data, name), columns)


def table_from_bytes(data: bytes, name: str) -> CorpusTable:
    """Returns the rows of an uploaded table.

    Raises:
        ValueError: when it is empty, too large, or cannot be read, naming file and line.
    """
    suffix = Path(name).suffix.lower()
    if not data:
        raise ValueError(f"{name} is empty (0 bytes); give a table with rows in it.")
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(
            f"{name} has {len(data) / 1e6:.1f} MB; allowed: {MAX_FILE_BYTES / 1e6:.1f} MB. "
            "Give a part of its rows, or embed it with the command line."
        )
    if suffix in (".jsonl", ".ndjson"):
        return CorpusTable(name, tuple(_json_rows(decode_text(data, name), name)))
    return CorpusTable(name, tuple(_table_rows(data, name, suffix)))


def guess_columns(table: CorpusTable) -> Columns:
    """Returns which columns most likely hold what: by name, else the longest strings are text."""
    names = table.columns
    by_lower = {name.lower(): name for name in reversed(names)}
    text = next((by_lower[name] for name in TEXT_NAMES if name in by_lower), None)
    if text is None:
        head = table.rows[:50]
        lengths = {
            name: sum(len(row[name]) for row in head if isinstance(row.get(name), str))
            for name in names
        }
        text = max(lengths, key=lambda name: lengths[name]) if lengths else Columns().text
    label = next(
        (by_lower[n] for n in ("label", "category", "topic", "class") if n in by_lower), ""
    )
    return Columns(text, by_lower.get("id", ""), by_lower.get("title", ""), label)


def corpus_from_table(table: CorpusTable, columns: Columns | None = None) -> Corpus:
    """Returns the documents of a table's rows.

    Args:
        table: as read.
        columns: which column holds what; a name that is not there is left out, except text.

    Raises:
        ValueError: when there is no row, no such text column, or an id comes twice.
    """
    columns = columns or Columns()
    documents, excluded, kept = _from_rows(table.rows, table.name, columns)
    used = {columns.text, columns.id, columns.title, columns.label}
    extra: dict[str, tuple[Any, ...]] = {}
    for name in table.columns:
        if name in used or len(extra) == MAX_EXTRA_COLUMNS:
            continue
        values = tuple(_plain(row.get(name)) for row in kept)
        if any(value is not None for value in values):
            extra[name] = values
    return Corpus(table.name, documents, excluded, extra)


def _plain(value: Any) -> Any:
    """Returns a cell as number, flag or text; None for lists and what else cannot be a colour."""
    if not pd.api.types.is_scalar(value) or pd.isna(value) or value == "":
        return None
    if isinstance(value, bool | int | float):
        return value
    text = cell_name(value)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _from_files(
    root: Path, files: Iterable[Path]
) -> tuple[tuple[Document, ...], tuple[Excluded, ...]]:
    documents, excluded = [], []
    for file in files:
        place = file.relative_to(root)
        key = cell_name(place)
        try:
            found = read_document(file)
        except ValueError as error:
            excluded.append(Excluded(key, str(error)))
            continue
        label = cell_name(place.parts[0]) if len(place.parts) > 1 else None
        documents.append(Document(key, found.title, found.text, label))
    return tuple(documents), tuple(excluded)


def _json_rows(text: str, name: str) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    # Only line feeds end a record: JSON strings may hold other Unicode line separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Numbers of thousands of digits and very deep nesting are JSON that is not read.
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise ValueError(
                f"{name}, line {number}: not JSON ({reason}); one object a line is expected."
            ) from error
        if not isinstance(row, dict):
            raise ValueError(
                f"{name}, line {number}: {type(row).__name__} came; an object such as "
                '{"id": "1", "text": "..."} is expected.'
            )
        rows.append(row)
    return rows


def _table_rows(data: bytes, name: str, suffix: str) -> list[Mapping[str, Any]]:
    text = "" if suffix == ".parquet" else decode_text(data, name)
    try:
        if suffix == ".parquet":
            frame = pd.read_parquet(io.BytesIO(data))
        else:
            frame = pd.read_csv(
                io.StringIO(text),
                sep="\t" if suffix == ".tsv" else ",",
                dtype=str,
                keep_default_na=False,
            )
    # A damaged Parquet file comes as any class, KeyError among them.
    except Exception as error:
        raise ValueError(f"{name} cannot be read as {suffix[1:]}: {error}") from error
    # pandas takes what is too much for an index, which shifts every column in silence.
    if suffix != ".parquet" and len(frame) and not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(
            f"{name}: its rows have more fields than its header has names; put fields that hold "
            "the separator in quotes."
        )
    frame.columns = frame.columns.map(str)
    rows: list[Mapping[str, Any]] = [
        {str(key): value for key, value in row.items()} for row in frame.to_dict("records")
    ]
    return rows


def _from_rows(
    rows: Iterable[Mapping[str, Any]], name: str, columns: Columns
) -> tuple[tuple[Document, ...], tuple[Excluded, ...], list[Mapping[str, Any]]]:
    """Returns documents, what was left out, and the rows that the documents come from."""
    documents: list[Document] = []
    kept: list[Mapping[str, Any]] = []
    excluded: list[Excluded] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        if columns.text not in row:
            raise ValueError(
                f"{name}, row {number}: no column {columns.text!r}; it has "
                f"{', '.join(map(repr, row)) or 'none'}. Name the column that holds the text."
            )
        key = cell_name(row.get(columns.id)) or f"row-{number}"
        if key in seen:
            raise ValueError(
                f"{name}, row {number}: id {key!r} stands in row {seen[key]} too; ids have to "
                "be unique."
            )
        seen[key] = number
        cell = row[columns.text]
        text = _cell(cell)
        if not text.strip():
            excluded.append(Excluded(key, "empty text"))
            continue
        if not isinstance(cell, str | int | float):
            # Python's own spelling of a list or of bytes is not the document.
            kind = type(cell).__name__
            excluded.append(Excluded(key, f"the text is of type {kind}, not a string"))
            continue
        title = cell_name(row.get(columns.title)) or key
        label = cell_name(row.get(columns.label)) or None
        try:
            documents.append(Document(key, title, text, label))
        except ValueError as error:
            excluded.append(Excluded(key, str(error)))
            continue
        kept.append(row)
    if not seen:
        raise ValueError(f"{name} has no rows; give a table with at least one document.")
    return tuple(documents), tuple(excluded), kept


def _cell(value: Any) -> str:
    """Returns a table cell as text; missing values are empty."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def cell_name(value: Any) -> str:
    """Returns an id, title or label as text that can be written to any file.

    JSON and file names can hold half a character, which no output takes.
    """
    return _cell(value).encode("utf-8", "backslashreplace").decode("utf-8")
