"""What was measured for an encoder beforehand, drawn from the file beside its weights."""

from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode
from lmk_viz.figures.retrieval import extrapolation_alt, extrapolation_figure
from lmk_viz.ui import cache, panels
from lmk_viz.ui.messages import show_error

__all__ = ["show_extrapolation"]

COLUMNS = {
    "pooling": "pooling",
    "multiple": "times the training length",
    "ndcg@10": "nDCG@10",
    "ndcg@10_low": "low",
    "ndcg@10_high": "high",
    "start": "start",
    "middle": "middle",
    "end": "end",
    "recall@1": "recall@1",
}


def show_extrapolation(encoder: Any) -> None:
    """Draws retrieval against document length, where it was measured for this encoder."""
    try:
        measured = cache.get_measured(encoder.source)
    except ValueError as error:
        show_error(error)
        return
    if measured is None:
        return
    rows, settings = measured["rows"], measured["settings"]
    length, documents = int(settings["length"]), int(settings["documents"])
    st.subheader("How far does each pooling carry?", anchor=False)
    figure = extrapolation_figure(
        rows,
        "Finding one passage in ever longer documents",
        f"{documents} documents a length, one query each; 1× is {length} tokens",
    )
    panels.show_figure(figure, "home.extrapolation", extrapolation_alt(rows))
    st.caption(
        "Held-out passages are joined to documents of 1 to "
        f"{max(int(row['multiple']) for row in rows)} times the training length; the query is a "
        "sentence that was taken out of one of them. Every pooling is read from the variant "
        "trained for it, all on the same pairs, in the same order, for as many steps. Bands are "
        "95 % bootstrap intervals over queries: where two overlap, look at the paired "
        "differences in the file before saying that one pooling is better. Measured beforehand; "
        "`python -m lmk_viz extrapolate` measures it again."
    )
    with st.expander("The numbers, by depth of the passage", icon=":material/table:"):
        frame = pd.DataFrame(rows)[list(COLUMNS)].rename(columns=COLUMNS)
        frame["pooling"] = [PoolingConfig(PoolingMode(mode)).label for mode in frame["pooling"]]
        st.dataframe(frame.round(3), hide_index=True, key="home.extrapolation.table")
