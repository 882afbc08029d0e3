"""The minimum spanning tree of all pairs, and the single-linkage clusters that it holds.

The pairs come in the order of their scores, from disk if need be; the tree takes memory in proportion to the number
of items. Every cut of the tree at a height gives the clusters of single linkage at that height (Gower and Ross,
Minimum spanning trees and single linkage cluster analysis, Applied Statistics 18, 1969).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.sources import native
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.bounds import round_bound
from tartan.errors import ConfigError


@dataclass(frozen=True)
class SpanningTree:
    """Edges that join all items at the least total score, in the order of their scores.

    Attributes
    ----------
    n : int
        Number of items.
    i, j : int64 arrays (m,)
        The ends of each edge. m is n - 1, or less where pairs without a score leave parts unconnected.
    scores : array (m,)
        From near to far.
    """

    n: int
    i: np.ndarray
    j: np.ndarray
    scores: np.ndarray

    @property
    def n_parts(self) -> int:
        """Number of connected parts; 1 if there is a path between any two items."""
        return self.n - len(self.i)

    def labels(self, threshold: float) -> NDArray[np.int64]:
        """Return the single-linkage clusters at a score: int64 (n,), numbered from 0 in the order of the items.

        Items are together when a path of pairs that are as near as the threshold, or nearer, joins them.
        """
        falling = len(self.scores) > 1 and self.scores[0] > self.scores[-1]
        bound = round_bound(threshold, self.scores.dtype)
        near = self.scores >= bound if falling else self.scores <= bound
        return self._labels(int(np.count_nonzero(near)))

    def cut(self, n_clusters: int) -> NDArray[np.int64]:
        """Return that many single-linkage clusters: int64 (n,), numbered from 0 in the order of the items.

        Raises
        ------
        ConfigError
            If there are more unconnected parts, or fewer items.
        """
        if not self.n_parts <= n_clusters <= self.n:
            raise ConfigError(
                f"{n_clusters} clusters: {self.n:,} items in {self.n_parts:,} unconnected parts make "
                f"{self.n_parts:,} to {self.n:,} clusters"
            )
        return self._labels(self.n - n_clusters)

    def linkage(self) -> NDArray[np.float64]:
        """Return the dendrogram as SciPy has it: float64 (n - 1, 4) of left, right, height and size.

        Raises
        ------
        ConfigError
            If the scores fall (similarities have no heights), or parts are unconnected.
        """
        if self.n_parts > 1:
            raise ConfigError(f"{self.n_parts:,} parts are connected by no score; there is no dendrogram of them all")
        if len(self.scores) and np.any(np.diff(self.scores) < 0):
            raise ConfigError("these scores are similarities; a dendrogram has heights: sort the pairs ascending")
        return _native.dendrogram(self.n, self.i, self.j, self.scores.astype(np.float64))

    def _labels(self, n_edges: int) -> NDArray[np.int64]:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ends = self.i[:n_edges], self.j[:n_edges]
        graph = coo_array((np.ones(n_edges, np.int8), ends), shape=(self.n, self.n))
        return number_labels(connected_components(graph, directed=False)[1])


def spanning_tree(batches: Iterable[Any], n: int) -> SpanningTree:
    """Build the tree from pairs in the order of their scores (Kruskal).

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Columns i, j and score, the nearest pairs first, as ``Run.pairs_sorted`` gives them. Reading stops as soon as
        all items are joined, or where pairs without a score begin.
    n : int
        Number of items.

    Returns
    -------
    SpanningTree
    """
    forest = _native.SpanningForest(n)
    edges: list[tuple[np.ndarray, ...]] = []
    for batch in batches:
        i, j = (batch.column(name).to_numpy() for name in ("i", "j"))
        column = batch.column("score")
        n_scored = len(column) - column.null_count  # pairs without a score come last
        kept = forest.offer(i[:n_scored], j[:n_scored])
        edges.append((i[kept], j[kept], column.slice(0, n_scored).to_numpy(zero_copy_only=False)[kept]))
        if forest.trees <= 1 or n_scored < len(column):
            break
    if not edges:
        return SpanningTree(n, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    return SpanningTree(n, *(np.concatenate(parts) for parts in zip(*edges, strict=True)))


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
        With fewer than n - 1 edges where missing pairs cut the items apart. What failed in a run has no edge.

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
    # Of int16 the distances are multiples of a scale, which no type but float64 holds.
    found = _sort_tree(n, edges, np.dtype(np.float64) if matrix.dtype.kind == "i" else native(matrix.dtype))
    if given.dropped is None or isinstance(D, Dissimilarities):
        return found
    return replace(found, n=n + len(given.dropped), i=given.kept[found.i], j=given.kept[found.j])


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


def _sort_tree(n: int, edges: list[tuple[int, int, float]], dtype: np.dtype[Any]) -> SpanningTree:
    ends = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
    ends.sort(axis=1)
    scores = np.array([edge[2] for edge in edges], dtype)
    order = np.lexsort((ends[:, 1], ends[:, 0], scores))
    return SpanningTree(n, ends[order, 0], ends[order, 1], scores[order])
