from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import BagEncoder
from helpers import fixed, seeded
from hypothesis import given
from hypothesis import strategies as st

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.corpus import Excluded
from lmk_viz.documents import Document
from lmk_viz.embedding import (
    embed_documents,
    forecast_embedding,
    plan_batches,
)
from lmk_viz.embedding_encoder import BATCH_TOKENS_ACCELERATOR, BATCH_TOKENS_CPU
from lmk_viz.pooling import parse_poolings

CONTENT_MEAN = PoolingConfig(PoolingMode.MEAN, include_special=False)
ALL = parse_poolings("cls,mean,landmark,every_k,multi_cls")
LETTERS = "abcdefgh"


def document(words: str, name: str | None = None, label: str | None = None) -> Document:
    """A document of one-letter words, a word a letter."""
    return Document(name or words, f"title of {words}", " ".join(words), label)


def documents(*words: str) -> list[Document]:
    return [document(word) for word in words]


def counts(words: str) -> list[int]:
    """How often each letter stands in the words."""
    return [words.count(letter) for letter in LETTERS]


def unit(rows: list[list[int]]) -> np.ndarray:
    table = np.asarray(rows, dtype=np.float64)
    return table / np.linalg.norm(table, axis=1, keepdims=True)


# Values and order.


def test_rows_stand_in_the_order_of_the_documents():
    words = ["abc", "a", "bbbbbbb", "cd", "eeeeefffff", "gh"]
    table = embed_documents(BagEncoder(LETTERS), documents(*words), [CONTENT_MEAN])
    assert [d.id for d in table.documents] == words
    wanted = unit([counts(word) for word in words])
    np.testing.assert_allclose(table.vectors[PoolingMode.MEAN], wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        # [CLS] a a b c d e [SEP]: CLS counts its first four words, the separator nothing.
        (PoolingConfig(PoolingMode.CLS), [2, 1, 1, 0, 0]),
        (PoolingConfig(PoolingMode.MEAN), [4, 2, 2, 1, 1]),
        (CONTENT_MEAN, [2, 1, 1, 1, 1]),
        # Positions 0, 2, 4 and 6: CLS, a, c and e.
        (PoolingConfig(PoolingMode.EVERY_K), [3, 1, 2, 0, 1]),
        # Positions 0 and 5: CLS and d.
        (PoolingConfig(PoolingMode.EVERY_K, k=5), [2, 1, 1, 1, 0]),
        # Every word is in one chunk, and the chunks count alike.
        (PoolingConfig(PoolingMode.LANDMARK), [2, 1, 1, 1, 1]),
        (PoolingConfig(PoolingMode.MULTI_CLS), [2, 1, 1, 1, 1]),
    ],
    ids=["cls", "mean", "content mean", "every_k of the chunking", "every 5th", "lmk", "multi"],
)
def test_each_pooling_gives_the_vector_worked_out_by_hand(pooling, wanted):
    table = embed_documents(BagEncoder(LETTERS), documents("aabcde"), [pooling], fixed(2))
    np.testing.assert_allclose(
        table.vectors[pooling.mode], unit([[*wanted, 0, 0, 0]]), rtol=0, atol=1e-6
    )


def test_vectors_keep_their_length_where_that_is_asked_for():
    # The mean over a and b is (a + b) / 2.
    table = embed_documents(BagEncoder("ab"), documents("ab"), [CONTENT_MEAN], normalize=False)
    np.testing.assert_array_equal(table.vectors[PoolingMode.MEAN], [[0.5, 0.5]])


def test_vectors_have_length_one_under_every_pooling(tiny_encoder):
    texts = ["A landmark", "Rivers carry water from the hills to the sea.", "Yes!"]
    given = [Document(text, text, text) for text in texts]
    table = embed_documents(tiny_encoder("bert"), given, ALL, fixed(3))
    for vectors in table.vectors.values():
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=0, atol=1e-5)


