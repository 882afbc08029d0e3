"""Open files that someone else named or wrote: regular files only, and no more of them than is wanted.

A named pipe, a device or a socket in the place of a file would hold its reader for ever or fill the memory. Every file
that a user or a folder names is opened here.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

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
