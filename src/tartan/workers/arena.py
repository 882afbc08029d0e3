"""One block of memory that loaded items live in, visible to worker processes where that is wanted.

A shared arena is a memory file (memfd): it has no name, so nothing stays behind when its processes are killed,
and it does not count against the size of /dev/shm. Where the system refuses memory files, an unlinked temporary
file takes their place. Memory is touched lazily: a fresh arena costs address space and nothing else.

What lies where inside an arena is decided by its user; the arena knows offsets only.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tartan.errors import InternalError, ResourceError

_MFD_NOEXEC_SEAL = 0x0008  # newer kernels may refuse memory files that could be executed


class Arena:
    """A block of memory of a fixed size.

    Parameters
    ----------
    n_bytes : int
        Size; rounded up to whole pages.
    shared : bool
        Whether other processes can attach to it by its descriptor.
    folder : Path, optional
        Where the file goes if the system has no memory files. Defaults to the folder for temporary files.

    Raises
    ------
    ResourceError
        If the system refuses a block of this size.

    Notes
    -----
    Not a lock: two threads may use disjoint ranges at the same time, and nothing stops them from using the same.
    The system may grant more than it has; pages are found when they are touched.

    Examples
    --------
    >>> arena = Arena(1 << 20, shared=False)
    >>> arena.view(0, (2, 3), "float32").shape
    (2, 3)
    >>> arena.close()
    """

    def __init__(self, n_bytes: int, shared: bool, *, folder: Path | None = None) -> None:
        self.n_bytes = _round_to_pages(n_bytes)
        self._fd: int | None = None
        try:
            if shared:
                self._fd = memory_file(self.n_bytes, folder)
            self._set_map(_map(self._fd, self.n_bytes))
        except (OSError, OverflowError, ValueError) as error:
            self._close_fd()
            raise _make_refused_error(self.n_bytes, error) from error

    @classmethod
    def attach(cls, fd: int, n_bytes: int) -> Arena:
        """Map the arena of another process; the descriptor belongs to the new arena from now on.

        Raises
        ------
        ResourceError
            If the system refuses the mapping.
        """
        arena = cls.__new__(cls)
        arena.n_bytes = n_bytes
        arena._fd = fd
        try:
            arena._set_map(_map(fd, n_bytes))
        except (OSError, OverflowError, ValueError) as error:
            arena._close_fd()
            raise _make_refused_error(n_bytes, error) from error
        return arena

    @property
    def shared(self) -> bool:
        """Whether other processes can attach."""
        return self._fd is not None

    @property
    def fd(self) -> int:
        """The descriptor to hand to another process; close-on-exec.

        Raises
        ------
        InternalError
            If the arena is private or closed.
        """
        if self._fd is None:
            raise InternalError("a private or closed arena has no descriptor")
        return self._fd

    def view(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return a writable C-ordered array over the bytes from ``offset`` on; nothing is copied.

        Parameters
        ----------
        offset : int
            First byte.
        shape : tuple of int
            Shape of the array.
        dtype : dtype
            Any dtype but object.

        Raises
        ------
        InternalError
            If the range does not lie inside the arena, or the arena is closed.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self._check(offset, size)
        return np.ndarray(shape, dtype, buffer=self._bytes, offset=offset)

    def punch(self, offset: int, n_bytes: int) -> None:
        """Give the whole pages inside a range back to the system; its contents are undefined afterwards.

        Where the system cannot (a temporary file on some file systems), nothing happens.
        """
        self._check(offset, n_bytes)
        start = _round_to_pages(offset)
        length = (offset + n_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length <= 0:
            return
        advice = mmap.MADV_REMOVE if self.shared else mmap.MADV_DONTNEED
        try:
            self._map.madvise(advice, start, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise

    def close(self) -> None:
        """Release the arena. Views that still exist keep the memory, but not the descriptor, alive."""
        self._close_fd()
        self._bytes = np.empty(0, np.uint8)
        # Views forbid unmapping: the mapping then goes with the last of them.
        with contextlib.suppress(BufferError):
            self._map.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _set_map(self, block: mmap.mmap) -> None:
        self._map = block
        # The base of all views. frombuffer keeps the mapping locked; np.ndarray(buffer=...) on the mapping itself
        # would not, and views would then point nowhere after close.
        self._bytes = np.frombuffer(block, np.uint8)

    def _check(self, offset: int, n_bytes: int) -> None:
        available = self._bytes.size  # none after close
        if offset < 0 or n_bytes < 0 or offset + n_bytes > available:
            raise InternalError(
                f"bytes {offset}..{offset + n_bytes} lie outside an arena of {available} bytes",
                context={"offset": offset, "n_bytes": n_bytes, "arena_bytes": available},
            )

    def _close_fd(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def memory_file(n_bytes: int, folder: Path | None = None) -> int:
    """Return the descriptor of a nameless file of ``n_bytes`` zeros in memory, close-on-exec.

    Falls back to an unlinked file in ``folder`` where memory files are refused; its space is then reserved at
    once, so that a full disk is an error here instead of a bus error at the first touch.

    Raises
    ------
    OSError
        If neither has enough space.
    """
    try:
        fd = _memfd()
    except OSError:
        return _reserve_file(n_bytes, folder)
    try:
        os.ftruncate(fd, n_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _memfd() -> int:
    try:
        return os.memfd_create("tartan", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("tartan", os.MFD_CLOEXEC)


def _reserve_file(n_bytes: int, folder: Path | None) -> int:
    with tempfile.TemporaryFile(dir=folder) as file:
        if n_bytes:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        return os.dup(file.fileno())


def _map(fd: int | None, n_bytes: int) -> mmap.mmap:
    if fd is None:
        return mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(fd, n_bytes, flags=mmap.MAP_SHARED)


def _round_to_pages(n_bytes: int) -> int:
    return max(0, -(-n_bytes // mmap.PAGESIZE)) * mmap.PAGESIZE


def _make_refused_error(n_bytes: int, error: Exception) -> ResourceError:
    return ResourceError(
        f"the system refuses {n_bytes:,} bytes of memory for the host cache ({error}); choose a smaller --host-cache",
        code="host-memory",
        context={"option": "--host-cache", "n_bytes": n_bytes},
    )
