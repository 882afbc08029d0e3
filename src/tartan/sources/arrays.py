"""Arrays as sources of items: in memory, mapped from a ``.npy`` file, or chunked in Zarr.

An item is a row, the slice ``array[i]``. Nothing here copies a whole array: memory and mapped files are
handed out as views, Zarr is decoded a band at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import reason_of
from tartan.base.keys import IndexKeys, are_numbers
from tartan.base.npy_input import open_npy
from tartan.base.urls import is_url
from tartan.base.zarr_input import open_zarr, read_zarr
from tartan.errors import ConfigError, ItemError
from tartan.sources.files import Stamp, stamp_of
from tartan.sources.paths import absolute, remote_files

# By judgement: as BAND_BYTES of store/view.
_BAND_BUDGET_BYTES = 256 * 2**20


class ArraySource:
    """Rows of anything with ``shape``, ``dtype`` and slicing; an item is one row.

    Parameters
    ----------
    array : array-like
        Shape (n, ...). NumPy arrays and memory maps are returned as views, other arrays are converted block
        by block.
    path : str, optional
        File that it is mapped from.

    Attributes
    ----------
    in_memory : bool
        Whether all rows are there, and none is read or computed when it is asked for.
    """

    kind: Literal["array"] = "array"

    def __init__(self, array: Any, path: str | None = None) -> None:
        self._array = array
        self.path = path
        self.in_memory = path is None and isinstance(array, np.ndarray) and not isinstance(array, np.memmap)
        self.n_items = int(array.shape[0])
        self.keys: Sequence[str] = IndexKeys(self.n_items)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array, (n, ...)."""
        return tuple(int(side) for side in self._array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the rows."""
        dtype: np.dtype[Any] = np.dtype(self._array.dtype)
        return dtype

    def read(self, index: int) -> np.ndarray:
        row: np.ndarray = self.read_block(index, index + 1)[0]
        return row

    def read_block(self, start: int, stop: int) -> np.ndarray:
        return self._slice(start, stop)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        try:
            return np.asarray(self._array[start:stop])
        except MemoryError:
            raise
        except Exception as error:  # a user's array may load or compute its rows
            raise ItemError(
                f"rows {start} to {stop - 1} cannot be read: {reason_of(error)}", code="read", context={"index": start}
            ) from error

    def fingerprints(self) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        text: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape), "dtype": self.dtype.str}
        if self.path is not None:
            text["patterns"] = [absolute(self.path)]
        return text | self.stamp()

    def stamp(self) -> dict[str, Any]:
        """Return what tells versions of the array apart without reading it; empty where nothing does."""
        if self.path is None:
            return {}
        found = stamp_of(Path(self.path).stat())
        return {
            "size_bytes": found.size, "mtime_ns": found.mtime, "ctime_ns": found.ctime, "inode": found.identity
        }  # fmt: skip


class MappedSource(ArraySource):
    """Rows of a ``.npy`` file that is mapped for reading; a file that was read once takes no memory of this process.

    Parameters
    ----------
    array : np.memmap
        Shape (n, ...), read-only.
    path : str
    """

    def __init__(self, array: np.memmap[Any, Any], path: str) -> None:
        super().__init__(np.asarray(array), path)
        assert isinstance(array.base, mmap.mmap)
        self._mapping: Any = array.base

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process by the path and the keys, not by the rows."""
        return _open_npy, (absolute(str(self.path)),), {"keys": self.keys}

    def read_block(self, start: int, stop: int) -> np.ndarray:
        """Return rows, and give back the pages of all others; those still in use are found again in the page cache."""
        self._mapping.madvise(mmap.MADV_DONTNEED)
        return super().read_block(start, stop)


class ZarrSource(ArraySource):
    """Rows of a Zarr array, decoded a band (the rows of one chunk) at a time.

    Neighbouring blocks share bands, so the last few stay decoded: each chunk is decoded about once a pass
    whatever the block size. A band larger than the budget is left to Zarr.

    Parameters
    ----------
    array : zarr.Array
        Shape (n, ...).
    path : str
        Folder or URL it was opened from.
    budget_bytes : int
        Memory for decoded bands.
    """

    def __init__(self, array: Any, path: str, budget_bytes: int = _BAND_BUDGET_BYTES) -> None:
        super().__init__(array, path)
        self._band = int(array.chunks[0])
        band_bytes = max(1, self._band * (int(array.size) // self.n_items) * self.dtype.itemsize)
        self._room = budget_bytes // band_bytes
        self._bands: OrderedDict[int, np.ndarray] = OrderedDict()
        self._damaged: dict[int, ItemError] = {}
        self._lock = threading.Lock()

    def _slice(self, start: int, stop: int) -> np.ndarray:
        try:
            return read_zarr(self._array, slice(start, stop), str(self.path))
        except ConfigError as error:
            raise ItemError(str(error), code="read", context=error.context) from error

    def read_block(self, start: int, stop: int) -> np.ndarray:
        if self._room == 0 or stop <= start:
            return self._slice(start, stop)
        first, last = start // self._band, (stop - 1) // self._band
        offset = first * self._band
        bands = [self._decode(band) for band in range(first, last + 1)]
        rows = bands[0] if len(bands) == 1 else np.concatenate(bands)
        return rows[start - offset : stop - offset]

    def _decode(self, band: int) -> np.ndarray:
        with self._lock:
            rows = self._bands.get(band)
            if rows is not None:
                self._bands.move_to_end(band)
                return rows
            if band in self._damaged:  # each of its rows is asked for once more
                raise self._damaged[band]
        # Outside the lock: two threads may decode one band twice, none waits for another's decoding.
        try:
            rows = self._slice(band * self._band, min((band + 1) * self._band, self.n_items))
        except ItemError as error:
            self._damaged[band] = error
            raise
        with self._lock:
            self._bands[band] = rows
            while len(self._bands) > self._room:
                self._bands.popitem(last=False)
        return rows

    def stamp(self) -> dict[str, Any]:
        """Return a digest of the stamps of all files of the array."""
        found = folder_stamp(str(self.path))
        return {} if found is None else {"files": found}


class ChosenRows(ArraySource):
    """Some rows of an array, in its order; use ``choose_rows``.

    Parameters
    ----------
    inner : Source
        Of kind "array", with the rows to choose from.
    rows : int array, ascending

    Attributes
    ----------
    everything : ArraySource
        The rows that these were chosen from.
    """

    def __init__(self, inner: ArraySource, rows: NDArray[np.int64]) -> None:
        super().__init__(_RowsOf(inner, rows), inner.path)
        self.in_memory = inner.in_memory
        self.everything, self._rows = inner, rows

    def describe(self) -> dict[str, Any]:
        return self.everything.describe() | {"shape": list(self.shape), "rows": _list_ranges(self._rows)}

    def stamp(self) -> dict[str, Any]:
        """Return what tells versions of the whole array apart."""
        return self.everything.stamp()


@dataclass(frozen=True)
class _RowsOf:
    """Some rows of a source, as an array."""

    inner: ArraySource
    rows: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.inner.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.inner.dtype

    def __getitem__(self, chosen: slice) -> np.ndarray:
        rows = self.rows[chosen]
        blocks = [self.inner.read_block(*ends) for ends in _list_ranges(rows)]
        if len(blocks) == 1:
            return blocks[0]
        return np.concatenate(blocks) if blocks else self.inner.read_block(0, 0)


def choose_rows(source: ArraySource, rows: Sequence[int] | NDArray[np.int64]) -> ChosenRows:
    """Return some rows of an array as items.

    Parameters
    ----------
    source : ArraySource
        With numbers or other names for keys.
    rows : sequence of int
        In ascending order. Rows keep their names; numbers are names where they do not go on from 0.
    """
    numbers = np.asarray(rows, np.int64)
    found = ChosenRows(source, numbers)
    if not are_numbers(source.keys) or not np.array_equal(numbers, np.arange(len(numbers))):
        found.keys = [source.keys[row] for row in numbers.tolist()]
    return found


def choose_again(source: ArraySource, ranges: Sequence[Sequence[int]]) -> ChosenRows | None:
    """Return the rows that ``ChosenRows`` described as ``rows``; None where the array has not all of them.

    Parameters
    ----------
    source : ArraySource
    ranges : sequence of (int, int)
        ``[first, end]`` of each run of rows, in ascending order.
    """
    ends = np.asarray(ranges, np.int64).reshape(-1)
    if not len(ends) or ends[-1] > source.n_items or (np.diff(ends) <= 0).any() or ends[0] < 0:
        return None
    return choose_rows(source, np.concatenate([np.arange(*one) for one in ends.reshape(-1, 2)]))


def _list_ranges(rows: NDArray[np.int64]) -> list[list[int]]:
    """Return ``[first, end]`` of each run of rows that follow each other."""
    if not len(rows):
        return []
    ends = np.flatnonzero(np.diff(rows) != 1)
    starts = [int(rows[0]), *rows[ends + 1].tolist()]
    return [[first, last + 1] for first, last in zip(starts, [*rows[ends].tolist(), int(rows[-1])], strict=True)]


def folder_stamp(name: str) -> str | None:
    """Return a digest of the names and stamps of all files in a folder; None where a server does not say enough."""
    listed = remote_files(name) if is_url(name) else _local_files(name)
    if listed is None:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(listed):
        digest.update(repr(file).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _local_files(folder: str) -> list[tuple[str, Stamp]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118 - arrays may have millions of files
            with contextlib.suppress(OSError):
                found.append((os.path.relpath(path, folder), stamp_of(os.stat(path))))  # noqa: PTH116
    return found


def open_stored_array(name: str) -> ArraySource | None:
    """Open a path or URL as rows of an array, or return None where it is not one.

    Raises
    ------
    ConfigError
        If it looks like an array and cannot be opened.
    """
    if is_url(name):
        return _open_zarr(name) if name.rstrip("/").endswith(".zarr") else None
    path = Path(name)
    if path.is_dir():
        markers = ("zarr.json", ".zarray", ".zgroup")
        return _open_zarr(name) if any((path / marker).exists() for marker in markers) else None
    if path.suffix.lower() == ".npy" and path.is_file():
        return _open_npy(name)
    return None


def _open_npy(path: str) -> ArraySource | None:
    try:
        array = open_npy(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"array {path!r} cannot be opened: {error}", context={"input": path}) from error
    if array.ndim < 2:
        return None
    return MappedSource(array, path) if isinstance(array.base, mmap.mmap) else ArraySource(np.asarray(array), path)


def _open_zarr(path: str) -> ArraySource:
    array = open_zarr(path)
    if hasattr(array, "arrays"):
        raise ConfigError(f"{path!r} is a Zarr group; name one of its arrays: {', '.join(sorted(array))}")
    if array.ndim == 0 or array.shape[0] == 0:
        raise ConfigError(f"Zarr array {path!r} of shape {array.shape} holds no items", code="no-input")
    return ZarrSource(array, path)
