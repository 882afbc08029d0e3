"""Compare found clusters with known groups: which items and which pairs are right."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError


@dataclass(frozen=True)
class Agreement:
    """Agreement of clusters with the truth.

    Attributes
    ----------
    clusters, groups : tuple of str
        Names of the found clusters (rows) and of the known groups (columns).
    counts : ndarray of int64, shape (n_clusters, n_groups)
        Items of each cluster by known group.
    matched : tuple of int
        For each cluster the group that it stands for (one to one), or -1.
    """

    clusters: tuple[str, ...]
    groups: tuple[str, ...]
    counts: NDArray[np.int64]
    matched: tuple[int, ...]

    @property
    def n_items(self) -> int:
        return int(self.counts.sum())

    @property
    def n_right(self) -> int:
        """Items whose cluster stands for their group."""
        return sum(int(self.counts[row, column]) for row, column in enumerate(self.matched) if column >= 0)

    @property
    def n_same(self) -> int:
        """Pairs whose items belong together by the truth."""
        return _pairs(self.counts.sum(axis=0))

    @property
    def n_same_found(self) -> int:
        """Pairs that belong together and stand in one cluster."""
        return _pairs(self.counts.ravel())

    @property
    def n_different(self) -> int:
        """Pairs whose items do not belong together by the truth."""
        return self.n_items * (self.n_items - 1) // 2 - self.n_same

    @property
    def n_different_found(self) -> int:
        """Pairs that do not belong together and stand in two clusters."""
        return self.n_different - (_pairs(self.counts.sum(axis=1)) - self.n_same_found)

    @property
    def perfect(self) -> bool:
        return self.n_same_found == self.n_same and self.n_different_found == self.n_different


def compare_groups(found: Sequence[Hashable], truth: Sequence[Hashable]) -> Agreement:
    """Compare found clusters with known groups.

    Parameters
    ----------
    found, truth : sequence, length n
        Cluster and known group of each item; any labels, compared as text.

    Returns
    -------
    Agreement
        Clusters in order of first appearance, groups sorted; matched one to one so that most items are right
        (Hungarian method, scipy.optimize.linear_sum_assignment).

    Raises
    ------
    ConfigError
        If the two differ in length.
    """
    from scipy.optimize import linear_sum_assignment

    if len(found) != len(truth):
        raise ConfigError(f"{len(found)} clusters and {len(truth)} true groups: each item needs one of both")
    rows, columns = _number(found), _number(sorted({str(group) for group in truth}))
    counts = np.zeros((len(rows), len(columns)), dtype=np.int64)
    for cluster, group in zip(found, truth, strict=True):
        counts[rows[str(cluster)], columns[str(group)]] += 1
    best = dict(zip(*linear_sum_assignment(-counts), strict=True))
    matched = tuple(int(best.get(row, -1)) for row in range(len(rows)))
    return Agreement(tuple(rows), tuple(columns), counts, matched)


def _number(labels: Sequence[Hashable]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(str(label) for label in labels))}


def _pairs(sizes: NDArray[np.int64]) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
