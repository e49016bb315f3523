"""How far a run over several embedding calls is, and its end when someone asks for it."""

from collections.abc import Callable

__all__ = ["StoppedError", "TextCounter"]


class StoppedError(Exception):
    """Someone asked to stop; a run catches it and gives what it has."""


class TextCounter:
    """Adds up the texts of several calls, tells how far they are, and ends them when asked to."""

    def __init__(
        self,
        progress: Callable[[int, int], None] | None,
        should_stop: Callable[[], bool] | None,
        total: int,
    ) -> None:
        """Takes whom to tell and whom to ask.

        Args:
            progress: called with (texts done, texts in all). May raise to cancel.
            should_stop: asked as often.
            total: texts of all calls.
        """
        self._progress, self._should_stop = progress, should_stop
        self._total, self._before = total, 0

    def report(self, done: int = 0, _: int = 0) -> None:
        """Takes how far the call is that is running; the second number is that call's own total.

        Raises:
            StoppedError: when it was asked for.
        """
        if self._progress is not None:
            self._progress(min(self._total, self._before + done), self._total)
        if self._should_stop is not None and self._should_stop():
            raise StoppedError

    def advance(self, count: int) -> None:
        """Takes that a call is done, and how many texts it had."""
        self._before += count
