import csv
import json

import pytest

from lmk_viz.__main__ import main

SENTENCES = (
    "A landmark token is placed after every chunk of a long document {n}.",
    "Rivers carry water from the hills {n} to the sea and rain carries it back.",
    "Pooling decides what an encoder {n} remembers of the end of a text.",
)
SMALL = ("--pooling", "cls,mean,landmark", "--granularities", "8,16,sentence", "--no-cache")


@pytest.fixture
def documents(tmp_path):
    file = tmp_path / "docs.jsonl"
    texts = [" ".join(s.format(n=n) for s in SENTENCES) for n in range(8)]
    file.write_text(
        "".join(json.dumps({"id": f"d{n}", "text": t}) + "\n" for n, t in enumerate(texts))
    )
    return file


@pytest.fixture
def run(capsys, tiny_folder):
    def call(*arguments, status=0):
        found = main(
            ["sweep", *map(str, arguments), "--encoder", str(tiny_folder), "--device", "cpu"]
        )
        captured = capsys.readouterr()
        assert found == status, captured.err
        return captured

    return call


def test_documents_alone_give_one_json_object_with_rows_and_a_recommendation(run, documents):
    said = json.loads(run(documents, *SMALL, "--json").out)
    assert [row["name"] for row in said["rows"]] == [
        *("cls", "mean", "landmark:8", "landmark:16", "landmark:sentence")
    ]
    assert said["recommendation"]["verdict"] == "cannot_tell"  # Eight queries tell nothing.
    assert said["queries"] == 8
    assert "The queries were made" in said["notes"][0]


def test_the_lines_of_the_recommendation_run(run, documents):
    said = json.loads(run(documents, *SMALL, "--json").out)
    scope: dict = {}
    exec(said["recommendation"]["python"], scope)
    assert scope["scores"].shape == (1, 2)


def test_the_table_has_a_line_a_setting_and_the_words(run, documents):
    out = run(documents, *SMALL, "--baseline", "mean").out
    assert "minus mean" in out
    assert sum(line.startswith("landmark:") for line in out.splitlines()) == 3
    assert "The data cannot tell" in out
    assert "* the encoder was not trained for this pooling" in out


def test_queries_of_ones_own_are_read(run, documents, tmp_path):
    queries = tmp_path / "queries.csv"
    queries.write_text("query,document\nWhere do rivers go?,d0\nWhat decides?,d1\n")
    said = json.loads(run(documents, "--queries", queries, *SMALL, "--json").out)
    assert said["queries"] == 2
    assert said["notes"] == []


def test_rows_are_written_to_a_file(run, documents, tmp_path):
    target = tmp_path / "sweep.csv"
    run(documents, *SMALL, "--output", target)
    with target.open() as stream:
        assert len(list(csv.DictReader(stream))) == 5
    target = tmp_path / "sweep.json"
    out = json.loads(run(documents, *SMALL, "--output", target, "--json").out)
    assert json.loads(target.read_text())["recommendation"]["name"] == out["recommendation"]["name"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--granularities", "8,many"), "give whole numbers or variable or sentence, by commas"),
        (("--granularities", "0"), "granularity is 0"),
        (("--baseline", "best"), "baseline is 'best'; allowed: cls, mean"),
        (("--pooling", "sum"), "pooling is 'sum'"),
        (("--output", "sweep.txt"), "--output is 'sweep.txt'"),
        (("--metrics", "f1"), "metric is 'f1'"),
        (("--taken", "nowhere"), "place of the sentences is 'nowhere'"),
        (("--variable", "8,x"), "--variable is '8,x'"),
        (("--output", f"/{'x' * 400}/sweep.json"), "--output is '/xxx"),
        (("--batch-tokens", "0"), "'--batch-tokens': Input should be greater than or equal to 1"),
    ],
)
def test_options_that_cannot_be_end_with_status_2_and_one_line(run, documents, arguments, words):
    captured = run(documents, *arguments, status=2)
    assert words in captured.err
    assert captured.out == ""


def test_a_folder_in_the_place_of_the_output_is_refused_before_anything_is_measured(
    run, documents, tmp_path
):
    (tmp_path / "rows.json").mkdir()
    captured = run(documents, "--output", tmp_path / "rows.json", status=2)
    assert len(captured.err.splitlines()) == 1
