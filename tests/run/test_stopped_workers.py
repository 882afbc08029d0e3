"""A worker process that is stopped holds no run on several ranks; by a clock that moves only while one is."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import asked, ranks

import tartan
from tartan.core.pairs import call_limit
from tartan.core.pairs.call_limit import CallLimit
from tartan.run import session
from tartan.run.execute import start
from tartan.runtime.execution import NodeInputs
from tartan.runtime.node import Node
from tartan.testing import faults
from tartan.workers import start as workers
from tartan.workers.processes import ProcessExecutor

LEAP_SECONDS = 10_000.0


class Stops(faults.HangsOn):
    """Stops its process, as a debugger does, or whoever freezes a job."""

    def wait(self, seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class StoppedClock:
    """Stands still, but leaps whenever it is looked at while a worker of its executor is stopped."""

    executor: ProcessExecutor

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        pids = self.executor.worker_pids if hasattr(self, "executor") else []
        self.now += LEAP_SECONDS * any(map(is_stopped, pids))
        return self.now


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class StopsOnOneRank(faults.HangsOn):
    """Stops its process, always, but only on the rank that comes to the guilty pair first."""

    rank = -1

    def wait(self, seconds: float) -> None:
        first = Path(str(self.first))
        with contextlib.suppress(FileExistsError), first.open("x") as file:
            file.write(str(self.rank))
        if first.read_text() == str(self.rank):
            os.kill(os.getpid(), signal.SIGSTOP)


NUMBERS = itertools.count()


def executor(app: Any, n_workers: int) -> ProcessExecutor:
    clock = StoppedClock()
    app.rank = next(NUMBERS)
    clock.executor = ProcessExecutor(app, n_workers, start_timeout_seconds=1e9, clock=clock)
    return clock.executor


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[CallLimit | None]:
    """Shorten what must be waited for in true time; return what each rank takes for its limit."""
    found: list[CallLimit | None] = []

    class Noted(Node):
        def __init__(self, inputs: NodeInputs) -> None:
            found.append(inputs.call_limit)
            super().__init__(inputs)

    monkeypatch.setattr(session, "Node", Noted)
    monkeypatch.setattr(workers, "ProcessExecutor", executor)
    monkeypatch.setattr(call_limit, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(call_limit, "LEAST_HALF_SECONDS", 0.01)
    return found


@pytest.mark.slow
def test_a_stopped_worker_holds_no_cluster(
    tmp_path: Path, limits: list[CallLimit | None], capsys: pytest.CaptureFixture[str]
) -> None:
    app = Stops(("30", "40"), once=str(tmp_path / "once"))
    run = start(asked(app, quiet=False), tmp_path / "run", ranks=ranks(2))
    assert (tmp_path / "once").exists()
    assert len(limits) == 2
    assert all(limit is not None and limit.given is None for limit in limits)
    check(run)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "did not return" in line]
    assert re.match(r"tartan: \d x \d pairs from \d+, \d+ on: compare did not return within .*--tile-timeout", line)


def everywhere(number: int, place: str) -> Path:
    return Path(place)


def nowhere(number: int, place: str) -> Path:
    return Path(place) / "absent"


TOP = {"kind": "top-k", "k": 3, "largest": True}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("locate", "reduce"),
    [
        pytest.param(everywhere, None, marks=pytest.mark.slow),
        pytest.param(nowhere, None, marks=pytest.mark.exhaustive),
        pytest.param(everywhere, TOP, marks=pytest.mark.exhaustive),
        pytest.param(nowhere, TOP, marks=pytest.mark.exhaustive),
    ],
    ids=["matrix", "matrix that ranks do not see", "top 3", "top 3 that ranks do not see"],
)
def test_a_pair_that_is_endless_on_one_rank_is_compared_by_another(
    tmp_path: Path, limits: list[CallLimit | None], capsys: pytest.CaptureFixture[str], locate: Any, reduce: Any
) -> None:
    app = StopsOnOneRank(("30", "40"))
    app.first = str(tmp_path / "first")
    run = start(asked(app, quiet=False, reduce=reduce), tmp_path / "run", ranks=ranks(2, locate=locate))
    assert len(limits) == 2
    assert run.finished
    assert not run.failures
    if reduce is None:
        check(run)
    else:
        one = start(asked(faults.Distances(), reduce=reduce), tmp_path / "one")
        assert run.pairs().read_all().to_pylist() == one.pairs().read_all().to_pylist()
    [line] = [line for line in capsys.readouterr().err.splitlines() if "tries" in line]
    found = re.match(r"tartan: 30, 40: compare did not return within .* on rank (rank-.); rank (rank-.) tries", line)
    assert found
    assert sorted(found.groups()) == ["rank-0", "rank-1"]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("limits")
def test_a_pair_that_is_endless_on_two_ranks_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = start(asked(Stops(("30", "40")), quiet=False), tmp_path / "run", ranks=ranks(2))
    [failure] = run.failures
    assert (failure.i, failure.j) == (30, 40)
    assert run.finished
    assert run.n_pairs_done == 45 * 44 // 2 - 1
    assert len([line for line in capsys.readouterr().err.splitlines() if "tries" in line]) == 1


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(("n_ranks", "seconds", "given"), [(1, 0, None), (1, 5.0, 5.0), (0, None, None)])
def test_zero_is_no_limit_and_on_one_machine_alone_there_is_none(
    tmp_path: Path, limits: list[CallLimit | None], n_ranks: int, seconds: float | None, given: float | None
) -> None:
    where = {"ranks": ranks(n_ranks)} if n_ranks else {}
    check(start(asked(faults.Distances(), tile_timeout=seconds), tmp_path / "run", **where))
    assert [limit and limit.given for limit in limits] == [given]


@pytest.mark.slow
def test_threads_cannot_be_stopped_and_have_no_limit_unless_the_user_says_so(
    tmp_path: Path, limits: list[CallLimit | None]
) -> None:
    class InThreads(faults.Distances):
        releases_gil = True

    check(start(asked(InThreads()), tmp_path / "run", ranks=ranks(2)))
    assert limits == [None, None]


class StopsAtTriple(tartan.Application):
    """Stops its process whenever it compares 1, 3 and 5."""

    def compare_triple(self, a: Any, b: Any, c: Any) -> float:
        if (float(a), float(b), float(c)) == (1.0, 3.0, 5.0):
            os.kill(os.getpid(), signal.SIGSTOP)
        return float(a + b + c)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("limits")
def test_a_triple_that_stops_its_worker_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ways = {"keep": tartan.over(-1.0), "tile": 8, "workers": 1, "tile_timeout": 5.0, "quiet": False}
    run = tartan.alltuples(StopsAtTriple(), [float(i) for i in range(16)], tmp_path / "run", **ways)
    [failure] = run.failures
    assert (failure.i, failure.j, failure.k) == (1, 3, 5)
    assert "1, 3, 5: compare did not return within" in failure.reason
    assert run.n_triples_done == 559
    first, last = [line for line in capsys.readouterr().err.splitlines() if "did not return" in line]
    assert re.match(r"tartan: \d x \d x \d triples from .* on: compare did not return .* in halves", first)
    assert re.match(r"tartan: 1, 3, 5: compare did not return .* once more", last)


def check(run: tartan.Run) -> None:
    numbers = np.arange(run.n_items, dtype=np.float64)
    matrix = run.matrix()
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(matrix, np.abs(numbers[:, None] - numbers))
    assert not run.failures
