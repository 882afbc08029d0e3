"""What the driver shows of several ranks while they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cluster_world import N, asked

from tartan.base.progress import Progress
from tartan.core.pairs.verdict import FailureRules, Look, NodeReport, PairCounts
from tartan.core.ranks.coordination import CoordinatorSetup, Received
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.messages import Hello, Report
from tartan.result.statistics import statistics_of
from tartan.run.execute import start
from tartan.run.oversight import MOST_TOLD, Oversight, RanksOversight
from tartan.store.folder import RunFolder


class Shown(Progress):
    """Keeps what it was last told."""

    def update(
        self, done_pairs: int, loads: int = 0, n_items: int = 0, failed: int = 0, fills: int | None = None
    ) -> None:
        self.last = (done_pairs, loads, n_items, failed, fills)


def never() -> Look:
    raise AssertionError("nothing gave reason for doubt")


def test_loads_and_fills_of_all_ranks_are_shown_and_counts_can_be_read_meanwhile(tmp_path: Path) -> None:
    folder = RunFolder.open(start(asked(), tmp_path / "run").path, writable=True)
    coordinator = Coordinator(CoordinatorSetup(np.ones((1, 1), np.int64), 1))
    for peer in ("a", "b"):
        coordinator.handle(Received(peer, Hello((), band_items=4)), 0.0)
    coordinator.counts.steals = 3
    progress = Shown(10, quiet=True)
    before = folder.stats["parses"]
    with folder.join("run-1", {"what": "the driver"}):
        oversight = RanksOversight(folder, FailureRules(), progress, never, coordinator, clock=lambda: 5.0)
        done = folder.wanted.n_scores
        for fills in (30, 20):
            oversight.report_of_rank(Report(NodeReport(n_loads=99, pairs=PairCounts(scores=1)), 1.0, 10, fills))
        assert progress.last == (done + 2, 20, N, 0, 50)
        # As ``tartan info`` reads them in another process.
        found = statistics_of(RunFolder.open(folder.path))
    assert (found["n_ranks"], found["steals"], found["ranks_lost"]) == (2, 3, 0)
    assert found["storage_load_factor"] == before / N


def test_calls_that_are_late_are_named_but_not_thousands_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.open(start(asked(), tmp_path / "run").path, writable=True)
    with folder.lock(), Progress(10) as progress:
        oversight = Oversight(folder, FailureRules(), progress, never)
        oversight.report(NodeReport(late=["a, \x1b[1mb: late"]))
        oversight.report(NodeReport(late=["again"] * 3 * MOST_TOLD))
    first, *others = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tartan: ")]
    assert first == "tartan: a, \\x1b[1mb: late"
    assert len(others) == MOST_TOLD
    assert others[-1] == "tartan: calls that are late from now on are not named"
