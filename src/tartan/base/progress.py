"""Show the progress of a long call on stderr: one live line on a terminal, a plain line now and then elsewhere.

Pure functions turn a ``Snapshot`` into text; only ``Display`` holds the stream and only ``ProgressLine`` the clock.
``ProgressLine.show`` may be called any number of times, from any thread: it returns at once unless it is time to draw.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from tartan.base.format import format_count, format_duration, format_long_count, format_rate

if TYPE_CHECKING:
    from rich.live import Live

# By convention of rich.progress, which draws ten times a second by default.
# By judgement: ten a second look live; rich itself draws ten a second. No benchmark.
LIVE_SECONDS = 0.1
# By judgement: a log of an hour has 360 lines at most. No benchmark.
_PLAIN_SECONDS = 10.0
# By judgement. No benchmark.
_STEP_SECONDS = 1.0  # a short call does not print ten lines
# _WINDOW_SECONDS and _WINDOW_SHARE, by judgement: the rest is told from the speed of late, which a commit of half a
# minute must not turn. No benchmark.
_WINDOW_SECONDS = 30.0
# By judgement, see _WINDOW_SECONDS.
_WINDOW_SHARE = 0.2  # of the time so far: long runs commit in bursts
# By judgement: the speed is right to half a per cent of the window. No benchmark.
_MAX_SAMPLES = 200
# By judgement: the first moves of a call are those of caches that fill; a speed of two of them can be off by half.
_LEAST_MOVES = 3
# _SURE_SECONDS and _FARTHEST, by judgement: who measured a second may speak of ten, who measured ten of all.
_SURE_SECONDS = 10.0
# By judgement, see _SURE_SECONDS.
_FARTHEST = 10.0
# By judgement: a third of a line of 80 characters. A look, not tuned.
_BAR_WIDTH = 24


def is_watched(stream: TextIO | None = None) -> bool:
    """Whether a person watches a stream (default: stderr): it is a terminal, or belongs to a notebook."""
    return _is_terminal(sys.stderr if stream is None else stream) or (stream is None and in_notebook())


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Display:
    """Write lines to a stream: on a terminal or in a notebook one that is redrawn in place, elsewhere plain ones.

    A closed stream is no error: the call that reports its progress matters more.

    Parameters
    ----------
    stream : text stream, optional
        Default stderr.
    stays : bool
        Whether the last live line stays when the display is closed; otherwise it is erased.
    notebook : bool, optional
        Whether the stream is shown in a notebook, which understands a carriage return and nothing else. Default: found
        out, for stderr.
    """

    def __init__(self, stream: TextIO | None = None, *, stays: bool = False, notebook: bool | None = None) -> None:
        self._notebook = (stream is None and in_notebook()) if notebook is None else notebook
        self._stream = sys.stderr if stream is None else stream
        self._stays = stays
        self.is_live = self._notebook or _is_terminal(self._stream)
        self._live: Live | None = None
        self._width = 0  # of the line that a notebook shows

    def open(self) -> None:
        """Start the live line, if the stream can show one; ``draw`` does so too."""
        if not self.is_live or self._notebook or self._live is not None:
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream, force_terminal=True)
        # The owner of a line that stays may never close it, so nothing global may depend on that.
        owned = not self._stays
        self._live = Live(
            console=console, auto_refresh=False, transient=owned, redirect_stdout=owned, redirect_stderr=owned
        )
        self._live.start()
        if self._stays:
            console.show_cursor(True)

    def draw(self, text: str, share: float | None = None) -> None:
        """Redraw the live line: a text, after a bar filled to ``share`` (0 to 1) if that is given."""
        if self._notebook:
            self._rewrite(text)
            return
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        self.open()
        assert self._live is not None, "the stream is not a terminal"
        line = Table.grid(padding=(0, 1))
        shown = Text(text, no_wrap=True, overflow="ellipsis")
        if share is None:
            line.add_row(shown)
        else:
            line.add_row(ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH), shown)
        with contextlib.suppress(OSError, ValueError):
            self._live.update(line, refresh=True)

    def _rewrite(self, text: str) -> None:
        """Write over the line that a notebook shows."""
        with contextlib.suppress(OSError, ValueError):
            print(f"\r{text:{self._width}}", end="", file=self._stream, flush=True)
        self._width = len(text)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._end_rewriting()
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """End the live line; the next ``draw`` starts another."""
        self._end_rewriting()
        if self._live is not None:
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()
            self._live = None

    def _end_rewriting(self) -> None:
        if self._width:
            end = "\n" if self._stays else f"\r{'':{self._width}}\r"
            self._width = 0
            with contextlib.suppress(OSError, ValueError):
                print(end, end="", file=self._stream, flush=True)


def is_known_well(seconds_left: float, measured_seconds: float) -> bool:
    """Whether a time left is worth saying, given for how long the speed was measured from which it follows."""
    return measured_seconds >= min(_SURE_SECONDS, seconds_left / _FARTHEST)


@dataclass(frozen=True)
class Snapshot:
    """Progress of a call at one time.

    Attributes
    ----------
    done, total : int
        In any unit, such as pairs or bytes.
    per_second : float
        Recent speed; 0 if unknown.
    measured_seconds : float
        For how long it was measured.
    """

    done: int
    total: int
    per_second: float = 0.0
    measured_seconds: float = math.inf

    @property
    def share(self) -> float:
        """Fraction that is done, 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 1.0

    @property
    def percent(self) -> str:
        """Fraction that is done as text, rounded down: "100.0 %" means that all is done."""
        return f"{int(self.share * 1000) / 10:.1f} %"

    @property
    def time_left(self) -> str:
        """Time left at the recent speed, as text; empty while it is not known well, and if it is zero."""
        if self.per_second <= 0 or self.done >= self.total:
            return ""
        seconds = (self.total - self.done) / self.per_second
        return f"{format_duration(seconds)} left" if is_known_well(seconds, self.measured_seconds) else ""


