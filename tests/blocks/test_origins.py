"""Where ranges come from is told to each rank once, and again when a rank is lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tartan.blocks import Session
from tartan.blocks.directory import BlockDirectory
from tartan.blocks.execution import BlockExecution
from tartan.blocks.jobs import RunTable
from tartan.blocks.origins import KnownOrigins
from tartan.blocks.task import Task
from tartan.blocks.work import DropFunctions, OrderDone, RankGone, WorkOrder


class RecordingCrew:
    """Ranks that do nothing but keep the orders that they get, and lose one of them when asked to."""

    room_bytes = device_bytes = 1e9
    travels = on_cpu = True
    on_device = False
    n_cores = math.inf

    def __init__(self, n_ranks: int, lose_after: int | None = None) -> None:
        self.ranks = [*range(n_ranks)]
        self.given: dict[int, list[WorkOrder]] = {rank: [] for rank in self.ranks}
        self.full: dict[int, list[WorkOrder]] = {rank: [] for rank in self.ranks}
        self._known = {rank: KnownOrigins() for rank in self.ranks}
        self._events: deque[Any] = deque()
        self._lose_after = lose_after

    def n_workers(self, rank: int) -> int:
        return 1

    def now(self) -> float:
        return 0.0

    def send(self, rank: int, command: Any) -> None:
        if isinstance(command, DropFunctions):
            self._known[rank].forget()
        if not isinstance(command, WorkOrder) or rank not in self.ranks:
            return
        self.given[rank].append(command)
        self.full[rank].append(self._known[rank].complete(command))
        self._events.append(OrderDone(rank, command.key))
        if self._lose_after is not None and sum(map(len, self.given.values())) == self._lose_after:
            self._lose_after = None
            self.ranks.remove(1)
            self._events = deque(event for event in self._events if event.rank != 1)
            self._events.append(RankGone(1, "asked to"))

    def next_event(self, timeout_seconds: float | None) -> Any:
        return self._events.popleft() if self._events else None

    def fetch(self, rank: int, origins: Any, targets: Any) -> None:
        raise AssertionError("nothing is read here")

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(workers=1) as found:
        yield found


def nothing(*arrays: Any) -> None:
    """Do nothing."""


def product(session: Session) -> tuple[BlockDirectory, RunTable]:
    a, b = (session.space(np.ones((20, 20)), block=5) for _ in "ab")
    c = session.space(shape=(20, 20), block=5)
    directory = BlockDirectory()
    for space in (a, b, c):
        directory.add(space, None if space is c else [k % 2 for k in range(16)])

    def wants(i: Any, j: Any) -> Any:
        rows, columns = c.block(i, j)
        return a.read[rows, :], b.read[:, columns], c.write[rows, columns]

    task = Task(nothing, c.grid, wants, at_once=True)
    return directory, RunTable(1, [(task.table, task.function)], directory.parts_of)


@pytest.mark.parametrize("lose_after", [None, 1, 5, 9])
def test_orders_are_complete_though_ranges_are_told_once(session: Session, lose_after: int | None) -> None:
    directory, jobs = product(session)
    crew = RecordingCrew(2, lose_after)
    execution = BlockExecution(crew, directory, lambda number: jobs, steal=None)
    execution.run([(1, k) for k in range(16)], [k % 2 for k in range(16)])
    for rank in crew.ranks:
        told = [wanted for order in crew.given[rank] for wanted in order.origins]
        if lose_after is None:
            assert len(told) == len(set(told)) == 4 + 2
        assert {order.subtask.number for order in crew.full[rank]} >= {k for k in range(16) if k % 2 == rank}
        for order in crew.full[rank]:
            parts = jobs.parts_of(order.subtask)
            assert order.origins.keys() == parts.keys()
            covered = {wanted: tuple((one.box, one.key) for one in found) for wanted, found in order.origins.items()}
            assert covered == parts
    if lose_after is not None:
        assert {order.subtask.number for order in crew.full[0]} == set(range(16))
        last = crew.full[0][-1]
        assert last.origins == {
            wanted: directory.origins(parts, 0) for wanted, parts in jobs.parts_of(last.subtask).items()
        }
        assert all(one.rank != 1 for found in last.origins.values() for one in found)


@pytest.mark.parametrize(("n_workers", "at_first"), [(1, 4), (2, 5), (6, 8)])
def test_a_rank_has_orders_for_all_its_workers(session: Session, n_workers: int, at_first: int) -> None:
    """Besides those that run there are some for the time after, up to half of what is left."""
    directory, jobs = product(session)
    given: list[int] = []

    class Crew(RecordingCrew):
        def n_workers(self, rank: int) -> int:
            return n_workers

        def next_event(self, timeout_seconds: float | None) -> Any:
            given.append(len(self.given[0]))
            return super().next_event(timeout_seconds)

    execution = BlockExecution(Crew(2), directory, lambda number: jobs, steal=None)  # type: ignore[arg-type]
    execution.run([(1, k) for k in range(16)], [k % 2 for k in range(16)])
    assert given[0] == at_first
    assert given[-1] == 8
