"""The seams of a node: chunks go to any sink, failures are judged above it, and a defect ends it at once."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from node_world import world

import tartan
from tartan.core.pairs.verdict import FailureRules, NodeReport, RunTally
from tartan.errors import RunCancelledError, RunFailedError
from tartan.runtime.node import Node

ROWS = np.random.default_rng(3).normal(size=(20, 3)).astype(np.float32)


class Dot(tartan.Application):
    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


class Picky(Dot):
    """Item 3 cannot be parsed, and pairs of item 5 are not numbers."""

    def parse(self, key: str, data: Any) -> Any:
        if key == "3":
            raise ValueError("no item")
        return np.full(3, np.nan, np.float32) if key == "5" else data


def test_a_node_needs_no_run_folder() -> None:
    it = world(Dot(), ROWS)
    stats = Node(it.inputs).run()
    above = np.triu_indices(20, 1)
    np.testing.assert_allclose(it.sink.matrix(it.inputs.plan.grid)[above], (ROWS @ ROWS.T)[above], atol=1e-5)
    assert sorted(it.inputs.remaining.done) == sorted(it.sink.chunks)  # type: ignore[attr-defined]
    assert it.sink.closed
    assert stats.pairs_computed == 190


def test_what_a_node_reports_adds_up_to_the_run() -> None:
    it = world(Picky(), list(ROWS))
    stats = Node(it.inputs).run()
    total = RunTally(FailureRules(), 190)
    new = [failure for report in it.reports for failure in total.add(report)]
    assert total.n_scores == 190
    assert total.n_loads == stats.loads
    before = list(itertools.takewhile(lambda report: not report.pairs.scores, it.reports))
    assert sum(report.n_loads for report in before) > 0
    assert total.n_failed == 1 + 18  # item 3, and the pairs of item 5 with the 18 others
    assert [(failure.i, failure.j, failure.stage) for failure in new] == [(3, None, "parse")]
    total.judge()


def test_the_verdict_comes_from_above_and_before_the_tile_ends() -> None:
    """A chunk with a pair that stops the run is left to whatever resumes it."""
    tally = RunTally(FailureRules(on_error="raise"), 190)

    def judge(report: NodeReport) -> None:
        tally.add(report)
        tally.judge()

    class NoNumbers(Dot):
        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            return np.full((len(left), len(right)), np.nan, np.float32)

    it = world(NoNumbers(), ROWS, judge=judge)
    with pytest.raises(RunFailedError, match="--on-error is raise; first: 0, "):
        Node(it.inputs).run()
    assert it.sink.chunks == {}
    assert it.sink.closed


def test_a_defect_in_the_loop_ends_the_run_without_waiting_for_what_runs() -> None:
    release, begun = threading.Event(), threading.Event()

    class Waits(Dot):
        def parse(self, key: str, data: Any) -> Any:
            if key == "19":
                begun.set()
                release.wait()
            if key == "0":
                raise ValueError("no item")
            return data

    def defect(report: NodeReport) -> None:
        assert begun.wait(20)
        raise ArithmeticError("defect")

    it = world(Waits(), list(ROWS), slots=40, n_workers=2, judge=defect)
    try:
        with pytest.raises(ArithmeticError):
            Node(it.inputs).run()
    finally:
        release.set()
    assert it.sink.chunks == {}


def test_a_cancelled_node_says_how_to_resume() -> None:
    it = world(Dot(), ROWS)
    node = Node(it.inputs)
    node.cancel(15)
    with pytest.raises(RunCancelledError, match="run it again to resume") as caught:
        node.run()
    assert caught.value.context == {"signal": 15}
