"""Held-out passages: text that the bundled encoders never saw, for building test documents."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lmk_viz.retrieval.records import read_records, take_text

__all__ = ["HELD_OUT_FILE", "Passage", "held_out_ids", "load_passages"]

HELD_OUT_FILE = Path(__file__).with_name("held_out_passages.jsonl.gz")
"""Passages that training leaves out; HELD_OUT.md beside it says where they come from."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A run of prose out of a longer work."""

    id: str
    doc: str
    """The work it comes from; several passages can share it."""
    title: str
    text: str


def load_passages(path: str | os.PathLike[str] = HELD_OUT_FILE) -> tuple[Passage, ...]:
    """Returns the passages of a JSONL file, plain or gzipped, in its order.

    Args:
        path: one object a line with `id`, `text` and, where known, `doc` and `title`. A
            passage without `doc` counts as a work of its own.

    Raises:
        ValueError: when the file cannot be read, holds no passage, an empty text or an id
            twice; the message names the line.
    """
    file = Path(path)
    found: dict[str, Passage] = {}
    for place, record in read_records(file):
        name = take_text(record, "id", place)
        text = take_text(record, "text", place)
        if name in found:
            raise ValueError(f"{place}: id {name!r} came before; expected each id once.")
        if not text.strip():
            raise ValueError(f"{place}: the text of {name!r} is empty; leave the line out.")
        doc = take_text(record, "doc", place, default=name)
        found[name] = Passage(name, doc, take_text(record, "title", place, default=""), text)
    if not found:
        raise ValueError(f"{file} holds no passage; expected one JSON object a line.")
    return tuple(found.values())


@lru_cache(maxsize=1)
def held_out_ids() -> frozenset[str]:
    """Returns the ids of the bundled held-out passages, which training has to leave out."""
    return frozenset(passage.id for passage in load_passages())
