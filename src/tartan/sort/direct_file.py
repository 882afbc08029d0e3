"""Write a file past the page cache, so that the cache keeps what other programs need.

It serves writers that only call ``write``. Of two aligned buffers one is filled while a thread writes the other. Where
the file system refuses direct writes, it is an ordinary file that drops what it has written from the cache.
"""

from __future__ import annotations

import io
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tartan.base.confined import open_unfinished
from tartan.base.sync import fsync

BUFFER_BYTES = 4 << 20
PAGE = 4096


class DirectFile(io.RawIOBase):
    """A new file, written from beginning to end.

    Parameters
    ----------
    path : Path
        Created, or truncated; of a fixed temporary name.

    Attributes
    ----------
    direct : bool
        Whether the page cache is bypassed.
    """

    def __init__(self, path: Path) -> None:
        self._fd, self.direct = _open(path)
        self._buffers = [mmap.mmap(-1, BUFFER_BYTES) for _ in range(2)]
        self._fill = 0
        self._current = 0
        self._written = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tartan-write")
        self._pending: Future[None] | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written + self._fill

    def write(self, data: Any) -> int:
        """Take all of the bytes; return their number."""
        view = memoryview(data).cast("B")
        taken = 0
        while taken < len(view):
            part = view[taken : taken + BUFFER_BYTES - self._fill]
            self._buffers[self._current][self._fill : self._fill + len(part)] = part
            self._fill += len(part)
            taken += len(part)
            if self._fill == BUFFER_BYTES:
                self._send(BUFFER_BYTES)
        return taken

    def _send(self, n_bytes: int) -> None:
        self._settle()
        buffer, offset = self._buffers[self._current], self._written
        self._pending = self._thread.submit(self._write_at, memoryview(buffer)[:n_bytes], offset)
        self._written += n_bytes
        self._current ^= 1
        self._fill = 0

    def _write_at(self, data: memoryview, offset: int) -> None:
        with data:
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], offset + done)
        if not self.direct:
            os.fdatasync(self._fd)
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _settle(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def finish(self) -> None:
        """Write what is left and sync the file."""
        n_bytes, left = self._written + self._fill, self._fill
        if left:
            self._send(-(-left // PAGE) * PAGE)
        self._settle()
        os.ftruncate(self._fd, n_bytes)
        fsync(self._fd)

    def close(self) -> None:
        """Close the file as it is."""
        if not self.closed:
            self._thread.shutdown(wait=True)
            os.close(self._fd)
            self._pending = None
            for buffer in self._buffers:
                buffer.close()
        super().close()


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_WRONLY | os.O_TRUNC
    try:
        descriptor = open_unfinished(path, flags | os.O_DIRECT)
    except OSError:
        return open_unfinished(path, flags), False
    return descriptor, True
