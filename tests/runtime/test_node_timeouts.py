"""Calls that never return, by a clock that moves while one hangs: no limit is met by a busy machine."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node_world import World, world

from tartan.core.pairs import call_limit
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.ledger import FAILED_PAIR, NOT_COMPUTED
from tartan.runtime.compare import compare_tile
from tartan.runtime.node import Node
from tartan.runtime.parts import Part
from tartan.testing import faults
from tartan.workers.arena import Arena
from tartan.workers.executor import Completed, TimedOut, WorkerContext
from tartan.workers.processes import ProcessExecutor

LIMIT_SECONDS = 0.01
LEAP_SECONDS = 1000.0


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
        return self.n_leaps * LEAP_SECONDS

    def close(self) -> None:
        os.close(self._fd)


def compare_all(app: HangsAloud, limit: CallLimit | None) -> tuple[World, int]:
    """Compare twelve numbers; return what came of it, and how often the clock leapt."""
    clock = Clock(app.pipe)
    try:
        # One worker: what hangs is all that runs when the clock leaps. What it said before it was killed is read
        # before the next one starts.
        it = world(
            app,
            [float(i) for i in range(12)],
            slots=12,
            executor=ProcessExecutor(app, 1, start_timeout_seconds=10 * LEAP_SECONDS, clock=clock),
            call_limit=limit,
        )
        Node(it.inputs).run()
    finally:
        clock.close()
    return it, clock.n_leaps


def expected(*failed: tuple[int, int]) -> np.ndarray:
    numbers = np.arange(12.0)
    scores = np.where(np.triu(np.ones((12, 12)), 1) > 0, np.abs(numbers[:, None] - numbers), np.nan)
    for pair in failed:
        scores[pair] = np.nan
    return scores


def told(it: World) -> list[str]:
    return [line for report in it.reports for line in report.late]


@pytest.mark.slow
def test_a_pair_that_hangs_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limit, "LEAST_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(call_limit, "LEAST_HALF_SECONDS", LIMIT_SECONDS)
    it, n_leaps = compare_all(HangsAloud(("3", "7"), tmp_path / "pipe"), CallLimit())
    [failure] = [failure for chunk in it.sink.chunks.values() for failure in chunk.failures]
    assert (failure.i, failure.j, failure.stage) == (3, 7, "compare")
    assert "3, 7: compare did not return within" in failure.reason
    assert "(--tile-timeout sets the limit, 0 none)" in failure.reason
    np.testing.assert_array_equal(it.sink.matrix(it.inputs.plan.grid), expected((3, 7)))
    assert n_leaps > 3  # the tile, halves of it, and the pair alone, twice
    first, last = told(it)
    assert re.match(r"\d x \d pairs from \d+, \d+ on: compare did not return within .* s .*in halves", first)
    assert re.match(r"3, 7: compare did not return within .* s .*once more", last)


class Late:
    """Runs calls where they are submitted, as if on a process; those with a pair at fault are late, once or always."""

    n_workers, in_processes = 1, True

    def __init__(self, app: faults.Distances, *, until_again: bool = False) -> None:
        self.context = WorkerContext(app)
        self.until_again = until_again
        self.compared: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self.late: list[tuple[tuple[int, int], tuple[int, int], float]] = []

    def share(self, name: str, arena: Arena) -> None:
        self.context.arenas[name] = arena

    def submit(self, function: Any, args: Any, done: Any, *, priority: int = 0, timeout_seconds: Any = None) -> None:
        if function is compare_tile and self.is_late(args[1], timeout_seconds):
            done(TimedOut(timeout_seconds))
        else:
            done(Completed(function(self.context, *args)))

    def is_late(self, part: Part, seconds: float) -> bool:
        numbers = {int(key) for key in self.context.application.keys}
        (top, left), (m, k) = part.corner, part.shape
        self.compared.append((part.corner, part.shape))
        guilty = numbers & {*range(top, top + m)} and numbers & {*range(left, left + k)}
        if not guilty or (part.again and self.until_again):
            return False
        self.late.append((part.corner, part.shape, seconds))
        return True

    def close(self, *, kill: bool = False) -> None:
        pass


class Thirds(faults.Distances):
    """Items are rows of three: number, at fault, nothing."""

    def __init__(self, *, bad: str = "") -> None:
        super().__init__(("2", "3"))
        self.bad = bad

    def parse(self, key: str, data: Any) -> np.ndarray:
        if key == self.bad:
            raise ValueError("bad item")
        return np.array([*super().parse(key, data), 0], np.float32)


class Others:
    """Another rank, that tries anything, or nothing; notes what it is to try."""

    def __init__(self, able: bool) -> None:
        self.able = able
        self.passed: list[tuple[tuple[int, int], str]] = []

    def can_try(self, chunk: tuple[int, int]) -> bool:
        return self.able

    def pass_on(self, chunk: tuple[int, int], why: str) -> None:
        self.passed.append((chunk, why))


def compare_late(
    app: Thirds, *, until_again: bool = False, others: Others | None = None, n_items: int = 12
) -> tuple[World, Late]:
    executor: Any = Late(app, until_again=until_again)
    it = world(app, [float(i) for i in range(n_items)], slots=12, executor=executor, call_limit=CallLimit())
    Node(replace(it.inputs, others=others)).run()
    return it, executor


def test_a_pair_that_was_late_once_does_not_fail() -> None:
    it, executor = compare_late(Thirds(), until_again=True)
    assert not [failure for chunk in it.sink.chunks.values() for failure in chunk.failures]
    np.testing.assert_array_equal(it.sink.matrix(it.inputs.plan.grid), expected())
    assert len(executor.late) == 3


def test_halves_are_late_sooner_and_the_last_try_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limit, "TIMES_LONGEST", 1e-6)  # however slow this machine is
    it, executor = compare_late(Thirds())
    np.testing.assert_array_equal(it.sink.matrix(it.inputs.plan.grid), expected((2, 3)))
    assert executor.late == [
        ((0, 3), (3, 1), 900.0),
        ((1, 3), (2, 1), 60.0),
        ((2, 3), (1, 1), 60.0),
        ((2, 3), (1, 1), 900.0),
    ]
    assert [line.partition(":")[0] for line in told(it)] == ["3 x 1 pairs from 0, 3 on", "2, 3"]


def test_a_half_without_a_pair_that_counts_is_not_compared() -> None:
    it, executor = compare_late(Thirds(bad="0"))
    assert ((1, 3), (2, 1)) in executor.compared
    assert ((0, 3), (1, 1)) not in executor.compared
    scores = expected((2, 3))
    scores[0] = np.nan
    np.testing.assert_array_equal(it.sink.matrix(it.inputs.plan.grid), scores)
    assert sum(report.pairs.without_item for report in it.reports) == 11


def test_a_pair_that_is_late_on_this_rank_is_left_to_another() -> None:
    others = Others(able=True)
    it, executor = compare_late(Thirds(), others=others)
    assert len(executor.late) == 4  # the last try is made here, too
    [(chunk, why)] = others.passed
    assert chunk == (0, 0)
    assert re.match(r"2, 3: compare did not return within 15.* min", why)
    assert chunk not in it.inputs.remaining.done
    assert it.sink.chunks[chunk].status[2, 3] == NOT_COMPUTED
    assert not [failure for report in it.reports for failure in report.failures]
    np.testing.assert_array_equal(it.sink.matrix(it.inputs.plan.grid), expected((2, 3)))
    assert sum(report.pairs.good + report.pairs.failed for report in it.reports) == 12 * 11 // 2 - 1


def test_a_pair_that_no_other_rank_may_try_fails() -> None:
    others = Others(able=False)
    it, _ = compare_late(Thirds(), others=others)
    assert others.passed == []
    assert (0, 0) in it.inputs.remaining.done
    assert it.sink.chunks[0, 0].status[2, 3] == FAILED_PAIR


def test_several_pairs_of_a_chunk_are_left_together() -> None:
    app = Thirds()
    app.keys = ("2", "3", "4")
    others = Others(able=True)
    it, _ = compare_late(app, others=others)
    [(_, why)] = others.passed
    assert why.endswith(" (and 2 more)")
    np.testing.assert_array_equal(it.sink.matrix(it.inputs.plan.grid), expected((2, 3), (2, 4), (3, 4)))
