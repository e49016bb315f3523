import json

import numpy as np
import pytest
from helpers import FAMILY, seeded, texts
from hypothesis import given
from hypothesis import strategies as st

from lmk_viz.documents import SAMPLE_FOLDER, sample_documents
from lmk_viz.text import grapheme_starts, guess_language, is_inside_word, sentence_spans


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("", [0]),
        ("ab", [0, 1, 2]),
        ("\u00e9x", [0, 1, 2]),
        ("e\u0301x", [0, 2, 3]),
        ("e\u0301\u0323", [0, 3]),
        (f"a{FAMILY}b", [0, 1, 6, 7]),
        ("🇩🇪🇫🇷", [0, 2, 4]),
        ("👍🏽!", [0, 2, 3]),
        ("1\ufe0f\u20e3", [0, 3]),
        ("日本", [0, 1, 2]),
        ("ที่นี่", [0, 3, 6]),
        ("مَن", [0, 2, 3]),
        ("a\r\nb", [0, 1, 3, 4]),
        ("a\x00b", [0, 1, 2, 3]),
        ("a\u200bb", [0, 1, 2, 3]),
    ],
    ids=[
        "empty",
        "ascii",
        "accent-composed",
        "accent-combining",
        "two-accents",
        "family",
        "flags",
        "skin-tone",
        "keycap",
        "cjk",
        "thai",
        "arabic-vowel",
        "crlf",
        "nul",
        "zero-width-space",
    ],
)
def test_characters_begin_where_a_reader_sees_them(text, starts):
    assert grapheme_starts(text).tolist() == starts


def test_character_starts_are_shared_by_a_cache_so_nobody_can_write_into_them():
    with pytest.raises(ValueError, match="read-only"):
        grapheme_starts("abc")[0] = 1


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("ab cd", [1, 4]),
        ("don't", [1, 2, 3, 4]),
        ("3.14", [1, 2, 3]),
        ("a-b", []),
        ("x.\ny", []),
        ("cafe\u0301s", [1, 2, 3, 4, 5]),
        ("10\u202f000", [1, 4, 5]),
        ("سلام", [1, 2, 3]),
        ("日本", []),
        ("", []),
        (" ", []),
        (f"{FAMILY}{FAMILY}", [1, 2, 3, 4, 6, 7, 8, 9]),
    ],
    ids=[
        "words",
        "apostrophe",
        "decimal",
        "hyphen",
        "line",
        "combining",
        "narrow-space-in-a-number",
        "arabic",
        "cjk",
        "empty",
        "space",
        "families",
    ],
)
def test_a_cut_inside_a_word_is_known_from_one_between_words(text, inside):
    # Positions before and after the text are asked too: no cut there is inside anything.
    assert [p for p in range(-1, len(text) + 2) if is_inside_word(text, p)] == inside


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("C'est une phrase.", "en"),
        ("", "en"),
        ("12 + 3", "en"),
        ("१२", "en"),
        ("これは日本語です", "ja"),
        ("한국어 문장", "ko"),
        ("这是一句话。", "zh"),
        ("جملة عربية", "ar"),
        ("משפט בעברית", "he"),
        ("यह वाक्य है", "hi"),
        ("বাংলা বাক্য", "bn"),
        ("தமிழ்", "ta"),
        ("ประโยคไทย", "th"),
        ("မြန်မာ", "my"),
        ("Հայերեն", "hy"),
        ("አማርኛ", "am"),
        ("ελληνικά", "el"),
        ("русский", "ru"),
        ("The Greek letter π is used throughout.", "en"),
        ("x" * 4000 + "русский" * 4000, "en"),
    ],
    ids=lambda value: value if len(value) == 2 else "",
)
def test_the_language_is_guessed_from_the_script(text, language):
    assert guess_language(text) == language


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\n\t", []),
        ("no end mark", ["no end mark"]),
        ("Dr. Ito left. He ran.", ["Dr. Ito left.", "He ran."]),
        ("It is 3.14 here. Yes!", ["It is 3.14 here.", "Yes!"]),
        ("A title\n\nThe body. More?", ["A title", "The body.", "More?"]),
        ("  One.  \n\n\n Two. ", ["One.", "Two."]),
        ("One.\r\n\r\nTwo.", ["One.", "Two."]),
        ("Ha. Ha. Ha.", ["Ha.", "Ha.", "Ha."]),
        ("这是一句话。那是另一句！好吗？", ["这是一句话。", "那是另一句！", "好吗？"]),
        ("今日は。明日も。", ["今日は。", "明日も。"]),
        ("هذا سؤال؟ نعم. لا.", ["هذا سؤال؟", "نعم.", "لا."]),
        ("यह वाक्य है। यह भी।", ["यह वाक्य है।", "यह भी।"]),
        ("Это г. Москва. Да.", ["Это г. Москва.", "Да."]),
        ("Τι είναι; Αυτό.", ["Τι είναι;", "Αυτό."]),
        ("[SEP] one. [SEP] two.", ["[SEP] one.", "[SEP] two."]),
        (f"😀 one. {FAMILY} two.", ["😀 one.", f"{FAMILY} two."]),
        ("a b\x00c. D e.", ["a b\x00c.", "D e."]),
    ],
    ids=[
        "empty",
        "blank",
        "no-end",
        "abbreviation",
        "decimal",
        "heading",
        "space-round",
        "crlf",
        "repeated",
        "chinese",
        "japanese",
        "arabic",
        "hindi",
        "russian-abbreviation",
        "greek-question-mark",
        "typed-special",
        "emoji",
        "nul",
    ],
)
def test_sentences_end_where_a_reader_ends_them(text, sentences):
    assert [text[a:b] for a, b in sentence_spans(text)] == sentences


