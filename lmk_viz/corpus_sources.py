"""Corpora from elsewhere: archives, several files, data sets; and a stated part of a large one."""

import importlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from lmk_viz.corpus import (
    TABLE_SUFFIXES,
    Corpus,
    CorpusTable,
    Excluded,
    corpus_from_table,
    table_from_bytes,
)
from lmk_viz.documents import MAX_FILE_BYTES, SAMPLE_SUFFIXES, Document, document_from_bytes

__all__ = [
    "HubSource",
    "corpus_from_files",
    "hub_corpus",
    "limit_corpus",
    "newsgroups_corpus",
    "read_upload",
]

MAX_ARCHIVE_FILES = 20_000
MAX_ARCHIVE_BYTES = 10 * MAX_FILE_BYTES
"""Of all files in an archive, unpacked."""
SHUFFLE_BUFFER = 10_000
"""Rows of a streamed data set among which the sample is drawn."""
INSTALL_DATASETS = 'pip install "datasets>=4"'


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set of the Hugging Face hub."""

    name: str
    """Such as `SetFit/20_newsgroups`."""
    split: str = "train"
    config: str = ""
    """Of data sets that have several; empty takes the only one."""

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > 200 or not self.name.isprintable():
            raise ValueError(
                f"data set is {self.name[:40]!r}; give an id such as SetFit/20_newsgroups."
            )
        if self.name.startswith(("/", ".", "~")) or "\\" in self.name or "://" in self.name:
            raise ValueError(
                f"data set is {self.name[:40]!r}; give an id of the hub, not a path or address."
            )
        if not self.split.strip():
            raise ValueError("split is empty; give one such as train or test.")


def read_upload(files: Sequence[tuple[str, bytes]]) -> Corpus | CorpusTable:
    """Returns what was uploaded: one table, one ZIP of texts, or several texts.

    Args:
        files: names and contents.

    Raises:
        ValueError: when it cannot be read, or tables and archives come with other files.
    """
    if not files:
        raise ValueError("no file came; give a table, a ZIP of texts, or text files.")
    single = [name for name, _ in files if name.lower().endswith((*TABLE_SUFFIXES, ".zip"))]
    if single and len(files) > 1:
        raise ValueError(
            f"{single[0]} came with {len(files) - 1} more; give one table or one ZIP alone, or "
            "several text files."
        )
    name, data = files[0]
    if name.lower().endswith(TABLE_SUFFIXES):
        return table_from_bytes(data, name)
    if name.lower().endswith(".zip"):
        return corpus_from_zip(data, name)
    if len(files) == 1:
        return Corpus(name, (document_from_bytes(data, name),))
    return corpus_from_files(files, f"{len(files)} files")


def corpus_from_zip(data: bytes, name: str) -> Corpus:
    """Returns the texts of an archive; nothing of it is written to disk.

    Args:
        data: the archive.
        name: what to call it in messages.

    Raises:
        ValueError: when it is damaged, locked, or unpacks to too much.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > MAX_ARCHIVE_FILES:
                raise ValueError(
                    f"{name} holds {len(members):,} files; allowed: {MAX_ARCHIVE_FILES:,}."
                )
            total = sum(member.file_size for member in members)
            if total > MAX_ARCHIVE_BYTES:
                raise ValueError(
                    f"{name} unpacks to {total / 1e6:.1f} MB; "
                    f"allowed: {MAX_ARCHIVE_BYTES / 1e6:.1f} MB."
                )
            files = [(member.filename, _member(archive, member)) for member in members]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        reason = "it is locked by a password" if "encrypted" in str(error) else str(error)
        raise ValueError(f"{name} cannot be read as a ZIP archive: {reason}.") from error
    return corpus_from_files(files, name)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if not member.filename.lower().endswith(SAMPLE_SUFFIXES):
        return b""  # Only named as left out, so there is nothing to unpack.
    # Bounded, since a header can understate the size.
    with archive.open(member) as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def corpus_from_files(files: Sequence[tuple[str, bytes]], name: str) -> Corpus:
    """Returns the documents of text files; folders below what all texts share are labels.

    Args:
        files: names, which may hold folders, and contents.
        name: of the corpus.

    Raises:
        ValueError: when there is no text file.
    """
    # A file whose name begins with a dot, or lies in __MACOSX, was made by a system.
    visible = [
        (PurePosixPath(path.replace("\\", "/")), data)
        for path, data in files
        if not any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(path).parts)
    ]
    texts = [path for path, _ in visible if path.suffix.lower() in SAMPLE_SUFFIXES]
    if not texts:
        raise ValueError(
            f"{name} holds no {' or '.join(SAMPLE_SUFFIXES)} file; folders in it become labels."
        )
    depth = _shared_depth(texts)
    documents: list[Document] = []
    excluded: list[Excluded] = []
    seen: dict[str, int] = {}
    for path, data in sorted(visible, key=lambda item: item[0]):
        key = _clean("/".join(path.parts[depth:]))
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            key = f"{key} ({seen[key]})"
        if path.suffix.lower() not in SAMPLE_SUFFIXES:
            excluded.append(Excluded(key, f"not a {' or '.join(SAMPLE_SUFFIXES)} file"))
            continue
        try:
            found = document_from_bytes(data, path.name)
        except ValueError as error:
            excluded.append(Excluded(key, str(error)))
            continue
        label = _clean(path.parts[depth]) if len(path.parts) > depth + 1 else None
        documents.append(Document(key, found.title, found.text, label))
    return Corpus(name, tuple(documents), tuple(excluded))


