import gzip
import io
import zipfile

import pytest

from lmk_viz.retrieval import archives
from lmk_viz.retrieval.archives import dataset_from_zip, splits_of_zip

CORPUS = b'{"_id": "a", "title": "Rivers", "text": "Rain."}\n{"_id": "b", "text": "Hills."}\n'
QUERIES = b'{"_id": "q", "text": "What falls?"}\n'
QRELS = b"query-id\tcorpus-id\tscore\nq\ta\t1\n"
FILES = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS}


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def test_an_archive_in_beir_layout_is_a_data_set():
    found = dataset_from_zip(zipped(FILES), "rain.zip")
    assert (found.name, found.split) == ("rain", "test")
    assert found.queries == {"q": "What falls?"}
    assert found.qrels == {"q": {"a": 1}}
    assert [d.text for d in found.corpus] == ["Rain.", "Hills."]


def test_a_folder_round_it_gzip_and_what_systems_add_make_no_difference():
    files = {f"scifact/{name}.gz": gzip.compress(data) for name, data in FILES.items()}
    files |= {"__MACOSX/scifact/corpus.jsonl": b"junk", "scifact/.DS_Store": b"junk"}
    files["scifact/README.md"] = b"Read me."
    files["scifact/positions.tsv"] = b"query-id\tdepth\nq\t0.9\n"
    found = dataset_from_zip(zipped(files), "rain.zip", with_titles=True)
    assert found.qrels == {"q": {"a": 1}}
    assert found.bins == {"q": "end"}
    assert found.corpus[0].text == "Rivers\nRain."


def test_the_split_can_be_chosen_and_test_comes_first():
    other = b"query-id\tcorpus-id\tscore\nq\tb\t1\n"
    data = zipped({**FILES, "qrels/dev.tsv": other, "qrels/train.tsv": other})
    assert splits_of_zip(data, "rain.zip") == ("test", "dev", "train")
    assert dataset_from_zip(data, "rain.zip", "dev").qrels == {"q": {"b": 1}}
    with pytest.raises(ValueError, match=r"rain.zip has no qrels/x.tsv; it has test, dev, train"):
        dataset_from_zip(data, "rain.zip", "x")


def test_names_that_climb_out_of_a_folder_are_not_read_and_touch_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    climbing = zipped({f"../../{name}": data for name, data in FILES.items()})
    with pytest.raises(ValueError, match=r"has no corpus\.jsonl"):
        dataset_from_zip(climbing, "rain.zip")
    rooted = {f"{tmp_path}/{name}": data for name, data in FILES.items()}
    # A name in an archive is never a place on this machine, so the layout is found and no more.
    assert dataset_from_zip(zipped(rooted), "rain.zip").qrels == {"q": {"a": 1}}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"notes.txt": b"x"}, r"has no corpus.jsonl; expected corpus.jsonl, queries.jsonl and"),
        ({"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}, r"has corpus.jsonl, queries.jsonl;"),
        ({**FILES, "two/corpus.jsonl": CORPUS}, r"has 2 corpus.jsonl"),
        ({**FILES, "queries.jsonl": b"{"}, r"rain.zip: queries.jsonl, line 1: no JSON"),
        (
            {**FILES, "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nzz\ta\t1\n"},
            r"test.tsv, line 2",
        ),
        ({**FILES, "corpus.jsonl": b""}, r"rain.zip: corpus.jsonl holds no document"),
    ],
    ids=["none", "no qrels", "two", "broken", "unknown query", "empty"],
)
def test_archives_that_cannot_be_used_are_refused_by_name_and_line(files, words):
    with pytest.raises(ValueError, match=words) as caught:
        dataset_from_zip(zipped(files), "rain.zip")
    assert "/tmp" not in str(caught.value)


def test_what_is_no_archive_is_refused():
    with pytest.raises(ValueError, match=r"rain.zip cannot be read as a ZIP archive"):
        dataset_from_zip(b"PK not really", "rain.zip")


def test_a_damaged_gzip_file_is_refused_by_name():
    files = {**FILES, "corpus.jsonl.gz": gzip.compress(CORPUS)[:-9]}
    del files["corpus.jsonl"]
    with pytest.raises(ValueError, match=r"rain.zip: corpus.jsonl.gz cannot be unpacked"):
        dataset_from_zip(zipped(files), "rain.zip")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip in the ZIP"])
def test_an_archive_that_unpacks_to_too_much_is_refused(packed, monkeypatch):
    monkeypatch.setattr(archives, "MAX_ARCHIVE_BYTES", 1000)
    bomb = b" " * 5000
    files = {name: data for name, data in FILES.items() if name != "corpus.jsonl"}
    files["corpus.jsonl.gz" if packed else "corpus.jsonl"] = gzip.compress(bomb) if packed else bomb
    with pytest.raises(ValueError, match=r"rain.zip unpacks to more than"):
        dataset_from_zip(zipped(files), "rain.zip")


def test_an_archive_of_too_many_files_is_refused(monkeypatch):
    monkeypatch.setattr(archives, "MAX_ARCHIVE_FILES", 2)
    with pytest.raises(ValueError, match="holds 3 files; allowed: 2"):
        splits_of_zip(zipped(FILES), "rain.zip")


def test_a_damaged_member_is_a_worded_error_however_it_was_packed():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data * 20)
    damaged = bytearray(stream.getvalue())
    damaged[60:66] = b"\xff\x00\xff\x13\x37\xff"
    with pytest.raises(ValueError, match=r"rain.zip: corpus.jsonl is damaged"):
        dataset_from_zip(bytes(damaged), "rain.zip")


@pytest.mark.parametrize("is_last", [False, True])
def test_a_plain_file_comes_before_its_gzipped_form_as_in_a_folder(is_last):
    packed = {"corpus.jsonl.gz": gzip.compress(b'{"_id": "a", "text": "Another."}\n')}
    files = {**FILES, **packed} if is_last else {**packed, **FILES}
    assert [d.text for d in dataset_from_zip(zipped(files), "rain.zip").corpus] == [
        *("Rain.", "Hills.")
    ]
