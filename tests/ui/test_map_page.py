"""The map page on a tiny encoder: corpora, selections, colours, neighbours, numbers."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import PoolingMode, ProjectionMethod
from lmk_viz.corpus import CorpusTable
from lmk_viz.ui import cache, state
from lmk_viz.ui.map_linked import parse_rows
from lmk_viz.ui.text import escape_markdown

MAP = "pages/3_Embedding_map.py"
NOUNS = (
    *("river", "harbour", "stone", "market", "lantern", "winter", "copper", "orchard"),
    *("bridge", "signal", "kettle", "meadow", "ferry", "archive", "pilot", "window"),
)
OpenPage = Callable[..., AppTest]


def rows(count: int = 8, **more: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"d{i}",
            "title": f"about {noun}",
            "text": f"the {noun} is near " * (1 + i),
            "label": "xy"[i % 2],
            **{name: values[i] for name, values in more.items()},
        }
        for i, noun in enumerate(NOUNS[:count])
    ]


def table(rows_: Sequence[Mapping[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows_).encode()


@pytest.fixture
def choices(tiny_folder: Path) -> dict[str, Any]:
    """The smallest map: a tiny encoder, two poolings, components, an upload."""
    return {
        state.ENCODER.key: str(tiny_folder),
        state.MAX_LENGTH.key: 32,
        state.GRANULARITY.key: 4,
        state.METHOD.key: ProjectionMethod.PCA,
        state.POOLINGS.key: (PoolingMode.CLS, PoolingMode.LANDMARK),
        state.CORPUS.key: state.UPLOADED,
    }


@pytest.fixture
def map_of(open_page: OpenPage, choices: dict[str, Any]) -> Callable[..., AppTest]:
    """`map_of(files, choices)`: the page after an upload; one file may be given as bytes."""

    def map_of_(
        files: bytes | list[tuple[str, bytes]] | None, more: Mapping[str, Any] | None = None
    ) -> AppTest:
        at = open_page(MAP, {**choices, **(more or {})})
        if files is None:
            return at
        named = [("table.jsonl", files)] if isinstance(files, bytes) else files
        at.file_uploader[0].set_value([(n, d, "application/octet-stream") for n, d in named])
        return at.run()

    return map_of_


def problems(at: AppTest) -> list[str]:
    return [e.value for e in (*at.exception, *at.error, *at.warning)]


def figures(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(element.proto.spec) for element in at.get("plotly_chart")]


def frame_with(at: AppTest, column: str) -> pd.DataFrame:
    return next(f.value for f in at.dataframe if column in f.value.columns)


def prose(at: AppTest) -> str:
    return "\n".join(e.value for e in (*at.markdown, *at.caption))


def unpacked(values: Any) -> list[int]:
    """Numbers of a figure, packed or not."""
    if isinstance(values, dict):
        import base64

        return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()
    return list(values)


def chosen_rows(figure: Mapping[str, Any]) -> set[int]:
    """Rows that a panel brings out."""
    found = set()
    for trace in figure["data"]:
        if trace.get("selectedpoints") is not None:
            data = unpacked(trace["customdata"])
            found |= {data[place] for place in unpacked(trace["selectedpoints"])}
    return found


# Uploads.


def test_a_table_is_drawn_with_its_numbers_and_a_sentence(map_of):
    at = map_of(table(rows()))
    assert problems(at) == []
    assert len(figures(at)) == 2
    assert "What the numbers allow to say" in prose(at)
    names = frame_with(at, "number")["number"].tolist()
    assert names[:3] == [
        "Neighbours with the same label",
        "Silhouette of labels",
        "Trustworthiness of the map",
    ]


def test_columns_of_any_name_are_guessed_and_can_be_changed(map_of):
    data = b"Body,kind,other\n" + b"".join(
        f"the {n} is near,{'ab'[i % 2]},{n} here\n".encode() for i, n in enumerate(NOUNS[:6])
    )
    at = map_of([("t.csv", data)])
    assert problems(at) == []
    assert {trace["name"] for trace in figures(at)[0]["data"]} == {"no label"}
    at.selectbox(key="_map.label_column").set_value("kind").run()
    assert {trace["name"] for trace in figures(at)[0]["data"]} == {"a", "b"}
    at.selectbox(key="_map.text_column").set_value("other").run()
    assert frame_with(at, "begins")["begins"][0] == "river here"


def test_a_table_shows_its_first_rows(map_of):
    at = map_of(table(rows()))
    assert at.table[0].value.shape[0] == 3


def test_folders_of_a_zip_are_labels(map_of):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i, noun in enumerate(NOUNS[:6]):
            archive.writestr(f"{'ab'[i % 2]}/{noun}.txt", f"the {noun} is near")
        archive.writestr("a/picture.png", b"\x89PNG")
    at = map_of([("texts.zip", buffer.getvalue())])
    assert problems(at) == []
    assert {trace["name"] for trace in figures(at)[0]["data"]} == {"a", "b"}
    assert frame_with(at, "reason").to_dict("records") == [
        {"id": "a/picture.png", "reason": "not a .md or .txt file"}
    ]


def test_several_texts_are_a_corpus(map_of):
    at = map_of([(f"{n}.txt", f"the {n} is near".encode()) for n in NOUNS[:5]])
    assert problems(at) == []
    assert len(frame_with(at, "begins")) == 5


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("t.zip", b"PK\x03\x04")], "cannot be read as a ZIP archive"),
        ([("t.csv", b"text\nx"), ("a.txt", b"x")], "came with 1 more"),
        ([("t.csv", b"")], "is empty (0 bytes)"),
        ([("t.csv", b"a,b\n")], "has no rows"),
        ([("t.csv", "id,text\n1,Köln".encode("latin-1"))], "is not text in UTF-8"),
    ],
    ids=["damaged", "mixed", "empty", "no rows", "latin-1"],
)
def test_an_upload_that_cannot_be_read_is_refused_in_words(map_of, files, words):
    at = map_of(files)
    assert [escape_markdown(words) in e.value for e in at.error] == [True], problems(at)


def test_more_rows_than_the_limit_are_drawn_with_a_seed_and_said_so(map_of, monkeypatch):
    monkeypatch.setenv("LMK_VIZ_MAX_DOCUMENTS", "5")
    at = map_of(table(rows()))
    assert problems(at) == []
    assert len(frame_with(at, "begins")) == 5
    assert escape_markdown("5 of 8 documents, drawn with seed 0.") in prose(at)
    before = frame_with(at, "begins")["id"].tolist()
    at.number_input(key="_map.row_seed").set_value(1).run()
    assert frame_with(at, "begins")["id"].tolist() != before


def test_an_upload_holds_over_another_page(map_of):
    at = map_of(table(rows()))
    at.switch_page("pages/1_Landmarks.py").run()
    at.switch_page(MAP).run()
    assert (problems(at), len(figures(at))) == ([], 2)


# Data sets.


def load_set(at: AppTest) -> None:
    """Names a data set and presses the button."""
    next(t for t in at.text_input if t.label.startswith("Data set")).set_value("some/set")
    next(b for b in at.button if b.label == "Load").click().run()


def test_a_hub_data_set_is_fetched_only_when_asked_for(open_page, choices, monkeypatch):
    fetched = []

    def fetch(source: Any, limit: int, seed: int) -> CorpusTable:
        fetched.append((source.name, source.split, limit, seed))
        return CorpusTable("some/set (train)", tuple(rows()))

    monkeypatch.setattr(cache, "get_hub_table", fetch)
    at = open_page(MAP, {**choices, state.CORPUS.key: "hub"})
    assert fetched == []
    assert ["nothing is fetched before" in e.value for e in at.info] == [True]
    load_set(at)
    assert set(fetched) == {("some/set", "train", 2000, 0)}
    assert (problems(at), len(figures(at))) == ([], 2)
    assert "stream shuffled with seed 0" in prose(at).replace("\\", "")


def test_a_hub_data_set_that_cannot_be_had_is_told_in_words(open_page, choices, monkeypatch):
    def refuse(*_: Any) -> None:
        raise ValueError("data sets of the hub need the package datasets")

    monkeypatch.setattr(cache, "get_hub_table", refuse)
    at = open_page(MAP, {**choices, state.CORPUS.key: "hub"})
    load_set(at)
    assert ["need the package datasets" in e.value for e in at.error] == [True]
    assert not at.exception


def test_newsgroups_without_a_network_are_told_in_words(open_page, choices, monkeypatch):
    def refuse(*_: Any) -> None:
        raise ValueError("20 newsgroups is not on this machine and cannot be fetched")

    monkeypatch.setattr(cache, "get_newsgroups", refuse)
    at = open_page(MAP, {**choices, state.CORPUS.key: "newsgroups"})
    assert ["cannot be fetched" in e.value for e in at.error] == [True]


# Selections.


def test_what_is_selected_stands_out_in_every_panel_and_alone_in_the_table(map_of):
    at = map_of(table(rows()), {state.SELECTED.key: ("d2", "d5", "gone")})
    assert problems(at) == []
    assert [chosen_rows(figure) for figure in figures(at)] == [{2, 5}, {2, 5}]
    assert frame_with(at, "begins")["id"].tolist() == ["d2", "d5"]
    assert "2 of 8 documents selected" in prose(at)


def test_clearing_brings_all_documents_back(map_of):
    at = map_of(table(rows()), {state.SELECTED.key: ("d2",)})
    at.button(key="map.clear").click().run()
    assert [chosen_rows(figure) for figure in figures(at)] == [set(), set()]
    assert len(frame_with(at, "begins")) == 8


def test_a_selection_fits_and_embeds_nothing(map_of, monkeypatch):
    at = map_of(table(rows()))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was computed again")

    monkeypatch.setattr("lmk_viz.maps.build_map", refuse)
    monkeypatch.setattr("lmk_viz.embedding.embed_documents", refuse)
    at.session_state[state.SELECTED.key] = ("d1",)
    assert (problems(at.run()), chosen_rows(figures(at)[0])) == ([], {1})


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        ({"selection": {"points": [{"customdata": 3}, {"customdata": [1]}]}}, (1, 3)),
        ({"selection": {"points": [{"customdata": 3}, {"customdata": 3.0}]}}, (3,)),
        ({"selection": {"points": []}}, ()),
        ({"selection": {"points": [{"customdata": v} for v in (-1, 9, "2", None, 1.5, True)]}}, ()),
        ({"selection": {"points": [None, 4, {}]}}, ()),
        ({}, ()),
        (None, ()),
    ],
    ids=["rows", "twice", "none", "foreign", "no points", "empty", "nothing"],
)
def test_rows_of_an_event_are_read_and_nothing_else(event, wanted):
    assert parse_rows(event, 9) == wanted


# Colours.


def test_any_column_colours_the_map(map_of):
    at = map_of(table(rows(year=[2000 + i for i in range(8)])))
    for name, is_scale in (("tokens", True), ("year", True), ("cut", False), ("label", False)):
        at.selectbox(key="_map.colour").set_value(name).run()
        data = figures(at)[0]["data"]
        assert (problems(at), "colorbar" in data[0]["marker"]) == ([], is_scale), name


def test_a_colour_stands_in_the_address(map_of):
    at = map_of(table(rows()))
    at.selectbox(key="_map.colour").set_value("tokens").run()
    assert at.query_params["colour"] in ("tokens", ["tokens"])


def test_a_colour_of_another_corpus_gives_way_to_the_label(map_of):
    at = map_of(table(rows()), {state.COLOUR.key: "year"})
    assert (problems(at), at.selectbox(key="_map.colour").value) == ([], "label")


# Neighbours.


def test_neighbours_of_a_document_are_listed_under_each_pooling(map_of):
    at = map_of(table(rows(12)), {state.FOCUS.key: "d3"})
    frame = at.dataframe[1].value
    assert list(frame.columns) == ["", "CLS", "Landmark (LMK)"]
    assert len(frame) == 10
    shared = [cell.removeprefix("● ") for cell in frame["CLS"] if cell.startswith("● ")]
    assert f"{len(shared)} of 10" in prose(at)
    assert not any("about market" in cell for cell in frame["CLS"])


def test_a_document_can_be_chosen_without_a_pointer(map_of):
    at = map_of(table(rows()))
    at.selectbox(key="_map.focus").set_value("d1").run()
    assert (problems(at), len(at.dataframe[1].value)) == ([], 7)


# Landmark states.


def test_landmark_states_of_the_selection_are_drawn_in_their_panel(map_of):
    at = map_of(table(rows()), {state.SELECTED.key: ("d0", "d4"), state.LANDMARK_POINTS.key: True})
    names = [[trace["name"] for trace in figure["data"]] for figure in figures(at)]
    assert problems(at) == []
    assert ["landmarks" in panel for panel in names] == [False, True]
    states = figures(at)[1]["data"][-1]
    assert set(unpacked(states["customdata"])) == {0, 4}
    assert "no one space" in prose(at)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "Select 1 to 20 documents"),
        (
            {state.SELECTED.key: ("d1",), state.METHOD.key: ProjectionMethod.TSNE},
            "no way to put further vectors",
        ),
        (
            {state.SELECTED.key: ("d1",), state.POOLINGS.key: (PoolingMode.CLS,)},
            "in the landmark panel alone",
        ),
    ],
    ids=["none selected", "t-SNE", "no landmark panel"],
)
def test_where_no_landmark_state_can_be_drawn_the_reason_is_said(map_of, more, words):
    at = map_of(table(rows()), {state.LANDMARK_POINTS.key: True, **more})
    assert problems(at) == []
    assert words in prose(at)


# Numbers.


def test_poolings_are_set_against_each_other_in_two_tables(map_of):
    at = map_of(table(rows()))
    matrices = [f.value for f in at.dataframe if list(f.value.index) == ["CLS", "Landmark (LMK)"]]
    assert [m.shape for m in matrices] == [(2, 2), (2, 2)]
    assert all(m.iloc[0, 0] == "1" for m in matrices)
    assert all(m.iloc[0, 1] == m.iloc[1, 0] for m in matrices)


def test_stability_is_measured_on_request(map_of):
    more = {state.METHOD.key: ProjectionMethod.TSNE}
    at = map_of(table(rows(12)), more)
    assert "Stability of the map" not in frame_with(at, "number")["number"].tolist()
    at.toggle(key="_map.stability").set_value(True).run()
    frame = frame_with(at, "number").set_index("number")
    assert problems(at) == []
    assert frame.loc["Stability of the map", "CLS"] != "-"


def test_a_corpus_without_labels_says_what_it_cannot_say(map_of):
    plain = [{key: row[key] for key in ("id", "title", "text")} for row in rows()]
    at = map_of(table(plain))
    assert problems(at) == []
    assert "Without labels nothing here says" in prose(at)


def test_three_documents_have_numbers_and_no_panel(map_of):
    at = map_of(table(rows(3)))
    more = map_of(table(rows(3)), {state.METHOD.key: ProjectionMethod.UMAP})
    assert (problems(at), problems(more), figures(more)) == ([], [], [])


@pytest.mark.parametrize("metric", ["euclidean", "correlation"])
def test_another_metric_moves_the_points_and_no_number_of_the_space(map_of, metric):
    before = map_of(table(rows()))
    after = map_of(table(rows()), {state.METRIC.key: metric})
    assert problems(after) == []
    ours = [frame_with(at, "number").iloc[0].tolist() for at in (before, after)]
    assert ours[0] == ours[1]


def test_the_map_can_be_taken_away_as_a_page(map_of):
    at = map_of(table(rows()))
    labels = [button.proto.label for button in at.get("download_button")]
    assert "The map as a page (HTML, linked panels, works offline)" in labels
