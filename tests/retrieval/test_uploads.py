import json
import shutil

import pytest

from lmk_viz.corpus import Corpus, CorpusTable, Excluded, corpus_from_table, table_from_bytes
from lmk_viz.documents import Document
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.sources import open_dataset
from lmk_viz.retrieval.uploads import (
    QueryColumns,
    dataset_from_tables,
    guess_document_columns,
    guess_query_columns,
    limit_dataset,
)

DOCUMENTS = b'id,title,text\na,Rivers,"Rain, then rivers."\nb,Hills,Hills and stones.\n'
QUERIES = b"question,doc_id\nWhere does rain go?,a\nWhat are hills of?,b\n"


def corpus_of(data: bytes = DOCUMENTS, name: str = "docs.csv") -> Corpus:
    table = table_from_bytes(data, name)
    return corpus_from_table(table, guess_document_columns(table))


def queries_of(data: bytes = QUERIES, name: str = "queries.csv") -> CorpusTable:
    return table_from_bytes(data, name)


def made(queries: bytes = QUERIES, **settings) -> RetrievalDataset:
    return dataset_from_tables(corpus_of(), queries_of(queries), **settings)


def test_two_tables_make_a_data_set():
    found = made()
    assert found.queries == {"row-1": "Where does rain go?", "row-2": "What are hills of?"}
    assert found.qrels == {"row-1": {"a": 1}, "row-2": {"b": 1}}
    assert [(d.id, d.text) for d in found.corpus] == [
        ("a", "Rain, then rivers."),
        ("b", "Hills and stones."),
    ]
    assert (found.name, found.depth, found.notes) == ("docs.csv", {}, ())


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tsv"])
def test_tables_of_every_kind_give_the_same_data_set(kind, tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"question": ["Where?", "What?"], "doc_id": ["a", "b"]})
    file = tmp_path / f"queries.{kind}"
    if kind == "jsonl":
        frame.to_json(file, orient="records", lines=True)
    elif kind == "parquet":
        frame.to_parquet(file)
    else:
        frame.to_csv(file, sep="\t", index=False)
    found = dataset_from_tables(corpus_of(), queries_of(file.read_bytes(), file.name))
    assert found.qrels == {"row-1": {"a": 1}, "row-2": {"b": 1}}


def test_numbers_as_ids_match_as_they_are_written():
    # JSON says 7 where CSV says "7".
    corpus = corpus_of(b'{"id": 7, "text": "One. Two."}\n', "docs.jsonl")
    found = dataset_from_tables(corpus, queries_of(b"query,document\nWhat?,7\n"))
    assert found.qrels == {"row-1": {"7": 1}}


def test_a_query_with_several_right_documents_stands_in_several_rows():
    by_text = made(b"question,doc_id\nWhat?,a\nWhat?,b\n")
    assert by_text.qrels == {"row-1": {"a": 1, "b": 1}}
    by_id = made(b"qid,question,doc_id\nq1,What?,a\nq1,What?,b\n")
    assert by_id.qrels == {"q1": {"a": 1, "b": 1}}


def test_depths_are_read_and_binned():
    found = made(b"question,doc_id,depth\nA?,a,0.1\nB?,b,\nC?,b,1\n")
    assert found.depth == {"row-1": 0.1, "row-3": 1.0}
    assert found.bins == {"row-1": "start", "row-3": "end"}


def test_titles_stand_before_the_texts_where_asked_for_and_never_an_id():
    assert [d.text for d in made(with_titles=True).corpus] == [
        "Rivers\nRain, then rivers.",
        "Hills\nHills and stones.",
    ]
    untitled = dataset_from_tables(
        corpus_of(b"id,text\na,Rain.\nb,Hills.\n"), queries_of(), with_titles=True
    )
    assert [d.text for d in untitled.corpus] == ["Rain.", "Hills."]


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        (b"question,doc_id\nA?,a\nB?,zz\n", r"queries.csv, row 2: document 'zz' is not in docs"),
        (b"question,doc_id\nA?,\n", r"queries.csv, row 1: no id of a document"),
        (b"question,doc_id\nA?,a\nA?,a\n", r"row 2: .* came before; expected each pair once"),
        (b"qid,question,doc_id\nq,A?,a\nq,B?,a\n", r"row 2: query 'q' has another text"),
        (b"question,doc_id,depth\nA?,a,1.5\n", r"row 1: depth is '1.5'; expected a number from 0"),
        (b"question,doc_id,depth\nA?,a,deep\n", r"row 1: depth is 'deep'"),
        (b"question,doc_id\n,a\n", r"queries.csv has no query with a text"),
        (b"question,doc_id\n", r"queries.csv has no query with a text"),
    ],
    ids=["unknown", "no id", "twice", "two texts", "depth", "depth word", "blank", "no rows"],
)
def test_rows_that_cannot_be_used_are_named(queries, words):
    with pytest.raises(ValueError, match=words):
        made(queries)


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(
        ValueError, match=r"row 1: no column 'ask' for the query; it has 'question'"
    ):
        made(columns=QueryColumns("ask", "doc_id"))
    table = CorpusTable("q.csv", ({"query;document": "Why?;a"},))
    with pytest.raises(ValueError, match=r"row 1: no column's name says that it is the document's"):
        dataset_from_tables(corpus_of(), table)
    with pytest.raises(ValueError, match=r"row 1: no column 'nope' for the document's id"):
        made(columns=QueryColumns("question", "nope"))


