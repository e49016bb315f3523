import numpy as np
import pytest
from helpers import (
    FAMILY,
    SPECIAL,
    THREES,
    byte_tokens,
    character_tokens,
    chunk_texts,
    fixed,
    toy_tokens,
    word_tokens,
)

from lmk_viz.landmarks import (
    Tokens,
    build_layout,
    character_spans,
)


@pytest.mark.parametrize(
    ("text", "make", "g", "chunks", "flags"),
    [
        (f"a{FAMILY}b", character_tokens, 3, [f"a{FAMILY}", "", "b"], [1, 0, 0]),
        (f"{FAMILY}b", byte_tokens, 8, [FAMILY, "", "b"], [1, 1, 0]),
        ("🇩🇪🇫🇷!", character_tokens, 1, ["🇩🇪", "", "🇫🇷", "", "!"], [1, 0, 1, 0, 0]),
        ("🇩🇪🇫🇷", character_tokens, 2, ["🇩🇪", "🇫🇷"], [0, 0]),
        ("👍🏽 ok", character_tokens, 1, ["👍🏽", "", "", "o", "k"], [1, 0, 0, 0, 0]),
        ("e\u0301a", character_tokens, 1, ["e\u0301", "", "a"], [1, 0, 0]),
        ("\u00e9a", character_tokens, 1, ["\u00e9", "a"], [0, 0]),
        ("\u00e9a", byte_tokens, 1, ["\u00e9", "", "a"], [1, 0, 0]),
        ("日本語", character_tokens, 2, ["日本", "語"], [0, 0]),
        ("日本語", byte_tokens, 4, ["日本", "語", ""], [1, 1, 0]),
        ("ที่นี่", character_tokens, 2, ["ที่", "นี่", ""], [1, 1, 0]),
        ("مَن", character_tokens, 1, ["مَ", "", "ن"], [1, 0, 0]),
        ("عدد 42", character_tokens, 3, ["عدد", "42"], [0, 0]),
        ("a\x00b", character_tokens, 1, ["a", "\x00", "b"], [0, 0, 0]),
        ("a\r\nb", character_tokens, 2, ["a", "b"], [1, 0]),
        ("é\r\nb", character_tokens, 2, ["é", "b"], [1, 0]),
        ("a\nb", character_tokens, 2, ["a", "b"], [0, 0]),
        ("a [SEP] b", word_tokens, 2, ["a [SEP]", "b"], [0, 0]),
        ("ab ab ab", word_tokens, 1, ["ab", "ab", "ab"], [0, 0, 0]),
        ("<b>&amp;</b>", character_tokens, 3, ["<b>", "&am", "p;<", "/b>"], [0, 0, 0, 0]),
        ("a\u200bb", character_tokens, 1, ["a", "\u200b", "b"], [0, 0, 0]),
    ],
    ids=[
        "family",
        "family-bytes",
        "flags-split",
        "flags-whole",
        "skin-tone",
        "combining",
        "composed",
        "composed-bytes",
        "cjk",
        "cjk-bytes",
        "thai",
        "arabic-vowel",
        "arabic-digits",
        "nul",
        "crlf",
        "crlf-not-ascii",
        "lf",
        "typed-special",
        "repeated",
        "markup",
        "zero-width",
    ],
)
def test_a_split_character_is_flagged_and_kept_whole_in_the_chunk_where_it_begins(
    text, make, g, chunks, flags
):
    layout = build_layout(make(text), SPECIAL, chunking=fixed(g))
    found = (chunk_texts(layout), [int(c.splits_character) for c in layout.chunks])
    assert found == (chunks, flags)


def test_a_character_split_by_the_length_limit_is_flagged_and_kept_whole():
    layout = build_layout(character_tokens(f"a{FAMILY}b"), SPECIAL, chunking=THREES, max_length=4)
    (chunk,) = layout.chunks
    assert (chunk.splits_character, layout.kept_chars) == (True, 6)


def test_characters_no_token_covers_stay_with_the_chunk_before_them():
    tokens = Tokens.from_offsets("?a?b?c?", [10, 11, 12], [(1, 2), (3, 4), (5, 6)])
    layout = build_layout(tokens, SPECIAL, chunking=fixed(1))
    assert chunk_texts(layout) == ["?a?", "b?", "c?"]


