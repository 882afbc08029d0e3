"""What an execution of a run needs, ready-made, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tartan.base.progress import Progress
from tartan.base.trace import Tracer
from tartan.core.cache import Room
from tartan.core.grid import Grid
from tartan.core.sizing import Layout
from tartan.devices.protocol import Device
from tartan.runtime.remaining import Remaining
from tartan.runtime.tasks import LoadTask
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache
from tartan.store.folder import RunFolder
from tartan.workers.executor import Executor

__all__ = ["Execution", "NodeStats"]


@dataclass
class Execution:
    """Everything that one execution needs, ready-made.

    Attributes
    ----------
    folder : RunFolder
        Locked for writing.
    grid : Grid
    remaining : Remaining
    layout : Layout
    task : LoadTask
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
    item_seconds : float
        Expected time to load one item.
    flushed : callable
        Called from time to time, on another thread: whoever keeps statistics writes them down.
    """

    folder: RunFolder
    source: Source
    app: Any
    grid: Grid
    remaining: Remaining
    layout: Layout
    task: LoadTask
    substitute: Any
    executor: Executor
    devices: Sequence[Device]
    device_rooms: Sequence[Room | None]
    host_bytes: int
    span_bytes: Callable[[int], int] | None
    order: str
    on_error: str
    max_failures: int | None
    timeout_seconds: float | None
    tracer: Tracer
    progress: Progress
    disk_cache: DiskCache | None = None
    digest_base: bytes = b""
    item_seconds: float = 0.0
    flushed: Callable[[], None] = lambda: None


@dataclass
class NodeStats:
    """What one execution did."""

    loads: int = 0
    parses: int = 0
    disk_hits: int = 0
    host_hits: int = 0
    uploads: int = 0
    pairs_computed: int = 0
    bytes_per_level: dict[str, int] = field(default_factory=dict)
    seconds_per_stage: dict[str, float] = field(default_factory=dict)
    wall_seconds: float = 0.0
    host_peak: int = 0
    result_buffer_bytes: int = 0
