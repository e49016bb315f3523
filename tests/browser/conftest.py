"""The app on a port of its own, and a browser, once for all browser tests."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from browser.chromium import CHROMIUM, FLAGS, PATIENCE_MS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and log of the app, on a port of its own."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "streamlit", "run", "app.py"]
    options = ["--server.port", str(port), "--server.address", "localhost"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            # Long texts take long, and these tests are of the pages.
            env={**os.environ, "HF_HUB_OFFLINE": "1", "LMK_VIZ_MAX_LENGTH": "512"},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    address = f"http://localhost:{port}"
    try:
        _wait_until_healthy(process, f"{address}/_stcore/health", log)
        yield address, log
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text(encoding='utf-8')}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()
