"""Folders of sessions and ranks for what does not fit into memory; those of dead processes are removed.

Each folder has a file that its process keeps locked; the kernel drops the lock when the process dies. Who makes a
folder, and who ends a session, removes the folders beside it that nothing locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
    remove_abandoned(parent)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = _locked(folder)
        if lock is not None:
            break
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def remove_abandoned(parent: str | os.PathLike[str] | None = None) -> None:
    """Remove the folders of this user whose processes have died."""
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it goes at this moment, or is another user's
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder that is locked here; where something stays, so does the lock, for the next one to remove both."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK_NAME:
                path.unlink()
        if [path.name for path in folder.iterdir()] == [_LOCK_NAME]:
            shutil.rmtree(folder)


def _locked(folder: Path) -> int | None:
    """Lock a new folder; None if it was taken for abandoned before that, and removed."""
    path = folder / _LOCK_NAME
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(lock)):
            return lock
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return lock
    os.close(lock)
    return None
