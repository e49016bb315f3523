"""The distance kernel of rotary positions, against the hand-worked table."""

import numpy as np
import pytest

from lmk_viz.rope import inverse_frequencies, rope_kernel, smoothed_kernel

DISTANCES = [0, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8191]
RAW = {
    1e4: [1, 0.966, 0.700, 0.605, 0.611, 0.435, 0.284, 0.354, 0.185, 0.263, -0.040, 0.003, 0.042],
    1.6e5: [1, 0.972, 0.762, 0.682, 0.610, 0.614, 0.491, 0.558, 0.392, 0.507, 0.342, 0.158, 0.155],
    5e5: [1, 0.974, 0.779, 0.700, 0.664, 0.661, 0.593, 0.571, 0.531, 0.534, 0.303, 0.335, 0.292],
}
"""Head size 64."""
SMOOTH_DISTANCES = [32, 128, 512, 2048, 8191]
SMOOTH = {
    1e4: [0.552, 0.399, 0.220, -0.018, 0.023],
    1.6e5: [0.648, 0.538, 0.471, 0.207, 0.252],
    5e5: [0.684, 0.569, 0.498, 0.284, 0.213],
}


@pytest.mark.parametrize("base", RAW, ids="{:g}".format)
def test_the_kernel_is_that_of_the_table(base):
    kernel = rope_kernel(inverse_frequencies(base, 64), np.array(DISTANCES))
    np.testing.assert_allclose(kernel, RAW[base], atol=5e-4, rtol=0)


@pytest.mark.parametrize("base", SMOOTH, ids="{:g}".format)
def test_the_averaged_kernel_is_that_of_the_table(base):
    kernel = smoothed_kernel(inverse_frequencies(base, 64), np.array(SMOOTH_DISTANCES))
    np.testing.assert_allclose(kernel, SMOOTH[base], atol=5e-4, rtol=0)


@pytest.mark.parametrize("half_width", [0, 1, 16])
@pytest.mark.parametrize("base", RAW, ids="{:g}".format)
def test_the_averaged_kernel_equals_a_plain_average(base, half_width):
    frequencies = np.append(inverse_frequencies(base, 64), 0.0)  # A pair may stand still.
    distances = np.array([0, 1, 7, 32, 500, 8191])
    shifts = range(-half_width, half_width + 1)
    plain = np.mean([rope_kernel(frequencies, distances + shift) for shift in shifts], axis=0)
    smooth = smoothed_kernel(frequencies, distances, half_width)
    np.testing.assert_allclose(smooth, plain, atol=1e-12, rtol=0)


def test_the_kernel_is_the_mean_score_of_a_vector_with_its_turned_self():
    frequencies = inverse_frequencies(1e4, 8)

    def turned(position: int) -> np.ndarray:
        return np.exp(1j * position * frequencies)

    for distance in (0, 1, 5, 40):
        scores = (turned(100 + distance) * turned(100).conj()).real.mean()
        assert rope_kernel(frequencies, np.array([distance]))[0] == pytest.approx(scores)
        assert rope_kernel(frequencies, np.array([-distance]))[0] == pytest.approx(scores)


def test_frequencies_fall_from_one_by_a_constant_factor():
    got = inverse_frequencies(10_000, 8)
    np.testing.assert_allclose(got, [1, 0.1, 0.01, 0.001], rtol=1e-12)
    assert inverse_frequencies(2, 2).tolist() == [1]


@pytest.mark.parametrize(
    ("base", "size"), [(1, 64), (0.5, 64), (-2, 64), (float("nan"), 64), (1e4, 63), (1e4, 0)]
)
def test_a_base_or_a_size_that_makes_no_sense_is_refused(base, size):
    with pytest.raises(ValueError, match=rf"base {base} and size {size} came; allowed: over 1"):
        inverse_frequencies(base, size)


# Read off models.


def test_modernbert_has_a_base_for_each_kind_of_layer(tiny_encoder):
    encoder = tiny_encoder("modernbert")
    found = encoder.rope_frequencies()
    bases = encoder.model.config.rope_parameters
    assert bases["full_attention"]["rope_theta"] == 160_000
    assert bases["sliding_attention"]["rope_theta"] == 10_000
    assert set(found) == {"global", "local"}
    np.testing.assert_allclose(found["global"], inverse_frequencies(160_000, 8), rtol=1e-5)
    np.testing.assert_allclose(found["local"], inverse_frequencies(10_000, 8), rtol=1e-5)


@pytest.mark.parametrize("name", ["gte", "jina", "qwen3"])
def test_encoders_of_one_base_have_it_for_all_layers(name, tiny_encoder):
    encoder = tiny_encoder(name)
    base = encoder.model.config.rope_parameters["rope_theta"]
    found = encoder.rope_frequencies()
    assert list(found) == ["all"]
    assert found["all"].dtype == np.float64
    np.testing.assert_allclose(found["all"], inverse_frequencies(base, 8), rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "bloom"])
def test_encoders_without_rotary_positions_have_no_frequencies(name, tiny_encoder):
    assert tiny_encoder(name).rope_frequencies() == {}
