"""A local search over hard clusterings: moving single items, and joining two clusters while splitting another.

The cost of labels is that of pairwise clustering: H, the sum over clusters of all dissimilarities within, divided by
the cluster's size. Every step lowers it, so the search ends; where it ends depends on where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.monitor import Monitor

Labels = NDArray[np.int64]
Matrix = NDArray[np.float64]

_SWEEPS = 50
_EXCHANGES = 100
_TRIED_SPLITS = 3
_WORTH = 0.25  # of H
_GAIN = 1e-10  # of H: less is rounding


def cost_of(D: Matrix, labels: Labels) -> float:
    """Return H of labels: for each cluster the sum of dissimilarities within, divided by its size."""
    sums, sizes = _sums(D, labels, int(labels.max()) + 1)
    return float((np.diag(sums) / np.maximum(sizes, 1)).sum())


def improved(D: Matrix, labels: Labels, k: int, monitor: Monitor) -> Labels:
    """Lower the cost of labels in k clusters until no step of the search does.

    Parameters
    ----------
    D : ndarray (n, n)
        Symmetric, 0 on the diagonal, without missing pairs.
    labels : ndarray (n,)
        From 0 to k - 1; every cluster holds an item.
    k : int
    monitor : Monitor
        Can cancel the search.
    """
    labels = moved(D, labels, k, monitor)
    for _ in range(_EXCHANGES):
        least = cost_of(D, labels)
        for candidate in _exchanges(D, labels, k, monitor):
            if cost_of(D, candidate) < least - _GAIN * abs(least):
                labels = candidate
                break
        else:
            break
    return labels


def settled(to_clusters: Matrix, labels: Labels, rounding: float) -> bool:
    """Return whether there is no step that the search would try.

    Parameters
    ----------
    to_clusters : ndarray (n, k)
        The sums of dissimilarities from each item to the items of each cluster.
    labels : ndarray (n,)
    rounding : float
        How exact the sums are, as a share of the cost.
    """
    k = to_clusters.shape[1]
    members = _members(labels, k)
    sums, sizes = members.T @ to_clusters, members.sum(0)
    within, joins = _joins(sums, sizes)
    least = float(within.sum())
    if len(_that_gain(labels, to_clusters, sizes, within * sizes, -rounding * least)):
        return False
    worth = (_WORTH + rounding) * least
    both = [_join_beside(joins, one)[0] - within[one] for one in range(k)]
    return bool(min(both) > worth and joins.min() > worth)


def filled(D: Matrix, labels: Labels, k: int, monitor: Monitor) -> Labels:
    """Return labels of k clusters none of which is empty: the costliest ones are split until there are enough."""
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    for new in range(int(labels.max()) + 1, k):
        costs = [cost_of(D[np.ix_(labels == one, labels == one)], labels[labels == one] * 0) for one in range(new)]
        sizes = np.bincount(labels)
        one = int(np.where(sizes > 1, costs, -1.0).argmax())
        labels[_split(D, np.flatnonzero(labels == one), monitor)[0]] = new
    return labels


def moved(D: Matrix, labels: Labels, k: int, monitor: Monitor) -> Labels:
    """Move single items to other clusters as long as that lowers the cost; no cluster becomes empty."""
    labels = labels.copy()
    for _ in range(_SWEEPS):
        monitor.check()
        members = _members(labels, k)
        to_clusters = D @ members
        sizes, within = members.sum(0), np.einsum("nk,nk->k", to_clusters, members)
        if not _sweep(D, labels, to_clusters, sizes, within):
            break
    return labels


def _sweep(D: Matrix, labels: Labels, to_clusters: Matrix, sizes: Matrix, within: Matrix) -> bool:
    """Move each item that gains by it, once; return whether any has."""
    least = _GAIN * max(float((within / sizes).sum()), np.finfo(float).tiny)
    changed = False
    for item in _that_gain(labels, to_clusters, sizes, within, least):
        gains = _gains(labels[item], to_clusters[item], sizes, within)
        best = int(gains.argmax())
        if gains[best] <= least:
            continue
        old, changed = labels[item], True
        within[old] -= 2 * to_clusters[item, old]
        within[best] += 2 * to_clusters[item, best]
        sizes[old] -= 1
        sizes[best] += 1
        to_clusters[:, old] -= D[item]
        to_clusters[:, best] += D[item]
        labels[item] = best
    return changed


def _that_gain(labels: Labels, to_clusters: Matrix, sizes: Matrix, within: Matrix, least: float) -> NDArray[np.intp]:
    """Return the items that would gain by a move as things stand: all at once, because mostly there are none."""
    before = within / sizes
    joined = before - (within + 2 * to_clusters) / (sizes + 1)
    items = np.arange(len(labels))
    own = to_clusters[items, labels]
    left = before[labels] - (within[labels] - 2 * own) / np.maximum(sizes[labels] - 1, 1)
    joined[items, labels] = -np.inf
    return np.flatnonzero((joined.max(1) + left > least) & (sizes[labels] > 1))


def _gains(old: int, to_clusters: Matrix, sizes: Matrix, within: Matrix) -> Matrix:
    """Return by how much the cost falls when an item moves from its cluster to each other one."""
    if sizes[old] <= 1:
        return np.full(len(sizes), -np.inf)
    left = within[old] / sizes[old] - (within[old] - 2 * to_clusters[old]) / (sizes[old] - 1)
    gains = left + within / sizes - (within + 2 * to_clusters) / (sizes + 1)
    gains[old] = -np.inf
    return np.asarray(gains)


def _exchanges(D: Matrix, labels: Labels, k: int, monitor: Monitor) -> Iterator[Labels]:
    """Yield labels in which two clusters are joined and another is split, or two are divided anew.

    Only what costs little more before items move is tried: moves mend borders, not whole clusters.
    """
    within, joins = _joins(*_sums(D, labels, k))
    worth = _WORTH * float(within.sum())
    tried = 0
    for one in np.argsort(within)[::-1]:
        join, a, b = _join_beside(joins, one)
        if tried == _TRIED_SPLITS or join - within[one] > worth:
            continue  # a split gains at most all that its cluster costs
        part, cost = _split(D, np.flatnonzero(labels == one), monitor)
        if len(part) and join + cost - within[one] <= worth:
            tried += 1
            candidate = np.where(labels == b, a, labels)
            candidate[part] = b
            yield moved(D, candidate, k, monitor)
    for a in range(k) if k > 1 else ():
        b = int(joins[a].argmin())
        if joins[a, b] <= worth:
            both = np.flatnonzero((labels == a) | (labels == b))
            candidate = np.where(labels == b, a, labels)
            candidate[_split(D, both, monitor)[0]] = b
            yield moved(D, candidate, k, monitor)


def _joins(sums: Matrix, sizes: Matrix) -> tuple[Matrix, Matrix]:
    """Return the cost of each cluster (k,), and what joining each two of them adds (k, k), infinite on the diagonal."""
    totals = np.diag(sums)
    within = totals / sizes
    joins = (totals[:, None] + totals + 2 * sums) / (sizes[:, None] + sizes) - within[:, None] - within
    np.fill_diagonal(joins, np.inf)
    return within, joins


def _join_beside(joins: Matrix, one: int) -> tuple[float, int, int]:
    """Return what joining two clusters other than one adds at least, and these two."""
    others = joins.copy()
    others[one], others[:, one] = np.inf, np.inf
    a, b = divmod(int(others.argmin()), len(joins))
    return float(others[a, b]), a, b


def _split(D: Matrix, items: NDArray[np.intp], monitor: Monitor) -> tuple[NDArray[np.intp], float]:
    """Divide some items into two; return those of the second part, none of a single item, and the cost of both."""
    inner = D[np.ix_(items, items)]
    half = halved(inner, monitor)
    return items[half == 1], cost_of(inner, half)


def halved(D: Matrix, monitor: Monitor) -> Labels:
    """Return labels 0 and 1 of a good division of items into two; all 0 where there are fewer than two."""
    n = len(D)
    if n < 2:
        return np.zeros(n, np.int64)
    first = int(D.sum(1).argmax())
    second = int(np.where(np.arange(n) == first, -1.0, D[first]).argmax())
    apart = (D[first] > D[second]).astype(np.int64)
    apart[first], apart[second] = 0, 1
    alone = (np.arange(n) == first).astype(np.int64)
    found = [moved(D, start, 2, monitor) for start in (apart, alone)]
    return min(found, key=lambda labels: cost_of(D, labels))


def _members(labels: Labels, k: int) -> Matrix:
    members = np.zeros((len(labels), k))
    members[np.arange(len(labels)), labels] = 1.0
    return members


def _sums(D: Matrix, labels: Labels, k: int) -> tuple[Matrix, Matrix]:
    """Return the sums of dissimilarities between the items of two clusters (k, k), and the sizes (k,)."""
    members = _members(labels, k)
    return members.T @ (D @ members), members.sum(0)