def test_a_query_that_is_a_list_is_refused():
    table = CorpusTable("q.jsonl", ({"query": ["a"], "document": "a"},))
    with pytest.raises(ValueError, match=r"q.jsonl, row 1: the query is of type list"):
        dataset_from_tables(corpus_of(), table)


def test_documents_without_text_are_left_out_with_their_queries_and_both_are_said():
    corpus = corpus_of(b"id,text\na,Rain.\nb,  \n")
    found = dataset_from_tables(corpus, queries_of())
    assert list(found.queries) == ["row-1"]
    assert found.notes == (
        "1 documents left out: b (empty text)",
        "1 rows of queries ask for a document that was left out: left out too",
    )


def test_a_corpus_without_documents_is_refused():
    empty = Corpus("none.csv", (), (Excluded("a", "empty text"),))
    with pytest.raises(ValueError, match=r"none.csv has no document with text"):
        dataset_from_tables(empty, queries_of())


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("query", "document"), QueryColumns("query", "document")),
        (("_id", "text", "corpus-id"), QueryColumns("text", "corpus-id", "_id")),
        (("Question", "Doc_ID", "depth"), QueryColumns("Question", "Doc_ID", "", "depth")),
        (("frage", "antwort"), QueryColumns("frage", "antwort")),
    ],
)
def test_columns_of_queries_are_guessed_by_name(columns, expected):
    row = {name: "a longer text" if place == 0 else "x" for place, name in enumerate(columns)}
    assert guess_query_columns(CorpusTable("q", (row,))) == expected


def test_beir_names_of_ids_are_guessed():
    table = CorpusTable("d", ({"_id": "a", "text": "Rain."},))
    assert guess_document_columns(table).id == "_id"


# A part of a large data set.


def large(n: int = 40, queries: int = 10) -> RetrievalDataset:
    return RetrievalDataset(
        name="large",
        split="test",
        queries={f"q{i}": f"query {i}" for i in range(queries)},
        corpus=tuple(Document(f"d{i}", "", f"text {i}") for i in range(n)),
        qrels={f"q{i}": {f"d{i}": 1} for i in range(queries)},
        depth={f"q{i}": 0.5 for i in range(queries)},
        bins={f"q{i}": "middle" for i in range(queries)},
        with_titles=False,
        notes=("said before",),
    )


def test_a_limit_keeps_every_answer_and_says_what_it_drew():
    found = limit_dataset(large(), 15, seed=3)
    assert len(found.corpus) == 15
    assert len(found.queries) == 10
    assert {d for grades in found.qrels.values() for d in grades} <= {d.id for d in found.corpus}
    assert found.notes[0] == "said before"
    assert "15 of 40 documents and 10 of 10 queries, drawn with seed 3" in found.notes[1]
    assert [d.id for d in limit_dataset(large(), 15, seed=3).corpus] == [d.id for d in found.corpus]


def test_a_limit_below_the_answers_draws_queries_too():
    found = limit_dataset(large(), 4)
    assert len(found.corpus) == 4
    assert len(found.queries) == 4
    assert set(found.depth) == set(found.queries) == set(found.bins)


def test_a_limit_that_nothing_exceeds_changes_nothing():
    whole = large()
    assert limit_dataset(whole, 40) is whole


def test_limits_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match="document limit is 0"):
        limit_dataset(large(), 0)
    several = dataset_from_tables(corpus_of(), queries_of(b"question,doc_id\nWhat?,a\nWhat?,b\n"))
    with pytest.raises(ValueError, match=r"every query of docs\.csv has more judged documents"):
        limit_dataset(several, 1)


# A data set by its path.


def test_a_path_names_tables_documents_or_a_folder(tmp_path):
    (tmp_path / "docs.csv").write_bytes(DOCUMENTS)
    (tmp_path / "queries.csv").write_bytes(QUERIES)
    found = open_dataset(str(tmp_path / "docs.csv"), str(tmp_path / "queries.csv"))
    assert found.qrels == {"row-1": {"a": 1}, "row-2": {"b": 1}}
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text(json.dumps({"_id": "a", "text": "Rain."}) + "\n")
    (beir / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "What?"}) + "\n")
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    assert open_dataset(str(beir)).qrels == {"q": {"a": 1}}
    archive = shutil.make_archive(str(tmp_path / "rain"), "zip", beir)
    assert open_dataset(archive).qrels == {"q": {"a": 1}}


def test_documents_alone_are_asked_for_by_their_own_sentences(tmp_path):
    file = tmp_path / "docs.csv"
    file.write_text(
        'id,text\na,"Rain fell on the hills. Rivers rose over banks. We left the house."\n'
    )
    assert open_dataset(str(file), place="start").queries == {"q-a": "Rain fell on the hills."}


def test_a_folder_of_texts_is_asked_for_by_its_sentences(tmp_path):
    for name in ("one", "two"):
        text = f"Rain fell on the hills of {name}. Rivers rose over banks. We left the house."
        (tmp_path / f"{name}.txt").write_text(text)
    found = open_dataset(str(tmp_path), place="start")
    assert [document.id for document in found.corpus] == ["one.txt", "two.txt"]
    assert found.queries["q-one.txt"] == "Rain fell on the hills of one."


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing.csv does not exist; give a folder or ZIP"):
        open_dataset(str(tmp_path / "nothing.csv"))


def test_queries_without_documents_are_refused():
    with pytest.raises(ValueError, match="came without documents"):
        open_dataset(None, "queries.csv")


def test_a_path_too_long_for_a_file_system_cannot_be_read():
    with pytest.raises(ValueError, match="cannot be read: File name too long"):
        open_dataset("x" * 5000)
