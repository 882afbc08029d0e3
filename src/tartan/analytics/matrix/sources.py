"""Where the values of a matrix come from: arrays, condensed arrays, Zarr, runs, and functions of any of these.

A source answers for one rectangle at a time and holds nothing else. Missing pairs are NaN, or negative in int16.
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import StoreError


class MatrixSource(ABC):
    """A square matrix that is read by rectangles.

    Attributes
    ----------
    n : int
        Number of items.
    dtype : dtype
        Of the stored values: int16 in either byte order, float32 or float64.
    symmetric : bool
        Whether the two values of a pair are one stored value.
    array : ndarray (n, n) or None
        The whole matrix, C-contiguous, where it lies in memory or is mapped like that.
    rounded_to : dtype or None
        The type that the values were rounded to, where ``dtype`` is a wider one.
    """

    n: int
    dtype: np.dtype[Any]
    symmetric: bool = False
    array: NDArray[Any] | None = None
    rounded_to: np.dtype[Any] | None = None

    @property
    def held_bytes(self) -> int:
        """Memory that the values take while they are read: what lies there or is mapped, not what is read in parts."""
        return 0

    @abstractmethod
    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        """Return a rectangle in native byte order; it may be a view."""

    def release(self) -> None:  # noqa: B027 - most sources have nothing to give back
        """Give back the memory of mapped pages: what comes next is read from the page cache, or from disk."""


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in the byte order of this machine."""
    return dtype.newbyteorder("=")


