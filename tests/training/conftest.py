from typing import Any

import pytest
import torch
from training.toy import toy_pairs
from transformers import AutoModel, BertConfig

from lmk_viz.attention import ATTENTION_NAME
from lmk_viz.encoder import Encoder
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.data import Pairs


@pytest.fixture(scope="session")
def learner(build_tokenizer: Any) -> Encoder:
    """A small BERT without dropout that learns the toy task within 40 steps."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=420,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    model = AutoModel.from_config(config, attn_implementation=ATTENTION_NAME)
    return Encoder(model.eval().requires_grad_(False), build_tokenizer("wordpiece"), name="learner")


@pytest.fixture
def pairs() -> Pairs:
    """64 toy pairs of 8 topics, each batch of 8 holding every topic once."""
    return toy_pairs()


@pytest.fixture
def toy_config() -> Any:
    """`toy_config(**changes)`: a run of a few quick steps."""

    def build(**changes: Any) -> TrainingConfig:
        values = {
            "steps": 6,
            "batch_size": 8,
            "query_length": 16,
            "passage_length": 64,
            "granularities": (4, 8),
            "learning_rate": 5e-3,
            "temperature": 0.1,
            "shuffle": False,
            "save_every": 2,
        }
        return TrainingConfig(**{**values, **changes})

    return build
