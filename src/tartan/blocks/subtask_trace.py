"""When which rank computed which subtask, as a trace."""

from __future__ import annotations

from collections import defaultdict

from tartan.base.trace import Tracer


class SubtaskTrace:
    """Records subtasks as they are reported to the driver, one row for each subtask that a rank computes at a time.

    Parameters
    ----------
    tracer : Tracer
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._ends: dict[int, list[int]] = defaultdict(list)

    def record(self, rank: int, name: str, seconds: float) -> None:
        """Record a subtask that a rank has ended just now."""
        end = self.tracer.now()
        start = end - round(seconds * 1e9)
        rows = self._ends[rank]
        row = next((k for k, before in enumerate(rows) if before <= start), len(rows))
        rows[row : row + 1] = [end]
        self.tracer.record(name, "compute", f"rank {rank}/subtask {row + 1}", start, end)
