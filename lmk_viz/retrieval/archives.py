"""Retrieval data sets from an uploaded archive in BEIR layout."""

import gzip
import io
import lzma
import tempfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path, PurePosixPath

from lmk_viz.corpus_sources import MAX_ARCHIVE_BYTES, MAX_ARCHIVE_FILES
from lmk_viz.retrieval.dataset import RetrievalDataset, load_dataset

__all__ = ["dataset_from_zip", "splits_of_zip"]


def splits_of_zip(data: bytes, name: str) -> tuple[str, ...]:
    """Returns the splits that an archive in BEIR layout has judgements of, `test` first.

    Raises:
        ValueError: when it is no such archive.
    """
    places = _places_of_zip(data, name)
    found = sorted(
        place.removeprefix("qrels/").removesuffix(".tsv")
        for place in places
        if place.startswith("qrels/")
    )
    return tuple(sorted(found, key=lambda split: split != "test"))


def dataset_from_zip(
    data: bytes, name: str, split: str | None = None, with_titles: bool = False
) -> RetrievalDataset:
    """Returns the data set in an archive in BEIR layout, at its top or in one folder of it.

    Only corpus.jsonl, queries.jsonl, positions.tsv and the judgements are read, each plain or
    gzipped. They are written under those names to a folder that is gone afterwards; no name
    from the archive becomes a path.

    Args:
        data: the archive.
        name: what to call it in messages.
        split: which judgements; None takes `test`, else the first there is.
        with_titles: put titles before the texts.

    Raises:
        ValueError: when it is damaged, locked, unpacks to too much, lacks a file, or a line
            cannot be used.
    """
    splits = splits_of_zip(data, name)
    split = splits[0] if split is None else split
    if split not in splits:
        raise ValueError(f"{name} has no qrels/{split}.tsv; it has {', '.join(splits)}.")
    wanted = ("corpus.jsonl", "queries.jsonl", "positions.tsv", f"qrels/{split}.tsv")
    members = {p: m for p, m in _places_of_zip(data, name).items() if p in wanted}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "qrels").mkdir()
        left = MAX_ARCHIVE_BYTES
        for place, member in members.items():
            content = _unpack(data, name, member, left)
            left -= len(content)
            target = "qrels/split.tsv" if place.startswith("qrels/") else place
            (root / target).write_bytes(content)
        try:
            found = load_dataset(root, "split", with_titles)
        except ValueError as error:
            words = str(error).replace(f"{root}/", "").replace(str(root), name)
            raise ValueError(f"{name}: {words.replace('split.tsv', f'{split}.tsv')}") from error
    return replace(found, name=PurePosixPath(name).stem, split=split)


def _places_of_zip(data: bytes, name: str) -> dict[str, str]:
    """Returns the members of the layout by the place that they have in it, without .gz."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError) as error:
        raise ValueError(f"{name} cannot be read as a ZIP archive: {error}.") from error
    if len(members) > MAX_ARCHIVE_FILES:
        raise ValueError(f"{name} holds {len(members):,} files; allowed: {MAX_ARCHIVE_FILES:,}.")
    by_folder: dict[PurePosixPath, dict[str, str]] = {}
    for member in members:
        path = PurePosixPath(member.filename.replace("\\", "/"))
        if any(part.startswith((".", "__MACOSX")) for part in path.parts):
            continue
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        if plain.name in ("corpus.jsonl", "queries.jsonl", "positions.tsv"):
            folder, place = path.parent, plain.name
        elif plain.parent.name == "qrels" and plain.suffix == ".tsv":
            folder, place = path.parent.parent, f"qrels/{plain.name}"
        else:
            continue
        there = by_folder.setdefault(folder, {})
        if place not in there or plain == path:  # As in a folder, the plain file comes first.
            there[place] = member.filename
    whole = [found for found in by_folder.values() if "corpus.jsonl" in found]
    expected = "expected corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR layout)"
    if len(whole) != 1:
        raise ValueError(f"{name} has {len(whole) or 'no'} corpus.jsonl; {expected}.")
    (found,) = whole
    if "queries.jsonl" not in found or not any(place.startswith("qrels/") for place in found):
        raise ValueError(f"{name} has {', '.join(sorted(found))}; {expected}.")
    return found


def _unpack(data: bytes, name: str, member: str, limit: int) -> bytes:
    """Returns a member of an archive, gzip undone; bounded, as headers can understate sizes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(member) as stream:
            if member.endswith(".gz"):
                with gzip.open(stream, "rb") as unpacked:
                    content = unpacked.read(limit + 1)
            else:
                content = stream.read(limit + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        reason = "it is locked by a password" if "encrypted" in str(error) else str(error)
        raise ValueError(f"{name}: {member} cannot be unpacked: {reason}.") from error
    except (zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{name}: {member} is damaged: {error}.") from error
    if len(content) > limit:
        raise ValueError(f"{name} unpacks to more than {MAX_ARCHIVE_BYTES / 1e6:.1f} MB.")
    return content
