"""Parts of the retrieval page that draw scores: figures, tables, costs, downloads."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import PoolingMode
from lmk_viz.figures import evaluation as figures
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.scores import Evaluation
from lmk_viz.ui import cache, panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.retrieval_runs import METRICS

__all__ = ["compared", "show_receipt", "show_scores", "show_teaching"]

LEVEL = 0.05


def show_receipt(evaluation: Evaluation, inputs: Inputs) -> None:
    """Draws what was searched, what was cut, and in full what has no vector."""
    parts = [f"{inputs.chunking.describe()}", f"at most {inputs.max_length:,} tokens an input"]
    parts += [
        f":orange[{row.documents_cut:,} documents cut under {figures.system_name(row.name)}]"
        for row in evaluation.rows
        if row.documents_cut
    ]
    parts += [
        f":orange[{row.queries_cut:,} queries cut under {figures.system_name(row.name)}]"
        for row in evaluation.rows
        if row.queries_cut
    ]
    parts += [
        f"{row.fell_back:,} documents without a position under {figures.system_name(row.name)}, "
        "so averaged whole"
        for row in evaluation.rows
        if row.fell_back
    ]
    st.markdown(" · ".join(parts))
    panels.show_excluded(evaluation.excluded, "texts without a vector, and why", "search.excluded")


def compared(key: str, evaluation: Evaluation, dataset: RetrievalDataset) -> Evaluation:
    """Draws the choice of metric and baseline and returns the differences to that baseline."""
    names = [row.name for row in evaluation.systems]
    if state.SEARCH_BASELINE.get() not in names:
        state.SEARCH_BASELINE.set("landmark" if "landmark" in names else names[0])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control("Metric", list(METRICS), required=True, **state.SEARCH_METRIC.widget())
        st.selectbox(
            "Compare with",
            names,
            format_func=figures.system_name,
            width=260,
            help="Differences and p values are to this one, query by query.",
            **state.SEARCH_BASELINE.widget(),
        )
    baseline = state.SEARCH_BASELINE.get()
    if baseline == evaluation.baseline:
        return evaluation
    found: Evaluation = cache.get_comparison(key, evaluation, dataset, baseline)
    return found


def show_scores(evaluation: Evaluation) -> None:
    """Draws the scores of all systems, by length and by depth, and what an index costs."""
    metric = state.SEARCH_METRIC.get()
    rows = _rows(evaluation)
    figure = figures.scores_figure(
        rows,
        metric,
        "Which finds the right document?",
        f"{evaluation.dataset}: {len(evaluation.query_ids):,} queries, "
        f"{evaluation.documents:,} documents",
    )
    panels.show_figure(figure, "search.scores", figures.scores_alt(rows, metric))
    st.caption(
        "Means over queries with 95 % bootstrap intervals. Two intervals that overlap say little "
        "about which is better, since both systems met the same queries: the table below has "
        "the difference query by query, with its own interval, and the p value of a paired "
        "randomisation test (signs of the differences flipped, two-sided). **Corrected** is "
        f"Holm's for the {len(rows) - 1} comparisons to one baseline under one metric; read it "
        "and not the single one. BM25 counts words and takes no part in any encoder."
    )
    _show_verdict(rows, metric, evaluation.baseline)
    st.dataframe(_scores_frame(rows, evaluation.baseline), hide_index=True, key="search.table")
    _show_groups(evaluation, rows, metric)
    _show_costs(evaluation, metric)


def show_teaching() -> None:
    """Draws what to look for, and what it does not prove."""
    with st.expander("What to look for, and what this does not prove", icon=":material/school:"):
        st.markdown(
            "- **Depth before level.** A pooling that forgets the end loses on questions whose "
            "answer stands there, and gains nothing on those of the start. A mean over all "
            "queries hides it when most answers stand early, as they do in many data sets.\n"
            "- **A difference that is not significant is not zero.** With few queries only large "
            "differences can be told from chance; the interval says how large it may yet be.\n"
            "- **Groups are not tested.** They are many and small; their intervals are there to "
            "be looked at, not to be counted.\n"
            "- **Several vectors are not free.** Max-sim reads the same states that landmark "
            "pooling averages, at as many dot products as there are landmarks. Passages embedded "
            "apart are never cut by the length limit, which the other two are.\n"
            "- **The chunk that answers** has the highest cosine with the query. That is what the "
            "encoder finds close, and need not be where a person would find the answer.\n"
            "- One data set is one data set, and an encoder that was trained on texts like these "
            "has an advantage that has nothing to do with its pooling."
        )


def _rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    return [row.to_dict() for row in evaluation.systems]


def _show_verdict(rows: Sequence[Mapping[str, Any]], metric: str, baseline: str | None) -> None:
    """Says in a sentence which differences are more than chance."""
    others = [row for row in rows if row["difference"]]
    if not others or baseline is None:
        return
    clear = [row for row in others if row["difference"][f"{metric}_p_holm"] < LEVEL]
    name = figures.system_name(baseline)
    if not clear:
        st.markdown(
            f"Under {metric} **these queries cannot tell** any of the {len(others)} others from "
            f"{name} (no corrected p below {LEVEL})."
        )
        return
    told = [
        f"**{figures.system_name(row['pooling'])}** "
        f"({row['difference'][metric]:+.3f}, p {_tell_p(row['difference'][f'{metric}_p_holm'])})"
        for row in clear
    ]
    st.markdown(
        f"Under {metric} different from {name} beyond chance, after correction: "
        f"{', '.join(told)}."
        + (
            f" Not to be told from it: {', '.join(rest)}."
            if (rest := [_name_of(row) for row in others if row not in clear])
            else ""
        )
    )


def _name_of(row: Mapping[str, Any]) -> str:
    name: str = figures.system_name(row["pooling"])
    return name


def _tell_p(p: float) -> str:
    """Returns a p value as it is written."""
    return f"{p:.4f}" if p >= 0.0001 else "under 0.0001"


def _scores_frame(rows: Sequence[Mapping[str, Any]], baseline: str | None) -> pd.DataFrame:
    """Returns the table of systems by metric, with differences to the baseline."""
    metric = state.SEARCH_METRIC.get()
    table: list[dict[str, Any]] = []
    for row in rows:
        of_row: dict[str, Any] = {"system": figures.system_name(row["pooling"], row["trained"])}
        for name in METRICS:
            of_row[name] = (
                f"{row[name]:.3f} ({row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f})"
            )
        difference = row["difference"]
        title = f"{metric} less {figures.system_name(baseline)}" if baseline else "difference"
        of_row[title] = (
            ""
            if difference is None
            else f"{difference[metric]:+.3f} ({difference[f'{metric}_low']:+.3f} to "
            f"{difference[f'{metric}_high']:+.3f})"
        )
        of_row["p"] = "" if difference is None else _tell_p(difference[f"{metric}_p"])
        of_row["p, corrected"] = (
            "" if difference is None else _tell_p(difference[f"{metric}_p_holm"])
        )
        of_row["documents cut"] = row["documents_cut"]
        of_row["seconds"] = round(row["seconds"], 2)
        table.append(of_row)
    return pd.DataFrame(table)


def _show_groups(evaluation: Evaluation, rows: Sequence[Mapping[str, Any]], metric: str) -> None:
    places = st.columns(2)
    with places[0]:
        if rows[0]["by_depth"]:
            figure = figures.groups_figure(rows, "by_depth", metric, "By depth of the evidence")
            alt = figures.groups_alt(rows, "by_depth", metric)
            panels.show_figure(figure, "search.by_depth", alt)
            st.caption(
                "A line that falls to the right is a system that loses what stands late in a "
                "document. In brackets the number of queries; bars are 95 % intervals."
            )
        else:
            st.caption("This data set does not say where its answers stand, so depth is unknown.")
    with places[1]:
        if rows[0]["by_length"]:
            figure = figures.groups_figure(
                rows, "by_length", metric, "By length of the right document"
            )
            alt = figures.groups_alt(rows, "by_length", metric)
            panels.show_figure(figure, "search.by_length", alt)
            low, high = evaluation.length_edges
            st.caption(
                f"Thirds of the queries: short is up to {low:,.0f} tokens, long over "
                f"{high:,.0f}. Longer documents are other documents too, not the same ones with "
                "more text."
            )


def _show_costs(evaluation: Evaluation, metric: str) -> None:
    """Draws size and speed of the indexes, where some keep more than one vector a document."""
    rows = [row.to_dict() for row in evaluation.rows if row.cost and row.cost.vectors]
    singles = {mode.value for mode in PoolingMode}
    if all(row["pooling"] in singles for row in rows):
        return
    st.subheader("More than one vector a document", anchor=False)
    figure = figures.cost_figure(rows, metric, evaluation.documents)
    panels.show_figure(figure, "search.costs", figures.cost_alt(rows, metric))
    st.caption(
        "All use the same chunks, and exact search. Max-sim keeps the landmark states that "
        "landmark pooling averages; late chunking the mean of the token states of each chunk, "
        "out of one pass over the whole document; passages embed each chunk by itself, so that "
        "none knows its document. A point further up and not further right is worth having."
    )
    table = pd.DataFrame(
        [
            {
                "system": figures.system_name(row["pooling"], row["trained"]),
                metric: round(row[metric], 3),
                "vectors": row["index"]["vectors"],
                "vectors a document": round(row["index"]["vectors"] / evaluation.documents, 2),
                "index (MiB)": round(row["index"]["bytes"] / 2**20, 3),
                "dot products a query": row["index"]["dot_products"],
                "search a query (ms)": round(row["index"]["seconds_a_query"] * 1e3, 3),
                "encoding (s)": round(row["seconds"], 2),
            }
            for row in rows
        ]
    )
    st.dataframe(table, hide_index=True, key="search.costs.table")
    st.caption(
        "Bytes are of float32 vectors without ids. Search is measured here, all queries at once, "
        "a query's share; encoding the query is not in it and costs all the same. Vectors that "
        "were already on disk make encoding look faster than it is."
    )
