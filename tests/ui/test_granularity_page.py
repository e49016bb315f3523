"""The granularity page: data set, settings, recommendation, what is taken away, its messages."""

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import PoolingMode
from lmk_viz.ui import cache, state
from lmk_viz.ui.jobs import Job

PAGE = "pages/5_Granularity.py"
WORDS = ("rivers", "hills", "rain", "stones", "landmarks", "vectors", "documents", "tokens")
TEXTS = {
    f"d{i}": f"A text of {word} begins here. The middle of it says a lot of {word} too. At its end "
    f"there stands {word} again. And then it is over."
    for i, word in enumerate(WORDS * 2)
}
DOCUMENTS = "id,text\n" + "".join(f'{name},"{text}"\n' for name, text in TEXTS.items())
QUERIES = "question,doc_id\n" + "".join(f"what of {WORDS[i % 8]} {i},d{i}\n" for i in range(16))

OpenPage = Callable[..., AppTest]


@pytest.fixture
def choices(tiny_folder, monkeypatch, tmp_path) -> dict[str, Any]:
    """The smallest sweep that compares anything."""
    monkeypatch.setenv("LMK_VIZ_CACHE_DIR", str(tmp_path))
    return {
        state.ENCODER.key: str(tiny_folder),
        state.MAX_LENGTH.key: 64,
        state.DATASET.key: "tables",
        state.SWEEP_POOLINGS.key: (PoolingMode.MEAN, PoolingMode.LANDMARK),
        state.SWEEP_SIZES.key: (4, 16),
        state.SWEEP_VARIABLE.key: False,
        state.SWEEP_SENTENCE.key: False,
    }


@pytest.fixture
def sweep_of(open_page: OpenPage, choices: dict[str, Any]) -> Callable[..., AppTest]:
    """`sweep_of(files, more)`: the page after uploads, one for each uploader that is drawn."""

    def sweep_of_(*files: tuple[str, str | bytes], more: Any = None, query: Any = None) -> AppTest:
        at = open_page(PAGE, {**choices, **(more or {})}, query)
        for number, (name, data) in enumerate(files):
            content = data.encode() if isinstance(data, str) else data
            uploader, typed = at.file_uploader[number], (name, content, "text/csv")
            uploader.set_value([typed] if uploader.proto.multiple_files else typed)
        return at.run() if files else at

    return sweep_of_


@pytest.fixture
def both(sweep_of) -> AppTest:
    return sweep_of(("docs.csv", DOCUMENTS), ("queries.csv", QUERIES))


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def prose(at: AppTest) -> str:
    parts = (*at.markdown, *at.caption, *at.info, *at.success)
    return "\n".join(e.value for e in parts).replace("\\", "")


def figure(at: AppTest) -> dict[str, Any]:
    (element,) = at.get("plotly_chart")
    assert element.proto.alt
    found: dict[str, Any] = json.loads(element.proto.spec)
    return found


def test_two_tables_lead_to_a_sweep_and_a_recommendation(both):
    assert problems(both) == []
    assert "docs.csv** · 16 documents" in prose(both)
    assert "16 queries" in prose(both)
    assert "The data cannot tell" in prose(both) or "Take " in prose(both)
    names = [trace["name"] for trace in figure(both)["data"]]
    assert names[0].startswith("Mean")
    assert names[1].startswith("Landmark (LMK)")
    table = both.dataframe[0].value
    assert table["setting"].tolist() == ["Mean *", "Landmark (LMK), 4 *", "Landmark (LMK), 16 *"]
    assert "not trained for any pooling" in prose(both)


def test_the_scripts_of_the_page_run_and_give_its_numbers(both, tmp_path, monkeypatch):
    apply, reproduce = (block.value for block in both.code)
    scope: dict[str, Any] = {}
    exec(apply, scope)
    assert scope["scores"].shape == (1, 2)
    (tmp_path / "docs.csv").write_text(DOCUMENTS)
    (tmp_path / "queries.csv").write_text(QUERIES)
    monkeypatch.chdir(tmp_path)
    exec(reproduce, scope)
    shown = both.dataframe[0].value["nDCG@10"]
    again = [scope["sweep"].interval(row, "ndcg@10").value for row in scope["sweep"].rows]
    np.testing.assert_allclose([float(cell.split()[0]) for cell in shown], again, atol=6e-4)


def test_another_measure_and_baseline_need_no_new_run(both, monkeypatch):
    monkeypatch.setattr(cache, "start_probe", lambda *_: pytest.fail("measured anew"))
    both.button_group[0].set_value("mrr@10").run()
    assert figure(both)["layout"]["yaxis"]["title"]["text"] == "MRR@10 (0 to 1)"
    baseline = next(box for box in both.selectbox if box.label == "Differences are taken to")
    baseline.set_value("landmark:4").run()
    assert problems(both) == []
    assert "MRR@10 minus Landmark (LMK), 4" in both.dataframe[0].value.columns
    assert both.query_params["against"] in ("landmark:4", ["landmark:4"])


def test_documents_alone_are_asked_for_by_their_sentences_and_the_page_says_so(sweep_of):
    more = {state.DATASET.key: "documents", state.DATA_PLACE.key: "end"}
    at = sweep_of(("docs.csv", DOCUMENTS), more=more)
    assert problems(at) == []
    assert "The queries were made: one sentence was taken out of each document" in prose(at)
    assert figure(at)["data"]
    assert "dataset_from_documents(corpus, 'end', 0, False)" in at.code[1].value
    compile(at.code[1].value, "snippet", "exec")


