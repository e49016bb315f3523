"""Forecasts of seconds and memory, against measurements, scans and hand counts."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from lmk_viz import forecast
from lmk_viz.forecast import (
    ATTENTION_TOKENS,
    CALIBRATION_TOKENS,
    Forecast,
    MachineSpeed,
    ModelShape,
    calibrate,
    check_fits,
    forecast_run,
    free_memory,
    longest_fitting,
)

CPU = torch.device("cpu")
SPEED = MachineSpeed(linear_flops=2e9, attention_flops=1e9)
GLOBAL = ModelShape(
    layers_global=4,
    layers_local=0,
    window=0,
    hidden=64,
    intermediate=256,
    heads=4,
    parameters=200_000,
    bytes_per_value=4,
)
MIXED = replace(GLOBAL, layers_global=2, layers_local=2, window=16)
DENSE = replace(MIXED, blocks_local=False)
TILE = 2**20
SHAPES = pytest.mark.parametrize("shape", [GLOBAL, MIXED, DENSE], ids=["global", "mixed", "dense"])


# What grows with what.


@SHAPES
def test_a_longer_text_takes_longer_and_more_memory(shape):
    runs = [forecast_run(shape, SPEED, n, n // 33, TILE) for n in (3, 64, 500, 2_000, 8_192, 10**5)]
    seconds = [run.seconds for run in runs]
    memory = [run.peak_bytes for run in runs]
    assert seconds == sorted(set(seconds))
    assert memory == sorted(set(memory))
    assert [run.tokens for run in runs] == [3, 64, 500, 2_000, 8_192, 10**5]


@pytest.mark.parametrize("shape", [GLOBAL, MIXED], ids=["global", "mixed"])
def test_rows_take_time_and_their_tile_takes_memory_up_to_its_limit(shape):
    runs = [forecast_run(shape, SPEED, 2_000, rows, TILE) for rows in (0, 10, 25, 1_000, 2_000)]
    assert np.all(np.diff([run.seconds for run in runs]) > 0)
    memory = [run.peak_bytes for run in runs]
    assert memory == sorted(memory)
    assert memory[0] < memory[3] == memory[4]


def test_layers_take_time_and_no_memory_since_only_one_runs_at_once():
    few, many = (
        forecast_run(replace(GLOBAL, layers_global=n), SPEED, 1_000, 30, TILE) for n in (4, 8)
    )
    assert many.seconds > few.seconds
    assert many.peak_bytes == few.peak_bytes


def test_local_layers_in_blocks_grow_with_the_text_and_dense_ones_with_its_square():
    local = replace(MIXED, layers_global=0, layers_local=4)
    dense = replace(local, blocks_local=False)
    costs = {
        shape: [forecast_run(shape, SPEED, n) for n in (20_000, 40_000)] for shape in (local, dense)
    }
    assert costs[local][1].seconds / costs[local][0].seconds == pytest.approx(2, rel=0.01)
    assert costs[local][1].peak_bytes / costs[local][0].peak_bytes < 2
    assert costs[dense][1].seconds / costs[dense][0].seconds > 3
    assert costs[dense][1].peak_bytes / costs[dense][0].peak_bytes > 3


def test_seconds_are_the_work_by_the_speed():
    shape = replace(GLOBAL, layers_global=1)
    linear = 2 * 200_000 * 100
    products = 2 * (2 * 100 * 100 * 64)  # Logits, and weights times values.
    expected = linear / 2e9 + products / 1e9
    assert forecast_run(shape, SPEED, 100).seconds == pytest.approx(expected)
    faster = MachineSpeed(2 * SPEED.linear_flops, 2 * SPEED.attention_flops)
    assert forecast_run(shape, faster, 100).seconds == pytest.approx(expected / 2)


# Memory that there is.


@pytest.mark.parametrize("step", [1, 7, 13])
@pytest.mark.parametrize("longest", [3, 4, 50])
def test_the_longest_that_fits_is_what_a_scan_finds(longest, step):
    def peak(n: int) -> int:
        return 100 + step * (n // 2)  # Flat stretches too.

    for free in range(95, 100 + step * 30, 3):
        fitting = [n for n in range(3, longest + 1) if peak(n) <= free]
        assert longest_fitting(peak, free, longest) == max(fitting, default=0)


def peak_of(shape: ModelShape, tokens: int) -> int:
    return forecast_run(shape, SPEED, tokens, tokens // 33, TILE).peak_bytes


@SHAPES
def test_a_run_that_does_not_fit_is_refused_with_a_length_that_does(shape):
    run = forecast_run(shape, SPEED, 20_000, 20_000 // 33, TILE)
    free = run.peak_bytes // 2
    with pytest.raises(ValueError, match=r"20,000 tokens would take .* GiB") as caught:
        check_fits(run, lambda n: peak_of(shape, n), free)
    words = str(caught.value).split(";")[1].split()
    proposed = int(words[0].replace(",", ""))
    assert words[1:3] == ["tokens", "fit:"]
    assert peak_of(shape, proposed) <= free < peak_of(shape, proposed + 1)
    check_fits(forecast_run(shape, SPEED, proposed, proposed // 33, TILE), lambda n: 0, free)


def test_where_not_even_the_shortest_fits_the_message_says_that_nothing_does():
    run = forecast_run(GLOBAL, SPEED, 1_000)
    with pytest.raises(ValueError, match="nothing fits: free some memory or choose a smaller"):
        check_fits(run, lambda n: peak_of(GLOBAL, n), 1_000)


def test_a_run_that_fits_to_the_byte_is_let_through_without_a_search():
    asked: list[int] = []
    check_fits(Forecast(10, 1.0, 500), lambda n: asked.append(n) or 0, 500)
    assert asked == []
    with pytest.raises(ValueError, match="10 tokens would take"):
        check_fits(Forecast(10, 1.0, 501), lambda n: 50 * n + 1, 500)


def test_free_memory_keeps_a_reserve_and_obeys_the_limit(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000))
    assert free_memory(CPU) == 850_000
    assert free_memory(CPU, 2_000_000) == 850_000
    assert free_memory(CPU, 300_000) == 300_000
    assert free_memory(CPU, 0) == 0


# Speed of the machine.


class Clock:
    """Time that passes only where the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(forecast.time, "perf_counter", clock)
    return clock


