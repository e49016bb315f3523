"""Cached calls into the library, and the store for long results."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import streamlit as st

from lmk_viz.config import (
    AttentionConfig,
    ChunkingConfig,
    EncoderConfig,
    LayoutKind,
    PoolingConfig,
    ProjectionConfig,
    digest,
)
from lmk_viz.corpus import Corpus, CorpusTable, sample_corpus
from lmk_viz.corpus_sources import HubSource, hub_corpus
from lmk_viz.documents import Document, sample_documents
from lmk_viz.ui.jobs import Job, JobControl

__all__ = [
    "ResultStore",
    "cached_embed",
    "find_probe",
    "forget_attention",
    "forget_probe",
    "get_chunk_cosines",
    "get_comparison",
    "get_embedding_cache",
    "get_embedding_forecast",
    "get_embeddings",
    "get_encoder",
    "get_hub_table",
    "get_landmark_states",
    "get_landmark_vectors",
    "get_layout",
    "get_layout_stats",
    "get_map",
    "get_measured",
    "get_needles",
    "get_newsgroups",
    "get_query_match",
    "get_sample_corpus",
    "get_sample_dataset",
    "get_samples",
    "get_segment_cosines",
    "get_stability",
    "is_family",
    "start_attention",
    "start_probe",
    "start_warm_up",
]

R = TypeVar("R")


class ResultStore(Generic[R]):
    """A bounded store of results that all sessions share, each computed once.

    Streamlit's own cache replays every element drawn inside a cached call, which a moving
    progress bar does not survive; hence this one for long calls. Results are never changed.
    """

    def __init__(self, max_entries: int) -> None:
        """Makes an empty store of at most so many results."""
        self._max_entries = max_entries
        self._results: OrderedDict[str, R] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, compute: Callable[[], R]) -> R:
        """Returns the result of a key, computing it when it is not there.

        A second caller waits for the first; when the first fails, the second computes.
        """
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._results:
                    return self._results[key]
            result = compute()
            with self._lock:
                self._results[key] = result
                self._locks.pop(key, None)
                while len(self._results) > self._max_entries:
                    self._results.popitem(last=False)
            return result

    def peek(self, key: str) -> R | None:
        """Returns the result of a key, or None where it is not there."""
        with self._lock:
            return self._results.get(key)

    def drop(self, key: str) -> None:
        """Forgets a result, if it is there."""
        with self._lock:
            self._results.pop(key, None)


@st.cache_resource(max_entries=2, show_spinner="Loading the encoder")
def get_encoder(config: EncoderConfig) -> Any:
    """Returns the encoder, shared by all sessions; a family with its variants is one."""
    from lmk_viz.encoder import Encoder

    return Encoder.from_pretrained(config)


def is_family(name: str) -> bool:
    """Returns whether an encoder's name stands for a family; loads nothing."""
    from lmk_viz import loading

    return loading.is_family(name)


@st.cache_resource(max_entries=1, show_spinner="Drawing random weights")
def get_random_encoder(config: EncoderConfig, seed: int = 0) -> Any:
    """Returns the encoder's shape with random weights, a control."""
    return get_encoder(config).with_random_weights(seed)


@st.cache_data(show_spinner=False)
def get_samples() -> tuple[Document, ...]:
    """Returns the sample documents."""
    return sample_documents()


@st.cache_data(show_spinner=False)
def get_sample_corpus() -> Corpus:
    """Returns the labelled sample corpus."""
    return sample_corpus()


@st.cache_resource(max_entries=2, show_spinner="Reading the questions")
def get_sample_dataset(with_titles: bool) -> Any:
    """Returns the bundled questions with judged answers; never changed."""
    from lmk_viz.retrieval.dataset import sample_dataset

    return sample_dataset(with_titles=with_titles)


@st.cache_data(max_entries=16, show_spinner="Placing landmarks")
def get_layout(
    config: EncoderConfig,
    text: str,
    kind: LayoutKind,
    chunking: ChunkingConfig,
    max_length: int | None,
) -> Any:
    """Returns a text's layout."""
    return get_encoder(config).layout(text, kind, chunking, max_length)


@st.cache_data(max_entries=16, show_spinner=False)
def get_layout_stats(
    config: EncoderConfig,
    text: str,
    kind: LayoutKind,
    chunking: ChunkingConfig,
    max_length: int | None,
) -> Any:
    """Returns the counts that describe a text's layout."""
    from lmk_viz.landmarks import measure_layout

    return measure_layout(get_layout(config, text, kind, chunking, max_length), chunking.language)


@st.cache_resource
def _store(name: str, max_entries: int) -> ResultStore[Any]:
    return ResultStore(max_entries)


