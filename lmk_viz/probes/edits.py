"""Edited inputs: a layout without a chunk, with one more, or with its chunks in another order.

The text is never cut anew: every boundary that is not part of the edit stays, since cutting
again would mix two effects. Landmarks are followed by their positions, never by token id.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import LayoutKind
from lmk_viz.landmarks import Chunk, Layout, Tokens, character_spans

__all__ = ["permute_units", "unit_borders", "with_tokens", "without_chunk", "without_tokens"]

_NO_TOKEN = -1


def without_chunk(layout: Layout, index: int) -> Layout:
    """Returns a layout without one chunk and the landmark, or CLS, that belongs to it.

    Raises:
        ValueError: when there is no such chunk, or no other.
    """
    if not 0 <= index < len(layout.chunks):
        raise ValueError(f"chunk {index} is wanted; the layout has {len(layout.chunks)}.")
    chunk = layout.chunks[index]
    return without_tokens(layout, chunk.token_start, chunk.token_end)


def without_tokens(layout: Layout, start: int, end: int) -> Layout:
    """Returns a layout without some of its text tokens.

    A chunk that loses all of its tokens loses its landmark too, or the CLS before it; all
    other boundaries stay where they are.

    Args:
        layout: any layout.
        start: first text token to leave out.
        end: one past the last; tokens that the length limit cut cannot be left out.

    Raises:
        ValueError: when the range is empty or leaves the kept tokens, or nothing would stay.
    """
    if not 0 <= start < end <= layout.n_kept:
        raise ValueError(
            f"tokens {start} to {end} are to be left out; allowed: a range inside the "
            f"{layout.n_kept} kept tokens."
        )
    if end - start == layout.n_kept:
        raise ValueError("nothing would stay; give a text of at least two parts.")
    goes = (layout.token_index >= start) & (layout.token_index < end)
    for number, chunk in enumerate(layout.chunks):
        if start <= chunk.token_start and chunk.token_end <= end:
            goes[_own_specials(layout, number)] = True
    stays = np.flatnonzero(~goes)
    index = layout.token_index[stays]
    index = np.where(index >= end, index - (end - start), index)
    inside = [max(0, min(c.token_end, end) - max(c.token_start, start)) for c in layout.chunks]
    sizes = [c.n_tokens - gone for c, gone in zip(layout.chunks, inside, strict=True)]
    return _rebuild(layout, _tokens_without(layout.tokens, start, end), stays, index, sizes)


def with_tokens(layout: Layout, at: int, inserted: Tokens, closed: bool = False) -> Layout:
    """Returns a layout with more text tokens in front of one of its own.

    Args:
        layout: any layout.
        at: text token in front of which they go.
        inserted: at least one token.
        closed: make them a chunk of their own, with a landmark behind it, or a CLS before it;
            `at` has to be the start of a chunk then. Plain layouts have no such mark.

    Raises:
        ValueError: when the place is not inside the kept tokens, there is nothing to insert,
            or a chunk of its own would stand inside another.
    """
    if not 0 <= at < layout.n_kept or not len(inserted):
        raise ValueError(
            f"{len(inserted)} tokens are to go in front of token {at}; allowed: one and more, in "
            f"front of one of {layout.n_kept}."
        )
    number = next(i for i, c in enumerate(layout.chunks) if c.token_start <= at < c.token_end)
    marked = closed and layout.kind is not LayoutKind.PLAIN
    if marked and layout.chunks[number].token_start != at:
        raise ValueError(f"token {at} is inside a chunk; a chunk of its own cannot stand there.")
    count = len(inserted)
    place = int(np.flatnonzero(layout.token_index == at)[0])
    new = list(range(at, at + count))
    if marked and layout.kind is LayoutKind.LANDMARK:
        new.append(_NO_TOKEN)
    if marked and layout.kind is LayoutKind.MULTI_CLS:
        new.insert(0, _NO_TOKEN)
        place -= 1  # In front of the CLS of the chunk that stands there.
    shifted = np.where(layout.token_index >= at, layout.token_index + count, layout.token_index)
    index = np.insert(shifted, place, new)
    source = np.insert(np.arange(len(layout)), place, np.full(len(new), _NO_TOKEN))
    sizes = [c.n_tokens for c in layout.chunks]
    if marked:
        sizes.insert(number, count)
    else:
        sizes[number] += count
    return _rebuild(layout, _tokens_with(layout.tokens, at, inserted), source, index, sizes)


def permute_units(layout: Layout, borders: NDArray[np.int64], order: Sequence[int]) -> Layout:
    """Returns a layout whose parts come in another order, each with its landmarks or CLS.

    Args:
        layout: any layout that was not cut.
        borders: text tokens where parts begin and end, from 0 to the number of tokens. In
            landmark and multi-CLS layouts they have to be borders of chunks.
        order: every part once.

    Raises:
        ValueError: when borders or order do not fit the layout.
    """
    parts = len(borders) - 1
    if sorted(order) != list(range(parts)):
        raise ValueError(f"order has to hold each of {parts} parts once.")
    if layout.n_cut or borders[0] != 0 or borders[-1] != layout.n_tokens:
        raise ValueError("parts have to tile a text that the length limit does not cut.")
    starts = {c.token_start for c in layout.chunks}
    if layout.kind is not LayoutKind.PLAIN and not set(borders[:-1].tolist()) <= starts:
        raise ValueError("a part begins inside a chunk; give borders of chunks.")
    # Each position belongs to the part of its token; a special one to that of its chunk.
    owner = np.searchsorted(borders, layout.token_index, side="right") - 1
    owner[layout.token_index == _NO_TOKEN] = _NO_TOKEN
    if layout.kind is not LayoutKind.PLAIN:
        for number, chunk in enumerate(layout.chunks):
            part = int(np.searchsorted(borders, chunk.token_start, side="right")) - 1
            owner[_own_specials(layout, number)] = part
    inner = np.flatnonzero(owner != _NO_TOKEN)
    head, tail = np.arange(inner[0]), np.arange(inner[-1] + 1, len(layout))
    source = np.concatenate([head, *(np.flatnonzero(owner == part) for part in order), tail])
    tokens = _tokens_permuted(layout.tokens, borders, order)
    index = np.full(len(layout), _NO_TOKEN, dtype=np.int64)
    is_text = layout.token_index[source] != _NO_TOKEN
    index[is_text] = np.arange(layout.n_kept)
    sizes = (
        [layout.n_kept]
        if layout.kind is LayoutKind.PLAIN
        else [
            c.n_tokens
            for part in order
            for c in layout.chunks
            if borders[part] <= c.token_start < borders[part + 1]
        ]
    )
    return _rebuild(layout, tokens, source, index, sizes)


def unit_borders(layout: Layout, tokens: Tokens, borders: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the borders of parts in a layout's own tokens.

    Args:
        layout: not cut.
        tokens: that the borders count; a layout made sentence by sentence has others.
        borders: from 0 to the number of tokens, shape (m + 1,).
    """
    if np.array_equal(layout.tokens.ends, tokens.ends):
        return borders
    inner = tokens.starts[borders[1:-1]]
    places = np.searchsorted(layout.tokens.ends, inner, side="right")
    return np.concatenate([[0], places, [layout.n_tokens]]).astype(np.int64)


