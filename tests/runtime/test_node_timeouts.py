"""Calls that never return, by a clock that moves while one hangs: no limit is met by a busy machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node_world import world

from tartan.runtime.node import Node
from tartan.testing import faults
from tartan.workers.processes import ProcessExecutor

LIMIT_SECONDS = 0.01


class HangsAloud(faults.HangsOn):
    """Says in a named pipe, again and again, that it hangs. Items are rows of three: number, at fault, nothing."""

    def __init__(self, keys: tuple[str, ...], pipe: Path) -> None:
        super().__init__(keys)
        self.pipe = pipe

    def parse(self, key: str, data: Any) -> np.ndarray:
        return np.array([*super().parse(key, data), 0], np.float32)

    def wait(self, seconds: float) -> None:
        with self.pipe.open("wb", buffering=0) as pipe:
            for _ in range(round(seconds / LIMIT_SECONDS)):
                pipe.write(b"h")
                super().wait(LIMIT_SECONDS)


class Clock:
    """Stands still, but leaps past the limit as long as a call says that it hangs."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self.n_leaps = 0
        self._fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def __call__(self) -> float:
        with contextlib.suppress(BlockingIOError):
            self.n_leaps += bool(os.read(self._fd, 1 << 16))
        return self.n_leaps * 2 * LIMIT_SECONDS

    def close(self) -> None:
        os.close(self._fd)


@pytest.mark.slow
def test_a_pair_that_hangs_fails_alone(tmp_path: Path) -> None:
    app = HangsAloud(("3", "7"), tmp_path / "pipe")
    clock = Clock(app.pipe)
    try:
        # One worker: what hangs is all that runs when the clock leaps. What it said before it was killed is read
        # before the next one starts.
        it = world(
            app,
            [float(i) for i in range(12)],
            slots=12,
            executor=ProcessExecutor(app, 1, clock=clock),
            timeout_seconds=LIMIT_SECONDS,
        )
        Node(it.execution).run()
    finally:
        clock.close()
    [failure] = [failure for chunk in it.sink.chunks.values() for failure in chunk.failures]
    assert (failure.i, failure.j, failure.stage) == (3, 7, "compare")
    assert "3, 7: compare did not return within" in failure.reason
    assert "(--tile-timeout)" in failure.reason
    numbers = np.arange(12.0)
    expected = np.where(np.triu(np.ones((12, 12)), 1) > 0, np.abs(numbers[:, None] - numbers), np.nan)
    expected[3, 7] = np.nan
    np.testing.assert_array_equal(it.sink.matrix(it.execution.grid), expected)
    assert clock.n_leaps > 2  # the tile, halves of it, and the pair alone
