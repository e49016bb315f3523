"""Influence, attention and landmarks on one axis: only a browser zooms and hovers."""

from typing import Any

import pytest
from browser.chromium import PATIENCE_MS, needs_chromium

pytestmark = needs_chromium()

PANELS = {"influence": "xy", "attention": "xy2", "landmarks": "xy3"}
PATH = "/Position_bias?view=influence&limit=48&g=8&floor=0&probed=cls-landmark"
"""Five chunks of eight tokens with their landmarks, and a short one."""

PLACES = """(panels) => Object.fromEntries(Object.entries(panels).map(([name, panel]) =>
  [name, [...document.querySelectorAll(`.js-plotly-plot .subplot.${panel} .scatterlayer .trace`)]
    .map((trace) => [...trace.querySelectorAll('.point')]
      .map((point) => point.getBoundingClientRect()).map((box) => box.x + box.width / 2))
    .filter((places) => places.length)[0]]))"""
"""Where the marks of the first trace of each panel stand, in pixels from the left."""


@pytest.fixture
def page(server, browser):
    """The influence of a short text, drawn."""
    page = browser.new_page(viewport={"width": 1280, "height": 1200})
    page.set_default_timeout(PATIENCE_MS)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.goto(server[0] + PATH)
    page.wait_for_selector(".js-plotly-plot .subplot.xy2 .point", state="attached")
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    yield page
    page.close()


def places(page: Any) -> dict[str, list[float]]:
    """Where the marks of each panel stand."""
    found: dict[str, list[float]] = page.evaluate(PLACES, PANELS)
    return found


def ground(page: Any, panel: str) -> dict[str, float]:
    """The box of a panel that takes the pointer."""
    place = page.locator(f".js-plotly-plot .draglayer .{PANELS[panel]} .nsewdrag")
    place.scroll_into_view_if_needed()
    box: dict[str, float] = place.bounding_box()
    return box


def hover(page: Any, panel: str, x: float) -> str:
    """What is said when the pointer is in a panel at so many pixels from the left."""
    page.mouse.move(2, 2)
    page.locator(".js-plotly-plot .hoverlayer .legend").wait_for(state="detached")
    box = ground(page, panel)
    page.mouse.move(x - 3, box["y"] + box["height"] / 2)
    page.mouse.move(x, box["y"] + box["height"] / 2)
    said = page.locator(".js-plotly-plot .hoverlayer .legend")
    said.wait_for()
    words: str = said.evaluate("(element) => element.textContent")
    return words


def test_one_axis_of_tokens_carries_influence_attention_and_landmarks(page):
    before = places(page)
    # The same parts stand one under the other; a landmark stands at the end of each.
    assert before["influence"] == pytest.approx(before["attention"], abs=0.5)
    middles = before["influence"]
    marks = before["landmarks"]
    assert all(a < mark < b for a, mark, b in zip(middles, marks, middles[1:], strict=False))

    # Wherever the pointer is, both panels are read at its place.
    upper = hover(page, "influence", middles[2])
    assert "CLS, attention" in upper
    assert upper.count("Landmark (LMK)") == 2
    assert hover(page, "attention", middles[2]) == upper

    # What is drawn across one panel is the range of all.
    box = ground(page, "influence")
    height = box["y"] + box["height"] / 2
    page.mouse.move(middles[0] - 5, height)
    page.mouse.down()
    page.mouse.move(middles[2], height, steps=5)
    page.mouse.move(middles[2] + 5, height)
    page.mouse.up()
    page.wait_for_function(
        f"(old) => Math.abs(({PLACES})({PANELS}).influence[1] - old) > 20", arg=middles[1]
    )
    after = places(page)
    assert after["influence"] == pytest.approx(after["attention"], abs=0.5)
    factor = (after["influence"][1] - after["influence"][0]) / (middles[1] - middles[0])
    assert factor > 1.5
    moved = (after["landmarks"][1] - after["landmarks"][0]) / (marks[1] - marks[0])
    assert moved == pytest.approx(factor, rel=0.02)
    assert page.problems == []
