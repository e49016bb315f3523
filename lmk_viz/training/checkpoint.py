"""What a run leaves behind: a state to go on from, and a folder that others load.

Everything is safetensors and JSON; nothing is pickled.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from lmk_viz.adapters import LATENTS_NAME, SETTINGS_NAME
from lmk_viz.config import PoolingMode
from lmk_viz.latent_attention import LatentAttention

__all__ = ["RunState", "load_state", "save_state", "write_settings"]

STATE_NAME = "state"


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a run stands."""

    step: int
    """Steps done."""
    seconds: float
    """Time taken so far, over all sittings."""
    tokens: int
    """Tokens read so far."""
    key: str
    """Digest of settings, data and encoder; a state goes on with the same alone."""


def save_state(
    folder: Path, state: RunState, weights: Mapping[str, torch.Tensor], optimizer: Any
) -> None:
    """Writes a state in place of the one before; a reader never sees half of it.

    Args:
        folder: of the run.
        state: where it stands.
        weights: that learn, by name.
        optimizer: an AdamW over the same weights in the same order.
    """
    target, partial = folder / STATE_NAME, folder / f".{STATE_NAME}.part"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tensors = {
        f"weight.{name}": tensor.detach().cpu().contiguous() for name, tensor in weights.items()
    }
    for name, tensor in weights.items():
        for moment, value in optimizer.state.get(tensor, {}).items():
            tensors[f"{moment}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    tensors["random"] = torch.get_rng_state()
    save_file(tensors, partial / "tensors.safetensors")
    (partial / "state.json").write_text(json.dumps(asdict(state)), encoding="utf-8")
    old = folder / f".{STATE_NAME}.old"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    partial.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def load_state(
    folder: Path, key: str, weights: Mapping[str, torch.Tensor], optimizer: Any
) -> RunState | None:
    """Puts a state back and returns where the run stands, or None where there is none.

    Raises:
        ValueError: when the state is of other settings, data or encoder.
    """
    place = folder / STATE_NAME
    if not place.exists() and (folder / f".{STATE_NAME}.old").exists():
        # The run was stopped between the two renamings.
        (folder / f".{STATE_NAME}.old").rename(place)
    if not place.exists():
        return None
    values = json.loads((place / "state.json").read_text(encoding="utf-8"))
    state = RunState(**values)
    if state.key != key:
        raise ValueError(
            f"{str(folder)!r} holds a run with other settings, data or encoder; give another "
            "--output, or remove the folder to start anew."
        )
    tensors = load_file(place / "tensors.safetensors")
    for name, weight in weights.items():
        with torch.no_grad():
            weight.copy_(tensors[f"weight.{name}"])
        moments = {
            moment: tensors[f"{moment}.{name}"]
            for moment in ("step", "exp_avg", "exp_avg_sq")
            if f"{moment}.{name}" in tensors
        }
        if moments:
            optimizer.state[weight] = {
                m: value if m == "step" else value.to(weight.device) for m, value in moments.items()
            }
    torch.set_rng_state(tensors["random"])
    return state


def write_settings(
    folder: Path,
    pooling: PoolingMode,
    training_length: int,
    granularities: tuple[int, ...],
    latents: LatentAttention | None = None,
) -> None:
    """Writes what an encoder was trained for beside its weights.

    Args:
        folder: that holds the encoder or its adapter.
        pooling: that it was trained with.
        training_length: tokens of its longest training texts.
        granularities: that were drawn from.
        latents: its latent attention, if it has one.
    """
    settings: dict[str, Any] = {
        "trained_for": pooling.value,
        "training_length": training_length,
        "granularities": list(granularities),
    }
    if latents is not None:
        settings["latent_attention"] = latents.config.to_dict()
        tensors = {name: t.detach().cpu().contiguous() for name, t in latents.state_dict().items()}
        save_file(tensors, folder / LATENTS_NAME)
    (folder / SETTINGS_NAME).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
