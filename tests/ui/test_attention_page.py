"""The attention page's choices: what each changes in the figures, and what it says."""

import json
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.attention_profile import SCALARS, AttentionProfile
from lmk_viz.config import AttentionConfig, PoolingMode
from lmk_viz.documents import sample_documents
from lmk_viz.encoder import Encoder
from lmk_viz.presets import MINILM_NAME
from lmk_viz.ui import state
from lmk_viz.ui.text import escape_markdown

ATTENTION = "pages/2_Attention.py"
SHORT = {state.MAX_LENGTH.key: 64}
ROWS = ["CLS row", "mean landmark row"]
numbers = count()


def own_text() -> dict[str, Any]:
    """A text that no other test reads: what is kept of its runs is kept for all sessions."""
    text = f"Text number {next(numbers)} is about rivers, hills and the sea. " * 9
    # The encoder is named, since some tests undo what they and the fixtures have patched.
    return {
        **SHORT,
        state.ENCODER.key: MINILM_NAME,
        state.DOCUMENT.key: state.PASTED,
        state.TEXT.key: text,
    }


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def figures(at: AppTest) -> dict[str, dict[str, Any]]:
    """The Plotly figures of the page by title."""
    specs = [json.loads(element.proto.spec) for element in at.get("plotly_chart")]
    return {spec["layout"]["title"]["text"]: spec for spec in specs}


def curve_names(at: AppTest) -> list[str]:
    """Names of the rows' curves in the first figure."""
    names = [trace.get("name") or "" for trace in next(iter(figures(at).values()))["data"]]
    return [name for name in names if name.endswith(" row")]


def subtitle(at: AppTest, title: str) -> str:
    text: str = figures(at)[title]["layout"]["title"]["subtitle"]["text"]
    return text


def captions(at: AppTest) -> str:
    return "\n".join(e.value for e in at.caption)


@pytest.fixture
def profile(minilm_encoder: Encoder) -> AttentionProfile:
    """What the page reads of its first document at the short length limit."""
    text = next(d.text for d in sample_documents() if d.id == state.DOCUMENT.default)
    layout = minilm_encoder.layout(text, max_length=64)
    return minilm_encoder.attention_profile(layout, AttentionConfig())


# Axis, layers, head.


def test_distance_axis_draws_the_curves_by_distance(open_page):
    at = open_page(ATTENTION, SHORT, {"axis": "distance"})
    assert (problems(at), curve_names(at)) == ([], ROWS)
    assert next(iter(figures(at))) == "Attention by distance"
    assert "Attention by position" not in figures(at)


def test_axis_chosen_on_the_page_stands_in_its_address(open_page):
    at = open_page(ATTENTION, SHORT)
    at.button_group(key="_attention.axis").set_value("distance").run()
    at.run()
    assert (next(iter(figures(at))), at.query_params["axis"]) == (
        "Attention by distance",
        "distance",
    )


@pytest.mark.parametrize("axis", ["position", "distance"])
def test_layer_and_head_of_a_link_are_those_of_all_curves(open_page, axis):
    link = {"layers": "single", "layer": "2", "head": "5", "axis": axis}
    at = open_page(ATTENTION, SHORT, link)
    words = "layer L2 (global), head H5"
    assert subtitle(at, f"Attention by {axis}") == subtitle(at, "What special tokens take") == words
    assert problems(at) == []


def test_curve_of_a_link_is_told_with_that_layers_and_heads_number(open_page, profile):
    at = open_page(ATTENTION, SHORT, {"layers": "single", "layer": "2", "head": "5"})
    alt = at.get("plotly_chart")[0].proto.alt
    share = profile.rows[PoolingMode.CLS].scalars[2, 5, 0]
    assert f"the CLS row puts {share:.0%} of its text weight on the first tenth" in alt


def test_layer_and_head_of_a_link_are_framed_in_the_head_map(open_page):
    at = open_page(ATTENTION, SHORT, {"layers": "single", "layer": "2", "head": "5"})
    (frame,) = figures(at)["Layer by head"]["layout"]["shapes"]
    assert [frame[name] for name in ("x0", "x1", "y0", "y1")] == [4.5, 5.5, 1.5, 2.5]


