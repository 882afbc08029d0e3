"""Names of items: keys of those that have none of their own, and names without suffixes."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

from tartan.base.temporary import temporary_names
from tartan.errors import ConfigError

_SUFFIXES = re.compile(r"(?<=[^/])(\.[A-Za-z][A-Za-z0-9]{0,5})?(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)


class IndexKeys(Sequence[str]):
    """The keys "0", "1", ... of n items, made when asked for."""

    def __init__(self, n_items: int) -> None:
        self._indices = range(n_items)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [str(i) for i in self._indices[index]]
        return str(self._indices[index])


class SideKeys(Sequence[str]):
    """The keys of two sets, one after the other; each set has its own, and some may be in both."""

    def __init__(self, left: Sequence[str], right: Sequence[str]) -> None:
        self._left, self._right = left, right

    def __len__(self) -> int:
        return len(self._left) + len(self._right)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        return self._left[at] if at < len(self._left) else self._right[at - len(self._left)]

    @property
    def numbered(self) -> bool:
        """Whether both sets have numbers for names."""
        return isinstance(self._left, IndexKeys) and isinstance(self._right, IndexKeys)


def are_numbers(keys: Sequence[str]) -> bool:
    """Whether items have no names but their numbers."""
    return isinstance(keys, IndexKeys) or (isinstance(keys, SideKeys) and keys.numbered)


def row_keys(n_items: int, n_left: int | None = None) -> Sequence[str]:
    """Return the keys of items without names; of A x B, ``n_left`` of which are in A, each side counts from 0."""
    if n_left is None:
        return IndexKeys(n_items)
    return SideKeys(IndexKeys(n_left), IndexKeys(n_items - n_left))


def stems(keys: Sequence[str]) -> list[str]:
    """Return keys without their suffixes (``a.faa.gz`` is ``a``), except those that two items would then share.

    Examples
    --------
    >>> stems(["a.faa.gz", "b.1.JPG", "c.png", "c.jpg", "d.5"])
    ['a', 'b.1', 'c.png', 'c.jpg', 'd.5']
    """
    found = [_SUFFIXES.sub("", key) for key in keys]
    counts = Counter(found)
    whole = {key for key, name in zip(keys, found, strict=True) if counts[name] > 1}
    # A name that is kept whole may be the stem of another item.
    return [key if key in whole or (name != key and name in whole) else name for key, name in zip(keys, found)]


def distinct(keys: Sequence[str]) -> Sequence[str]:
    """Return keys as they are, if no two are equal; raise ConfigError otherwise."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ConfigError(
                f"key {key!r} is given twice; name each item once, as by a number behind it",
                code="duplicate-item",
                context={"key": key},
            )
        seen.add(key)
    return keys


# Slashes part folders; what cannot be printed would spoil tables.
_UNFIT = re.compile(r"[/\x00-\x1f\x7f]+")


def distinguish(names: Iterable[str]) -> list[str]:
    """Return names that are all different and fit behind a file name: no slashes, no line ends.

    Examples
    --------
    >>> distinguish(["a/b", "a", "a", "", "a_2"])
    ['a_b', 'a', 'a_2', 'unnamed', 'a_2_2']
    """
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        fit = _UNFIT.sub("_", name.strip()) or "unnamed"
        chosen = fit
        while chosen in seen:
            seen[fit] += 1
            chosen = f"{fit}_{seen[fit]}"
        seen[chosen] = 1
        found.append(chosen)
    return found


# The secret key of a user, with which files are sealed that only this user may have written.
#
# It lies in the user's folder of state, ``$XDG_STATE_HOME/tartan/key`` or ``~/.local/state/tartan/key``, and can be
# read by the user alone. It is made when it is first needed. Where it cannot be kept, nothing is sealed and no seal
# holds.

# By format: 256 bits, the width of HMAC-SHA-256.
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
