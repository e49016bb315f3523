"""What embedding, probes and retrieval ask of an encoder, and what they read off it."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.landmarks import Layout
from lmk_viz.pooling import POOLINGS

__all__ = [
    "EmbeddingEncoder",
    "checked_modes",
    "default_batch_tokens",
    "member_for",
    "pooling_passes",
    "trained_poolings",
]

BATCH_TOKENS_CPU = 2048
"""32 texts of about 1,000 tokens take lmk-mini 11.8, 12.3, 12.8 and 13.4 s of one core in batches
of 1,024, 2,048, 4,096 and 8,192 tokens: a large batch leaves the processor's cache, and texts of
unequal length need a mask, which one alone does not. Of short texts small batches cost more."""
BATCH_TOKENS_ACCELERATOR = 65536


class EmbeddingEncoder(Protocol):
    """What embedding needs of an encoder; `lmk_viz.encoder.Encoder` is one."""

    name: str

    @property
    def embedding_dim(self) -> int:
        """Size of a vector."""

    def check_pooling(self, mode: PoolingMode) -> None:
        """Raises when a pooling cannot be had."""

    def layout(
        self, text: str, kind: LayoutKind, chunking: ChunkingConfig, max_length: int | None
    ) -> Layout:
        """Returns the input for a text."""

    def embed_layouts(
        self, layouts: Sequence[Layout], poolings: Sequence[PoolingConfig], normalize: bool
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.bool_]]]:
        """Returns vectors and fallback flags, one array a pooling."""


def checked_modes(
    encoder: EmbeddingEncoder, poolings: Sequence[PoolingConfig]
) -> list[PoolingMode]:
    """Returns the modes of the poolings.

    Raises:
        ValueError: when there is none, or one twice, or one that cannot be had.
    """
    modes = [pooling.mode for pooling in poolings]
    if not modes or len(set(modes)) != len(modes):
        raise ValueError(f"poolings {[m.value for m in modes]} came; give at least one, each once.")
    for mode in modes:
        encoder.check_pooling(mode)
    return modes


def pooling_passes(
    encoder: Any, poolings: Sequence[PoolingConfig]
) -> list[tuple[PoolingConfig, ...]]:
    """Returns the poolings in groups that take one forward pass each, in order.

    Poolings that read the same layout share a pass, except in a family, where each is read from
    a variant with weights of its own.
    """
    if getattr(encoder, "variants", None):
        return [(pooling,) for pooling in poolings]
    groups: dict[LayoutKind, list[PoolingConfig]] = {}
    for pooling in poolings:
        groups.setdefault(POOLINGS[pooling.mode].layout, []).append(pooling)
    return [tuple(group) for group in groups.values()]


def member_for(encoder: Any, mode: PoolingMode) -> Any:
    """Returns the encoder that a pooling is read from: a family's variant, else the encoder."""
    pick = getattr(encoder, "encoder_for", None)
    return encoder if pick is None else pick(mode)


def trained_poolings(encoder: Any) -> frozenset[PoolingMode]:
    """Returns the poolings that an encoder, or a member of its family, was trained for."""
    known: frozenset[PoolingMode] | None = getattr(encoder, "trained_poolings", None)
    if known is not None:
        return frozenset(known)
    single: PoolingMode | None = getattr(encoder, "trained_for", None)
    return frozenset() if single is None else frozenset({single})


def default_batch_tokens(encoder: Any) -> int:
    """Returns how many padded tokens a batch may hold on the encoder's device."""
    device = getattr(encoder, "device", None)
    on_cpu = device is None or device.type == "cpu"
    return BATCH_TOKENS_CPU if on_cpu else BATCH_TOKENS_ACCELERATOR
