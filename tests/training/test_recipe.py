import gzip
import json

import pytest

from lmk_viz.__main__ import main
from lmk_viz.retrieval.passages import held_out_ids
from lmk_viz.training import recipe
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.data import load_pairs
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


@pytest.fixture
def small_recipe(monkeypatch, tiny_encoder, tmp_path):
    """The corpus of a recipe of a few pairs, cut by a tiny teacher."""
    for name in ("HEALING", "VARIANT"):
        settings = getattr(recipe, name).with_(steps=8, batch_size=2)
        monkeypatch.setattr(recipe, name, settings)
    monkeypatch.setattr(recipe, "_teacher", lambda: tiny_encoder("bert"))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = [
        {
            "id": f"p{i}",
            "doc": f"austen/{i}",
            "source": "austen",
            "text": " ".join(f"Passage p{i} has a line {j} of some words in it." for j in range(6)),
        }
        for i in range(12)
    ]
    with gzip.open(corpus / "passages.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return corpus


def name_of(text):
    """Name of the passage that a sentence or the start of a document is from."""
    return text.split()[1]


def test_pairs_have_their_evidence_at_the_start_when_asked(small_recipe, tmp_path):
    share = {}
    for evidence in ("anywhere", "start"):
        work = tmp_path / evidence
        words = ["--corpus", str(small_recipe), "--work", str(work), "--step", "pairs"]
        assert main(["recipe", *words, "--evidence", evidence]) == 0
        pairs = load_pairs(work / "pairs.parquet")
        at_start = [
            name_of(q) == name_of(d) for q, d in zip(pairs.anchors, pairs.positives, strict=True)
        ]
        share[evidence] = sum(at_start) / len(at_start)
    assert share["start"] == 1.0
    assert share["anywhere"] < 1.0


def test_pairs_with_their_evidence_elsewhere_are_not_taken_for_those_asked_for(
    small_recipe, tmp_path
):
    run_step("pairs", small_recipe, tmp_path / "work", tmp_path / "out")
    with pytest.raises(ValueError, match="holds pairs with evidence 'anywhere'; give another"):
        run_step("cls", small_recipe, tmp_path / "work", tmp_path / "out", evidence="start")
    with pytest.raises(ValueError, match="evidence is 'end'; allowed: anywhere, start"):
        run_step("pairs", small_recipe, tmp_path / "work", tmp_path / "out", evidence="end")


def test_a_work_folder_that_cannot_be_made_is_a_worded_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="cannot be made: File exists"):
        run_step("pairs", tmp_path, tmp_path / "file", tmp_path / "out")
