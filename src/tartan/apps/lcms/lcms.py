"""LC-MS peaks: cluster the peaks of one charge, so that one cluster is one peptide; compare with other clusterings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.davs.davs import DAVS
from tartan.apps.lcms.files import Earlier, Peaks, read_clusters, read_peaks, write_clusters, write_table
from tartan.errors import ConfigError

__all__ = [
    "MODES",
    "SETTINGS",
    "Comparison",
    "Earlier",
    "LcmsClusters",
    "Peaks",
    "cluster_peaks",
    "compare",
    "labels_of",
    "read_clusters",
    "read_peaks",
    "write_clusters",
    "write_table",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Of the paper's run on charge-2 peaks, but for the lowest temperature: below 1 clusters of the assumed width split.
SETTINGS: dict[str, Any] = {
    "sigma": (5.98e-6, 2.35),
    "scaling": "annealed",
    "initial_sigma": 5.98e-4,
    "final_sigma_temperature": 12.0,
    "min_temperature": 2.0,
    "sponge": "late",
    "sponge_factor": 3.0,
    "sponge_factor_start": 12.0,
    "sponge_temperatures": (9.0, 3.0),
    "sponge_width": 10.0,
    "sponge_prior": 0.1,
    "centers_per_point": (2, 17),
}

# The original's LCMSmode 1 to 5.
MODES = ("fresh", "sponge", "join", "factor", "report")


@dataclass(frozen=True)
class LcmsClusters:
    """Clusters of peaks.

    Attributes
    ----------
    labels : ndarray of int64, shape (n,)
        Row in ``centers`` of each peak; -1 for noise.
    centers : ndarray, shape (n_clusters, 2)
        m/z and retention time.
    fitted : DAVS or None
        What was fitted last, with its history; None in mode "report".
    """

    labels: Ints
    centers: Floats
    fitted: DAVS | None = None

    @property
    def sizes(self) -> Ints:
        """Peaks of each cluster."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.centers))

    def occupation(self) -> Ints:
        """Return how many clusters have 0, 1, 2, ... peaks."""
        return np.bincount(self.sizes)

    def widths(self, points: Floats) -> Floats:
        """Return the standard deviation of m/z, as a fraction of it, and of retention time in each cluster.

        Parameters
        ----------
        points : ndarray, shape (n, 2)

        Returns
        -------
        ndarray, shape (n_clusters, 2)
            About the mean of the cluster; NaN with fewer than two peaks.
        """
        inside = self.labels >= 0
        labels, sizes = self.labels[inside], self.sizes
        out = np.empty(self.centers.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            for axis in range(2):
                values = points[inside, axis]
                mean = np.bincount(labels, values, len(sizes)) / sizes
                squares = np.bincount(labels, np.square(values - mean[labels]), len(sizes))
                out[:, axis] = np.sqrt(squares / (sizes - 1)) / (mean if axis == 0 else 1)
        out[sizes < 2] = np.nan
        return out


def cluster_peaks(
    peaks: Peaks, *, mode: str = "fresh", earlier: Sequence[Earlier] = (), **options: Any
) -> LcmsClusters:
    """Cluster peaks of one charge, afresh or from earlier results.

    Parameters
    ----------
    peaks : Peaks
    mode : {"fresh", "sponge", "join", "factor", "report"}
        "fresh": anneal all peaks. "sponge": anneal the noise of the earlier result alone, and add what is found to its
        clusters. "join": put the centres of the earlier results together and converge at ``restart_temperature``;
        centres that are too close become one. "factor": the same from one result, as a rule with another
        ``sponge_factor``. "report": take the earlier clusters as they are.
    earlier : sequence of Earlier
        Written results that hold the same peaks, told by their index; peaks they do not have count as noise.
    **options
        Parameters of `DAVS`, instead of those in ``SETTINGS``.

    Returns
    -------
    LcmsClusters

    Raises
    ------
    ConfigError
        If the mode is unknown, or has not the earlier results that it needs, or these have no centres.
    """
    _check_mode(mode, earlier)
    if mode == "fresh":
        return _fresh(peaks.points, options)
    if mode in ("report", "sponge"):
        known = LcmsClusters(labels_of(peaks, earlier[0]), earlier[0].centers)
        return known if mode == "report" else _from_sponge(peaks, known, options)
    centers = np.concatenate([one.centers for one in earlier])
    if not len(centers):
        raise ConfigError(f"mode {mode!r}: the earlier result has no centres to begin with; use mode 'fresh'")
    fitted = DAVS(**SETTINGS | {"max_clusters": min(len(centers), len(peaks.points))} | options)
    fitted.fit(peaks.points, init=centers)
    return LcmsClusters(fitted.labels_, fitted.cluster_centers_, fitted)


def _check_mode(mode: str, earlier: Sequence[Earlier]) -> None:
    if mode not in MODES:
        raise ConfigError(f"mode: {mode!r} is unknown; choose from {', '.join(MODES)}", context={"option": "mode"})
    wanted = {"fresh": "no earlier result", "join": "one or more earlier results"}.get(mode, "one earlier result")
    fits = {"fresh": not earlier, "join": len(earlier) > 0}.get(mode, len(earlier) == 1)
    if not fits:
        raise ConfigError(f"mode {mode!r} takes {wanted}; there are {len(earlier)}", context={"option": "mode"})


def _fresh(points: Floats, options: dict[str, Any]) -> LcmsClusters:
    fitted = DAVS(**SETTINGS | options).fit(points)
    return LcmsClusters(fitted.labels_, fitted.cluster_centers_, fitted)


def labels_of(peaks: Peaks, earlier: Earlier) -> Ints:
    """Return the earlier label of each peak, told by its index; -1 where it had none.

    Raises
    ------
    ConfigError
        If two peaks have the same index, here or there.
    """
    for what, index in (("peaks", peaks.index), ("the earlier result", earlier.index)):
        found, counts = np.unique(index, return_counts=True)
        if (counts > 1).any():
            number = found[np.argmax(counts)]
            raise ConfigError(f"index {number} stands {counts.max()} times in {what}; peaks are told by their index")
    order = np.argsort(earlier.index, kind="stable")
    places = np.searchsorted(earlier.index[order], peaks.index)
    known = np.isin(peaks.index, earlier.index)
    labels = np.full(len(peaks.index), -1)
    labels[known] = earlier.labels[order][places[known]]
    return labels


def _from_sponge(peaks: Peaks, known: LcmsClusters, options: dict[str, Any]) -> LcmsClusters:
    noise = np.flatnonzero(known.labels < 0)
    if not len(noise):
        return known
    found = _fresh(peaks.points[noise], options)
    labels = known.labels.copy()
    labels[noise] = np.where(found.labels < 0, -1, found.labels + len(known.centers))
    return LcmsClusters(labels, np.concatenate([known.centers, found.centers]), found.fitted)


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
        -1 for noise, which is no cluster: its items are in no best match, and in no pair.
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
