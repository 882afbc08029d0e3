"""The device of a rank: carries out what ``core/blocks/device_queue.py`` says, with a thread for each engine."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from tartan.base.format import format_bytes
from tartan.blocks.calls import FILLS, call_function, load_function, require_filled
from tartan.blocks.node_events import GatheredRange, RangeNames, SubtaskCall
from tartan.blocks.work import NodeCounts
from tartan.core.blocks.device_queue import (
    ComputeSubtask,
    DeviceNeeds,
    DeviceQueue,
    DownloadArrays,
    DropArrays,
    Step,
    UploadArrays,
)
from tartan.core.blocks.pieces import PieceKey
from tartan.devices import Device
from tartan.errors import DeviceError, DeviceMemoryError, ResourceError, SubtaskError
from tartan.workers.arena import Arena
from tartan.workers.executor import Completed, Outcome, Raised, TimedOut, WorkerContext
from tartan.workers.threads import ThreadExecutor


def needs_of(names: Sequence[RangeNames], sizes: Sequence[int], *, takes_copies: bool) -> DeviceNeeds:
    """Return what a call needs on a device, given the names and the bytes of its arrays."""
    ranges = {name.before: size for name, size in zip(names, sizes, strict=True) if name.before is not None}
    only_read = frozenset(name.before for name in names if name.before is not None and name.after is None)
    outputs = tuple(size for name, size in zip(names, sizes, strict=True) if name.after is not None)
    return DeviceNeeds(ranges, only_read, outputs, takes_copies)


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
    answer : callable
        Receives each call that has ended, with its outcome; called in any thread. The value of the outcome is how many
        seconds the function took.
    """

    n_workers = 1

    def __init__(self, device: Device, n_bytes: int, arena: Arena) -> None:
        self.device, self.n_bytes, self._arena = device, n_bytes, arena
        self.answer: Callable[[SubtaskCall, Outcome], None] = _ignore
        self._queue = DeviceQueue(n_bytes)
        self._arrays: dict[int, Any] = {}
        self._calls: dict[int, SubtaskCall] = {}
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

    def submit(self, call: SubtaskCall) -> None:
        """Queue a call whose ranges are in host memory, where they stay until it has ended."""
        call.names = RangeNames.of(call.order)
        with self._lock:
            call.number = next(self._numbers)
            self._calls[call.number] = call
            self._carry_out(self._queue.submit(call.number, self._needs(call), time.perf_counter()))

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

    def _needs(self, call: SubtaskCall) -> DeviceNeeds:
        places = [one.after or one.before for one in call.arguments]
        sizes = [0 if place is None else place.n_bytes for place in places]
        return needs_of(call.names, sizes, takes_copies=call.function.debug)

    def _carry_out(self, steps: Sequence[Step]) -> None:
        for step in () if self._closing else steps:
            match step:
                case UploadArrays(number=number, dropped=dropped):
                    self._drop(dropped)
                    self._calls[number].upload = step
                    self._uploads.submit(self._upload, self._calls[number])
                case ComputeSubtask(number):
                    self._start(self._calls[number])
                case DownloadArrays(number, dropped):
                    self._drop(dropped)
                    self._downloads.submit(self._download, self._calls[number])
                case DropArrays(dropped):
                    self._drop(dropped)

    def _drop(self, places: Iterable[int]) -> None:
        for place in places:
            self._arrays.pop(place, None)

    def _start(self, call: SubtaskCall) -> None:
        if self._stuck and self._computes.n_stuck:
            text = f"{call.where} cannot run: {self._stuck} has {self.device.name} still, after its time limit"
            self._fail(call, DeviceError(f"{text}; open a new session"))
            return
        self._computes.submit(
            _run, (self, call), partial(self._compute, call), timeout_seconds=call.function.timeout_seconds
        )

    # -- the engines' threads ----------------------------------------------------------------------------------------

    def _upload(self, call: SubtaskCall) -> None:
        try:
            try:
                self._make_arrays(call)
            except DeviceMemoryError:  # perhaps a function that computes now has taken what is lacking
                with self._lock:
                    self._ended.wait_for(lambda: self._closing or not self._active)
                    self._free_idle()
                self._make_arrays(call)
        except Exception as error:
            self._fail(call, error)
            return
        with self._lock:
            self._active.add(call.number)
            self._carry_out(self._queue.on_uploaded(call.number, time.perf_counter()))

    def _make_arrays(self, call: SubtaskCall) -> None:
        """Make the arrays that are missing, and fill those of ranges."""
        for argument, name in zip(call.arguments, call.names, strict=True):
            if argument.before is None or name.before is None:
                continue
            host = argument.before.view(self._arena)
            place = call.upload.ranges[name.before]
            if place not in self._arrays:
                self._arrays[place] = self._upload_array(host)
            copy = call.upload.copies.get(name.before)
            if copy is not None and copy not in self._arrays:
                self._arrays[copy] = self.device.allocate(host.shape, host.dtype)
        outputs = [one.after for one in call.arguments if one.after is not None]
        for place, output in zip(call.upload.outputs, outputs, strict=True):
            if place not in self._arrays:
                self._arrays[place] = self.device.allocate(output.shape, np.dtype(output.dtype))

    def _upload_array(self, host: np.ndarray) -> Any:
        target = self.device.allocate(host.shape, host.dtype)
        self.device.upload(np.ascontiguousarray(host), target)
        self._count(bytes_uploaded=host.nbytes)
        return target

    def compute(self, call: SubtaskCall) -> None:
        """Call the function of a call; in the thread that computes."""
        function = load_function(self._context, call.function.gpu)
        if call.is_repeated:  # results of others may still be on their way, and would stay when they are there
            with self._lock:
                self._ended.wait_for(lambda: self._closing or self._active <= {call.number})
                self._free_idle()
        begin = time.perf_counter()
        self.device.compute("compute", 1, partial(self._call_function, function, call))
        call.seconds = time.perf_counter() - begin

    def _call_function(self, function: Any, call: SubtaskCall) -> None:
        """Call the function on fresh arrays; a device that ran out of memory comes here twice."""
        call.n_calls += 1
        if call.n_calls > 1 and call.lends_ranges:
            raise DeviceMemoryError(f"{self.device.name}: GPU memory ran out")
        if not call.function.debug:
            self._call(function, call, FILLS[0])
            return
        found: dict[int, list[Any]] = {}
        for fill in reversed(FILLS):
            self._call(function, call, fill)
            self._require_unchanged(call)
            found[fill] = [self._bytes_of(output).copy() for output in self._write(call)]
        require_filled(call.function.name, found[FILLS[0]], found[FILLS[1]], self.device.xp)

    def _call(self, function: Any, call: SubtaskCall, fill: int) -> None:
        arrays = [array[...] for array in self._fill_arrays(call, fill)]
        called, writes = call.function, [name.after is not None for name in call.names]
        call_function(
            function, called.name, called.gpu_keywords, call.order.subtask.index, arrays, writes, self.device.xp
        )

    def _fill_arrays(self, call: SubtaskCall, fill: int) -> list[Any]:
        """Return the arrays of a call with the values that it begins with."""
        outputs = iter(call.upload.outputs)
        arrays: list[Any] = []
        for name in call.names:
            ranged = None if name.before is None else self._arrays[call.upload.ranges[name.before]]
            if name.after is not None:
                array = self._arrays[next(outputs)]
                if ranged is None:
                    self._bytes_of(array)[...] = fill
                else:
                    array[...] = ranged
            else:
                array = self._lend(call, name.before, ranged)
            arrays.append(array)
        return arrays

    def _lend(self, call: SubtaskCall, key: Hashable, ranged: Any) -> Any:
        """Return the array that a function gets of what it only reads."""
        if key not in call.upload.copies:
            return ranged
        array = self._arrays[call.upload.copies[key]]
        array[...] = ranged
        return array

    def _write(self, call: SubtaskCall) -> list[Any]:
        after = [name for name in call.names if name.after is not None]
        return [
            self._arrays[place] for place, name in zip(call.upload.outputs, after, strict=True) if name.before is None
        ]

    def _require_unchanged(self, call: SubtaskCall) -> None:
        """Refuse a change of what is only read."""
        xp = self.device.xp
        for number, name in enumerate(call.names):
            place = None if name.before is None or name.after is not None else call.upload.copies.get(name.before)
            if place is not None and name.before is not None:
                ranged = self._arrays[call.upload.ranges[name.before]]
                if bool(xp.any(self._bytes_of(self._arrays[place]) != self._bytes_of(ranged))):
                    raise SubtaskError(
                        f"{call.function.name} changed array {number}, which it only reads; subscribe to the range "
                        "with update, or copy it"
                    )

    def _bytes_of(self, array: Any) -> Any:
        return array.reshape(-1).view(self.device.xp.uint8)

    def _compute(self, call: SubtaskCall, outcome: Outcome) -> None:
        if isinstance(outcome, Raised) and isinstance(outcome.error, DeviceMemoryError) and not call.is_repeated:
            with self._lock:
                call.is_repeated, call.n_calls = True, 0
                self._active.discard(call.number)
                self._ended.notify_all()
                self._carry_out(self._queue.retry(call.number, time.perf_counter()))
            return
        if not isinstance(outcome, Completed):
            if isinstance(outcome, TimedOut):
                self._stuck = call.where
            self._end(call, outcome)
            return
        self._count(device_subtasks=1)
        with self._lock:
            self._carry_out(self._queue.on_computed(call.number, time.perf_counter()))

    def _download(self, call: SubtaskCall) -> None:
        try:
            after = [one.after for one in call.arguments if one.after is not None]
            for place, output in zip(call.upload.outputs, after, strict=True):
                host = output.view(self._arena)
                self.device.download(self._arrays[place], host)
                self._count(bytes_downloaded=host.nbytes)
        except Exception as error:
            self._fail(call, error)
            return
        names = [name.after for name in call.names if name.after is not None]
        with self._lock:
            self._leave(call)
            self._carry_out(self._queue.on_downloaded(call.number, names, time.perf_counter()))
        self.answer(call, Completed(call.seconds))

    def _fail(self, call: SubtaskCall, error: Exception) -> None:
        self._end(call, Raised(error, type(error).__name__, str(error), ""))

    def _end(self, call: SubtaskCall, outcome: Outcome) -> None:
        with self._lock:
            self._leave(call)
            self._carry_out(self._queue.on_failed(call.number, time.perf_counter()))
        self.answer(call, outcome)

    def _leave(self, call: SubtaskCall) -> None:
        del self._calls[call.number]
        self._active.discard(call.number)
        self._ended.notify_all()

    def _free_idle(self) -> None:
        """Drop all ranges that no call has."""
        self.forget(lambda key: True)

    def _count(self, **more: int) -> None:
        with self._lock:
            self._counts += NodeCounts(**more)


def _run(context: WorkerContext, lane: SubtaskLane, call: SubtaskCall) -> None:
    """Compute, as executors call it."""
    lane.compute(call)


def _ignore(call: SubtaskCall, outcome: Outcome) -> None:
    """Take no note of a call."""
