"""Pairwise clustering into a given number of clusters by the cheapest way that is enough.

Linkages and a local search come first. Where all linkages but the single one lead to the same clusters, these are the
result: nothing could confuse them. Elsewhere annealing takes part as well. It costs a product with every cluster at
each step: where that is many times as long as all else, some of the items are annealed, and the others join the
clusters of these; where these would be too few for the clusters, it is left out. Clusters that stand apart win whatever
their H is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.apart import label_apart
from tartan.analytics.clusters.dapwc.contest import Contest
from tartan.analytics.clusters.dapwc.dapwc import DAPWC
from tartan.analytics.clusters.dapwc.prepared import Prepared
from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.base.checks import generator

# By judgement: multiplications of one pass, of which annealing makes some 300; of as few it takes a second or two.
# `tartan bench groups parts=spread` holds the time.
ANNEALED_PRODUCT = 40_000_000
# By judgement: the local search follows, so that how the last items are decided hardly matters.
_FINAL_COOLING = 0.9
# By judgement: clusters of half the size are seen by seven items then. `tartan bench groups`: up to 500 groups are
# right without.
_PART_OF_A_CLUSTER = 15  # items of the part, on average
# By judgement: rows of 100,000 items that are read at a time take 200 MB. No benchmark.
_ROWS = 256
_STAND_APART = "these clusters stand apart: no distance within one is above half of the smallest between two"
_LEFT_OUT = "annealing took no part: it takes long for so many clusters, and DAPWC does it"


class Grouped(NamedTuple):
    """Labels (n,), what found them, and what to know of them, a sentence each."""

    labels: NDArray[np.int64]
    found_by: str
    notes: tuple[str, ...]


def pairwise_clusters(case: Prepared, n_clusters: int, seed: int, monitor: Monitor) -> Grouped:
    """Return labels of the lowest H among those that linkages, a local search and annealing find.

    Parameters
    ----------
    case : Prepared
        Complete, with a distance above 0.
    n_clusters : int
        From 2 to the number of items; where fewer items differ there are as many as these.
    seed : int
    monitor : Monitor
    """
    level = case.level()
    contest = Contest(case.D, level.value, n_clusters, case.hierarchies, monitor)
    contest.enter_all(generator(seed).standard_normal(case.D.n))
    notes: tuple[str, ...] = (level.note(case.unit),) if level.n_clipped else ()
    notes += contest.notes
    apart = label_apart(case.D, case.hierarchies.steps("single"), contest.k, monitor)
    if apart is not None and not np.array_equal(number_labels(apart), number_labels(contest.winner.labels)):
        return Grouped(apart, "single linkage", (*notes, _STAND_APART))
    if contest.is_agreed:
        return Grouped(contest.winner.labels, contest.winner.method, notes)
    if case.D.n**2 * contest.k > ANNEALED_PRODUCT:
        notes += (_enter_part(case, contest, level.value, seed, monitor),)
        return Grouped(contest.winner.labels, contest.winner.method, notes)
    model: Any = DAPWC(contest.k, final_cooling=_FINAL_COOLING, random_state=seed).fit_prepared(case, contest, monitor)
    return Grouped(model.labels_, model.method_, notes)


def _enter_part(case: Prepared, contest: Contest, level: float, seed: int, monitor: Monitor) -> str:
    """Let annealing of some of the items take part, where these are enough; return what to know of that."""
    n, k = case.D.n, contest.k
    n_part = math.isqrt(ANNEALED_PRODUCT // k)
    if n_part < _PART_OF_A_CLUSTER * k:
        return _LEFT_OUT
    items = np.sort(np.random.default_rng(seed).choice(n, n_part, replace=False))
    part = case.D.chosen(items).materialized(monitor=monitor)
    if part.check(monitor=monitor).largest > 0:
        found = (
            DAPWC(k, final_cooling=_FINAL_COOLING, random_state=seed, level=level).fit(part, monitor=monitor).labels_
        )
        contest.enter(f"annealing of {n_part:,} items", extend_labels(case.D, level, items, found, monitor))
    return f"annealing took part by {n_part:,} of the {n:,} items, for its time; DAPWC anneals all"


def extend_labels(
    D: Dissimilarities, level: float, items: NDArray[np.int64], labels: NDArray[np.int64], monitor: Monitor
) -> NDArray[np.int64]:
    """Return labels (n,) of all items by those of some: of the cluster that they are nearest to, in the cost of H."""
    members = np.eye(int(labels.max()) + 1)[labels]
    shares, means = members / members.sum(0), np.empty((D.n, members.shape[1]))
    for start in range(0, D.n, _ROWS):
        monitor.check()
        rows = slice(start, min(D.n, start + _ROWS))
        values = np.maximum(D.values(rows, slice(0, D.n))[:, items] - level, 0.0)
        values[np.arange(rows.start, rows.stop)[:, None] == items] = 0.0
        means[rows] = values @ shares
    own = (shares * means[items]).sum(0)
    found: NDArray[np.int64] = (means - own / 2).argmin(1)
    found[items] = labels
    return found
