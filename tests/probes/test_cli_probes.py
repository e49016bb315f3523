"""The probe verbs: the library's numbers as JSON, and one line for bad input."""

import json

import numpy as np
import pytest

from lmk_viz.__main__ import main
from lmk_viz.config import ChunkingConfig, PoolingMode
from lmk_viz.documents import read_document
from lmk_viz.encoder import Encoder
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes import segment_cosines
from lmk_viz.probes.dilution import Side, dilution_curves
from lmk_viz.probes.document_lengths import document_by_length
from lmk_viz.probes.influence import Unit, leave_one_out
from lmk_viz.probes.lengths import needle_by_length
from lmk_viz.probes.needle import NeedleConfig, needle_curves
from lmk_viz.probes.needles import bundled_fillers, draw_needles, load_needles
from lmk_viz.probes.placing import Border
from lmk_viz.probes.shuffle import shuffle_cosines

TEXT = "A landmark token is placed after every chunk. Rivers carry water! Is this a question? " * 3
NAMES = "cls,landmark"
POOLINGS = parse_poolings(NAMES)
CHUNKING = ChunkingConfig(granularity=8, seed=5)
COMMON = ("--pooling", NAMES, "--granularity", "8", "--seed", "5")


@pytest.fixture
def text_file(tmp_path):
    file = tmp_path / "note.txt"
    file.write_text(TEXT)
    return file


@pytest.fixture
def run(capsys, tiny_folder):
    """`run(verb, *arguments)`: what the tiny encoder's `--json` gives."""

    def call(*arguments):
        words = [str(argument) for argument in arguments]
        code = main(["probe", *words, *COMMON, "--json", "--encoder", str(tiny_folder)])
        assert code == 0
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def encoder(tiny_folder):
    return Encoder.from_pretrained(str(tiny_folder))


def same(found, wanted, without=("seconds", "encoder", "document", "unrelated_document")):
    """Whether two JSON objects hold the same, times and names left out."""
    for name in without:
        found.pop(name, None)
        wanted.pop(name, None)
    assert found == json.loads(json.dumps(wanted))


def test_needle_prints_the_library_s_numbers(run, encoder):
    found = run("needle", "--needles", 3, "--tokens", 90, "--depths", 4, "--border", "token")
    result = needle_curves(
        encoder,
        draw_needles(load_needles(), 3, 5),
        bundled_fillers(1),
        POOLINGS,
        NeedleConfig(90, 4, Border.TOKEN, 5),
        CHUNKING,
    )
    same(found, result.to_dict())
    assert [row["pooling"] for row in found["rows"]] == ["cls", "landmark"]
    names = {"depths", "mean", "low", "high", "psi", "psi_low", "psi_high", "slope"}
    assert names | {"first_minus_last", "mean_rank", "recall@1"} <= set(found["rows"][0])


def test_needle_takes_ten_depths_and_the_tokens_that_fit(run):
    found = run("needle", "--needles", 2)
    assert found["tokens"] < 128
    assert len(found["rows"][0]["depths"]) == 10


