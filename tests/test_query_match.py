"""A question against a document of words, whose cosines are worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fakes import BagEncoder
from helpers import fixed

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.figures.query import query_alt, query_figure
from lmk_viz.figures.theme import GREY, STYLES
from lmk_viz.pooling import parse_poolings
from lmk_viz.query_match import QueryMatch, landmark_vectors, match_query


class StatesBag(BagEncoder):
    """A bag encoder that hands its states out; a landmark counts the words of its chunk."""

    def token_states(self, layouts):
        (layout,) = layouts
        return torch.from_numpy(self.states(layout))[None]


def match(text: str, query: str, granularity: int = 2, **limit: int) -> QueryMatch:
    """A match of one-letter words, `granularity` a chunk; limits of `document` and `question`."""
    encoder = StatesBag("abcdef")
    chunking = fixed(granularity)
    layout = encoder.layout(
        " ".join(text), LayoutKind.LANDMARK, chunking, limit.get("document", 1000)
    )
    document = landmark_vectors(encoder, layout)
    return match_query(encoder, document, " ".join(query), chunking, limit.get("question", 1000))


def test_cosines_by_hand():
    # Chunks ab | cc | da, question "a": with (1, 1) 1/sqrt 2, with (2) of c none, with (1, 1).
    found = match("abccda", "a")
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(found.cosines, [half, 0, half])
    # The sum of the three states is a 2, b 1, c 2, d 1.
    assert found.pooled == pytest.approx(2 / np.sqrt(10))
    assert found.mean == pytest.approx(2 * half / 3)
    assert found.median == pytest.approx(half)


def test_of_equals_the_first_answers_and_ranks_go_by_place():
    found = match("abccda", "a")
    assert (found.best, found.ranks().tolist()) == (0, [1, 3, 2])


def test_the_answering_chunk_is_named_with_its_tokens():
    found = match("aabbccdd", "c")
    assert found.best == 2
    of = found.document
    assert (of.chunks[2], of.token_starts[2], of.token_ends[2]) == (2, 4, 6)
    assert found.to_dict()["best_chunk"] == 2


def test_a_question_of_several_landmarks_is_the_mean_of_them():
    # ab | b: landmarks (1, 1) and (0, 1), whose mean points to a 1, b 2.
    found = match("abbb", "abb")
    assert (found.query_landmarks, found.query_tokens) == (2, 3)
    np.testing.assert_allclose(found.cosines, [3 / np.sqrt(10), 2 / np.sqrt(5)])


def test_a_question_that_is_cut_says_so():
    # [CLS] a a [LMK] leaves b and c out.
    found = match("aabb", "aabc", question=4)
    assert (found.query_tokens, found.query_tokens_cut, found.query_landmarks) == (4, 2, 1)
    np.testing.assert_allclose(found.cosines, [1, 0])


def test_a_question_without_room_for_a_landmark_falls_back_to_the_mean():
    found = match("aabb", "ab", question=3)
    assert (found.query_fell_back, found.query_landmarks) == (True, 0)
    assert found.cosines[0] > 0


def test_a_document_without_any_landmark_has_its_pooled_vector_alone():
    found = match("aab", "a", granularity=3, document=4)
    assert found.document.fell_back
    assert (len(found.document), found.best, found.mean, found.median) == (0, None, None, None)
    assert 0 < found.pooled <= 1
    assert found.to_dict()["landmarks"] == []
    assert "no landmark" in query_alt(found)
    with pytest.raises(ValueError, match="has no landmark; there is no bar"):
        query_figure(found)


def test_a_tail_without_a_landmark_answers_nothing():
    # [CLS] aa [LMK] b: b is kept and has no landmark of its own.
    found = match("aab", "b", document=5)
    assert found.document.chunks.tolist() == [0]
    np.testing.assert_allclose(found.cosines, [0])


@pytest.mark.parametrize("query", ["", " ", "\n\t"])
def test_an_empty_question_is_refused(query):
    document = landmark_vectors(
        StatesBag("a"), StatesBag("a").layout("a", LayoutKind.LANDMARK, fixed(2), 9)
    )
    with pytest.raises(ValueError, match="the question is empty"):
        match_query(StatesBag("a"), document, query)


def test_texts_without_a_token_are_refused(tiny_encoder):
    encoder = tiny_encoder("bert")
    document = landmark_vectors(encoder, encoder.layout("Rivers carry water"))
    with pytest.raises(ValueError, match="the question has no token"):
        match_query(encoder, document, "\u200b")
    with pytest.raises(ValueError, match="the document has no token"):
        landmark_vectors(encoder, encoder.layout(" "))


def test_a_plain_layout_is_refused():
    encoder = StatesBag("a")
    with pytest.raises(ValueError, match="landmark reads a landmark layout; a plain"):
        landmark_vectors(encoder, encoder.layout("a", LayoutKind.PLAIN, ChunkingConfig(), 9))


def test_the_pooled_vector_is_that_of_embedding(tiny_family):
    text = "A landmark token is placed after every chunk of a long document."
    layout = tiny_family.layout(text, chunking=fixed(4))
    table = embed_documents(
        tiny_family, [Document("x", "", text)], parse_poolings("landmark"), fixed(4)
    )
    document = landmark_vectors(tiny_family, layout)
    wanted = table.vectors[PoolingMode.LANDMARK][0]
    np.testing.assert_allclose(document.pooled, wanted, atol=1e-5)
    assert len(document) == layout.n_landmarks
    # Its own text is as close as can be, in the landmark variant's space alone.
    assert match_query(tiny_family, document, text, fixed(4)).pooled == pytest.approx(1, abs=1e-5)
    backbone = landmark_vectors(tiny_family.backbone, layout)
    assert np.abs(backbone.pooled - document.pooled).max() > 1e-3


def test_a_family_is_asked_for_its_landmark_variant():
    asked: list[PoolingMode] = []
    bag = StatesBag("ab")

    def encoder_for(mode):
        asked.append(mode)
        return bag

    family = SimpleNamespace(encoder_for=encoder_for)
    document = landmark_vectors(family, bag.layout("a b", LayoutKind.LANDMARK, fixed(2), 9))
    match_query(family, document, "a")
    assert set(asked) == {PoolingMode.LANDMARK}


# The figure.


def test_figure_has_a_bar_over_each_chunk_and_the_pooled_vector_and_median_as_lines():
    found = match("aabbccd", "c")
    figure = query_figure(found)
    bars, pooled, median = figure.data
    assert list(bars.x) == [1, 3, 5, 6.5]
    assert list(bars.width) == [2, 2, 2, 1]
    np.testing.assert_allclose(bars.y, [0, 0, 1, 0])
    green = STYLES[PoolingMode.LANDMARK].colour
    assert list(bars.marker.color) == [GREY, GREY, green, GREY]
    # The states add up to a 2, b 2, c 2, d 1.
    assert list(pooled.y) == pytest.approx([2 / np.sqrt(13)] * 2)
    assert list(median.y) == [0, 0]
    assert figure.layout.annotations[0].text == "chunk 2"
    assert figure.layout.xaxis.title.text == "text token that the chunk covers"
    assert figure.layout.yaxis.title.text == "cosine with the question"


def test_alternative_text_names_the_answering_chunk_and_its_numbers():
    assert query_alt(match("aabbccd", "c")) == (
        "Cosine of the question with 4 landmarks: highest 1.000 at chunk 2, median 0.000, "
        "lowest 0.000; with the pooled vector 0.555."
    )
