import os
import subprocess
import sys

import pytest
from helpers import (
    PAD,
    SPECIAL,
    THREES,
    cases,
    chunkings,
    drawing,
    fixed,
    seeded,
    tokenised,
    toy_tokens,
)
from hypothesis import given
from hypothesis import strategies as st

from lmk_viz.config import ChunkingConfig, LayoutKind
from lmk_viz.landmarks import (
    SpecialIds,
    Tokens,
    build_layout,
    chunk_sizes,
    collate,
    measure_layout,
)

THREES_CLOSED = ChunkingConfig(granularity=3, close_tail=True)


# Reference cases of the method: toy ids CLS 1, SEP 2, content c, g = 3.
@pytest.mark.parametrize(
    ("n", "max_length", "expected", "landmarks", "tail", "cut"),
    [
        (7, None, "1 ccc 2 ccc 2 c 2", [4, 8, 10], 0, 0),
        (6, None, "1 ccc 2 ccc 2", [4, 8], 0, 0),
        (6, 9, "1 ccc 2 ccc 2", [4, 8], 0, 0),
        (1, None, "1 c 2", [2], 0, 0),
        (6, 8, "1 ccc 2 ccc", [4], 3, 0),
        (7, 7, "1 ccc 2 cc", [4], 2, 2),
        (2, 3, "1 cc", [], 2, 0),
        (0, None, "1 2", [1], 0, 0),
    ],
    ids=["7", "6", "6-in-9", "1", "6-in-8", "7-in-7", "2-in-3", "empty"],
)
class TestReferenceCase:
    """The evaluation rows of the table, one column a test."""

    @pytest.fixture
    def layout(self, n, max_length):
        return build_layout(toy_tokens(n), SPECIAL, chunking=THREES, max_length=max_length)

    def test_input(self, layout, expected, landmarks, tail, cut):
        assert drawing(layout) == expected

    def test_landmark_positions(self, layout, expected, landmarks, tail, cut):
        assert layout.landmark_positions.tolist() == landmarks

    def test_unclosed_tail(self, layout, expected, landmarks, tail, cut):
        assert layout.n_tail == tail

    def test_cut(self, layout, expected, landmarks, tail, cut):
        assert layout.n_cut == cut


def test_closing_the_tail_gives_what_training_gives_when_no_landmark_is_left():
    # The table's "2, 3": training turns the last token into a landmark (pooled 2, tail 0,
    # cut 1). Evaluation does not, nor do we; close_tail reaches the same row by its own rule.
    layout = build_layout(toy_tokens(2), SPECIAL, chunking=THREES_CLOSED, max_length=3)
    found = (drawing(layout), layout.landmark_positions.tolist(), layout.n_tail, layout.n_cut)
    assert found == ("1 c 2", [2], 0, 1)


def test_an_empty_text_keeps_its_cls_unlike_in_training():
    # The table's "empty": training overwrites the CLS and is left with `2`. We evaluate.
    assert drawing(build_layout(toy_tokens(0), SPECIAL, max_length=3)) == "1 2"


def test_no_second_separator_follows_the_last_landmark_unlike_in_the_pull_request():
    # The PR keeps the tokenizer's SEP too: `1 ccc 2 ccc 2 c 2 2`, pooled at 4, 8, 10, 11.
    layout = build_layout(toy_tokens(7), SPECIAL, chunking=THREES)
    assert (len(layout), layout.separator_position) == (11, None)


@pytest.mark.parametrize(
    ("n", "max_length", "expected", "cls_positions", "separator"),
    [
        (7, None, "1 ccc 1 ccc 1 c 2", [0, 4, 8], 10),
        (7, 6, "1 ccc 1 2", [0, 4], 5),
        (7, 7, "1 ccc 1 c 2", [0, 4], 6),
        (7, 5, "1 ccc 2", [0], 4),
        (0, None, "1 2", [0], 1),
    ],
    ids=["7", "7-in-6-second-cls-heads-nothing", "7-in-7", "7-in-5", "empty"],
)
def test_multi_cls_puts_a_cls_before_every_chunk_and_one_separator_at_the_end(
    n, max_length, expected, cls_positions, separator
):
    layout = build_layout(toy_tokens(n), SPECIAL, LayoutKind.MULTI_CLS, THREES, max_length)
    found = (drawing(layout), layout.cls_positions.tolist(), layout.separator_position)
    assert found == (expected, cls_positions, separator)


