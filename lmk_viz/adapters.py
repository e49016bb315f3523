"""What training leaves beside an encoder's weights: settings, latent attention, adapters.

Everything is JSON and safetensors, read from local folders alone and checked against the model
that it belongs to: an adapter that fits in part would change the vectors in part, unnoticed.
"""

import copy
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from lmk_viz.config import PoolingMode
from lmk_viz.latent_attention import LatentAttention, LatentConfig
from lmk_viz.pooling import POOLINGS

__all__ = [
    "ADAPTER_SETTINGS_NAME",
    "TrainedSettings",
    "copy_for_adapter",
    "load_latents",
    "merge_adapter",
    "read_settings",
]

SETTINGS_NAME = "lmk_viz.json"
LATENTS_NAME = "latent_attention.safetensors"
ADAPTER_SETTINGS_NAME = "adapter_config.json"
ADAPTER_NAME = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class TrainedSettings:
    """What an encoder was trained for, as written beside its weights."""

    trained_for: PoolingMode
    training_length: int | None
    """Tokens of the longest texts that it was trained on."""
    granularities: tuple[int, ...]
    """That were drawn from in training; empty where it is not told."""
    latents: LatentConfig | None
    """Sizes of its latent attention, where it has one."""


def read_settings(folder: Path) -> TrainedSettings | None:
    """Returns what a folder says its encoder was trained for; None where it says nothing.

    Raises:
        ValueError: when the file is damaged, or a value is missing or not allowed.
    """
    file = folder / SETTINGS_NAME
    if not file.is_file():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{SETTINGS_NAME} cannot be read as JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{SETTINGS_NAME} holds a {type(values).__name__}; an object is expected.")
    try:
        mode = PoolingMode(str(values.get("trained_for")))
    except ValueError as error:
        raise ValueError(f"in {SETTINGS_NAME} {error}") from error
    length = values.get("training_length")
    if length is not None:
        length = _check_count("training_length", length)
    sizes = values.get("granularities", [])
    if not isinstance(sizes, list):
        raise ValueError(f"in {SETTINGS_NAME} granularities is {sizes!r}; a list is expected.")
    latents = None
    if "latent_attention" in values:
        given = values["latent_attention"]
        if not isinstance(given, dict):
            raise ValueError(
                f"in {SETTINGS_NAME} latent_attention is {given!r}; an object is expected."
            )
        latents = LatentConfig.from_dict(given)
    if POOLINGS[mode].needs_latents and latents is None:
        raise ValueError(
            f"{SETTINGS_NAME} says trained for {mode.value} and has no latent_attention sizes."
        )
    granularities = tuple(_check_count("granularities", size) for size in sizes)
    return TrainedSettings(mode, length, granularities, latents)


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"in {SETTINGS_NAME} {name} is {value!r}; allowed: whole numbers of 1 and more."
        )
    return value


def load_latents(
    folder: Path, config: LatentConfig, hidden: int, device: torch.device
) -> LatentAttention:
    """Returns the latent attention of a folder, in float32, ready to use.

    Args:
        folder: that holds its weights.
        config: its sizes.
        hidden: size of a token state of the encoder that it belongs to.
        device: where it will run.

    Raises:
        ValueError: when its weights are missing, do not fit its sizes, or it does not fit the
            encoder.
    """
    if config.hidden != hidden:
        raise ValueError(
            f"its latent attention reads states of {config.hidden} numbers, the encoder has "
            f"{hidden}; give both from the same training."
        )
    file = folder / LATENTS_NAME
    if not file.is_file():
        raise ValueError(f"{LATENTS_NAME} is missing, which {SETTINGS_NAME} says is there.")
    weights = {name: tensor.float() for name, tensor in load_file(file).items()}
    with torch.device("meta"):  # Draws nothing and takes no memory.
        latents = LatentAttention(config)
    try:
        latents.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{LATENTS_NAME} does not fit its sizes: {text[:200]}") from error
    latents.to(device).eval().requires_grad_(False)
    return latents


