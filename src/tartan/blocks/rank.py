"""One rank of a session on several, in a process of its own."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.format import printable
from tartan.base.machine import usable_cores
from tartan.blocks import letters
from tartan.blocks.crew import default_cache_bytes, open_workers
from tartan.blocks.fetch import RangeClient, RangeServer
from tartan.blocks.node import BlockNode
from tartan.blocks.rank_devices import DeviceOptions
from tartan.blocks.spill import spill_folder
from tartan.blocks.store import BlockStore
from tartan.blocks.work import CrewEvent, OrderFailed, PartOrigin, RankUnfit
from tartan.cluster import wire
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import DRIVER, Call, ClusterEngine, ClusterView
from tartan.errors import ClusterError, TartanError, TransportError

ENTRY = f"{__name__}:main"
_HELLO_SECONDS = 60.0


@dataclass(frozen=True)
class RankOptions:
    """What a rank must know to begin.

    Attributes
    ----------
    host_cache, workers : int or None
        As for ``Session``.
    folder : str
        For arrays that do not fit into memory; empty for the folder for temporary files.
    n_sharing : int
        Ranks on this machine.
    devices : DeviceOptions
    """

    host_cache: int | None
    workers: int | None
    folder: str
    n_sharing: int
    devices: DeviceOptions = field(default_factory=DeviceOptions)


@dataclass(frozen=True)
class Peers:
    """Where the live ranks are asked."""

    addresses: dict[int, tuple[str, int]]


def main(engine: ClusterEngine, *, throttle: Throttle | None = None) -> None:
    """Carry out the orders of a session until it ends.

    Parameters
    ----------
    engine : ClusterEngine
        Of the rank, not started yet.
    throttle : Throttle, optional
        Bounds the speed at which others get ranges from here, for benchmarks.
    """
    rank = _RankOfBlocks(engine, throttle)
    engine.start({letters.PART: rank.take_part, letters.WHOLE: rank.take_letter}, rank.viewed)
    try:
        options = wire.decode(engine.request(DRIVER, "options", timeout_seconds=_HELLO_SECONDS), RankOptions)
        with spill_folder(options.folder or None) as folder:
            rank.serve(options, folder)
    except ClusterError as error:
        print(printable(f"tartan: {engine.me}: {error}"), file=sys.stderr)


class _RankOfBlocks:
    """What ties a node to the engine of its rank."""

    def __init__(self, engine: ClusterEngine, throttle: Throttle | None = None) -> None:
        self._engine, self._throttle = engine, throttle
        self._letters = letters.Letters()
        self._over = threading.Event()
        self._ready = threading.Event()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._client: RangeClient | None = None
        self._node: BlockNode | None = None

    def serve(self, options: RankOptions, folder: Path) -> None:
        """Compute until the session ends."""
        engine = self._engine
        self._client = RangeClient(engine.credentials)
        store = BlockStore(options.host_cache or default_cache_bytes(options.n_sharing), folder)
        workers = options.workers or max(1, usable_cores() // options.n_sharing)
        number = wire.decode(engine.request(DRIVER, "number", timeout_seconds=_HELLO_SECONDS), int)
        try:
            lane = options.devices.lane(number, options.n_sharing, store.arena)
        except TartanError as error:
            store.close()
            letters.post(engine, DRIVER, RankUnfit(number, error))
            self._over.wait(_HELLO_SECONDS)
            return
        node = BlockNode(number, store, partial(open_workers, workers), self._fetch, self._answer, lane)
        log = partial(print, file=sys.stderr)
        server = RangeServer(engine.credentials, engine.host, node.provide, log, self._throttle)
        self._node = node
        self._ready.set()
        try:
            letters.post(engine, DRIVER, (number, server.address, workers if lane is None else lane.n_workers))
            self._over.wait()
        finally:
            server.close()
            self._client.close()
            node.close()

    def take_part(self, call: Call) -> bytes:
        """Take a part of a command."""
        self._letters.part(call.sender, call.body)
        return b""

    def take_letter(self, call: Call) -> bytes:
        """Take a command."""
        found: Any = self._letters.whole(call.sender, call.body)
        if isinstance(found, Peers):
            self._meet(found)
        elif self._node is not None:
            self._node.post(found)
        return b""

    def viewed(self, view: ClusterView) -> None:
        """End when the session has ended, or has given this rank up."""
        if view.epoch and (self._engine.me in view.gone or DRIVER not in view.members):
            self._over.set()

    def _meet(self, peers: Peers) -> None:
        gone = [address for rank, address in self._addresses.items() if rank not in peers.addresses]
        self._addresses = dict(peers.addresses)
        for address in gone:
            if self._client is not None:
                self._client.drop(address)

    def _fetch(self, rank: int, origins: list[PartOrigin], targets: list[np.ndarray]) -> int:
        address = self._addresses.get(rank)
        if address is None or self._client is None:
            raise TransportError(f"rank {rank} is gone")
        return self._client.fetch(address, origins, targets)

    def _answer(self, event: CrewEvent) -> None:
        if self._over.is_set():  # what fails because this rank ends is no failure of an order
            return
        try:
            letters.post(self._engine, DRIVER, _readable(event))
        except ClusterError:
            self._over.set()


def _readable(event: CrewEvent) -> CrewEvent:
    """Return an event that can be read where the classes of user code are not known."""
    if isinstance(event, OrderFailed) and not isinstance(event.error, TartanError):
        error = TartanError(f"{type(event.error).__name__}: {event.error}", code="node")
        return OrderFailed(event.rank, event.key, event.kind, error, event.traceback, event.counts)
    return event
