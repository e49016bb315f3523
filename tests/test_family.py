"""A family of encoders: its folder, its names, its variants, and what is read from which."""

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import TRAINING_LENGTH, VARIANTS, random_latents
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from lmk_viz import family as family_module
from lmk_viz import loading
from lmk_viz.config import (
    AttentionConfig,
    ChunkingConfig,
    EncoderConfig,
    LayoutKind,
    PoolingConfig,
    PoolingMode,
)
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.encoder import Encoder
from lmk_viz.family import EncoderFamily
from lmk_viz.landmarks import build_layout
from lmk_viz.presets import find_preset
from lmk_viz.training.checkpoint import write_settings

CLS, MEAN, LANDMARK = PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK
LATENT = PoolingMode.LATENT_ATTENTION
TEXT = "Rivers carry water from the hills to the sea, and rain carries it back again. " * 2
SHORT = "A landmark token is placed after every chunk."
FIVES = ChunkingConfig(granularity=5)


def load(name: Path | str, **settings: Any) -> Encoder:
    return Encoder.from_pretrained(EncoderConfig(str(name), device="cpu", **settings))


@pytest.fixture
def own_family(family_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny family that a test may spoil."""
    return Path(shutil.copytree(family_folder, tmp_path / "own"))


@pytest.fixture
def bundled(family_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny family in the place of the bundled one."""
    monkeypatch.setattr(loading, "CHECKPOINTS", tmp_path)
    return Path(shutil.copytree(family_folder, tmp_path / "lmk-mini"))


def edit_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


# Folder and names.


def test_folder_with_variants_is_a_family(family_folder, tiny_family):
    assert tiny_family.variants == set(VARIANTS)
    assert tiny_family.trained_poolings == set(VARIANTS)
    assert (tiny_family.trained_for, tiny_family.training_length) == (None, TRAINING_LENGTH)
    assert tiny_family.source == str(family_folder)
    facts = tiny_family.facts()
    assert facts["variants"] == facts["trained_poolings"] == [mode.value for mode in VARIANTS]
    assert facts["training_length"] == TRAINING_LENGTH
    assert json.loads(json.dumps(facts)) == facts


def test_backbone_of_a_family_is_an_encoder_by_itself(family_folder, tiny_family):
    backbone = load(f"{family_folder}-backbone")
    assert type(backbone) is Encoder
    assert (backbone.trained_for, backbone.trained_poolings) == (None, frozenset())
    expected = tiny_family.backbone.encode([TEXT], MEAN)
    np.testing.assert_array_equal(backbone.encode([TEXT], MEAN), expected)
    assert not np.allclose(expected, tiny_family.encode([TEXT], MEAN), atol=1e-3)


@pytest.mark.parametrize("mode", VARIANTS)
@pytest.mark.parametrize("by", ["name", "folder"])
def test_variant_alone_is_an_encoder_by_itself(by, mode, family_folder, tiny_family):
    name = f"{family_folder}-{mode}" if by == "name" else family_folder / "variants" / mode
    variant = load(name)
    assert type(variant) is Encoder
    assert (variant.name, variant.trained_for) == (str(name), mode)
    assert variant.trained_poolings == {mode}
    assert variant.training_length == TRAINING_LENGTH
    assert variant.encoder_for(MEAN) is variant
    np.testing.assert_array_equal(
        variant.encode([TEXT, SHORT], mode, FIVES), tiny_family.encode([TEXT, SHORT], mode, FIVES)
    )


def test_slash_behind_the_folder_makes_no_other_family(family_folder):
    family = load(f"{family_folder}/")
    assert family.encoder_for(CLS).name == f"{family_folder}-cls"


def test_variant_that_the_family_has_not_got_is_refused(family_folder):
    with pytest.raises(ValueError, match=r"-multi_cls' does not exist: .* has variants for cls, "):
        load(f"{family_folder}-multi_cls")


def test_adapter_without_its_model_is_refused(family_folder, tmp_path):
    shutil.copytree(family_folder / "variants" / "cls", tmp_path / "alone")
    with pytest.raises(ValueError, match="holds an adapter without its model; merge it"):
        load(tmp_path / "alone")


@pytest.mark.parametrize("name", ["lmk-mini", "default"])
def test_bundled_family_goes_by_two_names(name, bundled):
    family = load(name)
    assert isinstance(family, EncoderFamily)
    assert family.name == "lmk-mini"
    assert family.encoder_for(CLS).name == "lmk-mini-cls"
    assert EncoderConfig(name) == EncoderConfig()


def test_bundled_backbone_was_trained_for_the_mean_of_its_teacher(bundled):
    assert load("lmk-mini-backbone").trained_for is MEAN
    assert load("lmk-mini").backbone.trained_for is MEAN
    assert load("lmk-mini-landmark").trained_for is LANDMARK


@pytest.mark.parametrize("name", ["lmk-mini", "lmk-mini-backbone", "lmk-mini-cls", "default"])
def test_bundled_family_that_is_missing_is_told_with_its_folder(name, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "CHECKPOINTS", tmp_path)
    with pytest.raises(ValueError, match=r"there is no config\.json in '.*lmk-mini', which") as got:
        load(name)
    assert str(tmp_path) in str(got.value)
    assert "all-minilm-l6-v2" in str(got.value)


def test_only_families_are_said_to_be_some(family_folder, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "CHECKPOINTS", tmp_path)  # There is no bundled one.
    names = [str(family_folder), f"{family_folder}-cls", str(tiny_folder), "a/b", "lmk-mini"]
    assert [loading.is_family(name) for name in names] == [True, False, False, False, False]


# Merging.


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
@pytest.mark.filterwarnings("ignore:The PEFT config's `base_model_name_or_path` was renamed")
@pytest.mark.parametrize("mode", VARIANTS)
def test_variant_gives_the_states_that_peft_gives(mode, family_folder, tiny_family):
    base = AutoModel.from_pretrained(family_folder)
    theirs = PeftModel.from_pretrained(base, family_folder / "variants" / mode).eval()
    layout = tiny_family.layout(TEXT, LayoutKind.PLAIN)
    with torch.no_grad():
        ids = torch.from_numpy(np.array(layout.input_ids))[None]
        states = theirs(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    ours = tiny_family.encoder_for(mode).token_states([layout])
    torch.testing.assert_close(ours, states, atol=1e-5, rtol=0)


def test_merged_weights_are_the_backbones_and_the_product_of_the_adapter(
    family_folder, tiny_family
):
    adapter = load_file(family_folder / "variants" / "cls" / "adapter_model.safetensors")
    merged = dict(tiny_family.encoder_for(CLS).model.named_parameters())
    changed = set()
    for key in adapter:
        if not key.endswith("lora_A.weight"):
            continue
        name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight") + ".weight"
        if "pooler" in name:
            continue
        first = adapter[key].float()
        second = adapter[key.replace("lora_A", "lora_B")].float()
        before = tiny_family.backbone.model.get_parameter(name)
        # Rank 2, alpha 4.
        torch.testing.assert_close(merged[name], before + 4 / 2 * second @ first)
        changed.add(name)
    assert len(changed) > 4
    for name, weight in tiny_family.backbone.model.named_parameters():
        if name not in changed:
            assert torch.equal(weight, merged[name]), name


def test_rank_stabilised_adapters_have_their_own_scale(own_family):
    folder = own_family / "variants" / "cls"
    edit_json(folder / "adapter_config.json", use_rslora=True)
    family = load(own_family)
    adapter = load_file(folder / "adapter_model.safetensors")
    name = "layers.0.mlp.fc1"
    first, second = (adapter[f"base_model.model.{name}.lora_{x}.weight"].float() for x in "AB")
    before = family.backbone.model.get_parameter(f"{name}.weight")
    merged = family.encoder_for(CLS).model.get_parameter(f"{name}.weight")
    torch.testing.assert_close(merged, before + 4 / 2**0.5 * second @ first)


def test_adapter_of_a_pooler_is_passed_over_since_no_pooler_is_read(own_family, tiny_family):
    file = own_family / "model.safetensors"
    weights = load_file(file)
    save_file({n: w for n, w in weights.items() if "pooler" not in n}, file, {"format": "pt"})
    family = load(own_family)
    assert family.model.pooler is None
    adapter = load_file(own_family / "variants" / "cls" / "adapter_model.safetensors")
    assert any("pooler" in name for name in adapter)
    np.testing.assert_array_equal(family.encode([TEXT], CLS), tiny_family.encode([TEXT], CLS))


def test_word_embeddings_are_shared_and_nothing_else(family_folder):
    family = load(family_folder)
    before = family.memory_bytes
    assert before == family.backbone.memory_bytes
    one, other = family.encoder_for(CLS).model, family.encoder_for(MEAN).model
    ours = dict(family.backbone.model.named_parameters())
    shared = {n for n, w in one.named_parameters() if w is ours[n]}
    assert shared == {name for name in ours if name.endswith("embeddings.weight")}
    assert all(w is dict(other.named_parameters())[n] for n, w in ours.items() if n in shared)
    tables = sum(ours[name].nbytes for name in shared)
    own = sum(w.nbytes for w in (*one.parameters(), *one.buffers())) - tables
    assert family.memory_bytes == before + 2 * own


def test_variant_is_loaded_once_by_whoever_asks_first(family_folder, monkeypatch):
    loaded = []
    real = family_module.merge_adapter

    def merge(model: Any, folder: Path) -> Any:
        loaded.append(folder.name)
        return real(model, folder)

    monkeypatch.setattr(family_module, "merge_adapter", merge)
    family = load(family_folder)
    family.check_pooling(LATENT)
    assert family.trained_poolings
    assert loaded == []
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(family.encoder_for, [CLS, MEAN] * 8))
    assert sorted(loaded) == ["cls", "mean"]
    assert len({id(encoder) for encoder in got}) == 2


def test_loading_draws_no_random_number(family_folder):
    state = torch.get_rng_state()
    load(family_folder).encode([SHORT], LATENT)
    assert torch.equal(torch.get_rng_state(), state)


def test_variants_come_in_the_chosen_precision_and_latents_in_float32(family_folder, tiny_family):
    family = load(family_folder, dtype="bfloat16")
    variant = family.encoder_for(LATENT)
    assert {weight.dtype for weight in variant.model.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in variant.latents.parameters()} == {torch.float32}
    got, exact = family.encode([TEXT], LATENT), tiny_family.encode([TEXT], LATENT)
    np.testing.assert_allclose(got, exact, atol=0.1)


# Vectors.


def test_each_pooling_is_read_from_its_variant(tiny_family):
    for mode in PoolingMode:
        alone = tiny_family.encoder_for(mode).encode([TEXT, SHORT], mode, FIVES)
        np.testing.assert_array_equal(tiny_family.encode([TEXT, SHORT], mode, FIVES), alone)
    assert tiny_family.encoder_for(PoolingMode.MULTI_CLS) is tiny_family.backbone


def test_poolings_of_one_batch_keep_their_order(tiny_family):
    modes = (LATENT, CLS, MEAN)
    layouts = [tiny_family.layout(text, LayoutKind.PLAIN) for text in (TEXT, SHORT)]
    vectors, flags = tiny_family.embed_layouts(layouts, [PoolingConfig(mode) for mode in modes])
    assert (len(vectors), len(flags)) == (3, 3)
    for mode, found in zip(modes, vectors, strict=True):
        np.testing.assert_allclose(found, tiny_family.encode([TEXT, SHORT], mode), atol=1e-6)


def test_corpus_is_embedded_under_all_poolings_of_the_family(tiny_family):
    documents = [Document(str(n), str(n), TEXT[: 20 * n + 9]) for n in range(4)]
    table = embed_documents(
        tiny_family, documents, [PoolingConfig(mode) for mode in VARIANTS], FIVES
    )
    for mode in VARIANTS:
        expected = tiny_family.encode([d.text for d in documents], mode, FIVES)
        np.testing.assert_allclose(table.vectors[mode], expected, atol=1e-5)


def test_pooling_that_only_a_variant_has_is_refused_of_the_backbone(tiny_family, family_folder):
    tiny_family.check_pooling(LATENT)
    for encoder in (tiny_family.backbone, tiny_family.encoder_for(CLS)):
        with pytest.raises(ValueError, match="latent_attention needs a layer that is trained"):
            encoder.check_pooling(LATENT)


def test_states_of_the_family_are_those_of_the_backbone(tiny_family):
    layout = tiny_family.layout(TEXT)
    assert torch.equal(
        tiny_family.token_states([layout]), tiny_family.backbone.token_states([layout])
    )


def test_control_with_random_weights_was_trained_for_nothing(tiny_family):
    control = tiny_family.with_random_weights(3)
    assert isinstance(control, EncoderFamily)
    assert (control.variants, control.trained_poolings) == (tiny_family.variants, frozenset())
    assert control.encoder_for(CLS) is control.encoder_for(MEAN)
    plain = tiny_family.backbone.with_random_weights(3)
    np.testing.assert_array_equal(control.encode([TEXT], CLS), plain.encode([TEXT], CLS))
    # An untrained latent attention changes nothing.
    np.testing.assert_allclose(
        control.encode([TEXT], LATENT), control.encode([TEXT], MEAN), atol=1e-6
    )


# Attention.


def assert_rows_equal(got: Any, expected: Any) -> None:
    for name in ("mass", "special", "scalars"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), atol=1e-6)


