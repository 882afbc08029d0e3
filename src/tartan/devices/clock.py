"""Clocks for the simulator: the real one, and one that never waits."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Time in seconds from an arbitrary origin. Safe for use by several threads."""

    def now(self) -> float:
        """Return the time; never runs backwards."""
        ...

    def wait_until(self, deadline: float) -> None:
        """Return when ``now() >= deadline``; at once if that is so already."""
        ...


class RealClock:
    """The monotonic clock of the machine."""

    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, deadline: float) -> None:
        while (remaining := deadline - time.perf_counter()) > 0:
            time.sleep(remaining)


class VirtualClock:
    """A clock that jumps to every deadline instead of waiting for it.

    Examples
    --------
    >>> clock = VirtualClock()
    >>> clock.wait_until(3600.0)
    >>> clock.now()
    3600.0
    """

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now = start_seconds
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def wait_until(self, deadline: float) -> None:
        with self._lock:
            self._now = max(self._now, deadline)

    def advance(self, seconds: float) -> None:
        """Let time pass without anybody waiting for it."""
        with self._lock:
            self._now += seconds