def start_attention(
    config: EncoderConfig,
    encoder: Any,
    layout: Any,
    chunking: ChunkingConfig,
    attention: AttentionConfig,
    random_weights: bool = False,
) -> "Job[Any]":
    """Returns the call, running or ended, that reads where CLS and landmarks of a text look.

    Args:
        config: names the encoder.
        encoder: the same, loaded; threads cannot ask Streamlit's cache for it.
        layout: of the text.
        chunking: that the layout was made with.
        attention: how rows are reduced.
        random_weights: the encoder is the random control.
    """

    def run(control: JobControl) -> Any:
        return encoder.attention_profile(
            layout,
            attention,
            on_layer=lambda layer: control.report(layer + 1, encoder.layers_to_read(layout)),
            should_stop=lambda: control.is_stopped,
        )

    key = _attention_key(config, layout, chunking, attention, random_weights)
    job: Job[Any] = _store("attention", 16).get(key, lambda: Job(run, "attention"))
    return job


def forget_attention(
    config: EncoderConfig,
    layout: Any,
    chunking: ChunkingConfig,
    attention: AttentionConfig,
    random_weights: bool = False,
) -> None:
    """Drops an ended call, so that the next one reads anew."""
    _store("attention", 16).drop(
        _attention_key(config, layout, chunking, attention, random_weights)
    )


def _attention_key(
    config: EncoderConfig,
    layout: Any,
    chunking: ChunkingConfig,
    attention: AttentionConfig,
    random_weights: bool,
) -> str:
    return digest(
        config,
        layout.text,
        layout.kind.value,
        layout.max_length,
        chunking,
        attention,
        random_weights,
    )


def get_segment_cosines(
    config: EncoderConfig,
    text: str,
    unrelated: str,
    poolings: tuple[PoolingConfig, ...],
    chunking: ChunkingConfig,
    max_length: int | None,
) -> Any:
    """Returns how close each tenth of a text is to the whole."""

    def compute() -> Any:
        from lmk_viz.probes import segment_cosines

        return segment_cosines(
            get_encoder(config), text, poolings, chunking, max_length, unrelated=unrelated
        )

    key = digest(config, text, unrelated, list(map(repr, poolings)), chunking, max_length)
    return _store("segments", 16).get(key, compute)


@st.cache_resource(show_spinner=False)
def _embedding_cache(folder: str | None, gigabytes: str | None) -> Any:
    """Returns the cache of these settings, made once, so that it warns once."""
    from lmk_viz.embedding_cache import EmbeddingCache

    return EmbeddingCache.from_environment()


def get_embedding_cache() -> Any:
    """Returns the cache of vectors on disk, or None where an operator switched it off.

    Raises:
        ValueError: when what an operator set for it cannot be.
    """
    return _embedding_cache(os.environ.get("LMK_VIZ_CACHE_DIR"), os.environ.get("LMK_VIZ_CACHE_GB"))


def cached_embed() -> Any:
    """Returns what embeds a corpus, an `EmbedFunction`: through the cache on disk, if there is one.

    Raises:
        ValueError: when what an operator set for the cache cannot be.
    """
    from lmk_viz.embedding import embed_documents

    cache = get_embedding_cache()
    return embed_documents if cache is None else cache.embed