def test_every_pooling_is_resolved_and_kept_in_the_order_given():
    poolings = parse_poolings("every_k,landmark,cls")
    table = embed_documents(BagEncoder("ab"), documents("ab"), poolings, fixed(7))
    assert [p.mode for p in table.poolings] == ["every_k", "landmark", "cls"]
    assert list(table.vectors) == ["every_k", "landmark", "cls"]
    assert table.poolings[0].k == 7


@pytest.mark.parametrize(
    "chunking", [fixed(4), ChunkingConfig(ChunkingMode.SENTENCE)], ids=lambda c: c.mode.value
)
def test_a_corpus_gives_what_each_text_gives_alone(chunking, tiny_encoder):
    encoder = tiny_encoder("bert")
    texts = [
        "A landmark token is placed. Rivers carry water! Is this a question?",
        "Yes!",
        "The vector of the document is the mean of its landmarks, not of all tokens.",
        "a",
    ]
    table = embed_documents(encoder, [Document(t, t, t) for t in texts], ALL, chunking)
    for pooling in ALL:
        alone = [encoder.encode([text], pooling, chunking)[0] for text in texts]
        np.testing.assert_allclose(table.vectors[pooling.mode], alone, rtol=0, atol=1e-5)


# Batches.


@pytest.mark.parametrize("batch_tokens", [1, 12, 40, 100_000])
def test_the_batch_size_changes_no_vector(batch_tokens, tiny_encoder):
    texts = ["Rivers carry water " * n for n in (3, 1, 5, 2, 4, 1)]
    given = [Document(str(i), "", text) for i, text in enumerate(texts)]
    encoder = tiny_encoder("bert")
    one = embed_documents(encoder, given, ALL, fixed(4))
    other = embed_documents(encoder, given, ALL, fixed(4), batch_tokens=batch_tokens)
    for mode, vectors in one.vectors.items():
        np.testing.assert_allclose(other.vectors[mode], vectors, rtol=0, atol=1e-5)


lengths_and_budgets = given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 200))


@seeded
@lengths_and_budgets
def test_a_plan_holds_every_row_once(lengths, budget):
    rows = [row for batch in plan_batches(lengths, budget) for row in batch]
    assert sorted(rows) == list(range(len(lengths)))


@seeded
@lengths_and_budgets
def test_a_batch_keeps_the_padded_budget_unless_it_is_one_row(lengths, budget):
    for batch in plan_batches(lengths, budget):
        assert len(batch) == 1 or max(lengths[row] for row in batch) * len(batch) <= budget


@seeded
@lengths_and_budgets
def test_a_plan_goes_from_long_to_short_and_keeps_the_order_of_equals(lengths, budget):
    rows = [row for batch in plan_batches(lengths, budget) for row in batch]
    assert rows == sorted(rows, key=lambda row: (-lengths[row], row))


@seeded
@lengths_and_budgets
def test_a_batch_ends_only_where_the_next_row_would_not_have_fitted(lengths, budget):
    for batch, following in pairwise(plan_batches(lengths, budget)):
        assert following
        assert lengths[batch[0]] * (len(batch) + 1) > budget


@pytest.mark.parametrize(
    ("lengths", "budget", "wanted"),
    [
        ([], 10, []),
        ([30], 10, [[0]]),
        ([5, 5], 10, [[0, 1]]),
        ([5, 5, 1], 10, [[0, 1], [2]]),
        ([2, 6, 4, 4, 6], 12, [[1, 4], [2, 3, 0]]),
    ],
    ids=["none", "too long", "exactly full", "full by its longest", "mixed"],
)
def test_plans_by_hand(lengths, budget, wanted):
    assert plan_batches(lengths, budget) == wanted


