"""A clock that stands still while its process does not run."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_SECONDS = 2.0


class AwakeClock:
    """Count the seconds in which this process ran, for who reads it at least once a second.

    Between two readings at most ``most_seconds`` count. A process that was stopped, or whose machine was, has heard
    nothing in that time, and that says nothing about who is silent.

    Parameters
    ----------
    most_seconds : float
    clock : callable
        Seconds, whether the process runs or not.

    Examples
    --------
    >>> moments = iter([100.0, 101.0, 161.0, 161.5])
    >>> awake = AwakeClock(clock=lambda: next(moments))
    >>> [awake(), awake(), awake()]
    [1.0, 3.0, 3.5]
    """

    def __init__(self, most_seconds: float = MOST_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._most = clock, most_seconds
        self._read_at, self._seconds = clock(), 0.0

    def __call__(self) -> float:
        """Return the seconds since the clock was made."""
        now = self._clock()
        self._seconds += min(now - self._read_at, self._most)
        self._read_at = now
        return self._seconds
