"""What the retrieval page compares, and the run that measures it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode, digest
from lmk_viz.embedding_encoder import pooling_passes
from lmk_viz.retrieval.chunk_vectors import MultiVector
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.ui import cache, state
from lmk_viz.ui.controls import Inputs, available_poolings
from lmk_viz.ui.jobs import JobControl
from lmk_viz.ui.messages import stop_with
from lmk_viz.ui.probe_inputs import Request
from lmk_viz.ui.retrieval_inputs import dataset_key

__all__ = ["DEPTH", "METRICS", "build_request", "pick_systems"]

METRICS = ("ndcg@10", "recall@1", "recall@10", "mrr@10")
DEPTH = 100
"""Documents ranked for each query, so that a rank beyond ten is told too."""
CHARACTERS_A_TOKEN = 4
"""In English text, roughly; for forecasts alone."""
LENGTH_STEP = 32
"""Lengths are forecast to the next multiple: each one measured costs a moment."""


def pick_systems(encoder: Any) -> tuple[tuple[PoolingConfig, ...], tuple[MultiVector, ...]]:
    """Draws the choice of what is compared and returns it; ends the page where it is nothing."""
    offered = available_poolings(encoder)
    # A link or another encoder may name a pooling that this encoder has not got.
    state.SEARCH_POOLINGS.set(tuple(m for m in state.SEARCH_POOLINGS.get() if m in offered))
    st.multiselect(
        "Poolings",
        offered,
        format_func=lambda mode: PoolingConfig(mode).label,
        help="Each gives a document one vector. BM25 on words is always there as a reference.",
        **state.SEARCH_POOLINGS.widget(),
    )
    st.toggle(
        "Several vectors a document too",
        help="Max-sim over landmark states, late chunking, and passages embedded apart, on the "
        "same chunks; each takes another pass over the documents.",
        **state.SEARCH_SEVERAL.widget(),
    )
    modes = state.SEARCH_POOLINGS.get()
    if not modes:
        stop_with("Choose at least one pooling above.")
    kinds = tuple(MultiVector) if state.SEARCH_SEVERAL.get() else ()
    return tuple(PoolingConfig(mode) for mode in modes), kinds


def build_request(
    inputs: Inputs,
    encoder: Any,
    dataset: RetrievalDataset,
    poolings: Sequence[PoolingConfig],
    kinds: Sequence[MultiVector],
) -> Request:
    """Returns the run that measures how well each system finds the judged documents.

    Raises:
        ValueError: when what an operator set for the cache of vectors cannot be.
    """
    embed = cache.cached_embed()

    def run(control: JobControl) -> Any:
        from lmk_viz.retrieval.evaluate import evaluate

        return evaluate(
            encoder,
            dataset,
            poolings,
            inputs.chunking,
            inputs.max_length,
            METRICS,
            PoolingMode.LANDMARK,
            progress=control.report,
            multi_vector=kinds,
            ranking_depth=DEPTH,
            embed=embed,
            should_stop=lambda: control.is_stopped,
        )

    key = digest(
        "evaluate",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        dataset_key(dataset),
        list(map(repr, poolings)),
        [kind.value for kind in kinds],
    )
    passes = _passes(inputs, encoder, dataset, poolings, kinds)
    return Request(key, run, "Encoding, text", passes, encoder)


def _passes(
    inputs: Inputs,
    encoder: Any,
    dataset: RetrievalDataset,
    poolings: Sequence[PoolingConfig],
    kinds: Sequence[MultiVector],
) -> tuple[tuple[int, int], ...]:
    """Returns forward passes as (how many, of how many tokens), from counting characters."""
    whole = len(pooling_passes(encoder, poolings))
    whole += sum(kind is not MultiVector.PASSAGES for kind in kinds)
    texts = [*(d.text for d in dataset.corpus), *dataset.queries.values()]
    tokens = [2 + len(text) // CHARACTERS_A_TOKEN for text in texts]
    counts: Counter[int] = Counter()
    for n in tokens:
        counts[_rounded(n, inputs.max_length)] += whole
    if MultiVector.PASSAGES in kinds:
        chunk = inputs.chunking.granularity
        counts[_rounded(chunk + 2, inputs.max_length)] += sum(-(-n // chunk) for n in tokens)
    return tuple((count, length) for length, count in sorted(counts.items()))


def _rounded(tokens: int, longest: int) -> int:
    """Returns a length rounded up to a multiple, or the longest input where that is less."""
    return min(longest, -(-tokens // LENGTH_STEP) * LENGTH_STEP)
