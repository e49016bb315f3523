"""Probes of a document at multiples of a length, on an encoder whose bias is known."""

import json

import numpy as np
import pytest
from helpers import fixed
from probes.weighted import WeightedEncoder, falling, uniform
from scipy import stats

from lmk_viz.config import ChunkingConfig, ChunkingMode, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes.document_lengths import NUMBERS, DocumentProbe, document_by_length
from lmk_viz.probes.influence import leave_one_out
from lmk_viz.probes.shuffle import shuffle_cosines

CLS, LMK = PoolingMode.CLS, PoolingMode.LANDMARK
POOLINGS = parse_poolings("cls,landmark")
WORDS = [f"w{i}" for i in range(80)]
DOCUMENTS = tuple(
    Document(f"d{start}", "d", " ".join(WORDS[start:] + WORDS[:start])) for start in (0, 7, 30)
)


def run(weights, documents=DOCUMENTS, probe="influence", tokens=10, factors=(1, 2, 4), **more):
    encoder = WeightedEncoder(WORDS, weights)
    return document_by_length(
        encoder, documents, POOLINGS, probe, tokens, factors, fixed(5), **more
    )


def test_influence_is_that_of_the_start_of_the_document_at_each_length():
    found = run(falling)
    for place, length in enumerate((10, 20, 40)):
        text = " ".join(WORDS[:length])
        alone = leave_one_out(
            WeightedEncoder(WORDS, falling), text, POOLINGS, fixed(5), neutral=None
        )
        for name in ("first_tenth", "centre_of_mass", "total"):
            wanted = getattr(alone.summaries[LMK], name)
            assert found.values[LMK][name][0, place] == pytest.approx(wanted, abs=1e-12)


def test_an_even_encoder_has_its_influence_in_the_middle_at_every_length():
    found = run(uniform)
    np.testing.assert_allclose(found.values[CLS]["first_tenth"], 0.1, atol=1e-6)
    np.testing.assert_allclose(found.values[CLS]["centre_of_mass"], 0.5, atol=1e-6)


def test_an_even_encoder_has_tenths_without_a_direction_at_every_length():
    # Ten different words a tenth, each once: every tenth is as close as the next.
    found = run(uniform, probe="segments")
    for name in NUMBERS[DocumentProbe.SEGMENTS]:
        np.testing.assert_allclose(found.values[CLS][name], 0, atol=1e-6)


def test_tenths_of_a_falling_encoder_in_closed_form():
    """A tenth of one word has the cosine w / |w| with the whole."""
    found = run(falling, DOCUMENTS[:1], "segments", 10, (1,))
    weights = falling(10)
    cosines = weights / np.linalg.norm(weights)
    assert found.values[CLS]["first_minus_last"][0, 0] == pytest.approx(
        cosines[:3].mean() - cosines[-3:].mean(), abs=1e-6
    )
    slope = np.polyfit((np.arange(10) + 0.5) / 10, cosines, 1)[0]
    assert found.values[CLS]["slope"][0, 0] == pytest.approx(slope, abs=1e-6)


def test_shuffles_are_those_of_the_start_of_the_document():
    found = run(falling, probe="shuffle", seed=3)
    text = " ".join(WORDS[:20])
    alone = shuffle_cosines(WeightedEncoder(WORDS, falling), text, POOLINGS, fixed(5), seed=3)
    assert found.values[LMK]["cosine"][0, 1] == pytest.approx(alone.means[LMK].value, abs=1e-12)
    assert found.values[LMK]["reversed"][0, 1] == pytest.approx(alone.reversed[LMK], abs=1e-12)


def test_intervals_over_documents_are_student_s():
    documents = [
        Document(f"d{k}", "d", " ".join(WORDS[i % k] for i in range(40))) for k in (7, 11, 40)
    ]
    found = run(falling, documents)
    values = found.values[CLS]["total"][:, 2]
    assert values.std() > 1e-3
    estimate = found.means[CLS]["total"][2]
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert estimate.value == pytest.approx(values.mean())
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))


def test_interval_of_three_documents_covers_the_truth_in_nine_of_ten_repetitions():
    from lmk_viz.probes.document_lengths import _mean_of_few

    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = _mean_of_few(rng.normal(0.3, 0.1, 3))
        covered += found.low <= 0.3 <= found.high
    assert 0.9 <= covered / 400 < 0.99


def test_one_document_has_numbers_without_an_interval():
    estimate = run(falling, DOCUMENTS[:1]).means[CLS]["total"][0]
    assert estimate.value is not None
    assert (estimate.low, estimate.reason) == (None, "no interval: one document")


def test_numbers_that_no_document_has_are_none_with_their_reason():
    # The fake tells no attention.
    estimate = run(uniform).means[CLS]["attention_correlation"][0]
    assert (estimate.value, estimate.reason) == (None, "undefined for every document")


def test_documents_that_were_done_are_kept_after_a_stop():
    left = iter([False] * 4)
    seen = []
    found = run(
        falling,
        should_stop=lambda: next(left, True),
        progress=lambda *step: seen.append(step),
    )
    assert found.is_partial
    assert (found.documents, found.documents_wanted) == (("d0",), 3)
    assert found.values[CLS]["total"].shape == (1, 3)
    assert seen[-1] == (4, 9)


def test_a_stop_before_the_first_document_leaves_rows_without_numbers():
    found = run(falling, should_stop=lambda: True)
    assert found.documents == ()
    assert found.to_dict()["rows"][0]["total"] is None


def test_a_result_is_plain_json_with_a_row_a_length_and_pooling():
    rows = json.loads(json.dumps(run(falling).to_dict(), allow_nan=False))["rows"]
    assert [(row["tokens"], row["pooling"]) for row in rows] == [
        (length, name) for length in (10, 20, 40) for name in ("cls", "landmark")
    ]
    assert {"first_tenth", "first_tenth_low", "first_tenth_high"} <= set(rows[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"factors": ()}, "give rising whole numbers"),
        ({"factors": (0, 1)}, "give rising whole numbers"),
        ({"factors": (2, 2)}, "give rising whole numbers"),
        ({"tokens": 1}, "tokens is 1; allowed: 2"),
        ({"tokens": 81}, "'d0' has 80 tokens and 324 are wanted"),
        ({"tokens": 4}, "has one chunk alone"),
        ({"documents": ()}, "no document came"),
        ({"documents": DOCUMENTS[:1] * 2}, "two documents share an id"),
        ({"probe": "needle"}, "probe is 'needle'; allowed: influence, segments, shuffle"),
    ],
)
def test_what_cannot_be_measured_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        run(falling, **settings)


def test_a_length_that_does_not_fit_is_refused_before_anything_is_embedded(tiny_encoder):
    encoder = tiny_encoder("bert")
    document = Document("d", "d", "one word and another " * 400)
    with pytest.raises(ValueError, match="choose a shorter length"):
        document_by_length(encoder, [document], POOLINGS, "influence", 200, (1, 2, 4))


def test_every_document_has_to_fit_with_the_landmarks_of_its_own_sentences(tiny_encoder):
    # Both have 100 tokens; the second has a landmark every three.
    documents = [Document("a", "a", "the sea " * 200), Document("b", "b", "The sea. " * 200)]
    by_sentence = ChunkingConfig(ChunkingMode.SENTENCE)
    with pytest.raises(ValueError, match="choose a shorter length"):
        document_by_length(
            tiny_encoder("bert"), documents, POOLINGS, "segments", 50, (1, 2), by_sentence
        )
