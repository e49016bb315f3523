import json
import re
from pathlib import Path

import pytest

from lmk_viz.__main__ import main
from lmk_viz.config import ChunkingConfig
from lmk_viz.encoder import Encoder
from lmk_viz.pooling import parse_poolings
from lmk_viz.retrieval.dataset import load_dataset
from lmk_viz.retrieval.evaluate import evaluate

SENTENCES = (
    "A landmark token is placed after every chunk of a long document {n}.",
    "Rivers carry water from the hills {n} to the sea and rain carries it back.",
    "Pooling decides what an encoder {n} remembers of the end of a text.",
)
PASSAGES = [
    {"id": f"p{n}", "text": " ".join(sentence.format(n=n) for sentence in SENTENCES)}
    for n in range(20)
]
EXTRAPOLATE = ("--multiples", "1,2", "--length", "40", "--documents", "4", "--granularity", "8")


def write_lines(file: Path, records):
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def data(tmp_path) -> Path:
    file = tmp_path / "passages.jsonl"
    write_lines(file, PASSAGES)
    return file


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "toy"
    (root / "qrels").mkdir(parents=True)
    write_lines(root / "corpus.jsonl", ({"_id": p["id"], "text": p["text"]} for p in PASSAGES))
    queries = [{"_id": f"q{n}", "text": SENTENCES[1].format(n=n)} for n in range(6)]
    write_lines(root / "queries.jsonl", queries)
    judged = "".join(f"q{n}\tp{n}\t1\n" for n in range(6))
    (root / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    places = "".join(f"q{n}\t{n / 6}\t{('start', 'middle', 'end')[n // 2]}\n" for n in range(6))
    (root / "positions.tsv").write_text(f"query-id\tdepth\tbin\n{places}")
    return root


@pytest.fixture
def run(capsys, tiny_folder):
    def call(*arguments):
        options = ("--encoder", str(tiny_folder), "--device", "cpu")
        status = main([*map(str, arguments), *options])
        captured = capsys.readouterr()
        assert status == 0, captured.err
        return captured

    return call


def test_evaluate_prints_the_numbers_of_the_library(run, folder, tiny_folder):
    found = json.loads(run("evaluate", folder, "--granularity", "8", "--json").out)
    poolings = parse_poolings("cls,mean,landmark")
    encoder = Encoder.from_pretrained(str(tiny_folder))
    wanted = evaluate(encoder, load_dataset(folder), poolings, ChunkingConfig(granularity=8))
    for row, own in zip(found["rows"], wanted.to_dict()["rows"], strict=True):
        for of_row in (row, own):
            del of_row["seconds"], of_row["index"]["seconds_a_query"]
        assert row == own
    assert (found["dataset"], found["queries"], found["split"]) == ("toy", 6, "test")
    assert found["bm25"]["recall@1"] == 1.0


def test_evaluate_for_people_has_a_line_a_system(run, folder):
    lines = run("evaluate", folder, "--pooling", "mean,landmark", "--metrics", "mrr@10").out
    assert "toy: 6 queries, 20 documents, titles left out" in lines
    firsts = [line.split()[0] for line in lines.splitlines()]
    assert [f for f in firsts if f in ("mean*", "landmark*", "bm25")][:3] == [
        "mean*",
        "landmark*",
        "bm25",
    ]
    (line,) = [line for line in lines.splitlines() if "mean minus landmark, mrr@10: " in line]
    assert re.search(r"\), p [01]\.\d{4}, corrected [01]\.\d{4}$", line)
    assert "ms a query" not in lines
    assert "* the encoder was not trained for this pooling" in lines
    header = next(line for line in lines.splitlines() if line.startswith("pooling"))
    assert header.split() == [
        *("pooling", "mrr@10", "start", "middle", "end", "cut", "seconds"),
    ]


def test_evaluate_compares_several_vectors_a_document_when_asked(run, folder):
    options = ("evaluate", folder, "--pooling", "landmark", "--granularity", "8", "--multi-vector")
    found = json.loads(run(*options, "--json").out)
    names = ["landmark", "max_sim", "late_chunking", "passages"]
    assert [row["pooling"] for row in found["rows"]] == names
    sizes = [row["index"]["vectors"] for row in found["rows"]]
    assert sizes[0] == 20
    assert sizes[1] == sizes[2] == sizes[3] > 60
    assert {"mrr@10_p", "mrr@10_p_holm"} <= set(found["rows"][1]["difference"])
    lines = run(*options).out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("index"))
    assert [line.split()[:2] for line in lines[start + 1 : start + 5]] == [
        [name, f"{size:,}"] for name, size in zip(names, sizes, strict=True)
    ]


