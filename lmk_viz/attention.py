"""Attention rows, captured inside the attention function and reduced there.

A row is one query position over the keys it can reach; it sums to 1. Only the rows of CLS and
of the landmarks are computed, a tile of queries at a time, layer by layer, and each tile is
handed to a reducer at once: an n x n map never exists. The model itself runs its ordinary
SDPA forward, and its local layers in blocks (`lmk_viz.local_attention`).

Two registrations are needed. Without the second, transformers builds no mask at all for an
attention name it does not know, so that padding and local windows would silently vanish.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface

from lmk_viz.local_attention import LocalMask, build_mask, local_attention

__all__ = [
    "ATTENTION_NAME",
    "TILE_BYTES",
    "Capture",
    "CaptureStoppedError",
    "RowReducer",
    "capture_rows",
]

ATTENTION_NAME = "lmk_viz_rows"
"""Under which the capturing attention is registered with transformers."""

TILE_BYTES = 16 * 2**20
"""Upper size of one float32 tile of rows (heads x queries x keys)."""


MIN_TILE_WIDTH = 512
"""Columns over which the queries of a local layer's tile are spread at least."""


class RowReducer(Protocol):
    """Takes tiles of rows as they are computed, layer after layer."""

    def add(self, layer: int, item: int, first: int, rows: torch.Tensor, start: int) -> None:
        """Takes the rows of queries `first`, `first + 1`, ... of one batch item.

        Args:
            layer: from zero.
            item: row of the batch.
            first: index of the tile's first query among the item's queries.
            rows: softmaxed weights on the keys `start`, `start + 1`, ..., shape (H, R, W),
                float32; each sums to 1, and keys outside have weight 0.
            start: column of the first key.
        """


class CaptureStoppedError(Exception):
    """A forward was stopped between two layers, as its caller wished."""


@dataclass(slots=True)
class Capture:
    """What one forward captures; lives in a context variable while it runs."""

    queries: tuple[torch.Tensor, ...]
    """Query columns of each batch item, rising, each shape (Q_b,)."""
    reducer: RowReducer
    on_layer: Callable[[int], None] | None = None
    should_stop: Callable[[], bool] | None = None
    layers_seen: int = field(default=0, init=False)


_current: ContextVar[Capture | None] = ContextVar("lmk_viz_capture", default=None)


@contextmanager
def capture_rows(
    queries: Sequence[torch.Tensor],
    reducer: RowReducer,
    on_layer: Callable[[int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Iterator[Capture]:
    """Captures the attention rows of the forwards run inside, on this thread only.

    Args:
        queries: attended columns whose rows are wanted, rising, one tensor a batch item.
        reducer: takes the rows.
        on_layer: called with the layer number after each layer; may raise to cancel.
        should_stop: asked after each layer; when it says so, the forward ends with
            `CaptureStoppedError` and the layers seen so far stand.

    Yields:
        The capture, whose `layers_seen` tells how many layers reported.
    """
    capture = Capture(tuple(queries), reducer, on_layer, should_stop)
    token = _current.set(capture)
    try:
        yield capture
    finally:
        _current.reset(token)


def _attention_with_rows(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | LocalMask | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Runs the layer's attention; hands the wanted rows to the current capture, if any.

    Args:
        module: the attention layer.
        query: shape (B, H, T, d).
        key: shape (B, H_kv, T, d), H a multiple of H_kv.
        value: shape (B, H_kv, T, d).
        attention_mask: boolean or additive, shape (B, 1 or H, T, T), a window, or None.
        scaling: of the logits; None means 1 / sqrt(d).
        is_causal: whether None as mask means causal; else the layer's own word counts.
        kwargs: passed on.
    """
    capture = _current.get()
    if capture is not None:
        for name in ("position_bias", "softcap", "s_aux"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"{type(module).__name__} adds {name} to its attention, which row capture "
                    "does not compute; choose an encoder with plain softmax attention."
                )
        causal = is_causal if is_causal is not None else bool(getattr(module, "is_causal", True))
        _compute_rows(capture, query, key, attention_mask, scaling, causal)
    if isinstance(attention_mask, LocalMask):
        out = local_attention(query, key, value, attention_mask, scaling)
        return out.transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(  # type: ignore[no-any-return]
        module,
        query,
        key,
        value,
        attention_mask,
        scaling=scaling,
        is_causal=is_causal,
        **kwargs,
    )


AttentionInterface.register(ATTENTION_NAME, _attention_with_rows)
AttentionMaskInterface.register(ATTENTION_NAME, build_mask)


@torch.no_grad()
def _compute_rows(
    capture: Capture,
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | LocalMask | None,
    scaling: float | None,
    causal: bool,
) -> None:
    # Layers report in the order they run, which for an encoder is their number; a module's
    # own `layer_idx` is missing in several architectures.
    layer = capture.layers_seen
    _, heads, length, size = query.shape
    key_heads = key.shape[1]
    scale = size**-0.5 if scaling is None else scaling
    for item, columns in enumerate(capture.queries):
        for first, count, start, stop in _tiles(columns, mask, heads, length):
            at = columns[first : first + count]
            wanted = query[item][:, at].float()  # (H, R, d)
            grouped = wanted.reshape(key_heads, -1, size)  # (H_kv, H/H_kv * R, d)
            keys = key[item, :, start:stop].float()  # (H_kv, W, d)
            logits = (grouped @ keys.transpose(1, 2)).mul_(scale)
            logits = logits.reshape(heads, len(at), stop - start)  # (H, R, W)
            if isinstance(mask, LocalMask):
                seen = mask.rows(item, at, start, stop)  # (R, W)
                logits = logits.masked_fill_(~seen, float("-inf"))
            elif mask is not None:
                # A mask of one batch row or one head serves them all.
                rows = mask[item if mask.shape[0] > 1 else 0][:, at]  # (1 or H, R, T)
                if rows.dtype == torch.bool:
                    logits = logits.masked_fill_(~rows, float("-inf"))
                else:
                    logits = logits.add_(rows.float())
            elif causal:
                later = torch.arange(length, device=at.device)[None, :] > at[:, None]
                logits = logits.masked_fill_(later, float("-inf"))
            capture.reducer.add(layer, item, first, torch.softmax(logits, dim=-1), start)
    capture.layers_seen += 1
    if capture.on_layer is not None:
        capture.on_layer(layer)
    if capture.should_stop is not None and capture.should_stop():
        raise CaptureStoppedError


def _tiles(
    columns: torch.Tensor, mask: torch.Tensor | LocalMask | None, heads: int, length: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yields first query, number of queries, first key and one past the last key of each tile.

    A tile of a local layer holds the queries that lie within a few windows' width: wide enough
    that calls do not cost more than the work, narrow enough that few keys are out of reach.
    """
    if not isinstance(mask, LocalMask):
        size = max(1, TILE_BYTES // (heads * length * 4))
        for first in range(0, len(columns), size):
            yield first, min(size, len(columns) - first), 0, length
        return
    places = columns.tolist()
    width = max(MIN_TILE_WIDTH, mask.before + mask.after)
    first = 0
    while first < len(places):
        start = max(0, places[first] - mask.before)
        end = first + 1
        stop = min(length, places[first] + mask.after + 1)
        while end < len(places) and places[end] - places[first] < width:
            wider = min(length, places[end] + mask.after + 1)
            if 4 * heads * (end + 1 - first) * (wider - start) > TILE_BYTES:
                break
            end, stop = end + 1, wider
        yield first, end - first, start, stop
        first = end