def fill_masked(masked: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    """Return a masked array with masked values marked as missing: int16 stays int16, and keeps its unit."""
    if native(masked.dtype) == np.int16:
        return np.ma.filled(masked, -1)
    return np.ma.filled(masked.astype(np.float64), np.nan)


def choose_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which values are processed: int16, float32 and float64 stay, all else becomes a float."""
    if native(dtype) in (np.dtype(np.int16), np.dtype(np.float32), np.dtype(np.float64)):
        return dtype
    return np.dtype(np.float32) if dtype.itemsize <= 2 else np.dtype(np.float64)


class Array(MatrixSource):
    """A square array, in memory or mapped.

    Parameters
    ----------
    values : ndarray (n, n)
        Numbers of any kind and order; what is neither int16 nor a native float is converted tile by tile.

    Attributes
    ----------
    transposed : bool
        Whether rows are read as columns, which only one triangle alone would tell.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self.n = len(values)
        # A matrix in column order is its transpose in row order, and the same where it is symmetric at all.
        self.transposed = values.flags.f_contiguous and not values.flags.c_contiguous
        self._values = values.T if self.transposed else values
        kept = choose_dtype(values.dtype)
        self.dtype, self.rounded_to = kept if kept.kind == "i" else native(kept), native(values.dtype)
        flags = self._values.flags
        whole = flags.c_contiguous and flags.aligned and self._values.dtype == self.dtype
        self.array = self._values if whole else None

    @property
    def held_bytes(self) -> int:
        """All values."""
        return int(self._values.nbytes)

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        found = self._values[rows, columns].astype(native(self.dtype), copy=False)
        # Every second column of an array, or one that is not aligned in memory: the native code takes neither.
        return found if found.strides[1] == found.itemsize and found.flags.aligned else found.copy()

    def release(self) -> None:
        mapped: Any = self._values
        while isinstance(mapped, np.ndarray) and not isinstance(mapped, np.memmap):
            mapped = mapped.base
        # Other modes may hold changes that are in memory only.
        if isinstance(mapped, np.memmap) and mapped.mode == "r":
            _pages(mapped).madvise(mmap.MADV_DONTNEED)


def _pages(mapped: np.memmap[Any, Any]) -> mmap.mmap:
    pages: mmap.mmap = mapped._mmap  # type: ignore[attr-defined]
    return pages


class ArrayInFile(MatrixSource):
    """A square array in a file that is read and not mapped: its pages are not memory of this process.

    Parameters
    ----------
    path : str
    start : int
        Where the values begin.
    n : int
    dtype : dtype
        int16, float32 or float64 in the byte order of this machine.
    """

    def __init__(self, path: str, start: int, n: int, dtype: np.dtype[Any]) -> None:
        self.n, self.dtype, self._start = n, dtype, start
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - as long as this object

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        found = np.empty((rows.stop - rows.start, columns.stop - columns.start), self.dtype)
        for local, row in enumerate(range(rows.start, rows.stop)):
            at = self._start + (row * self.n + columns.start) * self.dtype.itemsize
            if os.preadv(self._file.fileno(), [found[local]], at) < found[local].nbytes:
                raise StoreError(f"{self._file.name} became shorter while it was read; read it again", code="changed")
        return found

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()


class Condensed(MatrixSource):
    """The pairs i < j row by row, as scipy's ``squareform`` orders them; the diagonal is 0."""

    symmetric = True

    def __init__(self, values: NDArray[Any], n: int) -> None:
        self.n = n
        self._values = values
        kept = choose_dtype(values.dtype)
        self.dtype, self.rounded_to = kept if kept.kind == "i" else native(kept), native(values.dtype)

    @property
    def held_bytes(self) -> int:
        """All values."""
        return int(self._values.nbytes)

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        found = np.zeros((rows.stop - rows.start, columns.stop - columns.start), native(self.dtype))
        for local, i in enumerate(range(rows.start, rows.stop)):
            first = max(columns.start, i + 1)
            if first < columns.stop:
                at = self._row_start(i) + first - i - 1
                found[local, first - columns.start :] = self._values[at : at + columns.stop - first]
        for local, j in enumerate(range(columns.start, columns.stop)):
            first = max(rows.start, j + 1)
            if first < rows.stop:
                at = self._row_start(j) + first - j - 1
                found[first - rows.start :, local] = self._values[at : at + rows.stop - first]
        return found

    def _row_start(self, i: int) -> int:
        return i * self.n - i * (i + 1) // 2


class Triangle(MatrixSource):
    """One triangle of a square source, and its mirror image; the diagonal is 0."""

    symmetric = True

    def __init__(self, square: MatrixSource, *, upper: bool) -> None:
        self.n, self.dtype, self._square, self._upper = square.n, square.dtype, square, upper
        self.rounded_to = square.rounded_to

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        i = np.arange(rows.start, rows.stop)[:, None]
        j = np.arange(columns.start, columns.stop)[None, :]
        here = i < j if self._upper else i > j
        found = np.where(here, self._square.tile(rows, columns), self._square.tile(columns, rows).T)
        found[i == j] = 0
        return found

    @property
    def held_bytes(self) -> int:
        """Those of the square."""
        return self._square.held_bytes

    def release(self) -> None:
        self._square.release()


class Windowed(MatrixSource):
    """A matrix whose rectangles come from a function: Zarr arrays, runs."""

    def __init__(
        self,
        n: int,
        dtype: np.dtype[Any],
        window: Callable[[slice, slice], NDArray[Any]],
        *,
        symmetric: bool = False,
    ) -> None:
        self.n, self.dtype, self.symmetric, self._window = n, native(choose_dtype(dtype)), symmetric, window
        self.rounded_to = native(dtype)

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        return np.asarray(self._window(rows, columns)).astype(self.dtype, copy=False)


class Chosen(MatrixSource):
    """Some of the items of another source."""

    def __init__(self, source: MatrixSource, items: NDArray[np.integer]) -> None:
        self.n, self.dtype, self.symmetric = len(items), native(source.dtype), source.symmetric
        self.rounded_to = source.rounded_to
        self._source, self._items = source, np.asarray(items)

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        across, down = self._items[rows], self._items[columns]
        if not len(across) or not len(down):
            return np.empty((len(across), len(down)), self.dtype)
        # Items in a row are read as one rectangle; of the others too much is read, never all.
        first, last = slice(across.min(), across.max() + 1), slice(down.min(), down.max() + 1)
        found = self._source.tile(first, last)
        return np.ascontiguousarray(found[np.ix_(across - first.start, down - last.start)])

    @property
    def held_bytes(self) -> int:
        """Those of what is read."""
        return self._source.held_bytes

    def release(self) -> None:
        self._source.release()


class Mapped(MatrixSource):
    """A function of every value of another source.

    Parameters
    ----------
    source : MatrixSource
    function : callable
        Takes a rectangle of the source and returns a new one of ``dtype``, of the same shape.
    diagonal : float, optional
        What stands on the diagonal instead of the function's value.
    """

    def __init__(
        self,
        source: MatrixSource,
        function: Callable[[NDArray[Any]], NDArray[Any]],
        dtype: np.dtype[Any],
        diagonal: float | None = 0.0,
    ) -> None:
        self.n, self.dtype, self.symmetric = source.n, dtype, source.symmetric
        self._source, self._function, self._diagonal = source, function, diagonal

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        found = self._function(self._source.tile(rows, columns))
        first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if self._diagonal is not None and first < last:
            at = np.arange(first, last)
            found[at - rows.start, at - columns.start] = self._diagonal
        return found

    @property
    def held_bytes(self) -> int:
        """Those of what is read."""
        return self._source.held_bytes

    def release(self) -> None:
        self._source.release()
