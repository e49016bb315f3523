"""Benchmarks: one process of its own for real, the arithmetic on made-up measurements."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from lmk_viz import bench
from lmk_viz.__main__ import main
from lmk_viz.bench import BENCH_SHAPES, AttentionBench, bench_attention

GIB = 2**30
PEAKS = {"load": 1.0, "plain": 2.0, "capture": 2.5, "eager": 4.0, "stock": 3.0}
"""GiB of a process that runs one kind; of several, the most."""
SECONDS = {"load": 0.5, "plain": 2.0, "capture": 3.0, "eager": 9.0, "stock": 5.0}
RATIOS = {
    # 0.5 of 2 GiB beyond a plain forward; 3 s by 2 s; 5 s by 2 s; the capture's own peak.
    "memory_ratio": 0.25,
    "time_ratio": 1.5,
    "forward_speedup": 2.5,
    "peak_rss_gib": 2.5,
}
TINY = ["bench", "attention", "--shape", "tiny", "--tokens", "64", "--long-tokens", "64"]


def made_up(
    shape: str, kinds: list[str], tokens: int, granularity: int, repeats: int
) -> dict[str, Any]:
    return {
        "seconds": {kind: SECONDS[kind] for kind in kinds},
        "peak_bytes": int(max(PEAKS[kind] for kind in kinds) * GIB),
        "extra_bytes": int(max(PEAKS[kind] for kind in kinds) * GIB) - GIB // 2,
        "rows": 1 + tokens // (granularity + 1),
        "results": {},
    }


@pytest.fixture
def measured(monkeypatch) -> list[tuple[Any, ...]]:
    """What was measured, in order; nothing is."""
    calls: list[tuple[Any, ...]] = []

    def note(*settings: Any) -> dict[str, Any]:
        calls.append(settings)
        return made_up(*settings)

    monkeypatch.setattr(bench, "_in_process", note)
    return calls


# For real.


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """What a process of its own measures: all kinds of run on the tiny shape."""
    return bench._in_process("tiny", list(PEAKS), 64, 32, 1)


def test_process_tells_the_seconds_of_every_kind_of_run(real):
    assert list(real["seconds"]) == list(PEAKS)
    assert all(0 < seconds < 600 for seconds in real["seconds"].values())


def test_process_tells_its_own_peak_memory(real):
    # Torch alone takes about a quarter of a GiB, the tiny model next to nothing.
    assert 0.05 * GIB < real["peak_bytes"] < 4 * GIB


def test_process_tells_how_many_rows_it_captured(real):
    # 64 positions: CLS, 32 tokens and their landmark, and a rest that has none.
    assert real["rows"] == 2


@pytest.fixture(scope="module")
def real_bench(real) -> dict[str, Any]:
    """A whole benchmark of seconds measured here, with the memory of made-up processes."""

    def measure(*settings: Any) -> dict[str, Any]:
        told = made_up(*settings)
        memory = {name: told[name] for name in ("peak_bytes", "extra_bytes")}
        return bench._measure(*settings) | memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "_in_process", measure)
        return bench_attention(AttentionBench("tiny", tokens=128, long_tokens=256, repeats=1))


@pytest.mark.parametrize("name", RATIOS)
def test_every_figure_of_the_benchmark_is_a_positive_number(real_bench, name):
    assert math.isfinite(real_bench[name])
    assert real_bench[name] > 0


def test_every_absolute_figure_is_a_positive_number(real_bench):
    assert {k: v for k, v in real_bench["absolute"].items() if not 0 < v < math.inf} == {}
    assert len(real_bench["absolute"]) == 11


def test_ratios_of_seconds_are_those_of_the_seconds_beside_them(real_bench):
    of = real_bench["absolute"]
    assert real_bench["time_ratio"] == of["capture_seconds"] / of["plain_seconds"]
    assert real_bench["forward_speedup"] == of["long_stock_seconds"] / of["long_plain_seconds"]


def test_rows_follow_from_length_and_granularity(real_bench):
    # 32 tokens and a landmark each, CLS before them.
    assert (real_bench["absolute"]["rows"], real_bench["absolute"]["long_rows"]) == (4, 8)


def test_benchmark_is_plain_json(real_bench):
    assert json.loads(json.dumps(real_bench, allow_nan=False)) == real_bench


@pytest.mark.parametrize("kind", ["eager", "stock"])
def test_stock_forward_is_the_same_model_on_the_same_text(kind):
    encoder = bench._build_encoder("tiny")
    layout = bench._build_layout(encoder, 100, 32)
    ours = bench._runner("plain", encoder, layout)()
    stock = bench._runner(kind, encoder, layout)()
    torch.testing.assert_close(stock.last_hidden_state, ours, rtol=1e-4, atol=1e-5)
    assert ours.shape == (1, 100, 64)
    assert float(ours.std()) > 0.1


def test_eager_forward_keeps_the_whole_attention_that_capture_reads_rows_of():
    encoder = bench._build_encoder("tiny")
    layout = bench._build_layout(encoder, 100, 32)
    attention = torch.stack(bench._runner("eager", encoder, layout)().attentions)
    profile = bench._runner("capture", encoder, layout)()
    assert attention.shape == (4, 1, 4, 100, 100)
    to_cls = attention[:, 0, :, 0, 0].numpy()
    np.testing.assert_allclose(profile.rows["cls"].special[..., 0], to_cls, atol=1e-5)


@pytest.mark.parametrize("kind", ["eager", "stock"])
def test_stock_forward_leaves_our_own_attention_in_place(kind):
    encoder = bench._build_encoder("tiny")
    layout = bench._build_layout(encoder, 64, 32)
    capture = bench._runner("capture", encoder, layout)
    bench._runner(kind, encoder, layout)()
    assert capture().n_layers == 4


@pytest.mark.parametrize("tokens", [3, 64, 300])
def test_text_of_the_benchmark_fills_its_length(tokens):
    encoder = bench._build_encoder("tiny")
    assert len(bench._build_layout(encoder, tokens, 32)) == tokens


# The arithmetic.


def test_ratios_by_hand(measured):
    result = bench_attention(AttentionBench("tiny", 64, 128))
    assert {name: result[name] for name in RATIOS} == RATIOS


def test_absolute_figures_by_hand(measured):
    found = bench_attention(AttentionBench("tiny", 64, 128))["absolute"]
    assert found == {
        "loaded_gib": 1.0,
        "plain_extra_gib": 1.5,
        "capture_extra_gib": 2.0,
        "eager_extra_gib": 3.5,
        "plain_seconds": 2.0,
        "capture_seconds": 3.0,
        "long_plain_seconds": 2.0,
        "long_stock_seconds": 5.0,
        "long_capture_seconds": 3.0,
        "rows": 2,
        "long_rows": 4,
    }


def test_peaks_are_each_of_a_process_with_one_kind_of_run(measured):
    bench_attention(AttentionBench("tiny", 64, 128, repeats=5))
    assert [(kinds, tokens) for _, kinds, tokens, _, _ in measured[1:4]] == [
        (["plain"], 64),
        (["capture"], 64),
        (["eager"], 64),
    ]
    assert measured[-1][1:3] == (["capture"], 128)


def test_times_that_are_compared_are_taken_side_by_side(measured):
    bench_attention(AttentionBench("tiny", 64, 128, repeats=5))
    pairs = [call[1:3] + call[4:] for call in measured if len(call[1]) > 1]
    assert pairs == [(["plain", "capture"], 64, 5), (["plain", "stock"], 128, 2)]


def test_longest_length_is_measured_when_asked_for(measured):
    settings = AttentionBench("tiny", 64, 128, longest_tokens=1000)
    wanted = {"tokens": 1000, "rows": 31, "seconds": 3.0, "peak_rss_gib": 2.5}
    assert bench_attention(settings)["longest"] == wanted
    assert "longest" not in bench_attention(AttentionBench("tiny", 64, 128))


def test_memory_ratio_is_left_open_where_eager_takes_no_more_than_plain(measured, monkeypatch):
    monkeypatch.setitem(PEAKS, "eager", PEAKS["plain"])
    assert bench_attention(AttentionBench("tiny", 64, 128))["memory_ratio"] is None


def test_capture_that_takes_less_than_plain_counts_as_taking_nothing(measured, monkeypatch):
    monkeypatch.setitem(PEAKS, "capture", 1.5)
    assert bench_attention(AttentionBench("tiny", 64, 128))["memory_ratio"] == 0.0


def test_report_is_told_what_is_being_measured(measured):
    said: list[str] = []
    bench_attention(AttentionBench("tiny", 64, 2048), said.append)
    assert len(said) == len(measured)
    assert "plain against stock at 2,048 tokens" in said


# Settings and command line.

BAD = {
    "shape": ("gpt-9", "shape is 'gpt-9'; allowed: "),
    "tokens": (0, "tokens is 0; allowed: 1 and more."),
    "long_tokens": (-1, "long_tokens is -1; allowed: 1 and more."),
    "longest_tokens": (0, "longest_tokens is 0; allowed: 1 and more."),
    "granularity": (0, "granularity is 0; allowed: 1 and more."),
    "repeats": (0, "repeats is 0; allowed: 1 and more."),
}


@pytest.mark.parametrize(("name", "value", "words"), [(k, *v) for k, v in BAD.items()], ids=BAD)
def test_setting_that_cannot_be_is_one_line_on_standard_error(measured, capsys, name, value, words):
    option = f"--{name.replace('_', '-')}={value}"
    assert main([*TINY, option, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"lmk_viz: error: {words}")
    assert (out, err.count("\n"), measured) == ("", 1, [])


def test_unknown_shape_is_answered_with_the_known_ones(measured, capsys):
    main([*TINY, "--shape=gpt-9"])
    message = capsys.readouterr().err
    assert [shape for shape in BENCH_SHAPES if shape not in message] == []


def test_command_prints_one_json_object_and_tells_its_progress_aside(measured, capsys):
    assert main([*TINY, "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert {name: result[name] for name in RATIOS} == RATIOS
    assert (out.count("\n"), err.count("\n")) == (1, len(measured))


def test_command_passes_its_options_on(measured, capsys):
    options = ["--longest-tokens=99", "--granularity=8", "--repeats=4"]
    assert main([*TINY, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {
        "shape": "tiny",
        "tokens": 64,
        "long_tokens": 64,
        "longest_tokens": 99,
        "granularity": 8,
        "repeats": 4,
    }


def test_command_prints_the_figures_as_lines(measured, capsys):
    assert main([*TINY, "--longest-tokens=99"]) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert {name: float(lines[name]) for name in RATIOS} == RATIOS | {"peak_rss_gib": 2.5}
    assert (lines["long_stock_seconds"], lines["tokens"]) == ("5.000", "99")


def test_command_prints_figures_of_which_the_memory_ratio_is_open(measured, monkeypatch, capsys):
    monkeypatch.setitem(PEAKS, "eager", PEAKS["plain"])
    assert main(TINY) == 0
    assert "memory_ratio            -\n" in capsys.readouterr().out
