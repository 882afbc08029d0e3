"""Which freed memory a process keeps, and from which size on arrays have mappings of their own (mallopt of glibc)."""

from __future__ import annotations

import contextlib
import ctypes
import os

# By contract: glibc's numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
MALLOC_VARIABLES = frozenset(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"))


def set_freed_memory(mapped_bytes: int, kept_bytes: int | None = None) -> None:
    """Set from which size on arrays go back to the system when they are freed, and how much of others is kept.

    A user who has set this in the environment keeps it. Other C libraries know nothing of it.

    Parameters
    ----------
    mapped_bytes : int
        Arrays of this size and larger have mappings of their own.
    kept_bytes : int, optional
        What is free at the end of the heap and is kept; default: as before.
    """
    if not MALLOC_VARIABLES.isdisjoint(os.environ):
        return
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, mapped_bytes)
        if kept_bytes is not None:
            mallopt(_TRIM_THRESHOLD, kept_bytes)
