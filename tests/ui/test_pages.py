"""Every page on every kind of input: a result or a worded message, never a traceback.

Most tests set a short length limit, so that a run costs a fraction of a second.
"""

import base64
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import ChunkingMode, PoolingMode, ProjectionMethod
from lmk_viz.corpus import Corpus
from lmk_viz.documents import Document, sample_documents
from lmk_viz.presets import MINILM_NAME
from lmk_viz.ui import state
from lmk_viz.ui.text import escape_markdown

HOME = "app.py"
LANDMARKS = "pages/1_Landmarks.py"
ATTENTION = "pages/2_Attention.py"
MAP = "pages/3_Embedding_map.py"
PAGES = {"home": HOME, "landmarks": LANDMARKS, "attention": ATTENTION, "map": MAP}
TEXT_PAGES = {name: page for name, page in PAGES.items() if page != MAP}

FIVE = ("river", "harbour", "roof", "market", "hill")
SHORT = {state.MAX_LENGTH.key: 64}
MAP_VIEW = {
    state.MAX_LENGTH.key: 16,
    state.METHOD.key: ProjectionMethod.PCA,
    state.POOLINGS.key: (PoolingMode.CLS, PoolingMode.LANDMARK),
}
SMALL_MAP = {
    **MAP_VIEW,
    state.CORPUS.key: state.UPLOADED,
    # As an upload leaves it.
    "map.upload": Corpus(
        "five", tuple(Document(n, n, f"the {n} is near, " * 9, n[0]) for n in FIVE)
    ),
}
SMALL = {HOME: SHORT, LANDMARKS: SHORT, ATTENTION: SHORT, MAP: SMALL_MAP}

OpenPage = Callable[..., AppTest]


def pasted(text: str) -> dict[str, Any]:
    """Choices that make a text the document."""
    return {**SHORT, state.DOCUMENT.key: state.PASTED, state.TEXT.key: text}


def problems(at: AppTest) -> list[str]:
    """Everything on a page that says something went wrong."""
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def figures(at: AppTest) -> list[dict[str, Any]]:
    """The Plotly figures of a page."""
    return [json.loads(element.proto.spec) for element in at.get("plotly_chart")]


def trace_names(at: AppTest) -> list[str]:
    """Names in the legend of a page's first figure."""
    return [trace["name"] for trace in figures(at)[0]["data"]]


def documents_drawn(at: AppTest) -> list[str]:
    """The blocks of document text on a page."""
    return [e.proto.body for e in at.get("html") if 'class="lmk-doc"' in e.proto.body]


def has_result(at: AppTest) -> bool:
    """Whether a page got as far as drawing what it is there for."""
    return bool(figures(at) or documents_drawn(at))


def prose(at: AppTest) -> str:
    """All captions and paragraphs of a page."""
    return "\n".join(e.value for e in (*at.markdown, *at.caption))


def chosen(at: AppTest, choice: state.Choice[Any]) -> Any:
    return at.session_state.get(choice.key, choice.default)


@pytest.fixture(scope="module")
def opened() -> Callable[[str], AppTest]:
    """`opened(page)`: each page opened alone on its samples, looked at and never run again."""

    @lru_cache
    def open_(page: str) -> AppTest:
        at = AppTest.from_file(f"../../{HOME}", default_timeout=240)
        if page != HOME:
            at.switch_page(page)
        for key, value in (MAP_VIEW if page == MAP else {}).items():
            at.session_state[key] = value
        return at.run()

    return open_


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_opened_alone_shows_no_problem(opened, page):
    assert problems(opened(page)) == []


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_opened_alone_draws_its_result(opened, page):
    assert has_result(opened(page))


@pytest.mark.parametrize(("page", "count"), [(HOME, 1), (ATTENTION, 4), (MAP, 2)])
def test_page_draws_so_many_figures(opened, page, count):
    assert len(figures(opened(page))) == count


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (HOME, "tokens are cut"),
        (LANDMARKS, "cut by the limit of 512"),
        (ATTENTION, "cut by the limit of 512"),
        (MAP, "72 cut by the limit of 16 tokens"),
    ],
    ids=PAGES,
)
def test_page_says_how_many_tokens_were_cut(opened, page, words):
    assert words in prose(opened(page))


@pytest.mark.parametrize("page", [HOME, ATTENTION, MAP])
def test_every_figure_of_a_page_has_a_text_alternative(opened, page):
    alts = [e.proto.alt for e in opened(page).get("plotly_chart")]
    assert [alt for alt in alts if not alt] == []


