import io
import sys
import zipfile
from types import SimpleNamespace
from urllib.error import URLError

import pytest

from lmk_viz.corpus import (
    Columns,
    Corpus,
    CorpusTable,
    corpus_from_table,
    guess_columns,
    table_from_bytes,
)
from lmk_viz.corpus_sources import (
    HubSource,
    corpus_from_files,
    hub_corpus,
    limit_corpus,
    newsgroups_corpus,
    read_upload,
)
from lmk_viz.documents import Document


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def facts(corpus: Corpus) -> list[tuple[str, str | None, str]]:
    return [(d.id, d.label, d.text) for d in corpus.documents]


# Tables.


def test_further_columns_are_kept_for_the_documents_that_are():
    data = b"text,year,size,tag\na,1999,1.5,x\n,2000,2,y\nb,2001,,\n"
    corpus = corpus_from_table(table_from_bytes(data, "a.csv"))
    assert corpus.extra == {"year": (1999.0, 2001.0), "size": (1.5, None), "tag": ("x", None)}


def test_columns_that_play_a_part_are_no_further_columns():
    table = CorpusTable("t", ({"body": "a", "key": "k", "kind": "x", "name": "n", "more": 1},))
    corpus = corpus_from_table(table, Columns("body", "key", "name", "kind"))
    assert facts(corpus) == [("k", "x", "a")]
    assert corpus.extra == {"more": (1,)}


def test_lists_and_numbers_without_end_are_nothing_to_colour_by():
    rows = ({"text": "a", "list": [1], "far": "inf"}, {"text": "b", "list": [2], "far": "nan"})
    assert corpus_from_table(CorpusTable("t", rows)).extra == {"far": ("inf", "nan")}


def test_no_more_than_twenty_further_columns_are_kept():
    row = {"text": "a", **{f"c{i}": i for i in range(30)}}
    assert len(corpus_from_table(CorpusTable("t", (row,))).extra) == 20


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"id": "1", "text": "t", "label": "l"}, Columns("text", "id", "", "label")),
        ({"Title": "x", "Body": "t", "Category": "c"}, Columns("Body", "", "Title", "Category")),
        ({"a": "short", "b": "by far the longest of them"}, Columns("b", "", "", "")),
    ],
    ids=["usual", "other cases", "longest"],
)
def test_columns_are_guessed_by_name_and_else_by_length(row, wanted):
    assert guess_columns(CorpusTable("t", (row,))) == wanted


def test_a_table_that_is_too_large_is_refused_with_its_size():
    with pytest.raises(ValueError, match=r"a.parquet has 10.5 MB; allowed: 10.5 MB"):
        table_from_bytes(b"x" * (10 * 1024 * 1024 + 1), "a.parquet")


# Archives and files.


def test_folders_of_an_archive_are_labels():
    data = zipped({"sea/a.txt": b"waves", "land/b.md": b"# Hills\nhigh", "c.txt": b"none"})
    found = read_upload([("texts.zip", data)])
    assert facts(found) == [
        ("c.txt", None, "none"),
        ("land/b.md", "land", "# Hills\nhigh"),
        ("sea/a.txt", "sea", "waves"),
    ]
    assert found.documents[1].title == "Hills"


def test_a_folder_round_all_texts_is_no_label():
    data = zipped({"all/sea/a.txt": b"waves", "all/land/deep/b.txt": b"hills"})
    assert facts(read_upload([("t.zip", data)])) == [
        ("land/deep/b.txt", "land", "hills"),
        ("sea/a.txt", "sea", "waves"),
    ]


def test_what_is_no_text_is_left_out_with_its_reason():
    data = zipped({"a.txt": b"x", "b.pdf": b"%PDF", "c.txt": b"", "d.txt": b"K\xf6ln"})
    found = read_upload([("t.zip", data)])
    reasons = {e.id: e.reason for e in found.excluded}
    assert [d.id for d in found.documents] == ["a.txt"]
    assert set(reasons) == {"b.pdf", "c.txt", "d.txt"}
    assert reasons["b.pdf"] == "not a .md or .txt file"
    assert "is empty (0 bytes)" in reasons["c.txt"]
    assert "not text in UTF-8" in reasons["d.txt"]


def test_files_of_the_system_are_passed_over():
    data = zipped({"a.txt": b"x", "__MACOSX/a.txt": b"y", ".hidden.txt": b"z"})
    found = read_upload([("t.zip", data)])
    assert (len(found), found.excluded) == (1, ())


def test_a_path_that_leaves_the_archive_is_a_name_and_nothing_more(tmp_path):
    found = read_upload([("t.zip", zipped({"sea/../../etc/a.txt": b"x", "b.txt": b"y"}))])
    assert len(found) + len(found.excluded) <= 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04 broken", "cannot be read as a ZIP archive"),
        (b"", "cannot be read as a ZIP archive"),
        (zipped({"a.pdf": b"%PDF"}), "holds no .md or .txt file"),
        (zipped({}), "holds no .md or .txt file"),
    ],
    ids=["damaged", "0 bytes", "no text", "nothing"],
)
def test_an_archive_without_texts_is_refused(data, words):
    with pytest.raises(ValueError, match=words):
        read_upload([("t.zip", data)])


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(monkeypatch):
    monkeypatch.setattr("lmk_viz.corpus_sources.MAX_ARCHIVE_BYTES", 1_000_000)
    with pytest.raises(ValueError, match=r"unpacks to 2.0 MB; allowed: 1.0 MB"):
        read_upload([("t.zip", zipped({"a.txt": b"a" * 2_000_000}))])


