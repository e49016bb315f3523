import base64
import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from families import latents_by_hand, random_latents
from transformers import ByT5Tokenizer

from lmk_viz.config import (
    AttentionConfig,
    ChunkingConfig,
    EncoderConfig,
    LayerKind,
    LayoutKind,
    PoolingConfig,
    PoolingMode,
)
from lmk_viz.encoder import SENTINEL_LENGTH, Encoder
from lmk_viz.landmarks import build_layout
from lmk_viz.presets import MINILM_NAME
from lmk_viz.text import sentence_spans

SHORT = "A landmark token is placed after every chunk."
MEDIUM = (
    "The vector of the document is the mean of its landmarks, not of all tokens. "
    "Rivers carry water from the hills to the sea!"
)
LONG = f"{MEDIUM} Is this a question? Yes! It ends here. {SHORT}"
TEXTS = (LONG, SHORT, "a", MEDIUM, "")
GRANULARITY = 7
CHUNKING = ChunkingConfig(granularity=GRANULARITY)
SPELLED = "Here [SEP] and [CLS] and [SEP] then </s> or <s> or <pad> [PAD] end"


def with_latents(encoder: Encoder) -> Encoder:
    """The encoder with a latent attention of random weights, so that it has every pooling."""
    latents = random_latents(encoder.embedding_dim)
    return Encoder(encoder.model, encoder.tokenizer, encoder.name, latents=latents)


def special_ids_of(tokenizer: Any) -> set[int]:
    """Ids of special tokens but the unknown one, which stands for text."""
    return set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


# Special tokens.


def test_special_ids_come_from_the_tokenizer_and_not_from_the_config(
    tiny_encoder, wordpiece_tokenizer
):
    encoder = tiny_encoder("modernbert")
    assert encoder.model.config.cls_token_id == encoder.model.config.sep_token_id == 1
    assert encoder.special_ids.cls == wordpiece_tokenizer.convert_tokens_to_ids("[CLS]") == 2
    assert encoder.special_ids.landmark == wordpiece_tokenizer.convert_tokens_to_ids("[SEP]") == 3
    assert encoder.special_ids.pad == wordpiece_tokenizer.convert_tokens_to_ids("[PAD]") == 0


def test_bos_and_eos_stand_in_for_cls_and_sep(tiny_encoder, byte_bpe_tokenizer):
    ids = tiny_encoder("roberta").special_ids
    assert byte_bpe_tokenizer.cls_token_id is None
    assert byte_bpe_tokenizer.sep_token_id is None
    assert (ids.cls, ids.pad, ids.landmark) == (0, 1, 2)


def test_cls_and_sep_go_before_bos_and_eos(build_model, build_tokenizer):
    tokenizer = build_tokenizer("wordpiece", bos_token="[MASK]", eos_token="[UNK]")
    ids = Encoder(build_model("bert"), tokenizer).special_ids
    assert (ids.cls, ids.landmark) == (2, 3)


def test_an_id_of_zero_is_an_id(build_model, build_tokenizer):
    for special, expected in (
        ({"cls_token": "<s>", "bos_token": "<pad>"}, (0, 2)),
        ({"cls_token": "<pad>", "bos_token": None, "sep_token": "<s>"}, (1, 0)),
    ):
        ids = Encoder(build_model("jina"), build_tokenizer("byte_bpe", **special)).special_ids
        assert (ids.cls, ids.landmark) == expected


@pytest.mark.parametrize(
    ("kind", "special"),
    [
        ("wordpiece", {"cls_token": "[SEP]"}),
        ("byte_bpe", {"bos_token": "</s>"}),
        ("byte_bpe", {"bos_token": None, "cls_token": "</s>"}),
    ],
    ids=["CLS is SEP", "BOS is EOS", "CLS is EOS"],
)
def test_one_id_for_cls_and_landmark_is_refused(kind, special, build_model, build_tokenizer):
    tokenizer = build_tokenizer(kind, **special)
    with pytest.raises(ValueError, match=r"'twins' uses id [23] both as CLS and as landmark"):
        Encoder(build_model("bert"), tokenizer, name="twins")


def test_a_tokenizer_without_sep_and_eos_is_refused(build_model, build_tokenizer):
    tokenizer = build_tokenizer("wordpiece", sep_token=None)
    with pytest.raises(ValueError, match="'endless' has neither SEP nor EOS"):
        Encoder(build_model("bert"), tokenizer, name="endless")


def test_a_slow_tokenizer_is_refused(build_model):
    with pytest.raises(ValueError, match=r"without character offsets \(ByT5Tokenizer\)"):
        Encoder(build_model("bert"), ByT5Tokenizer())


@pytest.fixture(scope="module")
def without_cls(build_model: Any, build_tokenizer: Any) -> Encoder:
    """Like Qwen: no CLS, no BOS, and padding that is the end token."""
    tokenizer = build_tokenizer("byte_bpe", bos_token=None, pad_token="</s>")
    return Encoder(build_model("qwen3"), tokenizer, name="headless")


def test_without_cls_a_layout_begins_with_text(without_cls):
    layout = without_cls.layout(LONG, chunking=CHUNKING)
    assert layout.cls_positions.tolist() == []
    assert layout.token_index[0] == 0
    assert layout.landmark_positions.tolist()[:2] == [GRANULARITY, 2 * GRANULARITY + 1]