@pytest.mark.parametrize("page", [HOME, ATTENTION, MAP])
def test_page_that_shows_poolings_says_which_the_encoder_was_not_trained_for(opened, page):
    assert "never trained for" in prose(opened(page))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_python_lines_of_a_page_run(open_page, page, minilm_encoder, monkeypatch, capsys):
    code = open_page(page, SMALL[page]).code[0].value
    monkeypatch.setattr("lmk_viz.encoder.Encoder.from_pretrained", lambda _: minilm_encoder)
    exec(compile(code, page, "exec"), {})
    assert capsys.readouterr().out


def test_links_of_the_tour_are_understood_by_their_pages(open_page):
    files = {"Landmarks": LANDMARKS, "Attention": ATTENTION, "Embedding_map": MAP}
    links = [e.proto for e in open_page(HOME, SHORT).get("page_link") if e.proto.query_string]
    found = {
        link.query_string: problems(
            open_page(files[link.page], SMALL[files[link.page]], dict(parse_qsl(link.query_string)))
        )
        for link in links
    }
    assert (len(links), [words for words in found.values() if words]) == (5, [])


NO_TEXT = {"empty": "", "spaces": "  \n\t \u3000 "}
TEXTS = {
    "one token": "a",
    "no end mark": "a sentence that just stops",
    "300 kB of one word": "a" * 300_000,
    "300 kB of words": "mary had a little lamb. " * 12_500,
    "base64": base64.b64encode(random.Random(0).randbytes(3_000)).decode(),
    "emoji": "👨‍👩‍👧‍👦🇩🇪🇫🇷👍🏽😀" * 8,
    "accents composed": "Ünïcödé àccénts ñ" * 8,
    "accents decomposed": "U\u0308ni\u0308co\u0308de\u0301 a\u0300 n\u0303" * 8,
    "CJK": "標識符放在每個區塊之後。文件的向量是它們的平均。" * 6,
    "Thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ" * 8,
    "Arabic with Latin digits": "مرحبا بالعالم 2024، هذا نص طويل عن 36 مدينة." * 6,
    "NUL and zero-width": "a\x00b\u200bc\u200d\ufeffd \x00 " * 8,
    "CRLF": "first line\r\nsecond line\r\n\r\nthird line\r\n" * 8,
    "special tokens": "[SEP] </s> <|endoftext|> [CLS] [PAD] [UNK] <s> text",
    "script": "<script>alert(1)</script>" * 3,
    "LaTeX": r"$\sum_{i=1}^n x_i^2$ and \begin{align} a &= b \\ \end{align}" * 3,
    "markdown": "# head\n\n- **a** [b](http://c) `d` :red[e]\n\n| x |\n|---|\n" * 3,
}


@pytest.mark.parametrize("text", NO_TEXT.values(), ids=NO_TEXT)
@pytest.mark.parametrize("page", TEXT_PAGES.values(), ids=TEXT_PAGES)
def test_page_without_text_asks_for_one(open_page, page, text):
    at = open_page(page, pasted(text))
    assert [e.value for e in at.info] == [
        "Paste some text above, or choose a sample in the side bar."
    ]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("page", TEXT_PAGES.values(), ids=TEXT_PAGES)
def test_page_draws_its_result_for_any_text(open_page, page, text):
    at = open_page(page, pasted(text))
    assert (problems(at), has_result(at)) == ([], True)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_is_drawn_sentence_by_sentence(open_page, text):
    at = open_page(LANDMARKS, {**pasted(text), state.MODE.key: ChunkingMode.SENTENCE})
    assert (problems(at), len(documents_drawn(at))) == ([], 1)


@pytest.mark.parametrize(
    ("page", "word"), [(HOME, "no token to compare"), (ATTENTION, "no token to look at")]
)
def test_text_without_any_token_is_said_to_have_none(open_page, page, word):
    at = open_page(page, pasted("\u200b\u200d\u200b"))
    messages = [e.value for e in (*at.error, *at.info)]
    assert [word in m for m in messages] == [True], (messages, problems(at))


def test_text_without_any_token_has_one_landmark_and_no_chunk(open_page):
    at = open_page(LANDMARKS, pasted("\u200b\u200d\u200b"))
    assert [m.value for m in at.metric if m.label == "Landmarks"] == ["1"]


