"""From a file to pairs that can be trained on: passages cut, teacher vectors added."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.data import ANCHORS, Pairs, pairs_from_rows, read_rows
from lmk_viz.training.passages import (
    CutPair,
    PassageSettings,
    TokenCounter,
    cut_pairs,
    load_passages,
)

__all__ = ["load_training_data", "pairs_of", "with_teacher"]

BATCH = 32


def load_training_data(
    path: str | Path,
    encoder: Encoder,
    config: TrainingConfig,
    teacher: Encoder | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Pairs:
    """Returns the pairs of a file: as they are, or cut from its passages.

    A table with anchors is one of pairs (`lmk_viz.training.data.load_pairs`). One with texts is
    of passages: as many pairs as the steps take are cut from them, by the settings' seed.

    Args:
        path: a JSONL (also gzipped) or Parquet file.
        encoder: that will be trained; its tokenizer counts.
        config: of the run.
        teacher: to distil from.
        report: called with a line now and then.

    Raises:
        ValueError: when the file is neither, or a row is not as expected.
    """
    rows, name = list(read_rows(path)), Path(path).name
    parts = None
    if not rows or any(column in rows[0] for column in ANCHORS):
        pairs = pairs_from_rows(rows, name)
    elif "text" in rows[0]:
        # Room for CLS, SEP and a landmark behind every chunk of the smallest size.
        room = (
            (config.passage_length - 3)
            * min(config.granularities)
            // (1 + min(config.granularities))
        )
        lengths = tuple(max(16, room * share // 4) for share in (2, 3, 4))
        cut = cut_pairs(
            load_passages(rows),
            config.steps * config.batch_size,
            config.batch_size,
            TokenCounter(lambda text: len(encoder.tokenize(text))),
            PassageSettings(lengths=lengths),
            config.seed,
        )
        pairs, parts = pairs_of(cut), [pair.parts for pair in cut]
    else:
        raise ValueError(
            f"{name} has neither anchor (or query) nor text, but "
            f"{', '.join(map(repr, rows[0]))}; name the columns so."
        )
    return pairs if teacher is None else with_teacher(pairs, teacher, parts, report)


def pairs_of(cut: Sequence[CutPair]) -> Pairs:
    """Returns cut pairs as plain pairs, without a teacher."""
    return Pairs(
        tuple(pair.query for pair in cut),
        tuple(pair.document for pair in cut),
        tuple(() for _ in cut),
    )


def with_teacher(
    pairs: Pairs,
    teacher: Encoder,
    parts: Sequence[Sequence[str]] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Pairs:
    """Returns pairs with a teacher's vectors of query and document.

    The target of a document of several parts is the mean of the vectors of its parts: what one
    vector can at best remember of all of them, wherever they stand, and however few tokens the
    teacher itself can read.

    Args:
        pairs: what to embed.
        teacher: embeds with the pooling it was trained for, else mean.
        parts: of each document; None takes every document as one.
        report: called with a line now and then.

    Raises:
        ValueError: when the number of parts does not fit.
    """
    parts = [[text] for text in pairs.positives] if parts is None else parts
    if len(parts) != len(pairs):
        raise ValueError(f"{len(parts)} lists of parts came for {len(pairs)} pairs; give as many.")
    # By length, so that a batch holds little padding; each text once.
    texts = sorted({*pairs.anchors, *(text for row in parts for text in row)}, key=_size)
    place = {text: row for row, text in enumerate(texts)}
    vectors = _embed(texts, teacher, report)
    queries = vectors[[place[text] for text in pairs.anchors]]
    documents = np.stack([_unit(vectors[[place[t] for t in row]].mean(axis=0)) for row in parts])
    return pairs.with_vectors(queries, documents)


def _embed(
    texts: Sequence[str], teacher: Encoder, report: Callable[[str], None]
) -> NDArray[np.float32]:
    mode = teacher.trained_for or PoolingMode.MEAN
    vectors = np.zeros((len(texts), teacher.embedding_dim), dtype=np.float32)
    started = time.monotonic()
    for number, first in enumerate(range(0, len(texts), BATCH)):
        vectors[first : first + BATCH] = teacher.encode(texts[first : first + BATCH], mode)
        if number % 100 == 0:
            passed = time.monotonic() - started
            report(f"teacher: {first:,} of {len(texts):,} texts, {passed:.0f} s")
    return vectors


def _size(text: str) -> tuple[int, str]:
    return len(text), text


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)
