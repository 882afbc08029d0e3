"""Catch SIGINT and SIGTERM while a call runs that can be cancelled, and wait so that they are noticed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tartan.errors import RunCancelledError

WAKE_SECONDS = 1.0
"""How often a wait looks for signals: one that arrives right before the wait does not end it."""


def wait_for(happened: threading.Event) -> None:
    """Wait for an event, and let handlers of signals run meanwhile."""
    while not happened.wait(WAKE_SECONDS):
        pass


@contextlib.contextmanager
def cancel_on_signals(cancel: Callable[[int], object]) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a clean stop; the second one acts as it does without this.

    Parameters
    ----------
    cancel : callable
        Called with the number of the signal. In a thread other than the main one nothing is caught.

    Raises
    ------
    KeyboardInterrupt
        Where a RunCancelledError ends the call after SIGINT, as Python's programs and notebooks expect after Ctrl-C; it
        has the message of that error, and that error as its cause.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        restore()
        cancel(number)

    def restore() -> None:
        for caught, handler in before.items():
            # Python does not know a handler that was not set from Python.
            signal.signal(caught, signal.SIG_DFL if handler is None else handler)

    for caught in (signal.SIGINT, signal.SIGTERM):
        before[caught] = signal.signal(caught, handle)
    try:
        yield
    except RunCancelledError as error:
        if received == [signal.SIGINT]:
            raise KeyboardInterrupt(str(error)) from error
        raise
    finally:
        restore()