@pytest.mark.parametrize("limit", [None, 30])
@pytest.mark.parametrize("chunking", [FIVES, ChunkingConfig("sentence")], ids=["fixed", "sentence"])
def test_each_row_is_read_from_its_variant_over_the_same_tokens(chunking, limit, tiny_family):
    layout = tiny_family.layout(TEXT, chunking=chunking, max_length=limit)
    assert (layout.n_cut > 0) == (limit is not None)
    profile = tiny_family.attention_profile(layout, AttentionConfig(bins=8, keep_landmarks=True))
    own = tiny_family.encoder_for(LANDMARK).attention_profile(
        layout, AttentionConfig(bins=8, keep_landmarks=True)
    )
    plain = build_layout(
        layout.tokens, tiny_family.special_ids, LayoutKind.PLAIN, max_length=layout.n_kept + 2
    )
    assert plain.n_kept == layout.n_kept
    cls = tiny_family.encoder_for(CLS).attention_profile(plain, AttentionConfig(bins=8))
    assert list(profile.rows) == [CLS, LANDMARK]
    assert_rows_equal(profile.rows[LANDMARK], own.rows[LANDMARK])
    assert_rows_equal(profile.rows[CLS], cls.rows[CLS])
    for name in ("edges", "distance_edges", "landmark_tokens", "landmark_map"):
        np.testing.assert_array_equal(getattr(profile, name), getattr(own, name))
    np.testing.assert_array_equal(profile.edges, cls.edges)
    assert (profile.n_content, profile.n_layers) == (layout.n_kept, tiny_family.n_layers)


