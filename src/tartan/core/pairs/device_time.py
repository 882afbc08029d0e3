"""Where the time of what compares goes: to comparing, or to waiting, and for what.

A *server* compares one part at a time: a device with memory of its own, or a worker of the CPU. Stages say when they
begin and end; between two such moments every server that does not work is put down to one cause. What is nearer to the
comparison comes first, since what lies behind it would not have helped: a device that waits for a copy waits for the
copy, whatever is read meanwhile. Workers of the CPU parse too, and those that have nothing to parse wait for what is
being read.

The sums of all causes are the number of servers times the time since the start. One call costs a few microseconds, and
there is one for each part, batch and span, none for a pair.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

COMPARE = "compare"
STORAGE = "storage"
PARSE = "parse"
PREPROCESS = "preprocess"
COPIES = "copies"
RANKS = "ranks"
RESULTS = "results"
START = "start"
TAIL = "tail"
CALLS = "calls"
CAUSES = (COMPARE, STORAGE, PARSE, PREPROCESS, COPIES, RANKS, RESULTS, START, TAIL, CALLS)
"""What the time of a server is put down to: comparing itself; items that are read, parsed, preprocessed, copied to or
from a device, or come from other ranks; results that are written; what comes before the first item is wanted; no work
any more; and what lies between calls."""

# What holds up a server that has nothing to do, the first that is under way.
_OF_DEVICE = (PREPROCESS, COPIES, PARSE, STORAGE, RANKS)
_OF_WORKER = (STORAGE, RANKS, PARSE, PREPROCESS, COPIES)


class DeviceTime:
    """Puts the time of servers down to causes; may be told from any thread.

    Parameters
    ----------
    n_servers : int
        Parts that are compared at a time.
    on_workers : bool
        Whether the workers that parse are these servers.
    clock : callable
        Seconds.
    """

    def __init__(self, n_servers: int, on_workers: bool, clock: Callable[[], float]) -> None:
        self._n_servers = max(1, n_servers)
        self._on_workers = on_workers
        self._order = _OF_WORKER if on_workers else _OF_DEVICE
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way = dict.fromkeys(CAUSES, 0)
        self._seconds = dict.fromkeys(CAUSES, 0.0)
        self._last = clock()
        self._begun = self._drained = False

    def begin(self, stage: str) -> None:
        """Note that something is under way in a stage."""
        with self._lock:
            self._settle()
            self._begun = True
            self._under_way[stage] += 1

    def end(self, stage: str) -> None:
        """Note that it has ended."""
        with self._lock:
            self._settle()
            self._under_way[stage] -= 1

    @contextlib.contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Note that something is under way in a stage meanwhile."""
        self.begin(stage)
        try:
            yield
        finally:
            self.end(stage)

    def note_drained(self, drained: bool) -> None:
        """Note whether all tiles that were granted have begun their way."""
        if drained is not self._drained:
            with self._lock:
                self._settle()
                self._drained = drained

    def seconds(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of each cause so far.

        Parameters
        ----------
        measured : mapping of str to float
            Seconds that the servers themselves measured of what they did, by cause: what they worked is divided so, and
            what they did not measure lies between calls.
        """
        with self._lock:
            self._settle()
            found = dict(self._seconds)
        worked, total = found[COMPARE], sum(measured.values())
        found[COMPARE] = 0.0
        share = min(1.0, worked / total) if total else 0.0
        for cause, amount in measured.items():
            found[cause] += amount * share
        found[CALLS] += max(0.0, worked - total)
        return found

    def _settle(self) -> None:
        """Put down the time since the last change."""
        now = self._clock()
        passed, self._last = now - self._last, now
        if passed <= 0:
            return
        counts = self._under_way
        working = counts[COMPARE] + (counts[PARSE] if self._on_workers else 0)
        if working >= self._n_servers:
            self._seconds[COMPARE] += passed * self._n_servers
            return
        self._seconds[COMPARE] += passed * working
        self._seconds[self._cause_of_waiting(working)] += passed * (self._n_servers - working)

    def _cause_of_waiting(self, working: int) -> str:
        if not self._begun:
            return START
        counts = self._under_way
        for cause in self._order:
            if counts[cause]:
                return cause
        if counts[RESULTS] and not (self._drained and working):
            return RESULTS
        return TAIL if self._drained else CALLS
