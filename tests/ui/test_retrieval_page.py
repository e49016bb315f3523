"""The retrieval page: scores, costs, one query, its controls and its messages."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import PoolingMode
from lmk_viz.documents import Document
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.ui import state
from lmk_viz.ui.retrieval_inputs import dataset_key
from lmk_viz.ui.retrieval_query import _place_of_evidence

PAGE = "pages/6_Retrieval.py"
SMALL = {state.MAX_LENGTH.key: 64, state.GRANULARITY.key: 8}
SENTENCES = (
    "The harbour master keeps a ledger of every ship {n}.",
    "Rivers carry water from hill {n} to the sea and rain carries it back.",
    "Bread number {n} rises slower when the kitchen is cold.",
    "A lamp is lit on tower {n} before the fog comes in from the west.",
)
HOSTILE = "<b>bold</b> *stars* [link](http://x)"

OpenPage = Callable[..., AppTest]


def dataset() -> RetrievalDataset:
    texts = [" ".join(s.format(n=n) for s in SENTENCES) * (1 + n % 3) for n in range(8)]
    queries = {f"q{n}": SENTENCES[n % 4].format(n=n) for n in range(6)}
    queries["q5"] = f"{HOSTILE} lamp"
    return RetrievalDataset(
        name="harbour",
        split="test",
        queries=queries,
        corpus=tuple(Document(f"d{n}", f"Title {n} {HOSTILE}", t) for n, t in enumerate(texts)),
        qrels={f"q{n}": {f"d{n}": 1} for n in range(6)},
        depth={f"q{n}": n / 6 for n in range(6)},
        bins={f"q{n}": ("start", "middle", "end")[n // 2] for n in range(6)},
        with_titles=False,
        notes=("2 queries were left out for a reason",),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """A tiny ModernBERT, which has room for texts of some length."""
    build_model = request.getfixturevalue("build_model")
    path = tmp_path_factory.mktemp("encoders") / "tiny-modernbert"
    build_model("modernbert", "sdpa").save_pretrained(path)
    request.getfixturevalue("build_tokenizer")("wordpiece").save_pretrained(path)
    return str(path)


@pytest.fixture
def open_retrieval(open_page: OpenPage, folder: str, monkeypatch: pytest.MonkeyPatch) -> OpenPage:
    """`open_retrieval(choices, query)`: the page on the tiny encoder and a small data set."""
    found = dataset()
    monkeypatch.setattr("lmk_viz.ui.cache.get_sample_dataset", lambda with_titles: found)

    def open_(choices: Any = None, query: Any = None) -> AppTest:
        return open_page(PAGE, {**SMALL, state.ENCODER.key: folder, **(choices or {})}, query)

    return open_


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def figures(at: AppTest) -> dict[str, dict[str, Any]]:
    """The Plotly figures of the page by title."""
    specs = [json.loads(element.proto.spec) for element in at.get("plotly_chart")]
    return {spec["layout"]["title"]["text"]: spec for spec in specs}


def prose(at: AppTest) -> str:
    return "\n".join(e.value for e in (*at.markdown, *at.caption))


def table(at: AppTest, column: str) -> Any:
    """The first table that has a column of that name."""
    return next(frame.value for frame in at.dataframe if column in frame.value)


def html(at: AppTest) -> str:
    return "\n".join(element.proto.body for element in at.get("html"))


def test_the_page_draws_scores_groups_and_a_query_without_a_problem(open_retrieval):
    at = open_retrieval()
    assert problems(at) == []
    assert list(figures(at)) == [
        "Which finds the right document?",
        "By depth of the evidence",
        "By length of the right document",
        "Which chunk answers?",
    ]
    assert all(element.proto.alt for element in at.get("plotly_chart"))
    systems = table(at, "p, corrected")["system"].tolist()
    assert systems == [
        "CLS (not trained for it)",
        "Mean (not trained for it)",
        "Landmark (LMK) (not trained for it)",
        "BM25",
    ]
    assert "not trained for any pooling" in prose(at)
    assert "2 queries were left out for a reason" in prose(at)
    assert "does not prove" in "".join(e.label for e in at.expander)


def test_differences_are_tested_and_the_baseline_can_change_without_a_new_run(
    open_retrieval, monkeypatch
):
    at = open_retrieval()
    frame = table(at, "p, corrected")
    assert frame["p"].tolist()[2] == ""
    assert all(0 < float(p) <= 1 for p in frame["p"] if p)
    monkeypatch.setattr("lmk_viz.retrieval.evaluate.evaluate", None)
    (box,) = [box for box in at.selectbox if box.label == "Compare with"]
    at = box.set_value("bm25").run()
    assert problems(at) == []
    frame = table(at, "p, corrected")
    assert frame["p"].tolist()[3] == ""
    assert "ndcg@10 less BM25" in frame
    assert at.query_params["baseline"] == "bm25"


def test_several_vectors_have_their_index_beside_their_quality(open_retrieval):
    at = open_retrieval({state.SEARCH_SEVERAL.key: True})
    assert problems(at) == []
    assert "What more vectors buy" in figures(at)
    frame = table(at, "index (MiB)")
    assert frame["system"].tolist()[-3:] == [
        "Max-sim over landmarks (not trained for it)",
        "Late chunking (not trained for it)",
        "Passages apart (not trained for it)",
    ]
    assert frame["vectors"].tolist()[:3] == [8, 8, 8]
    assert all(count > 8 for count in frame["vectors"].tolist()[3:])
    assert frame["dot products a query"].tolist() == frame["vectors"].tolist()
    # The chunk that answers is told under each of the three.
    names = [trace.get("name") for trace in figures(at)["Which chunk answers?"]["data"]]
    assert {"Max-sim over landmarks", "Late chunking", "Passages apart"} <= set(names)


def test_a_query_shows_its_ranks_the_chunk_its_evidence_and_the_cut(open_retrieval):
    at = open_retrieval({state.SEARCH_QUERY.key: "q5"})
    assert problems(at) == []
    ranks = {metric.label: metric.value for metric in at.metric}
    assert list(ranks) == ["CLS", "Mean", "Landmark (LMK)", "BM25"]
    assert all(rank.isdecimal() or rank == "over 100" for rank in ranks.values())
    text = html(at)
    assert "▼ evidence" in text
    assert "◆ Max-sim over landmarks" in text
    # Three times four sentences do not go into 64 tokens, and the answer stands at 83 %.
    assert '<span class="gone">' in text
    assert "cut off the end" in prose(at)
    assert "the evidence lies in what was cut" in prose(at)
    assert len(at.tabs) == 4
    assert "first words" in at.tabs[0].dataframe[0].value


def test_another_query_begins_at_its_own_right_document(open_retrieval):
    at = open_retrieval({state.SEARCH_QUERY.key: "q1"})

    def box(label: str) -> Any:
        return next(box for box in at.selectbox if box.label == label)

    assert box("Document").value == ("q1", "d1")
    others = [option for option in box("Document").options if not option.startswith("d1 ")]
    at = box("Document").select(others[0]).run()
    assert problems(at) == []
    assert box("Document").value[1] == others[0].partition(" ")[0]
    # The evidence is that of the right document alone.
    assert "▼ evidence" not in html(at)
    at = box("Query").set_value("q2").run()
    assert problems(at) == []
    assert box("Document").value == ("q2", "d2")
    assert "▼ evidence" in html(at)


def test_what_comes_from_outside_is_shown_letter_by_letter(open_retrieval):
    at = open_retrieval({state.SEARCH_QUERY.key: "q5"})
    assert r"\<b\>bold\</b\>" in prose(at)
    assert HOSTILE not in prose(at)
    assert "<b>bold</b>" not in html(at)


def test_queries_can_be_narrowed_to_those_that_were_missed(open_retrieval):
    at = open_retrieval({state.SEARCH_ONLY.key: "missed"})
    assert problems(at) == []
    # Eight documents are all among the first ten.
    assert any("No query is like that" in info.value for info in at.info)


def test_the_python_of_the_page_gives_its_numbers(open_retrieval, monkeypatch):
    at = open_retrieval({state.SEARCH_SEVERAL.key: True})
    monkeypatch.setattr("lmk_viz.retrieval.dataset.sample_dataset", dataset)
    (code,) = at.code
    scope: dict[str, Any] = {}
    exec(compile(code.value, "snippet", "exec"), scope)
    systems = scope["result"].systems
    assert [row.name for row in systems][-4:] == [
        *("max_sim", "late_chunking", "passages"),
        "bm25",
    ]
    shown = table(at, "p, corrected")
    for row, told in zip(systems, shown["mrr@10"], strict=True):
        assert told.startswith(f"{row.overall.metrics['mrr@10'].value:.3f} (")
    tested = [row.overall.p_values.get("ndcg@10") for row in systems]
    assert [p and f"{p.corrected:.4f}" for p in tested] == [
        p or None for p in shown["p, corrected"]
    ]


def test_a_link_opens_its_settings_and_names_what_it_cannot_read(open_retrieval):
    at = open_retrieval(query={"compared": "mean-landmark", "by": "recall@1", "only": "nonsense"})
    assert "only` was left out" in at.warning[0].value
    assert at.session_state["search.poolings"] == (PoolingMode.MEAN, PoolingMode.LANDMARK)
    figure = figures(at)["Which finds the right document?"]
    assert figure["layout"]["xaxis"]["title"]["text"].startswith("recall@1")


def test_without_a_pooling_the_page_says_what_to_do(open_retrieval):
    at = open_retrieval({state.SEARCH_POOLINGS.key: ()})
    assert problems(at) == []
    assert any("Choose at least one pooling" in info.value for info in at.info)


def test_a_long_run_is_forecast_and_waits_for_its_button(open_retrieval, monkeypatch):
    monkeypatch.setattr("lmk_viz.ui.probe_inputs.AUTO_SECONDS", -1.0)
    at = open_retrieval({state.MAX_LENGTH.key: 60})
    assert not figures(at)
    assert "forward passes of up to" in prose(at)
    (button,) = [button for button in at.button if button.label == "Measure"]
    at = button.click().run()
    assert problems(at) == []
    assert "Which finds the right document?" in figures(at)


def test_what_is_taken_away_is_plain_json_and_a_row_a_group(open_retrieval, monkeypatch):
    taken: list[Any] = []
    monkeypatch.setattr("lmk_viz.ui.panels.show_downloads", lambda *parts: taken.append(parts))
    at = open_retrieval({state.SEARCH_SEVERAL.key: True})
    assert problems(at) == []
    ((name, frame, result, figure, _),) = taken
    found = json.loads(json.dumps(result, allow_nan=False))
    assert name == "retrieval"
    assert len(found["per_query"]) == 6
    assert found["per_query"][0]["rank_max_sim"] >= 1
    whole = frame[frame["by"] == "all"]
    assert whole["pooling"].tolist() == [row["pooling"] for row in found["rows"]] + ["bm25"]
    assert whole["mrr@10"].tolist()[0] == found["rows"][0]["mrr@10"]
    assert whole["index_vectors"].tolist()[0] == 8
    assert set(frame["by"]) == {"all", "depth", "length"}
    assert figure.data


def test_stopped_before_the_first_pooling_the_page_says_so(open_retrieval, monkeypatch):
    monkeypatch.setattr("lmk_viz.ui.jobs.JobControl.is_stopped", property(lambda self: True))
    at = open_retrieval({state.MAX_LENGTH.key: 56})
    assert any("No pooling was finished" in info.value for info in at.info)
    assert any("Stopped before the end" in warning.value for warning in at.warning)
    assert not at.exception
    assert any(button.label == "Measure all of it" for button in at.button)


def test_a_wrong_setting_of_the_operator_is_a_message(open_retrieval, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_CACHE_GB", "much")
    at = open_retrieval({state.MAX_LENGTH.key: 52})
    assert not at.exception
    assert "LMK_VIZ_CACHE_GB is 'much'" in at.error[0].value.replace("\\", "")


def test_a_family_is_read_variant_by_variant(open_retrieval, family_folder):
    at = open_retrieval({state.ENCODER.key: str(family_folder), state.SEARCH_SEVERAL.key: True})
    assert problems(at) == []
    assert "variant that was trained for it" in prose(at)
    assert not any("not trained" in name for name in table(at, "index (MiB)")["system"])


def test_another_column_of_depths_is_another_result():
    # Results by depth would else come back as they were under the column before.
    one = dataset()
    other = replace(one, depth=dict.fromkeys(one.queries, 0.9))
    named = replace(one, bins=dict.fromkeys(one.queries, "end"))
    assert len({dataset_key(one), dataset_key(other), dataset_key(named)}) == 3


def test_evidence_is_marked_behind_a_title_that_is_encoded():
    own = dataset()
    query = next(iter(own.queries))
    document = Document("a", "Nine char", "Nine char\n0123456789")
    at_half = replace(own, depth={query: 0.5})
    assert _place_of_evidence(at_half, document, query) == 0.5
    with_titles = replace(at_half, with_titles=True)
    assert _place_of_evidence(with_titles, document, query) == 15 / 20
    assert _place_of_evidence(replace(with_titles, depth={}), document, query) is None
