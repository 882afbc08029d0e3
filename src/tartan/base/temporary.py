"""Names of unfinished files: two writers never choose the same one, and what a dead writer left is recognised.

A name says who writes: ``HOST.PID.TOKEN-NUMBER``. The random token tells apart two writers of one process, and of two
processes that had the same id one after the other. Names without it, such as ``PID-NUMBER``, are of writers that held a
folder alone; whoever holds it now may remove them.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import socket
from pathlib import Path

__all__ = ["TemporaryNames", "is_abandoned"]

SILENT_SECONDS = 60.0
"""A file that was not written for this long, by a writer that cannot be asked, is abandoned."""
_HOST_CHARACTERS = 32
_NAME = re.compile(r"(?P<host>[\w-]+)\.(?P<pid>\d+)\.[0-9a-f]{8}-\d+$")


class TemporaryNames:
    """The names that one writer gives to unfinished files; safe from any thread."""

    def __init__(self) -> None:
        self._writer = f"{_host()}.{os.getpid()}.{secrets.token_hex(4)}"
        self._numbers = itertools.count()

    def next(self) -> str:
        """Return a name that no other writer uses, and this one never again."""
        return f"{self._writer}-{next(self._numbers)}"


def is_abandoned(name: str, silent_seconds: float) -> bool:
    """Whether the writer of an unfinished file is gone, as far as can be seen from this process.

    Parameters
    ----------
    name : str
        The name of the file.
    silent_seconds : float
        Time since the file was last written, by the clock of its file system.
    """
    found = _NAME.search(name)
    if found is None:
        return True
    pid = int(found["pid"])
    if found["host"] == _host() and pid != os.getpid():
        return not Path(f"/proc/{pid}").exists()
    return silent_seconds >= SILENT_SECONDS


def _host() -> str:
    return re.sub(r"[^\w-]", "_", socket.gethostname())[:_HOST_CHARACTERS] or "unnamed"
