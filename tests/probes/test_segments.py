import json

import numpy as np
import pytest
from fakes import BagEncoder
from helpers import fixed

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.landmarks import character_spans
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes import segment_cosines

CLS, MEAN, LMK, MULTI = (PoolingMode(m) for m in ("cls", "mean", "landmark", "multi_cls"))
CONTENT_MEAN = PoolingConfig(MEAN, include_special=False)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(letters: str) -> str:
    """A text of one-letter words."""
    return " ".join(letters)


# Values.


def test_equal_parts_of_different_words_have_equal_cosines_under_the_mean():
    # The whole is the mean of s orthogonal parts of one length: each has cosine 1 / sqrt(s).
    text = words("aabbccddee")
    found = segment_cosines(BagEncoder(LETTERS), text, [CONTENT_MEAN], segments=5)
    np.testing.assert_allclose(found.cosines[MEAN], np.full(5, 5**-0.5), rtol=0, atol=1e-6)


def test_a_part_that_comes_again_is_closer_to_the_whole():
    # Whole 4a + 2b + 2c; parts aa, bb, aa, cc: 4 / sqrt(24), 2 / sqrt(24), ...
    found = segment_cosines(BagEncoder(LETTERS), words("aabbaacc"), [CONTENT_MEAN], segments=4)
    wanted = np.array([4, 2, 4, 2]) / np.sqrt(24)
    np.testing.assert_allclose(found.cosines[MEAN], wanted, rtol=0, atol=1e-6)


def test_a_cls_that_sees_only_the_start_is_close_to_the_first_part_alone():
    # CLS counts its first two words: of the whole a and b, of the parts their own two.
    encoder = BagEncoder(LETTERS, reach=2)
    found = segment_cosines(encoder, words("abcdefgh"), parse_poolings("cls"), segments=4)
    np.testing.assert_allclose(found.cosines[CLS], [1, 0, 0, 0], rtol=0, atol=1e-6)


def test_the_landmark_mean_by_hand():
    # Chunks of two words, each landmark counting its own: the whole is a + b + ... + h.
    encoder = BagEncoder(LETTERS)
    found = segment_cosines(
        encoder, words("abcdefgh"), parse_poolings("landmark"), fixed(2), segments=2
    )
    np.testing.assert_allclose(found.cosines[LMK], [0.5**0.5] * 2, rtol=0, atol=1e-6)


def test_one_part_is_the_whole():
    found = segment_cosines(BagEncoder(LETTERS), words("abc"), [CONTENT_MEAN], segments=1)
    np.testing.assert_allclose(found.cosines[MEAN], [1.0], rtol=0, atol=1e-6)


def test_poolings_are_compared_side_by_side_and_in_the_order_given():
    poolings = parse_poolings("landmark,every_k,cls")
    found = segment_cosines(BagEncoder(LETTERS), words("abcd"), poolings, fixed(2))
    assert list(found.cosines) == ["landmark", "every_k", "cls"]
    assert [p.k for p in found.poolings] == [None, 2, None]


# Parts.


def test_parts_tile_the_tokens_and_differ_by_one_at_most():
    found = segment_cosines(BagEncoder(LETTERS), words(LETTERS), [CONTENT_MEAN])
    assert found.borders[0] == 0
    assert found.borders[-1] == 26
    assert set(np.diff(found.borders)) == {2, 3}
    assert len(found.borders) == 11


def test_parts_are_embedded_alone_beside_the_whole():
    encoder = BagEncoder(LETTERS)
    segment_cosines(encoder, words("abcdef"), [CONTENT_MEAN], segments=3)
    seen = sorted(text for _, _, texts in encoder.calls for text in texts)
    assert seen == ["a b", "a b c d e f", "c d", "e f"]


@pytest.mark.parametrize(("n", "parts"), [(1, 1), (7, 7), (10, 10), (11, 10)])
def test_a_text_of_fewer_tokens_than_parts_has_a_part_a_token(n, parts):
    found = segment_cosines(BagEncoder(LETTERS), words(LETTERS[:n]), [CONTENT_MEAN])
    assert len(found.cosines[MEAN]) == parts
    assert found.tokens == n


def test_a_part_whose_token_shares_its_character_is_a_gap(tiny_encoder):
    # A family is one character of many tokens, which all count to the part it begins in.
    text = "\U0001f468\u200d\U0001f469\u200d\U0001f467 sea"
    encoder = tiny_encoder("roberta")
    found = segment_cosines(encoder, text, parse_poolings("mean"), segments=40)
    spans, _ = character_spans(encoder.tokenize(text), found.borders)
    blank = np.array([start == end for start, end in spans])
    assert 0 < blank.sum() < len(blank)
    np.testing.assert_array_equal(np.isnan(found.cosines[MEAN]), blank)


# The limit.


