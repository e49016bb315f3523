"""Pages run in this process, without a browser."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from lmk_viz.presets import MINILM_NAME
from lmk_viz.ui import state

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = "app.py"
TIMEOUT_SECONDS = 120.0
"""Of one run; the first one loads torch and the encoder on whatever machine this is."""


@pytest.fixture(autouse=True)
def quiet_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit's data cache is emptied; the encoder stays loaded over all tests.

    The warm-up would compile UMAP beside the tests, and change their warning filters. Long
    calls are waited for, so that no test sees their progress by accident.
    """
    monkeypatch.setattr("lmk_viz.ui.jobs.PATIENCE_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr("lmk_viz.projection.warm_up", lambda: None)
    st.cache_data.clear()


@pytest.fixture(autouse=True)
def minilm_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages begin with MiniLM, whose numbers the tests know; some ask for a family by name."""
    minilm = replace(state.ENCODER, default=MINILM_NAME)
    monkeypatch.setattr(state, "ENCODER", minilm)
    monkeypatch.setattr(state, "SHARED", (minilm, *state.SHARED[1:]))


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """`open_page(page, state, query)`: the page after its first run, as in a fresh session.

    Nothing but this page has run, as when its address is opened in a browser. `state` holds
    choices by session key, `query` what the address says.
    """

    def open_(
        page: str = HOME,
        state: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> AppTest:
        at = AppTest.from_file(ROOT / HOME, default_timeout=TIMEOUT_SECONDS)
        if page != HOME:
            at.switch_page(page)
        for key, value in (state or {}).items():
            at.session_state[key] = value
        for name, value in (query or {}).items():
            at.query_params[name] = value
        return at.run()

    return open_
