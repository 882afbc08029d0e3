"""What executes the actions of the scheduler on a device: a lane.

``CpuLane`` hands tiles to the executor's workers, which read host slots and write chunk buffers. ``DeviceLane`` drives
a device with memory of its own by three threads, one for each engine, which work at the same time.

A lane reports the end of each part of a tile as a ``PartDone`` on any thread.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tartan.application import Application, compares_pairs
from tartan.base.reasons import line_of, reason_of, traceback_of
from tartan.base.trace import Tracer
from tartan.core.cache import Room
from tartan.devices.protocol import Device
from tartan.errors import CompareError, DeviceError, DeviceMemoryError, InternalError, RunFailedError
from tartan.runtime.chunks import ChunkBuffers
from tartan.runtime.compare import PairFailure, compare_block, merge_mirrored, write_block
from tartan.runtime.host import HostItems, Place
from tartan.runtime.items import ItemFailure, ItemForm, prepare_item, prepare_rows
from tartan.runtime.parts import Part, PartDone
from tartan.runtime.tasks import TileTask, compare_tile
from tartan.workers.executor import Cancelled, Completed, Died, Executor, Outcome, Raised, TimedOut

__all__ = ["CpuLane", "DeviceLane", "Lane"]

PARSED_AHEAD = 2
CLOSE_SECONDS = 0.5


class Lane(Protocol):
    """Executes compare calls on one device."""

    def compare(self, part: Part) -> None:
        """Start to compare a part; its end is reported once."""

    def close(self, *, kill: bool = False) -> None: ...


class CpuLane:
    """Compares on the workers of an executor, in host memory."""

    def __init__(
        self,
        index: int,
        executor: Executor,
        items: HostItems,
        buffers: ChunkBuffers,
        done: Callable[[PartDone], None],
        timeout_seconds: float | None,
        tracer: Tracer,
    ) -> None:
        self._index = index
        self._executor = executor
        self._items = items
        self._buffers = buffers
        self._done = done
        self._timeout = timeout_seconds
        self._tracer = tracer

    def compare(self, part: Part) -> None:
        chunk = part.chunk
        task = TileTask(
            self._items, part.rows, part.columns, part.row_part, part.column_part, chunk.outputs, chunk.mirrored,
            chunk.status_offset, self._buffers.side, part.origin, part.mask,
        )  # fmt: skip
        self._executor.submit(
            compare_tile,
            (task,),
            lambda outcome: self._done(self._report(part, outcome)),
            priority=part.priority,
            timeout_seconds=self._timeout,
        )

    def _report(self, part: Part, outcome: Outcome) -> PartDone:
        match outcome:
            case Completed(value):
                m, k = part.shape
                when = value.when
                self._tracer.record(f"compare {m}x{k}", "compare", f"cpu/{when.worker}", when.start_ns, when.end_ns)
                return PartDone(part, self._index, value.failures, when.seconds)
            case Raised(InternalError() | RunFailedError() as fatal):
                # Not the application's: no worker can be started, or a defect of ours.
                return PartDone(part, self._index, [], fatal=fatal)
            case Raised():
                text = line_of(outcome.name, outcome.message)
                kind = "memory" if isinstance(outcome.error, MemoryError | DeviceMemoryError) else "raised"
                error = PairFailure(0, 0, text, outcome.traceback)
                return PartDone(part, self._index, [], error=error, kind=kind)
            case Died():
                error = PairFailure(0, 0, f"compare ended its worker: {outcome.how}", outcome.traceback)
                return PartDone(part, self._index, [], error=error, kind="died")
            case TimedOut():
                return PartDone(part, self._index, [], error=_late(outcome.seconds), kind="late")
            case Cancelled():
                return PartDone(part, self._index, [], kind="cancelled")

    def close(self, *, kill: bool = False) -> None:
        """Nothing: the executor belongs to the node."""


def _late(seconds: float) -> PairFailure:
    return PairFailure(0, 0, f"compare did not return within {seconds:g} s (--tile-timeout)")


_ENGINES = ("upload", "compute", "download")
# One thread for each, and a second one for compute: the engine has work while the first still hears that it is done.
# With a third one, preprocessing would queue behind compares that are not urgent.
_SEATS = (*_ENGINES, "compute")
_FIRST, _LAST = -(2**30), 2**30
_Work = tuple[int, int, Callable[[], None]]


class DeviceLane:
    """Drives a device with memory of its own.

    Parameters
    ----------
    index : int
        Number of the device.
    device : Device
    app : Application
    form : ItemForm or None
        Form of ready items; None for items of unequal size, which are uploaded one by one.
    room : Room
        Its slots.
    host_block : callable
        (place, parsed) -> the host memory of a place, as ready or as parsed items.
    host_items : callable
        place -> list of items of unequal size.
    buffers : ChunkBuffers
    dtypes : mapping of str to dtype
    done : callable
        Gets a PartDone.
    post : callable
        Gets (event, device, span, failures) when "uploaded", "prepared" or "stored".
    fatal : callable
    timeout_seconds : float or None
        Longest time of one compare call; longer ones can only be reported, since nothing stops a thread.
    """

    def __init__(
        self,
        index: int,
        device: Device,
        app: Application,
        form: ItemForm | None,
        room: Room,
        *,
        host_block: Callable[[Place, bool], np.ndarray],
        host_items: Callable[[Place], list[Any]],
        keys: Callable[[Place], Sequence[str]],
        substitute: Any,
        buffers: ChunkBuffers,
        dtypes: Mapping[str, np.dtype[Any]],
        done: Callable[[PartDone], None],
        post: Callable[[str, int, Place, dict[int, ItemFailure]], None],
        fatal: Callable[[BaseException], None],
        tracer: Tracer,
        timeout_seconds: float | None = None,
    ) -> None:
        self.preprocess_seconds = 0.0
        self.copy_seconds = {"upload": 0.0, "download": 0.0}
        self.copied_bytes = {"upload": 0, "download": 0}
        self._index = index
        self._device = device
        self._app = app
        self._form = form
        self._host_block = host_block
        self._host_items = host_items
        self._keys = keys
        self._buffers = buffers
        self._dtypes = dict(dtypes)
        self._done = done
        self._post = post
        self._fatal = fatal
        self._tracer = tracer
        self._timeout = timeout_seconds
        self._slots = None if form is None else device.allocate((room.total, *form.shape), form.dtype)
        self._lists: dict[int, list[Any]] = {}
        self._where: dict[int, tuple[int, int]] = {}
        self._substitute = substitute
        # Parsed items take device memory beside the slots, so only a few may wait to be preprocessed.
        self._parsed_ahead = threading.Semaphore(PARSED_AHEAD)
        self._compute_ended = 0
        self._time_lock = threading.Lock()
        self._serial = itertools.count()
        self._queues: dict[str, queue.PriorityQueue[_Work]] = {name: queue.PriorityQueue() for name in _ENGINES}
        self._threads = [
            threading.Thread(target=self._serve, args=(name,), name=f"tartan-{device.name}-{name}", daemon=True)
            for name in _SEATS
        ]
        for thread in self._threads:
            thread.start()

    # -- actions (called by the node) ------------------------------------------------------------------------

    def upload(self, place: Place, address: int) -> None:
        """Copy a ready span from host to device."""
        self._put("upload", 1, lambda: self._upload(place, address))

    def prepare(self, place: Place, address: int) -> None:
        """Upload a parsed span, preprocess it, and store it back in its host place."""
        self._put("upload", 0, lambda: self._upload_parsed(place, address))

    def compare(self, part: Part) -> None:
        self._put("compute", part.priority, lambda: self._compare(part))

    def forget(self, span: int) -> None:
        """Drop what the device holds of a span (items of unequal size)."""
        self._lists.pop(span, None)

    def close(self, *, kill: bool = False) -> None:
        """Stop the engines: after all that waits, or with ``kill`` after what runs, unless that takes too long."""
        for name in _SEATS:
            self._put(name, _FIRST if kill else _LAST, _stop)
        self._parsed_ahead.release(PARSED_AHEAD)
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()) if kill else None)
        self._slots = None
        self._lists.clear()
        self._device.close()

    # -- engines ---------------------------------------------------------------------------------------------

    def _put(self, engine: str, priority: int, call: Callable[[], None]) -> None:
        self._queues[engine].put((priority, next(self._serial), call))

    def _serve(self, engine: str) -> None:
        work = self._queues[engine]
        while True:
            _, _, call = work.get()
            if call is _stop:
                return
            try:
                call()
            except BaseException as error:
                self._fatal(error)

    def _copy(self, engine: str, name: str, n_bytes: int, call: Callable[[], None]) -> None:
        start = self._tracer.now()
        call()
        end = self._tracer.now()
        self.copy_seconds[engine] += (end - start) / 1e9
        self.copied_bytes[engine] += n_bytes
        self._tracer.record(name, engine, f"{self._device.name}/{engine}", start, end)

    def _target(self, place: Place, address: int) -> Any:
        assert self._slots is not None
        self._where[place.span] = (address, place.length)
        return self._slots[address : address + place.length]

    def _upload(self, place: Place, address: int) -> None:
        if self._slots is None:
            self._where[place.span] = (address, place.length)
            self._lists[place.span] = [self._on_device(item) for item in self._host_items(place)]
        else:
            host, target = self._host_block(place, False), self._target(place, address)
            self._copy("upload", f"upload {place.span}", host.nbytes, lambda: self._device.upload(host, target))
        self._post("uploaded", self._index, place, {})

    def _on_device(self, item: Any) -> Any:
        if isinstance(item, np.ndarray):
            source = np.ascontiguousarray(item)
            target = self._device.allocate(source.shape, source.dtype)
            self._copy("upload", "upload", source.nbytes, lambda: self._device.upload(source, target))
            return target
        if isinstance(item, tuple | list):
            return type(item)(self._on_device(part) for part in item)
        return item

    def _upload_parsed(self, place: Place, address: int) -> None:
        host = self._host_block(place, True)
        self._parsed_ahead.acquire()
        parsed = self._device.allocate(host.shape, host.dtype)
        self._copy("upload", f"upload {place.span}", host.nbytes, lambda: self._device.upload(host, parsed))
        self._put("compute", 0, lambda: self._preprocess(place, address, parsed))

    def _preprocess(self, place: Place, address: int, parsed: Any) -> None:
        target, failures = self._target(place, address), {}
        xp, keys = self._device.xp, self._keys(place)

        def call() -> None:
            if callable(getattr(self._app, "preprocess_block", None)):
                target[...] = prepare_rows(self._app, parsed, xp)
                return
            for position in range(place.length):
                item = prepare_item(self._app, keys[position], parsed[position], xp, False)
                if not isinstance(item, ItemFailure) and tuple(item.shape) != tuple(target.shape[1:]):
                    item = ItemFailure("preprocess", f"{keys[position]}: preprocess returned shape {item.shape}")
                if isinstance(item, ItemFailure):
                    failures[position] = item
                    item = xp.asarray(self._substitute)
                target[position] = item

        start = self._tracer.now()
        try:
            self._device.compute("preprocess", place.length, call)
        finally:
            self._parsed_ahead.release()
        start, end = self._computed(start)
        with self._time_lock:
            self.preprocess_seconds += (end - start) / 1e9
        self._tracer.record(f"preprocess {place.span}", "preprocess", f"{self._device.name}/compute", start, end)
        self._put("download", 1, lambda: self._store(place, address))
        self._post("prepared", self._index, place, failures)

    def _store(self, place: Place, address: int) -> None:
        host, source = self._host_block(place, False), self._target(place, address)
        self._copy("download", f"store {place.span}", host.nbytes, lambda: self._device.download(source, host))
        self._post("stored", self._index, place, {})

    # -- compare ---------------------------------------------------------------------------------------------

    def _compare(self, part: Part) -> None:
        start = self._tracer.now()
        try:
            with self._watched(part):
                scores, mirrored = self._device.compute("compare", int(np.prod(part.shape)), lambda: self._scores(part))
        except BaseException as error:  # also what sys.exit raises
            self._report(part, error)
            return
        start, end = self._computed(start)
        self._tracer.record(f"compare {part.shape}", "compare", f"{self._device.name}/compute", start, end)
        seconds = (end - start) / 1e9
        self._put("download", 0, lambda: self._fetch(part, scores, mirrored, seconds))

    @contextlib.contextmanager
    def _watched(self, part: Part) -> Iterator[None]:
        """Report a part that takes too long, while it still does."""
        if self._timeout is None:
            yield
            return
        done = PartDone(part, self._index, [], error=_late(self._timeout), kind="late")
        timer = threading.Timer(self._timeout, self._done, (done,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _report(self, part: Part, error: BaseException) -> None:
        if isinstance(error, DeviceError):
            # The device is lost: every later pair would fail, and be recorded as failed.
            self._done(PartDone(part, self._index, [], fatal=error))
            return
        kind = "memory" if isinstance(error, DeviceMemoryError) else "raised"
        failure = PairFailure(0, 0, reason_of(error), traceback_of(error))
        self._done(PartDone(part, self._index, [], error=failure, kind=kind))

    def _computed(self, start: int) -> tuple[int, int]:
        """Return when the engine worked on a call that came at ``start`` and just ended: not before the last end."""
        with self._time_lock:
            end = self._tracer.now()
            start, self._compute_ended = max(start, self._compute_ended), end
        return start, end

    def _scores(self, part: Part) -> tuple[dict[str, Any], dict[str, Any] | None]:
        left = self._operand(part.rows)[part.row_part]
        right = self._operand(part.columns)[part.column_part]
        scores = self._call(left, right)
        return scores, self._call(right, left) if part.chunk.mirrored is not None else None

    def _call(self, left: Any, right: Any) -> dict[str, Any]:
        xp = self._device.xp
        if not compares_pairs(self._app):
            found = compare_block(self._app, left, right, xp, self._dtypes, None)
            return {name: _cast(xp, xp.asarray(scores), self._dtypes[name]) for name, scores in found.items()}
        shape = (len(left), len(right))
        pairs = [self._app.compare_pair(a, b) for a in left for b in right]  # type: ignore[attr-defined]
        scores = {}
        for name, dtype in self._dtypes.items():
            values = [xp.asarray(pair[name] if isinstance(pair, Mapping) else pair) for pair in pairs]
            if any(value.shape != () for value in values):
                raise CompareError(f"compare_pair returned shape {values[0].shape} for output {name!r}, no number")
            scores[name] = _cast(xp, xp.reshape(xp.stack(values), shape), dtype)
        return scores

    def _operand(self, places: Sequence[Place]) -> Any:
        if self._slots is None:
            return [item for place in places for item in self._lists[place.span]]
        runs: list[list[int]] = []
        for place in places:
            address, length = self._where[place.span]
            if runs and runs[-1][1] == address:
                runs[-1][1] += length
            else:
                runs.append([address, address + length])
        blocks = [self._slots[a:b] for a, b in runs]
        return blocks[0] if len(blocks) == 1 else self._device.xp.concat(blocks)

    def _fetch(self, part: Part, scores: dict[str, Any], mirrored: dict[str, Any] | None, seconds: float) -> None:
        try:
            failures = self._write(part, scores, mirrored)
        except BaseException as error:  # the application's postprocess may raise too
            self._report(part, error)
            return
        self._done(PartDone(part, self._index, failures, seconds))

    def _write(self, part: Part, scores: dict[str, Any], mirrored: dict[str, Any] | None) -> list[PairFailure]:
        """Bring the scores of a part into the buffers of its chunk."""
        (r, c), (m, k) = part.origin, part.shape
        window = (slice(r, r + m), slice(c, c + k))
        codes = part.mask.codes(part.shape)
        status = self._buffers.status(part.chunk)[window]
        out = {name: block[window] for name, block in self._buffers.views(part.chunk.outputs).items()}
        failures = write_block(self._app, self._to_host(scores), codes, [], out, status)
        if mirrored is not None and part.chunk.mirrored is not None:
            views = self._buffers.views(part.chunk.mirrored)
            back = {name: block[window[::-1]] for name, block in views.items()}
            turned = codes if isinstance(codes, int) else codes.T
            more = write_block(self._app, self._to_host(mirrored), turned, [], back, status.T, mirrored=True)
            failures = merge_mirrored(failures, more, status)
        return failures

    def _to_host(self, scores: dict[str, Any]) -> dict[str, np.ndarray]:
        blocks = {}
        for name, source in scores.items():
            host = np.empty(tuple(source.shape), source.dtype)
            self._copy("download", "download", host.nbytes, lambda s=source, h=host: self._device.download(s, h))  # type: ignore[misc]
            blocks[name] = host
        return blocks


def _cast(xp: Any, scores: Any, dtype: np.dtype[Any]) -> Any:
    """Bring scores to the dtype of their output, unless that may lose something: the host looks at those."""
    lossless = np.can_cast(scores.dtype, dtype) or (dtype.kind == "f" and scores.dtype.kind in "biuf")
    return xp.astype(scores, dtype, copy=False) if lossless else scores


def _stop() -> None:
    """Tell an engine to end."""
