"""The position page: every probe, its controls, its numbers and its messages."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.pooling import parse_poolings
from lmk_viz.probes.needle import NeedleConfig, needle_curves
from lmk_viz.probes.needles import bundled_fillers, draw_needles, load_needles
from lmk_viz.ui import probe_inputs, state
from lmk_viz.ui.jobs import Job, JobControl

PAGE = "pages/4_Position_bias.py"
SMALL = {
    state.MAX_LENGTH.key: 64,
    state.GRANULARITY.key: 8,
    state.PROBE_TOKENS.key: 96,
    state.PROBE_BASE.key: 96,
    state.PROBE_NEEDLES.key: 3,
    state.PROBE_DEPTHS.key: 4,
    state.PROBE_SHUFFLES.key: 3,
}
FIGURES = {
    "needle": ["Needle by depth"],
    "influence": ["Influence and attention"],
    "segments": ["Which part is the vector close to?"],
    "shuffle": ["The same chunks in another order"],
    "dilution": ["Dilution"],
    "length": ["Needle by depth and length", "Bias by length"],
}
seeds = count(1000)

OpenPage = Callable[..., AppTest]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """A tiny ModernBERT, which has room for texts of some length."""
    build_model = request.getfixturevalue("build_model")
    path = tmp_path_factory.mktemp("encoders") / "tiny-modernbert"
    build_model("modernbert", "sdpa").save_pretrained(path)
    request.getfixturevalue("build_tokenizer")("wordpiece").save_pretrained(path)
    return str(path)


@pytest.fixture
def open_probe(open_page: OpenPage, folder: str) -> OpenPage:
    """`open_probe(view, state, query)`: the page on the tiny encoder, small settings."""

    def open_(view: str = "needle", choices: Any = None, query: Any = None) -> AppTest:
        start = {**SMALL, state.ENCODER.key: folder, state.PROBE_VIEW.key: view}
        return open_page(PAGE, {**start, **(choices or {})}, query)

    return open_


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def figures(at: AppTest) -> dict[str, dict[str, Any]]:
    """The Plotly figures of the page by title."""
    specs = [json.loads(element.proto.spec) for element in at.get("plotly_chart")]
    return {spec["layout"]["title"]["text"]: spec for spec in specs}


def prose(at: AppTest) -> str:
    return "\n".join(e.value for e in (*at.markdown, *at.caption))


def names(spec: dict[str, Any]) -> list[str]:
    """Names in the legend of a figure."""
    return [t["name"] for t in spec["data"] if t.get("showlegend", True) and t.get("name")]


# Every probe.


@pytest.mark.parametrize("view", state.PROBE_VIEWS)
def test_every_probe_draws_its_figures_without_a_problem(open_probe, view):
    at = open_probe(view)
    assert problems(at) == []
    assert list(figures(at)) == FIGURES[view]
    assert all(element.proto.alt for element in at.get("plotly_chart"))


@pytest.mark.parametrize("view", state.PROBE_VIEWS)
def test_every_probe_gives_its_numbers_and_its_python(open_probe, view):
    at = open_probe(view)
    assert at.dataframe
    (code,) = at.code
    compile(code.value, "snippet", "exec")
    # The teaching text is there under every probe.
    assert "Attention is not influence" in prose(at)


@pytest.mark.parametrize("view", state.PROBE_VIEWS)
def test_every_probe_says_which_poolings_were_never_trained(open_probe, view):
    assert "not trained for any pooling" in prose(open_probe(view))


@pytest.mark.parametrize("view", state.PROBE_VIEWS)
def test_a_link_opens_its_probe(open_probe, view):
    at = open_probe(choices={}, query={"view": view})
    assert list(figures(at)) == FIGURES[view]


def test_a_probe_of_a_link_that_is_none_is_named_and_left_out(open_probe):
    at = open_probe(query={"view": "haystack"})
    assert "view` was left out" in at.warning[0].value
    assert list(figures(at)) == FIGURES["needle"]


def test_the_snippet_of_the_needle_gives_the_numbers_of_the_page(open_probe):
    at = open_probe()
    # The page's own lines, run as they stand.
    space: dict[str, Any] = {}
    exec(compile(at.code[0].value, "snippet", "exec"), space)
    curve = next(
        t for t in figures(at)["Needle by depth"]["data"] if t["name"] == "CLS" and "yaxis" in t
    )
    mean = space["result"].curves[PoolingMode.CLS].mean
    y = curve["y"]
    if isinstance(y, dict):
        import base64

        import numpy as np

        y = np.frombuffer(base64.b64decode(y["bdata"]), y["dtype"]).tolist()
    assert y == pytest.approx(mean.tolist(), abs=1e-6)


LINKED = {
    state.PROBE_VIEW: "shuffle",
    state.PROBE_OF: "segments",
    state.PROBE_POOLINGS: (PoolingMode.LANDMARK, PoolingMode.MULTI_CLS),
    state.PROBE_TOKENS: 1024,
    state.PROBE_BASE: 128,
    state.PROBE_NEEDLES: 40,
    state.PROBE_DEPTHS: 5,
    state.PROBE_BORDER: "token",
    state.PROBE_FILLER: "document",
    state.PROBE_FILLERS: 3,
    state.PROBE_SEED: 7,
    state.PROBE_RANDOM: True,
    state.PROBE_CENTRED: True,
    state.PROBE_UNIT: "sentence",
    state.PROBE_FLOOR: False,
    state.PROBE_SHARE: False,
    state.PROBE_SHUFFLES: 20,
    state.PROBE_SHUFFLED: True,
    state.PROBE_SIDE: "around",
}


def test_every_choice_of_the_page_can_stand_in_a_link():
    assert set(LINKED) == set(state.PROBE_PAGE)
    for choice, value in LINKED.items():
        assert value != choice.default
        assert choice.parse(choice.write(value)) == value


# Needle.


def test_needle_on_the_page_is_the_library_s(open_probe, folder):
    at = open_probe()
    result = needle_curves(
        Encoder.from_pretrained(folder),
        draw_needles(load_needles(), 3),
        bundled_fillers(1),
        parse_poolings("cls,mean,every_k,landmark"),
        NeedleConfig(96, 4),
        probe_chunking(),
    )
    psi = result.curves[PoolingMode.CLS].psi
    table = at.dataframe[0].value
    words = "undefined" if psi.value is None else f"{psi.value:.3f}"
    assert table.loc[0, "PSI"].startswith(words)


def probe_chunking() -> Any:
    from lmk_viz.config import ChunkingConfig

    return ChunkingConfig(granularity=8)


def test_poolings_are_those_that_were_chosen(open_probe):
    at = open_probe(choices={state.PROBE_POOLINGS.key: (PoolingMode.LANDMARK, PoolingMode.CLS)})
    assert names(figures(at)["Needle by depth"]) == ["Landmark (LMK)", "CLS"]


def test_no_pooling_is_a_worded_stop(open_probe):
    at = open_probe(choices={state.PROBE_POOLINGS.key: ()})
    assert "Choose at least one pooling" in at.info[0].value
    assert figures(at) == {}


def test_a_pooling_that_the_encoder_has_not_got_is_left_out(open_probe):
    modes = (PoolingMode.LATENT_ATTENTION, PoolingMode.MEAN)
    at = open_probe(choices={state.PROBE_POOLINGS.key: modes})
    assert names(figures(at)["Needle by depth"]) == ["Mean"]


def test_random_weights_are_drawn_beside_as_control(open_probe):
    at = open_probe(choices={state.PROBE_RANDOM.key: True})
    drawn = [trace["name"] for trace in figures(at)["Needle by depth"]["data"]]
    assert "CLS, random weights" in drawn
    assert "Dash-dotted: the same on random weights" in prose(at)


@pytest.mark.parametrize("view", ["influence", "segments", "dilution", "length"])
def test_every_probe_draws_random_weights_beside_as_control(open_probe, view):
    at = open_probe(view, {state.PROBE_RANDOM.key: True})
    assert problems(at) == []
    drawn = [trace["name"] for trace in figures(at)[FIGURES[view][0]]["data"]]
    assert "CLS, random weights" in drawn
    assert "Dash-dotted: the same on random weights" in prose(at)


def test_shuffles_of_random_weights_are_a_mark_of_their_own(open_probe):
    at = open_probe("shuffle", {state.PROBE_RANDOM.key: True})
    assert "random weights" in names(figures(at)[FIGURES["shuffle"][0]])


def test_few_needles_are_said_to_give_intervals_that_are_too_narrow(open_probe):
    words = "So few needles give intervals that are too narrow"
    assert words in prose(open_probe())
    assert words not in prose(open_probe(choices={state.PROBE_NEEDLES.key: 5}))


def test_needles_that_stand_elsewhere_than_wanted_are_said(open_probe):
    words = "from the depth that was wanted"
    assert words in prose(open_probe())
    assert words not in prose(open_probe(choices={state.PROBE_BORDER.key: "token"}))


def test_curves_less_their_own_mean_are_said_to_be_so(open_probe):
    at = open_probe(choices={state.PROBE_CENTRED.key: True})
    axis = figures(at)["Needle by depth"]["layout"]["yaxis"]
    assert axis["title"]["text"] == "cosine less its mean"
    assert "drawn less its own mean" in prose(at)


def test_a_sentence_of_one_s_own_is_measured_alone_and_stays_out_of_the_address(open_probe):
    own = {
        state.OWN_FACT.key: "Rivers carry water to the sea.",
        state.OWN_QUESTION.key: "What do rivers carry?",
    }
    at = open_probe(choices=own)
    assert problems(at) == []
    assert "One needle has neither interval nor rank" in prose(at)
    assert not any("Rivers" in str(value) for value in at.query_params.values())


def test_half_a_needle_is_a_worded_stop(open_probe):
    at = open_probe(choices={state.OWN_FACT.key: "Rivers carry water."})
    assert "both the sentence and its question" in at.info[0].value


def test_the_document_can_be_the_filler(open_probe):
    at = open_probe(choices={state.PROBE_FILLER.key: "document"})
    assert "(town\\_almanac)" in prose(at)


def test_a_filler_that_is_too_short_is_an_error_to_mend(open_probe):
    at = open_probe(
        choices={
            state.PROBE_FILLER.key: "document",
            state.DOCUMENT.key: state.PASTED,
            state.TEXT.key: "Rivers carry water.",
        }
    )
    assert "tokens and" in at.error[0].value
    assert figures(at) == {}


def test_a_needle_longer_than_the_document_is_an_error_to_mend(open_probe):
    at = open_probe(choices={state.PROBE_TOKENS.key: 8})
    assert "choose more than" in at.error[0].value


# Influence, shuffle, dilution, length.


def test_influence_and_attention_share_one_axis(open_probe):
    layout = figures(open_probe("influence"))["Influence and attention"]["layout"]
    data = figures(open_probe("influence"))["Influence and attention"]["data"]
    assert {trace.get("xaxis", "x") for trace in data} == {"x"}
    assert {trace.get("yaxis", "y") for trace in data} == {"y", "y2", "y3"}
    assert (layout["hovermode"], layout["hoversubplots"]) == ("x unified", "axis")


def test_attention_is_drawn_of_the_poolings_that_have_a_row(open_probe):
    data = figures(open_probe("influence"))["Influence and attention"]["data"]
    rows = [t["name"] for t in data if t["name"].endswith("attention")]
    assert rows == ["CLS, attention", "Landmark (LMK), attention"]


def test_influence_of_shuffled_chunks_is_said_in_the_figure(open_probe):
    at = open_probe("influence", {state.PROBE_SHUFFLED.key: True})
    subtitle = figures(at)["Influence and attention"]["layout"]["title"]["subtitle"]["text"]
    assert subtitle.startswith("chunks shuffled: The Pellowick")


def test_without_a_noise_floor_there_is_none(open_probe):
    at = open_probe("influence", {state.PROBE_FLOOR.key: False})
    data = figures(at)["Influence and attention"]["data"]
    assert [t["name"] for t in data if "neutral" in t["name"]] == []


@pytest.mark.parametrize("view", ["influence", "shuffle"])
def test_a_document_of_one_chunk_is_an_error_to_mend(open_probe, view):
    pasted = {state.DOCUMENT.key: state.PASTED, state.TEXT.key: "Yes!"}
    at = open_probe(view, pasted)
    assert "one chunk alone" in at.error[0].value


@pytest.mark.parametrize("view", ["influence", "segments", "shuffle"])
def test_a_blank_document_is_worded(open_probe, view):
    pasted = {state.DOCUMENT.key: state.PASTED, state.TEXT.key: "   "}
    at = open_probe(view, pasted)
    assert at.exception == []
    assert at.error or at.info
    assert figures(at) == {}


def test_lengths_double_three_times(open_probe):
    spec = figures(open_probe("length"))["Needle by depth and length"]["layout"]
    titles = [spec[f"yaxis{i}"]["title"]["text"] for i in ("", 2, 3, 4)]
    assert titles == ["96 tokens", "192 tokens", "384 tokens", "768 tokens"]


@pytest.mark.parametrize("probe", ["influence", "segments", "shuffle", "dilution"])
def test_every_probe_can_be_measured_by_length(open_probe, probe):
    choices = {state.PROBE_OF.key: probe, state.PROBE_BASE.key: 16}
    at = open_probe("length", choices)
    assert problems(at) == []
    title = "Dilution" if probe == "dilution" else f"{probe.capitalize()} by length"
    (spec,) = figures(at).values()
    assert spec["layout"]["title"]["text"] == title
    assert spec["layout"]["xaxis"]["ticktext"] == ["16", "32", "64", "128"]
    assert at.dataframe
    compile(at.code[0].value, "snippet", "exec")


def test_the_snippet_of_a_probe_by_length_gives_the_numbers_of_the_page(open_probe):
    choices = {state.PROBE_OF.key: "shuffle", state.PROBE_BASE.key: 16, state.PROBE_FILLERS.key: 2}
    at = open_probe("length", choices)
    space: dict[str, Any] = {}
    exec(compile(at.code[0].value, "snippet", "exec"), space)
    found = space["result"].to_frame()["cosine"].tolist()
    assert at.dataframe[0].value["cosine"].tolist() == pytest.approx(found, abs=1e-6)


def test_lengths_that_the_encoder_cannot_take_are_left_out_and_said(open_page, tiny_folder):
    # Tiny BERT has 128 positions.
    at = open_page(
        PAGE,
        {**SMALL, state.ENCODER.key: str(tiny_folder), state.PROBE_VIEW.key: "length"},
    )
    assert problems(at) == []
    assert "so only 96 are measured" in prose(at)


# Long runs.


def test_a_long_run_is_forecast_and_waits_for_its_button(open_probe, monkeypatch):
    monkeypatch.setattr(probe_inputs, "AUTO_SECONDS", 0.0)
    at = open_probe(choices={state.PROBE_SEED.key: next(seeds)})
    assert figures(at) == {}
    assert "forward passes of up to 96 tokens: about" in prose(at)
    next(b for b in at.button if b.label == "Measure").click().run()
    assert list(figures(at)) == FIGURES["needle"]
    assert problems(at) == []


def test_a_result_that_is_there_needs_no_button(open_probe, monkeypatch):
    seed = next(seeds)
    open_probe(choices={state.PROBE_SEED.key: seed})
    monkeypatch.setattr(probe_inputs, "AUTO_SECONDS", 0.0)
    at = open_probe(choices={state.PROBE_SEED.key: seed})
    assert list(figures(at)) == FIGURES["needle"]


def test_a_running_probe_shows_how_far_it_is_and_a_stop(open_probe, monkeypatch):
    monkeypatch.setattr("lmk_viz.ui.jobs.PATIENCE_SECONDS", 0.0)

    def endless(control: JobControl) -> None:
        control.report(3, 12)
        while not control.is_stopped:
            pass

    job: Job[None] = Job(endless, "endless")
    try:
        monkeypatch.setattr("lmk_viz.ui.cache.find_probe", lambda _: job)
        at = open_probe()
        (bar,) = at.get("progress")
        assert bar.proto.text.startswith("Hiding needles, pass: 3 of 12")
        assert any(b.label.startswith("Stop") for b in at.button)
    finally:
        job.control.stop()


def test_what_was_done_before_a_stop_is_shown_with_a_way_to_the_rest(open_probe, monkeypatch):
    seed = next(seeds)
    monkeypatch.setattr(JobControl, "is_stopped", property(lambda self: self.done >= 7))
    at = open_probe(
        choices={
            state.PROBE_SEED.key: seed,
            state.PROBE_POOLINGS.key: (PoolingMode.MEAN,),
        }
    )
    assert "Stopped before the end" in at.warning[0].value
    monkeypatch.undo()
    again = next(b for b in at.button if b.label == "Measure all of it")
    again.click().run()
    assert problems(at) == []


def test_a_failed_run_is_not_kept(open_probe, monkeypatch):
    seed = next(seeds)
    with monkeypatch.context() as patch:
        patch.setattr(
            "lmk_viz.probes.needle.needle_curves",
            lambda *_: (_ for _ in ()).throw(ValueError("full *memory*")),
        )
        at = open_probe(choices={state.PROBE_SEED.key: seed})
        assert at.error[0].value == "full \\*memory\\*"
    assert problems(open_probe(choices={state.PROBE_SEED.key: seed})) == []
