"""Lock a run folder: for one process alone, or for several writers of one run.

The lock is an advisory kernel lock (flock) on a file of the folder, exclusive or shared; the kernel drops it when the
process dies, for whatever reason. The descriptor is close-on-exec, so workers never inherit it. Where the file system
refuses kernel locks, leases take its place: one file ``run.lease`` of the process that is alone, one file of each of
several writers. A lease whose holder is dead (same machine) or has not renewed it for a minute (another machine) is
void.

Each of several writers has a folder of its own, ``writers/HOST.PID.TOKEN``, with its lease and its unfinished files.
The lease names it to others even where the kernel lock decides. The process that holds the folder alone may remove the
folders of writers that have gone: one that was only silent can then publish nothing, because its files are not there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.base.format import name_some
from tartan.base.json_input import parse_json
from tartan.base.temporary import temporary_names, writer_name
from tartan.errors import StoreError

FILE_NAME = "run.lock"
LEASE_NAME = "run.lease"
EPOCH_NAME = "run.epoch"
WRITERS_NAME = "writers"
WRITER_LEASE_NAME = "lease"
# By judgement: who creates or closes a folder holds it for moments, on a network file system for seconds.
# bench cluster_parts starts four at once.
JOIN_SECONDS = 10.0
# By judgement: not felt, and 20 looks a second at one file. No benchmark.
_JOIN_POLL_SECONDS = 0.05
_STOPPED, _DEAD = "Tt", "ZX"
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_JOINING = {"joining": True}

Flock = Callable[[int, int], None]


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
        On entering, if other holders have it (code "locked", naming their processes), or the folder cannot be
        written.
    """

    def __init__(self, folder: Path, *, flock: Flock = fcntl.flock) -> None:
        self._folder = ConfinedFolder(folder)
        self._flock = flock
        self._descriptor: int | None = None
        self._lease: Lease | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None or self._lease is not None

    @property
    def lost(self) -> bool:
        """Whether the lease of this object was taken over, because its process was silent for too long."""
        return self._lease is not None and self._lease.lost

    def __enter__(self) -> FolderLock:
        self._descriptor = _kernel_lock(self._folder, fcntl.LOCK_EX, self._flock)
        if self._descriptor is None:
            self._take_lease()
            return self
        with contextlib.suppress(OSError):  # the holder's name is a courtesy; the disk may be full
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, encode(myself()), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)  # closing drops the kernel lock
            self._descriptor = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def renew(self) -> None:
        """Renew the lease now, where one is used; it is renewed every few seconds besides."""
        if self._lease is not None:
            self._lease.renew()

    def _take_lease(self) -> None:
        lease = _folder_lease(self._folder)
        try:
            living = _list_living_writers(self._folder)
            if living:
                raise _make_locked_error(self._folder.path, living)
        except BaseException:
            lease.close()
            raise
        self._lease = lease


