"""Compares two clusterings of the same items, by best matches and by pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Found clusters against those of a reference; only items that the reference has count.

    Attributes
    ----------
    n_reference, n_found : int
        Clusters of the reference, and found ones that hold any of its items.
    reference_sizes, reference_fractions : ndarray, shape (n_reference,)
        Items of each reference cluster, and the share of them in the found cluster that has most of them.
    found_sizes, found_fractions : ndarray, shape (n_found,)
        The converse.
    precision, recall : float
        Pairs that stand together in both: share of the pairs found, share of the pairs of the reference. 1 for none.
    """

    n_reference: int
    n_found: int
    reference_sizes: Ints
    reference_fractions: Floats
    found_sizes: Ints
    found_fractions: Floats
    precision: float
    recall: float

    def summary(self) -> dict[str, float]:
        """Return numbers of clusters, mean fractions weighted by items, precision and recall by pairs."""
        return {
            "reference_clusters": self.n_reference,
            "found_clusters": self.n_found,
            "reference_in_best": _mean(self.reference_fractions, self.reference_sizes),
            "found_in_best": _mean(self.found_fractions, self.found_sizes),
            "precision": self.precision,
            "recall": self.recall,
        }


def compare(found: Ints, reference: Ints) -> Comparison:
    """Compare two clusterings of the same items.

    Parameters
    ----------
    found : ndarray of int64, shape (n,)
        -1 for noise, which is not a cluster: its items are in no best match, and in no pair.
    reference : ndarray of int64, shape (n,)
        Numbers below 0 for items that the reference does not have.

    Returns
    -------
    Comparison
    """
    known = reference >= 0
    groups, by_group = np.unique(reference[known], return_inverse=True)
    labels, by_label = np.unique(found[known], return_inverse=True)
    cells, counts = np.unique(by_group * max(len(labels), 1) + by_label, return_counts=True)
    rows, columns = np.divmod(cells, max(len(labels), 1))
    inside = labels[columns] >= 0
    sizes = np.bincount(by_group, minlength=len(groups))
    found_sizes = np.bincount(by_label, minlength=len(labels))
    best, found_best = np.zeros(len(groups), dtype=np.int64), np.zeros(len(labels), dtype=np.int64)
    np.maximum.at(best, rows[inside], counts[inside])
    np.maximum.at(found_best, columns, counts)
    clusters = labels >= 0
    both, ours, theirs = (_pairs(values) for values in (counts[inside], found_sizes[clusters], sizes))
    return Comparison(
        n_reference=len(groups),
        n_found=int(clusters.sum()),
        reference_sizes=sizes,
        reference_fractions=best / np.maximum(sizes, 1),
        found_sizes=found_sizes[clusters],
        found_fractions=found_best[clusters] / found_sizes[clusters],
        precision=both / ours if ours else 1.0,
        recall=both / theirs if theirs else 1.0,
    )


def _pairs(sizes: Ints) -> int:
    return int((sizes * (sizes - 1) // 2).sum())


def _mean(values: Floats, weights: Ints) -> float:
    return float(np.average(values, weights=weights)) if len(values) else float("nan")
