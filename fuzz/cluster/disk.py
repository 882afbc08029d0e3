"""A simulated file system under the real code of leases, claims and commits: full, torn and lost when it must be.

It keeps what processes see and, apart from that, what a power cut leaves. Names that were changed are on the disk once
their folder was forced, what is in a file once the file was; of the rest a power cut keeps some. Folders themselves are
never lost.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import random
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.cluster.host import Process


class State(NamedTuple):
    """What ``os.stat`` returns of a file or folder, as far as anyone looks."""

    st_mode: int
    st_ino: int
    st_mtime: float
    st_size: int
    st_dev: int = 1


class Node:
    """A file, whatever its names."""

    __slots__ = ("data", "exclusive", "mtime", "number", "safe", "shared")

    def __init__(self, number: int, mtime: float) -> None:
        self.number, self.mtime = number, mtime
        self.data = b""
        self.safe: bytes | None = None
        self.exclusive: int | None = None
        self.shared: set[int] = set()


class Disk:
    """The file system that all processes of a world share.

    Parameters
    ----------
    rng : random.Random
        Says what a power cut leaves.
    now : callable
        Returns the time by the clock of the file server.
    """

    def __init__(self, rng: random.Random, now: Callable[[], float]) -> None:
        self._rng, self._now = rng, now
        self.files: dict[str, Node] = {}
        self._safe: dict[str, Node] = {}
        self._pending: dict[str, list[tuple[int, str, Node | None]]] = {}
        self._changes = itertools.count()
        self._children: dict[str, dict[str, None]] = {"": {}}
        self._serial = 0
        self._descriptors: dict[int, tuple[Node | str, Process]] = {}
        self.is_full = False

    # -- names -----------------------------------------------------------------------------------------------------

    def set_name(self, path: str, node: Node | None) -> None:
        """Give a file a name, or take the name away."""
        folder, _, name = path.rpartition("/")
        if node is None:
            del self.files[path]
            del self._children[folder][name]
        else:
            if folder not in self._children:
                raise _error(errno.ENOENT, path)
            self.files[path] = node
            self._children[folder].setdefault(name)
        self._pending.setdefault(folder, []).append((next(self._changes), path, node))

    def make_folder(self, path: str) -> None:
        """Make an empty folder."""
        folder, _, name = path.rpartition("/")
        if folder not in self._children:
            raise _error(errno.ENOENT, path)
        if name in self._children[folder]:
            raise _error(errno.EEXIST, path)
        self._children[folder][name] = None
        self._children[path] = {}

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        if self.list_names(path):
            raise _error(errno.ENOTEMPTY, path)
        self.force(path)
        folder, _, name = path.rpartition("/")
        del self._children[folder][name], self._children[path]

    def move_folder(self, source: str, target: str) -> None:
        """Give a folder another name; that is on the disk at once."""
        self.make_folder(target)
        for name in list(self._children[source]):
            old, new = f"{source}/{name}", f"{target}/{name}"
            if old in self._children:
                self.move_folder(old, new)
            else:
                node = self.files[old]
                self.set_name(new, node)
                self.set_name(old, None)
        self.force(target)
        self.remove_folder(source)

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of that name."""
        return path in self._children

    def list_names(self, path: str) -> list[str]:
        """Return what is in a folder, in order."""
        if path not in self._children:
            raise _error(errno.ENOENT, path)
        return sorted(self._children[path])

    def find(self, path: str) -> Node:
        """Return the file of a name; raises OSError."""
        node = self.files.get(path)
        if node is None:
            raise _error(errno.EISDIR if path in self._children else errno.ENOENT, path)
        return node

    def make_file(self, path: str) -> Node:
        """Make an empty file."""
        if path in self.files or path in self._children:
            raise _error(errno.EEXIST, path)
        self._serial += 1
        node = Node(self._serial, self._now())
        self.set_name(path, node)
        return node

    def state(self, path: str) -> State:
        """Return what lies at a place."""
        if path in self._children:
            return State(stat.S_IFDIR, 0, self._now(), 0)
        return self.state_of(self.find(path))

    def state_of(self, node: Node) -> State:
        """Return the state of a file."""
        return State(stat.S_IFREG, node.number, node.mtime, len(node.data))

    def write(self, node: Node, data: bytes, at: int | None = None) -> None:
        """Write at the end, or over what is at a place."""
        if self.is_full and data:
            raise _error(errno.ENOSPC, "")
        at = len(node.data) if at is None else at
        node.data = node.data[:at] + data + node.data[at + len(data) :]
        node.mtime = self._now()

    # -- what a power cut leaves -----------------------------------------------------------------------------------

    def force(self, path: str) -> None:
        """Force a file, or the names in a folder, to the disk."""
        node = self.files.get(path)
        if node is not None:
            node.safe = node.data
            return
        for change in self._pending.pop(path, ()):
            self._note_safe(*change)

    def force_all(self) -> None:
        """Force everything to the disk."""
        for node in self.files.values():
            node.safe = node.data
        for change in self._list_pending():
            self._note_safe(*change)
        self._pending.clear()

    def is_safe(self, path: str) -> bool:
        """Whether a power cut leaves a file as it is."""
        node = self.files.get(path)
        return node is not None and self._safe.get(path) is node and node.safe == node.data

    def cut_power(self) -> None:
        """Lose what was not forced, or some of it: names in their order, bytes at the end or in the middle."""
        pending = self._list_pending()
        for change in pending[: self._rng.randrange(len(pending) + 1)]:
            self._note_safe(*change)
        self._pending.clear()
        self._descriptors.clear()
        for node in dict.fromkeys(self._safe.values()):
            if node.safe != node.data:
                node.data = node.safe = self._tear(node)
            node.exclusive, node.shared = None, set()
        for path in list(self.files):
            folder, _, name = path.rpartition("/")
            del self._children[folder][name]
        self.files = dict(self._safe)
        for path in self.files:
            folder, _, name = path.rpartition("/")
            self._children[folder][name] = None

    def _list_pending(self) -> list[tuple[int, str, Node | None]]:
        return sorted(itertools.chain.from_iterable(self._pending.values()), key=lambda change: change[0])

    def _note_safe(self, _: int, path: str, node: Node | None) -> None:
        if node is None:
            self._safe.pop(path, None)
        else:
            self._safe[path] = node

    def _tear(self, node: Node) -> bytes:
        whole, at = node.data, self._rng.randrange(len(node.data) + 1)
        kinds = (whole, whole[:at], whole[:at] + bytes(len(whole) - at), node.safe or b"")
        return self._rng.choice(kinds)

    # -- open files ------------------------------------------------------------------------------------------------

    def open_descriptor(self, what: Node | str, process: Process) -> int:
        """Return a number for an open file or folder."""
        self._serial += 1
        self._descriptors[self._serial] = what, process
        return self._serial

    def opened(self, descriptor: int) -> Node:
        """Return an open file."""
        node = self._descriptors[descriptor][0]
        assert isinstance(node, Node)
        return node

    def close(self, descriptor: int) -> None:
        """Close a file; its lock ends."""
        what, _ = self._descriptors.pop(descriptor, ("", None))
        if isinstance(what, Node):
            what.shared.discard(descriptor)
            if what.exclusive == descriptor:
                what.exclusive = None

    def close_all(self, process: Process) -> None:
        """Close what a process that is gone has open."""
        for descriptor in [one for one, (_, owner) in self._descriptors.items() if owner is process]:
            self.close(descriptor)

    def flock(self, descriptor: int, operation: int) -> None:
        """Lock an open file as the kernel does, without waiting."""
        node = self.opened(descriptor)
        others = node.shared - {descriptor}
        taken = node.exclusive not in (None, descriptor) or (operation & fcntl.LOCK_EX and others)
        if taken:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        if operation & fcntl.LOCK_EX:
            node.exclusive = descriptor
        else:
            node.shared.add(descriptor)

    def force_descriptor(self, descriptor: int) -> None:
        """Force an open file or folder to the disk."""
        what = self._descriptors[descriptor][0]
        if isinstance(what, str):
            self.force(what)
        else:
            what.safe = what.data


