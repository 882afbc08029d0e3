"""Write files that are whole or absent: temporary name, then rename; fsync later, many at once.

Every file of a run folder is written here. A file is first written under ``tmp/`` of the folder, on the same
file system, and then renamed to its place, so that a reader sees the old bytes or the new ones, never a part.
A killed process leaves files behind in ``tmp/`` only. Renames survive the death of the process; ``sync``
makes them survive a power cut. No link inside the folder is followed (confined.py).

This module does not know what the bytes mean, nor the order in which files are written (README.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tartan.base.confined import ConfinedFolder, Entry
from tartan.base.temporary import is_abandoned, is_writers_name, temporary_names
from tartan.errors import DiskFullError, StoreError

# What makes written files survive a power cut: fsync of one file, or of a whole file system.
#
# With ``TARTAN_FSYNC=0`` in the environment nothing is forced to the disk, in this process and in those that it starts.
# A kill still loses nothing that is committed; a power cut may. It is for tests, and for disks whose contents do not
# outlive the machine. The disk-to-disk sort's own engine forces its files all the same.

Force = Callable[[int], None]
"""Forces what was written to the disk, given a descriptor; raises OSError where that fails."""


def fsync(descriptor: int) -> None:
    """Force one open file or folder to the disk."""
    if _is_wanted():
        os.fsync(descriptor)


def syncfs(descriptor: int) -> None:
    """Force the whole file system that an open file or folder lies on to the disk.

    Raises
    ------
    OSError
        If that fails; with ``errno.ENOSYS`` if the system has no such call.
    """
    if not _is_wanted():
        return
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _is_wanted() -> bool:
    return os.environ.get("TARTAN_FSYNC") != "0"


# By judgement: syncfs writes what others wrote as well, fsync costs a flush of the disk for each file. No benchmark;
# `tartan bench commit` measures one file.
MANY_FILES = 64  # from here on one call for the whole file system is faster than one for each file
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (
    errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
# By arithmetic: a page of memory, and the block that O_DIRECT asks for.
_PAGE = 4096
# By judgement: a direct write waits for the disk, which pays where the copy into the page cache costs more than a
# request. `tartan bench commit`: 1.24 times a bare write at this size.
_DIRECT_BYTES = 4 << 20  # from here on a write past the page cache is faster
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_UNKNOWN_CALL = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)

_UNFINISHED = ".tmp"
_PARQUET = b"PAR1"
# By judgement: a name that a writer of another machine took and did not use; an hour is longer than any write. No
# benchmark.
_LEFT_SECONDS = 3600.0

Buffer = Any  # an object with the buffer protocol: bytes, memoryview, contiguous array
Write = Callable[[int, Sequence[Buffer]], int]


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn write errors of the operating system into errors of Tartan.

    Raises
    ------
    DiskFullError
        If the file system or the quota is full.
    StoreError
        If the folder is read-only or not a folder, or the write fails for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                f"no space left on the file system of {path}; free some space and run the same command again",
                context={"path": str(path)},
                retryable=True,
            ) from error
        if error.errno in _REFUSED:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; choose a folder that is writable",
                code="read-only",
                context={"path": str(path)},
            ) from error
        if error.errno == errno.EFBIG:
            raise StoreError(
                f"cannot write {path}: it would be larger than the file system or a limit of the shell (ulimit -f) "
                "allows; choose another place or raise the limit",
                code="too-large",
                context={"path": str(path)},
            ) from error
        if error.errno is not None:  # of the system: a broken disk, too many open files, a folder in place of a file
            place = path if error.filename is None else os.fsdecode(error.filename)
            raise StoreError(
                f"cannot write {path}: {place}: {error.strerror}", code="refused", context={"path": str(path)}
            ) from error
        raise


def remove_abandoned(folder: Path, prefix: str, suffix: str = "") -> None:
    """Remove from a folder of the user what killed processes left there.

    Only files and folders whose names say which process wrote them are looked at, and only those of dead ones removed;
    of processes that cannot be asked, those that are an hour old.

    Parameters
    ----------
    folder : Path
        Errors are ignored, its absence too.
    prefix, suffix : str
        Of the names.
    """
    confined = ConfinedFolder(folder)
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if path.name.startswith(prefix) and path.name.endswith(suffix)]
        for path in found:
            with contextlib.suppress(OSError):
                silent = time.time() - confined.stat(path).st_mtime
                if is_abandoned(path.name.removesuffix(suffix), silent, limit_seconds=_LEFT_SECONDS):
                    confined.remove_tree(path)


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary name beside a file of the user: renamed to it when the block ends, removed when it raises.

    What killed processes left beside it by such names is removed first. Devices and pipes, such as ``/dev/stdout``, are
    written to and never replaced. A link stays; its target is replaced.

    Raises
    ------
    DiskFullError, StoreError
        As ``disk_errors``.
    """
    place = Path(os.path.realpath(target))
    if target.exists() and not target.is_file() and not target.is_dir():
        with disk_errors(target):
            yield target
        return
    remove_abandoned(place.parent, ".", _UNFINISHED)
    temporary = place.with_name(f".{place.name}.{next(temporary_names())}{_UNFINISHED}")
    try:
        with disk_errors(target):
            yield temporary
            temporary.replace(place)
    finally:
        with contextlib.suppress(OSError):  # a read-only file system raises even if the file is absent
            temporary.unlink()


