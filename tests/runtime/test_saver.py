"""Finished tiles are saved while their chunk is open, and when the node is told to stop. The clock is the test's."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest
from node_world import World, world

import tartan
from tartan.core.pairs.saves import OLDEST_SECONDS, SavePolicy
from tartan.errors import RunCancelledError
from tartan.runtime.node import GRACE_SECONDS, Node

ROWS = np.random.default_rng(5).integers(0, 9, (40, 3)).astype(np.float32)  # sums are exact in any order


class Clock:
    """Shows the time that compare calls have taken so far, and goes on by ``step`` when it is looked at."""

    now = 0.0
    step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Slow(tartan.Application):
    """Takes ten seconds a call; ``at`` one of them something happens."""

    releases_gil = True
    tile = 2

    def __init__(self, clock: Clock, at: int = -1, happens: Any = None) -> None:
        self._clock = clock
        self._at = at
        self._happens = happens
        self.calls = 0

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.calls += 1
        self._clock.now += 10.0
        if self.calls == self._at:
            self._happens()
        return left @ right.T


def n_done(prepared: World) -> int:
    return sum(int((chunk.status == 1).sum()) for chunk in prepared.sink.chunks.values())


def check_scores(prepared: World) -> None:
    found = prepared.sink.matrix(prepared.inputs.plan.grid)
    there = ~np.isnan(found)
    np.testing.assert_array_equal(found[there], (ROWS @ ROWS.T)[there])


def test_chunks_are_saved_while_they_are_open() -> None:
    clock = Clock()
    app = Slow(clock)
    prepared = world(app, ROWS, saves=SavePolicy(1))
    Node(prepared.inputs, clock=clock).run()
    assert n_done(prepared) == 40 * 39 // 2
    check_scores(prepared)
    assert prepared.sink.n_saves >= 1
    assert prepared.sink.n_saves <= app.calls * 10 / OLDEST_SECONDS * 2


def test_nothing_is_saved_where_chunks_live_shortly() -> None:
    prepared = world(Slow(Clock()), ROWS, saves=SavePolicy(1))
    Node(prepared.inputs, clock=lambda: 0.0).run()
    assert prepared.sink.n_saves == 0


@pytest.mark.parametrize("at", [1, 5, 17])
def test_calls_that_end_in_time_after_a_signal_are_kept(at: int) -> None:
    clock = Clock()
    app = Slow(clock, at, lambda: node.cancel(signal.SIGTERM))
    prepared = world(app, ROWS, saves=SavePolicy(1))
    node = Node(prepared.inputs, clock=clock)
    with pytest.raises(RunCancelledError):
        node.run()
    reported = sum(report.pairs.good for report in prepared.reports)
    assert n_done(prepared) == reported > 0, "all that was compared is committed"
    assert app.calls <= at + 2, "calls that had not begun do not begin"
    check_scores(prepared)


def test_a_call_that_outlasts_the_grace_is_given_up() -> None:
    clock, gate = Clock(), threading.Event()

    def hang() -> None:
        clock.step = GRACE_SECONDS
        node.cancel(signal.SIGTERM)
        gate.wait()

    app = Slow(clock, 7, hang)
    prepared = world(app, ROWS, saves=SavePolicy(1))
    node = Node(prepared.inputs, clock=clock)
    try:
        with pytest.raises(RunCancelledError):
            node.run()
        assert n_done(prepared) == sum(report.pairs.good for report in prepared.reports) > 0
        check_scores(prepared)
    finally:
        gate.set()


def test_without_saves_a_signal_ends_the_node_at_once() -> None:
    clock = Clock()
    app = Slow(clock, 3, lambda: node.cancel(signal.SIGINT))
    prepared = world(app, ROWS)
    node = Node(prepared.inputs, clock=clock)
    with pytest.raises(RunCancelledError):
        node.run()
    assert prepared.sink.n_saves == 0
