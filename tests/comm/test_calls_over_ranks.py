"""A call of the analytics on processes: what returns, what fails, and whose signals are put back."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tartan.analytics import Monitor
from tartan.errors import RunCancelledError
from tartan.result.over_ranks import AskedRanks, over_ranks

pytestmark = pytest.mark.slow


def test_rank_0_returns_and_says_what_it_does_and_all_know_the_checkpoint(tmp_path: Path) -> None:
    def call(path: str, *, monitor: Monitor, communicator: Any, extra: int) -> Any:
        there = (communicator.rank, monitor.verbose, monitor.checkpoint, path, extra)
        return communicator.size, there

    before = signal.getsignal(signal.SIGTERM)
    monitor = Monitor(1, tmp_path / "c.npz")
    size, first = over_ranks(AskedRanks(2), call, "matrix", monitor=monitor, extra=3)
    assert size == 2
    assert first == (0, 1, tmp_path / "c.npz", "matrix", 3)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_call_that_is_cancelled_on_a_rank_is_cancelled_here() -> None:
    def call(*, monitor: Monitor, communicator: Any) -> None:
        raise RunCancelledError(f"on {communicator.size} ranks")

    with pytest.raises(RunCancelledError, match="on 2 ranks") as raised:
        over_ranks(AskedRanks(2), call, monitor=Monitor(0))
    assert raised.value.context["signal"] == signal.SIGINT