@pytest.mark.parametrize(
    ("n", "max_length", "expected", "separator"),
    [
        (7, None, "1 ccccccc 2", 8),
        (5, None, "1 ccccc 2", 6),
        (7, 9, "1 ccccccc 2", 8),
        (7, 8, "1 cccccc 2", 7),
        (7, 3, "1 c 2", 2),
        (0, None, "1 2", 1),
    ],
    ids=["7", "5", "7-in-9", "7-in-8", "7-in-3", "empty"],
)
def test_a_plain_layout_keeps_its_final_separator(n, max_length, expected, separator):
    layout = build_layout(toy_tokens(n), SPECIAL, LayoutKind.PLAIN, THREES, max_length)
    assert (drawing(layout), layout.separator_position) == (expected, separator)


@pytest.mark.parametrize(
    ("n", "max_length", "closed"),
    [
        (7, None, "1 ccc 2 ccc 2 c 2"),
        (7, 11, "1 ccc 2 ccc 2 c 2"),
        (7, 10, "1 ccc 2 ccc 2"),
        (7, 9, "1 ccc 2 ccc 2"),
        (7, 8, "1 ccc 2 cc 2"),
        (7, 7, "1 ccc 2 c 2"),
        (7, 6, "1 ccc 2"),
        (7, 5, "1 ccc 2"),
        (7, 4, "1 cc 2"),
        (7, 3, "1 c 2"),
    ],
)
def test_closing_the_tail_trades_content_for_the_last_landmark(n, max_length, closed):
    # In 10 and in 6 one position stays unused: a token there would have no landmark.
    layout = build_layout(toy_tokens(n), SPECIAL, chunking=THREES_CLOSED, max_length=max_length)
    assert drawing(layout) == closed


# The budget of the length limit, worked out by hand.
BUDGETS = [
    # max_len, g, whole content, its landmarks, over-long: landmarks, content, tail
    (512, 32, 495, 16, 15, 496, 16),
    (512, 64, 503, 8, 7, 504, 56),
    (512, 128, 507, 4, 3, 508, 124),
    (512, 256, 509, 2, 1, 510, 254),
    (4096, 32, 3970, 125, 124, 3971, 3),
    (8192, 32, 7942, 249, 248, 7943, 7),
    (8192, 64, 8064, 126, 126, 8065, 1),
    (8192, 128, 8127, 64, 63, 8128, 64),
    (8192, 256, 8159, 32, 31, 8160, 224),
]
each_budget = pytest.mark.parametrize(
    ("max_length", "g", "whole", "whole_landmarks", "landmarks", "content", "tail"),
    BUDGETS,
    ids=[f"{row[0]}-{row[1]}" for row in BUDGETS],
)


@each_budget
def test_the_longest_text_that_fits_whole_is_that_of_the_budget_table(
    max_length, g, whole, whole_landmarks, landmarks, content, tail
):
    layout = build_layout(toy_tokens(whole), SPECIAL, chunking=fixed(g), max_length=max_length)
    found = (layout.n_kept, layout.n_landmarks, layout.n_tail, layout.n_cut)
    assert found == (whole, whole_landmarks, 0, 0)


@each_budget
def test_one_token_more_than_the_budget_table_does_not_fit_whole(
    max_length, g, whole, whole_landmarks, landmarks, content, tail
):
    layout = build_layout(toy_tokens(whole + 1), SPECIAL, chunking=fixed(g), max_length=max_length)
    assert layout.n_cut + layout.n_tail > 0


@each_budget
def test_an_over_long_text_keeps_what_the_budget_table_says(
    max_length, g, whole, whole_landmarks, landmarks, content, tail
):
    layout = build_layout(toy_tokens(9000), SPECIAL, chunking=fixed(g), max_length=max_length)
    assert (layout.n_landmarks, layout.n_kept, layout.n_tail) == (landmarks, content, tail)


def test_a_chunk_holds_32_tokens_unless_told_otherwise():
    layout = build_layout(toy_tokens(33), SPECIAL)
    assert [c.n_tokens for c in layout.chunks] == [32, 1]


def test_a_plain_layout_is_one_chunk_without_a_draw():
    chunking = ChunkingConfig("variable", granularities=(3,))
    layout = build_layout(toy_tokens(7), SPECIAL, LayoutKind.PLAIN, chunking)
    assert ([c.n_tokens for c in layout.chunks], layout.drawn) == ([7], ())


@pytest.mark.parametrize("max_length", [3, 512, 8192])
def test_a_plain_layout_has_room_for_all_but_two_tokens(max_length):
    layout = build_layout(toy_tokens(9000), SPECIAL, LayoutKind.PLAIN, max_length=max_length)
    assert layout.n_kept == max_length - 2


