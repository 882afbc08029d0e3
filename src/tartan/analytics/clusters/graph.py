"""Clusters of kept pairs: what a top-k or threshold run keeps instead of the matrix."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters import density
from tartan.analytics.clusters.outcome import Clustering
from tartan.analytics.labels import numbered
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.monitor import Monitor
from tartan.errors import ConfigError

Labels = NDArray[np.int64]

METHODS = ("components", "single", "hdbscan", "leiden")


def clustered_pairs(
    pairs: KeptPairs,
    n_clusters: int | None,
    method: str,
    *,
    threshold: float | None = None,
    why: str = "",
    min_size: int = 5,
    seed: int = 0,
    monitor: Monitor,
) -> Clustering:
    """Cluster items by their kept pairs.

    Parameters
    ----------
    pairs : KeptPairs
    n_clusters : int or None
        For "single": that many clusters of the shortest pairs that join all. None: as many as there are.
    method : {"components", "single", "hdbscan", "leiden"}
        "components": items are together when a path of pairs joins them; "single" is the same up to a distance.
    threshold : float, optional
        Longer pairs do not count.
    why : str
        Which pairs were chosen before, and why, for the reason.
    min_size : int
        Of "hdbscan".
    seed : int
        Of "leiden".
    monitor : Monitor

    Raises
    ------
    ConfigError
        If the method needs the matrix, or there are more unconnected parts than clusters are wanted.
    """
    if method not in METHODS:
        raise ConfigError(
            f"{pairs.label} keeps pairs and no matrix, and {method} needs all pairs; choose from {', '.join(METHODS)}, "
            "or run again without --top-k and --threshold"
        )
    if n_clusters is not None and method != "single":
        if method != "components":
            raise ConfigError(f"{method} finds the number of clusters by itself; leave out the number, or use single")
        method = "single"
    near = pairs if threshold is None else pairs.within(threshold)
    if n_clusters is not None:
        # A failed item has no pair: it is a part of its own that does not count.
        labels, reason = _cut(near, n_clusters + len(pairs.failed)), "as many as were asked for"
    else:
        labels, reason = _found(near, method, min_size, seed, monitor)
    labels[pairs.failed] = -1
    kept = labels >= 0
    labels[kept] = numbered(labels[kept])
    limit = why if threshold is None else f" up to the distance {threshold:.6g}"
    return Clustering(
        labels,
        method,
        f"{reason} of {len(near.i):,} kept pairs{limit}",
        found_by=method,
        notes=_notes(labels, pairs),
        threshold=threshold,
        representatives=representatives(near, labels),
        conversion=pairs.conversion,
    )


def representatives(pairs: KeptPairs, labels: Labels) -> Labels:
    """Return an item (n_clusters,) of each cluster: of those alike to most others in it the nearest to them."""
    inside = labels[pairs.i] == labels[pairs.j]
    i, j, distances = pairs.i[inside], pairs.j[inside], pairs.distances[inside]
    degrees = np.bincount(i, minlength=pairs.n) + np.bincount(j, minlength=pairs.n)
    sums = np.bincount(i, distances, pairs.n) + np.bincount(j, distances, pairs.n)
    mean = sums / np.maximum(degrees, 1)
    order = np.lexsort((np.arange(pairs.n), mean, -degrees, labels))
    order = order[labels[order] >= 0]
    first = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return order[first]


def _found(pairs: KeptPairs, method: str, min_size: int, seed: int, monitor: Monitor) -> tuple[Labels, str]:
    components = _components(pairs)
    if method == "hdbscan":
        size = density.require_min_size(min_size, pairs.n)
        return density.of_pairs(pairs, size, components, monitor), f"groups of at least {size} that are dense for long"
    if method == "leiden":
        return _leiden(pairs, seed), "the communities of highest modularity"
    return components, "the connected components"


def _components(pairs: KeptPairs) -> Labels:
    from scipy.sparse.csgraph import connected_components

    return numbered(connected_components(pairs.graph(np.ones(len(pairs.i), np.int8)), directed=False)[1])


def _cut(pairs: KeptPairs, n_clusters: int) -> Labels:
    """Return that many clusters of single linkage of the kept pairs."""
    from tartan import _native
    from tartan.analytics.trees.spanning import SpanningTree

    order = np.lexsort((pairs.j, pairs.i, pairs.distances))
    forest = _native.SpanningForest(pairs.n)
    i, j = np.ascontiguousarray(pairs.i[order]), np.ascontiguousarray(pairs.j[order])
    kept = forest.offer(i, j)
    return SpanningTree(pairs.n, i[kept], j[kept], pairs.distances[order][kept]).cut(n_clusters)


def _leiden(pairs: KeptPairs, seed: int) -> Labels:
    """Return the communities of highest modularity: a pair weighs c / (c + d), c the median distance of kept pairs."""
    igraph = _igraph()
    typical = float(np.median(pairs.distances)) if len(pairs.i) else 1.0
    weights = typical / (typical + pairs.distances) if typical > 0 else np.ones(len(pairs.i))
    graph = igraph.Graph(n=pairs.n, edges=np.column_stack([pairs.i, pairs.j]))
    igraph.set_random_number_generator(random.Random(seed))
    try:
        found = graph.community_leiden("modularity", weights=weights.tolist(), n_iterations=-1)
    finally:
        igraph.set_random_number_generator(random)
    return np.array(found.membership, np.int64)


def _igraph() -> Any:
    """Import igraph, here only: it is an extra of its own, because it is under the GPL."""
    try:
        import igraph
    except ImportError as error:
        raise ConfigError(
            "leiden needs igraph: pip install 'tartan-allpairs[leiden]'; --method components needs nothing"
        ) from error
    return igraph


def _notes(labels: Labels, pairs: KeptPairs) -> tuple[str, ...]:
    sizes = np.bincount(labels[labels >= 0])
    alone, noise = int((sizes == 1).sum()), int((labels < 0).sum()) - len(pairs.failed)
    several = int((sizes > 1).sum())
    found = [f"{several:,} groups of two or more items, {alone:,} items alone"]
    if noise:
        found.append(f"{noise:,} items are noise, in no cluster")
    if len(pairs.failed):
        found.append(f"{len(pairs.failed):,} items failed and are in no cluster")
    return tuple(found)