def test_the_given_language_goes_before_the_guess():
    # "Bzgl." is an abbreviation in German; the script alone suggests English.
    text = "Bzgl. Xaver schwieg."
    assert (len(sentence_spans(text)), len(sentence_spans(text, "de"))) == (2, 1)


@pytest.mark.parametrize(
    "text",
    ["A\u3000.B", "A B\u2028.", "A\x85.\n", "Le plan\tB\xa0.\nOui."],
    ids=["ideographic-space", "line-separator", "next-line", "no-break-space"],
)
def test_wide_white_space_before_a_full_stop_does_not_make_the_splitter_panic(text):
    spans = sentence_spans(text, "en")
    assert "".join("".join(text[a:b].split()) for a, b in spans) == "".join(text.split())


def assert_nothing_is_lost(text, language=None):
    covered = 0
    for start, end in sentence_spans(text, language):
        assert covered <= start < end <= len(text)
        assert text[covered:start].strip() == ""
        assert text[start:end] == text[start:end].strip()
        covered = end
    assert text[covered:].strip() == ""


@seeded
@given(text=texts, language=st.sampled_from([None, "en", "de", "ja", "zh", "ar", "hi", "my", "qq"]))
def test_sentences_of_any_text_are_disjoint_and_leave_only_white_space_out(text, language):
    assert_nothing_is_lost(text, language)


@pytest.mark.parametrize("document", sample_documents(), ids=lambda d: d.id)
def test_sentences_of_a_sample_document_leave_only_white_space_out(document):
    assert_nothing_is_lost(document.text)


def test_sentences_of_every_topic_text_leave_only_white_space_out():
    lines = (SAMPLE_FOLDER / "topics.jsonl").read_text("utf-8").splitlines()
    assert len(lines) > 50
    for line in lines:
        assert_nothing_is_lost(json.loads(line)["text"])


@pytest.mark.parametrize("document", sample_documents(), ids=lambda d: d.id)
def test_every_paragraph_of_a_sample_document_begins_a_sentence(document):
    # The oracle splits at blank lines and knows nothing of sentences.
    paragraphs, at = set(), 0
    for piece in document.text.split("\n\n"):
        if piece.strip():
            paragraphs.add(at + len(piece) - len(piece.lstrip()))
        at += len(piece) + 2
    assert paragraphs <= {start for start, _ in sentence_spans(document.text)}


@pytest.mark.parametrize(
    ("boundaries", "behind"),
    [
        ([], 0),
        ([(0, 4)], 4),
        ([(0, 4), (6, 9)], 4),
        ([(0, 4), (3, 9)], 4),
    ],
    ids=["nothing", "end-missing", "gap", "overlap"],
)
def test_a_splitter_that_loses_text_is_reported_with_the_place(monkeypatch, boundaries, behind):
    monkeypatch.setattr(
        "sentencex.get_sentence_boundaries",
        lambda language, text: [{"start_index": a, "end_index": b} for a, b in boundaries],
    )
    with pytest.raises(ValueError, match=f"lost the text behind character {behind}; choose"):
        sentence_spans("One. Two.")


@seeded
@given(text=texts)
def test_character_starts_rise_from_the_start_to_the_end_of_any_text(text):
    starts = grapheme_starts(text)
    assert (starts[0], starts[-1]) == (0, len(text))
    assert (np.diff(starts) > 0).all()
