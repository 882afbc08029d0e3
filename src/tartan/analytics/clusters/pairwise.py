"""Pairwise clustering into a given number of clusters by the cheapest way that is enough.

Linkages and a local search come first. Where all linkages but the single one lead to the same clusters, these are the
result: nothing could confuse them. Elsewhere annealing takes part as well, unless there are so many clusters that it
would take many times as long as all else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.contest import Contest
from tartan.analytics.clusters.dapwc.dapwc import DAPWC
from tartan.analytics.clusters.dapwc.prepared import Prepared
from tartan.analytics.monitor import Monitor
from tartan.base.checks import generator

# _ANNEALED_CLUSTERS and _ANNEALED_PRODUCT, by judgement: annealing costs a product with every cluster at each step, a
# search from a linkage does not. `tartan bench groups`: up to 500 groups are right.
_ANNEALED_CLUSTERS = 40
_ANNEALED_PRODUCT = 100_000_000  # multiplications of one pass: of as few, annealing takes a second or two
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
    if contest.is_agreed:
        return Grouped(contest.winner.labels, contest.winner.method, notes)
    if contest.k > _ANNEALED_CLUSTERS and case.D.n**2 * contest.k > _ANNEALED_PRODUCT:
        return Grouped(contest.winner.labels, contest.winner.method, (*notes, _LEFT_OUT))
    model: Any = DAPWC(contest.k, random_state=seed).fit_prepared(case, contest, monitor)
    return Grouped(model.labels_, model.method_, notes)
