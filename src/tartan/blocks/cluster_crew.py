"""The ranks of a session on several: processes that a cluster engine connects."""

from __future__ import annotations

import contextlib
import math
import queue
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.format import printable
from tartan.base.logs import logger_of
from tartan.base.machine import usable_cores
from tartan.blocks import letters
from tartan.blocks.crew import LocalCrew, default_cache_bytes, open_workers
from tartan.blocks.fetch import RangeClient, RangeServer
from tartan.blocks.node import BlockNode
from tartan.blocks.rank_devices import DeviceOptions, device_options
from tartan.blocks.spill import spill_folder
from tartan.blocks.store import BlockStore
from tartan.blocks.work import AddSpace, Command, CrewEvent, OrderFailed, PartOrigin, RankCame, RankGone, RankUnfit
from tartan.cluster import wire
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import DRIVER, Call, ClusterEngine, ClusterView
from tartan.cluster.launch import ClusterTarget, open_engine, parse_cluster
from tartan.devices import Device
from tartan.errors import ClusterError, ConfigError, TartanError, TransportError

_log = logger_of(__name__)

# By contract: as PATIENCE_SECONDS of cluster/relay.
RANK_TIMEOUT_SECONDS = 15.0
"""A rank that is silent for longer is lost."""
# By judgement: twice that of a run, since a session cannot begin with some of its ranks. No benchmark.
PATIENCE_SECONDS = 120.0
"""Longest wait for the first ranks."""
# By contract: as TICK_SECONDS of cluster/driver.
_TICK_SECONDS = 0.5


def crew_of(
    on: Any,
    host_cache: int | None,
    workers: int | None,
    folder: Path | None,
    copies: int,
    device: Any = None,
    device_cache: int | None = None,
) -> LocalCrew | ClusterCrew:
    """Open the ranks of a session: this process, those of a cluster, or those that were opened before.

    Raises
    ------
    ConfigError
        If there are fewer ranks than copies, or the devices are not understood.
    DeviceError
        If a device is not there.
    """
    opened = device if isinstance(device, Device) else None
    devices = device_options(None if opened is not None else device, device_cache, pins=host_cache is not None)
    if opened is not None and on is not None:
        raise ConfigError("an open device belongs to this process; name the devices of ranks", code="other-process")
    if on is None:
        if copies > 1:
            raise ConfigError(f"copies={copies}: there is one rank; start more with on='local:N'")
        return LocalCrew(host_cache, workers, folder, devices, opened)
    if isinstance(on, ClusterCrew) and (device is not None or device_cache is not None):
        raise ConfigError("these ranks have opened their devices already; name devices where the ranks are opened")
    crew = on if isinstance(on, ClusterCrew) else open_crew(on, host_cache, workers, folder, devices)
    n_ranks = len(crew.ranks)
    if copies > n_ranks:
        crew.close()
        raise ConfigError(f"copies={copies}: there are {n_ranks} ranks; start more, or keep fewer copies")
    return crew


def open_crew(
    on: Any,
    host_cache: int | None,
    workers: int | None,
    folder: Path | None,
    devices: DeviceOptions | None = None,
) -> ClusterCrew:
    """Start ranks, or reach those that run.

    Parameters
    ----------
    on : str, ClusterTarget or distributed.Client
        As for ``tartan.cluster.launch``.
    host_cache, workers : int or None
        Of each rank.
    folder : Path or None
        For arrays that do not fit into the memory of a rank.
    devices : DeviceOptions, optional
        Default: the CPU.

    Raises
    ------
    ConfigError
        If the cluster is not understood.
    ClusterError
        If no rank comes.
    """
    target = parse_cluster(on) if isinstance(on, str) else on
    n_local = target.n_local if isinstance(target, ClusterTarget) else 0
    place = "" if folder is None else str(folder)
    options = RankOptions(host_cache, workers, place, max(1, n_local), devices or DeviceOptions())
    run = f"blocks-{secrets.token_hex(4)}"
    return ClusterCrew(open_engine(target, run, entry=ENTRY), n_local or 1, options)


