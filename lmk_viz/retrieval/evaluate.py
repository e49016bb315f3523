"""Poolings against each other on a retrieval data set, with intervals and paired differences."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lmk_viz.config import ChunkingConfig, PoolingConfig, PoolingMode
from lmk_viz.corpus import Excluded
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbeddingTable, EmbedFunction, embed_documents
from lmk_viz.embedding_encoder import EmbeddingEncoder, checked_modes, pooling_passes
from lmk_viz.pooling import resolve
from lmk_viz.retrieval.bm25 import bm25_rankings
from lmk_viz.retrieval.chunk_vectors import MultiVector
from lmk_viz.retrieval.counting import StoppedError, TextCounter
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.metrics import DEFAULT_METRICS, check_metrics, deepest_cutoff
from lmk_viz.retrieval.multi_vector import search_multi_vector
from lmk_viz.retrieval.scores import Evaluation, GroupScores, SearchCost, SystemScores
from lmk_viz.retrieval.scoring import Found, LengthGroups, score_systems
from lmk_viz.retrieval.search import is_trained, rank_documents

__all__ = ["Evaluation", "GroupScores", "SystemScores", "compare_to", "evaluate"]


def evaluate(
    encoder: EmbeddingEncoder,
    dataset: RetrievalDataset,
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    baseline: str = PoolingMode.LANDMARK,
    with_bm25: bool = True,
    seed: int = 0,
    batch_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    multi_vector: Sequence[MultiVector] = (),
    ranking_depth: int = 0,
    embed: EmbedFunction = embed_documents,
    should_stop: Callable[[], bool] | None = None,
) -> Evaluation:
    """Returns how well each pooling finds the judged documents.

    Documents and queries are encoded with the same pooling and chunking, and compared by exact
    cosine. Intervals are of 95 % over queries; differences are paired, and their p values are of
    a paired randomisation test, corrected by Holm for the comparisons to the baseline.

    Args:
        encoder: the encoder, or a family of encoders behind the same methods.
        dataset: what to search.
        poolings: at least one, each mode once.
        chunking: where landmarks go, on both sides.
        max_length: longest input; None takes the encoder's usable length.
        metrics: names such as `ndcg@10`.
        baseline: name of the system that differences are taken to, where it is among them: a
            pooling, a way to keep several vectors, or bm25.
        with_bm25: add BM25 on words as a reference.
        seed: of the bootstrap and the randomisation test.
        batch_tokens: padded tokens a batch; None chooses by device.
        progress: called with (texts encoded, texts to encode in all). May raise to cancel.
        multi_vector: ways to keep several vectors a document, each once, compared as well.
        ranking_depth: documents kept a query, where more are wanted than the metrics need.
        embed: what embeds; a cache may stand in front.
        should_stop: asked as often as progress is told; when it says so, what is measured by
            then is scored.

    Raises:
        ValueError: when a pooling, a metric or a way to keep vectors cannot be had.
    """
    chunking = chunking or ChunkingConfig()
    metrics = check_metrics(metrics)
    resolved = [resolve(pooling, chunking) for pooling in poolings]
    modes = checked_modes(encoder, resolved)
    kinds = tuple(MultiVector(kind) for kind in multi_vector)
    if len(set(kinds)) != len(kinds):
        raise ValueError(f"multi_vector {[str(k) for k in kinds]} came; give each once.")
    top_k = max(deepest_cutoff(metrics), ranking_depth)
    passes = pooling_passes(encoder, resolved)
    texts = len(dataset.queries) + len(dataset.corpus)
    counter = TextCounter(progress, should_stop, (len(passes) + len(kinds)) * texts)
    run = _Run(encoder, dataset, chunking, max_length, top_k, batch_tokens, embed, counter)
    try:
        for group in passes:
            run.search_poolings(group)
        for kind in kinds:
            run.search_chunks(kind)
    except StoppedError:
        pass
    found = run.found
    systems = [found[name] for name in (*modes, *kinds) if name in found]
    if with_bm25:
        started = time.monotonic()
        rankings = bm25_rankings(dataset.queries, dataset.corpus, top_k)
        systems.append(Found("bm25", None, rankings, 0, 0, time.monotonic() - started))
    groups = LengthGroups.of(dataset, run.lengths)
    name = str(baseline)
    rows = score_systems(dataset, systems, metrics, name, seed, groups)
    return Evaluation(
        dataset=dataset.name,
        encoder_name=encoder.name,
        chunking=chunking,
        max_length=max_length,
        with_titles=dataset.with_titles,
        baseline=name if name in {system.name for system in systems} else None,
        documents=len(dataset.corpus),
        query_ids=tuple(dataset.queries),
        length_edges=groups.edges,
        lengths=groups.lengths,
        rows=tuple(rows[: len(found)]),
        bm25=rows[-1] if with_bm25 else None,
        excluded=tuple(run.excluded),
        notes=dataset.notes,
        is_partial=len(found) < len(modes) + len(kinds),
    )


def compare_to(
    evaluation: Evaluation, dataset: RetrievalDataset, baseline: str, seed: int = 0
) -> Evaluation:
    """Returns an evaluation with its differences taken to another system; nothing is encoded.

    Args:
        evaluation: of the data set.
        dataset: that was searched.
        baseline: name of one of its systems.
        seed: of the bootstrap and the randomisation test.

    Raises:
        ValueError: when no system has that name.
    """
    systems = [Found.of(row) for row in evaluation.systems]
    if baseline not in [system.name for system in systems]:
        allowed = ", ".join(system.name for system in systems)
        raise ValueError(f"baseline is {baseline!r}; allowed: {allowed}.")
    groups = LengthGroups(evaluation.lengths, evaluation.length_edges)
    metrics = list(evaluation.systems[0].per_query)
    known = {row.name: row.per_query for row in evaluation.systems}
    rows = score_systems(dataset, systems, metrics, baseline, seed, groups, known)
    n = len(evaluation.rows)
    bm25 = rows[n] if evaluation.bm25 else None
    return replace(evaluation, baseline=baseline, rows=tuple(rows[:n]), bm25=bm25)


@dataclass(slots=True)
class _Run:
    """What was found so far, system by system."""

    encoder: EmbeddingEncoder
    dataset: RetrievalDataset
    chunking: ChunkingConfig
    max_length: int | None
    top_k: int
    batch_tokens: int | None
    embed: EmbedFunction
    counter: TextCounter
    found: dict[str, Found] = field(default_factory=dict)
    excluded: dict[Excluded, None] = field(default_factory=dict)
    """Texts without a vector, each once, in order."""
    lengths: dict[str, int] = field(default_factory=dict)
    """Text tokens of each document."""

    @property
    def queries(self) -> list[Document]:
        return [Document(query, "", text) for query, text in self.dataset.queries.items()]

    def search_poolings(self, poolings: Sequence[PoolingConfig]) -> None:
        """Adds what poolings that share a pass find."""
        corpus = self._embedded(self.dataset.corpus, poolings)
        asked = self._embedded(self.queries, poolings)
        self.excluded |= dict.fromkeys((*corpus.excluded, *asked.excluded))
        if not self.lengths:
            pairs = zip(corpus.documents, corpus.tokens.tolist(), strict=True)
            self.lengths = {document.id: tokens for document, tokens in pairs}
        for pooling in poolings:
            mode = pooling.mode
            self.found[mode.value] = _search(self.encoder, mode, corpus, asked, self.top_k)

    def search_chunks(self, kind: MultiVector) -> None:
        """Adds what several vectors a document find."""
        searched = search_multi_vector(
            self.encoder,
            kind,
            self.dataset.corpus,
            self.queries,
            self.chunking,
            self.max_length,
            self.top_k,
            self.batch_tokens,
            self.embed,
            self.counter.report,
        )
        self.counter.advance(len(self.dataset.queries) + len(self.dataset.corpus))
        self.excluded |= dict.fromkeys(searched.excluded)
        self.found[kind.value] = Found(
            name=kind.value,
            trained=is_trained(self.encoder, kind.pooling),
            rankings=searched.rankings,
            documents_cut=searched.documents_cut,
            queries_cut=searched.queries_cut,
            seconds=searched.seconds,
            cost=searched.cost,
            fell_back=searched.fell_back,
        )

    def _embedded(
        self, texts: Sequence[Document], poolings: Sequence[PoolingConfig]
    ) -> EmbeddingTable:
        table = self.embed(
            self.encoder,
            texts,
            poolings,
            self.chunking,
            self.max_length,
            True,
            self.batch_tokens,
            self.counter.report,
        )
        self.counter.advance(len(texts))
        return table


def _search(
    encoder: EmbeddingEncoder,
    mode: PoolingMode,
    corpus: EmbeddingTable,
    asked: EmbeddingTable,
    top_k: int,
) -> Found:
    ids = [document.id for document in corpus.documents]
    started = time.monotonic()
    ranked = rank_documents(asked.vectors[mode], corpus.vectors[mode], ids, top_k)
    searching = time.monotonic() - started
    return Found(
        name=mode.value,
        trained=is_trained(encoder, mode),
        rankings={q.id: docs for q, docs in zip(asked.documents, ranked, strict=True)},
        documents_cut=int((corpus.tokens_cut[mode] > 0).sum()),
        queries_cut=int((asked.tokens_cut[mode] > 0).sum()),
        seconds=corpus.seconds + asked.seconds,
        cost=SearchCost.of(len(ids), corpus.vectors[mode].shape[1], searching, len(ranked)),
        fell_back=int(np.sum(corpus.fell_back[mode])),
    )
