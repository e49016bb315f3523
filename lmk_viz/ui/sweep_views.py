"""What the granularity page shows of a sweep: recommendation, chart, table, what is taken away."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from lmk_viz.config import ChunkingConfig, PoolingMode
from lmk_viz.figures.sweep import METRIC_NAMES, sweep_alt, sweep_figure
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.metrics import Interval
from lmk_viz.retrieval.recommend import Recommendation, Verdict
from lmk_viz.retrieval.sweep_rows import Sweep
from lmk_viz.retrieval.sweep_settings import SweepConfig
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.messages import stop_with
from lmk_viz.ui.retrieval_code import dataset_code
from lmk_viz.ui.text import escape_markdown

__all__ = ["show_sweep"]

MARKS = {
    Verdict.RECOMMENDED: "recommended",
    Verdict.CANNOT_TELL: "cheapest; the data cannot tell",
}


def show_sweep(sweep: Sweep, dataset: RetrievalDataset, inputs: Inputs, encoder: Any) -> None:
    """Draws recommendation, chart, table, what was left out, and what can be taken away."""
    if not sweep.rows:
        stop_with("No setting was measured before the stop; measure again to see one.")
    metric = _pick_metric(sweep)
    sweep = replace(sweep, baseline=_pick_baseline(sweep))
    chosen = sweep.recommendation(metric)
    _show_recommendation(chosen, sweep)
    rows = sweep.row_dicts()
    marked = chosen.name if chosen else None
    mark = MARKS[chosen.verdict] if chosen else ""
    subtitle = f"{sweep.dataset}, {inputs.encoder.name}"
    figure = sweep_figure(rows, metric, marked, mark, "Quality against cost", subtitle)
    panels.show_figure(figure, "sweep.figure", sweep_alt(rows, metric, marked, mark))
    st.caption(
        "Higher finds more, further left costs less: the encoder reads the text and every token "
        "that a setting inserts into it. Look for where the landmark line stops rising to the "
        "right. Bars are 95 % bootstrap intervals of each mean; the same queries stand behind "
        "all points, so overlapping bars do not say that two settings are alike: the paired "
        "differences in the table do. Points of equal cost are drawn side by side."
    )
    panels.show_badge(encoder, list(dict.fromkeys(r.setting.pooling.mode for r in sweep.rows)))
    _show_table(sweep, metric, chosen)
    panels.show_excluded(sweep.excluded, "texts have no vector", "sweep.excluded")
    if chosen is not None:
        _show_settings(sweep, chosen.name, inputs)
    panels.show_downloads(
        "sweep",
        sweep.to_frame(),
        sweep.to_dict(inputs.encoder.name),
        figure,
        _sweep_code(sweep, dataset, inputs),
    )


def _pick_metric(sweep: Sweep) -> str:
    st.segmented_control(
        "Measure that decides",
        list(sweep.config.metrics),
        format_func=lambda name: METRIC_NAMES.get(name, name),
        required=True,
        **state.SWEEP_METRIC.widget(),
    )
    return state.SWEEP_METRIC.get()


def _pick_baseline(sweep: Sweep) -> str:
    names = [row.name for row in sweep.rows]
    if state.SWEEP_BASELINE.get() not in names:
        state.SWEEP_BASELINE.set(names[0])
    st.selectbox(
        "Differences are taken to",
        names,
        format_func=sweep.label,
        width=300,
        **state.SWEEP_BASELINE.widget(),
    )
    return state.SWEEP_BASELINE.get()


def _show_recommendation(chosen: Recommendation | None, sweep: Sweep) -> None:
    if chosen is None:
        st.info("One setting was measured, so there is nothing to compare it with.")
        return
    draw = st.success if chosen.verdict is Verdict.RECOMMENDED else st.info
    draw(escape_markdown(chosen.words(sweep.label)), icon=":material/recommend:")
    with st.expander("How this is decided", icon=":material/help:"):
        st.markdown(
            "Each setting is compared with the best one, query by query. The best was found on "
            "these very queries, and the best of many looks better than it is (the winner's "
            "curse). So the queries are resampled for all settings together, and the intervals "
            "are made so wide that with 95 % those of **all pairs** of settings hold at once. A "
            "setting whose interval includes 0 is not told from the best; of those, the one with "
            "the fewest tokens read is taken, then the one that took the fewest seconds, and of "
            "times within 10 % the one with the higher mean. Where no setting is told from the "
            "best, the data cannot tell.\n\n"
            "The number of queries is *n = ((c + 0.84) · s / d)²* with *d* the mean and *s* the "
            "standard deviation of the differences by query and *c* the critical value of the "
            "intervals: so many tell the pair apart in four of five trials (Sakai, [Topic set "
            "size design](https://doi.org/10.1007/s10791-015-9273-z), 2016). *d* is estimated "
            "from these queries, so take the number for a size, not for a promise."
        )


def _show_table(sweep: Sweep, metric: str, chosen: Recommendation | None) -> None:
    title = METRIC_NAMES.get(metric, metric)
    records = []
    for row in sweep.rows:
        record: dict[str, Any] = {
            "setting": sweep.label(row.name) + ("" if row.trained else " *"),
        }
        for name in sweep.config.metrics:
            record[METRIC_NAMES.get(name, name)] = _ranged(sweep.interval(row, name))
        record[f"{title} minus {sweep.label(sweep.baseline)}"] = _signed(
            sweep.difference(row, metric)
        )
        if chosen is not None:
            own = chosen.of(row.name)
            record["behind the best, all pairs at once"] = _signed(own.difference) + (
                " told apart" if own.is_told_apart else ""
            )
        record |= {
            "landmarks a document": row.landmarks_per_document,
            "overhead (%)": 100 * row.overhead,
            "tokens a document": row.tokens_per_document,
            "documents cut": row.documents_cut,
            "seconds": row.seconds,
        }
        records.append(record)
    number = st.column_config.NumberColumn
    st.dataframe(
        pd.DataFrame(records),
        hide_index=True,
        key="sweep.table",
        column_config={
            "landmarks a document": number(format="%.1f"),
            "overhead (%)": number(format="%.1f"),
            "tokens a document": number(format="%.0f"),
            "seconds": number(format="%.1f"),
        },
    )
    st.caption(
        f"{len(sweep.query_ids):,} queries, {sweep.documents:,} documents; intervals of 95 %. "
        "Overhead: tokens inserted for a hundred of text. Seconds: of embedding documents and "
        "queries, each pooling as if it were alone."
        + (
            ""
            if all(row.trained for row in sweep.rows)
            else " *: the encoder was not trained for this pooling."
        )
    )


def _show_settings(sweep: Sweep, name: str, inputs: Inputs) -> None:
    """Draws what applies a setting: its values and the lines of Python."""
    encoder = inputs.encoder.name
    code = sweep.code(name, encoder)
    settings = json.dumps(sweep.settings(name, encoder), ensure_ascii=False, indent=2)
    st.subheader("Apply it", anchor=False)
    st.code(code, language="python")
    with st.container(horizontal=True):
        st.download_button(
            "Settings (JSON)",
            settings.encode(),
            "settings.json",
            "application/json",
            key="sweep.settings",
            on_click="ignore",
        )
        st.download_button(
            "Script (Python)",
            f"{code}\nprint(scores)\n".encode(),
            "embed.py",
            "text/x-python",
            key="sweep.script",
            on_click="ignore",
        )


def _sweep_code(sweep: Sweep, dataset: RetrievalDataset, inputs: Inputs) -> str:
    """Returns Python that gives the numbers of the page."""
    imports, lines = dataset_code(dataset)
    config = replace(sweep.config, baseline=sweep.baseline)
    default = SweepConfig()
    given = []
    for name in config.__dataclass_fields__:
        value = getattr(config, name)
        if value != getattr(default, name):
            text = _modes_code(value) if name == "poolings" else repr(value)
            given.append(f"{name}={text}")
    return "\n".join(
        [
            "from lmk_viz.config import ChunkingConfig",
            "from lmk_viz.encoder import Encoder",
            *imports,
            "from lmk_viz.retrieval.sweep import run_sweep",
            "from lmk_viz.retrieval.sweep_settings import SweepConfig",
            "",
            f"encoder = Encoder.from_pretrained({inputs.encoder.name!r})",
            *lines,
            f"config = SweepConfig({', '.join(given)})",
            f"chunking = {panels.chunking_code(_read_by_rows(inputs.chunking))}",
            f"sweep = run_sweep(encoder, dataset, config, chunking, {inputs.max_length})",
            "print(sweep.to_frame())",
            "print(sweep.recommendation().words(sweep.label))",
        ]
    )


def _read_by_rows(chunking: ChunkingConfig) -> ChunkingConfig:
    """Returns a chunking without what every row sets for itself."""
    default = ChunkingConfig()
    return replace(chunking, mode=default.mode, granularity=default.granularity)


def _modes_code(modes: Sequence[PoolingMode]) -> str:
    return repr(tuple(mode.value for mode in modes))


def _ranged(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def _signed(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f"{interval.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
