import json

import numpy as np
import pandas as pd
import pytest

from lmk_viz.__main__ import main
from lmk_viz.config import PoolingMode
from lmk_viz.files import write_text
from lmk_viz.map_table import coordinates_frame, load_vectors, write_frame
from lmk_viz.maps import build_map

CLS, LMK = PoolingMode.CLS, PoolingMode.LANDMARK


def frame_of(n: int = 12, **changes: object) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {
        "id": [f"d{i}" for i in range(n)],
        "title": [f"title {i}" for i in range(n)],
        "label": ["xy"[i % 2] for i in range(n)],
        "tokens": [i * 10 for i in range(n)],
        "year": [2000 + i for i in range(n)],
        "cls": list(rng.normal(size=(n, 4)).astype(np.float32)),
        "landmark": list(rng.normal(size=(n, 6)).astype(np.float32)),
    }
    return pd.DataFrame({k: v for k, v in {**columns, **changes}.items() if v is not None})


@pytest.fixture
def stored(tmp_path):
    def stored_(frame: pd.DataFrame) -> str:
        file = tmp_path / "vectors.parquet"
        frame.to_parquet(file, index=False)
        return str(file)

    return stored_


def test_a_file_of_vectors_gives_documents_and_tables(stored):
    table = load_vectors(stored(frame_of()))
    assert (len(table), table.ids[:2], table.labels[:2]) == (12, ("d0", "d1"), ("x", "y"))
    assert {mode: rows.shape for mode, rows in table.vectors.items()} == {
        CLS: (12, 4),
        LMK: (12, 6),
    }
    assert table.tokens.tolist() == [i * 10 for i in range(12)]
    assert "cls" not in table.frame
    np.testing.assert_array_equal(table.vectors[CLS][3], frame_of()["cls"][3])


def test_only_wanted_poolings_are_read_in_the_order_they_are_wanted(stored):
    assert list(load_vectors(stored(frame_of()), [LMK, CLS]).vectors) == [LMK, CLS]


def test_rows_without_a_usable_vector_are_left_out_by_name(stored):
    vectors = list(np.ones((5, 3), np.float32) * np.arange(1, 6)[:, None].astype(np.float32))
    vectors[1] = None
    vectors[2] = np.ones(2, np.float32)
    vectors[4] = np.array([1, np.nan, 1], np.float32)
    table = load_vectors(stored(frame_of(5, cls=vectors, landmark=None)))
    assert table.ids == ("d0", "d3")
    assert [(e.id, e.reason) for e in table.excluded] == [
        ("d1", "no vector under cls"),
        ("d2", "a vector of 2 numbers, not 3, under cls"),
        ("d4", "a vector that is not finite (NaN or inf) under cls"),
    ]


def test_a_file_without_ids_labels_or_lengths_is_numbered(stored):
    table = load_vectors(stored(frame_of(4, id=None, label=None, tokens=None)))
    assert table.ids == ("row-1", "row-2", "row-3", "row-4")
    assert table.labels == (None,) * 4
    assert table.tokens is None


@pytest.mark.parametrize(
    ("frame", "poolings", "words"),
    [
        (frame_of(3, cls=None, landmark=None), None, "no vectors under any pooling"),
        (frame_of(3), [PoolingMode.MEAN], "no vectors under mean"),
    ],
    ids=["none", "another"],
)
def test_a_pooling_that_is_not_there_is_named_with_the_columns(stored, frame, poolings, words):
    with pytest.raises(ValueError, match=rf"{words}; its columns are id, title"):
        load_vectors(stored(frame), poolings)


def test_a_file_that_is_not_there_or_no_parquet_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not exist; `embed` writes such files"):
        load_vectors(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        load_vectors(tmp_path / "bad.parquet")


def test_a_column_that_is_not_there_is_named(stored):
    with pytest.raises(ValueError, match=r"no column 'size'; the table has id, title"):
        load_vectors(stored(frame_of())).column("size")


def test_coordinates_stand_beside_what_is_known_of_a_document(stored):
    table = load_vectors(stored(frame_of()))
    found = build_map(table.vectors, table.labels)
    frame = coordinates_frame(table, found)
    assert list(frame.columns) == [
        *("id", "title", "label", "tokens", "year"),
        *("cls_x", "cls_y", "landmark_x", "landmark_y"),
    ]
    np.testing.assert_array_equal(frame["cls_x"], found.panels[0].points[:, 0])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_is_written_whole_or_not_at_all(tmp_path, suffix):
    file = tmp_path / f"t{suffix}"
    write_frame(pd.DataFrame({"a": [1]}), file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    with pytest.raises(ValueError, match="cannot be written"):
        write_text("x", tmp_path / "none" / "t.html")


# The verb.


def test_project_writes_a_page_coordinates_and_numbers(stored, tmp_path, capsys):
    target = tmp_path / "map.html"
    status = main(["project", stored(frame_of()), "--output", str(target), "--json"])
    out = capsys.readouterr().out
    result = json.loads(out)
    assert status == 0
    assert result["documents"] == 12
    assert {panel["pooling"] for panel in result["panels"]} == {"cls", "landmark"}
    csv = pd.read_csv(tmp_path / "map.coordinates.csv")
    parquet = pd.read_parquet(tmp_path / "map.coordinates.parquet")
    np.testing.assert_allclose(csv["cls_x"], parquet["cls_x"])
    numbers = pd.read_parquet(tmp_path / "map.numbers.parquet")
    assert {"purity", "cka", "overlap"} <= set(numbers["number"])
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_project_says_its_findings_in_words(stored, tmp_path, capsys):
    assert main(["project", stored(frame_of()), "--output", str(tmp_path / "m.html")]) == 0
    assert "12 documents under cls, landmark" in capsys.readouterr().out


def test_project_measures_stability_where_it_is_asked_to(stored, tmp_path):
    source = stored(frame_of(20))
    settings = ["--output", str(tmp_path / "m.html"), "--method", "umap", "--stability", "2"]
    assert main(["project", source, *settings]) == 0
    numbers = pd.read_csv(tmp_path / "m.numbers.csv")
    assert numbers[numbers["number"] == "stability"]["pooling"].tolist() == ["cls", "landmark"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--output", "map.txt"], "ends in .html"),
        (["--output", "none/map.html"], "its folder does not exist"),
        (["--output", "map.html", "--colour", "size"], "no column 'size'"),
        (["--output", "map.html", "--metric", "l3"], "metric is 'l3'; allowed: cosine"),
        (["--output", "map.html", "--pooling", "mean"], "no vectors under mean"),
        (["--output", "map.html", "--stability", "1"], "seeds is 1"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_project_refuses_what_it_cannot_do_in_one_line(
    stored, options, words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["project", stored(frame_of()), *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_project_says_why_two_documents_are_no_map(stored, tmp_path, capsys):
    assert main(["project", stored(frame_of(2)), "--output", str(tmp_path / "m.html")]) == 2
    assert "nothing can be drawn: 2 distinct documents: too few" in capsys.readouterr().err
