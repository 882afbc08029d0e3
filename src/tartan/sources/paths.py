"""Names of files turned into locations: globs, folders, URLs.

Pure of policy: nothing here knows what an item is used for. Local paths cost one ``stat`` each; fsspec is
imported only when a URL is met.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import translate
from functools import partial
from typing import Any, TypeVar

from tartan.base.format import clip_middle
from tartan.base.urls import is_url, refuse_chained
from tartan.errors import ConfigError
from tartan.sources.remote import in_time
from tartan.sources.split import Splitter

# ruff: noqa: PTH100, PTH111, PTH112, PTH116, PTH118
# Paths are texts here: a Path object each costs seconds at 100,000 files, and changes URLs.


# By judgement: a bucket of a million objects is a thousand requests; a server that hangs is told within
# CREATION_SECONDS of run/share. No benchmark.
_LISTING_SECONDS = 300.0
# By judgement: more than paths have, less than a text that was given for one.
_LONGEST_NAME = 300
_LIKE_A_NAME = re.compile(r"/|\.[A-Za-z0-9]{1,6}$")
# By judgement: one stat each, only to word a hint.
_MOST_LOOKED_FOR = 100
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
    size_bytes, mtime_ns, identity : int
        What a remote listing said, the last a number made from the ETag; -1 where unknown. Local files are asked when
        needed.
    part : int, str or None
        Number or name of the item of the file; None where the file is one item.
    splitter : Splitter or None
        What cuts the file into items.
    members : tuple of (str, Location) or None
        The files of a group, by their names in it; ``path`` is then the name of the group.
    """

    path: str
    filesystem: Any = None
    size_bytes: int = -1
    mtime_ns: int = -1
    identity: int = -1
    part: int | str | None = None
    splitter: Splitter | None = None
    members: tuple[tuple[str, Location], ...] | None = None

    @property
    def name(self) -> str:
        """Path of a local file, URL of a remote one; of a part with its number or name."""
        return self.file if self.part is None else f"{self.file}#{self.part}"

    @property
    def file(self) -> str:
        """Path of a local file, URL of a remote one."""
        return self.path if self.filesystem is None else str(self.filesystem.unstrip_protocol(self.path))


def has_magic(text: str) -> bool:
    """Whether a name is a pattern; an existing file whose name holds brackets is none."""
    if is_url(text):
        return _HTTP_MAGIC.search(text) is not None if text.startswith("http") else is_glob(text)
    return is_glob(text) and not os.path.lexists(text)


def names_files(texts: Sequence[str]) -> bool:
    """Whether texts are meant as names of files: one of them is such a name or a pattern, or all look like names."""
    if any(is_url(text) or "*" in text or "?" in text or os.path.lexists(os.path.expanduser(text)) for text in texts):
        return True
    # Brackets are common in texts, such as formulas of molecules; looking for each of very many would take minutes.
    in_brackets = itertools.islice((text for text in texts if "[" in text), _MOST_LOOKED_FOR)
    return any(list_matching(text) for text in in_brackets) or all(map(_LIKE_A_NAME.search, texts))


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
        matches = _list_files(name)
        return map(Location, matches or _some((), _say_nothing_matches(pattern)))
    try:
        mode = os.stat(name).st_mode
    except OSError as error:
        raise ConfigError(
            f"input {clip_middle(pattern, _LONGEST_NAME)!r}: {error.strerror}; name a file, a folder, a glob or a URL "
            "(texts that are the items themselves: give them names, as dict(enumerate(texts)))",
            context={"input": pattern, "errno": error.errno},
        ) from error
    return _list_folder(name, suffixes) if stat.S_ISDIR(mode) else [Location(name)]


def _list_files(pattern: str) -> list[str]:
    return sorted(path for path in list_matching(pattern) if not os.path.isdir(path))


def _say_nothing_matches(pattern: str) -> str:
    """Return the complaint, with the files that would match if capitals did not count: cameras write ``.JPG``."""
    folder, name = os.path.split(os.path.expanduser(pattern))
    if "[" not in name:  # letters within brackets are sets already
        any_case = re.sub("[A-Za-z]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", name)
        if others := _list_files(os.path.join(folder, any_case)):
            example = clip_middle(last_name(others[0]), _LONGEST_NAME)
            return (
                f"no file matches {pattern!r}: capitals count, and {len(others):,} would match without, as {example!r}"
            )
    return f"no file matches {pattern!r}; check the path"


def _list_folder(folder: str, suffixes: tuple[str, ...]) -> Iterable[Location]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not _is_folder(entry)]
    except OSError as error:
        raise ConfigError(f"folder {folder!r}: {error.strerror}", context={"input": folder}) from error
    chosen = _some(_choose(names, suffixes), _say_nothing_in(folder, suffixes))
    return [Location(os.path.join(folder, name)) for name in chosen]