def arrow_file(path: Path, mode: str = "rb") -> Any:
    """Open a local file for Arrow, which would read a path such as ``a:b`` as a URL.

    Returns
    -------
    pyarrow.OSFile
        A context manager.

    Raises
    ------
    OSError
        If it cannot be opened, or is to be read and no regular file.
    """
    import pyarrow as pa

    if mode == "rb":
        open_regular(path).close()  # Arrow waits for ever at a named pipe
    return pa.OSFile(os.fsencode(path), mode)


def is_parquet(path: Path) -> bool:
    """Whether a file begins and ends as Parquet does, with a footer that can lie in it; what it holds is not read."""
    try:
        with open_regular(path) as file:
            start, size = file.read(4), file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            end = file.read(8)
    except OSError:
        return False
    return bool(start == end[4:] == _PARQUET and 12 <= int.from_bytes(end[:4], "little") + 12 <= size)


class FileWriter:
    """Writes the files of one folder atomically, from any number of threads.

    Parameters
    ----------
    root : Path
        The run folder; it must exist.
    write : callable
        What writes buffers to a descriptor and returns how many bytes it took (``os.writev``).
    force, force_all : callable
        What forces an open file, and the file system that it lies on, to the disk.
    temporary : Path, optional
        Folder of unfinished files, in ``root``; default: ``tmp``.
    folder : ConfinedFolder, optional
        What reaches the files; default: a new one for ``root``.

    Attributes
    ----------
    folder : ConfinedFolder
    """

    def __init__(
        self,
        root: Path,
        *,
        write: Write = os.writev,
        force: Force = fsync,
        force_all: Force = syncfs,
        temporary: Path | None = None,
        folder: ConfinedFolder | None = None,
    ) -> None:
        self.folder = self._folder = folder or ConfinedFolder(root)
        self._temporary = temporary or root / "tmp"
        self._write = write
        self._force = force
        self._force_all = force_all
        self._names = temporary_names()
        self._owed: set[Path] = set()
        self._owed_lock = threading.Lock()
        with disk_errors(root):
            self._folder.make_folder(self._temporary, exist_ok=True)

    def beside(self, temporary: Path) -> FileWriter:
        """Return a writer of the same folder and by the same means, with another folder of unfinished files."""
        ways: dict[str, Any] = {"write": self._write, "force": self._force, "force_all": self._force_all}
        return FileWriter(self._folder.path, temporary=temporary, folder=self._folder, **ways)

    def replace(self, target: Path, buffers: Sequence[Buffer]) -> None:
        """Give ``target`` the contents of the buffers, in order, whole or not at all."""
        with self._rename_to(target) as temporary:
            self._fill(temporary, buffers)

    def stage(self, buffers: Sequence[Buffer]) -> Path:
        """Write a whole file under a temporary name, to be published later; return its path."""
        temporary = self._temporary / next(self._names)
        try:
            with disk_errors(temporary):
                self._fill(temporary, buffers)
        except BaseException:
            self.discard([temporary])
            raise
        return temporary

    def publish(self, staged: Path, target: Path) -> None:
        """Rename a staged file to its place; do nothing where another writer has done so already."""
        with disk_errors(target), contextlib.suppress(FileNotFoundError):
            self._rename(staged, target)
        self._owe(target)

    def link(self, staged: Path, target: Path, *, lasting: bool = True) -> bool:
        """Give a staged file a second name, unless there is one: the one atomic act by which several writers agree.

        Parameters
        ----------
        staged, target : Path
        lasting : bool
            Whether the second name shall survive a power cut.

        Returns
        -------
        bool
            False if the name was there. Some networks say so although it was this call that made it.

        Raises
        ------
        StoreError
            If the file system has no hard links (code "no-links"), or the folder cannot be written.
        """
        with disk_errors(target):
            try:
                self._folder.make_parents(target)
                self._folder.link(staged, target)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise _without_links(target) from error
                raise
        if lasting:
            self._owe(target)
        return True

    def discard(self, staged: Iterable[Path]) -> None:
        """Remove staged files that are still there."""
        for path in staged:
            with contextlib.suppress(OSError):
                self._folder.remove(path)

    @contextlib.contextmanager
    def new_file(self, target: Path) -> Iterator[BinaryIO]:
        """Yield an open file; when the block ends without an error, it is closed and gets the name ``target``."""
        with self._rename_to(target) as temporary, self._folder.new_file(temporary) as file:
            yield file

    @contextlib.contextmanager
    def _rename_to(self, target: Path) -> Iterator[Path]:
        """Yield a temporary path; when the block ends without an error, rename that file to ``target``."""
        temporary = self._temporary / next(self._names)
        try:
            with disk_errors(target):
                yield temporary
                self._rename(temporary, target)
        except BaseException:
            self.discard([temporary])
            raise
        self._owe(target)

    def append(self, target: Path, data: bytes) -> None:
        """Append bytes to a log; a kill may leave part of them as its last line."""
        with disk_errors(target):
            descriptor = self._folder.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                end = os.fstat(descriptor).st_size
                try:
                    self._write_all(descriptor, [data])
                except OSError:
                    os.ftruncate(descriptor, end)
                    raise
            finally:
                os.close(descriptor)
        self._owe(target)

    def make_folder(self, place: Path) -> None:
        """Make a folder in one that exists, unless it is there."""
        with disk_errors(place):
            self._folder.make_folder(place, exist_ok=True)

    def remove(self, target: Path) -> None:
        """Remove a file if it is there."""
        with disk_errors(target):
            self._folder.remove(target, missing_ok=True)

    def remove_tree(self, place: Path) -> None:
        """Remove a folder that is there, and all in it."""
        with disk_errors(place):
            self._folder.remove_tree(place)

    def sync(self) -> int:
        """Force everything written since the last call to the disk; return the number of files.

        After a failure the next call tries the same files again.
        """
        with self._owed_lock:
            owed, self._owed = self._owed, set()
        try:
            if len(owed) < MANY_FILES or not self._sync_file_system():
                for path in (*sorted(owed), *sorted({path.parent for path in owed})):
                    self._sync_path(path)
        except BaseException:
            with self._owed_lock:
                self._owed |= owed
            raise
        return len(owed)

    def sync_all(self) -> None:
        """Force everything on the file system of the folder to the disk, whoever wrote it.

        A writer that was killed forces nothing any more, and what it renamed to its place is there for all to see.
        """
        with self._owed_lock:
            owed, self._owed = self._owed, set()
        try:
            if not self._sync_file_system():
                os.sync()
        except BaseException:
            with self._owed_lock:
                self._owed |= owed
            raise

    def _sync_file_system(self) -> bool:
        """Sync the file system of the folder; return False where the system cannot."""
        with disk_errors(self._temporary):
            try:
                self._force_to_disk(self._temporary, self._force_all)
            except OSError as error:
                if error.errno in _UNKNOWN_CALL:
                    return False
                raise
        return True

    def _sync_path(self, path: Path) -> None:
        """Sync a file or folder, unless it has been removed."""
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            self._force_to_disk(path, self._force)

    def _force_to_disk(self, path: Path, force: Force) -> None:
        descriptor = self._folder.open(path, os.O_RDONLY)
        try:
            force(descriptor)
        finally:
            self._folder.close(descriptor)

    def clear_temporary(self) -> None:
        """Remove what killed writers left, and nothing else; the caller holds the run lock."""
        with disk_errors(self._temporary):
            self._folder.make_folder(self._temporary, exist_ok=True)
            left: list[Entry] = [entry for entry in self._folder.entries(self._temporary) if is_writers_name(entry[0])]
        now = self._now() if left else 0.0
        for name, state in left:
            if is_abandoned(name, now - state.st_mtime):
                self.discard([self._temporary / name])

    def _now(self) -> float:
        """Return the time by the clock of the file system, which may be another machine's."""
        probe = self._temporary / next(self._names)
        try:
            with self._folder.new_file(probe) as file:
                now = os.fstat(file.fileno()).st_mtime
            self._folder.remove(probe)
        except OSError:  # a full disk: all the more reason to remove leftovers
            return time.time()
        return now

    def _rename(self, temporary: Path, target: Path) -> None:
        try:
            self._folder.move(temporary, target)
        except FileNotFoundError:
            self._folder.make_parents(target)
            self._owe(target.parent)
            self._folder.move(temporary, target)

    def _owe(self, path: Path) -> None:
        with self._owed_lock:
            self._owed.add(path)

    def _fill(self, path: Path, buffers: Sequence[Buffer]) -> None:
        descriptor = self._folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            self._write_all(descriptor, self._write_past_cache(path, descriptor, buffers))
        finally:
            self._folder.close(descriptor)

    def _write_past_cache(self, path: Path, descriptor: int, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Write the first buffer past the page cache where it is large and lies on pages; return what is left.

        That takes hardly any processor, and no time when the file is forced to the disk. The descriptor stands behind
        what was written.
        """
        first = memoryview(buffers[0]).cast("B") if buffers else memoryview(b"")
        whole = len(first) // _PAGE * _PAGE
        if whole < _DIRECT_BYTES or _address(first) % _PAGE:
            return buffers
        try:
            direct = self._folder.open(path, os.O_WRONLY | os.O_DIRECT)
        except OSError:  # the file system has no such writes
            return buffers
        done = 0
        try:
            while done < whole and not done % _PAGE:
                done += self._write(direct, [first[done:whole]])
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(direct)
        os.lseek(descriptor, done, os.SEEK_SET)
        return [first[done:], *buffers[1:]]

    def _write_all(self, descriptor: int, buffers: Sequence[Buffer]) -> None:
        rest = [memoryview(buffer).cast("B") for buffer in buffers]
        while rest:
            taken = self._write(descriptor, rest)
            while rest and taken >= len(rest[0]):
                taken -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][taken:]


def _without_links(path: Path) -> StoreError:
    return StoreError(
        f"{path} cannot be written: its file system has no hard links, by which several writers agree; compute the run "
        "in one process",
        code="no-links",
        context={"path": str(path)},
    )


def _address(buffer: memoryview) -> int:
    """Return where a buffer lies in memory."""
    import numpy as np

    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


# Open files that someone else named or wrote: regular files only, and no more of them than is wanted.
#
# A named pipe, a device or a socket in the place of a file would hold its reader for ever or fill the memory. Every
# file that a user or a folder names is opened here.

# By judgement: lines of a log between two calls. No benchmark.
_GROWTH_BYTES = 1 << 16  # of a log that is written meanwhile


def open_regular(path: str | os.PathLike[str], buffering: int = -1) -> Any:
    """Open a regular file for reading bytes.

    Raises
    ------
    OSError
        If it cannot be opened, or is something else.
    """
    # Not blocking, or a named pipe among the files would hold a reader forever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _irregular(path) if error.errno == errno.ENXIO else error from None  # a socket
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb", buffering=buffering)
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise _irregular(path)


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises
    ------
    OSError
        As ``open_regular``; with code EFBIG if it holds more than ``most_bytes``.
    """
    with open_regular(path, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size + _GROWTH_BYTES, most_bytes) + 1) if size <= most_bytes else b""
    if size > most_bytes or len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes, the most that it may have", os.fspath(path))
    return bytes(data)


def _irregular(path: str | os.PathLike[str]) -> OSError:
    return OSError(0, "not a regular file", os.fspath(path))
