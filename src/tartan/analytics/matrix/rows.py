"""A matrix of dissimilarities as it is stored: a source, a scale and names, read by blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.sources import MatrixSource

# By judgement: tens of milliseconds of a disk, so that calls cost nothing, and small beside any memory. No benchmark.
BLOCK_BYTES = 64 << 20
# By judgement: a square and its mirror image stay in the last cache. No benchmark.
SQUARE_BYTES = 16 << 20


class Rows:
    """Read a matrix by blocks of rows, whatever is in it; see ``Dissimilarities``.

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
    """

    def __init__(
        self,
        source: MatrixSource,
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

    @property
    def n(self) -> int:
        """Number of items."""
        return self.source.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored values: int16 in either byte order, float32 or float64."""
        return self.source.dtype

    @property
    def array(self) -> NDArray[Any] | None:
        """The whole matrix, C-contiguous, in memory or mapped; None where rows are made when they are asked for."""
        return self.source.array

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
        """Return how many rows fit into a number of bytes; at least one."""
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


def squares(n: int, itemsize: int, square_bytes: int = SQUARE_BYTES) -> Iterator[tuple[slice, slice]]:
    """Yield (rows, columns) of squares that cover the upper triangle, row by row."""
    side = max(1, math.isqrt(square_bytes // itemsize))
    for top in range(0, n, side):
        for left in range(top, n, side):
            yield slice(top, min(n, top + side)), slice(left, min(n, left + side))