def _own_specials(layout: Layout, number: int) -> NDArray[np.int64]:
    """Returns the input positions of the special tokens that belong to one chunk."""
    if layout.kind is LayoutKind.LANDMARK:
        return layout.landmark_positions[number : number + 1]
    if layout.kind is LayoutKind.MULTI_CLS:
        return layout.cls_positions[number : number + 1]
    return np.zeros(0, dtype=np.int64)


def _rebuild(
    layout: Layout,
    tokens: Tokens,
    source: NDArray[np.int64],
    index: NDArray[np.int64],
    sizes: Sequence[int],
) -> Layout:
    """Returns the layout of edited positions.

    Args:
        layout: that was edited.
        tokens: its text tokens after the edit.
        source: position that each new position had, -1 where it is new, shape (S,).
        index: text token of each new position, -1 at special ones, shape (S,).
        sizes: text tokens of each chunk; empty chunks are gone.
    """
    is_new_mark = (source == _NO_TOKEN) & (index == _NO_TOKEN)
    marks = layout.kind is LayoutKind.LANDMARK
    landmarks = np.isin(source, layout.landmark_positions) | (is_new_mark & marks)
    cls = np.isin(source, layout.cls_positions) | (is_new_mark & (not marks))
    input_ids = np.where(
        index != _NO_TOKEN,
        tokens.ids[np.maximum(index, 0)],
        layout.input_ids[np.maximum(source, 0)],
    )
    # The id of a new mark is that of one that stands at a known position.
    known = layout.landmark_positions if marks else layout.cls_positions
    if is_new_mark.any():
        input_ids[is_new_mark] = layout.input_ids[known[0]]
    landmark_positions = np.flatnonzero(landmarks)
    separator = np.flatnonzero(source == layout.separator_position)
    return Layout(
        kind=layout.kind,
        text=tokens.text,
        tokens=tokens,
        input_ids=_frozen(input_ids),
        token_index=_frozen(index),
        cls_positions=_frozen(np.flatnonzero(cls)),
        landmark_positions=_frozen(landmark_positions),
        separator_position=int(separator[0]) if len(separator) else None,
        chunks=_chunks(tokens, [size for size in sizes if size], landmark_positions),
        n_kept=int((index != _NO_TOKEN).sum()),
        max_length=layout.max_length,
        drawn=layout.drawn,
    )