class OpenFile:
    """A file that is open for writing."""

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk, self._descriptor = disk, descriptor

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._disk.write(self._disk.opened(self._descriptor), bytes(data))
        return len(data)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close it."""
        self._disk.close(self._descriptor)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimulatedFolder:
    """The run folder as one process reaches it, in place of ``ConfinedFolder``; see there for the methods.

    Every call is one at which the process may be killed.
    """

    def __init__(self, disk: Disk, process: Process, root: Path) -> None:
        self.path = root
        self._disk, self._process = disk, process
        self._cut = len(str(root)) + 1
        self._root = str(root)

    def _key(self, place: Path) -> str:
        self._process.on_call()
        text = str(place)
        return "" if text == self._root else text[self._cut :]

    def open(self, place: Path, flags: int, mode: int = 0o666) -> int:
        """Open a file or folder."""
        key = self._key(place)
        if self._disk.is_folder(key):
            return self._disk.open_descriptor(key, self._process)
        if flags & os.O_CREAT and (flags & os.O_EXCL or key not in self._disk.files):
            node = self._disk.make_file(key)
        else:
            node = self._disk.find(key)
        return self._disk.open_descriptor(node, self._process)

    def close(self, descriptor: int) -> None:
        """Close what was opened."""
        self._disk.close(descriptor)

    def new_file(self, place: Path, mode: int = 0o666) -> OpenFile:
        """Make a file."""
        return OpenFile(self._disk, self.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def read(self, place: Path, most_bytes: int = 0) -> bytes:
        """Return what a file holds."""
        return self._disk.find(self._key(place)).data

    def peek(self, key: str) -> bytes | None:
        """Return what a file holds, given its name on the disk; None where there is none."""
        self._process.on_call()
        node = self._disk.files.get(key)
        return None if node is None else node.data

    def stat(self, place: Path) -> State:
        """Return what lies at a place."""
        return self._disk.state(self._key(place))

    def is_folder(self, place: Path) -> bool:
        """Whether a folder lies at a place."""
        return self._disk.is_folder(self._key(place))

    def entries(self, place: Path) -> list[tuple[str, State]]:
        """Return what is in a folder; empty where there is none."""
        key = self._key(place)
        if not self._disk.is_folder(key):
            return []
        prefix = f"{key}/" if key else ""
        return [(name, self._disk.state(prefix + name)) for name in self._disk.list_names(key)]

    def make_folder(self, place: Path, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        """Make a folder."""
        key = self._key(place)
        if not (exist_ok and self._disk.is_folder(key)):
            self._disk.make_folder(key)

    def make_parents(self, place: Path) -> None:
        """Make the folders that a file lies in."""
        if self._disk.is_folder(self._key(place.parent)):
            return
        for parent in reversed(place.parents):
            if len(str(parent)) > len(self._root):
                self.make_folder(parent, exist_ok=True)

    def move(self, source: Path, target: Path) -> None:
        """Give something another name."""
        old, new = self._key(source), self._key(target)
        if self._disk.is_folder(old):
            self._disk.move_folder(old, new)
            return
        node = self._disk.find(old)
        self._disk.set_name(new, node)
        self._disk.set_name(old, None)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        old, new = self._key(source), self._key(target)
        node = self._disk.find(old)
        if new in self._disk.files:
            raise _error(errno.EEXIST, new)
        self._disk.set_name(new, node)

    def renew(self, place: Path) -> None:
        """Set the time of a file to now."""
        node = self._disk.find(self._key(place))
        self._disk.write(node, b"")

    def remove(self, place: Path, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        key = self._key(place)
        if missing_ok and key not in self._disk.files:
            return
        self._disk.find(key)
        self._disk.set_name(key, None)

    def remove_folder(self, place: Path) -> None:
        """Remove an empty folder."""
        self._disk.remove_folder(self._key(place))

    def write_buffers(self, descriptor: int, buffers: Sequence[Any]) -> int:
        """Write what ``os.writev`` would."""
        data = b"".join(bytes(one) for one in buffers)
        self._disk.write(self._disk.opened(descriptor), data)
        return len(data)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
