import io
import json
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmk_viz.corpus import (
    Columns,
    Corpus,
    Excluded,
    corpus_from_bytes,
    load_corpus,
    sample_corpus,
)
from lmk_viz.documents import Document

ROWS = [
    {"id": "a", "title": "First", "label": "x", "text": "one two"},
    {"id": "b", "title": "Second", "label": "y", "text": 'three, "four"\tfive'},
    {"id": "c", "title": "Third", "label": "x", "text": "día\nsix"},
]
DOCUMENTS = tuple(Document(r["id"], r["title"], r["text"], r["label"]) for r in ROWS)


def json_lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


def parquet(columns: Any) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


def table(suffix: str, rows: list[dict[str, Any]]) -> bytes:
    frame = pd.DataFrame(rows)
    if suffix in (".jsonl", ".ndjson"):
        return json_lines(*rows)
    if suffix == ".parquet":
        return parquet(frame)
    return frame.to_csv(sep="\t" if suffix == ".tsv" else ",", index=False).encode()


TABLES = [".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".CSV", ".JSONL"]


# What is read.


@pytest.mark.parametrize("suffix", TABLES)
def test_a_table_gives_its_rows_as_documents_in_order(suffix):
    corpus = corpus_from_bytes(table(suffix.lower(), ROWS), f"mine{suffix}")
    assert corpus == Corpus(f"mine{suffix}", DOCUMENTS)


@pytest.mark.parametrize("suffix", TABLES)
def test_a_table_on_disk_is_read_like_an_upload(suffix, tmp_path):
    file = tmp_path / f"mine{suffix}"
    file.write_bytes(table(suffix.lower(), ROWS))
    assert load_corpus(file) == Corpus(f"mine{suffix}", DOCUMENTS)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_a_table_needs_nothing_but_its_text(suffix):
    corpus = corpus_from_bytes(table(suffix, [{"text": "one"}, {"text": "two"}]), f"mine{suffix}")
    assert corpus.documents == (
        Document("row-1", "row-1", "one"),
        Document("row-2", "row-2", "two"),
    )


def test_columns_of_other_names_are_read_where_they_are_named():
    data = json_lines({"body": "one", "key": "k", "name": "n", "class": "c", "text": "not this"})
    columns = Columns(text="body", id="key", title="name", label="class")
    assert corpus_from_bytes(data, "t.jsonl", columns).documents == (
        Document("k", "n", "one", "c"),
    )


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(7, "7"), (7.0, "7"), (7.5, "7.5"), ("007", "007"), (None, "row-1"), ("", "row-1")],
)
def test_an_id_is_text_whatever_it_was(value, wanted):
    corpus = corpus_from_bytes(json_lines({"id": value, "text": "one"}), "t.jsonl")
    assert corpus.documents[0].id == wanted


def test_whole_numbers_beside_a_missing_id_keep_no_decimal_point():
    corpus = corpus_from_bytes(parquet({"id": [1, None], "text": ["one", "two"]}), "t.parquet")
    assert [d.id for d in corpus.documents] == ["1", "row-2"]


@pytest.mark.parametrize("word", ["NA", "null", "nan", "None"])
def test_words_that_spell_a_missing_value_stay_words_in_csv(word):
    corpus = corpus_from_bytes(f"id,text,label\n{word},{word},{word}\n".encode(), "t.csv")
    assert corpus.documents == (Document(word, word, word, word),)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_a_line_separator_inside_a_json_string_does_not_split_the_record(separator):
    # JSON allows all but control characters to stand in a string as they are.
    escaped = separator < " "
    data = json.dumps({"text": f"one{separator}two"}, ensure_ascii=escaped).encode()
    corpus = corpus_from_bytes(data + b"\n" + json_lines({"text": "three"}), "t.jsonl")
    assert [d.text for d in corpus.documents] == [f"one{separator}two", "three"]


def test_byte_order_mark_carriage_returns_and_blank_lines_are_no_records():
    data = '\ufeff{"text": "one"}\r\n\r\n   \n{"text": "two"}\r\n'.encode()
    corpus = corpus_from_bytes(data, "t.jsonl")
    assert [(d.id, d.text) for d in corpus.documents] == [("row-1", "one"), ("row-2", "two")]


