"""A matrix written once as one square array, in memory or in a mapped temporary file."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.rows import Rows, squares
from tartan.analytics.matrix.sources import native
from tartan.errors import ConfigError, DiskFullError

if TYPE_CHECKING:
    from tartan.analytics.monitor import Monitor

# By format: the largest int16.
INT16_ONE = 32767
#: What a matrix is written as.
KEPT = (np.dtype(np.int16), np.dtype(np.float32), np.dtype(np.float64))


def fill(array: NDArray[Any], D: Rows, largest: float | None, monitor: Monitor | None) -> float:
    """Write a matrix into a square array; return what a stored value is multiplied by.

    Parameters
    ----------
    array : ndarray (n, n)
        Of a dtype in ``KEPT``.
    D : Rows
    largest : float or None
        The dissimilarity that becomes 32767, where floats become int16; 0 or NaN stands for 1.
    monitor : Monitor or None
    """
    one = 0.0 if largest is None else (largest if largest > 0 else 1.0) / INT16_ONE
    for rows, columns in squares(D.n, D.dtype.itemsize):
        _write(D, rows, columns, array, one)
        if rows != columns and D.source.symmetric:
            array[columns, rows] = array[rows, columns].T
        elif rows != columns:
            _write(D, columns, rows, array, one)
        if monitor is not None:
            monitor.report("materialize", rows=rows.stop, of=D.n)
            monitor.check()
    return one or (D.scale if array.dtype == np.int16 or native(D.dtype) != np.int16 else 1.0)


def _write(D: Rows, rows: slice, columns: slice, array: NDArray[Any], one: float) -> None:
    """Write a tile, and refuse a value that the type of the array cannot hold."""
    tile, target = _convert(D, rows, columns, array.dtype, one), array[rows, columns]
    with np.errstate(over="ignore"):
        target[...] = tile
    if np.can_cast(tile.dtype, array.dtype) or array.dtype.kind != "f":
        return
    beyond = np.isinf(target) & np.isfinite(tile)
    if beyond.any():
        raise ConfigError(
            f"{D.label}: the value {tile[beyond][0]:g} is beyond what {array.dtype} holds; keep it as float64"
        )


def _convert(D: Rows, rows: slice, columns: slice, dtype: np.dtype[Any], one: float) -> NDArray[Any]:
    tile = D.source.tile(rows, columns)
    if tile.dtype.kind == dtype.kind:
        return tile
    values = D.values(rows, columns)
    if not one:
        return values
    return np.where(np.isnan(values), -1.0, np.clip(np.rint(values / one), 0, INT16_ONE))


def new_square(
    n: int, dtype: np.dtype[Any], memory_bytes: int = 1 << 30, folder: str | Path | None = None
) -> NDArray[Any]:
    """Return an (n, n) array of zeros: in memory up to a size, beyond it in a temporary file without a name.

    Raises
    ------
    DiskFullError
        If the file system has no space for the file.
    """
    size = n * n * dtype.itemsize
    if size <= memory_bytes:
        return np.zeros((n, n), dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            where = folder or tempfile.gettempdir()
            raise DiskFullError(
                f"{where} has no space for a matrix of {size / 1e9:.3g} GB: {error.strerror}; name another folder"
            ) from error
        mapped = mmap.mmap(file.fileno(), size)
    return np.frombuffer(mapped, dtype).reshape(n, n)