@pytest.mark.parametrize(
    ("device", "calls"), [(None, 2), ("cpu", 2), ("cuda", 1)], ids=["unnamed", "cpu", "cuda"]
)
def test_the_token_budget_follows_the_device(device, calls):
    # Two such inputs fill a batch of the CPU, all three one of the accelerator.
    words = BATCH_TOKENS_CPU // 2 - 2
    assert 3 * (words + 2) <= BATCH_TOKENS_ACCELERATOR
    encoder = BagEncoder("a")
    if device is not None:
        encoder.device = SimpleNamespace(type=device)
    given = [Document(str(i), "", "a " * words) for i in range(3)]
    embed_documents(encoder, given, [CONTENT_MEAN])
    assert len(encoder.calls) == calls


def test_poolings_of_one_layout_share_one_forward_pass():
    encoder = BagEncoder(LETTERS)
    embed_documents(encoder, documents("ab", "cde"), ALL, fixed(2))
    assert [(kind, modes) for kind, modes, _ in encoder.calls] == [
        (LayoutKind.PLAIN, ("cls", "mean", "every_k")),
        (LayoutKind.LANDMARK, ("landmark",)),
        (LayoutKind.MULTI_CLS, ("multi_cls",)),
    ]


def test_each_text_goes_through_the_encoder_once_a_layout():
    encoder = BagEncoder(LETTERS)
    embed_documents(encoder, documents("ab", "cde", "f"), ALL, fixed(2), batch_tokens=1)
    for kind in LayoutKind:
        seen = [text for of, _, texts in encoder.calls if of is kind for text in texts]
        assert sorted(seen) == ["a b", "c d e", "f"]


# Progress.


@pytest.mark.parametrize("batch_tokens", [1, 9, 1000])
def test_progress_rises_to_the_number_of_passes(batch_tokens):
    heard = []
    embed_documents(
        BagEncoder(LETTERS),
        [*documents("ab", "cde", "f", "gh"), Document("blank", "", " ")],
        ALL,
        fixed(2),
        batch_tokens=batch_tokens,
        progress=lambda done, total: heard.append((done, total)),
    )
    done = [passes for passes, _ in heard]
    assert done == sorted(set(done))
    # Four documents with text under three layouts.
    assert {total for _, total in heard} == {12}
    assert done[-1] == 12
    assert {4, 8} <= set(done)


class Stopped(Exception):  # noqa: N818 - It is a wish, not an error.
    pass


def test_raising_from_progress_cancels_at_once():
    encoder = BagEncoder(LETTERS)

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        embed_documents(encoder, documents("a", "b", "c", "d"), ALL, batch_tokens=1, progress=stop)
    assert len(encoder.calls) == 2


# What is left out.


def test_documents_without_text_are_named_and_the_others_stay():
    given = [document("ab"), Document("blank", "", ""), document("c"), Document("gap", "", "\n\t ")]
    table = embed_documents(BagEncoder(LETTERS), given, [CONTENT_MEAN])
    assert table.excluded == (Excluded("blank", "empty text"), Excluded("gap", "empty text"))
    assert [d.id for d in table.documents] == ["ab", "c"]


@pytest.mark.parametrize("given", [[], [Document("blank", "", " ")]], ids=["none", "only blank"])
def test_a_corpus_without_text_gives_an_empty_table_of_the_right_width(given):
    heard = []
    table = embed_documents(
        BagEncoder(LETTERS), given, ALL, progress=lambda done, total: heard.append(done)
    )
    assert len(table) == 0
    assert {vectors.shape for vectors in table.vectors.values()} == {(0, len(LETTERS))}
    assert not table.was_cut.size
    assert heard == []


