"""Greedy clusters: every member is near its representative, and no representative is near another.

Items are taken in an order: those with the largest numbers first, equals by position. The first one that is near no
representative becomes one. A member belongs to the nearest of the representatives before it in that order, of equals to
the first. So it does not depend on how the matrix is read, and a member never has a larger number than what represents
it. This is what CD-HIT does by length with ``-g 1`` (Li and Godzik, Cd-hit: a fast program for clustering and comparing
large sets of protein or nucleotide sequences, Bioinformatics 22, 2006), with exact distances of all pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.matrix.rows import squares
from tartan.analytics.monitor import Monitor
from tartan.base.machine import memory
from tartan.errors import ConfigError

Index = NDArray[np.int64]
Values = NDArray[np.float64]

# By format: two items of 8 bytes and a distance, both ways while they are sorted.
_PAIR_BYTES = 2 * (8 + 8 + 8)
# By judgement: the other half is of whoever else computes here. No benchmark.
_SHARE = 2


@dataclass(frozen=True, eq=False)
class Covered:
    """Which item represents each, and how far it is.

    Attributes
    ----------
    chosen : int64 array (n,)
        The representative of each item; its own of one that is one.
    distances : float64 array (n,)
        To it; 0 of one that is one.
    """

    chosen: Index
    distances: Values

    def labels(self) -> tuple[Index, Index]:
        """Return the cluster of each item, numbered by their first items, and the representative of each cluster."""
        labels = number_labels(self.chosen)
        first = np.unique(labels, return_index=True)[1]
        return labels, self.chosen[first]


def cover_pairs(pairs: KeptPairs, priority: Values | None, monitor: Monitor) -> Covered:
    """Choose representatives by the pairs that are near.

    Parameters
    ----------
    pairs : KeptPairs
        Those within the bound; all others are farther.
    priority : float64 array (n,), optional
        Items with larger numbers come first, those with NaN last. Default: the number of near items.
    monitor : Monitor
    """
    starts, others, distances = _both_ways(pairs.n, pairs.i, pairs.j, pairs.distances)
    order = order_items(np.diff(starts).astype(np.float64) if priority is None else priority)
    near = (others[starts[item] : starts[item + 1]] for item in _watch(order, monitor))
    is_chosen = _choose(order, near)
    rank = np.empty(pairs.n, np.int64)
    rank[order] = np.arange(pairs.n)
    items = np.repeat(np.arange(pairs.n, dtype=others.dtype), np.diff(starts))
    counts = is_chosen[others] & ~is_chosen[items] & (rank[others] < rank[items])
    items, others, distances = items[counts], others[counts], distances[counts]
    best = np.lexsort((rank[others], distances, items))
    best = best[np.flatnonzero(np.diff(items[best], prepend=-1))]
    found = Covered(np.arange(pairs.n), np.zeros(pairs.n))
    found.chosen[items[best]], found.distances[items[best]] = others[best], distances[best]
    return found


def cover_matrix(
    D: Dissimilarities, bound: float, priority: Values | None, monitor: Monitor, most_bytes: int | None = None
) -> Covered:
    """Choose representatives by the distances of a matrix; missing pairs are not near.

    Parameters
    ----------
    D : Dissimilarities
    bound : float
        The largest value that is near (``matrix/bound.py``).
    priority : float64 array (n,), optional
        As for :func:`cover_pairs`.
    monitor : Monitor
    most_bytes : int, optional
        For the near pairs; of more, the rows of representatives are read again. Default: half of what is free.

    Notes
    -----
    One pass over one half of the matrix; with too many near pairs a row a representative.
    """
    limit = memory().available_bytes // _SHARE if most_bytes is None else most_bytes
    counts, pieces, n_held = np.zeros(D.n, np.int64), list[tuple[Index, Index, Values]](), 0
    for i, j, distances in _near_pairs(D, bound, monitor):
        counts += np.bincount(i, minlength=D.n) + np.bincount(j, minlength=D.n)
        n_held += len(i)
        if n_held * _PAIR_BYTES <= limit:
            pieces.append((i, j, distances))
        else:
            pieces.clear()
    if n_held * _PAIR_BYTES > limit:
        return _cover_by_rows(D, bound, order_items(counts if priority is None else priority), monitor)
    i, j, distances = (np.concatenate(column) for column in zip(*pieces, strict=True)) if pieces else _NO_PAIRS
    names = tuple(map(str, range(D.n))) if D.names is None else D.names
    pairs = KeptPairs(D.n, i, j, distances, distances, names, D.label, np.empty(0, np.int64))
    return cover_pairs(pairs, priority, monitor)


_NO_PAIRS = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)


def order_items(priority: NDArray[np.int64] | Values) -> Index:
    """Return the items by falling numbers: equals by position, NaN last."""
    return np.argsort(-np.asarray(priority, np.float64), kind="stable")


def require_priority(priority: object, n: int) -> Values | None:
    """Return a number (n,) of each item, or None as it is.

    Raises
    ------
    ConfigError
        If these are not n numbers.
    """
    if priority is None:
        return None
    try:
        found = np.asarray(priority, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"priority: {error}; give a number for each of the {n} items") from error
    if found.shape != (n,):
        raise ConfigError(f"priority has shape {found.shape}; give a number for each of the {n} items")
    return found


def _watch(order: Index, monitor: Monitor) -> Iterator[int]:
    for at, item in enumerate(order.tolist(), 1):
        if at % 4096 == 0:
            monitor.report("greedy", items=at, of=len(order))
            monitor.check()
        yield item


def _choose(order: Index, near: Iterable[NDArray[np.signedinteger[Any]]]) -> NDArray[np.bool_]:
    """Mark the representatives; ``near`` has the near items of each in that order."""
    covered, chosen = np.zeros(len(order), bool), np.zeros(len(order), bool)
    for item, others in zip(order.tolist(), near, strict=True):
        if not covered[item]:
            chosen[item] = True
            covered[others] = True
    return chosen


def _both_ways(n: int, i: Index, j: Index, distances: Values) -> tuple[Index, NDArray[np.signedinteger[Any]], Values]:
    """Return where the pairs of each item begin, their other items and their distances."""
    small = np.dtype(np.int32 if n <= np.iinfo(np.int32).max else np.int64)
    items, others = np.concatenate([i, j], dtype=small), np.concatenate([j, i], dtype=small)
    order = np.argsort(items, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=n))])
    return starts, others[order], np.concatenate([distances, distances])[order]


def _near_pairs(D: Dissimilarities, bound: float, monitor: Monitor) -> Iterator[tuple[Index, Index, Values]]:
    for rows, columns in squares(D.n, 8):
        monitor.check()
        monitor.report("near pairs", rows=rows.start, of=D.n)
        values = D.values(rows, columns)
        i, j = np.nonzero(values <= bound)
        upper = i + rows.start < j + columns.start
        i, j = i[upper], j[upper]
        yield i + rows.start, j + columns.start, values[i, j]


def _cover_by_rows(D: Dissimilarities, bound: float, order: Index, monitor: Monitor) -> Covered:
    """Choose representatives one by one, and read their rows."""
    waits, found = np.ones(D.n, bool), Covered(np.arange(D.n), np.full(D.n, np.inf))
    covered = np.zeros(D.n, bool)
    for item in _watch(order, monitor):
        waits[item] = False
        if not covered[item]:
            row = D.values(slice(item, item + 1), slice(0, D.n))[0]
            near = waits & (row <= bound)
            covered |= near
            nearer = near & (row < found.distances)
            found.chosen[nearer], found.distances[nearer] = item, row[nearer]
    found.distances[~covered] = 0.0
    return found
