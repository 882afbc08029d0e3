"""The secret key of a user, with which files are sealed that only this user may have written.

It lies in the user's folder of state, ``$XDG_STATE_HOME/tartan/key`` or ``~/.local/state/tartan/key``, and can be read
by the user alone. It is made when it is first needed. Where it cannot be kept, nothing is sealed and no seal holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from tartan.base.temporary import temporary_names

KEY_BYTES = 32
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def key_path() -> Path | None:
    """Return where the key of this user lies; None for a user without a home."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():
        return given / "tartan" / "key"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".local" / "state" / "tartan" / "key" if home.is_absolute() else None


def user_key(*, create: bool = True) -> bytes | None:
    """Return the key of this user.

    Parameters
    ----------
    create : bool
        Whether to make one where there is none.

    Returns
    -------
    bytes or None
        None where there is no home, where the key cannot be kept, or where others could have read or written it.
    """
    path = key_path()
    if path is None:
        return None
    with contextlib.suppress(OSError):
        if create and not path.exists():
            _make(path)
        return _read(path)
    return None


def seal(key: bytes, purpose: str, parts: Iterable[bytes]) -> str:
    """Return a keyed checksum (HMAC-SHA-256, hexadecimal) of a list of bytes; equal lists only have equal ones."""
    digest = hmac.new(key, purpose.encode() + b"\0", hashlib.sha256)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def same_seal(found: object, expected: str) -> bool:
    """Compare seals in a time that does not depend on where they differ."""
    return isinstance(found, str) and hmac.compare_digest(found.encode(errors="replace"), expected.encode())


def _read(path: Path) -> bytes | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        state = os.fstat(stream.fileno())
        private = stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & _FOR_OTHERS
        key = stream.read(KEY_BYTES + 1) if private else b""
    return key if len(key) == KEY_BYTES else None


def _make(path: Path) -> None:
    """Write a new key; of two processes that do so at the same time, one wins, and both read its key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(next(temporary_names()))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
