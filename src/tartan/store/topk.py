"""Choose the k best of many scores, row by row; the lower index wins ties. Pure array code."""

from __future__ import annotations

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
