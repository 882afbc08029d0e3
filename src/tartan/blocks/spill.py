"""Folders of sessions and ranks for what does not fit into memory; those of dead processes are removed.

Each folder has a file that its process keeps locked; the kernel drops the lock when the process dies. Who makes a
folder, and who ends a session, removes the folders beside it that nothing locks. Only the user may enter one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tartan.base.confined import ConfinedFolder
from tartan.base.temporary import is_writers_name, temporary_names
from tartan.errors import StoreError

_PREFIX = "tartan-blocks-"
_LOCK_NAME = "lock"
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextlib.contextmanager
def spill_folder(parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Make a folder and remove it at the end; remove those of dead processes first.

    Parameters
    ----------
    parent : path, optional
        Default: the folder for temporary files.
    """
    parent = Path(parent or tempfile.gettempdir())
    remove_abandoned(parent)
    confined, names = ConfinedFolder(parent), temporary_names()
    while True:
        folder = parent / f"{_PREFIX}{next(names)}"
        confined.make_folder(folder, 0o700)
        lock = _lock(confined, folder)
        if lock is not None:
            break
    try:
        yield folder
    finally:
        _remove(confined, folder)
        os.close(lock)


def remove_abandoned(parent: str | os.PathLike[str] | None = None) -> None:
    """Remove the folders of this user whose processes have died; what has no name of such a folder stays."""
    confined = ConfinedFolder(Path(parent or tempfile.gettempdir()))
    for folder in confined.path.glob(f"{_PREFIX}*"):
        if not is_writers_name(folder.name.removeprefix(_PREFIX)):
            continue
        with contextlib.suppress(OSError, StoreError):  # it goes at this moment, is another user's, or a link
            if confined.stat(folder).st_uid != os.geteuid():
                continue
            lock = confined.open(folder / _LOCK_NAME, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(confined, folder)
            finally:
                os.close(lock)


def _remove(confined: ConfinedFolder, folder: Path) -> None:
    """Remove a folder that is locked here; where something stays, so does the lock, for the next one to remove both."""
    with contextlib.suppress(OSError):
        for name, _ in confined.entries(folder):
            if name != _LOCK_NAME:
                with contextlib.suppress(OSError):
                    confined.remove_tree(folder / name)
        if [name for name, _ in confined.entries(folder)] == [_LOCK_NAME]:
            confined.remove_tree(folder)


def _lock(confined: ConfinedFolder, folder: Path) -> int | None:
    """Lock a new folder; None if it was taken for abandoned before that, and removed."""
    path = folder / _LOCK_NAME
    lock = confined.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(confined.stat(path), os.fstat(lock)):
            return lock
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return lock
    os.close(lock)
    return None
