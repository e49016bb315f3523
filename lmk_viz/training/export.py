"""From a trained model to a folder that the app and plain `transformers` load."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from lmk_viz.config import PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.training.checkpoint import write_settings
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.model import TrainedEncoder, with_adapters
from lmk_viz.training.trainer import Trained

__all__ = ["save_adapter", "save_encoder", "save_merged", "whole_model"]

RECORD_NAME = "training.json"


def whole_model(trained: TrainedEncoder, encoder: Encoder) -> PreTrainedModel:
    """Returns the trained model without adapters: merged into the encoder's own weights.

    Merged in the precision that the encoder came in, not in that of training.

    Args:
        trained: the end of a run.
        encoder: where the run started.
    """
    if not hasattr(trained.model, "peft_config"):
        model: PreTrainedModel = trained.model
        return model
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    fresh = with_adapters(copy.deepcopy(encoder.model), trained.model.peft_config["default"])
    set_peft_model_state_dict(fresh, get_peft_model_state_dict(trained.model))
    merged: PreTrainedModel = fresh.merge_and_unload()
    return merged


def save_encoder(
    run: Trained, encoder: Encoder, config: TrainingConfig, folder: Path, **record: Any
) -> None:
    """Writes the trained encoder with its tokenizer, what it was trained for, and how.

    Args:
        run: the end of a run.
        encoder: where it started.
        config: its settings.
        folder: to write to.
        record: what else to say of the run in `training.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = whole_model(run.model, encoder).to(torch.float32)
    model.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    if config.lora_rank:
        save_adapter(run, config, folder / "adapter", encoder.source, **record)
    write_settings(
        folder, config.pooling, config.passage_length, config.granularities, run.model.latents
    )
    _write_record(run, config, folder, record)


def save_merged(encoder: Any, folder: Path) -> None:
    """Writes one trained encoder as a folder of its own, its adapter added to its weights.

    Args:
        encoder: an encoder that was trained for a pooling, such as a variant of a family.
        folder: to write to; made where it is not there.

    Raises:
        ValueError: when the encoder is a whole family, or was trained for no pooling, or the
            folder cannot be written.
    """
    if encoder.trained_for is None:
        modes = [mode.value for mode in PoolingMode if mode in encoder.trained_poolings]
        # Members of the bundled family have names, those of a folder are folders in it.
        between = "/variants/" if Path(encoder.name).is_dir() else "-"
        named = ", ".join(f"{encoder.name}{between}{mode}" for mode in modes)
        raise ValueError(
            f"{encoder.name} is no encoder trained for one pooling; "
            + (f"name a variant: {named}." if named else "there is nothing to merge.")
        )
    length = encoder.training_length or encoder.max_length
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copy.deepcopy(encoder.model).float().save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
        write_settings(folder, encoder.trained_for, length, (), encoder.latents)
    except OSError as error:
        raise ValueError(f"{str(folder)!r} cannot be written: {error.strerror}.") from error


def save_adapter(
    run: Trained, config: TrainingConfig, folder: Path, base: str, **record: Any
) -> None:
    """Writes low-rank adapters in half precision, as `peft` reads them.

    Args:
        run: the end of a run with a rank.
        config: its settings.
        folder: to write to.
        base: path or hub id of the encoder that the adapter belongs to.
        record: what else to say of the run in `training.json`.
    """
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    settings = copy.deepcopy(run.model.model.peft_config["default"])
    settings.base_model_name_or_path = base
    settings.inference_mode = True
    settings.save_pretrained(folder)
    latents = None if run.model.latents is None else copy.deepcopy(run.model.latents).half()
    write_settings(folder, config.pooling, config.passage_length, config.granularities, latents)
    _write_record(run, config, folder, record)
    weights = get_peft_model_state_dict(run.model.model)
    halves = {name: tensor.detach().half().contiguous() for name, tensor in weights.items()}
    # Last, since its presence says that the folder is complete.
    save_file(halves, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _write_record(
    run: Trained, config: TrainingConfig, folder: Path, record: dict[str, Any]
) -> None:
    values = {
        **record,
        "seconds": round(run.seconds, 1),
        "tokens": run.tokens,
        "torch": torch.__version__,
        "config": config.to_dict(),
    }
    (folder / RECORD_NAME).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
