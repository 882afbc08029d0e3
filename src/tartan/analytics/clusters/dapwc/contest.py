"""The end of pairwise clustering: annealing, linkages and a local search compete on the same values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.dapwc.level import ZeroLevel
from tartan.analytics.clusters.dapwc.product import Product, as_stored
from tartan.analytics.clusters.search import Grouping, Measured, filled, improved, settled
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.analytics.trees.hierarchy import linkage

Labels = NDArray[np.int64]

SEARCHED_ITEMS = 5000
LINKED_ITEMS = 300  # up to which linkages begin the search as well
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
        Measured from it.
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
    begin = Grouping(values, labels, k)
    winner, least = Winner(labels, "annealing"), begin.cost
    if not begin.sizes.all():
        begin, least = Grouping(values, filled(values, labels, k, monitor), k), np.inf
    for method, grouping in _begins(begin, start, monitor):
        found = improved(grouping, monitor)
        if found.cost < least * (1 - 1e-9):
            winner, least = Winner(found.labels, f"search from {method}"), found.cost
    return winner


def _begins(found: Grouping, start: NDArray[Any], monitor: Monitor) -> Iterator[tuple[str, Grouping]]:
    """Yield what made the labels from which the search begins, and their grouping."""
    yield "annealing", found
    D, n, k = found.D, found.D.n, found.k
    if n <= LINKED_ITEMS:
        matrix = as_dissimilarities(D.among(np.arange(n)).stored)
        for name in _LINKAGES:
            yield f"{name} linkage", Grouping(D, cut(linkage(matrix, name, monitor=monitor), n, k), k)
    if n <= _STARTED_ITEMS:
        generator = np.random.default_rng(np.abs(start).view(np.uint64)[:4])
        for number in range(_STARTS):
            drawn = np.concatenate([np.arange(k), generator.integers(0, k, n - k)])
            yield f"random labels {number + 1}", Grouping(D, generator.permutation(drawn), k)


def _measured(D: Dissimilarities, level: ZeroLevel) -> Measured:
    """Return the whole matrix as the search reads it: in place, copied only where the kernel cannot read it."""
    array, swapped = as_stored(D)
    if array is None:
        assert D.array is not None
        array = np.require(D.array, D.dtype.newbyteorder("="), ["C", "A"])
    return Measured(array, swapped, D.scale, level.value)