class RateWindow:
    """Recent speed, over half a minute or a fifth of the run, whichever is longer, so that bursts even out.

    It is measured from the first move on, and told after the third: workers that start and first loads are no speed.

    Parameters
    ----------
    time_seconds : float
        When counting starts.
    done : int
        Amount done by then; not zero on a resume.
    """

    def __init__(self, time_seconds: float, done: int) -> None:
        self._start = time_seconds
        self._latest = done
        self._moves = 0
        self._samples: deque[tuple[float, int]] = deque([(time_seconds, done)])
        self.measured_seconds = 0.0

    def __len__(self) -> int:
        """Return the number of samples that are kept, which is bounded."""
        return len(self._samples)

    def add(self, time_seconds: float, done: int) -> float:
        """Record the amount done now; return the speed per second, 0 if it is unknown or nothing moved."""
        moved = done > self._latest
        self._moves += moved
        self._latest = done
        if self._moves == moved:  # nothing has moved before
            self._start = time_seconds
            self._samples = deque([(time_seconds, done)])
            return 0.0
        window = max(_WINDOW_SECONDS, _WINDOW_SHARE * (time_seconds - self._start))
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= time_seconds - window:
            samples.popleft()
        first_time, first_done = samples[0]
        if time_seconds - samples[-1][0] >= window / _MAX_SAMPLES:
            samples.append((time_seconds, done))
        elapsed = self.measured_seconds = time_seconds - first_time
        known = self._moves >= _LEAST_MOVES and elapsed > 0
        return max(done - first_done, 0) / elapsed if known else 0.0

    def snapshot(self, time_seconds: float, done: int, total: int) -> Snapshot:
        """Record the amount done now, of a total; return the progress."""
        return Snapshot(done, total, self.add(time_seconds, done), self.measured_seconds)