def test_distances_of_the_cls_row_stay_what_they_are_in_its_own_shorter_input(tiny_family):
    # Eight landmarks more than the plain input, over the border of a distance bin.
    layout = tiny_family.layout(TEXT, chunking=ChunkingConfig(granularity=1))
    profile = tiny_family.attention_profile(layout)
    plain = tiny_family.layout(TEXT, LayoutKind.PLAIN)
    cls = tiny_family.encoder_for(CLS).attention_profile(plain)
    got, expected = profile.rows[CLS], cls.rows[CLS]
    assert len(profile.distance_edges) > len(cls.distance_edges)

    def by_distance(edges: np.ndarray, values: np.ndarray) -> dict[int, float]:
        # The last bin of a shorter input may end earlier; its start names it.
        return {int(e): float(v) for e, v in zip(edges[:-1], values, strict=True) if v}

    wide = by_distance(profile.distance_edges, got.distance_keys)
    assert wide == by_distance(cls.distance_edges, expected.distance_keys)
    layer_head = (1, 0)
    wide = by_distance(profile.distance_edges, got.distance_mass[layer_head])
    narrow = by_distance(cls.distance_edges, expected.distance_mass[layer_head])
    assert wide == pytest.approx(narrow, abs=1e-6)


def test_row_of_a_plain_layout_is_the_cls_variants(tiny_family):
    layout = tiny_family.layout(TEXT, LayoutKind.PLAIN)
    profile = tiny_family.attention_profile(layout)
    assert list(profile.rows) == [CLS]
    expected = tiny_family.encoder_for(CLS).attention_profile(layout)
    assert_rows_equal(profile.rows[CLS], expected.rows[CLS])


