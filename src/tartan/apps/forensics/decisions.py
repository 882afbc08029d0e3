"""Did one of these cameras take this photo: decisions at a stated rate of false alarms, from known comparisons.

Two tests are made of each photo and fingerprint: the PCE where both lie as they were stored, and the PCE at the best of
all places. Of photos of other cameras, t = sign(PCE) sqrt(PCE) of the first is normal. Ideal patterns have a mean of 0
and a spread of 1. Cameras of one model have a part of their patterns in common, which shifts t; the mean of the two
cameras that are most alike, and the spread around such means, are estimated from photos that are known to be of other
cameras. The best of N places is the largest of N values around 0. Pure: arrays in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = Sequence[float] | NDArray[np.floating]
#: Of one photo against all cameras together. By convention of the field, where PCE 60 is said to stand for less.
FALSE_ALARM = 1e-6
# By judgement: from so many on, the spread of other cameras is known within a quarter (1.64 / sqrt(2 n)).
_ENOUGH = 20
# By judgement: of fewer photos of a pair of cameras no mean is taken.
_FEWEST = 3
# By arithmetic: where all means are equal, the largest of five measured ones is above them with 97 %.
_MANY_PAIRS = 5
# Measured: 56 comparisons of natural photos with fingerprints of other cameras, four of them of two models, have 1.34;
# the upper 95 % limit of that.
_USUAL_SPREAD = 1.6
# By judgement: patterns are lost by recompression and editing in some photos, of which no experiment says how many.
_LOST = 0.02
# By judgement: photos that are asked for are worse than those of references, by up to a factor of 3 in t (one sigma).
_SPREAD_OF_SAME = math.log(3)
# By contract: 95 %, one-sided.
_SIGMAS = 1.645
# By contract: the same 95 %.
_DOUBT = 0.05


@dataclass(frozen=True)
class Calibration:
    """What comparisons with a known answer say of scores.

    Attributes
    ----------
    foreign, same : float array (n,), (m,)
        t of photos with fingerprints of other cameras, and with fingerprints of their own that they are no part of.
    middle : float
        Mean of t of photos of one other camera, of the two cameras that are most alike; at least 0.
    spread, spread_of_peaks : float
        Of t of other cameras around their means, at least 1; of the largest of all places.
    n_places : int
        Places that a peak may have; 1 where none was looked for.
    n_cameras : int
        With which each photo is compared.
    false_alarm : float
        The rate for which the cuts stand.
    """

    foreign: NDArray[np.float64]
    same: NDArray[np.float64]
    middle: float
    spread: float
    spread_of_peaks: float
    n_places: int
    n_cameras: int
    false_alarm: float

    @property
    def cut(self) -> float:
        """PCE from which a photo is taken for one of a camera, as it lies."""
        return (self.middle + self.spread * _upper_normal(self._share)) ** 2

    @property
    def cut_of_peaks(self) -> float:
        """PCE from which it is, at the best place; infinite where none was looked for."""
        if self.n_places == 1:
            return math.inf
        return max(self.cut, (self.spread_of_peaks * _upper_normal(self._share / self.n_places)) ** 2)

    @property
    def _share(self) -> float:
        """What of the rate each test of one camera has."""
        return self.false_alarm / self.n_cameras / (1 if self.n_places == 1 else 2)

    @property
    def n_foreign_above(self) -> int:
        """Photos of other cameras above the cut."""
        return int((self.foreign >= math.sqrt(self.cut)).sum())

    @property
    def upper_limit(self) -> float:
        """The rate of false alarms of one comparison that its known ones exclude, with 95 % confidence."""
        return exact_limit(self.n_foreign_above, len(self.foreign))

    @property
    def n_same_below(self) -> int:
        """Photos of the same camera below the cut."""
        return int((self.same < math.sqrt(self.cut)).sum())

    @property
    def llr_limit(self) -> float:
        """What no ratio exceeds: that many comparisons of other cameras support no more (log10)."""
        return math.log10(len(self.foreign) + 1)


@dataclass(frozen=True)
class Judgement:
    """What is said of a photo.

    Attributes
    ----------
    camera : int or None
        The camera that took it; None where that cannot be said.
    best : int
        The camera that it is most like.
    pce, peak, ncc : float
        Of that camera.
    row, column : int
        Where on its sensor the photo lies best.
    llr : float
        log10 of how much more likely its score is of that camera than of another one, within ``llr_limit``.
    false_alarm : float
        Chance that a photo of none of the cameras looks as much like one of them, at most 1.
    """

    camera: int | None
    best: int
    pce: float
    peak: float
    ncc: float
    row: int
    column: int
    llr: float
    false_alarm: float


def calibrate(
    foreign: Any,
    foreign_peaks: Any,
    same: Any,
    *,
    n_places: int,
    n_cameras: int,
    false_alarm: float = FALSE_ALARM,
    pairs: Any = None,
) -> Calibration:
    """Learn from comparisons with a known answer.

    Parameters
    ----------
    foreign, same : array of PCE, signed
        Of photos with fingerprints of other cameras, and of their own.
    foreign_peaks : array of PCE
        Of other cameras, at the best place; ignored where ``n_places`` is 1.
    n_places : int
        Places that were looked at.
    n_cameras : int
    false_alarm : float
        Of a photo against all cameras.
    pairs : array of int, optional
        Of each of ``foreign``, which two cameras it is of. Without, all are of two cameras that are not alike.
    """
    known, peaks = _signed_roots(foreign), _signed_roots(foreign_peaks)
    middle, deviations = _part_pairs(foreign, pairs)
    return Calibration(
        foreign=known,
        same=_signed_roots(same),
        middle=middle,
        spread=_spread(deviations, len(known)),
        spread_of_peaks=1.0 if n_places == 1 else _spread_of_largest(peaks, n_places),
        n_places=n_places,
        n_cameras=n_cameras,
        false_alarm=false_alarm,
    )


def judge(calibration: Calibration, pce: Floats, peak: Floats, ncc: Floats, at: Sequence[Any]) -> Judgement:
    """Say which camera took a photo, from its scores with each.

    Parameters
    ----------
    calibration : Calibration
    pce, peak, ncc : sequence of float
        By camera; ``peak`` equals ``pce`` where no other place was looked at. NaN where a comparison failed.
    at : sequence of (row, column)
        Of the peaks.
    """
    chances = [_chance(calibration, one, other) for one, other in zip(pce, peak, strict=True)]
    # The likelier of two whose chances are both too small for a number is the one with the higher peak.
    best = min(range(len(chances)), key=lambda c: (chances[c], -np.nan_to_num(peak[c], nan=-math.inf)))
    alarm = min(1.0, chances[best] * len(chances))
    return Judgement(
        camera=best if alarm <= calibration.false_alarm else None,
        best=best,
        pce=float(pce[best]),
        peak=float(peak[best]),
        ncc=float(ncc[best]),
        row=int(at[best][0]),
        column=int(at[best][1]),
        llr=_log_ratio(calibration, float(pce[best]), float(peak[best])),
        false_alarm=alarm,
    )


def exact_limit(n_events: int, n: int) -> float:
    """Return the upper 95 % limit of a rate of which ``n_events`` of ``n`` were seen (Clopper and Pearson, 1934)."""
    from scipy.stats import beta

    return 1.0 if n_events >= n else float(beta.ppf(1 - _DOUBT, n_events + 1, n - n_events))


def _chance(calibration: Calibration, pce: float, peak: float) -> float:
    """Return the chance that a photo of another camera scores as high in either test."""
    if math.isnan(pce):
        return 1.0
    one = _normal_above((_root(pce) - calibration.middle) / calibration.spread)
    if calibration.n_places == 1:
        return one
    largest = calibration.n_places * _normal_above(_root(peak) / calibration.spread_of_peaks)
    # The peak may lie where sensors have a part in common.
    largest = max(largest, _normal_above((_root(peak) - calibration.middle) / calibration.spread))
    return min(1.0, 2 * min(one, largest))


def _log_ratio(calibration: Calibration, pce: float, peak: float) -> float:
    """Return log10 of how likely t is of the same camera over how likely of another one.

    Of the same camera log t is normal around what known photos have, as wide as photos differ; a small part has lost
    the pattern, and looks like one of another camera. The better of the two tests counts, by half: that it is chosen
    of two makes other cameras at most twice as likely to reach it.
    """
    roots = [_root(pce) / calibration.spread]
    places, commons = [0.0], [calibration.middle / calibration.spread, 0.0]
    if calibration.n_places > 1:
        roots.append(_root(peak) / calibration.spread_of_peaks)
        places.append(math.log(calibration.n_places))
    logs = np.log(np.maximum(calibration.same, 1.0))
    usual = float(np.mean(logs)) if len(logs) else math.log(math.sqrt(calibration.cut)) + _SPREAD_OF_SAME
    wide = max(_SPREAD_OF_SAME, float(np.std(logs)) if len(logs) > 1 else 0.0)
    spreads = [calibration.spread, calibration.spread_of_peaks]
    best = -math.inf
    for t, tried, spread, common in zip(roots, places, spreads, commons):
        middle = usual - math.log(spread)  # in the unit of t here
        foreign = -((t - common) ** 2) / 2 - math.log(math.sqrt(2 * math.pi)) + tried
        lost = math.log(_LOST) + foreign - tried
        kept = -math.inf
        if t > 0:
            z = (math.log(t) - middle) / wide
            kept = math.log1p(-_LOST) - z * z / 2 - math.log(t * wide * math.sqrt(2 * math.pi))
        best = max(best, float(np.logaddexp(lost, kept)) - foreign)
    limit = calibration.llr_limit
    return float(np.clip((best - math.log(len(roots))) / math.log(10), -limit, limit))


def _part_pairs(foreign: Any, pairs: Any) -> tuple[float, NDArray[np.float64]]:
    """Return the largest mean of t of a pair of cameras, as its upper 95 % limit, and how far t are from such means.

    Where a pair of cameras is of fewer than three photos, or there are too few photos in all, t is around 0.
    """
    values = np.asarray(foreign, np.float64).ravel()
    there = np.isfinite(values)
    t = _signed_roots(values)
    if pairs is None or len(t) < _ENOUGH:
        return 0.0, t
    _, of = np.unique(np.asarray(pairs).ravel()[there], return_inverse=True)
    counts = np.bincount(of)
    if counts.min() < _FEWEST:
        return 0.0, t
    means = np.bincount(of, t) / counts
    lost = math.sqrt(len(t) / (len(t) - len(counts)))  # each mean takes a degree of freedom
    deviations = (t - means[of]) * lost
    limits = means
    if len(counts) < _MANY_PAIRS:
        limits = means + _SIGMAS * float(np.sqrt(np.mean(deviations**2))) / np.sqrt(counts)
    return max(0.0, float(limits.max())), deviations


def _spread(t: NDArray[np.float64], n: int) -> float:
    """Return the upper 95 % limit of the spread of n values, at least 1; ``t`` is how far they are from their means."""
    if n < _ENOUGH:
        return _USUAL_SPREAD
    squared = float(np.sqrt(np.mean(t**2))) * (1 + _SIGMAS / math.sqrt(2 * n))
    return max(1.0, squared, float(t.max()) / _upper_normal(_DOUBT / n))


def _spread_of_largest(t: NDArray[np.float64], n_places: int) -> float:
    """Return the spread of values of which the largest of ``n_places`` are known."""
    if len(t) < _ENOUGH:
        return _USUAL_SPREAD
    middle = float(np.median(t)) / _upper_normal(-math.expm1(-math.log(2) / n_places))
    return max(1.0, middle, float(t.max()) / _upper_normal(_DOUBT / len(t) / n_places))


def _signed_roots(pce: Any) -> NDArray[np.float64]:
    values = np.asarray(pce, np.float64).ravel()
    values = values[np.isfinite(values)]
    roots: NDArray[np.float64] = np.sign(values) * np.sqrt(np.abs(values))
    return roots


def _root(pce: float) -> float:
    return math.copysign(math.sqrt(abs(pce)), pce)


def _normal_above(t: float) -> float:
    return 0.5 * math.erfc(t / math.sqrt(2))


def _upper_normal(share: float) -> float:
    """Return the t that a normal value exceeds with the chance ``share``."""
    from scipy.special import ndtri

    return float(-ndtri(share))
