"""Subtasks on a device in virtual time: what is moved, what overlaps, what leaves."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from itertools import count

import numpy as np
import pytest

from tartan.core.blocks.device_queue import (
    ComputeSubtask,
    DeviceNeeds,
    DeviceQueue,
    DownloadArrays,
    DropArrays,
    Step,
    UploadArrays,
)
from tartan.errors import InternalError


class Machine:
    """Three engines in virtual time; every step is checked against what is on the device."""

    def __init__(self, room: int, *, upload: float = 1.0, compute: float = 1.0, download: float = 1.0) -> None:
        self.queue = DeviceQueue(room)
        self.seconds = {"upload": upload, "compute": compute, "download": download}
        self.room, self.now = room, 0.0
        self.there: dict[int, int] = {}
        self.filled: dict[int, Hashable] = {}
        self.needs: dict[int, DeviceNeeds] = {}
        self.names: dict[int, tuple[Hashable, ...]] = {}
        self.uploads: dict[int, UploadArrays] = {}
        self.computed: list[int] = []
        self.ended: list[int] = []
        self.n_uploaded = 0
        self.fails: dict[int, str] = {}
        self.again: list[int] = []
        self._free = dict.fromkeys(self.seconds, 0.0)
        self._events: list[tuple[float, int, str, int]] = []
        self._numbers = count()

    def submit(self, number: int, needs: DeviceNeeds, names: Sequence[Hashable] = ()) -> None:
        self.needs[number], self.names[number] = (
            needs,
            tuple(names) or tuple((number, k) for k in range(len(needs.outputs))),
        )
        self.take(self.queue.submit(number, needs, self.now))

    def take(self, steps: list[Step]) -> None:
        for step in steps:
            if not isinstance(step, ComputeSubtask):
                for place in step.dropped:
                    self.there.pop(place, None)
                    self.filled.pop(place, None)
            if isinstance(step, UploadArrays):
                self.upload(step)
            elif isinstance(step, ComputeSubtask):
                self.begin("compute", step.number, self.seconds["compute"])
            elif isinstance(step, DownloadArrays):
                self.begin("download", step.number, self.seconds["download"])
            else:
                assert isinstance(step, DropArrays)

    def upload(self, step: UploadArrays) -> None:
        needs, self.uploads[step.number] = self.needs[step.number], step
        n_bytes = 0
        for key, place in step.ranges.items():
            if place not in self.there:
                self.filled[place] = key
                n_bytes += needs.ranges[key]
            assert self.filled[place] == key
            self.there[place] = needs.ranges[key]
        for key, place in step.copies.items():
            self.there[place] = needs.ranges[key]
        self.there |= dict(zip(step.outputs, needs.outputs))
        assert sum(self.there.values()) <= self.room
        self.n_uploaded += n_bytes
        self.begin("upload", step.number, n_bytes * self.seconds["upload"])

    def begin(self, engine: str, number: int, seconds: float) -> None:
        start = max(self.now, self._free[engine])
        self._free[engine] = start + seconds
        heapq.heappush(self._events, (start + seconds, next(self._numbers), engine, number))

    def run(self) -> None:
        while self._events:
            self.now, _, engine, number = heapq.heappop(self._events)
            if engine == "compute" and self.fails.get(number) == "again":
                del self.fails[number]
                self.again.append(number)
                self.take(self.queue.retry(number, self.now))
            elif self.fails.get(number) == engine:
                self.take(self.queue.on_failed(number, self.now))
            elif engine == "upload":
                self.take(self.queue.on_uploaded(number, self.now))
            elif engine == "compute":
                places = {*self.uploads[number].ranges.values(), *self.uploads[number].outputs}
                assert places <= self.there.keys()
                self.computed.append(number)
                self.take(self.queue.on_computed(number, self.now))
            else:
                for place, name in zip(self.uploads[number].outputs, self.names[number]):
                    self.filled[place] = name
                self.ended.append(number)
                self.take(self.queue.on_downloaded(number, self.names[number], self.now))


def needs(*keys: Hashable, size: int = 1, out: int = 1, only_read: bool = True, **options: bool) -> DeviceNeeds:
    return DeviceNeeds(dict.fromkeys(keys, size), frozenset(keys if only_read else ()), (out,), **options)


def test_uploads_and_downloads_happen_behind_the_computation() -> None:
    machine = Machine(100, upload=1.0, compute=3.0, download=2.0)
    for number in range(20):
        machine.submit(number, needs(number, "same"))
    machine.run()
    assert machine.computed == machine.ended == list(range(20))
    assert machine.now == 2.0 + 20 * 3.0 + 2.0  # the first upload, the last download, and nothing else is waited for
    assert machine.queue.seconds_waited == 2.0
    assert machine.n_uploaded == 21
    assert (machine.queue.n_ranges, machine.queue.n_hits) == (40, 19)


def test_where_uploads_are_slower_they_are_what_is_waited_for() -> None:
    machine = Machine(100, upload=5.0, compute=3.0)
    for number in range(10):
        machine.submit(number, needs(number))
    machine.run()
    assert machine.now == 10 * 5.0 + 3.0 + 1.0
    assert machine.queue.seconds_waited == 10 * 5.0 - 9 * 3.0


def test_without_room_for_a_second_subtask_nothing_overlaps() -> None:
    machine = Machine(3, upload=1.0, compute=3.0, download=2.0)
    for number in range(4):
        machine.submit(number, needs(number))
    machine.run()
    assert machine.ended == [0, 1, 2, 3]
    assert machine.now > 4 * 3.0 + 3.0
    assert machine.queue.peak_bytes <= 3


def fewest_uploads(uses: list[int], room: int) -> int:
    """Return the fewest loads of single ranges, by Belady's rule."""
    there: set[int] = set()
    loads = 0
    for k, key in enumerate(uses):
        if key not in there:
            loads += 1
            if len(there) == room:
                following = {one: next((j for j in range(k + 1, len(uses)) if uses[j] == one), 10**9) for one in there}
                there.remove(max(there, key=lambda one: following[one]))
            there.add(key)
    return loads