def test_evaluate_makes_queries_for_documents_that_come_alone(run, tmp_path):
    file = tmp_path / "documents.jsonl"
    write_lines(file, PASSAGES)
    options = ("--taken", "start", "--pooling", "mean", "--granularity", "8", "--json")
    captured = run("evaluate", file, *options)
    found = json.loads(captured.out)
    assert found["documents"] == found["queries"] == 20
    assert [group["group"] for group in found["rows"][0]["by_depth"]] == ["start"]
    assert found["notes"]


def test_evaluate_can_leave_bm25_out_and_encode_in_another_type(run, folder):
    options = ("--no-bm25", "--dtype", "bfloat16", "--pooling", "mean", "--json")
    found = json.loads(run("evaluate", folder, *options).out)
    assert found["bm25"] is None
    assert found["dtype"] == "bfloat16"


def test_extrapolate_prints_a_row_a_pooling_and_multiple(run, data):
    captured = run("extrapolate", "--data", data, *EXTRAPOLATE, "--json")
    found = json.loads(captured.out)
    keys = [(row["multiple"], row["pooling"]) for row in found["rows"]]
    assert keys == [(m, p) for m in (1, 2) for p in ("cls", "mean", "landmark")]
    # Less CLS and SEP; a cut word can fall into other tokens, which costs a few.
    assert all(
        row["multiple"] * 40 - 8 <= row["tokens"] <= row["multiple"] * 40 - 2
        for row in found["rows"]
    )
    assert "2 x 40, landmark tokens: 4 texts" in captured.err


def test_extrapolate_takes_up_what_it_wrote(run, data, tmp_path):
    target = tmp_path / "found.json"
    options = ("extrapolate", "--data", data, "--output", target, *EXTRAPOLATE, "--json")
    first = json.loads(run(*options).out)
    assert json.loads(target.read_text(encoding="utf-8")) == first
    again = run(*options)
    assert json.loads(again.out) == first
    assert "rows so far" not in again.err
    assert [file.name for file in tmp_path.glob("*found*")] == ["found.json"]


def test_extrapolate_for_people_has_a_line_a_row(run, data):
    lines = run("extrapolate", "--data", data, *EXTRAPOLATE).out.splitlines()
    assert lines[0] == "4 documents a length, training length 40 tokens; chunks fixed, 8 tokens"
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["cls*", "1x"],
        ["mean*", "1x"],
        ["landmark*", "1x"],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nowhere"), "give a folder or ZIP in BEIR layout"),
        (("extrapolate", "--multiples", "1,x"), "--multiples is '1,x'"),
        (("extrapolate", "--documents", "1"), "documents is 1"),
        (("extrapolate", "--output", "found.txt"), "ends in .json"),
        (("extrapolate", "--output", "nowhere/found.json"), "in a folder that exists"),
        (("extrapolate", "--data", "nowhere.jsonl"), "does not exist"),
    ],
)
def test_bad_input_ends_with_a_line_and_status_two(arguments, message, capsys):
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_an_output_that_is_no_result_is_not_written_over(tmp_path, data, capsys):
    target = tmp_path / "mine.json"
    for content in ("[]", "{", '{"rows": 1}'):
        target.write_text(content)
        assert main(["extrapolate", "--data", str(data), "--output", str(target)]) == 2
        assert "give another --output" in capsys.readouterr().err
        assert target.read_text() == content
