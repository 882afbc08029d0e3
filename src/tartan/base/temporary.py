"""Names of unfinished files: two writers never choose the same one, and what a dead writer left is recognised.

A name says who writes: ``HOST.PID.TOKEN-NUMBER``. The random token tells apart two writers of one process, and of two
processes that had the same id one after the other. What has any other name is not Tartan's, and never removed.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

# By contract: LEASE_SECONDS of base/lock.
SILENT_SECONDS = 60.0
"""A file that was not written for this long, by a writer that cannot be asked, is abandoned."""
# By judgement: file names have 255 bytes, most of which are for others. No benchmark.
_HOST_CHARACTERS = 32
_NAME = re.compile(r"(?P<host>[\w-]+)\.(?P<pid>\d+)\.[0-9a-f]{8}-\d+\Z")


def writer_name() -> str:
    """Return a new name for a writer of this process, which no other has: ``HOST.PID.TOKEN``."""
    return f"{_host()}.{os.getpid()}.{secrets.token_hex(4)}"


def temporary_names() -> Iterator[str]:
    """Yield names that no other writer uses, each once; threads may share the iterator."""
    writer = writer_name()
    # Of built-in iterators only, because a generator must not be entered by two threads.
    return map(f"{writer}-{{}}".format, itertools.count())


def is_writers_name(name: str) -> bool:
    """Whether a name is one of ``temporary_names``."""
    return _NAME.fullmatch(name) is not None


def is_abandoned(name: str, silent_seconds: float, *, limit_seconds: float = SILENT_SECONDS) -> bool:
    """Whether a name ends as those of ``temporary_names`` do, and its writer is gone, as far as can be seen from here.

    Parameters
    ----------
    name : str
        The name of the file.
    silent_seconds : float
        Time since the file was last written, by the clock of its file system.
    limit_seconds : float
        After which silence a writer that cannot be asked is gone.
    """
    found = _NAME.search(name)
    if found is None:
        return False
    pid = int(found["pid"])
    if found["host"] == _host() and pid != os.getpid():
        return not Path(f"/proc/{pid}").exists()
    return silent_seconds >= limit_seconds


def _host() -> str:
    return re.sub(r"[^\w-]", "_", socket.gethostname())[:_HOST_CHARACTERS] or "unnamed"


# Memory that each thread uses again and again, so that it stays in the cache and is never fresh.

# _ALIASED_BYTES and _LINE_BYTES, by arithmetic: a cache line has 64 bytes, and rows that lie a power of two apart fall
# into the same lines of a cache.
_ALIASED_BYTES = 512
# By arithmetic: a cache line.
_LINE_BYTES = 64


class Scratch(threading.local):
    """Blocks of memory by name, of each thread its own."""

    def __init__(self) -> None:
        self._blocks: dict[str, np.ndarray] = {}

    def block(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array of a shape, with contiguous rows; it holds what the last user left.

        Rows lie a cache line further apart where they would otherwise all fall into the same few sets of the cache: a
        matrix product is a third slower there.
        """
        *heads, length = shape
        row_bytes = length * dtype.itemsize
        if row_bytes % _ALIASED_BYTES == 0:
            row_bytes += _LINE_BYTES
        n_bytes = prod(heads) * row_bytes
        found = self._blocks.get(name)
        if found is None or found.nbytes < n_bytes:
            found = self._blocks[name] = np.empty(n_bytes, np.uint8)
        rows = found[:n_bytes].view(dtype).reshape(*heads, row_bytes // dtype.itemsize)
        return rows[..., :length]