@pytest.mark.parametrize("page", TEXT_PAGES.values(), ids=TEXT_PAGES)
def test_pasted_text_stands_nowhere_in_the_url(open_page, page):
    query = open_page(page, pasted("the secret words")).query_params
    assert query == {"doc": "pasted", "limit": "64"}


def test_markup_of_a_text_is_drawn_escaped(open_page):
    (html,) = documents_drawn(open_page(LANDMARKS, pasted("<script>alert(1)</script>")))
    assert ("<script" in html, "&lt;script&gt;" in html) == (False, True)


def test_typed_special_token_is_counted_and_read_as_text(open_page):
    at = open_page(LANDMARKS, pasted("one [SEP] two [SEP] three"))
    assert r"spells \[SEP\] ×2, read as plain text" in prose(at)


def test_typed_separator_adds_no_landmark(open_page):
    at = open_page(LANDMARKS, pasted("one [SEP] two [SEP] three"))
    assert [m.value for m in at.metric if m.label == "Landmarks"] == ["1"]


def test_words_unknown_to_the_vocabulary_are_counted(open_page):
    assert "unknown to the vocabulary" in prose(open_page(LANDMARKS, pasted("😀 and 👍")))


def test_cut_inside_a_character_is_said(open_page):
    at = open_page(LANDMARKS, {**pasted("한국어 " * 10), state.GRANULARITY.key: 1})
    assert "fall inside a character" in prose(at)


def test_text_typed_into_the_page_is_drawn(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.DOCUMENT.key: state.PASTED})
    at.text_area[0].set_value("typed by hand").run()
    assert "typed by hand" in documents_drawn(at)[0]


def upload(at: AppTest, data: bytes, name: str = "note.txt") -> AppTest:
    at.file_uploader[0].set_value((name, data, "application/octet-stream"))
    return at.run()


@pytest.fixture
def upload_document(open_page: OpenPage) -> Callable[..., AppTest]:
    def upload_(data: bytes, name: str = "note.txt") -> AppTest:
        return upload(
            open_page(LANDMARKS, {**SHORT, state.DOCUMENT.key: state.UPLOADED}), data, name
        )

    return upload_


@pytest.mark.parametrize("page", TEXT_PAGES.values(), ids=TEXT_PAGES)
def test_page_without_an_upload_asks_for_one(open_page, page):
    at = open_page(page, {**SHORT, state.DOCUMENT.key: state.UPLOADED})
    assert [e.value for e in at.info] == ["Choose a text file above, or a sample in the side bar."]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("Grüße aus Köln".encode("latin-1"), "is not text in UTF-8"),
        (b"", "is empty (0 bytes)"),
        (b" \n ", "holds only white space"),
        (bytes(range(32)) * 20, "is binary"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "is a PNG picture"),
        (b"%PDF-1.7 encrypted", "is a PDF"),
        (b"\xff\xfe\x00\xd8", "is not text in UTF-16"),
    ],
    ids=["latin-1", "0 bytes", "blank", "binary", "picture", "PDF", "half a UTF-16 pair"],
)
def test_file_that_is_no_text_is_refused_with_its_reason(upload_document, data, words):
    at = upload_document(data)
    assert [escape_markdown(words) in e.value for e in at.error] == [True]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_file_is_read_in_its_encoding(upload_document, encoding):
    at = upload_document("Grüße aus Köln".encode(encoding))
    assert "Grüße aus Köln" in documents_drawn(at)[0]


def test_file_name_is_shown_letter_by_letter(upload_document):
    # The first line is too long for a title, so that the name is one.
    at = upload_document(b"word " * 40, "[a](http---b) *c*.txt")
    assert r"\[a\]\(http\-\-\-b\) \*c\*" in prose(at)


def test_refused_file_leaves_the_one_before_in_place(upload_document):
    at = upload_document(b"the first file")
    upload(at, b"")
    at.file_uploader[0].set_value(None).run()
    assert "the first file" in documents_drawn(at)[0]


def test_uploaded_document_is_still_there_after_another_page(upload_document):
    at = upload_document(b"the first file")
    for key, value in SMALL_MAP.items():
        at.session_state[key] = value
    at.switch_page(MAP).run()
    at.switch_page(LANDMARKS).run()
    assert "the first file" in documents_drawn(at)[0]


BAD_ENCODERS = {
    "unknown": ("acme/no-such-model", "is no local folder and the model hub cannot be reached"),
    "no name": ("not a name!", "is neither a folder nor a hub id"),
    "no folder": ("/no/such/folder", "is no folder"),
    "blank": (" ", "encoder is empty"),
}


