"""Catch SIGINT and SIGTERM while a call runs that can be cancelled."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def cancel_on_signals(cancel: Callable[[int], object]) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a clean stop; the second one acts as it does without this.

    Parameters
    ----------
    cancel : callable
        Called with the number of the signal. In a thread other than the main one nothing is caught.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, _frame: object) -> None:
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
    finally:
        restore()
