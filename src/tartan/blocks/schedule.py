"""Which rank runs which subtasks of a call of ``Session.run``, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tartan.blocks.directory import BlockDirectory
from tartan.blocks.jobs import JobTable
from tartan.core.block_bounds import moved_bound
from tartan.core.subtask_order import PieceOrder
from tartan.core.task_divider import TaskDivider

_SHARE_FOR_RANGES = 0.7
"""Of the room of a rank, for what its subtasks read; the rest is for what they write."""


class BlockSchedule(NamedTuple):
    """Subtasks of one rank after those of another, each rank's in its order.

    Attributes
    ----------
    subtasks : list of int
    ranks : list of int
        The rank of each.
    bytes_bound : int or None
        What ranks must at least move, where that is known.
    """

    subtasks: list[int]
    ranks: list[int]
    bytes_bound: int | None


def scheduled(
    jobs: JobTable, directory: BlockDirectory, divider: TaskDivider, ranks: Sequence[int], room_bytes: float
) -> BlockSchedule:
    """Divide subtasks among ranks, and put those of each rank into order.

    Parameters
    ----------
    jobs : JobTable
    directory : BlockDirectory
    divider : TaskDivider
        Of the session.
    ranks : sequence of int
        That live, at least one.
    room_bytes : float
        Of each rank, for arrays.
    """
    if len(ranks) == 1 and directory.bytes_of(jobs) <= room_bytes:
        return BlockSchedule([*range(len(jobs))], [ranks[0]] * len(jobs), 0)
    task = directory.assignment(jobs, ranks)
    bound = moved_bound(task)
    owners = divider.divided(task, jobs.number, directory.updated(jobs, ranks))
    order = PieceOrder(task.demand, task.index)
    subtasks: list[int] = []
    whose: list[int] = []
    for place, rank in enumerate(ranks):
        pieces = order.of(np.flatnonzero(owners == place), task.missing[place], room_bytes * _SHARE_FOR_RANGES)
        subtasks += pieces.tolist()
        whose += [rank] * len(pieces)
    return BlockSchedule(subtasks, whose, None if bound is None else round(bound))
