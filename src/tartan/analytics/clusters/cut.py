"""Clusters of a linkage: its last joins undone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.labels import number_labels


def cut(steps: NDArray[np.float64], n: int, n_clusters: int) -> NDArray[np.int64]:
    """Return labels (n,) of this many clusters, numbered in the order of their first items.

    Parameters
    ----------
    steps : ndarray (n - 1, 4)
        A linkage in the form of SciPy.
    n, n_clusters : int
    """
    parents = np.arange(2 * n - 1)
    for step, (a, b) in enumerate(steps[: n - n_clusters, :2].astype(int).tolist()):
        parents[[a, b]] = n + step
    for node in range(len(parents) - 1, -1, -1):  # a parent has a larger number than its children
        parents[node] = parents[parents[node]]
    return number_labels(parents[:n])
