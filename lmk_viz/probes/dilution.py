"""Dilution: what unrelated text does to the cosine of a query with its document."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding_encoder import EmbeddingEncoder, trained_poolings
from lmk_viz.probes.curves import Estimate, estimate_mean
from lmk_viz.probes.needle import rank_of_own
from lmk_viz.probes.needles import Needle
from lmk_viz.probes.placing import filler_head
from lmk_viz.probes.runs import (
    Embedder,
    Progress,
    ShouldStop,
    Steps,
    json_number,
    length_limit,
    paired_cosines,
    plain_tokens,
)

__all__ = ["DEFAULT_STEPS", "Dilution", "Side", "dilution_curves", "steps_up_to"]

DEFAULT_STEPS = (0, 32, 64, 128, 256)
"""Tokens of unrelated text."""
MAX_STEPS = 50


class Side(StrEnum):
    """Where the unrelated text goes."""

    AFTER = "after"
    BEFORE = "before"
    AROUND = "around"
    """Half before, half behind."""

    @classmethod
    def _missing_(cls, value: object) -> "Side":
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"side is {value!r}; allowed: {allowed}.")


@dataclass(frozen=True, slots=True, eq=False)
class Dilution:
    """Cosine and rank of documents as unrelated text is added. N documents, P steps."""

    encoder_name: str
    trained: frozenset[PoolingMode]
    chunking: ChunkingConfig
    poolings: tuple[PoolingConfig, ...]
    filler: str
    side: Side
    added: NDArray[np.int64]
    """Tokens of unrelated text at each step, shape (P,)."""
    documents: tuple[str, ...]
    """Ids of the documents that were measured."""
    scores: Mapping[PoolingMode, NDArray[np.float64]]
    """Cosine of each query with its document, each shape (N, P)."""
    ranks: Mapping[PoolingMode, NDArray[np.float64]]
    """Rank of it among all documents at the same step, each shape (N, P)."""
    hits: Mapping[PoolingMode, NDArray[np.float64]]
    """Chance that it comes first, each shape (N, P)."""
    pairwise: Mapping[PoolingMode, NDArray[np.float64]]
    """Mean cosine of two documents, each shape (P,): how alike the unrelated text makes them."""
    means: Mapping[PoolingMode, tuple[Estimate, ...]]
    """Of the scores at each step, with intervals over documents."""
    documents_wanted: int
    seconds: float

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped before the last document."""
        return len(self.documents) < self.documents_wanted

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, one row a pooling."""
        return {
            "encoder": self.encoder_name,
            "chunking": self.chunking.describe(),
            "filler": self.filler,
            "side": self.side.value,
            "documents": len(self.documents),
            "documents_wanted": self.documents_wanted,
            "seconds": self.seconds,
            "rows": [self._row(pooling.mode) for pooling in self.poolings],
        }

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a pooling and step."""
        parts = []
        for pooling in self.poolings:
            row = self._row(pooling.mode)
            names = ("added", "mean", "low", "high", "mean_rank", "recall@1", "pairwise")
            part = pd.DataFrame({name: row[name] for name in names})
            part.insert(0, "pooling", pooling.mode.value)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def _row(self, mode: PoolingMode) -> dict[str, Any]:
        means = self.means[mode]
        return {
            "pooling": mode.value,
            "trained": mode in self.trained,
            "added": self.added.tolist(),
            "mean": [mean.value for mean in means],
            "low": [mean.low for mean in means],
            "high": [mean.high for mean in means],
            "mean_rank": _column_means(self.ranks[mode]),
            "recall@1": _column_means(self.hits[mode]),
            "pairwise": [json_number(value) for value in self.pairwise[mode]],
        }