def attention_takes(seconds: float, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list:
    shapes = []

    def attend(query, key, value):
        shapes.append(query.shape)
        clock.now += seconds
        return value

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    return shapes


def test_calibration_finds_the_speed_that_a_forward_of_known_duration_implies(clock, monkeypatch):
    true = MachineSpeed(linear_flops=3e9, attention_flops=7e9)
    shapes = attention_takes(
        4 * ATTENTION_TOKENS**2 * GLOBAL.hidden / true.attention_flops, clock, monkeypatch
    )
    asked = []

    def forward(tokens: int) -> None:
        asked.append(tokens)
        # The first call is slow, as first calls are.
        clock.now += forecast_run(GLOBAL, true, tokens).seconds * (20 if len(asked) == 1 else 1)

    speed = calibrate(forward, GLOBAL, CPU, torch.float32)
    assert speed.linear_flops == pytest.approx(true.linear_flops, rel=0.3)
    assert speed.attention_flops == pytest.approx(true.attention_flops, rel=0.3)
    assert set(asked) == {CALIBRATION_TOKENS}
    assert set(shapes) == {(1, 4, ATTENTION_TOKENS, 16)}
    # And so a run of another length is foretold as it would be.
    foretold = forecast_run(GLOBAL, speed, 3_000).seconds
    assert foretold == pytest.approx(forecast_run(GLOBAL, true, 3_000).seconds, rel=0.3)


def test_one_slow_run_in_three_does_not_count(clock, monkeypatch):
    attention_takes(0.01, clock, monkeypatch)
    durations = iter([9.0, 1.0, 50.0, 1.0])

    def forward(tokens: int) -> None:
        clock.now += next(durations)

    speed = calibrate(forward, GLOBAL, CPU, torch.float32)
    work = 2 * GLOBAL.parameters * CALIBRATION_TOKENS
    assert speed.linear_flops == pytest.approx(work / 1.0, rel=0.05)


def test_a_forward_faster_than_its_attention_alone_still_has_a_speed(clock, monkeypatch):
    attention_takes(100.0, clock, monkeypatch)

    def forward(tokens: int) -> None:
        clock.now += 0.5

    speed = calibrate(forward, GLOBAL, CPU, torch.float32)
    work = 2 * GLOBAL.parameters * CALIBRATION_TOKENS
    assert speed.linear_flops == pytest.approx(work / 0.1)


# Shapes of models.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Layers global and local, window, hidden, intermediate, heads.
        ("bert", (2, 0, 0, 16, 32, 2)),
        ("modernbert", (2, 2, 4, 16, 64, 2)),  # Both halves of the gated layer in one.
        ("gte", (2, 0, 0, 16, 64, 2)),  # In two.
        ("qwen3_local", (1, 1, 4, 16, 64, 4)),
    ],
)
def test_the_shape_of_a_model_is_read_off_its_layers(name, expected, tiny_encoder):
    shape = tiny_encoder(name).shape
    got = (
        shape.layers_global,
        shape.layers_local,
        shape.window,
        shape.hidden,
        shape.intermediate,
        shape.heads,
    )
    assert got == expected
    assert shape.layers == tiny_encoder(name).n_layers
    assert shape.bytes_per_value == 4


def test_the_weights_that_count_are_those_outside_the_embedding_tables(tiny_encoder):
    encoder = tiny_encoder("bert")
    tables = (420 + 128 + 2) * 16
    assert encoder.shape.parameters == encoder.n_parameters - tables


# Memory that a run takes.

LENGTHS = (2048, 4096, 6144)


@pytest.fixture(scope="module")
def measurements():
    """By kind of model: tokens, bytes foretold and bytes taken of each length.

    From a process of its own, whose high-water mark begins where it stands.
    """
    program = Path(__file__).with_name("measure_memory.py")
    paths = [str(program.parents[1]), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, str(program), *map(str, LENGTHS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("index", range(len(LENGTHS)), ids=map(str, LENGTHS))
@pytest.mark.parametrize("kind", ["modernbert", "bert", "gte"])
def test_forecast_memory_is_within_half_of_what_a_run_takes(kind, index, measurements):
    tokens, foretold, measured = measurements[kind][index]
    told = f"{tokens} tokens: {foretold / 2**20:.0f} MiB told, {measured / 2**20:.0f} taken"
    assert LENGTHS[index] - 33 <= tokens <= LENGTHS[index]
    assert measured > 30 * 2**20, told
    assert 1 / 1.5 <= foretold / measured <= 1.5, told
