"""Run as a program: peak memory of forwards with capture, beside their forecasts, as JSON.

Usage: measure_memory.py LENGTH...
"""

import ctypes
import json
import multiprocessing
import re
import sys
from pathlib import Path

import torch
from transformers import AutoModel, BertConfig, GteConfig, ModernBertConfig

from lmk_viz.attention import ATTENTION_NAME, TILE_BYTES, capture_rows
from lmk_viz.config import AttentionConfig, ChunkingConfig, LayoutKind
from lmk_viz.forecast import MachineSpeed, forecast_run
from lmk_viz.landmarks import SpecialIds, Tokens, build_layout
from lmk_viz.model_facts import ModelFacts
from lmk_viz.row_bins import RowBins

SMALL = {
    "vocab_size": 300,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
}
IDS = {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
CONFIGS = {
    "modernbert": ModernBertConfig(
        **SMALL, **IDS, hidden_size=256, intermediate_size=384, local_attention=128
    ),
    "bert": BertConfig(**SMALL, hidden_size=256, intermediate_size=1024),
    "gte": GteConfig(**SMALL, hidden_size=128, intermediate_size=768),
}


def status_bytes(name: str) -> int:
    """Returns a line of this process's status; kilobytes become bytes."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(name + r":\s+(\d+) kB", text)[1]) * 1024


def run(model: torch.nn.Module, length: int) -> tuple[int, int]:
    """Runs one forward with capture; returns its tokens and rows."""
    n = (length - 1) * 32 // 33
    tokens = Tokens.from_offsets(
        "x" * n, [10 + i % 200 for i in range(n)], [(i, i + 1) for i in range(n)]
    )
    layout = build_layout(
        tokens, SpecialIds(1, 2, 0), LayoutKind.LANDMARK, ChunkingConfig(), length
    )
    reducer = RowBins(layout, AttentionConfig(), torch.device("cpu"))
    ids = torch.from_numpy(layout.input_ids.copy())[None]
    with torch.inference_mode(), capture_rows([reducer.queries], reducer):
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    reducer.rows(4)
    return len(layout), len(reducer.queries)


def measure(kind: str, lengths: list[int]) -> list[tuple[int, int, int]]:
    """Returns tokens, bytes forecast and bytes measured of each length."""
    torch.manual_seed(0)
    model = AutoModel.from_config(CONFIGS[kind], attn_implementation=ATTENTION_NAME)
    model.eval().requires_grad_(False)
    shape = ModelFacts(model, kind).shape
    run(model, 256)
    found = []
    for length in lengths:
        ctypes.CDLL(None).malloc_trim(0)  # What an earlier run left in the heap would be reused.
        Path("/proc/self/clear_refs").write_text("5")  # The high-water mark falls to what is.
        before = status_bytes("VmRSS")
        tokens, rows = run(model, length)
        measured = status_bytes("VmHWM") - before
        forecast = forecast_run(shape, MachineSpeed(1e9, 1e9), tokens, rows, TILE_BYTES)
        found.append((tokens, forecast.peak_bytes, measured))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = [int(length) for length in sys.argv[1:]]
    # A child for each, since what one model leaves in the heap would count for the next.
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found = pool.starmap(measure, [(kind, chosen) for kind in CONFIGS], chunksize=1)
    print(json.dumps(dict(zip(CONFIGS, found, strict=True))))  # noqa: T201
