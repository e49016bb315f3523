"""The real server in headless Chromium: what only a browser shows.

Fails on anything red: an error on the page, in the console or in the server's log, and any
request that leaves this machine.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from browser.chromium import PATIENCE_MS, needs_chromium

pytestmark = needs_chromium()

# A short length limit keeps runs short; what is drawn does not depend on it.
# Home comes last, since it starts UMAP's warm-up in the background.
PAGES = {
    "landmarks": "/Landmarks?limit=64",
    "attention": "/Attention?limit=64",
    "map": "/Embedding_map?limit=16&method=pca&poolings=cls-landmark",
    "position": "/Position_bias?view=influence&limit=48&g=8&floor=0&probed=cls-landmark",
    "home": "/?limit=64",
}
CHUNKS_OF_TEN = "/Landmarks?limit=64&g=10"
"""64 positions: CLS, five chunks of ten with their landmarks, and eight tokens behind."""
EXPECTED_404 = re.compile(
    r"/(Landmarks|Attention|Embedding_map|Position_bias)/_stcore/(health|host-config)$"
)
"""Streamlit asks for these below the page's own path first when a page is opened directly."""

FIGURE = ".js-plotly-plot .main-svg"
DOCUMENT = ".lmk-doc"
RESULT = f"{FIGURE}, {DOCUMENT}"
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
GRANULARITY = "Granularity (tokens a chunk)"