def copy_for_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """Returns a copy with weights of its own, except the embedding tables, which it shares.

    Adapters change linear layers alone, and the word embeddings are half of a small model.
    """
    shared = {id(m): m for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    return copy.deepcopy(model, shared)


def merge_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Adds a low-rank adapter to the linear layers that it was trained beside.

    The weight of each becomes W + s * B A, as LoRA has it. That is done here and not by the
    package `peft`, which passes over weights that are missing or have no place.

    Args:
        model: is changed, so give a copy where it is used elsewhere.
        folder: with the settings and weights that `peft` writes.

    Returns:
        The same model.

    Raises:
        ValueError: when a file is missing or damaged, when it is no LoRA adapter of linear
            layers alone, or when it has too few or too many weights for the model.
    """
    for name in (ADAPTER_SETTINGS_NAME, ADAPTER_NAME):
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing in {str(folder)!r}.")
    targets, rank, scale = _read_adapter_settings(folder / ADAPTER_SETTINGS_NAME)
    found = load_file(folder / ADAPTER_NAME, device=str(model.device))
    # Poolers are not read here, and may have been left out of the model.
    weights = {name: weight for name, weight in found.items() if "pooler" not in name}
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and "pooler" not in name
        and (targets is None or name in targets or name.endswith(tuple(f".{t}" for t in targets)))
    }
    expected = {f"{_PREFIX}{name}.lora_{part}.weight" for name in layers for part in "AB"}
    absent, surplus = sorted(expected - set(weights)), sorted(set(weights) - expected)
    if absent or surplus or not expected:
        example = f" ({(absent + surplus)[0]}, ...)" if absent or surplus else ""
        raise ValueError(
            f"{ADAPTER_NAME} does not fit the model: {len(absent)} weights are missing and "
            f"{len(surplus)} have no place{example}."
        )
    for name, layer in layers.items():
        first = weights[f"{_PREFIX}{name}.lora_A.weight"].float()  # (r, in)
        second = weights[f"{_PREFIX}{name}.lora_B.weight"].float()  # (out, r)
        out_size, in_size = layer.weight.shape
        if (*second.shape, *first.shape) != (out_size, rank, rank, in_size):
            raise ValueError(
                f"{ADAPTER_NAME} does not fit: {name} takes {(out_size, rank)} times "
                f"{(rank, in_size)}, {tuple(second.shape)} times {tuple(first.shape)} came."
            )
        # In float32 whatever the model's precision, so that it is rounded once.
        merged = layer.weight.float() + scale * (second @ first)
        layer.weight = torch.nn.Parameter(merged.to(layer.weight.dtype), requires_grad=False)
    return model


_PREFIX = "base_model.model."
"""Before a layer's name in the files of `peft`."""
_IDLE = frozenset(
    {
        *("task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path"),
        *("revision", "inference_mode", "r", "target_modules", "lora_alpha", "lora_dropout"),
        *("use_rslora", "megatron_core", "qalora_group_size"),
    }
)
"""Settings that are read here, or that change nothing once an adapter is trained."""
_NOTHING: tuple[Any, ...] = (None, False, "none", {}, [])
"""Values that ask for nothing."""
_PLAIN_STARTS: tuple[Any, ...] = (True, "gaussian")
"""Starts of training that leave the model's own weights alone."""


def _read_adapter_settings(file: Path) -> tuple[frozenset[str] | None, int, float]:
    """Returns the ends of the names of the layers that an adapter changes, its rank and scale.

    None stands for all linear layers.
    """
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file.name} cannot be read as JSON: {error}.") from error
    kind = given.get("peft_type") if isinstance(given, dict) else None
    if kind != "LORA":
        raise ValueError(f"{file.name} says {kind!r}; allowed: LORA.")
    others = {name for name, v in given.items() if name not in _IDLE and v not in _NOTHING}
    if given.get("init_lora_weights") in _PLAIN_STARTS:
        others.discard("init_lora_weights")
    if others:
        raise ValueError(
            f"{file.name} asks for {', '.join(sorted(others))}; plain low-rank adapters of linear "
            "layers alone are read. Merge it into its model with `peft` and save that."
        )
    targets = given.get("target_modules")
    if targets != "all-linear" and not (
        isinstance(targets, list) and targets and all(isinstance(t, str) for t in targets)
    ):
        raise ValueError(f"{file.name} has target_modules {targets!r}; a list of names is needed.")
    rank, alpha = given.get("r"), given.get("lora_alpha")
    if not (type(rank) is int and rank > 0 and type(alpha) in (int, float)):
        raise ValueError(f"{file.name} has r {rank!r} and lora_alpha {alpha!r}; give numbers.")
    scale = alpha / math.sqrt(rank) if given.get("use_rslora") else alpha / rank
    return (None if targets == "all-linear" else frozenset(targets)), rank, float(scale)
