"""The ranks of a session as the session sees them: commands out, events in, parts of pieces back."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from tartan.base.machine import memory, usable_cores
from tartan.blocks.node import BlockNode
from tartan.blocks.spill import spill_folder
from tartan.blocks.store import BlockStore
from tartan.blocks.work import Command, CrewEvent, PartOrigin
from tartan.errors import InternalError
from tartan.workers.executor import Executor
from tartan.workers.processes import ProcessExecutor
from tartan.workers.threads import ThreadExecutor

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
    """

    ranks = (0,)
    travels = False

    def __init__(self, host_cache: int | None, workers: int | None, folder: Path | None) -> None:
        self._events: queue.SimpleQueue[CrewEvent] = queue.SimpleQueue()
        self._opened = ExitStack()
        place = self._opened.enter_context(spill_folder(folder))
        self.room_bytes = float(host_cache or default_cache_bytes())
        store = BlockStore(int(self.room_bytes), place)
        self.node = BlockNode(0, store, partial(open_workers, workers or usable_cores()), _no_peer, self._events.put)

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
