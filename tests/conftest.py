"""Fixtures shared by all tests: tokenizers trained here, tiny random models, encoders.

Nothing is downloaded. Models are built from configurations with seeded weights that are large
enough for attention to be far from uniform, so that a wrong scale or mask shows.
"""

import os

# Read by the libraries when they are imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# No vectors of earlier runs, and none left behind; tests of the cache make their own.
os.environ["LMK_VIZ_CACHE_GB"] = "0"
# Threads that wait for each other on a busy machine make small t-SNE runs take a minute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import copy
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoModel,
    BertConfig,
    BloomConfig,
    Gemma3TextConfig,
    GteConfig,
    JinaEmbeddingsV3Config,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
)

from lmk_viz.attention import ATTENTION_NAME
from lmk_viz.config import EncoderConfig
from lmk_viz.encoder import Encoder
from lmk_viz.family import EncoderFamily
from lmk_viz.loading import CHECKPOINTS
from lmk_viz.presets import DEFAULT_NAME, MINILM_NAME

# Tiny products gain nothing from threads, and on a busy machine threads wait for each other.
torch.set_num_threads(1)

LINES = (
    "A landmark token is placed after every chunk of a long document.",
    "The vector of the document is the mean of its landmarks, not of all tokens.",
    "Pooling decides what an encoder remembers; the first token forgets the end.",
    "Rivers carry water from the hills to the sea, and rain carries it back again.",
    "Is this a question? Yes! It ends here. [CLS] [SEP] [PAD] [UNK] <s> </s> <pad> 0123456789",
)
VOCABULARY = 420
"""Rows of every tiny model's embedding table: more than either tokenizer has entries."""
POSITIONS = 128
"""Rows of position tables, and what rotary configurations state."""
ROBERTA_POSITIONS = 42
"""Of which 40 are usable, the first two being lost to padding."""
WINDOW = 4
"""Keys on each side that local layers of the tiny ModernBERT reach."""


@lru_cache
def _wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        LINES,
        trainers.WordPieceTrainer(vocab_size=200, special_tokens=specials, show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


@lru_cache
def _byte_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        LINES,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<s>", "<pad>", "</s>"],  # RoBERTa's order: padding is 1.
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")],
    )
    return tokenizer


_TOKENIZERS: dict[str, tuple[Callable[[], Tokenizer], dict[str, str]]] = {
    "wordpiece": (
        _wordpiece,
        {
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "mask_token": "[MASK]",
        },
    ),
    "byte_bpe": (_byte_bpe, {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}),
}

_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
}
_QWEN = {
    **_SMALL,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 1,
}

_CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "bert": lambda: BertConfig(**_SMALL),
    "roberta": lambda: RobertaConfig(
        **{**_SMALL, "max_position_embeddings": ROBERTA_POSITIONS, "pad_token_id": 1}
    ),
    # Its ids for special tokens are wrong on purpose, as mmBERT's are.
    "modernbert": lambda: ModernBertConfig(
        **{**_SMALL, "num_hidden_layers": 4},
        local_attention=2 * WINDOW,
        cls_token_id=1,
        sep_token_id=1,
        bos_token_id=1,
        eos_token_id=1,
    ),
    "gte": lambda: GteConfig(**_SMALL),
    "jina": lambda: JinaEmbeddingsV3Config(**{**_SMALL, "pad_token_id": 1}),
    "qwen3": lambda: Qwen3Config(**_QWEN),
    "qwen3_local": lambda: Qwen3Config(
        **_QWEN, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "gemma3": lambda: Gemma3TextConfig(
        **_QWEN,
        sliding_window=8,
        use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "mpnet": lambda: MPNetConfig(
        **{**_SMALL, "max_position_embeddings": ROBERTA_POSITIONS, "pad_token_id": 1}
    ),
    # Neither a position table nor a stated length.
    "bloom": lambda: BloomConfig(
        vocab_size=VOCABULARY, hidden_size=16, n_layer=2, n_head=2, pad_token_id=0
    ),
}
_OWN_ATTENTION = ("mpnet", "bloom")
_BYTE_BPE_MODELS = ("roberta", "jina", "qwen3", "qwen3_local", "gemma3", "mpnet")


def _build_model(name: str, attention: str | None = ATTENTION_NAME) -> PreTrainedModel:
    torch.manual_seed(0)
    if name in _OWN_ATTENTION:
        attention = None  # As in loading: our name would give these classes masks of a wrong type.
    model = AutoModel.from_config(_CONFIGS[name](), attn_implementation=attention).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3, generator=generator)
    return model.requires_grad_(False)


