import dataclasses

import numpy as np
import pytest
from fakes import SPECIAL, BagEncoder
from helpers import chunk_texts, drawing, fixed

from lmk_viz.config import ChunkingConfig, LayoutKind
from lmk_viz.landmarks import Tokens, build_layout
from lmk_viz.probes.edits import (
    permute_units,
    unit_borders,
    with_tokens,
    without_chunk,
    without_tokens,
)

PLAIN, LANDMARK, MULTI = LayoutKind
ENCODER = BagEncoder("abcdefghijklmnopqrstuvwxyz")


def layout_of(letters, kind=LANDMARK, granularity=3, limit=None):
    tokens = ENCODER.tokenize(" ".join(letters))
    return build_layout(tokens, SPECIAL, kind, fixed(granularity), limit)


def letters_of(layout):
    """What goes in, in order: letters, and specials by name."""
    names = {SPECIAL.cls: "<", SPECIAL.landmark: ">"}
    back = {10 + place: letter for letter, place in ENCODER.words.items()}
    return "".join(names.get(i) or back[i] for i in layout.input_ids.tolist())


def assert_consistent(layout):
    """All parts of a layout say the same thing."""
    content = layout.content_positions
    assert layout.n_kept == len(content)
    np.testing.assert_array_equal(layout.token_index[content], np.arange(layout.n_kept))
    np.testing.assert_array_equal(layout.input_ids[content], layout.tokens.ids[: layout.n_kept])
    assert set(layout.input_ids[layout.landmark_positions].tolist()) <= {SPECIAL.landmark}
    assert set(layout.input_ids[layout.cls_positions].tolist()) <= {SPECIAL.cls}
    if layout.separator_position is not None:
        assert layout.input_ids[layout.separator_position] == SPECIAL.landmark
    special = {*layout.landmark_positions.tolist(), *layout.cls_positions.tolist()}
    special |= {layout.separator_position} - {None}
    assert special | set(content.tolist()) == set(range(len(layout)))
    borders = [(c.token_start, c.token_end) for c in layout.chunks]
    assert [a for a, _ in borders] == [0, *(b for _, b in borders[:-1])]
    for chunk in layout.chunks:
        words = layout.text[chunk.char_start : chunk.char_end].split()
        own = layout.tokens.ids[chunk.token_start : chunk.token_end] - 10
        assert [ENCODER.words[word] for word in words] == own.tolist()


# Without a chunk.


@pytest.mark.parametrize(("index", "wanted"), [(0, "<def>g>"), (1, "<abc>g>"), (2, "<abc>def>")])
def test_a_chunk_goes_with_its_landmark_and_the_other_boundaries_stay(index, wanted):
    layout = without_chunk(layout_of("abcdefg"), index)
    assert letters_of(layout) == wanted
    assert_consistent(layout)


def test_the_short_last_chunk_is_not_filled_up_from_what_stood_before_it():
    layout = without_chunk(layout_of("abcdefg"), 0)
    assert chunk_texts(layout) == ["d e f", "g"]
    assert layout.landmark_positions.tolist() == [4, 6]


@pytest.mark.parametrize(("index", "wanted"), [(0, "<def<g>"), (1, "<abc<g>"), (2, "<abc<def>")])
def test_of_a_multi_cls_layout_a_chunk_goes_with_the_cls_before_it(index, wanted):
    layout = without_chunk(layout_of("abcdefg", MULTI), index)
    assert letters_of(layout) == wanted
    assert_consistent(layout)


def test_a_tail_without_a_landmark_takes_none_with_it():
    cut = layout_of("abcdefg", limit=7)
    assert drawing(cut) == "1 ccc 2 cc"
    assert letters_of(without_chunk(cut, 1)) == "<abc>"
    assert letters_of(without_chunk(cut, 0)) == "<de"


def test_tokens_behind_the_limit_do_not_come_in_for_those_that_go():
    edited = without_chunk(layout_of("abcdefghi", limit=9), 0)
    assert letters_of(edited) == "<def>"
    assert edited.n_cut == 3