def _chunks(
    tokens: Tokens, sizes: Sequence[int], landmarks: NDArray[np.int64]
) -> tuple[Chunk, ...]:
    borders = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    spans, split = character_spans(tokens, borders)
    return tuple(
        Chunk(
            index=k,
            token_start=start,
            token_end=end,
            char_start=spans[k][0],
            char_end=spans[k][1],
            landmark_position=int(landmarks[k]) if k < len(landmarks) else None,
            splits_character=split[k],
        )
        for k, (start, end) in enumerate(pairwise(borders.tolist()))
    )


def _tokens_without(tokens: Tokens, start: int, end: int) -> Tokens:
    borders = np.asarray([0, start, end, len(tokens)], dtype=np.int64)
    (_, (left, right), _), _ = character_spans(tokens, borders)
    stays = np.r_[0:start, end : len(tokens)]

    def moved(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        later = np.maximum(offsets - (right - left), left)
        return np.where(offsets <= left, offsets, later)[stays]

    spans = np.stack([moved(tokens.starts), moved(tokens.ends)], axis=1)
    text = tokens.text[:left] + tokens.text[right:]
    return Tokens.from_offsets(text, tokens.ids[stays], spans)


def _tokens_with(tokens: Tokens, at: int, inserted: Tokens) -> Tokens:
    place = int(tokens.starts[at])
    shift = len(inserted.text) + 1
    before, after = slice(0, at), slice(at, len(tokens))
    starts = [
        np.minimum(tokens.starts[before], place),
        inserted.starts + place,
        tokens.starts[after] + shift,
    ]
    ends = [
        np.minimum(tokens.ends[before], place),
        inserted.ends + place,
        tokens.ends[after] + shift,
    ]
    text = f"{tokens.text[:place]}{inserted.text} {tokens.text[place:]}"
    ids = np.insert(tokens.ids, at, inserted.ids)
    return Tokens.from_offsets(text, ids, np.stack([*map(np.concatenate, (starts, ends))], axis=1))


def _tokens_permuted(tokens: Tokens, borders: NDArray[np.int64], order: Sequence[int]) -> Tokens:
    spans, _ = character_spans(tokens, borders)
    pieces, ids, offsets = [], [], []
    length = 0
    for part in order:
        (left, right), start, end = spans[part], borders[part], borders[part + 1]
        pieces.append(tokens.text[left:right])
        ids.append(tokens.ids[start:end])
        of_part = np.stack([tokens.starts[start:end], tokens.ends[start:end]], axis=1)
        offsets.append(np.clip(of_part, left, right) - left + length)
        length += right - left + 1
    return Tokens.from_offsets(" ".join(pieces), np.concatenate(ids), np.concatenate(offsets))


def _frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.setflags(write=False)
    return array