def _build_tokenizer(kind: str, **special: str | int | None) -> PreTrainedTokenizerFast:
    train, tokens = _TOKENIZERS[kind]
    given = {name: value for name, value in {**tokens, **special}.items() if value is not None}
    return PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(train()), **given)


@lru_cache
def _build_encoder(name: str, kind: str | None = None) -> Encoder:
    kind = kind or ("byte_bpe" if name in _BYTE_BPE_MODELS else "wordpiece")
    return Encoder(_build_model(name), _build_tokenizer(kind), name=f"tiny {name}")


@pytest.fixture(scope="session")
def build_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    """`build_tokenizer(kind, **special)`: a new `wordpiece` or `byte_bpe` tokenizer.

    A special token given as None is left out.
    """
    return _build_tokenizer


@pytest.fixture(scope="session")
def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece with [CLS], [SEP], [PAD], [UNK] and [MASK]; do not change it."""
    return _build_tokenizer("wordpiece")


@pytest.fixture(scope="session")
def byte_bpe_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with <s>, </s> and <pad> as BOS, EOS and PAD; do not change it."""
    return _build_tokenizer("byte_bpe")


@pytest.fixture(scope="session")
def build_model() -> Callable[..., PreTrainedModel]:
    """`build_model(name, attention)`: a new tiny model, the same weights at every call."""
    return _build_model


@pytest.fixture(scope="session")
def tiny_encoder() -> Callable[..., Encoder]:
    """`tiny_encoder(name, tokenizer_kind)`: a tiny encoder, built once a session.

    Names: bert, roberta, modernbert (4 layers, the inner two local), gte, jina, qwen3
    (causal, grouped heads), qwen3_local, gemma3, mpnet (attention in code of its own), bloom.
    """
    return _build_encoder


@pytest.fixture(scope="session")
def minilm_encoder() -> Encoder:
    """all-MiniLM-L6-v2, the offline encoder by itself, on the CPU."""
    return Encoder.from_pretrained(EncoderConfig(MINILM_NAME, device="cpu"))


@pytest.fixture(scope="session")
def bundled_family() -> Encoder:
    """The bundled family, on the CPU; a test that takes it is left out where it is not there."""
    if not (CHECKPOINTS / DEFAULT_NAME / "config.json").is_file():
        pytest.skip("the bundled family is not in this checkout")
    return Encoder.from_pretrained(EncoderConfig(device="cpu"))


@pytest.fixture(scope="session")
def family_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny family of five variants, as the recipe writes it; do not change it."""
    from families import write_family

    folder = tmp_path_factory.mktemp("families") / "tiny"
    write_family(folder, _build_model("jina", "sdpa"), _build_tokenizer("wordpiece"))
    return folder


@pytest.fixture(scope="session")
def tiny_family(family_folder: Path) -> EncoderFamily:
    """The tiny family, loaded once a session."""
    family = Encoder.from_pretrained(EncoderConfig(str(family_folder), device="cpu"))
    assert isinstance(family, EncoderFamily)
    return family


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `save_pretrained` writes it: tiny BERT and its tokenizer; do not change it."""
    folder = tmp_path_factory.mktemp("encoders") / "tiny-bert"
    _build_model("bert", "sdpa").save_pretrained(folder)
    _build_tokenizer("wordpiece").save_pretrained(folder)
    return folder