@pytest.mark.parametrize("index", [-1, 3])
def test_a_chunk_that_is_not_there_is_refused(index):
    with pytest.raises(ValueError, match=f"chunk {index} is wanted; the layout has 3"):
        without_chunk(layout_of("abcdefg"), index)


@pytest.mark.parametrize("kind", LayoutKind)
def test_the_only_chunk_cannot_go(kind):
    with pytest.raises(ValueError, match="nothing would stay"):
        without_chunk(layout_of("abc", kind), 0)


# Without some tokens.


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(PLAIN, "<abfg>"), (LANDMARK, "<ab>f>g>"), (MULTI, "<ab<f<g>")],
)
def test_a_range_inside_chunks_leaves_their_landmarks(kind, wanted):
    layout = without_tokens(layout_of("abcdefg", kind), 2, 5)
    assert letters_of(layout) == wanted
    assert_consistent(layout)


def test_a_range_takes_the_landmarks_of_all_chunks_that_it_empties():
    layout = without_tokens(layout_of("abcdefghi"), 2, 7)
    assert letters_of(layout) == "<ab>hi>"
    assert_consistent(layout)


@pytest.mark.parametrize(("start", "end"), [(2, 2), (-1, 2), (5, 9)])
def test_a_range_outside_the_kept_tokens_is_refused(start, end):
    with pytest.raises(ValueError, match="inside the 7 kept tokens"):
        without_tokens(layout_of("abcdefg"), start, end)


# With more.


def test_a_closed_insert_has_a_landmark_of_its_own():
    layout = with_tokens(layout_of("abcdef"), 3, ENCODER.tokenize("x y"), closed=True)
    assert letters_of(layout) == "<abc>xy>def>"
    assert_consistent(layout)


@pytest.mark.parametrize(
    ("kind", "at", "wanted"),
    [
        (PLAIN, 3, "<abcxydef>"),
        (PLAIN, 0, "<xyabcdef>"),
        (LANDMARK, 0, "<xy>abc>def>"),
        (MULTI, 0, "<xy<abc<def>"),
        (MULTI, 3, "<abc<xy<def>"),
    ],
)
def test_a_closed_insert_in_each_kind_of_layout(kind, at, wanted):
    layout = with_tokens(layout_of("abcdef", kind), at, ENCODER.tokenize("x y"), closed=True)
    assert letters_of(layout) == wanted
    assert_consistent(layout)


def test_an_open_insert_joins_the_chunk_it_stands_in():
    layout = with_tokens(layout_of("abcdef"), 4, ENCODER.tokenize("x"))
    assert letters_of(layout) == "<abc>dxef>"
    assert_consistent(layout)


@pytest.mark.parametrize("kind", LayoutKind)
@pytest.mark.parametrize("at", [0, 3])
def test_what_was_inserted_goes_again_without_a_trace(kind, at):
    layout = layout_of("abcdef", kind)
    filled = with_tokens(layout, at, ENCODER.tokenize("x y"), closed=True)
    back = without_tokens(filled, at, at + 2)
    for field in ("input_ids", "token_index", "landmark_positions", "cls_positions"):
        np.testing.assert_array_equal(getattr(back, field), getattr(layout, field))
    # A blank more may stay in the text, where no token is.
    assert [c.split() for c in chunk_texts(back)] == [c.split() for c in chunk_texts(layout)]


def test_a_closed_insert_inside_a_chunk_is_refused():
    with pytest.raises(ValueError, match="token 4 is inside a chunk"):
        with_tokens(layout_of("abcdef"), 4, ENCODER.tokenize("x"), closed=True)


@pytest.mark.parametrize(("at", "text"), [(6, "x"), (0, ""), (-1, "x")])
def test_an_insert_of_nothing_or_nowhere_is_refused(at, text):
    with pytest.raises(ValueError, match="in front of one of 6"):
        with_tokens(layout_of("abcdef"), at, ENCODER.tokenize(text))


