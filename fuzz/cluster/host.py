"""Simulated machines: processes with clocks of their own, and what the real code asks the operating system for."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from fuzz.cluster.world import World

ROOT = Path("/simulated/run.tartan")


class Killed(BaseException):
    """Ends a process in the middle of a call, as ``kill -9`` does: nothing is cleaned up."""

    def __init__(self, process: Process | None = None) -> None:
        super().__init__()
        self.process = process


class Process:
    """One process of a world.

    Attributes
    ----------
    alive : bool
    frozen_until : float
        In the time of the world.
    skew : float
        What its clock shows beyond the time of the world.
    calls_left : int or None
        Calls to the file system until it is killed in the middle of one.
    """

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world, self.name, self.host = world, name, host
        self.pid = next(world.pids)
        self.alive = True
        self.frozen_until = self.thawed_at = 0.0
        self.skew = 0.0
        self.calls_left: int | None = None
        self._tokens = itertools.count()
        world.processes.append(self)

    @property
    def frozen(self) -> bool:
        """Whether it is stopped now."""
        return self.frozen_until > self.world.now

    def clock(self) -> float:
        """Return what its clock shows, which never goes back."""
        return self.world.now + self.skew

    def on_call(self) -> None:
        """Take note of a call to the file system; one that is to be killed ends here."""
        if not self.alive:
            raise Killed(self)
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left <= 0:
                raise Killed(self)

    def writer_name(self) -> str:
        """Return a name that no other writer has: ``HOST.PID.TOKEN``."""
        return f"{self.host}.{self.pid}.{next(self._tokens):08x}"

    def temporary_names(self) -> Iterator[str]:
        """Yield names of unfinished files."""
        return map(f"{self.writer_name()}-{{}}".format, itertools.count())

    def on_killed(self) -> None:
        """Take note that it is dead; what it had in memory is lost."""


class SystemCalls:
    """What the modules that are simulated call ``os``: calls on descriptors go to the disk of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        self._world.disk.close(descriptor)

    def ftruncate(self, descriptor: int, length: int) -> None:
        """Cut a file."""
        node = self._world.disk.opened(descriptor)
        node.data = node.data[:length]

    def pwrite(self, descriptor: int, data: bytes, at: int) -> int:
        """Write into a file."""
        self._world.disk.write(self._world.disk.opened(descriptor), data, at)
        return len(data)

    def pread(self, descriptor: int, length: int, at: int) -> bytes:
        """Read from a file."""
        return self._world.disk.opened(descriptor).data[at : at + length]

    def fstat(self, descriptor: int) -> Any:
        """Return the state of a file."""
        return self._world.disk.state_of(self._world.disk.opened(descriptor))

    def fsync(self, descriptor: int) -> None:
        """Force a file to the disk."""
        self._world.disk.force_descriptor(descriptor)

    def getpid(self) -> int:
        """Return the number of the process that runs now."""
        return self._world.current.pid


class _NoThread:
    """In place of a thread that renews a lease: the world does."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        """Do nothing."""

    def is_alive(self) -> bool:
        """Say no."""
        return False


@contextlib.contextmanager
def inhabit(world: World) -> Iterator[None]:
    """Let the real code of locks, leases and writers run in a world, until the block ends."""
    from tartan.base import files, lock
    from tartan.store import writers

    def start_time(pid: int) -> list[str]:
        """Return what /proc says of a process of this machine; empty where there is none."""
        for one in world.processes:
            if one.pid == pid and one.host == world.current.host and one.alive:
                return ["T" if one.frozen else "S", *["0"] * 18, str(pid)]
        return []

    slept = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: world.now + slept[0],
        sleep=lambda seconds: slept.__setitem__(0, slept[0] + seconds),
        time=lambda: world.server_now(),
    )
    replaced: list[tuple[Any, str, Any]] = [
        (lock, "ConfinedFolder", lambda path: world.current_folder()),
        (lock, "os", SystemCalls(world)),
        (lock, "time", clock),
        (lock, "socket", SimpleNamespace(gethostname=lambda: world.current.host)),
        (lock, "threading", SimpleNamespace(Thread=_NoThread, Event=threading.Event)),
        (lock, "writer_name", lambda: world.current.writer_name()),
        (lock, "temporary_names", lambda: world.current.temporary_names()),
        (lock, "_boot", lambda: world.boot_of(world.current.host)),
        (lock, "_read_process", start_time),
        (files, "temporary_names", lambda: world.current.temporary_names()),
        (writers, "ConfinedFolder", lambda path: world.current_folder()),
    ]
    with contextlib.ExitStack() as stack:
        for module, name, value in replaced:
            stack.enter_context(mock.patch.object(module, name, value))
        yield