def test_rows_of_a_multi_cls_layout_are_the_backbones(tiny_family):
    layout = tiny_family.layout(TEXT, LayoutKind.MULTI_CLS, FIVES)
    expected = tiny_family.backbone.attention_profile(layout)
    assert_rows_equal(tiny_family.attention_profile(layout).rows[CLS], expected.rows[CLS])
    assert tiny_family.row_sources(layout) == {CLS: tiny_family.backbone.name}


def test_text_that_leaves_no_room_for_a_landmark_has_the_cls_row_alone(tiny_family):
    layout = tiny_family.layout(TEXT, chunking=ChunkingConfig(granularity=99), max_length=20)
    assert layout.n_landmarks == 0
    profile = tiny_family.attention_profile(layout)
    assert (list(profile.rows), profile.n_content) == ([CLS], layout.n_kept)
    assert tiny_family.layers_to_read(layout) == tiny_family.n_layers


def test_layers_are_counted_over_both_passes(tiny_family):
    for kind, passes in ((LayoutKind.LANDMARK, 2), (LayoutKind.PLAIN, 1)):
        layout = tiny_family.layout(TEXT, kind, FIVES)
        seen: list[int] = []
        tiny_family.attention_profile(layout, on_layer=seen.append)
        assert seen == list(range(passes * tiny_family.n_layers))
        assert tiny_family.layers_to_read(layout) == len(seen)
        assert tiny_family.backbone.layers_to_read(layout) == tiny_family.n_layers


