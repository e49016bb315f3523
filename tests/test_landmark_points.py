import numpy as np
import pytest

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.landmark_points import MAX_DOCUMENTS, landmark_states
from lmk_viz.pooling import parse_poolings

TEXTS = ("A landmark token is placed after every chunk of a long document.", "Rivers carry water")
DOCUMENTS = tuple(Document(str(i), f"text {i}", text) for i, text in enumerate(TEXTS))
THREES = ChunkingConfig(granularity=3)


def test_the_mean_of_landmark_states_points_where_the_vector_does(tiny_encoder):
    encoder = tiny_encoder("bert")
    vectors = embed_documents(encoder, DOCUMENTS, parse_poolings("landmark"), THREES)
    for found, document, wanted in zip(
        landmark_states(encoder, DOCUMENTS, THREES),
        DOCUMENTS,
        vectors.vectors[PoolingMode.LANDMARK],
        strict=True,
    ):
        layout = encoder.layout(document.text, LayoutKind.LANDMARK, THREES, None)
        assert len(found) == layout.n_landmarks == len(found.chunks)
        # Directions are kept, so the mean is asked of the states themselves.
        states = encoder.token_states([layout])[0].numpy()
        mean = states[[c.landmark_position for c in layout.chunks if c.landmark_position]].mean(0)
        np.testing.assert_allclose(mean / np.linalg.norm(mean), wanted, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(found.states, axis=1), 1.0, atol=1e-5)


def test_chunks_are_the_text_in_front_of_each_landmark(tiny_encoder):
    (found,) = landmark_states(tiny_encoder("bert"), DOCUMENTS[:1], THREES)
    assert TEXTS[0].startswith(found.chunks[0])


def test_a_family_is_asked_for_its_landmark_variant(tiny_encoder):
    asked = []

    class Family:
        def encoder_for(self, mode: PoolingMode) -> object:
            asked.append(mode)
            return tiny_encoder("bert")

    landmark_states(Family(), DOCUMENTS, THREES)
    assert asked == [PoolingMode.LANDMARK]


def test_a_text_without_a_token_has_no_landmark(tiny_encoder):
    (found,) = landmark_states(tiny_encoder("bert"), [Document("1", "blank", " ")], THREES)
    assert (len(found), found.states.shape[0], found.chunks) == (0, 0, ())


def test_more_documents_than_can_be_told_apart_are_refused(tiny_encoder):
    many = [Document(str(i), "t", "a") for i in range(MAX_DOCUMENTS + 1)]
    with pytest.raises(ValueError, match="21 documents came; allowed: 20"):
        landmark_states(tiny_encoder("bert"), many)
