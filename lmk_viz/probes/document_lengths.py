"""Length: the probes of a document at multiples of a length, with intervals over documents."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding_encoder import EmbeddingEncoder, trained_poolings
from lmk_viz.probes.curves import CONFIDENCE, Estimate, summarise_curve
from lmk_viz.probes.influence import leave_one_out
from lmk_viz.probes.lengths import FACTORS
from lmk_viz.probes.placing import filler_head
from lmk_viz.probes.runs import Progress, ShouldStop, length_limit, plain_tokens
from lmk_viz.probes.segments import SegmentCosines, segment_cosines
from lmk_viz.probes.shuffle import shuffle_cosines

__all__ = ["NUMBERS", "DocumentLengths", "DocumentProbe", "document_by_length"]

Numbers = Mapping[PoolingMode, Mapping[str, float]]


class DocumentProbe(StrEnum):
    """A probe of one document, told by a few numbers."""

    INFLUENCE = "influence"
    SEGMENTS = "segments"
    SHUFFLE = "shuffle"

    @classmethod
    def _missing_(cls, value: object) -> "DocumentProbe":
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"probe is {value!r}; allowed: {allowed}.")


NUMBERS: Mapping[DocumentProbe, tuple[str, ...]] = {
    DocumentProbe.INFLUENCE: ("first_tenth", "centre_of_mass", "total", "attention_correlation"),
    DocumentProbe.SEGMENTS: ("first_minus_last", "slope"),
    DocumentProbe.SHUFFLE: ("cosine", "reversed"),
}
"""What is told of each probe, the two that are drawn first."""


@dataclass(frozen=True, slots=True, eq=False)
class DocumentLengths:
    """Numbers of a probe by length. N documents, P lengths, shortest first."""

    encoder_name: str
    trained: frozenset[PoolingMode]
    chunking: ChunkingConfig
    poolings: tuple[PoolingConfig, ...]
    probe: DocumentProbe
    lengths: NDArray[np.int64]
    """Text tokens of the documents, shape (P,)."""
    documents: tuple[str, ...]
    """Ids of the documents that were measured."""
    values: Mapping[PoolingMode, Mapping[str, NDArray[np.float64]]]
    """Each number of each document at each length, shape (N, P); NaN where it is undefined."""
    means: Mapping[PoolingMode, Mapping[str, tuple[Estimate, ...]]]
    """Over documents, one a length, with Student's 95 % interval; one document has none."""
    documents_wanted: int
    seconds: float

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped before the last document."""
        return len(self.documents) < self.documents_wanted

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, one row a length and pooling."""
        return {
            "encoder": self.encoder_name,
            "chunking": self.chunking.describe(),
            "probe": self.probe.value,
            "documents": list(self.documents),
            "documents_wanted": self.documents_wanted,
            "seconds": self.seconds,
            "rows": [
                self._row(place, pooling.mode)
                for place in range(len(self.lengths))
                for pooling in self.poolings
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a length and pooling."""
        return pd.DataFrame(self.to_dict()["rows"])

    def _row(self, place: int, mode: PoolingMode) -> dict[str, Any]:
        row: dict[str, Any] = {
            "tokens": int(self.lengths[place]),
            "pooling": mode.value,
            "trained": mode in self.trained,
        }
        for name, estimates in self.means[mode].items():
            row |= estimates[place].to_dict(name)
        return row


def document_by_length(
    encoder: EmbeddingEncoder,
    documents: Sequence[Document],
    poolings: Sequence[PoolingConfig],
    probe: DocumentProbe = DocumentProbe.INFLUENCE,
    tokens: int = 64,
    factors: Sequence[int] = FACTORS,
    chunking: ChunkingConfig | None = None,
    seed: int = 0,
    unrelated: str | None = None,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> DocumentLengths:
    """Returns the numbers of a probe for the start of documents, at multiples of a length.

    Dilution has length for its axis already: give its steps as the lengths.

    Args:
        encoder: the encoder.
        documents: each of at least the greatest length in tokens, ids distinct.
        poolings: at least one.
        probe: influence (without noise floor), segments or shuffle (eight orders).
        tokens: the shortest length.
        factors: rising, at least one.
        chunking: where landmarks go.
        seed: of the orders.
        unrelated: another text, the control of segments.
        progress: called with documents done and documents in all, each length counted.
        should_stop: asked after each length of each document; documents that were done at
            every length by then are kept.

    Raises:
        ValueError: when there is no document, one is too short or does not fit, factors do not
            rise from 1 or more, or the shortest length has one chunk alone.
    """
    started = time.monotonic()
    probe, chunking = DocumentProbe(probe), chunking or ChunkingConfig()
    lengths = _lengths(tokens, factors)
    _check_documents(documents)
    heads = [_heads(encoder, document, lengths) for document in documents]
    limit = length_limit(encoder, lengths[-1])
    for of_document in heads:  # By sentence and variable, some have more landmarks than others.
        _check_fits(encoder, of_document[-1], chunking, limit)
    names = NUMBERS[probe]
    modes = [pooling.mode for pooling in poolings]
    shape = (len(documents), len(lengths))
    values = {mode: {name: np.full(shape, np.nan) for name in names} for mode in modes}
    done = steps = 0
    for row, texts in enumerate(heads):
        for place, text in enumerate(texts):
            if should_stop is not None and should_stop():
                break
            found = _measure(encoder, text, poolings, probe, chunking, limit, seed, unrelated)
            for mode in modes:
                for name in names:
                    values[mode][name][row, place] = found[mode][name]
            steps += 1
            if progress is not None:
                progress(steps, len(documents) * len(lengths))
        else:
            done += 1
            continue
        break
    kept = {mode: {name: v[:done] for name, v in own.items()} for mode, own in values.items()}
    return DocumentLengths(
        encoder_name=encoder.name,
        trained=trained_poolings(encoder),
        chunking=chunking,
        poolings=tuple(poolings),
        probe=probe,
        lengths=np.asarray(lengths, dtype=np.int64),
        documents=tuple(document.id for document in documents[:done]),
        values=kept,
        means={
            mode: {name: tuple(_mean_of_few(v) for v in rows.T) for name, rows in own.items()}
            for mode, own in kept.items()
        },
        documents_wanted=len(documents),
        seconds=time.monotonic() - started,
    )


def _measure(
    encoder: EmbeddingEncoder,
    text: str,
    poolings: Sequence[PoolingConfig],
    probe: DocumentProbe,
    chunking: ChunkingConfig,
    limit: int | None,
    seed: int,
    unrelated: str | None,
) -> Numbers:
    """Returns the numbers of one text, NaN where they are undefined."""
    if probe is DocumentProbe.INFLUENCE:
        summaries = leave_one_out(
            encoder, text, poolings, chunking, limit, neutral=None
        ).summaries.items()
        return {
            mode: {name: _number(getattr(summary, name)) for name in NUMBERS[probe]}
            for mode, summary in summaries
        }
    if probe is DocumentProbe.SHUFFLE:
        shuffled = shuffle_cosines(encoder, text, poolings, chunking, limit, seed=seed)
        return {
            mode: {"cosine": _number(mean.value), "reversed": shuffled.reversed[mode]}
            for mode, mean in shuffled.means.items()
        }
    return _segment_numbers(
        segment_cosines(encoder, text, poolings, chunking, limit, unrelated=unrelated)
    )


def _segment_numbers(result: SegmentCosines) -> Numbers:
    places = (result.borders[:-1] + result.borders[1:]) / 2 / result.borders[-1]
    found = {}
    for mode, cosines in result.cosines.items():
        curve = summarise_curve(cosines[None], places, resamples=1)
        found[mode] = {
            "first_minus_last": _number(curve.first_minus_last.value),
            "slope": _number(curve.slope.value),
        }
    return found


def _lengths(tokens: int, factors: Sequence[int]) -> list[int]:
    wanted = list(factors)
    if not wanted or wanted[0] < 1 or not all(a < b for a, b in pairwise(wanted)):
        raise ValueError(f"factors are {wanted}; give rising whole numbers, such as 1, 2, 4, 8.")
    if tokens < 2:
        raise ValueError(f"tokens is {tokens}; allowed: 2 and more.")
    return [tokens * factor for factor in wanted]


def _check_documents(documents: Sequence[Document]) -> None:
    if not documents:
        raise ValueError("no document came; give at least one.")
    if len({document.id for document in documents}) != len(documents):
        raise ValueError("two documents share an id; give each one of its own.")


def _heads(encoder: EmbeddingEncoder, document: Document, lengths: Sequence[int]) -> list[str]:
    tokens = plain_tokens(encoder, document.text)
    if len(tokens) < lengths[-1]:
        raise ValueError(
            f"document {document.id!r} has {len(tokens):,} tokens and {lengths[-1]:,} are wanted; "
            "choose a longer text or a shorter length."
        )
    return [filler_head(tokens, length, document.id).text for length in lengths]


def _check_fits(
    encoder: EmbeddingEncoder, text: str, chunking: ChunkingConfig, limit: int | None
) -> None:
    """Raises a ValueError when the limit cuts the longest text, before anything is embedded."""
    layout = encoder.layout(text, LayoutKind.LANDMARK, chunking, limit)
    if layout.n_cut:
        raise ValueError(
            f"a document has {layout.n_tokens:,} tokens, and {encoder.name!r} takes "
            f"{layout.n_kept:,} of them with its landmarks; choose a shorter length."
        )


def _mean_of_few(values: NDArray[np.float64]) -> Estimate:
    """Returns a mean with Student's interval: a bootstrap of three or four is far too narrow."""
    from scipy.stats import t

    kept = values[np.isfinite(values)]
    n = len(kept)
    if not n:
        return Estimate(None, None, None, "undefined for every document")
    mean = float(kept.mean())
    if n < 2:
        return Estimate(mean, None, None, "no interval: one document")
    reach = float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * kept.std(ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - reach, mean + reach)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
