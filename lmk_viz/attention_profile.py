"""What is kept of a text's attention rows: masses on bins, and numbers of each layer and head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import LayerKind, PoolingMode

__all__ = [
    "SCALARS",
    "SPECIAL_NAMES",
    "AttentionProfile",
    "ProfileRow",
    "bin_edges",
    "distance_edges",
    "distance_keys",
]

SCALARS = ("first_tenth", "centre_of_mass", "half_mass_position", "entropy")
"""Numbers of a row over the text tokens, each in 0..1.

The mass on the first tenth of the tokens (a token that the border cuts counts by its part);
the centre of mass and the position where half the mass is reached (0 the first token, 1 the
last); the entropy by its highest value, log n. An even row has 0.1, 0.5, 0.5 and 1.
"""

SPECIAL_NAMES = ("cls", "landmark", "other_special")
"""Key groups beside the text tokens."""


class ProfileRow(NamedTuple):
    """One kind of attention row of a text, in every layer and head.

    Masses are shares of the whole row: over position bins and special groups they sum to 1.
    """

    mass: NDArray[np.float32]
    """On bins of text tokens, shape (L, H, N)."""
    special: NDArray[np.float32]
    """On CLS, landmark and other special keys, shape (L, H, 3)."""
    scalars: NDArray[np.float32]
    """In the order of `SCALARS`, shape (L, H, 4)."""
    distance_mass: NDArray[np.float32]
    """Mean mass of a row on text tokens by signed distance, shape (L, H, M)."""
    distance_keys: NDArray[np.float64]
    """Mean number of text tokens that a row has at each distance, shape (M,)."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionProfile:
    """Where the CLS row and the landmark rows of one text look, per layer and head."""

    layer_kinds: tuple[LayerKind, ...]
    """Of the layers that were read, from the first."""
    windows: tuple[int | None, ...]
    """Keys reached on each side in a local layer; None in a global one."""
    layers_expected: int
    """Layers of the encoder; more than were read when the run was stopped."""
    edges: NDArray[np.int64]
    """Position bin edges in text tokens, shape (N + 1,)."""
    distance_edges: NDArray[np.int64]
    """Bin edges of key position less query position, shape (M + 1,)."""
    n_content: int
    """Text tokens in the input."""
    landmark_tokens: NDArray[np.int64]
    """Text tokens before each landmark, shape (K,): where it stands on the token axis."""
    rows: dict[PoolingMode, ProfileRow]
    """CLS row and mean landmark row, as far as the input has them."""
    landmark_map: NDArray[np.float32] | None = None
    """Each landmark's mass on position bins, mean over heads, shape (L, K, N), when kept."""

    @property
    def n_layers(self) -> int:
        """Layers that were read."""
        return len(self.layer_kinds)

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped before the last layer."""
        return self.n_layers < self.layers_expected

    @property
    def n_heads(self) -> int:
        """Attention heads a layer."""
        return next((int(row.mass.shape[1]) for row in self.rows.values()), 0)

    def layers_of(self, kind: LayerKind) -> tuple[int, ...]:
        """Returns the layers of one kind."""
        return tuple(i for i, k in enumerate(self.layer_kinds) if k is kind)

    def weight_per_token(
        self, mode: PoolingMode, layers: Sequence[int], head: int | None = None
    ) -> NDArray[np.float64]:
        """Returns the mean weight of one text token in each position bin.

        Special keys are left out and each row scaled to sum to 1 before averaging.

        Args:
            mode: whose row.
            layers: layers to average, at least one.
            head: one head, or None for the mean over heads.

        Returns:
            Shape (N,); times the bin widths it sums to 1, so 1/n is the uniform value.

        Raises:
            ValueError: when no layer is given.
        """
        weights = self._chosen(content_weights(self.rows[mode].mass), layers, head)
        means: NDArray[np.float64] = weights.mean(axis=(0, 1)) / np.diff(self.edges)
        return means

    def weight_by_distance(
        self, mode: PoolingMode, layers: Sequence[int], head: int | None = None
    ) -> NDArray[np.float64]:
        """Returns the mean weight of a text token at each signed distance, shape (M,).

        Distances at which no row has a text token are NaN.
        """
        row = self.rows[mode]
        total = row.mass.sum(axis=-1, keepdims=True, dtype=np.float64)
        scaled = np.zeros(row.distance_mass.shape)
        np.divide(row.distance_mass, total, out=scaled, where=total > 0)
        mean = self._chosen(scaled, layers, head).mean(axis=(0, 1))
        weights = np.full(len(mean), np.nan)
        np.divide(mean, row.distance_keys, out=weights, where=row.distance_keys > 0)
        return weights

    def special_shares(
        self, mode: PoolingMode, layers: Sequence[int], head: int | None = None
    ) -> tuple[float, float, float, float]:
        """Returns the share of a whole row on text, CLS, landmark and other special keys."""
        row = self.rows[mode]
        text = self._chosen(row.mass, layers, head).sum(axis=-1).mean()
        cls, landmark, other = self._chosen(row.special, layers, head).mean(axis=(0, 1))
        return float(text), float(cls), float(landmark), float(other)

    def bins_frame(self, layers: Sequence[int], head: int | None) -> pd.DataFrame:
        """Returns one row a bin: its tokens, and each row's weight per token there."""
        frame = pd.DataFrame({"from_token": self.edges[:-1], "to_token": self.edges[1:]})
        for mode in self.rows:
            frame[f"{mode.value}_weight_per_token"] = self.weight_per_token(mode, layers, head)
        frame["uniform"] = 1 / self.n_content if self.n_content else 0.0
        return frame

    def scalars_frame(self, head: int | None) -> pd.DataFrame:
        """Returns one row a layer and attention row, with the numbers of `SCALARS`."""
        records = []
        for layer, kind in enumerate(self.layer_kinds):
            for mode, row in self.rows.items():
                at = row.scalars[layer]
                values = (at.mean(axis=0) if head is None else at[head]).astype(float).tolist()
                names = {"layer": f"L{layer}", "kind": kind.value, "row": mode.value}
                records.append(names | dict(zip(SCALARS, values, strict=True)))
        return pd.DataFrame(records)

    def to_dict(self) -> dict[str, Any]:
        """Returns the profile as plain JSON types.

        In each layer and head, `weights` are those of the position bins without special keys,
        scaled to sum to 1; `content_share` and `special_share` are of the whole row.
        """
        layers = []
        for layer, kind in enumerate(self.layer_kinds):
            heads: list[dict[str, Any]] = [{"head": head} for head in range(self.n_heads)]
            for mode, row in self.rows.items():
                weights = content_weights(row.mass[layer])
                for head, entry in enumerate(heads):
                    shares = row.special[layer, head].astype(float).tolist()
                    values = row.scalars[layer, head].astype(float).tolist()
                    entry[mode.value] = {
                        "weights": weights[head].tolist(),
                        "content_share": float(row.mass[layer, head].sum(dtype=np.float64)),
                        "special_share": dict(zip(SPECIAL_NAMES, shares, strict=True)),
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
            "layers_expected": self.layers_expected,
            "layers": layers,
        }

    def _chosen(
        self, values: NDArray[Any], layers: Sequence[int], head: int | None
    ) -> NDArray[Any]:
        if not len(layers):
            raise ValueError("no layer to average; choose a layer group that this encoder has.")
        chosen = values[list(layers)]
        return chosen if head is None else chosen[:, [head]]


