"""The end of pairwise clustering: annealing, linkages and a local search compete on the same values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.dapwc.level import ZeroLevel
from tartan.analytics.clusters.dapwc.product import Product
from tartan.analytics.clusters.search import cost_of, filled, improved, settled
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.analytics.trees.hierarchy import linkage

Labels = NDArray[np.int64]

#: Up to this many items the matrix is copied for the search (200 MB), and linkages begin it too.
SEARCHED_ITEMS = 5000
LINKED_ITEMS = 300
_LINKAGES = ("single", "complete", "average", "weighted")
_STARTED_ITEMS = 200  # up to which random labels begin it as well
_STARTS = 10
_ROUNDING = 1e-6  # of products in float32


class Winner(NamedTuple):
    """The labels of lowest cost, and what found them: "annealing", or what began the search that did."""

    labels: Labels
    method: str


def best(
    D: Dissimilarities,
    level: ZeroLevel,
    product: Product,
    labels: Labels,
    k: int,
    *,
    start: NDArray[Any],
    monitor: Monitor,
) -> Winner:
    """Return the labels of lowest cost among what annealing found and what a local search finds.

    Parameters
    ----------
    D : Dissimilarities
        Checked. The search needs it whole, in memory and without missing pairs, of at most ``SEARCHED_ITEMS`` items.
    level : ZeroLevel
        From which costs are measured.
    product : Product
        Measured from it. Where it shows that there is nothing to try, the matrix is not copied.
    labels : ndarray (n,)
        What annealing found.
    k : int
        Clusters that there shall be: where annealing left some empty, others are split.
    start : ndarray (n,)
        Random numbers.
    monitor : Monitor
        Can cancel the search.
    """
    if D.array is None or D.has_missing or not 2 <= k < D.n <= SEARCHED_ITEMS:
        return Winner(labels, "annealing")
    if D.n > LINKED_ITEMS and len(np.unique(labels)) == k:
        members = np.eye(k)[labels]
        if settled(product.scale * product(members)[0], labels, _ROUNDING):
            return Winner(labels, "annealing")
    values = _measured(D, level)
    winner, least = Winner(labels, "annealing"), cost_of(values, labels)
    if len(np.unique(labels)) < k:
        labels, least = filled(values, labels, k, monitor), np.inf
    for method, begin in _begins(values, labels, k, start, monitor).items():
        found = improved(values, begin, k, monitor)
        cost = cost_of(values, found)
        if cost < least * (1 - 1e-9):
            winner, least = Winner(found, f"search from {method}"), cost
    return winner


def _begins(values: Any, labels: Labels, k: int, start: NDArray[Any], monitor: Monitor) -> dict[str, Labels]:
    """Return the labels from which the search begins, by what made them."""
    begins = {"annealing": labels}
    n = len(labels)
    if n <= LINKED_ITEMS:
        matrix = as_dissimilarities(values)
        begins |= {f"{name} linkage": cut(linkage(matrix, name, monitor=monitor), n, k) for name in _LINKAGES}
    if n <= _STARTED_ITEMS:
        generator = np.random.default_rng(np.abs(start).view(np.uint64)[:4])
        for number in range(_STARTS):
            drawn = np.concatenate([np.arange(k), generator.integers(0, k, n - k)])
            begins[f"random labels {number + 1}"] = generator.permutation(drawn).astype(np.int64)
    return begins


def _measured(D: Dissimilarities, level: ZeroLevel) -> NDArray[np.float64]:
    """Return the whole matrix, measured from the level."""
    assert D.array is not None
    values: NDArray[np.float64] = np.multiply(D.array, D.scale, dtype=np.float64)
    values -= level.value
    np.maximum(values, 0.0, out=values)
    np.fill_diagonal(values, 0.0)
    return values