class SharedLock:
    """The right to write to one folder together with other writers of a group; a context manager.

    Parameters
    ----------
    folder : Path
    group : str
        Writers of other groups are refused while one of this group lives.
    about : mapping, optional
        What else the lease says of this writer; where it has ``lease_seconds``, it is renewed three times in these.
    flock : callable
        The kernel's lock, replaced in tests.
    name : str, optional
        Of the writer; default: a new one.

    Attributes
    ----------
    place : Path
        The folder of this writer, for its unfinished files and its logs. What is left in it when the block ends stays.

    Raises
    ------
    StoreError
        On entering, if a process holds the folder alone or a writer of another group is alive (code "locked", naming
        the process), or the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        group: str,
        about: Mapping[str, Any] | None = None,
        *,
        flock: Flock = fcntl.flock,
        name: str | None = None,
    ) -> None:
        self.place = folder / WRITERS_NAME / (name or writer_name())
        self._folder = ConfinedFolder(folder)
        self._group = group
        self._about = {"group": group, **(about or {})}
        self._flock = flock
        self._descriptor: int | None = None
        self._lease: Lease | None = None

    @property
    def lost(self) -> bool:
        """Whether another process took the folder of this writer away, because it was silent for too long."""
        return self._lease is not None and self._lease.lost

    def __enter__(self) -> SharedLock:
        self._descriptor = _kernel_lock(self._folder, fcntl.LOCK_SH, self._flock)
        try:
            if self._descriptor is not None:
                self._register()
            else:
                with _join_alone(self._folder):
                    self._register()
            self._refuse_other_groups()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def renew(self) -> None:
        """Renew the lease now; it is renewed every few seconds besides."""
        if self._lease is not None:
            self._lease.renew()

    def _register(self) -> None:
        every = min(RENEWAL_SECONDS, self._about.get("lease_seconds", RENEWAL_SECONDS) / 3)
        lease = Lease(self._folder, self.place / WRITER_LEASE_NAME, every_seconds=every)
        with disk_errors(self.place):
            self._folder.make_parents(self.place)
            try:
                self._folder.make_folder(self.place)
            except FileExistsError:
                raise _make_named_twice_error(self._folder.path, self.place.name) from None
            lease.write(self._about)
        self._lease = lease

    def _refuse_other_groups(self) -> None:
        # One that is about to write its lease has no group yet; it will see the lease of this one.
        others = [one for one in _list_living_writers(self._folder) if one.get("group") not in (None, self._group)]
        if others:
            raise _make_locked_error(self._folder.path, others)

    def _leave(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None
            with contextlib.suppress(OSError):  # something is left in it
                self._folder.remove_folder(self.place)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def list_living_writers(folder: Path) -> list[Holder]:
    """Return who of several writers of a folder is alive, as far as can be seen from here, in order of names."""
    return _list_living_writers(ConfinedFolder(folder))


def is_held(folder: Path) -> bool:
    """Return whether a living process holds the lock of a folder, alone or with others, without touching the lock.

    Of a holder on another machine only a lease tells that it is alive.
    """
    confined = ConfinedFolder(folder)
    for name, here in ((FILE_NAME, True), (LEASE_NAME, False)):
        with contextlib.suppress(OSError, StoreError):
            holder = decode(confined.read(folder / name))
            if is_alive(holder, 2 * LEASE_SECONDS if here else age_seconds(confined, folder / name)):
                return True
    return bool(list_living_writers(folder))


def _list_living_writers(folder: ConfinedFolder) -> list[Holder]:
    return [holder for holder, age in _writers(folder) if is_alive(holder, age)]


class FoundWriter(NamedTuple):
    """One of several writers that has not left: what its lease says, and for how many seconds it was not renewed."""

    name: str
    holder: Holder
    age_seconds: float


def find_writers(folder: Path) -> list[FoundWriter]:
    """Return who is or was one of several writers of a folder and has not left, in order of names."""
    confined = ConfinedFolder(folder)
    names = [name for name, _ in confined.entries(folder / WRITERS_NAME)]
    now, found = server_time(confined, folder / WRITERS_NAME) if names else 0.0, []
    for name in names:
        with contextlib.suppress(OSError):
            lease = folder / WRITERS_NAME / name / WRITER_LEASE_NAME
            holder = decode(confined.read(lease))
            found.append(FoundWriter(name, holder, max(0.0, now - confined.stat(lease).st_mtime)))
    return found


def read_holder(folder: Path) -> Holder:
    """Return who says that it holds a folder alone; empty where nobody does."""
    confined = ConfinedFolder(folder)
    for name in (FILE_NAME, LEASE_NAME):
        with contextlib.suppress(OSError):
            if holder := decode(confined.read(folder / name)):
                return holder
    return {}


def read_epoch(folder: Path) -> int:
    """Return how often the folder was taken from writers that were silent; 0 where never."""
    with contextlib.suppress(OSError):
        epoch = decode(ConfinedFolder(folder).read(folder / EPOCH_NAME)).get("epoch")
        return epoch if isinstance(epoch, int) else 0
    return 0


def take_from_silent(folder: Path, silent_seconds: float, *, flock: Flock = fcntl.flock) -> int:
    """Take a folder from several writers that hold it and are all silent: raise its epoch, and void lock and leases.

    A kernel lock stays with its process, which may be stopped, or on a machine that is cut off: so a new file takes
    the place of the locked one. What the old holders still write goes to files that are removed, or is refused by the
    epoch. Of several processes that do this at a time one is first, and the others find its lock.

    Parameters
    ----------
    folder : Path
    silent_seconds : float
        Every writer must have been silent for so long.
    flock : callable
        The kernel's lock, replaced in tests.

    Returns
    -------
    int
        The epoch from now on.

    Raises
    ------
    StoreError
        If one of them is not silent, or another process holds the folder (code "locked").
    """
    confined = ConfinedFolder(folder)
    with disk_errors(folder):
        fence = confined.open(folder / EPOCH_NAME, os.O_RDWR | os.O_CREAT)
    try:
        try:
            flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _make_locked_error(folder, [decode(os.pread(fence, 4096, 0)) | {"what": "takes it over"}]) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:  # without kernel locks the leases decide between two of them
                raise
        writers = find_writers(folder)
        awake = [one.holder for one in writers if one.age_seconds < silent_seconds]
        alone = _find_alone(confined, flock)
        if alone:
            awake.append(alone)
        if awake or not writers:
            raise _make_locked_error(folder, awake or [read_holder(folder)])
        epoch = read_epoch(folder) + 1
        said = encode(myself() | {"epoch": epoch})
        with disk_errors(folder):
            os.pwrite(fence, said, 0)
            os.ftruncate(fence, len(said))
            os.fsync(fence)
            fresh = folder / f"{FILE_NAME}-{next(temporary_names())}"
            confined.new_file(fresh).close()
            confined.move(fresh, folder / FILE_NAME)
            for one in writers:
                confined.remove(folder / WRITERS_NAME / one.name / WRITER_LEASE_NAME, missing_ok=True)
        return epoch
    finally:
        os.close(fence)


def _find_alone(folder: ConfinedFolder, flock: Flock) -> Holder:
    """Return who holds a folder alone now; empty where nobody does.

    What ``run.lock`` says stays when its holder is killed. Of a process of another machine the lock itself tells: it is
    shared where only several writers hold it, and free where none does.
    """
    with contextlib.suppress(OSError):
        lease = decode(folder.read(folder.path / LEASE_NAME))
        if lease and is_alive(lease, age_seconds(folder, folder.path / LEASE_NAME)):
            return lease
    try:
        descriptor = folder.open(folder.path / FILE_NAME, os.O_RDWR)
    except FileNotFoundError:
        return {}
    try:
        holder = decode(os.pread(descriptor, 4096, 0))
        if holder and is_of_this_host(holder):
            return holder if is_alive(holder, 0.0) else {}
        flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return holder or {"what": "it has not said who it is"}
    except OSError as error:
        if error.errno not in _UNSUPPORTED:  # without kernel locks the leases have told
            raise
    finally:
        os.close(descriptor)
    return {}


def _kernel_lock(folder: ConfinedFolder, kind: int, flock: Flock) -> int | None:
    """Take the kernel lock; return its descriptor, or None where the file system has no such locks."""
    while True:
        descriptor = _lock_file(folder, kind, flock)
        if descriptor is None or _is_file_of_lock(folder, descriptor):
            return descriptor
        os.close(descriptor)  # the folder was taken over meanwhile, and another file is its lock


def _is_file_of_lock(folder: ConfinedFolder, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(folder.path / FILE_NAME), os.fstat(descriptor))
    except OSError:  # the folder is being removed: whoever writes to it learns that
        return True


def _lock_file(folder: ConfinedFolder, kind: int, flock: Flock) -> int | None:
    with disk_errors(folder.path):
        descriptor = folder.open(folder.path / FILE_NAME, os.O_RDWR | os.O_CREAT)
    try:
        flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = decode(os.pread(descriptor, 4096, 0))
        os.close(descriptor)
        raise _make_locked_error(folder.path, _stragglers(folder) or [holder]) from None
    except OSError as error:
        os.close(descriptor)
        if error.errno not in _UNSUPPORTED:
            raise
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _folder_lease(folder: ConfinedFolder, about: Mapping[str, Any] | None = None) -> Lease:
    """Write the lease of the process that is alone, over one whose holder is dead."""
    path = folder.path / LEASE_NAME
    for _ in range(2):  # the second time after a dead holder's lease is gone
        lease = Lease(folder, path)
        with disk_errors(folder.path), contextlib.suppress(FileExistsError):
            lease.write(about)
            return lease
        _drop_dead_lease(folder, path)
    raise _make_locked_error(folder.path, [decode(folder.read(path))])


def _drop_dead_lease(folder: ConfinedFolder, path: Path) -> None:
    """Remove the lease if its holder is dead; rename first, so that only one of two contenders wins."""
    try:
        before = folder.read(path)
        holder = decode(before)
        if is_alive(holder, age_seconds(folder, path)):
            raise _make_locked_error(folder.path, [holder])
        grave = path.with_name(f"{LEASE_NAME}-{next(temporary_names())}")
        folder.move(path, grave)
        if folder.read(grave) != before:  # another process was faster, and this is its lease: give it back
            folder.link(grave, path)
        folder.remove(grave)
    except FileNotFoundError:
        return


@contextlib.contextmanager
def _join_alone(folder: ConfinedFolder) -> Iterator[None]:
    """Be alone for a moment, to become one of several; wait for others that do the same."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            lease = _folder_lease(folder, _JOINING)
            break
        except StoreError as error:
            if not error.context.get("joining") or time.monotonic() > deadline:
                raise
            time.sleep(_JOIN_POLL_SECONDS)
    try:
        yield
    finally:
        lease.close()


