"""The store of long results that all sessions share."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmk_viz.ui.cache import ResultStore

WAIT_SECONDS = 10.0


@pytest.fixture
def store() -> ResultStore[object]:
    return ResultStore(max_entries=2)


def test_result_is_computed_once_for_threads_that_ask_together(store):
    calls, together = [], threading.Barrier(8)

    def compute() -> str:
        calls.append(1)
        # Long enough for the other threads to arrive.
        threading.Event().wait(0.1)
        return "result"

    def ask(_: int) -> object:
        together.wait(WAIT_SECONDS)
        return store.get("key", compute)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert (found, len(calls)) == (["result"] * 8, 1)


def test_result_of_none_is_not_computed_again(store):
    store.get("key", lambda: None)
    assert store.get("key", lambda: "computed again") is None


def test_slow_key_does_not_hold_up_another(store):
    started, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        started.set()
        assert go_on.wait(WAIT_SECONDS)
        return "slow"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.get, "slow", slow)
        assert started.wait(WAIT_SECONDS)
        second = pool.submit(store.get, "fast", lambda: "fast")
        try:
            assert second.result(WAIT_SECONDS) == "fast"
        finally:
            go_on.set()
        assert first.result(WAIT_SECONDS) == "slow"


def test_least_recently_used_result_is_dropped_when_full(store):
    for key in "ab":
        store.get(key, lambda key=key: key)
    store.get("a", lambda: "a anew")
    store.get("c", lambda: "c")
    kept = {key: store.get(key, lambda: "anew") for key in "ac"}
    assert (kept, store.get("b", lambda: "anew")) == ({"a": "a", "c": "c"}, "anew")


def test_number_of_results_stays_bounded_over_many_keys(store):
    for key in range(50):
        store.get(str(key), lambda: "old")
    anew = [store.get(str(key), lambda: "new") for key in reversed(range(50))]
    assert anew.count("old") == 2


def test_dropped_result_is_computed_again(store):
    store.get("key", lambda: "old")
    store.drop("key")
    assert store.get("key", lambda: "new") == "new"


def test_drop_leaves_the_other_results(store):
    store.get("key", lambda: "old")
    store.drop("another")
    assert store.get("key", lambda: "new") == "old"


def test_failure_reaches_the_caller_and_the_next_call_computes(store):
    def fail() -> None:
        raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"):
        store.get("key", fail)
    assert store.get("key", lambda: "result") == "result"


def test_thread_that_waited_for_a_failure_computes_itself(store):
    started, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        started.set()
        assert go_on.wait(WAIT_SECONDS)
        raise ValueError("stopped by its user")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.get, "key", fail)
        assert started.wait(WAIT_SECONDS)
        second = pool.submit(store.get, "key", lambda: "result")
        go_on.set()
        assert second.result(WAIT_SECONDS) == "result"
        assert isinstance(first.exception(WAIT_SECONDS), ValueError)
