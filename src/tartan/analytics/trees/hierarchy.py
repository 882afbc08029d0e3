"""Hierarchical clustering of a matrix, and clusters at a threshold.

Single linkage comes from a minimum spanning tree, which reads every row once and needs memory for one row. The other
methods join clusters over rows, in memory or on disk (``joined_rows.py``), and their results equal SciPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import for_analysis, for_linkage, in_places
from tartan.analytics.matrix.bound import reach
from tartan.analytics.matrix.check import way_around, without_gaps
from tartan.analytics.methods import LINKAGES, TREE_METHODS
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.joined_rows import check_rows, join_rows
from tartan.analytics.trees.joining import neighbor_joining
from tartan.analytics.trees.nodes import leaf_labels
from tartan.analytics.trees.spanning import minimum_spanning_tree
from tartan.analytics.trees.tree import Tree
from tartan.base.checks import number
from tartan.errors import ConfigError

_MEANS = ("average", "weighted", "ward")


def linkage(
    D: Any,
    method: str = "average",
    *,
    memory: str | int | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> NDArray[np.float64]:
    """Join the two nearest clusters until one is left.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    method : {"single", "complete", "average", "weighted", "ward"}
        The distance of two clusters: that of their nearest items, of their furthest items, the mean over all pairs
        (UPGMA), the mean of those of their two parts (WPGMA), or how much joining them adds to the sum of squares,
        which wants Euclidean distances.
    memory : str or int, optional
        Most memory for rows, such as "300MB"; what does not fit lies on disk. Default: half of what is free. "single"
        keeps none.
    monitor : Monitor, optional
        Receives progress and can cancel the call. Its checkpoint is the folder of what lies on disk; default: of a run
        ``linkage`` in its folder, of other matrices a temporary one.
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
        If the matrix is not one of dissimilarities, pairs are missing where all are needed, missing pairs cut the
        items apart, or a mean of distances exceeds the largest float64.
    StoreError
        If the matrix was changed meanwhile, another process links it, or its folder has the log of another linkage.
    DiskFullError
        If the disk is full; the same call goes on when there is space again.

    Notes
    -----
    n^2 work in one thread. "single" takes memory for a few rows, leaves missing pairs out, and joins pairs that are
    equally near in the order of their items. The others break ties as SciPy does, in memory and on disk: the result
    equals that of ``scipy.cluster.hierarchy.linkage`` to the last bit. They keep rows of joined clusters, at most 3 n^2
    bytes and mostly a third of that, and the matrix where it is not one array or file already. On disk a call that
    was interrupted, however it ended, goes on where it was when it is made again.

    References
    ----------
    Murtagh: A survey of recent advances in hierarchical clustering algorithms. Comput. J. 26 (1983) 354-359.
    Muellner: Modern hierarchical, agglomerative clustering algorithms. arXiv:1109.2378 (2011).

    Examples
    --------
    >>> linkage([2.0, 4.0, 4.0])
    array([[0., 1., 2., 2.],
           [2., 3., 4., 3.]])
    """
    if method not in LINKAGES:
        raise ConfigError(f"method: {method!r} is unknown; choose from {', '.join(LINKAGES)}")
    matrix = for_linkage(D, complete=method != "single", **options)
    check = check_rows(matrix, monitor, memory=memory)
    if matrix.n == 1:
        return np.empty((0, 4))
    if method == "single":
        check.require_connected(matrix)
        return minimum_spanning_tree(matrix, monitor=monitor).linkage()
    if check.n_missing:
        raise ConfigError(
            f"{matrix.label}: {check.n_missing:,} pairs are missing, and {method} linkage needs all of them; "
            + (way_around(matrix) or f"use `method='single'`, or {without_gaps(matrix)}")
        )
    return join_rows(matrix, method, as_monitor(monitor), memory=memory)


def clusters_at(
    D: Any,
    threshold: float,
    method: str = "single",
    *,
    memory: str | int | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> NDArray[np.int64]:
    """Cut the hierarchy at a distance.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    threshold : float
        With "single", items are together when a path of pairs that are as near as this, or nearer, joins them: the
        connected components. With the other methods, clusters that were joined at up to this distance. It is rounded
        as the scores were, and what is equal to it is within it.
    method : {"single", "complete", "average", "weighted", "ward"}
    memory : str or int, optional
        As for :func:`linkage`.
    monitor : Monitor, optional
    **options
        For :func:`as_dissimilarities`.

    Returns
    -------
    int64 array (n,)
        Cluster of each item, numbered from 0 in the order of their first items; -1 for dropped ones.

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
    matrix = for_linkage(D, complete=method != "single", **options)
    if method == "single":
        labels = minimum_spanning_tree(matrix, monitor=monitor).labels(reach(matrix, threshold))
    else:
        steps = linkage(matrix, method, memory=memory, monitor=monitor)
        labels = _join_up_to(steps, reach(matrix, threshold, of_means=method in _MEANS))
    return in_places(D, matrix, labels, -1)