@pytest.mark.parametrize("pooling", ["cls", "multi_cls"])
def test_without_cls_poolings_that_need_one_are_refused(pooling, without_cls):
    with pytest.raises(ValueError, match=f"{pooling} needs a CLS token .* 'headless'"):
        without_cls.encode([SHORT], pooling)


@pytest.mark.parametrize("pooling", ["landmark", "mean", "every_k"])
def test_without_cls_the_other_poolings_work(pooling, without_cls):
    vectors = without_cls.encode([SHORT, LONG], pooling, CHUNKING)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_padding_that_is_the_end_token_drops_no_landmark(without_cls, build_model, build_tokenizer):
    assert without_cls.special_ids.pad == without_cls.special_ids.landmark
    apart = Encoder(build_model("qwen3"), build_tokenizer("byte_bpe", bos_token=None))
    assert apart.special_ids.pad != apart.special_ids.landmark
    texts = [SHORT, LONG]
    np.testing.assert_allclose(
        without_cls.encode(texts, chunking=CHUNKING),
        apart.encode(texts, chunking=CHUNKING),
        atol=1e-6,
    )
    alone = without_cls.encode([SHORT], chunking=CHUNKING)
    np.testing.assert_allclose(without_cls.encode(texts, chunking=CHUNKING)[:1], alone, atol=1e-5)


def test_a_missing_padding_token_changes_nothing(tiny_encoder, build_model, build_tokenizer):
    bare = Encoder(build_model("gte"), build_tokenizer("wordpiece", pad_token=None))
    assert bare.special_ids.pad == 0
    np.testing.assert_allclose(
        bare.encode(TEXTS, chunking=CHUNKING),
        tiny_encoder("gte").encode(TEXTS, chunking=CHUNKING),
        atol=1e-6,
    )


# Usable length.


@pytest.mark.parametrize(
    ("name", "usable"),
    [("bert", 128), ("roberta", 40), ("mpnet", 40)],
    ids=["whole table", "roberta loses two rows", "mpnet loses two rows"],
)
def test_a_position_table_limits_the_length_to_its_usable_rows(name, usable, tiny_encoder):
    encoder = tiny_encoder(name)
    assert (encoder.position_table, encoder.max_length) == (usable, usable)
    assert encoder.has_hard_limit
    assert encoder.positional_scheme == "absolute"
    full = encoder.layout("a " * 300)
    assert len(full) == usable
    assert torch.isfinite(encoder.token_states([full])).all()
    # One more really is too many for the model itself.
    ids = torch.full((1, usable + 1), 7)
    with pytest.raises((IndexError, RuntimeError)):
        encoder.model(input_ids=ids, attention_mask=torch.ones_like(ids))


@pytest.mark.parametrize(("name", "usable"), [("bert", 128), ("roberta", 40)])
def test_more_than_the_position_table_holds_is_refused_in_words(name, usable, tiny_encoder):
    encoder = tiny_encoder(name)
    with pytest.raises(
        ValueError,
        match=f"length limit is {usable + 1}; allowed for 'tiny {name}': 3 to {usable} tokens",
    ):
        encoder.layout(LONG, max_length=usable + 1)
    unlimited = build_layout(encoder.tokenize("a " * 300), encoder.special_ids)
    with pytest.raises(ValueError, match=f"input has {len(unlimited)} tokens; .* at most {usable}"):
        encoder.token_states([unlimited])


@pytest.mark.parametrize("name", ["modernbert", "gte", "jina", "qwen3"])
def test_rotary_encoders_go_on_beyond_the_length_they_state(name, tiny_encoder):
    encoder = tiny_encoder(name)
    assert (encoder.position_table, encoder.max_length) == (None, 128)
    assert not encoder.has_hard_limit
    assert encoder.positional_scheme == "rotary"
    assert len(encoder.layout("a " * 300)) == 128
    longer = encoder.layout("a " * 300, max_length=200)
    assert len(longer) == 200
    assert torch.isfinite(encoder.token_states([longer])).all()
    with pytest.raises(ValueError, match="3 to 1,000,000 tokens"):
        encoder.layout(SHORT, max_length=SENTINEL_LENGTH + 1)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [({}, 512), ({"model_max_length": 10**30}, 512), ({"model_max_length": 77}, 77)],
    ids=["not set", "the sentinel", "a real length"],
)
def test_the_tokenizers_length_counts_only_where_nothing_else_is_known(
    declared, expected, build_model, build_tokenizer
):
    tokenizer = build_tokenizer("wordpiece", **declared)
    if expected == 512:
        assert tokenizer.model_max_length > 10**29
    without_positions = Encoder(build_model("bloom"), tokenizer)
    assert without_positions.max_length == expected
    assert without_positions.positional_scheme == "other"
    assert Encoder(build_model("bert"), tokenizer).max_length == 128
    assert Encoder(build_model("gte"), tokenizer).max_length == 128


def test_a_stated_length_over_a_million_is_not_meant(build_model, wordpiece_tokenizer):
    model = build_model("gte")
    model.config.max_position_embeddings = SENTINEL_LENGTH
    assert Encoder(model, wordpiece_tokenizer).max_length == SENTINEL_LENGTH
    model.config.max_position_embeddings = SENTINEL_LENGTH + 1
    assert Encoder(model, wordpiece_tokenizer).max_length == 512


