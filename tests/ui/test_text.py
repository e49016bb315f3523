"""Document text as HTML and markdown: nothing of it runs, nothing of it is lost."""

from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import (
    SPECIAL,
    Case,
    cases,
    character_tokens,
    fixed,
    seeded,
    toy_tokens,
    word_tokens,
)
from hypothesis import given

from lmk_viz.config import LayoutKind
from lmk_viz.landmarks import Layout, Tokens, build_layout
from lmk_viz.ui.text import (
    MAX_CHUNKS_A_PAGE,
    MAX_CUT_SHOWN,
    MAX_TEXT_A_PAGE,
    escape_markdown,
    layout_html,
    layout_pages,
)


class Drawn(HTMLParser):
    """What a browser makes of a block: elements, and the text by the element it lies in."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[dict[str, str | None]] = []
        self.text = self.cut = self.note = ""
        self.marks: list[int] = []
        self._classes: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.append(dict(attrs))
        self._classes.append(dict(attrs).get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        self._classes.pop()

    def handle_data(self, data: str) -> None:
        match self._classes[-1]:
            case "mark":
                self.marks.append(int(data.removeprefix("◆")))
            case "note":
                self.note += data
            case kind:
                self.text += data
                self.cut += data if kind == "gone" else ""

    @property
    def chunks(self) -> list[str]:
        """Classes of each chunk."""
        found = [a.get("class") or "" for a in self.attributes]
        return [c for c in found if c.startswith("chunk ")]

    @property
    def is_closed(self) -> bool:
        """Whether every element that was opened is closed."""
        return not self._classes


def layout_of(tokens: Tokens, granularity: int = 3, max_length: int | None = None) -> Layout:
    return build_layout(tokens, SPECIAL, LayoutKind.LANDMARK, fixed(granularity), max_length)


def draw(layout: Layout, page: tuple[int, int] | None = None) -> Drawn:
    return Drawn(layout_html(layout, "[SEP]", page))


MARKUP = {
    "script": "<script>alert(1)</script>",
    "image": '<img src=x onerror="alert(1)">',
    "quotes": """He said "no" & 'yes' <b>""",
    "entity": "&lt;script&gt; &amp; &#60;",
    "end of the block": '</span></div><iframe src="//evil.example">',
    "attribute": '" onmouseover="alert(1)',
    "comment": "<!-- --> <![CDATA[ ]]> <?php ?>",
}


@pytest.mark.parametrize("text", MARKUP.values(), ids=MARKUP)
def test_markup_in_a_document_makes_no_element(text):
    assert draw(layout_of(character_tokens(text))).tags == {"div", "span"}


@pytest.mark.parametrize("text", MARKUP.values(), ids=MARKUP)
def test_markup_in_a_document_is_shown_letter_by_letter(text):
    assert draw(layout_of(character_tokens(text))).text == text


@pytest.mark.parametrize("token", MARKUP.values(), ids=MARKUP)
def test_markup_in_the_landmark_token_adds_no_attribute(token):
    drawn = Drawn(layout_html(layout_of(toy_tokens(3)), token))
    allowed = {"class", "dir", "tabindex", "aria-label", "data-tip", "title", "aria-hidden"}
    assert {name for a in drawn.attributes for name in a} <= allowed


@given(case=cases(limited=False))
@seeded
def test_text_in_the_block_is_the_document(case: Case):
    assert draw(case.build()).text == case.tokens.text


@given(case=cases(limited=True))
@seeded
def test_text_in_the_block_is_the_document_when_some_of_it_is_cut(case: Case):
    assert draw(case.build()).text == case.tokens.text


@given(case=cases())
@seeded
def test_every_element_of_the_block_is_closed(case: Case):
    assert draw(case.build()).is_closed


@given(case=cases())
@seeded
def test_each_chunk_with_a_landmark_has_its_mark(case: Case):
    layout = case.build()
    marked = [c.index for c in layout.chunks if c.landmark_position is not None]
    assert draw(layout).marks == marked


def test_as_many_marks_as_landmarks_are_drawn():
    layout = layout_of(toy_tokens(20))
    assert len(draw(layout).marks) == layout.n_landmarks == 7


def test_tints_alternate_from_chunk_to_chunk():
    drawn = draw(layout_of(toy_tokens(9)))
    assert drawn.chunks == ["chunk even", "chunk odd", "chunk even"]


def test_chunk_behind_the_last_landmark_is_a_tail():
    # [CLS] c c c [LMK] c c: the limit of seven leaves two tokens without a landmark.
    assert draw(layout_of(toy_tokens(20), max_length=7)).chunks == ["chunk even", "chunk odd tail"]


def test_text_behind_the_limit_is_struck_through():
    layout = layout_of(toy_tokens(20), max_length=7)
    assert draw(layout).cut == layout.text[5:]


def test_text_of_a_document_that_fits_is_not_struck_through():
    assert draw(layout_of(toy_tokens(20))).cut == ""


def test_long_cut_is_shortened_and_counted():
    drawn = draw(layout_of(toy_tokens(MAX_CUT_SHOWN + 105), max_length=7))
    assert (len(drawn.cut), drawn.note.strip()) == (
        MAX_CUT_SHOWN,
        "... and 100 more characters that the length limit cut.",
    )


def test_tip_gives_tokens_characters_and_landmark_of_a_chunk():
    drawn = draw(layout_of(toy_tokens(9)))
    tips = [a["data-tip"] for a in drawn.attributes if "data-tip" in a]
    assert tips[1] == "chunk 1 · tokens 3-6 (3) · characters 3-6 · landmark at input position 8"


def test_tip_is_what_a_screen_reader_says():
    chunks = [a for a in draw(layout_of(toy_tokens(9))).attributes if "data-tip" in a]
    assert [a["aria-label"] for a in chunks] == [a["data-tip"] for a in chunks]


def test_every_chunk_can_be_reached_with_the_keyboard():
    chunks = [a for a in draw(layout_of(toy_tokens(9))).attributes if "data-tip" in a]
    assert [a.get("tabindex") for a in chunks] == ["0", "0", "0"]


def test_layout_without_landmarks_is_drawn_without_marks():
    layout = build_layout(toy_tokens(9), SPECIAL, LayoutKind.PLAIN)
    assert draw(layout).marks == []


@pytest.mark.parametrize("text", ["", " \n ", "مرحبا بالعالم", "שלום world"])
def test_block_takes_its_direction_from_the_text(text):
    assert draw(layout_of(word_tokens(text))).attributes[0]["dir"] == "auto"


def spread_tokens(count: int, width: int) -> Tokens:
    """So many tokens of so many letters each."""
    at = np.arange(count) * width
    return Tokens.from_offsets(
        "b" * (count * width), range(10, 10 + count), np.stack([at, at + width], axis=1)
    )


LONG = {
    "many chunks": (layout_of(toy_tokens(300_000), granularity=50), 6_000),
    "one word": (layout_of(spread_tokens(1, 300_000)), 1),
    "huge chunks": (layout_of(spread_tokens(6, 50_000), granularity=1), 6),
    "words": (layout_of(word_tokens("mary " * 5_000), granularity=1), 5_000),
}


@pytest.mark.parametrize(("layout", "count"), LONG.values(), ids=LONG)
def test_pages_of_a_long_text_hold_every_chunk_once(layout, count):
    held = np.concatenate([np.arange(first, last) for first, last in layout_pages(layout)])
    np.testing.assert_array_equal(held, np.arange(count))


@pytest.mark.parametrize(("layout", "count"), LONG.values(), ids=LONG)
def test_pages_of_a_long_text_hold_no_more_chunks_than_a_browser_draws(layout, count):
    assert max(last - first for first, last in layout_pages(layout)) <= MAX_CHUNKS_A_PAGE


def test_page_of_several_chunks_holds_no_more_text_than_a_browser_draws():
    layout, _ = LONG["huge chunks"]
    sizes = [
        sum(c.char_end - c.char_start for c in layout.chunks[first:last])
        for first, last in layout_pages(layout)
    ]
    assert sizes == [MAX_TEXT_A_PAGE, 300_000 - MAX_TEXT_A_PAGE]


@pytest.mark.parametrize(("layout", "count"), LONG.values(), ids=LONG)
def test_pages_of_a_long_text_join_to_the_document(layout, count):
    # White space between two pages is drawn with neither.
    drawn = "".join(draw(layout, page).text for page in layout_pages(layout))
    assert "".join(drawn.split()) == "".join(layout.text.split())


def test_short_text_is_one_page():
    assert layout_pages(layout_of(toy_tokens(9))) == [(0, 3)]


def test_empty_text_is_one_empty_page():
    assert layout_pages(layout_of(character_tokens(""))) == [(0, 0)]


def test_what_was_cut_is_drawn_on_the_last_page_alone():
    layout = layout_of(toy_tokens(20), max_length=12)
    assert [draw(layout, page).cut for page in ((0, 1), (1, 3))] == ["", layout.text[9:]]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a](http://b)", r"\[a\]\(http\://b\)"),
        ("*bold* _i_ ~s~ `c`", r"\*bold\* \_i\_ \~s\~ \`c\`"),
        ("<b>&amp;", r"\<b\>\&amp;"),
        ("$x^2$", r"\$x\^2\$"),
        (":red[x] :material/star:", r"\:red\[x\] \:material/star\:"),
        ("# head", r"\# head"),
        ("1. one", r"1\. one"),
        ("a|b", r"a\|b"),
        ("\\", r"\\"),
        ("日本 é", "日本 é"),
    ],
)
def test_markdown_signs_are_escaped(text, shown):
    assert escape_markdown(text) == shown


def test_escaped_markdown_is_one_line():
    assert escape_markdown("a\n\n# b\r\n\tc") == r"a \# b c"
