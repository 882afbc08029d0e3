"""How many loads a run will make: its scheduler is driven to the end without items, threads or time.

Loads depend on the order of tiles alone, so these are the loads of the run, to the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tartan.core.pairs.actions import Action, AskSegments, Commit, Compare, Load
from tartan.core.pairs.setup import NodePlan, make_scheduler, make_segments, next_segments
from tartan.errors import InternalError


def count_loads(setup: NodePlan) -> int:
    """Return the loads of a run whose devices work in host memory, in items."""
    scheduler, segments = make_scheduler(setup), make_segments(setup)
    waiting: deque[Action] = deque(scheduler.start())
    while waiting:
        action = waiting.popleft()
        found: Sequence[Action] = ()
        match action:
            case AskSegments(most):
                granted, last = next_segments(segments, most)
                found = scheduler.on_granted(granted, last=last)
            case Load():
                found = scheduler.on_loaded(action.span)
            case Compare():
                found = scheduler.on_compared(action.device, action.tile)
            case Commit():
                found = scheduler.on_committed(action.chunk)
            case _:
                pass
        waiting.extend(found)
    if not scheduler.finished:
        raise InternalError("the order of a run came to no end")
    return scheduler.n_loads
