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
from collections.abc import Iterator
from pathlib import Path

SILENT_SECONDS = 60.0
"""A file that was not written for this long, by a writer that cannot be asked, is abandoned."""
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
