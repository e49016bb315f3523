import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training.toy import toy_pairs

from lmk_viz.config import PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.trainer import batch_rows, train

TRAINED = [mode for mode in PoolingMode if mode is not PoolingMode.MULTI_CLS]


def weights_of(run):
    return {name: weight.detach().clone() for name, weight in run.model.trained()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, weight in left.items():
        torch.testing.assert_close(weight, right[name], rtol=0, atol=0, msg=name)


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert")


@pytest.mark.parametrize("mode", TRAINED)
def test_a_toy_task_is_learned_under_every_pooling(learner, pairs, toy_config, tmp_path, mode):
    steps = []
    config = toy_config(pooling=mode, steps=40, save_every=1000)
    train(learner, pairs, config, tmp_path, on_step=steps.append)
    # Chance is one in eight.
    assert np.mean([step.accuracy for step in steps[:3]]) < 0.4
    assert np.mean([step.accuracy for step in steps[-5:]]) > 0.9


def test_adapters_learn_while_the_weights_of_the_encoder_stay(learner, pairs, toy_config, tmp_path):
    config = toy_config(steps=40, lora_rank=4, learning_rate=1e-2, save_every=1000)
    before = {name: p.clone() for name, p in learner.model.named_parameters()}
    steps = []
    run = train(learner, pairs, config, tmp_path, on_step=steps.append)
    assert all("lora_" in name for name in weights_of(run))
    assert np.mean([step.accuracy for step in steps[-5:]]) > 0.6
    base = run.model.model.get_base_model()
    kept = {n.replace(".base_layer", ""): p for n, p in base.named_parameters() if "lora" not in n}
    assert_same(before, kept)


def test_the_encoder_that_came_is_left_as_it_was(encoder, pairs, toy_config, tmp_path):
    before = {name: p.clone() for name, p in encoder.model.named_parameters()}
    attention = encoder.model.config._attn_implementation
    train(encoder, pairs, toy_config(), tmp_path)
    assert_same(before, dict(encoder.model.named_parameters()))
    assert encoder.model.config._attn_implementation == attention
    assert not any(p.requires_grad for p in encoder.model.parameters())


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    encoder, pairs, toy_config, tmp_path
):
    config = toy_config(shuffle=True, pooling="latent_attention")
    first = weights_of(train(encoder, pairs, config, tmp_path / "a"))
    again = weights_of(train(encoder, pairs, config, tmp_path / "b"))
    assert_same(first, again)
    other = weights_of(train(encoder, pairs, config.with_(seed=1), tmp_path / "c"))
    assert any(not torch.equal(weight, other[name]) for name, weight in first.items())


