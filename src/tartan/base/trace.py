"""Record when each stage did what, as a trace that Perfetto and chrome://tracing open.

Recording costs one ``list.append`` of a tuple and may be done from any thread; all formatting waits until the
end. A tracer is bounded: intervals after the limit are counted, not kept. ``NO_TRACER`` records nothing and serves
runs without ``--trace``, so that callers need not ask whether there is a tracer.

A row is named "process/thread" ("cpu/compare", "host/read-3"): the viewer groups the threads of a process.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tartan.base.files import fsync, whole_file

FORMAT_VERSION = 1
# By judgement: some 200 bytes each in Python are 400 MB; viewers of traces do not open more. No benchmark.
MAX_EVENTS = 2_000_000


ClockPair = tuple[int, int]
"""The same moment on the clock of this process and on that of another one, in nanoseconds."""

# name, stage, "process/thread", start and end in ns on the clock of ``time.perf_counter_ns`` (which all processes
# of a machine share). A bare tuple: half the price of a named one, and a million of them do
# not slow the garbage collector down.
Interval = tuple[str, str, str, int, int]


class Tracer:
    """Collect intervals.

    Parameters
    ----------
    limit : int
        Intervals kept at most.
    clock : callable
        Nanoseconds; the origin of the trace is the call at construction.
    """

    def __init__(self, limit: int = MAX_EVENTS, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._intervals: list[Interval] = []
        self._limit = limit
        self._dropped: list[None] = []  # its length is the count: appending needs no lock
        self._clock = clock
        self._origin_ns = clock()

    @property
    def n_dropped(self) -> int:
        """Intervals that came after the limit."""
        return len(self._dropped)

    def now(self) -> int:
        """Return the clock of the trace, in nanoseconds."""
        return self._clock()

    def record(self, name: str, stage: str, row: str, start_ns: int, end_ns: int) -> None:
        """Add one interval; below a microsecond, from any thread.

        Parameters
        ----------
        name, stage : str
            What was done ("compare 3,7"), and the stage it belongs to.
        row : str
            "process/thread".
        start_ns, end_ns : int
            Times of ``now``.
        """
        if len(self._intervals) < self._limit:
            self._intervals.append((name, stage, row, start_ns, end_ns))
        else:
            self._dropped.append(None)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the Chrome trace format: the names of rows first, then the intervals."""
        intervals = self._intervals[:]
        rows = _number_rows(intervals)
        yield from _names(rows)
        for interval in intervals:
            yield _make_event(interval, rows[interval[2]], self._origin_ns)

    def pack(self, clocks: Sequence[ClockPair]) -> bytes:
        """Return everything as bytes for the tracer of another process; see ``absorb``.

        Parameters
        ----------
        clocks : sequence of (int, int)
            Moments on the clock of this tracer and on that of the other one; at least one, in their order.
        """
        return zlib.compress(json.dumps([clocks, self.n_dropped, self._intervals]).encode(), 1)

    def absorb(self, process: str, packed: bytes) -> None:
        """Add the intervals of another process, on the clock of this tracer; its rows begin with its name.

        Between two moments that are known on both clocks they are taken to run evenly.

        Raises
        ------
        ValueError
            If the bytes are not what ``packed`` returned.
        """
        try:
            clocks, n_dropped, intervals = json.loads(zlib.decompress(packed))
            aligned = _Aligned(clocks)
            found = [(n, stage, f"{process} {row}", aligned(a), aligned(b)) for n, stage, row, a, b in intervals]
        except (zlib.error, TypeError, IndexError, ZeroDivisionError) as error:
            raise ValueError(f"the trace of {process} is damaged: {error}") from None
        self._intervals += found
        self._dropped += [None] * int(n_dropped)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as one JSON file, by temporary name and rename."""
        with whole_file(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.writelines(self.lines())
            file.flush()
            fsync(file.fileno())

    def lines(self) -> Iterator[str]:
        """Yield the lines of the JSON file."""
        about = {"format_version": FORMAT_VERSION, "dropped_events": self.n_dropped}
        yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'
        separator = ""
        for event in self.events():
            yield separator + json.dumps(event)
            separator = ",\n"
        yield "\n]}\n"


class _Aligned:
    """Translates the clock of another process."""

    def __init__(self, clocks: Sequence[ClockPair]) -> None:
        (self._own, self._here), (own, here) = clocks[0], clocks[-1]
        self._drift = (here - self._here - own + self._own) / (own - self._own) if own != self._own else 0.0

    def __call__(self, ns: int) -> int:
        since = ns - self._own
        return self._here + since + round(since * self._drift)


class NoTracer(Tracer):
    """Records nothing."""

    def __init__(self) -> None:
        super().__init__(limit=0)

    def record(self, name: str, stage: str, row: str, start_ns: int, end_ns: int) -> None:
        return


NO_TRACER = NoTracer()

_Row = tuple[int, int]  # process and thread number


def _number_rows(intervals: Iterable[Interval]) -> dict[str, _Row]:
    processes: dict[str, int] = {}
    rows: dict[str, _Row] = {}
    for row in dict.fromkeys(interval[2] for interval in intervals):
        process = processes.setdefault(row.partition("/")[0], len(processes) + 1)
        rows[row] = (process, len(rows) + 1)
    return rows


def _names(rows: Mapping[str, _Row]) -> Iterator[dict[str, Any]]:
    named: set[int] = set()
    for row, (process, thread) in rows.items():
        process_name, _, thread_name = row.partition("/")
        if process not in named:
            named.add(process)
            yield _metadata("process_name", process, 0, name=process_name)
            yield _metadata("process_sort_index", process, 0, sort_index=process)
        yield _metadata("thread_name", process, thread, name=thread_name or process_name)


def _metadata(kind: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}


def _make_event(interval: Interval, row: _Row, origin_ns: int) -> dict[str, Any]:
    name, stage, _, start_ns, end_ns = interval
    return {
        "name": name,
        "cat": stage,
        "ph": "X",
        "ts": (start_ns - origin_ns) / 1000,  # the format counts microseconds
        "dur": (end_ns - start_ns) / 1000,
        "pid": row[0],
        "tid": row[1],
    }
