"""Hierarchical clustering of a matrix, and clusters at a threshold.

Single linkage comes from a minimum spanning tree that reads every row once and needs memory for one row; the others
are SciPy's, which need all pairs in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.linkage_process import joined_by_scipy
from tartan.analytics.trees.spanning import SpanningTree
from tartan.analytics.trees.tree import Tree, neighbor_joining
from tartan.base.checks import number
from tartan.errors import ConfigError

__all__ = ["METHODS", "TREE_METHODS", "build_tree", "clusters_at", "linkage", "linkage_tree", "minimum_spanning_tree"]

_PAIRS_BYTES = 8 << 20

METHODS = ("single", "complete", "average", "weighted")
TREE_METHODS = ("nj", "upgma", *METHODS)


def linkage(D: Any, method: str = "average", *, monitor: Monitor | None = None, **options: Any) -> NDArray[np.float64]:
    """Join the nearest clusters again and again.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    method : {"single", "complete", "average", "weighted"}
        The distance of two clusters: that of their nearest items, of their furthest items, the mean over all pairs
        (UPGMA), or the mean of those of their two parts (WPGMA).
    monitor : Monitor, optional
        What hears of progress and of Ctrl-C. SciPy does not: what takes longer than a moment is done by a process of
        its own, which is left.
    **options
        For :func:`as_dissimilarities`.

    Returns
    -------
    float64 array (n - 1, 4)
        As SciPy has it: the two clusters that are joined (item i is cluster i, step s makes cluster n + s), their
        distance, and the number of items.

    Raises
    ------
    ConfigError
        If the matrix is not one of dissimilarities, pairs are missing where all are needed, or missing pairs cut the
        items apart.

    Notes
    -----
    n^2 work. "single" takes memory for a few rows and leaves missing pairs out; the others take 4 n^2 bytes for the
    pairs and as much again inside SciPy.
    """
    if method not in METHODS:
        raise ConfigError(f"method: {method!r} is unknown; choose from {', '.join(METHODS)}")
    matrix = as_dissimilarities(D, **options)
    check = matrix.check(monitor=monitor)
    if matrix.n == 1:
        return np.empty((0, 4))
    if method == "single":
        check.require_connected(matrix)
        return minimum_spanning_tree(matrix, monitor=monitor).linkage()
    if check.n_missing:
        raise ConfigError(
            f"{matrix.label}: {check.n_missing:,} pairs are missing, and {method} linkage needs all of them; use "
            "method='single', or leave items out"
        )
    watch = as_monitor(monitor)
    return joined_by_scipy(matrix.n, method, lambda pairs: _fill_condensed(pairs, matrix, watch), watch)


def clusters_at(
    D: Any, threshold: float, method: str = "single", *, monitor: Monitor | None = None, **options: Any
) -> NDArray[np.int64]:
    """Cut the hierarchy at a distance.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    threshold : float
        With "single", items are together when a path of pairs that are as near as this, or nearer, joins them: the
        connected components. With the other methods, clusters that were joined at up to this distance.
    method : {"single", "complete", "average", "weighted"}
    monitor : Monitor, optional
    **options
        For :func:`as_dissimilarities`.

    Returns
    -------
    int64 array (n,)
        Cluster of each item, numbered from 0 in the order of their first items.

    Notes
    -----
    With "single", missing pairs join nothing, and the matrix may be larger than memory.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 5.0, 6.0, 7.0])
    >>> clusters_at(np.abs(x[:, None] - x), 1.5)
    array([0, 0, 1, 1, 1])
    """
    number("threshold", threshold, ("a distance, 0 or more", lambda value: value >= 0))
    if method == "single":
        matrix = as_dissimilarities(D, **options)
        labels: NDArray[np.int64] = minimum_spanning_tree(matrix, monitor=monitor).labels(threshold)
        return labels
    steps = linkage(D, method, monitor=monitor, **options)
    if not len(steps):
        return np.zeros(1, np.int64)
    from scipy.cluster.hierarchy import fcluster

    _, first, found = np.unique(fcluster(steps, threshold, "distance"), return_index=True, return_inverse=True)
    ranks: NDArray[np.int64] = np.argsort(np.argsort(first))[found].astype(np.int64)
    return ranks


def minimum_spanning_tree(D: Any, *, monitor: Monitor | None = None, **options: Any) -> SpanningTree:
    """Find the edges that join all items at the least total distance.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    monitor : Monitor, optional
    **options
        For :func:`as_dissimilarities`.

    Returns
    -------
    SpanningTree
        With fewer than n - 1 edges where missing pairs cut the items apart.

    References
    ----------
    Prim: Shortest connection networks and some generalizations. Bell Syst. Tech. J. 36 (1957) 1389-1401.

    Notes
    -----
    Reads every row once, in the order in which items are joined; memory for a few rows. What is not one array is
    written as one first.
    """
    given = as_dissimilarities(D, **options)
    given.check(monitor=monitor)
    matrix = given.materialized(monitor=monitor)
    watch = as_monitor(monitor)
    n = matrix.n
    outside = np.ones(n, bool)
    reach, nearest = np.full(n, np.inf), np.zeros(n, np.int64)
    edges: list[tuple[int, int, float]] = []
    item = 0
    for step in range(1, n):
        outside[item] = False
        _shorten(matrix, item, outside, reach, nearest)
        item = int(np.where(outside, reach, np.inf).argmin())
        if not outside[item] or reach[item] == np.inf:
            item = int(outside.argmax())  # no pair leads on: the next part begins
        else:
            edges.append((int(nearest[item]), item, float(reach[item])))
        if step % 256 == 0:
            watch.report("spanning tree", joined=step, of=n)
            watch.check()
    return _sorted_tree(n, edges)


def _shorten(
    matrix: Dissimilarities,
    item: int,
    outside: NDArray[np.bool_],
    reach: NDArray[np.float64],
    nearest: NDArray[np.int64],
) -> None:
    """Note which items are nearer to the item that has just been joined than to the tree before."""
    row = matrix.values(slice(item, item + 1), slice(0, matrix.n))[0]
    with np.errstate(invalid="ignore"):
        nearer = outside & (row < reach)
    reach[nearer], nearest[nearer] = row[nearer], item


def _sorted_tree(n: int, edges: list[tuple[int, int, float]]) -> SpanningTree:
    ends = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
    ends.sort(axis=1)
    scores = np.array([edge[2] for edge in edges], np.float64)
    order = np.lexsort((ends[:, 1], ends[:, 0], scores))
    return SpanningTree(n, ends[order, 0], ends[order, 1], scores[order])


def linkage_tree(steps: NDArray[np.float64], names: Sequence[str] | None = None) -> Tree:
    """Return a hierarchy as a rooted tree, all leaves equally far from the root.

    Parameters
    ----------
    steps : float64 array (n - 1, 4)
        As :func:`linkage` returns it. A cluster lies at half the distance at which it was joined.
    names : sequence of str, optional
        Names of the n leaves; default: their numbers.

    Raises
    ------
    ConfigError
        If the names are not n.
    """
    n = len(steps) + 1
    if np.shape(steps) != (n - 1, 4) or (n > 1 and not (steps[:, :2].min() >= 0 and steps[:, :2].max() < 2 * n - 2)):
        raise ConfigError(f"steps have shape {np.shape(steps)}; a hierarchy of n items is (n - 1, 4), as SciPy has it")
    labels = tuple(map(str, range(n))) if names is None else tuple(map(str, names))
    if len(labels) != n:
        raise ConfigError(f"{len(labels)} names for {n} items")
    heights = np.concatenate([np.zeros(n), steps[:, 2] / 2])
    parents = np.full(2 * n - 1, -1)
    for step, pair in enumerate(steps[:, :2].astype(int).tolist()):
        parents[pair] = n + step
    lengths = np.where(parents >= 0, heights[parents] - heights, 0.0)
    return Tree(parents, lengths, labels + ("",) * (n - 1))


def build_tree(D: Any, method: str = "nj", *, monitor: Monitor | None = None, **options: Any) -> Tree:
    """Build a tree by the name of its method.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    method : {"nj", "upgma", "single", "complete", "average", "weighted"}
        Neighbour joining (Saitou and Nei 1987), or a linkage; "upgma" is "average".
    monitor : Monitor, optional
    **options
        For :func:`as_dissimilarities`.

    Raises
    ------
    ConfigError
        If the method is unknown, the matrix is not one of dissimilarities, or a pair is missing.
    """
    if method not in TREE_METHODS:
        raise ConfigError(f"method: {method!r} is unknown; choose from {', '.join(TREE_METHODS)}")
    matrix = as_dissimilarities(D, **options)
    matrix.check(monitor=monitor).require_complete(matrix, "a tree")
    if method == "nj":
        return neighbor_joining(matrix, monitor=monitor)
    return linkage_tree(linkage(matrix, "average" if method == "upgma" else method, monitor=monitor), matrix.names)


def _fill_condensed(found: NDArray[np.float64], matrix: Dissimilarities, monitor: Monitor) -> None:
    """Write all pairs i < j, by blocks of rows."""
    n, at = matrix.n, 0
    height = matrix.block_rows(_PAIRS_BYTES)
    for start in range(0, n, height):
        rows = slice(start, min(n, start + height))
        for row, values in enumerate(matrix.values(rows, slice(0, n)), start):
            found[at : at + n - row - 1] = values[row + 1 :]
            at += n - row - 1
        monitor.report("pairs", rows=rows.stop, of=n)
        monitor.check()