def _shared_depth(paths: Sequence[PurePosixPath]) -> int:
    """Returns how many leading folders all texts share; those tell nothing apart."""
    folders = [path.parts[:-1] for path in paths]
    depth = 0
    while all(len(f) > depth for f in folders) and len({f[depth] for f in folders}) == 1:
        depth += 1
    return depth


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def limit_corpus(corpus: Corpus, limit: int, seed: int = 0) -> Corpus:
    """Returns at most so many documents, drawn with a seed, in the order of the source.

    The note of the result says how many were drawn from how many.

    Raises:
        ValueError: when the limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"row limit is {limit}; allowed: 1 and more.")
    n = len(corpus)
    if n <= limit:
        return corpus
    rows = np.sort(np.random.default_rng(seed).choice(n, limit, replace=False)).tolist()
    return replace(
        corpus,
        documents=tuple(corpus.documents[row] for row in rows),
        extra={name: tuple(values[row] for row in rows) for name, values in corpus.extra.items()},
        note=" ".join(
            part
            for part in (corpus.note, f"{limit:,} of {n:,} documents, drawn with seed {seed}.")
            if part
        ),
    )


def newsgroups_corpus(limit: int, seed: int = 0, fetch: Callable[..., Any] | None = None) -> Corpus:
    """Returns scikit-learn's 20 newsgroups, the training part, without headers and quotes.

    Args:
        limit: most documents, drawn with the seed.
        seed: of the draw.
        fetch: stands in for `sklearn.datasets.fetch_20newsgroups`.

    Raises:
        ValueError: when it is not on this machine and cannot be fetched.
    """
    if fetch is None:
        from sklearn.datasets import fetch_20newsgroups

        fetch = fetch_20newsgroups
    try:
        found = fetch(
            subset="train",
            shuffle=False,
            remove=("headers", "footers", "quotes"),
            n_retries=0,
        )
    # Refused, cut off or unreachable: urllib's and the system's errors are all of this class.
    except OSError as error:
        raise ValueError(
            "20 newsgroups is not on this machine and cannot be fetched (14 MB from "
            f"figshare.com): {error}. Fetch it once where there is a network, with "
            'python -c "from sklearn.datasets import fetch_20newsgroups as f; f()".'
        ) from error
    names = list(found.target_names)
    rows = tuple(
        {"id": f"news-{i}", "text": text, "label": names[int(target)]}
        for i, (text, target) in enumerate(zip(found.data, found.target, strict=True))
    )
    return limit_corpus(corpus_from_table(CorpusTable("20 newsgroups", rows)), limit, seed)


def hub_corpus(source: HubSource, limit: int, seed: int = 0, load: Any = None) -> CorpusTable:
    """Returns rows of a data set of the hub, drawn from a shuffled stream.

    No code of the data set is run: from version 4 on, `datasets` reads data files alone.

    Args:
        source: which data set and split.
        limit: most rows.
        seed: of the shuffle, which draws among the next 10,000 rows at any moment.
        load: stands in for `datasets.load_dataset`.

    Raises:
        ValueError: when `datasets` is missing or too old, or the data set cannot be had.
    """
    if limit < 1:
        raise ValueError(f"row limit is {limit}; allowed: 1 and more.")
    if load is None:
        load = _load_dataset()
    try:
        stream = load(source.name, source.config or None, split=source.split, streaming=True)
        names = _class_names(stream)
        rows = tuple(
            {key: _named(value, names.get(key)) for key, value in dict(row).items()}
            for row in stream.shuffle(seed=seed, buffer_size=SHUFFLE_BUFFER).take(limit)
        )
    # The hub's, the network's and the file formats' errors share no class.
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ValueError(
            f"data set {source.name!r}, split {source.split!r}, cannot be had: {lines[0]}"
        ) from error
    if not rows:
        raise ValueError(f"data set {source.name!r}, split {source.split!r}, has no rows.")
    return CorpusTable(f"{source.name} ({source.split})", rows)


def _load_dataset() -> Any:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ValueError(
            f"data sets of the hub need the package datasets; install it with {INSTALL_DATASETS}"
        ) from error
    if int(datasets.__version__.split(".")[0]) < 4:
        raise ValueError(
            f"datasets {datasets.__version__} can run a data set's own code; update it with "
            f"{INSTALL_DATASETS}"
        )
    return datasets.load_dataset


def _class_names(stream: Any) -> dict[str, list[str]]:
    """Returns the names of classes of columns that hold their numbers."""
    features = getattr(stream, "features", None) or {}
    return {
        key: list(feature.names)
        for key, feature in features.items()
        if getattr(feature, "names", None)
    }


def _named(value: Any, names: list[str] | None) -> Any:
    if names is None or not isinstance(value, int) or not 0 <= value < len(names):
        return value
    return names[value]