def _join_up_to(steps: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    from scipy.cluster.hierarchy import fcluster

    return number_labels(fcluster(steps, threshold, "distance")) if len(steps) else np.zeros(1, np.int64)


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
        If there are not n names.
    """
    n = len(steps) + 1
    if np.shape(steps) != (n - 1, 4) or (n > 1 and not (steps[:, :2].min() >= 0 and steps[:, :2].max() < 2 * n - 2)):
        raise ConfigError(f"steps have shape {np.shape(steps)}; a hierarchy of n items is (n - 1, 4), as SciPy has it")
    labels = leaf_labels(names, n)
    heights = np.concatenate([np.zeros(n), steps[:, 2] / 2])
    parents = np.full(2 * n - 1, -1)
    for step, pair in enumerate(steps[:, :2].astype(int).tolist()):
        parents[pair] = n + step
    lengths = np.where(parents >= 0, heights[parents] - heights, 0.0)
    return Tree(parents, lengths, labels + ("",) * (n - 1))


def upgma(
    D: Any,
    names: Sequence[str] | None = None,
    *,
    memory: str | int | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> Tree:
    """Build the UPGMA tree (average linkage) of distances: rooted, all leaves equally far from the root.

    Parameters
    ----------
    D : anything that :func:`tartan.analytics.as_dissimilarities` takes
        Symmetric, finite distances.
    names : sequence of str, optional
        Names of the n leaves; by default those of D, or their numbers.
    memory : str or int, optional
        As for :func:`linkage`.
    monitor : Monitor, optional
        Receives progress and can cancel the call.
    **options
        For :func:`tartan.analytics.as_dissimilarities`.

    Raises
    ------
    ConfigError
        If D is not a matrix of distances, or there are not n names.

    Notes
    -----
    As :func:`tartan.analytics.linkage` with the method "average".

    Examples
    --------
    >>> upgma([[0, 2, 4], [2, 0, 4], [4, 4, 0]], ["a", "b", "c"]).newick()
    '(c:2,(a:1,b:1):1);'
    """
    matrix = for_analysis(D, complete=True, names=names, **options)
    labels = leaf_labels(matrix.names, matrix.n)
    return linkage_tree(linkage(matrix, "average", memory=memory, monitor=monitor), labels)


def build_tree(
    D: Any, method: str = "nj", *, memory: str | int | None = None, monitor: Monitor | None = None, **options: Any
) -> Tree:
    """Build a tree by the name of its method.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    method : {"nj", "upgma", "single", "complete", "average", "weighted", "ward"}
        Neighbour joining (Saitou and Nei 1987), or a linkage; "upgma" is "average".
    memory : str or int, optional
        Of a linkage, as for :func:`linkage`.
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
    matrix = for_analysis(D, complete=True, **options)
    matrix.check(monitor=monitor).require_complete(matrix, "a tree")
    if method == "nj":
        return neighbor_joining(matrix, monitor=monitor)
    steps = linkage(matrix, "average" if method == "upgma" else method, memory=memory, monitor=monitor)
    return linkage_tree(steps, matrix.names)
