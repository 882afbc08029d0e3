"""Names of items: keys of those that have none of their own, and names without suffixes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import overload

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
            raise ConfigError(f"key {key!r} is given twice", code="duplicate-item", context={"key": key})
        seen.add(key)
    return keys
