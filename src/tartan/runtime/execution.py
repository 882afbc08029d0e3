"""What a node is given, ready-made, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tartan.application import Application
from tartan.base.trace import Tracer
from tartan.core.cache import Room
from tartan.core.grid import Grid, Tile
from tartan.core.sizing import Layout
from tartan.core.verdict import NodeReport
from tartan.core.workload import Workload
from tartan.devices.protocol import Device
from tartan.runtime.committer import TripleCommitter
from tartan.runtime.exchange import Exchange
from tartan.runtime.loader import RemoteStorage
from tartan.runtime.segments import SegmentSource
from tartan.runtime.sink import ChunkSink
from tartan.runtime.tasks import ItemPlan
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache
from tartan.workers.executor import Executor


class Wanted(Protocol):
    """Which pairs are still to be computed."""

    workload: Workload

    def needs(self, tile: Tile) -> bool:
        """Whether a pair of a tile is to be computed."""

    def pairs(self, tile: Tile) -> np.ndarray | None:
        """Return which pairs of a tile are to be computed, as a boolean array of its shape; None for all."""

    def committed(self, chunk: tuple[int, int]) -> None:
        """Note that a chunk needs nothing any more."""


@dataclass(frozen=True)
class Execution:
    """Everything that a node needs, ready-made.

    Attributes
    ----------
    source, app
        The items, and what compares them.
    outputs : mapping of str to dtype
        Named results of one pair.
    both_ways : bool
        Whether (i, j) and (j, i) are two scores.
    grid : Grid
    remaining : Wanted
    layout : Layout
    order : {"panel", "quadrant"}
    item_plan : ItemPlan
    substitute : object
        A good item, ready to compare, that takes the place of those that fail on a device.
    executor : Executor
    devices : sequence of Device
    device_rooms : sequence of Room or None
        Slots of each device with memory of its own.
    host_bytes : int
        Size of the host arena.
    span_bytes : callable or None
        Expected bytes of a span, for items of unequal size.
    sink : ChunkSink or TripleCommitter
        Gets finished chunks.
    report : callable
        Adds up what happened since the last report; raises RunFailedError if the run must stop.
    timeout_seconds : float or None
        Longest time that one item, or one compare call, may take.
    tracer : Tracer
    disk_cache : DiskCache or None
    digest_base : bytes
        What the digest of an item in the disk level depends on, besides the item.
    cache_key : bytes or None
        Seals what the disk level must pickle; None: nothing is pickled there.
    item_seconds : float
        Expected time to load one item.
    segments : SegmentSource or None
        Where the work comes from; None: the whole order.
    exchange : Exchange or None
        Where items come from beside storage and disk.
    remote : RemoteStorage or None
        Ranks next to the data, which are asked before storage is read here.
    """

    source: Source
    app: Application
    outputs: Mapping[str, np.dtype[Any]]
    both_ways: bool
    grid: Grid
    remaining: Wanted
    layout: Layout
    order: str
    item_plan: ItemPlan
    substitute: Any
    executor: Executor
    devices: Sequence[Device]
    device_rooms: Sequence[Room | None]
    host_bytes: int
    span_bytes: Callable[[int], int] | None
    sink: ChunkSink | TripleCommitter
    report: Callable[[NodeReport], None]
    timeout_seconds: float | None
    tracer: Tracer
    disk_cache: DiskCache | None = None
    digest_base: bytes = b""
    cache_key: bytes | None = None
    item_seconds: float = 0.0
    segments: SegmentSource | None = None
    exchange: Exchange | None = None
    remote: RemoteStorage | None = None


@dataclass
class NodeStats:
    """What one execution did."""

    loads: int = 0
    parses: int = 0
    disk_hits: int = 0
    host_hits: int = 0
    uploads: int = 0
    pairs_computed: int = 0
    bytes_between_ranks: int = 0
    bytes_per_level: dict[str, int] = field(default_factory=dict)
    seconds_per_stage: dict[str, float] = field(default_factory=dict)
    wall_seconds: float = 0.0
    host_peak: int = 0
    result_buffer_bytes: int = 0
