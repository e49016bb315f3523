import dataclasses
from pathlib import Path

import pytest

from lmk_viz import documents
from lmk_viz.documents import (
    Document,
    decode_text,
    document_from_bytes,
    read_document,
    sample_documents,
)

SAMPLES = sample_documents()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("día 日本 \U0001f468".encode(), "día 日本 \U0001f468"),
        (b"\xef\xbb\xbfabc", "abc"),
        (b"\xff\xfea\x00\xe9\x00", "aé"),
        (b"\xfe\xff\x00a\x00\xe9", "aé"),
        (b"a\r\nb\n", "a\r\nb\n"),
        (b" \n", " \n"),
        (b"\x00" + b"a" * 9, "\x00" + "a" * 9),
        (b"a\tb\fc\vd\re\n" * 3, "a\tb\fc\vd\re\n" * 3),
        (b"</s> [SEP] <b>", "</s> [SEP] <b>"),
        ("e\u0301".encode(), "e\u0301"),
        (b"a" * 65536 + b"\x00" * 9999, "a" * 65536 + "\x00" * 9999),
    ],
    ids=[
        "utf8",
        "utf8-bom",
        "utf16-le",
        "utf16-be",
        "crlf",
        "blank",
        "a-tenth-of-nul",
        "white-space-controls",
        "markup",
        "not-normalised",
        "controls-behind-the-head",
    ],
)
def test_text_is_decoded_and_left_as_it_is(data, text):
    assert decode_text(data, "note.txt") == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"note.txt is empty \(0 bytes\); give a file with text"),
        (b"%PDF-1.7 text", "note.txt is a PDF; save its text as UTF-8"),
        (b"PK\x03\x04rest", "note.txt is a ZIP or office file"),
        (b"\x89PNG\r\n\x1a\n", "note.txt is a PNG picture"),
        (b"\xff\xd8\xff\xe0", "note.txt is a JPEG picture"),
        (b"GIF89a", "note.txt is a GIF picture"),
        (b"\x7fELF\x02", "note.txt is a program"),
        (b"\x1f\x8b\x08", "note.txt is a gzip archive; unpack it first"),
        (b"PAR1\x15", "note.txt is a Parquet table"),
        ("caf\xe9 noir".encode("latin-1"), "is not text in UTF-8: byte 3 cannot be read"),
        (b"\xed\xa0\x80", "is not text in UTF-8: byte 0 cannot be read"),
        (b"\xff\xfea\x00b", "is not text in UTF-16: byte 4 cannot be read"),
        (b"\x00" * 2 + b"a" * 9, "is binary: 2 of its first 11 characters are control"),
        (b"ab\x00" * 50, "is binary: 50 of its first 150 characters are control"),
        (b"\x01" * 70000, "is binary: 65536 of its first 65536 characters are control"),
        (b"\xff\xfea\x00\x00\x00", "is binary: 1 of its first 2 characters are control"),
    ],
    ids=[
        "no-bytes",
        "pdf",
        "zip",
        "png",
        "jpeg",
        "gif",
        "elf",
        "gzip",
        "parquet",
        "latin-1",
        "encoded-surrogate",
        "half-utf16",
        "over-a-tenth-of-nul",
        "nul-heavy",
        "long-binary",
        "nul-in-utf16",
    ],
)
def test_what_is_no_text_is_refused_with_its_reason(data, message):
    with pytest.raises(ValueError, match=message):
        decode_text(data, "note.txt")


def test_a_file_at_the_size_limit_is_read(monkeypatch):
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 5)
    assert decode_text(b"abcde", "note.txt") == "abcde"


def test_a_file_over_the_size_limit_is_refused_with_both_sizes(monkeypatch):
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 2_000_000)
    with pytest.raises(ValueError, match=r"note.txt has 2\.1 MB; allowed: 2\.0 MB"):
        decode_text(b"a" * 2_100_000, "note.txt")


@pytest.mark.parametrize("data", [b" \n\t ", b"\xef\xbb\xbf", b"\xff\xfe"], ids=repr)
def test_an_upload_of_white_space_alone_is_refused(data):
    with pytest.raises(ValueError, match=r"up\.txt holds only white space; give a file"):
        document_from_bytes(data, "up.txt")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# A heading\n\nBody.", "A heading"),
        ("\n\n  ### Deep  \nBody", "Deep"),
        ("Plain first line\nBody", "Plain first line"),
        ("x" * 100 + "\nBody", "x" * 100),
        ("x" * 101 + "\nBody", "folder.name"),
        ("##\nBody", "folder.name"),
    ],
    ids=["heading", "blank-before", "plain", "long", "a-paragraph", "empty-heading"],
)
def test_an_upload_is_titled_by_its_first_line_or_else_its_name(text, title):
    assert document_from_bytes(text.encode(), "folder.name.md").title == title


