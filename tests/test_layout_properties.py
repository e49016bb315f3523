from dataclasses import replace

from helpers import (
    CLS,
    LANDMARK,
    SPECIAL,
    THREES,
    cases,
    chunk_texts,
    drawing,
    fixed,
    seeded,
    seen_characters,
    tokenised,
    toy_tokens,
)
from hypothesis import given
from hypothesis import strategies as st

from lmk_viz.config import LayoutKind
from lmk_viz.landmarks import (
    SpecialIds,
    Tokens,
    build_layout,
    chunk_sizes,
    collate,
)


def slow_input(case, sizes):
    """The input as a list of `cls`, `lmk`, `sep` and token numbers, built step by step."""
    head = ["cls"] if case.special.cls is not None else []
    n, limit = len(case.tokens), case.max_length or 10**9
    if case.kind is LayoutKind.PLAIN:
        return [*(head + list(range(n)))[: limit - 1], "sep"]
    chunks, at = [], 0
    for size in sizes.tolist():
        chunks.append(list(range(at, at + size)))
        at += size
    if case.kind is LayoutKind.MULTI_CLS:
        row = [x for chunk in chunks or [[]] for x in ["cls", *chunk]]
        return [*row[: limit - 1], "sep"]

    def closed(kept):
        row = list(head)
        for chunk in chunks or [[]]:
            part = [i for i in chunk if i < kept]
            row += [*part, "lmk"] if part or not chunks else []
        return row

    if case.chunking.close_tail:
        # By trial: as much content as fits together with all its landmarks.
        return next(closed(m) for m in range(n, -1, -1) if len(closed(m)) <= limit)
    return closed(n)[:limit]


@seeded
@given(case=cases())
def test_the_input_is_that_of_a_slow_reference(case):
    ids = {"cls": CLS, "lmk": LANDMARK, "sep": LANDMARK}
    sizes = chunk_sizes(case.tokens, case.chunking)[0]
    expected = [
        ids[x] if isinstance(x, str) else int(case.tokens.ids[x]) for x in slow_input(case, sizes)
    ]
    assert case.build().input_ids.tolist() == expected


@seeded
@given(case=cases())
def test_the_role_of_every_position_is_that_of_a_slow_reference(case):
    # Texts here hold the ids of CLS and SEP as content, so ids alone would not tell.
    layout = case.build()
    row = slow_input(case, chunk_sizes(case.tokens, case.chunking)[0])
    found = [int(i) if i >= 0 else None for i in layout.token_index]
    for name, positions in [
        ("cls", layout.cls_positions.tolist()),
        ("lmk", layout.landmark_positions.tolist()),
        ("sep", [p for p in [layout.separator_position] if p is not None]),
    ]:
        for position in positions:
            assert found[position] is None
            found[position] = name
    assert found == row


@seeded
@given(case=cases())
def test_the_length_limit_is_never_exceeded(case):
    assert len(case.build()) <= (case.max_length or 10**9)


@seeded
@given(case=cases())
def test_token_ranges_of_chunks_tile_the_kept_tokens(case):
    layout = case.build()
    seen = [i for c in layout.chunks for i in range(c.token_start, c.token_end)]
    assert seen == list(range(layout.n_kept))


@seeded
@given(case=cases())
def test_no_chunk_is_without_a_token(case):
    assert all(c.n_tokens > 0 for c in case.build().chunks)


@seeded
@given(case=cases())
def test_characters_of_chunks_are_disjoint_and_rise(case):
    layout = case.build()
    edges = [x for c in layout.chunks for x in (c.char_start, c.char_end)]
    assert edges == sorted(edges)


@seeded
@given(case=cases())
def test_characters_of_chunks_join_to_the_kept_text_but_for_white_space(case):
    layout = case.build()
    if layout.chunks:  # A text of which no token is made has no chunk to join.
        joined = "".join("".join(t.split()) for t in chunk_texts(layout))
        assert joined == "".join(layout.text[: layout.kept_chars].split())


@seeded
@given(case=cases(limited=False))
def test_without_a_cut_the_kept_text_is_the_whole_text(case):
    assert case.build().kept_chars == len(case.tokens.text)


@seeded
@given(case=cases())
def test_no_chunk_has_white_space_at_its_ends(case):
    assert all(t == t.strip() for t in chunk_texts(case.build()))


