"""What a loaded model is, read from its config and its modules."""

import hashlib
import inspect
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from lmk_viz.config import LayerKind
from lmk_viz.forecast import ModelShape

__all__ = ["SENTINEL_LENGTH", "ModelFacts", "digest_tensor"]

SENTINEL_LENGTH = 1_000_000
"""Tokenizers without a limit say 1e30; nothing over a million is meant."""


class ModelFacts:
    """A model with what can be said of it."""

    def __init__(self, model: PreTrainedModel, name: str, declared_length: int = 0) -> None:
        """Takes a model.

        Args:
            model: any transformers encoder.
            name: what to call it.
            declared_length: the tokenizer's idea of the longest input; 0 for none.
        """
        self.model = model
        self.name = name
        self._declared_length = declared_length

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Floating point type of its weights."""
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def embedding_dim(self) -> int:
        """Size of a token state, D."""
        return int(self.model.config.hidden_size)

    @property
    def n_layers(self) -> int:
        """Transformer layers, L."""
        return int(self.model.config.num_hidden_layers)

    @property
    def n_heads(self) -> int:
        """Attention heads a layer, H."""
        return int(self.model.config.num_attention_heads)

    @cached_property
    def n_parameters(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.model.parameters())

    @cached_property
    def memory_bytes(self) -> int:
        """Memory that weights and buffers take."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        return sum(t.numel() * t.element_size() for t in tensors)

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 of the model's config and of every weight and buffer; read once.

        Where the model came from is left out, so that a copy elsewhere has the same digest.
        """
        stated = self.model.config.to_dict()
        for name in ("_name_or_path", "transformers_version"):
            stated.pop(name, None)
        found = hashlib.sha256(repr(sorted(stated.items())).encode())
        tensors = (*self.model.named_parameters(), *self.model.named_buffers())
        for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
            digest_tensor(found, name, tensor)
        return found.hexdigest()

    @cached_property
    def position_table(self) -> int | None:
        """Usable rows of a learned position table; None where positions are computed.

        RoBERTa-like tables lose the rows up to their padding index.
        """
        for module_name, module in self.model.named_modules():
            if module_name.endswith("position_embeddings") and isinstance(
                module, torch.nn.Embedding
            ):
                offset = 0 if module.padding_idx is None else module.padding_idx + 1
                return int(module.num_embeddings) - offset
        return None

    @cached_property
    def positional_scheme(self) -> str:
        """`absolute`, `rotary`, or `other`."""
        if self.position_table is not None:
            return "absolute"
        if getattr(self.model.config, "rope_parameters", None):
            return "rotary"
        return "other"

    @cached_property
    def max_length(self) -> int:
        """Usable input length in tokens: the position table, else what the config says."""
        if self.position_table is not None:
            return self.position_table
        stated = getattr(self.model.config, "max_position_embeddings", None)
        if isinstance(stated, int) and 0 < stated <= SENTINEL_LENGTH:
            return stated
        return self._declared_length if 0 < self._declared_length <= SENTINEL_LENGTH else 512

    @property
    def has_hard_limit(self) -> bool:
        """Whether a longer input fails; rotary encoders go on, beyond what they were trained on."""
        return self.position_table is not None

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """Kind of each layer, read from the config's `layer_types`."""
        types = (
            getattr(self.model.config, "layer_types", None) or ["full_attention"] * self.n_layers
        )
        kinds = {"full_attention": LayerKind.GLOBAL, "sliding_attention": LayerKind.LOCAL}
        unknown = sorted(set(types) - set(kinds))
        if unknown:
            raise ValueError(
                f"encoder {self.name!r} has layers of type {', '.join(unknown)}; "
                "known: full_attention, sliding_attention."
            )
        return tuple(kinds[t] for t in types)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Keys that each local layer reaches on a side; None for global layers.

        A causal layer reaches them on the left alone.
        """
        stated = getattr(self.model.config, "sliding_window", None)
        reach = None if stated is None else int(stated) - self._counts_itself
        return tuple(reach if kind is LayerKind.LOCAL else None for kind in self.layer_kinds)

    @cached_property
    def _counts_itself(self) -> bool:
        """Whether the config's window includes the query's own position.

        It does in causal masks and in Gemma 3's; the library's mask for encoders, which
        ModernBERT uses, takes the same number as the reach alone.
        """
        module = inspect.getmodule(type(self.model))
        return getattr(self.model.config, "is_causal", True) and not hasattr(
            module, "create_bidirectional_sliding_window_mask"
        )

    @cached_property
    def shape(self) -> ModelShape:
        """What of the model decides the cost of a run."""
        tables = sum(
            module.weight.numel()
            for module in self.model.modules()
            if isinstance(module, torch.nn.Embedding)
        )
        n_local = self.layer_kinds.count(LayerKind.LOCAL)
        return ModelShape(
            layers_global=self.n_layers - n_local,
            layers_local=n_local,
            window=next((w for w in self.windows if w is not None), 0),
            hidden=self.embedding_dim,
            intermediate=self._feed_forward_width(),
            heads=self.n_heads,
            parameters=self.n_parameters - tables,
            bytes_per_value=torch.finfo(self.dtype).bits // 8,
        )

    def _feed_forward_width(self) -> int:
        """Returns the width of a layer's feed-forward part, doubled where it is gated.

        That is its widest linear layers, one that makes both halves or two side by side.
        """
        widths: dict[str, list[int]] = {}
        for name, module in self.model.named_modules():
            if isinstance(module, torch.nn.Linear) and "pooler" not in name:
                widths.setdefault(name.rpartition(".")[0], []).append(module.out_features)
        widest = max((max(group) for group in widths.values()), default=self.embedding_dim)
        return max((sum(w for w in g if w == widest) for g in widths.values()), default=widest)

    def rope_frequencies(self) -> dict[str, NDArray[np.float64]]:
        """Returns the angles of the rotary positions in use, by kind of layer.

        Read from the model's own buffers, so that scaled variants are what they are. Empty for
        encoders without rotary positions.
        """
        found = {}
        for name, buffer in self.model.named_buffers():
            leaf = name.rsplit(".", 1)[-1]
            if leaf.endswith("inv_freq") and "original" not in leaf:
                kind = {"full_attention_inv_freq": "global", "sliding_attention_inv_freq": "local"}
                found[kind.get(leaf, "all")] = buffer.double().cpu().numpy()
        return found


def digest_tensor(into: "hashlib._Hash", name: str, tensor: torch.Tensor) -> None:
    """Adds a tensor's name, type, shape and bytes to a digest.

    Args:
        into: the digest.
        name: of the tensor.
        tensor: on any device, of any type.
    """
    into.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    # Through bytes, since numpy has no bfloat16.
    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    into.update(plain.numpy().data)
