"""A local search over hard clusterings: moving single items, and joining two clusters while splitting another.

The cost of labels is that of pairwise clustering: H, the sum over clusters of all dissimilarities within, divided by
the cluster's size. Every step lowers it, so the search ends; where it ends depends on where it begins.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.monitor import Monitor

Labels = NDArray[np.int64]
Sums = NDArray[np.float64]

# _SWEEPS and _EXCHANGES, by judgement: bounds; a search ends when nothing is gained. `tartan bench answers` holds
# outcome and time.
_SWEEPS = 50
# By judgement, see _SWEEPS.
_EXCHANGES = 100
# _TRIED_SPLITS and _WORTH, by judgement: what is gained falls from one split to the next. `tartan bench answers`: costs
# are not above the truth's.
_TRIED_SPLITS = 3
# By judgement, see _TRIED_SPLITS.
_WORTH = 0.25  # of H
# By judgement: 780 pairs of clusters. `tartan bench answers parts=time` holds the time.
_FEW = 40  # clusters up to which pairs of them are divided anew, and that are split in one round
# By arithmetic: a table of pairs of clusters has 32 MB then.
_MOST_EXCHANGED = 2000  # clusters; of more, only items move
# By arithmetic: its pairs are copied, 200 MB.
_MOST_DIVIDED = 5000  # items of a cluster that is divided, for which their pairs are copied
# By arithmetic: sums of float64 over 10**7 pairs.
_GAIN = 1e-10  # of H: less is rounding


@dataclass(frozen=True)
class Measured:
    """A whole matrix in memory, and what its values mean: max(scale * value - level, 0) off the diagonal.

    Attributes
    ----------
    stored : ndarray (n, n)
        int16, float32 or float64, row by row; symmetric, without missing pairs.
    swapped : bool
        Whether the bytes of int16 are in the order of other machines.
    scale, level : float
    """

    stored: NDArray[Any]
    swapped: bool = False
    scale: float = 1.0
    level: float = 0.0

    @property
    def n(self) -> int:
        return len(self.stored)

    def among(self, items: NDArray[np.intp]) -> Measured:
        """Return the matrix of some items, in float64."""
        values = np.empty((len(items), len(items)))
        _native.pwc_among(self.stored, self.measure, np.asarray(items, np.int64), values)
        return Measured(values)

    @property
    def measure(self) -> tuple[bool, float, float]:
        """Everything but the values, as the native search takes it."""
        return self.swapped, self.scale, self.level


class Grouping:
    """Items in k clusters, and sums that change with every move; none is taken anew.

    Parameters
    ----------
    D : Measured
    labels : ndarray (n,)
        From 0 to k - 1. Copied.
    k : int

    Attributes
    ----------
    D : Measured
    labels : ndarray (n,)
    to_clusters : ndarray (k, n)
        Sums of dissimilarities from the items of each cluster to each item.
    sizes, within : ndarray (k,)
        Items of each cluster; the sum of all dissimilarities within it.
    """

    def __init__(self, D: Measured, labels: Labels, k: int) -> None:
        self.D, self.labels = D, np.array(labels, np.int64)
        self.to_clusters, self._totals = np.empty((k, D.n)), np.empty((2, k))
        _native.pwc_sum_up(*self._arguments())

    @property
    def k(self) -> int:
        return len(self.to_clusters)

    @property
    def sizes(self) -> Sums:
        sizes: Sums = self._totals[0]
        return sizes

    @property
    def within(self) -> Sums:
        within: Sums = self._totals[1]
        return within

    @property
    def cost(self) -> float:
        """H: for each cluster the sum of dissimilarities within, divided by its size."""
        return float((self.within / np.maximum(self.sizes, 1)).sum())

    def copy(self) -> Grouping:
        """Return a grouping that can change by itself."""
        new = object.__new__(Grouping)
        new.D, new.labels = self.D, self.labels.copy()
        new.to_clusters, new._totals = self.to_clusters.copy(), self._totals.copy()
        return new

    def relabel(self, items: NDArray[np.intp], cluster: int) -> None:
        """Move items to a cluster."""
        _native.pwc_relabel(*self._arguments(), np.asarray(items, np.int64), cluster)

    def settle(self, monitor: Monitor) -> Grouping:
        """Move single items to other clusters as long as that lowers the cost; no cluster becomes empty."""
        for _ in range(_SWEEPS):
            monitor.check()
            least = _GAIN * max(self.cost, np.finfo(float).tiny)
            if not _native.pwc_sweep(*self._arguments(), least):
                break
        return self

    def joins(self) -> tuple[Sums, Sums]:
        """Return the cost of each cluster (k,), and what joining each two of them adds (k, k); none may be empty."""
        order = np.argsort(self.labels, kind="stable")
        firsts = np.searchsorted(self.labels[order], np.arange(self.k))
        return join_costs(np.add.reduceat(self.to_clusters[:, order], firsts, axis=1), self.sizes)

    def _arguments(self) -> tuple[NDArray[Any], tuple[bool, float, float], Labels, Sums, Sums]:
        return self.D.stored, self.D.measure, self.labels, self.to_clusters, self._totals


def cost_of(D: Measured, labels: Labels) -> float:
    """Return H of labels: for each cluster the sum of dissimilarities within, divided by its size."""
    return Grouping(D, labels, int(labels.max()) + 1).cost


def improve(grouping: Grouping, monitor: Monitor) -> Grouping:
    """Lower the cost of a grouping of which no cluster is empty until no step of the search does."""
    grouping = grouping.copy().settle(monitor)
    for _ in range(_EXCHANGES):
        least = grouping.cost
        for candidate in _exchanges(grouping, monitor):
            if candidate.cost < least - _GAIN * abs(least):
                grouping = candidate
                break
        else:
            break
    return grouping


def fill_empty(D: Measured, labels: Labels, k: int, monitor: Monitor) -> Labels:
    """Return labels of k clusters none of which is empty: the costliest ones are split until there are enough."""
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    grouping = Grouping(D, labels, int(labels.max()) + 1)
    costliest = [(-grouping.within[one] / grouping.sizes[one], one) for one in range(grouping.k)]
    costliest = [entry for entry in costliest if grouping.sizes[entry[1]] > 1]
    heapq.heapify(costliest)
    for new in range(grouping.k, k):
        one = heapq.heappop(costliest)[1]
        items = np.flatnonzero(labels == one)
        halves = halve(D.among(items), monitor)
        labels[items[halves.labels == 1]] = new
        for half, cluster in enumerate((one, new)):
            if halves.sizes[half] > 1:
                heapq.heappush(costliest, (-halves.within[half] / halves.sizes[half], cluster))
    return labels


def _exchanges(grouping: Grouping, monitor: Monitor) -> Iterator[Grouping]:
    """Yield divisions in which two clusters are joined and another is split, or two are divided anew.

    Only what costs little more before items move is tried: moves mend borders, not whole clusters. Of many clusters
    it must not cost more at all, and only the costliest ones are split.
    """
    if grouping.k > _MOST_EXCHANGED:
        return
    D, labels = grouping.D, grouping.labels
    within, joins = grouping.joins()
    few = grouping.k <= _FEW
    worth = _WORTH * float(within.sum()) if few else 0.0
    tried = 0
    for one in np.argsort(within)[::-1][:_FEW]:
        join, a, b = _join_beside(joins, one)
        if tried == _TRIED_SPLITS or join - within[one] > worth:
            continue  # a split gains at most all that its cluster costs
        if grouping.sizes[one] > _MOST_DIVIDED:
            continue
        part, cost = _split(D, np.flatnonzero(labels == one), monitor)
        if len(part) and join + cost - within[one] <= worth:
            tried += 1
            yield _exchange(grouping, a, b, part).settle(monitor)
    nearest = joins.argmin(1) if 1 < grouping.k <= _FEW else ()
    for a, b in sorted({(min(pair), max(pair)) for pair in enumerate(map(int, nearest))}):
        if joins[a, b] <= worth and grouping.sizes[a] + grouping.sizes[b] <= _MOST_DIVIDED:
            part, _ = _split(D, np.flatnonzero((labels == a) | (labels == b)), monitor)
            yield _exchange(grouping, a, b, part).settle(monitor)


def _exchange(grouping: Grouping, a: int, b: int, part: NDArray[np.intp]) -> Grouping:
    """Return the grouping in which a takes the items of b, and b then holds those of a part."""
    new = grouping.copy()
    new.relabel(np.setdiff1d(np.flatnonzero(grouping.labels == b), part), a)
    new.relabel(part, b)
    return new


def join_costs(sums: Sums, sizes: Sums) -> tuple[Sums, Sums]:
    """Return the cost of each cluster (k,), and what joining each two of them adds (k, k), infinite on the diagonal."""
    totals = np.diag(sums)
    within = totals / sizes
    joins = (totals[:, None] + totals + 2 * sums) / (sizes[:, None] + sizes) - within[:, None] - within
    np.fill_diagonal(joins, np.inf)
    return within, joins


def _join_beside(joins: Sums, one: int) -> tuple[float, int, int]:
    """Return what joining two clusters other than one adds at least, and these two."""
    others = joins.copy()
    others[one], others[:, one] = np.inf, np.inf
    a, b = divmod(int(others.argmin()), len(joins))
    return float(others[a, b]), a, b


def _split(D: Measured, items: NDArray[np.intp], monitor: Monitor) -> tuple[NDArray[np.intp], float]:
    """Divide some items into two; return those of the second part, none of a single item, and the cost of both."""
    halves = halve(D.among(items), monitor)
    return items[halves.labels == 1], halves.cost


def halve(D: Measured, monitor: Monitor) -> Grouping:
    """Return a good grouping of items into two, of a single one or none into one.

    ``D`` is a matrix in float64 as ``Measured.among`` returns it.
    """
    values = D.stored
    if D.n < 2:
        return Grouping(D, np.zeros(D.n, np.int64), 2)
    first = int(values.sum(1).argmax())
    second = int(np.where(np.arange(D.n) == first, -1.0, values[first]).argmax())
    apart = (values[first] > values[second]).astype(np.int64)
    apart[first], apart[second] = 0, 1
    alone = (np.arange(D.n) == first).astype(np.int64)
    found = [Grouping(D, labels, 2).settle(monitor) for labels in (apart, alone)]
    return min(found, key=lambda grouping: grouping.cost)