@dataclass
class Visit:
    """A page, which is a session of its own for the app, and what it made noise about."""

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
def visit(server: tuple[str, Path], browser: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(path, dark, fresh)`: an opened page.

    Pages share the browser's store of scripts, which are slow to parse; a fresh one shares
    nothing, as for someone else.
    """
    address, log = server
    contexts: list[Any] = []

    def new_context() -> Any:
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}))
        contexts[-1].set_default_timeout(PATIENCE_MS)
        return contexts[-1]

    shared = new_context()

    def visit_(path: str, dark: bool = False, fresh: bool = False) -> Visit:
        page = (new_context() if fresh else shared).new_page()
        found = Visit(page, log, log.stat().st_size)
        page.emulate_media(color_scheme="dark" if dark else "light")
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


def test_dark_scheme_has_a_dark_ground_and_light_letters(visit):
    page = visit(PAGES["attention"], dark=True).settle(FIGURE).page
    ground, letters = page.evaluate(
        """() => [
            getComputedStyle(document.querySelector('[data-testid="stApp"]')).backgroundColor,
            getComputedStyle(document.querySelector('.js-plotly-plot .gtitle')).fill,
        ].map((colour) => colour.match(/\\d+/g).slice(0, 3).map(Number))"""
    )
    assert (max(ground) < 60, min(letters) > 180) == (True, True), (ground, letters)


def test_change_of_a_widget_is_written_to_the_address(visit):
    visit_ = visit("/Landmarks?limit=64").settle()
    box = visit_.page.get_by_label(GRANULARITY, exact=True)
    box.fill("10")
    box.press("Enter")
    assert visit_.wait_for_query(g="10") == {"limit": "64", "g": "10"}


def test_address_gives_someone_else_the_same_view(visit):
    from playwright.sync_api import expect

    visit_ = visit(CHUNKS_OF_TEN, fresh=True).settle(DOCUMENT)
    # The box is drawn before the value arrives in it.
    expect(visit_.page.get_by_label(GRANULARITY, exact=True)).to_have_value("10")
    assert visit_.page.locator(".lmk-doc .mark").count() == 5


def test_two_changes_in_quick_succession_both_hold(visit):
    visit_ = visit("/Landmarks?limit=64").settle()
    box = visit_.page.get_by_label(GRANULARITY, exact=True)
    box.fill("10")
    box.press("Enter")
    visit_.page.get_by_text("Compare with a second granularity").click()
    assert visit_.wait_for_query(g="10", compare="1") == {"limit": "64", "g": "10", "compare": "1"}


def test_side_bar_link_keeps_a_choice_there_and_back(visit):
    visit_ = visit("/Landmarks?limit=64").settle(DOCUMENT)
    page, side_bar = visit_.page, visit_.page.get_by_test_id("stSidebar")
    box = page.get_by_label(GRANULARITY, exact=True)
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


def test_click_on_a_cell_of_the_head_map_chooses_its_layer_and_head(visit):
    visit_ = visit("/Attention?limit=64").settle(FIGURE)
    charts = visit_.page.get_by_test_id("stPlotlyChart")
    heads = charts.filter(has_text="Layer by head")
    cell = heads.locator(".scatterlayer .point").nth(2 * 12 + 5)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    visit_.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert visit_.wait_for_query(layers="single", layer="2", head="5")["limit"] == "64"


def test_keyboard_moves_from_chunk_to_chunk(opened):
    page = opened(CHUNKS_OF_TEN).page
    page.locator(".lmk-doc .chunk").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.tip").startswith("chunk 1 · ")


def test_chunk_in_focus_shows_its_tip(opened):
    page = opened(CHUNKS_OF_TEN).page
    chunk = page.locator(".lmk-doc .chunk").nth(1)
    tip = "(element) => getComputedStyle(element, '::after').content"
    page.locator(".lmk-doc .chunk").first.focus()
    elsewhere = chunk.evaluate(tip)
    chunk.focus()
    here = chunk.evaluate(tip)
    assert (elsewhere, here.startswith('"chunk 1 · tokens 10-20 (10)')) == ("none", True), here


@pytest.fixture(scope="module")
def paste(visit: Callable[..., Visit]) -> Callable[[str], Any]:
    """`paste(text)`: the landmarks page after a text was pasted into it."""
    visit_ = visit("/Landmarks?limit=64&g=100&doc=pasted").settle("textarea")

    @lru_cache(maxsize=1)
    def paste_(text: str) -> Any:
        box = visit_.page.get_by_label("Your text", exact=True)
        box.fill(text)
        box.press("Control+Enter")
        visit_.page.locator(".lmk-doc .chunk").filter(has_text=text).wait_for()
        return visit_.page

    return paste_


ARABIC = "مرحبا بالعالم 2024، هذا نص."
SCRIPT = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


def test_pasted_markup_does_not_run(paste):
    assert paste(SCRIPT).evaluate("window.pwned") is None


def test_pasted_markup_is_shown_letter_by_letter(paste):
    assert paste(SCRIPT).locator(".lmk-doc .chunk").text_content() == SCRIPT


def test_pasted_text_stays_out_of_the_address(paste):
    assert query_of(paste(SCRIPT).url) == {"limit": "64", "g": "100", "doc": "pasted"}


def test_pasted_arabic_runs_from_right_to_left(paste):
    style = "(element) => getComputedStyle(element).direction"
    assert paste(ARABIC).locator(DOCUMENT).evaluate(style) == "rtl"


def test_box_for_pasted_text_gives_each_paragraph_its_direction(paste):
    box = paste(ARABIC).get_by_label("Your text", exact=True)
    assert box.evaluate("(element) => getComputedStyle(element).unicodeBidi") == "plaintext"


def test_link_with_an_unusable_value_says_so_as_plain_text(visit):
    value = quote("[free](http://evil.example)")
    page = visit(f"/Landmarks?limit=64&chunking={value}").settle(DOCUMENT).page
    alert = page.get_by_test_id("stAlert")
    words = "chunking is '[free](http://evil.example)'; allowed: fixed, variable, sentence."
    free = alert.get_by_role("link", name="free").count()
    assert (words in alert.inner_text(), free) == (True, 0)


def downloaded(page: Any, label: str) -> str:
    """What a button below the figure gives."""
    page.get_by_text("Take it with you").click()
    # A run of the script makes the file behind a button anew, and a click in between is lost.
    page.wait_for_selector(IDLE)
    with page.expect_download() as download:
        page.get_by_role("button", name=label).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_table_that_is_downloaded_has_a_row_a_chunk(opened):
    page = opened(CHUNKS_OF_TEN).page
    assert len(downloaded(page, "CSV").splitlines()) == 1 + 6


def test_figure_that_is_downloaded_needs_no_network(opened, browser, tmp_path):
    html = downloaded(opened(PAGES["attention"]).page, "Figure (HTML")
    file = tmp_path / "figure.html"
    file.write_text(html, encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.locator(FIGURE).first.wait_for(timeout=PATIENCE_MS)
    first = page.locator(".legendtext").first.text_content()
    context.close()
    assert first == "CLS row"


@each_page
def test_narrow_screen_needs_no_sideways_scrolling(opened, path):
    page = opened(path).page
    page.set_viewport_size({"width": 420, "height": 900})
    # Plotly and Streamlit draw anew after the change; a page that stays too wide stays so.
    fits = """() => [document.documentElement, document.querySelector('[data-testid="stMain"]')]
    .every((element) => element.scrollWidth <= element.clientWidth)"""
    page.wait_for_function(fits, timeout=10_000)
