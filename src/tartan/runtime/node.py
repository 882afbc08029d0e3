"""One execution of a run on this machine: the loop between the scheduler and everything that works.

All decisions are the scheduler's, all state is the loop's: workers, engines and I/O threads only put events into the
inbox, and the loop turns each into actions. Nothing is locked across user code.

Way of an item: Load -> Loader (read, parse, preprocess) -> ``loaded``; or, where a device preprocesses, ``loaded`` ->
Prepare -> ``prepared`` -> ``stored``. Way of a tile: Compare -> a lane -> ``PartDone`` -> ``compared``; of a chunk:
Commit -> Committer -> ``committed``.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tartan.core.cache import Room
from tartan.core.grid import Rect, Tile
from tartan.core.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.core.schedule import Action, Commit, Compare, DeviceSlots, Evict, Load, Move, Prepare, Scheduler, Upload
from tartan.core.sizing import make_order
from tartan.devices.protocol import Device
from tartan.errors import DeviceMemoryError, RunCancelledError
from tartan.runtime.chunks import ChunkBuffers
from tartan.runtime.committer import Committer
from tartan.runtime.compare import PairFailure, TileMask
from tartan.runtime.execution import Execution, NodeStats
from tartan.runtime.faults import FailureBook
from tartan.runtime.host import HOST_ARENA, Place, RaggedBlobs, RaggedObjects, UniformItems
from tartan.runtime.items import ItemFailure
from tartan.runtime.lanes import CpuLane, DeviceLane
from tartan.runtime.loader import LoadDone, Loader
from tartan.runtime.parts import HalvedTiles, Part, PartDone, halves
from tartan.runtime.tasks import CHUNK_ARENA, SUBSTITUTE_ARENA, parsed_block, share_substitute
from tartan.workers.arena import Arena
from tartan.workers.executor import Executor

__all__ = ["Node"]

IO_THREADS = 4
# Tiles that a device holds, waiting and running: small ones end faster than the loop hands out new ones.
DEVICE_DEPTH = 16
# Parts of halved tiles under way: one runs while the next is handed out.
HALVES_A_WORKER = 2


@dataclass
class _TileWork:
    """A tile that a device compares, in one part or, after something failed, in several."""

    tile: Tile
    device: int
    rect: Rect
    whole: Part
    outstanding: int = 1
    died: set[tuple[int, int, int, int]] = field(default_factory=set)


class Node:
    """Runs an execution to its end.

    Parameters
    ----------
    execution : Execution
    """

    def __init__(self, execution: Execution) -> None:
        self._x = execution
        x = execution
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._fatal: BaseException | None = None
        self._places: dict[int, Place] = {}
        self._serial = 0
        self._failed_items: dict[int, set[int]] = {}
        self._chunk_failures: dict[tuple[int, int], list[Failure]] = {}
        self._works: dict[Tile, _TileWork] = {}
        self._uploads = 0
        self._compare_seconds = 0.0
        self._pairs_computed = 0
        self._done_pairs = 0
        self._book = FailureBook(x.folder, x.source, x.on_error, x.max_failures)
        self._both_ways = x.folder.pairs.both_ways
        self._arenas: dict[str, Arena] = {}
        self._lanes: list[CpuLane | DeviceLane] = []
        self._halved: list[HalvedTiles] = []
        self._scheduler = self._make_scheduler()
        self._workers = contextlib.ExitStack()
        try:
            self._open()
        except BaseException as error:
            self._fail(error)
            self._close()
            raise

    def _open(self) -> None:
        """Take memory and start threads; ``_close`` ends in the opposite order what was begun."""
        x = self._x
        in_processes = x.executor.in_processes
        self._arenas[HOST_ARENA] = Arena(max(x.host_bytes, 1), in_processes)
        if in_processes:
            self._arenas[SUBSTITUTE_ARENA] = share_substitute(x.task.substitute)
        dtypes, n_buffers = x.folder.manifest.outputs, x.layout.open_chunks + 3
        self._buffers = ChunkBuffers(x.grid.chunk, dtypes, n_buffers, mirrored=self._both_ways, shared=in_processes)
        self._arenas[CHUNK_ARENA] = self._buffers.arena
        for name, arena in self._arenas.items():
            x.executor.share(name, arena)
        self._committer = Committer(x.folder, self._from_thread(self._fail), x.tracer, x.flushed)
        self._workers.callback(self._committer.close)
        for index, (device, room) in enumerate(zip(x.devices, x.device_rooms, strict=True)):
            lane = self._lane(index, device, room)
            self._lanes.append(lane)
            n_workers = 1 if isinstance(lane, DeviceLane) else x.executor.n_workers
            self._halved.append(HalvedTiles(HALVES_A_WORKER * n_workers))
            self._workers.callback(self._stop, lane)
        self._workers.callback(self._stop, x.executor)
        self._loader = Loader(
            x.source, x.app, x.executor, x.task, self._from_thread(self._loaded), self._from_thread(self._fail),
            arenas=self._arenas, tracer=x.tracer, cache=x.disk_cache, digest_base=x.digest_base, io_threads=IO_THREADS,
            timeout_seconds=x.timeout_seconds, item_seconds=x.item_seconds,
        )  # fmt: skip
        self._workers.callback(self._loader.close)

    # -- the loop --------------------------------------------------------------------------------------------

    def run(self) -> NodeStats:
        """Compute what is missing.

        Raises
        ------
        RunCancelledError
            If ``cancel`` was called.
        RunFailedError
            If too much failed.
        DiskFullError
            If the disk of the run folder is full.
        """
        start = time.perf_counter()
        try:
            self._act(self._scheduler.start)
            while not self._scheduler.finished and self._fatal is None:
                self._inbox.get()()
                self._report()
        except BaseException as error:  # a defect, or a second Ctrl-C: nothing that runs is waited for
            self._fail(error)
            raise
        finally:
            self._close()
        if self._fatal is not None:
            raise self._fatal
        return self.stats(time.perf_counter() - start)

    def cancel(self, signal_number: int) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        self._inbox.put(lambda: self._cancelled(signal_number))

    def _cancelled(self, signal_number: int) -> None:
        self._fail(
            RunCancelledError(
                "the run was stopped before its end; run it again to resume", context={"signal": signal_number}
            )
        )

    def _fail(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error

    def _from_thread(self, handle: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a callback for other threads that lets the loop handle its argument."""
        return lambda value: self._inbox.put(lambda: handle(value))

    def _report(self) -> None:
        x = self._x
        x.progress.update(
            self._book.n_pairs_before + self._done_pairs, self._scheduler.n_loads, x.grid.n_items, self._book.n_failed
        )

    def _stop(self, worker: Executor | CpuLane | DeviceLane) -> None:
        worker.close(kill=self._fatal is not None)

    def _close(self) -> None:
        """Stop everything; finished chunks that are being written are still committed."""
        stopped_early = self._fatal is not None
        self._scheduler.stop()
        self._workers.close()
        while not (stopped_early or self._inbox.empty()):
            self._inbox.get()()
        # Their descriptors would keep all that memory; views that abandoned threads hold stay good.
        for arena in self._arenas.values():
            arena.close()

    # -- actions ---------------------------------------------------------------------------------------------

    def _act(self, decide: Callable[[], list[Action]]) -> None:
        for action in decide():
            match action:
                case Evict(span, None):
                    self._evicted(span)
                case Evict(span, int(device)):
                    self._device_lane(device).forget(span)
                case Load(span, address):
                    self._loader.load(self._new_place(span, address), self._x.grid.span_items(span).start)
                case Move(span, address, source):
                    self._move(span, address, source)
                case Prepare(device, span, address):
                    self._device_lane(device).prepare(self._places[span], address)
                case Upload(device, span, address):
                    self._uploads += self._x.grid.span_length(span)
                    self._device_lane(device).upload(self._places[span], address)
                case Compare(device, tile):
                    self._compare(device, tile)
                case Commit(chunk):
                    self._commit(chunk)

    def _device_lane(self, device: int) -> DeviceLane:
        lane = self._lanes[device]
        assert isinstance(lane, DeviceLane)
        return lane

    def _new_place(self, span: int, address: int) -> Place:
        self._serial += 1
        place = Place(span, address, self._x.grid.span_length(span), self._serial)
        self._places[span] = place
        return place

    def _move(self, span: int, address: int, source: int) -> None:
        """Copy a span to where its strip lies."""
        items, length = self._x.task.items, self._x.grid.span_length(span)
        assert isinstance(items, UniformItems)
        items.block(self._arenas, address, length)[...] = items.block(self._arenas, source, length)
        self._serial += 1
        self._places[span] = Place(span, address, length, self._serial)
        self._inbox.put(lambda: self._act(lambda: self._scheduler.moved(span)))

    def _evicted(self, span: int) -> None:
        items = self._x.task.items
        # Which items of it failed stays known: a device may still hold the span, and compare it.
        place = self._places.pop(span, None)
        if isinstance(items, RaggedObjects):
            items.spans.pop(span, None)
        elif isinstance(items, RaggedBlobs) and place is not None:
            self._arenas[HOST_ARENA].punch(place.address * items.window_bytes, items.window_bytes)

    # -- events of items -------------------------------------------------------------------------------------

    def _loaded(self, done: LoadDone) -> None:
        span = done.place.span
        self._note_failed_items(done.place, done.failures)
        size = None
        if self._x.span_bytes is not None and not self._scheduler.host.room.addressed:
            size = max(1, done.n_bytes)
        self._act(lambda: self._scheduler.loaded(span, size, ready=done.from_disk))
        if self._x.task.parsed is None and not done.from_disk:
            self._keep(done.place, done.n_bytes)

    def _device_event(self, event: str, device: int, place: Place, failures: dict[int, ItemFailure]) -> None:
        def handle() -> None:
            self._note_failed_items(place, failures)
            if event == "uploaded":
                self._act(lambda: self._scheduler.uploaded(device, place.span))
            elif event == "prepared":
                self._act(lambda: self._scheduler.prepared(device, place.span))
            else:
                self._keep(place, place.length * self._item_bytes())
                self._act(lambda: self._scheduler.stored(place.span))

        self._inbox.put(handle)

    def _keep(self, place: Place, n_bytes: int) -> None:
        """Give a ready span to the disk level."""
        x = self._x
        if x.disk_cache is None:
            return
        first = x.grid.span_items(place.span).start
        failed = {first + position for position in self._failed_items.get(place.span, ())}

        def ready() -> Any:
            items = x.task.items.operand(self._arenas, [place])
            # The place may be filled anew before the items are written.
            return items if isinstance(x.task.items, RaggedObjects) else copy.deepcopy(items)

        self._loader.keep(first, ready, failed, n_bytes)

    def _item_bytes(self) -> int:
        form = self._x.task.form
        return form.nbytes if form is not None else 0

    def _note_failed_items(self, place: Place, failures: dict[int, ItemFailure]) -> None:
        if not failures:
            return
        first = self._x.grid.span_items(place.span).start
        self._failed_items.setdefault(place.span, set()).update(failures)
        for position, failure in failures.items():
            self._book.item_failed(first + position, failure)
        self._check_failures()

    # -- events of tiles -------------------------------------------------------------------------------------

    def _compare(self, device: int, tile: Tile) -> None:
        grid = self._x.grid
        rect, chunk = grid.rect(tile), grid.chunk_of(tile)
        row_spans = grid.row_spans(tile)
        part = Part(
            key=tile,
            rows=[self._places[span] for span in row_spans],
            columns=[self._places[tile.span]],
            row_part=slice(0, rect.r1 - rect.r0),
            column_part=slice(0, rect.c1 - rect.c0),
            chunk=self._buffers.open(chunk),
            origin=(rect.r0 - chunk[0] * grid.chunk, rect.c0 - chunk[1] * grid.chunk),
            mask=self._mask(tile, rect, row_spans),
        )
        self._works[tile] = _TileWork(tile, device, rect, part)
        self._lanes[device].compare(part)

    def _mask(self, tile: Tile, rect: Rect, row_spans: range) -> TileMask:
        wanted = self._x.remaining.mask(tile)
        rows: tuple[int, ...] = ()
        columns: tuple[int, ...] = ()
        if self._failed_items:
            first = self._x.grid.span_items
            rows = tuple(first(s).start - rect.r0 + p for s in row_spans for p in sorted(self._failed_items.get(s, ())))
            columns = tuple(sorted(self._failed_items.get(tile.span, ())))
        return TileMask(wanted, tuple(r for r in rows if r < rect.r1 - rect.r0), columns)

    def _part_done(self, done: PartDone) -> None:
        work = self._works[done.part.key]
        if done.kind == "cancelled":
            return
        if done.fatal is not None:
            self._fail(done.fatal)
            return
        halved = self._halved[work.device]
        halved.ended(done.part)
        if done.error is not None:
            self._part_failed(work, done)
        else:
            self._compare_seconds += done.seconds
            self._part_ended(work, done.part, done.failures)
        if self._fatal is None:
            for part in halved.next():
                self._lanes[work.device].compare(part)

    def _part_ended(self, work: _TileWork, part: Part, failures: Sequence[PairFailure]) -> None:
        self._note_pairs(work, part, failures)
        work.outstanding -= 1
        if not work.outstanding:
            self._tile_done(work)

    def _part_failed(self, work: _TileWork, done: PartDone) -> None:
        """Halve a part that failed as a whole, until the guilty pair is alone."""
        part, error = done.part, done.error
        assert error is not None
        in_thread = isinstance(self._lanes[work.device], DeviceLane) or not self._x.executor.in_processes
        if done.kind == "late" and in_thread:
            self._fail(self._book.stopped(f"{error.reason}, and a thread cannot be stopped", error.traceback))
            return
        m, k = part.shape
        area = (part.origin[0], part.origin[1], m, k)
        if m * k == 1 and done.kind == "memory" and not self._x.devices[work.device].shares_host_memory:
            self._fail(DeviceMemoryError(f"{self._x.devices[work.device].name}: {error.reason}"))
            return
        if m * k == 1 and (done.kind != "died" or area in work.died):
            status = self._buffers.status(part.chunk)
            codes = part.mask.codes((1, 1))
            status[part.origin] = codes if isinstance(codes, int) else codes[0, 0]
            if status[part.origin] == DONE:
                status[part.origin] = FAILED_PAIR
                self._part_ended(work, part, [error])
            else:
                self._part_ended(work, part, [])
            return
        if m * k == 1:
            work.died.add(area)
            self._halved[work.device].add([replace(part, depth=part.depth + 1)])
            return
        work.outstanding += 1
        self._halved[work.device].add(halves(part))

    def _count_scores(self, codes: np.ndarray | int, n_codes: int, n_bad: int, part: Part, offset: int) -> None:
        """Count the scores of a part: two of each pair where (i, j) and (j, i) differ, one where i is j."""
        if self._both_ways:
            cells = np.broadcast_to(np.uint8(codes), part.shape) if isinstance(codes, int) else codes
            itself = np.diagonal(cells, offset) if -part.shape[0] < offset < part.shape[1] else cells[:0, 0]
            n_codes = 2 * n_codes - int(np.count_nonzero(itself))
            n_bad = 2 * n_bad - int(np.count_nonzero(itself == FAILED_ITEM))
        self._done_pairs += n_codes
        self._pairs_computed += n_codes - n_bad

    def _note_pairs(self, work: _TileWork, part: Part, failures: Sequence[Any]) -> None:
        codes = part.mask.codes(part.shape)
        n_codes = int(np.count_nonzero(codes)) if not isinstance(codes, int) else part.shape[0] * part.shape[1]
        n_bad = 0 if isinstance(codes, int) else int(np.count_nonzero(codes == FAILED_ITEM))
        chunk = self._x.grid.chunk_of(work.tile)
        top, left = chunk[0] * self._x.grid.chunk + part.origin[0], chunk[1] * self._x.grid.chunk + part.origin[1]
        self._count_scores(codes, n_codes, n_bad, part, top - left)
        records = [
            Failure(
                top + f.row,
                left + f.column,
                "compare",
                self._book.name_pair(top + f.row, left + f.column, f.reason),
                f.traceback,
            )
            for f in self._book.listed(failures)
        ]
        if records:
            self._chunk_failures.setdefault(chunk, []).extend(records)
        n_failed = self._n_failed(part) if records else 0
        self._book.pairs_ended(n_codes - n_bad - n_failed, n_bad, n_failed, records)
        if records or n_bad:
            self._check_failures()

    def _n_failed(self, part: Part) -> int:
        """Count the pairs of a part that failed themselves, listed or not."""
        (r, c), (m, k) = part.origin, part.shape
        status = self._buffers.status(part.chunk)[r : r + m, c : c + k]
        codes = part.mask.codes(part.shape)
        return int(np.count_nonzero((status == FAILED_PAIR) & (codes == DONE)))

    def _check_failures(self) -> None:
        error = self._book.verdict()
        if error is not None:
            self._fail(error)

    def _tile_done(self, work: _TileWork) -> None:
        if self._fatal is not None:
            return  # what stopped the run may have failed in this tile: its chunk is left to whoever resumes
        del self._works[work.tile]
        self._act(lambda: self._scheduler.compared(work.device, work.tile))

    # -- events of chunks ------------------------------------------------------------------------------------

    def _commit(self, chunk: tuple[int, int]) -> None:
        buffers = self._buffers.open(chunk)
        rect = self._x.grid.chunk_rect(chunk)
        m, k = rect.shape
        outputs = {name: block[:m, :k] for name, block in self._buffers.views(buffers.outputs).items()}
        mirrored = None
        if buffers.mirrored is not None:
            mirrored = {name: block[:k, :m] for name, block in self._buffers.views(buffers.mirrored).items()}
        status = self._buffers.status(buffers)[:m, :k]
        failures = self._chunk_failures.pop(chunk, [])

        def committed() -> None:
            self._inbox.put(lambda: self._committed(chunk))

        self._committer.commit(chunk, outputs, status, failures, mirrored, committed)

    def _committed(self, chunk: tuple[int, int]) -> None:
        self._buffers.close(chunk)
        self._x.remaining.committed(chunk)
        self._act(lambda: self._scheduler.committed(chunk))

    # -- set-up ----------------------------------------------------------------------------------------------

    def _make_scheduler(self) -> Scheduler:
        x = self._x
        devices = [
            DeviceSlots(room, x.executor.n_workers * 2 if room is None else DEVICE_DEPTH) for room in x.device_rooms
        ]
        return Scheduler(
            x.grid,
            make_order(x.grid, x.remaining.workload, x.layout, x.remaining.needs, x.order),
            x.remaining.needs,
            x.layout.room,
            devices,
            span_size=x.span_bytes,
            policy="lru" if x.order == "quadrant" else "planned",
            max_open_chunks=x.layout.open_chunks,
            prepare_on_device=x.task.parsed is not None,
        )

    def _lane(self, index: int, device: Device, room: Room | None) -> CpuLane | DeviceLane:
        x, done = self._x, self._from_thread(self._part_done)
        if room is None:
            return CpuLane(index, x.executor, x.task.items, self._buffers, done, x.timeout_seconds, x.tracer)
        form = x.task.items.form if isinstance(x.task.items, UniformItems) else None
        return DeviceLane(
            index,
            device,
            x.app,
            form,
            room,
            host_block=self._host_block,
            host_items=lambda place: list(x.task.items.operand(self._arenas, [place])),
            keys=self._keys,
            substitute=x.substitute,
            buffers=self._buffers,
            dtypes=x.folder.manifest.outputs,
            done=done,
            post=self._device_event,
            fatal=self._from_thread(self._fail),
            tracer=x.tracer,
            timeout_seconds=x.timeout_seconds,
        )

    def _host_block(self, place: Place, parsed: bool) -> np.ndarray:
        items = self._x.task.items
        assert isinstance(items, UniformItems)
        if parsed:
            return parsed_block(self._arenas, self._x.task, place)
        return items.block(self._arenas, place.address, place.length)

    def _keys(self, place: Place) -> Sequence[str]:
        items = self._x.grid.span_items(place.span)
        return self._x.source.keys[items.start : items.stop]

    def stats(self, wall_seconds: float) -> NodeStats:
        """Return what was done so far."""
        counts, scheduler = self._loader.counts, self._scheduler
        lanes = [lane for lane in self._lanes if isinstance(lane, DeviceLane)]
        seconds = {
            "read": counts.read_seconds,
            "parse": counts.parse_seconds,
            "upload": sum(lane.copy_seconds["upload"] for lane in lanes),
            "preprocess": counts.preprocess_seconds + sum(lane.preprocess_seconds for lane in lanes),
            "compare": self._compare_seconds,
            "download": sum(lane.copy_seconds["download"] for lane in lanes),
            "commit": self._committer.commit_seconds,
        }
        n_bytes = {
            "storage": counts.read_bytes,
            "disk": counts.disk_bytes,
            "upload": sum(lane.copied_bytes["upload"] for lane in lanes),
            "download": sum(lane.copied_bytes["download"] for lane in lanes),
            "result": self._committer.committed_bytes,
        }
        return NodeStats(
            loads=scheduler.n_loads,
            parses=counts.parses,
            disk_hits=counts.disk_hits,
            host_hits=scheduler.host.stats.hits,
            uploads=self._uploads,
            pairs_computed=self._pairs_computed,
            bytes_per_level=n_bytes,
            seconds_per_stage=seconds,
            wall_seconds=wall_seconds,
            host_peak=scheduler.host.stats.peak,
            result_buffer_bytes=self._buffers.arena.n_bytes,
        )
