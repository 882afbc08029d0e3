"""Block tasks: functions of a few array slices, run wherever their data is.

A ``Session`` opens ranks. A *space* is an array cut into blocks that lie on them. A ``Task`` names a function, the
indices of its subtasks, and the ranges of spaces that each subtask reads and writes. What moves, where it runs and what
is tried again is the session's business.
"""

from tartan.blocks.halo import halo
from tartan.blocks.report import RunReport
from tartan.blocks.resuming import resume
from tartan.blocks.session import Session
from tartan.blocks.space import Space, Subscription
from tartan.blocks.task import Task

__all__ = ["RunReport", "Session", "Space", "Subscription", "Task", "halo", "resume"]
