"""Reduces tiles of attention rows, as they are computed, to bins and a few numbers."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lmk_viz.attention_profile import (
    SCALARS,
    SPECIAL_NAMES,
    ProfileRow,
    bin_edges,
    distance_edges,
    distance_keys,
)
from lmk_viz.config import AttentionConfig, PoolingMode
from lmk_viz.landmarks import Layout

__all__ = ["RowBins"]


@dataclass(slots=True)
class _Sums:
    """Sums over the rows of one kind in one layer."""

    mass: torch.Tensor
    """Shape (H, N)."""
    special: torch.Tensor
    """Shape (H, 3)."""
    scalars: torch.Tensor
    """Shape (H, 4)."""
    distance: torch.Tensor
    """Shape (H, M)."""


class RowBins:
    """Takes the rows of one text's CLS and landmarks; keeps sums over bins.

    Bins are contiguous runs of keys, so one running sum along the keys gives every one of
    them: position bins, distance bins, the first tenth and the half-mass position.
    """

    def __init__(self, layout: Layout, config: AttentionConfig, device: torch.device) -> None:
        """Prepares the bins of a layout."""
        self._layout = layout
        self._config = config
        length = len(layout)
        is_content = layout.token_index >= 0
        self.edges = bin_edges(layout.n_kept, config.bins)
        self.distance_edges = distance_edges(length)
        self.queries = torch.from_numpy(
            np.concatenate([layout.cls_positions[:1], layout.landmark_positions])
        ).to(device)
        self._n_cls = len(layout.cls_positions[:1])

        def on_device(array: NDArray[np.int64]) -> torch.Tensor:
            return torch.from_numpy(np.array(array, dtype=np.int64)).to(device)

        places = layout.content_positions
        self._content = torch.from_numpy(is_content.astype(np.float32)).to(device)
        # Where text token t begins in the input; one past the end for t = n.
        begins = np.append(places, length)
        self._bin_places = on_device(begins[self.edges])
        self._distances = on_device(self.distance_edges)
        self._rank = on_device(np.cumsum(is_content) - is_content)
        self._tenth = layout.n_kept / 10
        self._tenth_place = int(begins[int(self._tenth)]) if layout.n_kept else 0
        other = np.flatnonzero(~is_content)
        other = np.setdiff1d(other, layout.cls_positions)
        other = np.setdiff1d(other, layout.landmark_positions)
        self._special = [
            on_device(group) for group in (layout.cls_positions, layout.landmark_positions, other)
        ]
        self._cls: list[_Sums] = []
        self._landmark: list[_Sums] = []
        self._map: list[list[torch.Tensor]] = []

    def add(self, layer: int, item: int, first: int, rows: torch.Tensor, start: int) -> None:
        """Takes a tile; see `lmk_viz.attention.RowReducer`. Only one text is binned."""
        if item != 0:
            raise ValueError("rows are binned for one text at a time.")
        if layer == len(self._cls):
            self._cls.append(self._empty(rows))
            self._landmark.append(self._empty(rows))
            self._map.append([])
        width = rows.shape[2]
        content = rows * self._content[start : start + width]
        running = content.new_zeros(*content.shape[:2], width + 1)  # (H, R, W + 1)
        torch.cumsum(content, dim=-1, out=running[..., 1:])
        at = (self._bin_places - start).clamp(0, width)
        mass = running[..., at].diff(dim=-1)  # (H, R, N)
        queries = self.queries[first : first + rows.shape[1]]
        places = (queries[:, None] + self._distances - start).clamp(0, width)  # (R, M + 1)
        distance = running.gather(2, places.expand(rows.shape[0], -1, -1)).diff(dim=-1)
        special = torch.stack(
            [self._columns(rows, group, start).sum(dim=-1) for group in self._special], dim=-1
        )
        scalars = self._scalars(content, running, start)
        n_cls = max(0, self._n_cls - first)
        for sums, part in (
            (self._cls[layer], slice(0, n_cls)),
            (self._landmark[layer], slice(n_cls, None)),
        ):
            sums.mass += mass[:, part].sum(dim=1)
            sums.special += special[:, part].sum(dim=1)
            sums.scalars += scalars[:, part].sum(dim=1)
            sums.distance += distance[:, part].sum(dim=1)
        if self._config.keep_landmarks:
            self._map[layer].append(mass[:, n_cls:].mean(dim=0))

    def rows(self, layers: int) -> dict[PoolingMode, ProfileRow]:
        """Returns the mean rows of the first layers.

        Args:
            layers: how many layers have been taken in full.
        """
        layout = self._layout
        kinds = (
            (PoolingMode.CLS, self._cls, layout.cls_positions[:1]),
            (PoolingMode.LANDMARK, self._landmark, layout.landmark_positions),
        )
        found = {}
        for mode, sums, queries in kinds:
            if len(queries):
                keys = distance_keys(layout.token_index >= 0, queries, self.distance_edges)
                mass, special, scalars, distance = (
                    _mean([getattr(layer, name) for layer in sums[:layers]], len(queries))
                    for name in ("mass", "special", "scalars", "distance")
                )
                found[mode] = ProfileRow(mass, special, scalars, distance, keys)
        return found

    def landmark_map(self, layers: int) -> NDArray[np.float32] | None:
        """Returns each landmark's mass on position bins, shape (L, K, N), when kept."""
        if not self._config.keep_landmarks or not self._layout.n_landmarks:
            return None
        return np.stack([torch.cat(tiles).cpu().numpy() for tiles in self._map[:layers]])

    def _empty(self, rows: torch.Tensor) -> _Sums:
        sizes = (
            len(self.edges) - 1,
            len(SPECIAL_NAMES),
            len(SCALARS),
            len(self.distance_edges) - 1,
        )
        return _Sums(*(rows.new_zeros(rows.shape[0], size) for size in sizes))

    @staticmethod
    def _columns(rows: torch.Tensor, group: torch.Tensor, start: int) -> torch.Tensor:
        inside = group[(group >= start) & (group < start + rows.shape[2])]
        return rows[:, :, inside - start]

    def _scalars(self, content: torch.Tensor, running: torch.Tensor, start: int) -> torch.Tensor:
        """Returns the numbers of `SCALARS` of each row, shape (H, R, 4); zeros without mass."""
        n, width = self._layout.n_kept, content.shape[2]
        total = running[..., -1]
        safe = total.clamp_min(1e-30)
        last = max(n - 1, 1)
        rank = self._rank[start : start + width]
        border = min(max(self._tenth_place - start, 0), width)
        tenth = running[..., border]
        if 0 <= self._tenth_place - start < width:
            part = self._tenth - int(self._tenth)
            tenth = tenth + part * (running[..., border + 1] - running[..., border])
        centre = content @ rank.float() / (safe * last)
        # The running sum rises at text tokens alone, so half the mass is reached at one.
        half = torch.searchsorted(running, ((0.5 - 1e-6) * total)[..., None])[..., 0] - 1
        half = rank[half.clamp(0, width - 1)].float() / last
        # Faster than `entr`, and the floor keeps zero weights out of the sum all the same.
        entropy = (content * content.clamp_min(1e-30).log_()).sum(dim=-1) / -safe + safe.log()
        entropy = entropy / math.log(n) if n > 1 else torch.ones_like(entropy)
        scalars = torch.stack([tenth / safe, centre, half, entropy], dim=-1)
        return torch.where(total[..., None] > 0, scalars, 0.0)


def _mean(sums: list[torch.Tensor], count: int) -> NDArray[np.float32]:
    """Returns sums over `count` rows as means, one layer after the other."""
    means: NDArray[np.float32] = (torch.stack(sums) / count).cpu().numpy()
    return means
