"""The numbers beside a map, each with its interval and its chance level."""

from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import PoolingConfig, PoolingMode, ProjectionConfig
from lmk_viz.figures.map_page import number_words
from lmk_viz.map_metrics import Estimate
from lmk_viz.maps import NUMBERS, CorpusMap, MapPanel, map_findings
from lmk_viz.ui import cache, state

__all__ = ["panel_alt", "panel_numbers", "show_findings", "show_numbers"]

NOTES = {
    "purity": "share of the nearest neighbours with the document's label; chance: random ones",
    "silhouette": "−1 to 1, by cosine distance; chance: labels shuffled",
    "trustworthiness": "1: neighbours on the map are neighbours in the space; chance: points "
    "dealt out anew",
    "continuity": "1: neighbours in the space are neighbours on the map",
    "mean_cosine": "anisotropy: near 1 all vectors point one way; 0 at random",
    "length_1": "absolute rank correlation of the first principal component with tokens; chance: "
    "lengths shuffled",
    "length_2": "the same of the second component",
    "stability": "overlap of neighbourhoods on the map between three seeds",
}


def panel_numbers(panel: MapPanel) -> str:
    """Returns the two numbers that a panel is read with, as markdown, and its notes."""
    lines = []
    for key in ("purity", "trustworthiness"):
        if key in panel.numbers:
            estimate = panel.numbers[key]
            lines.append(
                f"{NUMBERS[key]}: **{estimate.value:.2f}** ({estimate.low:.2f} to "
                f"{estimate.high:.2f}); by chance {estimate.chance:.2f}, k = {estimate.k}"
            )
    return "  \n".join([*lines, *panel.placed.projection.notes])


def panel_alt(pooling: PoolingConfig, panel: MapPanel) -> str:
    """Returns a panel in a sentence with its numbers."""
    count = 0 if panel.points is None else len(panel.points)
    numbers = panel_numbers(panel).replace("**", "").replace("  \n", ". ")
    return f"{count:,} documents under {pooling.label} on a plane. {numbers}"


def show_findings(found: CorpusMap) -> None:
    """Draws in sentences what the numbers allow to say."""
    st.markdown("**What the numbers allow to say.** " + " ".join(map_findings(found)))


def show_numbers(table: Any, found: CorpusMap, config: ProjectionConfig) -> None:
    """Draws all numbers of the panels, and the poolings against each other."""
    st.subheader("Numbers", anchor=False)
    names = {panel.mode: PoolingConfig(panel.mode).label for panel in found.panels}
    rows = {
        key: {panel.mode: panel.numbers.get(key) for panel in found.panels}
        for key in NUMBERS
        if any(key in panel.numbers for panel in found.panels)
    }
    st.toggle(
        "Measure stability over seeds",
        help="Lays the map out under two more seeds, which takes two more runs of the projection.",
        **state.STABILITY.widget(),
    )
    if state.STABILITY.get():
        with st.spinner("Laying out under two more seeds"):
            rows["stability"] = cache.get_stability(table, config)
    words = NUMBERS | {"stability": "Stability of the map"}
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "number": words[key],
                    **{names[mode]: number_words(estimate) for mode, estimate in row.items()},
                }
                for key, row in rows.items()
            ]
        ),
        hide_index=True,
        key="map.numbers",
    )
    with st.expander("What each number is", icon=":material/help:"):
        st.markdown("\n".join(f"- **{words[key]}**: {NOTES[key]}." for key in rows))
    if len(found.panels) > 1:
        left, right = st.columns(2)
        with left:
            _show_matrix(found, "overlap", names, "Ten nearest neighbours shared (Jaccard)")
        with right:
            _show_matrix(found, "cka", names, "Linear CKA of the spaces")
    where = (
        f" They are measured on {found.measured:,} documents drawn with the map's seed."
        if found.measured < found.n
        else ""
    )
    st.caption(
        "Each number has its 95 % interval over documents (bootstrap; for CKA a grouped "
        "jackknife, since repeated rows raise it) and its chance level. All but trustworthiness, "
        "continuity and stability are measured in the full space, by cosine. CKA of unrelated "
        "spaces is far above 0 where documents are fewer than dimensions, so read it against its "
        f"chance level.{where}"
    )


def _show_matrix(found: CorpusMap, kind: str, names: dict[PoolingMode, str], title: str) -> None:
    def cell(one: PoolingMode, other: PoolingMode) -> str:
        if one is other:
            return "1"
        pair = found.pair(one, other)
        estimate: Estimate | None = getattr(pair, kind) if pair else None
        if estimate is None:
            return "-"
        return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"

    chances = [
        estimate.chance
        for pair in found.pairs
        if isinstance(estimate := getattr(pair, kind), Estimate)
    ]
    between = f"{min(chances):.2f} to {max(chances):.2f}" if chances else "-"
    if chances and f"{min(chances):.2f}" == f"{max(chances):.2f}":
        between = f"{chances[0]:.2f}"
    st.markdown(f"**{title}**; by chance {between}")
    st.dataframe(
        pd.DataFrame(
            [[cell(one, other) for other in names] for one in names],
            index=list(names.values()),
            columns=list(names.values()),
        ),
        key=f"map.{kind}",
    )
