"""A tiny family of encoders as training writes it: a backbone, and an adapter for each pooling."""

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import PreTrainedModel

from lmk_viz.config import PoolingMode
from lmk_viz.latent_attention import LatentAttention, LatentConfig
from lmk_viz.training.checkpoint import write_settings

VARIANTS = (
    PoolingMode.CLS,
    PoolingMode.MEAN,
    PoolingMode.LANDMARK,
    PoolingMode.EVERY_K,
    PoolingMode.LATENT_ATTENTION,
)
TRAINING_LENGTH = 48


def random_latents(hidden: int, seed: int = 0) -> LatentAttention:
    """A latent attention of which every part does something."""
    generator = torch.Generator().manual_seed(seed)
    latents = LatentAttention(LatentConfig(hidden, latents=3, heads=2, head_size=4, expansion=2))
    with torch.no_grad():
        for weight in latents.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
    return latents.eval().requires_grad_(False)


def adapted(model: PreTrainedModel, seed: int) -> PeftModel:
    """A copy of a model with random adapters on all its linear layers."""
    settings = LoraConfig(r=2, lora_alpha=4, target_modules="all-linear")
    with warnings.catch_warnings():
        # The package asks transformers for something by its former name.
        warnings.simplefilter("ignore", FutureWarning)
        wrapped: PeftModel = get_peft_model(copy.deepcopy(model), settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator).half() * 0.2)
    return wrapped


def write_variant(folder: Path, wrapped: PeftModel, mode: PoolingMode) -> None:
    """Writes one adapter as the recipe does."""
    folder.mkdir(parents=True)
    weights = get_peft_model_state_dict(wrapped)
    settings = wrapped.peft_config["default"]
    settings.base_model_name_or_path = "../.."
    settings.save_pretrained(folder)
    latents = None
    if mode is PoolingMode.LATENT_ATTENTION:
        latents = random_latents(wrapped.config.hidden_size).half()
    write_settings(folder, mode, TRAINING_LENGTH, (4, 8), latents)
    save_file(
        {name: w.detach().half().contiguous() for name, w in weights.items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )


def write_family(
    folder: Path, model: PreTrainedModel, tokenizer: Any, modes: Sequence[PoolingMode] = VARIANTS
) -> None:
    """Writes a backbone and an adapter for each pooling, each with weights of its own."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for seed, mode in enumerate(modes):
        write_variant(folder / "variants" / mode.value, adapted(model, seed), mode)


def latents_by_hand(state: np.ndarray, weights: Mapping[str, np.ndarray], heads: int) -> np.ndarray:
    """What latent attention makes of one state, shape (D,), in numpy and one head at a time."""

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        scaled = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    latents = [norm(row, "latent_norm") for row in weights["latents"]]
    query = weights["to_query.weight"] @ norm(state, "query_norm")
    width = len(query)
    key_values = [weights["to_key_value.weight"] @ latent for latent in latents]
    found = []
    for part in np.split(np.arange(width), heads):
        logits = np.array([query[part] @ kv[:width][part] for kv in key_values])
        shares = np.exp(logits / np.sqrt(len(part)))
        shares /= shares.sum()
        found.append(sum(s * kv[width:][part] for s, kv in zip(shares, key_values, strict=True)))
    state = state + weights["to_output.weight"] @ np.concatenate(found)
    inner = weights["gate_and_value.weight"] @ norm(state, "feed_forward_norm")
    gate, value = np.split(inner + weights["gate_and_value.bias"], 2)
    gelu = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in gate])
    out = weights["feed_forward_output.weight"] @ (gelu * value)
    return np.asarray(state + out + weights["feed_forward_output.bias"])
