"""Poolings against each other on a retrieval data set, with intervals and paired differences."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.corpus import Excluded
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbeddingTable, embed_documents
from lmk_viz.embedding_encoder import EmbeddingEncoder, checked_modes, pooling_passes
from lmk_viz.pooling import resolve
from lmk_viz.retrieval.bm25 import bm25_rankings
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.metrics import (
    DEFAULT_METRICS,
    bootstrap_interval,
    check_metrics,
    deepest_cutoff,
    score_rankings,
)
from lmk_viz.retrieval.scores import Evaluation, GroupScores, SystemScores
from lmk_viz.retrieval.search import is_trained, rank_documents

__all__ = ["Evaluation", "GroupScores", "SystemScores", "evaluate"]

LENGTHS = ("short", "medium", "long")


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Rankings of one system before they are scored."""

    name: str
    trained: bool | None
    rankings: Mapping[str, Sequence[str]]
    documents_cut: int
    queries_cut: int
    seconds: float


def evaluate(
    encoder: EmbeddingEncoder,
    dataset: RetrievalDataset,
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    baseline: PoolingMode = PoolingMode.LANDMARK,
    with_bm25: bool = True,
    seed: int = 0,
    batch_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Returns how well each pooling finds the judged documents.

    Documents and queries are encoded with the same pooling and chunking, and compared by exact
    cosine. Intervals are of 95 % over queries; differences are paired.

    Args:
        encoder: the encoder, or a family of encoders behind the same methods.
        dataset: what to search.
        poolings: at least one, each mode once.
        chunking: where landmarks go, on both sides.
        max_length: longest input; None takes the encoder's usable length.
        metrics: names such as `ndcg@10`.
        baseline: the pooling that differences are taken to, where it is among the poolings.
        with_bm25: add BM25 on words as a reference.
        seed: of the bootstrap.
        batch_tokens: padded tokens a batch; None chooses by device.
        progress: called with (texts encoded, texts to encode in all). May raise to cancel.

    Raises:
        ValueError: when a pooling or a metric cannot be had.
    """
    chunking = chunking or ChunkingConfig()
    metrics = check_metrics(metrics)
    resolved = [resolve(pooling, chunking) for pooling in poolings]
    modes = checked_modes(encoder, resolved)
    top_k = deepest_cutoff(metrics)
    queries = [Document(query, "", text) for query, text in dataset.queries.items()]
    passes = pooling_passes(encoder, resolved)
    counter = _Counter(progress, len(passes) * (len(queries) + len(dataset.corpus)))
    found: dict[str, _Found] = {}
    excluded: dict[Excluded, None] = {}
    lengths: dict[str, int] = {}
    for group in passes:
        tables: list[EmbeddingTable] = []
        for texts in (dataset.corpus, queries):
            report = counter.report if progress else None
            tables.append(
                embed_documents(
                    encoder, texts, group, chunking, max_length, True, batch_tokens, report
                )
            )
            counter.advance(len(texts))
        corpus, asked = tables
        excluded |= dict.fromkeys((*corpus.excluded, *asked.excluded))
        if not lengths:
            pairs = zip(corpus.documents, corpus.tokens.tolist(), strict=True)
            lengths = {document.id: tokens for document, tokens in pairs}
        for pooling in group:
            found[pooling.mode.value] = _search(encoder, pooling.mode, corpus, asked, top_k)
    systems = [found[mode.value] for mode in modes]
    if with_bm25:
        started = time.monotonic()
        rankings = bm25_rankings(dataset.queries, dataset.corpus, top_k)
        systems.append(_Found("bm25", None, rankings, 0, 0, time.monotonic() - started))
    of_query = _relevant_lengths(dataset, lengths)
    edges = _terciles(of_query)
    rows = _score_systems(dataset, systems, metrics, baseline, seed, of_query, edges)
    return Evaluation(
        dataset=dataset.name,
        encoder_name=encoder.name,
        chunking=chunking,
        max_length=max_length,
        with_titles=dataset.with_titles,
        baseline=baseline.value if baseline in modes else None,
        documents=len(dataset.corpus),
        query_ids=tuple(dataset.queries),
        length_edges=edges,
        rows=tuple(rows[: len(modes)]),
        bm25=rows[-1] if with_bm25 else None,
        excluded=tuple(excluded),
        notes=dataset.notes,
    )


class _Counter:
    """Adds up the progress of several calls."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress, self._total, self._before = progress, total, 0

    def report(self, done: int, _: int) -> None:
        if self._progress is not None:
            self._progress(self._before + done, self._total)

    def advance(self, count: int) -> None:
        self._before += count


def _search(
    encoder: EmbeddingEncoder,
    mode: PoolingMode,
    corpus: EmbeddingTable,
    asked: EmbeddingTable,
    top_k: int,
) -> _Found:
    ids = [document.id for document in corpus.documents]
    ranked = rank_documents(asked.vectors[mode], corpus.vectors[mode], ids, top_k)
    return _Found(
        name=mode.value,
        trained=is_trained(encoder, mode),
        rankings={q.id: docs for q, docs in zip(asked.documents, ranked, strict=True)},
        documents_cut=int((corpus.tokens_cut[mode] > 0).sum()),
        queries_cut=int((asked.tokens_cut[mode] > 0).sum()),
        seconds=corpus.seconds + asked.seconds,
    )


def _relevant_lengths(dataset: RetrievalDataset, lengths: Mapping[str, int]) -> NDArray[np.float64]:
    """Returns the tokens of each query's best judged document, NaN where it has no vector."""
    found = []
    for grades in dataset.qrels.values():
        best = min(grades, key=lambda document: (-grades[document], document))
        found.append(float(lengths.get(best, np.nan)))
    return np.asarray(found)


def _terciles(lengths: NDArray[np.float64]) -> tuple[float, float]:
    known = lengths[np.isfinite(lengths)]
    if not len(known):
        return 0.0, 0.0
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    return float(low), float(high)


def _score_systems(
    dataset: RetrievalDataset,
    systems: Sequence[_Found],
    metrics: Sequence[str],
    baseline: PoolingMode,
    seed: int,
    lengths: NDArray[np.float64],
    edges: tuple[float, float],
) -> list[SystemScores]:
    per_query = {s.name: score_rankings(dataset.qrels, s.rankings, metrics) for s in systems}
    reference = per_query.get(baseline.value)
    everything = np.ones(len(dataset.queries), dtype=bool)
    by_length = _groups(
        np.asarray(LENGTHS)[np.searchsorted(edges, lengths)[np.isfinite(lengths)]].tolist(),
        np.flatnonzero(np.isfinite(lengths)),
        len(lengths),
        LENGTHS,
    )
    placed = [row for row, query in enumerate(dataset.queries) if query in dataset.bins]
    ids = tuple(dataset.queries)
    by_depth = _groups(
        [dataset.bins[ids[row]] for row in placed],
        np.asarray(placed, dtype=np.int64),
        len(ids),
        ("start", "middle", "end"),
    )

    def score(system: str, name: str, chosen: NDArray[np.bool_]) -> GroupScores:
        own = per_query[system]
        against = None if system == baseline.value else reference
        return GroupScores(
            name=name,
            queries=int(chosen.sum()),
            metrics={m: bootstrap_interval(own[m][chosen], seed) for m in metrics},
            differences={
                m: bootstrap_interval(own[m][chosen] - against[m][chosen], seed) for m in metrics
            }
            if against is not None
            else {},
        )

    return [
        SystemScores(
            name=system.name,
            trained=system.trained,
            overall=score(system.name, "all", everything),
            by_length=tuple(score(system.name, n, chosen) for n, chosen in by_length.items()),
            by_depth=tuple(score(system.name, n, chosen) for n, chosen in by_depth.items()),
            per_query=per_query[system.name],
            rankings=system.rankings,
            documents_cut=system.documents_cut,
            queries_cut=system.queries_cut,
            seconds=system.seconds,
        )
        for system in systems
    ]


def _groups(
    names: Sequence[str], rows: NDArray[np.int64], n: int, order: Sequence[str]
) -> dict[str, NDArray[np.bool_]]:
    """Returns the queries of each group as a mask, known names first and in their order."""
    known = [name for name in order if name in names]
    others = sorted(set(names) - set(order))
    found: dict[str, NDArray[np.bool_]] = {}
    for name in (*known, *others):
        mask = np.zeros(n, dtype=bool)
        mask[[row for row, of_row in zip(rows.tolist(), names, strict=True) if of_row == name]] = (
            True
        )
        found[name] = mask
    return found
