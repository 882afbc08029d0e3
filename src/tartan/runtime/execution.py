"""What a node is given, ready-made, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tartan.application import Application
from tartan.base.trace import Tracer
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.saves import SavePolicy
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.shares import Chunk
from tartan.core.pairs.verdict import NodeReport
from tartan.core.pairs.workload import Workload
from tartan.devices.protocol import Device
from tartan.runtime.committer import ChunkSink
from tartan.runtime.exchange import Exchange
from tartan.runtime.loader import RemoteStorage
from tartan.runtime.shipment import SegmentSource
from tartan.runtime.tasks import ItemPlan
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache
from tartan.workers.executor import Executor


class Wanted(Protocol):
    """Which pairs or triples are still to be computed."""

    workload: Workload

    def needs(self, tile: Tile) -> bool:
        """Whether a cell of a tile is to be computed."""

    def cells(self, tile: Tile) -> np.ndarray | None:
        """Return which cells of a tile are to be computed, as a boolean array of its shape; None for all."""

    def on_committed(self, chunk: tuple[int, int]) -> None:
        """Note that a chunk needs nothing any more."""


class Left(Wanted, Protocol):
    """What is left of a run.

    Attributes
    ----------
    share : collection of chunks, or None
        Those to which the execution is restricted.
    """

    @property
    def share(self) -> Collection[Chunk] | None: ...


class OtherRanks(Protocol):
    """The other ranks of a run, as far as they try what takes too long on this one."""

    def can_try(self, chunk: tuple[int, int]) -> bool:
        """Whether another rank may try the pairs of a chunk whose calls were late here."""

    def pass_on(self, chunk: tuple[int, int], why: str) -> None:
        """Leave what a chunk lacks to another rank; all else of it is committed."""


@dataclass(frozen=True)
class NodeInputs:
    """Everything that a node needs, ready-made.

    Attributes
    ----------
    source, app
        The items, and what compares them.
    outputs : mapping of str to dtype
        Named results of one pair or triple.
    both_ways : bool
        Whether (i, j) and (j, i) are two scores.
    plan : NodePlan
        Of which the node itself says what is needed of which workload, by how many workers.
    items : ItemPlan
    remaining : Wanted
    executor : Executor
    devices : sequence of Device
    sink : ChunkSink
        Gets finished chunks.
    report : callable
        Adds up what happened since the last report; raises RunFailedError if the run must stop.
    call_limit : CallLimit or None
        Longest time that one compare call may take, and one item; None: any time.
    tracer : Tracer
    disk_cache : DiskCache or None
    digest_base : bytes
        What the digest of an item in the disk level depends on, besides the item.
    cache_key : bytes or None
        Seals what the disk level must pickle; None: nothing is pickled there.
    segments : SegmentSource or None
        Where the work comes from; None: the whole order.
    exchange : Exchange or None
        Where items come from beside storage and disk.
    remote : RemoteStorage or None
        Ranks next to the data, which are asked before storage is read here.
    saves : SavePolicy or None
        When finished tiles of open chunks are saved; None: never.
    others : OtherRanks or None
        Who else may try what takes too long here.
    say : callable
        Tells the user one line.
    """

    source: Source
    app: Application
    outputs: Mapping[str, np.dtype[Any]]
    both_ways: bool
    plan: NodePlan
    items: ItemPlan
    remaining: Wanted
    executor: Executor
    devices: Sequence[Device]
    sink: ChunkSink
    report: Callable[[NodeReport], None]
    call_limit: CallLimit | None
    tracer: Tracer
    disk_cache: DiskCache | None = None
    digest_base: bytes = b""
    cache_key: bytes | None = None
    segments: SegmentSource | None = None
    exchange: Exchange | None = None
    remote: RemoteStorage | None = None
    saves: SavePolicy | None = None
    others: OtherRanks | None = None
    say: Callable[[str], None] = lambda text: None


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
    items_per_stage: dict[str, int] = field(default_factory=dict)
    """Items that each stage had, by place and stage."""
    wall_seconds: float = 0.0
    host_peak: int = 0
    result_buffer_bytes: int = 0
    device_seconds: dict[str, float] = field(default_factory=dict)
    """Where the time of what compares went, by cause; see ``DeviceTime``."""
    screened: dict[str, Any] = field(default_factory=dict)
    """Pairs that each stage of a screen decided; see ``Keeper.decided``."""