def test_characters_of_any_token_ranges_can_be_asked_for():
    tokens = word_tokens("ab cd  ef gh")
    assert character_spans(tokens, np.array([1, 2, 4])) == ([(3, 5), (7, 12)], [False, False])


def test_offsets_that_fall_back_are_made_to_rise_and_reported():
    # An end before the last one, zero-width (0, 0) inside a text, an end before its start.
    tokens = Tokens.from_offsets("abcdef", range(4), [(0, 4), (2, 3), (0, 0), (6, 5)])
    found = (tokens.starts.tolist(), tokens.ends.tolist())
    assert found == ([0, 2, 2, 6], [4, 4, 4, 6])


@pytest.mark.parametrize(
    "offsets",
    [[(2, 3), (1, 4)], [(0, 3), (1, 2)], [(2, 1), (2, 3)]],
    ids=["start-falls", "end-falls", "end-before-start"],
)
def test_a_repair_of_offsets_is_reported(offsets):
    assert Tokens.from_offsets("abcd", range(2), offsets).offsets_repaired


@pytest.mark.parametrize(
    "offsets",
    [[(0, 1), (1, 2)], [(0, 1), (0, 1)], [(0, 2), (1, 2)], [(1, 1), (1, 1)], []],
    ids=["side-by-side", "shared", "overlapping", "zero-width", "none"],
)
def test_offsets_that_never_fall_are_left_alone(offsets):
    tokens = Tokens.from_offsets("ab", range(len(offsets)), offsets)
    found = list(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    assert (found, tokens.offsets_repaired) == (offsets, False)


def test_ids_without_their_offsets_are_refused():
    with pytest.raises(ValueError, match="2 ids came with 1 offsets"):
        Tokens.from_offsets("ab", [10, 11], [(0, 1)])


@pytest.mark.parametrize("offset", [(-1, 1), (1, 3)], ids=["before", "behind"])
def test_offsets_outside_the_text_are_refused(offset):
    with pytest.raises(ValueError, match="offsets leave the text"):
        Tokens.from_offsets("ab", [10], [offset])


@pytest.mark.parametrize(
    "starts",
    [[], [1], [0, 0], [0, 2, 1], [0, 3], [-1, 0]],
    ids=["none", "late", "twice", "falling", "behind-the-end", "negative"],
)
def test_sentences_that_do_not_tile_the_tokens_are_refused(starts):
    with pytest.raises(ValueError, match=r"sentence_starts is \[.* for 3 tokens; it has to begin"):
        Tokens.from_offsets("abc", range(3), [(i, i + 1) for i in range(3)], starts)


@pytest.mark.parametrize(("unknown_id", "count"), [(None, 0), (10, 2), (99, 0)])
def test_unknown_tokens_are_counted(unknown_id, count):
    tokens = Tokens.from_offsets("ab", [10, 10], [(0, 1), (1, 2)], unknown_id=unknown_id)
    assert tokens.n_unknown == count


def test_arrays_given_for_tokens_stay_the_callers():
    given = (np.array([5]), np.array([[0, 1]]), np.array([0]))
    tokens = Tokens.from_offsets("a", *given)
    for array in given:
        array += 7
    found = [tokens.ids, tokens.starts, tokens.ends, tokens.sentence_starts]
    assert [array.tolist() for array in found] == [[5], [0], [1], [0]]


@pytest.mark.parametrize("field", ["ids", "starts", "ends", "sentence_starts"])
def test_tokens_cannot_be_written_into(field):
    tokens = Tokens.from_offsets("a", [5], [(0, 1)], [0])
    with pytest.raises(ValueError, match="read-only"):
        getattr(tokens, field)[0] = 1


@pytest.mark.parametrize(
    "field", ["input_ids", "token_index", "cls_positions", "landmark_positions"]
)
def test_a_layout_cannot_be_written_into(field):
    layout = build_layout(toy_tokens(3), SPECIAL)
    with pytest.raises(ValueError, match="read-only"):
        getattr(layout, field)[0] = 1
