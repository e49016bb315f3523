"""The settings of the granularity page, and the run that they ask for."""

from collections import Counter
from typing import Any

import streamlit as st

from lmk_viz.config import PoolingConfig, digest
from lmk_viz.embedding import CHARACTERS_A_TOKEN, EmbedFunction
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.sweep import plan_passes, run_sweep
from lmk_viz.retrieval.sweep_rows import Sweep
from lmk_viz.retrieval.sweep_settings import SweepConfig, plan_settings
from lmk_viz.ui import state
from lmk_viz.ui.controls import Inputs, available_poolings
from lmk_viz.ui.jobs import JobControl
from lmk_viz.ui.messages import stop_with
from lmk_viz.ui.probe_inputs import Request
from lmk_viz.ui.retrieval_inputs import dataset_key

__all__ = ["pick_config", "sweep_request"]

SIZES = (8, 16, 32, 64, 128, 256, 512)
LENGTH_STEP = 64
"""Documents of lengths that differ by less are forecast alike."""


def pick_config(encoder: Any) -> SweepConfig:
    """Draws which settings are compared and returns them.

    Raises:
        ValueError: when a choice is out of range.
    """
    offered = available_poolings(encoder)
    # A link or another encoder may name a pooling that this encoder has not got.
    state.SWEEP_POOLINGS.set(tuple(m for m in state.SWEEP_POOLINGS.get() if m in offered))
    left, right = st.columns(2)
    with left:
        st.multiselect(
            "Poolings",
            offered,
            format_func=lambda mode: PoolingConfig(mode).label,
            **state.SWEEP_POOLINGS.widget(),
        )
    with right:
        st.multiselect(
            "Granularities of landmark pooling (tokens a chunk)",
            sorted({*SIZES, *state.SWEEP_SIZES.get()}),
            **state.SWEEP_SIZES.widget(),
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.toggle(
            "Variable",
            help="Sizes drawn from a set; the side bar's variable chunking says which.",
            **state.SWEEP_VARIABLE.widget(),
        )
        st.toggle("By sentence", **state.SWEEP_SENTENCE.widget())
        st.number_input(
            "MultiCLS and every-k at",
            1,
            1_000_000,
            step=8,
            width=170,
            help="Tokens a chunk of MultiCLS, and the step of every k-th token.",
            **state.SWEEP_REFERENCE.widget(),
        )
        st.toggle(
            "At each granularity",
            help="MultiCLS and every-k too; each takes a pass of its own.",
            **state.SWEEP_EACH.widget(),
        )
        st.number_input(
            "Queries' granularity (0: the documents')",
            0,
            1_000_000,
            step=8,
            width=210,
            **state.SWEEP_QUERY.widget(),
        )
    if not state.SWEEP_POOLINGS.get():
        stop_with("Choose at least one pooling above.")
    return SweepConfig(
        poolings=state.SWEEP_POOLINGS.get(),
        granularities=state.SWEEP_SIZES.get(),
        with_variable=state.SWEEP_VARIABLE.get(),
        with_sentence=state.SWEEP_SENTENCE.get(),
        every_granularity=state.SWEEP_EACH.get(),
        reference=state.SWEEP_REFERENCE.get(),
        query_granularity=state.SWEEP_QUERY.get() or None,
    )


def sweep_request(
    inputs: Inputs,
    encoder: Any,
    dataset: RetrievalDataset,
    config: SweepConfig,
    embed: EmbedFunction,
) -> Request:
    """Returns the run that the settings ask for.

    Args:
        inputs: encoder and chunking of the side bar.
        encoder: the same, loaded.
        dataset: what to search.
        config: which settings.
        embed: embeds documents.

    Raises:
        ValueError: when there is nothing to sweep over.
    """
    settings = plan_settings(config, inputs.chunking)

    def run(control: JobControl) -> Sweep:
        return run_sweep(
            encoder,
            dataset,
            config,
            inputs.chunking,
            inputs.max_length,
            embed=embed,
            progress=control.report,
            should_stop=lambda: control.is_stopped,
        )

    key = digest(
        "sweep",
        inputs.encoder,
        inputs.chunking,
        inputs.max_length,
        repr(config),
        dataset_key(dataset),
    )
    passes = len(plan_passes(encoder, settings))
    lengths = Counter(
        min(
            inputs.max_length,
            LENGTH_STEP * (1 + len(d.text) // CHARACTERS_A_TOKEN // LENGTH_STEP),
        )
        for d in dataset.corpus
    )
    counted = tuple((n * passes, tokens) for tokens, n in sorted(lengths.items()))
    return Request(key, run, f"Measuring {len(settings)} settings, text", counted, encoder)
