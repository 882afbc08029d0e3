"""New points on an old map: majorisation with all other points fixed.

References
----------
Bae, Choi, Qiu, Fox: Dimension reduction and visualization of large high-dimensional data via interpolation. HPDC 2010
(MI-MDS).
Varadhan, Roland: Simple and globally convergent methods for accelerating the convergence of any EM algorithm. Scand. J.
Stat. 35 (2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan import _native
from tartan.analytics.maps.smacof import Floats, Rule, native_order
from tartan.analytics.monitor import Monitor

#: Length of a leap in steps, at most.
#: By judgement: a flat place makes endless leaps; a thousand steps are more than majorisation takes at all. No
#: benchmark.
_FARTHEST = 1000.0


@dataclass(frozen=True)
class Interpolation:
    """Places new points one by one, each where its stress to the old ones is least.

    Attributes
    ----------
    points : ndarray of float64, shape (n, dim)
        The map.
    rule : Rule
        Of the map; missing pairs are always allowed for new points.
    n_neighbors : int or None
        Use only this many nearest old points; None: all.
    max_iter : int
        Most steps of a point; 0: it stays where it begins.
    tol : float
        Stop when the squared error, divided by the sum of the squared dissimilarities, changes by no more.
    pairs_per_call : int
        Pairs of one native call.
    """

    points: Floats
    rule: Rule
    n_neighbors: int | None = None
    max_iter: int = 1000
    tol: float = 1e-12
    pairs_per_call: int = 2_000_000

    def place(self, delta: NDArray[Any], monitor: Monitor) -> Floats:
        """Return coordinates of new points, (m, dim).

        Parameters
        ----------
        delta : ndarray of int16, float32 or float64, shape (m, n)
            Dissimilarities to the old points; negative or NaN: missing.
        """
        n, dim = self.points.shape
        step = max(1, self.pairs_per_call // n)
        out = np.empty((len(delta), dim))
        native = _native.SmacofPass(n, dim, delta.dtype == np.float64)
        native.place(self.points)
        for start in range(0, len(delta), step):
            monitor.report("place", points=start, of=len(delta))
            out[start : start + step] = self._some(native, delta[start : start + step], monitor)
        return out

    def _some(self, native: _native.SmacofPass, rows: NDArray[Any], monitor: Monitor) -> Floats:
        values = np.where(rows >= 0, rows.astype(np.float64), np.inf)
        near = nearest(values, min(rows.shape[1], self.n_neighbors or self.points.shape[1] + 1))
        kept = self._nearest_only(rows, near)
        kept, swap = native_order(np.ascontiguousarray(kept))
        rule = Rule(tiny=self.rule.tiny, floor=self.rule.floor, sammon=self.rule.sammon, missing=True, swap=swap)
        size = np.square(np.where(np.isfinite(values), values, 0.0)).sum(axis=1)
        degrees = self._degrees(native, kept, rule)
        first = self._best(native, kept, rule, degrees, self._starts(values, near))
        return self._settle(native, kept, rule, first, degrees, np.maximum(size, 1e-300), monitor)

    def _nearest_only(self, rows: NDArray[Any], near: NDArray[np.intp]) -> NDArray[Any]:
        """Mark all but the nearest as missing."""
        if self.n_neighbors is None:
            return rows
        kept = np.full_like(rows, -1)
        np.put_along_axis(kept, near, np.take_along_axis(rows, near, axis=1), axis=1)
        return kept

    def _starts(self, values: Floats, near: NDArray[np.intp]) -> list[Floats]:
        """Return where points may begin: in the middle of the nearest old ones (a simplex), and at the nearest one.

        All are moved a little aside: where all old points coincide there is no direction otherwise, and none leads out
        of a flat map. On a line no point can pass another, so it begins on either side of the nearest one, too.
        """
        dim = self.points.shape[1]
        few = near[:, : dim + 1]
        share = np.isfinite(np.take_along_axis(values, few, axis=1)).astype(np.float64)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        middle = np.asarray(np.einsum("mk,mkd->md", share, self.points[few]), np.float64)
        nearest = self.points[near[:, 0]]
        starts = [middle, nearest]
        if dim == 1:
            away = np.take_along_axis(values, near[:, :1], axis=1)
            away = np.where(np.isfinite(away), away, 0.0)
            starts += [nearest + away, nearest - away]
        aside = 1e-3 * np.ptp(self.points, axis=0).max() * np.linspace(0.5, 1.0, dim)
        return [start + aside for start in starts]

    def _best(
        self,
        native: _native.SmacofPass,
        delta: NDArray[Any],
        rule: Rule,
        degrees: Floats,
        starts: list[Floats],
    ) -> Floats:
        """Return the start with the least error for each point; of equal ones the first."""
        errors = np.array([_step(native, delta, rule, start, degrees)[1] for start in starts])
        return np.asarray(np.array(starts)[errors.argmin(axis=0), np.arange(len(delta))], np.float64)

    def _settle(
        self,
        native: _native.SmacofPass,
        delta: NDArray[Any],
        rule: Rule,
        x: Floats,
        degrees: Floats,
        size: Floats,
        monitor: Monitor,
    ) -> Floats:
        """Move all points together; once half have settled, those are left out.

        After each step of majorisation a leap goes where two such steps point to; it counts where it lowers the error.
        """
        out = x.copy()
        here = np.arange(len(x))
        moving = degrees > 0
        step, loss = _step(native, delta, rule, x, degrees)
        for _ in range(self.max_iter // 2):
            monitor.check()
            if not moving.any():
                break
            x1 = np.where(moving[:, None], x + step, x)
            step1, loss1 = _step(native, delta, rule, x1, degrees)
            moving &= np.abs(loss - loss1) > self.tol * size[here]
            far = np.where(moving[:, None], _leap(x, step, step1), x1)
            step, loss = _step(native, delta, rule, far, degrees)
            better = loss <= loss1
            x, loss = np.where(better[:, None], far, x1), np.where(better, loss, loss1)
            step = np.where(better[:, None], step, step1)
            out[here] = x
            if 2 * np.count_nonzero(moving) < len(x):
                delta, x, step, loss = np.ascontiguousarray(delta[moving]), x[moving], step[moving], loss[moving]
                here, degrees, moving = here[moving], degrees[moving], moving[moving]
        return out

    def _degrees(self, native: _native.SmacofPass, delta: NDArray[Any], rule: Rule) -> Floats:
        """Return the sum of the weights of each new point."""
        degrees, anywhere = np.empty(len(delta)), np.zeros((len(delta), self.points.shape[1]))
        weighing = Rule(**{**rule.__dict__, "product": True})
        native.rows(delta, weighing, anywhere, np.empty_like(anywhere), degrees)
        return degrees


def nearest(values: Floats, k: int) -> NDArray[np.intp]:
    """Return the k smallest of each row, in their order; of equal ones the first."""
    n = values.shape[1]
    if k == n:
        return np.argsort(values, axis=1, kind="stable")
    last = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
    below, level = values < last, values == last
    # Of values as large as the last one the first are taken, until there are k.
    taken = below | (level & (np.cumsum(level, axis=1) <= k - below.sum(axis=1, keepdims=True)))
    near = np.nonzero(taken)[1].reshape(len(values), k)
    order = np.argsort(np.take_along_axis(values, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def _step(
    native: _native.SmacofPass, delta: NDArray[Any], rule: Rule, x: Floats, degrees: Floats
) -> tuple[Floats, Floats]:
    """Return the step of majorisation from each place, and the squared error there."""
    residual, losses = np.empty_like(x), np.empty(len(x))
    if len(x):
        native.rows(delta, rule, x, residual, losses)
    return residual / np.maximum(degrees, 1e-300)[:, None], losses


def _leap(x: Floats, step: Floats, step1: Floats) -> Floats:
    """Return where two steps of an iteration that converges linearly point to (Varadhan and Roland 2008, SqS3)."""
    bend = step1 - step
    length, bent = np.linalg.norm(step, axis=1), np.linalg.norm(bend, axis=1)
    reach = np.divide(length, bent, out=np.ones(len(x)), where=bent > 0)
    reach = np.clip(reach, 1.0, _FARTHEST)[:, None]
    return np.asarray(x + 2.0 * reach * step + reach**2 * bend, np.float64)


def row_stress(points: Floats, here: ArrayLike, delta: NDArray[Any], tiny: float, *, missing: bool = True) -> Floats:
    """Return the squared errors of rows over their squared dissimilarities, (m,); NaN for rows without any.

    Parameters
    ----------
    points : ndarray of float64, shape (n, L)
    here : array_like (m, L)
        Where the items of the rows are; NaN: nowhere.
    delta : ndarray of float64, shape (m, n)
        Dissimilarities; NaN: missing. Without missing ones int16 and float32 are taken as they are.
    tiny : float
        As in ``Rule``.
    missing : bool
        Whether there may be missing ones.
    """
    at, delta = np.asarray(here, np.float64), np.ascontiguousarray(delta)
    nowhere = np.asarray(~np.isfinite(at).all(axis=1))
    if missing:
        nowhere |= np.isnan(delta).all(axis=1)
        squares = np.nansum(np.square(delta), axis=1)
    else:
        squares = np.einsum("ij,ij->i", delta, delta, dtype=np.float64)
    n, dim = points.shape
    native = _native.SmacofPass(n, dim, delta.dtype == np.float64)
    native.place(points)
    x = np.ascontiguousarray(np.where(nowhere[:, None], 0.0, at))
    losses = np.empty(len(x))
    native.rows(delta, Rule(tiny=tiny, missing=missing), x, np.empty_like(x), losses)
    stress = np.divide(losses, squares, out=np.zeros(len(x)), where=squares > 0)
    return np.where(nowhere, np.nan, stress)
