"""The form in which algorithms see a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tartan.analytics.matrix.check import Check, check
from tartan.analytics.matrix.materialize import KEPT, fill, new_square
from tartan.analytics.matrix.rows import Rows
from tartan.analytics.matrix.sources import Array, Chosen, native
from tartan.base.checksum import BLOCK_BYTES as CHECKSUM_BYTES
from tartan.base.checksum import checksum
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.monitor import Monitor
    from tartan.store.folder import RunFolder

# By judgement: half a GiB of pages between two calls of the system. No benchmark.
_RELEASED_BLOCKS = 8


@dataclass(frozen=True, eq=False)
class MadeOf:
    """What dissimilarities were made of: the scores as they are stored, and the function of them, in float64."""

    scores: Dissimilarities
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Dissimilarities(Rows):
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
    conversion : str or None
        The formula by which similarities became dissimilarities, where one did.
    note : str or None
        What people should know of how the dissimilarities were made.
    made_of : MadeOf or None
        The scores, and the function by which they became these dissimilarities, where one did.
    unknown : float or None
        Of a run: the score of pairs that are farther apart than was measured.
    failed : int64 array
        Of a run: the items that failed and are in this matrix all the same, without a pair.
    run : RunFolder or None
        The run that they come from.
    dropped : int64 array or None
        Of a run whose failed items were left out, or a matrix without its missing pairs: which items these were.
    left_out : str or None
        Their names, in a sentence.
    input_names : tuple of str or None
        Names of all items of that run or matrix, dropped ones included.

    Examples
    --------
    >>> D = as_dissimilarities(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> D.n, D.check().largest
    (2, 1.0)
    """

    checked: Check | None = None
    conversion: str | None = None
    note: str | None = None
    made_of: MadeOf | None = None
    unknown: float | None = None
    failed: NDArray[np.int64] = np.empty(0, np.int64)
    run: RunFolder | None = None
    dropped: NDArray[np.int64] | None = None
    left_out: str | None = None
    input_names: tuple[str, ...] | None = None

    def over_all(self, values: NDArray[Any], fill: Any) -> NDArray[Any]:
        """Return what was found of each item (n, ..) for all items of the input: dropped ones get the fill value."""
        if self.dropped is None:
            return values
        whole = np.full((self.n + len(self.dropped), *values.shape[1:]), fill, values.dtype)
        whole[self.kept] = values
        return whole

    @property
    def kept(self) -> NDArray[np.int64]:
        """Which items of the input are those of this matrix."""
        if self.dropped is None:
            return np.arange(self.n)
        return np.setdiff1d(np.arange(self.n + len(self.dropped)), self.dropped)

    def like(self, other: Dissimilarities) -> Dissimilarities:
        """Take over which items failed from a matrix of the same items; return this one."""
        self.failed, self.dropped, self.input_names = other.failed, other.dropped, other.input_names
        self.left_out, self.run = other.left_out, other.run
        return self

    @property
    def has_missing(self) -> bool | None:
        """Whether pairs are missing; None before :meth:`check`."""
        return None if self.checked is None else self.checked.n_missing > 0

    def check(self, tolerance: float | None = None, *, monitor: Monitor | None = None) -> Check:
        """Look at every pair once: finite, not negative, symmetric, zero on the diagonal, and what is missing.

        Parameters
        ----------
        tolerance : float, optional
            Largest difference of d(i, j) and d(j, i), and largest d(i, i), as a share of the largest dissimilarity.
            Default: 1e-5, and never less than one step of int16.
        monitor : Monitor, optional
            Receives progress and can cancel the pass.

        Returns
        -------
        Check
            Kept in ``checked``: a second call with the same tolerance costs nothing.

        Raises
        ------
        ConfigError
            If the matrix is not a matrix of dissimilarities; the guilty pair is named.

        Notes
        -----
        One pass over the matrix in squares, each read with its mirror image; a few squares of memory.
        """
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
            Receives progress and can cancel the pass.

        Raises
        ------
        DiskFullError
            If there is no space for the file.
        """
        wanted = native(self.dtype) if dtype is None else np.dtype(dtype)
        if self.array is not None and (dtype is None or wanted == self.dtype):
            return self
        if wanted not in KEPT:
            raise ConfigError(f"a matrix is kept as int16, float32 or float64, not as {wanted}")
        scaled = wanted == np.int16 and native(self.dtype) != np.int16
        largest = self.check().largest if scaled else None
        array = new_square(self.n, wanted, memory_bytes, folder)
        scale = fill(array, self, largest, monitor)
        made = Dissimilarities(
            Array(array), scale=scale, names=self.names, label=self.label, missing_allowed=self.missing_allowed
        )
        return made.like(self)

    def chosen(self, items: NDArray[np.integer]) -> Dissimilarities:
        """Return some of the items, in ascending order; nothing is read."""
        names = None if self.names is None else tuple(self.names[i] for i in items)
        chosen = Dissimilarities(
            Chosen(self.source, items),
            scale=self.scale,
            names=names,
            label=self.label,
            missing_allowed=self.missing_allowed,
        )
        chosen.run = self.run
        return chosen

    def fingerprint(self, monitor: Monitor | None = None) -> str:
        """Return a short text that differs for different matrices: of size, scale and every stored value.

        One pass over the matrix, with a CRC-32 of each 16 MB of rows. The byte order of int16 makes no difference.
        """
        return checksum(f"{self.n} {native(self.dtype)} {self.scale!r}", self._watch_rows(monitor))

    def _watch_rows(self, monitor: Monitor | None) -> Iterator[NDArray[Any]]:
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