class ProgressLine:
    """Draw snapshots at intervals; a context manager that closes the line.

    Parameters
    ----------
    start : Snapshot, optional
        State at the start, such as what an earlier run has done; default: the first state that is shown.
    quiet : bool
        Draw nothing.
    stream : text stream, optional
        Default stderr.
    clock : callable
        Seconds, never decreasing.
    """

    def __init__(
        self,
        start: Snapshot | None = None,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._drawn = clock()
        self._window = None if start is None else RateWindow(self._drawn, start.done)
        self._tenth = 0 if start is None else int(start.share * 10)
        self._display = Display(stream)
        self._open = not quiet
        if self._open:
            self._display.open()

    def show(self, done: int, total: int, text: Callable[[Snapshot], str]) -> None:
        """Draw the progress if it is time to; ``text`` formats a snapshot as one line."""
        if not self._open or not self._lock.acquire(blocking=False):
            return  # another thread is drawing a state that is just as new
        try:
            now = self._clock()
            if self._window is None:
                self._window = RateWindow(now, done)
            if now - self._drawn >= (LIVE_SECONDS if self._display.is_live else _STEP_SECONDS):
                self._draw(now, self._window.snapshot(now, done, total), text)
        finally:
            self._lock.release()

    def _draw(self, now: float, state: Snapshot, text: Callable[[Snapshot], str]) -> None:
        if self._display.is_live:
            self._drawn = now
            self._display.draw(text(state), state.share)
            return
        tenth = int(state.share * 10)
        if tenth > self._tenth or now - self._drawn >= _PLAIN_SECONDS:
            self._drawn, self._tenth = now, tenth
            self._display.say(text(state))

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if self._open:
            self._display.say(text)

    def close(self, summary: str | None = None) -> None:
        """Erase the live line and print a last text; a second call does nothing."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._display.close()
            if summary:
                self._display.say(summary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Progress(ProgressLine):
    """Draw the progress of one run.

    Parameters
    ----------
    total_pairs : int
        Pairs to compute.
    done_pairs : int
        Pairs done by earlier runs.
    quiet, stream, clock
        As for ``ProgressLine``.
    unit : {"pairs", "triples"}
        What is counted.
    verbose : bool
        Whether lines have the loads of an item, R, and the fills of its slots, F.
    n_items : int
        Items to load: a live line says so from the start. 0 where nothing is said before the first pair.
    """

    def __init__(
        self,
        total_pairs: int,
        done_pairs: int = 0,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "pairs",
        verbose: bool = False,
        n_items: int = 0,
    ) -> None:
        start = Snapshot(done_pairs, total_pairs)
        super().__init__(start, quiet=quiet, stream=stream, clock=clock)
        self._total = total_pairs
        self._done_before = done_pairs
        self._unit = unit
        self._verbose = verbose
        if n_items and done_pairs < total_pairs and self._open and self._display.is_live:
            self._display.draw(format_loading(start, 0, n_items, unit=unit), start.share)

    def update(
        self, done_pairs: int, loads: int = 0, n_items: int = 0, failed: int = 0, fills: int | None = None
    ) -> None:
        """Draw the progress if it is time to.

        Parameters
        ----------
        done_pairs : int
            Pairs with a result or a recorded failure, those of earlier runs included.
        loads, n_items : int
            Loads so far, and items; their quotient is the load factor R so far.
        failed : int
            Failed items and pairs so far.
        fills : int, optional
            Fills of host slots so far, where items come from other ranks too; their quotient is F so far.
        """
        unit = self._unit
        done = min(done_pairs, self._total)
        if n_items and done <= self._done_before < self._total:
            self.show(done, self._total, lambda state: format_loading(state, loads, n_items, failed, unit))
            return
        if not self._verbose:
            loads = 0
        self.show(done, self._total, lambda state: format_line(state, loads, n_items, failed, fills, unit))


def format_loading(state: Snapshot, loads: int, n_items: int, failed: int = 0, unit: str = "pairs") -> str:
    """Format as one line how many items were loaded before the first pair was done."""
    loaded = f"{format_count(min(loads, n_items))} of {format_count(n_items)} items loaded"
    said = loaded if loads else f"loading the first of {format_count(n_items)} items"
    return f"{format_line(state, failed=failed, unit=unit)}  {said}"


def format_line(
    state: Snapshot, loads: int = 0, n_items: int = 0, failed: int = 0, fills: int | None = None, unit: str = "pairs"
) -> str:
    """Format the progress of a run as one line."""
    parts = [
        state.percent,
        f"{format_long_count(min(state.done, state.total))} of {format_long_count(state.total)} {unit}",
    ]
    if state.per_second > 0:
        parts.append(format_rate(state.per_second, unit))
    if loads and n_items:
        parts.append(f"R {loads / n_items:.2f}")
        if fills is not None:
            parts.append(f"F {fills / n_items:.2f}")
    if failed:
        parts.append(f"{format_count(failed)} failed")
    return "  ".join([*parts, state.time_left]).rstrip()
