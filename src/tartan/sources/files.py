"""Files as items: their keys, how they are read, whether they have changed; one item a file, or several."""
# ruff: noqa: PTH100, PTH116
# Paths are texts here: a Path object each costs seconds at 100,000 files, and changes URLs.

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from tartan.base.bundle import is_bundle, pack_files
from tartan.base.files import open_regular
from tartan.base.format import clip_middle, reason_of
from tartan.base.keys import distinct
from tartan.base.machine import memory
from tartan.base.urls import URL
from tartan.errors import ItemError
from tartan.sources.left_out import count_left_out
from tartan.sources.paths import Location, absolute, last_name
from tartan.sources.remote import Patience, read_remote
from tartan.sources.split import Items, Splitter


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


class ListedFile(NamedTuple):
    """A file as it was listed, which another process of this machine reads as this one does.

    Attributes
    ----------
    key : str
    item : int
        Its index in the source.
    location : Location
    max_bytes : int
        A larger one fails.
    stamp : tuple of int or None
        The first entries of its ``Stamp`` when the run began: items are read more than once.
    """

    key: str
    item: int
    location: Location
    max_bytes: int
    stamp: tuple[int, ...] | None

    def read(self) -> bytes:
        """Return its bytes; raises ItemError if it cannot be read, or has changed."""
        try:
            return read_location(self.location, self.max_bytes, self.stamp)
        except Exception as error:  # a remote file system raises what it likes
            raise self._failure(error) from error

    def for_workers(self) -> ListedFile | None:
        """Return the file as a worker finds it, and have the system read it ahead.

        None for one that this process should read: it is not local, only a part is wanted, or it cannot be read.
        """
        if self.location.members is not None:
            return self._group_for_workers(self.location.members)
        if self.location.filesystem is not None or self.location.part is not None:
            return None
        try:
            with open_regular(self.location.path, buffering=0) as file:
                found = stamp_of(os.fstat(file.fileno()))
                for start in range(0, min(found.size, _AHEAD_BYTES), _AHEAD_STEP):
                    os.posix_fadvise(file.fileno(), start, _AHEAD_STEP, os.POSIX_FADV_WILLNEED)
        except OSError:
            return None
        if found.size > self.max_bytes or self.stamp not in (None, found[:2]):
            return None
        # User code may have changed the working directory of a worker, and /dev/fd means other files there.
        return self._replace(location=Location(absolute(self.location.path)), stamp=found)

    def _group_for_workers(self, members: Sequence[tuple[str, Location]]) -> ListedFile | None:
        files = [self._replace(location=member, stamp=None).for_workers() for _, member in members]
        if None in files or self.n_bytes > self.max_bytes:
            return None
        found = [(name, file.location) for (name, _), file in zip(members, files, strict=True) if file is not None]
        return self._replace(location=replace(self.location, members=tuple(found)))

    @property
    def n_bytes(self) -> int:
        """Its size when it was listed; 0 where that is not known."""
        return max(0, self.stamp[0]) if self.stamp else 0

    def _failure(self, error: Exception) -> ItemError:
        number = getattr(error, "errno", None) or None
        reason = _reason(error, self.location.name)
        name = f" ({errno.errorcode.get(number, number)})" if number else ""
        local = self.location.filesystem is None
        source = "" if local else f" from {clip_middle(self.location.name, _LONGEST_REASON)}"
        return ItemError(
            f"{self.key}: cannot be read{source}: {reason}{name}",
            code="read",
            context={"key": self.key, "index": self.item, "path": self.location.name, "errno": number},
        )