def get_embeddings(
    config: EncoderConfig,
    documents: tuple[Document, ...],
    poolings: tuple[PoolingConfig, ...],
    chunking: ChunkingConfig,
    max_length: int | None,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Returns the vectors of a corpus."""

    def compute() -> Any:
        embed = cached_embed()
        return embed(
            get_encoder(config), documents, poolings, chunking, max_length, progress=progress
        )

    texts = [(d.id, d.title, d.text, d.label) for d in documents]
    key = digest(config, texts, list(map(repr, poolings)), chunking, max_length)
    return _store("embeddings", 8).get(key, compute)


def get_embedding_forecast(
    encoder: Any,
    documents: tuple[Document, ...],
    poolings: tuple[PoolingConfig, ...],
    max_length: int | None,
) -> float | None:
    """Returns about how many seconds `get_embeddings` will take; None where it cannot be told."""
    from lmk_viz.embedding import forecast_embedding

    return forecast_embedding(encoder, documents, poolings, max_length)


def get_map(table: Any, config: ProjectionConfig) -> Any:
    """Returns the map of an embedded corpus: a panel a pooling, and the numbers."""

    def compute() -> Any:
        from lmk_viz.maps import build_map

        labels = [d.label for d in table.documents]
        return build_map(table.vectors, labels, table.tokens, config)

    return _store("maps", 16).get(digest(table.fingerprint(), config), compute)


def get_stability(table: Any, config: ProjectionConfig) -> Any:
    """Returns by pooling how far layouts of several seeds agree."""

    def compute() -> Any:
        from lmk_viz.alignment import layout_stability

        return {mode: layout_stability(rows, config) for mode, rows in table.vectors.items()}

    return _store("stability", 16).get(digest(table.fingerprint(), config), compute)


def get_landmark_states(
    config: EncoderConfig,
    documents: tuple[Document, ...],
    chunking: ChunkingConfig,
    max_length: int | None,
) -> Any:
    """Returns the landmark states of some documents."""

    def compute() -> Any:
        from lmk_viz.landmark_points import landmark_states

        return landmark_states(get_encoder(config), documents, chunking, max_length)

    key = digest(config, [(d.id, d.text) for d in documents], chunking, max_length)
    return _store("landmark_states", 16).get(key, compute)


def get_landmark_vectors(
    config: EncoderConfig, encoder: Any, layout: Any, chunking: ChunkingConfig
) -> Any:
    """Returns a document's vector and the states of its landmarks.

    Args:
        config: names the encoder.
        encoder: the same, loaded.
        layout: of the document, with landmarks.
        chunking: that the layout was made with.
    """

    def compute() -> Any:
        from lmk_viz.query_match import landmark_vectors

        return landmark_vectors(encoder, layout)

    key = digest(config, layout.text, layout.max_length, chunking)
    return _store("landmark_vectors", 8).get(key, compute)


def get_query_match(
    config: EncoderConfig, encoder: Any, layout: Any, chunking: ChunkingConfig, query: str
) -> Any:
    """Returns how close a question is to a document and to each of its landmarks.

    Arguments are those of `get_landmark_vectors`, and the question.
    """

    def compute() -> Any:
        from lmk_viz.query_match import match_query

        document = get_landmark_vectors(config, encoder, layout, chunking)
        return match_query(encoder, document, query, chunking, layout.max_length)

    key = digest(config, layout.text, layout.max_length, chunking, query)
    return _store("query_match", 32).get(key, compute)


@st.cache_data(max_entries=2, show_spinner="Fetching 20 newsgroups")
def get_newsgroups(limit: int, seed: int) -> Corpus:
    """Returns a seeded part of scikit-learn's 20 newsgroups."""
    from lmk_viz.corpus_sources import newsgroups_corpus

    return newsgroups_corpus(limit, seed)


@st.cache_data(max_entries=2, show_spinner="Fetching rows of the data set")
def get_hub_table(source: HubSource, limit: int, seed: int) -> CorpusTable:
    """Returns a seeded part of a data set of the hub."""
    return hub_corpus(source, limit, seed)


@st.cache_resource(show_spinner=False)
def start_warm_up() -> threading.Thread:
    """Starts UMAP's import and compilation in the background, once a process."""
    from lmk_viz.projection import warm_up

    thread = threading.Thread(target=warm_up, name="umap-warm-up", daemon=True)
    thread.start()
    return thread


def find_probe(key: str) -> "Job[Any] | None":
    """Returns a probe's call, running or ended, if one was started."""
    job: Job[Any] | None = _store("probes", 24).peek(key)
    return job


def start_probe(key: str, run: Callable[[JobControl], Any]) -> "Job[Any]":
    """Returns a probe's call, started if it was not.

    Args:
        key: digest of all that the result depends on.
        run: takes the control; must not touch Streamlit, as it runs in a thread.
    """
    job: Job[Any] = _store("probes", 24).get(key, lambda: Job(run, "probe"))
    return job


def forget_probe(key: str) -> None:
    """Drops an ended call, so that the next one measures anew."""
    _store("probes", 24).drop(key)


@st.cache_data(show_spinner=False)
def get_needles() -> Any:
    """Returns the bundled needles."""
    from lmk_viz.probes.needles import load_needles

    return load_needles()


@st.cache_data(max_entries=4, show_spinner=False)
def get_measured(source: str) -> Any:
    """Returns the extrapolation that lies beside an encoder's weights, or None."""
    from lmk_viz.retrieval.measured import load_measured

    return load_measured(source)


def get_comparison(key: str, evaluation: Any, dataset: Any, baseline: str) -> Any:
    """Returns an evaluation with its differences taken to another system.

    Args:
        key: digest of all that the evaluation depends on.
        evaluation: with some baseline.
        dataset: that was searched.
        baseline: name of a system.
    """

    def compute() -> Any:
        from lmk_viz.retrieval.evaluate import compare_to

        return compare_to(evaluation, dataset, baseline)

    whole = digest(key, baseline, [row.name for row in evaluation.systems])
    return _store("comparisons", 8).get(whole, compute)


def get_chunk_cosines(
    config: EncoderConfig,
    kind: Any,
    query: str,
    document: Document,
    chunking: ChunkingConfig,
    max_length: int | None,
) -> Any:
    """Returns how close each chunk of a document is to a query."""
    embed = cached_embed()

    def compute() -> Any:
        from lmk_viz.retrieval.chunk_vectors import chunk_cosines

        return chunk_cosines(
            get_encoder(config), kind, query, document, chunking, max_length, embed
        )

    key = digest(config, kind.value, query, document.id, document.text, chunking, max_length)
    return _store("chunk_cosines", 64).get(key, compute)
