import gzip
import json
from pathlib import Path

import pytest

from lmk_viz.retrieval.dataset import load_dataset, sample_dataset

CORPUS = [
    {"_id": "d1", "title": "One", "text": "first text", "metadata": {"year": 1}},
    {"_id": "d2", "text": "second text"},
]
QUERIES = [{"_id": "q1", "text": "first?"}, {"_id": "q2", "text": "second?"}]
QRELS = "query-id\tcorpus-id\tscore\nq2\td2\t2\nq1\td1\t1\n"


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text(lines(CORPUS), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(lines(QUERIES), encoding="utf-8")
    (tmp_path / "qrels" / "test.tsv").write_text(QRELS, encoding="utf-8")
    return tmp_path


def test_a_folder_is_read_in_the_order_of_its_files(folder):
    dataset = load_dataset(folder)
    assert dataset.name == folder.name
    assert list(dataset.queries.items()) == [("q1", "first?"), ("q2", "second?")]
    assert dataset.qrels == {"q1": {"d1": 1}, "q2": {"d2": 2}}
    assert [(d.id, d.title, d.text) for d in dataset.corpus] == [
        ("d1", "One", "first text"),
        ("d2", "", "second text"),
    ]
    assert (dataset.depth, dataset.bins, dataset.notes) == ({}, {}, ())


def test_gzipped_files_are_the_same_data_set(folder):
    plain = load_dataset(folder)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        file = folder / name
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    packed = load_dataset(folder)
    assert (packed.queries, packed.corpus, packed.qrels) == (
        plain.queries,
        plain.corpus,
        plain.qrels,
    )


def test_titles_are_left_out_unless_asked_for(folder):
    assert not load_dataset(folder).with_titles
    dataset = load_dataset(folder, with_titles=True)
    assert dataset.with_titles
    assert [d.text for d in dataset.corpus] == ["One\nfirst text", "second text"]


def test_another_split_can_be_chosen(folder):
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\n")
    dataset = load_dataset(folder, "dev")
    assert dataset.qrels == {"q1": {"d2": 1}}
    assert dataset.notes == ("1 queries have no relevant document in this split: left out",)


def test_depths_come_with_their_bins_or_with_thirds(folder):
    table = "query-id\tdepth\tbin\nq1\t0.9\tstart\nq2\t0.9\t\n"
    (folder / "positions.tsv").write_text(table)
    dataset = load_dataset(folder)
    assert dataset.depth == {"q1": 0.9, "q2": 0.9}
    assert dataset.bins == {"q1": "start", "q2": "end"}


def test_what_cannot_be_found_is_kept_and_counted(folder):
    (folder / "corpus.jsonl").write_text(lines([*CORPUS, {"_id": "d3", "text": " "}]))
    (folder / "queries.jsonl").write_text(
        lines([*QUERIES, {"_id": "q3", "text": ""}, {"_id": "q4", "text": "x"}])
    )
    (folder / "qrels" / "test.tsv").write_text(f"{QRELS}q1\tgone\t1\nq3\td1\t1\nq4\td1\t0\n")
    dataset = load_dataset(folder)
    assert dataset.qrels["q1"] == {"d1": 1, "gone": 1}
    assert list(dataset.queries) == ["q1", "q2", "q3"]
    assert dataset.notes == (
        "1 queries have no relevant document in this split: left out",
        "1 relevant documents are not in the corpus: they count as not found",
        "1 documents have no text: they cannot be found",
        "1 queries have no text: they count 0",
    )


HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id"', r"corpus\.jsonl, line 2: no JSON"),
        ("corpus.jsonl", "\n[1]\n", r"corpus\.jsonl, line 2: a JSON list came"),
        ("corpus.jsonl", '{"_id": 7, "text": "x"}', r"line 1: '_id' is int; expected a string"),
        ("corpus.jsonl", '{"_id": "a"}', r"line 1: 'text' is missing; expected a string"),
        ("corpus.jsonl", lines([CORPUS[0]] * 2), r"line 2: document 'd1' came before"),
        ("corpus.jsonl", '{"_id": "a", "text": "\\ud800"}', r"line 1: .*lone surrogate"),
        ("corpus.jsonl", "", "holds no document"),
        ("queries.jsonl", lines([QUERIES[0]] * 2), r"line 2: query 'q1' came before"),
        ("qrels/test.tsv", "q1\td1\t1\n", r"test\.tsv, line 1: the header is .*query-id"),
        ("qrels/test.tsv", "", "test.tsv is empty; expected a header"),
        ("qrels/test.tsv", f"{HEADER}q1\td1\n", r"line 2: 2 cells came; expected 3"),
        ("qrels/test.tsv", f"{HEADER}q1\td1\t1.5\n", r"line 2: score is '1.5'"),
        ("qrels/test.tsv", f"{HEADER}q9\td1\t1\n", r"line 2: query 'q9' is not in queries"),
        ("qrels/test.tsv", f"{HEADER}q1\td1\t1\nq1\td1\t1\n", r"line 3: .*came before"),
        ("qrels/test.tsv", f"{HEADER}q1\td1\t0\n", "names no relevant document"),
        ("positions.tsv", "query-id\tdepth\nq1\t1.5\n", r"line 2: depth is '1.5'"),
        ("positions.tsv", "query-id\tdepth\nq1\tnan\n", r"line 2: depth is 'nan'"),
        ("positions.tsv", "query-id\tdepth\nq9\t0.5\n", r"line 2: query 'q9' is not in"),
        ("positions.tsv", "query-id\tdepth\nq1\t0.5\nq1\t0.5\n", r"line 3: query 'q1' came"),
    ],
)
def test_a_bad_line_is_named_with_what_was_expected(name, content, message, folder):
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_dataset(folder)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named(name, folder):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"has no {name}"):
        load_dataset(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        load_dataset(tmp_path / "nowhere")


def test_a_broken_archive_and_bytes_that_are_no_text_are_named(folder):
    packed = gzip.compress((folder / "corpus.jsonl").read_bytes())
    (folder / "corpus.jsonl").unlink()
    file = folder / "corpus.jsonl.gz"
    file.write_bytes(packed[:-12])
    with pytest.raises(ValueError, match="is no whole gzip file"):
        load_dataset(folder)
    file.write_bytes(gzip.compress(b'{"_id": "\xff"}\n'))
    with pytest.raises(ValueError, match="line 1: not UTF-8"):
        load_dataset(folder)


def test_the_bundled_questions_are_read_with_their_depths():
    found = sample_dataset()
    assert (found.name, found.split) == ("Bundled", "test")
    assert len(found.queries) == len(found.depth) > 0
    assert found.notes == ()
    assert sample_dataset(with_titles=True).corpus[0].text.startswith(found.corpus[0].title)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("corpus.jsonl", '{"_id": "d\\ud800", "text": "x"}\n', "line 1: '_id' holds half a char"),
        ("corpus.jsonl", '{"_id": "d", "title": "\\ud800", "text": "x"}\n', "'title' holds half"),
        ("queries.jsonl", '{"_id": "q", "text": "why \\ud800"}\n', "line 1: 'text' holds half"),
        ("corpus.jsonl", "[" * 100_000 + "\n", "corpus.jsonl, line 1: no JSON"),
    ],
    ids=["id", "title", "query", "deep"],
)
def test_what_json_can_spell_and_nothing_can_read_names_its_line(folder, name, text, words):
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        load_dataset(folder)


def test_a_cell_of_any_length_is_read(folder):
    long = "q" * 200_000
    (folder / "queries.jsonl").write_text(lines([{"_id": long, "text": "first?"}]))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{long}\td1\t1\n")
    assert list(load_dataset(folder).qrels) == [long]


def test_a_split_too_long_for_a_file_system_is_not_there(folder):
    with pytest.raises(ValueError, match="has no qrels/x"):
        load_dataset(folder, "x" * 5000)