def test_a_table_in_utf_16_is_read():
    data = "id,text\na,día\n".encode("utf-16")
    assert corpus_from_bytes(data, "t.csv").documents[0].text == "día"


def test_a_single_text_file_is_a_corpus_of_one(tmp_path):
    file = tmp_path / "note.md"
    file.write_text("# A title\n\nBody.")
    assert load_corpus(file).documents == (Document("note", "A title", "# A title\n\nBody."),)


def test_an_uploaded_text_is_a_corpus_of_one():
    corpus = corpus_from_bytes(b"# A title\n\nBody.", "note.md")
    assert corpus == Corpus("note.md", (Document("note.md", "A title", "# A title\n\nBody."),))


# Folders.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "texts"
    for place, text in {
        "b.txt": "top",
        "sea/a.md": "# Waves\n\nwet",
        "sea/deep/c.txt": "dark",
        "land/d.txt": "dry",
        "land/empty.txt": "  \n",
        "land/picture.txt": "\x00\x01" * 50,
        "README.md": "about",
        "sea/table.csv": "id,text\n1,no\n",
    }.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    return root


def test_a_folder_gives_its_texts_with_the_first_subfolder_as_label(folder):
    assert load_corpus(folder).documents == (
        Document("b.txt", "top", "top", None),
        Document("land/d.txt", "dry", "dry", "land"),
        Document("sea/a.md", "Waves", "# Waves\n\nwet", "sea"),
        Document("sea/deep/c.txt", "dark", "dark", "sea"),
    )


def test_unreadable_texts_of_a_folder_are_left_out_by_name(folder):
    excluded = load_corpus(folder).excluded
    assert [e.id for e in excluded] == ["land/empty.txt", "land/picture.txt"]
    assert "holds only white space" in excluded[0].reason
    assert "is binary" in excluded[1].reason


def test_a_folder_is_named_after_itself(folder):
    assert load_corpus(folder).name == "texts"


def test_a_file_name_that_is_no_unicode_gives_an_id_that_can_be_written(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("one")
    assert load_corpus(tmp_path).documents[0].id == "\\udcff.txt"


def test_a_folder_without_texts_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "t.csv").write_text("text\none\n")
    with pytest.raises(ValueError, match=r"holds no \.txt or \.md file"):
        load_corpus(tmp_path)


# What is left out.


@pytest.mark.parametrize(
    "text", ["", "  \n\t", None, float("nan")], ids=["empty", "spaces", "null", "nan"]
)
def test_a_row_without_text_is_left_out_with_its_reason(text):
    data = json_lines({"id": "a", "text": "one"}, {"id": "b", "text": text}, {"text": "two"})
    corpus = corpus_from_bytes(data, "t.jsonl")
    assert [d.id for d in corpus.documents] == ["a", "row-3"]
    assert corpus.excluded == (Excluded("b", "empty text"),)


@pytest.mark.parametrize(
    "texts",
    [
        ["one", None],
        pd.array(["one", None], dtype="string"),
        [1.5, np.nan],
        pd.array([1, None], dtype="Int64"),
        pd.Categorical(["one", None]),
    ],
    ids=["object", "string", "float", "nullable integer", "category"],
)
def test_a_missing_text_of_any_column_type_is_left_out(texts):
    corpus = corpus_from_bytes(parquet({"id": ["a", "b"], "text": texts}), "t.parquet")
    assert len(corpus) == 1
    assert corpus.excluded == (Excluded("b", "empty text"),)


@pytest.mark.parametrize(
    "labels",
    [["x", None], [1.5, np.nan], [pd.Timestamp("2020-01-01"), pd.NaT]],
    ids=["string", "number", "date"],
)
def test_a_missing_label_of_any_column_type_is_none(labels):
    corpus = corpus_from_bytes(parquet({"text": ["one", "two"], "label": labels}), "t.parquet")
    assert corpus.documents[0].label is not None
    assert corpus.documents[1].label is None


