"""The real server in headless Chromium: what only a browser shows.

Fails on anything red: an error on the page, in the console or in the server's log, and any
request that leaves this machine.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import urlopen

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH"),
]

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_MS = 120_000
"""The first load of a page brings torch, the encoder and Plotly, on whatever machine this is."""
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# A short length limit keeps runs short; what is drawn does not depend on it.
PAGES = {
    "home": "/?limit=64",
    "landmarks": "/Landmarks?limit=64",
    "attention": "/Attention?limit=64",
    "map": "/Embedding_map?limit=16&method=pca&poolings=cls-landmark",
}
EXPECTED_404 = re.compile(r"/(Landmarks|Attention|Embedding_map)/_stcore/(health|host-config)$")
"""Streamlit asks for these below the page's own path first when a page is opened directly."""

FIGURE = ".js-plotly-plot .main-svg"
DOCUMENT = ".lmk-doc"
RESULT = f"{FIGURE}, {DOCUMENT}"
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
GRANULARITY = "Granularity (tokens a chunk)"


@dataclass
class Visit:
    """A page in a browser session of its own, and what it made noise about."""

    page: Any
    log: Path
    log_start: int
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def settle(self, selector: str = RESULT) -> "Visit":
        """Waits until something is drawn and the script has ended."""
        self.page.locator(selector).first.wait_for(state="attached")
        self.page.wait_for_selector(IDLE)
        return self

    def wait_for_query(self, **wanted: str) -> dict[str, str]:
        """Waits until the address says this, and returns all that it says."""

        def says(url: str) -> bool:
            return wanted.items() <= query_of(url).items()

        self.page.wait_for_url(says)
        return query_of(self.page.url)

    def server_log(self) -> str:
        """What the server wrote since the visit began."""
        with self.log.open(encoding="utf-8") as stream:
            stream.seek(self.log_start)
            return stream.read()


def query_of(url: str) -> dict[str, str]:
    """What an address says after the question mark."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}


@pytest.fixture(scope="module")
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
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
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
            process.wait(20)
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def visit(server: tuple[str, Path], browser: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(path, **options)`: a page opened in a fresh session, with options of the context."""
    address, log = server
    contexts = []

    def visit_(path: str, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        found = Visit(context.new_page(), log, log.stat().st_size)
        page = found.page
        page.on("request", lambda request: found.requests.append(request.url))
        page.on("requestfailed", lambda request: found.failed.append(request.url))
        page.on("pageerror", lambda error: found.console.append(f"uncaught: {error}"))
        page.on("console", lambda message: _note(found, message))
        page.goto(address + path)
        return found

    yield visit_
    for context in contexts:
        context.close()


def _note(visit: Visit, message: Any) -> None:
    source = message.location.get("url", "")
    is_expected = "404" in message.text and EXPECTED_404.search(urlsplit(source).path)
    if message.type in ("error", "assert") and not is_expected:
        visit.console.append(f"{message.text} ({source})")


@pytest.fixture(scope="module")
def opened(visit: Callable[..., Visit]) -> Callable[[str], Visit]:
    """`opened(path)`: each page opened once, looked at and left as it is."""

    @lru_cache
    def open_(path: str) -> Visit:
        return visit(path).settle()

    return open_


each_page = pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)


@each_page
def test_page_is_drawn_without_an_error_on_it(opened, path):
    page = opened(path).page
    assert (
        page.locator('[data-testid="stException"], [data-testid="stAlert"]').all_inner_texts() == []
    )


@each_page
def test_page_is_drawn_without_an_error_in_the_console(opened, path):
    assert opened(path).console == []


@each_page
def test_page_asks_nothing_of_any_other_machine(opened, server, path):
    here = urlsplit(server[0]).netloc
    there = [
        url
        for url in opened(path).requests
        if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != here
    ]
    assert there == []


@each_page
def test_page_gets_everything_it_asks_for(opened, path):
    assert opened(path).failed == []


@each_page
def test_page_leaves_the_servers_log_clean(opened, path):
    visit = opened(path)
    noise = re.compile(r"traceback|warning|error|exception|deprecat", re.IGNORECASE)
    assert [line for line in visit.server_log().splitlines() if noise.search(line)] == []


@each_page
def test_narrow_screen_needs_no_sideways_scrolling(visit, path):
    page = visit(path, viewport={"width": 420, "height": 900}).settle().page
    wide = page.evaluate(
        """() => [document.documentElement, document.querySelector('[data-testid="stMain"]')]
        .map((element) => element.scrollWidth - element.clientWidth)"""
    )
    assert wide == [0, 0]


def test_dark_scheme_has_a_dark_ground_and_light_letters(visit):
    page = visit(PAGES["attention"], color_scheme="dark").settle(FIGURE).page
    ground, letters = page.evaluate(
        """() => [
            getComputedStyle(document.querySelector('[data-testid="stApp"]')).backgroundColor,
            getComputedStyle(document.querySelector('.js-plotly-plot .gtitle')).fill,
        ].map((colour) => colour.match(/\\d+/g).slice(0, 3).map(Number))"""
    )
    assert (max(ground) < 60, min(letters) > 180) == (True, True), (ground, letters)


