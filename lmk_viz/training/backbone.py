"""A rotary backbone from a BERT that has learned positions."""

import torch
from transformers import BertModel, JinaEmbeddingsV3Config, JinaEmbeddingsV3Model, PreTrainedModel

__all__ = ["convert_backbone"]

PARTS = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.o_proj",
    "attention.output.LayerNorm": "post_attention_layernorm",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "post_mlp_layernorm",
}
"""BERT's names in a layer, and those of the rotary class."""
MEAN_OF_ROWS = slice(1, 128)
"""Positions whose mean stands in for all; the first is that of CLS."""


def convert_backbone(
    model: PreTrainedModel, max_length: int = 8192, rope_base: float = 10_000.0
) -> JinaEmbeddingsV3Model:
    """Returns a rotary encoder with the weights of a BERT.

    The layers are the same, post-norm with biases and a plain feed-forward part, so weights map
    one to one. Learned positions are dropped; their mean goes to the token-type row, which is
    added to every token, so that the first layer norm sees what it is used to. What the weights
    knew of order is lost until training heals it.

    Args:
        model: a `BertModel`.
        max_length: what the config states as usable length.
        rope_base: of the rotary angles.

    Raises:
        ValueError: when the model is no BERT with positions and GELU.
    """
    source = model.config
    if not isinstance(model, BertModel) or source.hidden_act != "gelu":
        raise ValueError(
            f"{type(model).__name__} came; only a BertModel with GELU maps onto the rotary class."
        )
    config = JinaEmbeddingsV3Config(
        vocab_size=source.vocab_size,
        hidden_size=source.hidden_size,
        num_hidden_layers=source.num_hidden_layers,
        num_attention_heads=source.num_attention_heads,
        intermediate_size=source.intermediate_size,
        hidden_act=source.hidden_act,
        max_position_embeddings=max_length,
        type_vocab_size=1,
        layer_norm_eps=source.layer_norm_eps,
        pad_token_id=source.pad_token_id,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        rope_parameters={"rope_type": "default", "rope_theta": rope_base},
    )
    converted = JinaEmbeddingsV3Model(config, add_pooling_layer=False)
    old = model.state_dict()
    shared = old["embeddings.position_embeddings.weight"][MEAN_OF_ROWS].mean(dim=0)
    weights: dict[str, torch.Tensor] = {
        "embeddings.word_embeddings.weight": old["embeddings.word_embeddings.weight"],
        "embeddings.token_type_embeddings.weight": old["embeddings.token_type_embeddings.weight"][
            :1
        ]
        + shared,
    }
    for kind in ("weight", "bias"):
        weights[f"embeddings.LayerNorm.{kind}"] = old[f"embeddings.LayerNorm.{kind}"]
        for layer in range(source.num_hidden_layers):
            for theirs, ours in PARTS.items():
                weights[f"layers.{layer}.{ours}.{kind}"] = old[
                    f"encoder.layer.{layer}.{theirs}.{kind}"
                ]
    converted.load_state_dict(weights, strict=True)
    return converted.eval()
