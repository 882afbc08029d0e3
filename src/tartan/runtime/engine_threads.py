"""Threads that make the calls of one engine of a device: copies one way, or what computes."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable

from tartan.runtime.events import Event, NodeBroken

THREADS_AN_ENGINE = 2
FIRST, LAST = -(2**30), 2**30
"""Priorities before and after all others."""


class EngineThreads:
    """Threads that make the calls of one engine, the lowest priority first.

    Parameters
    ----------
    name : str
    post : callable
        Gets NodeBroken when a call raises.

    Notes
    -----
    Two threads: the engine has its next copy or call while the first thread still learns that the last one is done.
    With a third one, preprocessing would queue behind compares that are not urgent.
    """

    def __init__(self, name: str, post: Callable[[Event], None]) -> None:
        self._post = post
        self._serial = itertools.count()
        self._calls: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._threads = [threading.Thread(target=self._serve, name=name, daemon=True) for _ in range(THREADS_AN_ENGINE)]
        for thread in self._threads:
            thread.start()

    def put(self, priority: int, call: Callable[[], None]) -> None:
        """Have a call made."""
        self._calls.put((priority, next(self._serial), call))

    def end(self, priority: int) -> None:
        """Ask the threads to end, before or after all that waits."""
        for _ in self._threads:
            self._calls.put((priority, next(self._serial), None))

    def join(self, deadline: float | None) -> None:
        """Wait until the threads have ended, or until a time of the monotonic clock."""
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (call := self._calls.get()[2]) is not None:
            try:
                call()
            except BaseException as error:
                self._post(NodeBroken(error))
