"""Names of files turned into locations: globs, folders, URLs; and how a location is read.

Pure of policy: nothing here knows what an item is used for. Local paths cost one ``stat`` each; fsspec is
imported only when a URL is met.
"""
# ruff: noqa: PTH100, PTH111, PTH112, PTH116, PTH118
# Paths are texts here: a Path object each costs seconds at 100,000 files, and changes URLs.

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tartan.base.machine import memory
from tartan.errors import ConfigError
from tartan.sources import globs
from tartan.sources.remote import Patience, in_time, read_remote
from tartan.sources.split import Splitter

PATIENCE = Patience()
_LARGE_BYTES = 64 << 20
_LISTING_SECONDS = 300.0
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(::|://)")
_T = TypeVar("_T")
_HTTP_MAGIC = re.compile(r"[*\[]")  # a question mark starts the query of a web address


@dataclass(frozen=True, slots=True)
class Location:
    """Where one item lies.

    Attributes
    ----------
    path : str
        Path on the local file system, or inside ``filesystem``.
    filesystem : fsspec.AbstractFileSystem or None
        None for the local file system.
    size_bytes, mtime_ns : int
        What a remote listing said; -1 where unknown. Local files are asked when needed.
    part : int or None
        Which item of the file it is; None where the file is one item.
    splitter : Splitter or None
        What cuts the file into items.
    """

    path: str
    filesystem: Any = None
    size_bytes: int = -1
    mtime_ns: int = -1
    part: int | None = None
    splitter: Splitter | None = None

    @property
    def name(self) -> str:
        """Path of a local file, URL of a remote one; of a part with its number."""
        file = self.path if self.filesystem is None else str(self.filesystem.unstrip_protocol(self.path))
        return file if self.part is None else f"{file}#{self.part}"


def is_url(text: str) -> bool:
    """Whether a name is an fsspec URL (``s3://..``, ``zip://..::..``) and not a local path."""
    return _URL.match(text) is not None and not os.path.lexists(text)


def has_magic(text: str) -> bool:
    """Whether a name is a pattern; an existing file whose name holds brackets is none."""
    if is_url(text):
        return _HTTP_MAGIC.search(text) is not None if text.startswith("http") else globs.has_magic(text)
    return globs.has_magic(text) and not os.path.lexists(text)


def absolute(text: str) -> str:
    """Return a name that means the same from every working directory."""
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


def expand(patterns: Sequence[str], suffixes: tuple[str, ...]) -> list[Location]:
    """Expand paths, globs, folders and URLs in the order given, each one sorted by name.

    Parameters
    ----------
    patterns : sequence of str
        What the user named.
    suffixes : tuple of str
        Lower-case endings that a folder is searched for; empty takes every file that is not hidden.

    Raises
    ------
    ConfigError
        If a name does not exist, a pattern or folder holds nothing, or a file is named twice.
    """
    found: list[Location] = []
    for pattern in patterns:
        found.extend(_expand_url(pattern, suffixes) if is_url(pattern) else _expand_local(pattern, suffixes))
    _refuse_duplicates(found)
    return found


def _expand_local(pattern: str, suffixes: tuple[str, ...]) -> Iterable[Location]:
    name = os.path.expanduser(pattern)
    if has_magic(name):
        matches = sorted(path for path in globs.matching(name) if not os.path.isdir(path))
        return map(Location, _some(matches, f"no file matches {pattern!r}; check the path"))
    try:
        mode = os.stat(name).st_mode
    except OSError as error:
        raise ConfigError(
            f"input {pattern!r}: {error.strerror}; name a file, a folder, a glob or a URL "
            "(a list of texts that are the items themselves: pass SequenceSource(items))",
            context={"input": pattern, "errno": error.errno},
        ) from error
    return _list_folder(name, suffixes) if stat.S_ISDIR(mode) else [Location(name)]


def _list_folder(folder: str, suffixes: tuple[str, ...]) -> Iterable[Location]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not _is_folder(entry)]
    except OSError as error:
        raise ConfigError(f"folder {folder!r}: {error.strerror}", context={"input": folder}) from error
    chosen = _some(_choose(names, suffixes), _nothing_in(folder, suffixes))
    return [Location(os.path.join(folder, name)) for name in chosen]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle: the item fails when it is read, and is named there
        return False


def _choose(names: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    visible = (name for name in names if not name.startswith("."))
    return sorted(name for name in visible if not suffixes or name.lower().endswith(suffixes))


def _nothing_in(folder: str, suffixes: tuple[str, ...]) -> str:
    wanted = f"file ending in {', '.join(suffixes)}" if suffixes else "file"
    return f"folder {folder!r} holds no {wanted}; its subfolders are searched by the glob '{folder}/**/*'"


def _some(found: Sequence[_T], complaint: str) -> Sequence[_T]:
    if not found:
        raise ConfigError(complaint, code="no-input")
    return found


def _expand_url(url: str, suffixes: tuple[str, ...]) -> list[Location]:
    filesystem, path = _open_filesystem(url)
    folder = url.endswith("/")
    if not folder and not has_magic(url):
        return [Location(path, filesystem)]
    try:
        listing = partial(filesystem.find, maxdepth=1) if folder else filesystem.glob
        found = in_time(partial(listing, path, detail=True), _LISTING_SECONDS)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"input {url!r} cannot be listed: {error}", context={"input": url}) from error
    files = {name: info for name, info in found.items() if info.get("type") != "directory"}
    if folder:
        kept = set(_choose((_last(name) for name in files), suffixes))
        files = {name: info for name, info in files.items() if _last(name) in kept}
    complaint = _nothing_in(url, suffixes) if folder else f"no file matches {url!r}"
    return [_remote(filesystem, name, files[name]) for name in _some(sorted(files), complaint)]