def spoil_where(letter: str, kinds: tuple[LayoutKind, ...], value: float, position: int):
    """Writes a value into one state of the texts that begin with a letter."""

    def spoil(layout, states):
        if layout.kind in kinds and layout.text.startswith(letter):
            states[position, 0] = value

    return spoil


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        # The state of CLS is read by cls alone when mean leaves specials out.
        ((LayoutKind.PLAIN,), "cls"),
        ((LayoutKind.PLAIN, LayoutKind.MULTI_CLS), "cls, multi_cls"),
    ],
    ids=["one pooling", "two poolings"],
)
def test_a_vector_that_is_not_finite_is_named_with_its_poolings(kinds, names, value):
    encoder = BagEncoder(LETTERS)
    encoder.spoil = spoil_where("d", kinds, value, position=0)
    poolings = [*parse_poolings("cls,landmark,multi_cls"), CONTENT_MEAN]
    table = embed_documents(
        encoder, documents("ab", "de", "c"), poolings, fixed(2), normalize=False
    )
    assert table.excluded == (
        Excluded("de", f"the vector under {names} is not finite (NaN or inf)"),
    )
    assert [d.id for d in table.documents] == ["ab", "c"]


def test_a_row_left_out_under_one_pooling_is_left_out_of_every_column():
    encoder = BagEncoder(LETTERS)
    encoder.spoil = spoil_where("d", (LayoutKind.PLAIN,), np.nan, position=0)
    table = embed_documents(encoder, documents("abc", "defgh", "c"), ALL, fixed(2))
    frame = table.to_frame()
    assert frame["id"].tolist() == ["abc", "c"]
    assert frame["tokens"].tolist() == [3, 1]
    assert frame["landmarks"].tolist() == [2, 1]
    np.testing.assert_allclose(
        table.vectors[PoolingMode.LANDMARK], unit([counts("abc"), counts("c")]), atol=1e-6
    )


def test_blank_documents_are_named_before_those_without_a_vector():
    encoder = BagEncoder(LETTERS)
    encoder.spoil = spoil_where("d", (LayoutKind.PLAIN,), np.nan, position=1)
    given = [document("d"), Document("blank", "", "")]
    table = embed_documents(encoder, given, [CONTENT_MEAN])
    assert [e.id for e in table.excluded] == ["blank", "d"]


# Counts.


def test_each_pooling_counts_the_tokens_its_own_layout_lost():
    # Of 20 words an input of 12 takes, at three a chunk: [CLS] + 10 + [SEP];
    # [CLS] ccc [LMK] ccc [LMK] ccc; [CLS] ccc [CLS] ccc [CLS] cc [SEP].
    table = embed_documents(BagEncoder("a"), documents("a" * 20), ALL, fixed(3), max_length=12)
    cut = {mode.value: rows.tolist() for mode, rows in table.tokens_cut.items()}
    assert cut == {"cls": [10], "mean": [10], "every_k": [10], "landmark": [11], "multi_cls": [12]}
    assert table.tokens.tolist() == [20]
    assert table.landmarks.tolist() == [2]


@pytest.mark.parametrize(
    ("words", "plain", "landmark", "landmarks"),
    [
        # Limit 9, two a chunk: plain takes 7 words; [CLS] cc [LMK] cc [LMK] c [LMK] takes 5.
        (5, 0, 0, 3),
        (6, 0, 0, 2),  # The ninth position goes to the sixth word, not to its landmark.
        (7, 0, 1, 2),
        (8, 1, 2, 2),
    ],
    ids=["fits both", "costs the last landmark alone", "fits plain alone", "cut in both"],
)
def test_counts_at_one_under_and_one_over_each_limit(words, plain, landmark, landmarks):
    poolings = parse_poolings("mean,landmark")
    table = embed_documents(
        BagEncoder("a"), documents("a" * words), poolings, fixed(2), max_length=9
    )
    assert table.tokens_cut[PoolingMode.MEAN].tolist() == [plain]
    assert table.tokens_cut[PoolingMode.LANDMARK].tolist() == [landmark]
    assert table.landmarks.tolist() == [landmarks]
    assert table.was_cut.tolist() == [plain + landmark > 0]


def test_no_landmark_is_counted_where_no_landmark_layout_was_made():
    table = embed_documents(BagEncoder("ab"), documents("ab"), parse_poolings("cls,multi_cls"))
    assert table.landmarks.tolist() == [0]


