"""Granularities and poolings against each other on one data set: quality beside cost."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.corpus import Excluded
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbeddingTable, EmbedFunction, embed_documents
from lmk_viz.embedding_encoder import EmbeddingEncoder, pooling_passes
from lmk_viz.landmarks import Layout
from lmk_viz.pooling import POOLINGS
from lmk_viz.retrieval.counting import StoppedError, TextCounter
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.metrics import deepest_cutoff, score_rankings
from lmk_viz.retrieval.search import is_trained, rank_documents
from lmk_viz.retrieval.sweep_rows import Sweep, SweepRow
from lmk_viz.retrieval.sweep_settings import SweepConfig, SweepSetting, plan_settings

__all__ = ["plan_passes", "run_sweep"]


def plan_passes(encoder: Any, settings: Sequence[SweepSetting]) -> list[tuple[SweepSetting, ...]]:
    """Returns the settings in groups that take one forward pass each, in order.

    Poolings without landmarks share the pass over `[CLS] text [SEP]`, save in a family, where
    each is read from weights of its own. Of every-k one step can share it; further steps take a
    pass each, as every granularity of landmarks does.
    """
    groups: list[tuple[SweepSetting, ...]] = []
    plain: dict[PoolingMode, SweepSetting] = {}
    for setting in settings:
        mode = setting.pooling.mode
        if POOLINGS[mode].layout is LayoutKind.PLAIN and mode not in plain:
            plain[mode] = setting
    shared = pooling_passes(encoder, [setting.pooling for setting in plain.values()])
    by_mode = {p.mode: tuple(plain[own.mode] for own in group) for group in shared for p in group}
    for setting in settings:
        mode = setting.pooling.mode
        is_shared = plain.get(mode) is setting
        group = by_mode[mode] if is_shared else (setting,)
        if group not in groups:
            groups.append(group)
    return groups


def run_sweep(
    encoder: EmbeddingEncoder,
    dataset: RetrievalDataset,
    config: SweepConfig | None = None,
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    embed: EmbedFunction = embed_documents,
    on_row: Callable[[Sweep], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Sweep:
    """Returns quality and cost of each setting of a sweep.

    What settings share is embedded once: the pass over the plain text, and queries of one
    granularity.

    Args:
        encoder: the encoder, or a family of encoders behind the same methods.
        dataset: what to search.
        config: which settings.
        chunking: gives variable and sentence rows what they read, and all rows `close_tail`.
        max_length: longest input; None takes the encoder's usable length.
        batch_tokens: padded tokens a batch; None chooses by device.
        embed: embeds documents; a cache takes the place of `embed_documents`.
        on_row: called with the sweep so far whenever there are new rows.
        progress: called with (texts encoded, texts to encode in all).
        should_stop: asked between batches; after a yes, the rows there are come back, and the
            result says that it is partial.

    Raises:
        ValueError: when a pooling or a metric cannot be had, or no row is the baseline.
    """
    config = config or SweepConfig()
    settings = plan_settings(config, chunking)
    baseline = config.baseline_of(settings)
    for setting in settings:
        encoder.check_pooling(setting.pooling.mode)
    groups = plan_passes(encoder, settings)
    counter = TextCounter(progress, should_stop, _count_texts(groups, dataset))
    run = _Run(encoder, dataset, config, max_length, batch_tokens, embed, counter)
    rows: list[SweepRow] = []

    def so_far() -> Sweep:
        places = {setting.name: place for place, setting in enumerate(settings)}
        return Sweep(
            dataset=dataset.name,
            encoder_name=encoder.name,
            config=config,
            max_length=max_length,
            with_titles=dataset.with_titles,
            documents=len(dataset.corpus),
            query_ids=tuple(dataset.queries),
            baseline=baseline,
            rows=tuple(sorted(rows, key=lambda row: places[row.name])),
            rows_wanted=len(settings),
            excluded=tuple(run.excluded),
            notes=dataset.notes,
            is_partial=len(rows) < len(settings),
        )

    with contextlib.suppress(StoppedError):
        for group in groups:
            rows += run.measure(group)
            if on_row is not None:
                on_row(so_far())
    return so_far()


class _Run:
    """One sweep while it runs: what has been embedded, and how far it is."""

    def __init__(
        self,
        encoder: EmbeddingEncoder,
        dataset: RetrievalDataset,
        config: SweepConfig,
        max_length: int | None,
        batch_tokens: int | None,
        embed: EmbedFunction,
        counter: TextCounter,
    ) -> None:
        self.excluded: dict[Excluded, None] = {}
        self._encoder, self._dataset, self._config = encoder, dataset, config
        self._max_length, self._batch_tokens, self._embed = max_length, batch_tokens, embed
        self._counter = counter
        self._queries = [Document(query, "", text) for query, text in dataset.queries.items()]
        self._asked: dict[Any, EmbeddingTable] = {}

    def measure(self, group: tuple[SweepSetting, ...]) -> list[SweepRow]:
        """Returns the rows of settings that share a pass."""
        corpus = self._table(self._dataset.corpus, [s.pooling for s in group], group[0].chunking)
        key = _query_key(group)
        if key not in self._asked:
            poolings = [s.query_pooling for s in group]
            self._asked[key] = self._table(self._queries, poolings, group[0].query_chunking)
        asked = self._asked[key]
        self.excluded |= dict.fromkeys((*corpus.excluded, *asked.excluded))
        return [self._row(setting, corpus, asked) for setting in group]

    def _table(
        self,
        documents: Sequence[Document],
        poolings: Sequence[PoolingConfig],
        chunking: ChunkingConfig,
    ) -> EmbeddingTable:
        # Also where a cache has everything, and nothing is told in between.
        self._counter.report()
        table = self._embed(
            self._encoder,
            documents,
            poolings,
            chunking,
            self._max_length,
            True,
            self._batch_tokens,
            self._counter.report,
        )
        self._counter.advance(len(documents))
        self._counter.report()
        return table

    def _row(
        self, setting: SweepSetting, corpus: EmbeddingTable, asked: EmbeddingTable
    ) -> SweepRow:
        mode = setting.pooling.mode
        ids = [document.id for document in corpus.documents]
        metrics = self._config.metrics
        ranked = rank_documents(
            asked.vectors[mode], corpus.vectors[mode], ids, deepest_cutoff(metrics)
        )
        found = {q.id: docs for q, docs in zip(asked.documents, ranked, strict=True)}
        kept = corpus.tokens - corpus.tokens_cut[mode]
        inserted, read = self._token_counts(setting, corpus)
        n = max(1, len(corpus))
        return SweepRow(
            setting=setting,
            trained=is_trained(self._encoder, mode),
            per_query=score_rankings(self._dataset.qrels, found, metrics),
            landmarks_per_document=inserted / n,
            overhead=inserted / max(1, int(kept.sum())),
            tokens_per_document=read / n,
            documents_cut=int((corpus.tokens_cut[mode] > 0).sum()),
            seconds=_seconds(corpus, mode) + _seconds(asked, mode),
        )

    def _token_counts(self, setting: SweepSetting, corpus: EmbeddingTable) -> tuple[int, int]:
        """Returns the tokens inserted into the corpus, and those that the encoder read in all."""
        kind = POOLINGS[setting.pooling.mode].layout
        documents = corpus.documents
        if not documents:
            return 0, 0
        if kind is LayoutKind.MULTI_CLS:
            # Their number is in no table.
            layouts = [self._layout(document, setting) for document in documents]
            inserted = sum(max(0, len(layout.cls_positions) - 1) for layout in layouts)
            return inserted, sum(map(len, layouts))
        # The ends are the same for every text: CLS, and SEP without landmarks.
        first = self._layout(documents[0], setting)
        ends = len(first) - first.n_kept - first.n_landmarks
        inserted = int(corpus.landmarks.sum()) if kind is LayoutKind.LANDMARK else 0
        cut = corpus.tokens_cut[setting.pooling.mode]
        kept = int(np.sum(corpus.tokens - cut))
        return inserted, kept + inserted + ends * len(documents)

    def _layout(self, document: Document, setting: SweepSetting) -> Layout:
        kind = POOLINGS[setting.pooling.mode].layout
        return self._encoder.layout(document.text, kind, setting.chunking, self._max_length)


def _query_key(group: tuple[SweepSetting, ...]) -> Any:
    return (tuple(s.query_pooling for s in group), group[0].query_chunking)


def _count_texts(groups: Sequence[tuple[SweepSetting, ...]], dataset: RetrievalDataset) -> int:
    """Returns how many texts go through the encoder; queries of one kind go once."""
    asked = {_query_key(group) for group in groups}
    return len(groups) * len(dataset.corpus) + len(asked) * len(dataset.queries)


def _seconds(table: EmbeddingTable, mode: PoolingMode) -> float:
    """Returns what a pooling took when it was embedded, also where a cache spared it now."""
    return float(table.pooling_seconds.get(mode, table.seconds))
