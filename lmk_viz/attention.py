"""Attention rows, captured inside the attention function and reduced there.

A row is one query position over all keys; it sums to 1. Only the rows of CLS and of the
landmarks are computed, a tile of queries at a time, layer by layer, and each tile is handed
to a reducer at once: an n x n map never exists. The model itself runs its ordinary SDPA
forward.

Two registrations are needed. Without the second, transformers builds no mask at all for an
attention name it does not know, so that padding and local windows would silently vanish.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from lmk_viz.config import AttentionConfig, LayerKind, PoolingMode

__all__ = [
    "ATTENTION_NAME",
    "SCALARS",
    "AttentionProfile",
    "BinnedRows",
    "Capture",
    "RowReducer",
    "bin_edges",
    "capture_rows",
    "row_scalars",
]

ATTENTION_NAME = "lmk_viz_rows"
"""Under which the capturing attention is registered with transformers."""

TILE_BYTES = 32 * 2**20
"""Upper size of one float32 tile of rows (heads x queries x keys)."""

N_SPECIAL_GROUPS = 3
"""Key groups behind the content bins: CLS, landmarks, other special tokens."""


SCALARS = ("first_tenth", "centre_of_mass", "half_mass_position", "entropy")
"""What `row_scalars` gives, in its order."""


class RowReducer(Protocol):
    """Takes tiles of rows as they are computed, layer after layer."""

    def add(self, layer: int, item: int, first: int, rows: torch.Tensor) -> None:
        """Takes the rows of queries `first`, `first + 1`, ... of one batch item.

        Args:
            layer: from zero.
            item: row of the batch.
            first: index of the tile's first query among the item's queries.
            rows: softmaxed weights, shape (H, R, T), float32; each sums to 1.
        """


@dataclass(slots=True)
class Capture:
    """What one forward captures; lives in a context variable while it runs."""

    queries: tuple[torch.Tensor, ...]
    """Query columns of each batch item, each shape (Q_b,)."""
    reducer: RowReducer
    on_layer: Callable[[int], None] | None = None
    layers_seen: int = field(default=0, init=False)


_current: ContextVar[Capture | None] = ContextVar("lmk_viz_capture", default=None)


@contextmanager
def capture_rows(
    queries: Sequence[torch.Tensor],
    reducer: RowReducer,
    on_layer: Callable[[int], None] | None = None,
) -> Iterator[Capture]:
    """Captures the attention rows of the forwards run inside, on this thread only.

    Args:
        queries: attended columns whose rows are wanted, one tensor a batch item.
        reducer: takes the rows.
        on_layer: called with the layer number after each layer; may raise to cancel.

    Yields:
        The capture, whose `layers_seen` tells how many layers reported.
    """
    capture = Capture(tuple(queries), reducer, on_layer)
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
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Runs SDPA unchanged; hands the wanted rows to the current capture, if there is one.

    Args:
        module: the attention layer.
        query: shape (B, H, T, d).
        key: shape (B, H_kv, T, d), H a multiple of H_kv.
        value: shape (B, H_kv, T, d).
        attention_mask: boolean or additive, shape (B, 1 or H, T, T), or None.
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
AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)


@torch.no_grad()
def _compute_rows(
    capture: Capture,
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    causal: bool,
) -> None:
    # Layers report in the order they run, which for an encoder is their number; a module's
    # own `layer_idx` is missing in several architectures.
    layer = capture.layers_seen
    _, heads, length, head_size = query.shape
    key_heads = key.shape[1]
    scale = head_size**-0.5 if scaling is None else scaling
    tile = max(1, TILE_BYTES // (heads * length * 4))
    for item, columns in enumerate(capture.queries):
        keys = key[item].float()  # (H_kv, T, d)
        for first in range(0, len(columns), tile):
            at = columns[first : first + tile]
            wanted = query[item][:, at].float()  # (H, R, d)
            grouped = wanted.reshape(key_heads, -1, head_size)  # (H_kv, H/H_kv * R, d)
            logits = (grouped @ keys.transpose(1, 2)).mul_(scale)
            logits = logits.reshape(heads, len(at), length)  # (H, R, T)
            if mask is not None:
                # A mask of one batch row or one head serves them all.
                rows = mask[item if mask.shape[0] > 1 else 0][:, at]  # (1 or H, R, T)
                if rows.dtype == torch.bool:
                    logits = logits.masked_fill_(~rows, float("-inf"))
                else:
                    logits = logits.add_(rows.float())
            elif causal:
                later = torch.arange(length, device=at.device)[None, :] > at[:, None]
                logits = logits.masked_fill_(later, float("-inf"))
            capture.reducer.add(layer, item, first, torch.softmax(logits, dim=-1))
    capture.layers_seen += 1
    if capture.on_layer is not None:
        capture.on_layer(layer)


def row_scalars(content: torch.Tensor) -> torch.Tensor:
    """Returns four numbers that say where rows look among the text tokens.

    Args:
        content: weights on text tokens, shape (..., n), n at least 1; scaled to sum to 1 first.

    Returns:
        Shape (..., 4), each in 0..1: the mass on the first tenth of the tokens (a token that
        the border cuts counts by its part), the centre of mass and the position where half
        the mass is reached (0 the first token, 1 the last), and the entropy by its highest
        value, log n. A row without any mass gives zeros.

    Example:
        >>> row_scalars(torch.full((20,), 0.02)).mul(100).round().int().tolist()
        [10, 50, 47, 100]
    """
    n = content.shape[-1]
    total = content.sum(dim=-1, keepdim=True)
    weights = content / total.clamp_min(1e-30)
    places = torch.arange(n, device=content.device, dtype=torch.float32)
    in_first_tenth = (n / 10 - places).clamp(0.0, 1.0)
    last = max(n - 1, 1)
    half = (weights.cumsum(dim=-1) < 0.5 - 1e-6).sum(dim=-1).clamp_max(n - 1)
    entropy = torch.special.entr(weights).sum(dim=-1)
    scalars = torch.stack(
        [
            weights @ in_first_tenth,
            weights @ (places / last),
            half.float() / last,
            entropy / math.log(n) if n > 1 else torch.ones_like(entropy),
        ],
        dim=-1,
    )
    return torch.where(total > 0, scalars, 0.0)


def bin_edges(n: int, bins: int) -> NDArray[np.int64]:
    """Returns the edges of equal bins over n text tokens, each holding at least one.

    Args:
        n: number of tokens.
        bins: wanted number of bins.

    Returns:
        Strictly rising edges from 0 to n, shape (min(n, bins) + 1,); for n = 0 just [0].

    Example:
        >>> bin_edges(7, 3).tolist(), bin_edges(2, 64).tolist()
        ([0, 2, 4, 7], [0, 1, 2])
    """
    count = min(n, bins)
    if count == 0:
        return np.zeros(1, dtype=np.int64)
    return (np.arange(count + 1, dtype=np.int64) * n) // count


class BinnedRows:
    """Reduces rows of one text to sums over key groups, for CLS and for the landmarks.

    Groups are the content bins, then CLS keys, landmark keys and other special keys. The
    groups cover every attended key, so a row's groups sum to 1 as the row does.
    """

    def __init__(
        self,
        groups: torch.Tensor,
        n_groups: int,
        n_cls: int,
        keep_landmarks: bool = False,
        content: torch.Tensor | None = None,
    ) -> None:
        """Prepares the reduction.

        Args:
            groups: key group of each input position, shape (T,).
            n_groups: number of groups, G.
            n_cls: how many of the first queries are CLS rows (0 or 1); the rest are landmarks.
            keep_landmarks: also keep each landmark's own row, averaged over heads.
            content: input positions of the text tokens, shape (n,), to compute scalars of
                each row over them; None for no scalars.
        """
        self._content = content
        self._one_hot = torch.nn.functional.one_hot(groups, n_groups).float()  # (T, G)
        self._n_cls = n_cls
        self._keep = keep_landmarks
        self.cls: list[torch.Tensor] = []
        """One (H, G) a layer."""
        self.landmark_sum: list[torch.Tensor] = []
        """One (H, G) a layer, summed over landmarks."""
        self.landmarks: list[list[torch.Tensor]] = []
        """Tiles of (R, G) a layer, mean over heads, when they are kept."""
        self.cls_scalars: list[torch.Tensor] = []
        """One (H, S) a layer, S as in `SCALARS`."""
        self.landmark_scalar_sum: list[torch.Tensor] = []
        """One (H, S) a layer, summed over landmarks."""

    def add(self, layer: int, item: int, first: int, rows: torch.Tensor) -> None:
        """Takes a tile; see `RowReducer.add`. Only batches of one text are binned."""
        if item != 0:
            raise ValueError("binned rows are captured for one text at a time.")
        masses = rows @ self._one_hot  # (H, R, G)
        if layer == len(self.cls):
            empty = masses.new_zeros(masses.shape[0], masses.shape[2])
            self.cls.append(empty)
            self.landmark_sum.append(empty.clone())
            self.landmarks.append([])
            self.cls_scalars.append(rows.new_zeros(rows.shape[0], len(SCALARS)))
            self.landmark_scalar_sum.append(self.cls_scalars[layer].clone())
        n_cls = max(0, self._n_cls - first)
        if n_cls:
            self.cls[layer] = masses[:, 0]
        rest = masses[:, n_cls:]
        self.landmark_sum[layer] += rest.sum(dim=1)
        if self._keep and rest.shape[1]:
            self.landmarks[layer].append(rest.mean(dim=0))
        if self._content is not None and len(self._content):
            scalars = row_scalars(rows[:, :, self._content])  # (H, R, S)
            if n_cls:
                self.cls_scalars[layer] = scalars[:, 0]
            self.landmark_scalar_sum[layer] += scalars[:, n_cls:].sum(dim=1)


class ProfileRow(NamedTuple):
    """One kind of attention row of a profile, in every layer and head."""

    mass: NDArray[np.float32]
    """On content bins, shape (L, H, N)."""
    special: NDArray[np.float32]
    """On CLS, landmark and other special keys, shape (L, H, 3)."""
    scalars: NDArray[np.float32]
    """In the order of `SCALARS`, shape (L, H, 4)."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionProfile:
    """Where the CLS row and the landmark rows of one text look, per layer and head.

    Masses are shares of a whole row: over content bins and the three special groups they
    sum to 1.
    """

    layer_kinds: tuple[LayerKind, ...]
    windows: tuple[int | None, ...]
    """Keys reached on each side in a local layer; None in a global one."""
    edges: NDArray[np.int64]
    """Bin edges in text tokens, shape (N + 1,)."""
    n_content: int
    landmark_tokens: NDArray[np.int64]
    """Text tokens before each landmark, shape (K,): where it stands on the token axis."""
    cls_mass: NDArray[np.float32] | None
    """Mass of the CLS row on each bin, shape (L, H, N); None without a CLS."""
    cls_special: NDArray[np.float32] | None
    """Its mass on CLS, landmark and other special keys, shape (L, H, 3)."""
    landmark_mass: NDArray[np.float32] | None
    """Mean over the landmark rows, shape (L, H, N); None without landmarks."""
    landmark_special: NDArray[np.float32] | None
    """Shape (L, H, 3)."""
    cls_scalars: NDArray[np.float32] | None = None
    """Scalars of the CLS row, shape (L, H, 4), in the order of `SCALARS`."""
    landmark_scalars: NDArray[np.float32] | None = None
    """Mean of the scalars of the landmark rows, shape (L, H, 4)."""
    landmark_map: NDArray[np.float32] | None = None
    """Each landmark's content bins, mean over heads, shape (L, K, N), when kept."""

    SPECIAL_NAMES = ("cls", "landmark", "other_special")

    @property
    def n_layers(self) -> int:
        """Layers that reported."""
        return len(self.layer_kinds)

    @property
    def n_heads(self) -> int:
        """Attention heads a layer."""
        rows = self.cls_mass if self.cls_mass is not None else self.landmark_mass
        return 0 if rows is None else int(rows.shape[1])

    def layers_of(self, kind: LayerKind) -> tuple[int, ...]:
        """Returns the layers of one kind."""
        return tuple(i for i, k in enumerate(self.layer_kinds) if k is kind)

    def content_weights(self, mass: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns masses over content bins scaled so that each row sums to 1.

        Rows with no content mass at all stay zero.
        """
        total = mass.astype(np.float64).sum(axis=-1, keepdims=True)
        weights = np.zeros(mass.shape)
        np.divide(mass, total, out=weights, where=total > 0)
        return weights

    def weight_per_token(
        self, mass: NDArray[np.float32], layers: Sequence[int], head: int | None
    ) -> NDArray[np.float64]:
        """Returns the mean content weight of one token in each bin.

        Args:
            mass: `cls_mass` or `landmark_mass`, shape (L, H, N).
            layers: layers to average, at least one.
            head: one head, or None for the mean over heads.

        Returns:
            Shape (N,); times the bin widths it sums to 1, so 1/n is the uniform value.

        Raises:
            ValueError: when no layer is given.
            IndexError: when a layer or the head is not there.
        """
        if not len(layers):
            raise ValueError("no layer to average; choose a layer group that this encoder has.")
        weights = self.content_weights(mass)[list(layers)]  # (l, H, N)
        chosen = weights if head is None else weights[:, [head]]
        means: NDArray[np.float64] = chosen.mean(axis=(0, 1)) / np.diff(self.edges)
        return means

    def rows(self) -> dict[PoolingMode, ProfileRow]:
        """Returns the rows that this text has, by the pooling that reads them."""
        found = {
            PoolingMode.CLS: (self.cls_mass, self.cls_special, self.cls_scalars),
            PoolingMode.LANDMARK: (
                self.landmark_mass,
                self.landmark_special,
                self.landmark_scalars,
            ),
        }
        return {
            mode: ProfileRow(mass, special, scalars)
            for mode, (mass, special, scalars) in found.items()
            if mass is not None and special is not None and scalars is not None
        }

    def bins_frame(self, layers: Sequence[int], head: int | None) -> pd.DataFrame:
        """Returns one row a bin: its tokens, and each row's weight per token there."""
        frame = pd.DataFrame({"from_token": self.edges[:-1], "to_token": self.edges[1:]})
        for mode, row in self.rows().items():
            frame[f"{mode.value}_weight_per_token"] = self.weight_per_token(row.mass, layers, head)
        frame["uniform"] = 1 / self.n_content if self.n_content else 0.0
        return frame

    def scalars_frame(self, head: int | None) -> pd.DataFrame:
        """Returns one row a layer and attention row, with the numbers of `SCALARS`."""
        records = []
        for layer, kind in enumerate(self.layer_kinds):
            for mode, row in self.rows().items():
                at = row.scalars[layer]
                values = (at.mean(axis=0) if head is None else at[head]).astype(float).tolist()
                names = {"layer": f"L{layer}", "kind": kind.value, "row": mode.value}
                records.append(names | dict(zip(SCALARS, values, strict=True)))
        return pd.DataFrame(records)

    def to_dict(self) -> dict[str, Any]:
        """Returns the profile as plain JSON types: weights per layer and head."""
        layers = []
        for layer, kind in enumerate(self.layer_kinds):
            heads: list[dict[str, Any]] = [{"head": head} for head in range(self.n_heads)]
            for mode, row in self.rows().items():
                weights = self.content_weights(row.mass[layer])
                for head, entry in enumerate(heads):
                    shares = row.special[layer, head].astype(float).tolist()
                    values = row.scalars[layer, head].astype(float).tolist()
                    entry[mode.value] = {
                        "weights": weights[head].tolist(),
                        "content_share": float(row.mass[layer, head].sum(dtype=np.float64)),
                        "special_share": dict(zip(self.SPECIAL_NAMES, shares, strict=True)),
                        "scalars": dict(zip(SCALARS, values, strict=True)),
                    }
            layers.append(
                {"layer": layer, "kind": kind.value, "window": self.windows[layer], "heads": heads}
            )
        return {
            "bin_edges": self.edges.tolist(),
            "content_tokens": self.n_content,
            "landmark_tokens": self.landmark_tokens.tolist(),
            "uniform_weight": 1 / self.n_content if self.n_content else None,
            "layers": layers,
        }


def profile_groups(
    token_index: NDArray[np.int64],
    landmark_positions: NDArray[np.int64],
    cls_positions: NDArray[np.int64],
    config: AttentionConfig,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the key group of each input position, and the bin edges.

    Args:
        token_index: text token at each input position, -1 at special ones, shape (T,).
        landmark_positions: shape (K,).
        cls_positions: shape (M,).
        config: number of bins.

    Returns:
        Groups, shape (T,): content bins 0..N-1, then CLS N, landmark N+1, other N+2; and
        edges in text tokens, shape (N + 1,).
    """
    content = token_index >= 0
    edges = bin_edges(int(content.sum()), config.bins)
    n_bins = len(edges) - 1
    groups = np.full(len(token_index), n_bins + 2, dtype=np.int64)
    groups[content] = np.searchsorted(edges, token_index[content], side="right") - 1
    groups[cls_positions] = n_bins
    groups[landmark_positions] = n_bins + 1
    return groups, edges
