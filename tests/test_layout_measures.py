import json

import pytest
from helpers import (
    FAMILY,
    SPECIAL,
    THREES,
    cases,
    character_tokens,
    fixed,
    seeded,
    toy_tokens,
    word_tokens,
)
from hypothesis import given

from lmk_viz.config import ChunkingConfig, LayoutKind
from lmk_viz.landmarks import (
    Tokens,
    build_layout,
    measure_layout,
)

PROSE = "Red cars go. Blue ones stop here. Why?"
"""Words 0 to 7; sentences begin at words 0, 3 and 7."""


@pytest.mark.parametrize(
    ("g", "max_length", "boundaries", "in_sentence"),
    [
        (3, None, 2, 1),
        (1, None, 7, 5),
        (8, None, 0, 0),
        (7, None, 1, 0),
        (3, 5, 1, 0),
        (3, 7, 2, 1),
        (3, 6, 2, 1),
    ],
    ids=["threes", "ones", "whole", "at-the-last", "cut-at-an-end", "cut-inside", "cut-early"],
)
def test_boundaries_inside_sentences_are_counted(g, max_length, boundaries, in_sentence):
    layout = build_layout(word_tokens(PROSE), SPECIAL, chunking=fixed(g), max_length=max_length)
    found = measure_layout(layout)
    assert (found.boundaries, found.boundaries_in_sentence) == (boundaries, in_sentence)


@pytest.mark.parametrize(
    ("text", "g", "in_sentence"),
    [("Go. \n\nUp!", 3, 0), ("Go.\n", 3, 0), ("a   b", 1, 4), ("Go.  ", 3, 0)],
    ids=["between", "at-the-end", "inside", "spaces-at-the-end"],
)
def test_a_chunk_of_white_space_alone_is_in_a_sentence_only_where_the_text_round_it_is(
    text, g, in_sentence
):
    # Tokens are characters, and a chunk ends behind "Go." and behind the white space.
    layout = build_layout(character_tokens(text), SPECIAL, chunking=fixed(g))
    assert measure_layout(layout).boundaries_in_sentence == in_sentence


@pytest.mark.parametrize(
    ("text", "g", "max_length", "in_word"),
    [
        ("abcd efgh", 3, None, 2),
        ("abcd efg", 4, None, 0),
        ("abcd efgh", 5, None, 0),
        ("abcd efgh", 9, None, 0),
        ("abcd efgh", 9, 4, 1),
        ("abcd efgh", 9, 5, 0),
        ("don't", 3, None, 1),
        ("日本語文", 1, None, 0),
    ],
    ids=["two", "before-space", "behind-space", "none", "limit-in", "limit-out", "quote", "cjk"],
)
def test_boundaries_inside_words_are_counted(text, g, max_length, in_word):
    layout = build_layout(character_tokens(text), SPECIAL, chunking=fixed(g), max_length=max_length)
    assert measure_layout(layout).boundaries_in_word == in_word


@pytest.mark.parametrize(
    ("g", "max_length", "in_character"),
    [
        (8, None, 1),
        (3, None, 2),
        (6, None, 0),
        (6, 4, 1),
        (6, 7, 0),
        (6, 9, 1),
        (3, 9, 1),
        (3, 10, 2),
    ],
    ids=str,
)
def test_boundaries_inside_characters_are_counted_the_limit_included(g, max_length, in_character):
    # Tokens 1 to 5 and 6 to 10 are one character each, so cuts at 1, 6 and 11 split none.
    tokens = character_tokens(f"a{FAMILY}{FAMILY}")
    layout = build_layout(tokens, SPECIAL, chunking=fixed(g), max_length=max_length)
    assert measure_layout(layout).boundaries_in_character == in_character


def test_a_layout_is_measured():
    # [CLS] One two [LMK] three. Four, the limit before "five".
    text, unknown = "One two three.  Four five", 0
    offsets = [(0, 3), (4, 7), (8, 14), (16, 20), (21, 25)]
    tokens = Tokens.from_offsets(text, [10, 0, 11, 12, 0], offsets, unknown_id=unknown)
    layout = build_layout(tokens, SPECIAL, chunking=fixed(2), max_length=6)
    assert measure_layout(layout).to_dict() == {
        "characters": 25,
        "tokens": 5,
        "tokens_kept": 4,
        "tokens_cut": 1,
        "characters_cut": 5,
        "tokens_unknown": 2,
        "input_length": 6,
        "chunks": 2,
        "landmarks": 1,
        "overhead": 0.25,
        "tail_tokens": 2,
        "boundaries": 2,
        "boundaries_in_character": 0,
        "boundaries_in_word": 0,
        "boundaries_in_sentence": 2,
        "chunk_tokens_min": 2,
        "chunk_tokens_median": 2.0,
        "chunk_tokens_max": 2,
    }


def test_chunk_sizes_are_summed_up_by_their_smallest_middle_and_largest():
    found = measure_layout(build_layout(toy_tokens(7), SPECIAL, chunking=THREES))
    assert (found.chunk_tokens_min, found.chunk_tokens_median, found.chunk_tokens_max) == (1, 3, 3)


@pytest.mark.parametrize(
    ("kind", "overhead"),
    [(LayoutKind.PLAIN, 0), (LayoutKind.LANDMARK, 3 / 7), (LayoutKind.MULTI_CLS, 2 / 7)],
)
def test_overhead_counts_what_was_inserted_beside_cls_and_the_final_separator(kind, overhead):
    layout = build_layout(toy_tokens(7), SPECIAL, kind, THREES)
    assert measure_layout(layout).overhead == overhead


@pytest.mark.parametrize("text", ["", " \n"], ids=["empty", "blank"])
def test_a_text_without_tokens_is_measured(text):
    layout = build_layout(Tokens.from_offsets(text, [], []), SPECIAL)
    found = measure_layout(layout)
    assert (found.landmarks, found.chunks, found.overhead, found.chunk_tokens_max) == (1, 0, 0, 0)


def test_the_language_of_sentence_rules_can_be_given():
    layout = build_layout(word_tokens("Bzgl. Xaver schwieg."), SPECIAL, chunking=fixed(1))
    counts = [measure_layout(layout, x).boundaries_in_sentence for x in ("en", "de")]
    assert counts == [1, 2]


@seeded
@given(case=cases())
def test_any_layout_can_be_measured_and_written_as_json(case):
    layout = case.build()
    plain = [layout.to_dict(), measure_layout(layout).to_dict()]
    assert json.loads(json.dumps(plain)) == plain


def test_a_layout_is_written_with_its_chunks_and_without_its_text():
    chunking = ChunkingConfig("variable", granularities=(3,))
    layout = build_layout(toy_tokens(4), SPECIAL, chunking=chunking, max_length=6)
    chunk = {"token_start": 0, "token_end": 3, "char_start": 0, "char_end": 3}
    tail = {"token_start": 3, "token_end": 4, "char_start": 3, "char_end": 4}
    assert layout.to_dict() == {
        "layout": "landmark",
        "input_ids": [1, 10, 11, 12, 2, 13],
        "landmark_positions": [4],
        "cls_positions": [0],
        "separator_position": None,
        "chunks": [
            {"index": 0, **chunk, "landmark_position": 4, "splits_character": False},
            {"index": 1, **tail, "landmark_position": None, "splits_character": False},
        ],
        "drawn_granularities": [3],
        "max_length": 6,
    }
