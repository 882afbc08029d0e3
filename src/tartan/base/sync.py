"""What makes written files survive a power cut: fsync of one file, or of a whole file system.

With ``TARTAN_FSYNC=0`` in the environment nothing is forced to the disk, in this process and in those that it starts.
A kill still loses nothing that is committed; a power cut may. It is for tests, and for disks whose contents do not
outlive the machine. The disk-to-disk sort's own engine forces its files all the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

Force = Callable[[int], None]
"""Forces what was written to the disk, given a descriptor; raises OSError where that fails."""


def fsync(descriptor: int) -> None:
    """Force one open file or folder to the disk."""
    if _wanted():
        os.fsync(descriptor)


def syncfs(descriptor: int) -> None:
    """Force the whole file system that an open file or folder lies on to the disk.

    Raises
    ------
    OSError
        If that fails; with ``errno.ENOSYS`` if the system has no such call.
    """
    if not _wanted():
        return
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _wanted() -> bool:
    return os.environ.get("TARTAN_FSYNC") != "0"