@pytest.mark.parametrize(
    ("asked", "layers", "rows"), [(1, 1, [CLS]), (2, 1, [CLS, LANDMARK]), (3, 1, [CLS, LANDMARK])]
)
def test_stop_is_heard_in_both_passes(asked, layers, rows, tiny_family):
    seen: list[int] = []
    profile = tiny_family.attention_profile(
        tiny_family.layout(TEXT, chunking=FIVES),
        on_layer=seen.append,
        should_stop=lambda: len(seen) >= asked,
    )
    assert (profile.n_layers, profile.is_partial) == (layers, True)
    assert list(profile.rows) == rows
    assert {row.mass.shape[0] for row in profile.rows.values()} == {layers}


def test_sources_of_the_rows_are_named(tiny_family, family_folder):
    layout = tiny_family.layout(TEXT, chunking=FIVES)
    assert tiny_family.row_sources(layout) == {
        CLS: f"{family_folder}-cls",
        LANDMARK: f"{family_folder}-landmark",
    }
    name = tiny_family.backbone.name
    assert tiny_family.backbone.row_sources(layout) == {CLS: name, LANDMARK: name}
    plain = tiny_family.layout(TEXT, LayoutKind.PLAIN)
    assert tiny_family.row_sources(plain) == {CLS: f"{family_folder}-cls"}


def test_two_passes_are_forecast_for_both_rows(tiny_family):
    one = tiny_family.backbone
    assert tiny_family.rough_seconds(900, 1) == one.rough_seconds(900, 1)
    both = one.rough_seconds(900, 1) + one.rough_seconds(900, 40)
    assert tiny_family.rough_seconds(900, 40) == pytest.approx(both)
    assert tiny_family.reports_attention