@pytest.mark.parametrize("seed", range(5))
def test_the_range_whose_next_use_is_farthest_leaves(seed: int) -> None:
    uses = np.random.default_rng(seed).integers(0, 9, 60).tolist()
    machine = Machine(5)  # four ranges, and one that is written
    for key in uses:
        machine.queue.expect([key])
    for number, key in enumerate(uses):
        machine.submit(number, needs(key, only_read=False))
        machine.run()
    # An output that just ended is there as well, until its room is needed.
    assert machine.n_uploaded == fewest_uploads(uses, 4)


def test_what_was_written_is_read_again_without_an_upload() -> None:
    machine = Machine(20)
    machine.submit(0, needs("a"), ["b"])
    machine.run()
    machine.submit(1, needs("b"), ["c"])
    machine.run()
    assert machine.n_uploaded == 1
    assert machine.queue.n_hits == 1


def test_functions_get_copies_where_there_is_room_and_else_have_the_device_to_themselves() -> None:
    machine = Machine(10)
    machine.submit(0, needs("a", size=4))
    machine.submit(1, needs("a", size=6))
    machine.submit(2, needs("a", size=4))
    machine.run()
    first, second, third = (machine.uploads[number] for number in range(3))
    assert first.copies.keys() == {"a"}
    assert second.copies == {}
    assert third.copies.keys() == {"a"}
    assert third.ranges["a"] != second.ranges["a"]  # the second had the range itself, and may have changed it
    assert machine.ended == [0, 1, 2]


def test_a_subtask_that_never_fits_is_refused() -> None:
    queue = DeviceQueue(10)
    assert needs("a", size=8, out=2).least_bytes == 10
    assert needs("a", size=8, out=2, takes_copies=True).least_bytes == 18
    with pytest.raises(InternalError, match="needs 11 bytes of 10"):
        queue.submit(0, needs("a", size=8, out=3), 0.0)


@pytest.mark.parametrize("step", ["upload", "compute", "download"])
def test_what_failed_leaves_and_the_others_continue(step: str) -> None:
    machine = Machine(8)
    machine.fails[1] = step
    for number in range(4):
        machine.submit(number, needs(number, "same"))
    machine.run()
    assert machine.ended == [0, 2, 3]
    assert not any(place in machine.there for place in machine.uploads[1].outputs)
    machine.take([DropArrays(machine.queue.forget(lambda key: True))])
    assert machine.there == {}


def test_a_subtask_that_ran_out_of_memory_comes_again_when_the_device_is_empty() -> None:
    machine = Machine(100, upload=0.0)
    machine.fails[0] = "again"
    for number in range(4):
        machine.submit(number, needs(number))
    machine.run()
    assert machine.computed == machine.ended == [1, 2, 3, 0]
    assert len(machine.uploads[0].copies) == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_subtasks_all_end_within_the_room(seed: int) -> None:
    rng = np.random.default_rng(seed)
    machine = Machine(int(rng.integers(12, 30)), upload=float(rng.random()), compute=float(rng.random()))
    machine.fails = {
        int(number): str(rng.choice(["upload", "compute", "download"])) for number in rng.integers(0, 40, 4)
    }
    sizes = rng.integers(1, 4, 12)
    for number in range(40):
        keys = rng.choice(12, int(rng.integers(0, 3)), replace=False).tolist()
        reads = frozenset(key for key in keys if rng.random() < 0.7)
        outputs = tuple(rng.integers(1, 4, int(rng.integers(0, 2))).tolist())
        machine.queue.expect(keys)
        machine.submit(number, DeviceNeeds({key: int(sizes[key]) for key in keys}, reads, outputs))
        if rng.random() < 0.3:
            machine.run()
    machine.run()
    assert sorted(machine.ended) == [number for number in range(40) if number not in machine.fails]
    assert [number for number in machine.ended if number not in machine.again] == sorted(
        {*machine.ended} - {*machine.again}
    )
    machine.take([DropArrays(machine.queue.forget(lambda key: True))])
    assert machine.there == {}
