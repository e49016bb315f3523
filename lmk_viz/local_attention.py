"""Sliding-window attention in blocks: each block of queries against its window of keys.

Stock transformers runs a local layer as dense attention under an n x n mask wherever
FlashAttention is not at hand. Here the mask of such a layer is described, not built, and
queries are taken a block at a time with just the keys that they can reach, which makes time
and memory linear in the length. The result is the dense one up to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.masking_utils import sdpa_mask

__all__ = ["LocalMask", "build_mask", "local_attention"]

MIN_BLOCK = 128
"""Smallest block of queries; smaller ones spend their time on calls."""

MaskFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class LocalMask:
    """Which keys a query sees in a local layer: a window round it, less the padding."""

    before: int
    """Keys reached to the left of the query."""
    after: int
    """Keys reached to its right."""
    padding: torch.Tensor | None
    """True at attended keys, shape (B, T); None where nothing is padded."""

    def rows(self, item: int, columns: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Returns which of the keys `start` to `stop` some queries see, shape (R, stop - start).

        Args:
            item: row of the batch.
            columns: the queries, shape (R,).
            start: first key.
            stop: one past the last key.
        """
        keys = torch.arange(start, stop, device=columns.device)
        offset = keys[None, :] - columns[:, None]
        seen = (offset >= -self.before) & (offset <= self.after)
        return seen if self.padding is None else seen & self.padding[item, start:stop]


def build_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> "torch.Tensor | LocalMask | None":
    """Returns a description of a local mask, and SDPA's own mask for everything else.

    Takes what transformers gives to a mask builder (`AttentionMaskInterface`). The window is
    read off the mask function itself, so that neither off-by-one conventions nor new kinds
    of windows can slip through: what is not one plain window gets the dense mask.
    """
    if local_size is not None and mask_function is not None and not use_vmap:
        window = _read_window(mask_function, local_size, device)
        if window is not None and q_length == kv_length and not (q_offset or kv_offset):
            padding = None
            if attention_mask is not None and not bool(attention_mask.all()):
                padding = attention_mask.bool()
            return LocalMask(*window, padding)
    dense: torch.Tensor | None = sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        local_size=local_size,
        use_vmap=use_vmap,
        device=device,
        **kwargs,
    )
    return dense


def local_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: LocalMask,
    scaling: float | None = None,
) -> torch.Tensor:
    """Returns softmax attention inside a window, without the n x n map.

    Args:
        query: shape (B, H, T, d).
        key: shape (B, H_kv, T, d), H a multiple of H_kv.
        value: shape (B, H_kv, T, d).
        mask: the window and the padding.
        scaling: of the logits; None means 1 / sqrt(d).

    Returns:
        Shape (B, H, T, d). Rows of padded queries are finite and mean nothing.
    """
    batch, heads, length, size = query.shape
    if key.shape[1] != heads:
        key = key.repeat_interleave(heads // key.shape[1], dim=1)
        value = value.repeat_interleave(heads // value.shape[1], dim=1)
    block = max(MIN_BLOCK, mask.before + mask.after)
    blocks = -(-length // block)
    reach = mask.before + block + mask.after
    end = blocks * block - length

    def windows(states: torch.Tensor) -> torch.Tensor:
        """(B, H, T, d) -> (B * blocks, H, reach, d): the keys of each block of queries."""
        padded = torch.nn.functional.pad(states, (0, 0, mask.before, end + mask.after))
        views = padded.unfold(2, reach, block)  # (B, H, blocks, d, reach)
        return views.permute(0, 2, 1, 4, 3).reshape(batch * blocks, heads, reach, size)

    queries = torch.nn.functional.pad(query, (0, 0, 0, end))
    queries = queries.reshape(batch, heads, blocks, block, size).transpose(1, 2)
    out = torch.nn.functional.scaled_dot_product_attention(
        queries.reshape(batch * blocks, heads, block, size),
        windows(key),
        windows(value),
        attn_mask=_block_mask(mask, batch, blocks, block, length, query.device),
        scale=scaling,
    )  # (B * blocks, H, block, d)
    out = out.reshape(batch, blocks, heads, block, size).transpose(1, 2)
    return out.reshape(batch, heads, blocks * block, size)[:, :, :length]


def _block_mask(
    mask: LocalMask, batch: int, blocks: int, block: int, length: int, device: torch.device
) -> torch.Tensor:
    """Returns which keys of its window each query of each block sees.

    Shape (B * blocks, 1, block, reach). A query always sees itself: a row without any key
    would be NaN, and padded queries would carry it into the next layer.
    """
    reach = mask.before + block + mask.after
    rows = torch.arange(block, device=device)[:, None]
    places = torch.arange(reach, device=device)[None, :] - mask.before  # relative to the block
    offset = places - rows
    band = (offset >= -mask.before) & (offset <= mask.after)  # (block, reach)
    keys = torch.arange(blocks, device=device)[:, None] * block + places  # (blocks, reach)
    inside = (keys >= 0) & (keys < length)
    if mask.padding is None:
        present = inside.expand(batch, blocks, reach)
    else:
        attended = mask.padding[:, keys.clamp(0, length - 1)]  # (B, blocks, reach)
        present = attended & inside
    seen = (band & present[:, :, None, :]) | (offset == 0)
    return seen.reshape(batch * blocks, 1, block, reach)


def _read_window(
    mask_function: MaskFunction, local_size: int, device: torch.device | str
) -> tuple[int, int] | None:
    """Returns how far a mask function lets a query see left and right, if it is one window."""
    span = 2 * local_size + 4
    zero = torch.zeros(1, dtype=torch.long, device=device)
    # Two queries far from the start, to see that the window moves along with them.
    found = []
    for query in (span, 3 * span):
        keys = torch.arange(query - span, query + span + 1, device=device)
        seen = mask_function(zero, zero, torch.full_like(keys, query), keys)
        offsets = (keys - query)[seen.reshape(-1).bool()]
        if not len(offsets) or len(offsets) != int(offsets[-1] - offsets[0]) + 1:
            return None
        found.append((-int(offsets[0]), int(offsets[-1])))
    before, after = found[0]
    whole = max(before, after) >= span
    return None if found[0] != found[1] or whole or min(before, after) < 0 else (before, after)