class ClusterCrew:
    """Ranks in processes of their own.

    Parameters
    ----------
    engine : context manager
        Of the driver's engine, not started yet.
    n_expected : int
        Ranks that are waited for.
    options : RankOptions
    rank_timeout_seconds : float
        A rank that is silent for longer is lost.

    Raises
    ------
    ClusterError
        If the ranks do not come.
    """

    travels = True

    def __init__(
        self,
        engine: contextlib.AbstractContextManager[ClusterEngine],
        n_expected: int,
        options: RankOptions,
        *,
        rank_timeout_seconds: float = RANK_TIMEOUT_SECONDS,
    ) -> None:
        self._options, self._timeout = options, rank_timeout_seconds
        self.room_bytes = float(options.host_cache or math.inf)
        self.device_bytes = float(options.devices.cache or math.inf)
        self.on_cpu = "cpu" in options.devices.names
        self.on_device = any(name != "cpu" for name in options.devices.names)
        shares_cores = options.n_sharing > 1 and not self.on_device
        self.n_cores = float(usable_cores()) if shares_cores else math.inf
        self._events: queue.SimpleQueue[CrewEvent] = queue.SimpleQueue()
        self._letters = letters.Letters()
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._members: dict[int, str] = {}
        self._workers: dict[int, int] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._spaces: list[AddSpace] = []
        self._looked_at = time.monotonic()
        self._is_closing = False
        self._opened = contextlib.ExitStack()
        self._engine = self._opened.enter_context(engine)
        self._client = RangeClient(self._engine.credentials)
        try:
            self._start(n_expected)
        except BaseException:
            self.close()
            raise

    def _start(self, n_expected: int) -> None:
        handlers = {
            "options": lambda call: wire.encode(self._options),
            "number": self._give_number,
            letters.PART: self._take_part,
            letters.WHOLE: self._take_letter,
        }
        self._engine.start(handlers, self._on_view)
        deadline = time.monotonic() + PATIENCE_SECONDS
        waiting: list[CrewEvent] = []
        while len(self.ranks) < n_expected:
            event = self.next_event(_TICK_SECONDS)
            if isinstance(event, RankGone):
                waiting.append(event)
            if isinstance(event, RankUnfit):
                raise event.error
            if time.monotonic() > deadline:
                raise ClusterError(f"{len(self.ranks)} of {n_expected} ranks have come within {PATIENCE_SECONDS:g} s")

    @property
    def ranks(self) -> list[int]:
        """Numbers of the live ranks."""
        with self._lock:
            return sorted(self._members)

    @property
    def processes(self) -> dict[int, str]:
        """Names of the live ranks among the members of the engine."""
        with self._lock:
            return dict(self._members)

    def n_workers(self, rank: int) -> int | None:
        """Return how many subtasks a rank runs at a time."""
        return self._workers[rank]

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def send(self, rank: int, command: Command) -> None:
        """Send a command."""
        with self._lock:
            member = self._members.get(rank)
            if isinstance(command, AddSpace) and command not in self._spaces:
                self._spaces.append(command)
        if member is not None:
            letters.post(self._engine, member, command)

    def next_event(self, timeout_seconds: float | None) -> CrewEvent | None:
        """Return what happened next."""
        self._look_for_silence()
        try:
            return self._events.get(timeout=timeout_seconds) if timeout_seconds else self._events.get_nowait()
        except queue.Empty:
            return None

    def fetch(self, rank: int, origins: list[PartOrigin], targets: list[np.ndarray]) -> None:
        """Fetch parts of pieces."""
        with self._lock:
            address = self._addresses.get(rank)
        if address is None:
            raise TransportError(f"rank {rank} is gone")
        self._client.fetch(address, origins, targets)

    def close(self) -> None:
        """End the ranks."""
        self._is_closing = True
        self._client.close()
        self._opened.close()

    # -- the engine's thread -----------------------------------------------------------------------------------------

    def _give_number(self, call: Call) -> bytes:
        with self._lock:
            return wire.encode(self._numbers.setdefault(call.sender, len(self._numbers)))

    def _take_part(self, call: Call) -> bytes:
        self._letters.part(call.sender, call.body)
        return b""

    def _take_letter(self, call: Call) -> bytes:
        found = self._letters.whole(call.sender, call.body)
        if isinstance(found, tuple):
            self._admit(call.sender, *found)
        else:
            self._events.put(found)
        return b""

    def _admit(self, member: str, rank: int, address: tuple[str, int], n_workers: int) -> None:
        """Make a rank known to the others, and the others and the spaces to it; only then it gets orders."""
        with self._lock:
            self._addresses[rank], self._workers[rank] = address, n_workers
        _log.info("rank %s has come as number %d: %d workers, listens on %s:%d", member, rank, n_workers, *address)
        self._introduce(member)
        n_sent = 0
        while True:
            with self._lock:
                spaces = self._spaces[n_sent:]
                if not spaces:
                    self._members[rank] = member
                    break
            for space in spaces:
                letters.post(self._engine, member, space)
            n_sent += len(spaces)
        self._events.put(RankCame(rank))

    def _introduce(self, *more: str) -> None:
        """Tell all ranks, and further members, where the ranks are."""
        with self._lock:
            members, peers = [*self._members.values(), *more], Peers(dict(self._addresses))
        for member in members:
            letters.post(self._engine, member, peers)

    def _on_view(self, view: ClusterView) -> None:
        if view.epoch and DRIVER not in view.members:
            for rank in self.ranks:
                self._lose(rank, view.gone.get(DRIVER, "the cluster is gone"))
            return
        gone = [(rank, member) for rank, member in self.processes.items() if member not in view.members]
        for rank, member in gone:
            self._lose(rank, view.gone.get(member, "it is gone"))
        if gone:
            self._introduce()

    def _lose(self, rank: int, reason: str) -> None:
        with self._lock:
            member = self._members.pop(rank, None)
            address = self._addresses.pop(rank, None)
        if address is not None:
            self._client.drop(address)
        if not self._is_closing:
            _log.warning("rank %s is lost: %s", member or rank, reason)
        self._events.put(RankGone(rank, reason))

    def _look_for_silence(self) -> None:
        """Give up ranks that gave no sign of life for too long."""
        now = time.monotonic()
        if now - self._looked_at < _TICK_SECONDS:
            return
        self._looked_at = now
        for member in self.processes.values():
            if self._engine.silence_seconds(member) > self._timeout:
                self._engine.expel(member, "it was silent for too long")


# One rank of a session on several, in a process of its own.

ENTRY = f"{__name__}:main"
# By judgement: as WELCOME_SECONDS of cluster/rank.
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
    engine.start({letters.PART: rank.take_part, letters.WHOLE: rank.take_letter}, rank.on_view)
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
            _log.warning("this rank cannot begin: %s", error)
            store.close()
            letters.post(engine, DRIVER, RankUnfit(number, error))
            self._over.wait(_HELLO_SECONDS)
            return
        node = BlockNode(number, store, partial(open_workers, workers), self._fetch, self._answer, lane)
        log = partial(print, file=sys.stderr)
        server = RangeServer(engine.credentials, engine.host, node.provide, log, self._throttle)
        self._node = node
        self._ready.set()
        _log.info("this rank has number %d, and listens on %s:%d", number, *server.address)
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

    def on_view(self, view: ClusterView) -> None:
        """End when the session has ended, or has given this rank up."""
        if view.epoch and (self._engine.me in view.gone or DRIVER not in view.members):
            _log.info("this rank must end: %s", view.gone.get(self._engine.me) or "the session has ended")
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
        if self._over.is_set():  # what fails because this rank ends is not a failure of an order
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
