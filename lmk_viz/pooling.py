"""Poolings: each a layout rule, the positions it reads, and a reduction, in one registry.

A vector is read from positions that the layout knows, never from token ids: a separator
spelled in the text is not a landmark, and padding cannot leak in. Reductions run in float32
whatever the encoder's dtype, since a bfloat16 sum over thousands of tokens loses digits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.landmarks import Layout

__all__ = [
    "POOLINGS",
    "Pooling",
    "ReadPositions",
    "masked_mean",
    "parse_poolings",
    "pool",
    "pool_mask",
    "read_positions",
    "resolve",
]


@dataclass(frozen=True, slots=True)
class Pooling:
    """How one pooling mode works."""

    layout: LayoutKind
    """What goes into the encoder."""
    read: Callable[[Layout, PoolingConfig], NDArray[np.int64]]
    """Input positions that the vector is read from; empty means there are none."""
    reduce: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(token_embeddings (B, T, D), mask (B, T)) -> (B, D)."""
    needs_latents: bool = False
    """States pass through the encoder's own latent attention first."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadPositions:
    """Where a vector is read."""

    positions: NDArray[np.int64]
    """Input positions, shape (P,), at least one for a layout that is not empty."""
    fell_back: bool
    """The pooling's own positions were missing, so all positions are averaged instead."""


def masked_mean(token_embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean of the states under the mask, in float32.

    Args:
        token_embeddings: states, shape (B, T, D), any float dtype.
        mask: True where a state counts, shape (B, T), at least one a row.

    Returns:
        Means, shape (B, D), float32. States outside the mask have no influence, not even
        when they are NaN, as those of padded queries may be.

    Raises:
        ValueError: when shapes do not match or a row has nothing under the mask.

    Example:
        >>> states = torch.tensor([[[1.0], [3.0], [100.0]]])
        >>> masked_mean(states, torch.tensor([[True, True, False]])).tolist()
        [[2.0]]
    """
    if token_embeddings.ndim != 3 or mask.shape != token_embeddings.shape[:2]:
        raise ValueError(
            f"token_embeddings {tuple(token_embeddings.shape)} and mask {tuple(mask.shape)} "
            "do not match; allowed: (B, T, D) and (B, T)."
        )
    counts = mask.sum(dim=1, keepdim=True)
    if bool((counts == 0).any()):
        raise ValueError("a row has no position to read; the mask must hold one True a row.")
    states = token_embeddings.float().masked_fill(~mask.bool().unsqueeze(-1), 0.0)
    return states.sum(dim=1) / counts.float()


def _first_position(layout: Layout, _: PoolingConfig) -> NDArray[np.int64]:
    # Of the row, not of the padded batch: a left-padded row does not start at column 0.
    return np.arange(min(1, len(layout)))


def _all_positions(layout: Layout, config: PoolingConfig) -> NDArray[np.int64]:
    return np.arange(len(layout)) if config.include_special else layout.content_positions


def _every_k_positions(layout: Layout, config: PoolingConfig) -> NDArray[np.int64]:
    if config.k is None:
        raise ValueError("every_k has no step; give k, or resolve it with a chunking first.")
    return np.arange(0, len(layout), config.k)


POOLINGS: Mapping[PoolingMode, Pooling] = MappingProxyType(
    {
        PoolingMode.CLS: Pooling(LayoutKind.PLAIN, _first_position, masked_mean),
        PoolingMode.MEAN: Pooling(LayoutKind.PLAIN, _all_positions, masked_mean),
        PoolingMode.EVERY_K: Pooling(LayoutKind.PLAIN, _every_k_positions, masked_mean),
        PoolingMode.MULTI_CLS: Pooling(
            LayoutKind.MULTI_CLS, lambda layout, _: layout.cls_positions, masked_mean
        ),
        PoolingMode.LANDMARK: Pooling(
            LayoutKind.LANDMARK, lambda layout, _: layout.landmark_positions, masked_mean
        ),
        PoolingMode.LATENT_ATTENTION: Pooling(
            LayoutKind.PLAIN, _all_positions, masked_mean, needs_latents=True
        ),
    }
)
"""The one place where a pooling is registered."""


def parse_poolings(names: str) -> tuple[PoolingConfig, ...]:
    """Returns the poolings in a comma-separated list such as `cls,mean,landmark`.

    Raises:
        ValueError: when the list is empty, or names an unknown pooling or one twice.
    """
    modes = [PoolingMode(name.strip()) for name in names.split(",") if name.strip()]
    if not modes:
        allowed = ", ".join(mode.value for mode in PoolingMode)
        raise ValueError(f"no pooling given; allowed: {allowed}, separated by commas.")
    if len(set(modes)) != len(modes):
        raise ValueError(f"pooling list {names!r} names one twice; give each once.")
    return tuple(PoolingConfig(mode) for mode in modes)


def resolve(config: PoolingConfig, chunking: ChunkingConfig) -> PoolingConfig:
    """Returns the pooling with every_k's step taken from the granularity where it has none."""
    if config.mode is PoolingMode.EVERY_K and config.k is None:
        return replace(config, k=chunking.granularity)
    return config


def read_positions(layout: Layout, config: PoolingConfig) -> ReadPositions:
    """Returns the positions a pooling reads, or all of them where it has none of its own.

    Args:
        layout: of the kind that the pooling asks for.
        config: a resolved pooling.

    Raises:
        ValueError: when the layout is of another kind.
    """
    pooling = POOLINGS[config.mode]
    if layout.kind is not pooling.layout:
        raise ValueError(
            f"{config.mode.value} reads a {pooling.layout.value} layout; "
            f"a {layout.kind.value} layout came."
        )
    positions = pooling.read(layout, config)
    if len(positions):
        return ReadPositions(positions, fell_back=False)
    # As the authors' evaluation does when truncation took every landmark.
    return ReadPositions(np.arange(len(layout)), fell_back=True)


def pool_mask(
    reads: Sequence[ReadPositions], shifts: NDArray[np.int64], length: int
) -> NDArray[np.bool_]:
    """Returns the read positions of a padded batch as a mask, shape (B, T).

    Args:
        reads: one a row.
        shifts: columns of padding before each row, shape (B,).
        length: columns of the batch, T.
    """
    mask = np.zeros((len(reads), length), dtype=bool)
    for row, (read, shift) in enumerate(zip(reads, shifts.tolist(), strict=True)):
        mask[row, read.positions + shift] = True
    return mask


def pool(
    token_embeddings: torch.Tensor,
    mask: torch.Tensor,
    mode: PoolingMode | str = PoolingMode.LANDMARK,
    normalize: bool = False,
    latents: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Returns one vector a row.

    Args:
        token_embeddings: last hidden states, shape (B, T, D).
        mask: the positions that this pooling reads, from `pool_mask`, shape (B, T).
        mode: the pooling.
        normalize: scale each vector to length 1.
        latents: the encoder's latent attention, (B, T, D) -> (B, T, D); read by the pooling
            that needs it and by no other.

    Returns:
        Embeddings, shape (B, D), float32.

    Raises:
        ValueError: when latent attention is asked for and there is none.
    """
    pooling = POOLINGS[PoolingMode(mode)]
    if pooling.needs_latents:
        if latents is None:
            raise ValueError(f"{PoolingMode(mode).value} needs the layer it was trained with.")
        token_embeddings = latents(token_embeddings)
    embeddings = pooling.reduce(token_embeddings, mask)
    if normalize:
        # The floor keeps a zero vector zero instead of making it NaN.
        embeddings = embeddings / embeddings.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return embeddings
