"""The benchmark of embedding, run tiny; what it measures against is optional."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from lmk_viz import bench_encode as module
from lmk_viz.__main__ import main
from lmk_viz.bench_encode import EncodeBench, bench_encode, mixed_corpus

TINY = {"documents": 7, "shortest": 8, "longest": 40, "granularity": 4}


def test_lengths_are_spread_evenly_over_their_logarithm(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    settings = EncodeBench(documents=400, shortest=8, longest=512)
    corpus = mixed_corpus(encoder, settings)
    drawn = np.asarray([int(document.title.split()[0]) for document in corpus])
    # A third of them in each octave pair: 8 to 32, 32 to 128, 128 to 512.
    thirds = np.histogram(drawn, [8, 32, 128, 513])[0] / len(drawn)
    np.testing.assert_allclose(thirds, 1 / 3, atol=0.08)
    lengths = np.asarray([2 + len(encoder.tokenize(document.text)) for document in corpus[:50]])
    assert np.abs(lengths - drawn[:50]).max() <= 4


def test_a_corpus_is_the_same_for_the_same_seed_and_another_for_another(tiny_encoder):
    encoder = tiny_encoder("bert")
    made = [mixed_corpus(encoder, EncodeBench(seed=seed, **TINY)) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    assert all(not document.is_blank for document in made[0])


@pytest.fixture
def stock_is_ours(monkeypatch):
    """In place of sentence-transformers: our own vectors, moved by 0.25; sizes of its calls."""
    sizes: list[int] = []

    def encode(encoder, part):
        sizes.append(len(part))
        return encoder.encode([d.text for d in part], "mean") + np.float32(0.25)

    monkeypatch.setattr(module, "_sentence_transformer", lambda encoder, limit: encoder)
    monkeypatch.setattr(module, "_stock_vectors", encode)
    return sizes


def test_figures_are_ratios_of_the_seconds_beside_them(stock_is_ours, tiny_folder, monkeypatch):
    monkeypatch.setattr(module, "BATCH_SIZE", 3)
    result = bench_encode(EncodeBench(str(tiny_folder), part_batches=1, **TINY))
    seconds = result["seconds"]
    assert result["speedup"] == seconds["sentence_transformers"] / seconds["ours"]
    assert result["five_ratio"] == seconds["five_poolings"] / seconds["ours"]
    assert result["documents_per_second"]["ours"] == 7 / seconds["ours"]
    # The warm-up, then whole batches.
    assert stock_is_ours == [1, 3, 3, 1]
    assert json.loads(json.dumps(result)) == result


def test_a_difference_between_the_sides_is_seen(stock_is_ours, tiny_folder):
    result = bench_encode(EncodeBench(str(tiny_folder), **TINY))
    assert result["largest_difference"] == pytest.approx(0.25, abs=1e-4)


def test_five_poolings_take_three_passes(stock_is_ours, tiny_folder):
    assert bench_encode(EncodeBench(str(tiny_folder), **TINY))["passes_of_five"] == 3


def test_vectors_are_those_of_sentence_transformers(tiny_folder):
    pytest.importorskip("sentence_transformers", reason="the optional `bench` is not installed")
    result = bench_encode(EncodeBench(str(tiny_folder), **TINY))
    assert result["largest_difference"] < 1e-5
    assert result["speedup"] > 0


def test_without_sentence_transformers_the_install_line_is_told(monkeypatch, tiny_folder, capsys):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    command = ["bench", "encode", f"--encoder={tiny_folder}", "--documents=2", "--longest=40"]
    assert main(command) == 2
    assert "pip install sentence-transformers==6.2.0" in capsys.readouterr().err


def test_a_family_is_refused_with_what_to_give(monkeypatch, capsys):
    family = SimpleNamespace(variants={"cls"}, name="lmk-mini")
    monkeypatch.setattr(module.Encoder, "from_pretrained", lambda config: family)
    assert main(["bench", "encode", "--encoder=lmk-mini"]) == 2
    assert "is a family" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"documents": 0}, "documents is 0; allowed: 1 and more"),
        ({"shortest": 3}, "shortest is 3; allowed: 4 and more"),
        ({"shortest": 9, "longest": 8}, r"longest is 8; allowed: shortest \(9\) and more"),
        ({"granularity": 0}, "granularity is 0; allowed: 1 and more"),
        ({"part_batches": 0}, "part_batches is 0; allowed: 1 and more"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        EncodeBench(**changes)


def test_more_tokens_than_the_bundled_documents_have_are_refused(tiny_encoder):
    with pytest.raises(ValueError, match="longest is 10000000; allowed: up to"):
        mixed_corpus(tiny_encoder("bert"), EncodeBench(shortest=9_999_999, longest=10_000_000))


def test_the_command_prints_one_json_object_or_lines(stock_is_ours, tiny_folder, capsys):
    command = ["bench", "encode", f"--encoder={tiny_folder}", "--documents=2", "--shortest=8"]
    command += ["--longest=16", "--granularity=4"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["documents"] == 2
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("speedup ")
