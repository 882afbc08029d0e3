"""The lane of the CPU, where its workers answer what they must not."""

from __future__ import annotations

from typing import Any

from tartan.core.pairs.device_time import DeviceTime
from tartan.runtime.cpu_lane import CpuLane
from tartan.runtime.events import Event, NodeBroken
from tartan.workers.executor import Completed


class Answering:
    """Stands for the wiring of a node, its executor and a part; each call is answered with nothing."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.executor = self.item_plan = self
        self.device_time = DeviceTime(1, True, lambda: 0.0)
        self.items = self.chooser = self.call_limit = None
        self.priority, self.shape = 0, (1, 1)

    def submit(self, function: Any, args: Any, done: Any, **ways: Any) -> None:
        done(Completed(None))

    def post(self, event: Event) -> None:
        self.events.append(event)


def test_an_answer_that_cannot_be_taken_ends_the_node() -> None:
    wiring: Any = Answering()
    CpuLane(0, wiring).compare(wiring)
    assert [type(event) for event in wiring.events] == [NodeBroken]
    assert isinstance(wiring.events[0].error, TypeError)