@pytest.mark.parametrize("value", [2, 0, -1])
def test_a_length_under_three_is_refused(value, tiny_encoder):
    with pytest.raises(ValueError, match=f"length limit is {value}; allowed for 'tiny bert': 3 to"):
        tiny_encoder("bert").layout(SHORT, max_length=value)


@pytest.mark.parametrize("value", [True, 12.0, "12"], ids=repr)
def test_a_length_that_is_no_whole_number_is_refused(value, tiny_encoder):
    with pytest.raises(TypeError, match=r"length limit is .*; it has to be a whole number"):
        tiny_encoder("bert").check_length(value)


def test_the_shortest_length_and_none_are_taken(tiny_encoder):
    encoder = tiny_encoder("bert")
    assert encoder.check_length(3) == 3
    assert encoder.check_length(None) == 128


# The tokenizer.


def test_a_text_is_tokenised_whole_whatever_the_tokenizer_declares(minilm_encoder):
    # The bundled tokenizer.json cuts at 128 tokens and pads to as many.
    assert len(minilm_encoder.tokenize("river " * 2000)) == 2000
    assert len(minilm_encoder.tokenize("river")) == 1
    assert [len(minilm_encoder.tokenize_sentences("A river runs. " * n)) for n in (1, 400)] == [
        4,
        1600,
    ]


def test_a_tokenizer_that_cuts_and_pads_is_copied_and_itself_left_alone(
    build_model, build_tokenizer
):
    tokenizer = build_tokenizer("wordpiece")
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    before = backend.to_str()
    encoder = Encoder(build_model("bert"), tokenizer)
    assert len(encoder.tokenize("a " * 50)) == 50
    assert len(encoder.tokenize("a")) == 1
    encoder.encode([LONG, SHORT])
    assert tokenizer.backend_tokenizer.to_str() == before
    assert not backend.encode_special_tokens


@pytest.fixture(params=["wordpiece", "byte_bpe", "bundled"])
def any_encoder(request: Any, tiny_encoder: Any) -> Encoder:
    if request.param == "bundled":
        return request.getfixturevalue("minilm_encoder")
    return tiny_encoder("gte" if request.param == "wordpiece" else "jina")


def test_special_tokens_spelled_in_a_text_stay_text(any_encoder):
    tokens = any_encoder.tokenize(SPELLED)
    ids = {any_encoder.special_ids.cls, any_encoder.special_ids.landmark}
    assert not ids & set(tokens.ids.tolist())
    assert any_encoder.special_ids.pad not in tokens.ids
    by_sentence = any_encoder.tokenize_sentences(SPELLED)
    assert not ids & set(by_sentence.ids.tolist())
    layout = any_encoder.layout(SPELLED, chunking=CHUNKING)
    landmarks = np.flatnonzero(layout.input_ids == any_encoder.special_ids.landmark)
    assert landmarks.tolist() == layout.landmark_positions.tolist()


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_spelled_special_tokens_are_tokenised_as_transformers_splits_them(
    kind, tiny_encoder, build_tokenizer
):
    encoder = tiny_encoder("gte" if kind == "wordpiece" else "jina")
    tokenizer = build_tokenizer(kind)
    expected = tokenizer(SPELLED, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert encoder.tokenize(SPELLED).ids.tolist() == expected
    plain = tokenizer(SPELLED, add_special_tokens=False)["input_ids"]
    assert special_ids_of(tokenizer) & set(plain), "the oracle has nothing to tell apart"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gte", {"[CLS]": 1, "[SEP]": 2, "[PAD]": 1}), ("jina", {"</s>": 1, "<s>": 1, "<pad>": 1})],
    ids=["wordpiece", "byte-level BPE"],
)
def test_spelled_special_tokens_are_counted(name, expected, tiny_encoder):
    assert tiny_encoder(name).spelled_special_tokens(SPELLED) == expected
    assert tiny_encoder(name).spelled_special_tokens(SHORT) == {}


@pytest.mark.parametrize("space", [" ", "\n\n", "\t \r\n", "\u3000"], ids=repr)
def test_white_space_round_a_text_makes_no_difference(space, any_encoder):
    bare, spaced = any_encoder.tokenize(SHORT), any_encoder.tokenize(space + SHORT + space)
    assert spaced.ids.tolist() == bare.ids.tolist()
    assert (spaced.starts - bare.starts == len(space)).all()
    assert (spaced.ends - bare.ends == len(space)).all()
    assert spaced.text == space + SHORT + space
    for chunking in (CHUNKING, ChunkingConfig("sentence")):
        np.testing.assert_allclose(
            any_encoder.encode([space + SHORT + space], chunking=chunking),
            any_encoder.encode([SHORT], chunking=chunking),
            atol=1e-6,
        )


def test_unknown_tokens_are_counted(tiny_encoder):
    assert tiny_encoder("bert").tokenize("a 漢 字 a").n_unknown == 2
    assert tiny_encoder("bert").tokenize_sentences("a 漢. 字 a.").n_unknown == 2
    assert tiny_encoder("jina").tokenize("a 漢 字 a").n_unknown == 0


