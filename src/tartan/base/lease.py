"""Leases: files that say which process holds something, renewed while it lives.

Where no kernel can tell whether a process on another machine is alive, its lease can. Ages are differences of times
that the file server gave, so that clocks of machines do not matter. A process of this machine is asked directly.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tartan.base.confined import ConfinedFolder
from tartan.base.temporary import temporary_names

LEASE_SECONDS = 60.0
"""A lease that was not renewed for this long, by a process that cannot be asked, is void."""
RENEWAL_SECONDS = 5.0
PROBE = "run.lease-now"

Holder = dict[str, Any]
"""Who holds a lease: pid, host, boot, started, and whatever else is to be said of it."""


class Lease:
    """A lease of this process, renewed on a thread of its own until it is closed.

    Parameters
    ----------
    folder : ConfinedFolder
        That the path lies in.
    path : Path
        Written by ``write``.
    every_seconds : float
        Time between renewals.

    Attributes
    ----------
    lost : bool
        Whether another process took the lease away, because this one was silent for too long.
    """

    def __init__(self, folder: ConfinedFolder, path: Path, *, every_seconds: float = RENEWAL_SECONDS) -> None:
        self.path = path
        self._folder = folder
        self.lost = False
        self._every = every_seconds
        self._inode = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="tartan-lease", daemon=True)

    def write(self, about: Mapping[str, Any] | None = None) -> None:
        """Write the lease and start to renew it.

        Raises
        ------
        FileExistsError
            If the file is there.
        """
        with self._folder.new_file(self.path) as stream:
            stream.write(encode(myself() | dict(about or {})))
            self._inode = os.fstat(stream.fileno()).st_ino
        self._thread.start()

    def renew(self) -> None:
        """Set the time of the lease to now, by the clock of its file system; take note if it is gone."""
        try:
            self.lost |= self._folder.stat(self.path).st_ino != self._inode
            if not self.lost:
                self._folder.renew(self.path)
        except FileNotFoundError:
            self.lost = True
        except OSError:  # the file server is away; it will say more when it is back
            return

    def close(self) -> None:
        """Stop renewing and remove the lease, if it is still that of this process."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.renew()
        if not self.lost:
            with contextlib.suppress(OSError):
                self._folder.remove(self.path)

    def _keep(self) -> None:
        while not self.lost and not self._ended.wait(self._every):
            self.renew()


def myself() -> Holder:
    """Return what identifies this process."""
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "boot": _boot(), "started": _started(pid)}


def is_alive(holder: Holder, age_seconds: float) -> bool:
    """Whether the holder of a lease of some age is alive, as far as can be seen from here."""
    if holder.get("host") != socket.gethostname():
        return age_seconds < LEASE_SECONDS
    if holder.get("boot") != _boot():
        return False
    try:
        return bool(holder.get("started")) and _started(int(holder["pid"])) == holder["started"]
    except (KeyError, TypeError, ValueError):  # a lease from elsewhere may say anything
        return False


def is_of_this_host(holder: Holder) -> bool:
    """Whether a holder can be asked, because its process is one of this machine."""
    return holder.get("host") == socket.gethostname()


def age_seconds(folder: ConfinedFolder, path: Path) -> float:
    """Return the age of a file by the clock of its file system, which may be on another machine."""
    return server_time(folder, path.parent) - folder.stat(path).st_mtime


def server_time(folder: ConfinedFolder, place: Path) -> float:
    """Return the time by the clock of the file system of a place; by that of this machine where it cannot be written.

    The probe that is written for it also makes network file systems list the place anew.
    """
    probe = place / f"{PROBE}-{next(temporary_names())}"
    try:
        with folder.new_file(probe) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            folder.remove(probe)


def encode(holder: Holder) -> bytes:
    """Return the contents of a lease."""
    return json.dumps(holder).encode()


def decode(data: bytes) -> Holder:
    """Return who holds a lease; empty where its contents do not say."""
    try:
        holder = json.loads(data)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


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
