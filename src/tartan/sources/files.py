"""Files as items: their keys, how they are read, whether they have changed; one item a file, or several."""
# ruff: noqa: PTH100, PTH116
# Paths are texts here: a Path object each costs seconds at 100,000 files, and changes URLs.

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from tartan.base.keys import distinct
from tartan.base.machine import memory
from tartan.base.regular import open_regular
from tartan.base.urls import URL
from tartan.errors import ItemError
from tartan.sources.paths import Location, absolute, last_name
from tartan.sources.remote import Patience, read_remote
from tartan.sources.split import Splitter


class Stamp(NamedTuple):
    """What tells versions of a file apart without reading it; -1 where it is not known.

    Attributes
    ----------
    size : int
        Bytes.
    mtime : int
        Time of the last change of its bytes, nanoseconds since 1970; may be set at will.
    ctime : int
        Time of the last change of anything about it, nanoseconds; cannot be set.
    identity : int
        Inode, or a number made from the ETag that a server gave.
    """

    size: int
    mtime: int
    ctime: int = -1
    identity: int = -1


class Fingerprints(NamedTuple):
    """The stamps of n files by column: int64 arrays (n,), see ``Stamp``."""

    sizes: np.ndarray
    mtimes: np.ndarray
    ctimes: np.ndarray
    identities: np.ndarray

    def of(self, index: int) -> Stamp:
        """Return the stamp of one file."""
        return Stamp(*(int(column[index]) for column in self))


DEFAULT_MAX_ITEM_BYTES = 8 * 2**30
PATIENCE = Patience()
_LARGE_BYTES = 64 << 20


class FileSource:
    """Files on the local file system or behind fsspec; an item is the bytes of one.

    Parameters
    ----------
    locations : sequence of Location
        The files in order.
    patterns : sequence of str
        What the user named, for the manifest.
    max_item_bytes : int
        Larger files fail as items.
    """

    kind: Literal["files"] = "files"

    def __init__(
        self,
        locations: Sequence[Location],
        patterns: Sequence[str] = (),
        max_item_bytes: int = DEFAULT_MAX_ITEM_BYTES,
    ) -> None:
        self._locations = list(locations)
        self._patterns = [absolute(pattern) for pattern in patterns]
        self._max_item_bytes = max_item_bytes
        self.n_items = len(self._locations)
        self.keys: Sequence[str] = distinct(item_keys(self.paths))
        self._stamps: np.ndarray | None = None

    @property
    def paths(self) -> list[str]:
        """Path or URL of each item."""
        return [location.name for location in self._locations]

    def only(self, keys: Sequence[str], stamped: tuple[Any, Any] | None) -> FileSource:
        """Return the files with these keys, without what has come beside them; all files where none is there.

        ``stamped`` are the sizes and times of change that the files had: they decide where several could be meant.
        """
        if list(self.keys) == list(keys):
            return self
        chosen = find_keys(self._locations, keys, stamped)
        return FileSource(chosen, self._patterns, self._max_item_bytes) if chosen else self

    def located(self, keys: Sequence[str], stamped: tuple[Any, Any] | None) -> list[Location | None]:
        """Return where the file of each key is, None where it is gone; ``stamped`` as of ``only``."""
        return locate_keys(self._locations, keys, stamped)

    def lacks(self, keys: Sequence[str]) -> list[str]:
        """Return the keys that have no file here."""
        return [key for key in keys if not find_keys(self._locations, [key], None)]

    def read(self, index: int) -> bytes:
        try:
            before = None if self._stamps is None else (*self._stamps[index, :2],)
            return read_location(self._locations[index], self._max_item_bytes, before)
        except Exception as error:  # a remote file system raises what it likes
            raise self._failure(index, error) from error

    def read_block(self, start: int, stop: int) -> np.ndarray:
        raise TypeError(f"a source of kind {self.kind!r} has no blocks; use read")

    def _failure(self, index: int, error: Exception) -> ItemError:
        key = self.keys[index]
        number = getattr(error, "errno", None) or None
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        name = f" ({errno.errorcode.get(number, number)})" if number else ""
        return ItemError(
            f"{key}: cannot be read: {reason}{name}",
            code="read",
            context={"key": key, "index": index, "path": self._locations[index].name, "errno": number},
        )

    def fingerprints(self) -> Fingerprints:
        if self._stamps is None:
            flat = itertools.chain.from_iterable(stamps(self._locations))
            self._stamps = np.fromiter(flat, dtype=np.int64, count=4 * self.n_items).reshape(-1, 4)
        return Fingerprints(*self._stamps.T.copy())

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "patterns": list(self._patterns)}


def read_location(
    location: Location,
    max_bytes: int,
    stamp: tuple[int, int] | None = None,
    patience: Patience = PATIENCE,
) -> bytes:
    """Return the content of a location.

    Parameters
    ----------
    stamp : (int, int), optional
        Size and time of change when the run began: items are read more than once.
    patience : Patience
        How long a server may take.

    Raises
    ------
    OSError
        If it cannot be read, is no regular file, holds more than ``max_bytes`` or than there is memory, or has changed
        since.
    """
    data = _read(location, max_bytes, patience) if location.part is None else _read_part(location, max_bytes, patience)
    if stamp is not None and next(stamps([location]))[:2] != stamp:
        raise OSError(0, "the file has changed since the run began")
    return data