@seeded
@given(case=cases())
def test_no_chunk_begins_or_ends_inside_a_character(case):
    text = case.tokens.text
    starts = seen_characters(text)
    for chunk in case.build().chunks:
        for edge in (chunk.char_start, chunk.char_end):
            # White space is trimmed afterwards, off an accent that stands on a blank too.
            assert edge in starts or text[edge - 1].isspace() or text[edge].isspace()


@seeded
@given(case=cases())
def test_a_chunk_is_flagged_exactly_when_its_end_splits_a_character(case):
    tokens, layout = case.tokens, case.build()
    starts = seen_characters(tokens.text)
    for chunk in layout.chunks:
        end = chunk.token_end
        if end == len(tokens):
            expected = False
        else:
            behind, ahead = int(tokens.ends[end - 1]), int(tokens.starts[end])
            expected = behind > ahead or ahead not in starts
        assert chunk.splits_character is expected


@seeded
@given(case=cases())
def test_the_input_without_what_was_inserted_is_the_start_of_the_tokens(case):
    layout = case.build()
    inserted = {*layout.cls_positions.tolist(), *layout.landmark_positions.tolist()}
    inserted.add(layout.separator_position)
    content = [x for p, x in enumerate(layout.input_ids.tolist()) if p not in inserted]
    assert content == case.tokens.ids[: layout.n_kept].tolist()


@seeded
@given(case=cases())
def test_content_positions_hold_the_kept_tokens_in_order(case):
    layout = case.build()
    assert layout.token_index[layout.content_positions].tolist() == list(range(layout.n_kept))


@seeded
@given(case=cases(kind=LayoutKind.LANDMARK))
def test_a_landmark_stands_right_behind_the_last_token_of_its_chunk(case):
    layout = case.build()
    for chunk in layout.chunks:
        if chunk.landmark_position is not None:
            assert layout.token_index[chunk.landmark_position - 1] == chunk.token_end - 1


@seeded
@given(case=cases(kind=LayoutKind.LANDMARK))
def test_the_landmarks_of_the_chunks_are_all_landmarks_of_a_text_with_tokens(case):
    layout = case.build()
    owned = [c.landmark_position for c in layout.chunks if c.landmark_position is not None]
    assert owned == (layout.landmark_positions.tolist() if len(case.tokens) else [])


@seeded
@given(tokens=tokenised, g=st.integers(1, 9))
def test_without_a_cut_landmarks_are_tokens_over_granularity_rounded_up(tokens, g):
    layout = build_layout(tokens, SPECIAL, chunking=fixed(g))
    assert layout.n_landmarks == max(1, (len(tokens) + g - 1) // g)


@seeded
@given(case=cases(kind=LayoutKind.LANDMARK, limited=True))
def test_a_closed_tail_leaves_no_token_without_a_landmark_behind_it(case):
    closed = replace(case, chunking=replace(case.chunking, close_tail=True))
    assert closed.build().n_tail == 0


@seeded
@given(case=cases(limited=True))
def test_kept_and_cut_tokens_are_all_tokens(case):
    layout = case.build()
    assert layout.n_kept + layout.n_cut == layout.n_tokens == len(case.tokens)


def test_only_landmark_layouts_have_a_tail():
    layout = build_layout(toy_tokens(7), SPECIAL, LayoutKind.MULTI_CLS, THREES, max_length=7)
    assert layout.n_tail == 0


def test_a_tokenizer_without_cls_gets_landmarks_alone():
    special = SpecialIds(cls=None, landmark=2, pad=0)
    assert drawing(build_layout(toy_tokens(4), special, chunking=THREES)) == "ccc 2 c 2"


def test_a_typed_landmark_stays_content():
    # With split_special_tokens=False a text spelling [SEP] would carry the real id.
    tokens = Tokens.from_offsets("a [SEP] b", [10, LANDMARK, 11], [(0, 1), (2, 7), (8, 9)])
    layout = build_layout(tokens, SPECIAL, chunking=THREES)
    assert (layout.input_ids.tolist(), layout.landmark_positions.tolist()) == (
        [1, 10, 2, 11, 2],
        [4],
    )


def test_pad_may_share_its_id_with_the_landmark():
    special = SpecialIds(cls=1, landmark=2, pad=2)
    layouts = [build_layout(toy_tokens(n), special, chunking=THREES) for n in (1, 4)]
    assert collate(layouts, special.pad).attention_mask.sum(axis=1).tolist() == [3, 7]