def content_weights(mass: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns masses on position bins scaled so that each row sums to 1.

    Args:
        mass: shape (..., N).

    Returns:
        The same shape. A row without any mass on text stays zero.
    """
    total = mass.sum(axis=-1, keepdims=True, dtype=np.float64)
    weights = np.zeros(mass.shape)
    np.divide(mass, total, out=weights, where=total > 0)
    return weights


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


def distance_edges(length: int) -> NDArray[np.int64]:
    """Returns signed distance bins, about two an octave, mirrored round zero.

    Bin j holds the distances d with edges[j] <= d < edges[j + 1]; the middle one is 0 alone.

    Args:
        length: of the input; no distance is as large.

    Example:
        >>> distance_edges(5).tolist()
        [-5, -3, -2, -1, 0, 1, 2, 3, 4, 6]
    """
    right = [1, 2, 3]
    step = 4
    while right[-1] < length:
        right += [step, step * 3 // 2]
        step *= 2
    if len(right) > 1 and right[-2] >= length:
        right.pop()
    edges = np.asarray(right, dtype=np.int64)
    return np.concatenate([1 - edges[::-1], edges])


def distance_keys(
    is_content: NDArray[np.bool_], queries: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns how many text tokens a query has in each distance bin, on average.

    Args:
        is_content: whether each input position holds a text token, shape (T,).
        queries: input positions of the rows, shape (Q,), at least one.
        edges: from `distance_edges`, shape (M + 1,).

    Returns:
        Shape (M,).
    """
    before = np.concatenate([[0], np.cumsum(is_content)])
    places = np.clip(queries[:, None] + edges[None, :], 0, len(is_content))
    counts: NDArray[np.float64] = np.diff(before[places], axis=1).mean(axis=0)
    return counts