def folders_within(name: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the folders inside a local folder that hold files which would be found there; none of anything else."""
    name = os.path.expanduser(name)
    if is_url(name) or not os.path.isdir(name):
        return []
    found = []
    with contextlib.suppress(OSError), os.scandir(name) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # one that cannot be listed has nothing to offer
                if _is_folder(entry) and not entry.name.startswith(".") and _holds_some(entry.path, suffixes):
                    found.append(entry.path)
    return sorted(found)


def _holds_some(folder: str, suffixes: tuple[str, ...]) -> bool:
    with os.scandir(folder) as entries:
        return bool(_choose((entry.name for entry in entries if not _is_folder(entry)), suffixes))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle: the item fails when it is read, and is named there
        return False


def _choose(names: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    visible = (name for name in names if not name.startswith("."))
    return sorted(name for name in visible if not suffixes or name.lower().endswith(suffixes))


def _say_nothing_in(folder: str, suffixes: tuple[str, ...]) -> str:
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
        kept = set(_choose((last_name(name) for name in files), suffixes))
        files = {name: info for name, info in files.items() if last_name(name) in kept}
    complaint = _say_nothing_in(url, suffixes) if folder else f"no file matches {url!r}"
    return [_remote(filesystem, name, files[name]) for name in _some(sorted(files), complaint)]


def remote_files(url: str) -> list[tuple[str, int, int, int]] | None:
    """Return (name, size, time of change, identity) of all files below a URL; None where a version is not told."""
    filesystem, path = _open_filesystem(url.rstrip("/"))
    try:
        found = in_time(partial(filesystem.find, path, detail=True), _LISTING_SECONDS)
    except Exception:  # a server that lists nothing
        return None
    listed = [_remote(filesystem, name, about) for name, about in found.items()]
    if not listed or any(one.mtime_ns < 0 and one.identity < 0 for one in listed):
        return None
    return [(one.path, one.size_bytes, one.mtime_ns, one.identity) for one in listed]


def _open_filesystem(url: str) -> tuple[Any, str]:
    refuse_chained(url)
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"input {url!r}: {_say_missing(url, error)}", code="missing-extra", context={"input": url}
        ) from error
    except ValueError as error:
        raise ConfigError(f"input {url!r}: {error}", context={"input": url}) from error
    except OSError as error:
        raise ConfigError(f"input {url!r} cannot be reached: {error}", context={"input": url}) from error
    return filesystem, path


def _say_missing(url: str, error: ImportError) -> str:
    """Say what must be installed to read a URL."""
    scheme = url.partition(":")[0].lower()
    extra = {"http": "http", "https": "http", "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}.get(scheme)
    if extra is None:
        return str(error)
    return f"{scheme} needs more than the plain install: pip install 'tartan-allpairs[{extra}]'"


def _remote(filesystem: Any, path: str, info: dict[str, Any]) -> Location:
    size = info.get("size")
    return Location(path, filesystem, -1 if size is None else int(size), _remote_mtime(info), remote_identity(info))


def remote_identity(info: dict[str, Any]) -> int:
    """Return a number made from what a server says of the version of a file; -1 where it says nothing."""
    said = next((info[name] for name in ("ETag", "etag", "md5Hash", "generation") if info.get(name)), None)
    if said is None:
        return -1
    # 63 bits: it is kept as a signed number, and -1 stays free.
    return int.from_bytes(hashlib.sha256(str(said).encode()).digest()[:8], "little") >> 1


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


def last_name(path: str) -> str:
    """Return the part of a path behind its last slash."""
    return path.rsplit("/", 1)[-1]


# Files that a pattern names. ``**`` goes through folders, but through no link to one: links may form a circle.

# ruff: noqa: PTH112, PTH118, PTH208
# Paths are texts here, as the user wrote them; a Path object each costs seconds at 100,000 files.


_MAGIC = re.compile(r"[*?\[]")


def is_glob(text: str) -> bool:
    """Whether a text has characters of a pattern."""
    return _MAGIC.search(text) is not None


def list_matching(pattern: str) -> list[str]:
    """Return the paths that match a pattern of ``*``, ``?``, ``[...]`` and ``**``, each once.

    ``**`` stands for any number of folders, and for all that they hold where it comes last. Names that begin with a dot
    are matched by patterns that do so only.
    """
    root = "/" * (len(pattern) - len(pattern.lstrip("/")))
    parts = [part for part in pattern.split("/") if part]
    return list(dict.fromkeys(_match(root, parts)))


def _match(folder: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for inner in _folders(folder):
            yield from _match(inner, rest or ["*"])
    elif is_glob(part):
        fits = re.compile(translate(part)).match
        for name in _names(folder):
            if fits(name) and (part.startswith(".") or not name.startswith(".")):
                yield from _match_inside(os.path.join(folder, name), rest)
    else:
        path = os.path.join(folder, part)
        if os.path.lexists(path):
            yield from _match_inside(path, rest)


def _match_inside(path: str, rest: list[str]) -> Iterator[str]:
    return _match(path, rest) if not rest or os.path.isdir(path) else iter(())


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _folders(folder: str) -> Iterator[str]:
    """Yield a folder and all below it that are neither hidden nor links."""
    yield folder
    try:
        with os.scandir(folder or ".") as entries:
            inner = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in inner:
        yield from _folders(os.path.join(folder, name))
