"""Choices: kept over runs and pages, written to the URL and read from it."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.config import ChunkingMode, LayoutKind, PoolingMode, ProjectionMethod
from lmk_viz.ui import state

PAGES = {
    "landmarks": (*state.SHARED, *state.LANDMARKS_PAGE),
    "attention": (*state.SHARED, *state.ATTENTION_PAGE),
    "map": (*state.SHARED, *state.MAP_PAGE),
    "position": (*state.SHARED, *state.PROBE_PAGE),
    "granularity": (*state.SHARED, *state.SWEEP_PAGE),
    "retrieval": (*state.SHARED, *state.SEARCH_PAGE),
}
CHOICES = tuple(dict.fromkeys(choice for choices in PAGES.values() for choice in choices))

OTHERS: dict[str, tuple[str, Any]] = {
    "encoder": ("acme/model-v1.5", "acme/model-v1.5"),
    "one": ("1", True),
    "doc": ("pasted", "pasted"),
    "chunking": ("variable", ChunkingMode.VARIABLE),
    "g": ("64", 64),
    "gs": ("8-16", (8, 16)),
    "per_chunk": ("1", True),
    "seed": ("7", 7),
    "lang": ("zh", "zh"),
    "cap": ("100", 100),
    "close": ("1", True),
    "limit": ("300", 300),
    "compare": ("1", True),
    "g2": ("256", 256),
    "tokens": ("1", True),
    "input": ("plain", LayoutKind.PLAIN),
    "layers": ("single", "single"),
    "layer": ("3", 3),
    "head": ("2", 2),
    "bins": ("10", 10),
    "log": ("0", False),
    "random": ("1", True),
    "single": ("0-2", (0, 2)),
    "axis": ("distance", "distance"),
    "row": ("landmark", PoolingMode.LANDMARK),
    "scalar": ("entropy", "entropy"),
    "encoder2": ("acme/other", "acme/other"),
    "docs": ("rate_limiter~multilingual", ("rate_limiter", "multilingual")),
    "corpus": ("uploaded", "uploaded"),
    "poolings": ("mean-cls", (PoolingMode.MEAN, PoolingMode.CLS)),
    "method": ("pca", ProjectionMethod.PCA),
    "k": ("5", 5),
    "min_dist": ("0.25", 0.25),
    "map_seed": ("3", 3),
    "metric": ("euclidean", "euclidean"),
    "colour": ("tokens", "tokens"),
    "pointer": ("click", "click"),
    "rows": ("500", 500),
    "row_seed": ("4", 4),
    "stability": ("1", True),
    "points": ("1", True),
    "dataset": ("acme/texts", "acme/texts"),
    "split": ("test", "test"),
    "subset": ("en", "en"),
    "view": ("influence", "influence"),
    "of": ("shuffle", "shuffle"),
    "probed": ("cls-mean", (PoolingMode.CLS, PoolingMode.MEAN)),
    "length": ("256", 256),
    "base": ("32", 32),
    "needles": ("5", 5),
    "depths": ("4", 4),
    "border": ("token", "token"),
    "filler": ("document", "document"),
    "fillers": ("2", 2),
    "probe_seed": ("9", 9),
    "random_weights": ("1", True),
    "centred": ("1", True),
    "unit": ("sentence", "sentence"),
    "floor": ("0", False),
    "share": ("0", False),
    "orders": ("3", 3),
    "shuffled": ("1", True),
    "side": ("around", "around"),
    "data": ("tables", "tables"),
    "titles": ("1", True),
    "taken": ("end", "end"),
    "data_seed": ("5", 5),
    "sizes": ("16-64", (16, 64)),
    "swept": ("mean-landmark", (PoolingMode.MEAN, PoolingMode.LANDMARK)),
    "with_variable": ("0", False),
    "with_sentence": ("0", False),
    "each": ("1", True),
    "reference": ("64", 64),
    "query_g": ("16", 16),
    "against": ("landmark:32", "landmark:32"),
    "measure": ("mrr@10", "mrr@10"),
    "compared": ("mean-landmark", (PoolingMode.MEAN, PoolingMode.LANDMARK)),
    "several": ("1", True),
    "baseline": ("bm25", "bm25"),
    "by": ("recall@1", "recall@1"),
    "only": ("differ", "differ"),
}
"""For each name in the URL a value that is not the default, as written and as chosen."""

BAD = [
    ("g", "abc"),
    ("g", ""),
    ("g", "0"),
    ("g", "-3"),
    ("g", "1.5"),
    ("g", "1_0"),
    ("g", "1000001"),
    ("g", "9" * 6000),
    ("chunking", "words"),
    ("chunking", ""),
    ("gs", ""),
    ("gs", "8-"),
    ("gs", "0-8"),
    ("gs", "2000000"),
    ("per_chunk", "yes"),
    ("seed", str(2**32)),
    ("lang", "e1"),
    ("lang", "a" * 100),
    ("cap", "100001"),
    ("doc", ""),
    ("doc", "a\nb"),
    ("encoder", "x" * 513),
    ("limit", "-1"),
    ("g2", "x"),
    ("tokens", "2"),
    ("input", "cls"),
    ("layer", "-1"),
    ("head", "-2"),
    ("bins", "1025"),
    ("axis", "depth"),
    ("row", "first"),
    ("docs", "one~"),
    ("single", "0--1"),
    ("single", "0-1-2-3-4"),
    ("poolings", "cls-nope"),
    ("poolings", ""),
    ("method", "isomap"),
    ("metric", "cosinus"),
    ("rows", "0"),
    ("view", "needles"),
    ("depths", "1"),
    ("k", "1"),
    ("min_dist", "nan"),
    ("min_dist", "1.5"),
    ("min_dist", "near"),
]


def page() -> None:
    """A page with every choice and one widget, which may be hidden; the script of an AppTest."""
    import streamlit as st

    from lmk_viz.ui import state

    pages = (
        *state.SHARED,
        *state.LANDMARKS_PAGE,
        *state.ATTENTION_PAGE,
        *state.MAP_PAGE,
        *state.PROBE_PAGE,
        *state.SWEEP_PAGE,
        *state.SEARCH_PAGE,
    )
    state.sync_url(tuple(dict.fromkeys(pages)))
    if not st.session_state.get("without_widgets"):
        st.number_input("Granularity", 1, 1_000_000, **state.GRANULARITY.widget())
        st.multiselect("Sizes", [8, 16, 32, 64, 128, 256], **state.GRANULARITIES.widget())
        st.text_area("Text", **state.TEXT.widget())


def open_page(query: Mapping[str, str] | None = None, **session: Any) -> AppTest:
    at = AppTest.from_function(page, default_timeout=60)
    for name, value in (query or {}).items():
        at.query_params[name] = value
    for key, value in session.items():
        at.session_state[key] = value
    return at.run()


def chosen(at: AppTest, choice: state.Choice[Any]) -> Any:
    """What a choice is in the session of a page."""
    return at.session_state.get(choice.key, choice.default)


@lru_cache
def open_bad(param: str, value: str) -> AppTest:
    """The page opened by a link with an unusable value; looked at, never run again."""
    return open_page({param: value})


@pytest.mark.parametrize("choices", PAGES.values(), ids=PAGES)
def test_no_two_choices_of_a_page_share_a_name_in_the_url(choices):
    assert [name for name, n in Counter(c.param for c in choices).items() if n > 1] == []


def test_no_two_choices_share_a_key():
    assert [key for key, n in Counter(c.key for c in CHOICES).items() if n > 1] == []


def test_pasted_text_is_no_choice_of_any_url():
    assert state.TEXT.key not in {c.key for c in CHOICES}


@pytest.fixture(autouse=True)
def minilm_first() -> None:
    """Nothing is loaded here, and the choices are those of the app."""


def test_values_in_the_url_are_chosen():
    at = open_page({choice.param: OTHERS[choice.param][0] for choice in CHOICES})
    assert {choice.param: chosen(at, choice) for choice in CHOICES} == {
        choice.param: OTHERS[choice.param][1] for choice in CHOICES
    }
    assert list(at.warning) == []


def test_chosen_values_are_written_to_the_url():
    at = open_page(**{choice.key: OTHERS[choice.param][1] for choice in CHOICES})
    assert at.query_params == {choice.param: OTHERS[choice.param][0] for choice in CHOICES}


def test_defaults_leave_the_url_empty():
    assert open_page(**{choice.key: choice.default for choice in CHOICES}).query_params == {}


@pytest.mark.parametrize(("param", "value"), BAD)
def test_unusable_value_in_the_url_is_named(param, value):
    warnings = open_bad(param, value).warning
    assert [w.value.startswith(f"The link's `{param}` was left out: ") for w in warnings] == [True]


@pytest.mark.parametrize(("param", "value"), BAD)
def test_unusable_value_in_the_url_leaves_the_default(param, value):
    choice = next(c for c in CHOICES if c.param == param)
    assert chosen(open_bad(param, value), choice) == choice.default


@pytest.mark.parametrize(("param", "value"), BAD)
def test_unusable_value_goes_from_the_url(param, value):
    assert open_bad(param, value).query_params == {}


def test_unusable_value_does_not_keep_the_others_from_being_read():
    at = open_page({"g": "abc", "seed": "7"})
    assert chosen(at, state.SEED) == 7


def test_unusable_value_leaves_what_was_chosen_before():
    at = open_page(**{state.GRANULARITY.key: 64})
    at.query_params["g"] = "abc"
    assert chosen(at.run(), state.GRANULARITY) == 64


def test_warning_of_a_link_shows_what_the_link_says_letter_by_letter():
    at = open_page({"chunking": "[free](http://evil.example) **now**"})
    assert r"\[free\]\(http\://evil\.example\) \*\*now\*\*" in at.warning[0].value


def test_name_in_the_url_that_is_no_choice_stays_untouched():
    assert open_page({"utm_source": "mail"}).query_params == {"utm_source": "mail"}


def test_sizes_that_repeat_in_the_url_are_taken_once():
    assert chosen(open_page({"gs": "8-16-8"}), state.GRANULARITIES) == (8, 16)


def test_documents_that_repeat_in_the_url_are_taken_once():
    assert chosen(open_page({"docs": "one~two~one"}), state.OTHERS) == ("one", "two")


def test_change_of_a_widget_is_chosen():
    at = open_page()
    at.number_input[0].set_value(48).run()
    assert chosen(at, state.GRANULARITY) == 48


def test_change_of_a_widget_is_written_to_the_url():
    at = open_page()
    at.number_input[0].set_value(48).run()
    assert at.query_params == {"g": "48"}


def test_change_back_to_the_default_clears_the_url():
    at = open_page({"g": "48"})
    at.number_input[0].set_value(state.GRANULARITY.default).run()
    assert at.query_params == {}


def test_change_of_a_widget_wins_over_the_url_written_before():
    at = open_page({"g": "48"})
    at.number_input[0].set_value(96).run()
    assert chosen(at, state.GRANULARITY) == 96


def test_new_link_wins_over_what_was_chosen():
    at = open_page()
    at.number_input[0].set_value(48).run()
    at.query_params["g"] = "96"
    assert chosen(at.run(), state.GRANULARITY) == 96


def test_link_that_names_the_default_wins_over_what_was_chosen():
    at = open_page()
    at.number_input[0].set_value(48).run()
    at.query_params["g"] = str(state.GRANULARITY.default)
    assert chosen(at.run(), state.GRANULARITY) == state.GRANULARITY.default


def test_page_opened_without_its_settings_in_the_url_writes_them_again():
    at = open_page({"g": "48"})
    # As after a page link, which clears what the address said.
    at.query_params.clear()
    assert at.run().query_params == {"g": "48"}


def test_widget_shows_what_the_url_says():
    assert open_page({"g": "48"}).number_input[0].value == 48


def test_widget_shows_what_a_new_link_says():
    at = open_page()
    at.number_input[0].set_value(48).run()
    at.query_params["g"] = "96"
    assert at.run().number_input[0].value == 96


@pytest.mark.parametrize("runs", [1, 3])
def test_choice_survives_runs_without_its_widget(runs):
    at = open_page()
    at.number_input[0].set_value(48).run()
    at.session_state["without_widgets"] = True
    for _ in range(runs):
        at.run()
    at.session_state["without_widgets"] = False
    assert at.run().number_input[0].value == 48


def test_pasted_text_survives_a_run_without_its_widget():
    at = open_page()
    at.text_area[0].set_value("my secret words").run()
    at.session_state["without_widgets"] = True
    at.run()
    at.session_state["without_widgets"] = False
    assert at.run().text_area[0].value == "my secret words"


def test_pasted_text_never_enters_the_url():
    at = open_page({"g": "48"})
    at.text_area[0].set_value("my secret words").run()
    assert at.query_params == {"g": "48"}


def test_list_of_a_widget_is_kept_as_a_sorted_tuple():
    at = open_page()
    at.multiselect[0].set_value([64, 8]).run()
    assert chosen(at, state.GRANULARITIES) == (8, 64)


def test_emptied_list_is_kept_as_no_choice_at_all():
    at = open_page()
    at.multiselect[0].set_value([]).run()
    assert chosen(at, state.GRANULARITIES) == ()


def test_emptied_list_does_not_warn_on_the_next_run():
    at = open_page()
    at.multiselect[0].set_value([]).run()
    assert [w.value for w in at.run().warning] == []
