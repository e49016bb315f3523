"""The part of the retrieval page that looks into one query: ranks, the answering chunk, the cut."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import LayoutKind, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.figures import evaluation as figures
from lmk_viz.retrieval.chunk_vectors import ChunkCosines, MultiVector
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.scores import Evaluation
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.answer_text import answer_html
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.messages import show_error
from lmk_viz.ui.retrieval_data import query_frame
from lmk_viz.ui.retrieval_runs import DEPTH
from lmk_viz.ui.text import escape_markdown

__all__ = ["show_queries"]

TOP = 5
"""Documents listed under each system."""
WORDS = 160
"""First characters of a document that a list shows."""
ONLY_NAMES = {
    "all": "All",
    "differ": "Where ranks differ",
    "missed": "Missed by all (not in the first ten)",
}


def show_queries(
    evaluation: Evaluation,
    dataset: RetrievalDataset,
    inputs: Inputs,
    modes: Sequence[PoolingMode],
) -> None:
    """Draws the choice of a query, and what became of it under each system."""
    st.subheader("One query", anchor=False)
    frame = query_frame(evaluation, dataset)
    ranks = frame[[name for name in frame if str(name).startswith("rank_")]]
    st.segmented_control(
        "Queries",
        list(ONLY_NAMES),
        format_func=ONLY_NAMES.__getitem__,
        required=True,
        **state.SEARCH_ONLY.widget(),
    )
    known = ranks.fillna(DEPTH + 1)
    chosen = {
        "all": [True] * len(frame),
        "differ": (known.nunique(axis=1) > 1).tolist(),
        "missed": (known > 10).all(axis=1).tolist(),
    }[state.SEARCH_ONLY.get()]
    ids = frame["id"][chosen].tolist()
    if not ids:
        st.info("No query is like that here; choose all of them.", icon=":material/info:")
        return
    with st.expander(f"The ranks of {len(ids):,} queries", icon=":material/table:"):
        st.dataframe(
            frame[chosen].rename(columns={"tokens": "tokens of the right document"}),
            hide_index=True,
            key="search.queries",
            column_config={"depth": st.column_config.NumberColumn(format="%.2f")},
        )
        st.caption(
            "The rank of the first right document under each system; empty where it is not "
            f"among the first {DEPTH}. Depth is where its evidence stands, 0 the start, 1 the end."
        )
    if state.SEARCH_QUERY.get() not in ids:
        state.SEARCH_QUERY.set(ids[0])
    # Numbered, since two queries can have the same words, and a list tells rows by their label.
    numbers = {query: number for number, query in enumerate(evaluation.query_ids, start=1)}
    st.selectbox(
        "Query",
        ids,
        format_func=lambda query: f"{numbers[query]} · {dataset.queries[query][:200]}",
        **state.SEARCH_QUERY.widget(),
    )
    query = state.SEARCH_QUERY.get()
    _show_ranks(evaluation, dataset, query)
    document = _pick_document(evaluation, dataset, query)
    if document is not None:
        _show_document(document, dataset, query, inputs, _kinds(evaluation, modes))
    _show_found(evaluation, dataset, query)


def _kinds(evaluation: Evaluation, modes: Sequence[PoolingMode]) -> tuple[MultiVector, ...]:
    """Returns the ways to look into a document that go with what is compared."""
    names = {row.name for row in evaluation.rows}
    return tuple(
        kind
        for kind in MultiVector
        if kind is MultiVector.MAX_SIM
        or kind.value in names
        or (kind is MultiVector.LATE_CHUNKING and PoolingMode.MEAN in modes)
    )


def _show_ranks(evaluation: Evaluation, dataset: RetrievalDataset, query: str) -> None:
    depth = dataset.depth.get(query)
    grades = dataset.qrels[query]
    right = [name for name, grade in grades.items() if grade > 0]
    st.markdown(
        f"> {escape_markdown(dataset.queries[query])}\n\n"
        f"Judged right: {', '.join(escape_markdown(name) for name in right)}"
        + ("" if depth is None else f" · the evidence stands at {depth:.0%} of the document")
    )
    values = []
    for row in evaluation.systems:
        rank = row.rank_of(query, grades)
        words = f"over {DEPTH}" if rank is None else str(rank)
        if query not in row.rankings:
            words = "no vector"
        values.append((figures.system_name(row.name), words, "Rank of the first right document."))
    panels.show_metrics(values)


def _pick_document(
    evaluation: Evaluation, dataset: RetrievalDataset, query: str
) -> Document | None:
    """Draws the choice among the right documents and those found first, and returns it."""
    documents = {document.id: document for document in dataset.corpus}
    grades = dataset.qrels[query]
    options: dict[str, str] = {
        name: "right" for name, grade in grades.items() if grade > 0 and name in documents
    }
    for row in evaluation.systems:
        for name in row.rankings.get(query, ())[:1]:
            first = f"first under {figures.system_name(row.name)}"
            options[name] = f"{options[name]}, {first}" if name in options else first
    if not options:
        st.info("The right document is not among the documents.", icon=":material/info:")
        return None
    # With the query in the choice, another query begins at its own right document.
    pairs = [(query, name) for name in options]
    if state.SEARCH_DOCUMENT.get() not in pairs:
        state.SEARCH_DOCUMENT.set(pairs[0])

    def label(pair: tuple[str, str]) -> str:
        name = pair[1]
        return f"{name} · {documents[name].title or 'no title'} ({options[name]})"

    st.selectbox("Document", pairs, format_func=label, **state.SEARCH_DOCUMENT.widget())
    return documents[state.SEARCH_DOCUMENT.get()[1]]


def _show_document(
    document: Document,
    dataset: RetrievalDataset,
    query: str,
    inputs: Inputs,
    kinds: Sequence[MultiVector],
) -> None:
    """Draws a document with the chunk that answers, its evidence and what was cut."""
    try:
        with st.spinner("Looking for the chunk that answers"):
            found: list[ChunkCosines] = [
                cache.get_chunk_cosines(
                    inputs.encoder,
                    kind,
                    dataset.queries[query],
                    document,
                    inputs.chunking,
                    inputs.max_length,
                )
                for kind in kinds
            ]
    except ValueError as error:
        show_error(error)
        return
    is_right = dataset.qrels[query].get(document.id, 0) > 0
    depth = _place_of_evidence(dataset, document, query) if is_right else None
    layout = cache.get_layout(
        inputs.encoder, document.text, LayoutKind.LANDMARK, inputs.chunking, inputs.max_length
    )
    characters, kept = len(document.text), int(layout.kept_chars)
    figure = figures.chunks_figure(found, characters, depth, kept)
    panels.show_figure(figure, "search.chunks", figures.chunks_alt(found, characters, depth))
    st.caption(
        "Each bar is a chunk, as high as its cosine with the query; the mark is the chunk that "
        "answers. Levels differ between the ways for reasons other than this query, so look at "
        "which chunk is highest. CLS has no vector of a chunk and so no answer to show."
    )
    _show_cut(layout, depth, characters, kept)
    evidence = None if depth is None else min(characters, round(depth * characters))
    with st.container(height=420):
        st.html(answer_html(document.text, found, evidence, kept))
    st.caption(
        f"Green is the cosine of each chunk under {found[0].kind.label.lower()}, ◆ stands before "
        "the chunk that answers, ▼ at the evidence as the data set places it; struck out is "
        "what the length limit cut."
    )


def _place_of_evidence(dataset: RetrievalDataset, document: Document, query: str) -> float | None:
    """Returns where the evidence stands in what is encoded, 0 to 1; None where nobody said.

    A data set tells it of the text alone, and a title may stand before that.
    """
    depth = dataset.depth.get(query)
    head = f"{document.title}\n"
    if depth is None or not dataset.with_titles or not document.text.startswith(head):
        return depth
    whole = len(document.text)
    return (len(head) + depth * (whole - len(head))) / whole


def _show_cut(layout: Any, depth: float | None, characters: int, kept: int) -> None:
    n = layout.n_landmarks
    counts = f"{layout.n_tokens:,} tokens, {n:,} landmark{'s' * (n != 1)}"
    if not layout.n_cut and not layout.n_tail:
        st.markdown(f"{counts}, nothing cut.")
        return
    parts = [counts]
    if layout.n_cut:
        parts.append(
            f":orange[{layout.n_cut:,} tokens ({characters - kept:,} characters) cut off the end]"
        )
    if layout.n_tail:
        parts.append(f":orange[{layout.n_tail:,} tokens behind the last landmark have none]")
    if depth is not None and depth * characters > kept:
        parts.append(
            ":orange[the evidence lies in what was cut: of the vectors only passages see it]"
        )
    st.markdown(" · ".join(parts))


def _show_found(evaluation: Evaluation, dataset: RetrievalDataset, query: str) -> None:
    """Draws the documents found first under each system."""
    documents = {document.id: document for document in dataset.corpus}
    grades = dataset.qrels[query]
    st.markdown(f"**The first {TOP} documents under each**")
    tabs = st.tabs([figures.system_name(row.name) for row in evaluation.systems])
    for tab, row in zip(tabs, evaluation.systems, strict=True):
        with tab:
            found = [documents[name] for name in row.rankings.get(query, ())[:TOP]]
            if not found:
                st.caption("Nothing was found.")
                continue
            table = pd.DataFrame(
                {
                    "rank": range(1, len(found) + 1),
                    "right": ["✓" if grades.get(d.id, 0) > 0 else "" for d in found],
                    "id": [d.id for d in found],
                    "title": [d.title for d in found],
                    "first words": [" ".join(d.text[:WORDS].split()) for d in found],
                }
            )
            st.dataframe(table, hide_index=True, key=f"search.found.{row.name}")
