"""Choose the k best of many scores, row by row; the lower index wins ties. Pure array code."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np


def sort_keys(scores: np.ndarray, valid: np.ndarray, largest: bool) -> np.ndarray:
    """Return float keys whose ascending order is the order of preference; invalid scores come last."""
    single = scores.dtype.kind == "f" and scores.dtype.itemsize <= 4
    keys: np.ndarray = scores.astype(np.float32 if single else np.float64)
    if largest:
        np.negative(keys, out=keys)
    limit = np.finfo(np.float32 if single else np.float64).max
    np.minimum(keys, limit, out=keys)  # a score of infinity still comes before no score
    keys[~valid | np.isnan(keys)] = np.inf
    return keys


def select(scores: np.ndarray, valid: np.ndarray, k: int, *, largest: bool) -> np.ndarray:
    """Return the columns of the k best valid scores of each row, best first.

    Parameters
    ----------
    scores : array (rows, columns) of numbers
    valid : bool array (rows, columns)
        Scores that may be chosen; NaN never is.
    k : int
    largest : bool
        Whether large scores are good.

    Returns
    -------
    int64 array (rows, k)
        -1 where a row has fewer than k. Equal scores are taken in the order of their columns.
    """
    keys = sort_keys(scores, valid, largest)
    rows, columns = keys.shape
    kept = min(k, columns)
    chosen = np.full((rows, k), -1, np.int64)
    if kept == 0 or rows == 0:
        return chosen
    best = np.sort(np.argpartition(keys, kept - 1, axis=1)[:, :kept], axis=1)
    worst = np.take_along_axis(keys, best, axis=1).max(axis=1, keepdims=True)
    tied = (worst[:, 0] < np.inf) & (np.count_nonzero(keys <= worst, axis=1) > kept)
    if tied.any():  # a partition may take any of equals: choose again in these rows
        best[tied] = np.sort(np.argsort(keys[tied], axis=1, kind="stable")[:, :kept], axis=1)
    found = np.take_along_axis(keys, best, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    best, found = (np.take_along_axis(a, order, axis=1) for a in (best, found))
    chosen[:, :kept] = np.where(found < np.inf, best, -1)
    return chosen


class TopK:
    """Running k best of n rows, fed block by block in any order.

    Attributes
    ----------
    indices : int64 array (n, k)
        -1 where there are fewer than k.
    scores : array (n, k)
        Best first; the fill value where there are fewer than k.
    """

    def __init__(self, n_rows: int, k: int, dtype: np.dtype[Any], fill: Any, *, largest: bool) -> None:
        self.indices = np.full((n_rows, k), -1, np.int64)
        self.scores = np.full((n_rows, k), fill, dtype)
        self._fill = fill
        self._k = k
        self._largest = largest

    def update(self, row: int, column: int, scores: np.ndarray, valid: np.ndarray) -> None:
        """Offer a block whose first score belongs to (row, column)."""
        if not scores.size:
            return
        at = slice(row, row + len(scores))
        chosen = select(scores, valid, self._k, largest=self._largest)
        taken = np.take_along_axis(scores, np.maximum(chosen, 0), axis=1)
        indices = np.concatenate([self.indices[at], np.where(chosen < 0, -1, chosen + column)], axis=1)
        values = np.concatenate([self.scores[at], taken.astype(self.scores.dtype)], axis=1)
        order = self._order(indices, values)[:, : self._k]
        self.indices[at] = np.take_along_axis(indices, order, axis=1)
        self.scores[at] = np.take_along_axis(values, order, axis=1)
        self.scores[at][self.indices[at] < 0] = self._fill

    def _order(self, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        keys = sort_keys(values, indices >= 0, self._largest)
        return np.lexsort((indices, keys), axis=1)


class Bars:
    """Bounds that a score must reach to be among the k best of its row, as far as is known, so that most are skipped.

    The k best of each row are remembered, so a bar only ever rises. Used by several threads.

    Parameters
    ----------
    n_rows, k : int
    largest : bool
        Whether large scores are good.
    """

    def __init__(self, n_rows: int, k: int, *, largest: bool) -> None:
        self._keys = np.full((n_rows, k), np.inf)
        self._columns = np.full((n_rows, k), -1, np.int64)
        self._k = k
        self._largest = largest
        self._lock = threading.Lock()

    def candidates(self, scores: np.ndarray, first: int, axis: int) -> np.ndarray:
        """Return which scores of a block may still be among the best of their rows; ties may.

        The rows are those of the block (axis 0) or its columns (axis 1), the first of them number ``first``.
        """
        bars = self._keys[first : first + scores.shape[axis], -1]
        bars = -bars if self._largest else bars
        bars = bars.astype(scores.dtype) if scores.dtype.kind == "f" else bars
        level = bars[:, None] if axis == 0 else bars[None, :]
        with np.errstate(invalid="ignore"):
            return np.asarray(scores >= level if self._largest else scores <= level)

    def offer(self, rows: np.ndarray, columns: np.ndarray, scores: np.ndarray) -> None:
        """Remember scores (m,) of pairs, at most k a row and sorted by row; a pair that comes again counts once."""
        if not len(rows):
            return
        own, first, counts = np.unique(rows, return_index=True, return_counts=True)
        place = np.repeat(np.arange(len(own)), counts), np.arange(len(rows)) - np.repeat(first, counts)
        keys, offered = np.full((len(own), self._k), np.inf), np.full((len(own), self._k), -1, np.int64)
        keys[place] = sort_keys(scores, np.ones(len(scores), bool), self._largest)
        offered[place] = columns
        with self._lock:
            known = (offered[:, :, None] == self._columns[own][:, None, :]).any(axis=2)
            keys[known] = np.inf
            keys = np.concatenate([self._keys[own], keys], axis=1)
            order = np.argsort(keys, axis=1, kind="stable")[:, : self._k]
            self._keys[own] = np.take_along_axis(keys, order, axis=1)
            offered = np.concatenate([self._columns[own], offered], axis=1)
            self._columns[own] = np.take_along_axis(offered, order, axis=1)


def first_of_groups(groups: np.ndarray, indices: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """Return positions of the k smallest keys of each group, sorted by group, key and index.

    Parameters
    ----------
    groups, indices : int64 array (m,)
    keys : float64 array (m,)
    """
    order = np.lexsort((indices, keys, groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return np.asarray(order[rank < k])