def test_a_row_whose_landmarks_were_all_cut_is_flagged():
    # [CLS] c c leaves no room for the landmark; [CLS] c [LMK] does.
    table = embed_documents(
        BagEncoder("a"), documents("aa", "a"), parse_poolings("mean,landmark"), max_length=3
    )
    assert table.fell_back[PoolingMode.LANDMARK].tolist() == [True, False]
    assert table.fell_back[PoolingMode.MEAN].tolist() == [False, False]


def test_flags_stand_with_their_documents_when_a_batch_is_in_another_order():
    # The longer text, which loses its landmark to the limit, goes through first.
    table = embed_documents(
        BagEncoder("a"),
        documents("a", "aaaaa"),
        parse_poolings("landmark"),
        fixed(5),
        max_length=6,
    )
    assert table.fell_back[PoolingMode.LANDMARK].tolist() == [False, True]


def test_sentence_chunking_gives_a_landmark_a_sentence():
    given = [Document("two", "", "a b\n\nc d e"), Document("one", "", "f g h")]
    chunking = ChunkingConfig(ChunkingMode.SENTENCE)
    table = embed_documents(BagEncoder(LETTERS), given, parse_poolings("landmark"), chunking)
    assert table.landmarks.tolist() == [2, 1]
    assert table.tokens.tolist() == [5, 3]


def test_sentences_weigh_alike_whatever_their_length():
    # Unlike in the test of each pooling a landmark's mean counts here, not its sum.
    encoder = BagEncoder(LETTERS)

    def scale(layout, states):
        for chunk in layout.chunks:
            states[chunk.landmark_position] /= chunk.n_tokens

    encoder.spoil = scale
    table = embed_documents(
        encoder,
        [Document("x", "", "a a\n\nb b b b")],
        parse_poolings("landmark"),
        ChunkingConfig(ChunkingMode.SENTENCE),
    )
    np.testing.assert_allclose(
        table.vectors[PoolingMode.LANDMARK], unit([[1, 1, 0, 0, 0, 0, 0, 0]]), atol=1e-6
    )


@pytest.mark.parametrize(
    ("poolings", "wanted"),
    [("landmark,mean", "whole"), ("landmark", "sentences")],
    ids=["with a plain layout", "landmarks alone"],
)
def test_the_length_of_a_document_is_that_of_its_whole_text_where_one_was_made(
    poolings, wanted, tiny_encoder
):
    # Byte-level tokens of white space are lost between sentences.
    encoder = tiny_encoder("roberta")
    text = "Yes!\n\nIt ends here. \n\n Is this"
    lengths = {
        "whole": len(encoder.tokenize(text)),
        "sentences": len(encoder.tokenize_sentences(text)),
    }
    assert lengths["whole"] > lengths["sentences"]
    table = embed_documents(
        encoder,
        [Document("x", "", text)],
        parse_poolings(poolings),
        ChunkingConfig(ChunkingMode.SENTENCE),
    )
    assert table.tokens.tolist() == [lengths[wanted]]


# What is refused.


@pytest.mark.parametrize(
    ("poolings", "message"),
    [
        ([], r"poolings \[\] came; give at least one"),
        (
            [PoolingConfig(PoolingMode.MEAN), CONTENT_MEAN],
            r"poolings \['mean', 'mean'\] came; give at least one, each once",
        ),
    ],
    ids=["none", "one twice"],
)
def test_no_pooling_and_one_given_twice_are_refused(poolings, message):
    with pytest.raises(ValueError, match=message):
        embed_documents(BagEncoder("a"), documents("a"), poolings)


def test_a_pooling_that_cannot_be_had_is_refused_before_any_pass():
    encoder = BagEncoder("a")
    encoder.refused = {PoolingMode.MULTI_CLS}
    with pytest.raises(ValueError, match="multi_cls cannot be had"):
        embed_documents(encoder, documents("a"), ALL)
    assert encoder.calls == []