def test_offsets_point_at_the_characters_of_each_token(any_encoder):
    tokens = any_encoder.tokenize(LONG)
    pieces = [LONG[a:b] for a, b in zip(tokens.starts, tokens.ends, strict=True)]
    written = [any_encoder.token_text(int(i)) for i in tokens.ids]
    for piece, token in zip(pieces, written, strict=True):
        assert piece.strip().lower() == token.removeprefix("##").removeprefix("Ġ").lower()
    assert "".join(pieces).replace(" ", "") == LONG.replace(" ", "")


def test_sentences_are_tokenised_as_if_each_stood_alone(any_encoder):
    text = f"  {LONG}\n\nA second paragraph. 今日は。明日も。"
    tokens = any_encoder.tokenize_sentences(text)
    spans = sentence_spans(text)
    assert len(spans) > 6
    alone = [any_encoder.tokenize(text[start:end]) for start, end in spans]
    assert tokens.ids.tolist() == [i for one in alone for i in one.ids.tolist()]
    begins = np.cumsum([0, *(len(one) for one in alone)])
    assert tokens.sentence_starts.tolist() == begins[:-1].tolist()
    for (start, end), one, (first, last) in zip(spans, alone, pairwise(begins), strict=True):
        assert (tokens.starts[first:last] == one.starts + start).all()
        assert (tokens.ends[first:last] == one.ends + start).all()
        assert (tokens.starts[first], tokens.ends[last - 1]) == (start, end)


def test_sentences_without_a_token_begin_none(tiny_encoder):
    # WordPiece has nothing for control characters.
    tokens = tiny_encoder("bert").tokenize_sentences("One here.\n\n\x00\n\nTwo here.")
    assert len(tokens.sentence_starts) == 2
    assert tokens.text[tokens.starts[tokens.sentence_starts[1]] :] == "Two here."


def test_plain_layouts_tokenise_the_whole_text_even_with_sentence_chunking(tiny_encoder):
    encoder = tiny_encoder("jina")
    chunking = ChunkingConfig("sentence")
    plain = encoder.layout(LONG, LayoutKind.PLAIN, chunking)
    assert plain.tokens.sentence_starts is None
    for kind in (LayoutKind.LANDMARK, LayoutKind.MULTI_CLS):
        layout = encoder.layout(LONG, kind, chunking)
        assert len(layout.chunks) == len(sentence_spans(LONG))


def test_the_language_of_the_chunking_reaches_the_sentence_splitter(tiny_encoder, monkeypatch):
    asked = []

    def note(text: str, language: str | None) -> Any:
        asked.append(language)
        return sentence_spans(text, language)

    monkeypatch.setattr("lmk_viz.encoder.sentence_spans", note)
    tiny_encoder("bert").layout(SHORT, chunking=ChunkingConfig("sentence", language="de"))
    assert asked == ["de"]


def test_plain_layouts_are_what_the_tokenizer_itself_would_give(tiny_encoder, build_tokenizer):
    for name, kind in (("bert", "wordpiece"), ("roberta", "byte_bpe")):
        layout = tiny_encoder(name).layout(SHORT, LayoutKind.PLAIN)
        assert layout.input_ids.tolist() == build_tokenizer(kind)(SHORT)["input_ids"]


def test_token_text_gives_the_vocabularys_spelling(tiny_encoder):
    encoder = tiny_encoder("bert")
    assert [encoder.token_text(i) for i in (2, 3, None)] == ["[CLS]", "[SEP]", ""]


def test_latent_attention_is_refused_without_its_layer(tiny_encoder):
    message = "latent_attention needs a layer that is trained with the encoder, and 'tiny bert'"
    with pytest.raises(ValueError, match=message):
        tiny_encoder("bert").encode([SHORT], "latent_attention")


def test_encoder_by_itself_reads_every_pooling_and_row(tiny_encoder, build_model):
    encoder = tiny_encoder("bert")
    assert {encoder.encoder_for(mode) for mode in PoolingMode} == {encoder}
    assert encoder.trained_poolings == frozenset()
    trained = Encoder(build_model("bert"), encoder.tokenizer, trained_for=PoolingMode.MEAN)
    assert trained.trained_poolings == {PoolingMode.MEAN}
    layout = encoder.layout(LONG)
    assert encoder.layers_to_read(layout) == 2
    assert list(encoder.row_sources(layout)) == list(encoder.attention_profile(layout).rows)


# Threads.


def test_six_threads_give_what_a_serial_run_gives(tiny_encoder):
    encoder = tiny_encoder("bert")
    rng = random.Random(0)
    words = LONG.split()
    texts = [" ".join(rng.choices(words, k=rng.choice([1, 5, 40]))) for _ in range(20)]

    def work(text: str) -> tuple[list[int], list[int], np.ndarray, np.ndarray]:
        vector = encoder.encode([text], chunking=CHUNKING)[0]
        layout = encoder.layout(text, chunking=CHUNKING)
        profile = encoder.attention_profile(layout, AttentionConfig(bins=1))
        mass = profile.rows[PoolingMode.CLS].mass
        sentences = encoder.tokenize_sentences(text)
        return encoder.tokenize(text).ids.tolist(), sentences.ids.tolist(), vector, mass

    serial = [work(text) for text in texts]
    start = threading.Barrier(6, timeout=30)

    def worker(seed: int) -> list[Any]:
        order = random.Random(seed).sample(range(20), 20)
        start.wait()
        return [(index, work(texts[index])) for index in order]

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(worker, range(6)))
    for result in results:
        for index, (ids, sentence_ids, vector, mass) in result:
            assert ids == serial[index][0]
            assert sentence_ids == serial[index][1]
            np.testing.assert_allclose(vector, serial[index][2], atol=1e-6)
            np.testing.assert_allclose(mass, serial[index][3], atol=1e-6)


