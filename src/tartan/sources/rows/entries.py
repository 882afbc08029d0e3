"""Sparse rows given out as entries, for applications that compare them so; see ``tartan.base.entries``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tartan import _native
from tartan.base.checksum import BLOCK_BYTES
from tartan.base.entries import ENTRY, pack_entries
from tartan.errors import ConfigError, ItemError
from tartan.sources.arrays import ArraySource, ChosenRows
from tartan.sources.rows.shards import ShardSource
from tartan.sources.rows.sparse import CsrArray, CsrInMemory, CsrSource

# By judgement: where all have an entry, 16 pairs take some cycles, and 32 of dense rows one for each position, or a
# quarter of one where most pairs are screened.
_LEAST_ZEROS = 16
"""Of so many values of rows that become entries one at most is not 0."""

# By judgement: rows of entries are all as long as the longest, and must not take the memory of dense ones.
_LONGEST = 4
"""Of so many values of the longest of these rows one at most is not 0."""


class EntryRows(ArraySource):
    """Rows of an array as entries.

    Parameters
    ----------
    inner : ArraySource
    length : int or None
        Entries of a row, at most; None: rows are given out as they are.

    Attributes
    ----------
    inner : ArraySource
    length : int or None
    """

    def __init__(self, inner: ArraySource, length: int | None) -> None:
        self.inner, self.length = inner, length
        self.path, self.n_items, self.in_memory = inner.path, inner.n_items, False
        self.paths = getattr(inner, "paths", [] if inner.path is None else [inner.path])

    @property
    def keys(self) -> Sequence[str]:
        """Names of the rows."""
        return self.inner.keys

    @keys.setter
    def keys(self, names: Sequence[str]) -> None:
        if names is not self.inner.keys:
            self.inner.keys = names

    @property
    def width(self) -> int:
        """Values of a row, with those that are 0."""
        return self.inner.shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the entries of one; the shape of the rows where they are given out as they are."""
        return self.inner.shape if self.length is None else (self.n_items, self.length)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what is given out."""
        return self.inner.dtype if self.length is None else ENTRY

    def read_block(self, start: int, stop: int) -> np.ndarray:
        """Return rows.

        Raises
        ------
        ItemError
            If one has more entries than any had before.
        """
        if self.length is None:
            return self.inner.read_block(start, stop)
        parts = [self._pack(start + first, *part) for first, part in _entries_of(self.inner, start, stop)]
        return np.concatenate([np.empty((0, self.length), ENTRY), *parts])

    def _pack(self, first: int, ends: np.ndarray, positions: np.ndarray, values: np.ndarray) -> np.ndarray:
        assert self.length is not None
        counts = np.diff(ends)
        if len(counts) and counts.max() > self.length:
            row = int(counts.argmax())
            raise ItemError(
                f"row {first + row} has {counts[row]:,} values that are not 0, and the longest row had {self.length:,} "
                "when this run was begun: it has changed since",
                code="read",
                context={"index": first + row},
            )
        return pack_entries(ends, positions, values, self.length)

    def describe(self) -> dict[str, Any]:
        """Return what the manifest records: as of the rows."""
        return self.inner.describe()

    def stamp(self) -> dict[str, Any]:
        """Return what tells versions of the rows apart."""
        return self.inner.stamp()


def as_entries(source: Any) -> Any:
    """Return a source as one of entries, where it is sparse enough for that to pay; else the source.

    Raises
    ------
    ConfigError
        If it is, and rows are wider than entries can be.
    """
    parts = _csr_parts(source)
    if not parts or source.dtype.itemsize > 8 or not source.shape[1]:
        return source  # an entry has a float64
    width = int(source.shape[1])
    longest = max(part.longest for part in parts)
    mean = sum(part.n_values for part in parts) / source.n_items
    if mean * _LEAST_ZEROS > width or longest * _LONGEST > width:
        return source
    if width > _native.MOST_POSITIONS:
        raise ConfigError(
            f"{source.path or 'the sparse matrix'} has rows of {width:,} values, and sparse rows have at most "
            f"{_native.MOST_POSITIONS:,}; leave out the columns that no row uses, which changes no score: "
            "used, at = numpy.unique(X.indices, return_inverse=True), and then "
            "scipy.sparse.csr_array((X.data, at, X.indptr), shape=(X.shape[0], len(used)))",
            context={"width": width},
        )
    return EntryRows(source, max(1, longest))


def bring_together(sources: Sequence[Any], *, sides: bool) -> Sequence[Any]:
    """Let rows that are joined all be entries of one length, or none.

    Parameters
    ----------
    sources : sequence of Source
        Of kind "array".
    sides : bool
        Whether they are the two sides of A x B: those are entries where both are. Rows that are added are what the
        first ones are. Entries are all of the greatest length.

    Raises
    ------
    ConfigError
        If rows differ in width.
    """
    inner = [_inner(source) for source in sources]
    if not any(inner):
        return sources
    widths = [one[0].width if one else source.read_block(0, 1).shape[1] for one, source in zip(inner, sources)]
    if len(set(widths)) > 1:
        listed = " and ".join(map(str, sorted(set(widths))))
        raise ConfigError(f"arrays with different rows cannot be joined: of {listed} values")
    lengths = [one[0].length if one else None for one in inner]
    length: int | None = None
    if lengths[0] is not None and not (sides and None in lengths):
        length = max(_longest(source) if one is None else one for one, source in zip(lengths, sources))
    for rows in itertools.chain.from_iterable(inner):
        rows.length = length
    if length is None:
        return sources
    return [source if one else EntryRows(source, length) for one, source in zip(inner, sources)]


def _longest(source: ArraySource) -> int:
    """Return how many values the longest row has that are not 0; reads rows that are not stored so."""
    if parts := _csr_parts(source):
        return max(part.longest for part in parts)
    height = max(1, BLOCK_BYTES // max(1, source.read_block(0, 1).nbytes))
    ranges = ((start, min(start + height, source.n_items)) for start in range(0, source.n_items, height))
    return max(int(np.count_nonzero(source.read_block(*ends), axis=1).max()) for ends in ranges)


def _inner(source: Any) -> list[EntryRows]:
    """Return the rows of entries that a source is, takes some of, or is joined of."""
    if isinstance(source, ChosenRows):
        return _inner(source.everything)
    parts = getattr(source, "parts", None)
    if parts is not None:
        return [rows for part in parts for rows in _inner(part)]
    return [source] if isinstance(source, EntryRows) else []


def give_whole_rows(source: Any) -> bool:
    """Let a source give its rows with their zeros from now on; return whether it gave entries before."""
    rows = [one for one in _inner(source) if one.length is not None]
    for one in rows:
        one.length = None
    return bool(rows)


def whole_rows_of(source: Any) -> tuple[int, np.dtype[Any]]:
    """Return how many values the rows have that a source gives as entries, with those that are 0, and their type."""
    rows = _inner(source)[0]
    return rows.width, rows.inner.dtype.newbyteorder("=")


def _csr_parts(source: Any) -> list[CsrArray]:
    """Return what a source of sparse rows is made of; nothing of others."""
    if isinstance(source, CsrSource | CsrInMemory):
        return [source.csr]
    if isinstance(source, ShardSource) and all(isinstance(shard, CsrSource) for shard in source.shards):
        return [part for shard in source.shards for part in _csr_parts(shard)]
    return []


def _entries_of(source: ArraySource, start: int, stop: int) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield ends, positions and values of some rows, in pieces that each begin at a row counted from ``start``."""
    parts = _csr_parts(source)
    if not parts:
        rows = source.read_block(start, stop)
        at, positions = np.nonzero(rows)
        ends = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(rows)))])
        yield 0, (ends, positions, rows[at, positions])
    first = 0
    for part in parts:
        low, high = max(start - first, 0), min(stop - first, part.shape[0])
        if low < high:
            yield first + low - start, part.entries(low, high)
        first += part.shape[0]
