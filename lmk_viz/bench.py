"""Benchmarks that compare side by side in one run, never against a figure from elsewhere.

Memory is the peak of a process of its own, told by the operating system; time is the median of
runs that alternate, so that a machine that slows down slows all of them.
"""

import copy
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["BENCH_SHAPES", "AttentionBench", "bench_attention", "bench_forecast"]

MIN_TOKENS = 16
"""Of a process that is measured at rest."""

BENCH_SHAPES: dict[str, dict[str, Any]] = {
    "modernbert-base": {},
    "small-global": {
        "hidden_size": 384,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "global_attn_every_n_layers": 1,
    },
    "small-local": {
        "hidden_size": 384,
        "intermediate_size": 768,
        "num_hidden_layers": 10,
        "num_attention_heads": 6,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "local_attention": 32,
        "vocab_size": 600,
    },
}
"""Changes to the configuration of ModernBERT-base; weights are random."""


@dataclass(frozen=True, slots=True)
class AttentionBench:
    """What `bench attention` measures."""

    shape: str = "modernbert-base"
    tokens: int = 2048
    """Input length of capture against a plain forward and against eager attention."""
    long_tokens: int = 8192
    """Input length of our forward against stock SDPA, and of the peak memory of a capture."""
    longest_tokens: int | None = None
    """Input length of one more capture, for its seconds and peak memory."""
    granularity: int = 32
    repeats: int = 3

    def __post_init__(self) -> None:
        if self.shape not in BENCH_SHAPES:
            raise ValueError(f"shape is {self.shape!r}; allowed: {', '.join(BENCH_SHAPES)}.")
        for name in ("tokens", "long_tokens", "granularity", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 1 and more.")
        if self.longest_tokens is not None and self.longest_tokens < 1:
            raise ValueError(f"longest_tokens is {self.longest_tokens}; allowed: 1 and more.")


def bench_attention(
    settings: AttentionBench, report: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Returns ratios and the absolute figures behind them.

    `memory_ratio` is the memory that capture takes beyond a plain forward, by what eager
    attention with `output_attentions=True` takes beyond it; `time_ratio` the time of a forward
    with capture by that of the same forward without; `forward_speedup` the time of stock
    transformers' SDPA by ours at the long length; `peak_rss_gib` the peak resident memory of a
    process that captures there, weights and libraries included.

    Args:
        settings: shape and lengths.
        report: told what is being measured.
    """

    def run(kinds: list[str], tokens: int, repeats: int) -> dict[str, Any]:
        report(f"{' against '.join(kinds)} at {tokens:,} tokens")
        return _in_process(settings.shape, kinds, tokens, settings.granularity, repeats)

    short, long = settings.tokens, settings.long_tokens
    idle = run(["load"], MIN_TOKENS, 1)
    plain, capture, eager = (run([k], short, 1) for k in ("plain", "capture", "eager"))
    timed = run(["plain", "capture"], short, settings.repeats)
    forwards = run(["plain", "stock"], long, max(1, settings.repeats // 2))
    long_capture = run(["capture"], long, 1)
    extra_capture = max(capture["extra_bytes"] - plain["extra_bytes"], 0)
    extra_eager = eager["extra_bytes"] - plain["extra_bytes"]
    result: dict[str, Any] = {
        "settings": asdict(settings),
        "memory_ratio": extra_capture / extra_eager if extra_eager > 0 else None,
        "time_ratio": timed["seconds"]["capture"] / timed["seconds"]["plain"],
        "forward_speedup": forwards["seconds"]["stock"] / forwards["seconds"]["plain"],
        "peak_rss_gib": long_capture["peak_bytes"] / 2**30,
        "absolute": {
            "loaded_gib": idle["peak_bytes"] / 2**30,
            "plain_extra_gib": plain["extra_bytes"] / 2**30,
            "capture_extra_gib": capture["extra_bytes"] / 2**30,
            "eager_extra_gib": eager["extra_bytes"] / 2**30,
            "plain_seconds": timed["seconds"]["plain"],
            "capture_seconds": timed["seconds"]["capture"],
            "long_plain_seconds": forwards["seconds"]["plain"],
            "long_stock_seconds": forwards["seconds"]["stock"],
            "long_capture_seconds": long_capture["seconds"]["capture"],
            "rows": capture["rows"],
            "long_rows": long_capture["rows"],
        },
    }
    if settings.longest_tokens:
        found = run(["capture"], settings.longest_tokens, 1)
        result["longest"] = {
            "tokens": settings.longest_tokens,
            "rows": found["rows"],
            "seconds": found["seconds"]["capture"],
            "peak_rss_gib": found["peak_bytes"] / 2**30,
        }
    return result


def bench_forecast(
    shapes: Sequence[str] = ("modernbert-base", "small-global", "small-local"),
    lengths: Sequence[int] = (512, 2048, 4096),
    granularity: int = 32,
    report: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Returns forecast and truth of a forward with capture, a row a shape and length.

    Args:
        shapes: of `BENCH_SHAPES`.
        lengths: input lengths.
        granularity: decides the number of rows.
        report: told what is being measured.
    """
    rows = []
    for shape in shapes:
        for tokens in lengths:
            report(f"{shape} at {tokens:,} tokens")
            found = _in_process(shape, ["capture"], tokens, granularity, 1)
            told = _in_process(shape, ["forecast"], tokens, granularity, 1)["results"]["forecast"]
            peak = found["extra_bytes"]
            rows.append(
                {
                    "shape": shape,
                    "tokens": tokens,
                    "rows": found["rows"],
                    "forecast_seconds": told.seconds,
                    "seconds": found["seconds"]["capture"],
                    "seconds_ratio": told.seconds / found["seconds"]["capture"],
                    "forecast_mib": told.peak_bytes / 2**20,
                    "mib": peak / 2**20,
                    "memory_ratio": told.peak_bytes / peak if peak > 0 else None,
                }
            )
    return rows


def _in_process(
    shape: str, kinds: list[str], tokens: int, granularity: int, repeats: int
) -> dict[str, Any]:
    # A process of its own, spawned and not forked: its peak is of this measurement alone.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, shape, kinds, tokens, granularity, repeats).result()


def _measure(
    shape: str, kinds: list[str], tokens: int, granularity: int, repeats: int
) -> dict[str, Any]:
    """Returns median seconds of each kind of run, and the peak memory of this process."""
    encoder = _build_encoder(shape)
    layout = _build_layout(encoder, tokens, granularity)
    runs = {kind: _runner(kind, encoder, layout) for kind in kinds}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    # A short forward first, so that what any first call leaves behind is not counted.
    encoder.token_states([_build_layout(encoder, MIN_TOKENS, granularity)])
    built = _peak_bytes()
    resting = _reset_peak()
    results: dict[str, Any] = {}
    for _ in range(repeats):
        for kind, run in runs.items():
            started = time.perf_counter()
            results[kind] = run()
            seconds[kind].append(time.perf_counter() - started)
    peak = _peak_bytes()
    return {
        "seconds": {kind: statistics.median(values) for kind, values in seconds.items()},
        "peak_bytes": max(built, peak),
        "extra_bytes": max(0, peak - resting),
        "rows": 1 + layout.n_landmarks,
        "results": {"forecast": results.get("forecast")},
    }


def _peak_bytes() -> int:
    """Returns the peak resident memory of this process, since its last reset where it has one."""
    status = Path("/proc/self/status")
    if status.is_file():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _reset_peak() -> int:
    """Forgets the peak so far, where the system can, and returns what is resident now.

    Building a model takes more for a moment than running it; that must not hide the run.
    """
    import psutil

    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return int(psutil.Process().memory_info().rss)


def _runner(kind: str, encoder: Any, layout: Any) -> Callable[[], Any]:
    import torch

    if kind == "load":
        return lambda: None
    if kind == "forecast":
        return lambda: encoder.forecast(len(layout), 1 + layout.n_landmarks)
    if kind == "plain":
        return lambda: encoder.token_states([layout])
    if kind == "capture":
        return lambda: encoder.attention_profile(layout)
    # Stock transformers on the same weights; the attention is set in the configuration, so a
    # shared one would switch our encoder too.
    model = type(encoder.model)(copy.deepcopy(encoder.model.config))
    model.load_state_dict(encoder.model.state_dict(), assign=True)
    model.eval()
    model.set_attn_implementation("eager" if kind == "eager" else "sdpa")
    ids = torch.from_numpy(np.array(layout.input_ids))[None]

    def forward() -> Any:
        with torch.inference_mode():
            return model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                output_attentions=kind == "eager",
            )

    return forward


def _build_encoder(shape: str) -> Any:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModel, ModernBertConfig, PreTrainedTokenizerFast

    from lmk_viz.attention import ATTENTION_NAME
    from lmk_viz.encoder import Encoder

    special = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3}
    words = {f"w{i}": 4 + i for i in range(500)}
    backend = Tokenizer(models.WordLevel({**special, **words}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
    )
    config = ModernBertConfig(
        pad_token_id=0,
        bos_token_id=1,
        cls_token_id=1,
        eos_token_id=2,
        sep_token_id=2,
        **BENCH_SHAPES[shape],
    )
    torch.manual_seed(0)
    model = AutoModel.from_config(config, attn_implementation=ATTENTION_NAME).eval()
    return Encoder(model, tokenizer, name=f"{shape}, random weights")


def _build_layout(encoder: Any, tokens: int, granularity: int) -> Any:
    from lmk_viz.config import ChunkingConfig, LayoutKind

    words = np.random.default_rng(0).integers(0, 500, size=tokens)
    text = " ".join(f"w{word}" for word in words)
    chunking = ChunkingConfig(granularity=granularity)
    return encoder.layout(text, LayoutKind.LANDMARK, chunking, max(3, tokens))
