"""HDBSCAN of scikit-learn, on each connected component of a matrix or of kept pairs.

Of several components one in which nothing is denser than the rest is a cluster as a whole; where there is only one, all
of it is noise then, as scikit-learn has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.monitor import Monitor
from tartan.base.format import format_bytes
from tartan.base.machine import memory
from tartan.errors import ConfigError, ResourceError

Labels = NDArray[np.int64]

#: Bytes for each pair (i, j) and (j, i) of a component: the matrix and what scikit-learn makes of it.
#: By construction: float64 three times.
_BYTES = 8 * 3


def of_matrix(
    D: Dissimilarities,
    min_size: int,
    monitor: Monitor,
    available_bytes: Callable[[], int] = lambda: memory().available_bytes,
) -> Labels:
    """Return HDBSCAN's labels (n,), -1 for noise; components that missing pairs cut apart are clustered each alone.

    Raises
    ------
    ResourceError
        If the largest component does not fit into memory as a square array.
    """
    components = D.check(monitor=monitor).components
    groups = _groups(np.zeros(D.n, np.int64) if components is None else components)
    largest = max(map(len, groups))
    _require_memory(D, largest, available_bytes())
    labels = np.full(D.n, -1, np.int64)
    for items in groups:
        monitor.check()
        if len(items) >= min_size:
            values = np.empty((len(items), len(items)))
            for row, item in enumerate(items.tolist()):
                values[row] = D.values(slice(item, item + 1), slice(0, D.n))[0, items]
            np.fill_diagonal(values, 0.0)
            values[np.isnan(values)] = np.inf
            _put(labels, items, _estimator(min_size).fit(values).labels_, whole=len(groups) > 1)
    return labels


def of_pairs(pairs: KeptPairs, min_size: int, components: Labels, monitor: Monitor) -> Labels:
    """Return HDBSCAN's labels (n,) of kept pairs, -1 for noise; pairs that are not kept count as far."""
    labels = np.full(pairs.n, -1, np.int64)
    if not len(pairs.i):
        return labels
    graph = pairs.graph(pairs.distances + _tiny(pairs))  # a stored 0 would be no pair at all
    far = 2 * float(pairs.distances.max()) + _tiny(pairs)
    groups = _groups(components)
    for items in groups:
        monitor.check()
        if len(items) >= min_size:
            part = graph[items][:, items]
            fewest = int(np.diff(part.indptr).min())  # scikit-learn takes no more neighbours than every item has
            others = min(min_size - 1, fewest)  # of a matrix it counts the item itself, at distance 0; of pairs not
            estimator = _estimator(min_size, min_samples=max(1, others), metric_params={"max_distance": far})
            _put(labels, items, estimator.fit(part).labels_, whole=len(groups) > 1)
    return labels


def _tiny(pairs: KeptPairs) -> float:
    return max(1e-12 * float(pairs.distances.max()), np.finfo(float).tiny)


def _estimator(min_size: int, **options: Any) -> Any:
    from sklearn.cluster import HDBSCAN

    return HDBSCAN(min_cluster_size=min_size, metric="precomputed", copy=False, **options)


def _groups(components: Labels) -> list[Labels]:
    order = np.argsort(components, kind="stable")
    return [group for group in np.split(order, np.flatnonzero(np.diff(components[order])) + 1) if len(group)]


def _put(labels: Labels, items: Labels, found: Labels, *, whole: bool) -> None:
    """Write the clusters of one component, with numbers of their own; ``whole``: it is one where none was found."""
    if whole and (found < 0).all():
        found = np.zeros_like(found)
    labels[items] = np.where(found >= 0, found + max(0, int(labels.max()) + 1), -1)


def _require_memory(D: Dissimilarities, n_items: int, available_bytes: int) -> None:
    needed = _BYTES * n_items**2
    if needed > available_bytes:
        raise ResourceError(
            f"{D.label}: hdbscan takes {format_bytes(needed)} for {n_items:,} items that pairs connect, and "
            f"{format_bytes(available_bytes)} are free; cluster by --method single with --threshold, which takes a few "
            "rows, or compute a top-k run of these items: its kept pairs are clustered without the matrix",
            code="memory",
        )


def require_min_size(min_size: int, n: int) -> int:
    """Return the least size of clusters, checked."""
    if not 2 <= min_size <= max(2, n):
        raise ConfigError(f"min_size is {min_size}; clusters of {n} items have 2 to {n}")
    return min_size