# In another order.


@pytest.mark.parametrize(
    ("kind", "wanted"), [(PLAIN, "<gabcdef>"), (LANDMARK, "<g>abc>def>"), (MULTI, "<g<abc<def>")]
)
def test_parts_move_with_their_landmarks(kind, wanted):
    layout = layout_of("abcdefg", kind)
    moved = permute_units(layout, np.array([0, 3, 6, 7]), [2, 0, 1])
    assert letters_of(moved) == wanted
    assert moved.text == "g a b c d e f"
    assert_consistent(moved)


@pytest.mark.parametrize("kind", LayoutKind)
def test_the_original_order_changes_nothing(kind):
    layout = layout_of("abcdefg", kind)
    same = permute_units(layout, np.array([0, 3, 6, 7]), [0, 1, 2])
    for field in ("input_ids", "token_index", "landmark_positions", "cls_positions"):
        np.testing.assert_array_equal(getattr(same, field), getattr(layout, field))


@pytest.mark.parametrize(
    ("borders", "order", "words"),
    [
        ([0, 3, 7], [0, 0], "each of 2 parts once"),
        ([0, 3], [0], "tile a text"),
        ([0, 2, 7], [1, 0], "begins inside a chunk"),
    ],
)
def test_orders_that_do_not_fit_are_refused(borders, order, words):
    with pytest.raises(ValueError, match=words):
        permute_units(layout_of("abcdefg"), np.array(borders), order)


# Texts of tokens that share characters or leave some out.


def test_edits_leave_the_original_as_it_was():
    layout = layout_of("abcdef")
    before = {f.name: np.array(getattr(layout, f.name)) for f in dataclasses.fields(layout)[3:7]}
    without_chunk(layout, 0)
    with_tokens(layout, 0, ENCODER.tokenize("x"), closed=True)
    permute_units(layout, np.array([0, 3, 6]), [1, 0])
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(layout, name), value)


def test_a_family_of_many_tokens_goes_as_one(tiny_encoder):
    encoder = tiny_encoder("roberta")
    text = "sea \U0001f468\u200d\U0001f469\u200d\U0001f467 sky and rain"
    layout = encoder.layout(text, LANDMARK, ChunkingConfig(granularity=3), 40)
    for chunk in layout.chunks:
        edited = without_chunk(layout, chunk.index)
        wanted = np.delete(layout.tokens.ids, np.r_[chunk.token_start : chunk.token_end])
        np.testing.assert_array_equal(edited.tokens.ids, wanted)
        assert (edited.tokens.ends <= len(edited.text)).all()
        assert edited.n_landmarks == layout.n_landmarks - 1


def test_a_landmark_is_not_looked_for_by_its_id():
    # A text token with the id of a landmark stays text.
    tokens = Tokens.from_offsets("abcd", [2, 10, 2, 11], [(i, i + 1) for i in range(4)])
    layout = build_layout(tokens, SPECIAL, LANDMARK, fixed(2))
    edited = without_chunk(layout, 0)
    assert edited.input_ids.tolist() == [1, 2, 11, 2]
    assert edited.landmark_positions.tolist() == [3]


# Borders in other tokens.


def test_borders_are_found_again_by_character(tiny_encoder):
    encoder = tiny_encoder("roberta")
    text = "Yes!\n\n \n\nIt ends here.\n\n \n\nIs this a question?"
    whole = encoder.tokenize(text)
    layout = encoder.layout(text, LANDMARK, ChunkingConfig("sentence"), 40)
    starts = [text.index(word) for word in ("It", "Is")]
    inner = np.searchsorted(whole.ends, starts, side="right")
    borders = np.array([0, *inner, len(whole)])
    found = unit_borders(layout, whole, borders)
    assert found.tolist() == [*(c.token_start for c in layout.chunks), layout.n_tokens]
