"""One execution on one rank: the loop between the scheduler and everything that works.

All decisions are the scheduler's. Workers, lanes, I/O threads and the sink only post events; the loop gives each event
to the desk that handles its type, and each action that follows to the desk that carries it out. README.md draws the
ways of an item, a tile and a chunk. Nothing is locked across user code.
"""

from __future__ import annotations

import contextlib
import queue
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tartan.application import preprocesses
from tartan.base.daemon_pool import DaemonPool
from tartan.base.signals import WAKE_SECONDS
from tartan.core.pairs.actions import Action, AskSegments, Commit, Compare, Evict, Load, Move, Prepare, Upload
from tartan.core.pairs.device_time import COMPARE, PARSE, PREPROCESS, RESULTS, STORAGE, DeviceTime
from tartan.core.pairs.setup import make_scheduler, make_segments
from tartan.core.pairs.verdict import NodeReport
from tartan.core.ranks.placement import STORAGE_RANKS
from tartan.errors import RunCancelledError
from tartan.runtime.chunk_desk import ChunkBuffers, ChunkDesk
from tartan.runtime.cpu_lane import CpuLane
from tartan.runtime.device_lane import DeviceLane
from tartan.runtime.disk_level import DiskLevel
from tartan.runtime.events import (
    ChunkCommitted,
    ChunkSaved,
    Event,
    ItemsLate,
    KeptPrepared,
    NodeBroken,
    PartCompared,
    PartDropped,
    PartFailed,
    SegmentsGranted,
    SpanFilled,
    SpanMoved,
    SpanPrepared,
    SpanStored,
    SpanUploaded,
    StopAsked,
)
from tartan.runtime.execution import NodeInputs, NodeStats
from tartan.runtime.host import HOST_ARENA, Place
from tartan.runtime.item_desk import ItemDesk
from tartan.runtime.loader import Loader
from tartan.runtime.parts import CHUNK_ARENA
from tartan.runtime.shipment import WholeOrder
from tartan.runtime.tasks import SUBSTITUTE_ARENA, share_substitute
from tartan.runtime.tile_desk import TileDesk
from tartan.runtime.wiring import Wiring
from tartan.store.bars import BarKeeper
from tartan.store.keeper import Keeper
from tartan.workers.arena import Arena
from tartan.workers.executor import Executor

# By judgement: read, commit, a save, and one that hangs in a file system. Reading is at the page cache's speed with it
# (`tartan bench reads`).
IO_THREADS = 4