def test_head_map_of_a_mean_frames_nothing(open_page):
    at = open_page(ATTENTION, SHORT)
    assert "shapes" not in figures(at)["Layer by head"]["layout"]


# Further curves.


@pytest.mark.parametrize("axis", ["position", "distance"])
def test_random_control_adds_a_curve_a_row(open_page, axis):
    at = open_page(ATTENTION, SHORT, {"random": "1", "axis": axis})
    assert curve_names(at) == [*ROWS, *(f"random weights, {row}" for row in ROWS)]


def test_random_control_draws_other_weights(open_page):
    at = open_page(ATTENTION, SHORT, {"random": "1"})
    traces = {t["name"]: t["y"] for t in figures(at)["Attention by position"]["data"]}
    assert traces["CLS row"] != traces["random weights, CLS row"]


@pytest.mark.parametrize("axis", ["position", "distance"])
def test_second_encoder_adds_a_curve_a_row_and_says_how_it_counts(open_page, tiny_folder, axis):
    at = open_page(ATTENTION, SHORT, {"encoder2": str(tiny_folder), "axis": axis})
    assert curve_names(at) == [*ROWS, *(f"{tiny_folder}, {row}" for row in ROWS)]
    assert "tokens of its own vocabulary" in captions(at)
    assert problems(at) == []


def test_second_encoder_counts_its_own_tokens(open_page, tiny_folder):
    at = open_page(ATTENTION, SHORT, {"encoder2": str(tiny_folder)})
    encoder = Encoder.from_pretrained(str(tiny_folder))
    text = next(d.text for d in sample_documents() if d.id == state.DOCUMENT.default)
    layout = encoder.layout(text, max_length=64)
    words = f"reads {layout.n_kept:,} tokens of its own vocabulary, {layout.n_cut:,} cut."
    assert words in captions(at)


@pytest.mark.parametrize(
    "link",
    [{"head": "7"}, {"layers": "single", "layer": "4"}],
    ids=["head", "layer"],
)
def test_layer_or_head_that_the_second_encoder_has_not_got_is_said(open_page, tiny_folder, link):
    # Two layers of two heads.
    at = open_page(ATTENTION, SHORT, {"encoder2": str(tiny_folder), **link})
    assert (problems(at), curve_names(at)) == ([], ROWS)
    assert "has none of the chosen layers and heads" in captions(at)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("acme/no-such-model", "is no local folder and the model hub cannot be reached"),
        ("/no/such/folder", "is no folder"),
        ("not a name!", "is neither a folder nor a hub id"),
    ],
)
def test_second_encoder_that_cannot_be_had_is_said_to_be_so(open_page, name, words):
    at = open_page(ATTENTION, SHORT, {"encoder2": name})
    assert [escape_markdown(words) in e.value for e in at.error] == [True]
    assert len(at.exception) == 0


def test_second_encoder_that_is_not_offered_is_named_and_left_out(
    open_page, monkeypatch, tiny_folder
):
    monkeypatch.setenv("LMK_VIZ_ENCODERS", MINILM_NAME)
    at = open_page(ATTENTION, SHORT, {"encoder2": str(tiny_folder)})
    assert ["is not offered here; no second one" in e.value for e in at.error] == [True]
    assert curve_names(at) == ROWS


def test_further_documents_draw_their_spread(open_page):
    at = open_page(ATTENTION, SHORT, {"docs": "multilingual~rate_limiter"})
    names = [trace["name"] for trace in figures(at)["Over several documents"]["data"]]
    assert names == [
        f"{row}: {words}"
        for row in ROWS
        for words in ("lowest to highest document", "mean of 3 documents")
    ]
    assert (problems(at), "3 documents on a relative axis" in captions(at)) == ([], True)


def test_document_alone_draws_no_spread_and_asks_for_another(open_page):
    at = open_page(ATTENTION, SHORT)
    assert "Over several documents" not in figures(at)
    assert "Choose at least one more document" in captions(at)


def test_documents_that_are_not_there_or_shown_already_are_left_out(open_page):
    at = open_page(ATTENTION, SHORT, {"docs": "no_such~town_almanac~multilingual"})
    assert at.session_state[state.OTHERS.key] == ("multilingual",)
    assert problems(at) == []


