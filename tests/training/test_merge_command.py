"""`merge`: a variant of a family as a folder of its own."""

import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModel

from lmk_viz import loading
from lmk_viz.__main__ import main
from lmk_viz.config import EncoderConfig, PoolingMode
from lmk_viz.encoder import Encoder

TEXTS = ["Rivers carry water from the hills to the sea.", "A landmark."]


@pytest.fixture
def bundled(family_folder, tmp_path, monkeypatch):
    """The tiny family in the place of the bundled one."""
    monkeypatch.setattr(loading, "CHECKPOINTS", tmp_path)
    return shutil.copytree(family_folder, tmp_path / "lmk-mini")


def load(name):
    return Encoder.from_pretrained(EncoderConfig(str(name), device="cpu"))


@pytest.mark.parametrize("mode", [PoolingMode.LANDMARK, PoolingMode.LATENT_ATTENTION])
def test_merged_folder_gives_the_vectors_of_the_variant_without_adapters(bundled, tmp_path, mode):
    name = f"lmk-mini-{mode.value}"
    assert main(["merge", name, "--output", str(tmp_path / "own")]) == 0
    merged, variant = load(tmp_path / "own"), load(name)
    assert merged.trained_for is mode
    assert merged.training_length == variant.training_length
    np.testing.assert_array_equal(merged.encode(TEXTS, mode), variant.encode(TEXTS, mode))
    plain = dict(AutoModel.from_pretrained(tmp_path / "own").named_parameters())
    for weight_name, weight in variant.model.named_parameters():
        assert torch.equal(plain[weight_name], weight.float())


def test_whole_family_is_refused_and_its_variants_are_named(bundled, tmp_path, capsys):
    assert main(["merge", "lmk-mini", "--output", str(tmp_path / "own")]) == 2
    said = capsys.readouterr().err
    assert "lmk-mini is no encoder trained for one pooling; name a variant: lmk-mini-cls" in said
    assert not (tmp_path / "own").exists()


def test_an_encoder_that_was_trained_for_nothing_has_nothing_to_merge(
    bundled, tmp_path, tiny_folder, capsys
):
    assert main(["merge", str(tiny_folder), "--output", str(tmp_path / "own")]) == 2
    assert "there is nothing to merge" in capsys.readouterr().err


def test_variants_of_a_folder_are_named_as_they_can_be_given(family_folder, tmp_path, capsys):
    assert main(["merge", str(family_folder), "--output", str(tmp_path / "own")]) == 2
    assert f"{family_folder}/variants/landmark" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_a_line(family_folder, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    variant = str(family_folder / "variants" / "landmark")
    assert main(["merge", variant, "--output", str(tmp_path / "file")]) == 2
    said = capsys.readouterr().err
    assert "cannot be written: File exists." in said
    assert len(said.splitlines()) == 1
