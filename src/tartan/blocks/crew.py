"""The ranks of a session as the session sees them: commands out, events in, parts of pieces back."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from tartan.base.machine import memory, usable_cores
from tartan.blocks.node import BlockNode
from tartan.blocks.rank_devices import DeviceOptions, open_lane
from tartan.blocks.spill import spill_folder
from tartan.blocks.store import BlockStore
from tartan.blocks.work import Command, CrewEvent, PartOrigin
from tartan.devices import Device
from tartan.errors import ConfigError, InternalError
from tartan.workers.executor import Executor
from tartan.workers.processes import ProcessExecutor
from tartan.workers.threads import ThreadExecutor

# By judgement: functions allocate about as much as their subtasks read and write. No benchmark.
_SHARE_OF_MEMORY = 0.5


class BlockCrew(Protocol):
    """The ranks of a session."""

    @property
    def ranks(self) -> Sequence[int]:
        """Return the numbers of those that live."""

    @property
    def room_bytes(self) -> float:
        """Bytes for arrays on each rank; infinity where that is not known here."""

    @property
    def device_bytes(self) -> float:
        """Bytes for arrays on the device of each rank; infinity where that is the CPU, or not known here."""

    @property
    def on_cpu(self) -> bool:
        """Whether a rank calls functions on its CPU only."""

    @property
    def on_device(self) -> bool:
        """Whether a rank has a device that is not the CPU."""

    @property
    def n_cores(self) -> float:
        """Cores that all ranks share; infinity where each has its own, or that is not known here."""

    def n_workers(self, rank: int) -> int | None:
        """Return how many subtasks a rank runs at a time; None where it may have all orders at once."""

    def now(self) -> float:
        """Return the time in seconds, of the clock that events come by."""

    @property
    def travels(self) -> bool:
        """Whether functions and sources leave this process for good."""

    def send(self, rank: int, command: Command) -> None:
        """Send a command; nothing happens where the rank is lost."""

    def next_event(self, timeout_seconds: float | None) -> CrewEvent | None:
        """Return what happened next; None where nothing did in time."""

    def fetch(self, rank: int, origins: list[PartOrigin], targets: list[np.ndarray]) -> None:
        """Fill arrays with parts of pieces that a rank has.

        Raises
        ------
        TransportError
            If it does not have them.
        """

    def close(self) -> None:
        """End the ranks."""


class LocalCrew:
    """One rank, in this process.

    Parameters
    ----------
    host_cache : int or None
        Bytes for arrays; default: half of the free memory.
    workers : int or None
        Subtasks at a time; default: cores.
    folder : Path or None
        For arrays that do not fit; default: that for temporary files.
    devices : DeviceOptions
    device : Device, optional
        An open one in place of that of the options; owned by the crew from now on.
    """

    ranks = (0,)
    travels = False
    n_cores = math.inf

    def __init__(
        self,
        host_cache: int | None,
        workers: int | None,
        folder: Path | None,
        devices: DeviceOptions | None = None,
        device: Device | None = None,
    ) -> None:
        devices = devices or DeviceOptions()
        if len(devices.names) > 1:
            raise ConfigError(
                f"one rank computes on one device, and there are {len(devices.names)}: {', '.join(devices.names)}; "
                f"start a rank for each with --on local:{len(devices.names)}",
                context={"option": "--device"},
            )
        self._events: queue.SimpleQueue[CrewEvent] = queue.SimpleQueue()
        self.room_bytes = float(host_cache or default_cache_bytes())
        with ExitStack() as opened:
            place = opened.enter_context(spill_folder(folder))
            store = BlockStore(int(self.room_bytes), place)
            try:
                lane = devices.lane(0, 1, store.arena) if device is None else open_lane(device, devices, store.arena)
            except BaseException:
                store.close()
                raise
            self._opened = opened.pop_all()
        self.device_bytes = math.inf if lane is None else float(lane.n_bytes)
        self.on_cpu, self.on_device = lane is None, lane is not None
        open_executor = partial(open_workers, workers or usable_cores())
        self.node = BlockNode(0, store, open_executor, _no_peer, self._events.put, lane)

    def n_workers(self, rank: int) -> int | None:
        """Return None: orders cost nothing here, and nobody else could take them."""
        return None

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def send(self, rank: int, command: Command) -> None:
        """Send a command."""
        self.node.post(command)

    def next_event(self, timeout_seconds: float | None) -> CrewEvent | None:
        """Return what happened next."""
        try:
            return self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def fetch(self, rank: int, origins: list[PartOrigin], targets: list[np.ndarray]) -> None:
        """Copy parts of pieces."""
        for origin, target in zip(origins, targets, strict=True):
            array, release = self.node.provide(origin.key, origin.box)
            target[...] = array
            release()

    def close(self) -> None:
        """End the workers."""
        self.node.close()
        self._opened.close()


def default_cache_bytes(n_sharing: int = 1) -> int:
    """Return how many bytes each of several ranks on this machine takes for arrays."""
    return max(1 << 26, int(memory().available_bytes * _SHARE_OF_MEMORY) // n_sharing)


def open_workers(n_workers: int, *, in_processes: bool) -> Executor:
    """Start workers with one thread of BLAS each."""
    if in_processes:
        return ProcessExecutor(None, n_workers)
    return ThreadExecutor(None, n_workers, bounds_blas=True)


def _no_peer(rank: int, origins: list[PartOrigin], targets: list[np.ndarray]) -> int:
    raise InternalError(f"a session of one rank asks rank {rank}")