@pytest.mark.parametrize("how", ["session", "link"])
@pytest.mark.parametrize(("name", "words"), BAD_ENCODERS.values(), ids=BAD_ENCODERS)
def test_encoder_that_cannot_be_had_is_said_to_be_so(open_page, name, words, how):
    at = (
        open_page(LANDMARKS, {state.ENCODER.key: name})
        if how == "session"
        else open_page(LANDMARKS, query={"encoder": name})
    )
    assert [escape_markdown(words) in e.value for e in at.error] == [True], problems(at)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_folder_without_a_configuration_is_said_to_have_none(open_page, page, tmp_path):
    at = open_page(page, {state.ENCODER.key: str(tmp_path)})
    assert ["has no config" in e.value for e in at.error] == [True], problems(at)


@pytest.mark.parametrize(
    "query",
    [
        {"encoder": "acme/no-such-model"},
        {"encoder": " "},
        {"chunking": "variable", "gs": ""},
        {"doc": "uploaded"},
    ],
    ids=lambda query: "-".join(query),
)
def test_nothing_is_said_in_the_side_bar_alone(open_page, query):
    # A narrow screen hides it, and would show an empty page.
    at = open_page(LANDMARKS, SHORT, query)
    in_page = [*at.main.error, *at.main.info, *at.main.warning]
    assert (len(in_page) > 0, [*at.sidebar.error, *at.sidebar.info]) == (True, [])


def test_wrong_encoder_can_be_changed_on_the_same_page(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.ENCODER.key: "acme/no-such-model"})
    at.selectbox(key="_shared.encoder_list").set_value(MINILM_NAME).run()
    assert (problems(at), has_result(at)) == ([], True)


def test_other_encoder_is_asked_for_by_name(open_page):
    at = open_page(LANDMARKS, SHORT)
    at.selectbox(key="_shared.encoder_list").set_value("another").run()
    assert [e.value for e in at.info] == [
        "Name an encoder in the side bar: a hub id, or a local folder."
    ]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_encoder_in_a_folder_is_used(open_page, page, tiny_folder):
    at = open_page(page, {**SMALL[page], state.ENCODER.key: str(tiny_folder)})
    assert (problems(at), "2 layers" in prose(at), has_result(at)) == ([], True, True)


def test_encoder_typed_by_name_is_used(open_page, tiny_folder):
    at = open_page(LANDMARKS, SHORT)
    at.selectbox(key="_shared.encoder_list").set_value("another").run()
    at.text_input(key="_shared.encoder").set_value(str(tiny_folder)).run()
    assert "2 layers" in prose(at)


@pytest.fixture(scope="module")
def long_folder(build_model, build_tokenizer, tmp_path_factory):
    """A folder with an encoder whose length only the installation limits."""
    folder = tmp_path_factory.mktemp("encoders") / "tiny-modernbert"
    build_model("modernbert", "sdpa").save_pretrained(folder)
    build_tokenizer("wordpiece").save_pretrained(folder)
    return folder


def test_long_text_of_many_chunks_is_drawn_in_parts(open_page, long_folder):
    at = open_page(
        LANDMARKS,
        {
            **pasted("a landmark token. " * 2_500),
            state.ENCODER.key: str(long_folder),
            state.GRANULARITY.key: 1,
            state.MAX_LENGTH.key: 20_000,
        },
    )
    assert at.number_input(key="part.first").max == 5


def test_part_that_a_coarser_granularity_has_not_got_is_left(open_page, long_folder):
    at = open_page(
        LANDMARKS,
        {
            **pasted("a landmark token. " * 2_500),
            state.ENCODER.key: str(long_folder),
            state.GRANULARITY.key: 1,
            state.MAX_LENGTH.key: 20_000,
        },
    )
    at.number_input(key="part.first").set_value(5).run()
    at.number_input(key="_shared.granularity").set_value(3).run()
    assert (problems(at), len(documents_drawn(at))) == ([], 1)


@pytest.mark.parametrize("granularity", [1, 1_000_000])
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_any_granularity_gives_a_result(open_page, page, granularity):
    at = open_page(page, {**SMALL[page], state.GRANULARITY.key: granularity})
    assert (problems(at), has_result(at)) == ([], True)


