"""Tables of vectors on disk, and a map's coordinates as a table."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode
from lmk_viz.corpus import Excluded
from lmk_viz.files import write_whole
from lmk_viz.maps import CorpusMap

__all__ = ["VectorTable", "coordinates_frame", "load_vectors", "write_frame"]


@dataclass(frozen=True, slots=True, eq=False)
class VectorTable:
    """Vectors of documents under one or more poolings, one row a document."""

    frame: pd.DataFrame
    """All that is known of the documents except their vectors."""
    vectors: Mapping[PoolingMode, NDArray[np.float32]]
    """Each shape (N, D)."""
    excluded: tuple[Excluded, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def ids(self) -> tuple[str, ...]:
        """One a document."""
        return tuple(str(value) for value in self.frame["id"])

    @property
    def labels(self) -> tuple[str | None, ...]:
        """One a document."""
        return tuple(None if _missing(v) else str(v) for v in self.column("label", required=False))

    @property
    def tokens(self) -> NDArray[np.int64] | None:
        """Text tokens of each document, shape (N,); None where the table does not say."""
        values = self.column("tokens", required=False)
        if not values or any(_missing(value) for value in values):
            return None
        try:
            return np.asarray(values, dtype=np.int64)
        except (TypeError, ValueError, OverflowError):
            return None

    def column(self, name: str, required: bool = True) -> list[Any]:
        """Returns the values of a column, missing ones as None.

        Raises:
            ValueError: when it is required and not there.
        """
        if name not in self.frame.columns:
            # A table without labels is drawn in one colour, and nobody asked for them.
            if not required or name == "label":
                return [None] * len(self.frame)
            raise ValueError(
                f"there is no column {name!r}; the table has {', '.join(map(str, self.frame))}."
            )
        return [None if _missing(value) else value for value in self.frame[name].tolist()]


def load_vectors(
    path: str | os.PathLike[str], poolings: Sequence[PoolingMode] | None = None
) -> VectorTable:
    """Returns the documents and vectors of a Parquet file that `embed` wrote.

    A row whose vector is missing, of another length or not finite is left out and named.

    Args:
        path: a .parquet file with a column of vectors for each pooling.
        poolings: which to read; None takes all there are.

    Raises:
        ValueError: when it cannot be read, or a pooling is not in it.
    """
    file = Path(path)
    try:
        frame = pd.read_parquet(file)
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; `embed` writes such files.") from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error}.") from error
    # A damaged Parquet file comes as any class, KeyError among them.
    except Exception as error:
        raise ValueError(f"{file} cannot be read as parquet: {error}") from error
    frame.columns = frame.columns.map(str)
    frame = frame.reset_index(drop=True)
    there = [mode for mode in PoolingMode if mode.value in frame.columns]
    there.sort(key=lambda mode: list(frame.columns).index(mode.value))
    wanted = list(poolings) if poolings is not None else there
    gone = [mode.value for mode in wanted if mode not in there]
    if gone or not wanted:
        raise ValueError(
            f"{file} has no vectors under {', '.join(gone) or 'any pooling'}; its columns are "
            f"{', '.join(frame.columns)}. `embed` writes a column of vectors a pooling."
        )
    if "id" not in frame.columns:
        frame.insert(0, "id", [f"row-{i + 1}" for i in range(len(frame))])
    tables: dict[PoolingMode, NDArray[np.float32]] = {}
    problems: dict[int, str] = {}
    for mode in wanted:
        tables[mode], bad = _vectors(frame[mode.value].tolist())
        problems |= {row: f"{reason} under {mode.value}" for row, reason in bad.items()}
    keep = np.array([row not in problems for row in range(len(frame))], dtype=bool)
    ids = [str(value) for value in frame["id"]]
    return VectorTable(
        frame.loc[keep, [c for c in frame.columns if c not in list(PoolingMode)]].reset_index(
            drop=True
        ),
        {mode: table[keep] for mode, table in tables.items()},
        tuple(Excluded(ids[row], problems[row]) for row in sorted(problems)),
    )


def _vectors(cells: Sequence[Any]) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Returns cells as a table, with what is wrong with rows that are none."""
    rows: list[NDArray[np.float32] | None] = []
    for cell in cells:
        try:
            row = np.asarray(cell, dtype=np.float32)
        except (TypeError, ValueError):
            row = np.zeros(0, dtype=np.float32)
        rows.append(row if row.ndim == 1 and row.size else None)
    sizes = [len(row) for row in rows if row is not None]
    width = max(set(sizes), key=sizes.count) if sizes else 1
    table = np.zeros((len(rows), width), dtype=np.float32)
    bad = {}
    for number, found in enumerate(rows):
        if found is None:
            bad[number] = "no vector"
        elif len(found) != width:
            bad[number] = f"a vector of {len(found)} numbers, not {width},"
        elif not np.isfinite(found).all():
            bad[number] = "a vector that is not finite (NaN or inf)"
        else:
            table[number] = found
    return table, bad


def coordinates_frame(table: VectorTable, found: CorpusMap) -> pd.DataFrame:
    """Returns one row a document: what is known of it, and its point in every panel."""
    frame = table.frame.copy()
    for panel in found.panels:
        if panel.points is not None:
            frame[f"{panel.mode.value}_x"] = panel.points[:, 0]
            frame[f"{panel.mode.value}_y"] = panel.points[:, 1]
    return frame


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Writes a table as CSV or Parquet, by its name; a reader never sees half a file.

    Raises:
        ValueError: when it cannot be written.
    """
    if path.suffix == ".parquet":
        write_whole(path, lambda partial: frame.to_parquet(partial, index=False))
    else:
        write_whole(path, lambda partial: frame.to_csv(partial, index=False))


def _missing(value: Any) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))
