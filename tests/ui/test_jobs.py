"""Long calls in a thread, and the page that waits for one."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.ui.jobs import Job, JobControl

WAIT_SECONDS = 30.0
PROGRESS = "Reading, layer: 2 of 8"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a call waits for; opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def ended(job: Job[object]) -> Job[object]:
    assert job.wait(WAIT_SECONDS)
    return job


def held(gate: threading.Event, result: object = "result") -> Job[object]:
    """A call that has done two steps of eight and waits for the gate or a stop."""
    reported = threading.Event()

    def run(control: JobControl) -> object:
        control.report(2, 8)
        reported.set()
        while not gate.wait(0.01):
            if control.is_stopped:
                return "two layers"
        return result

    job = Job(run, "held")
    assert reported.wait(WAIT_SECONDS)
    return job


# The call.


def test_job_gives_what_its_call_returned():
    assert ended(Job(lambda _: {"a": 1}, "name")).result() == {"a": 1}


def test_result_of_none_is_a_result():
    assert ended(Job(lambda _: None, "name")).result() is None


def test_call_runs_in_a_thread_of_the_given_name():
    job = ended(Job(lambda _: threading.current_thread(), "reader"))
    thread = job.result()
    assert (thread.name, thread.daemon) == ("reader", True)
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("error", [ValueError("no room"), MemoryError("full"), SystemExit(3)])
def test_error_of_the_call_is_raised_for_whoever_asks_for_its_result(error):
    def fail(_: JobControl) -> None:
        raise error

    job = ended(Job(fail, "name"))
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            job.result()
        assert caught.value is error


def test_result_cannot_be_had_before_the_call_ends(gate):
    job = held(gate)
    assert not job.wait(0.0)
    with pytest.raises(RuntimeError, match="still running"):
        job.result()


def test_progress_of_the_call_is_seen_while_it_runs(gate):
    control = held(gate).control
    assert (control.done, control.total) == (2, 8)


def test_stopped_call_gives_what_it_has_until_then(gate):
    job = held(gate)
    job.control.stop()
    assert ended(job).result() == "two layers"


def test_call_that_nobody_stops_is_not_stopped(gate):
    job = held(gate)
    gate.set()
    assert (ended(job).result(), job.control.is_stopped) == ("result", False)


def test_stop_of_one_call_leaves_another_alone(gate):
    one, other = held(gate), held(gate)
    one.control.stop()
    ended(one)
    assert not other.control.is_stopped
    assert not other.wait(0.05)


@pytest.mark.parametrize(
    ("done", "total", "wanted"),
    [(0, 8, None), (2, 8, 30.0), (8, 8, 0.0), (0, 0, None), (3, 0, None)],
    ids=["no step yet", "a quarter", "all", "nothing known", "no total"],
)
def test_seconds_left_follow_from_the_pace_so_far(monkeypatch, done, total, wanted):
    control = JobControl()
    control.started = 100.0
    monkeypatch.setattr("lmk_viz.ui.jobs.time", SimpleNamespace(monotonic=lambda: 110.0))
    control.report(done, total)
    assert control.seconds_left == wanted


# The page.


def page() -> None:
    import streamlit as st

    from lmk_viz.ui.jobs import await_job

    st.write("above")
    try:
        found = await_job(st.session_state["job"], "Reading, layer")
    except ValueError as error:
        st.error(str(error))
        return
    st.write(f"found {found}")


def open_page(job: Job[object]) -> AppTest:
    at = AppTest.from_function(page, default_timeout=WAIT_SECONDS)
    at.session_state["job"] = job
    return at.run()


def bars(at: AppTest) -> list[str]:
    return [element.proto.text for element in at.get("progress")]


def words(at: AppTest) -> list[str]:
    assert not at.exception
    return [element.value for element in at.markdown]


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr("lmk_viz.ui.jobs.PATIENCE_SECONDS", 0.0)


@pytest.mark.parametrize("steps", [0, 2], ids=["no step yet", "two steps"])
def test_short_call_is_waited_for_in_the_same_run(gate, steps):
    def run(control: JobControl) -> str:
        control.report(steps, 8)
        gate.wait(WAIT_SECONDS)
        return "it"

    class Short(Job[str]):
        """Ends as soon as somebody takes the time to wait for it."""

        def wait(self, seconds: float | None) -> bool:
            if seconds:
                gate.set()
            return super().wait(seconds)

    job = Short(run, "short")
    while job.control.total != 8:
        time.sleep(0.001)
    at = open_page(job)
    assert (words(at), bars(at), len(at.button)) == (["above", "found it"], [], 0)


@pytest.mark.usefixtures("impatient")
def test_long_call_shows_its_progress_and_a_stop_and_ends_the_page(gate):
    at = open_page(held(gate))
    assert words(at) == ["above"]
    assert [text.startswith(PROGRESS) for text in bars(at)] == [True]
    assert [element.proto.value for element in at.get("progress")] == [25]
    assert [button.label for button in at.button] == ["Stop and show what is there"]


def test_progress_says_how_long_it_will_take(gate, monkeypatch):
    job = held(gate)
    job.control.started -= 1000.0
    at = open_page(job)
    (left,) = [text.removeprefix(f"{PROGRESS}, about ") for text in bars(at)]
    # Three times the thousand seconds that a quarter took, and what this test has taken.
    assert 3_000 <= int(left.removesuffix(" s left").replace(",", "")) < 3_300


@pytest.mark.usefixtures("impatient")
def test_call_without_a_step_yet_shows_an_empty_bar(gate):
    at = open_page(Job(lambda _: gate.wait(WAIT_SECONDS), "silent"))
    assert bars(at) == ["Reading, layer: 0 of ?"]
    assert [element.proto.value for element in at.get("progress")] == [0]


@pytest.mark.usefixtures("impatient")
def test_run_after_the_call_has_ended_shows_its_result(gate):
    job = held(gate)
    at = open_page(job)
    gate.set()
    ended(job)
    at.run()
    assert (words(at), bars(at), len(at.button)) == (["above", "found result"], [], 0)


@pytest.mark.usefixtures("impatient")
def test_stop_button_stops_the_call_and_its_part_is_shown(gate):
    job = held(gate)
    at = open_page(job)
    at.button[0].click().run()
    assert job.control.is_stopped
    ended(job)
    assert words(at.run()) == ["above", "found two layers"]


@pytest.mark.usefixtures("impatient")
def test_stopped_call_that_is_still_at_its_step_offers_no_second_stop(gate):
    job: Job[object] = Job(lambda _: gate.wait(WAIT_SECONDS), "stubborn")
    job.control.stop()
    at = open_page(job)
    assert [element.value for element in at.caption] == ["Stopping after the current step."]
    assert len(at.button) == 0


def test_error_of_the_call_reaches_the_page():
    def fail(_: JobControl) -> None:
        raise ValueError("no room")

    at = open_page(Job(fail, "failing"))
    assert [element.value for element in at.error] == ["no room"]
    assert words(at) == ["above"]
