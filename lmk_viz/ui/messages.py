"""Messages about input, and the end of a page that has nothing to show."""

from typing import NoReturn

import streamlit as st

from lmk_viz.ui.text import escape_markdown

__all__ = ["show_error", "stop_with"]


def show_error(error: Exception | str) -> None:
    """Draws a message about input that the user can mend."""
    st.error(escape_markdown(str(error)), icon=":material/error:")


def stop_with(message: str) -> NoReturn:
    """Draws a worded stop and ends the page here."""
    st.info(message, icon=":material/info:")
    st.stop()