def _writers(folder: ConfinedFolder) -> list[tuple[Holder, float]]:
    """Return who is or was one of several writers and has not left, each with the age of its lease."""
    place = folder.path / WRITERS_NAME
    names = [name for name, _ in folder.entries(place)]
    if not names:
        return []
    now, found = server_time(folder, place), []
    for name in names:
        with contextlib.suppress(OSError):
            lease = place / name / WRITER_LEASE_NAME
            found.append((decode(folder.read(lease)), now - folder.stat(lease).st_mtime))
    return found


def _stragglers(folder: ConfinedFolder) -> list[Holder]:
    """Return the writers that may hold the kernel lock: the living ones, else the silent ones of other machines."""
    writers = _writers(folder)
    living = [holder for holder, age in writers if is_alive(holder, age)]
    return living or [holder for holder, _ in writers if not is_of_this_host(holder)]


def _make_locked_error(folder: Path, holders: list[Holder]) -> StoreError:
    named = name_some([_name_holder(holder) for holder in holders])
    return StoreError(
        f"{folder} is in use by {named}; wait for {'it' if len(holders) == 1 else 'them'}, or stop "
        f"{'it' if len(holders) == 1 else 'them'}",
        code="locked",
        context={"path": str(folder), **holders[0]},
        retryable=True,
    )


