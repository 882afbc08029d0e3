"""What sets of hashes share, every set of one side with every set of the other, without merging pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tartan import _native
from tartan.base.machine import memory
from tartan.errors import ConfigError, ItemError

# By judgement: what is free is asked, which takes 50 us, before as much as anybody notices is sorted. No benchmark.
_LARGE_BYTES = 64 << 20
# By arithmetic: a sorted copy, one without repeats, and a mark for each.
_SORTING_COPIES = 2.25


def sort_hashes(hashes: np.ndarray) -> np.ndarray:
    """Return hashes in ascending order, each once.

    ``numpy.unique`` does so by a hash table, in ten times the time of a sort.

    Examples
    --------
    >>> sort_hashes(np.array([5, 2, 5, 9], np.uint64)).tolist()
    [2, 5, 9]

    Raises
    ------
    ItemError
        If there is less memory than that takes.
    """
    if hashes.nbytes >= _LARGE_BYTES:
        needed, available = int(_SORTING_COPIES * hashes.nbytes), memory().available_bytes
        if needed > available:
            raise ItemError(
                f"it has {len(hashes):,} hashes, and to sort them takes {needed:,} bytes of memory, of which "
                f"{available:,} are free; take a sample of them (genomes: a larger `scaled`), or a machine with more"
            )
    if bool((hashes[1:] > hashes[:-1]).all()):
        return hashes
    ordered = np.sort(hashes)
    first = np.empty(ordered.shape, bool)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered if bool(first.all()) else ordered[first]


def shared_counts(
    rows: Sequence[Any], columns: Sequence[Any], weights: tuple[Sequence[Any], Sequence[Any]] | None = None
) -> np.ndarray:
    """Count the hashes that each of m sets shares with each of n others.

    The hashes of the columns become a table that says which sets hold each, and those of the rows are looked up in
    it: the work grows with the number of hashes and of those that are shared, not with the pairs. It is what
    ``compare`` of an application of sets calls for a tile; all cores take part.

    Parameters
    ----------
    rows, columns : sequences of arrays
        m and n sets: one-dimensional, uint64, in ascending order, each hash once.
    weights : (sequence of arrays, sequence of arrays), optional
        The weights of the hashes of each set, float64.

    Returns
    -------
    array of shape (m, n)
        int32 counts; with weights, float64: for each pair the sum over shared hashes of the product of both weights,
        added in the order of hashes, so that it depends on the two sets alone.

    Raises
    ------
    ConfigError
        If an array is no such set, or weights are not as many; it is named.

    Examples
    --------
    >>> sets = [np.array(hashes, np.uint64) for hashes in ([1, 5, 9], [5, 9], [2])]
    >>> shared_counts(sets, sets).tolist()
    [[3, 2, 0], [2, 2, 0], [0, 0, 1]]
    """
    try:
        left, right = _arrays("rows", rows, np.uint64), _arrays("columns", columns, np.uint64)
        if weights is None:
            return _native.shared_counts(left, right)
        return _native.shared_products(
            left, right, _arrays("weights", weights[0], np.float64), _arrays("weights", weights[1], np.float64)
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _arrays(name: str, given: Sequence[Any], dtype: type) -> list[np.ndarray]:
    arrays: list[np.ndarray] = []
    for place, one in enumerate(given):
        # CuPy refuses to be converted silently.
        array = one if isinstance(one, np.ndarray) else np.asarray(one.get() if hasattr(one, "get") else one)
        if array.ndim != 1 or not (array.dtype == dtype or array.size == 0):
            raise ValueError(
                f"item {place} of {name} is {array.dtype} of shape {array.shape}; give {np.dtype(dtype)} of one "
                "dimension"
            )
        arrays.append(np.ascontiguousarray(array, dtype))
    return arrays