@pytest.mark.parametrize(
    ("lock", "job"),
    [
        ("lock", lambda encoder: encoder.encode([SHORT])),
        ("_tokenizer_lock", lambda encoder: encoder.tokenize(SHORT)),
        ("_tokenizer_lock", lambda encoder: encoder.tokenize_sentences(SHORT)),
    ],
    ids=["forward", "tokenize", "tokenize_sentences"],
)
def test_work_waits_for_the_lock_of_what_it_shares(lock, job, tiny_encoder):
    encoder = tiny_encoder("bert")
    done = threading.Event()

    def work() -> None:
        job(encoder)
        done.set()

    with getattr(encoder, lock):
        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(0.2)
    thread.join(timeout=30)
    assert done.is_set()


# Vectors.


@pytest.mark.parametrize("pooling", list(PoolingMode))
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_a_vector_does_not_depend_on_its_batch(name, pooling, tiny_encoder):
    encoder = with_latents(tiny_encoder(name))
    alone = np.concatenate([encoder.encode([text], pooling, CHUNKING) for text in TEXTS])
    together = encoder.encode(TEXTS, pooling, CHUNKING)
    turned = encoder.encode(TEXTS[::-1], pooling, CHUNKING)[::-1]
    repeated = encoder.encode([LONG, SHORT, SHORT], pooling, CHUNKING)
    assert together.shape == (len(TEXTS), encoder.embedding_dim)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, atol=1e-5, rtol=0)
    np.testing.assert_allclose(turned, alone, atol=1e-5, rtol=0)
    np.testing.assert_allclose(repeated, alone[[0, 1, 1]], atol=1e-5, rtol=0)
    if (name, pooling) != ("qwen3", PoolingMode.CLS):  # A causal CLS sees no text at all.
        assert np.abs(alone[0] - alone[1]).max() > 0.01, "texts are not told apart"


def naive_vector(
    text: str, pooling: str, tokenizer: Any, model: Any, limit: int, include_special: bool = True
) -> np.ndarray:
    """Returns the vector by the method's own words, with transformers and nothing else."""
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    cls = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    sep = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    row, read = [cls], []
    chunks = [ids[i : i + GRANULARITY] for i in range(0, len(ids), GRANULARITY)]
    if pooling == "landmark":
        for chunk in chunks:
            row += [*chunk, sep]
            read.append(len(row) - 1)
    elif pooling == "multi_cls":
        for index, chunk in enumerate(chunks):
            if index:
                row.append(cls)
            read.append(len(row) - 1)
            row += chunk
        row.append(sep)
    else:
        row = [*row, *ids[: limit - 2], sep]
        read = {
            "cls": [0],
            "mean": list(range(len(row))) if include_special else list(range(1, len(row) - 1)),
            "every_k": list(range(0, len(row), GRANULARITY)),
            "latent_attention": list(range(len(row))),
        }[pooling]
    if pooling == "multi_cls" and len(row) > limit:
        row = [*row[: limit - 1], sep]
        read = [at for at in read if at < limit - 1]
    row, read = row[:limit], [at for at in read if at < limit]
    with torch.no_grad():
        states = model(input_ids=torch.tensor([row])).last_hidden_state[0].numpy()
    if pooling == "latent_attention":
        layer = random_latents(states.shape[1])
        weights = {name: weight.numpy() for name, weight in layer.state_dict().items()}
        states = np.stack([latents_by_hand(s, weights, layer.config.heads) for s in states])
    vector = states[read].mean(0)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("limit", [128, 31])
@pytest.mark.parametrize("pooling", list(PoolingMode))
@pytest.mark.parametrize("name", ["bert", "modernbert", "gte", "jina", "qwen3", "mpnet"])
def test_vectors_equal_those_of_a_naive_implementation(
    name, pooling, limit, tiny_encoder, build_model, build_tokenizer
):
    encoder = with_latents(tiny_encoder(name))
    limit = min(limit, encoder.max_length)
    tokenizer = build_tokenizer("byte_bpe" if encoder.special_ids.cls == 0 else "wordpiece")
    model = build_model(name, "sdpa")
    texts = [LONG, SHORT, SPELLED]
    got = encoder.encode(texts, pooling, CHUNKING, limit)
    expected = [naive_vector(text, pooling.value, tokenizer, model, limit) for text in texts]
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)