@pytest.mark.parametrize(("wanted", "used"), [(1, 3), (600, 512), (1_000_000, 512)])
def test_length_limit_that_cannot_be_used_is_named_with_the_one_taken(open_page, wanted, used):
    at = open_page(LANDMARKS, {state.MAX_LENGTH.key: wanted})
    assert f"{wanted:,} cannot be used here; {used:,} is taken." in prose(at)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_shortest_length_limit_gives_a_result(open_page, page):
    at = open_page(page, {**SMALL[page], state.MAX_LENGTH.key: 1})
    assert (problems(at), has_result(at)) == ([], True)


def test_layout_without_a_landmark_says_what_the_vector_is_then(open_page):
    at = open_page(LANDMARKS, {state.MAX_LENGTH.key: 16})
    assert "No landmark is left" in prose(at)


def test_closed_tail_has_its_landmark(open_page):
    at = open_page(LANDMARKS, {state.MAX_LENGTH.key: 16, state.CLOSE_TAIL.key: True})
    assert [m.value for m in at.metric if m.label == "Landmarks"] == ["1"]


CHUNKINGS: dict[str, dict[str, Any]] = {
    "variable": {state.MODE.key: ChunkingMode.VARIABLE},
    "variable, per chunk": {state.MODE.key: ChunkingMode.VARIABLE, state.PER_CHUNK.key: True},
    "variable, one size": {
        state.MODE.key: ChunkingMode.VARIABLE,
        state.GRANULARITIES.key: (7,),
    },
    "sentence": {state.MODE.key: ChunkingMode.SENTENCE},
    "sentence, capped": {state.MODE.key: ChunkingMode.SENTENCE, state.SENTENCE_CAP.key: 1},
    "sentence, language": {state.MODE.key: ChunkingMode.SENTENCE, state.LANGUAGE.key: "de"},
    "sentence, unknown language": {
        state.MODE.key: ChunkingMode.SENTENCE,
        state.LANGUAGE.key: "xx",
    },
}


@pytest.mark.parametrize("chunking", CHUNKINGS.values(), ids=CHUNKINGS)
@pytest.mark.parametrize("page", [LANDMARKS, MAP])
def test_any_chunking_gives_a_result(open_page, page, chunking):
    at = open_page(page, {**SMALL[page], **chunking})
    assert (problems(at), has_result(at)) == ([], True)


def test_sizes_emptied_by_hand_are_asked_for(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.MODE.key: ChunkingMode.VARIABLE})
    at.multiselect(key="_shared.granularities").set_value([]).run()
    assert [e.value for e in at.info] == [
        "Choose at least one granularity to draw from in the side bar."
    ]


def test_sizes_emptied_by_hand_do_not_stop_fixed_chunking(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.GRANULARITIES.key: ()})
    assert (problems(at), has_result(at)) == ([], True)


def test_language_that_is_none_is_named(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.MODE.key: ChunkingMode.SENTENCE})
    at.text_input(key="_shared.language").set_value("english!").run()
    assert ["language is 'english" in e.value for e in at.error] == [True]


def test_language_that_is_none_does_not_stop_fixed_chunking(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.LANGUAGE.key: "english!"})
    assert (problems(at), has_result(at)) == ([], True)


def test_second_granularity_is_drawn_beside_the_first(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.COMPARE.key: True, state.SECOND.key: 10})
    assert [html.count('class="mark"') for html in documents_drawn(at)] == [1, 5]


def test_tokens_are_shown_on_demand_one_row_a_position(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.SHOW_TOKENS.key: True})
    assert [len(frame.value) for frame in at.dataframe] == [64]


def test_plain_input_has_no_landmark_row(open_page):
    names = trace_names(open_page(ATTENTION, SHORT, {"input": "plain"}))
    assert ("CLS row" in names, "mean landmark row" in names) == (True, False)


def test_layer_and_head_that_the_encoder_has_not_got_become_its_last(open_page):
    at = open_page(ATTENTION, SHORT, {"layers": "single", "layer": "99", "head": "99"})
    assert figures(at)[0]["layout"]["title"]["subtitle"]["text"] == "layer L5 (global), head H11"


def test_single_landmarks_of_a_link_are_drawn_once(open_page):
    at = open_page(ATTENTION, SHORT, {"g": "8", "single": "1-3-1"})
    assert [n for n in trace_names(at) if n.startswith("landmark ")] == [
        "landmark 1 (mean over heads)",
        "landmark 3 (mean over heads)",
    ]