# By arithmetic: what the machine has, since an item is held whole; what is free is asked before a large one is read. At
# least 8 GiB, so that where little memory is reported an ordinary file is judged by what is free. No benchmark.
DEFAULT_MAX_ITEM_BYTES = max(8 * 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
_WAY_OUT = "give it compressed if its application reads that, or use a machine with more memory"
PATIENCE = Patience()
# Measured: asking the system for its free memory takes 0.5 ms, which is nothing beside reading 64 MiB.
# By judgement: asking the system for its free memory costs 50 us or so, which nobody feels beside reading 64 MiB. No
# benchmark.
_LARGE_BYTES = 64 << 20
# By judgement: a file of 64 MiB for each of some threads is what the page cache can hold for them. `tartan bench reads`
# measures it.
_AHEAD_BYTES = 64 << 20
# Measured by `tartan bench reads`, which holds 1,000 MB/s.
_AHEAD_STEP = 1 << 20  # local disks take little more from one call, and each lets other threads go first
# By judgement: a line or two of a message.
_LONGEST_REASON = 300


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
    suffixes : tuple of str
        Of the files that were taken from folders.
    keys : sequence of str, optional
        Default: made of the paths.
    live : bool array (n,), optional
        Items that were removed from a run are false: others stand in for them, and they are no files.
    """

    kind: Literal["files"] = "files"

    def __init__(
        self,
        locations: Sequence[Location],
        patterns: Sequence[str] = (),
        max_item_bytes: int = DEFAULT_MAX_ITEM_BYTES,
        suffixes: tuple[str, ...] = (),
        keys: Sequence[str] | None = None,
        live: np.ndarray | None = None,
    ) -> None:
        self._suffixes = suffixes
        self._locations = list(locations)
        self._patterns = [absolute(pattern) for pattern in patterns]
        self._max_item_bytes = max_item_bytes
        self.n_items = len(self._locations)
        self.keys: Sequence[str] = distinct(item_keys(self.paths)) if keys is None else keys
        self._live = live
        self._stamps: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, which may run in another folder: local files by absolute paths."""
        return self.__dict__ | {"_locations": [make_absolute(location) for location in self._locations]}

    @property
    def paths(self) -> list[str]:
        """Path or URL of each item; the name of a group."""
        return [location.name for location in self._locations]

    @property
    def files(self) -> Iterator[tuple[str, str]]:
        """Key of the item and path or URL of each file; the name in the group where the item is one."""
        for index, (key, location) in enumerate(zip(self.keys, self._locations, strict=True)):
            if self._live is not None and not self._live[index]:
                continue
            if location.members is None:
                yield key, location.name
            else:
                yield from ((f"{key}/{name}", member.name) for name, member in location.members)

    def only(self, keys: Sequence[str], stamped: tuple[Any, Any] | None) -> FileSource:
        """Return the files with these keys, without what has come beside them; all files where none is there.

        ``stamped`` are the sizes and times of change that the files had: they decide where several could be meant.
        """
        if list(self.keys) == list(keys):
            return self
        chosen = find_keys(self._locations, keys, stamped)
        return FileSource(chosen, self._patterns, self._max_item_bytes, self._suffixes) if chosen else self

    def chosen(
        self,
        keeps_file: Callable[[Location], bool],
        most: int | None,
        splitter: Splitter | None,
        keeps_part: Callable[[Location], bool],
    ) -> FileSource:
        """Return the first items of files that are kept; of files that hold several, no more are read than needed.

        Parameters
        ----------
        keeps_file, keeps_part : callable
            Whether a file, and an item of one that holds several, is kept; the first is asked for all files before.
        most : int or None
            How many items there are at most.
        splitter : Splitter or None
            What cuts files into items.
        """
        files: Iterable[Location] = [file for file in self._locations if keeps_file(file)]
        if splitter is not None:
            items = split_files(files, splitter, self._max_item_bytes)
            files = (item for item in items if item.part is None or keeps_part(item))
        found = list(itertools.islice(files, most))
        paths = list(dict.fromkeys(item.file for item in found))
        return FileSource(found, paths, self._max_item_bytes, self._suffixes)

    def without(self, live: np.ndarray, stand_in: FileSource | None = None) -> FileSource:
        """Return the source with stand-ins for items that are not items any more: they are never compared.

        Parameters
        ----------
        live : bool array (n,)
        stand_in : FileSource, optional
            Whose first item stands in where none is live here.
        """
        if live.all():
            return self
        other = self if live.any() else stand_in or self
        first = other._locations[int(live.argmax()) if live.any() else 0]
        there = [location if alive else first for location, alive in zip(self._locations, live.tolist(), strict=True)]
        return self._standing(there, live, self.keys)

    def only_live(
        self, keys: Sequence[str], stamped: tuple[Any, Any] | None, live: np.ndarray, patterns: Sequence[str] = ()
    ) -> FileSource:
        """Return the files with these keys, as ``only``, where those that are not live may be gone.

        Fewer where one that is live is gone. ``patterns`` are what the user named, where not all of it is there.
        """
        if live.all():
            return self.only(keys, stamped)
        chosen = [
            found if alive else None for found, alive in zip(self.find_locations(keys, stamped), live, strict=True)
        ]
        known = [found for found in chosen if found is not None]
        if len(known) < int(live.sum()) or not known:
            return self._holding(known)
        return self._standing([known[0] if found is None else found for found in chosen], live, keys, patterns)

    def _holding(self, locations: Sequence[Location]) -> FileSource:
        return FileSource(locations, self._patterns, self._max_item_bytes, self._suffixes)

    def _standing(
        self, locations: Sequence[Location], live: np.ndarray, keys: Sequence[str], patterns: Sequence[str] = ()
    ) -> FileSource:
        """Return a source in which some locations stand in for those of items that are not live."""
        named = patterns or self._patterns
        return FileSource(locations, named, self._max_item_bytes, self._suffixes, keys, live)

    def standing_for(self, keys: Sequence[str], patterns: Sequence[str]) -> FileSource:
        """Return a source of items of which none is an item any more; the first one here stands in for all."""
        dead = np.zeros(len(keys), bool)
        return FileSource([self._locations[0]] * len(keys), patterns, self._max_item_bytes, (), keys, dead)

    def find_locations(self, keys: Sequence[str], stamped: tuple[Any, Any] | None) -> list[Location | None]:
        """Return where the file of each key is, None where it is gone; ``stamped`` as of ``only``."""
        return locate_keys(self._locations, keys, stamped)

    def lacks(self, keys: Sequence[str]) -> list[str]:
        """Return the keys that have no file here."""
        return [key for key in keys if not find_keys(self._locations, [key], None)]

    def file(self, index: int) -> ListedFile:
        """Return the file of an item."""
        stamp = None if self._stamps is None else (*self._stamps[index, :2].tolist(),)
        return ListedFile(self.keys[index], index, self._locations[index], self._max_item_bytes, stamp)

    def read(self, index: int) -> bytes:
        return self.file(index).read()

    def read_block(self, start: int, stop: int) -> np.ndarray:
        raise TypeError(f"a source of kind {self.kind!r} has no blocks; use read")

    def fingerprints(self) -> Fingerprints:
        if self._stamps is None:
            flat = itertools.chain.from_iterable(stamps(self._locations))
            self._stamps = np.fromiter(flat, dtype=np.int64, count=4 * self.n_items).reshape(-1, 4)
        return Fingerprints(*self._stamps.T.copy())

    def describe(self) -> dict[str, Any]:
        unread = {"left_out": self._left_out} if self._left_out else {}
        return {"kind": self.kind, "patterns": list(self._patterns)} | unread

    @functools.cached_property
    def _left_out(self) -> dict[str, dict[str, int]]:
        beside = {absolute(path) for path in map(_companion, self._locations) if path is not None}
        return count_left_out(self._patterns, self._suffixes, beside)


def make_absolute(location: Location) -> Location:
    """Return a location that is found from any folder; remote ones, and names of groups, stay as they are."""
    if location.members is not None:
        members = tuple((name, make_absolute(member)) for name, member in location.members)
        return replace(location, members=members)
    if location.filesystem is not None or Path(location.path).is_absolute():
        return location
    try:
        return replace(location, path=str(Path.cwd() / location.path))
    except OSError:  # the folder of this process was removed: nothing is found from it either
        return location


def _reason(error: Exception, name: str) -> str:
    """Say in one line of moderate length why a location cannot be read.

    File systems of fsspec often say only which one it is; what they have heard is then the cause.
    """
    said = getattr(error, "strerror", None) or str(error)
    if said == name and isinstance(error.__cause__, Exception):
        return clip_middle(reason_of(error.__cause__), _LONGEST_REASON)
    if said == name and isinstance(error, FileNotFoundError):
        return "there is no such file"
    return clip_middle(" ".join(said.split()), _LONGEST_REASON) or type(error).__name__


def read_location(
    location: Location,
    max_bytes: int,
    stamp: tuple[int, ...] | None = None,
    patience: Patience = PATIENCE,
) -> bytes:
    """Return the content of a location.

    Parameters
    ----------
    stamp : tuple of int, optional
        The first entries of its ``Stamp`` when the run began: items are read more than once.
    patience : Patience
        How long a server may take.

    Raises
    ------
    OSError
        If it cannot be read, is not a regular file, holds more than ``max_bytes`` or than there is memory, or has
        changed
        since.
    """
    if location.members is not None:
        data = _read_group(location.members, max_bytes, patience)
    else:
        one = _read if location.part is None else _read_part
        data = one(location, max_bytes, patience)
        if is_bundle(data):
            raise OSError(0, "it begins as the files of a group do in this program, and is no such file")
    if stamp is not None and next(stamps([location]))[: len(stamp)] != stamp:
        raise OSError(0, "the file has changed since the run began")
    return data


def _read_group(members: Sequence[tuple[str, Location]], max_bytes: int, patience: Patience) -> bytes:
    """Return the files of a group, packed; what cannot be read of them is named."""
    files, left = [], max_bytes
    for name, member in members:
        try:
            data = read_location(member, left, patience=patience)
        except Exception as error:
            code = getattr(error, "errno", None) or 0
            raise OSError(code, f"{name}, a file of the group: {_reason(error, member.name)}") from error
        left -= len(data)
        files.append((name, data))
    return pack_files(files)


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
            parts = items if isinstance(items, Mapping) else range(len(items))
            yield from (replace(location, part=part, splitter=splitter) for part in parts)


def _read_part(location: Location, max_bytes: int, patience: Patience) -> bytes:
    assert location.splitter is not None
    assert location.part is not None
    items = _items(location, location.splitter, max_bytes, patience)
    try:
        return items[location.part]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        raise OSError(0, "the file does not hold this item any more") from None


def _items(location: Location, splitter: Splitter, max_bytes: int, patience: Patience) -> Items | None:
    whole = replace(location, part=None, splitter=splitter)
    identity = (whole.name, *next(stamps([whole])))
    read, beside = partial(_read, whole, max_bytes, patience), partial(_read_beside, whole, max_bytes)
    return splitter.items(identity, last_name(whole.name), read, beside)


def _companion(location: Location) -> str | None:
    """Return the path of the file that would lie beside a local one; None where it has no companion."""
    if location.splitter is None or location.filesystem is not None:
        return None
    return location.splitter.companion(location.path)


def _read_beside(location: Location, max_bytes: int) -> bytes | None:
    path = _companion(location)
    try:
        return None if path is None else _read_local(path, max_bytes)
    except FileNotFoundError:
        return None


def _read(location: Location, max_bytes: int, patience: Patience) -> bytes:
    if location.filesystem is None:
        return _read_local(location.path, max_bytes)
    if location.size_bytes > max_bytes:
        raise _too_large(location.size_bytes, max_bytes)
    _refuse_beyond_memory(location.size_bytes)
    data = read_remote(location.filesystem, location.path, location.size_bytes, max_bytes, patience)
    return _limit(data, max_bytes)


def _read_local(path: str, max_bytes: int) -> bytes:
    with open_regular(path, buffering=0) as file:
        status = os.fstat(file.fileno())
        if status.st_size > max_bytes:
            raise _too_large(status.st_size, max_bytes)
        _refuse_beyond_memory(status.st_size)
        return _limit(file.readall(), max_bytes)


def _refuse_beyond_memory(size: int) -> None:
    """Refuse a file that memory cannot hold: the system would end the run without a word."""
    if size >= _LARGE_BYTES and size > (available := memory().available_bytes):
        raise OSError(0, f"{size:,} bytes, more than the {available:,} bytes of memory that are free; {_WAY_OUT}")


def _limit(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(len(data), max_bytes)
    return data


def _too_large(size: int, max_bytes: int) -> OSError:
    return OSError(0, f"{size:,} bytes or more, above the limit of {max_bytes:,} bytes for one item; {_WAY_OUT}")


def item_keys(paths: Sequence[str]) -> list[str]:
    """Return stable keys: the file names where all differ, else the paths below their common folder.

    Neither depends on the working directory, nor on where the folder of the input lies.
    """
    names = [_text(last_name(path)) for path in paths]
    if len(set(names)) == len(names):
        return names
    parts = [os.path.normpath(path).split("/") for path in _resolve(paths)]
    first, last = min(parts)[:-1], max(parts)[:-1]  # what these two share, all share
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return [_text("/".join(part[common:])) for part in parts]


def _resolve(paths: Sequence[str]) -> Iterator[str]:
    # A relative and an absolute name of one folder must find each other.
    return (path if URL.match(path) else os.path.abspath(path) for path in paths)


def _text(name: str) -> str:
    # Names that are not UTF-8 can neither be printed nor written to Parquet.
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
        if location.members is not None:
            yield _stamp_of_group([member for _, member in location.members])
            continue
        if location.filesystem is not None:
            yield Stamp(location.size_bytes, location.mtime_ns, identity=location.identity)
            continue
        try:
            yield _with_companion(stamp_of(os.stat(location.path)), _companion(location))
        except OSError:
            yield Stamp(-1, -1)  # it vanished: the item fails when it is read, and is named there


def _stamp_of_group(members: Sequence[Location]) -> Stamp:
    """Return a stamp that changes with every file of a group, and with which files these are."""
    found = list(stamps(members))
    if any(stamp.size < 0 for stamp in found):
        return Stamp(-1, -1)
    sizes, mtimes, ctimes, _ = zip(*found, strict=True)
    whose = repr([(stamp.size, stamp.mtime, stamp.identity) for stamp in found]).encode()
    # 63 bits, as of ``remote_identity``.
    identity = int.from_bytes(hashlib.sha256(whose).digest()[:8], "little") >> 1
    return Stamp(sum(sizes), -1 if min(mtimes) < 0 else max(mtimes), max(ctimes), identity)


def _with_companion(stamp: Stamp, path: str | None) -> Stamp:
    """Return a stamp that changes with the file beside a file, too."""
    try:
        other = None if path is None else stamp_of(os.stat(path))
    except OSError:
        other = None
    if other is None:
        return stamp
    return Stamp(stamp.size + other.size, max(stamp.mtime, other.mtime), max(stamp.ctime, other.ctime), stamp.identity)


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a local file."""
    identity = status.st_ino & 0x7FFF_FFFF_FFFF_FFFF
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, identity)