def test_an_archive_in_beir_layout_is_read(sweep_of):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        rows = [{"_id": name, "title": "", "text": text} for name, text in TEXTS.items()]
        archive.writestr("mine/corpus.jsonl", "\n".join(map(json.dumps, rows)))
        archive.writestr("mine/queries.jsonl", json.dumps({"_id": "q", "text": "what of rain"}))
        archive.writestr("mine/qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td2\t1\n")
    at = sweep_of(("mine.zip", stream.getvalue()), more={state.DATASET.key: "beir"})
    assert problems(at) == []
    assert "Fewer than 10 queries tell nothing" in prose(at)
    assert "dataset = open_dataset('mine.zip', None, 'test', False)" in at.code[1].value


@pytest.mark.parametrize("kind", ["tables", "documents", "beir"])
def test_nothing_chosen_yet_is_a_worded_stop(sweep_of, kind):
    at = sweep_of(more={state.DATASET.key: kind})
    assert problems(at) == []
    assert at.info
    assert len(at.get("plotly_chart")) == 0


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ("question,doc_id\nwhat,zz\n", "row 1: document 'zz' is not in docs.csv"),
        ("question\nwhat\n", "expected one with queries and one with the id"),
        ("", "queries.csv is empty"),
    ],
)
def test_queries_that_cannot_be_used_are_refused_in_words(sweep_of, queries, words):
    at = sweep_of(("docs.csv", DOCUMENTS), ("queries.csv", queries))
    assert len(at.exception) == 0
    assert words in at.error[0].value.replace("\\", "")


def test_no_pooling_and_nothing_to_sweep_over_are_worded_stops(sweep_of):
    files = (("docs.csv", DOCUMENTS), ("queries.csv", QUERIES))
    none = sweep_of(*files, more={state.SWEEP_POOLINGS.key: ()})
    assert (problems(none), none.info[0].value) == ([], "Choose at least one pooling above.")
    more = {state.SWEEP_POOLINGS.key: (PoolingMode.LANDMARK,), state.SWEEP_SIZES.key: ()}
    assert "nothing to sweep over" in sweep_of(*files, more=more).error[0].value


def test_a_stop_keeps_the_rows_there_are_and_offers_the_rest(sweep_of, monkeypatch):
    def stopped(key: str, run: Callable[..., Any]) -> Job[Any]:
        def until_some(control: Any) -> Any:
            report = control.report

            def count(done: int, total: int) -> None:
                report(done, total)
                if done > total // 2:
                    control.stop()

            control.report = count
            return run(control)

        return cache._store("probes", 24).get(key, lambda: Job(until_some, "probe"))

    monkeypatch.setattr(cache, "start_probe", stopped)
    # Another limit than the other tests', whose results the process still holds.
    files = (("docs.csv", DOCUMENTS), ("queries.csv", QUERIES))
    at = sweep_of(*files, more={state.MAX_LENGTH.key: 48})
    assert "Stopped before the end" in at.warning[0].value
    assert 1 <= len(at.dataframe[0].value) < 3
    monkeypatch.undo()
    next(button for button in at.button if button.label == "Measure all of it").click().run()
    assert problems(at) == []
    assert len(at.dataframe[0].value) == 3


def test_a_link_brings_the_settings_and_never_a_column(sweep_of):
    at = sweep_of(
        ("docs.csv", DOCUMENTS), ("queries.csv", QUERIES), query={"sizes": "8", "query_g": "4"}
    )
    assert problems(at) == []
    assert at.dataframe[0].value["setting"].tolist() == ["Mean *", "Landmark (LMK), 8 *"]
    assert {"doc_id", "question"}.isdisjoint(str(at.query_params))


def test_what_was_uploaded_is_escaped(sweep_of):
    at = sweep_of(("a*b*<i>.csv", DOCUMENTS), ("queries.csv", QUERIES))
    assert problems(at) == []
    assert any(r"a\*b\*\<i\>\.csv" in e.value for e in at.markdown)
    assert "&lt;i&gt;" in figure(at)["layout"]["title"]["subtitle"]["text"]


def test_a_long_run_is_forecast_and_waits_for_its_button(sweep_of, monkeypatch):
    monkeypatch.setattr("lmk_viz.ui.probe_inputs.AUTO_SECONDS", -1.0)
    files = (("docs.csv", DOCUMENTS), ("queries.csv", QUERIES))
    at = sweep_of(*files, more={state.MAX_LENGTH.key: 40})
    # Sixteen documents, a pass for the mean and one for each granularity.
    assert "48 forward passes of up to 40 tokens" in prose(at)
    assert len(at.get("plotly_chart")) == 0
    next(button for button in at.button if button.label == "Measure").click().run()
    assert problems(at) == []
    assert figure(at)["data"]


def test_more_documents_than_an_operator_allows_are_drawn_and_said(sweep_of, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_MAX_DOCUMENTS", "12")
    at = sweep_of(("docs.csv", DOCUMENTS), ("queries.csv", QUERIES))
    assert problems(at) == []
    assert "12 of 16 documents and 12 of 16 queries, drawn with seed 0" in prose(at)
    assert "dataset = limit_dataset(dataset, 12)" in at.code[1].value
