"""Latent attention: the layer by itself, against a slow one and against the plain mean."""

import numpy as np
import pytest
import torch
from families import latents_by_hand, random_latents
from safetensors.torch import load_file, save_file

from lmk_viz.adapters import load_latents
from lmk_viz.config import PoolingMode
from lmk_viz.latent_attention import LatentAttention, LatentConfig
from lmk_viz.pooling import pool

HIDDEN = 16
CPU = torch.device("cpu")


def states_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_each_state_gives_one_of_the_same_size():
    assert random_latents(HIDDEN)(states_of(2, 5, HIDDEN)).shape == (2, 5, HIDDEN)


def test_states_equal_those_of_a_slow_implementation():
    latents, states = random_latents(HIDDEN), states_of(2, 3, HIDDEN)
    weights = {name: weight.double().numpy() for name, weight in latents.state_dict().items()}
    expected = [
        [latents_by_hand(state.double().numpy(), weights, latents.config.heads) for state in row]
        for row in states
    ]
    np.testing.assert_allclose(latents(states).numpy(), expected, atol=1e-5, rtol=0)


def test_every_weight_has_a_part_in_the_result():
    latents = random_latents(HIDDEN).requires_grad_(True)
    latents(states_of(2, 5, HIDDEN)).square().sum().backward()
    idle = [n for n, w in latents.named_parameters() if not w.grad.abs().max() > 1e-6]
    assert idle == []


def test_a_state_does_not_depend_on_the_others_or_on_padding():
    latents, states = random_latents(HIDDEN), states_of(1, 4, HIDDEN)
    padded = torch.cat([states, torch.full((1, 3, HIDDEN), torch.nan)], dim=1)
    torch.testing.assert_close(latents(padded)[:, :4], latents(states))
    torch.testing.assert_close(latents(states[:, 1:2]), latents(states)[:, 1:2])


def test_before_training_it_changes_nothing_so_that_pooling_is_the_mean():
    torch.manual_seed(0)
    fresh = LatentAttention(LatentConfig.for_hidden(HIDDEN))
    states = states_of(2, 5, HIDDEN)
    assert torch.equal(fresh(states), states)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    with_latents = pool(states, mask, PoolingMode.LATENT_ATTENTION, latents=fresh)
    assert torch.equal(with_latents, pool(states, mask, PoolingMode.MEAN))


def test_pooling_averages_what_the_layer_makes_of_the_states_under_the_mask():
    latents, states = random_latents(HIDDEN), states_of(1, 3, HIDDEN)
    mask = torch.tensor([[True, False, True]])
    got = pool(states, mask, PoolingMode.LATENT_ATTENTION, latents=latents)
    torch.testing.assert_close(got, (latents(states)[:, 0] + latents(states)[:, 2]) / 2)


def test_pooling_without_the_layer_is_refused():
    with pytest.raises(ValueError, match="latent_attention needs the layer it was trained with"):
        pool(states_of(1, 2, HIDDEN), torch.ones(1, 2, dtype=torch.bool), "latent_attention")


def test_other_poolings_take_no_notice_of_the_layer():
    states, mask = states_of(1, 2, HIDDEN), torch.ones(1, 2, dtype=torch.bool)
    given = pool(states, mask, PoolingMode.MEAN, latents=random_latents(HIDDEN))
    assert torch.equal(given, pool(states, mask, PoolingMode.MEAN))


def test_states_in_half_precision_are_read_in_the_layers_own():
    latents, states = random_latents(HIDDEN), states_of(1, 2, HIDDEN).bfloat16()
    assert latents(states).dtype is torch.float32
    torch.testing.assert_close(latents(states), latents(states.float()))


# Sizes.


@pytest.mark.parametrize(
    ("hidden", "heads", "head_size"), [(384, 6, 64), (768, 12, 64), (16, 1, 16), (100, 1, 64)]
)
def test_heads_are_of_64_numbers_as_far_as_the_state_has_them(hidden, heads, head_size):
    assert LatentConfig.for_hidden(hidden) == LatentConfig(hidden, 64, heads, head_size)


@pytest.mark.parametrize("name", ["hidden", "latents", "heads", "head_size", "expansion"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8", None])
def test_a_size_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it has to be a whole number"):
        LatentConfig.from_dict({"hidden": 8, name: value})


@pytest.mark.parametrize("values", [{}, {"hidden": 8, "depth": 2}], ids=["missing", "unknown"])
def test_sizes_with_a_missing_or_an_unknown_name_are_refused(values):
    with pytest.raises(ValueError, match=r"latent attention settings .* do not fit"):
        LatentConfig.from_dict(values)


def test_sizes_come_back_as_they_were_written():
    config = LatentConfig(8, 3, 2, 4, 5)
    assert LatentConfig.from_dict(config.to_dict()) == config


# Files.


def test_layer_comes_back_from_its_file_in_float32(tmp_path):
    latents = random_latents(HIDDEN)
    halves = {name: weight.half() for name, weight in latents.state_dict().items()}
    save_file(halves, tmp_path / "latent_attention.safetensors")
    state = torch.get_rng_state()
    loaded = load_latents(tmp_path, latents.config, HIDDEN, CPU)
    assert torch.equal(torch.get_rng_state(), state)  # Nothing was drawn.
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    assert not any(weight.requires_grad for weight in loaded.parameters())
    for name, weight in load_file(tmp_path / "latent_attention.safetensors").items():
        assert torch.equal(loaded.state_dict()[name], weight.float())


def test_layer_for_states_of_another_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="reads states of 16 numbers, the encoder has 8"):
        load_latents(tmp_path, LatentConfig(HIDDEN), 8, CPU)


def test_layer_without_its_weights_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"latent_attention\.safetensors is missing"):
        load_latents(tmp_path, LatentConfig(HIDDEN), HIDDEN, CPU)


@pytest.mark.parametrize("latents", [2, 4])
def test_weights_of_other_sizes_are_refused(latents, tmp_path):
    save_file(random_latents(HIDDEN).state_dict(), tmp_path / "latent_attention.safetensors")
    config = LatentConfig(HIDDEN, latents, heads=2, head_size=4, expansion=2)
    with pytest.raises(ValueError, match=r"does not fit its sizes: .*latents"):
        load_latents(tmp_path, config, HIDDEN, CPU)
