import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lmk_viz.__main__ import main
from lmk_viz.cli import documents as document_verbs
from lmk_viz.cli.options import build_chunking
from lmk_viz.config import AttentionConfig, EncoderConfig
from lmk_viz.documents import SAMPLE_FOLDER
from lmk_viz.encoder import Encoder
from lmk_viz.pooling import parse_poolings
from lmk_viz.presets import MINILM_NAME, PRESETS

TEXT = "A landmark token is placed after every chunk. Rivers carry water! Is this a question?"
SAMPLES = sorted(
    f for f in SAMPLE_FOLDER.iterdir() if f.suffix in (".md", ".txt") and f.name != "README.md"
)
CHUNKINGS = {
    "default": [],
    "one token": ["--granularity", "1"],
    "seven": ["--granularity", "7"],
    "longer than the text": ["--granularity", "100000"],
    "variable": ["--variable", "8,16,32", "--seed", "3"],
    "variable by chunk": ["--variable", "3,50", "--per-chunk"],
    "sentence": ["--sentence"],
    "capped sentence, closed": ["--sentence", "--sentence-cap", "9", "--close-tail"],
}


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    file = tmp_path / "note.txt"
    file.write_text(TEXT)
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tiny_folder: Path) -> Callable[..., Any]:
    """`run(*arguments)`: what the tiny encoder's `--json` gives.

    Another encoder takes its place with `encoder`, and none is named with `encoder=None`.
    """

    def call(*arguments: object, encoder: str | None = str(tiny_folder)) -> Any:
        words = [str(argument) for argument in arguments]
        assert main([*words, "--json", *(["--encoder", encoder] if encoder else [])]) == 0
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    rows = [
        {"id": "z", "title": "Last letter", "label": "x", "text": "Rivers carry water."},
        {"id": "blank", "text": " "},
        {"id": "a", "label": "y", "text": TEXT * 2},
        {"id": 7, "text": "Yes!"},
    ]
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


# landmarks


@pytest.mark.parametrize("options", CHUNKINGS.values(), ids=list(CHUNKINGS))
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda f: f.stem)
def test_chunks_join_to_the_kept_text_with_only_white_space_between(sample, options, run):
    found = run("landmarks", sample, *options, encoder=MINILM_NAME)
    text = sample.read_text(encoding="utf-8")
    place = 0
    for chunk in found["chunks"]:
        assert not text[place : chunk["char_start"]].strip()
        assert place <= chunk["char_start"] <= chunk["char_end"]
        place = chunk["char_end"]
    assert not text[place : len(text) - found["stats"]["characters_cut"]].strip()


def test_token_ranges_tile_the_kept_tokens(run):
    found = run("landmarks", SAMPLES[0], "--granularity", 64, encoder=MINILM_NAME)
    chunks = found["chunks"]
    starts = [chunk["token_start"] for chunk in chunks]
    ends = [chunk["token_end"] for chunk in chunks]
    assert starts == [0, *ends[:-1]]
    assert ends[-1] == found["stats"]["tokens_kept"]


def test_landmarks_stand_where_it_says_they_stand(run, text_file):
    found = run("landmarks", text_file, "--granularity", 7, encoder=MINILM_NAME)
    assert found["landmark_positions"] == [c["landmark_position"] for c in found["chunks"]]
    assert {found["input_ids"][place] for place in found["landmark_positions"]} == {102}


def test_landmarks_are_those_of_the_library(run, text_file, minilm_encoder):
    found = run("landmarks", text_file, "--granularity", 4, "--max-length", 12, encoder=MINILM_NAME)
    layout = minilm_encoder.layout(TEXT, chunking=build_chunking(4), max_length=12)
    assert {name: found[name] for name in layout.to_dict()} == layout.to_dict()


def test_landmarks_say_what_document_encoder_and_chunking_they_are_of(run, text_file):
    found = run("landmarks", text_file, "--sentence", encoder=MINILM_NAME)
    assert found["document"] == "note"
    assert found["encoder"] == MINILM_NAME
    assert found["chunking"] == "sentences of at most 256 tokens"