@pytest.mark.parametrize(
    ("poolings", "kept"),
    # Of 20 words an input of 12 takes, at three a chunk: [CLS] + 10 + [SEP];
    # [CLS] ccc [LMK] ccc [LMK] ccc; [CLS] ccc [CLS] ccc [CLS] cc [SEP].
    [("cls,mean", 10), ("landmark", 9), ("mean,landmark", 9), ("multi_cls,landmark,cls", 8)],
    ids=["plain", "landmark", "both", "all"],
)
def test_parts_lie_where_every_pooling_sees_the_text(poolings, kept):
    encoder = BagEncoder(LETTERS)
    found = segment_cosines(
        encoder, words("abcdefghijklmnopqrst"), parse_poolings(poolings), fixed(3), 12, 2
    )
    assert found.borders.tolist() == [0, kept // 2, kept]
    assert (found.tokens, found.tokens_cut) == (20, 20 - kept)


def test_no_pooling_cuts_the_whole_that_parts_are_compared_with():
    encoder = BagEncoder(LETTERS)
    cut = []
    encoder.spoil = lambda layout, _: cut.append(layout.n_cut)
    segment_cosines(
        encoder, words(LETTERS), parse_poolings("cls,landmark,multi_cls"), fixed(3), 12, 2
    )
    assert len(cut) == 3 * 3
    assert set(cut) == {0}


def test_sentences_that_tokenise_otherwise_are_measured_in_characters(tiny_encoder):
    # Byte-level tokens of white space are in the whole text and in no sentence.
    encoder = tiny_encoder("roberta")
    text = "Yes!\n\n \n\nIt ends here.\n\n \n\nIs this a question?\n\n \n\nYes!\n\n \n\nIt ends."
    chunking = ChunkingConfig(ChunkingMode.SENTENCE)
    layout = encoder.layout(text, LayoutKind.LANDMARK, chunking, 20)
    assert layout.n_cut
    found = segment_cosines(encoder, text, parse_poolings("landmark"), chunking, 20, 1)
    tokens = encoder.tokenize(text)
    assert len(tokens) > layout.n_tokens
    ends = tokens.ends[: found.borders[-1] + 1]
    assert ends[-2] <= layout.kept_chars < ends[-1]


# The control.


def test_the_control_is_the_mean_cosine_of_unrelated_parts_with_the_whole():
    # Whole a + b + c + d. Unrelated parts: a x has 1 / sqrt(2 * 4), x y has 0.
    found = segment_cosines(
        BagEncoder(LETTERS),
        words("abcd"),
        [CONTENT_MEAN],
        segments=2,
        unrelated=words("axxyzz"),
    )
    assert found.unrelated == {MEAN: pytest.approx((8**-0.5 + 0) / 2, abs=1e-6)}


def test_unrelated_parts_are_as_long_as_those_of_the_document():
    encoder = BagEncoder(LETTERS)
    segment_cosines(
        encoder, words("abcde"), [CONTENT_MEAN], segments=2, unrelated=words("vwxyz" * 3)
    )
    seen = {text for _, _, texts in encoder.calls for text in texts}
    assert seen == {"a b c d e", "a b", "c d e", "v w", "x y z"}


def test_a_short_unrelated_text_gives_the_parts_it_has():
    encoder = BagEncoder(LETTERS)
    found = segment_cosines(
        encoder, words("abcdef"), [CONTENT_MEAN], segments=3, unrelated=words("axy")
    )
    # Its one whole part is a x, and the whole document counts six letters once.
    assert found.unrelated == {MEAN: pytest.approx(1 / np.sqrt(2 * 6), abs=1e-6)}


@pytest.mark.parametrize("unrelated", [None, "", "  ", "x"], ids=["none", "empty", "blank", "tiny"])
def test_without_a_part_of_an_unrelated_text_there_is_no_control(unrelated):
    found = segment_cosines(
        BagEncoder(LETTERS), words("abcd"), [CONTENT_MEAN], segments=2, unrelated=unrelated
    )
    assert found.unrelated == {}


# What is refused.


@pytest.mark.parametrize("text", ["", " \n\t"], ids=["empty", "blank"])
def test_a_text_without_a_token_is_refused(text):
    with pytest.raises(ValueError, match="no token to compare; give a text with words in it"):
        segment_cosines(BagEncoder(LETTERS), text, [CONTENT_MEAN])


@pytest.mark.parametrize("segments", [0, -3])
def test_no_part_at_all_is_refused(segments):
    with pytest.raises(ValueError, match=f"segments is {segments}; allowed: 1 and more"):
        segment_cosines(BagEncoder(LETTERS), "a", [CONTENT_MEAN], segments=segments)


def test_no_pooling_is_refused():
    with pytest.raises(ValueError, match="give at least one"):
        segment_cosines(BagEncoder(LETTERS), "a", [])


def test_a_whole_without_a_finite_vector_is_refused_with_the_reason():
    encoder = BagEncoder(LETTERS)

    def spoil(layout, states):
        if layout.n_kept == 4:
            states[1] = np.nan

    encoder.spoil = spoil
    with pytest.raises(ValueError, match=r"no vector to compare its parts with: .*under mean"):
        segment_cosines(encoder, words("abcd"), [CONTENT_MEAN], segments=2)


# JSON.


def test_the_result_is_plain_json_without_nan():
    encoder = BagEncoder(LETTERS)

    def spoil(layout, states):
        if layout.text == "c d":
            states[:] = np.nan

    encoder.spoil = spoil
    found = segment_cosines(
        encoder, words("abcdef"), [CONTENT_MEAN], segments=3, unrelated=words("xy")
    )
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == {
        "borders": [0, 2, 4, 6],
        "cosines": {"mean": [pytest.approx(3**-0.5), None, pytest.approx(3**-0.5)]},
        "unrelated": {"mean": 0.0},
        "tokens": 6,
        "tokens_cut": 0,
    }


# With the real encoder.


def test_parts_of_a_real_text_are_closer_to_it_than_unrelated_ones(minilm_encoder):
    text = "Rivers carry water from the hills to the sea, and rain carries it back again. " * 3
    found = segment_cosines(
        minilm_encoder, text, parse_poolings("mean,landmark"), unrelated="Stone walls stand. " * 9
    )
    for mode, cosines in found.cosines.items():
        # Parts of five words are noisy one by one.
        assert cosines.mean() > found.unrelated[mode] + 0.1