def test_a_csv_row_that_ends_early_is_left_out():
    corpus = corpus_from_bytes(b"id,text\na\nb,two\n", "t.csv")
    assert corpus.excluded == (Excluded("a", "empty text"),)
    assert [d.id for d in corpus.documents] == ["b"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"one", "bytes"), (["one", "two"], "ndarray"), (Decimal("1.5"), "Decimal")],
    ids=["bytes", "list", "decimal"],
)
def test_a_text_that_is_no_string_is_left_out_and_not_spelled_as_python(value, kind):
    corpus = corpus_from_bytes(parquet({"id": ["a"], "text": [value]}), "t.parquet")
    assert corpus.documents == ()
    assert corpus.excluded == (Excluded("a", f"the text is of type {kind}, not a string"),)


def test_a_text_with_half_a_character_is_left_out_with_its_place():
    data = b'{"id": "a", "text": "x\\ud800"}\n{"id": "b", "text": "one"}'
    corpus = corpus_from_bytes(data, "t.jsonl")
    assert [d.id for d in corpus.documents] == ["b"]
    assert corpus.excluded[0].id == "a"
    assert "lone surrogate) at offset 1" in corpus.excluded[0].reason


@pytest.mark.parametrize("field", ["id", "title", "label"])
def test_half_a_character_in_a_name_is_spelled_out(field):
    data = f'{{"{field}": "x\\ud800", "text": "one"}}'.encode()
    assert getattr(corpus_from_bytes(data, "t.jsonl").documents[0], field) == "x\\ud800"


# What is refused.


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_a_missing_text_column_names_the_columns_that_are_there(suffix):
    data = table(suffix, [{"id": "a", "body": "one"}])
    with pytest.raises(ValueError, match=r"row 1: no column 'text'; it has 'id', 'body'\."):
        corpus_from_bytes(data, f"t{suffix}")


def test_a_record_without_the_text_column_is_named_by_its_row():
    data = json_lines({"text": "one"}, {"txt": "two"})
    with pytest.raises(ValueError, match=r"t\.jsonl, row 2: no column 'text'; it has 'txt'"):
        corpus_from_bytes(data, "t.jsonl")


def test_a_record_without_any_column_says_so():
    with pytest.raises(ValueError, match="it has none"):
        corpus_from_bytes(b"{}", "t.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": "one"', "Expecting ',' delimiter"),
        (b"one two", "Expecting value"),
        (b'{"id": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
        (b"[" * 100_000, "recursion"),
    ],
    ids=["unfinished", "words", "huge number", "deep nesting"],
)
def test_a_line_that_is_not_json_is_named(line, message):
    with pytest.raises(ValueError, match=rf"t\.jsonl, line 3: not JSON \(.*{message}"):
        corpus_from_bytes(b'{"text": "one"}\n\n' + line, "t.jsonl")


@pytest.mark.parametrize(("line", "kind"), [("[1]", "list"), ('"one"', "str"), ("7", "int")])
def test_a_line_that_is_no_object_is_named_with_what_came(line, kind):
    data = f'{{"text": "one"}}\n{line}'.encode()
    with pytest.raises(ValueError, match=rf"t\.jsonl, line 2: {kind} came; an object"):
        corpus_from_bytes(data, "t.jsonl")


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_an_id_that_comes_twice_names_both_rows(suffix):
    rows = [{"id": i, "text": "one"} for i in ("a", "b", "a")]
    with pytest.raises(ValueError, match=r"row 3: id 'a' stands in row 1 too"):
        corpus_from_bytes(table(suffix, rows), f"t{suffix}")