# The table.


def test_the_frame_has_a_row_a_document_and_a_column_a_pooling():
    given = [document("aab", label="x"), document("c")]
    table = embed_documents(
        BagEncoder("abc"), given, [CONTENT_MEAN, *parse_poolings("landmark")], fixed(2)
    )
    frame = table.to_frame()
    assert frame.columns.tolist() == [
        "id",
        "title",
        "label",
        "tokens",
        "landmarks",
        "tokens_cut_mean",
        "fell_back_mean",
        "tokens_cut_landmark",
        "fell_back_landmark",
        "mean",
        "landmark",
    ]
    assert frame["title"].tolist() == ["title of aab", "title of c"]
    assert frame["label"].tolist()[0] == "x"
    np.testing.assert_array_equal(np.stack(frame["mean"]), table.vectors[PoolingMode.MEAN])


def test_the_frame_leaves_vectors_out_where_they_are_not_wanted():
    table = embed_documents(BagEncoder("a"), documents("a"), parse_poolings("cls"))
    assert table.to_frame(with_vectors=False).columns.tolist() == [
        "id",
        "title",
        "label",
        "tokens",
        "landmarks",
        "tokens_cut_cls",
        "fell_back_cls",
    ]


def embedded(**changes):
    settings = {"words": "ab", "label": "x", "name": "n", "pooling": "mean", **changes}
    given = [document(settings["words"], settings["name"], settings["label"])]
    return embed_documents(BagEncoder(LETTERS), given, parse_poolings(settings["pooling"]))


def test_equal_tables_have_equal_fingerprints():
    assert embedded().fingerprint() == embedded().fingerprint()


@pytest.mark.parametrize(
    "changes",
    [{"words": "ac"}, {"label": "y"}, {"label": None}, {"name": "m"}, {"pooling": "cls"}],
    ids=str,
)
def test_whatever_the_map_shows_is_in_the_fingerprint(changes):
    assert embedded(**changes).fingerprint() != embedded().fingerprint()


def test_the_table_names_its_encoder_and_chunking():
    table = embed_documents(BagEncoder("a"), documents("a"), parse_poolings("cls"), fixed(9))
    assert table.encoder_name == "bag of words"
    assert table.chunking == fixed(9)


def test_without_a_chunking_the_defaults_are_taken():
    table = embed_documents(BagEncoder("a"), documents("a" * 33), parse_poolings("landmark"))
    assert table.chunking == ChunkingConfig()
    assert table.landmarks.tolist() == [2]


class Forecaster:
    """Forecasts a hundredth of a second a token."""

    max_length = 50

    def forecast(self, tokens):
        return SimpleNamespace(seconds=tokens / 100)


@pytest.mark.parametrize(
    ("poolings", "variants", "passes"),
    [
        ("cls,mean", frozenset(), 1),
        ("cls,mean,landmark", frozenset(), 2),
        ("cls,mean,landmark", frozenset({PoolingMode.CLS}), 3),
    ],
    ids=["one layout", "two layouts", "a variant each"],
)
def test_forecast_adds_up_documents_and_the_passes_that_the_poolings_take(
    poolings, variants, passes
):
    encoder = Forecaster()
    encoder.variants = variants
    # Two specials and a token for every four characters: 12, and 102 cut to 50.
    documents = [Document("a", "a", "x" * 40), Document("b", "b", "x" * 400)]
    found = forecast_embedding(encoder, documents, parse_poolings(poolings))
    assert found == pytest.approx(passes * (0.12 + 0.50))
    shorter = forecast_embedding(encoder, documents, parse_poolings(poolings), 20)
    assert shorter == pytest.approx(passes * (0.12 + 0.20))


def test_an_encoder_that_cannot_forecast_gives_none():
    documents = [Document("a", "a", "x")]
    assert forecast_embedding(object(), documents, parse_poolings("cls")) is None