def split_files(locations: Iterable[Location], splitter: Splitter, max_bytes: int) -> Iterator[Location]:
    """Yield the items of files that hold several, and all others as they are; what cannot be read fails later."""
    for location in locations:
        try:
            items = _items(location, splitter, max_bytes, PATIENCE)
        except Exception:  # the file fails as an item, with its reason
            items = None
        if items is None:
            yield location
        else:
            yield from (replace(location, part=part, splitter=splitter) for part in range(len(items)))


def _read_part(location: Location, max_bytes: int, patience: Patience) -> bytes:
    assert location.splitter is not None
    assert location.part is not None
    items = _items(location, location.splitter, max_bytes, patience)
    if items is None or location.part >= len(items):
        raise OSError(0, "the file does not hold this item any more")
    return items[location.part]


def _items(location: Location, splitter: Splitter, max_bytes: int, patience: Patience) -> Sequence[bytes] | None:
    whole = replace(location, part=None)
    identity = (whole.name, *next(stamps([whole])))
    return splitter.items(identity, last_name(whole.name), partial(_read, whole, max_bytes, patience))


def _read(location: Location, max_bytes: int, patience: Patience) -> bytes:
    if location.filesystem is None:
        return _read_local(location.path, max_bytes)
    if location.size_bytes > max_bytes:
        raise _too_large(location.size_bytes, max_bytes)
    _refuse_beyond_memory(location.size_bytes)
    data = read_remote(location.filesystem, location.path, location.size_bytes, max_bytes, patience)
    return _limited(data, max_bytes)


def _read_local(path: str, max_bytes: int) -> bytes:
    with open_regular(path, buffering=0) as file:
        status = os.fstat(file.fileno())
        if status.st_size > max_bytes:
            raise _too_large(status.st_size, max_bytes)
        _refuse_beyond_memory(status.st_size)
        return _limited(file.readall(), max_bytes)


def _refuse_beyond_memory(size: int) -> None:
    """Refuse a file that memory cannot hold: the system would end the run without a word."""
    if size >= _LARGE_BYTES and size > (available := memory().available_bytes):
        raise OSError(0, f"{size:,} bytes, more than the {available:,} bytes of memory that are free", None)


def _limited(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(len(data), max_bytes)
    return data


def _too_large(size: int, max_bytes: int) -> OSError:
    return OSError(0, f"{size} bytes or more, above the limit of {max_bytes} bytes for one item")


def item_keys(paths: Sequence[str]) -> list[str]:
    """Return stable keys: the file names where all differ, else the paths below their common folder.

    Neither depends on the working directory, nor on where the folder of the input lies.
    """
    names = [_text(last_name(path)) for path in paths]
    if len(set(names)) == len(names):
        return names
    parts = [os.path.normpath(path).split("/") for path in _resolved(paths)]
    first, last = min(parts)[:-1], max(parts)[:-1]  # what these two share, all share
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return [_text("/".join(part[common:])) for part in parts]


def _resolved(paths: Sequence[str]) -> Iterator[str]:
    # A relative and an absolute name of one folder must find each other.
    return (path if URL.match(path) else os.path.abspath(path) for path in paths)


def _text(name: str) -> str:
    # Names that are no UTF-8 can neither be printed nor written to Parquet.
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def find_keys(locations: Sequence[Location], keys: Sequence[str], stamped: tuple[Any, Any] | None) -> list[Location]:
    """Find the locations that have some of ``item_keys``, in the order of the keys; those that are gone are left out.

    Parameters
    ----------
    locations : sequence of Location
    keys : sequence of str
        File names, or the ends of paths.
    stamped : (sizes, times of change) or None
        What ``stamps`` said of the keys: it decides where a key fits several locations, then the shorter path does.
    """
    return [found for found in locate_keys(locations, keys, stamped) if found is not None]


def locate_keys(
    locations: Sequence[Location], keys: Sequence[str], stamped: tuple[Any, Any] | None
) -> list[Location | None]:
    """Find the location of each key; None for one that is gone. Parameters as of ``find_keys``."""
    named: dict[str, list[tuple[str, Location]]] = {}
    for location in locations:
        path = _text(absolute(location.name))
        named.setdefault(last_name(path), []).append((path, location))
    chosen: list[Location | None] = []
    for index, key in enumerate(keys):
        alike = named.get(last_name(key), ())
        fit = [(path, found) for path, found in alike if path == key or path.endswith(f"/{key}")]
        if len(fit) > 1 and stamped is not None:
            before = int(stamped[0][index]), int(stamped[1][index])
            fit = [(path, found) for path, found in fit if next(stamps([found]))[:2] == before] or fit
        chosen.append(min(fit, key=lambda pair: len(pair[0]))[1] if fit else None)
    return chosen


def stamps(locations: Sequence[Location]) -> Iterator[Stamp]:
    """Yield what tells versions of each location apart."""
    for location in locations:
        if location.filesystem is not None:
            yield Stamp(location.size_bytes, location.mtime_ns, identity=location.identity)
            continue
        try:
            yield stamp_of(os.stat(location.path))
        except OSError:
            yield Stamp(-1, -1)  # it vanished: the item fails when it is read, and is named there


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a local file."""
    identity = status.st_ino & 0x7FFF_FFFF_FFFF_FFFF
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, identity)
