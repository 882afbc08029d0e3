"""The end of pairwise clustering: linkages, chance, annealing and a local search compete for the lowest cost.

All are measured by H from one level. Each begins the local search, which moves single items; the best, or all where
there are few items, then also join clusters and split others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.product import as_stored
from tartan.analytics.clusters.hierarchies import WARD, Hierarchies
from tartan.analytics.clusters.search import Grouping, Measured, fill_empty, improve
from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor

Labels = NDArray[np.int64]

ANNEALING = "annealing"
# By arithmetic: sums of float64 over 10**7 pairs.
LOWER = 1e-9  # of the cost: less is rounding
# By judgement: the matrix has 0.7 MB and stays in a cache. `tartan bench answers` and `tartan bench pwc` hold outcome
# and time.
# By judgement: each beginning is searched in under a second for so few items. `tartan bench answers` and `tartan bench
# pwc` hold outcome and time.
_EACH_IMPROVED_ITEMS = 300  # up to which clusters are joined and split from every beginning, not from the best only
# _STARTED_ITEMS and _STARTS, by judgement: as above, ten searches more. `tartan bench answers`: costs are those of 100
# random starts.
_STARTED_ITEMS = 200  # up to which random labels begin the search as well
_STARTS = 10
# By arithmetic: 2 GiB of float64.
MOST_SUMS = 1 << 28  # of items to clusters, which the search keeps in memory
_SEARCH = "search from "
_JUDGES = ("average linkage", "complete linkage", "weighted linkage", f"{WARD} linkage")


class Winner(NamedTuple):
    """The labels of lowest cost, what found them ("average linkage", "search from annealing"), and their cost."""

    labels: Labels
    method: str
    cost: float


class Contest:
    """Labels of k clusters of one matrix that compete by their cost.

    Parameters
    ----------
    D : Dissimilarities
        Checked, one array, without missing pairs.
    level : float
        From which costs are measured.
    n_clusters : int
        Clusters that there shall be. Where fewer items differ there are as many as these.
    hierarchies : Hierarchies
        Of D.
    monitor : Monitor
        Can cancel the search.

    Attributes
    ----------
    k : int
        Clusters that there are.
    costs : dict of str to float
        H of each that took part, by its name, as it was before the search.
    """

    def __init__(
        self, D: Dissimilarities, level: float, n_clusters: int, hierarchies: Hierarchies, monitor: Monitor
    ) -> None:
        self.k = min(n_clusters, hierarchies.n_different)
        self.costs: dict[str, float] = {}
        self._hierarchies, self._monitor = hierarchies, monitor
        self._values, self._plain = _prepare_measured(D, level), _prepare_measured(D, 0.0)
        self._ends: dict[str, bytes] = {}
        self._found: dict[bytes, tuple[bytes, float]] = {}
        self._best: Winner | None = None
        self._is_final = False

    @property
    def winner(self) -> Winner:
        """The best of those that took part, after the last steps of the search."""
        assert self._best is not None
        if not self._is_final and self._searches and self._values.n > _EACH_IMPROVED_ITEMS:
            begin = self._best
            found = improve(Grouping(self._values, begin.labels, self.k), self._monitor)
            self._offer(begin.method.removeprefix(_SEARCH), begin.labels, found.labels, found.cost)
        self._is_final = True
        return self._best

    @property
    def notes(self) -> tuple[str, ...]:
        """What took no part for want of memory, a sentence each."""
        said = []
        if len(self._hierarchies.methods) == 1:
            said.append(f"only single linkage took part: the pairs of {self._values.n:,} items do not fit into memory")
        if self.k * self._values.n > MOST_SUMS:
            said.append(f"no search improved them: {self.k:,} clusters of {self._values.n:,} items are too many for it")
        return tuple(said)

    @property
    def is_agreed(self) -> bool:
        """Whether the search ended at one clustering from all linkages but the single one, and it is the best."""
        ends = {self._ends.get(name, b"") for name in _JUDGES}
        return ends == {number_labels(self.winner.labels).tobytes()}

    def enter_all(self, start: NDArray[np.float64]) -> None:
        """Let linkages and random labels take part; ``start`` (n,) are random numbers."""
        self.enter_linkages()
        self.enter_chance(start)

    def enter_linkages(self) -> None:
        """Let the linkages take part, and that which joins what raises the cost least."""
        for method in self._hierarchies.methods:
            self.enter(f"{method} linkage", self._hierarchies.cut(method, self.k))
        if len(self._hierarchies.methods) > 1:
            self.enter(f"{WARD} linkage", self._hierarchies.ward(self._values.level, self.k))

    def enter_chance(self, start: NDArray[np.float64]) -> None:
        """Let random labels take part, where there are few items; ``start`` (n,) are random numbers."""
        n = self._values.n
        generator = np.random.default_rng(np.abs(start).view(np.uint64)[:4])
        for number in range(_STARTS if n <= _STARTED_ITEMS else 0):
            drawn = np.concatenate([np.arange(self.k), generator.integers(0, self.k, n - self.k)])
            self.enter(f"random labels {number + 1}", generator.permutation(drawn))

    def enter(self, method: str, labels: Labels) -> None:
        """Let labels take part; where clusters are missing, others are split."""
        self._monitor.report("search", of=self.k, begins=method)
        self._monitor.check()
        if len(np.unique(labels)) < self.k:
            labels = fill_empty(self._values, labels, self.k, self._monitor)
        begins = number_labels(labels).tobytes()
        if begins not in self._found:
            self._found[begins] = self._search(method, labels)
        self._ends[method], self.costs[method] = self._found[begins]

    def _search(self, method: str, labels: Labels) -> tuple[bytes, float]:
        """Search from labels; return where that ends, and the cost of the labels."""
        if not self._searches:
            cost = _cost(self._values, labels, self.k)
            self._offer(method, labels, labels, cost)
            return number_labels(labels).tobytes(), cost
        begin = Grouping(self._values, labels, self.k)
        cost = begin.cost
        each = self._values.n <= _EACH_IMPROVED_ITEMS
        found = improve(begin, self._monitor) if each else begin.settle(self._monitor)
        self._offer(method, labels, found.labels, found.cost)
        return number_labels(found.labels).tobytes(), cost

    @property
    def _searches(self) -> bool:
        return 1 < self.k < self._values.n and self.k * self._values.n <= MOST_SUMS

    def _offer(self, method: str, begin: Labels, end: Labels, cost: float) -> None:
        """Keep labels that cost less than the best; of equal ones those whose clusters are nearer below the level."""
        best = self._best
        if best is not None and not self._is_better(end, cost, best):
            return
        unmoved = np.array_equal(number_labels(begin), number_labels(end))
        self._best, self._is_final = Winner(end, method if unmoved else _SEARCH + method, cost), False

    def _is_better(self, labels: Labels, cost: float, best: Winner) -> bool:
        if cost < best.cost * (1 - LOWER):
            return True
        if cost > best.cost * (1 + LOWER) or np.array_equal(number_labels(labels), number_labels(best.labels)):
            return False
        found, before = (_cost(self._plain, these, self.k) for these in (labels, best.labels))
        return found < before * (1 - LOWER)


def _cost(D: Measured, labels: Labels, k: int) -> float:
    """Return H of labels; of many clusters only the pairs within them are read."""
    if k * D.n <= MOST_SUMS:
        return Grouping(D, labels, k).cost
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return float(sum(D.among(part).stored.sum() / len(part) for part in parts))


def _prepare_measured(D: Dissimilarities, level: float) -> Measured:
    """Return the whole matrix as the search reads it: in place, copied only where the kernel cannot read it."""
    array, swapped = as_stored(D)
    if array is None:
        assert D.array is not None
        array = np.require(D.array, D.dtype.newbyteorder("="), ["C", "A"])
    return Measured(array, swapped, D.scale, level)
