"""What a long run will take: seconds and peak memory, before it starts.

Work is counted from the model's shape; how fast this machine does it is measured once, by a
short forward and a short attention call. Memory is counted from the largest tensors that live
at the same time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lmk_viz.local_attention import MIN_BLOCK

__all__ = [
    "Forecast",
    "MachineSpeed",
    "ModelShape",
    "calibrate",
    "check_fits",
    "forecast_run",
    "free_memory",
    "longest_fitting",
]

TILE_ARRAYS = 9
"""Arrays of a tile's size while rows are reduced: six alive at once, and about three's worth of
holes, since glibc keeps freed pieces under 32 MiB in its heap."""
WORKSPACE_BYTES = 16 * 2**20
"""Buffers of the matrix libraries, code read in late, and holes between the tensors."""
CALIBRATION_TOKENS = 256
ATTENTION_TOKENS = 1024
SAFETY = 0.85
"""Share of free memory that a run may plan for."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model decides its cost."""

    layers_global: int
    layers_local: int
    window: int
    """Keys reached on each side in local layers; 0 where there are none."""
    hidden: int
    intermediate: int
    """Width of the feed-forward layer, doubled where it is gated."""
    heads: int
    parameters: int
    """Weights that every token passes, without the embedding tables."""
    bytes_per_value: int
    blocks_local: bool = True
    """Whether local layers are computed in blocks; else densely under a mask."""

    @property
    def layers(self) -> int:
        """All layers."""
        return self.layers_global + self.layers_local


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """How fast a machine works on one model's kind of tensors."""

    linear_flops: float
    """Floating point operations a second in matrix products with weights."""
    attention_flops: float
    """And in attention."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run is expected to take."""

    tokens: int
    seconds: float
    peak_bytes: int
    """Beyond the loaded weights."""


def forecast_run(
    shape: ModelShape, speed: MachineSpeed, tokens: int, rows: int = 0, tile_bytes: int = 0
) -> Forecast:
    """Returns the expected cost of one forward of one text.

    Args:
        shape: of the model.
        speed: of this machine.
        tokens: input length.
        rows: attention rows captured a layer.
        tile_bytes: size of one tile of rows; 0 where none are captured.
    """
    reach = 2 * shape.window + max(MIN_BLOCK, 2 * shape.window)
    keys_local = min(tokens, reach) if shape.blocks_local else tokens
    attention = 4 * tokens * shape.hidden
    attention *= shape.layers_global * tokens + shape.layers_local * keys_local
    # A row costs its logits once; softmax and reductions touch every weight a few times.
    captured = rows * tokens * (2 * shape.hidden + 60 * shape.heads) * shape.layers_global
    captured += rows * keys_local * (2 * shape.hidden + 60 * shape.heads) * shape.layers_local
    seconds = (
        2 * shape.parameters * tokens / speed.linear_flops
        + (attention + captured) / speed.attention_flops
    )
    return Forecast(tokens, seconds, _peak_bytes(shape, tokens, rows, tile_bytes))


def _peak_bytes(shape: ModelShape, tokens: int, rows: int, tile_bytes: int) -> int:
    value = shape.bytes_per_value
    state = tokens * shape.hidden * value
    # Embeddings, residual, normed input and the attention's output live to the layer's end. In
    # a gated layer both halves, the activated one and the product live at once; else two.
    feed_forward = 4 * state + 2 * tokens * shape.intermediate * value
    # Embeddings, residual, normed input; queries, keys and values; their rotated copies.
    attention = 8 * state
    tile = TILE_ARRAYS * min(tile_bytes, 4 * shape.heads * rows * tokens)
    # Rotation holds two more states for a moment, and so does the output, beside no tile.
    stages = [feed_forward, attention + max(tile, 2 * state)]
    if shape.layers_local and not shape.blocks_local:
        # A Boolean mask of the whole map, kept throughout, which the kernel turns round and
        # copies in the states' own type.
        mask = tokens * tokens
        stages = [stage + mask for stage in stages]
        stages.append(attention + 2 * state + (2 + value) * mask)
    elif shape.layers_local:
        block = max(MIN_BLOCK, 2 * shape.window)
        reach = 2 * shape.window + block
        # Queries, the keys and values of each block's window, and the output; each query's
        # mask as two Booleans and as the kernel's copy.
        blocks = (2 + 2 * reach / block) * state + (2 + value) * tokens * reach
        stages.append(int(attention + blocks))
    return int(max(stages)) + WORKSPACE_BYTES


def calibrate(
    forward: Callable[[int], Any], shape: ModelShape, device: torch.device, dtype: torch.dtype
) -> MachineSpeed:
    """Returns how fast this machine is, from about a second of work.

    Args:
        forward: runs one forward of so many tokens.
        shape: of the model that it runs.
        device: where.
        dtype: of its weights.
    """
    size = shape.hidden // shape.heads
    states = torch.randn(1, shape.heads, ATTENTION_TOKENS, size, device=device, dtype=dtype)

    def attend() -> None:
        torch.nn.functional.scaled_dot_product_attention(states, states, states)

    attention = _seconds(attend, device)
    attention_flops = 4 * ATTENTION_TOKENS**2 * shape.hidden / attention
    whole = _seconds(lambda: forward(CALIBRATION_TOKENS), device)
    # The forward's own attention is not the weights' doing.
    own = 4 * CALIBRATION_TOKENS**2 * shape.hidden * shape.layers / attention_flops
    linear = max(whole - own, 0.2 * whole)
    return MachineSpeed(2 * shape.parameters * CALIBRATION_TOKENS / linear, attention_flops)


def _seconds(run: Callable[[], Any], device: torch.device) -> float:
    """Returns the median of three timed runs after a warm-up."""

    def timed() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed()
    return sorted(timed() for _ in range(3))[1]


def free_memory(device: torch.device, limit_bytes: int | None = None) -> int:
    """Returns the memory that a run may plan for: free now, less a reserve, and the limit.

    Args:
        device: CUDA tells its own figure; else the machine's memory counts.
        limit_bytes: set by an operator.
    """
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        import psutil

        free = psutil.virtual_memory().available
    usable = int(free * SAFETY)
    return usable if limit_bytes is None else min(usable, limit_bytes)


def longest_fitting(
    peak: Callable[[int], int], free_bytes: int, longest: int, shortest: int = 3
) -> int:
    """Returns the greatest length whose peak memory fits; 0 where not even the shortest does.

    Args:
        peak: peak bytes of a length, never falling.
        free_bytes: what there is.
        longest: highest length to consider.
        shortest: lowest.
    """
    if peak(shortest) > free_bytes:
        return 0
    low, high = shortest, longest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if peak(middle) <= free_bytes else (low, middle - 1)
    return low


def check_fits(forecast: Forecast, peak: Callable[[int], int], free_bytes: int) -> None:
    """Raises a ValueError with a proposal when a run would not fit.

    Args:
        forecast: of the run.
        peak: peak bytes of a length, to find one that fits.
        free_bytes: what there is.
    """
    if forecast.peak_bytes <= free_bytes:
        return
    fits = longest_fitting(peak, free_bytes, forecast.tokens)
    advice = (
        f"{fits:,} tokens fit: set the length limit to that."
        if fits
        else "nothing fits: free some memory or choose a smaller encoder."
    )
    raise ValueError(
        f"{forecast.tokens:,} tokens would take {forecast.peak_bytes / 2**30:.1f} GiB beyond the "
        f"weights, and {free_bytes / 2**30:.1f} GiB can be planned for; {advice}"
    )
