"""`train` on a user's own encoder and data, and what others make of the folder it writes."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from training.toy import toy_pairs
from transformers import AutoModel, AutoTokenizer

from lmk_viz.__main__ import main
from lmk_viz.config import PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.training.data import save_pairs

QUICK = (
    *("--steps", "12", "--batch-size", "8", "--query-length", "16", "--passage-length", "48"),
    *("--granularities", "4,8", "--learning-rate", "5e-3", "--save-every", "6"),
)


@pytest.fixture(scope="module")
def modernbert_folder(tmp_path_factory, build_model, build_tokenizer):
    """A tiny random ModernBERT with local layers, as `save_pretrained` writes it."""
    folder = tmp_path_factory.mktemp("encoders") / "tiny-modernbert"
    model = build_model("modernbert", "sdpa")
    tokenizer = build_tokenizer("wordpiece")
    model.config.cls_token_id = tokenizer.cls_token_id
    model.config.sep_token_id = tokenizer.sep_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pair_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "pairs.parquet"
    save_pairs(toy_pairs(200), file)
    return file


def run(capsys, *words):
    status = main([*map(str, words)])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def test_two_hundred_pairs_make_a_folder_that_everything_loads(
    modernbert_folder, pair_file, tmp_path, capsys
):
    output = tmp_path / "mine"
    options = ("--encoder", modernbert_folder, "--data", pair_file, "--output", output, *QUICK)
    summary = json.loads(run(capsys, "train", *options, "--pooling", "landmark", "--json"))
    assert summary["pairs"] == 200
    assert summary["trained_for"] == "landmark"

    plain = AutoModel.from_pretrained(output)
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert plain(**tokenizer(["a river"], return_tensors="pt")).last_hidden_state.shape[2] == 16

    encoder = Encoder.from_pretrained(str(output))
    assert encoder.trained_for is PoolingMode.LANDMARK
    assert encoder.training_length == 48
    trained = dict(plain.named_parameters())
    start = dict(AutoModel.from_pretrained(modernbert_folder).named_parameters())
    assert any(not torch.equal(trained[name], start[name]) for name in start)

    record = json.loads((output / "training.json").read_text())
    assert record["config"]["steps"] == 12
    assert record["data"] == "pairs.parquet"
    lines = (output / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 13))

    data = tmp_path / "set"
    (data / "qrels").mkdir(parents=True)
    texts = {"d1": "rain and rain", "d2": "the hill is a hill"}
    rows = [{"_id": key, "title": "", "text": text} for key, text in texts.items()]
    (data / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query = {"_id": "q1", "text": "question"}
    (data / "queries.jsonl").write_text(json.dumps(query) + "\n")
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    report = json.loads(
        run(capsys, "evaluate", data, "--encoder", output, "--pooling", "landmark", "--json")
    )
    assert report["rows"][0]["trained"] is True


def test_adapters_are_merged_into_the_folder_and_kept_beside_it(
    modernbert_folder, pair_file, tmp_path, capsys
):
    output = tmp_path / "lora"
    options = ("--encoder", modernbert_folder, "--data", pair_file, "--output", output, *QUICK)
    run(capsys, "train", *options, "--lora-rank", "2", "--pooling", "latent_attention")
    encoder = Encoder.from_pretrained(str(output))
    assert encoder.latents is not None
    vectors = encoder.encode(["rain", "the hill"], "latent_attention")
    assert np.isfinite(vectors).all()

    # The same with peft itself, on the encoder where training started.
    from peft import PeftModel

    start = Encoder.from_pretrained(str(modernbert_folder))
    start.model.set_attn_implementation("sdpa")
    with pytest.warns(FutureWarning, match="is_gradient_checkpointing"):
        adapted = PeftModel.from_pretrained(start.model, output / "adapter").merge_and_unload()
    merged = dict(AutoModel.from_pretrained(output).named_parameters())
    changed = 0
    for name, weight in adapted.named_parameters():
        # Adapters are kept in half precision.
        torch.testing.assert_close(merged[name], weight.data, rtol=0, atol=2e-4)
        changed += not torch.equal(weight, dict(start.model.named_parameters()).get(name, weight))
    assert merged


def test_passages_become_pairs_with_the_teacher_s_vectors(
    modernbert_folder, tmp_path, capsys, tiny_folder
):
    rows = [
        {
            "id": f"p{i}",
            "doc": f"d{i // 2}",
            "text": " ".join(
                f"Sentence {j} of passage {i} is about every river and hill number {i}."
                for j in range(5)
            ),
        }
        for i in range(24)
    ]
    data = tmp_path / "passages.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--encoder", modernbert_folder, "--data", data, "--output", tmp_path / "out")
    teacher = ("--teacher", tiny_folder, "--pooling", "mean")
    summary = json.loads(run(capsys, "train", *options, *QUICK, *teacher, "--json"))
    assert summary["pairs"] == 12 * 8
    line = json.loads((tmp_path / "out" / "log.jsonl").read_text().splitlines()[-1])
    assert line["distillation"] > 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"body": "a"}], "neither anchor (or query) nor text, but 'body'"),
        ([], "has no rows"),
        ([{"anchor": "a", "positive": "b"}] * 3, "there are 3 pairs and a step takes 8"),
    ],
)
def test_data_that_cannot_be_trained_on_is_one_line_and_status_two(
    modernbert_folder, tmp_path, capsys, data, message
):
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in data))
    words = ["train", "--encoder", str(modernbert_folder), "--data", str(file), *QUICK]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error


def test_settings_out_of_range_are_one_line_and_status_two(modernbert_folder, tmp_path, capsys):
    words = ["train", "--encoder", str(modernbert_folder), "--data", "x.jsonl"]
    words += ["--output", str(tmp_path), "--granularities", "eight"]
    assert main(words) == 2
    assert "give whole numbers such as 8,16,32" in capsys.readouterr().err


def test_a_table_of_numbers_for_vectors_is_taken_as_the_teacher(tmp_path, capsys, tiny_folder):
    pairs = toy_pairs(32)
    vector = [0.0] * 15 + [1.0]
    frame = pd.DataFrame(
        {
            "anchor": pairs.anchors,
            "positive": pairs.positives,
            "anchor_vector": [vector] * 32,
            "positive_vector": [vector] * 32,
        }
    )
    frame.to_parquet(tmp_path / "taught.parquet")
    options = ("--encoder", tiny_folder, "--data", tmp_path / "taught.parquet")
    run(capsys, "train", *options, "--output", tmp_path / "out", *QUICK, "--contrastive", "0")
    lines = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    first, last = (json.loads(lines[i])["distillation"] for i in (0, -1))
    assert last < first
