"""What a training run is made of, checked when it is made."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from lmk_viz.config import PoolingMode

__all__ = ["TrainingConfig"]

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings of one run; together with data and encoder they decide every weight."""

    pooling: PoolingMode = PoolingMode.LANDMARK
    steps: int = 300
    """Optimizer steps."""
    batch_size: int = 32
    """Pairs a step and process, in micro-batches of `batch_size / accumulation`."""
    accumulation: int = 1
    """Micro-batches a step. In-batch negatives come from a micro-batch alone."""
    query_length: int = 64
    """Longest query in tokens, specials and landmarks included."""
    passage_length: int = 256
    """Longest passage in tokens, specials and landmarks included."""
    granularities: tuple[int, ...] = (8, 16, 32, 64)
    """One is drawn for every text; also the step of every_k."""
    learning_rate: float = 5e-4
    """At its peak."""
    warm_up: float = 0.1
    """Share of the steps over which the rate rises; after that it falls to 0 in a line."""
    weight_decay: float = 0.0
    clip: float = 1.0
    """Longest gradient, in the Euclidean norm over all weights."""
    temperature: float = 0.05
    contrastive: float = 1.0
    """Weight of the contrastive loss."""
    distillation: float = 1.0
    """Weight of the cosine distance to teacher vectors, where the data has them."""
    lora_rank: int = 0
    """Rank of low-rank adapters on every linear layer; 0 trains the weights themselves."""
    frozen: tuple[str, ...] = ()
    """Weights whose name begins with one of these stay as they are."""
    precision: str = "auto"
    """Of forward and backward: `auto` (bfloat16 on an accelerator, float32 on CPU), float32,
    bfloat16."""
    shuffle: bool = True
    """Draw the order of the pairs by seed; off: as they stand in the data."""
    save_every: int = 50
    """Steps between checkpoints."""
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pooling", PoolingMode(self.pooling))
        object.__setattr__(self, "granularities", tuple(self.granularities))
        object.__setattr__(self, "frozen", tuple(self.frozen))
        whole = ("steps", "batch_size", "accumulation", "query_length", "passage_length")
        for name in (*whole, "save_every"):
            _check(name, getattr(self, name), 3 if name.endswith("length") else 1, math.inf)
        _check("lora_rank", self.lora_rank, 0, math.inf)
        _check("seed", self.seed, 0, 2**32 - 1)
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be split into {self.accumulation} equal "
                "micro-batches; give a multiple."
            )
        if self.contrastive and self.batch_size // self.accumulation < 2:
            raise ValueError(
                "a micro-batch of one pair has no in-batch negative; "
                "raise batch_size or lower accumulation."
            )
        if not self.granularities or min(self.granularities) < 1:
            raise ValueError(f"granularities is {self.granularities}; give sizes of 1 and more.")
        for name, low, high in (
            ("learning_rate", 0.0, 1.0),
            ("warm_up", 0.0, 1.0),
            ("weight_decay", 0.0, 1.0),
            ("clip", 0.0, math.inf),
            ("temperature", 1e-4, 100.0),
            ("contrastive", 0.0, math.inf),
            ("distillation", 0.0, math.inf),
        ):
            _check(name, getattr(self, name), low, high)
        if not (self.contrastive or self.distillation):
            raise ValueError("contrastive and distillation are both 0; there is nothing to learn.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is {self.precision!r}; allowed: {', '.join(PRECISIONS)}.")

    @property
    def micro_batch(self) -> int:
        """Pairs a forward pass."""
        return self.batch_size // self.accumulation

    def rate(self, step: int) -> float:
        """Returns the learning rate of a step, counted from 0.

        Example:
            >>> config = TrainingConfig(steps=10, warm_up=0.2, learning_rate=1.0)
            >>> [config.rate(step) for step in (0, 1, 2, 6, 9)]
            [0.5, 1.0, 1.0, 0.5, 0.125]
        """
        rising = round(self.warm_up * self.steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (self.steps - step) / max(1, self.steps - rising)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the settings that `to_dict` wrote."""
        return cls(**values)

    def with_(self, **changes: Any) -> Self:
        """Returns the same settings with some changed."""
        return replace(self, **changes)


def _check(name: str, value: Any, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        allowed = f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}"
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}.")