def test_mean_without_specials_equals_a_naive_implementation(
    tiny_encoder, build_model, wordpiece_tokenizer
):
    config = PoolingConfig(PoolingMode.MEAN, include_special=False)
    got = tiny_encoder("bert").encode([LONG], config)
    expected = naive_vector(
        LONG, "mean", wordpiece_tokenizer, build_model("bert", "sdpa"), 128, include_special=False
    )
    np.testing.assert_allclose(got[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", list(LayoutKind))
@pytest.mark.parametrize("name", ["modernbert", "qwen3_local", "gemma3"])
def test_embeddings_through_local_layers_equal_those_of_stock_attention(
    name, kind, tiny_encoder, build_model
):
    encoder, stock = tiny_encoder(name), build_model(name, "sdpa")
    # Longer than one block of a local layer, and shorter neighbours that have to be padded.
    layouts = [
        encoder.layout(text, kind, CHUNKING, max_length=400) for text in (LONG * 9, SHORT, LONG)
    ]
    lengths = [len(layout) for layout in layouts]
    assert lengths[0] > 2 * 128 > lengths[2] > lengths[1]
    mode = {
        LayoutKind.PLAIN: PoolingMode.MEAN,
        LayoutKind.LANDMARK: PoolingMode.LANDMARK,
        LayoutKind.MULTI_CLS: PoolingMode.MULTI_CLS,
    }[kind]
    (got,), _ = encoder.embed_layouts(layouts, [PoolingConfig(mode)], normalize=False)
    states = encoder.token_states(layouts)
    ids = torch.zeros(3, lengths[0], dtype=torch.long)
    for row, layout in enumerate(layouts):
        ids[row, : len(layout)] = torch.from_numpy(layout.input_ids.copy())
    mask = (torch.arange(lengths[0]) < torch.tensor(lengths)[:, None]).long()
    with torch.no_grad():
        expected = stock(input_ids=ids, attention_mask=mask).last_hidden_state
    for row, layout in enumerate(layouts):
        n = len(layout)
        torch.testing.assert_close(states[row, :n], expected[row, :n], atol=1e-5, rtol=0)
        read = {
            LayoutKind.PLAIN: np.arange(n),
            LayoutKind.LANDMARK: layout.landmark_positions,
            LayoutKind.MULTI_CLS: layout.cls_positions,
        }[kind]
        np.testing.assert_allclose(got[row], expected[row].numpy()[read].mean(0), atol=1e-5, rtol=0)


# A control that has learned nothing.


@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet", "bloom"])
def test_random_weights_make_another_encoder_of_the_same_shape(name, tiny_encoder):
    encoder = tiny_encoder(name)
    before = torch.random.get_rng_state()
    control = encoder.with_random_weights(seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert control.name == f"tiny {name}, random weights"
    assert control.n_parameters == encoder.n_parameters
    assert control.reports_attention == encoder.reports_attention
    again, other = encoder.with_random_weights(seed=3), encoder.with_random_weights(seed=4)
    vectors = [e.encode([SHORT], "mean")[0] for e in (encoder, control, again, other)]
    np.testing.assert_array_equal(vectors[1], vectors[2])
    for index in (0, 3):
        assert np.abs(vectors[index] - vectors[1]).max() > 0.01


@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet", "bloom"])
def test_padding_does_not_count_in_an_encoder_of_random_weights(name, tiny_encoder):
    control = tiny_encoder(name).with_random_weights()
    alone = control.encode([SHORT], "mean")
    np.testing.assert_allclose(control.encode([SHORT, LONG], "mean")[:1], alone, atol=1e-5, rtol=0)


def test_the_bundled_encoder_knows_which_sentences_belong_together(minilm_encoder):
    texts = ["The cat sat on the mat.", "A kitten rests on a rug.", "Stocks fell sharply today."]
    vectors = minilm_encoder.encode(texts, "mean")
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3


def test_poolings_of_one_layout_share_one_forward(tiny_encoder, monkeypatch):
    encoder = tiny_encoder("bert")
    poolings = [
        PoolingConfig(PoolingMode.CLS),
        PoolingConfig(PoolingMode.MEAN),
        PoolingConfig(PoolingMode.EVERY_K, k=GRANULARITY),
    ]
    expected = [encoder.encode(TEXTS, config, CHUNKING) for config in poolings]
    layouts = [encoder.layout(text, LayoutKind.PLAIN) for text in TEXTS]
    calls = []
    forward = encoder.model.forward

    def counted(**inputs: Any) -> Any:
        calls.append(inputs["input_ids"].shape)
        return forward(**inputs)

    monkeypatch.setattr(encoder.model, "forward", counted)
    vectors, fallbacks = encoder.embed_layouts(layouts, poolings)
    assert calls == [(len(TEXTS), max(map(len, layouts)))]
    for got, wanted in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)
    assert [f.tolist() for f in fallbacks] == [[False] * len(TEXTS)] * 3


def test_a_model_is_given_only_what_its_forward_names(build_model, wordpiece_tokenizer):
    model = build_model("bert")
    expected = Encoder(model, wordpiece_tokenizer).encode(TEXTS)
    whole = type(model)

    class Strict(whole):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return whole.forward(self, input_ids=input_ids, attention_mask=attention_mask)

    model.__class__ = Strict
    np.testing.assert_allclose(Encoder(model, wordpiece_tokenizer).encode(TEXTS), expected)


def test_causal_models_are_told_to_keep_no_cache(tiny_encoder, monkeypatch):
    encoder = tiny_encoder("qwen3")
    forward, outputs = encoder.model.forward, []

    def noted(**inputs: Any) -> Any:
        outputs.append(forward(**inputs))
        return outputs[-1]

    monkeypatch.setattr(encoder.model, "forward", noted)
    encoder.encode([SHORT])
    assert [output.past_key_values for output in outputs] == [None]


def test_embedding_a_layout_of_another_kind_is_refused(tiny_encoder):
    encoder = tiny_encoder("bert")
    with pytest.raises(ValueError, match="landmark reads a landmark layout; a plain layout came"):
        encoder.embed_layouts([encoder.layout(SHORT, LayoutKind.PLAIN)], [PoolingConfig()])


def test_a_text_cut_before_its_first_landmark_falls_back_to_the_mean_and_says_so(tiny_encoder):
    encoder = tiny_encoder("bert")
    cut = encoder.layout(LONG, max_length=20)
    whole = encoder.layout(SHORT)
    assert (cut.n_landmarks, whole.n_landmarks) == (0, 1)
    (vectors,), (fell_back,) = encoder.embed_layouts([cut, whole], [PoolingConfig()])
    assert fell_back.tolist() == [True, False]
    states = encoder.token_states([cut])[0]
    mean = (states.mean(0) / states.mean(0).norm()).numpy()
    np.testing.assert_allclose(vectors[0], mean, atol=1e-5)


def test_vectors_have_length_one_only_when_asked(tiny_encoder):
    encoder = tiny_encoder("bert")
    unit = encoder.encode([LONG, SHORT])
    raw = encoder.encode([LONG, SHORT], normalize=False)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all()
    np.testing.assert_allclose(raw / lengths, unit, atol=1e-6)


def test_every_k_takes_its_step_from_the_granularity(tiny_encoder):
    encoder = tiny_encoder("bert")
    step = PoolingConfig(PoolingMode.EVERY_K, k=3)
    np.testing.assert_array_equal(
        encoder.encode([LONG], "every_k", ChunkingConfig(granularity=3)),
        encoder.encode([LONG], step),
    )
    assert not np.allclose(encoder.encode([LONG], "every_k"), encoder.encode([LONG], step))


def test_no_text_gives_no_vector(tiny_encoder):
    vectors = tiny_encoder("bert").encode([])
    assert (vectors.shape, vectors.dtype) == ((0, 16), np.float32)


def test_one_string_in_place_of_a_list_is_refused(tiny_encoder):
    with pytest.raises(TypeError, match="texts is one string; give a list"):
        tiny_encoder("bert").encode(SHORT)


def test_an_unknown_pooling_is_refused_by_name(tiny_encoder):
    with pytest.raises(ValueError, match="pooling is 'max'; allowed: cls, mean, landmark"):
        tiny_encoder("bert").encode([SHORT], "max")


def test_states_come_right_padded_and_without_gradient(tiny_encoder):
    encoder = tiny_encoder("bert")
    layouts = [encoder.layout(text) for text in (LONG, SHORT)]
    states = encoder.token_states(layouts)
    assert states.shape == (2, len(layouts[0]), 16)
    assert not states.requires_grad
    alone = encoder.token_states(layouts[1:])
    torch.testing.assert_close(states[1:, : len(layouts[1])], alone, atol=1e-5, rtol=0)


# What an encoder tells of itself.


@pytest.mark.parametrize(
    ("name", "kinds", "windows"),
    [
        ("bert", "gg", (None, None)),
        ("modernbert", "gllg", (None, 4, 4, None)),
        ("qwen3", "gg", (None, None)),
        ("qwen3_local", "gl", (None, 4)),
        ("gemma3", "lg", (4, None)),
    ],
)
def test_kinds_and_windows_of_layers_are_read_from_the_config(name, kinds, windows, tiny_encoder):
    encoder = tiny_encoder(name)
    names = {"g": LayerKind.GLOBAL, "l": LayerKind.LOCAL}
    assert encoder.layer_kinds == tuple(names[kind] for kind in kinds)
    assert encoder.windows == windows


def test_an_unknown_kind_of_layer_is_refused_by_name(build_model, wordpiece_tokenizer):
    model = build_model("bert")
    model.config.layer_types = ["full_attention", "chunked_attention"]
    encoder = Encoder(model, wordpiece_tokenizer, name="odd")
    with pytest.raises(ValueError, match="'odd' has layers of type chunked_attention; known"):
        _ = encoder.layer_kinds


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3", "bloom"])
def test_facts_are_plain_json(name, tiny_encoder):
    encoder = tiny_encoder(name)
    facts = encoder.facts()
    assert json.loads(json.dumps(facts)) == facts
    weights = [p for p in encoder.model.parameters()]
    buffers = [b for b in encoder.model.buffers()]
    assert facts["parameters"] == sum(w.numel() for w in weights)
    assert facts["memory_bytes"] == 4 * facts["parameters"] + sum(b.nbytes for b in buffers)


def test_facts_tell_the_shape_and_the_limits(tiny_encoder):
    facts = tiny_encoder("modernbert").facts()
    del facts["parameters"], facts["memory_bytes"]
    assert facts == {
        "name": "tiny modernbert",
        "class": "ModernBertModel",
        "device": "cpu",
        "dtype": "float32",
        "layers": 4,
        "heads": 2,
        "embedding_dim": 16,
        "positional_scheme": "rotary",
        "max_length": 128,
        "hard_limit": False,
        "local_layers": [1, 2],
        "window": 4,
        "cls_id": 2,
        "landmark_id": 3,
        "pad_id": 0,
        "cls_token": "[CLS]",
        "landmark_token": "[SEP]",
        "trained_for": None,
        "trained_poolings": [],
        "training_length": None,
    }


def test_facts_of_the_bundled_encoder_are_those_of_minilm(minilm_encoder):
    facts = minilm_encoder.facts()
    wanted = {
        "name": MINILM_NAME,
        "layers": 6,
        "heads": 12,
        "embedding_dim": 384,
        "positional_scheme": "absolute",
        "max_length": 512,
        "hard_limit": True,
        "local_layers": [],
        "window": None,
        "cls_token": "[CLS]",
        "landmark_token": "[SEP]",
        "trained_for": "mean",
    }
    assert {key: facts[key] for key in wanted} == wanted
    assert facts["parameters"] == 22_713_216
    assert minilm_encoder.reports_attention


def test_an_encoder_is_loaded_by_name_or_by_config(tiny_folder):
    by_name = Encoder.from_pretrained(str(tiny_folder))
    by_config = Encoder.from_pretrained(EncoderConfig(str(tiny_folder), dtype="float32"))
    assert by_name.name == by_config.name == by_name.source == str(tiny_folder)
    assert by_name.trained_for is None
    np.testing.assert_array_equal(
        by_config.encode([SHORT]), by_name.encode([SHORT]).astype(np.float32)
    )


def test_an_encoder_made_from_parts_is_called_custom(build_model, wordpiece_tokenizer):
    encoder = Encoder(build_model("bert"), wordpiece_tokenizer)
    assert (encoder.name, encoder.source) == ("custom", "custom")


# Texts that break things elsewhere.

EDGE_TEXTS: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "spaces only": lambda: " \n\t\u3000 ",
    "one token": lambda: "a",
    "one sentence without an end mark": lambda: "a landmark is placed after every chunk",
    "one MB of one word": lambda: "a" * 1_000_000,
    "base64": lambda: base64.b64encode(random.Random(0).randbytes(3000)).decode(),
    "families and flags": lambda: "👨‍👩‍👧‍👦🇩🇪👩🏽‍🚀🏳️‍🌈" * 20,
    "composed accents": lambda: "r\u00e9sum\u00e9 d\u00e9j\u00e0 vu " * 10,
    "combining accents": lambda: "re\u0301sume\u0301 de\u0301ja\u0300 vu " * 10,
    "chinese": lambda: "地标标记放在每个块之后。向量是它们的平均值。" * 10,
    "thai": lambda: "ภาษาไทยไม่มีช่องว่างระหว่างคำ" * 10,
    "arabic with latin numbers": lambda: "يبلغ طول النهر 6650 كم في عام 2024. " * 10,
    "NUL and zero width": lambda: "a\x00b\u200bc\ufeffd\u200de \x00 \u200b " * 10,
    "NUL alone": lambda: "\x00",
    "CRLF": lambda: "one line\r\nanother line\r\n\r\n" * 10,
    "special tokens": lambda: "[SEP] </s> <|endoftext|> [CLS] <s> [PAD] <pad> [UNK] [MASK] " * 5,
    "html": lambda: "<script>alert('x')</script><b>bold</b> &amp; <!-- [SEP] -->" * 5,
    "latex": lambda: r"$\frac{\partial L}{\partial \theta_{i}} = \sum_{k=1}^{n} x_k^2$ " * 5,
    "a run of marks": lambda: "!?!?...,,,;;;" * 30,
}


@pytest.mark.parametrize("text", EDGE_TEXTS.values(), ids=EDGE_TEXTS.keys())
@pytest.mark.parametrize("name", ["bert", "jina"], ids=["wordpiece", "byte-level BPE"])
def test_edge_texts_pass_through_layout_vectors_and_attention(name, text, tiny_encoder):
    encoder, text = tiny_encoder(name), text()
    sizes = [ChunkingConfig(granularity=1), ChunkingConfig()] if len(text) < 10_000 else []
    made = []
    for chunking in (CHUNKING, ChunkingConfig("sentence", sentence_cap=16), *sizes):
        layout = encoder.layout(text, chunking=chunking)
        made.append(layout)
        assert 2 <= len(layout) <= 128
        assert layout.tokens.starts.tolist() == sorted(layout.tokens.starts.tolist())
        # Chunks join to the kept text, with white space alone between them.
        covered = 0
        for chunk in layout.chunks:
            assert not text[covered : chunk.char_start].strip()
            covered = chunk.char_end
        assert not layout.chunks or not text[covered : layout.kept_chars].strip()
    made.append(encoder.layout(LONG))
    (vectors,), _ = encoder.embed_layouts(made, [PoolingConfig()])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    profile = encoder.attention_profile(made[0], AttentionConfig(bins=16, keep_landmarks=True))
    assert list(profile.rows) == [PoolingMode.CLS, PoolingMode.LANDMARK]
    for row in profile.rows.values():
        np.testing.assert_allclose(row.mass.sum(-1) + row.special.sum(-1), 1, atol=1e-5)
        assert np.isfinite(row.scalars).all()
    json.dumps(profile.to_dict())
