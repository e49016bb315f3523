"""Long calls in a thread of their own, with progress, a stop, and what was done until then.

A Streamlit script that waits for a long call cannot listen to its own stop button. So the
call runs in a thread, which never touches Streamlit, and the page looks at it now and then.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import streamlit as st

__all__ = ["Job", "JobControl", "await_job"]

R = TypeVar("R")

PATIENCE_SECONDS = 2.0
"""A call that ends within this time is waited for, without a progress bar."""
POLL_SECONDS = 0.5


class JobControl:
    """What the running call and the page say to each other."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.done = 0
        self.total = 0
        self.started = time.monotonic()

    def report(self, done: int, total: int) -> None:
        """Notes steps done and steps in all; called by the running call."""
        self.done, self.total = done, total

    @property
    def is_stopped(self) -> bool:
        """Whether a user asked to stop; looked at by the running call between steps."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Asks the running call to stop after its current step."""
        self._stopped.set()

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the pace so far; None before the first step."""
        if not self.done or not self.total:
            return None
        return (time.monotonic() - self.started) * (self.total - self.done) / self.done


class Job(Generic[R]):
    """One call in a thread."""

    def __init__(self, run: Callable[[JobControl], R], name: str) -> None:
        """Starts the call.

        Args:
            run: takes the control; what it returns after a stop is a partial result.
            name: of the thread.
        """
        self.control = JobControl()
        self._result: R | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(run,), name=name, daemon=True)
        self._thread.start()

    def _work(self, run: Callable[[JobControl], R]) -> None:
        try:
            self._result = run(self.control)
        except BaseException as error:  # Handed over to whoever asks for the result.
            self._error = error

    def wait(self, seconds: float | None) -> bool:
        """Waits for the call to end and returns whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> R:
        """Returns what the ended call returned, or raises what it raised."""
        if self._thread.is_alive():
            raise RuntimeError("the call is still running; wait for it first.")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


def await_job(job: "Job[R]", label: str) -> R:
    """Returns a job's result; while it runs, shows its progress and a stop, and ends the page.

    Args:
        job: started or ended.
        label: what is being done.

    Raises:
        Exception: whatever the call raised.
    """
    waited = time.monotonic() - job.control.started
    if job.wait(max(0.0, PATIENCE_SECONDS - waited)):
        return job.result()

    @st.fragment(run_every=POLL_SECONDS)
    def watch() -> None:
        if job.wait(0.0):
            st.rerun()
        control = job.control
        left = control.seconds_left
        text = f"{label}: {control.done:,} of {control.total or '?'}"
        if left is not None:
            text += f", about {left:,.0f} s left"
        st.progress(control.done / control.total if control.total else 0.0, text=text)
        if control.is_stopped:
            st.caption("Stopping after the current step.")
        elif st.button("Stop and show what is there", icon=":material/stop_circle:"):
            control.stop()

    watch()
    st.stop()