def test_special_tokens_that_a_text_spells_are_counted(run, tmp_path):
    file = tmp_path / "note.txt"
    file.write_text("one [SEP] two [SEP] three")
    assert run("landmarks", file)["spelled_special_tokens"] == {"[SEP]": 2}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], "fixed, 32 tokens"),
        (["--granularity", "8", "--close-tail"], "fixed, 8 tokens, tail closed"),
        (["--variable", "8, 16,", "--seed", "3"], "variable, drawn per text from {8, 16}, seed 3"),
        (["--variable", "8", "--per-chunk"], "variable, drawn per chunk from {8}, seed 0"),
        (["--sentence", "--sentence-cap", "9"], "sentences of at most 9 tokens"),
    ],
    ids=["default", "fixed", "variable", "by chunk", "sentence"],
)
def test_every_option_of_chunking_reaches_it(options, wanted, run, text_file):
    assert run("landmarks", text_file, *options)["chunking"] == wanted


@pytest.mark.parametrize("layout", ["plain", "landmark", "multi_cls"])
def test_the_layout_can_be_chosen(layout, run, text_file):
    assert run("landmarks", text_file, "--layout", layout)["layout"] == layout


def test_landmarks_for_people_show_every_chunk_and_the_counts(capsys, text_file, tiny_folder):
    assert main(["landmarks", str(text_file), "--encoder", str(tiny_folder)]) == 0
    shown = capsys.readouterr().out
    assert "note: fixed, 32 tokens, encoder" in shown.replace(TEXT, "note")
    assert "'A landmark token is placed after" in shown
    assert "0 cut by the limit of 128; 1 landmarks" in shown


def test_a_chunk_without_a_landmark_is_shown_as_such(capsys, text_file, tiny_folder):
    options = ["--granularity", "5", "--max-length", "8", "--encoder", str(tiny_folder)]
    assert main(["landmarks", str(text_file), *options]) == 0
    shown = capsys.readouterr().out
    assert "    0  tokens 0-5  landmark at 6" in shown
    assert "    1  tokens 5-6  no landmark" in shown


