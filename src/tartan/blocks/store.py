"""The arrays that one rank keeps, in one shared arena: pieces that subtasks wrote, and ranges that they read.

What can be had again (ranges) is dropped when room is needed; what cannot (pieces) goes to the local folder and comes
back. The one whose next use is farthest goes first. Pinned arrays stay, and so do those that are lent: functions have
views of them, and their memory is not given to others before the last of these is gone. All methods may be called from
any thread.
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.blocks.loans import LOAN_BYTES
from tartan.errors import InternalError
from tartan.workers.arena import Arena

# By arithmetic: a page, the unit in which memory is given back to the system.
_ALIGNMENT = 4096


class FreeRoom:
    """What is free of a piece of memory; first fit from either end.

    Examples
    --------
    >>> room = FreeRoom(20_000)
    >>> room.take(5000), room.take(5000), room.take(4096, last=True)
    (0, 8192, None)
    """

    def __init__(self, n_bytes: int) -> None:
        self._holes = [(0, n_bytes)]  # (offset, length), in order, never side by side

    def longest(self) -> int:
        """Return the length of the longest hole."""
        return max((length for _, length in self._holes), default=0)

    def take(self, n_bytes: int, *, last: bool = False) -> int | None:
        """Return the offset of this number of bytes; None where no hole is long enough.

        Parameters
        ----------
        last : bool
            Take the end of the last hole that is long enough, not the beginning of the first.
        """
        wanted = align_size(n_bytes)
        order = range(len(self._holes))
        for k in reversed(order) if last else order:
            offset, length = self._holes[k]
            if length >= wanted:
                if last:
                    self._holes[k : k + 1] = [(offset, length - wanted)] if length > wanted else []
                    return offset + length - wanted
                self._holes[k : k + 1] = [(offset + wanted, length - wanted)] if length > wanted else []
                return offset
        return None

    def give(self, offset: int, n_bytes: int) -> None:
        """Take bytes back."""
        length = align_size(n_bytes)
        k = bisect.bisect(self._holes, (offset, 0))
        if k < len(self._holes) and offset + length == self._holes[k][0]:
            length += self._holes.pop(k)[1]
        if k and sum(self._holes[k - 1]) == offset:
            before = self._holes.pop(k - 1)
            offset, length = before[0], before[1] + length
            k -= 1
        self._holes.insert(k, (offset, length))


def align_size(n_bytes: int) -> int:
    """Return the bytes that an array takes in a store."""
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


@dataclass(eq=False)
class StoredArray:
    """An array of the store; ``offset`` is None while it is on disk, ``path`` None while it is not there."""

    shape: tuple[int, ...]
    dtype: np.dtype
    forgettable: bool
    offset: int | None
    pins: int = 1
    path: Path | None = None
    dropped: bool = False
    n_lent: int = 0
    removed: bool = False

    @property
    def stays(self) -> bool:
        """Whether it cannot leave the memory now."""
        return bool(self.pins or self.n_lent)

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class BlockStore:
    """Arrays by key, in a room of fixed size.

    Parameters
    ----------
    n_bytes : int
        The room.
    folder : Path
        For what does not fit.
    shared : bool
        Whether worker processes see the arrays.

    Attributes
    ----------
    arena : Arena
    next_use : callable
        Returns when an array is needed next, given its key: the larger, the later; infinity for never.
    bytes_spilled, bytes_restored : int
        Written to the folder, and read from it.
    """

    def __init__(self, n_bytes: int, folder: Path, *, shared: bool = True) -> None:
        self.arena = Arena(align_size(n_bytes) + LOAN_BYTES, shared)
        self.n_bytes = n_bytes
        self.next_use: Callable[[Hashable], float] = lambda key: math.inf
        self.bytes_spilled = self.bytes_restored = 0
        self._folder = folder
        self._confined = ConfinedFolder(folder)
        self._room = FreeRoom(n_bytes)
        self._kept: dict[Hashable, StoredArray] = {}
        self._in_memory: dict[Hashable, StoredArray] = {}
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._closed = False

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def add(self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype, *, forgettable: bool) -> bool:
        """Make a pinned array of undefined values; return whether there was room."""
        with self._lock:
            if key in self._kept:
                raise InternalError(f"the store holds {key} already")
            kept = StoredArray(shape, dtype, forgettable, None)
            if not self._give_room(key, kept):
                return False
            self._kept[key] = kept
            return True

    def has_free(self, n_bytes: int) -> bool:
        """Whether arrays of so many bytes surely find room that is free."""
        with self._lock:
            return self._room.longest() >= n_bytes

    def pin(self, key: Hashable) -> bool:
        """Keep an array in memory until ``unpin``; return whether there is room for it.

        Raises
        ------
        KeyError
            If there is no such array.
        """
        with self._lock:
            kept = self._kept[key]
            if kept.offset is None and not self._restore(key, kept):
                return False
            kept.pins += 1
            return True

    def unpin(self, key: Hashable) -> None:
        """Let go of an array; of those of a closed store there is nothing to let go of."""
        with self._lock:
            if self._closed:
                return
            kept = self._kept[key]
            kept.pins -= 1
            if kept.dropped and not kept.pins:
                self._remove(key)

    def lend(self, key: Hashable) -> StoredArray:
        """Keep the memory of a pinned array until ``take_back``, though it may be unpinned and dropped before."""
        with self._lock:
            kept = self._kept[key]
            kept.n_lent += 1
            return kept

    def take_back(self, lent: StoredArray) -> None:
        """Let go of an array that was lent."""
        with self._lock:
            lent.n_lent -= 1
            if lent.removed and not lent.n_lent and not self._closed:
                assert lent.offset is not None
                self._room.give(lent.offset, lent.n_bytes)

    def copy(self, key: Hashable, part: tuple[slice, ...], target: np.ndarray) -> None:
        """Copy a part of an array, from memory or from disk; no room is needed.

        Raises
        ------
        KeyError
            If there is no such array.
        """
        with self._lock:
            kept = self._kept[key]
            kept.pins += 1
        try:
            if kept.offset is not None:
                target[...] = self.array(key)[part]
            else:
                target[...] = np.memmap(str(kept.path), kept.dtype, "r", shape=kept.shape)[part]
                self.bytes_restored += target.nbytes
        finally:
            self.unpin(key)

    def array(self, key: Hashable) -> np.ndarray:
        """Return a pinned array."""
        kept = self._kept[key]
        if kept.offset is None:
            raise InternalError(f"{key} is not in memory")
        return self.arena.view(kept.offset, kept.shape, kept.dtype)

    def dtype_of(self, key: Hashable) -> np.dtype:
        """Return the dtype of an array; KeyError if there is none."""
        return self._kept[key].dtype

    def is_dropped(self, key: Hashable) -> bool:
        """Whether an array goes as soon as it is not pinned."""
        return self._kept[key].dropped

    def place(self, key: Hashable) -> tuple[int, tuple[int, ...], str]:
        """Return offset, shape and dtype of a pinned array, for worker processes."""
        kept = self._kept[key]
        if kept.offset is None:
            raise InternalError(f"{key} is not in memory")
        return kept.offset, kept.shape, kept.dtype.str

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget arrays; pinned ones as soon as they are not."""
        with self._lock:
            for key in keys:
                kept = self._kept.get(key)
                if kept is None:
                    continue
                kept.dropped = True
                if not kept.pins:
                    self._remove(key)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop the unpinned arrays whose key fulfils a condition."""
        with self._lock:
            self.drop([key for key, kept in self._kept.items() if not kept.pins and wanted(key)])

    def close(self) -> None:
        """Release everything, although another rank may be reading an array."""
        with self._lock:
            self._closed = True
            self._kept.clear()
            self._in_memory.clear()
        self.arena.close()

    # -- under the lock ----------------------------------------------------------------------------------------

    def _give_room(self, key: Hashable, kept: StoredArray) -> bool:
        """Find a place in memory for an array, and make others leave; return whether there is one.

        Ranges and pieces differ in size: they come from either end, and each goes before the other kind where both are
        not needed any more, so that what is free fits what comes.
        """
        kept.offset = self._room.take(kept.n_bytes, last=not kept.forgettable)
        while kept.offset is None:
            victims = {
                other: (self.next_use(other), one.forgettable == kept.forgettable)
                for other, one in self._in_memory.items()
                if not one.stays
            }
            if not victims or kept.n_bytes > self.n_bytes:
                return False
            self._evict(max(victims, key=victims.__getitem__))
            kept.offset = self._room.take(kept.n_bytes, last=not kept.forgettable)
        self._in_memory[key] = kept
        return True

    def _evict(self, key: Hashable) -> None:
        kept = self._kept[key]
        if kept.forgettable:
            self._remove(key)
            return
        if kept.path is None:
            path = self._folder / f"piece-{next(self._numbers)}.bin"
            with disk_errors(path), self._confined.new_file(path, 0o600) as file:
                file.write(self.array(key).reshape(-1).view(np.uint8).data)
            kept.path = path
            self.bytes_spilled += kept.n_bytes
        assert kept.offset is not None
        self._room.give(kept.offset, kept.n_bytes)
        kept.offset = None
        del self._in_memory[key]

    def _restore(self, key: Hashable, kept: StoredArray) -> bool:
        if not self._give_room(key, kept):
            return False
        assert kept.offset is not None
        assert kept.path is not None
        with kept.path.open("rb", buffering=0) as file:
            file.readinto(self.arena.view(kept.offset, (kept.n_bytes,), np.uint8).data)
        self.bytes_restored += kept.n_bytes
        return True

    def _remove(self, key: Hashable) -> None:
        kept = self._kept.pop(key)
        kept.removed = True
        if kept.offset is not None:
            del self._in_memory[key]
            if not kept.n_lent:
                self._room.give(kept.offset, kept.n_bytes)
        if kept.path is not None:
            self._confined.remove(kept.path, missing_ok=True)
