"""Drive the whole policy in virtual time: predict loads, traffic and time of a run on a described machine.

The same ``Scheduler`` that drives a real run gets its events here from a heap of future ends instead of threads. Every
resource is a queue: storage, the CPU workers, and per device its upload, compute and download engines. Workers parse;
where the CPU is a device, they preprocess and compare too. The result is a function of its arguments; random stage
times come from the given seed. Loads do not depend on times: they are those of a real run with the same grid, slots,
devices and order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tartan.core.pairs.actions import Action, AskSegments, Commit, Compare, Evict, Load, Move, Origin, Prepare, Upload
from tartan.core.pairs.bound import workload_bound
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.setup import NodePlan, make_scheduler, make_segments, next_segments, prepares_on_device
from tartan.core.pairs.sizing import PAIR_BYTES, Costs, choose_grid, choose_layout, device_room
from tartan.core.pairs.workload import AllPairs, Workload
from tartan.core.replay.model import StageTimes, compute_model_seconds, system_efficiency
from tartan.errors import InternalError


@dataclass(frozen=True)
class Cost:
    """Mean and standard deviation of a stage time, in seconds."""

    mean: float
    std: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> float:
        """Return the time of ``count`` independent executions one after the other, each gamma distributed."""
        if not self.std:
            return self.mean * count
        return float(rng.gamma(count * (self.mean / self.std) ** 2, self.std**2 / self.mean))


@dataclass(frozen=True)
class Machine:
    """One node.

    Attributes
    ----------
    host_slots : int
    device_slots : tuple of int or None
        Slots of each device; None for the CPU, which works in host memory.
    cpu_workers : int
        Workers that parse; on the CPU they preprocess and compare too.
    storage_bytes_per_second, copy_bytes_per_second : float
        Input files; each direction between host and device.
    device_speed : tuple of float
        Relative speed of each device.
    disk_level : bool
        Keep preprocessed items on a local disk.
    disk_bytes_per_second : float
    """

    host_slots: int
    device_slots: tuple[int | None, ...] = (None,)
    cpu_workers: int = 1
    storage_bytes_per_second: float = float("inf")
    copy_bytes_per_second: float = float("inf")
    device_speed: tuple[float, ...] = ()
    disk_level: bool = False
    disk_bytes_per_second: float = 1e9

    @property
    def compares_on_cpu(self) -> bool:
        return None in self.device_slots

    def speed(self, device: int) -> float:
        return self.device_speed[device] if self.device_speed else 1.0

    def servers(self, device: int) -> int:
        """Return how many tiles a device compares at a time."""
        return self.cpu_workers if self.device_slots[device] is None else 1


@dataclass(frozen=True)
class WorkloadCosts:
    """What the items and pairs of a workload cost.

    Attributes
    ----------
    n_items : int
    file_bytes, item_bytes : float
        Means of one input file and of one preprocessed item.
    parse, preprocess, compare, postprocess : Cost
        Parse and preprocess of one item; compare and postprocess of one pair.
    tile_seconds : float
        Fixed cost of one compare call.
    whole_tiles : bool
        Whether a compare call costs all cells of its tile, those below the diagonal too, or only wanted pairs.
    """

    n_items: int
    file_bytes: float = 0.0
    item_bytes: float = 0.0
    parse: Cost = Cost(0.0)
    preprocess: Cost = Cost(0.0)
    compare: Cost = Cost(0.0)
    postprocess: Cost = Cost(0.0)
    tile_seconds: float = 0.0
    whole_tiles: bool = False

    def stage_times(self) -> StageTimes:
        return StageTimes(
            parse=self.parse.mean,
            preprocess=self.preprocess.mean,
            compare=self.compare.mean,
            postprocess=self.postprocess.mean,
        )


@dataclass(frozen=True)
class ReplayResult:
    """Prediction of one run."""

    n_items: int
    n_pairs: int
    seconds: float
    loads: int
    load_factor: float
    load_factor_bound: float
    system_efficiency: float
    modelled_seconds: float
    busy_seconds: dict[str, float]
    uploads: int
    disk_hits: int
    tiles: int
    load_sequence: tuple[int, ...] = field(repr=False, default=())


@dataclass
class _Servers:
    """A resource that serves ``servers`` jobs at a time, in order of arrival."""

    free_at: list[float]
    busy: float = 0.0

    def serve(self, now: float, seconds: float) -> float:
        start = max(now, heapq.heappop(self.free_at))
        heapq.heappush(self.free_at, start + seconds)
        self.busy += seconds
        return start + seconds


class Replay:
    """One replay; ``run`` returns the prediction."""

    def __init__(self, setup: NodePlan, costs: WorkloadCosts, machine: Machine, seed: int = 0) -> None:
        self.scheduler = make_scheduler(setup)
        self._segments = make_segments(setup)
        self.loads: list[int] = []
        self._workload = setup.workload
        self._prepare_on_device = setup.prepare_on_device
        self._costs = costs
        self._machine = machine
        self._rng = np.random.default_rng(seed)
        self._events: list[tuple[float, int, Callable[[], list[Action]]]] = []
        self._serial = 0
        self._now = 0.0
        self._uploads = 0
        self._tiles = 0
        devices = len(machine.device_slots)
        self._storage = _Servers([0.0])
        self._disk = _Servers([0.0])
        self._cpu = _Servers([0.0] * machine.cpu_workers)
        self._copies_up = [_Servers([0.0]) for _ in range(devices)]
        self._compute = [self._cpu if slots is None else _Servers([0.0]) for slots in machine.device_slots]
        self._parse_seconds = self._compute_seconds = 0.0
        self._copies_down = [_Servers([0.0]) for _ in range(devices)]

    def run(self) -> ReplayResult:
        """Replay to the end.

        Raises
        ------
        InternalError
            If the scheduler waits for nothing: a deadlock.
        """
        self._dispatch(self.scheduler.start())
        while self._events:
            self._now, _, end = heapq.heappop(self._events)
            self._dispatch(end())
        if not self.scheduler.finished:
            raise InternalError("the replay came to a stop before its end")
        return self._result()

    def _dispatch(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case AskSegments(count):
                    self._at(self._now, partial(self._grant, count))
                case Evict():
                    pass
                case Load(span, _, origin):
                    self._load(span, origin)
                case Move(span):
                    self._at(self._now, partial(self.scheduler.on_moved, span))
                case Prepare(device, span):
                    self._prepare(device, span)
                case Upload(device, span):
                    self._uploads += 1
                    end = self._copy(self._copies_up[device], self._now, span)
                    self._at(end, partial(self.scheduler.on_uploaded, device, span))
                case Compare(device):
                    self._compare(device, action)
                case Commit(chunk):
                    self._at(self._now, partial(self.scheduler.on_committed, chunk))

    def _grant(self, most: int) -> list[Action]:
        found, last = next_segments(self._segments, most)
        return self.scheduler.on_granted(found, last=last)

    def _at(self, when: float, end: Callable[[], list[Action]]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, end))

    def _copy(self, engine: _Servers, now: float, span: int) -> float:
        n_bytes = self.scheduler.grid.span_length(span) * self._costs.item_bytes
        return engine.serve(now, n_bytes / self._machine.copy_bytes_per_second)

    def _load(self, span: int, origin: Origin) -> None:
        self.loads.append(span)
        length = self.scheduler.grid.span_length(span)
        if origin is Origin.DISK:
            end = self._disk.serve(self._now, length * self._costs.item_bytes / self._machine.disk_bytes_per_second)
            self._at(end, lambda: self.scheduler.on_loaded(span, origin=origin))
            return
        end = self._now
        for _ in range(length):
            read = self._storage.serve(self._now, self._costs.file_bytes / self._machine.storage_bytes_per_second)
            seconds = self._costs.parse.draw(self._rng, 1)
            if not self._prepare_on_device:
                seconds += self._costs.preprocess.draw(self._rng, 1)
            self._parse_seconds += seconds
            end = max(end, self._cpu.serve(read, seconds))
        self._at(end, lambda: self._on_loaded(span, length))

    def _on_loaded(self, span: int, length: int) -> list[Action]:
        if not self._prepare_on_device:
            self._keep(span, length)
        return self.scheduler.on_loaded(span)

    def _prepare(self, device: int, span: int) -> None:
        length = self.scheduler.grid.span_length(span)
        there = self._copy(self._copies_up[device], self._now, span)
        seconds = self._costs.preprocess.draw(self._rng, length)

        def upload_ended() -> list[Action]:
            self._at(self._occupy_device(device, seconds), compute_ended)
            return []

        def compute_ended() -> list[Action]:
            self._at(self._copy(self._copies_down[device], self._now, span), stored)
            return self.scheduler.on_prepared(device, span)

        def stored() -> list[Action]:
            self._keep(span, length)
            return self.scheduler.on_stored(span)

        self._at(there, upload_ended)

    def _keep(self, span: int, length: int) -> None:
        """Write a ready span to the disk level."""
        if self._machine.disk_level:
            self.scheduler.on_located(span, Origin.DISK)
            self._disk.serve(self._now, length * self._costs.item_bytes / self._machine.disk_bytes_per_second)

    def _occupy_device(self, device: int, seconds: float) -> float:
        """Return when a device has done some work more."""
        seconds /= self._machine.speed(device)
        self._compute_seconds += seconds
        return self._compute[device].serve(self._now, seconds)

    def _compare(self, device: int, action: Compare) -> None:
        rect = self.scheduler.grid.rect(action.tile)
        pairs = math.prod(rect.shape) if self._costs.whole_tiles else self._workload.count(rect)
        seconds = self._costs.tile_seconds + self._costs.compare.draw(self._rng, pairs)
        self._tiles += 1
        self._at(self._occupy_device(device, seconds), lambda: self.scheduler.on_compared(device, action.tile))

    def _result(self) -> ReplayResult:
        n, n_pairs = self._workload.n_items, self._workload.n_pairs
        factor = self.scheduler.n_loads / n
        times = self._costs.stage_times()
        devices = range(len(self._compute))
        speed = sum(self._machine.speed(d) * self._machine.servers(d) for d in devices)
        on_cpu = times.parse if self._machine.compares_on_cpu else 0.0
        item_times = replace(times, preprocess=times.preprocess + on_cpu)
        return ReplayResult(
            n_items=n,
            n_pairs=n_pairs,
            seconds=self._now,
            loads=self.scheduler.n_loads,
            load_factor=factor,
            load_factor_bound=workload_bound(self._workload, self._machine.host_slots),
            system_efficiency=system_efficiency(n, n_pairs, item_times, self._now, speed),
            modelled_seconds=compute_model_seconds(
                n,
                n_pairs,
                factor,
                times,
                workers=self._machine.cpu_workers,
                speed=speed,
                file_bytes=self._costs.file_bytes,
                storage_bytes_per_second=self._machine.storage_bytes_per_second,
            ),
            busy_seconds={
                "read": self._storage.busy,
                "parse": self._parse_seconds,
                "upload": sum(e.busy for e in self._copies_up),
                "compute": self._compute_seconds,
                "download": sum(e.busy for e in self._copies_down),
                "disk": self._disk.busy,
            },
            uploads=self._uploads,
            disk_hits=self.scheduler.fills[Origin.DISK],
            tiles=self._tiles,
            load_sequence=tuple(self.loads),
        )


def estimate_costs(costs: WorkloadCosts, machine: Machine) -> Costs:
    """Return what sizing must know of a described run."""
    copy = costs.item_bytes / machine.copy_bytes_per_second
    return Costs(
        load_seconds=max(costs.parse.mean / machine.cpu_workers, costs.file_bytes / machine.storage_bytes_per_second),
        preprocess_seconds=costs.preprocess.mean,
        compare_seconds=costs.compare.mean,
        upload_seconds=copy,
        tile_seconds=max(costs.tile_seconds, 1e-4),
    )


def describe(
    workload: Workload,
    costs: WorkloadCosts,
    machine: Machine,
    *,
    grid: Grid | None = None,
    order: str = "panel",
    chunk: int | None = None,
    pair_bytes: int = PAIR_BYTES,
) -> NodePlan:
    """Describe a run on a machine, sized as a real run would be, or cut as a real run was.

    Parameters
    ----------
    workload : Workload
    costs : WorkloadCosts
    machine : Machine
    grid : Grid, optional
        Of a run that exists.
    order : {"panel", "quadrant"}
    chunk : int, optional
        Side of a chunk, where there is no grid yet.
    pair_bytes : int
        Bytes that one pair takes in an open chunk, over all outputs.
    """
    most = max(2, workload.n_items)
    host, devices = min(machine.host_slots, most), [s and min(s, most) for s in machine.device_slots]
    own = [slots for slots in devices if slots is not None]
    grid = grid or choose_grid(
        workload,
        host,
        device_slots=min(own) if own else None,
        chunk=chunk,
        order=order,
        costs=estimate_costs(costs, machine),
    )
    rooms = tuple(None if slots is None else device_room(grid, slots) for slots in devices)
    return NodePlan(
        grid,
        workload,
        choose_layout(grid, workload, host, order, pair_bytes),
        rooms,
        machine.cpu_workers,
        order=order,
        prepare_on_device=prepares_on_device(rooms, preprocesses=costs.preprocess.mean > 0),
    )


def replay(
    costs: WorkloadCosts,
    machine: Machine,
    *,
    workload: Workload | None = None,
    grid: Grid | None = None,
    order: str = "panel",
    chunk: int | None = None,
    seed: int = 0,
) -> ReplayResult:
    """Predict a run on a described machine.

    Parameters
    ----------
    costs : WorkloadCosts
    machine : Machine
    workload : Workload, optional
        Default all pairs of ``costs.n_items``.
    grid, order, chunk
        As ``describe``.
    seed : int
        For the stage times that have a spread.

    Notes
    -----
    With the grid, the slots, the devices, the number of workers and the order of a real run, its loads are those of
    the run, in the same sequence.
    """
    workload = workload or AllPairs(costs.n_items)
    setup = describe(workload, costs, machine, grid=grid, order=order, chunk=chunk)
    return Replay(setup, costs, machine, seed).run()
