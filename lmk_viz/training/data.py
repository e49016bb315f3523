"""Training pairs: what they hold, how they are read from a table and written to one."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.files import write_whole

__all__ = ["Pairs", "load_pairs", "pairs_from_rows", "read_rows", "save_pairs"]

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
ANCHORS = ("anchor", "query")
POSITIVES = ("positive", "passage")


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Queries with the passage that answers each, and what a teacher says of them."""

    anchors: tuple[str, ...]
    positives: tuple[str, ...]
    negatives: tuple[tuple[str, ...], ...]
    """Hard negatives of each anchor; the same number for all, mostly none."""
    scores: NDArray[np.float32] | None = None
    """A teacher's scores of the positive and the negatives, shape (N, 1 + negatives)."""
    anchor_vectors: NDArray[np.float32] | None = None
    """A teacher's vectors of the anchors, shape (N, D)."""
    positive_vectors: NDArray[np.float32] | None = None
    """A teacher's vectors of the positives, shape (N, D)."""

    def __post_init__(self) -> None:
        n = len(self.anchors)
        if not n:
            raise ValueError("there is no pair to train on; give at least two.")
        for name in ("positives", "negatives", "scores", "anchor_vectors", "positive_vectors"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"{name} has {len(value)} rows and anchors {n}; give as many.")
        counts = {len(row) for row in self.negatives}
        if len(counts) > 1:
            raise ValueError(
                f"rows have {min(counts)} to {max(counts)} negatives; give every row the same "
                "number, so that no group is filled up in silence."
            )
        group = 1 + counts.pop()
        if self.scores is not None and self.scores.shape != (n, group):
            raise ValueError(
                f"scores have shape {self.scores.shape}; a positive and {group - 1} negatives a "
                f"row ask for {(n, group)}."
            )
        for name in ("scores", "anchor_vectors", "positive_vectors"):
            value = getattr(self, name)
            if value is not None and not np.isfinite(value).all():
                row = int(np.flatnonzero(~np.isfinite(value).reshape(n, -1).all(axis=1))[0])
                raise ValueError(f"{name} of row {row + 1} are not finite (NaN or inf).")

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def has_vectors(self) -> bool:
        """Whether a teacher's vectors stand beside the texts."""
        return self.anchor_vectors is not None and self.positive_vectors is not None

    def with_vectors(self, anchors: NDArray[np.float32], positives: NDArray[np.float32]) -> "Pairs":
        """Returns the same pairs with a teacher's vectors."""
        return replace(self, anchor_vectors=anchors, positive_vectors=positives)


def load_pairs(path: str | Path) -> Pairs:
    """Returns the pairs of a table.

    Columns: `anchor` (or `query`) and `positive` (or `passage`), texts; `negatives`, a list of
    texts, as many in every row; `scores`, a list of a teacher's scores, the positive's first;
    `anchor_vector` and `positive_vector`, lists of numbers, a teacher's vectors.

    Args:
        path: a file that ends in .jsonl, .jsonl.gz or .parquet.

    Raises:
        ValueError: when the file cannot be read, or a row is not such a pair; file and row are
            named.
    """
    return pairs_from_rows(list(read_rows(path)), Path(path).name)


def pairs_from_rows(rows: Sequence[Mapping[str, Any]], name: str) -> Pairs:
    """Returns the pairs of a table's rows; see `load_pairs`.

    Args:
        rows: with its columns.
        name: of the table, for errors.
    """
    if not rows:
        raise ValueError(f"{name} has no rows; give at least two pairs.")
    anchor = _column(rows[0], ANCHORS, name)
    positive = _column(rows[0], POSITIVES, name)
    anchors, positives, negatives = [], [], []
    for number, row in enumerate(rows, start=1):
        anchors.append(_text(row.get(anchor), anchor, name, number))
        positives.append(_text(row.get(positive), positive, name, number))
        given = row.get("negatives")
        if given is None:
            given = []
        if isinstance(given, str):
            raise ValueError(f"{name}, row {number}: negatives is one text; give a list of texts.")
        negatives.append(tuple(_text(text, "negatives", name, number) for text in given))
    try:
        return Pairs(
            tuple(anchors),
            tuple(positives),
            tuple(negatives),
            _numbers(rows, "scores", name),
            _numbers(rows, "anchor_vector", name),
            _numbers(rows, "positive_vector", name),
        )
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def save_pairs(pairs: Pairs, path: str | Path) -> None:
    """Writes pairs as a Parquet file that `load_pairs` reads; a reader never sees half of it."""
    columns: dict[str, Any] = {"anchor": pairs.anchors, "positive": pairs.positives}
    if any(pairs.negatives):
        columns["negatives"] = [list(row) for row in pairs.negatives]
    for column, values in (
        ("scores", pairs.scores),
        ("anchor_vector", pairs.anchor_vectors),
        ("positive_vector", pairs.positive_vectors),
    ):
        if values is not None:
            columns[column] = list(values)
    frame = pd.DataFrame(columns)
    write_whole(Path(path), lambda partial: frame.to_parquet(partial, index=False))


def read_rows(path: str | Path) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of a JSONL (also gzipped) or Parquet file as mappings.

    Raises:
        ValueError: when the file is missing or damaged, or a line is no JSON object.
    """
    file = Path(path)
    if not file.name.endswith(SUFFIXES):
        raise ValueError(f"{str(path)!r} came; allowed: a file ending in {', '.join(SUFFIXES)}.")
    if not file.is_file():
        raise ValueError(f"{str(path)!r} is no file; check the path.")
    if file.suffix == ".parquet":
        try:
            frame = pd.read_parquet(file)
        # A damaged Parquet file comes as any class, KeyError among them.
        except Exception as error:
            raise ValueError(f"{file.name} cannot be read as Parquet: {error}") from error
        yield from ({str(k): v for k, v in row.items()} for row in frame.to_dict("records"))
        return
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{file.name} cannot be read as UTF-8 JSON lines: {error}") from error
    for number, line in enumerate(io.StringIO(text, newline="\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file.name}, line {number}: not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise ValueError(
                f"{file.name}, line {number}: {type(row).__name__} came; an object a line is "
                "expected."
            )
        yield row


def _column(row: Mapping[str, Any], names: Sequence[str], file: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise ValueError(
            f"{file}: no column {' or '.join(map(repr, names))}; it has "
            f"{', '.join(map(repr, row)) or 'none'}."
        )
    return found


def _text(value: Any, column: str, file: str, row: int) -> str:
    if not isinstance(value, str) or not value.strip():
        what = "an empty text" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{file}, row {row}: {column} is {what}; a text with words is expected.")
    return value


def _numbers(
    rows: Sequence[Mapping[str, Any]], column: str, file: str
) -> NDArray[np.float32] | None:
    if column not in rows[0]:
        return None
    width = len(rows[0][column])
    for number, row in enumerate(rows, start=1):
        if row.get(column) is None or len(row[column]) != width:
            raise ValueError(
                f"{file}, row {number}: {column} has not the {width} numbers of the first row."
            )
    try:
        return np.asarray([row[column] for row in rows], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: {column} holds something else than numbers.") from error