def test_single_landmarks_that_the_text_has_not_got_are_left_out(open_page):
    at = open_page(ATTENTION, SHORT, {"g": "8", "single": "1-900"})
    assert chosen(at, state.SINGLE) == (1,)


@pytest.mark.parametrize(("log", "axis"), [("1", "log"), ("0", "linear")])
def test_weights_are_drawn_on_the_chosen_axis(open_page, log, axis):
    at = open_page(ATTENTION, SHORT, {"log": log})
    assert figures(at)[0]["layout"]["yaxis"]["type"] == axis


def test_encoder_with_rotary_positions_has_its_kernel_drawn(open_page, long_folder):
    at = open_page(ATTENTION, {**SHORT, state.ENCODER.key: str(long_folder)})
    assert (problems(at), len(figures(at))) == ([], 5)


def test_encoder_without_rotary_positions_has_no_kernel(open_page):
    assert "positions, not rotary ones" in prose(open_page(ATTENTION, SHORT))


@pytest.mark.parametrize("layers", ["local", "global", "all", "single"])
def test_every_group_of_layers_is_drawn(open_page, long_folder, layers):
    at = open_page(ATTENTION, {**SHORT, state.ENCODER.key: str(long_folder)}, {"layers": layers})
    assert (problems(at), has_result(at)) == ([], True)


def test_sample_of_a_link_that_is_not_there_is_named(open_page):
    at = open_page(LANDMARKS, SHORT, {"doc": "no_such_sample"})
    assert [
        escape_markdown("There is no sample 'no_such_sample'") in e.value for e in at.error
    ] == [True]


