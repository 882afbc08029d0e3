"""Checksums of items: of all that is in memory at once, of what is read when it is read, of some items when asked.

A checksum is of what the source gives, before anything is parsed: the bytes of a file, a row in its own dtype, an
object by its pickle. base/checksum.py has the functions.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.checksum import (
    BLOCK_BYTES,
    NOT_KNOWN,
    NOT_TELLING,
    checksum_of_bytes,
    checksum_of_object,
    checksums_of_entries,
    checksums_of_rows,
)
from tartan.base.entries import BEHIND, are_entries
from tartan.errors import ItemError, TartanError
from tartan.sources.files import ListedFile
from tartan.sources.items import JoinedSource, Source, file_of
from tartan.sources.rows.entries import whole_rows_of

Sums = NDArray[np.uint64]
Note = Callable[[int, Sums], NDArray[np.intp]]
"""Takes the index of the first item and the checksums; returns which of them, counted from 0, are not as before."""


def leaves_of(source: Source, first: int = 0) -> Iterator[tuple[int, Source]]:
    """Yield what was given at once, with the index of its first item."""
    if isinstance(source, JoinedSource):
        for start, part in zip(source.starts, source.parts, strict=False):
            yield from leaves_of(part, first + start)
    else:
        yield first, source


def is_in_memory(source: Source) -> bool:
    """Whether all items of a source that is not joined are there, and nothing is read or made when asked for."""
    return bool(getattr(source, "in_memory", False))


def checksums_in_memory(source: Source) -> Sums:
    """Return the checksums of all items that are in memory, NOT_KNOWN for all others."""
    sums = np.full(source.n_items, NOT_KNOWN, np.uint64)
    for first, leaf in leaves_of(source):
        if is_in_memory(leaf):
            sums[first : first + leaf.n_items] = _of_leaf(leaf, np.arange(leaf.n_items))
    return sums


def checksums_of(source: Source, items: NDArray[np.intp]) -> Sums:
    """Read items, in ascending order, and return their checksums; NOT_KNOWN for one that cannot be read."""
    sums = np.full(len(items), NOT_KNOWN, np.uint64)
    for first, leaf in leaves_of(source):
        chosen = slice(*np.searchsorted(items, [first, first + leaf.n_items]))
        sums[chosen] = _of_leaf(leaf, items[chosen] - first)
    return sums


def _of_leaf(source: Source, items: NDArray[np.intp]) -> Sums:
    if source.kind == "array":
        blocks = [_of_block(source, start, stop) for start, stop in _blocks(source, items)]
        return np.concatenate([np.empty(0, np.uint64), *blocks])
    return np.fromiter((_of_one(source, int(item)) for item in items), np.uint64, len(items))


def _blocks(source: Source, items: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Yield ranges that hold the rows, each in one call of moderate size."""
    if not len(items):
        return
    height = max(1, BLOCK_BYTES // max(1, source.read_block(0, 1).nbytes))
    for run in np.split(items, np.flatnonzero(np.diff(items) != 1) + 1):
        first, end = int(run[0]), int(run[-1]) + 1
        yield from ((start, min(start + height, end)) for start in range(first, end, height))


def _of_block(source: Source, start: int, stop: int) -> Sums:
    try:
        return _of_rows(source, source.read_block(start, stop))
    except (OSError, ValueError, TartanError):
        return np.full(stop - start, NOT_KNOWN, np.uint64)


def _of_rows(source: Source, rows: np.ndarray) -> Sums:
    """Return the checksums of rows that a source gave; entries have those of the rows with their zeros."""
    if not are_entries(rows):
        return checksums_of_rows(rows)
    width, dtype = whole_rows_of(source)
    return checksums_of_entries(rows["position"], rows["value"].astype(dtype), rows["position"] != BEHIND, width)


def _of_one(source: Source, index: int) -> int:
    try:
        return _of_item(source.read(index))
    except TartanError:
        return NOT_KNOWN


def _sums(total: int) -> Sums:
    return np.array([total], np.uint64)


def _of_item(item: Any) -> int:
    return checksum_of_bytes(item) if isinstance(item, bytes) else checksum_of_object(item)


def note_checksums(source: Source, note: Note) -> Source:
    """Return a source with the same items that notes the checksum of each file and row it reads.

    What is in memory is not noted again. An item that is not as it was noted before cannot be read: some scores were
    computed with the other one.
    """
    return _note_checksums(source, note, 0)


def _note_checksums(source: Source, note: Note, first: int) -> Source:
    if isinstance(source, JoinedSource):
        parts = [
            _note_checksums(part, note, first + start) for start, part in zip(source.starts, source.parts, strict=False)
        ]
        return JoinedSource(parts, source.keys)
    return source if is_in_memory(source) else NotingSource(source, note, first)


class NotingSource:
    """A source that notes the checksums of what it reads; use ``note_checksums``.

    Attributes
    ----------
    inner : Source
        What it reads from.
    """

    def __init__(self, source: Source, note: Note, first: int) -> None:
        self.inner, self._note, self._first = source, note, first
        self.kind, self.n_items, self.keys = source.kind, source.n_items, source.keys
        self.fingerprints, self.describe = source.fingerprints, source.describe

    def read(self, index: int) -> Any:
        """Return an item as the source does."""
        item = self.inner.read(index)
        rows = self.kind == "array"
        self._check(index, _of_rows(self.inner, np.asarray(item)[None]) if rows else _sums(_of_item(item)))
        return item

    def file(self, index: int) -> ListedFile | None:
        """Return the file of an item; the checksum of what is read of it must be noted by ``is_as_noted``."""
        return file_of(self.inner, index)

    def is_as_noted(self, index: int, total: int) -> bool:
        """Note the checksum of a file that was read elsewhere; return whether it is as it was noted before."""
        return not len(self._note(self._first + index, _sums(total)))

    def read_block(self, start: int, stop: int) -> np.ndarray:
        """Return rows as the source does."""
        rows = self.inner.read_block(start, stop)
        self._check(start, _of_rows(self.inner, rows))
        return rows

    def _check(self, first: int, sums: Sums) -> None:
        changed = self._note(self._first + first, sums)
        # An object that is made when it is asked for need not have one pickle each time.
        if len(changed) and self.kind != "sequence":
            key = self.keys[first + int(changed[0])]
            what = "file" if self.kind == "files" else "row"
            raise ItemError(
                f"{key}: cannot be read: the {what} has changed since it was compared with others",
                code="changed",
                context={"key": key, "index": first + int(changed[0])},
            )


def is_as_noted(source: Source, index: int, total: int) -> bool:
    """Note the checksum of a file that was read elsewhere; return whether it is as it was noted before."""
    if isinstance(source, JoinedSource):
        return is_as_noted(*source.within(index), total)
    return not isinstance(source, NotingSource) or source.is_as_noted(index, total)


class Versions:
    """What a ready item depends on besides its name: a text that is another one as soon as the item is.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        leaves = list(leaves_of(source))
        self._starts = [first for first, _ in leaves]
        self._leaves = [_version_of(getattr(leaf, "inner", leaf)) for _, leaf in leaves]

    def of(self, index: int) -> str | None:
        """Return the version of an item, None where nothing tells it."""
        at = bisect.bisect_right(self._starts, index) - 1
        return self._leaves[at](index - self._starts[at])


def _version_of(source: Source) -> Callable[[int], str | None]:
    stamps = source.fingerprints()
    if stamps is not None:
        return lambda index: _find_change(stamps.of(index))
    if is_in_memory(source):
        return lambda index: _compare_sums(source, index)
    stamp: dict[str, Any] = getattr(source, "stamp", dict)()
    about = {"shape": getattr(source, "shape", ()), "dtype": str(getattr(source, "dtype", "")), **stamp}
    return lambda index: f"row {index} of {sorted(about.items())}" if stamp else None


def _find_change(stamp: Sequence[int]) -> str | None:
    return " ".join(map(str, stamp)) if max(stamp[1:]) >= 0 else None


def _compare_sums(source: Source, index: int) -> str | None:
    (total,) = _of_leaf(source, np.array([index]))
    return None if total in (NOT_KNOWN, NOT_TELLING) else f"checksum {total}"
