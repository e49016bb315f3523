"""Documents: samples, files and uploads, decoded and checked at the door."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MAX_FILE_BYTES",
    "SAMPLE_FOLDER",
    "Document",
    "decode_text",
    "document_from_bytes",
    "read_document",
    "sample_documents",
]

SAMPLE_FOLDER = Path(__file__).resolve().parent.parent / "sample_docs"
SAMPLE_SUFFIXES = (".md", ".txt")
MAX_FILE_BYTES = 10 * 1024 * 1024
"""Largest single document read; a megabyte is about a thousand pages of a paperback."""

_MAGIC = {
    b"%PDF": "a PDF; save its text as UTF-8 and give that",
    b"PK\x03\x04": "a ZIP or office file; save its text as UTF-8 and give that",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"\x7fELF": "a program",
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"PAR1": "a Parquet table; give it where a corpus is asked for",
}
_ALLOWED_CONTROLS = frozenset("\t\n\r\f\v")


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its name.

    Raises:
        ValueError: when the text holds lone surrogates, which no tokenizer can read.
    """

    id: str
    title: str
    text: str
    label: str | None = None

    def __post_init__(self) -> None:
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"document {self.id!r} holds half a character (a lone surrogate) at offset "
                f"{error.start}; save the text as UTF-8 and try again."
            ) from error

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing but white space."""
        return not self.text.strip()


def decode_text(data: bytes, name: str) -> str:
    """Returns the text of a file's bytes: UTF-8, or UTF-16 with its byte order mark.

    Args:
        data: the whole content.
        name: what to call the file in messages.

    Raises:
        ValueError: when the file is empty, too large, binary or in another encoding.

    Example:
        >>> decode_text("día".encode(), "note.txt")
        'día'
    """
    if not data:
        raise ValueError(f"{name} is empty (0 bytes); give a file with text in it.")
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(
            f"{name} has {len(data) / 1e6:.1f} MB; allowed: {MAX_FILE_BYTES / 1e6:.1f} MB. "
            "Split it, or give a shorter part."
        )
    for magic, kind in _MAGIC.items():
        if data.startswith(magic):
            raise ValueError(f"{name} is {kind}; plain text in UTF-8 is read here.")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not text in {encoding.removesuffix('-sig').upper()}: byte {error.start} "
            "cannot be read. Save it as UTF-8 and try again."
        ) from error
    head = text[:65536]
    controls = sum(c < " " and c not in _ALLOWED_CONTROLS for c in head)
    if controls * 10 > len(head):
        raise ValueError(
            f"{name} is binary: {controls} of its first {len(head)} characters are control "
            "characters. Plain text in UTF-8 is read here."
        )
    return text


def document_from_bytes(data: bytes, name: str) -> Document:
    """Returns the document in an uploaded file, titled by its first heading or its name."""
    text = decode_text(data, name)
    if not text.strip():
        raise ValueError(f"{name} holds only white space; give a file with text in it.")
    return Document(id=name, title=_title(text, Path(name).stem), text=text)


def read_document(path: str | os.PathLike[str]) -> Document:
    """Returns the document in a text file.

    Raises:
        ValueError: when the file does not exist, cannot be read, or is not text.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise ValueError(f"{file} is a folder; a single text file is read here.")
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(
                f"{file} has {file.stat().st_size / 1e6:.1f} MB; "
                f"allowed: {MAX_FILE_BYTES / 1e6:.1f} MB."
            )
        # Bounded, since a device or a growing file is longer than it says.
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; give the path of a text file.") from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
    document = document_from_bytes(data, file.name)
    return Document(id=file.stem, title=document.title, text=document.text)


def sample_documents(folder: Path = SAMPLE_FOLDER) -> tuple[Document, ...]:
    """Returns the long sample documents that come with the project, by name."""
    if not folder.is_dir():
        return ()
    return tuple(
        read_document(file)
        for file in sorted(folder.iterdir())
        if file.suffix in SAMPLE_SUFFIXES and file.name != "README.md"
    )


def _title(text: str, fallback: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    heading = first.lstrip("#").strip()
    # A first line of a whole paragraph is text, not a title.
    return heading if 0 < len(heading) <= 100 else fallback