def _open_filesystem(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"input {url!r}: {_missing(url, error)}", code="missing-extra", context={"input": url}
        ) from error
    except ValueError as error:
        raise ConfigError(f"input {url!r}: {error}", context={"input": url}) from error
    except OSError as error:
        raise ConfigError(f"input {url!r} cannot be reached: {error}", context={"input": url}) from error
    return filesystem, path


def _missing(url: str, error: ImportError) -> str:
    """Say what must be installed to read a URL."""
    scheme = url.partition(":")[0].lower()
    extra = {"http": "http", "https": "http", "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}.get(scheme)
    if extra is None:
        return str(error)
    return f"{scheme} needs more than the plain install: pip install 'tartan-allpairs[{extra}]'"


def _remote(filesystem: Any, path: str, info: dict[str, Any]) -> Location:
    size = info.get("size")
    return Location(path, filesystem, -1 if size is None else int(size), _remote_mtime(info))


def _remote_mtime(info: dict[str, Any]) -> int:
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, int | float):
            return int(value * 1e9)
    return -1


def _refuse_duplicates(found: Sequence[Location]) -> None:
    seen: set[tuple[int, str]] = set()
    for location in found:
        local = location.filesystem is None
        identity = (id(location.filesystem), os.path.abspath(location.path) if local else location.path)
        if identity in seen:
            raise ConfigError(
                f"input {location.name!r} is named twice; every item may be given once",
                code="duplicate-item",
                context={"input": location.name},
            )
        seen.add(identity)


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def item_keys(paths: Sequence[str]) -> list[str]:
    """Return stable keys: the file names where all differ, else the paths below their common folder.

    Neither depends on the working directory, nor on where the folder of the input lies.
    """
    names = [_text(_last(path)) for path in paths]
    if len(set(names)) == len(names):
        return names
    parts = [os.path.normpath(path).split("/") for path in _resolved(paths)]
    first, last = min(parts)[:-1], max(parts)[:-1]  # what these two share, all share
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return [_text("/".join(part[common:])) for part in parts]


def _resolved(paths: Sequence[str]) -> Iterator[str]:
    # A relative and an absolute name of one folder must find each other.
    return (path if _URL.match(path) else os.path.abspath(path) for path in paths)


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
        named.setdefault(_last(path), []).append((path, location))
    chosen: list[Location | None] = []
    for index, key in enumerate(keys):
        fit = [(path, found) for path, found in named.get(_last(key), ()) if path == key or path.endswith(f"/{key}")]
        if len(fit) > 1 and stamped is not None:
            before = int(stamped[0][index]), int(stamped[1][index])
            fit = [(path, found) for path, found in fit if next(stamps([found])) == before] or fit
        chosen.append(min(fit, key=lambda pair: len(pair[0]))[1] if fit else None)
    return chosen


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
        What ``stamps`` said when the run began: items are read more than once.
    patience : Patience
        How long a server may take.

    Raises
    ------
    OSError
        If it cannot be read, is no regular file, holds more than ``max_bytes`` or than there is memory, or has changed
        since.
    """
    data = _read(location, max_bytes, patience) if location.part is None else _read_part(location, max_bytes, patience)
    if stamp is not None and next(stamps([location])) != stamp:
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
    return splitter.items(identity, _last(whole.name), partial(_read, whole, max_bytes, patience))


def _read(location: Location, max_bytes: int, patience: Patience) -> bytes:
    if location.filesystem is None:
        return _read_local(location.path, max_bytes)
    if location.size_bytes > max_bytes:
        raise _too_large(location.size_bytes, max_bytes)
    _refuse_beyond_memory(location.size_bytes)
    data = read_remote(location.filesystem, location.path, location.size_bytes, max_bytes, patience)
    return _limited(data, max_bytes)


def open_regular(path: str, buffering: int = -1) -> Any:
    """Open a regular file for reading bytes.

    Raises
    ------
    OSError
        If it cannot be opened, or is something else.
    """
    # Not blocking, or a named pipe among the files would hold a reader forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    file = open(descriptor, "rb", buffering=buffering)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(0, "not a regular file", path)
    return file


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


def stamps(locations: Sequence[Location]) -> Iterator[tuple[int, int]]:
    """Yield (size in bytes, time of last change in ns) of each location; -1 where it is not known."""
    for location in locations:
        if location.filesystem is not None:
            yield location.size_bytes, location.mtime_ns
            continue
        try:
            status = os.stat(location.path)
        except OSError:
            yield -1, -1  # it vanished: the item fails when it is read, and is named there
        else:
            yield status.st_size, status.st_mtime_ns
