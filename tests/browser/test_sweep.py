"""From two uploaded tables to a recommendation and the file that applies it, in Chromium."""

import json
from urllib.parse import quote

from browser.chromium import PATIENCE_MS, needs_chromium

pytestmark = needs_chromium()

WORDS = ("river", "landmark", "token", "document", "vector", "question", "rain", "hill")
DOCUMENTS = "id,text\n" + "".join(
    f'{word},"{word} and {word}, then {word} by the {word} with the {word}."\n' for word in WORDS
)
QUERIES = "query,document\n" + "".join(f"the {word} of the {word}?,{word}\n" for word in WORDS)


def test_two_uploaded_tables_end_in_a_recommendation_with_its_settings(
    server, browser, tiny_folder
):
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    settings = "limit=32&data=tables&swept=cls-landmark&sizes=4-8&with_variable=0&with_sentence=0"
    address, _ = server
    page.goto(f"{address}/Granularity?encoder={quote(str(tiny_folder))}&{settings}")
    inputs = page.locator('[data-testid="stFileUploaderDropzoneInput"]')
    inputs.nth(1).wait_for(state="attached")
    for number, (name, text) in enumerate((("texts.csv", DOCUMENTS), ("asked.csv", QUERIES))):
        inputs.nth(number).set_input_files(
            {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
        )
        page.get_by_text(f"{name}", exact=False).first.wait_for()
    # So little is measured without being asked to.
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    # Eight queries decide nothing, and the page says so.
    page.get_by_text("The data cannot tell", exact=False).first.wait_for()
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    page.get_by_text("Take it with you").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="JSON", exact=True).click()
    found = json.loads(waiting.value.path().read_text(encoding="utf-8"))
    assert {row["pooling"] for row in found["rows"]} == {"cls", "landmark"}
    assert found["recommendation"]["verdict"]
    assert errors == []
    page.close()
