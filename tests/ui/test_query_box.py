"""The question box of the landmarks page, and the text tinted by its answers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import fixed, word_tokens
from streamlit.testing.v1 import AppTest

from lmk_viz.config import EncoderConfig, LayoutKind
from lmk_viz.encoder import Encoder
from lmk_viz.landmarks import SpecialIds, build_layout
from lmk_viz.query_match import landmark_vectors, match_query
from lmk_viz.ui import state
from lmk_viz.ui.text import HEAT_STEPS, escape_markdown, layout_html

LANDMARKS = "pages/1_Landmarks.py"
TEXT = "Rivers carry water from the hills to the sea, and rain carries it back again."
OpenPage = Callable[..., AppTest]


@pytest.fixture
def ask(open_page: OpenPage, tiny_folder: Path) -> Callable[..., AppTest]:
    """`ask(question, **choices)`: the page on the tiny encoder after a question."""

    def ask_(question: str, text: str = TEXT, **choices: Any) -> AppTest:
        at = open_page(
            LANDMARKS,
            {
                state.ENCODER.key: str(tiny_folder),
                state.DOCUMENT.key: state.PASTED,
                state.TEXT.key: text,
                state.GRANULARITY.key: choices.get("granularity", 4),
                state.MAX_LENGTH.key: choices.get("limit", 64),
            },
        )
        (box,) = [box for box in at.text_input if box.label == "Question"]
        return box.set_value(question).run()

    return ask_


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error)]


def metrics(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def tinted(at: AppTest) -> list[str]:
    return [
        e.proto.body
        for e in at.get("html")
        if "heat" in e.proto.body and "lmk-doc" in e.proto.body and "<style>" not in e.proto.body
    ]


def test_a_question_names_the_chunk_that_answers(ask, tiny_folder):
    at = ask("water from the hills")
    assert problems(at) == []
    encoder = Encoder.from_pretrained(EncoderConfig(str(tiny_folder), device="cpu"))
    document = landmark_vectors(encoder, encoder.layout(TEXT, chunking=fixed(4), max_length=64))
    wanted = match_query(encoder, document, "water from the hills", fixed(4), 64)
    shown = metrics(at)
    assert shown["Answering chunk"] == str(wanted.document.chunks[wanted.best])
    assert shown["Pooled vector"] == f"{wanted.pooled:.3f}"
    assert shown["Closest landmark"] == f"{wanted.cosines[wanted.best]:.3f}"
    assert shown["Landmarks of the question"] == str(wanted.query_landmarks)
    (html,) = tinted(at)
    assert re.findall(r'data-tip="cosine (-?[\d.]+)', html) == [f"{c:.3f}" for c in wanted.cosines]
    assert len(at.get("plotly_chart")) == 1
    assert any("never trained for landmark" in text.value for text in at.markdown)


def test_the_question_never_stands_in_the_address(ask):
    at = ask("a secret question")
    assert "secret" not in str(dict(at.query_params))


def test_without_a_question_nothing_is_computed(ask, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("nothing was asked")

    monkeypatch.setattr("lmk_viz.query_match.landmark_vectors", refuse)
    at = ask("   ")
    assert problems(at) == []
    assert not at.get("plotly_chart")


def test_a_question_that_is_cut_is_said_so(ask):
    at = ask("water from the hills to the sea and back again " * 3, limit=16)
    assert problems(at) == []
    assert any("The length limit cut" in caption.value for caption in at.caption)


def test_a_document_without_any_landmark_shows_the_pooled_vector_alone(ask):
    at = ask("water", granularity=500, limit=16)
    assert problems(at) == []
    assert "Answering chunk" not in metrics(at)
    assert "Pooled vector" in metrics(at)
    assert any("No landmark of the document" in caption.value for caption in at.caption)
    assert not at.get("plotly_chart")


def test_a_question_without_a_token_is_answered_in_words(ask):
    at = ask("\u200b")
    assert not at.exception
    assert [e.value for e in at.error] == [
        escape_markdown("the question has no token: the vocabulary has none of its text.")
    ]


@pytest.mark.parametrize(
    "question", ["<script>alert(1)</script>", "*a* [b](c) $x$", "🇩🇪 日本 שלום"]
)
def test_any_question_is_drawn_without_a_problem(ask, question):
    assert problems(ask(question)) == []


# The text.


def drawn(scores: dict[int, float]) -> list[tuple[str, str]]:
    """Classes and tip of each chunk of a text of three chunks and a tail."""
    special = SpecialIds(cls=1, landmark=2, pad=0)
    tokens = word_tokens("a b c d e f g h")
    # [CLS] ab [LMK] cd [LMK] ef [LMK] g, and h is cut.
    layout = build_layout(tokens, special, LayoutKind.LANDMARK, fixed(2), 11)
    html = layout_html(layout, "[SEP]", None, scores)
    return re.findall(r'<span class="(chunk[^"]*)"[^>]*data-tip="([^"]*)"', html)


def test_tints_go_from_the_lowest_to_the_highest_score():
    found = drawn({0: -0.2, 1: 0.8, 2: 0.3})
    assert [classes for classes, _ in found] == [
        "chunk heat0",
        f"chunk heat{HEAT_STEPS - 1}",
        f"chunk heat{HEAT_STEPS // 2}",
        "chunk tail",
    ]
    assert [tip.partition(" · ")[0] for _, tip in found] == [
        "cosine -0.200",
        "cosine 0.800",
        "cosine 0.300",
        "chunk 3",
    ]


def test_equal_scores_have_one_tint():
    found = drawn(dict.fromkeys(range(3), 0.5))
    assert len({classes for classes, _ in found[:3]}) == 1
