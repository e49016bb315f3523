import pytest

from lmk_viz.config import PoolingMode
from lmk_viz.training.config import TrainingConfig


def test_the_rate_rises_then_falls_in_a_line_to_nothing():
    config = TrainingConfig(steps=100, warm_up=0.1, learning_rate=1.0)
    rates = [config.rate(step) for step in range(101)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert max(rates) == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0.0


def test_without_warm_up_the_first_step_has_the_full_rate():
    config = TrainingConfig(steps=4, warm_up=0.0, learning_rate=1.0)
    assert [config.rate(step) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_settings_survive_json():
    config = TrainingConfig(pooling="cls", granularities=[8, 16], frozen=["a"])
    assert config.pooling is PoolingMode.CLS
    assert TrainingConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0; allowed: 1 and more"),
        ({"steps": True}, "steps is True"),
        ({"passage_length": 2}, "passage_length is 2; allowed: 3 and more"),
        ({"batch_size": 6, "accumulation": 4}, "cannot be split into 4 equal"),
        ({"batch_size": 4, "accumulation": 4}, "no in-batch negative"),
        ({"granularities": ()}, "granularities is"),
        ({"granularities": (0,)}, "sizes of 1 and more"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"warm_up": 1.5}, "warm_up is 1.5; allowed: 0 to 1"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"contrastive": 0.0, "distillation": 0.0}, "nothing to learn"),
        ({"precision": "float16"}, "allowed: auto, float32, bfloat16"),
        ({"lora_rank": -1}, "lora_rank is -1"),
        ({"pooling": "max"}, "pooling is 'max'; allowed"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


def test_one_pair_a_micro_batch_is_fine_where_nothing_is_contrasted():
    assert TrainingConfig(batch_size=2, accumulation=2, contrastive=0.0).micro_batch == 1
