"""Facts with their questions: the bundled ones, and those in a file."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmk_viz.documents import SAMPLE_FOLDER, Document, read_document, sample_documents

__all__ = ["NEEDLES_FILE", "Needle", "bundled_fillers", "draw_needles", "load_needles"]

NEEDLES_FILE = SAMPLE_FOLDER / "needles.jsonl"
OTHER_LANGUAGES = "multilingual"
"""A sample in twelve languages, in which an English needle would stand out."""
PROSE = ("the_weighbridge", "town_almanac")


@dataclass(frozen=True, slots=True)
class Needle:
    """A sentence to hide, and what to ask for it."""

    id: str
    fact: str
    question: str

    def __post_init__(self) -> None:
        for name in ("id", "fact", "question"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"a needle's {name} is {value!r}; give a text with words in it.")


def load_needles(path: str | os.PathLike[str] = NEEDLES_FILE) -> tuple[Needle, ...]:
    """Returns the needles of a JSONL file: id, fact and question, one object a line.

    Raises:
        ValueError: when it cannot be read, a line is no such object, or two share an id.
    """
    name = Path(path).name
    needles: list[Needle] = []
    for number, line in enumerate(read_document(path).text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}, line {number} is not JSON: {error.msg}.") from error
        if not isinstance(row, dict) or not {"fact", "question"} <= set(row):
            raise ValueError(
                f"{name}, line {number} has no fact and question; give one JSON object a line "
                "with id, fact and question."
            )
        needles.append(Needle(str(row.get("id", number)), row["fact"], row["question"]))
    if len({needle.id for needle in needles}) != len(needles):
        raise ValueError(f"{name}: two needles share an id; give each one of its own.")
    return tuple(needles)


def draw_needles(needles: tuple[Needle, ...], count: int, seed: int = 0) -> tuple[Needle, ...]:
    """Returns so many needles, drawn without repetition, in their order.

    Raises:
        ValueError: when there are fewer, or none is asked for.
    """
    if not 1 <= count <= len(needles):
        raise ValueError(f"{count} needles are wanted; allowed: 1 to {len(needles)}.")
    chosen = np.random.default_rng(seed).permutation(len(needles))[:count]
    return tuple(needles[i] for i in sorted(chosen.tolist()))


def bundled_fillers(count: int | None = None) -> tuple[Document, ...]:
    """Returns so many of the bundled long English texts, or all of them.

    Raises:
        ValueError: when there are fewer, or none is asked for.
    """
    texts = [document for document in sample_documents() if document.id != OTHER_LANGUAGES]
    # Even prose first; the transcript's many speakers and the listings of code after it.
    texts.sort(key=lambda document: (document.id not in PROSE, document.id))
    wanted = len(texts) if count is None else count
    if not 1 <= wanted <= len(texts):
        raise ValueError(f"{wanted} fillers are wanted; allowed: 1 to {len(texts)} bundled ones.")
    return tuple(texts[:wanted])
