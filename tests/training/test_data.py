import gzip
import json

import numpy as np
import pandas as pd
import pytest

from lmk_viz.training.data import Pairs, load_pairs, read_rows, save_pairs

ROWS = [
    {"anchor": "which river", "positive": "The Elbe.", "negatives": ["The Oder."]},
    {"anchor": "which hill", "positive": "The Brocken.", "negatives": ["A dune."]},
]


def write(folder, rows, name="pairs.jsonl"):
    file = folder / name
    text = "".join(json.dumps(row) + "\n" for row in rows)
    data = text.encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz", "pairs.parquet"])
def test_pairs_are_read_from_every_kind_of_file(tmp_path, name):
    if name.endswith(".parquet"):
        pd.DataFrame(ROWS).to_parquet(tmp_path / name)
        pairs = load_pairs(tmp_path / name)
    else:
        pairs = load_pairs(write(tmp_path, ROWS, name))
    assert pairs.anchors == ("which river", "which hill")
    assert pairs.positives == ("The Elbe.", "The Brocken.")
    assert pairs.negatives == (("The Oder.",), ("A dune.",))
    assert pairs.scores is None
    assert not pairs.has_vectors


def test_query_and_passage_are_other_names_for_the_columns(tmp_path):
    pairs = load_pairs(write(tmp_path, [{"query": "q", "passage": "p"}] * 2))
    assert pairs.anchors == ("q", "q")
    assert pairs.negatives == ((), ())


def test_what_is_saved_is_what_is_loaded(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2, 3)).astype(np.float32)
    pairs = Pairs(
        ("a", "b"), ("c", "d"), (("e",), ("f",)), np.ones((2, 2), np.float32), vectors, -vectors
    )
    save_pairs(pairs, tmp_path / "p.parquet")
    loaded = load_pairs(tmp_path / "p.parquet")
    assert (loaded.anchors, loaded.positives, loaded.negatives) == (
        pairs.anchors,
        pairs.positives,
        pairs.negatives,
    )
    for name in ("scores", "anchor_vectors", "positive_vectors"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(pairs, name))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no rows"),
        ([{"text": "a"}], "no column 'anchor' or 'query'; it has 'text'"),
        ([{"anchor": "a"}], "no column 'positive' or 'passage'"),
        ([{"anchor": "a", "positive": " "}], "row 1: positive is an empty text"),
        ([{"anchor": 3, "positive": "b"}], "row 1: anchor is int"),
        ([{"anchor": "a", "positive": "b", "negatives": "c"}], "negatives is one text"),
        (
            [
                {"anchor": "a", "positive": "b", "negatives": ["c"]},
                {"anchor": "a", "positive": "b"},
            ],
            "rows have 0 to 1 negatives",
        ),
        ([{"anchor": "a", "positive": "b", "scores": [1.0, 2.0]}], r"scores have shape \(1, 2\)"),
        (
            [
                {"anchor": "a", "positive": "b", "anchor_vector": [1, 2]},
                {"anchor": "a", "positive": "b", "anchor_vector": [1]},
            ],
            "row 2: anchor_vector has not the 2 numbers",
        ),
        (
            [{"anchor": "a", "positive": "b", "anchor_vector": ["x"]}],
            "anchor_vector holds something else than numbers",
        ),
        (
            [{"anchor": "a", "positive": "b", "positive_vector": [float("nan")]}],
            "positive_vectors of row 1 are not finite",
        ),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        load_pairs(write(tmp_path, rows))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"", r"allowed: a file ending in \.jsonl"),
        ("a.jsonl", b"{", "line 1: not JSON"),
        ("a.jsonl", b"[1]\n", "line 1: list came"),
        ("a.jsonl", b"\xff\xfe", "cannot be read as UTF-8"),
        ("a.jsonl.gz", b"no gzip", "cannot be read as UTF-8 JSON lines"),
        ("a.parquet", b"no parquet", "cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(read_rows(tmp_path / name))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.jsonl' is no file"):
        list(read_rows(tmp_path / "gone.jsonl"))


def test_blank_lines_are_no_rows_and_keep_the_count_of_lines(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('\n{"a": 1}\n\nnonsense\n')
    with pytest.raises(ValueError, match="line 4: not JSON"):
        list(read_rows(file))
