import re
from html import unescape

import numpy as np

from lmk_viz.retrieval.chunk_vectors import ChunkCosines, MultiVector
from lmk_viz.ui.answer_text import answer_html

TEXT = "one <b>two</b> three & four"
SPANS = ((0, 3), (4, 14), (15, 27))


def cosines(*values, kind=MultiVector.MAX_SIM):
    return ChunkCosines(kind, SPANS[: len(values)], np.asarray(values))


def words(html):
    """The text of the block without what was put between."""
    return unescape(re.sub(r'<span class="(mark|note)".*?</span>|<[^>]+>', "", html, flags=re.S))


def test_the_text_is_whole_and_escaped():
    html = answer_html(TEXT, [cosines(0.1, 0.9, 0.2)], 15, len(TEXT))
    assert words(html) == TEXT
    assert "<b>" not in html


def test_the_tint_follows_the_cosine_and_the_answer_is_marked():
    html = answer_html(TEXT, [cosines(0.1, 0.9, 0.5)], None, len(TEXT))
    assert re.findall(r"107, ([\d.]+)\)", html) == ["0.04", "0.42", "0.23"]
    assert '◆ Max-sim over landmarks 0.900</span><span style="background' in html
    assert html.index("◆") < html.index("two") < html.index("three")
    assert "▼" not in html


def test_answers_of_several_ways_and_the_evidence_stand_at_their_places():
    passages = cosines(0.2, 0.3, 0.8, kind=MultiVector.PASSAGES)
    html = answer_html(TEXT, [cosines(0.1, 0.9, 0.5), passages], 17, len(TEXT))
    assert html.index("◆ Max-sim") < html.index("two") < html.index("◆ Passages apart 0.800")
    assert "th</span>" in html
    assert html.index("▼ evidence") > html.index("th</span>")


def test_what_was_cut_is_struck_out():
    html = answer_html(TEXT, [cosines(0.1, 0.9)], 20, 14)
    assert "".join(re.findall(r'<span class="gone">(.*?)</span>', html)) == " three &amp; four"
    assert words(html) == TEXT
    assert "▼ evidence" in html


def test_equal_cosines_are_tinted_alike():
    html = answer_html(TEXT, [cosines(0.5, 0.5, 0.5)], None, len(TEXT))
    assert set(re.findall(r"107, ([\d.]+)\)", html)) == {"0.42"}


def test_of_a_long_text_the_part_round_the_answer_is_drawn():
    text = "ab " * 60_000
    spans = ((0, 2), (150_000, 150_002))
    found = ChunkCosines(MultiVector.MAX_SIM, spans, np.asarray([0.1, 0.2]))
    html = answer_html(text, [found], 3, len(text))
    assert "120,000 characters before this" in html
    assert "◆" in html
    assert "▼" not in html
    assert len(words(html)) == 60_000