def test_an_id_of_a_row_that_was_left_out_still_counts_as_taken():
    data = json_lines({"id": "a", "text": ""}, {"id": "a", "text": "one"})
    with pytest.raises(ValueError, match="row 2: id 'a' stands in row 1 too"):
        corpus_from_bytes(data, "t.jsonl")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.jsonl", b"\n\n"),
        ("t.csv", b"id,text\n"),
        ("t.tsv", b"id\ttext\n"),
        ("t.parquet", parquet({"id": [], "text": []})),
    ],
)
def test_a_table_without_rows_is_refused(name, data):
    with pytest.raises(ValueError, match=f"{name} has no rows; give a table with at least one"):
        corpus_from_bytes(data, name)


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "t.txt"])
def test_a_file_of_no_bytes_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} is empty \(0 bytes\)"):
        corpus_from_bytes(b"", name)


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.tsv"])
def test_a_table_in_another_encoding_is_refused_at_the_byte_where_it_fails(name):
    with pytest.raises(ValueError, match=f"^{name} is not text in UTF-8: byte 4 cannot be read"):
        corpus_from_bytes("text\xe9".encode("latin-1"), name)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"\n\n", "t.csv cannot be read as csv: No columns"),
        ("t.csv", b'id,text\n1,"one\n', "t.csv cannot be read as csv: .*EOF inside string"),
        (
            "t.csv",
            b"id,text\n1,one\n2,two, three\n",
            "t.csv cannot be read as csv: .*line 3, saw 3",
        ),
        ("t.tsv", b"id\ttext\n1\tone\ttwo\n2\ta\tb\n", "t.tsv: its rows have more fields"),
        ("t.csv", b"id,text\n1,Hello, you\n2,Bye, you\n", "t.csv: its rows have more fields"),
    ],
    ids=["no header", "open quote", "a field too many", "one in every row, tsv", "in every row"],
)
def test_a_table_out_of_shape_is_refused(name, data, message):
    with pytest.raises(ValueError, match=message):
        corpus_from_bytes(data, name)


def damaged_parquet(kind: str) -> bytes:
    whole = parquet({"text": ["one two three " * 20, "two"]})
    if kind == "cut short":
        return whole[: len(whole) // 2]
    if kind == "no Parquet":
        return b"text\none\n"
    notes = {"pandas": json.dumps({"columns": [{"name": "text"}], "index_columns": []})}
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["one"]}).replace_schema_metadata(notes), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["cut short", "no Parquet", "damaged notes"])
def test_a_damaged_parquet_file_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=r"^t\.parquet cannot be read as parquet: "):
        corpus_from_bytes(damaged_parquet(kind), "t.parquet")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.jsonl", r"absent\.jsonl does not exist; give a table \(\.jsonl, "),
        ("absent.txt", r"absent\.txt does not exist; give the path of a text file"),
        ("x" * 300, r"x cannot be read: File name too long"),
        ("x" * 300 + ".csv", r"\.csv cannot be read: File name too long"),
    ],
    ids=["table", "text", "text of a long name", "table of a long name"],
)
def test_a_file_that_is_not_there_is_refused_with_what_is_read(name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path / name)


def test_a_table_that_cannot_be_opened_is_refused_with_the_systems_reason(tmp_path, monkeypatch):
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ValueError, match=r"t\.csv cannot be read: Permission denied"):
        load_corpus(tmp_path / "t.csv")


# The result.


def test_labels_are_distinct_and_sorted_and_leave_out_the_missing():
    # So many that no set holds them sorted by chance.
    labels = [*"mzkafqxbtcwe", None, "z", "a"]
    data = json_lines(*({"text": "one", "label": label} for label in labels))
    corpus = corpus_from_bytes(data, "t.jsonl")
    assert corpus.labels == tuple("abcefkmqtwxz")
    assert len(corpus) == 15


# The sample corpus.


@pytest.fixture(scope="module")
def sample() -> Corpus:
    return sample_corpus()


def test_the_sample_corpus_has_nine_documents_on_each_of_eight_topics(sample):
    assert len(sample) == 72
    assert sample.excluded == ()
    assert sorted(Counter(d.label for d in sample.documents).values()) == [9] * 8


def test_sample_documents_have_150_to_600_words(sample):
    lengths = {d.id: len(d.text.split()) for d in sample.documents}
    assert {i: n for i, n in lengths.items() if not 150 <= n <= 600} == {}


@pytest.mark.parametrize("field", ["id", "title", "text"])
def test_no_two_sample_documents_share_a_title_id_or_text(field, sample):
    assert len({getattr(d, field) for d in sample.documents}) == 72


def test_the_sample_corpus_is_named_for_readers(sample):
    assert sample.name == "Eight topics"
