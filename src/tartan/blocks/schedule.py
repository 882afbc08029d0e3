"""Which rank runs which subtasks of a call of ``Session.run``, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tartan.blocks.directory import BlockDirectory
from tartan.blocks.jobs import RunTable
from tartan.core.blocks.bounds import bound_moved_bytes
from tartan.core.blocks.subtask_order import PieceOrder
from tartan.core.blocks.task_divider import TaskDivider

# _SHARE_FOR_RANGES and _OUTPUTS_AT_A_TIME, by judgement: ranges are used again and outputs are not, so they get more;
# eight outputs are a few for each core. `tartan bench blocks only=memory` is within 1 % of its bound.
_SHARE_FOR_RANGES = 0.7
"""Of the room of a rank, for what its subtasks read, where they write so much that the rest is for that."""
_OUTPUTS_AT_A_TIME = 8
"""Of how many subtasks what they write is kept room for, where that is less."""


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


def schedule_subtasks(
    jobs: RunTable, directory: BlockDirectory, divider: TaskDivider, ranks: Sequence[int], room_bytes: float
) -> BlockSchedule:
    """Divide subtasks among ranks, and put those of each rank into order.

    Parameters
    ----------
    jobs : RunTable
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
    room_bytes = room_for_ranges(room_bytes, directory.most_written(jobs))
    task = directory.make_assignment(jobs, ranks)
    bound = bound_moved_bytes(task)
    owners = divider.divide(task, jobs.number, directory.find_updated(jobs, ranks))
    order = PieceOrder(task.demand, task.index)
    subtasks: list[int] = []
    whose: list[int] = []
    for place, rank in enumerate(ranks):
        pieces = order.of(np.flatnonzero(owners == place), task.missing[place], room_bytes)
        subtasks += pieces.tolist()
        whose += [rank] * len(pieces)
    return BlockSchedule(subtasks, whose, None if bound is None else round(bound))


def room_for_ranges(room_bytes: float, written_bytes: float) -> float:
    """Return what a rank has for ranges that subtasks read.

    Parameters
    ----------
    room_bytes : float
        For all arrays.
    written_bytes : float
        What one subtask takes for what it writes.
    """
    return max(_SHARE_FOR_RANGES * room_bytes, room_bytes - _OUTPUTS_AT_A_TIME * written_bytes)
