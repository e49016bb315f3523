"""Where a corpus comes from: bundled, uploaded, a data set; which columns, how many rows."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from lmk_viz.corpus import (
    TABLE_SUFFIXES,
    Columns,
    Corpus,
    CorpusTable,
    corpus_from_table,
    guess_columns,
)
from lmk_viz.corpus_sources import HubSource, limit_corpus, read_upload
from lmk_viz.ui import cache, state
from lmk_viz.ui.limits import Limits
from lmk_viz.ui.messages import show_error, stop_with
from lmk_viz.ui.sources import UPLOAD_MEGABYTES
from lmk_viz.ui.text import escape_markdown

__all__ = ["pick_corpus", "show_preview"]

BUNDLED, NEWSGROUPS, HUB = "bundled", "newsgroups", "hub"
NAMES = {
    BUNDLED: "Bundled: 72 texts on eight topics",
    state.UPLOADED: "Your table, ZIP or text files",
    NEWSGROUPS: "20 newsgroups (scikit-learn; fetched once)",
    HUB: "A data set of the Hugging Face hub",
}
NONE = "none"
PREVIEW_ROWS = 3

_UPLOAD = "map.upload"
_HUB_WANTED = "map.hub_wanted"


def pick_corpus(limits: Limits) -> Corpus:
    """Draws the corpus picker and returns the corpus, or stops the page with what is wrong."""
    if state.CORPUS.get() not in NAMES:
        show_error(f"There is no corpus {state.CORPUS.get()!r}; the bundled one is shown.")
        state.CORPUS.set(BUNDLED)
    chosen = st.selectbox(
        "Corpus", list(NAMES), format_func=NAMES.__getitem__, **state.CORPUS.widget()
    )
    try:
        if chosen == BUNDLED:
            bundled = cache.get_sample_corpus()
            limit, seed = _pick_rows(limits, len(bundled), False)
            found: Corpus | CorpusTable = bundled
        elif chosen == state.UPLOADED:
            found = _uploaded()
            rows = len(found.rows) if isinstance(found, CorpusTable) else len(found)
            limit, seed = _pick_rows(limits, rows, rows > 100)
        elif chosen == NEWSGROUPS:
            limit, seed = _pick_rows(limits, None, True)
            found = cache.get_newsgroups(limit, seed)
        else:
            limit, seed = _pick_rows(limits, None, True)
            found = cache.get_hub_table(_pick_hub_source(), limit, seed)
        if isinstance(found, CorpusTable):
            columns = _pick_columns(found)
            show_preview(found)
            note = (
                f"At most {limit:,} rows of a stream shuffled with seed {seed}."
                if chosen == HUB
                else ""
            )
            made = corpus_from_table(found, columns)
            found = Corpus(made.name, made.documents, made.excluded, made.extra, note)
        return limit_corpus(found, limit, seed)
    except ValueError as error:
        show_error(error)
        st.stop()


def _pick_rows(limits: Limits, rows: int | None, shown: bool) -> tuple[int, int]:
    """Draws the row limit and its seed; returns both.

    Args:
        limits: of the operator, which stand above what is chosen.
        rows: of the source; None where that is not known yet.
        shown: whether to ask; a small corpus is taken whole.
    """
    most = min(state.ROW_LIMIT.get(), limits.max_documents)
    if shown or (rows is not None and rows > most):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.number_input(
                "Row limit",
                1,
                20_000,
                step=100,
                width=150,
                help=f"Of more rows so many are drawn. This installation embeds at most "
                f"{limits.max_documents:,} documents at once.",
                **state.ROW_LIMIT.widget(),
            )
            st.number_input(
                "Seed of the draw", 0, 2**32 - 1, step=1, width=150, **state.ROW_SEED.widget()
            )
    return min(state.ROW_LIMIT.get(), limits.max_documents), state.ROW_SEED.get()


def _uploaded() -> Corpus | CorpusTable:
    files = st.file_uploader(
        f"A table ({', '.join(TABLE_SUFFIXES)}), a ZIP of .txt and .md files, or several of them; "
        "in a ZIP, folders are labels",
        type=[*(suffix[1:] for suffix in TABLE_SUFFIXES), "zip", "txt", "md"],
        accept_multiple_files=True,
        max_upload_size=UPLOAD_MEGABYTES,
        key="_corpus_upload",
    )
    if files:
        # Kept beside the widget, which forgets its files on the next page.
        st.session_state[_UPLOAD] = read_upload([(file.name, file.getvalue()) for file in files])
    found: Corpus | CorpusTable | None = st.session_state.get(_UPLOAD)
    if found is None:
        stop_with("Choose a table above, a ZIP or text files, or the bundled corpus in the list.")
    return found


def _pick_hub_source() -> HubSource:
    row = st.form("map.hub_form", border=False).container(
        horizontal=True, vertical_alignment="bottom"
    )
    # Widgets of a form have no callback, so their values are taken over on submission.
    name = row.text_input(
        "Data set (hub id)", state.HUB_NAME.get(), placeholder="SetFit/20_newsgroups"
    )
    config = row.text_input("Subset, if it has several", state.HUB_CONFIG.get(), width=180)
    split = row.text_input("Split", state.HUB_SPLIT.get(), width=120)
    pressed = row.form_submit_button("Load", icon=":material/cloud_download:")
    if pressed:
        # Checked first, so that the address never holds what cannot be read.
        source = HubSource(name.strip(), split.strip(), config.strip())
        state.HUB_NAME.set(source.name)
        state.HUB_SPLIT.set(source.split)
        state.HUB_CONFIG.set(source.config)
        st.session_state[_HUB_WANTED] = source
    wanted: HubSource | None = st.session_state.get(_HUB_WANTED)
    if wanted is None:
        stop_with("Name a data set above and press Load; nothing is fetched before.")
    return wanted


def _pick_columns(table: CorpusTable) -> Columns:
    """Draws which column holds what, and returns it."""
    guess, names = guess_columns(table), table.columns
    if not names:
        return Columns()

    def pick(label: str, choice: state.Choice[str], default: str, options: Sequence[str]) -> str:
        if choice.get() not in options:
            choice.set(default if default in options else options[0])
        picked = st.selectbox(
            label,
            options,
            format_func=lambda name: "(none)" if name == NONE else name,
            width=200,
            **choice.widget(),
        )
        return "" if picked == NONE else str(picked)

    with st.container(horizontal=True):
        text = pick("Text column", state.TEXT_COLUMN, guess.text, names)
        others = [NONE, *(name for name in names if name != text)]
        title = pick("Title column", state.TITLE_COLUMN, guess.title or NONE, others)
        label = pick("Label column", state.LABEL_COLUMN, guess.label or NONE, others)
    return Columns(text, guess.id, title, label)


def show_preview(table: CorpusTable) -> None:
    """Draws the first rows of an uploaded table."""
    shown = escape_markdown(table.name)
    with st.expander(
        f"Preview: the first of {len(table.rows):,} rows of {shown}", icon=":material/preview:"
    ):
        rows = [
            {
                # A static table reads cells as markdown.
                escape_markdown(name): escape_markdown(str(row.get(name, ""))[:120])
                for name in table.columns[:8]
            }
            for row in table.rows[:PREVIEW_ROWS]
        ]
        st.table(pd.DataFrame(rows))