# attention


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The attention of a short text through the real encoder."""
    file = tmp_path_factory.mktemp("attention") / "note.txt"
    file.write_text(TEXT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        options = ["--granularity", "5", "--bins", "6", "--encoder", MINILM_NAME, "--json"]
        assert main(["attention", str(file), *options]) == 0
    return json.loads(printed.getvalue())


def rows_of(profile: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        head[row]
        for layer in profile["layers"]
        for head in layer["heads"]
        for row in ("cls", "landmark")
    ]


def test_content_weights_of_every_row_sum_to_one(profile):
    sums = [sum(row["weights"]) for row in rows_of(profile)]
    np.testing.assert_allclose(sums, 1.0, rtol=0, atol=1e-4)


def test_content_and_special_shares_of_every_row_sum_to_one(profile):
    sums = [row["content_share"] + sum(row["special_share"].values()) for row in rows_of(profile)]
    np.testing.assert_allclose(sums, 1.0, rtol=0, atol=1e-4)


def test_special_shares_are_named_apart(profile):
    for row in rows_of(profile):
        assert list(row["special_share"]) == ["cls", "landmark", "other_special"]
        # A landmark layout has no specials but these.
        assert row["special_share"]["other_special"] == 0
        assert min(row["special_share"]["cls"], row["special_share"]["landmark"]) > 0


def test_there_is_a_row_of_every_layer_and_head(profile):
    assert [layer["layer"] for layer in profile["layers"]] == list(range(6))
    assert {len(layer["heads"]) for layer in profile["layers"]} == {12}


def test_bins_run_over_the_text_tokens(profile):
    edges = profile["bin_edges"]
    assert len(edges) == 7
    assert (edges[0], edges[-1]) == (0, profile["content_tokens"])
    assert {len(row["weights"]) for row in rows_of(profile)} == {6}


def test_attention_says_what_the_encoder_was_trained_for_and_what_was_cut(profile):
    assert profile["trained_for"] == "mean"
    assert profile["tokens_cut"] == 0
    assert profile["layout"] == "landmark"
    assert profile["landmarks"] == len(profile["landmark_tokens"]) == 4


def test_attention_rows_are_those_of_the_library(profile, minilm_encoder):
    layout = minilm_encoder.layout(TEXT, chunking=build_chunking(5))
    own = minilm_encoder.attention_profile(layout, AttentionConfig(bins=6)).to_dict()
    np.testing.assert_allclose(
        [row["weights"] for row in rows_of(profile)],
        [row["weights"] for row in rows_of(own)],
        rtol=0,
        atol=1e-5,
    )


def test_a_text_of_fewer_tokens_than_bins_has_a_bin_a_token(run, tmp_path):
    file = tmp_path / "note.txt"
    file.write_text("yes")
    found = run("attention", file)
    assert found["bin_edges"] == list(range(found["content_tokens"] + 1))


def test_attention_of_a_plain_layout_has_no_landmark_row(run, text_file):
    found = run("attention", text_file, "--layout", "plain")
    assert {tuple(head) for layer in found["layers"] for head in layer["heads"]} == {
        ("head", "cls")
    }


def test_attention_for_people_has_a_line_a_layer_and_row(capsys, text_file, tiny_folder):
    assert main(["attention", str(text_file), "--encoder", str(tiny_folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"rows: cls from {tiny_folder}, landmark from {tiny_folder}"
    assert [line.split()[:3] for line in lines[4:]] == [
        ["L0", "global", "cls"],
        ["L0", "global", "landmark"],
        ["L1", "global", "cls"],
        ["L1", "global", "landmark"],
    ]


# embed


def test_embed_writes_rows_in_order_with_their_columns(run, corpus_file, tmp_path):
    target = tmp_path / "out.parquet"
    summary = run("embed", corpus_file, "--output", target)
    frame = pd.read_parquet(target)
    assert frame["id"].tolist() == ["z", "a", "7"]
    assert frame["title"].tolist() == ["Last letter", "a", "7"]
    assert frame["label"].tolist()[:2] == ["x", "y"]
    assert frame.columns.tolist()[-3:] == ["cls", "mean", "landmark"]
    assert summary["documents"] == 3


def test_embed_writes_unit_vectors_of_the_encoders_size(run, corpus_file, tmp_path):
    target = tmp_path / "out.parquet"
    summary = run("embed", corpus_file, "--output", target)
    for pooling in summary["poolings"]:
        vectors = np.stack(pd.read_parquet(target)[pooling])
        assert vectors.shape == (3, summary["embedding_dim"]) == (3, 16)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=0, atol=1e-5)


def test_embedded_vectors_are_those_of_the_library(run, corpus_file, tmp_path, tiny_folder):
    target = tmp_path / "out.parquet"
    run(
        "embed",
        corpus_file,
        "--output",
        target,
        "--pooling",
        "every_k,multi_cls",
        "--granularity",
        3,
    )
    frame = pd.read_parquet(target)
    encoder = Encoder.from_pretrained(str(tiny_folder))
    for pooling in parse_poolings("every_k,multi_cls"):
        own = encoder.encode(["Yes!"], pooling, build_chunking(3))[0]
        np.testing.assert_allclose(frame[pooling.mode.value].iloc[2], own, rtol=0, atol=1e-5)


def test_what_was_left_out_is_said_on_standard_error_and_in_the_summary(
    capsys, corpus_file, tmp_path, tiny_folder
):
    target = str(tmp_path / "out.parquet")
    options = ["--output", target, "--encoder", str(tiny_folder), "--json"]
    assert main(["embed", str(corpus_file), *options]) == 0
    said = capsys.readouterr()
    assert said.err == "left out blank: empty text\n"
    assert json.loads(said.out)["excluded"] == [{"id": "blank", "reason": "empty text"}]


def test_embed_counts_the_documents_that_were_cut(run, corpus_file, tmp_path):
    found = run("embed", corpus_file, "--output", tmp_path / "out.parquet", "--max-length", 20)
    assert found["documents_cut"] == 1


def test_embed_names_its_encoder_chunking_and_poolings(run, corpus_file, tmp_path, tiny_folder):
    target = tmp_path / "out.parquet"
    options = ["--output", target, "--pooling", "landmark", "--granularity", 9]
    found = run("embed", corpus_file, *options)
    assert found["output"] == str(target)
    assert found["encoder"] == str(tiny_folder)
    assert found["chunking"] == "fixed, 9 tokens"
    assert found["poolings"] == ["landmark"]


def test_embed_for_people_says_where_it_wrote(capsys, corpus_file, tmp_path, tiny_folder):
    target = str(tmp_path / "out.parquet")
    assert main(["embed", str(corpus_file), "--output", target, "--encoder", str(tiny_folder)]) == 0
    shown = capsys.readouterr().out
    assert "3 documents under CLS, Mean, Landmark (LMK) in" in shown
    assert f"0 cut by the length limit, 1 left out; written to {target}" in shown


def test_embed_reads_columns_of_other_names(run, tmp_path):
    source = tmp_path / "t.csv"
    source.write_text("body,class\nYes!,x\n")
    target = tmp_path / "out.parquet"
    run("embed", source, "--output", target, "--text-column", "body", "--label-column", "class")
    assert pd.read_parquet(target)["label"].tolist() == ["x"]


def test_a_written_table_is_an_input_again(run, corpus_file, tmp_path):
    # Its texts are not kept, so one column of it stands in.
    target, again = tmp_path / "out.parquet", tmp_path / "again.parquet"
    run("embed", corpus_file, "--output", target)
    found = run("embed", target, "--output", again, "--text-column", "title")
    assert found["documents"] == 3


def test_a_corpus_of_blank_texts_gives_a_table_without_rows(run, tmp_path):
    source, target = tmp_path / "t.csv", tmp_path / "out.parquet"
    source.write_text("id,text\na,\n")
    assert run("embed", source, "--output", target)["documents"] == 0
    assert len(pd.read_parquet(target)) == 0


def test_nothing_but_the_table_is_left_in_the_folder(run, corpus_file, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    run("embed", corpus_file, "--output", folder / "out.parquet")
    assert [f.name for f in folder.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_table_and_no_half_one(
    error, monkeypatch, capsys, corpus_file, tmp_path, tiny_folder
):
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "out.parquet"
    target.write_bytes(b"the old table")

    def fail(_: pd.DataFrame, path: Path, **__: object) -> None:
        Path(path).write_bytes(b"half")
        raise error

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail)
    options = ["--output", str(target), "--encoder", str(tiny_folder)]
    assert main(["embed", str(corpus_file), *options]) in (2, 130)
    assert [f.name for f in folder.iterdir()] == ["out.parquet"]
    assert target.read_bytes() == b"the old table"


# encoders


def test_the_encoders_on_offer_are_listed(run):
    listed = run("encoders", encoder=None)["encoders"]
    assert [row["name"] for row in listed] == [preset.name for preset in PRESETS]
    assert [row["offline"] for row in listed] == [True, True, *[False] * (len(PRESETS) - 2)]
    family, minilm = listed[:2]
    assert (family["name"], family["trained_for"]) == ("lmk-mini", None)
    assert family["trained_poolings"] == ["cls", "mean", "landmark", "every_k", "latent_attention"]
    assert (minilm["trained_for"], minilm["trained_poolings"]) == ("mean", ["mean"])


def test_the_list_for_people_has_a_line_an_encoder(capsys):
    assert main(["encoders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [preset.name for preset in PRESETS]


def test_family_is_described_with_its_variants(run, family_folder, tiny_family):
    found = run("encoders", family_folder, "--device", "cpu", encoder=None)
    assert found["variants"] == ["cls", "mean", "landmark", "every_k", "latent_attention"]
    assert found["training_length"] == tiny_family.training_length


def test_attention_of_a_family_counts_both_passes_and_names_its_variants(
    run, family_folder, text_file, monkeypatch, capsys
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    options = ["--encoder", str(family_folder), "--json"]
    assert main(["attention", str(text_file), *options]) == 0
    told = capsys.readouterr()
    assert told.err == "".join(f"\rlayer {n}/4" for n in range(1, 5)) + "\n"
    found = json.loads(told.out)
    assert found["row_sources"] == {
        "cls": f"{family_folder}-cls",
        "landmark": f"{family_folder}-landmark",
    }


def test_corpus_is_embedded_by_the_variants_of_a_family(run, family_folder, tmp_path, corpus_file):
    target = tmp_path / "out.parquet"
    modes = "cls,landmark,latent_attention"
    options = ["--output", target, "--pooling", modes]
    summary = run("embed", corpus_file, *options, encoder=str(family_folder))
    known = ["cls", "every_k", "landmark", "latent_attention", "mean"]
    assert summary["trained_poolings"] == known
    table = pd.read_parquet(target)
    for mode in modes.split(","):
        variant = Encoder.from_pretrained(EncoderConfig(f"{family_folder}-{mode}", device="cpu"))
        expected = variant.encode(["Rivers carry water."], mode)[0]
        np.testing.assert_allclose(table[mode][0], expected, atol=1e-6)


def test_one_encoder_is_described(run, minilm_encoder):
    found = run("encoders", MINILM_NAME, "--device", "cpu", encoder=None)
    assert found == {**minilm_encoder.facts(), "reports_attention": True}


def test_the_description_for_people_has_a_line_a_fact(capsys, tiny_folder):
    assert main(["encoders", str(tiny_folder)]) == 0
    shown = capsys.readouterr().out
    assert "class: BertModel\n" in shown
    assert "reports_attention: True\n" in shown


# Bad input: status 2, one line on standard error, nothing on standard output.

WRONG = {
    "wrong encoder": (["landmarks", "{text}", "--encoder", "/no/such"], "'/no/such' is no folder"),
    "encoder that is no name": (
        ["landmarks", "{text}", "--encoder", "a b"],
        "neither a folder nor a hub id",
    ),
    "wrong device": (["landmarks", "{text}", "--device", "toaster"], "device is 'toaster'"),
    "missing file": (["landmarks", "{folder}/absent.txt"], "does not exist"),
    "empty file": (["landmarks", "{empty}"], "is empty (0 bytes)"),
    "blank file": (["attention", "{blank}"], "holds only white space"),
    "binary file": (["attention", "{binary}"], "is binary"),
    "picture": (["landmarks", "{picture}"], "is a PNG picture"),
    "directory": (["landmarks", "{folder}"], "is a folder; a single text file"),
    "granularity 0": (["landmarks", "{text}", "--granularity", "0"], "granularity is 0; allowed"),
    "granularity -5": (["landmarks", "{text}", "--granularity", "-5"], "granularity is -5"),
    "granularity abc": (["landmarks", "{text}", "--granularity", "abc"], "--granularity"),
    "two chunkings": (
        ["landmarks", "{text}", "--granularity", "8", "--sentence"],
        "--granularity and --sentence came together; give one of them",
    ),
    "three chunkings": (
        ["landmarks", "{text}", "--granularity", "8", "--variable", "8", "--sentence"],
        "--granularity and --variable and --sentence came together",
    ),
    "variable of words": (
        ["landmarks", "{text}", "--variable", "8,many"],
        "--variable is '8,many'; give whole numbers separated by commas",
    ),
    "variable of nothing": (["landmarks", "{text}", "--variable", ","], "granularities is empty"),
    "variable of 0": (["landmarks", "{text}", "--variable", "8,0"], "granularities is 0"),
    "sentence cap 0": (
        ["landmarks", "{text}", "--sentence", "--sentence-cap", "0"],
        "sentence_cap",
    ),
    "language": (["landmarks", "{text}", "--sentence", "--language", "e5"], "language is 'e5'"),
    "seed -1": (["landmarks", "{text}", "--variable", "8", "--seed", "-1"], "seed is -1"),
    "unknown layout": (["landmarks", "{text}", "--layout", "spiral"], "--layout"),
    "bins 0": (["attention", "{text}", "--bins", "0"], "bins is 0; allowed: 1 to 1,024"),
    "bins 2000": (["attention", "{text}", "--bins", "2000"], "bins is 2000; allowed"),
    "length over the hard limit": (
        ["landmarks", "{text}", "--max-length", "513", "--encoder", MINILM_NAME],
        "length limit is 513; allowed for 'all-minilm-l6-v2': 3 to 512 tokens",
    ),
    "length under a landmark": (["landmarks", "{text}", "--max-length", "2"], "length limit is 2"),
    "unknown pooling": (
        ["embed", "{table}", "--output", "{folder}/o.parquet", "--pooling", "cls,max"],
        "pooling is 'max'; allowed: cls, mean, landmark, every_k, multi_cls",
    ),
    "pooling twice": (
        ["embed", "{table}", "--output", "{folder}/o.parquet", "--pooling", "cls,cls"],
        "names one twice",
    ),
    "no pooling": (
        ["embed", "{table}", "--output", "{folder}/o.parquet", "--pooling", ","],
        "no pooling given",
    ),
    "output of another kind": (
        ["embed", "{table}", "--output", "{folder}/o.csv"],
        "give a name that ends in .parquet",
    ),
    "output in no folder": (
        ["embed", "{table}", "--output", "{folder}/absent/o.parquet"],
        "its folder does not exist",
    ),
    "output in a folder of a long name": (
        ["embed", "{table}", "--output", "{long}/o.parquet"],
        "its folder does not exist",
    ),
    "output of a long name": (
        ["embed", "{table}", "--output", "{folder}/{long}.parquet"],
        "cannot be written: ",
    ),
    "output is a folder": (
        ["embed", "{table}", "--output", "{folder}/a.parquet"],
        "cannot be written: Is a directory",
    ),
    "no output": (["embed", "{table}"], "Missing option '--output'"),
    "missing corpus": (
        ["embed", "{folder}/absent.jsonl", "--output", "{folder}/o.parquet"],
        "absent.jsonl does not exist; give a table",
    ),
    "corpus of a long name": (
        ["embed", "{long}", "--output", "{folder}/o.parquet"],
        "cannot be read: File name too long",
    ),
    "corpus without the column": (
        ["embed", "{table}", "--output", "{folder}/o.parquet", "--text-column", "body"],
        "no column 'body'; it has 'id', 'text'",
    ),
    "unknown verb": (["explain", "{text}"], "No such command 'explain'"),
    "unknown option": (["landmarks", "{text}", "--colour"], "No such option: --colour"),
    "missing argument": (["landmarks"], "Missing argument"),
    "missing input": (["embed", "--output", "o.parquet"], "Missing argument"),
    "argument too many": (["landmarks", "{text}", "{text}"], "unexpected extra argument"),
    "no such encoder to describe": (["encoders", "/no/such"], "'/no/such' is no folder"),
}


@pytest.fixture
def places(tmp_path: Path, text_file: Path) -> dict[str, str]:
    for name, content in {
        "empty": b"",
        "blank": b" \n\t\n",
        "binary": bytes(range(32)) * 40,
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(20),
        "table.csv": b"id,text\na,one\n",
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "a.parquet").mkdir()
    files = {name: str(tmp_path / name) for name in ("empty", "blank", "binary", "picture")}
    return {
        **files,
        "text": str(text_file),
        "table": str(tmp_path / "table.csv"),
        "folder": str(tmp_path),
        "long": "x" * 300,
    }


@pytest.mark.parametrize(("arguments", "reason"), WRONG.values(), ids=list(WRONG))
def test_bad_input_ends_with_status_2_and_one_line(
    arguments, reason, places, capsys, tiny_folder, monkeypatch
):
    monkeypatch.chdir(places["folder"])
    words = [word.format(**places) for word in arguments]
    if "--encoder" not in words and words[0] in ("landmarks", "attention", "embed"):
        words += ["--encoder", str(tiny_folder)]
    status = main(words)
    said = capsys.readouterr()
    assert status == 2
    assert said.out == ""
    assert said.err.startswith("lmk_viz: error: ")
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    assert reason in said.err


def test_a_message_of_several_lines_is_said_in_one(capsys, monkeypatch, text_file):
    def fail(*_: object) -> None:
        raise ValueError("first\n\n  second\tthird")

    monkeypatch.setattr(document_verbs, "load_encoder", fail)
    assert main(["landmarks", str(text_file)]) == 2
    assert capsys.readouterr().err == "lmk_viz: error: first second third\n"


def test_an_interrupt_ends_with_status_130(capsys, monkeypatch, text_file):
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(document_verbs, "load_encoder", fail)
    assert main(["landmarks", str(text_file)]) == 130
    assert capsys.readouterr() == ("", "lmk_viz: error: stopped\n")


# Help and progress.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["landmarks", "attention", "embed", "encoders"]),
        (["--help"], ["landmarks", "attention", "embed", "encoders"]),
        (["landmarks", "--help"], ["--granularity", "--variable", "--sentence", "--layout"]),
        (["attention", "--help"], ["--bins", "--close-tail", "--max-length"]),
        (["embed", "--help"], ["--output", "--pooling", "--text-column", "--per-chunk"]),
        (["encoders", "--help"], ["--device", "--json"]),
    ],
    ids=["nothing given", "all", "landmarks", "attention", "embed", "encoders"],
)
def test_help_names_what_can_be_given(arguments, words, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert [word for word in words if word not in shown.out] == []
    assert shown.err == ""


def test_progress_rewrites_one_line_on_a_terminal(capsys, monkeypatch, text_file, tiny_folder):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["attention", str(text_file), "--encoder", str(tiny_folder), "--json"]) == 0
    assert capsys.readouterr().err == "\rlayer 1/2\rlayer 2/2\n"


def test_progress_is_silent_elsewhere(capsys, text_file, tiny_folder):
    assert main(["attention", str(text_file), "--encoder", str(tiny_folder), "--json"]) == 0
    assert capsys.readouterr().err == ""


# A real process.


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    file = tmp_path_factory.mktemp("process") / "note.txt"
    file.write_text("día 日本語 👩‍👩‍👧 [SEP] " + TEXT, encoding="utf-8")
    return subprocess.run(
        [
            *(sys.executable, "-m", "lmk_viz", "landmarks", str(file)),
            *("--granularity", "8", "--encoder", MINILM_NAME, "--json"),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"},
    )


def test_a_process_prints_one_json_object_and_nothing_else(process):
    assert process.returncode == 0
    assert process.stdout.count("\n") == 1
    assert json.loads(process.stdout)["document"] == "note"


def test_a_process_that_does_well_is_silent_on_standard_error(process):
    assert process.stderr == ""


def test_a_reader_that_goes_away_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "lmk_viz", "encoders"],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_text_that_does_not_fit_into_memory_is_one_line_with_a_length_that_does(
    monkeypatch, capsys
):
    monkeypatch.setattr("lmk_viz.encoder.free_memory", lambda device, limit: 18 * 2**20)
    text = Path(__file__).resolve().parent.parent / "sample_docs" / "rate_limiter.md"
    assert main(["attention", str(text), "--encoder", MINILM_NAME, "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert "tokens fit: set the length limit to that" in told.err
