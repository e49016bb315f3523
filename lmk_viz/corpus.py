"""Corpora: tables and folders of documents, with what was left out and why."""

import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lmk_viz.documents import (
    SAMPLE_FOLDER,
    SAMPLE_SUFFIXES,
    Document,
    decode_text,
    document_from_bytes,
    read_document,
)

__all__ = ["Corpus", "Excluded", "corpus_from_bytes", "load_corpus", "sample_corpus"]

TABLE_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


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
    suffix = Path(name).suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        return Corpus(name, (document_from_bytes(data, name),))
    if not data:
        raise ValueError(f"{name} is empty (0 bytes); give a table with rows in it.")
    if suffix in (".jsonl", ".ndjson"):
        rows: Iterable[Mapping[str, Any]] = _json_rows(decode_text(data, name), name)
    else:
        rows = _table_rows(data, name, suffix)
    documents, excluded = _from_rows(rows, name, columns or Columns())
    return Corpus(name, documents, excluded)


def _from_files(
    root: Path, files: Iterable[Path]
) -> tuple[tuple[Document, ...], tuple[Excluded, ...]]:
    documents, excluded = [], []
    for file in files:
        place = file.relative_to(root)
        key = _name(place)
        try:
            found = read_document(file)
        except ValueError as error:
            excluded.append(Excluded(key, str(error)))
            continue
        label = _name(place.parts[0]) if len(place.parts) > 1 else None
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
) -> tuple[tuple[Document, ...], tuple[Excluded, ...]]:
    documents: list[Document] = []
    excluded: list[Excluded] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        if columns.text not in row:
            raise ValueError(
                f"{name}, row {number}: no column {columns.text!r}; it has "
                f"{', '.join(map(repr, row)) or 'none'}. Name the column that holds the text."
            )
        key = _name(row.get(columns.id)) or f"row-{number}"
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
        title = _name(row.get(columns.title)) or key
        label = _name(row.get(columns.label)) or None
        try:
            documents.append(Document(key, title, text, label))
        except ValueError as error:
            excluded.append(Excluded(key, str(error)))
    if not seen:
        raise ValueError(f"{name} has no rows; give a table with at least one document.")
    return tuple(documents), tuple(excluded)


def _cell(value: Any) -> str:
    """Returns a table cell as text; missing values are empty."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _name(value: Any) -> str:
    """Returns an id, title or label as text that can be written to any file.

    JSON and file names can hold half a character, which no output takes.
    """
    return _cell(value).encode("utf-8", "backslashreplace").decode("utf-8")
