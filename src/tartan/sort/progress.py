"""Show the progress of a sort: the bytes of all its phases as one amount."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from tartan.base.format import format_bytes
from tartan.base.progress import ProgressLine, Snapshot

_PHASES = ("idle", "sort", "merge", "write", "done")  # of the engine, in order; "merge" is what comes before the last
_WORDS = {"sort": "sorting", "merge": "merging", "write": "merging"}


def format_state(phase: str, state: Snapshot) -> str:
    """Format the progress in a phase as one line."""
    parts = [_WORDS.get(phase, phase), state.percent]
    if state.per_second > 0:
        parts.append(f"{format_bytes(state.per_second)}/s")
    return "  ".join([*parts, state.time_left]).rstrip()


class SortProgress(ProgressLine):
    """Draw the progress of one sort.

    Parameters
    ----------
    quiet, stream, clock
        As for ``ProgressLine``.
    """

    def __init__(
        self, *, quiet: bool, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # Counting starts at the first update: what an earlier attempt did does not count as speed.
        super().__init__(quiet=quiet, stream=stream, clock=clock)
        self._phase_bytes = dict.fromkeys(_PHASES, 0)
        self._n_bytes = self._adopted_bytes = 0

    def expect(self, n_bytes: int, levels: int) -> None:
        """Say how much is sorted, and in how many merge levels."""
        self._phase_bytes |= {"sort": n_bytes, "merge": n_bytes * max(levels - 1, 0), "write": n_bytes}
        self._n_bytes = n_bytes

    def adopt(self, n_bytes: int) -> None:
        """Say how much of it an earlier attempt has sorted: that is done before the first update."""
        self._adopted_bytes = min(n_bytes, self._n_bytes)
        self._phase_bytes["sort"] = self._n_bytes - self._adopted_bytes

    def update(self, facts: Mapping[str, Any]) -> None:
        """Draw the progress of the engine if it is time to."""
        phase = "write" if facts["phase"] == "read" else str(facts["phase"])
        share = facts["bytes_done"] / (facts["bytes_total"] or 1)
        before = sum(self._phase_bytes[earlier] for earlier in _PHASES[: _PHASES.index(phase)])
        done = self._adopted_bytes + before + int(min(share, 1.0) * self._phase_bytes[phase])
        total = self._adopted_bytes + sum(self._phase_bytes.values())
        self.show(done, total, lambda state: format_state(phase, state))