def test_an_archive_of_too_many_files_is_refused(monkeypatch):
    monkeypatch.setattr("lmk_viz.corpus_sources.MAX_ARCHIVE_FILES", 2)
    with pytest.raises(ValueError, match="holds 3 files; allowed: 2"):
        read_upload([("t.zip", zipped({f"{i}.txt": b"a" for i in range(3)}))])


def test_several_texts_are_a_corpus_and_one_is_a_corpus_of_one():
    found = read_upload([("b.txt", b"second"), ("a.txt", b"first")])
    assert facts(found) == [("a.txt", None, "first"), ("b.txt", None, "second")]
    assert facts(read_upload([("a.txt", b"first")])) == [("a.txt", None, "first")]


def test_files_of_one_name_get_ids_of_their_own():
    found = corpus_from_files([("a.txt", b"one"), ("a.txt", b"two")], "two")
    assert [d.id for d in found.documents] == ["a.txt", "a.txt (2)"]


def test_a_table_beside_other_files_is_refused():
    with pytest.raises(ValueError, match=r"a\.csv came with 1 more; give one table or one ZIP"):
        read_upload([("a.csv", b"text\nx"), ("b.txt", b"x")])


def test_no_file_is_refused():
    with pytest.raises(ValueError, match="no file came"):
        read_upload([])


# Row limits.


def corpus_of(n: int) -> Corpus:
    documents = tuple(Document(str(i), str(i), f"text {i}") for i in range(n))
    return Corpus("c", documents, extra={"number": tuple(range(n))})


def test_a_limit_draws_with_a_seed_in_the_order_of_the_source():
    found = limit_corpus(corpus_of(100), 10, seed=3)
    numbers = [int(d.id) for d in found.documents]
    assert (len(numbers), sorted(numbers)) == (10, numbers)
    assert found.extra["number"] == tuple(numbers)
    assert found.note == "10 of 100 documents, drawn with seed 3."
    assert limit_corpus(corpus_of(100), 10, seed=3) == found
    assert limit_corpus(corpus_of(100), 10, seed=4) != found


def test_a_corpus_within_its_limit_is_left_as_it_is():
    corpus = corpus_of(5)
    assert limit_corpus(corpus, 5) is corpus


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="row limit is 0; allowed: 1 and more"):
        limit_corpus(corpus_of(5), 0)


# 20 newsgroups.


def news(**_: object) -> SimpleNamespace:
    return SimpleNamespace(
        data=["one", " ", "three"], target=[1, 0, 0], target_names=["alt.a", "sci.b"]
    )


def test_newsgroups_come_with_the_names_of_their_groups():
    found = newsgroups_corpus(10, fetch=news)
    assert facts(found) == [("news-0", "sci.b", "one"), ("news-2", "alt.a", "three")]
    assert [(e.id, e.reason) for e in found.excluded] == [("news-1", "empty text")]


def test_newsgroups_are_drawn_to_the_limit():
    assert newsgroups_corpus(1, fetch=news).note == "1 of 2 documents, drawn with seed 0."


def test_newsgroups_without_a_network_say_how_to_get_them():
    def refuse(**_: object) -> None:
        raise URLError("no route")

    with pytest.raises(ValueError, match=r"cannot be fetched .*no route.*Fetch it once where"):
        newsgroups_corpus(10, fetch=refuse)


# Data sets of the hub.


class Stream:
    def __init__(self, rows: list[dict], features: dict | None = None) -> None:
        self.rows, self.features, self.asked = rows, features, {}

    def shuffle(self, seed: int, buffer_size: int) -> "Stream":
        self.asked = {"seed": seed, "buffer_size": buffer_size}
        return self

    def take(self, limit: int) -> list[dict]:
        return self.rows[:limit]


def test_a_data_set_is_drawn_from_a_shuffled_stream_with_names_for_classes():
    features = {"label": SimpleNamespace(names=["neg", "pos"]), "text": SimpleNamespace()}
    stream = Stream([{"text": "a", "label": 1}, {"text": "b", "label": -1}] * 3, features)
    asked = {}

    def load(name: str, config: str | None, **options: object) -> Stream:
        asked.update(name=name, config=config, **options)
        return stream

    found = hub_corpus(HubSource("some/set", "test"), 2, seed=7, load=load)
    assert asked == {"name": "some/set", "config": None, "split": "test", "streaming": True}
    assert stream.asked == {"seed": 7, "buffer_size": 10_000}
    assert found == CorpusTable(
        "some/set (test)", ({"text": "a", "label": "pos"}, {"text": "b", "label": -1})
    )


def test_a_data_set_that_cannot_be_had_is_named_with_the_reason():
    def load(*_: object, **__: object) -> None:
        raise ConnectionError("no network\nand more")

    with pytest.raises(ValueError, match=r"'some/set', split 'train', cannot be had: no network$"):
        hub_corpus(HubSource("some/set"), 5, load=load)


def test_a_data_set_without_rows_is_refused():
    with pytest.raises(ValueError, match="has no rows"):
        hub_corpus(HubSource("some/set"), 5, load=lambda *_, **__: Stream([]))


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r'install it with pip install "datasets>=4"'):
        hub_corpus(HubSource("some/set"), 5)


def test_a_version_that_runs_foreign_code_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(__version__="2.19.0"))
    with pytest.raises(ValueError, match=r"datasets 2.19.0 can run a data set's own code"):
        hub_corpus(HubSource("some/set"), 5)


@pytest.mark.parametrize(
    "name", ["", " ", "/etc", "../x", "~/x", "http://a/b", "a\\b", "a\nb", "x" * 201]
)
def test_a_name_that_is_none_of_the_hub_is_refused(name):
    with pytest.raises(ValueError, match="data set is"):
        HubSource(name)


def test_an_empty_split_is_refused():
    with pytest.raises(ValueError, match="split is empty"):
        HubSource("a/b", " ")
