"""The linkages of one matrix, each computed when it is first asked for, and only then."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.cut import cut
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.analytics.trees.hierarchy import linkage
from tartan.analytics.trees.joined_rows import join_rows
from tartan.base import machine

WARD = "ward"
_WARD_UNSQUARED = "ward unsquared"
# Ward's of the distances as they are takes part besides; that of their squares has another aim.
_COMPETING = ("single", "complete", "average", "weighted")


class Hierarchies:
    """The linkages of a checked matrix without missing pairs.

    Parameters
    ----------
    D : Dissimilarities
    monitor : Monitor
        Receives progress and can cancel a linkage.
    memory_bytes : int, optional
        Free memory; default: that of this machine.
    """

    def __init__(self, D: Dissimilarities, monitor: Monitor, memory_bytes: int | None = None) -> None:
        self.D, self._monitor = D, monitor
        free = machine.memory().available_bytes if memory_bytes is None else memory_bytes
        self._fits = 4 * D.n * (D.n - 1) <= free
        self._steps: dict[str, NDArray[np.float64]] = {}

    @property
    def methods(self) -> tuple[str, ...]:
        """The linkages whose pairs fit into memory; single linkage needs none."""
        return _COMPETING if self._fits else _COMPETING[:1]

    @property
    def n_different(self) -> int:
        """Number of items that differ: those that a path of distances of 0 joins count once."""
        return self.D.n - int((self.steps("single")[:, 2] <= 0).sum())

    def steps(self, method: str) -> NDArray[np.float64]:
        """Return the steps (n - 1, 4) of a linkage, as SciPy has them."""
        if method not in self._steps:
            self._steps[method] = linkage(self.D, method, memory=sys.maxsize, monitor=self._monitor)
        return self._steps[method]

    def cut(self, method: str, n_clusters: int) -> NDArray[np.int64]:
        """Return the labels of this many clusters of a linkage."""
        return cut(self.steps(method), self.D.n, n_clusters)

    def ward(self, level: float, n_clusters: int) -> NDArray[np.int64]:
        """Return the labels of this many clusters, joined so that H, measured from a level, grows least each time."""
        key = f"{WARD} {level!r}"
        if key not in self._steps:
            self._steps[key] = join_rows(self.D, _WARD_UNSQUARED, self._monitor, memory=sys.maxsize, level=level)
        return cut(self._steps[key], self.D.n, n_clusters)
