import gzip
import hashlib
import json

import pytest

from lmk_viz.retrieval.passages import HELD_OUT_FILE, Passage, held_out_ids, load_passages


def test_held_out_passages_are_whole_articles_chosen_by_their_hash():
    passages = load_passages()
    assert len(passages) == 1177
    digests = {int(hashlib.sha256(p.doc.encode()).hexdigest(), 16) % 8 for p in passages}
    assert digests == {0}


def test_held_out_ids_name_every_passage():
    assert held_out_ids() == {passage.id for passage in load_passages()}


def test_the_attribution_stands_beside_the_passages_and_counts_them():
    note = HELD_OUT_FILE.with_name("HELD_OUT.md").read_text(encoding="utf-8")
    passages = load_passages()
    works = len({passage.doc for passage in passages})
    words = sum(len(passage.text.split()) for passage in passages)
    for wanted in (f"{len(passages):,}", f"{works:,}", f"{words:,} words"):
        assert wanted in note
    assert "Creative Commons Attribution-ShareAlike 4.0" in note
    assert "Changes made" in note


def test_the_archive_holds_no_time_of_its_making():
    assert HELD_OUT_FILE.read_bytes()[4:8] == bytes(4)


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_a_passage_needs_an_id_and_a_text_only(tmp_path):
    file = write(tmp_path / "p.jsonl", [{"id": "a", "text": "x", "more": 1}])
    assert load_passages(file) == (Passage("a", "a", "", "x"),)
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert load_passages(packed) == load_passages(file)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"id": "a", "text": "x"}] * 2, "line 2: id 'a' came before"),
        ([{"id": "a", "text": " "}], "line 1: the text of 'a' is empty"),
        ([{"text": "x"}], "line 1: 'id' is missing"),
        ([{"id": "a", "text": "x", "doc": 3}], "line 1: 'doc' is int"),
        ([], "holds no passage"),
    ],
)
def test_a_bad_passage_is_named_with_its_line(records, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_passages(write(tmp_path / "p.jsonl", records))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.jsonl does not exist"):
        load_passages(tmp_path / "nowhere.jsonl")
