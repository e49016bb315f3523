"""Latent attention: learned vectors that token states look up before they are averaged.

The layer of NV-Embed (arXiv 2405.17428) as the authors of landmark pooling use it for a
baseline: token states are the queries, the latents keys and values, then a gated feed-forward
part, each behind a layer norm and beside a residual path. It is a baseline with parameters of
its own, so without training it shows nothing.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import nn

__all__ = ["LatentAttention", "LatentConfig"]


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Sizes of the layer."""

    hidden: int
    """Size of a token state, D."""
    latents: int = 64
    """Learned vectors; NV-Embed has 512, the authors of landmark pooling 64."""
    heads: int = 6
    head_size: int = 64
    """The authors give every head the full hidden size, which takes `hidden / head_size` times
    the parameters of the attention part."""
    expansion: int = 4
    """Width of the feed-forward part by the hidden size."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it has to be a whole number of 1 and more.")

    @classmethod
    def for_hidden(cls, hidden: int) -> Self:
        """Returns the sizes for a hidden size: heads of 64 as in the encoders themselves."""
        return cls(hidden, heads=max(1, hidden // 64), head_size=min(64, hidden))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the sizes that `to_dict` wrote.

        Raises:
            ValueError: when a field is missing, unknown or out of range.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(
                f"latent attention settings {values!r} do not fit: {error}."
            ) from error

    def to_dict(self) -> dict[str, int]:
        """Returns plain JSON types."""
        return asdict(self)


class LatentAttention(nn.Module):
    """Token states enriched by what they find among learned latents.

    Shape:
        (B, T, D) in, (B, T, D) out; each token by itself, so padding cannot leak.
    """

    def __init__(self, config: LatentConfig) -> None:
        super().__init__()
        self.config = config
        width = config.heads * config.head_size
        inner = config.expansion * config.hidden
        self.latents = nn.Parameter(torch.randn(config.latents, config.hidden) * 0.02)
        self.query_norm = nn.LayerNorm(config.hidden)
        self.latent_norm = nn.LayerNorm(config.hidden)
        self.to_query = nn.Linear(config.hidden, width, bias=False)
        self.to_key_value = nn.Linear(config.hidden, 2 * width, bias=False)
        self.to_output = nn.Linear(width, config.hidden, bias=False)
        self.feed_forward_norm = nn.LayerNorm(config.hidden)
        self.gate_and_value = nn.Linear(config.hidden, 2 * inner)
        self.feed_forward_output = nn.Linear(inner, config.hidden)
        # Both residual branches start at nothing, so that training starts at the plain mean.
        for layer in (self.to_output, self.feed_forward_output):
            nn.init.zeros_(layer.weight)
        nn.init.zeros_(self.feed_forward_output.bias)

    def forward(self, token_embeddings: torch.Tensor) -> torch.Tensor:
        """Returns the states to average, shape (B, T, D)."""
        states = token_embeddings.to(self.latents.dtype)
        states = states + self._look_up(self.query_norm(states))
        gate, value = self.gate_and_value(self.feed_forward_norm(states)).chunk(2, dim=-1)
        enriched: torch.Tensor = states + self.feed_forward_output(nn.functional.gelu(gate) * value)
        return enriched

    def _look_up(self, states: torch.Tensor) -> torch.Tensor:
        key, value = self.to_key_value(self.latent_norm(self.latents)).chunk(2, dim=-1)

        def by_head(x: torch.Tensor) -> torch.Tensor:
            heads = x.reshape(*x.shape[:-1], self.config.heads, self.config.head_size)
            return heads.transpose(-3, -2)  # (..., H, n, d)

        found = nn.functional.scaled_dot_product_attention(
            by_head(self.to_query(states)),  # (B, H, T, d)
            by_head(key).unsqueeze(0).expand(states.shape[0], -1, -1, -1),
            by_head(value).unsqueeze(0).expand(states.shape[0], -1, -1, -1),
        )
        output: torch.Tensor = self.to_output(found.transpose(-3, -2).flatten(-2))
        return output
