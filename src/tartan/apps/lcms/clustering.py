"""Clusters the LC-MS peaks of one charge, so that one cluster is one peptide: afresh, or from earlier results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics import DAVS, Communicator, Monitor
from tartan.apps.lcms.files import Earlier, Peaks
from tartan.base.checks import check_one_of
from tartan.errors import ConfigError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# From the paper's run on charge-2 peaks, except the lowest temperature: below 1 clusters of the assumed width split.
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
    peaks: Peaks,
    *,
    mode: str = "fresh",
    earlier: Sequence[Earlier] = (),
    monitor: Monitor | None = None,
    communicator: Communicator | None = None,
    **options: Any,
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
        Written results that hold the same peaks, told apart by their index; peaks they do not have count as noise.
    monitor : Monitor, optional
        Receives progress and can cancel.
    communicator : Communicator, optional
        Ranks that share the work.
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
    call = {"monitor": monitor, "communicator": communicator}
    if mode == "fresh":
        return _fit(peaks.points, options, **call)
    if mode in ("report", "sponge"):
        known = LcmsClusters(labels_of(peaks, earlier[0]), earlier[0].centers)
        return known if mode == "report" else _from_sponge(peaks, known, options, **call)
    centers = np.concatenate([one.centers for one in earlier])
    if not len(centers):
        raise ConfigError(f"mode {mode!r}: the earlier result has no centres to begin with; use mode 'fresh'")
    most = {"max_clusters": min(len(centers), len(peaks.points))}
    return _fit(peaks.points, most | options, init=centers, **call)


def _check_mode(mode: str, earlier: Sequence[Earlier]) -> None:
    check_one_of("mode", mode, MODES)
    wanted = {"fresh": "no earlier result", "join": "one or more earlier results"}.get(mode, "one earlier result")
    fits = {"fresh": not earlier, "join": len(earlier) > 0}.get(mode, len(earlier) == 1)
    if not fits:
        raise ConfigError(f"mode {mode!r} takes {wanted}; there are {len(earlier)}", context={"option": "mode"})


def _fit(points: Floats, options: dict[str, Any], **call: Any) -> LcmsClusters:
    fitted = DAVS(**SETTINGS | options).fit(points, **call)
    return LcmsClusters(fitted.labels_, fitted.cluster_centers_, fitted)


def labels_of(peaks: Peaks, earlier: Earlier) -> Ints:
    """Return the earlier label of each peak, found by its index; -1 where it had none.

    Raises
    ------
    ConfigError
        If two peaks have the same index, here or there.
    """
    for what, index in (("peaks", peaks.index), ("the earlier result", earlier.index)):
        found, counts = np.unique(index, return_counts=True)
        if (counts > 1).any():
            number = found[np.argmax(counts)]
            raise ConfigError(f"index {number} stands {counts.max()} times in {what}; an index stands for one peak")
    order = np.argsort(earlier.index, kind="stable")
    places = np.searchsorted(earlier.index[order], peaks.index)
    known = np.isin(peaks.index, earlier.index)
    labels = np.full(len(peaks.index), -1)
    labels[known] = earlier.labels[order][places[known]]
    return labels


def _from_sponge(peaks: Peaks, known: LcmsClusters, options: dict[str, Any], **call: Any) -> LcmsClusters:
    noise = np.flatnonzero(known.labels < 0)
    if not len(noise):
        return known
    found = _fit(peaks.points[noise], options, **call)
    labels = known.labels.copy()
    labels[noise] = np.where(found.labels < 0, -1, found.labels + len(known.centers))
    return LcmsClusters(labels, np.concatenate([known.centers, found.centers]), found.fitted)
