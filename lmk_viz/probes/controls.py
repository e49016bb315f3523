"""Controls: runs beside a probe that show what its result is to be compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmk_viz.config import PoolingConfig, PoolingMode

__all__ = ["RANDOM_WEIGHTS", "Control", "control_runs"]

RANDOM_WEIGHTS = "random weights"


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """One run to make beside a probe's own."""

    name: str
    encoder: Any
    poolings: tuple[PoolingConfig, ...]


def control_runs(
    encoder: Any, poolings: Sequence[PoolingConfig], seed: int = 0
) -> tuple[Control, ...]:
    """Returns the runs that show what a probe's result is worth.

    Every k-th token is spread out as landmarks are, without a token of its own; random
    weights of the same shape have what the architecture does alone. The third control,
    shuffling, is in the results themselves: questions of other needles
    (`NeedleResult.unrelated`), or the document with its chunks in another order
    (`lmk_viz.probes.shuffle.shuffled_text`).

    Args:
        encoder: of the probe.
        poolings: of the probe; every_k is not repeated.
        seed: of the weights.
    """
    runs = []
    if all(pooling.mode is not PoolingMode.EVERY_K for pooling in poolings):
        runs.append(Control("every k-th token", encoder, (PoolingConfig(PoolingMode.EVERY_K),)))
    if hasattr(encoder, "with_random_weights"):
        runs.append(Control(RANDOM_WEIGHTS, encoder.with_random_weights(seed), tuple(poolings)))
    return tuple(runs)