@pytest.mark.parametrize(
    ("g", "percent"), [(32, 3.1), (64, 1.6), (128, 0.8), (256, 0.4)], ids=lambda x: str(x)
)
def test_landmarks_cost_the_stated_share_of_tokens(g, percent):
    layout = build_layout(toy_tokens(256 * 20), SPECIAL, chunking=fixed(g))
    assert round(100 * measure_layout(layout).overhead, 1) == percent


@seeded
@given(tokens=tokenised, chunking=chunkings)
def test_chunk_sizes_are_positive_and_sum_to_the_tokens(tokens, chunking):
    sizes, _ = chunk_sizes(tokens, chunking)
    assert (sizes > 0).all()
    assert sizes.sum() == len(tokens)


@pytest.mark.parametrize(
    ("n", "g", "sizes"),
    [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (4, 3, [3, 1]), (5, 9, [5]), (3, 1, [1, 1, 1])],
    ids=["none", "one", "equal", "one-over", "larger-than-text", "every-token"],
)
def test_fixed_chunks_are_full_but_for_the_last(n, g, sizes):
    found, drawn = chunk_sizes(toy_tokens(n), fixed(g))
    assert (found.tolist(), drawn) == (sizes, ())


@pytest.mark.parametrize(
    ("starts", "cap", "sizes"),
    [
        ([0], 99, [7]),
        ([0, 2, 6], 99, [2, 4, 1]),
        ([0, 2, 6], 3, [2, 3, 1, 1]),
        ([0, 2, 6], 2, [2, 2, 2, 1]),
        ([0, 2, 6], 1, [1] * 7),
    ],
    ids=["one", "three", "one-over-the-cap", "at-the-cap", "every-token"],
)
def test_a_sentence_is_a_chunk_unless_the_cap_cuts_it(starts, cap, sizes):
    tokens = Tokens.from_offsets("abcdefg", range(7), [(i, i + 1) for i in range(7)], starts)
    found, drawn = chunk_sizes(tokens, ChunkingConfig("sentence", sentence_cap=cap))
    assert (found.tolist(), drawn) == (sizes, ())


def test_no_sentence_makes_no_chunk():
    tokens = Tokens.from_offsets("  ", [], [], [])
    assert chunk_sizes(tokens, ChunkingConfig("sentence"))[0].tolist() == []


def test_sentence_chunks_are_refused_of_a_text_tokenised_as_a_whole():
    with pytest.raises(ValueError, match="needs tokens made sentence by sentence"):
        chunk_sizes(toy_tokens(3), ChunkingConfig("sentence"))


def test_a_draw_per_text_cuts_the_whole_text_at_one_size():
    sizes, (drawn,) = chunk_sizes(toy_tokens(700), ChunkingConfig("variable", seed=2))
    assert sizes.tolist() == chunk_sizes(toy_tokens(700), fixed(drawn))[0].tolist()


def test_a_draw_per_chunk_gives_every_chunk_its_own_size_and_the_last_what_is_left():
    sizes, drawn = chunk_sizes(toy_tokens(5000), ChunkingConfig("variable", per_chunk=True))
    assert sizes[:-1].tolist() == list(drawn[:-1])
    assert 0 < sizes[-1] <= drawn[-1]


def test_draws_per_chunk_mix_all_sizes_inside_one_text():
    _, drawn = chunk_sizes(toy_tokens(9000), ChunkingConfig("variable", per_chunk=True))
    assert set(drawn) == {32, 64, 128, 256}


@pytest.mark.parametrize("what", ["seeds", "texts"])
def test_every_size_is_drawn_about_equally_often(what):
    draws = [
        chunk_sizes(
            toy_tokens(1 if what == "seeds" else 1 + i),
            ChunkingConfig("variable", seed=i if what == "seeds" else 0),
        )[1][0]
        for i in range(400)
    ]
    # Of 400 fair draws from four, a count strays from 100 by 8.7; 40 is over four times that.
    counts = [draws.count(size) for size in (32, 64, 128, 256)]
    assert all(60 <= count <= 140 for count in counts), counts


@pytest.mark.parametrize("per_chunk", [False, True], ids=["per-text", "per-chunk"])
def test_a_draw_depends_neither_on_other_texts_nor_on_their_order(per_chunk):
    chunking = ChunkingConfig("variable", per_chunk=per_chunk)
    lengths = [300, 500, 700, 300, 900]
    forward = {n: chunk_sizes(toy_tokens(n), chunking)[1] for n in lengths}
    backward = {n: chunk_sizes(toy_tokens(n), chunking)[1] for n in reversed(lengths)}
    alone = {n: chunk_sizes(toy_tokens(n), chunking)[1] for n in lengths if n == 900}
    assert forward == backward == forward | alone


