"""Run calls in threads that do not keep the program from exiting.

A read from a dead mount may never return. The threads of ``concurrent.futures`` are joined when the interpreter
ends, so Ctrl-C would hang there; these threads are daemons.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["DaemonPool"]

GRACE_SECONDS = 0.5


class DaemonPool:
    """Call functions in a few threads, in the order in which they were submitted.

    Parameters
    ----------
    n_threads : int
    name : str
        Of the threads.

    Notes
    -----
    The queue is not bounded here; the caller limits how much it submits.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}_{number}", daemon=True) for number in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[], Any]) -> None:
        """Queue a call whose result is dropped; after ``close``, do nothing."""
        if not self._closed:
            self._calls.put(call)

    def close(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Drop the calls that have not begun, and wait briefly for those that have."""
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        self.finish(grace_seconds)

    def finish(self, deadline_seconds: float) -> None:
        """Make the queued calls, then end."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        deadline = time.monotonic() + deadline_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
