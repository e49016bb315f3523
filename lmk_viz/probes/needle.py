"""Needle: a sentence put at several depths of a text, and how well its question finds it there."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import MAX_SEED, ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding_encoder import EmbeddingEncoder, trained_poolings
from lmk_viz.probes.curves import CurveSummary, summarise_curve
from lmk_viz.probes.needles import Needle
from lmk_viz.probes.placing import Border, filler_head, place_needle
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

__all__ = [
    "NeedleConfig",
    "NeedleResult",
    "needle_curves",
    "rank_of_own",
]

MAX_DEPTHS = 100
MAX_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class NeedleConfig:
    """How needles are placed."""

    tokens: int = 512
    """Text tokens of each document, needle included."""
    depths: int = 10
    """Equally spaced from the start to the end."""
    border: Border = Border.SENTENCE
    seed: int = 0
    """Of the bootstrap."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "border", Border(self.border))
        for name, low, high in (
            ("tokens", 2, MAX_TOKENS),
            ("depths", 1, MAX_DEPTHS),
            ("seed", 0, MAX_SEED),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is {value!r}; it has to be a whole number.")
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; allowed: {low:,} to {high:,}.")

    @property
    def places(self) -> NDArray[np.float64]:
        """The depths: 0 the start, 1 the end, shape (P,)."""
        return np.linspace(0.0, 1.0, self.depths)


@dataclass(frozen=True, slots=True, eq=False)
class NeedleResult:
    """How well questions find their needles, by the needle's depth.

    N needles, F fillers, P depths. A document is one filler with one needle at one depth.
    """

    config: NeedleConfig
    encoder_name: str
    trained: frozenset[PoolingMode]
    """Poolings that the encoder was trained for."""
    chunking: ChunkingConfig
    poolings: tuple[PoolingConfig, ...]
    needles: tuple[str, ...]
    """Ids of the needles that were measured."""
    fillers: tuple[str, ...]
    """Ids of the filler texts."""
    placed: NDArray[np.float64]
    """Mean depth at which the borders let the needles stand, shape (P,): what curves are drawn
    and lines fitted over. In a short filler of long sentences several may coincide."""
    scores: Mapping[PoolingMode, NDArray[np.float64]]
    """Cosine of each question with its document, each shape (N, F, P)."""
    ranks: Mapping[PoolingMode, NDArray[np.float64]]
    """Rank of its document among the same filler and depth with other needles, from 1; ties
    share the mean rank. Each shape (N, F, P)."""
    hits: Mapping[PoolingMode, NDArray[np.float64]]
    """Chance that its document comes first, ties broken by lot, each shape (N, F, P)."""
    unrelated: Mapping[PoolingMode, NDArray[np.float64]]
    """The shuffled control: mean cosine of the other needles' questions, each shape (P,)."""
    curves: Mapping[PoolingMode, CurveSummary]
    """Of the scores, with intervals over needles."""
    needles_wanted: int
    """More than were measured when the run was stopped."""
    seconds: float

    @property
    def misplaced(self) -> float:
        """Greatest distance of a mean depth from the one that was wanted, 0 to 1."""
        return float(np.abs(self.placed - self.config.places).max())

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped before the last needle."""
        return len(self.needles) < self.needles_wanted

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, one row a pooling."""
        return {
            "encoder": self.encoder_name,
            "chunking": self.chunking.describe(),
            "tokens": self.config.tokens,
            "border": self.config.border.value,
            "needles": len(self.needles),
            "needles_wanted": self.needles_wanted,
            "fillers": list(self.fillers),
            "depths_wanted": self.config.places.tolist(),
            "seconds": self.seconds,
            "rows": [self._row(pooling.mode) for pooling in self.poolings],
        }

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a pooling and depth."""
        parts = []
        for pooling in self.poolings:
            row = self._row(pooling.mode)
            names = ("depths", "mean", "low", "high", "unrelated", "mean_rank", "recall@1")
            part = pd.DataFrame({name: row[name] for name in names})
            part.insert(0, "pooling", pooling.mode.value)
            parts.append(part.rename(columns={"depths": "depth"}))
        return pd.concat(parts, ignore_index=True)

    def scalars_frame(self) -> pd.DataFrame:
        """Returns one row a pooling with PSI, slope and difference of the thirds."""
        hidden = {"depths", "mean", "low", "high", "unrelated", "mean_rank", "recall@1"}
        rows = [self._row(pooling.mode) for pooling in self.poolings]
        return pd.DataFrame([{k: v for k, v in row.items() if k not in hidden} for row in rows])

    def _row(self, mode: PoolingMode) -> dict[str, Any]:
        return {
            "pooling": mode.value,
            "trained": mode in self.trained,
            **self.curves[mode].to_dict(),
            "unrelated": [json_number(v) for v in self.unrelated[mode]],
            "mean_rank": _mean_by_depth(self.ranks[mode]),
            "recall@1": _mean_by_depth(self.hits[mode]),
        }


def needle_curves(
    encoder: EmbeddingEncoder,
    needles: Sequence[Needle],
    fillers: Sequence[Document],
    poolings: Sequence[PoolingConfig],
    config: NeedleConfig | None = None,
    chunking: ChunkingConfig | None = None,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> NeedleResult:
    """Returns the cosine of each needle's question with the document, by the needle's depth.

    Every needle stands in every filler at every depth, in documents of one length. The other
    needles' documents are the distractors that ranks are counted against, since a cosine
    alone can move for reasons that change no ranking.

    Args:
        encoder: the encoder.
        needles: facts with their questions, ids distinct.
        fillers: texts of at least `config.tokens` tokens; only their start is used.
        poolings: at least one. Each is compared with itself alone.
        config: length, depths, borders, seed.
        chunking: where landmarks go.
        progress: called with passes done and passes in all.
        should_stop: asked after each batch; needles that were done by then are kept.

    Raises:
        ValueError: when there is no needle or filler, a needle leaves no room for filler, a
            filler is too short, or the documents do not fit the encoder.
    """
    started = time.monotonic()
    config = config or NeedleConfig()
    _check_needles(needles)
    if not fillers:
        raise ValueError("no filler came; give at least one text to put the needles into.")
    embedder = Embedder.build(encoder, poolings, chunking, length_limit(encoder, config.tokens))
    tokenised = [plain_tokens(encoder, filler.text) for filler in fillers]
    sizes = [len(plain_tokens(encoder, needle.fact)) for needle in needles]
    texts: list[list[str]] = []
    placed = []
    for needle, size in zip(needles, sizes, strict=True):
        room = config.tokens - size
        if room < 1:
            raise ValueError(
                f"needle {needle.id!r} has {size} tokens and the document {config.tokens}; choose "
                f"more than {size} tokens, or shorter needles."
            )
        texts.append([])
        for filler, tokens in zip(fillers, tokenised, strict=True):
            head = filler_head(tokens, room, filler.id)
            for depth in config.places:
                text, at = place_needle(head, needle.fact, float(depth), config.border)
                texts[-1].append(text)
                placed.append(at)
    _check_fits(embedder, texts[int(np.argmax(sizes))])
    shape = (len(needles), len(fillers), config.depths)
    kinds = len(embedder.kinds)
    steps = Steps(kinds * (len(needles) + int(np.prod(shape))), progress, should_stop)
    questions = embedder.embed_texts([needle.question for needle in needles], steps)
    documents = {mode: np.full((*shape, encoder.embedding_dim), np.nan) for mode in questions}
    done = 0
    for row, of_needle in enumerate(texts):
        before = steps.done
        found = embedder.embed_texts(of_needle, steps)
        if steps.done - before < kinds * len(of_needle):
            break  # What a stop cut short is left out as a whole.
        for mode, vectors in found.items():
            documents[mode][row] = vectors.reshape(*shape[1:], -1)
        done += 1
    return _summarise(
        embedder,
        config,
        needles,
        [filler.id for filler in fillers],
        np.asarray(placed).reshape(shape)[:done].mean(axis=(0, 1)) if done else config.places,
        {mode: vectors[:done] for mode, vectors in questions.items()},
        {mode: vectors[:done] for mode, vectors in documents.items()},
        time.monotonic() - started,
    )


def rank_of_own(
    cosines: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the rank of each question's own document, and its chance to come first.

    Args:
        cosines: of question i with document j, shape (N, N).

    Returns:
        Ranks from 1 with ties sharing their mean, and in 0..1 the chance of the first place
        when ties are broken by lot, each shape (N,).

    Example:
        >>> ranks, hits = rank_of_own(np.array([[0.9, 0.1], [0.5, 0.5]]))
        >>> ranks.tolist(), hits.tolist()
        ([1.0, 1.5], [1.0, 0.5])
    """
    own = np.diagonal(cosines)[:, None]
    above = (cosines > own).sum(axis=1)
    equal = (cosines == own).sum(axis=1)  # Its own among them.
    ranks = 1.0 + above + (equal - 1) / 2
    hits = np.where(above == 0, 1.0 / np.maximum(equal, 1), 0.0)
    unknown = np.isnan(cosines).any(axis=1)
    return np.where(unknown, np.nan, ranks), np.where(unknown, np.nan, hits)


def _summarise(
    embedder: Embedder,
    config: NeedleConfig,
    needles: Sequence[Needle],
    fillers: Sequence[str],
    placed: NDArray[np.float64],
    questions: Mapping[PoolingMode, NDArray[np.float64]],
    documents: Mapping[PoolingMode, NDArray[np.float64]],
    seconds: float,
) -> NeedleResult:
    scores, ranks, hits, unrelated, curves = {}, {}, {}, {}, {}
    for mode, vectors in documents.items():
        n = len(vectors)
        own = paired_cosines(questions[mode][:, None, None], vectors)
        scores[mode], ranks[mode], hits[mode] = own, np.full_like(own, np.nan), own * np.nan
        control = np.full(vectors.shape[1:3], np.nan)
        for place in np.ndindex(*control.shape):
            cosines = paired_cosines(questions[mode][:, None], vectors[:, *place][None])
            ranks[mode][:, *place], hits[mode][:, *place] = rank_of_own(cosines)
            if n > 1:
                control[place] = cosines[~np.eye(n, dtype=bool)].mean()
        unrelated[mode] = control.mean(axis=0)
        curves[mode] = summarise_curve(own.mean(axis=1), placed, config.seed)
    return NeedleResult(
        config=config,
        encoder_name=embedder.encoder.name,
        trained=trained_poolings(embedder.encoder),
        chunking=embedder.chunking,
        poolings=embedder.poolings,
        needles=tuple(needle.id for needle in needles[: len(next(iter(scores.values())))]),
        fillers=tuple(fillers),
        placed=placed,
        scores=scores,
        ranks=ranks,
        hits=hits,
        unrelated=unrelated,
        curves=curves,
        needles_wanted=len(needles),
        seconds=seconds,
    )


def _check_needles(needles: Sequence[Needle]) -> None:
    if not needles:
        raise ValueError("no needle came; give at least one fact with its question.")
    ids = [needle.id for needle in needles]
    if len(set(ids)) != len(ids):
        raise ValueError("two needles share an id; give each one of its own.")


def _check_fits(embedder: Embedder, texts: Sequence[str]) -> None:
    """Raises a ValueError when the limit cuts a document, before anything is embedded."""
    for kind, layout in embedder.inputs(max(texts, key=len)).items():
        if layout.n_cut:
            fits = layout.n_kept
            raise ValueError(
                f"a document has {layout.n_tokens:,} tokens, and {embedder.encoder.name!r} takes "
                f"{fits:,} of them with its {kind.value} input; choose at most {fits:,} tokens."
            )


def _mean_by_depth(values: NDArray[np.float64]) -> list[float | None]:
    if not len(values):
        return [None] * values.shape[-1]
    return [json_number(value) for value in values.mean(axis=(0, 1))]