def test_encoder_that_is_not_offered_is_named(open_page, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_ENCODERS", MINILM_NAME)
    at = open_page(LANDMARKS, {**SHORT, state.ENCODER.key: "acme/other"})
    assert ["'acme/other' is not offered here" in e.value for e in at.error] == [True]


def test_encoder_that_is_offered_is_used_instead(open_page, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_ENCODERS", MINILM_NAME)
    at = open_page(LANDMARKS, {**SHORT, state.ENCODER.key: "acme/other"})
    assert (chosen(at, state.ENCODER), has_result(at)) == (MINILM_NAME, True)


def test_restricted_list_offers_no_other_encoder(open_page, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_ENCODERS", MINILM_NAME)
    picker = open_page(LANDMARKS, SHORT).selectbox(key="_shared.encoder_list")
    assert len(picker.options) == 1


def test_default_that_is_not_offered_is_replaced_without_a_complaint(
    open_page, monkeypatch, tiny_folder
):
    monkeypatch.setenv("LMK_VIZ_ENCODERS", str(tiny_folder))
    at = open_page(LANDMARKS, SHORT)
    assert (problems(at), "2 layers" in prose(at)) == ([], True)


def test_longest_input_of_the_operator_holds(open_page, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_MAX_LENGTH", "48")
    assert "cut by the limit of 48" in prose(open_page(LANDMARKS))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_unusable_limit_of_the_operator_is_named(open_page, page, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_MAX_LENGTH", "much")
    at = open_page(page)
    assert ["MAX\\_LENGTH is 'much'" in e.value for e in at.error] == [True]


NOUNS = (
    *("river", "harbour", "stone", "market", "lantern", "winter", "copper", "orchard"),
    *("bridge", "signal", "kettle", "meadow", "ferry", "archive", "pilot"),
)


def table(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def rows(count: int) -> list[dict[str, str]]:
    return [
        {"id": str(i), "title": f"about {n}", "text": f"the {n} is near", "label": "xy"[i % 2]}
        for i, n in enumerate(NOUNS[:count])
    ]


@pytest.fixture
def map_of(open_page: OpenPage) -> Callable[..., AppTest]:
    """`map_of(data, name, **choices)`: the map page after an upload."""

    def map_of_(data: bytes, name: str = "table.jsonl", **choices: Any) -> AppTest:
        at = open_page(MAP, {**MAP_VIEW, state.CORPUS.key: state.UPLOADED, **choices})
        return upload(at, data, name)

    return map_of_


def points_drawn(at: AppTest) -> list[int]:
    """Points in each panel."""
    found = []
    for element in at.get("plotly_chart"):
        spec = json.loads(element.proto.spec)
        found.append(sum(len(trace["text"]) for trace in spec["data"]))
    return found


def test_map_without_an_upload_asks_for_one(open_page):
    at = open_page(MAP, {**MAP_VIEW, state.CORPUS.key: state.UPLOADED})
    assert ["Choose a table above" in e.value for e in at.info] == [True]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.jsonl", b"", "is empty (0 bytes)"),
        ("a.csv", b"id,text\n", "has no rows"),
        ("a.jsonl", b'{"text": "a"}\nnot json', "line 2: not JSON"),
        ("a.jsonl", table([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]), "id '1' stands in"),
        ("a.csv", b"\x00\x01\x02" * 90, "is binary"),
        ("a.parquet", b"PAR1 nothing", "cannot be read as parquet"),
        ("a.csv", "id,text\n1,Köln".encode("latin-1"), "is not text in UTF-8"),
    ],
    ids=["0 bytes", "0 rows", "no JSON", "two ids", "binary", "no Parquet", "latin-1"],
)
def test_table_that_cannot_be_read_is_refused_with_its_reason(map_of, name, data, words):
    at = map_of(data, name)
    assert [escape_markdown(words) in e.value for e in at.error] == [True], problems(at)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_documents_are_compared_by_cosine(map_of, count):
    at = map_of(table(rows(count)), **{state.METHOD.key: ProjectionMethod.AUTO})
    # A table a pooling, and that of the documents.
    shapes = [frame.value.shape for frame in at.dataframe][:2]
    assert (problems(at), shapes) == ([], [(count, count)] * 2)


@pytest.mark.parametrize("count", [4, 15])
def test_every_document_is_a_point_of_every_panel(map_of, count):
    at = map_of(table(rows(count)))
    assert (problems(at), points_drawn(at)) == ([], [count, count])


@pytest.mark.parametrize("method", ProjectionMethod)
@pytest.mark.parametrize("count", [4, 15])
def test_every_projection_draws_few_documents(map_of, count, method):
    at = map_of(table(rows(count)), **{state.METHOD.key: method})
    assert (problems(at), points_drawn(at)) == ([], [count, count])


@pytest.mark.parametrize(
    ("method", "count", "axis"),
    [("auto", 14, "PCA 1"), ("auto", 15, "UMAP 1"), ("umap", 14, "UMAP 1"), ("pca", 15, "PCA 1")],
)
def test_axes_name_the_projection_that_was_used(map_of, method, count, axis):
    at = map_of(table(rows(count)), **{state.METHOD.key: ProjectionMethod(method)})
    assert figures(at)[0]["layout"]["xaxis"]["title"]["text"] == axis


@pytest.mark.parametrize("count", [2, 15, 40])
def test_identical_documents_are_compared_by_cosine(map_of, count):
    at = map_of(table([{"title": "the same", "text": "one and the same text"}] * count))
    shown = min(count, 30)
    assert (problems(at), at.dataframe[0].value.shape) == ([], (shown, shown))


def test_documents_identical_once_cut_are_drawn(map_of):
    same = "word " * 40
    texts = [{"title": "long", "text": f"{same} {noun}"} for noun in NOUNS]
    assert problems(map_of(table(texts))) == []


def test_documents_without_text_are_listed_with_their_reason(map_of):
    at = map_of(table([*rows(5), {"id": "blank", "text": "  "}]))
    listed = [f.value for f in at.dataframe if "reason" in f.value]
    assert [frame.to_dict("records") for frame in listed] == [
        [{"id": "blank", "reason": "empty text"}]
    ]


def test_table_of_empty_texts_alone_ends_in_words(map_of):
    at = map_of(b"id,text\n1,\n2,  \n", "a.csv")
    assert (problems(at), ["No document is left" in e.value for e in at.info]) == ([], [True])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "ndjson"])
def test_table_is_read_in_its_format(map_of, suffix):
    frame = pd.DataFrame(rows(6))
    buffer = io.BytesIO()
    match suffix:
        case "parquet":
            frame.to_parquet(buffer)
        case "ndjson":
            buffer.write(table(rows(6)))
        case _:
            frame.to_csv(buffer, sep="\t" if suffix == "tsv" else ",", index=False)
    assert points_drawn(map_of(buffer.getvalue(), f"a.{suffix}")) == [6, 6]


def test_markup_in_titles_and_labels_is_escaped_where_points_are_named(map_of):
    bold = [{**row, "title": "<script>a</script>", "label": "<img src=x>"} for row in rows(6)]
    spec = json.dumps(figures(map_of(table(bold)))[0]["data"][0]["text"])
    assert ("<script" in spec, "<img" in spec) == (False, False)


def test_corpus_of_a_link_that_is_not_there_is_named(open_page):
    at = open_page(MAP, MAP_VIEW, {"corpus": "wikipedia"})
    assert (["'wikipedia'" in e.value for e in at.error], has_result(at)) == ([True], True)


def test_map_without_a_pooling_asks_for_one(open_page):
    at = open_page(MAP, {**SMALL_MAP, state.POOLINGS.key: ()})
    assert [e.value for e in at.info] == ["Choose at least one pooling above."]


def test_each_pooling_has_its_panel(map_of, family_folder):
    choices = {state.ENCODER.key: str(family_folder), state.POOLINGS.key: tuple(PoolingMode)}
    at = map_of(table(rows(6)), **choices)
    assert (problems(at), points_drawn(at)) == ([], [6] * 6)


def test_granularity_of_one_page_holds_on_the_next_and_back(open_page):
    at = open_page(LANDMARKS, SHORT)
    at.number_input(key="_shared.granularity").set_value(9).run()
    at.switch_page(ATTENTION).run()
    there = len(at.multiselect(key="_attention.single").options)
    at.switch_page(LANDMARKS).run()
    # 64 positions hold the CLS and six chunks of nine with their landmarks; the rest is tail.
    assert (there, documents_drawn(at)[0].count('class="mark"')) == (6, 6)


def test_document_of_one_page_holds_on_the_next_and_back(open_page):
    title = escape_markdown(next(d.title for d in sample_documents() if d.id == "multilingual"))
    at = open_page(LANDMARKS, SHORT)
    at.selectbox(key="_shared.document").set_value("multilingual").run()
    at.switch_page(ATTENTION).run()
    there = title in prose(at)
    at.switch_page(LANDMARKS).run()
    assert (there, title in prose(at)) == (True, True)


def test_document_holds_over_a_page_that_has_none(open_page):
    at = open_page(LANDMARKS, {**SMALL_MAP, **SHORT})
    at.selectbox(key="_shared.document").set_value("multilingual").run()
    at.switch_page(MAP).run()
    at.switch_page(HOME).run()
    title = next(d.title for d in sample_documents() if d.id == "multilingual")
    assert figures(at)[0]["layout"]["title"]["subtitle"]["text"] == title[:60]


def test_encoder_of_one_page_holds_on_the_next_and_back(open_page, tiny_folder):
    at = open_page(LANDMARKS, {**SHORT, state.ENCODER.key: str(tiny_folder)})
    at.switch_page(ATTENTION).run()
    there = "2 layers" in prose(at)
    at.switch_page(LANDMARKS).run()
    assert (there, "2 layers" in prose(at)) == (True, True)


def test_chunking_of_one_page_holds_on_the_next_and_back(open_page):
    at = open_page(LANDMARKS, SHORT)
    at.button_group(key="_shared.mode").set_value(ChunkingMode.SENTENCE).run()
    at.switch_page(ATTENTION).run()
    there = chosen(at, state.MODE)
    at.switch_page(LANDMARKS).run()
    assert (there, "sentences of at most" in prose(at)) == (ChunkingMode.SENTENCE, True)


def test_settings_of_one_page_do_not_stand_in_the_url_of_another(open_page):
    at = open_page(LANDMARKS, {**SHORT, state.COMPARE.key: True})
    at.query_params.clear()
    at.switch_page(ATTENTION).run()
    assert at.query_params == {"limit": "64"}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_warm_rerun_draws_the_same(open_page, page):
    def drawn(at: AppTest) -> tuple[object, ...]:
        return figures(at), documents_drawn(at), prose(at), at.query_params

    at = open_page(page, {**SMALL[page], state.GRANULARITY.key: 10})
    before = drawn(at)
    assert drawn(at.run()) == before


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_warm_rerun_does_not_run_the_encoder(open_page, page, monkeypatch):
    at = open_page(page, SMALL[page])

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the encoder ran again")

    monkeypatch.setattr("lmk_viz.encoder.Encoder._forward", refuse)
    monkeypatch.setattr("lmk_viz.encoder.Encoder.layout", refuse)
    assert problems(at.run()) == []


def test_change_of_a_view_does_not_run_the_encoder(open_page, monkeypatch):
    at = open_page(ATTENTION, SHORT)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the encoder ran again")

    monkeypatch.setattr("lmk_viz.encoder.Encoder._forward", refuse)
    at.toggle(key="_attention.log").set_value(False).run()
    assert problems(at) == []
