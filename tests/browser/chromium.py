"""What browser tests share: the browser they need, and how long they wait."""

import shutil
from importlib.util import find_spec

import pytest

__all__ = ["CHROMIUM", "FLAGS", "PATIENCE_MS", "needs_chromium"]

CHROMIUM = shutil.which("chromium")
PATIENCE_MS = 120_000
"""The first load of a page brings torch, the encoder and Plotly, on whatever machine this is."""
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def needs_chromium() -> list[pytest.MarkDecorator]:
    """Marks of a module that drives a browser; skipped where there is none."""
    return [
        pytest.mark.browser,
        pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
        pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH"),
    ]
