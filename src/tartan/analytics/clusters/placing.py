"""Items left alone, placed in large groups by what the run itself shows of items that belong elsewhere.

What unlike items may have in common is declared for all runs (``GroupEvidence``), so that it is the most that was ever
measured. Where a run has large groups, their own items show it: T of an item of one group with the mean of another one
(``joins.py``) is normal around a mean of the two groups. The largest such mean, and the spread around them, as upper
95 % limits, say how far an item that belongs to none gets; one that gets farther is of the group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.joins import Floats, read_values
from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.base.group_evidence import GroupEvidence

# By judgement: the mean of fewer items is hardly clearer than each.
LARGE = 5
# By judgement: from so many comparisons on the spread is known within a quarter (1.64 / sqrt(2 n)).
ENOUGH = 20
# By contract: 95 %, one-sided.
SIGMAS = 1.645
# By arithmetic: where all means are equal, the largest of five measured ones is above them with 97 %.
MANY_PAIRS = 5


class Placed(NamedTuple):
    """Labels (n,) of the items, how many were placed, how many tests that took at most, and the T that they reach."""

    labels: NDArray[np.int64]
    n_placed: int
    n_tests: int
    level: float


def place_alone(
    scores: Dissimilarities,
    correlations: Dissimilarities,
    labels: NDArray[np.int64],
    rule: GroupEvidence,
    monitor: Monitor,
) -> Placed:
    """Put items that are alone into groups of at least five, until none fits; groups grow as they are.

    Parameters
    ----------
    scores, correlations : Dissimilarities
        As for ``sum_groups``.
    labels : int array (n,)
        Group of each item; -1 for an item in none.
    rule : GroupEvidence
        Its ``common``, ``scatter`` and ``spread`` are not used.
    monitor : Monitor

    Notes
    -----
    Every round reads the matrix once, and places at least one item. Of a items that are alone and m large groups, at
    most m a (a + 1) / 2 tests are made, which share the chance of a false alarm. Nothing is placed where there is only
    one large group, or fewer than 20 comparisons of items with groups that they do not belong to.
    """
    from scipy.special import ndtri

    labels = labels.copy()
    large, alone = find_candidates(labels)
    n_tests = len(large) * len(alone) * (len(alone) + 1) // 2
    if len(large) < 2 or not n_tests:
        return Placed(labels, 0, 0, float("inf"))
    z = float(-ndtri(rule.false_alarm / n_tests))
    n_placed, level = 0, float("inf")
    while alone.size:
        found = find_common(scores, correlations, labels, large, rule, monitor)
        limits = _learn_limits(found, labels, large)
        if limits is None:
            break
        middle, spread = limits
        level = middle + z * spread
        best = found[alone].argmax(axis=1)
        fits = found[alone, best] >= level
        if not fits.any():
            break
        labels[alone[fits]] = large[best[fits]]
        n_placed += int(fits.sum())
        alone = alone[~fits]
    grouped = labels >= 0
    labels[grouped] = number_labels(labels[grouped])
    return Placed(labels, n_placed, n_tests, level)


def find_candidates(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the groups of at least five items, and the items that are alone."""
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    alone = np.flatnonzero((labels >= 0) & (sizes[np.maximum(labels, 0)] == 1))
    return np.flatnonzero(sizes >= LARGE), alone


def find_common(
    scores: Dissimilarities,
    correlations: Dissimilarities,
    labels: NDArray[np.int64],
    large: NDArray[np.int64],
    rule: GroupEvidence,
    monitor: Monitor,
) -> Floats:
    """Return T of each item with each of m large groups, itself left out: float64 (n, m)."""
    n = scores.n
    members = [np.flatnonzero(labels == group) for group in large]
    found, within = np.zeros((n, len(large))), np.array([float(len(some)) for some in members])
    height = scores.block_rows()
    for start in range(0, n, height):
        monitor.check()
        rows, everything = slice(start, min(n, start + height)), slice(0, n)
        given = scores.values(rows, everything)
        other = given if correlations is scores else correlations.values(rows, everything)
        here = np.arange(rows.start, rows.stop)
        t, r, _ = read_values(given, other, rule)
        t[here - start, here] = r[here - start, here] = 0
        for at, some in enumerate(members):
            found[rows, at] = t[:, some].sum(axis=1)
            inside = labels[here] == large[at]
            within[at] += r[np.ix_(inside, some)].sum()
    reached: Floats = found / np.sqrt(np.maximum(within, 1.0))
    return reached


def _learn_limits(found: Floats, labels: NDArray[np.int64], large: NDArray[np.int64]) -> tuple[float, float] | None:
    """Return the largest mean of T of items of one group with another one, and the spread around such means.

    Both are upper 95 % limits. None where too little is known.
    """
    rows = [found[labels == group] for group in large]
    parts = [one[:, at] for of, one in enumerate(rows) for at in range(len(large)) if at != of]
    counts = np.array([len(part) for part in parts])
    n = int(counts.sum())
    if n < ENOUGH:
        return None
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    spread = np.sqrt(squares / (n - len(parts)))
    means = np.array([part.mean() for part in parts])
    if len(parts) < MANY_PAIRS:
        means = means + SIGMAS * spread / np.sqrt(counts)
    return max(0.0, float(means.max())), max(1.0, float(spread) * (1 + SIGMAS / np.sqrt(2 * n)))
