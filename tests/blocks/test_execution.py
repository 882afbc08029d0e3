"""What a session says to its ranks while they come, go and answer. The ranks compute nothing."""

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
from tartan.blocks.task import Task
from tartan.blocks.work import Command, CopyPieces, CrewEvent, OrderDone, RankGone, WorkOrder

N_SUBTASKS = 12


class AnsweringCrew:
    """Three ranks that answer at once; the second one is lost as the others are asked for copies."""

    room_bytes = device_bytes = 1e9
    travels = on_cpu = True
    on_device = False
    n_cores = math.inf

    def __init__(self) -> None:
        self.ranks = [0, 1, 2]
        self.sent: list[tuple[int, Command]] = []
        self._events: deque[CrewEvent] = deque()

    def n_workers(self, rank: int) -> int:
        return 1

    def now(self) -> float:
        return 0.0

    def send(self, rank: int, command: Command) -> None:
        self.sent.append((rank, command))
        if rank in self.ranks and isinstance(command, WorkOrder | CopyPieces):
            self._events.append(OrderDone(rank, command.key))
        if isinstance(command, CopyPieces) and 1 in self.ranks:
            self.ranks.remove(1)
            self._events.appendleft(RankGone(1, "asked to"))

    def next_event(self, timeout_seconds: float | None) -> CrewEvent | None:
        assert self._events, "the session waits for an answer that came"
        return self._events.popleft()

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


def test_copies_that_come_while_a_loss_is_made_up_for_count(session: Session) -> None:
    space = session.space(np.ones(N_SUBTASKS), block=1)
    directory, crew = BlockDirectory(), AnsweringCrew()
    directory.add(space, None)
    task = Task(nothing, space.grid, lambda i: space.update[space.block(i)])
    jobs = RunTable(1, [(task.table, task.function)], directory.parts_of)
    execution = BlockExecution(crew, directory, lambda number: jobs, copies=2)
    execution.run([(1, k) for k in range(N_SUBTASKS)], [k % 3 for k in range(N_SUBTASKS)])
    report = execution.report(0.0, N_SUBTASKS, None)
    assert (report.ranks_lost, report.repeated, sum((report.per_rank or {}).values())) == (1, 4, N_SUBTASKS + 4)
    copied = [command for _, command in crew.sent if isinstance(command, CopyPieces)]
    assert sum(len(command.pieces) for command in copied) == N_SUBTASKS
    holders = [directory.holders[piece] for job in jobs for piece, _ in job.outputs()]
    assert all(holders)
    assert sum(one == [0, 2] or one == [2, 0] for one in holders) >= 4
