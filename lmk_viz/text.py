"""Where characters, words and sentences of a text begin.

Unicode rules come from the `regex` package, sentence ends from `sentencex`. All positions
are code point offsets into the text as given; nothing is searched for or normalised.
"""

from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

__all__ = ["grapheme_starts", "guess_language", "is_inside_word", "sentence_spans"]

_GRAPHEME = regex.compile(r"\X")
_WORD_BOUNDARY = regex.compile(r"(?w)\b")
# White space of more than one byte in UTF-8; the last one in Unicode is U+3000.
_WIDE_SPACES = {code: " " for code in range(0x80, 0x3001) if chr(code).isspace()}
_SCRIPT_LANGUAGES = (
    # Kana is looked for before Han, since Japanese text holds both.
    ("ja", regex.compile(r"[\p{Hiragana}\p{Katakana}]")),
    ("ko", regex.compile(r"\p{Hangul}")),
    ("zh", regex.compile(r"\p{Han}")),
    ("ar", regex.compile(r"\p{Arabic}")),
    ("he", regex.compile(r"\p{Hebrew}")),
    ("hi", regex.compile(r"\p{Devanagari}")),
    ("bn", regex.compile(r"\p{Bengali}")),
    ("ta", regex.compile(r"\p{Tamil}")),
    ("th", regex.compile(r"\p{Thai}")),
    ("my", regex.compile(r"\p{Myanmar}")),
    ("hy", regex.compile(r"\p{Armenian}")),
    ("am", regex.compile(r"\p{Ethiopic}")),
    ("el", regex.compile(r"\p{Greek}")),
    ("ru", regex.compile(r"\p{Cyrillic}")),
)


@lru_cache(maxsize=8)
def grapheme_starts(text: str) -> NDArray[np.int64]:
    r"""Returns where user-perceived characters begin, with the length of the text at the end.

    Args:
        text: any text.

    Returns:
        Rising offsets, shape (number of graphemes + 1,), read-only.

    Example:
        >>> grapheme_starts("e\u0301x").tolist()
        [0, 2, 3]
    """
    found = np.fromiter((m.start() for m in _GRAPHEME.finditer(text)), dtype=np.int64)
    starts = np.append(found, len(text))
    starts.setflags(write=False)
    return starts


def is_inside_word(text: str, position: int) -> bool:
    """Returns whether a cut at this offset would fall inside a word (Unicode rules, UAX 29).

    Example:
        >>> is_inside_word("landmark token", 4), is_inside_word("landmark token", 8)
        (True, False)
    """
    if not 0 < position < len(text):
        return False
    return (
        not text[position - 1].isspace()
        and not text[position].isspace()
        and _WORD_BOUNDARY.match(text, position) is None
    )


def guess_language(text: str) -> str:
    """Returns a language code guessed from the script alone, English where it is Latin.

    Sentence rules differ far more between scripts than between languages of one script, so
    this is enough to find sentence ends; it is no language identification.

    Example:
        >>> guess_language("这是一句话。"), guess_language("C'est une phrase.")
        ('zh', 'en')
    """
    sample = text[:4000]
    letters = sum(character.isalpha() for character in sample)
    for language, pattern in _SCRIPT_LANGUAGES:
        if len(pattern.findall(sample)) * 3 > letters > 0:
            return language
    return "en"


def sentence_spans(text: str, language: str | None = None) -> tuple[tuple[int, int], ...]:
    """Returns the sentences of a text as offsets, without the white space round them.

    Args:
        text: any text; paragraphs end sentences too.
        language: ISO 639 code for the rules, or None to guess it from the script.

    Returns:
        Rising, disjoint (start, end) pairs; what lies between them is white space.

    Raises:
        ValueError: when the sentence splitter does not give the text back whole.

    Example:
        >>> sentence_spans("Dr. Ito left. 今日は。明日も。")
        ((0, 13), (14, 18), (18, 22))
    """
    import sentencex

    # `sentencex.segment` drops some paragraph breaks, so its offsets are read instead.
    # It panics, which no `except Exception` catches, where white space of several bytes
    # stands before a full stop; a plain space of the same length in characters is safe.
    found = sentencex.get_sentence_boundaries(
        language or guess_language(text), text.translate(_WIDE_SPACES)
    )
    spans: list[tuple[int, int]] = []
    covered = 0
    for boundary in found:
        start, end = int(boundary["start_index"]), int(boundary["end_index"])
        piece = text[start:end]
        if start < covered or text[covered:start].strip():
            break
        covered = end
        left, right = start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        if left < right:
            spans.append((left, right))
    if text[covered:].strip():
        raise ValueError(
            f"the sentence splitter lost the text behind character {covered}; "
            "choose another language, or fixed chunking."
        )
    return tuple(spans)