# The head map.


@pytest.mark.parametrize("mode", [PoolingMode.CLS, PoolingMode.LANDMARK])
@pytest.mark.parametrize("scalar", [*SCALARS, "landmark_share"])
def test_head_map_shows_the_chosen_number_of_the_chosen_row(open_page, profile, scalar, mode):
    at = open_page(ATTENTION, SHORT, {"scalar": scalar, "row": mode.value})
    shown = [float(text) for text in figures(at)["Layer by head"]["data"][1]["text"]]
    row = profile.rows[mode]
    number = row.special[..., 1] if scalar == "landmark_share" else None
    wanted = row.scalars[..., SCALARS.index(scalar)] if number is None else number
    np.testing.assert_allclose(shown, wanted.reshape(-1), atol=0.00051)


def test_number_chosen_on_the_page_changes_the_head_map_alone(open_page):
    at = open_page(ATTENTION, SHORT)
    before = figures(at)
    at.selectbox(key="_attention.map_scalar").set_value("entropy").run()
    after = figures(at)
    assert [title for title in before if before[title] != after[title]] == ["Layer by head"]
    assert subtitle(at, "Layer by head") == "CLS row: entropy / log n; even attention 1"


def test_row_chosen_on_the_page_changes_the_head_map_alone(open_page):
    at = open_page(ATTENTION, SHORT)
    before = figures(at)
    at.button_group(key="_attention.map_row").set_value(PoolingMode.LANDMARK).run()
    after = figures(at)
    assert [title for title in before if before[title] != after[title]] == ["Layer by head"]
    assert subtitle(at, "Layer by head").startswith("mean landmark row: ")


@pytest.mark.parametrize("link", [{"scalar": "beauty"}, {"row": "landmark", "input": "plain"}])
def test_row_or_number_that_is_not_there_becomes_the_first(open_page, link):
    at = open_page(ATTENTION, SHORT, link)
    assert subtitle(at, "Layer by head") == ("CLS row: mass on the first tenth; even attention 0.1")


# Memory.