def dilution_curves(
    encoder: EmbeddingEncoder,
    documents: Sequence[Needle],
    filler: Document,
    poolings: Sequence[PoolingConfig],
    added: Sequence[int] = DEFAULT_STEPS,
    chunking: ChunkingConfig | None = None,
    side: Side = Side.AFTER,
    seed: int = 0,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Dilution:
    """Returns the cosine of each query with its document as unrelated text is added.

    Every document gets the same unrelated text, so that a rank among them is won or lost by
    what is left of their own words.

    Args:
        encoder: the encoder.
        documents: each a fact, or any text, with a question; ids distinct.
        filler: the unrelated text; its start is used.
        poolings: at least one.
        added: tokens of it at each step, rising from 0 or more.
        chunking: where landmarks go.
        side: where it goes.
        seed: of the bootstrap.
        progress: called with passes done and passes in all.
        should_stop: asked after each batch; documents that were done by then are kept.

    Raises:
        ValueError: when there is no document or step, steps do not rise, or the filler is too
            short or the documents too long for the encoder.

    References:
        After the dilution curve of arXiv 2603.21437.
    """
    started = time.monotonic()
    side = Side(side)
    steps_wanted = list(added)
    if not documents:
        raise ValueError("no document came; give at least one text with a question.")
    if len({document.id for document in documents}) != len(documents):
        raise ValueError("two documents share an id; give each one of its own.")
    rises = all(a < b for a, b in pairwise(steps_wanted))
    if not steps_wanted or steps_wanted[0] < 0 or not rises or len(steps_wanted) > MAX_STEPS:
        raise ValueError(
            f"steps are {steps_wanted[:8]}; give rising numbers of tokens, such as 0, 64, 256."
        )
    tokens = plain_tokens(encoder, filler.text)
    pieces = [_pieces(tokens, count, side, filler.id) for count in steps_wanted]
    longest = max(len(plain_tokens(encoder, document.fact)) for document in documents)
    room = longest + steps_wanted[-1]
    embedder = Embedder.build(encoder, poolings, chunking, length_limit(encoder, room))
    texts = [[_joined(before, d.fact, behind) for before, behind in pieces] for d in documents]
    for kind, layout in embedder.inputs(max((row[-1] for row in texts), key=len)).items():
        if layout.n_cut:
            raise ValueError(
                f"the longest document has {layout.n_tokens:,} tokens and {encoder.name!r} takes "
                f"{layout.n_kept:,} of them with its {kind.value} input; add less text."
            )
    n, p, kinds = len(documents), len(steps_wanted), len(embedder.kinds)
    steps = Steps(kinds * n * (p + 1), progress, should_stop)
    questions = embedder.embed_texts([document.question for document in documents], steps)
    vectors = {mode: np.full((n, p, encoder.embedding_dim), np.nan) for mode in questions}
    done = 0
    for row, of_document in enumerate(texts):
        before = steps.done
        found = embedder.embed_texts(of_document, steps)
        if steps.done - before < kinds * p:
            break  # What a stop cut short is left out as a whole.
        for mode, values in found.items():
            vectors[mode][row] = values
        done += 1
    scores, ranks, hits, alike, means = {}, {}, {}, {}, {}
    for mode, of_mode in vectors.items():
        cosines = [
            paired_cosines(questions[mode][:done, None], of_mode[:done, step][None])
            for step in range(p)
        ]
        own = np.stack([np.diagonal(values) for values in cosines], axis=1)
        placed = [rank_of_own(values) for values in cosines]
        scores[mode] = own
        ranks[mode] = np.stack([rank for rank, _ in placed], axis=1)
        hits[mode] = np.stack([hit for _, hit in placed], axis=1)
        alike[mode] = np.asarray([_mean_pair(of_mode[:done, step]) for step in range(p)])
        means[mode] = tuple(estimate_mean(own[:, step], seed) for step in range(p))
    return Dilution(
        encoder_name=encoder.name,
        trained=trained_poolings(encoder),
        chunking=embedder.chunking,
        poolings=embedder.poolings,
        filler=filler.id,
        side=side,
        added=np.asarray(steps_wanted, dtype=np.int64),
        documents=tuple(document.id for document in documents[:done]),
        scores=scores,
        ranks=ranks,
        hits=hits,
        pairwise=alike,
        means=means,
        documents_wanted=n,
        seconds=time.monotonic() - started,
    )


def steps_up_to(tokens: int, count: int = 6) -> tuple[int, ...]:
    """Returns steps that start without unrelated text and then double up to a length.

    Example:
        >>> steps_up_to(256, 4)
        (0, 64, 128, 256)
    """
    halves = [tokens // 2**i for i in range(count - 1)]
    return (0, *sorted({step for step in halves if step > 0}))


def _pieces(tokens: Any, count: int, side: Side, name: str) -> tuple[str, str]:
    """Returns the unrelated text before and behind a document."""
    if not count:
        return "", ""
    whole = filler_head(tokens, count, name)
    if side is Side.AFTER:
        return "", whole.text
    if side is Side.BEFORE:
        return whole.text, ""
    half = count // 2
    if not half:
        return "", whole.text
    border = int(whole.starts[half])
    return whole.text[:border].strip(), whole.text[border:].strip()


def _joined(*pieces: str) -> str:
    return " ".join(piece.strip() for piece in pieces if piece.strip())


def _mean_pair(vectors: NDArray[np.float64]) -> float:
    n = len(vectors)
    if n < 2:
        return float("nan")
    cosines = paired_cosines(vectors[:, None], vectors[None])
    return float(cosines[~np.eye(n, dtype=bool)].mean())


def _column_means(values: NDArray[np.float64]) -> list[float | None]:
    if not len(values):
        return [None] * values.shape[-1]
    return [json_number(value) for value in values.mean(axis=0)]
