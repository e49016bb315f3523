"""A folder of Parquet files with vectors by key: whole, checked, and bounded in bytes.

A file holds rows of one setting. Its name is the setting and the SHA-256 of both setting and
content, so that whatever was changed, cut short or put in another's place is seen before any of
it is read. Files are never changed, only written and removed; that alone makes the folder safe
to share between threads and processes.
"""

import contextlib
import hashlib
import io
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lmk_viz.embedding_rows import PoolingRows
from lmk_viz.files import write_whole

__all__ = ["VectorFolder"]

logger = logging.getLogger(__name__)

SUFFIX = ".parquet"
COUNTS = ("fell_back", "tokens", "tokens_cut", "landmarks", "seconds")
ABANDONED_SECONDS = 3600.0
"""Age of a half-written file that nobody can be writing any more."""


class VectorFolder:
    """Rows of vectors on disk."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Takes a folder, which is made with the first row.

        Args:
            folder: of this class alone; other files in it are left alone.
            max_bytes: most bytes kept; files that were not used for longest go first.
        """
        self.folder = folder
        self.max_bytes = max_bytes
        self._is_writable = True

    def find(
        self, setting: str, keys: Sequence[str], dim: int
    ) -> tuple[NDArray[np.int64], PoolingRows]:
        """Returns which of the keys are there, rising, and their rows.

        Args:
            setting: digest of all but the text.
            keys: digests of the texts, N.
            dim: size of a vector.

        Returns:
            Places among the keys, shape (M,), and rows, M. A file that is not what it was
            written as is removed, and its rows count as missing.
        """
        wanted: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            wanted.setdefault(key, []).append(place)
        rows = PoolingRows.zeros(len(keys), dim)
        known = np.zeros(len(keys), dtype=bool)
        for file in self._files_of(setting):
            if not wanted:
                break
            found = self._read(file, setting, dim)
            if found is None:
                continue
            # A text can stand in a corpus twice, and in a file too.
            pairs = [(p, i) for i, key in enumerate(found[0]) for p in wanted.pop(key, ())]
            if not pairs:
                continue
            with contextlib.suppress(OSError):
                os.utime(file)  # When it was last used.
            at, inside = np.asarray(pairs, dtype=np.int64).T
            rows.fill(at, found[1].take(inside))
            known[at] = True
        places = np.flatnonzero(known)
        return places, rows.take(places)

    def keep(self, setting: str, keys: Sequence[str], rows: PoolingRows) -> None:
        """Writes rows into a file of their own, and makes room for it.

        A folder that cannot be written is warned of once, and nothing is kept from then on.
        """
        if not self._is_writable or not len(rows):
            return
        data = _to_parquet(keys, rows)
        path = self.folder / f"{setting}-{_checksum(setting, data)}{SUFFIX}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, lambda partial: partial.write_bytes(data))
        except (OSError, ValueError) as error:
            self._is_writable = False
            logger.warning("vectors are not kept on disk: %s", error)
            return
        self.trim()

    def size(self) -> int:
        """Returns the bytes that are kept."""
        return sum(size for _, size, _ in self._all())

    def trim(self) -> None:
        """Removes what was not used for longest, until the rest is within the limit."""
        files = sorted(self._all(), key=lambda entry: (entry[0], entry[2].name))
        total = sum(size for _, size, _ in files)
        for used, size, file in files:
            is_writing = _is_being_written(file, used)
            is_abandoned = file.name.startswith(".") and not is_writing
            if is_abandoned or (total > self.max_bytes and not is_writing):
                _remove(file)
                total -= size

    def clear(self) -> int:
        """Removes everything that was kept, and returns how many bytes that were."""
        removed = 0
        for used, size, file in self._all():
            if not _is_being_written(file, used):
                _remove(file)
                removed += size
        return removed

    def _files_of(self, setting: str) -> list[Path]:
        """Returns the files of a setting, the one used last first."""
        files = [entry for entry in self._all() if entry[2].name.startswith(f"{setting}-")]
        return [file for _, _, file in sorted(files, key=lambda entry: -entry[0])]

    def _all(self) -> Iterator[tuple[float, int, Path]]:
        """Yields when each of our files was last used, its bytes, and where it is."""
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    # Half-written ones have a dot in front and the writer's number behind.
                    if SUFFIX in entry.name and entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):
                            stat = entry.stat(follow_symlinks=False)
                            yield stat.st_mtime, stat.st_size, Path(entry.path)
        except OSError:
            return

    def _read(self, file: Path, setting: str, dim: int) -> tuple[list[str], PoolingRows] | None:
        """Returns the keys and rows of a file, or None where it is gone or not what it was."""
        try:
            data = file.read_bytes()
        except OSError:  # Removed meanwhile, or closed to us.
            return None
        if file.stem == f"{setting}-{_checksum(setting, data)}":
            return _from_parquet(data, dim)
        logger.warning("a file of vectors was damaged and is made again: %s", file.name)
        _remove(file)
        return None


def _to_parquet(keys: Sequence[str], rows: PoolingRows) -> bytes:
    flat = pa.array(np.ascontiguousarray(rows.vectors, dtype=np.float32).reshape(-1))
    columns = {
        "key": pa.array(list(keys), pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, rows.vectors.shape[1]),
        **{name: pa.array(getattr(rows, name)) for name in COUNTS},
    }
    # No two files are alike, so that no two writers ever mean the same one.
    table = pa.table(columns).replace_schema_metadata({"file": uuid.uuid4().hex})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    return sink.getvalue()


def _from_parquet(data: bytes, dim: int) -> tuple[list[str], PoolingRows] | None:
    table = pq.read_table(io.BytesIO(data))
    vectors = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    if len(vectors) != len(table) * dim:
        return None
    counts = {name: table[name].to_numpy() for name in COUNTS}
    keys: list[str] = table["key"].to_pylist()
    return keys, PoolingRows(vectors=vectors.reshape(-1, dim), **counts)


def _checksum(setting: str, data: bytes) -> str:
    found = hashlib.sha256(setting.encode())
    found.update(data)
    return found.hexdigest()


def _is_being_written(file: Path, used: float) -> bool:
    # A writer whose file went away would take the folder for one that cannot be written.
    return file.name.startswith(".") and time.time() - used <= ABANDONED_SECONDS


def _remove(file: Path) -> None:
    # Another process may have been faster.
    with contextlib.suppress(OSError):
        file.unlink()