def test_change_of_a_widget_is_written_to_the_address(visit):
    visit_ = visit("/Landmarks?limit=64").settle()
    box = visit_.page.get_by_label(GRANULARITY)
    box.fill("10")
    box.press("Enter")
    assert visit_.wait_for_query(g="10") == {"limit": "64", "g": "10"}


def test_address_gives_someone_else_the_same_view(visit):
    visit_ = visit("/Landmarks?limit=64&g=10").settle()
    shown = visit_.page.get_by_label(GRANULARITY).input_value()
    # 64 positions: CLS, five chunks of ten with their landmarks, eight tokens behind.
    assert (shown, visit_.page.locator(".lmk-doc .mark").count()) == ("10", 5)


def test_two_changes_in_quick_succession_both_hold(visit):
    visit_ = visit("/Landmarks?limit=64").settle()
    box = visit_.page.get_by_label(GRANULARITY)
    box.fill("10")
    box.press("Enter")
    visit_.page.get_by_text("Compare with a second granularity").click()
    assert visit_.wait_for_query(g="10", compare="1") == {"limit": "64", "g": "10", "compare": "1"}


def test_side_bar_link_keeps_a_choice_there_and_back(visit):
    visit_ = visit("/Landmarks?limit=64").settle(DOCUMENT)
    page, side_bar = visit_.page, visit_.page.get_by_test_id("stSidebar")
    box = page.get_by_label(GRANULARITY)
    box.fill("10")
    box.press("Enter")
    visit_.wait_for_query(g="10")
    side_bar.get_by_role("link", name="Attention").click()
    page.wait_for_url("**/Attention?*")
    visit_.settle(FIGURE)
    there = query_of(page.url)
    side_bar.get_by_role("link", name="Landmarks").click()
    page.wait_for_url("**/Landmarks?*")
    visit_.settle(DOCUMENT)
    assert (there, page.locator(".lmk-doc .mark").count()) == ({"limit": "64", "g": "10"}, 5)


def test_keyboard_moves_from_chunk_to_chunk(visit):
    page = visit("/Landmarks?limit=64&g=10").settle(DOCUMENT).page
    page.locator(".lmk-doc .chunk").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.tip").startswith("chunk 1 · ")


def test_chunk_in_focus_shows_its_tip(visit):
    page = visit("/Landmarks?limit=64&g=10").settle(DOCUMENT).page
    chunk = page.locator(".lmk-doc .chunk").nth(1)
    tip = "(element) => getComputedStyle(element, '::after').content"
    before = chunk.evaluate(tip)
    chunk.focus()
    after = chunk.evaluate(tip)
    assert (before, after.startswith('"chunk 1 · tokens 10-20 (10)')) == ("none", True), after


def paste(visit: Callable[..., Visit], text: str) -> Visit:
    """The landmarks page after a text was pasted into it."""
    visit_ = visit("/Landmarks?limit=64&doc=pasted").settle("textarea")
    box = visit_.page.get_by_label("Your text", exact=True)
    box.fill(text)
    box.press("Control+Enter")
    return visit_.settle(DOCUMENT)


SCRIPT = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


def test_pasted_markup_does_not_run(visit):
    assert paste(visit, SCRIPT).page.evaluate("window.pwned") is None


def test_pasted_markup_is_shown_letter_by_letter(visit):
    assert paste(visit, SCRIPT).page.locator(".lmk-doc .chunk").first.text_content() == SCRIPT


def test_pasted_arabic_runs_from_right_to_left(visit):
    page = paste(visit, "مرحبا بالعالم 2024، هذا نص.").page
    style = "(element) => getComputedStyle(element).direction"
    assert page.locator(DOCUMENT).evaluate(style) == "rtl"


def test_pasted_text_stays_out_of_the_address(visit):
    page = paste(visit, "the secret words").page
    assert query_of(page.url) == {"limit": "64", "doc": "pasted"}


def test_link_with_an_unusable_value_says_so_as_plain_text(visit):
    value = quote("[free](http://evil.example)")
    page = visit(f"/Landmarks?limit=64&chunking={value}").settle(DOCUMENT).page
    alert = page.get_by_test_id("stAlert")
    words = "chunking is '[free](http://evil.example)'; allowed: fixed, variable, sentence."
    assert (words in alert.inner_text(), alert.locator("a").count()) == (True, 0)


def downloaded(page: Any, label: str) -> str:
    """What a button below the figure gives."""
    page.get_by_text("Take it with you").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=label).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_table_that_is_downloaded_has_a_row_a_chunk(visit):
    page = visit("/Landmarks?limit=64&g=10").settle(DOCUMENT).page
    assert len(downloaded(page, "CSV").splitlines()) == 1 + 6


def test_figure_that_is_downloaded_needs_no_network(visit, browser, tmp_path):
    html = downloaded(visit("/Attention?limit=64").settle(FIGURE).page, "Figure (HTML")
    file = tmp_path / "figure.html"
    file.write_text(html, encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    page.goto(file.as_uri())
    page.locator(FIGURE).first.wait_for(timeout=PATIENCE_MS)
    assert page.locator(".legendtext").all_inner_texts()[0] == "CLS row"
