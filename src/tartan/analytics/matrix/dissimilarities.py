"""The form in which algorithms see a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tartan.analytics.matrix.sources import Source, native
from tartan.base.checksum import BLOCK_BYTES as CHECKSUM_BYTES
from tartan.base.checksum import checksum

if TYPE_CHECKING:
    from tartan.analytics.matrix.check import Check
    from tartan.analytics.monitor import Monitor

__all__ = ["Dissimilarities"]

BLOCK_BYTES = 64 << 20
_RELEASED_BLOCKS = 8


class Dissimilarities:
    """A symmetric matrix of dissimilarities, read by blocks of rows.

    Made by :func:`tartan.analytics.matrix.as_dissimilarities`; not by hand.

    Attributes
    ----------
    n : int
        Number of items.
    dtype : dtype
        Of the stored values: int16 in either byte order, float32 or float64.
    scale : float
        The dissimilarity of a pair is its stored value times this.
    array : ndarray (n, n) or None
        The whole matrix, C-contiguous, in memory or mapped; None where rows are made when they are asked for.
    names : tuple of str or None
        Names of the items, where the input has them.
    label : str
        What the input is called in messages.
    missing_allowed : bool
        Whether missing pairs (NaN, negative in int16) are part of the input rather than an error.
    checked : Check or None
        What :meth:`check` has found.

    Examples
    --------
    >>> D = as_dissimilarities(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> D.n, D.check().largest
    (2, 1.0)
    """

    def __init__(
        self,
        source: Source,
        *,
        scale: float = 1.0,
        names: tuple[str, ...] | None = None,
        label: str = "D",
        missing_allowed: bool = False,
    ) -> None:
        self.source = source
        self.scale = scale
        self.names = names
        self.label = label
        self.missing_allowed = missing_allowed
        self.checked: Check | None = None

    @property
    def n(self) -> int:
        return self.source.n

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def array(self) -> NDArray[Any] | None:
        return self.source.array

    @property
    def has_missing(self) -> bool | None:
        """Whether pairs are missing; None before :meth:`check`."""
        return None if self.checked is None else self.checked.n_missing > 0

    def name_of(self, item: int) -> str:
        """Return the name of an item, or its index, for messages."""
        return str(item) if self.names is None else f"{item} ({self.names[item]})"

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows start to stop, (stop - start, n), as stored, in native byte order.

        Missing pairs are NaN, or negative in int16. The block may be a view of the input: do not write to it.
        """
        return self.source.tile(slice(start, stop), slice(0, self.n))

    def values(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """Return a rectangle of dissimilarities: float64, scaled, missing pairs NaN."""
        tile = self.source.tile(rows, columns)
        found = tile.astype(np.float64)
        if tile.dtype.kind == "i":
            found[tile < 0] = np.nan
        return found if self.scale == 1.0 else found * self.scale

    def block_rows(self, max_bytes: int = BLOCK_BYTES) -> int:
        """Return how many rows fit into so many bytes; at least one."""
        return max(1, max_bytes // max(1, self.n * self.dtype.itemsize))

    def blocks(
        self, max_bytes: int = BLOCK_BYTES, rows: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first row, block) from top to bottom.

        Parameters
        ----------
        max_bytes : int
            Largest block, if a row is not larger.
        rows : (int, int), optional
            First row and the row after the last; default: all.
        """
        first, last = rows or (0, self.n)
        height = self.block_rows(max_bytes)
        for start in range(first, last, height):
            yield start, self.block(start, min(last, start + height))

    def check(self, tolerance: float | None = None, *, monitor: Monitor | None = None) -> Check:
        """Look at every pair once: finite, not negative, symmetric, zero on the diagonal, and what is missing.

        Parameters
        ----------
        tolerance : float, optional
            Largest difference of d(i, j) and d(j, i), and largest d(i, i), as a share of the largest dissimilarity.
            Default: 1e-5, and never less than one step of int16.
        monitor : Monitor, optional
            What hears of progress and of Ctrl-C.

        Returns
        -------
        Check
            Kept in ``checked``: a second call with the same tolerance costs nothing.

        Raises
        ------
        ConfigError
            If the matrix is no matrix of dissimilarities; the guilty pair is named.

        Notes
        -----
        One pass over the matrix in squares, each read with its mirror image; a few squares of memory.
        """
        from tartan.analytics.matrix.check import check

        if self.checked is None or self.checked.tolerance != tolerance:
            self.checked = check(self, tolerance, monitor)
        return self.checked

    def materialized(
        self,
        dtype: DTypeLike | None = None,
        *,
        memory_bytes: int = 1 << 30,
        folder: str | Path | None = None,
        monitor: Monitor | None = None,
    ) -> Dissimilarities:
        """Return the same matrix as one array, for algorithms that read it many times.

        Parameters
        ----------
        dtype : dtype, optional
            float32, float64 or int16. Default: as stored, and nothing is done where there is an array already. Floats
            become int16 as round(32767 d / largest), missing pairs -1.
        memory_bytes : int
            Up to this size the array lies in memory, beyond it in a mapped temporary file.
        folder : path, optional
            Where that file is made; default: that of the system for temporary files. It has no name there and is
            gone when the result is.
        monitor : Monitor, optional
            What hears of progress and of Ctrl-C.

        Raises
        ------
        DiskFullError
            If there is no room for the file.
        """
        from tartan.analytics.matrix.materialize import materialized

        wanted = native(self.dtype) if dtype is None else np.dtype(dtype)
        if self.array is not None and (dtype is None or wanted == self.dtype):
            return self
        return materialized(self, wanted, memory_bytes, folder, monitor)

    def chosen(self, items: NDArray[np.integer]) -> Dissimilarities:
        """Return some of the items, in ascending order; nothing is read."""
        from tartan.analytics.matrix.sources import Chosen

        names = None if self.names is None else tuple(self.names[i] for i in items)
        return Dissimilarities(
            Chosen(self.source, items),
            scale=self.scale,
            names=names,
            label=self.label,
            missing_allowed=self.missing_allowed,
        )

    def fingerprint(self, monitor: Monitor | None = None) -> str:
        """Return a short text that differs for different matrices: of size, scale and every stored value.

        One pass over the matrix, with a CRC-32 of each 16 MB of rows. The byte order of int16 makes no difference.
        """
        return checksum(f"{self.n} {native(self.dtype)} {self.scale!r}", self._watched(monitor))

    def _watched(self, monitor: Monitor | None) -> Iterator[NDArray[Any]]:
        """Yield all rows by blocks, and give back the memory of mapped pages on the way."""
        for at, (start, block) in enumerate(self.blocks(CHECKSUM_BYTES), 1):
            yield block
            if at % _RELEASED_BLOCKS == 0:
                self.source.release()
            if monitor is not None:
                monitor.report("checksum", rows=start + len(block), of=self.n)
                monitor.check()

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"<Dissimilarities {self.label}: {self.n:,} x {self.n:,} {self.dtype}>"
