"""Linked panels in headless Chromium: in the app, and on the page that is taken away."""

from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from browser.chromium import PATIENCE_MS, needs_chromium

pytestmark = needs_chromium()

BRIGHT = """() => [...document.querySelectorAll('.js-plotly-plot')].map((place) =>
  [...place.querySelectorAll('.scatterlayer .point')]
    .filter((point) => getComputedStyle(point).opacity > 0.5).length)"""
"""How many points of each panel are not faded."""


def draw_round(page: Any, panel: int) -> None:
    """Draws round the left half of a panel."""
    place = page.locator(".js-plotly-plot .nsewdrag").nth(panel)
    place.scroll_into_view_if_needed()
    box = place.bounding_box()

    def at(across: float, down: float) -> tuple[float, float]:
        return box["x"] + across * box["width"], box["y"] + down * box["height"]

    page.mouse.move(*at(0.01, 0.01))
    page.mouse.down()
    for corner in ((0.5, 0.01), (0.5, 0.99), (0.01, 0.99), (0.01, 0.01)):
        page.mouse.move(*at(*corner), steps=6)
    page.mouse.up()


def test_what_is_drawn_round_in_one_panel_stands_out_in_the_other_and_in_the_table(
    server, browser, tiny_folder
):
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    settings = "limit=32&g=4&method=pca&poolings=cls-landmark"
    address, _ = server
    page.goto(f"{address}/Embedding_map?encoder={quote(str(tiny_folder))}&{settings}")
    page.wait_for_function(f"() => ({BRIGHT})().join() === '72,72'")
    draw_round(page, 0)
    said = page.get_by_text("of 72 documents selected")
    said.wait_for()
    count = int(said.inner_text().split()[0])
    page.wait_for_function(f"() => ({BRIGHT})().join() === '{count},{count}'")
    assert 0 < count < 72
    page.get_by_role("button", name="Clear selection").click()
    page.wait_for_function(f"() => ({BRIGHT})().join() === '72,72'")
    # A single one, clicked in the other panel, lists its neighbours.
    page.get_by_text("Clicking", exact=True).click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.js-plotly-plot')].every((place) =>"
        " place._fullLayout && place._fullLayout.dragmode === 'pan')"
    )
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    page.wait_for_function(f"() => ({BRIGHT})().join() === '72,72'")
    point = page.locator(".js-plotly-plot").nth(1).locator(".scatterlayer .point").first
    box = point.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(middle[0] - 3, middle[1])
    page.mouse.move(*middle)
    # Plotly clicks what it found under the pointer, which takes it a moment.
    page.locator(".js-plotly-plot").nth(1).locator(".hoverlayer .hovertext").wait_for()
    page.mouse.click(*middle)
    page.get_by_text("stands under every pooling").wait_for()
    page.wait_for_function(f"() => ({BRIGHT})().join() === '1,1'")
    assert errors == []
    page.close()


def test_the_page_that_is_taken_away_links_its_panels_without_a_network(browser, tmp_path):
    from lmk_viz.__main__ import main

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"d{i}" for i in range(30)],
            "title": [f"<b>title {i}</b>" for i in range(30)],
            "label": ["xyz"[i % 3] for i in range(30)],
            "cls": list(rng.normal(size=(30, 5)).astype(np.float32)),
            "mean": list(rng.normal(size=(30, 5)).astype(np.float32)),
        }
    )
    frame.to_parquet(tmp_path / "v.parquet")
    target = tmp_path / "map.html"
    options = ["--output", str(target), "--method", "pca"]
    assert main(["project", str(tmp_path / "v.parquet"), *options]) == 0
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(target.as_uri())
    page.wait_for_function(f"() => ({BRIGHT})().join() === '30,30'")
    draw_round(page, 1)
    page.wait_for_function("() => /^\\d+ of 30/.test(document.getElementById('count').innerText)")
    count = int(page.locator("#count").inner_text().split()[0])
    page.wait_for_function(f"() => ({BRIGHT})().join() === '{count},{count}'")
    assert page.locator("#documents tr").count() == count + 1
    assert page.locator("#documents td").nth(1).inner_text().startswith("<b>title")
    page.get_by_role("button", name="Clear selection").click()
    page.wait_for_function(f"() => ({BRIGHT})().join() === '30,30'")
    assert (errors, [url for url in requests if not url.startswith(("file:", "blob:"))]) == ([], [])
    context.close()
