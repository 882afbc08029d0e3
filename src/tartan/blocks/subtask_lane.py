"""The device of a rank: carries out what ``core/device_queue.py`` says, with a thread for each engine."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tartan.base.format import format_bytes
from tartan.blocks.calls import SubtaskCall, call_function, loaded, require_filled
from tartan.blocks.node_events import GatheredRange
from tartan.blocks.work import NodeCounts, WorkOrder
from tartan.core.device_queue import (
    ComputeSubtask,
    DeviceNeeds,
    DeviceQueue,
    DownloadArrays,
    DropArrays,
    Step,
    UploadArrays,
)
from tartan.core.pieces import PieceKey
from tartan.devices import Device
from tartan.errors import DeviceError, DeviceMemoryError, ResourceError, SubtaskError
from tartan.workers.arena import Arena
from tartan.workers.executor import Completed, Outcome, Raised, TimedOut, WorkerContext
from tartan.workers.threads import ThreadExecutor

_FILLS = (0, 255)


class RangeNames(NamedTuple):
    """What an array of a call is called on the device: the range that it has before, and what is written of it."""

    before: Hashable | None
    after: Hashable | None


def names_of(order: WorkOrder) -> list[RangeNames]:
    """Return what the arrays of an order are called on a device: what one subtask wrote, others read later."""
    pieces = iter(order.outputs())
    names = []
    for argument in order.arguments:
        before = after = None
        if argument.access != "write":
            before = GatheredRange.of(argument.range, order.origins[argument.range])
        if argument.access != "read":
            piece, wanted = next(pieces)
            after = GatheredRange(wanted, ((wanted.box, piece),))
        names.append(RangeNames(before, after))
    return names


def needs_of(names: Sequence[RangeNames], sizes: Sequence[int], *, takes_copies: bool) -> DeviceNeeds:
    """Return what a call needs on a device, given the names and the bytes of its arrays."""
    ranges = {name.before: size for name, size in zip(names, sizes, strict=True) if name.before is not None}
    only_read = frozenset(name.before for name in names if name.before is not None and name.after is None)
    outputs = tuple(size for name, size in zip(names, sizes, strict=True) if name.after is not None)
    return DeviceNeeds(ranges, only_read, outputs, takes_copies)


@dataclass(eq=False)
class _LaneJob:
    """A call on its way through the engines."""

    number: int
    call: SubtaskCall
    names: Sequence[RangeNames]
    done: Callable[[Outcome], None]
    upload: UploadArrays = field(default_factory=lambda: UploadArrays(0, [], {}, {}, []))
    n_calls: int = 0
    is_repeated: bool = False
    seconds: float = 0.0

    @property
    def lends_ranges(self) -> bool:
        """Whether the function gets ranges that it must not change, and not copies of them."""
        only_read = (name for name in self.names if name.before is not None and name.after is None)
        return any(name.before not in self.upload.copies for name in only_read)

    @property
    def where(self) -> str:
        """Return the words that name the subtask."""
        return f"subtask {self.call.index} of {self.call.function.name}"


class SubtaskLane:
    """Runs calls of functions on a device; ranges stay in its memory for later calls.

    Parameters
    ----------
    device : Device
        Closed with the lane.
    n_bytes : int
        Room for arrays in its memory.
    arena : Arena
        Host memory in which ranges lie, and into which results go.

    Attributes
    ----------
    n_workers : int
        Calls that compute at a time.
    n_bytes : int
    """

    n_workers = 1

    def __init__(self, device: Device, n_bytes: int, arena: Arena) -> None:
        self.device, self.n_bytes, self._arena = device, n_bytes, arena
        self._queue = DeviceQueue(n_bytes)
        self._arrays: dict[int, Any] = {}
        self._jobs: dict[int, _LaneJob] = {}
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._active: set[int] = set()
        self._counts = NodeCounts()
        self._counted = (0, 0, 0.0)
        self._stuck = ""
        self._closing = False
        self._context = WorkerContext(None)
        self._uploads = ThreadPoolExecutor(1, f"tartan-{device.name}-upload")
        self._computes = ThreadExecutor(None, 1, bounds_blas=True)  # of the simulator, whose functions run on the CPU
        self._downloads = ThreadPoolExecutor(1, f"tartan-{device.name}-download")

    # -- what the node asks ------------------------------------------------------------------------------------------

    def expect(self, keys: Iterable[Hashable]) -> None:
        """Take note that one more call will come, and which ranges it reads."""
        with self._lock:
            self._queue.expect(keys)

    def expect_nothing(self) -> None:
        """Forget which calls were to come."""
        with self._lock:
            self._queue.expect_nothing()

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop ranges whose key fulfils a condition and that no call has."""
        with self._lock:
            self._drop(self._queue.forget(wanted))

    def forget_pieces(self, pieces: Collection[PieceKey]) -> None:
        """Drop ranges that were made of pieces which no version needs any more."""
        old = frozenset(pieces)
        self.forget(lambda key: isinstance(key, GatheredRange) and any(piece in old for _, piece in key.parts))

    def require_room(self, index: tuple[int, ...], needs: DeviceNeeds) -> None:
        """Refuse a subtask that can never run here.

        Raises
        ------
        ResourceError
            If it needs more than the device's memory; the message names the least size.
        """
        if needs.least_bytes > self.n_bytes:
            least = format_bytes(needs.least_bytes)
            raise ResourceError(
                f"subtask {index} needs {least} at once on {self.device.name}, whose device cache has "
                f"{format_bytes(self.n_bytes)}; choose smaller blocks, or --device-cache of at least {least}",
                code="device-memory",
                context={"needed_bytes": needs.least_bytes},
            )

    def submit(self, call: SubtaskCall, names: Sequence[RangeNames], done: Callable[[Outcome], None]) -> None:
        """Queue a call whose ranges are in host memory, where they stay until ``done`` receives the outcome.

        The value of the outcome is how many seconds the function took.
        """
        with self._lock:
            job = _LaneJob(next(self._numbers), call, names, done)
            self._jobs[job.number] = job
            self._carry_out(self._queue.submit(job.number, self._needs(job), time.perf_counter()))

    def take_counts(self) -> NodeCounts:
        """Return what was moved and waited for since the last call."""
        with self._lock:
            counts, self._counts = self._counts, NodeCounts()
            before = self._counted
            now = self._counted = (self._queue.n_ranges, self._queue.n_hits, self._queue.seconds_waited)
        return counts + NodeCounts(
            device_ranges=now[0] - before[0], device_hits=now[1] - before[1], seconds_device_waited=now[2] - before[2]
        )

    def close(self) -> None:
        """End the threads and close the device."""
        with self._lock:
            self._closing = True
            self._ended.notify_all()
        self._uploads.shutdown(cancel_futures=True)
        self._computes.close(kill=True)
        self._downloads.shutdown(cancel_futures=True)
        self._arrays.clear()
        if not self._computes.n_stuck:  # else it would be waited for, perhaps forever
            self.device.close()

    # -- steps, under the lock ---------------------------------------------------------------------------------------

    def _needs(self, job: _LaneJob) -> DeviceNeeds:
        places = [one.after or one.before for one in job.call.arguments]
        sizes = [0 if place is None else place.n_bytes for place in places]
        return needs_of(job.names, sizes, takes_copies=job.call.function.debug)

    def _carry_out(self, steps: Sequence[Step]) -> None:
        for step in () if self._closing else steps:
            match step:
                case UploadArrays(number=number, dropped=dropped):
                    self._drop(dropped)
                    self._jobs[number].upload = step
                    self._uploads.submit(self._upload, self._jobs[number])
                case ComputeSubtask(number):
                    self._start(self._jobs[number])
                case DownloadArrays(number, dropped):
                    self._drop(dropped)
                    self._downloads.submit(self._download, self._jobs[number])
                case DropArrays(dropped):
                    self._drop(dropped)

    def _drop(self, places: Iterable[int]) -> None:
        for place in places:
            self._arrays.pop(place, None)

    def _start(self, job: _LaneJob) -> None:
        if self._stuck and self._computes.n_stuck:
            text = f"{job.where} cannot run: {self._stuck} has {self.device.name} still, after its time limit"
            self._fail(job, DeviceError(f"{text}; open a new session"))
            return
        self._computes.submit(
            _run, (self, job), partial(self._computed, job), timeout_seconds=job.call.function.timeout_seconds
        )

    # -- the engines' threads ----------------------------------------------------------------------------------------

    def _upload(self, job: _LaneJob) -> None:
        try:
            try:
                self._make_arrays(job)
            except DeviceMemoryError:  # perhaps a function that computes now has taken what is lacking
                with self._lock:
                    self._ended.wait_for(lambda: self._closing or not self._active)
                    self._free_idle()
                self._make_arrays(job)
        except Exception as error:
            self._fail(job, error)
            return
        with self._lock:
            self._active.add(job.number)
            self._carry_out(self._queue.uploaded(job.number, time.perf_counter()))

    def _make_arrays(self, job: _LaneJob) -> None:
        """Make the arrays that are missing, and fill those of ranges."""
        for argument, name in zip(job.call.arguments, job.names, strict=True):
            if argument.before is None or name.before is None:
                continue
            host = argument.before.view(self._arena)
            place = job.upload.ranges[name.before]
            if place not in self._arrays:
                self._arrays[place] = self._uploaded(host)
            copy = job.upload.copies.get(name.before)
            if copy is not None and copy not in self._arrays:
                self._arrays[copy] = self.device.allocate(host.shape, host.dtype)
        outputs = [one.after for one in job.call.arguments if one.after is not None]
        for place, output in zip(job.upload.outputs, outputs, strict=True):
            if place not in self._arrays:
                self._arrays[place] = self.device.allocate(output.shape, np.dtype(output.dtype))

    def _uploaded(self, host: np.ndarray) -> Any:
        target = self.device.allocate(host.shape, host.dtype)
        self.device.upload(np.ascontiguousarray(host), target)
        self._count(bytes_uploaded=host.nbytes)
        return target

    def compute(self, job: _LaneJob) -> None:
        """Call the function of a job; in the thread that computes."""
        function = loaded(self._context, job.call.function.gpu)
        if job.is_repeated:  # results of others may still be on their way, and would stay when they are there
            with self._lock:
                self._ended.wait_for(lambda: self._closing or self._active <= {job.number})
                self._free_idle()
        begin = time.perf_counter()
        self.device.compute("compute", 1, partial(self._called, function, job))
        job.seconds = time.perf_counter() - begin

    def _called(self, function: Any, job: _LaneJob) -> None:
        """Call the function on fresh arrays; a device that ran out of memory comes here twice."""
        job.n_calls += 1
        if job.n_calls > 1 and job.lends_ranges:
            raise DeviceMemoryError(f"{self.device.name}: GPU memory ran out")
        if not job.call.function.debug:
            self._call(function, job, _FILLS[0])
            return
        found: dict[int, list[Any]] = {}
        for fill in reversed(_FILLS):
            self._call(function, job, fill)
            self._require_unchanged(job)
            found[fill] = [self._bytes_of(output).copy() for output in self._written(job)]
        require_filled(job.call.function.name, found[_FILLS[0]], found[_FILLS[1]], self.device.xp)

    def _call(self, function: Any, job: _LaneJob, fill: int) -> None:
        arrays = [array[...] for array in self._filled(job, fill)]
        called, writes = job.call.function, [name.after is not None for name in job.names]
        call_function(function, called.name, called.gpu_keywords, job.call.index, arrays, writes, self.device.xp)

    def _filled(self, job: _LaneJob, fill: int) -> list[Any]:
        """Return the arrays of a call with the values that it begins with."""
        outputs = iter(job.upload.outputs)
        arrays: list[Any] = []
        for name in job.names:
            ranged = None if name.before is None else self._arrays[job.upload.ranges[name.before]]
            if name.after is not None:
                array = self._arrays[next(outputs)]
                if ranged is None:
                    self._bytes_of(array)[...] = fill
                else:
                    array[...] = ranged
            else:
                array = self._lent(job, name.before, ranged)
            arrays.append(array)
        return arrays

    def _lent(self, job: _LaneJob, key: Hashable, ranged: Any) -> Any:
        """Return the array that a function gets of what it only reads."""
        if key not in job.upload.copies:
            return ranged
        array = self._arrays[job.upload.copies[key]]
        array[...] = ranged
        return array

    def _written(self, job: _LaneJob) -> list[Any]:
        after = [name for name in job.names if name.after is not None]
        return [
            self._arrays[place] for place, name in zip(job.upload.outputs, after, strict=True) if name.before is None
        ]

    def _require_unchanged(self, job: _LaneJob) -> None:
        """Refuse a change of what is only read."""
        xp = self.device.xp
        for number, name in enumerate(job.names):
            place = None if name.before is None or name.after is not None else job.upload.copies.get(name.before)
            if place is not None and name.before is not None:
                ranged = self._arrays[job.upload.ranges[name.before]]
                if bool(xp.any(self._bytes_of(self._arrays[place]) != self._bytes_of(ranged))):
                    raise SubtaskError(
                        f"{job.call.function.name} changed array {number}, which it only reads; subscribe to the range "
                        "with update, or copy it"
                    )

    def _bytes_of(self, array: Any) -> Any:
        return array.reshape(-1).view(self.device.xp.uint8)

    def _computed(self, job: _LaneJob, outcome: Outcome) -> None:
        if isinstance(outcome, Raised) and isinstance(outcome.error, DeviceMemoryError) and not job.is_repeated:
            with self._lock:
                job.is_repeated, job.n_calls = True, 0
                self._active.discard(job.number)
                self._ended.notify_all()
                self._carry_out(self._queue.retry(job.number, time.perf_counter()))
            return
        if not isinstance(outcome, Completed):
            if isinstance(outcome, TimedOut):
                self._stuck = job.where
            self._end(job, outcome)
            return
        self._count(device_subtasks=1)
        with self._lock:
            self._carry_out(self._queue.computed(job.number, time.perf_counter()))

    def _download(self, job: _LaneJob) -> None:
        try:
            after = [one.after for one in job.call.arguments if one.after is not None]
            for place, output in zip(job.upload.outputs, after, strict=True):
                host = output.view(self._arena)
                self.device.download(self._arrays[place], host)
                self._count(bytes_downloaded=host.nbytes)
        except Exception as error:
            self._fail(job, error)
            return
        names = [name.after for name in job.names if name.after is not None]
        with self._lock:
            self._leave(job)
            self._carry_out(self._queue.downloaded(job.number, names, time.perf_counter()))
        job.done(Completed(job.seconds))

    def _fail(self, job: _LaneJob, error: Exception) -> None:
        self._end(job, Raised(error, type(error).__name__, str(error), ""))

    def _end(self, job: _LaneJob, outcome: Outcome) -> None:
        with self._lock:
            self._leave(job)
            self._carry_out(self._queue.failed(job.number, time.perf_counter()))
        job.done(outcome)

    def _leave(self, job: _LaneJob) -> None:
        del self._jobs[job.number]
        self._active.discard(job.number)
        self._ended.notify_all()

    def _free_idle(self) -> None:
        """Drop all ranges that no call has."""
        self.forget(lambda key: True)

    def _count(self, **more: int) -> None:
        with self._lock:
            self._counts += NodeCounts(**more)


def _run(context: WorkerContext, lane: SubtaskLane, job: _LaneJob) -> None:
    """Compute, as executors call it."""
    lane.compute(job)