def test_needle_reads_needles_and_fillers_of_one_s_own(run, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text('{"fact": "Rivers carry water.", "question": "What do they carry?"}')
    files = [tmp_path / f"{name}.txt" for name in "ab"]
    for file in files:
        file.write_text(TEXT * 3)
    options = [word for file in files for word in ("--filler", file)]
    found = run("needle", "--needles", own, "--tokens", 40, "--depths", 2, *options)
    assert (found["needles"], found["fillers"]) == (1, ["a", "b"])


def test_needle_adds_the_same_run_on_random_weights(run):
    found = run("needle", "--needles", 2, "--tokens", 80, "--depths", 2, "--random")
    assert [row["pooling"] for row in found["random_weights"]] == ["cls", "landmark"]
    assert found["random_weights"][0]["mean"] != found["rows"][0]["mean"]


def test_lengths_prints_the_library_s_numbers(run, encoder, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text('{"fact": "Rivers carry water.", "question": "What do they carry?"}')
    found = run(*("lengths", "--needles", own, "--tokens", 40, "--factors", "1,2", "--depths", 3))
    result = needle_by_length(
        encoder,
        load_needles(own),
        bundled_fillers(1),
        POOLINGS,
        NeedleConfig(40, 3, seed=5),
        (1, 2),
        CHUNKING,
    )
    for name in ("chunking", "needles", "fillers"):
        del found[name]
    same(found, result.to_dict())


@pytest.mark.parametrize("probe", ["influence", "segments", "shuffle"])
def test_lengths_of_another_probe_prints_the_library_s_numbers(run, encoder, probe):
    found = run("lengths", "--probe", probe, "--tokens", 20, "--factors", "1,2", "--fillers", 2)
    texts = bundled_fillers(2)
    result = document_by_length(
        encoder, texts, POOLINGS, probe, 20, (1, 2), CHUNKING, 5, texts[1].text
    )
    same(found, result.to_dict())


@pytest.mark.parametrize("verb", ["influence", "segments", "shuffle", "dilution", "lengths"])
def test_every_verb_adds_the_same_run_on_random_weights(run, encoder, text_file, verb):
    needles = ("--needles", 2, "--tokens")
    given = {"dilution": (*needles, 20), "lengths": (*needles, 80, "--factors", 1)}.get(
        verb, (text_file,)
    )
    found = run(verb, *given, "--random")
    random = found.pop("random_weights")
    alone = run(verb, *given)
    same(found, alone)
    if verb == "segments":
        assert set(random["cosines"]) == {"cls", "landmark"}
        assert random["cosines"] != alone["cosines"]
    else:
        assert [row["pooling"] for row in random] == ["cls", "landmark"]
        assert random != alone["rows"]


@pytest.mark.parametrize("unit", Unit)
def test_influence_prints_the_library_s_numbers(run, encoder, text_file, unit):
    found = run("influence", text_file, "--unit", unit.value, "--max-length", 100)
    text = read_document(text_file).text
    result = leave_one_out(encoder, text, POOLINGS, CHUNKING, 100, unit)
    same(found, result.to_dict())
    assert found["rows"][0]["attention"] is not None


def test_influence_without_a_floor_has_none(run, text_file):
    assert run("influence", text_file, "--no-floor")["rows"][0]["noise_floor"] is None


def test_segments_prints_the_library_s_numbers(run, encoder, text_file):
    found = run("segments", text_file, "--segments", 3)
    text = read_document(text_file).text
    other = bundled_fillers(1)[0].text
    result = segment_cosines(encoder, text, POOLINGS, CHUNKING, segments=3, unrelated=other)
    del found["chunking"], found["trained"]
    same(found, result.to_dict())


def test_shuffle_prints_the_library_s_numbers(run, encoder, text_file):
    found = run("shuffle", text_file, "--shuffles", 3)
    text = read_document(text_file).text
    other = bundled_fillers(1)[0].text
    result = shuffle_cosines(encoder, text, POOLINGS, CHUNKING, None, 3, 5, other)
    same(found, result.to_dict())


def test_dilution_prints_the_library_s_numbers(run, encoder):
    found = run("dilution", "--needles", 3, "--steps", "0,10,30", "--side", "around")
    result = dilution_curves(
        encoder,
        draw_needles(load_needles(), 3, 5),
        bundled_fillers(1)[0],
        POOLINGS,
        (0, 10, 30),
        CHUNKING,
        Side.AROUND,
        5,
    )
    same(found, result.to_dict())


def test_a_bundled_document_is_not_its_own_control(run):
    filler = bundled_fillers(1)[0]
    from lmk_viz.documents import SAMPLE_FOLDER

    file = next(SAMPLE_FOLDER.glob(f"{filler.id}.*"))
    found = run("segments", file, "--max-length", 60)
    assert found["unrelated_document"] != filler.id


@pytest.mark.parametrize(
    "arguments",
    [
        ("needle", "--needles", "3", "--tokens", "90", "--depths", "2", "--random"),
        ("lengths", "--needles", "2", "--tokens", "80", "--factors", "1"),
        ("lengths", "--probe", "shuffle", "--tokens", "20", "--factors", "1"),
        ("dilution", "--needles", "2", "--tokens", "20", "--random"),
        ("influence", "FILE", "--random"),
        ("segments", "FILE", "--random"),
        ("shuffle", "FILE", "--shuffles", "1", "--random"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_without_json_a_table_is_printed(capsys, tiny_folder, text_file, arguments):
    words = [str(text_file) if word == "FILE" else word for word in arguments]
    assert main(["probe", *words, *COMMON, "--encoder", str(tiny_folder)]) == 0
    out = capsys.readouterr().out
    assert "cls" in out
    assert "landmark" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("needle", "--needles", "0"), "0 needles are wanted; allowed: 1 to"),
        (("needle", "--fillers", "99"), "99 fillers are wanted"),
        (("needle", "--border", "word"), "border is 'word'; allowed: sentence, token"),
        (("needle", "--pooling", "last"), "pooling is 'last'"),
        (("needle", "--needles", "none.jsonl"), "does not exist"),
        (("needle", "--tokens", "9"), "choose more than"),
        (("needle", "--tokens", "500"), "choose at most"),
        (("influence", "none.txt"), "does not exist"),
        (("influence", "FILE", "--unit", "word"), "unit is 'word'; allowed: chunk, sentence"),
        (("shuffle", "FILE", "--shuffles", "0"), "shuffles is 0; allowed"),
        (("dilution", "--steps", "1,x"), "--steps is '1,x'; give whole numbers"),
        (("dilution", "--steps", "9,1"), "give rising numbers"),
        (("dilution", "--side", "left"), "side is 'left'"),
        (("lengths", "--factors", "0"), "give rising whole numbers"),
        (("lengths", "--probe", "dilution"), "probe is 'dilution'; allowed: influence"),
        (("segments", "FILE", "--segments", "0"), "segments is 0"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, tiny_folder, text_file, arguments, words):
    given = [str(text_file) if word == "FILE" else word for word in arguments]
    assert main(["probe", *given, "--encoder", str(tiny_folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert words in line


def test_json_of_the_page_and_of_the_verb_have_no_nan(run, text_file):
    rows = run("influence", text_file)["rows"]
    assert np.isfinite(rows[0]["influence"]).all()
    assert {row["pooling"] for row in rows} == {PoolingMode.CLS, PoolingMode.LANDMARK}
