"""A family of encoders on the pages: the picker, its switch, and what is said of variants."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import AttentionConfig, PoolingMode
from lmk_viz.documents import sample_documents
from lmk_viz.family import EncoderFamily
from lmk_viz.presets import MINILM_NAME
from lmk_viz.ui import controls, panels, state
from lmk_viz.ui.limits import Limits
from lmk_viz.ui.text import escape_markdown

HOME, ATTENTION, LANDMARKS = "app.py", "pages/2_Attention.py", "pages/1_Landmarks.py"
ONE_SPACE = "The vectors of two variants are not one space"


def prose(at: AppTest) -> str:
    return "\n".join(e.value for e in (*at.markdown, *at.caption))


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def switch(at: AppTest) -> list[Any]:
    return [toggle for toggle in at.toggle if toggle.label.startswith("One backbone")]


@pytest.fixture
def open_family(open_page: Callable[..., AppTest], family_folder: Any) -> Callable[..., AppTest]:
    """`open_family(page, query, **choices)`: a page with the tiny family, at a short limit."""

    def open_(page: str, query: dict[str, str] | None = None, **choices: Any) -> AppTest:
        chosen = {state.ENCODER.key: str(family_folder), state.MAX_LENGTH.key: 64, **choices}
        return open_page(page, chosen, query)

    return open_


# The picker.


def test_bundled_family_is_offered_first_and_named_by_its_title(open_page):
    picker = open_page(LANDMARKS, {state.MAX_LENGTH.key: 64}).selectbox(key="_shared.encoder_list")
    assert picker.options[:2] == [
        "lmk-mini: one variant a pooling (offline)",
        "all-MiniLM-L6-v2 (offline)",
    ]


def test_former_name_of_the_default_means_the_family():
    assert state.ENCODER.parse("default") == "lmk-mini"
    assert controls.offered_encoders(Limits(encoders=("default", "acme/one", "lmk-mini"))) == [
        "lmk-mini",
        "acme/one",
    ]


def test_family_that_is_missing_is_told_with_a_way_on(open_page, tmp_path, monkeypatch):
    monkeypatch.setattr("lmk_viz.loading.CHECKPOINTS", tmp_path)
    at = open_page(LANDMARKS, {state.ENCODER.key: "lmk-mini"})
    assert [escape_markdown("use 'all-minilm-l6-v2'") in e.value for e in at.error] == [True]
    assert len(at.exception) == 0


def test_family_is_described_with_its_variants_and_training_length(open_family):
    text = prose(open_family(LANDMARKS))
    assert "family of 5 variants, one each for cls, mean, landmark, every_k, latent" in text
    assert "on texts of up to 48 tokens" in text


# The switch.


def test_only_a_family_has_the_switch(open_page, open_family):
    at = open_page(LANDMARKS, {state.ENCODER.key: MINILM_NAME, state.MAX_LENGTH.key: 64})
    assert (len(switch(at)), len(switch(open_family(LANDMARKS)))) == (0, 1)


def test_home_reads_each_pooling_from_its_variant_and_warns_of_nothing(open_family):
    at = open_family(HOME)
    assert problems(at) == []
    assert "never trained for" not in prose(at)
    assert ONE_SPACE in prose(at)


def test_switch_reads_the_backbone_for_all_poolings_and_says_so(open_family, family_folder):
    at = open_family(HOME)
    switch(at)[0].set_value(True).run()
    assert problems(at) == []
    assert "not trained for any pooling" in prose(at)
    assert "never trained for cls, mean, landmark, every_k" in prose(at)
    assert ONE_SPACE not in prose(at)
    assert f"{family_folder}-backbone" in at.code[0].value


def test_switch_stands_in_the_address(open_family, family_folder):
    at = open_family(HOME, {"one": "1"})
    assert (problems(at), switch(at)[0].value) == ([], True)
    assert f"{family_folder}-backbone" in at.code[0].value


# Attention.


def row_names(at: AppTest) -> list[str]:
    data = json.loads(at.get("plotly_chart")[0].proto.spec)["data"]
    return [t["name"] for t in data if (t.get("name") or "").endswith(" row")]


def test_attention_page_says_which_variant_each_row_is_from(open_family, family_folder):
    at = open_family(ATTENTION)
    assert (problems(at), row_names(at)) == ([], ["CLS row", "mean landmark row"])
    name = escape_markdown(str(family_folder))
    assert f"The CLS row is that of {name}\\-cls, read from `[CLS] text [SEP]`" in prose(at)
    assert f"the landmark rows are those of {name}\\-landmark" in prose(at)
    assert "Both rows are read from the input with landmarks" not in prose(at)


def test_attention_page_shows_the_familys_own_numbers(open_family, tiny_family):
    text = next(d.text for d in sample_documents() if d.id == state.DOCUMENT.default)
    layout = tiny_family.layout(text, max_length=64)
    profile = tiny_family.attention_profile(layout, AttentionConfig())
    at = open_family(ATTENTION)
    frame = at.dataframe[0].value
    for mode in (PoolingMode.CLS, PoolingMode.LANDMARK):
        shown = frame[frame["row"] == mode.value]["first_tenth"].to_numpy()
        expected = profile.rows[mode].scalars[:, :, 0].mean(axis=1)
        np.testing.assert_allclose(shown, expected, atol=1e-6)


def test_one_backbone_reads_both_rows_in_one_pass(open_family):
    at = open_family(ATTENTION, {"one": "1"})
    assert problems(at) == []
    assert "Both rows are read from the input with landmarks" in prose(at)
    assert "never trained for cls, landmark" in prose(at)


@pytest.mark.parametrize("query", [{"input": "plain"}, {"random": "1"}, {"docs": "multilingual"}])
def test_attention_page_of_a_family_has_every_further_curve(open_family, query):
    assert problems(open_family(ATTENTION, query)) == []


def test_run_that_was_stopped_in_the_first_pass_has_the_cls_row_alone(open_family, monkeypatch):
    whole = EncoderFamily.attention_profile

    def stopped(family: Any, layout: Any, config: Any, on_layer: Any, should_stop: Any) -> Any:
        return whole(family, layout, config, on_layer, lambda: True)

    monkeypatch.setattr(EncoderFamily, "attention_profile", stopped)
    own = {state.DOCUMENT.key: state.PASTED, state.TEXT.key: "Stopped at once. " * 20}
    at = open_family(ATTENTION, {"single": "0"}, **own)
    assert [w.value[:28] for w in at.warning] == ["Stopped after 1 of 2 layers;"]
    assert (len(at.exception), len(at.error), row_names(at)) == (0, 0, ["CLS row"])
    assert "the landmark rows are those of" not in prose(at)


# Poolings.


def test_latent_attention_is_offered_where_an_encoder_has_it(tiny_family, tiny_encoder):
    assert controls.available_poolings(tiny_family) == tuple(PoolingMode)
    others = tuple(mode for mode in PoolingMode if mode is not PoolingMode.LATENT_ATTENTION)
    for encoder in (tiny_family.backbone, tiny_encoder("bert")):
        assert controls.available_poolings(encoder) == others


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (PoolingMode.MEAN, "trained for mean] This encoder was never trained for cls:"),
        ({PoolingMode.LANDMARK}, "trained for landmark] This encoder was never trained for cls, "),
        ((PoolingMode.MEAN, PoolingMode.CLS), None),
        (None, "not trained for any pooling] This encoder was never trained for cls, mean:"),
    ],
    ids=["one", "a set", "all", "none"],
)
def test_badge_takes_poolings_as_well_as_an_encoder(known, expected, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("streamlit.markdown", said.append)
    panels.show_badge(known, [PoolingMode.CLS, PoolingMode.MEAN])
    assert [expected in text for text in said] == ([True] if expected else [])


def test_badge_of_a_family_names_what_no_variant_was_trained_for(tiny_family, monkeypatch):
    said: list[str] = []
    for name in ("markdown", "caption"):
        monkeypatch.setattr(f"streamlit.{name}", said.append)
    panels.show_badge(tiny_family, list(PoolingMode))
    assert ONE_SPACE in said[0]
    assert "never trained for multi_cls:" in said[1]
