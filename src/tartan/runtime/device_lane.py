"""Drives a device with memory of its own by threads, two for each of its engines, which work at the same time.

Way of a parsed span: upload -> preprocess (compute) -> store in its host place (download). Of a ready one: upload. Of a
part: compare (compute) -> fetch its scores (download). Every end is posted to the loop. What is kept for other ranks is
prepared like any parsed span, in slots of its own, and stays in host memory alone.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product, starmap
from typing import Any

import numpy as np

from tartan.application import Application, compares_singly, prepares_blocks, single_hook
from tartan.base.format import reason_of, traceback_of
from tartan.core.pairs.cache import Room
from tartan.core.pairs.device_time import COMPARE, COPIES, PREPROCESS
from tartan.devices.protocol import Device
from tartan.errors import CompareError, DeviceError, DeviceMemoryError
from tartan.runtime.chunk_desk import ChunkBuffers
from tartan.runtime.compare import (
    CellFailure,
    Scores,
    compare_block,
    count_cells,
    merge_mirrored,
    write_block,
    write_reversed,
)
from tartan.runtime.cpu_lane import late
from tartan.runtime.events import (
    Event,
    KeptPrepared,
    NodeBroken,
    PartCompared,
    PartFailed,
    SpanPrepared,
    SpanStored,
    SpanUploaded,
)
from tartan.runtime.host import Place, UniformItems
from tartan.runtime.items import ItemFailure, prepare_item, prepare_rows
from tartan.runtime.parts import Part
from tartan.runtime.wiring import Wiring
from tartan.runtime.writable import comparison

# By construction: one item is preprocessed, the next is there. More only take device memory beside the slots; `tartan
# bench simulated gaps` shows whether the engine waits.
PARSED_AHEAD = 2
# By judgement: kernels under way end in less as a rule; one that hangs must not hold up the end. No benchmark.
CLOSE_SECONDS = 0.5


class DeviceLane:
    """Copies spans to and from a device, and preprocesses and compares there.

    Parameters
    ----------
    index : int
        Number of the device.
    device : Device
    room : Room
        Its slots.
    wiring : Wiring
    dtypes : mapping of str to dtype
        Of the outputs.
    buffers : ChunkBuffers or None
        Where scores go; None where the chooser of the wiring looks at them.
    substitute : object
        A good item that takes the place of those that fail here; a parsed one where items have a compact form.
    guest_slots : int
        Slots beside those of ``room``, for the longest span that is prepared for other ranks.

    Notes
    -----
    A compare call that exceeds the limit can only be reported, since nothing stops a thread.
    """

    shares_host_memory = False
    can_stop = False
    n_workers = 1

    def __init__(
        self,
        index: int,
        device: Device,
        room: Room,
        wiring: Wiring,
        dtypes: Mapping[str, np.dtype[Any]],
        buffers: ChunkBuffers | None,
        substitute: Any,
        guest_slots: int = 0,
    ) -> None:
        self.preprocess_seconds = 0.0
        self.n_preprocessed = 0
        self.copy_seconds = {"upload": 0.0, "download": 0.0}
        self.copied_bytes = {"upload": 0, "download": 0}
        self._index = index
        self._device = device
        self._wiring = wiring
        self._app = wiring.app
        self._tracer = wiring.tracer
        self._time = wiring.device_time
        self._buffers = buffers
        self._dtypes = dict(dtypes)
        self._substitute = substitute
        self._compact = wiring.item_plan.compact
        items = wiring.item_plan.items
        form = items.form if isinstance(items, UniformItems) else None
        self._writes = self._compact or (
            self._app.compacts_all
            and form is not None
            and wiring.item_plan.parsed is not None
            and self._app.compact_form(form.dtype, form.shape, device.xp) is not None
        )
        self._guest_address = room.total
        n_slots = room.total + guest_slots
        self._slots = None if form is None else device.allocate((n_slots, *form.shape), form.dtype)
        self._guest_free = threading.Semaphore(1)
        self._lists: dict[int, list[Any]] = {}
        self._where: dict[int, tuple[int, int]] = {}
        # Parsed items take device memory beside the slots, so only a few may wait to be preprocessed.
        self._parsed_ahead = threading.Semaphore(PARSED_AHEAD)
        self._ended = {"upload": 0, "compute": 0, "download": 0}
        self._time_lock = threading.Lock()
        self._staging = Staging(device)
        self._writing = threading.Lock()
        # Pinned once, for copies by the engine itself; where that is refused, copies are slower.
        for arena in wiring.arenas.values():
            device.pin(arena.view(0, (arena.n_bytes,), np.uint8))
        self._warm_up()
        name = f"tartan-{device.name}"
        self._upload_engine = EngineThreads(f"{name}-upload", wiring.post)
        self._compute_engine = EngineThreads(f"{name}-compute", wiring.post)
        self._download_engine = EngineThreads(f"{name}-download", wiring.post)

    @property
    def name(self) -> str:
        """Name of the device."""
        return self._device.name

    def _warm_up(self) -> None:
        """Let the application compile its kernels, so that no tile waits for that."""
        if type(self._app).warm_up is Application.warm_up and not self._compact:
            return
        try:
            self._device.compute("warm-up", 0, self._use_once)
        except (DeviceError, DeviceMemoryError):
            raise
        except Exception as error:
            raise DeviceError(
                f"{self._device.name}: {type(self._app).__name__} cannot get ready there: {reason_of(error)}; "
                "`tartan doctor` shows what CuPy lacks, or use --device cpu",
                code="warm-up",
            ) from error

    def _use_once(self) -> None:
        """Have kernels compiled; of items in a compact form also prepare one and compare it, which loads all else."""
        xp = self._device.xp
        self._app.warm_up(xp)
        if self._compact:
            assert self._slots is not None
            self._app.compact(xp.asarray(self._substitute), self._slots[0], xp)
            self._app.compare(self._slots[:1], self._slots[:1], xp)

    # -- actions (called by the loop) ------------------------------------------------------------------------

    def upload(self, place: Place, address: int) -> None:
        """Copy a ready span from host to device."""
        self._upload_engine.put(1, self._during(COPIES, partial(self._upload, place, address)))

    def prepare(self, place: Place, address: int) -> None:
        """Upload a parsed span, preprocess it, and store it back in its host place."""
        self._upload_engine.put(0, self._during(COPIES, partial(self._upload_parsed, place, address)))

    def prepare_kept(self, place: Place) -> None:
        """Upload a parsed span, preprocess it, and store it back in its host place, for other ranks."""
        self._upload_engine.put(0, partial(self._upload_guest, place))

    def compare(self, part: Part) -> None:
        """Start to compare a part; its end is posted once."""
        self._compute_engine.put(part.priority, partial(self._compare, part))

    def forget(self, span: int) -> None:
        """Drop what the device holds of a span (items of unequal size)."""
        self._lists.pop(span, None)

    def close(self, *, kill: bool = False) -> None:
        """Stop the engines: after all that waits, or with ``kill`` after what runs, unless that takes too long."""
        engines = (self._upload_engine, self._compute_engine, self._download_engine)
        for engine in engines:
            engine.end(FIRST if kill else LAST)
        self._parsed_ahead.release(PARSED_AHEAD)
        self._guest_free.release()
        deadline = time.monotonic() + CLOSE_SECONDS if kill else None
        for engine in engines:
            engine.join(deadline)
        self._slots = None
        self._lists.clear()
        self._device.close()

    def _during(self, stage: str, call: Callable[[], None]) -> Callable[[], None]:
        """Return a call for an engine whose stage begins now, since a device may wait for it from now on."""
        self._time.begin(stage)

        def ending() -> None:
            try:
                call()
            finally:
                self._time.end(stage)

        return ending

    # -- spans (threads of the engines) ----------------------------------------------------------------------

    def _copy(self, engine: str, name: str, n_bytes: int, call: Callable[[], None]) -> None:
        start = self._tracer.now()
        call()
        start, end = self._measure_work(engine, start)
        with self._time_lock:
            self.copy_seconds[engine] += (end - start) / 1e9
            self.copied_bytes[engine] += n_bytes
        self._tracer.record(name, engine, f"{self._device.name}/{engine}", start, end)

    def _host_block(self, place: Place, *, ready: bool) -> np.ndarray:
        return self._wiring.item_plan.block(self._wiring.arenas, place, ready=ready)

    def _target(self, place: Place, address: int) -> Any:
        assert self._slots is not None
        if address != self._guest_address:
            self._where[place.span] = (address, place.length)
        return self._slots[address : address + place.length]

    def _upload(self, place: Place, address: int) -> None:
        if self._slots is None:
            items = self._wiring.item_plan.items.operand(self._wiring.arenas, [place])
            self._where[place.span] = (address, place.length)
            forms = (self._app.device_form(item, self._device.xp) for item in items)
            self._lists[place.span] = [self._on_device(form) for form in forms]
        else:
            host, target = self._host_block(place, ready=True), self._target(place, address)
            self._copy("upload", f"upload {place.span}", host.nbytes, partial(self._device.upload, host, target))
        self._wiring.post(SpanUploaded(self._index, place))

    def _on_device(self, item: Any) -> Any:
        if isinstance(item, np.ndarray):
            source = np.ascontiguousarray(item)
            target = self._device.allocate(source.shape, source.dtype)
            self._copy("upload", "upload", source.nbytes, partial(self._device.upload, source, target))
            return target
        if isinstance(item, tuple | list):
            return type(item)(self._on_device(part) for part in item)
        return item

    def _upload_guest(self, place: Place) -> None:
        self._guest_free.acquire()
        self._upload_parsed(place, self._guest_address)

    def _upload_parsed(self, place: Place, address: int) -> None:
        host = self._host_block(place, ready=False)
        self._parsed_ahead.acquire()
        parsed = self._device.allocate(host.shape, host.dtype)
        self._copy("upload", f"upload {place.span}", host.nbytes, partial(self._device.upload, host, parsed))
        self._compute_engine.put(0, self._during(PREPROCESS, partial(self._preprocess, place, address, parsed)))

    def _preprocess(self, place: Place, address: int, parsed: Any) -> None:
        target, failures = self._target(place, address), dict[int, ItemFailure]()
        call = partial(self._preprocess_into, place, parsed, target, failures)
        if self._writes:
            call = partial(self._write_into, parsed, target)
        start = self._tracer.now()
        try:
            found = self._device.compute("preprocess", place.length, call)
        finally:
            self._parsed_ahead.release()
        start, end = self._measure_work("compute", start)
        with self._time_lock:
            self.preprocess_seconds += (end - start) / 1e9
            self.n_preprocessed += place.length
        self._tracer.record(f"preprocess {place.span}", "preprocess", f"{self._device.name}/compute", start, end)
        if self._writes:
            self._download_engine.put(1, partial(self._check, place, address, found))
        else:
            self._on_prepared(place, address, failures)

    def _on_prepared(self, place: Place, address: int, failures: dict[int, ItemFailure]) -> None:
        if address == self._guest_address:
            self._download_engine.put(1, partial(self._store_guest, place, failures))
            return
        self._download_engine.put(1, partial(self._store, place, address))
        self._wiring.post(SpanPrepared(self._index, place, failures))

    def _write_into(self, parsed: Any, target: Any) -> Any:
        """Have the application write parsed items; return a number of each, zero for those that are none."""
        xp = self._device.xp
        return xp.concat([self._app.compact(parsed[at], target[at], xp) for at in range(len(parsed))])

    def _check(self, place: Place, address: int, found: Any) -> None:
        """Look which items of a span are none (download thread)."""
        numbers = np.empty(found.shape, found.dtype)
        self._device.download(found, numbers)
        empty = np.flatnonzero(numbers == 0).tolist()
        if empty:
            self._compute_engine.put(0, self._during(PREPROCESS, partial(self._replace, place, address, empty)))
        else:
            self._on_prepared(place, address, {})

    def _replace(self, place: Place, address: int, positions: Sequence[int]) -> None:
        """Put a good item in the place of those that are none."""
        xp, target = self._device.xp, self._target(place, address)
        substitute = np.asarray(self._substitute)

        def write() -> None:
            good = xp.asarray(substitute)
            for position in positions:
                if self._compact:
                    self._app.compact(good, target[position], xp)
                else:
                    target[position] = good

        self._device.compute("preprocess", len(positions), write)
        reason = self._app.describe_failure(np.zeros(tuple(target.shape[1:]), target.dtype))
        keys = self._wiring.source.keys
        failures = {at: ItemFailure("preprocess", f"{keys[place.first + at]}: {reason}") for at in positions}
        self._on_prepared(place, address, failures)

    def _preprocess_into(self, place: Place, parsed: Any, target: Any, failures: dict[int, ItemFailure]) -> None:
        """Preprocess parsed items into their device slots; items that fail are noted, a good one takes their place."""
        xp = self._device.xp
        if prepares_blocks(self._app):
            target[...] = prepare_rows(self._app, parsed, xp)
            return
        keys = self._wiring.source.keys[place.first : place.first + place.length]
        for position, key in enumerate(keys):
            item = prepare_item(self._app, key, parsed[position], xp, False)
            if not isinstance(item, ItemFailure) and tuple(item.shape) != tuple(target.shape[1:]):
                item = ItemFailure("preprocess", f"{key}: preprocess returned shape {item.shape}")
            if isinstance(item, ItemFailure):
                failures[position] = item
                item = xp.asarray(self._substitute)
            target[position] = item

    def _store(self, place: Place, address: int) -> None:
        self._copy_back(place, address)
        self._wiring.post(SpanStored(place))

    def _store_guest(self, place: Place, failures: dict[int, ItemFailure]) -> None:
        self._copy_back(place, self._guest_address)
        self._guest_free.release()
        self._wiring.post(KeptPrepared(place, failures))

    def _copy_back(self, place: Place, address: int) -> None:
        host, source = self._host_block(place, ready=True), self._target(place, address)
        self._copy("download", f"store {place.span}", host.nbytes, partial(self._device.download, source, host))

    # -- parts (threads of the engines) ----------------------------------------------------------------------

    def _compare(self, part: Part) -> None:
        start = self._tracer.now()
        try:
            with self._watch(part), self._time.of(COMPARE):
                scores, mirrored = self._device.compute(
                    "compare", int(np.prod(part.shape)), partial(self._scores, part)
                )
        except BaseException as error:  # also what sys.exit raises
            self._fail(part, error)
            return
        start, end = self._measure_work("compute", start)
        self._tracer.record(f"compare {part.shape}", "compare", f"{self._device.name}/compute", start, end)
        fetch = partial(self._fetch, part, scores, mirrored, (end - start) / 1e9)
        self._download_engine.put(0, self._during(COPIES, fetch))

    @contextlib.contextmanager
    def _watch(self, part: Part) -> Iterator[None]:
        """Report a part that takes too long, while it still does."""
        limit = self._wiring.call_limit
        if limit is None or limit.given is None:  # what cannot be stopped ends the run: only if the user says so
            yield
            return
        seconds = min(limit.given, threading.TIMEOUT_MAX)
        failed = PartFailed(part, self._index, late(part, seconds), "late")
        timer = threading.Timer(seconds, self._wiring.post, (failed,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _fail(self, part: Part, error: BaseException) -> None:
        if isinstance(error, DeviceError):
            # The device is lost: every later pair would fail, and be recorded as failed.
            self._wiring.post(NodeBroken(error))
            return
        kind = "memory" if isinstance(error, DeviceMemoryError) else "raised"
        failure = CellFailure((0,) * len(part.shape), reason_of(error), traceback_of(error))
        self._wiring.post(PartFailed(part, self._index, failure, kind))

    def _measure_work(self, engine: str, start: int) -> tuple[int, int]:
        """Return when an engine worked on a call that came at ``start`` and just ended: not before the last end."""
        with self._time_lock:
            end = self._tracer.now()
            start, self._ended[engine] = max(start, self._ended[engine]), end
        return start, end

    def _scores(self, part: Part) -> tuple[dict[str, Any], dict[str, Any] | None]:
        groups = [self._operand(places)[cut] for places, cut in zip(part.places, part.cuts, strict=True)]
        scores = self._call(groups)
        twice = part.chunk is not None and part.chunk.mirrored is not None and not self._app.directed
        return scores, self._call(groups[::-1]) if twice else None

    def _call(self, groups: Sequence[Any]) -> dict[str, Any]:
        xp = self._device.xp
        if not compares_singly(self._app, len(groups)):
            found = compare_block(self._app, groups, xp, self._dtypes, None)
            return {name: _cast(xp, xp.asarray(scores), self._dtypes[name]) for name, scores in found.items()}
        shape, hook = tuple(map(len, groups)), single_hook(len(groups))
        cells = list(starmap(comparison(self._app, getattr(self._app, hook)), product(*groups)))
        scores = {}
        for name, dtype in self._dtypes.items():
            values = [xp.asarray(cell[name] if isinstance(cell, Mapping) else cell) for cell in cells]
            if any(value.shape != () for value in values):
                raise CompareError(f"{hook} returned shape {values[0].shape} for output {name!r}, no number")
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
        """Bring the scores of a part into the buffers of its chunk, or choose from them."""
        codes = part.mask.codes(part.shape)
        out, back, status = self._targets(part)
        try:
            ours, theirs = self._to_host(scores, mirrored or {})
            with self._writing:  # postprocess is never called twice at a time
                failures = self._write(part, codes, (out, back, status), ours, theirs)
        except BaseException as error:  # the application's postprocess may raise too
            self._fail(part, error)
            return
        rows = None
        if part.chunk is None and self._wiring.chooser is not None:
            listed = None if part.mask.plain and not failures else status
            rows = self._wiring.chooser.choose(part.corner, out, listed, None, part.bars)
        counts = count_cells(codes, status, failures, part.offset)
        self._wiring.post(PartCompared(part, self._index, failures, counts, seconds, rows))

    def _targets(self, part: Part) -> tuple[Scores, Scores | None, np.ndarray]:
        """Return where the scores of a part go, both ways, and its codes."""
        if part.chunk is None or self._buffers is None:
            out = {name: np.zeros(part.shape, dtype) for name, dtype in self._dtypes.items()}
            return out, None, np.zeros(part.shape, np.uint8)
        whole, window = part.chunk.views(self._buffers.arena), part.window
        out = {name: block[window] for name, block in whole.scores.items()}
        if whole.mirrored is None:
            return out, None, whole.status[window]
        return out, {name: block[window[::-1]] for name, block in whole.mirrored.items()}, whole.status[window]

    def _write(
        self,
        part: Part,
        codes: np.ndarray | int,
        into: tuple[Scores, Scores | None, np.ndarray],
        ours: Scores,
        theirs: Scores,
    ) -> list[CellFailure]:
        """Write scores, and where (i, j) and (j, i) are two also those the other way round; return what failed."""
        out, back, status = into
        failures = write_block(self._app, ours, codes, [], out, status)
        if back is None:
            return failures
        if self._app.directed:
            write_reversed(self._app, out, back, failures)
            return failures
        turned = codes if isinstance(codes, int) else codes.T
        filled = bool(failures) or not part.mask.plain
        more = write_block(self._app, theirs, turned, [], back, status.T, filled=filled)
        return merge_mirrored(failures, more, status)

    def _to_host(self, *tables: dict[str, Any]) -> list[dict[str, np.ndarray]]:
        """Download scores; they lie in memory that the calling thread uses again."""
        sources = [source for table in tables for source in table.values()]
        blocks = self._staging.arrays(sources)
        for source, host in zip(sources, blocks, strict=True):
            self._copy("download", "download", host.nbytes, partial(self._device.download, source, host))
        left = iter(blocks)
        return [{name: next(left) for name in table} for table in tables]


def _cast(xp: Any, scores: Any, dtype: np.dtype[Any]) -> Any:
    """Bring scores to the dtype of their output, unless they may not fit: the host looks at those."""
    fits = np.can_cast(scores.dtype, dtype) or (dtype.kind == "f" and dtype.itemsize > 2 and scores.dtype.kind in "biu")
    return xp.astype(scores, dtype, copy=False) if fits else scores


# Threads that make the calls of one engine of a device: copies one way, or what computes.

# By construction: one waits for the device while the other begins the next call; devices have two copies each way under
# way (COPIES_EACH_WAY). `tartan bench simulated gaps` shows the gaps.
THREADS_AN_ENGINE = 2
# By contract: priorities of tiles lie between; a bound, not a tuned number.
FIRST, LAST = -(2**30), 2**30
"""Priorities before and after all others."""


class EngineThreads:
    """Threads that make the calls of one engine, the lowest priority first.

    Parameters
    ----------
    name : str
    post : callable
        Gets NodeBroken when a call raises.

    Notes
    -----
    Two threads: the engine has its next copy or call while the first thread still learns that the last one is done.
    With a third one, preprocessing would queue behind compares that are not urgent.
    """

    def __init__(self, name: str, post: Callable[[Event], None]) -> None:
        self._post = post
        self._serial = itertools.count()
        self._calls: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._threads = [threading.Thread(target=self._serve, name=name, daemon=True) for _ in range(THREADS_AN_ENGINE)]
        for thread in self._threads:
            thread.start()

    def put(self, priority: int, call: Callable[[], None]) -> None:
        """Have a call made."""
        self._calls.put((priority, next(self._serial), call))

    def end(self, priority: int) -> None:
        """Ask the threads to end, before or after all that waits."""
        for _ in self._threads:
            self._calls.put((priority, next(self._serial), None))

    def join(self, deadline: float | None) -> None:
        """Wait until the threads have ended, or until a time of the monotonic clock."""
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (call := self._calls.get()[2]) is not None:
            try:
                call()
            except BaseException as error:
                self._post(NodeBroken(error))


# Host memory for results on their way from a device: made once for each thread that copies, pinned where possible.

# By arithmetic: 64 bytes are a cache line, and more than the 16 that vector loads of a GPU want.
_ALIGNED_BYTES = 64


class Staging:
    """Staging memory of the threads that download from one device.

    Parameters
    ----------
    device : Device

    Examples
    --------
    >>> from tartan.devices.cpu import CpuDevice
    >>> [array.shape for array in Staging(CpuDevice()).arrays([np.zeros((2, 3)), np.zeros(5)])]
    [(2, 3), (5,)]
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._of_thread = threading.local()

    def arrays(self, sources: Sequence[Any]) -> list[np.ndarray]:
        """Return arrays of the shapes and dtypes of others, valid until the calling thread asks again."""
        sizes = [math.prod(source.shape) * source.dtype.itemsize for source in sources]
        rooms = [-(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES for size in sizes]
        memory, found, start = self._memory(sum(rooms)), [], 0
        for source, size, room in zip(sources, sizes, rooms, strict=True):
            found.append(memory[start : start + size].view(source.dtype).reshape(source.shape))
            start += room
        return found

    def _memory(self, n_bytes: int) -> np.ndarray:
        """Return the bytes of the calling thread, made larger where they are too few."""
        held: np.ndarray | None = getattr(self._of_thread, "memory", None)
        if held is None or held.size < n_bytes:
            held = self._of_thread.memory = self._device.staging((n_bytes,), np.uint8)
        return held
