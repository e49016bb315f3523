"""The encoder as it is trained: layouts in, one unit vector a text out."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.landmarks import Layout, collate
from lmk_viz.latent_attention import LatentAttention, LatentConfig
from lmk_viz.pooling import POOLINGS, pool, pool_mask, read_positions
from lmk_viz.training.config import TrainingConfig

__all__ = ["Inputs", "TrainedEncoder", "build_inputs", "uses_bfloat16", "with_adapters"]

CPU_TOKENS = 2048
"""Padded tokens that go through the model at once on a CPU, where padding costs as much as text
and caches are small. Vectors are the same, and the loss sees the whole batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A padded batch with the positions that the pooling reads."""

    input_ids: torch.Tensor
    """Shape (B, T), int64."""
    attention_mask: torch.Tensor
    """Shape (B, T), int64."""
    read_mask: torch.Tensor
    """Shape (B, T), bool."""

    @property
    def n_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.attention_mask.sum())

    def to(self, device: torch.device) -> "Inputs":
        """Returns the batch on a device."""
        return Inputs(
            self.input_ids.to(device), self.attention_mask.to(device), self.read_mask.to(device)
        )


def build_inputs(
    encoder: Encoder,
    texts: Sequence[str],
    mode: PoolingMode,
    granularities: Sequence[int],
    max_length: int,
) -> Inputs:
    """Returns texts as a batch, each cut at its own granularity.

    Args:
        encoder: makes layouts; its weights are not used.
        texts: one a row.
        mode: what will be pooled.
        granularities: of each text, also its step of every_k.
        max_length: longest input; what is longer is cut.
    """
    kind = POOLINGS[mode].layout
    layouts: list[Layout] = []
    reads = []
    for text, granularity in zip(texts, granularities, strict=True):
        layout = encoder.layout(text, kind, ChunkingConfig(granularity=granularity), max_length)
        step = granularity if mode is PoolingMode.EVERY_K else None
        layouts.append(layout)
        reads.append(read_positions(layout, PoolingConfig(mode, k=step)))
    batch = collate(layouts, encoder.special_ids.pad)
    shifts = np.zeros(len(layouts), dtype=np.int64)
    return Inputs(
        torch.from_numpy(batch.input_ids.copy()),
        torch.from_numpy(batch.attention_mask.copy()),
        torch.from_numpy(pool_mask(reads, shifts, batch.input_ids.shape[1])),
    )


class TrainedEncoder(nn.Module):
    """A private copy of an encoder's model with the pooling it is trained for.

    With a rank the model's own weights stay and low-rank adapters on its linear layers learn
    (LoRA, arXiv 2106.09685, by the package `peft`).
    """

    def __init__(self, encoder: Encoder, config: TrainingConfig) -> None:
        super().__init__()
        self.mode = config.pooling
        model: Any = copy.deepcopy(encoder.model)
        model.set_attn_implementation(_attention_for(encoder.device, config))
        model.train()
        if config.lora_rank:
            from peft import LoraConfig

            settings = LoraConfig(
                r=config.lora_rank,
                lora_alpha=2 * config.lora_rank,
                lora_dropout=0.0,
                target_modules="all-linear",
            )
            model.requires_grad_(False)
            if uses_bfloat16(config, encoder.device):
                # They never change, so there is nothing to lose by rounding them once.
                model.to(torch.bfloat16)
            model = with_adapters(model, settings)
        else:
            for name, weight in model.named_parameters():
                weight.requires_grad_(not name.startswith(config.frozen))
            # Pooler heads see no gradient here, and would stop a distributed run.
            for name, weight in model.named_parameters():
                if name.startswith("pooler"):
                    weight.requires_grad_(False)
        self.model = model
        self.latents: LatentAttention | None = None
        if POOLINGS[config.pooling].needs_latents:
            self.latents = LatentAttention(LatentConfig.for_hidden(encoder.embedding_dim))
            self.latents.to(encoder.device)

    def forward(self, *batches: Inputs) -> tuple[torch.Tensor, ...]:
        """Returns the unit vectors of each batch, shape (B, D), float32.

        All batches of a step come in one call, which is what a distributed wrapper asks for.
        """
        return tuple(self._embed(batch) for batch in batches)

    def _embed(self, batch: Inputs) -> torch.Tensor:
        lengths = batch.attention_mask.sum(dim=1)
        order = lengths.argsort(stable=True)
        parts = []
        for rows, width in _portions(lengths[order].tolist(), batch.input_ids):
            chosen = order[rows]
            states = self.model(
                input_ids=_fitted(batch.input_ids[chosen], width),
                attention_mask=_fitted(batch.attention_mask[chosen], width),
            ).last_hidden_state
            read = _fitted(batch.read_mask[chosen], width)
            parts.append(pool(states, read, self.mode, True, self.latents))
        return torch.cat(parts)[order.argsort()]

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the weights that learn, with their names."""
        yield from ((name, p) for name, p in self.named_parameters() if p.requires_grad)


def with_adapters(model: PreTrainedModel, settings: Any) -> Any:
    """Returns the model with fresh low-rank adapters, by `peft`.

    Args:
        model: whose linear layers get them.
        settings: a `peft.LoraConfig`.
    """
    from peft import get_peft_model

    with warnings.catch_warnings():
        # peft still asks transformers by a name that it has given up.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        return get_peft_model(model, settings)


def uses_bfloat16(config: TrainingConfig, device: torch.device) -> bool:
    """Returns whether forward and backward run in bfloat16."""
    if config.precision == "auto":
        return device.type != "cpu"
    return config.precision == "bfloat16"


def _attention_for(device: torch.device, config: TrainingConfig) -> str:
    """Returns the library's attention to train with; rows are not captured here.

    On a CPU the backward pass of the fused kernel takes longer than plain matrix products as
    long as the products fit in memory.
    """
    return "eager" if device.type == "cpu" and config.passage_length <= 512 else "sdpa"


def _portions(lengths: list[int], input_ids: torch.Tensor) -> list[tuple[slice, int]]:
    """Returns what goes through the model at once, of rows sorted by length, and its width.

    On a CPU rows of like length go together, in a few shapes: widths are multiples of 32 and
    numbers of rows powers of two, since matrix kernels are compiled anew for every shape.
    """
    if input_ids.device.type != "cpu":
        return [(slice(0, len(lengths)), input_ids.shape[1])]
    portions: list[tuple[slice, int]] = []
    last = len(lengths)
    while last:
        width = -(-lengths[last - 1] // 32) * 32
        rows = min(last, max(1, CPU_TOKENS // width))
        rows = 1 << (rows.bit_length() - 1)
        portions.append((slice(last - rows, last), width))
        last -= rows
    return portions[::-1]


def _fitted(values: torch.Tensor, width: int) -> torch.Tensor:
    """Returns right-padded rows at a width, cut or filled with zeros."""
    if values.shape[1] >= width:
        return values[:, :width]
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))
