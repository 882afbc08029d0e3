"""Shows how far a run is, on stderr: one live line on a terminal, a plain line now and then elsewhere.

What is shown is computed by pure functions from a ``Snapshot``; only ``Progress`` knows a stream and a clock.
``update`` may be called as often as one likes, from any thread: it returns at once unless it is time to draw.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from tartan.base.live_line import LiveLine

__all__ = [
    "Progress",
    "RateWindow",
    "Snapshot",
    "format_bytes",
    "format_count",
    "format_duration",
    "format_line",
    "format_rate",
]

_LIVE_SECONDS = 0.1
_PLAIN_SECONDS = 10.0
_STEP_SECONDS = 1.0  # a short run does not print ten lines
_WINDOW_SECONDS = 30.0
_WINDOW_SHARE = 0.2  # of the time so far: long runs commit in bursts
_MAX_SAMPLES = 200
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def format_count(count: float) -> str:
    """Write a number with three digits and a letter: 950, 1.23 M, 45.6 G."""
    for limit, factor, unit in ((1e3, 1, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M"), (1e12, 1e9, " G")):
        if abs(count) < limit * 0.9995:
            return _three_digits(count / factor) + unit
    return _three_digits(count / 1e12) + " T"


def _three_digits(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"


def format_bytes(count: float) -> str:
    """Write an amount of memory in powers of ten: 512 B, 4.00 MB."""
    number, _, unit = format_count(count).partition(" ")
    return f"{number} {unit}B"


def format_rate(pairs_per_second: float) -> str:
    """Write a speed: 1.23 Mpairs/s."""
    number, _, unit = format_count(pairs_per_second).partition(" ")
    return f"{number} {unit}pairs/s"


def format_duration(seconds: float) -> str:
    """Write a time with its two largest units: 0.25 s, 45 s, 3 min 20 s, 3 h 20 min, 2 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    total = round(seconds)
    for (size, name), (small, small_name) in itertools.pairwise(_UNITS):
        if total >= size:
            rest = total % size // small
            return f"{total // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{total} s"


@dataclass(frozen=True)
class Snapshot:
    """How far a run is.

    Attributes
    ----------
    done_pairs, total_pairs : int
        Pairs with a result or a recorded failure, of all that are wanted.
    loads, n_items : int
        Their quotient is the load factor R so far.
    failed : int
        Failed items and pairs.
    pairs_per_second : float
        Speed of late; 0 where it is not known.
    """

    done_pairs: int
    total_pairs: int
    loads: int = 0
    n_items: int = 0
    failed: int = 0
    pairs_per_second: float = 0.0

    @property
    def share(self) -> float:
        """Done part, 0 to 1."""
        return min(self.done_pairs / self.total_pairs, 1.0) if self.total_pairs else 1.0

    @property
    def seconds_left(self) -> float | None:
        """Time left at the speed of late, or None."""
        if self.pairs_per_second <= 0:
            return None
        return max(self.total_pairs - self.done_pairs, 0) / self.pairs_per_second


def format_line(state: Snapshot) -> str:
    """Write a snapshot as one line."""
    parts = [
        f"{_percent(state.share)} %",
        f"{format_count(state.done_pairs)} of {format_count(state.total_pairs)} pairs",
    ]
    if state.pairs_per_second > 0:
        parts.append(format_rate(state.pairs_per_second))
    if state.loads and state.n_items:
        parts.append(f"R {state.loads / state.n_items:.2f}")
    if state.failed:
        parts.append(f"{format_count(state.failed)} failed")
    if state.seconds_left and state.share < 1:
        parts.append(f"{format_duration(state.seconds_left)} left")
    return "  ".join(parts)


def _percent(share: float) -> str:
    # Rounded down: 100 means that it is over.
    return f"{int(share * 1000) / 10:.1f}"


class RateWindow:
    """Speed over the last while: at least half a minute, and a fifth of the run, so that bursts even out.

    Parameters
    ----------
    time_seconds : float
        When counting starts.
    done : int
        What is done by then; on a resume, not zero.
    """

    def __init__(self, time_seconds: float, done: int) -> None:
        self._start = time_seconds
        self._samples: deque[tuple[float, int]] = deque([(time_seconds, done)])

    def add(self, time_seconds: float, done: int) -> float:
        """Note what is done now; return pairs per second, 0 where nothing moved."""
        window = max(_WINDOW_SECONDS, _WINDOW_SHARE * (time_seconds - self._start))
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= time_seconds - window:
            samples.popleft()
        first_time, first_done = samples[0]
        if time_seconds - samples[-1][0] >= window / _MAX_SAMPLES:
            samples.append((time_seconds, done))
        elapsed = time_seconds - first_time
        return max(done - first_done, 0) / elapsed if elapsed > 0 else 0.0


class Progress:
    """Draws the progress of one run; also a context manager, which closes it.

    Parameters
    ----------
    total_pairs : int
        Pairs that are wanted.
    done_pairs : int
        Pairs that an earlier run has left.
    quiet : bool
        Draws nothing at all.
    stream : text file, optional
        Default stderr.
    clock : callable
        Seconds, never going back.
    """

    def __init__(
        self,
        total_pairs: int,
        done_pairs: int = 0,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total_pairs
        self._clock = clock
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._started = self._drawn = clock()
        self._window = RateWindow(self._started, done_pairs)
        self._step = _tenth(Snapshot(done_pairs, total_pairs))
        self._live = None if quiet else LiveLine.on(self._stream)
        self._open = not quiet

    def update(self, done_pairs: int, loads: int = 0, n_items: int = 0, failed: int = 0) -> None:
        """Say how far the run is; drawn when it is time to.

        Parameters
        ----------
        done_pairs : int
            Pairs with a result or a recorded failure, those of earlier runs included.
        loads, n_items : int
            Fills of host slots so far, and items.
        failed : int
            Failed items and pairs so far.
        """
        if not self._open or not self._lock.acquire(blocking=False):
            return  # another thread draws something just as new
        try:
            now = self._clock()
            if now - self._drawn < (_STEP_SECONDS if self._live is None else _LIVE_SECONDS):
                return
            rate = self._window.add(now, done_pairs)
            self._draw(now, Snapshot(done_pairs, self._total, loads, n_items, failed, rate))
        finally:
            self._lock.release()

    def _draw(self, now: float, state: Snapshot) -> None:
        if self._live is not None:
            self._drawn = now
            self._live.draw(state.share, format_line(state))
            return
        step = _tenth(state)
        if step > self._step or now - self._drawn >= _PLAIN_SECONDS:
            self._drawn, self._step = now, step
            self._print(format_line(state))

    def close(self, summary: str | None = None) -> None:
        """Take the live line away and print a last text; a second call does nothing."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            if self._live is not None:
                self._live.close()
            if summary:
                self._print(summary)

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads stderr any more: the run goes on
            print(text, file=self._stream, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _tenth(state: Snapshot) -> int:
    return int(state.share * 10)
