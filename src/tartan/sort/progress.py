"""Shows how far a sort is, on stderr: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from tartan.base.live_line import LiveLine
from tartan.base.progress import RateWindow, format_bytes, format_duration

__all__ = ["SortProgress", "SortState", "format_state"]

_LIVE_SECONDS = 0.1
_PLAIN_SECONDS = 10.0
_STEP_SECONDS = 1.0  # a short sort does not print ten lines
_PHASES = ("idle", "sort", "merge", "write", "done")  # of the engine, in order; "merge" is what comes before the last
_WORDS = {"sort": "sorting", "merge": "merging", "write": "merging"}


@dataclass(frozen=True)
class SortState:
    """How far a sort is.

    Attributes
    ----------
    phase : str
        As the engine calls it.
    done_bytes, total_bytes : int
        Over all phases.
    bytes_per_second : float
        Speed of late; 0 where it is not known.
    """

    phase: str
    done_bytes: int
    total_bytes: int
    bytes_per_second: float = 0.0

    @property
    def share(self) -> float:
        """Done part, 0 to 1."""
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0

    @property
    def seconds_left(self) -> float | None:
        """Time left at the speed of late, or None."""
        if self.bytes_per_second <= 0:
            return None
        return max(self.total_bytes - self.done_bytes, 0) / self.bytes_per_second


def format_state(state: SortState) -> str:
    """Write a state as one line."""
    parts = [_WORDS.get(state.phase, state.phase), f"{int(state.share * 1000) / 10:.1f} %"]
    if state.bytes_per_second > 0:
        parts.append(f"{format_bytes(state.bytes_per_second)}/s")
    if state.seconds_left and state.share < 1:
        parts.append(f"{format_duration(state.seconds_left)} left")
    return "  ".join(parts)


class SortProgress:
    """Draws the progress of one sort; also a context manager, which closes it.

    Parameters
    ----------
    quiet : bool
        Draws nothing at all.
    stream : text file, optional
        Default stderr.
    clock : callable
        Seconds, never going back.
    """

    def __init__(
        self, *, quiet: bool, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._quiet = quiet
        self._drawn = clock()
        self._tenth = 0
        self._window: RateWindow | None = None
        self._phase_bytes = dict.fromkeys(_PHASES, 0)
        self._live = None if quiet else LiveLine.on(self._stream)

    def expect(self, n_bytes: int, levels: int) -> None:
        """Say how much is sorted, and in how many merge levels."""
        self._phase_bytes |= {"sort": n_bytes, "merge": n_bytes * max(levels - 1, 0), "write": n_bytes}

    def update(self, facts: Mapping[str, Any]) -> None:
        """Say how far the engine is; drawn when it is time to."""
        if self._quiet:
            return
        now, state = self._clock(), self._state(facts)
        if self._window is None:
            self._window = RateWindow(now, state.done_bytes)  # what an earlier attempt did is no speed
        if now - self._drawn < (_STEP_SECONDS if self._live is None else _LIVE_SECONDS):
            return
        rate = self._window.add(now, state.done_bytes)
        self._draw(now, SortState(state.phase, state.done_bytes, state.total_bytes, rate))

    def _state(self, facts: Mapping[str, Any]) -> SortState:
        phase = "write" if facts["phase"] == "read" else str(facts["phase"])
        share = facts["bytes_done"] / (facts["bytes_total"] or 1)
        before = sum(self._phase_bytes[earlier] for earlier in _PHASES[: _PHASES.index(phase)])
        done = before + int(min(share, 1.0) * self._phase_bytes[phase])
        return SortState(phase, done, sum(self._phase_bytes.values()))

    def _draw(self, now: float, state: SortState) -> None:
        if self._live is not None:
            self._drawn = now
            self._live.draw(state.share, format_state(state))
            return
        tenth = int(state.share * 10)
        if tenth > self._tenth or now - self._drawn >= _PLAIN_SECONDS:
            self._drawn, self._tenth = now, tenth
            self.say(format_state(state))

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if not self._quiet:
            with contextlib.suppress(OSError, ValueError):  # nobody reads stderr any more: the sort goes on
                print(text, file=self._stream, flush=True)

    def __enter__(self) -> SortProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None