def test_a_draw_is_the_same_in_another_process():
    # Python's own hash of a text differs between processes with different hash seeds.
    code = (
        "from helpers import toy_tokens; from lmk_viz.landmarks import ChunkingConfig, chunk_sizes;"
        "print([chunk_sizes(toy_tokens(n), ChunkingConfig('variable'))[1][0] for n in range(20)])"
    )
    here = str([chunk_sizes(toy_tokens(n), ChunkingConfig("variable"))[1][0] for n in range(20)])
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == here


def test_draws_are_reported_by_the_layout():
    chunking = ChunkingConfig("variable", granularities=(3,), per_chunk=True)
    assert build_layout(toy_tokens(7), SPECIAL, chunking=chunking).drawn == (3, 3, 3)


@pytest.mark.parametrize("max_length", [2, 0, -1])
@pytest.mark.parametrize("kind", LayoutKind)
def test_a_limit_without_room_for_one_token_is_refused(kind, max_length):
    with pytest.raises(ValueError, match=f"length limit is {max_length}; allowed: 3 and more"):
        build_layout(toy_tokens(1), SPECIAL, kind, max_length=max_length)


def test_multi_cls_is_refused_without_a_cls():
    with pytest.raises(ValueError, match=r"multi_cls needs a CLS token .* choose landmark, mean"):
        build_layout(toy_tokens(1), SpecialIds(None, 2, 0), LayoutKind.MULTI_CLS)


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="a batch needs at least one layout"):
        collate([], PAD)


def test_an_unknown_padding_side_is_refused():
    with pytest.raises(ValueError, match="padding_side is 'both'; allowed: right, left"):
        collate([build_layout(toy_tokens(1), SPECIAL)], PAD, "both")


@pytest.mark.parametrize(
    ("side", "ids", "mask", "shifts"),
    [
        (
            "right",
            [[1, 10, 2, 9, 9], [1, 10, 11, 2, 9], [1, 10, 11, 12, 2]],
            [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
            [0, 0, 0],
        ),
        (
            "left",
            [[9, 9, 1, 10, 2], [9, 1, 10, 11, 2], [1, 10, 11, 12, 2]],
            [[0, 0, 1, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]],
            [2, 1, 0],
        ),
    ],
    ids=["right", "left"],
)
def test_rows_are_padded_to_the_longest_on_the_chosen_side(side, ids, mask, shifts):
    layouts = [build_layout(toy_tokens(n), SPECIAL, chunking=THREES) for n in (1, 2, 3)]
    batch = collate(layouts, pad_id=9, padding_side=side)
    found = (batch.input_ids.tolist(), batch.attention_mask.tolist(), batch.shifts.tolist())
    assert found == (ids, mask, shifts)


@pytest.mark.parametrize("field", ["input_ids", "attention_mask", "shifts"])
def test_a_batch_cannot_be_written_into(field):
    batch = collate([build_layout(toy_tokens(3), SPECIAL)], PAD)
    with pytest.raises(ValueError, match="read-only"):
        getattr(batch, field)[0] = 1


def test_padding_goes_to_the_right_by_default():
    layouts = [build_layout(toy_tokens(n), SPECIAL, chunking=THREES) for n in (1, 2)]
    assert collate(layouts, PAD).input_ids[0].tolist() == [1, 10, 2, 0]


@seeded
@given(batch=st.lists(cases(), min_size=1, max_size=4), side=st.sampled_from(["right", "left"]))
def test_every_layout_can_be_read_back_from_its_batch(batch, side):
    layouts = [case.build() for case in batch]
    made = collate(layouts, pad_id=77, padding_side=side)
    pairs = zip(made.input_ids, made.attention_mask, strict=True)
    rows = [row[mask == 1].tolist() for row, mask in pairs]
    assert rows == [layout.input_ids.tolist() for layout in layouts]


@seeded
@given(batch=st.lists(cases(), min_size=1, max_size=4), side=st.sampled_from(["right", "left"]))
def test_a_row_begins_at_its_shift(batch, side):
    made = collate([case.build() for case in batch], pad_id=77, padding_side=side)
    assert made.shifts.tolist() == made.attention_mask.argmax(axis=1).tolist()
