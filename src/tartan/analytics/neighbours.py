"""Nearest neighbours and outliers of a matrix, read once by blocks of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix import Dissimilarities, for_analysis
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checks import number, whole
from tartan.errors import ConfigError

# By judgement: a block and its order stay in the last cache. No benchmark.
BLOCK_BYTES = 16 << 20
# The standard deviation of a normal law over its median absolute deviation, and over its mean absolute deviation.
# By arithmetic.
_SIGMA_OF_MEDIAN = 1.482602218505602
# By arithmetic: sqrt(pi / 2).
_SIGMA_OF_MEAN = 1.2533141373155001


def neighbors(
    D: Any, k: int = 10, *, monitor: Monitor | None = None, **options: Any
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest items of each item, nearest first.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    k : int
        Number of neighbours, at least 1; items that have fewer get all they have.
    monitor : Monitor, optional
        Receives progress and can cancel the pass.
    **options
        For :func:`as_dissimilarities`, such as ``distance="max-s"``.

    Returns
    -------
    indices : int64 array (n, k)
        -1 where there are fewer. Equal distances are in the order of the indices.
    distances : float64 array (n, k)
        NaN where there are fewer.

    Notes
    -----
    One pass over the matrix, and one before that checks it; memory for one block of rows in float64 and the result. An
    item is not its own neighbour, and pairs that are missing are none.

    Examples
    --------
    >>> neighbors([[0, 1, 3], [1, 0, 1.5], [3, 1.5, 0]], 1)[0].ravel()
    array([1, 0, 1])
    """
    matrix = for_analysis(D, **options)
    whole("k", k, 1)
    matrix.check(monitor=monitor)
    indices, distances = nearest_items(matrix, k, as_monitor(monitor))
    if matrix.dropped is None or isinstance(D, Dissimilarities):
        return indices, distances
    there = np.where(indices >= 0, matrix.kept[indices], -1)
    return matrix.over_all(there, -1), matrix.over_all(distances, np.nan)


def nearest_items(
    matrix: Dissimilarities, k: int, monitor: Monitor, block_bytes: int = BLOCK_BYTES
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return what :func:`neighbors` returns, of a checked matrix; blocks of rows take ``block_bytes`` in float64."""
    try:
        indices, distances = np.full((matrix.n, k), -1, np.int64), np.full((matrix.n, k), np.nan)
    except MemoryError as error:
        raise ConfigError(f"k is {k}; {matrix.n} items have {matrix.n - 1} neighbours at most") from error
    height = max(1, block_bytes // (8 * matrix.n))
    for start in range(0, matrix.n, height):
        rows = slice(start, min(matrix.n, start + height))
        _nearest(matrix, rows, indices[rows], distances[rows])
        monitor.report("neighbors", rows=rows.stop, of=matrix.n)
        monitor.check()
    return indices, distances


def _nearest(matrix: Dissimilarities, rows: slice, indices: NDArray[np.int64], distances: NDArray[np.float64]) -> None:
    """Write the nearest of some rows into their places."""
    values = matrix.values(rows, slice(0, matrix.n))
    values[np.isnan(values)] = np.inf
    values[np.arange(len(values)), np.arange(rows.start, rows.stop)] = np.inf
    k = min(indices.shape[1], matrix.n)
    furthest = np.partition(values, k - 1, axis=1)[:, k - 1]
    for row, limit, index, distance in zip(values, furthest, indices, distances):
        near = np.flatnonzero((row <= limit) & (row < np.inf))
        near = near[np.argsort(row[near], kind="stable")][:k]
        index[: len(near)], distance[: len(near)] = near, row[near]


@dataclass(frozen=True)
class Outliers:
    """How far every item is from the others.

    Attributes
    ----------
    scores : float64 array (n,)
        Mean distance to the k nearest items that are known; NaN for an item of which no pair is.
    z : float64 array (n,)
        Robust z score of that: its distance from the median in standard deviations, which are estimated by the median
        absolute deviation (by the mean absolute deviation where that is 0; all are 0 where both are).
    indices : int64 array (m,)
        The items with z above the threshold, the furthest first.
    threshold : float
    """

    scores: NDArray[np.float64]
    z: NDArray[np.float64]
    indices: NDArray[np.int64]
    threshold: float


def outliers(
    D: Any, k: int = 10, threshold: float = 3.5, *, monitor: Monitor | None = None, **options: Any
) -> Outliers:
    """Find the items that are far from all others.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    k : int
        Over how many nearest neighbours distances are averaged: a group of up to k alike items can still be far out.
    threshold : float
        Robust z score from which an item is an outlier.
    monitor : Monitor, optional
    **options
        For :func:`as_dissimilarities`.

    Returns
    -------
    Outliers

    Notes
    -----
    The score is the average distance to the k nearest neighbours (Angiulli and Pizzuti, Fast outlier detection in high
    dimensional spaces, PKDD 2002); the z score and its threshold are those of Iglewicz and Hoaglin, How to detect and
    handle outliers, 1993. One pass over the matrix.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 30.0])
    >>> outliers(np.abs(x[:, None] - x), k=2).indices
    array([5])
    """
    number("threshold", threshold, ("a number", lambda value: not math.isnan(value)))
    known = neighbors(D, k, monitor=monitor, **options)[1]
    counts = (~np.isnan(known)).sum(axis=1)
    scores = np.where(counts > 0, np.nansum(known, axis=1) / np.maximum(counts, 1), np.nan)
    z = _robust_z(scores)
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero(z > threshold)
    return Outliers(scores, z, found[np.argsort(-z[found], kind="stable")], float(threshold))


def _robust_z(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    if np.isnan(scores).all():
        return scores.copy()
    apart = scores - np.nanmedian(scores)
    sigma = _SIGMA_OF_MEDIAN * np.nanmedian(np.abs(apart)) or _SIGMA_OF_MEAN * np.nanmean(np.abs(apart))
    z: NDArray[np.float64] = apart / sigma if sigma > 0 else apart * 0.0
    return z