def test_run_that_cannot_fit_at_any_length_says_so(open_page, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_MEMORY_GB", "0.001")
    at = open_page(ATTENTION, SHORT)
    assert ["nothing fits" in e.value for e in at.error] == [True], problems(at)
    assert (len(at.exception), figures(at)) == (0, {})


def longest_length(at: AppTest) -> int:
    (message,) = [e.value.replace("\\", "") for e in at.error]
    found = re.search(r"([\d,]+) tokens fit: set the length limit to that", message)
    assert found, message
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("gigabytes", ["0.02", "0.022"])
def test_run_that_does_not_fit_names_a_length_that_does(open_page, monkeypatch, gigabytes):
    monkeypatch.setenv("LMK_VIZ_MEMORY_GB", gigabytes)
    at = open_page(ATTENTION)
    fits = longest_length(at)
    assert (figures(at), 3 <= fits < 512) == ({}, True)
    at = open_page(ATTENTION, {state.MAX_LENGTH.key: fits})
    assert (problems(at), curve_names(at)[:1]) == ([], ["CLS row"])


def test_more_memory_lets_a_longer_run_through(open_page, monkeypatch):
    found = []
    for gigabytes in ("0.02", "0.022"):
        monkeypatch.setenv("LMK_VIZ_MEMORY_GB", gigabytes)
        found.append(longest_length(open_page(ATTENTION)))
    assert found[0] < found[1]


def test_second_encoder_that_does_not_fit_is_refused_in_words(open_page, monkeypatch, tiny_folder):
    def refuse(encoder: Encoder, *_: object) -> None:
        if encoder.n_layers == 2:
            raise ValueError("no room for the second")

    monkeypatch.setattr("lmk_viz.encoder.Encoder.check_memory", refuse)
    at = open_page(ATTENTION, SHORT, {"encoder2": str(tiny_folder)})
    assert [e.value for e in at.error] == ["no room for the second"]


@pytest.mark.parametrize("value", ["0", "much", "nan"])
def test_unusable_memory_of_the_operator_is_named(open_page, monkeypatch, value):
    monkeypatch.setenv("LMK_VIZ_MEMORY_GB", value)
    at = open_page(ATTENTION, SHORT)
    assert [escape_markdown(f"LMK_VIZ_MEMORY_GB is {value!r}") in e.value for e in at.error] == [
        True
    ]


def test_short_run_shows_no_forecast(open_page):
    assert "Forecast" not in captions(open_page(ATTENTION, SHORT))


def test_long_run_shows_its_forecast(open_page, monkeypatch):
    monkeypatch.setattr("lmk_viz.ui.attention_views.CALIBRATE_FROM_SECONDS", 0.0)
    found = re.search(
        r"Forecast for 64 tokens and 2 rows: about \d+ s and 0\.\d GiB beyond the weights\.",
        captions(open_page(ATTENTION, SHORT)),
    )
    assert found


# A stopped run.


@pytest.fixture
def stopped_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`stopped_after(layers)`: every run is stopped there, as by its button."""
    whole = Encoder.attention_profile

    def stop(layers: int) -> None:
        def read(
            encoder: Encoder,
            layout: Any,
            config: AttentionConfig | None = None,
            on_layer: Callable[[int], None] | None = None,
            should_stop: Callable[[], bool] | None = None,
        ) -> AttentionProfile:
            asked = count(1)
            return whole(encoder, layout, config, on_layer, lambda: next(asked) >= layers)

        monkeypatch.setattr(Encoder, "attention_profile", read)

    return stop


def test_stopped_run_shows_the_layers_that_were_read(open_page, stopped_after):
    stopped_after(2)
    at = open_page(ATTENTION, own_text())
    (warning,) = problems(at)
    assert warning.startswith("Stopped after 2 of 6 layers")
    assert figures(at)["Layer by head"]["data"][0]["y"] == ["L0 global", "L1 global"]
    assert curve_names(at) == ROWS
    assert subtitle(at, "Attention by position") == "mean of 2 global layers, mean over heads"
    assert len(at.exception) == 0


def test_stopped_run_can_be_read_in_full(open_page, stopped_after, monkeypatch):
    stopped_after(2)
    at = open_page(ATTENTION, own_text())
    monkeypatch.undo()
    monkeypatch.setattr("lmk_viz.ui.jobs.PATIENCE_SECONDS", 120.0)
    (button,) = [b for b in at.button if b.label == "Read all layers"]
    button.click().run()
    assert (problems(at), [b for b in at.button if b.label == "Read all layers"]) == ([], [])
    assert len(figures(at)["Layer by head"]["data"][0]["y"]) == 6


def test_stopped_run_is_kept_until_it_is_read_anew(open_page, stopped_after, monkeypatch):
    stopped_after(3)
    text = own_text()
    open_page(ATTENTION, text)
    monkeypatch.undo()
    at = open_page(ATTENTION, text)
    assert [words[:28] for words in problems(at)] == ["Stopped after 3 of 6 layers;"]


def test_layer_that_was_not_read_is_said_to_be_missing(open_page, stopped_after):
    stopped_after(2)
    at = open_page(ATTENTION, own_text(), {"layers": "single", "layer": "4"})
    assert ["hold none of this group" in e.value for e in at.info] == [True]
    assert "Read all layers" in [b.label for b in at.button]
    assert (len(at.exception), figures(at)) == (0, {})


@pytest.mark.parametrize(
    "more", [{"random": "1"}, {"docs": "multilingual"}], ids=["random", "docs"]
)
def test_every_stopped_run_of_a_page_has_its_own_button(open_page, stopped_after, more):
    stopped_after(1)
    at = open_page(ATTENTION, {**own_text(), state.GRANULARITY.key: 31}, more)
    assert len(at.exception) == 0
    keys = [b.key for b in at.button if b.label == "Read all layers"]
    assert len(keys) == len(set(keys)) >= 2


def test_failed_run_is_not_kept(open_page, monkeypatch):
    text = own_text()

    def fail(*_: object, **__: object) -> None:
        raise ValueError("out of memory for once")

    with monkeypatch.context() as broken:
        broken.setattr(Encoder, "attention_profile", fail)
        at = open_page(ATTENTION, text)
        assert [e.value for e in at.error] == ["out of memory for once"]
    assert (problems(at.run()), curve_names(at)) == ([], ROWS)
