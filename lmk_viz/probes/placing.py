"""Where a needle stands: the filler's head, its borders, and the text put together."""

from enum import StrEnum

import numpy as np

from lmk_viz.landmarks import Tokens
from lmk_viz.text import is_inside_word, sentence_spans

__all__ = ["Border", "filler_head", "place_needle"]


class Border(StrEnum):
    """Where in the filler a needle may stand."""

    SENTENCE = "sentence"
    """Between two sentences."""
    TOKEN = "token"
    """Between any two tokens with white space between them."""

    @classmethod
    def _missing_(cls, value: object) -> "Border":
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"border is {value!r}; allowed: {allowed}.")


def filler_head(tokens: Tokens, count: int, name: str) -> Tokens:
    """Returns the first tokens of a filler as a text of its own.

    Args:
        tokens: the whole filler.
        count: tokens wanted, at least one.
        name: of the filler, for messages.

    Raises:
        ValueError: when it has fewer.
    """
    if len(tokens) < count:
        raise ValueError(
            f"filler {name!r} has {len(tokens):,} tokens and {count:,} are wanted; choose a longer "
            "text or fewer tokens."
        )
    begin, end = int(tokens.starts[0]), int(tokens.ends[count - 1])
    offsets = np.stack([tokens.starts[:count], np.minimum(tokens.ends[:count], end)], axis=1)
    return Tokens.from_offsets(tokens.text[begin:end], tokens.ids[:count], offsets - begin)


def place_needle(
    filler: Tokens, needle: str, depth: float, border: Border = Border.SENTENCE
) -> tuple[str, float]:
    """Returns a filler with a needle in it, and the depth at which it stands.

    Args:
        filler: all of it is used; at least one token.
        needle: put between two borders with a blank on each side.
        depth: wanted, 0 the start, 1 the end; the nearest border is taken.
        border: where it may stand.

    Example:
        >>> toy = Tokens.from_offsets("a b c d", range(4), [(i, i + 1) for i in range(0, 7, 2)])
        >>> place_needle(toy, "N", 0.5, Border.TOKEN)
        ('a b N c d', 0.5)
    """
    text, n = filler.text, len(filler)
    if border is Border.SENTENCE:
        starts = [start for start, _ in sentence_spans(text)][1:]
        inner = np.unique(np.searchsorted(filler.ends, starts, side="right"))
    else:
        places = filler.starts[1:].tolist()
        # A token may begin at the blank before its word, or behind it.
        free = [text[p].isspace() or text[p - 1 : p].isspace() for p in places]
        if not any(free):  # Scripts without blanks between words.
            free = [not is_inside_word(text, p) for p in places]
        inner = np.flatnonzero(free) + 1
    borders = np.unique(np.concatenate([[0], inner, [n]]))
    at = int(borders[np.argmin(np.abs(borders - depth * n))])
    character = len(text) if at >= n else int(filler.starts[at])
    pieces = (text[:character].rstrip(), needle.strip(), text[character:].lstrip())
    return " ".join(piece for piece in pieces if piece), at / n
