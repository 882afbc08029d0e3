"""Subtasks on a device whose memory is one more cache level: what is uploaded, computed and downloaded when.

Subtasks get room in the order in which they come, each for all its arrays at once. While one computes, the ranges of
the next are uploaded and the results of the one before are downloaded; how many are under way is a matter of room
alone. Ranges stay for later subtasks; the one that leaves is the one whose next use is farthest.

A function cannot be kept from writing to an array of a GPU. So it gets a copy of each range that it only reads. Where
a subtask has no room for copies, it gets the ranges themselves, has the device to itself meanwhile, and they leave
with it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

from tartan.core.pairs.cache import Level, Need, Room
from tartan.errors import InternalError


@dataclass(frozen=True)
class DeviceNeeds:
    """Bytes that a subtask needs on a device.

    Attributes
    ----------
    ranges : mapping of hashable to int
        Bytes of each range that it reads or updates.
    only_read : frozenset
        Those of them that its function must not change.
    outputs : tuple of int
        Bytes of each array that it writes.
    takes_copies : bool
        Whether it cannot do without copies of what it only reads.
    alone : bool
        Whether no other subtask may have room meanwhile, as the function takes more memory than is left to it.
    """

    ranges: Mapping[Hashable, int]
    only_read: frozenset[Hashable]
    outputs: tuple[int, ...]
    takes_copies: bool = False
    alone: bool = False

    @property
    def copied_bytes(self) -> int:
        """Bytes of all copies."""
        return sum(self.ranges[key] for key in self.only_read)

    @property
    def least_bytes(self) -> int:
        """The smallest room in which the subtask can run."""
        least = sum(self.ranges.values()) + sum(self.outputs)
        return least + self.copied_bytes if self.takes_copies else least


class UploadArrays(NamedTuple):
    """Drop places, then make the arrays of a subtask and fill its ranges.

    Attributes
    ----------
    number : int
        Of the subtask.
    dropped : list of int
        Places whose arrays leave first.
    ranges, copies : dict of hashable to int
        Place of each range, and of each copy; no copies where the function gets the ranges themselves.
    outputs : list of int
        Places of what it writes.
    """

    number: int
    dropped: list[int]
    ranges: dict[Hashable, int]
    copies: dict[Hashable, int]
    outputs: list[int]


class ComputeSubtask(NamedTuple):
    """Call the function of a subtask."""

    number: int


class DownloadArrays(NamedTuple):
    """Drop places, then bring back what a subtask wrote."""

    number: int
    dropped: list[int]


class DropArrays(NamedTuple):
    """Drop places."""

    dropped: list[int]


Step = UploadArrays | ComputeSubtask | DownloadArrays | DropArrays


@dataclass
class _Admitted:
    """A subtask that has its room."""

    ranges: dict[Hashable, int]
    copies: dict[Hashable, int]
    outputs: list[int]
    needs: DeviceNeeds
    alone: bool
    stage: Literal["upload", "compute", "download"] = "upload"


class DeviceQueue:
    """Says what a device does next.

    Parameters
    ----------
    n_bytes : int
        Room for arrays.

    Attributes
    ----------
    n_ranges : int
        Ranges that subtasks read so far.
    seconds_waited : float
        For how long subtasks were there and none computed.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self.n_ranges = 0
        self.seconds_waited = 0.0
        self._level = Level(Room(0, n_bytes, addressed=False, spares_latest=False), waits=False)
        self._places = count()
        self._place_of: dict[Hashable, int] = {}
        self._key_of: dict[int, Hashable] = {}
        self._uses: dict[Hashable, deque[int]] = defaultdict(deque)
        self._n_expected = 0
        self._waiting: deque[tuple[int, DeviceNeeds]] = deque()
        self._admitted: dict[int, _Admitted] = {}
        self._uploaded: deque[int] = deque()
        self._computing: int | None = None
        self._n_uncomputed = 0
        self._idle_since = 0.0

    @property
    def n_hits(self) -> int:
        """Ranges that were on the device, or on their way to it, when a subtask needed them."""
        return self._level.stats.hits

    @property
    def peak_bytes(self) -> int:
        """The most that arrays took at a time."""
        return self._level.stats.peak

    # -- what comes --------------------------------------------------------------------------------------------------

    def expect(self, keys: Iterable[Hashable]) -> None:
        """Take note that one more subtask will read ranges."""
        self._n_expected += 1
        for key in keys:
            self._uses[key].append(self._n_expected)

    def expect_nothing(self) -> None:
        """Forget what was expected."""
        self._uses.clear()

    def submit(self, number: int, needs: DeviceNeeds, now: float) -> list[Step]:
        """Take a subtask whose ranges are in host memory.

        Raises
        ------
        InternalError
            If it can never have room.
        """
        if needs.least_bytes > self.n_bytes:
            raise InternalError(f"subtask {number} needs {needs.least_bytes} bytes of {self.n_bytes}")
        self._waiting.append((number, needs))
        if not self._n_uncomputed:
            self._idle_since = now
        self._n_uncomputed += 1
        return self._next(now)

    # -- what was done -----------------------------------------------------------------------------------------------

    def on_uploaded(self, number: int, now: float) -> list[Step]:
        """Take note that the arrays of a subtask are there."""
        self._uploaded.append(number)
        return self._next(now)

    def on_computed(self, number: int, now: float) -> list[Step]:
        """Take note that the function of a subtask has returned; its results are downloaded next."""
        admitted = self._admitted[number]
        dropped = self._release_inputs(number, now, drops_ranges=admitted.alone)
        admitted.stage = "download"
        return [DownloadArrays(number, dropped), *self._next(now)]

    def on_downloaded(self, number: int, outputs: Iterable[Hashable], now: float) -> list[Step]:
        """Take note that a subtask has ended; what it wrote stays under these names while there is room."""
        admitted = self._admitted.pop(number)
        self._level.release(admitted.outputs)
        before = set(admitted.outputs)
        for key, place in zip(outputs, admitted.outputs, strict=True):
            if key not in self._place_of:
                self._name(key, place)
                before.discard(place)
        return [DropArrays(self._drop(before)), *self._next(now)]

    def on_failed(self, number: int, now: float) -> list[Step]:
        """Take note that a subtask came to nothing, at whatever step; what it alone had leaves."""
        return [DropArrays(self._end(number, now)), *self._next(now)]

    def retry(self, number: int, now: float) -> list[Step]:
        """Take note that the memory ran out in a subtask: it comes once more, when no other has room."""
        needs = replace(self._admitted[number].needs, alone=True)
        dropped = self._end(number, now)
        self._waiting.appendleft((number, needs))
        if not self._n_uncomputed:
            self._idle_since = now
        self._n_uncomputed += 1
        return [DropArrays(dropped), *self._next(now)]

    def forget(self, wanted: Callable[[Hashable], bool]) -> list[int]:
        """Drop the ranges that no subtask has and whose key fulfils a condition; return their places."""
        return self._drop([place for key, place in self._place_of.items() if wanted(key)])

    # -- inside ------------------------------------------------------------------------------------------------------

    def _next(self, now: float) -> list[Step]:
        steps: list[Step] = []
        while self._waiting and (upload := self._admit(*self._waiting[0])) is not None:
            self._waiting.popleft()
            steps.append(upload)
        if self._computing is None and self._uploaded:
            number = self._computing = self._uploaded.popleft()
            self._admitted[number].stage = "compute"
            self.seconds_waited += now - self._idle_since
            steps.append(ComputeSubtask(number))
        return steps

    def _admit(self, number: int, needs: DeviceNeeds) -> UploadArrays | None:
        """Give a subtask its room; None where it must wait for others to end."""
        lends = needs.least_bytes + (0 if needs.takes_copies else needs.copied_bytes) > self.n_bytes
        alone = lends or needs.alone
        others = [one for one in self._admitted.values() if one.stage != "download"]
        if any(alone or other.alone for other in others):
            return None
        ranges = {key: self._place_of.get(key, -1) for key in needs.ranges}
        ranges = {key: next(self._places) if place < 0 else place for key, place in ranges.items()}
        copies = {} if lends else {key: next(self._places) for key in needs.ranges if key in needs.only_read}
        outputs = [next(self._places) for _ in needs.outputs]
        sizes = {place: needs.ranges[key] for given in (ranges, copies) for key, place in given.items()}
        sizes |= dict(zip(outputs, needs.outputs, strict=True))
        found = self._level.reserve([Need(place, size, -1, 0, size) for place, size in sizes.items()], self._next_use)
        if found is None:
            return None
        for place in found.evicted:
            self._unname(place)
        for arrival in found.arrivals:
            self._level.ready(arrival.span)
        for key, place in ranges.items():
            self._name(key, place)
            self._note_used(key)
        self.n_ranges += len(ranges)
        self._admitted[number] = _Admitted(ranges, copies, outputs, needs, alone)
        return UploadArrays(number, found.evicted, ranges, copies, outputs)

    def _end(self, number: int, now: float) -> list[int]:
        """Take away the room of a subtask and all that no other has of it; return what leaves."""
        admitted = self._admitted[number]
        dropped: list[int] = []
        if admitted.stage != "download":
            dropped += self._release_inputs(number, now, drops_ranges=True)
        del self._admitted[number]
        self._level.release(admitted.outputs)
        return dropped + self._drop(admitted.outputs)

    def _release_inputs(self, number: int, now: float, *, drops_ranges: bool) -> list[int]:
        """Let what a subtask read be evicted, and drop its copies; the device computes it no more."""
        admitted = self._admitted[number]
        if self._computing == number:
            self._computing, self._idle_since = None, now
        elif number in self._uploaded:
            self._uploaded.remove(number)
        self._n_uncomputed -= 1
        if not self._n_uncomputed and admitted.stage == "upload":
            self.seconds_waited += now - self._idle_since
        self._level.release([*admitted.ranges.values(), *admitted.copies.values()])
        return self._drop([*admitted.copies.values(), *(admitted.ranges.values() if drops_ranges else ())])

    def _next_use(self, place: int) -> tuple[int, int] | None:
        uses = self._uses.get(self._key_of.get(place))
        return (uses[0], 0) if uses else None

    def _note_used(self, key: Hashable) -> None:
        uses = self._uses.get(key)
        if uses:
            uses.popleft()
            if not uses:
                del self._uses[key]

    def _drop(self, places: Iterable[int]) -> list[int]:
        dropped = self._level.drop(places)
        for place in dropped:
            self._unname(place)
        return dropped

    def _name(self, key: Hashable, place: int) -> None:
        self._place_of[key], self._key_of[place] = place, key

    def _unname(self, place: int) -> None:
        key = self._key_of.pop(place, None)
        if key is not None:
            del self._place_of[key]