class Node:
    """Runs an execution to its end.

    Parameters
    ----------
    inputs : NodeInputs
    clock : callable
        Seconds.
    """

    def __init__(self, inputs: NodeInputs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._x = inputs
        self._clock = clock
        self._saver: Saver | None = None
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._broken = False
        self._arenas: dict[str, Arena] = {}
        self._buffers: ChunkBuffers | None = None
        self._opened = contextlib.ExitStack()
        remaining, n_workers = inputs.remaining, inputs.executor.n_workers
        plan = replace(inputs.plan, workload=remaining.workload, needed=remaining.needs, n_workers=n_workers)
        self._scheduler = make_scheduler(plan)
        self._time = self._measure_devices()
        self._segments = inputs.segments or WholeOrder(make_segments(plan))
        try:
            self._open()
        except BaseException:
            self._broken = True
            self._close()
            raise

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
            actions = self._scheduler.start()
            while True:
                for action in actions:
                    if self._saver is None or not self._saver.stopping or type(action) is Commit:
                        self._carry_out[type(action)](action)
                if self._scheduler.finished:
                    break
                if self._saver is not None:
                    self._saver.step()
                try:
                    event = self._inbox.get(timeout=WAKE_SECONDS)
                except queue.Empty:  # handlers of signals have run meanwhile
                    actions = []
                    if self._saver is not None:
                        self._saver.idle()
                    continue
                actions = self._handle[type(event)](event)
                self._time.note_drained(self._scheduler.drained)
        except BaseException as error:  # do not wait for what runs
            self._broken = True
            traceback.clear_frames(error.__traceback__)  # they hold views of the arenas
            raise
        finally:
            self._close()
        return self.stats(time.perf_counter() - start)

    def cancel(self, signal_number: int) -> None:
        """Ask for a clean stop; may be called from a signal handler."""
        message = "the run was stopped before its end; run it again to resume"
        self._inbox.put(StopAsked(RunCancelledError(message, context={"signal": signal_number})))

    def _ask(self, action: AskSegments) -> None:
        self._segments.ask(action.most, self._inbox.put)

    def _on_grant(self, event: SegmentsGranted) -> list[Action]:
        return self._scheduler.on_granted(event.segments, last=event.last)

    def _on_filled(self, event: SpanFilled) -> list[Action]:
        actions = self._items.on_filled(event)
        self._tiles.tell_loads()
        return actions

    def _tell_late(self, event: ItemsLate) -> list[Action]:
        self._x.report(NodeReport(late=[event.line]))
        return []

    def _stop(self, event: NodeBroken) -> list[Action]:
        raise event.error

    def _stop_gently(self, event: StopAsked) -> list[Action]:
        if self._saver is None:
            raise event.error
        self._saver.stop(event.error)
        return []

    # -- opening and closing ---------------------------------------------------------------------------------

    def _open(self) -> None:
        """Take memory and start threads; ``_close`` ends in the opposite order what was begun."""
        x = self._x
        self._opened.callback(x.sink.close)
        wiring = self._wire()
        self._open_buffers(wiring)
        for name, arena in self._arenas.items():
            x.executor.share(name, arena)
        self._device_lanes = self._open_devices(wiring)
        self._opened.callback(self._end, x.executor)
        io = DaemonPool(IO_THREADS, "tartan-io")
        disk = None
        if x.disk_cache is not None:
            items, recall = x.items.items, x.app.recall_item
            disk = DiskLevel(x.disk_cache, x.source, items, x.digest_base, io, key=x.cache_key, recall=recall)
        self._loader = Loader(wiring, io, disk, x.exchange, x.remote, item_seconds=x.items.item_seconds)
        self._opened.callback(lambda: self._loader.close(broken=self._broken))
        if x.exchange is not None:
            self._opened.callback(x.exchange.close)
            x.exchange.open(wiring, x.plan.grid, self._loader, self._device_for_kept())
        measured = x.plan.span_size is not None and not self._scheduler.host.room.addressed
        self._items = ItemDesk(
            wiring, self._scheduler, self._loader, disk, x.exchange, self._device_lanes, x.report, measured
        )
        self._carry_out: dict[type, Callable[[Any], None]] = {AskSegments: self._ask}
        self._handle: dict[type, Callable[[Any], list[Action]]] = {
            SegmentsGranted: self._on_grant,
            NodeBroken: self._stop,
            ItemsLate: self._tell_late,
            StopAsked: self._stop_gently,
        }
        self._assign_items()
        self._open_desks(wiring)

    def _open_buffers(self, wiring: Wiring) -> None:
        """Take memory for the scores of open chunks, unless they never leave the calls that compare."""
        x = self._x
        if isinstance(x.sink.keeper, BarKeeper):
            return
        self._buffers = ChunkBuffers(
            x.plan.grid.chunk,
            x.outputs if wiring.chooser is None else {},
            x.plan.layout.open_chunks + 3,
            mirrored=x.both_ways,
            counted_twice=x.both_ways and not x.app.directed,
            shared=x.executor.in_processes,
        )
        self._arenas[CHUNK_ARENA] = self._buffers.arena

    def _wire(self) -> Wiring:
        x, items = self._x, self._x.items
        self._arenas[HOST_ARENA] = Arena(max(x.plan.host_bytes, 1), x.executor.in_processes)
        if x.executor.in_processes:
            self._arenas[SUBSTITUTE_ARENA] = share_substitute(items.substitute)
            items = items.without_substitute()
        in_threads = not x.executor.in_processes and all(room is None for room in x.plan.device_rooms)
        chooser = None if x.sink.keeper is None else x.sink.keeper.chooser(shared=in_threads)
        return Wiring(
            *(
                x.app,
                x.source,
                x.executor,
                items,
                self._arenas,
                self._inbox.put,
                x.tracer,
                x.call_limit,
                chooser,
                self._time,
            )
        )

    def _open_devices(self, wiring: Wiring) -> dict[int, DeviceLane]:
        """Start a lane for each device with memory of its own."""
        lanes, exchange = {}, self._x.exchange
        guest_slots = 0 if exchange is None or wiring.item_plan.parsed is None else exchange.guest_slots
        for index, (device, room) in enumerate(zip(self._x.devices, self._x.plan.device_rooms, strict=True)):
            if room is not None:
                lane = lanes[index] = DeviceLane(
                    index,
                    device,
                    room,
                    wiring,
                    self._x.outputs,
                    self._buffers,
                    self._x.items.ready_substitute,
                    guest_slots,
                )
                self._opened.callback(self._end, lane)
        return lanes

    def _device_for_kept(self) -> Callable[[Place], None] | None:
        """Return what has a device prepare a span that is kept for other ranks; None where items need none."""
        lanes = list(self._device_lanes.values())
        if self._x.items.parsed is None or not lanes:
            return None
        return lambda place: lanes[place.span % len(lanes)].prepare_kept(place)

    def _assign_items(self) -> None:
        """Let the desk of items carry out its actions and handle its events."""
        items = self._items
        self._carry_out |= {
            Load: items.load,
            Move: items.move,
            Evict: items.evict,
            Prepare: items.prepare,
            Upload: items.upload,
        }
        self._handle |= {
            SpanFilled: self._on_filled,
            SpanMoved: items.on_moved,
            SpanUploaded: items.on_uploaded,
            SpanPrepared: items.on_prepared,
            SpanStored: items.on_stored,
            KeptPrepared: items.on_kept_prepared,
        }

    def _open_desks(self, wiring: Wiring) -> None:
        """Open the desks of tiles and chunks, which carry out and handle the rest."""
        x = self._x
        lanes = [self._device_lanes.get(index) or CpuLane(index, wiring) for index in range(len(x.devices))]
        chunks = ChunkDesk(
            x.plan.grid,
            self._scheduler,
            self._buffers,
            x.remaining,
            x.sink,
            self._inbox.put,
            x.saves,
            x.others,
            clock=self._clock,
        )
        tiles = TileDesk(x.plan.grid, self._scheduler, x.remaining, self._items, chunks, lanes, x.source.keys, x.report)
        self._tiles = tiles
        self._carry_out |= {Compare: tiles.compare, Commit: self._begin_commit}
        self._chunks = chunks
        self._handle |= {
            PartCompared: tiles.on_compared,
            PartFailed: tiles.on_failed,
            PartDropped: tiles.on_dropped,
            ChunkCommitted: self._on_committed,
            ChunkSaved: chunks.on_saved,
        }
        if x.saves is not None:
            self._saver = Saver(tiles, chunks, x.executor, x.say, clock=self._clock)

    def _begin_commit(self, action: Commit) -> None:
        self._time.begin(RESULTS)
        self._chunks.commit(action)

    def _on_committed(self, event: ChunkCommitted) -> list[Action]:
        self._time.end(RESULTS)
        return self._chunks.on_committed(event)

    def _end(self, worker: Executor | DeviceLane) -> None:
        worker.close(kill=self._broken)

    def _close(self) -> None:
        """Stop everything; finished chunks that are being written are still committed."""
        self._scheduler.stop()
        try:
            self._opened.close()
            while not (self._broken or self._inbox.empty()):
                event = self._inbox.get()
                self._handle[type(event)](event)
        finally:
            # Their descriptors would keep all that memory; views that abandoned threads hold stay good.
            for arena in self._arenas.values():
                arena.close()

    def _measure_devices(self) -> DeviceTime:
        in_memory = [room is None for room in self._x.plan.device_rooms]
        n_servers = sum(self._x.executor.n_workers if on_host else 1 for on_host in in_memory)
        return DeviceTime(n_servers, any(in_memory), self._clock)

    # -- statistics ------------------------------------------------------------------------------------------

    def stats(self, wall_seconds: float) -> NodeStats:
        """Return what was done so far."""
        counts, scheduler, sink, lanes = self._loader.counts, self._scheduler, self._x.sink, self._device_lanes.values()
        seconds = {
            "read": counts.read_seconds,
            "parse": counts.parse_seconds,
            "upload": sum(lane.copy_seconds["upload"] for lane in lanes),
            "preprocess": counts.preprocess_seconds + sum(lane.preprocess_seconds for lane in lanes),
            "compare": self._tiles.compare_seconds,
            "download": sum(lane.copy_seconds["download"] for lane in lanes),
            "commit": sink.commit_seconds,
        }
        n_bytes = {
            "storage": counts.read_bytes,
            "disk": counts.disk_bytes,
            "upload": sum(lane.copied_bytes["upload"] for lane in lanes),
            "download": sum(lane.copied_bytes["download"] for lane in lanes),
            "result": sink.committed_bytes,
        }
        if self._x.remote is not None:
            n_bytes[STORAGE_RANKS] = self._x.remote.bytes_received
        elsewhere = (self._x.exchange, self._x.remote)
        return NodeStats(
            loads=scheduler.n_loads,
            parses=counts.parses,
            disk_hits=counts.disk_hits,
            host_hits=scheduler.host.stats.hits,
            uploads=self._items.n_uploads,
            pairs_computed=self._tiles.pairs_computed,
            bytes_between_ranks=sum(one.bytes_received for one in elsewhere if one is not None),
            bytes_per_level=n_bytes,
            seconds_per_stage=seconds,
            items_per_stage=self._count_stages(),
            wall_seconds=wall_seconds,
            host_peak=scheduler.host.stats.peak,
            device_seconds=self._time.seconds(self._worked(seconds)),
            result_buffer_bytes=0 if self._buffers is None else int(self._buffers.arena.n_bytes),
            screened=sink.keeper.decided() if isinstance(sink.keeper, Keeper) else {},
        )

    def _count_stages(self) -> dict[str, int]:
        """Return how many items were parsed and preprocessed here, where there may be ranks beside the data."""
        if self._x.remote is None:
            return {}
        prepared = self._loader.counts.preprocessed
        if self._x.items.parsed is not None:
            prepared = sum(lane.n_preprocessed for lane in self._device_lanes.values())
        has_any = preprocesses(self._x.app)
        return {"compute:parse": self._loader.counts.parses, "compute:preprocess": prepared if has_any else 0}

    def _worked(self, seconds: dict[str, float]) -> dict[str, float]:
        """Return what those that compare measured themselves of what they did: workers of the CPU also load items."""
        worked = {COMPARE: seconds["compare"]}
        if any(room is None for room in self._x.plan.device_rooms):
            counts = self._loader.counts
            worked |= {PARSE: counts.parse_seconds, PREPROCESS: counts.preprocess_seconds}
            worked[STORAGE] = counts.read_by_workers_seconds
        return worked


# Saves the finished tiles of open chunks while a node runs, and lets calls under way end when it is to stop.

# By convention of schedulers: Slurm's KillWait is 30 s by default, as is the grace period of Kubernetes; 5 s are left
# for the save.
GRACE_SECONDS = 25.0
"""How long calls under way may take to end after a signal: schedulers of clusters kill 30 s after it."""


class Saver:
    """What the loop of a node asks between two events.

    Parameters
    ----------
    tiles : TileDesk
    chunks : ChunkDesk
        Has a ``SavePolicy``.
    executor : Executor
    say : callable
        Tells the user one line.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        tiles: TileDesk,
        chunks: ChunkDesk,
        executor: Executor,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tiles = tiles
        self._chunks = chunks
        self._executor = executor
        self._say = say
        self._clock = clock
        self._error: BaseException | None = None
        self._deadline = 0.0
        self._said = self._saved = False

    @property
    def stopping(self) -> bool:
        """Whether nothing new begins."""
        return self._error is not None

    def stop(self, error: BaseException) -> None:
        """Save what is finished at once, and give the calls under way time to end; ``step`` raises the error then."""
        if self._error is None:
            self._error, self._deadline = error, self._clock() + GRACE_SECONDS
            self._tiles.stop()
            self._executor.drop_waiting()
            self._chunks.save_all()

    def step(self) -> None:
        """Save what is due; at a stop all that ended in time, and then end."""
        self._chunks.save_due()
        if self._error is None or (self._tiles.n_under_way and self._clock() < self._deadline):
            return
        if not self._chunks.is_saving and not self._saved:
            self._saved = True
            self._chunks.save_all()
        if not self._chunks.is_saving:
            raise self._error

    def idle(self) -> None:
        """Say once why a stop takes a while."""
        if self._error is not None and not self._said:
            self._said = True
            left = max(0, round(self._deadline - self._clock()))
            self._say(f"stopping: calls under way may end within {left} s, and are kept; a second signal stops at once")
