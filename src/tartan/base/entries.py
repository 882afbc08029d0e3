"""Sparse rows as entries: the position and the value of what is not 0, as many in each row of a run.

A block of such rows is an array (m, length) of ``ENTRY``. Positions ascend; behind the last entry they are ``BEHIND``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ENTRY = np.dtype([("position", "<u4"), ("value", "<f8")])
BEHIND = np.uint32(0xFFFFFFFF)
"""In place of a position where a row has ended."""


def are_entries(rows: Any) -> bool:
    """Whether an array is of entries."""
    return bool(getattr(rows, "dtype", None) == ENTRY)


def pack_entries(ends: NDArray[Any], positions: NDArray[Any], values: NDArray[Any], length: int) -> np.ndarray:
    """Return rows as entries.

    Parameters
    ----------
    ends : int array (m + 1,)
        Where the entries of rows begin and end, from 0 on.
    positions, values : arrays
        Positions ascend in each row.
    length : int
        Entries that each row has room for.
    """
    counts = np.diff(ends)
    found = np.zeros((len(counts), length), ENTRY)
    found["position"] = BEHIND
    at = np.repeat(np.arange(len(counts)) * length - ends[:-1], counts) + np.arange(ends[-1])
    flat = found.reshape(-1)
    flat["position"][at], flat["value"][at] = positions, values
    return found


def count_entries(rows: np.ndarray) -> NDArray[np.intp]:
    """Return how many entries each row has."""
    found: NDArray[np.intp] = np.count_nonzero(rows["position"] != BEHIND, axis=-1)
    return found
