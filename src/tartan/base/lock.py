"""Lock a run folder, so that one process at a time writes to it.

The lock is an advisory kernel lock (flock) on a file of the folder; the kernel drops it when the process dies, for
whatever reason. The descriptor is close-on-exec, so workers never inherit it. Where the file system refuses kernel
locks, a lease file takes its place: it names its holder and is renewed while the run is alive; a lease whose
holder is dead (same machine) or has not renewed it for a minute (another machine) is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tartan.base.files import disk_errors
from tartan.base.temporary import temporary_names
from tartan.errors import StoreError

FILE_NAME = "run.lock"
LEASE_NAME = "run.lease"
LEASE_SECONDS = 60.0
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class FolderLock:
    """Exclusive right to write to one folder; a context manager.

    Parameters
    ----------
    folder : Path
    flock : callable
        The kernel's lock, replaced in tests.

    Raises
    ------
    StoreError
        On entering, if another holder has it (code "locked", naming its process), or the folder cannot be
        written.
    """

    def __init__(self, folder: Path, *, flock: Callable[[int, int], None] = fcntl.flock) -> None:
        self._folder = folder
        self._flock = flock
        self._descriptor: int | None = None
        self._leased = False

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None or self._leased

    def __enter__(self) -> FolderLock:
        with disk_errors(self._folder):
            descriptor = os.open(self._folder / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)  # closing drops the kernel lock
            self._descriptor = None
        if self._leased:
            self._leased = False
            with contextlib.suppress(FileNotFoundError):
                (self._folder / LEASE_NAME).unlink()

    def renew(self) -> None:
        """Renew the lease, where one is used; call it every few seconds."""
        if self._leased:
            os.utime(self._folder / LEASE_NAME)

    def _lock(self, descriptor: int) -> None:
        try:
            self._flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _locked(self._folder, _decode(os.pread(descriptor, 4096, 0))) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            self._lease()
            os.close(descriptor)
            return
        with contextlib.suppress(OSError):  # the holder's name is a courtesy; the disk may be full
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _encode(_myself()), 0)
        self._descriptor = descriptor

    def _lease(self) -> None:
        path = self._folder / LEASE_NAME
        for _ in range(2):  # the second time after a dead holder's lease is gone
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                self._drop_dead_lease(path)
                continue
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_encode(_myself()))
            self._leased = True
            return
        raise _locked(self._folder, _decode(path.read_bytes()))

    def _drop_dead_lease(self, path: Path) -> None:
        """Remove the lease if its holder is dead; rename first, so that only one of two contenders wins."""
        try:
            before = path.read_bytes()
            holder = _decode(before)
            if _alive(holder, _age_seconds(path)):
                raise _locked(self._folder, holder)
            grave = path.with_name(f"{LEASE_NAME}-{next(temporary_names())}")
            path.rename(grave)
            if grave.read_bytes() != before:  # another process was faster, and this is its lease: give it back
                os.link(grave, path)
            grave.unlink()
        except FileNotFoundError:
            return


def is_held(folder: Path) -> bool:
    """Return whether a living process holds the lock of a folder, without touching the lock.

    Of a holder on another machine only a lease tells that it is alive.
    """
    for name, here in ((FILE_NAME, True), (LEASE_NAME, False)):
        with contextlib.suppress(OSError):
            holder = _decode((folder / name).read_bytes())
            if _alive(holder, 2 * LEASE_SECONDS if here else _age_seconds(folder / name)):
                return True
    return False


def _locked(folder: Path, holder: dict[str, Any]) -> StoreError:
    pid = holder.get("pid", "unknown")
    return StoreError(
        f"{folder} is in use by process {pid} on {holder.get('host', 'this machine')}; wait for it, or stop it",
        code="locked",
        context={"path": str(folder), **holder},
        retryable=True,
    )


def _myself() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "boot": _boot(), "started": _started(pid)}


def _alive(holder: dict[str, Any], age_seconds: float) -> bool:
    """Tell whether the holder of a lease is alive, as far as can be seen from here."""
    if holder.get("host") != socket.gethostname():
        return age_seconds < LEASE_SECONDS
    if holder.get("boot") != _boot():
        return False
    return bool(holder.get("started")) and _started(int(holder["pid"])) == holder["started"]


def _age_seconds(path: Path) -> float:
    """Return the age of a file by the clock of its file system, which may be on another machine."""
    probe = path.with_name(f"{LEASE_NAME}-now-{next(temporary_names())}")
    probe.touch()
    try:
        return probe.stat().st_mtime - path.stat().st_mtime
    finally:
        probe.unlink()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the start time of a process, "" if there is none: its id alone may have been reused."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _encode(holder: dict[str, Any]) -> bytes:
    return json.dumps(holder).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        holder = json.loads(data)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}
