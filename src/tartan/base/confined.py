"""Write below a folder without ever leaving it: no symbolic link in it is followed.

Run folders, the folders of sorts, checkpoints, caches and what does not fit into memory may come from a stranger, or
lie where others write. A link in one of them, such as ``tmp -> $HOME``, would send what is written, emptied or removed
to a place of its maker's choice. So whatever is made, opened for writing, renamed or removed below such a folder goes
through a ``ConfinedFolder``: each name on the way is looked up relative to the descriptor of the folder before it, and
a link is refused by its name. The folder itself may be a link of the user's; it is resolved once.

Nothing is kept open between two calls. A folder that was moved away (that of a writer that was silent, base/lock.py)
is gone for whoever names it, and one call of the system for each name on the way costs a microsecond.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tartan.errors import ConfigError, StoreError

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # not blocking: it may be a pipe
_WRITES = os.O_WRONLY | os.O_RDWR
_THROUGH_LINK = (errno.ELOOP, errno.ENOTDIR)
# By judgement: what Tartan writes and reads whole is far smaller; a bound against strangers' folders. No benchmark.
_MOST_READ_BYTES = 64 << 20
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Entry = tuple[str, os.stat_result]
"""A name in a folder, and what lies there; of a link the link itself."""


class ConfinedFolder:
    """A folder and all below it, reached through no symbolic link; safe for threads.

    Every method takes paths that begin as ``path`` does, and raises OSError as the call of the system does, or
    StoreError (code "link") where a link is on the way or in the place of what would be opened.

    Parameters
    ----------
    path : Path
        The folder; it need not exist yet. Resolved once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._top = os.path.realpath(path)
        self._depth = len(path.parts)

    def open(self, place: Path, flags: int, mode: int = 0o666) -> int:
        """Open something and return its descriptor; what may be written must be a regular file.

        Parameters
        ----------
        place : Path
        flags : int
            Of ``os.open``.
        mode : int
            Of a file that is made.
        """
        with self._open_parent(place) as (descriptor, name):
            opened = os.open(name, flags | _FILE, mode, dir_fd=descriptor)
        if flags & _WRITES and not flags & os.O_EXCL and not _is_regular(opened):
            os.close(opened)
            raise _irregular(place)
        return opened

    def close(self, descriptor: int) -> None:
        """Close what ``open`` opened."""
        os.close(descriptor)

    def new_file(self, place: Path, mode: int = 0o666) -> BinaryIO:
        """Make a file and open it for writing; there must be nothing of its name."""
        return open(self.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "wb")

    def read(self, place: Path, most_bytes: int = _MOST_READ_BYTES) -> bytes:
        """Return the contents of a regular file that is not larger than what Tartan writes there."""
        with open(self.open(place, os.O_RDONLY), "rb") as file:
            if not _is_regular(file.fileno()):
                raise _irregular(place)
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise _irregular(place, f"has more than {most_bytes:,} bytes")
        return data

    def stat(self, place: Path) -> os.stat_result:
        """Return what lies at a place, of a link the link itself; FileNotFoundError if nothing does."""
        with self._open_parent(place) as (descriptor, name):
            return os.stat(name, dir_fd=descriptor, follow_symlinks=False)

    def is_folder(self, place: Path) -> bool:
        """Whether a folder lies at a place; a link is none."""
        try:
            return stat.S_ISDIR(self.stat(place).st_mode)
        except (OSError, StoreError):
            return False

    def require_file(self, place: Path) -> None:
        """Refuse what is not a regular file, such as a link to one, or lies behind a link."""
        state = self.stat(place)
        if stat.S_ISLNK(state.st_mode):
            raise self._link_error(place)
        if not stat.S_ISREG(state.st_mode):
            raise _irregular(place)

    def entries(self, place: Path) -> list[Entry]:
        """Return what lies in a folder, in order of names; empty where there is no such folder."""
        try:
            with self._open_for_listing(place) as descriptor:
                return _states(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, place: Path, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        """Make a folder in one that exists; a link in its place is refused, whatever it leads to."""
        with self._open_parent(place) as (descriptor, name):
            try:
                os.mkdir(name, mode, dir_fd=descriptor)
            except FileExistsError:
                if not exist_ok or not stat.S_ISDIR(self._state(descriptor, name, place).st_mode):
                    raise

    def make_parents(self, place: Path) -> None:
        """Make the folders that a file lies in, but never the top one: its mount may have gone."""
        for depth in range(self._depth + 1, len(place.parts)):
            self.make_folder(Path(*place.parts[:depth]), exist_ok=True)

    def move(self, source: Path, target: Path) -> None:
        """Give something another name, in place of what has that name."""
        with self._open_parent(source) as (old, before), self._open_parent(target) as (new, after):
            os.rename(before, after, src_dir_fd=old, dst_dir_fd=new)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if it is taken."""
        with self._open_parent(source) as (old, before), self._open_parent(target) as (new, after):
            os.link(before, after, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)

    def renew(self, place: Path) -> None:
        """Set the times of a file to now, by the clock of its file system."""
        with self._open_parent(place) as (descriptor, name):
            os.utime(name, dir_fd=descriptor, follow_symlinks=False)

    def remove(self, place: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; of a link the link itself."""
        try:
            with self._open_parent(place) as (descriptor, name):
                os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_folder(self, place: Path) -> None:
        """Remove an empty folder."""
        with self._open_parent(place) as (descriptor, name):
            os.rmdir(name, dir_fd=descriptor)

    def remove_tree(self, place: Path) -> None:
        """Remove a file, or a folder and all in it; of links the links themselves."""
        with self._open_parent(place) as (descriptor, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)

    def refuse_links(self, place: Path) -> None:
        """Refuse a link at a place, or anywhere below it.

        Raises
        ------
        StoreError
            With the name of the first one (code "link").
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            state = self.stat(place)
            if stat.S_ISLNK(state.st_mode):
                raise self._link_error(place)
            if stat.S_ISDIR(state.st_mode):
                for name in self._links_and_folders(place):
                    self.refuse_links(place / name)

    def _links_and_folders(self, place: Path) -> list[str]:
        """Return what is not a file; of files, which may be many, nothing but the names is asked for."""
        with self._open_for_listing(place) as descriptor, os.scandir(descriptor) as found:
            return sorted(entry.name for entry in found if not entry.is_file(follow_symlinks=False))

    def _names(self, place: Path) -> tuple[str, ...]:
        parts = place.parts
        names = parts[self._depth :]
        if parts[: self._depth] != self.path.parts or ".." in names:
            raise StoreError(f"{place} does not lie in {self.path}", code="outside", context={"path": str(place)})
        return names

    @contextlib.contextmanager
    def _open_parent(self, place: Path) -> Iterator[tuple[int, str]]:
        """Open the folder that something lies in; name the place in errors, and a link in it as such."""
        *folders, name = self._names(place) or (".",)
        with self._within(tuple(folders)) as descriptor:
            try:
                yield descriptor, name
            except OSError as error:
                raise self._name_path(error, descriptor, name, place) from None

    @contextlib.contextmanager
    def _open_for_listing(self, place: Path) -> Iterator[int]:
        """Open a folder so that it can be listed."""
        with self._open_parent(place) as (descriptor, name):
            listed = os.open(name, _LISTED, dir_fd=descriptor)
        try:
            yield listed
        finally:
            os.close(listed)

    @contextlib.contextmanager
    def _within(self, folders: tuple[str, ...]) -> Iterator[int]:
        """Open a folder below the top one, name by name."""
        descriptor = os.open(self._top, _FOLDER)
        try:
            for depth, name in enumerate(folders, 1):
                try:
                    inner = os.open(name, _FOLDER, dir_fd=descriptor)
                except OSError as error:
                    raise self._name_path(error, descriptor, name, self.path.joinpath(*folders[:depth])) from None
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _state(self, descriptor: int, name: str, place: Path) -> os.stat_result:
        """Return what has a name; refuse a link."""
        state = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            raise self._link_error(place)
        return state

    def _name_path(self, error: OSError, descriptor: int, name: str, place: Path) -> Exception:
        """Return an error that names the whole path; that of a link where there is one."""
        if error.errno in _THROUGH_LINK:
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    return self._link_error(place)
        error.filename = str(place)
        return error

    def _link_error(self, place: Path) -> StoreError:
        return StoreError(
            f"{place} is a symbolic link, and nothing is written through a link inside {self.path}: it could lead to "
            "files of yours that have nothing to do with it. Remove the link, or put what it leads to in its place; to "
            f"have it on another disk, move all of {self.path} there",
            code="link",
            context={"path": str(place)},
        )


def make_private(folder: Path, *, option: str = "") -> None:
    """Make a folder of this user alone in one that may be shared, or take the one that is there.

    Parameters
    ----------
    folder : Path
        Its parent must exist. Its mode becomes 0700.
    option : str
        That named the parent, for the message.

    Raises
    ------
    ConfigError
        If what is there is a link, no folder, or belongs to another user.
    OSError
        If it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
        return
    try:
        descriptor = os.open(folder, _LISTED)
    except OSError as error:
        if error.errno not in (*_THROUGH_LINK, errno.EACCES):
            raise
        raise _not_ours(folder, option) from None
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid():
            raise _not_ours(folder, option)
        if state.st_mode & _FOR_OTHERS:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def open_unfinished(path: Path, flags: int) -> int:
    """Open a file of a fixed temporary name beside one of the user, for writing; return its descriptor.

    Anyone who may write to the folder knows the name. What is there and is not a file of this user, such as a link, is
    removed first; OSError where that is not allowed.
    """
    folder = ConfinedFolder(path.parent)
    with contextlib.suppress(FileNotFoundError):
        state = folder.stat(path)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid():
            folder.remove(path)
    return folder.open(path, flags | os.O_CREAT)


def remove_tree(folder: Path) -> None:
    """Remove a folder of this process and all in it; ignore errors, and follow no link."""
    with contextlib.suppress(OSError, StoreError):
        ConfinedFolder(folder.parent).remove_tree(folder)


def is_plain_name(text: str, depth: int = 1) -> bool:
    """Whether a text from a file names something inside a folder, at most so many levels down: no root, no ``..``."""
    path = PurePosixPath(text)
    plain = not path.is_absolute() and ".." not in path.parts and "\0" not in text
    return plain and 0 < len(path.parts) <= depth


def _states(descriptor: int) -> list[Entry]:
    found = []
    for name in sorted(os.listdir(descriptor)):
        with contextlib.suppress(FileNotFoundError):
            found.append((name, os.stat(name, dir_fd=descriptor, follow_symlinks=False)))
    return found


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _irregular(place: Path, how: str = "is not a regular file") -> StoreError:
    return StoreError(
        f"{place} {how}; remove it, and run the command again",
        code="irregular",
        context={"path": str(place)},
    )


def _not_ours(folder: Path, option: str) -> ConfigError:
    return ConfigError(
        f"{option + ' ' if option else ''}{folder.parent}: {folder.name} in it is not a folder of this user alone; "
        "remove it, or name another folder",
        context={"option": option, "path": str(folder)},
    )