@pytest.mark.parametrize("rank", [0, 2], ids=["all weights", "adapters"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    encoder, pairs, toy_config, tmp_path, rank
):
    config = toy_config(shuffle=True, lora_rank=rank)
    whole = train(encoder, pairs, config, tmp_path / "whole")
    seen = []
    with pytest.raises(InterruptedError, match="stopped after step 3"):
        train(
            encoder,
            pairs,
            config,
            tmp_path / "parts",
            on_step=seen.append,
            should_stop=lambda: len(seen) == 3,
        )
    rest = train(encoder, pairs, config, tmp_path / "parts", on_step=seen.append)
    assert [step.step for step in seen] == [1, 2, 3, 4, 5, 6]
    assert_same(weights_of(whole), weights_of(rest))
    assert rest.tokens == whole.tokens
    lines = (tmp_path / "parts" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_died_between_checkpoints_takes_its_last_steps_again(
    encoder, pairs, toy_config, tmp_path
):
    config = toy_config()
    whole = weights_of(train(encoder, pairs, config, tmp_path / "whole"))

    def die(step):
        if step.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(encoder, pairs, config, tmp_path / "parts", on_step=die)
    again = weights_of(train(encoder, pairs, config, tmp_path / "parts"))
    assert_same(whole, again)
    lines = (tmp_path / "parts" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


OTHER_RUNS = {
    "settings": lambda make, tiny: (tiny("bert"), toy_pairs(), make(learning_rate=1e-3)),
    "data": lambda make, tiny: (tiny("bert"), toy_pairs(seed=1), make()),
    "encoder": lambda make, tiny: (tiny("gte"), toy_pairs(), make()),
}


@pytest.mark.parametrize("change", OTHER_RUNS)
def test_a_folder_of_another_run_is_refused(pairs, toy_config, tiny_encoder, tmp_path, change):
    train(tiny_encoder("bert"), pairs, toy_config(), tmp_path)
    other = OTHER_RUNS[change](toy_config, tiny_encoder)
    with pytest.raises(ValueError, match="holds a run with other settings, data or encoder"):
        train(*other, tmp_path)


def test_micro_batches_of_a_distillation_add_up_to_the_batch(learner, pairs, toy_config, tmp_path):
    # Without in-batch negatives a batch is the mean of its micro-batches; one granularity,
    # since each micro-batch draws its own.
    vectors = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    taught = pairs.with_vectors(vectors, -vectors)
    config = toy_config(contrastive=0.0, granularities=(4,), steps=3, clip=0.0)
    one = weights_of(train(learner, taught, config, tmp_path / "one"))
    four = weights_of(train(learner, taught, config.with_(accumulation=4), tmp_path / "four"))
    for name, weight in one.items():
        # Adam divides by the gradient's size, so rounding shows where that is near nothing.
        torch.testing.assert_close(weight, four[name], rtol=1e-3, atol=1e-3)


def test_distillation_pulls_vectors_towards_the_teacher(learner, pairs, toy_config, tmp_path):
    vectors = np.zeros((64, 32), np.float32)
    vectors[:, 3] = 1.0
    steps = []
    config = toy_config(contrastive=0.0, steps=20)
    train(learner, pairs.with_vectors(vectors, vectors), config, tmp_path, on_step=steps.append)
    assert steps[-1].distillation < 0.3 * steps[0].distillation
    assert steps[-1].loss == pytest.approx(steps[-1].distillation)


def test_hard_negatives_and_scores_change_what_is_learned(learner, pairs, toy_config, tmp_path):
    shifted = (*pairs.positives[1:], pairs.positives[0])
    hard = replace(pairs, negatives=tuple((text,) for text in shifted))
    scored = replace(hard, scores=np.tile(np.float32([2.0, 1.0]), (64, 1)))
    losses = {}
    for name, data in (("plain", pairs), ("hard", hard), ("scored", scored)):
        steps = []
        train(learner, data, toy_config(steps=1), tmp_path / name, on_step=steps.append)
        losses[name] = steps[0].contrastive
    assert losses["plain"] < losses["hard"]
    assert losses["hard"] != losses["scored"]


def test_frozen_weights_stay_as_they_are(encoder, pairs, toy_config, tmp_path):
    config = toy_config(frozen=("embeddings.word_embeddings",))
    run = train(encoder, pairs, config, tmp_path)
    trained = dict(run.model.model.named_parameters())
    before = dict(encoder.model.named_parameters())
    torch.testing.assert_close(
        trained["embeddings.word_embeddings.weight"], before["embeddings.word_embeddings.weight"]
    )
    assert not torch.equal(
        trained["embeddings.LayerNorm.weight"], before["embeddings.LayerNorm.weight"]
    )


def test_every_pair_is_seen_once_an_epoch():
    config = TrainingConfig(batch_size=4, accumulation=2)
    for epoch in (0, 1):
        rows = [batch_rows(config, 24, 3 * epoch + step, 2) for step in range(3)]
        assert rows[0].shape == (2, 2, 2)
        assert sorted(np.concatenate(rows, axis=None).tolist()) == list(range(24))


def test_processes_together_read_what_one_would_have_read():
    config = TrainingConfig(batch_size=4)
    two = batch_rows(config, 64, 5, 2)
    one = batch_rows(config.with_(batch_size=8), 64, 5, 1)
    np.testing.assert_array_equal(two.reshape(-1), one.reshape(-1))


def test_too_few_pairs_for_a_step_are_an_error():
    with pytest.raises(ValueError, match="there are 3 pairs and a step takes 4"):
        batch_rows(TrainingConfig(batch_size=4), 3, 0, 1)


def test_a_teacher_is_needed_where_there_is_nothing_else_to_learn(
    encoder, pairs, toy_config, tmp_path
):
    with pytest.raises(ValueError, match="nothing to distil from"):
        train(encoder, pairs, toy_config(contrastive=0.0), tmp_path)


def test_a_loss_that_is_not_finite_ends_the_run_with_what_to_do(
    build_model, wordpiece_tokenizer, pairs, toy_config, tmp_path
):
    broken = build_model("bert")
    broken.encoder.layer[0].output.dense.weight.fill_(float("nan"))
    encoder = Encoder(broken, wordpiece_tokenizer)
    with pytest.raises(ValueError, match="not finite at step 1; lower learning_rate"):
        train(encoder, pairs, toy_config(), tmp_path)


def test_two_processes_learn_what_one_learns_from_the_whole_batch(
    learner, pairs, toy_config, tmp_path
):
    folder = tmp_path / "learner"
    learner.model.save_pretrained(folder)
    learner.tokenizer.save_pretrained(folder)
    script = Path(__file__).parent / "run_distributed.py"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("--standalone", str(script), str(folder), str(tmp_path / "two")),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    config = toy_config(granularities=(4,), steps=3, save_every=1)
    steps = []
    train(learner, pairs, config, tmp_path / "one", on_step=steps.append)
    lines = (tmp_path / "two" / "log.jsonl").read_text().splitlines()
    both = [json.loads(line) for line in lines]
    # From the second step on the losses are equal only where the gradients were.
    for alone, together in zip(steps, both, strict=True):
        assert together["loss"] == pytest.approx(alone.loss, rel=1e-4)
        assert together["tokens"] == alone.tokens
