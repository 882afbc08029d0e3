"""What the desks, lanes and the loader of a node share."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tartan.application import Application
from tartan.base.trace import Tracer
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.device_time import DeviceTime
from tartan.runtime.events import Event
from tartan.runtime.host import Place, RaggedObjects
from tartan.runtime.tasks import ItemPlan
from tartan.sources.items import Source
from tartan.store.keeper import Chooser
from tartan.workers.arena import Arena
from tartan.workers.executor import Executor


@dataclass(frozen=True)
class Wiring:
    """Who works, on what, and where events go.

    Attributes
    ----------
    app : Application
    source : Source
    executor : Executor
        Its workers parse, and compare for devices without memory of their own.
    item_plan : ItemPlan
        How items lie in host memory.
    arenas : dict of str to Arena
        The memory that executor and node share.
    post : callable
        Gives an event to the loop; may be called on any thread.
    tracer : Tracer
    call_limit : CallLimit or None
        Longest time that one compare call may take, and one item; None: any time.
    chooser : Chooser or None
        What chooses from every tile right after it was compared; None where scores go to the buffers of chunks.
    device_time : DeviceTime
        Learns when stages begin and end.
    """

    app: Application
    source: Source
    executor: Executor
    item_plan: ItemPlan
    arenas: dict[str, Arena]
    post: Callable[[Event], None]
    tracer: Tracer
    call_limit: CallLimit | None = None
    chooser: Chooser | None = None
    device_time: DeviceTime = field(default_factory=lambda: DeviceTime(1, True, time.monotonic))

    def copy_of(self, place: Place) -> Any:
        """Return the items of a place; they do not change when it is filled anew."""
        items = self.item_plan.items
        found = items.operand(self.arenas, [place])
        return found if isinstance(items, RaggedObjects) else copy.deepcopy(found)
