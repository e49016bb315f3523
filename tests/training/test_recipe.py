import pytest

from lmk_viz.retrieval.passages import held_out_ids
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.recipe import HEALING, STEPS, VARIANT, VARIANTS, run_step, split_of


def test_what_is_held_out_for_evaluation_is_never_trained_on():
    ids = held_out_ids()
    assert len(ids) > 1000
    assert {split_of(name.split("#")[0]) for name in ids} == {"test"}


def test_only_encyclopedia_articles_are_held_out():
    docs = [f"wikipedia/{i}" for i in range(4000)]
    splits = [split_of(doc) for doc in docs]
    for name in ("test", "dev"):
        # One in eight, within four standard errors.
        assert splits.count(name) / 4000 == pytest.approx(1 / 8, abs=0.021)
    assert {split_of(f"austen/{i}") for i in range(100)} == {"train"}


def test_variants_differ_in_their_pooling_alone():
    configs = [VARIANT.with_(pooling=mode) for mode in VARIANTS]
    assert {config.with_(pooling="cls") for config in configs} == {configs[0]}
    assert isinstance(HEALING, TrainingConfig)
    assert not HEALING.contrastive


def test_steps_are_pairs_backbone_a_variant_a_pooling_and_the_folder():
    assert STEPS[:2] == ("pairs", "backbone")
    assert STEPS[-1] == "assemble"
    assert len(STEPS) == 3 + len(VARIANTS)


def test_an_unknown_step_and_a_missing_one_before_are_named(tmp_path):
    with pytest.raises(ValueError, match="step is 'bake'; allowed: pairs, backbone"):
        run_step("bake", tmp_path, tmp_path / "work", tmp_path / "out")
    with pytest.raises(ValueError, match="no backbone yet; run the step `backbone` first"):
        run_step("assemble", tmp_path, tmp_path / "work", tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds no \*\.jsonl\.gz"):
        run_step("pairs", tmp_path, tmp_path / "work", tmp_path / "out")
