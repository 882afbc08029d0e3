"""Clusters that stand apart: no distance within one is above half of the smallest between two.

Each has three items or more, since one or two far from all others are as likely outliers, and every item is in one.
These are then the clusters of single linkage, and of complete, average and weighted linkage as well. Of random points
in one group, in one dimension or more, 13 in 1,000 sets of six have such clusters, and one in 1,000 of ten or more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.cut import cut
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor

# By judgement: two items far from all others are as likely outliers.
_LEAST_ITEMS = 3
# By judgement: rows of 100,000 items that are read at a time take 200 MB. No benchmark.
_ROWS = 256


def label_apart(
    D: Dissimilarities, steps: NDArray[np.float64], n_clusters: int, monitor: Monitor, *, share: float = 0.5
) -> NDArray[np.int64] | None:
    """Return labels (n,) of so many clusters that stand apart, None where these do not.

    Parameters
    ----------
    D : Dissimilarities
        Without missing pairs.
    steps : ndarray (n - 1, 4)
        Its single linkage.
    n_clusters : int
    monitor : Monitor
    share : float
        Of the smallest distance between two, which no distance within one is above.
    """
    n = D.n
    if not 1 < n_clusters <= n // _LEAST_ITEMS:
        return None
    joined, most = steps[n - n_clusters - 1, 2], share * steps[n - n_clusters, 2]
    if joined > most or not most:  # equal items are one cluster
        return None
    labels = cut(steps, n, n_clusters)
    if np.bincount(labels).min() < _LEAST_ITEMS:
        return None
    for start in range(0, n, _ROWS):
        monitor.check()
        rows = slice(start, min(n, start + _ROWS))
        if (D.values(rows, slice(0, n))[labels[rows, None] == labels] > most).any():
            return None
    return labels


def find_numbers_apart(
    D: Dissimilarities, steps: NDArray[np.float64], monitor: Monitor, *, are_squares: bool = False
) -> list[int]:
    """Return the numbers of clusters that stand apart, ascending: several of groups of groups, none mostly.

    Of squares of distances a quarter of the smallest counts, which is half of a distance.
    """
    n = D.n
    heights = steps[:, 2]
    numbers = np.arange(2, n // _LEAST_ITEMS + 1)
    share = 0.25 if are_squares else 0.5
    clear = numbers[(heights[n - numbers - 1] <= share * heights[n - numbers]) & (heights[n - numbers] > 0)]
    return [k for k in clear.tolist() if label_apart(D, steps, k, monitor, share=share) is not None]