def _make_named_twice_error(folder: Path, name: str) -> StoreError:
    return StoreError(
        f"{folder}: a writer of the name {name} is there already; give each writer a name of its own",
        code="name-taken",
        context={"path": str(folder), "name": name},
    )


def _name_holder(holder: Holder) -> str:
    what = f" ({holder['what']})" if holder.get("what") else ""
    return f"process {holder.get('pid', 'unknown')} on {holder.get('host', 'this machine')}{what}"


# Leases: files that say which process holds something, renewed while it lives.
#
# Where no kernel can tell whether a process on another machine is alive, its lease can. Ages are differences of times
# that the file server gave, so that clocks of machines do not matter. A process of this machine is asked directly.

# By arithmetic: twelve renewals; attributes are cached for up to 60 s by NFS (acregmax), so a living writer's may look
# a minute old.
LEASE_SECONDS = 60.0
"""A lease that was not renewed for this long, by a process that cannot be asked, is void."""
# By judgement: one small write on a shared file system every five seconds and writer. No benchmark.
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
        said, stream = encode(myself() | dict(about or {})), self._folder.new_file(self.path)
        try:
            with stream:
                stream.write(said)
                self._inode = os.fstat(stream.fileno()).st_ino
        except OSError:
            with contextlib.suppress(OSError):  # one that says nothing would keep others out for a minute
                self._folder.remove(self.path)
            raise
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
    return {"pid": pid, "host": socket.gethostname(), "boot": _boot(), "started": _read_start_time(pid)}


def is_alive(holder: Holder, age_seconds: float) -> bool:
    """Whether the holder of a lease of some age is alive, as far as can be seen from here."""
    if holder.get("host") != socket.gethostname():
        return age_seconds < LEASE_SECONDS
    if holder.get("boot") != _boot():
        return False
    try:
        return bool(holder.get("started")) and _read_start_time(int(holder["pid"])) == holder["started"]
    except (KeyError, TypeError, ValueError):  # a lease from elsewhere may say anything
        return False


def find_fate(holder: Holder) -> Literal["gone", "stopped", "runs", "elsewhere"]:
    """Return what can be seen of the process that holds a lease: of this machine whether it is there, and runs."""
    if not is_of_this_host(holder):
        return "elsewhere"
    if not is_alive(holder, 0.0):
        return "gone"
    state = next(iter(_read_process(int(holder["pid"]))), _DEAD)
    return "gone" if state in _DEAD else "stopped" if state in _STOPPED else "runs"


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
        holder = parse_json(data)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read_start_time(pid: int) -> str:
    """Return the start time of a process, "" if there is none: its id alone may have been reused."""
    return next(iter(_read_process(pid)[19:]), "")


def _read_process(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
