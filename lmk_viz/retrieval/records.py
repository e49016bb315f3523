"""Reading JSON lines and tab-separated tables, plain or gzipped, with errors that name the line."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["find_file", "read_records", "read_table", "take_text"]


def find_file(folder: Path, name: str) -> Path | None:
    """Returns a file of a folder, or its gzipped form, or None where there is neither."""
    try:
        return next((f for f in (folder / name, folder / f"{name}.gz") if f.is_file()), None)
    except OSError:  # A name too long for a file system, or a folder closed to us.
        return None


def read_records(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each JSON object of a file with where it stands, as `name, line 3`.

    Empty lines are skipped. A name that ends in .gz is unpacked while reading.

    Raises:
        ValueError: when the file cannot be read, or a line holds no JSON object.
    """
    for place, line in _lines(file):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        # Very deep nesting is JSON that is not read.
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{place}: no JSON ({error}); expected one JSON object a line."
            ) from error
        if not isinstance(record, dict):
            raise ValueError(
                f"{place}: a JSON {type(record).__name__} came; expected one JSON object a line."
            )
        yield place, record


def read_table(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields each row of a tab-separated table by column name, with where it stands.

    Args:
        file: with a header in its first line.
        columns: names that the header has to hold; it may hold more.

    Raises:
        ValueError: when the file cannot be read, the header lacks a column, or a row has
            another number of cells.
    """
    header: list[str] | None = None
    for place, line in _lines(file):
        if not line.strip():
            continue
        # Nothing is quoted there, and csv refuses long cells.
        cells = line.rstrip("\r\n").split("\t")
        if header is None:
            header = [cell.strip() for cell in cells]
            if missing := [name for name in columns if name not in header]:
                raise ValueError(
                    f"{place}: the header is {header}; expected tab-separated columns with "
                    f"{', '.join(columns)} ({', '.join(missing)} is missing)."
                )
            continue
        if len(cells) != len(header):
            raise ValueError(
                f"{place}: {len(cells)} cells came; expected {len(header)} "
                f"({', '.join(header)}), separated by tabs."
            )
        yield place, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    if header is None:
        raise ValueError(f"{file} is empty; expected a header with {', '.join(columns)}.")


def take_text(record: dict[str, Any], key: str, place: str, default: str | None = None) -> str:
    """Returns a string of a record.

    Raises:
        ValueError: when it is missing without a default, is no string, or holds lone
            surrogates, which no tokenizer reads and no output takes.
    """
    value = record.get(key, default)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{place}: {key!r} holds half a character (a lone surrogate) at offset "
                f"{error.start}; expected whole ones."
            ) from error
        return value
    came = "is missing" if key not in record else f"is {type(value).__name__}"
    raise ValueError(f"{place}: {key!r} {came}; expected a string.")


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
            for number, data in enumerate(stream, start=1):
                place = f"{file.name}, line {number}"
                try:
                    yield place, data.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(f"{place}: not UTF-8 (byte {error.start}).") from error
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; give the path of a file.") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} is no whole gzip file: {error}.") from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