def test_threads_may_read_rows_while_others_embed(tiny_family):
    layout = tiny_family.layout(TEXT, chunking=FIVES)
    vectors = tiny_family.encode([TEXT], LANDMARK)
    expected = tiny_family.attention_profile(layout).rows[CLS].mass
    failed = []

    def work(number: int) -> None:
        if number % 2:
            same = np.array_equal(tiny_family.attention_profile(layout).rows[CLS].mass, expected)
        else:
            same = np.array_equal(tiny_family.encode([TEXT], LANDMARK), vectors)
        if not same:
            failed.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# What training wrote beside an encoder by itself.


@pytest.fixture
def trained_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A folder as training writes it for somebody's own encoder."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "trained"))
    write_settings(folder, LATENT, 300, (8, 16), random_latents(16))
    return folder


def test_folder_of_ones_own_training_says_what_it_was_trained_for(trained_folder, tiny_folder):
    encoder = load(trained_folder)
    assert (encoder.trained_for, encoder.training_length) == (LATENT, 300)
    states = load(tiny_folder).token_states([encoder.layout(SHORT, LayoutKind.PLAIN)])
    expected = random_latents(16)(states)[0].mean(dim=0)
    got = encoder.encode([SHORT], LATENT, normalize=False)
    np.testing.assert_allclose(got[0], expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trained_for": "max"}, "pooling is 'max'; allowed: cls, mean"),
        ({"trained_for": None}, "pooling is 'None'; allowed: cls"),
        ({"training_length": 0}, "training_length is 0; allowed: whole numbers of 1"),
        ({"training_length": True}, "training_length is True; allowed"),
        ({"training_length": "long"}, "training_length is 'long'; allowed"),
        ({"granularities": 8}, "granularities is 8; a list is expected"),
        ({"granularities": [8, 0]}, "granularities is 0; allowed"),
        ({"latent_attention": 8}, "latent_attention is 8; an object is expected"),
        ({"latent_attention": {"hidden": 0}}, "hidden is 0; it has to be"),
        ({"latent_attention": {"hidden": 32}}, "reads states of 32 numbers, the encoder has 16"),
        ({"latent_attention": {"hidden": 16}}, "does not fit its sizes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_spoiled_settings_are_refused_in_one_line(changes, message, trained_folder):
    edit_json(trained_folder / "lmk_viz.json", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load(trained_folder)
    assert str(caught.value).startswith(f"encoder {str(trained_folder)!r} could not be loaded: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "cannot be read as JSON"), ("[1]", "holds a list; an object is expected")],
    ids=["cut short", "a list"],
)
def test_settings_that_are_no_object_are_refused(content, message, trained_folder):
    (trained_folder / "lmk_viz.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load(trained_folder)


def test_settings_of_latent_attention_need_its_sizes_and_weights(trained_folder):
    (trained_folder / "latent_attention.safetensors").unlink()
    with pytest.raises(ValueError, match=r"latent_attention\.safetensors is missing"):
        load(trained_folder)
    (trained_folder / "lmk_viz.json").write_text('{"trained_for": "latent_attention"}')
    with pytest.raises(ValueError, match="has no latent_attention sizes"):
        load(trained_folder)


# Spoiled families.


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    file = folder / "adapter_model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def rename_first(weights: dict[str, torch.Tensor]) -> None:
    weights["base_model.model.nowhere.lora_A.weight"] = weights.pop(sorted(weights)[0])


def widen_first(weights: dict[str, torch.Tensor]) -> None:
    name = sorted(weights)[0]
    weights[name] = weights[name].repeat(1, 2)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "adapter_config.json").unlink(), r"adapter_config\.json is missing"),
        (lambda f: (f / "adapter_model.safetensors").unlink(), r"adapter_model\.safetensors is mi"),
        (lambda f: (f / "adapter_config.json").write_text("{"), "cannot be read as JSON"),
        (lambda f: (f / "adapter_config.json").write_text("[]"), "says None; allowed: LORA"),
        (lambda f: edit_json(f / "adapter_config.json", peft_type="IA3"), "says 'IA3'; allowed"),
        (
            lambda f: edit_json(f / "adapter_config.json", modules_to_save=["embeddings"]),
            "asks for modules_to_save; plain low-rank adapters",
        ),
        (
            lambda f: change_weights(f, lambda w: w.pop(sorted(w)[0])),
            "1 weights are missing and 0 have no place",
        ),
        (lambda f: change_weights(f, rename_first), "1 weights are missing and 1 have no place"),
        (
            lambda f: change_weights(f, widen_first),
            r"\(2, 16\), .* \(2, 32\) came",
        ),
        (lambda f: edit_json(f / "adapter_config.json", use_dora=True), "asks for use_dora; pla"),
        (
            lambda f: edit_json(f / "adapter_config.json", init_lora_weights="pissa"),
            "asks for init_lora_weights; plain",
        ),
        (lambda f: edit_json(f / "adapter_config.json", tomorrow=1), "asks for tomorrow; plain"),
        (lambda f: edit_json(f / "adapter_config.json", rank_pattern={"q": 1}), "rank_pattern; pl"),
        (lambda f: edit_json(f / "adapter_config.json", r=4), r"takes \(.*, 4\) times \(4, "),
        (lambda f: edit_json(f / "adapter_config.json", r=0), "r 0 and lora_alpha 4; give numb"),
        (lambda f: edit_json(f / "adapter_config.json", target_modules=".*"), "target_modules '"),
        (lambda f: (f / "adapter_model.safetensors").write_bytes(b"x"), "could not be loaded: "),
    ],
    ids=[
        "no settings",
        "no weights",
        "settings cut short",
        "settings are a list",
        "another method",
        "whole layers",
        "a weight is missing",
        "a weight of no layer",
        "a weight too wide",
        "another kind of adapter",
        "a start that changes the model",
        "a setting of another day",
        "ranks by layer",
        "another rank",
        "no rank",
        "layers by pattern",
        "corrupt weights",
    ],
)
def test_spoiled_adapter_is_refused_and_the_other_variants_are_not(spoil, message, own_family):
    spoil(own_family / "variants" / "cls")
    family = load(own_family)
    with pytest.raises(ValueError, match=message) as caught:
        family.encode([SHORT], CLS)
    assert str(caught.value).startswith(f"encoder '{own_family}-cls' could not be loaded: ")
    assert "\n" not in str(caught.value)
    assert np.isfinite(family.encode([SHORT], MEAN)).all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "cls").rename(f / "max"), "has max in 'variants'; allowed: folders called"),
        (lambda f: [shutil.rmtree(p) for p in f.iterdir()], "has nothing in 'variants'; allowed"),
        (lambda f: (f / "cls").rename(f / "multi_cls"), "multi_cls that says it was trained for c"),
        (lambda f: (f / "cls" / "lmk_viz.json").unlink(), "cls that says it was trained for noth"),
        (lambda f: (f / "cls" / "lmk_viz.json").write_text("{"), "variant cls: .* as JSON"),
    ],
    ids=["unknown pooling", "no variant", "another pooling", "no settings", "settings cut short"],
)
def test_family_with_a_variant_that_is_none_is_refused_at_once(spoil, message, own_family):
    spoil(own_family / "variants")
    with pytest.raises(ValueError, match=message):
        load(own_family)


# The bundled family.


def test_bundled_family_has_the_variants_that_its_preset_says(bundled_family):
    assert bundled_family.variants == set(find_preset("lmk-mini").variants)
    assert (bundled_family.max_length, bundled_family.has_hard_limit) == (8192, False)
    assert bundled_family.training_length is not None


@pytest.mark.parametrize("mode", VARIANTS)
def test_bundled_variants_know_which_sentences_belong_together(mode, bundled_family):
    texts = ["A cat sleeps on the warm roof.", "The kitten naps in the sun.", "Rates of tax rose."]
    vectors = bundled_family.encode(texts, mode)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1