def test_an_upload_is_identified_by_its_whole_name():
    document = document_from_bytes(b"# T\n\nBody.", "a.md")
    assert (document.id, document.text, document.label) == ("a.md", "# T\n\nBody.", None)


def test_a_file_is_identified_by_its_stem(tmp_path):
    file = tmp_path / "note.md"
    file.write_bytes(b"# T\r\n\r\nBody.")
    assert read_document(file) == Document(id="note", title="T", text="# T\r\n\r\nBody.")


def test_a_path_may_be_given_as_text(tmp_path):
    (tmp_path / "note.md").write_bytes(b"x")
    assert read_document(str(tmp_path / "note.md")).text == "x"


def make_long_file(folder: Path) -> Path:
    (folder / "long.txt").write_bytes(b"a" * 2_100_001)
    return folder / "long.txt"


def make_inner_path(folder: Path) -> Path:
    (folder / "file.txt").write_bytes(b"a")
    return folder / "file.txt" / "inner.txt"


def make_loop(folder: Path) -> Path:
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    return folder / "loop.txt"


def make_empty_file(folder: Path) -> Path:
    (folder / "empty.txt").touch()
    return folder / "empty.txt"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder, r"is a folder; a single text file"),
        (lambda folder: folder / "no.txt", r"no\.txt does not exist; give the path"),
        (make_long_file, r"long\.txt has 2\.1 MB; allowed: 2\.0 MB"),
        (make_inner_path, r"inner\.txt cannot be read: Not a directory"),
        (make_loop, r"loop\.txt cannot be read: Too many levels of symbolic links"),
        (lambda folder: folder / ("n" * 300), "cannot be read: File name too long"),
        (make_empty_file, r"empty\.txt is empty \(0 bytes\)"),
    ],
    ids=["folder", "missing", "long", "behind-a-file", "loop", "long-name", "no-bytes"],
)
def test_a_path_that_gives_no_text_is_refused_with_its_reason(tmp_path, monkeypatch, make, message):
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 2_000_000)
    with pytest.raises(ValueError, match=message):
        read_document(make(tmp_path))


def test_a_file_without_permission_is_refused_with_the_systems_word(tmp_path, monkeypatch):
    # Simulated, since these tests may run as root, who may read everything.
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "secret.txt"
    file.write_bytes(b"x")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ValueError, match=r"secret\.txt cannot be read: Permission denied"):
        read_document(file)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a file without an end")
def test_a_file_longer_than_it_says_is_read_to_the_limit_only(monkeypatch):
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 1_000_000)
    with pytest.raises(ValueError, match=r"zero has 1\.0 MB; allowed: 1\.0 MB"):
        read_document("/dev/zero")


def test_a_lone_surrogate_is_refused_with_document_and_place():
    with pytest.raises(ValueError, match=r"document 'd' holds half a character .* at offset 2"):
        Document(id="d", title="D", text="ab\ud83d")


@pytest.mark.parametrize(
    ("text", "blank"),
    [("", True), (" \n\u3000", True), ("a", False), ("\u200b", False), ("\x00", False)],
    ids=["empty", "spaces", "letter", "zero-width", "nul"],
)
def test_a_document_of_white_space_alone_is_blank(text, blank):
    assert Document(id="d", title="D", text=text).is_blank is blank


def test_a_document_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError, match="text"):
        Document(id="d", title="D", text="a").text = "b"


def test_samples_are_the_text_files_of_the_folder_by_name_without_its_readme(tmp_path):
    for name in ["b.txt", "a.md", "README.md", "c.jsonl", "d.csv"]:
        (tmp_path / name).write_text("text")
    assert [d.id for d in sample_documents(tmp_path)] == ["a", "b"]


def test_without_a_sample_folder_there_are_no_samples(tmp_path):
    assert sample_documents(tmp_path / "missing") == ()


def test_several_samples_come_with_the_project():
    assert len(SAMPLES) >= 4


@pytest.mark.parametrize("document", SAMPLES, ids=lambda d: d.id)
def test_a_sample_has_a_title_of_its_own(document):
    assert document.title not in ("", document.id)


@pytest.mark.parametrize(
    "document", [d for d in SAMPLES if d.id != "multilingual"], ids=lambda d: d.id
)
def test_a_sample_is_a_long_document(document):
    assert len(document.text.split()) >= 1500
