"""Clusters joined further by what they have in common: the mean of each against items and clusters that are left.

Items are patterns, and a score is the correlation of two (or follows from it). The pattern of one item is mostly noise;
the mean of a group's is less so, and shows what the group has in common. The correlation of the means of two groups
G and H follows from the matrix alone, without the items:

    T = sum of t over G x H / sqrt(S_G S_H),   S_G = sum of correlations within G, the diagonal included,

where t is the correlation of two items in deviations of unlike ones. Of unlike groups T is normal. What unlike items
have in common (``GroupEvidence.common``) adds up as what alike ones have does, so that T has the mean c B and the
variance s^2 + (d B)^2, with B = sum of 1 / (standard deviation of a correlation) over G x H / sqrt(S_G S_H).

The pair of groups farthest above what that allows is joined, the sums are added, until no pair is above it. Pure: sums
in, labels out; ``sum_groups`` alone reads matrices, each row once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.base.group_evidence import GroupEvidence

Floats = NDArray[np.float64]
# By arithmetic: three sums of 8 bytes, and one more while they are made.
BYTES_A_PAIR = 32


@dataclass
class GroupSums:
    """Sums over the pairs of k groups.

    Attributes
    ----------
    deviations, correlations, roots : float64 array (k, k)
        Sums of t, of the correlations, and of t over correlation; of a group with itself 0.
    within : float64 array (k,)
        Sum of the correlations within each group, the diagonal included.
    sizes : float64 array (k,)
        Items.
    """

    deviations: Floats
    correlations: Floats
    roots: Floats
    within: Floats
    sizes: Floats

    def join(self, a: int, b: int) -> None:
        """Add group b to group a, in place; b is then without items and sums."""
        self.within[a] += self.within[b] + 2 * self.correlations[a, b]
        self.sizes[a] += self.sizes[b]
        self.within[b] = self.sizes[b] = 0
        for sums in (self.deviations, self.correlations, self.roots):
            sums[a] += sums[b]
            sums[a, a] = 0
            sums[:, a] = sums[a]
            sums[b] = 0
            sums[:, b] = 0


class Joins(NamedTuple):
    """What was joined: labels (n,) of the items, how many joins, how many tests they were found by, and the cut (T)."""

    labels: NDArray[np.int64]
    n_joins: int
    n_tests: int
    level: float


def join_alike(sums: GroupSums, labels: NDArray[np.int64], rule: GroupEvidence) -> Joins:
    """Join groups until no two have more in common than unlike ones would.

    Parameters
    ----------
    sums : GroupSums
        Of the groups; used up.
    labels : int array (n,)
        Group of each item, 0 to k - 1; -1 for an item in none.
    rule : GroupEvidence

    Notes
    -----
    k (k - 1) / 2 tests are made at first, and at most k - 2 after each of at most k - 1 joins: each has the share
    1 / (k (k - 1)) of the chance of a false alarm. Work grows with k^2 and the number of joins times k.
    """
    from scipy.special import ndtri

    k = len(sums.sizes)
    n_tests = max(1, k * (k - 1))
    level = float(-ndtri(rule.false_alarm / n_tests))
    best = np.zeros(k)
    other = np.zeros(k, np.int64)
    for at in range(k):
        _renew(sums, at, rule, level, best, other)
    group = np.arange(k)
    n_joins = 0
    while k and (first := int(best.argmax())) is not None and best[first] >= 1:
        a, b = sorted((first, int(other[first])))
        sums.join(a, b)
        group[group == b] = a
        n_joins += 1
        best[b] = 0
        found = _excess(sums, a, rule, level)
        stale = np.flatnonzero((other == a) | (other == b))
        closer = found > best
        best[closer], other[closer] = found[closer], a
        for at in {*stale.tolist(), a} - {b}:
            _renew(sums, at, rule, level, best, other)
        best[b] = 0
    joined = np.where(labels >= 0, group[labels], -1)
    kept = joined >= 0
    joined[kept] = number_labels(joined[kept])
    return Joins(joined, n_joins, n_tests, level)


def _renew(sums: GroupSums, at: int, rule: GroupEvidence, level: float, best: Floats, other: NDArray[np.int64]) -> None:
    """Find the group that a group has most in common with."""
    found = _excess(sums, at, rule, level)
    other[at] = int(found.argmax())
    best[at] = found[other[at]]


def _excess(sums: GroupSums, at: int, rule: GroupEvidence, level: float) -> Floats:
    """Return how many times as far as unlike groups get (at most) a group and each other one are (k,); 0 for itself."""
    root = np.sqrt(np.maximum(sums.within[at] * sums.within, 0.0))
    real = (root > 0) & (sums.sizes > 0)
    real[at] = False
    root = np.where(real, root, 1.0)
    reach = sums.roots[at] / root
    allowed = rule.common * reach + level * np.sqrt(rule.spread**2 + (rule.scatter * reach) ** 2)
    excess = np.where(real, sums.deviations[at] / root / allowed, 0.0)
    # What one group of this strength would have; nothing is known of single items.
    n = sums.sizes
    within = np.where(n > 1, np.maximum(sums.within - n, 0.0) / np.maximum(n * (n - 1), 1.0), 0.0)
    expected = n[at] * n * np.sqrt(within[at] * within)
    too_little = sums.correlations[at] < rule.share * expected
    return np.where(too_little, 0.0, excess)


def sum_groups(
    scores: Dissimilarities,
    correlations: Dissimilarities,
    labels: NDArray[np.int64],
    rule: GroupEvidence,
    monitor: Monitor,
) -> GroupSums:
    """Add up scores and correlations over pairs of groups.

    Parameters
    ----------
    scores, correlations : Dissimilarities
        Two outputs of the same n items, as they are stored; may be one object. Pairs without a value count nothing.
    labels : int array (n,)
        Group of each item, 0 to k - 1.
    rule : GroupEvidence
    monitor : Monitor
    """
    k = int(labels.max()) + 1
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    total = [np.zeros((k, k)) for _ in range(3)]
    height = scores.block_rows()
    for start in range(0, scores.n, height):
        monitor.check()
        rows, everything = slice(start, min(scores.n, start + height)), slice(0, scores.n)
        given = scores.values(rows, everything)
        found = given if correlations is scores else correlations.values(rows, everything)
        here = np.arange(rows.start, rows.stop)
        values = read_values(given, found, rule)
        for sums, of_pairs in zip(total, values, strict=True):
            of_pairs[here - start, here] = 0
            np.add.at(sums, labels[here], np.add.reduceat(of_pairs[:, order], starts, axis=1))
    sizes = np.bincount(labels, minlength=k).astype(np.float64)
    within = sizes + np.diag(total[1])
    for sums in total:
        np.fill_diagonal(sums, 0)
    return GroupSums(total[0], total[1], total[2], within, sizes)


def read_values(scores: Floats, correlations: Floats, rule: GroupEvidence) -> tuple[Any, Any, Any]:
    """Return deviations, correlations, and the one over the other, of some pairs; 0 where a pair has none."""
    there = np.isfinite(scores) & np.isfinite(correlations)
    s = np.where(there, scores, 0.0)
    r = np.where(there, correlations, 0.0)
    t = (np.sign(s) * np.sqrt(np.abs(s)) if rule.squared else s) / rule.deviation
    return t, r, np.divide(np.abs(t), np.abs(r), out=np.zeros_like(t), where=r != 0)
