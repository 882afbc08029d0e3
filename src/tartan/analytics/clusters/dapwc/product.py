"""Rows of the matrix times a few columns: the only work of pairwise clustering that grows with n squared.

Columns and results are whole on every rank; each rank multiplies its own rows and the results are gathered. A row's
result does not depend on which other rows are multiplied with it, so any number of ranks gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.comm.communicator import Communicator, partition

Columns = NDArray[np.float64]

# _CALL_MULTIPLICATIONS and _CALL_BYTES, by arithmetic: at some 100 GFLOP/s and 10 GB/s a call takes some ten
# milliseconds, after which a stop is heard.
_CALL_MULTIPLICATIONS = 2_000_000_000
_CALL_BYTES = 256 << 20
# By contract: TASK_ROWS of crates/tartan-kernels/src/dapwc.rs.
_TASK_ROWS = 24
# By arithmetic: a cache line.
_LINE = 64


class Product(Protocol):
    """A matrix of dissimilarities as an operator.

    Attributes
    ----------
    n : int
        Number of items.
    scale : float
        What products are multiplied with to become dissimilarities.
    unknown : float
        The dissimilarity that stands for no known pair at all: the largest one.
    unit : float
        The dissimilarity that tolerances are shares of.
    masses : bool
        Whether pairs are missing, so that masses are given.
    """

    n: int
    scale: float
    unknown: float
    unit: float
    masses: bool

    def __call__(self, columns: Columns) -> tuple[Columns, Columns | None]:
        """Return the products (n, k) of stored values and columns (n, k), and the sums of the columns over the pairs
        that are known, None where all are. Both belong to the operator: they change with the next call.
        """
        ...

    def close(self) -> None:
        """Release what the operator holds."""
        ...


class HostProduct:
    """The operator on the CPU; see :class:`Product`.

    Parameters
    ----------
    D : Dissimilarities
        Checked. Read in place where it is one array, block by block otherwise.
    communicator : Communicator
    monitor : Monitor
        Checked between native calls, each of less than half a second.
    """

    def __init__(self, D: Dissimilarities, communicator: Communicator, monitor: Monitor) -> None:
        found = D.check()
        self.n, self.scale = D.n, D.scale
        self.unknown = self.unit = found.largest
        self.masses = found.n_missing > 0
        self._D, self._communicator, self._monitor = D, communicator, monitor
        self._rows = partition(D.n, communicator.size)[communicator.rank]
        self._real = np.float64 if D.dtype.itemsize == 8 else np.float32
        self._array, self._swapped = as_stored(D)
        self._buffers: dict[int, _Buffers] = {}

    def __call__(self, columns: Columns) -> tuple[Columns, Columns | None]:
        k = columns.shape[1]
        buffers = self._buffers_of(k)
        _native.pwc_pack(columns, buffers.packed)
        first = self._rows[0]
        for start, rows in self._blocks(k):
            part = slice(start - first, start - first + len(rows))
            mass = None if buffers.mass is None else buffers.mass[part]
            _native.pwc_product(rows, self._swapped, buffers.packed, buffers.out[part], mass)
            self._monitor.check()
        return self._gather(buffers.out), None if buffers.mass is None else self._gather(buffers.mass)

    def close(self) -> None:
        """Release the buffers."""
        self._buffers.clear()

    def _blocks(self, k: int) -> Iterator[tuple[int, NDArray[Any]]]:
        size = self._D.dtype.itemsize
        height = min(_CALL_MULTIPLICATIONS // (self.n * k), _CALL_BYTES // (self.n * size))
        height = max(_TASK_ROWS, height // _TASK_ROWS * _TASK_ROWS)
        first, last = self._rows
        for start in range(first, last, height):
            stop = min(last, start + height)
            yield start, self._D.block(start, stop) if self._array is None else self._array[start:stop]

    def _gather(self, rows: Columns) -> Columns:
        return rows if self._communicator.size == 1 else self._communicator.all_gather(rows)

    def _buffers_of(self, k: int) -> _Buffers:
        if k not in self._buffers:
            while len(self._buffers) > 3:  # the widths of a split test come and go
                del self._buffers[next(iter(self._buffers))]
            self._buffers[k] = _Buffers(self.n, self._rows[1] - self._rows[0], k, self._real, self.masses)
        return self._buffers[k]


class _Buffers:
    """Buffers for one width of columns, allocated once."""

    def __init__(self, n: int, n_rows: int, k: int, real: Any, masses: bool) -> None:
        self.packed = _align(_native.pwc_padded(n) * k, real)
        self.out = np.empty((n_rows, k))
        self.mass = np.empty((n_rows, k)) if masses else None


def _align(length: int, dtype: Any) -> NDArray[Any]:
    """Return an array that begins with a cache line.

    A vector that lies across two lines is loaded twice, and takes half as long again as the multiplication it is for.
    """
    n_bytes = length * np.dtype(dtype).itemsize
    raw = np.empty(n_bytes + _LINE, np.uint8)
    first = -raw.ctypes.data % _LINE
    return raw[first : first + n_bytes].view(dtype)


def as_stored(D: Dissimilarities) -> tuple[NDArray[Any] | None, bool]:
    """Return the array that the kernel can read in place, if there is one, and whether its bytes are swapped."""
    array = D.array
    if array is None or not (array.flags.c_contiguous and array.flags.aligned):
        return None, False
    if array.dtype.isnative:
        return array, False
    return (array.view(np.int16), True) if array.dtype.itemsize == 2 else (None, False)
