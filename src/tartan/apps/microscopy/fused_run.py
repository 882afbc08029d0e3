"""All particles of a run laid onto each other: one particle, with the pose of each and the detail that it shows."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.apps.microscopy.points import score_itself, thin_points
from tartan.base.checks import Fit, number
from tartan.base.files import disk_errors
from tartan.base.text_table import cell_of
from tartan.errors import ConfigError

# Fusion: the pose of every particle in one frame, from the motions of all pairs.
#
# Particle k lies in the common frame at R(phi_k) x + u_k. The motion of a onto b says phi_a - phi_b = theta_ab and
# u_a - u_b = R(phi_b) t_ab. Rotations are the leading eigenvector of the weighted graph of pairs, translations least
# squares on it, both reweighted (Cauchy), so that wrong pairs count less; each particle is then refined against all
# others.
#
# Nothing here reads runs or files.

# _ROUNDS and _LOOSE_ANGLE, measured on 40 and 60 simulated particles (`tartan bench fuse`): all within 0.1 rad at
# density 0.8, 98 % at 0.5.
_ROUNDS = 20
# By judgement, see _ROUNDS.
_LOOSE_ANGLE = 0.1
# By judgement: a pair of a tenth of the median weight hardly overlaps.
_LEAST_WEIGHT = 0.1
# By arithmetic: 64 MB of complex128; eigenvectors of more are looked for by Lanczos.
_DENSE = 2000
# _REFINEMENTS and _STILL, by judgement: poses settle in two or three rounds. `tartan bench fuse`: 0.0029 rad.
_REFINEMENTS = 3
# By judgement: a third of the error of a pose (`tartan bench fuse`: 0.0029 rad).
_STILL = 1e-3
# By judgement: registration costs the product of points; 5,000 are several a site. `tartan bench fuse`.
_TEMPLATE_POINTS = 5000
# By judgement: reweighting converges before; a bound.
_STEPS = 30
# By judgement: a particle that agrees with under a third of what others agree with is told apart. `tartan bench fuse`.
_MISFIT = 0.3
#: Of n particles with random motions, the median weight exceeds the mere chance of an angle by this over sqrt(n).
#: By arithmetic of random walks, simulated.
_CHANCE = 0.6
# Measured, two seeds each: overlaps of 15 to 20 simulated particles and 15 of random sites are 6.0 (density 0.5) to
# 13.7 (0.8) standard deviations apart; those of 30 to 40 true ones, split at their best place, 2.4 to 3.7 (at 0.3).
_APART = 4.5
# Measured, see _APART: random ones overlap 0.29 to 0.42 times as much as true ones; of true ones at density 0.5 and 0.8
# the lower part overlaps 0.85 times as much as the upper.
_MUCH_LESS = 0.7
# By arithmetic: fewer have no spread.
_LEAST_KIND = 3
# By judgement: fused again without those that do not fit, what fits changes once, rarely twice.
_SORTINGS = 3
# Measured: a shift of four uncertainties of a pair of points; overlaps of true particles are 7 to 13 times as large in
# place, those of random points in one outline 1.16 times, those of random sites 1.7 to 2.3 times.
_MOVED, _DIRECTIONS = 4.0, 8
# Measured, see _MOVED.
_CONTRAST = 1.4
# By judgement: weights are shares, which end at 1.
_MOST_NEEDED = 0.9


@dataclass(frozen=True)
class PairMotions:
    """The motions of all pairs of n particles, each matrix (n, n); NaN where there is none.

    Attributes
    ----------
    scores, theta, tx, ty : ndarray (n, n)
        Entry (a, b) is the motion of a onto b.
    """

    scores: Array
    theta: Array
    tx: Array
    ty: Array

    def of(self, items: NDArray[np.intp]) -> PairMotions:
        """Return those of some particles."""
        at = np.ix_(items, items)
        return PairMotions(self.scores[at], self.theta[at], self.tx[at], self.ty[at])


@dataclass(frozen=True)
class Fusion:
    """Poses of n particles.

    Attributes
    ----------
    angles : ndarray (n,)
    shifts : ndarray (n, 2)
        Point x of particle k lies at R(angle) x + shift.
    weights : ndarray (n,)
        Part of the weight of a particle's pairs that agrees with its pose, 0 to 1.
    fits : bool array (n,)
        Whether the pairs of a particle agree with its pose.
    symmetry : int
        n of a structure that looks the same after 1/n of a turn.
    overlaps : ndarray (n,) or None
        Cosine of each particle with the union of the others that fit, 0 to 1; None before it is measured.
    contrast : float
        Median of how much larger the overlaps are than those of particles moved by a few uncertainties: 1 where
        particles share no more than an outline. Infinity before it is measured.
    """

    angles: Array
    shifts: Array
    weights: Array
    fits: NDArray[np.bool_]
    symmetry: int = 1
    overlaps: Array | None = None
    contrast: float = float("inf")

    @property
    def trusted(self) -> bool:
        """Whether particles that fit show more than noise would.

        Their pairs agree with the poses at least twice as much as random pairs would with the best poses, and they
        share more than an outline.
        """
        weights = self.weights[self.fits]
        by_chance = min(1.0, _LOOSE_ANGLE * self.symmetry / np.pi) + _CHANCE / np.sqrt(max(1, len(weights)))
        agree = len(weights) > 0 and np.median(weights) >= min(_MOST_NEEDED, 2 * by_chance)
        return bool(agree and self.contrast >= _CONTRAST)

    def moved(self, points: Array, k: int) -> Array:
        """Return the points of particle k, (m, 3), in the common frame."""
        return move_points(points, self.angles[k], self.shifts[k])


def move_points(points: Array, angle: float, shift: Array) -> Array:
    """Return points (m, 3) after a motion."""
    cos, sin = np.cos(angle), np.sin(angle)
    at = points[:, :2] @ np.array([[cos, sin], [-sin, cos]]) + shift
    return np.column_stack([at, points[:, 2]])


def pair_weights(scores: Array, sizes: NDArray[np.int64]) -> Array:
    """Return the weight of each pair, (n, n): B / sqrt(m n), 0 where there is none and on the diagonal."""
    weights = np.nan_to_num(scores, nan=0.0) / np.sqrt(np.outer(sizes, sizes))
    np.fill_diagonal(weights, 0.0)
    symmetric: Array = (weights + weights.T) / 2
    return symmetric


def groups(weights: Array) -> NDArray[np.int64]:
    """Return the group of each particle: those that pairs of some weight connect; the largest is 0."""
    from scipy.sparse.csgraph import connected_components

    known = weights[weights > 0]
    strong = weights > (_LEAST_WEIGHT * np.median(known) if len(known) else 0.0)
    _, labels = connected_components(strong, directed=False)
    sizes = np.bincount(labels)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    numbered: NDArray[np.int64] = rank[labels]
    return numbered


def fuse(points: list[Array], motions: PairMotions, symmetry: int = 1, *, refine: bool = True) -> Fusion:
    """Find the poses of particles that pairs connect.

    Parameters
    ----------
    points : list of ndarray (m, 3)
    motions : PairMotions
    symmetry : int
        n of a structure that looks the same after 1/n of a turn: angles count up to it.
    refine : bool
        Whether each particle is refined against the union of the others.
    """
    sizes = np.array([len(one) for one in points])
    weights = pair_weights(motions.scores, sizes)
    theta = np.nan_to_num(motions.theta)
    centres = np.array([one[:, :2].mean(axis=0) for one in points])
    angles = _rotations(weights, theta, symmetry)
    scale = float(np.sqrt(2 * np.median([np.median(one[:, 2]) ** 2 for one in points])))
    off = np.abs(_wrap(angles[:, None] - angles[None, :] - theta, symmetry))
    agreed = weights / (1 + (off / _LOOSE_ANGLE) ** 2)
    shifts = _translations(agreed, angles, _about(motions, theta, centres), scale) - _turn_by(angles, centres)
    if refine:
        angles, shifts = _refine(points, angles, shifts, scale)
        off = np.abs(_wrap(angles[:, None] - angles[None, :] - theta, symmetry))
    agreeing = (weights * (off < _LOOSE_ANGLE)).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-300)
    return Fusion(angles, shifts, agreeing, agreeing >= _MISFIT * float(np.median(agreeing)), symmetry)


def fuse_fitting(points: list[Array], motions: PairMotions, symmetry: int = 1, keep: float | None = None) -> Fusion:
    """Find the poses of particles that pairs connect, and which of them show one structure.

    Parameters
    ----------
    points, motions, symmetry
        As of ``fuse``.
    keep : float, optional
        The share of the particles, those of the largest overlaps, that fit, above 0 to 1. Default: where overlaps are
        of two kinds, those of the larger ones.

    Returns
    -------
    Fusion
        With overlaps. Particles that do not fit are left out, and the others are fused again without them.
    """
    found = fuse(points, motions, symmetry)
    kept = np.ones(len(points), bool)
    overlaps, moved = _overlap(points, found, kept)
    for _ in range(_SORTINGS):
        chosen = _choose(overlaps, keep)
        if (chosen == kept).all():
            break
        found, kept = _fuse_some(points, motions, found, chosen), chosen
        overlaps, moved = _overlap(points, found, kept)
    weights = _agreement(points, motions, found, kept)
    if keep is None:
        kept = kept & (weights >= _MISFIT * float(np.median(weights[kept])))
    contrast = float(np.median(overlaps[kept] / np.maximum(moved[kept], 1e-300)))
    return Fusion(found.angles, found.shifts, weights, kept, symmetry, overlaps, contrast)


def _choose(overlaps: Array, keep: float | None) -> NDArray[np.bool_]:
    """Return which particles fit: a share of them, or the kind of the larger overlaps where there are two kinds."""
    order = np.argsort(-overlaps, kind="stable")
    n = split_kinds(overlaps[order]) if keep is None else min(len(order), max(2, round(keep * len(order))))
    chosen = np.zeros(len(order), bool)
    chosen[order[:n]] = True
    return chosen


def split_kinds(falling: Array) -> int:
    """Return how many of some numbers, in falling order, are of the kind of the larger ones; all where there is one.

    The split is that of the least variance within (Otsu 1979). There are two kinds where their means are far apart, in
    standard deviations within and as a ratio.
    """
    n = len(falling)
    if n < 2 * _LEAST_KIND:
        return n
    counts = np.arange(_LEAST_KIND, n)
    sums, squares = np.cumsum(falling), np.cumsum(np.square(falling))
    first, second = sums[counts - 1] / counts, (sums[-1] - sums[counts - 1]) / (n - counts)
    within = squares[-1] - counts * np.square(first) - (n - counts) * np.square(second)
    at = int(np.argmin(within))
    spread_within = np.sqrt(max(0.0, float(within[at])) / max(1, n - 2))
    apart = first[at] - second[at] >= _APART * spread_within and second[at] <= _MUCH_LESS * first[at]
    return int(counts[at]) if apart else n


def _fuse_some(points: list[Array], motions: PairMotions, before: Fusion, kept: NDArray[np.bool_]) -> Fusion:
    """Fuse some particles again; the others move with the frame, by a particle that is in both."""
    some = np.flatnonzero(kept)
    again = fuse([points[k] for k in some], motions.of(some), before.symmetry)
    at = int(np.argmax(again.weights))
    turn = again.angles[at] - before.angles[some[at]]
    angles, shifts = before.angles + turn, _turn_by(turn, before.shifts)
    shifts += again.shifts[at] - shifts[some[at]]
    angles[some], shifts[some] = again.angles, again.shifts
    return Fusion(angles, shifts, before.weights, kept, before.symmetry)


def _agreement(points: list[Array], motions: PairMotions, found: Fusion, kept: NDArray[np.bool_]) -> Array:
    """Return the part of the weight of a particle's pairs with those that are kept that agrees with the poses."""
    weights = pair_weights(motions.scores, np.array([len(one) for one in points]))[:, kept]
    theta = np.nan_to_num(motions.theta)[:, kept]
    off = np.abs(_wrap(found.angles[:, None] - found.angles[None, kept] - theta, found.symmetry))
    agreeing: Array = (weights * (off < _LOOSE_ANGLE)).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-300)
    return agreeing


def _overlap(points: list[Array], found: Fusion, kept: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the cosine of each particle with the union of the others that are kept, in place and moved, (n,) each."""
    placed = [found.moved(one, k) for k, one in enumerate(points)]
    step = _MOVED * float(np.sqrt(2) * np.median([np.median(one[:, 2]) for one in points]))
    ways = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    shifted = np.column_stack([step * np.cos(ways), step * np.sin(ways), np.zeros(_DIRECTIONS)])
    motions = np.concatenate([np.zeros((1, 3)), shifted])
    cosines = np.zeros((len(points), 2))
    for k, one in enumerate(placed):
        others = [placed[j] for j in np.flatnonzero(kept).tolist() if j != k]
        if others:
            union = thin_points(np.concatenate(others), _TEMPLATE_POINTS)
            values = _native.microscopy_evaluate(one, union, motions)[:, 0]
            norm = np.sqrt(score_itself(one) * score_itself(union))
            cosines[k] = values[0] / norm, values[1:].mean() / norm
    return cosines[:, 0], cosines[:, 1]


def _turn_by(angles: Array | float, points: Array) -> Array:
    """Return points (.., 2) after turns about the origin."""
    cos, sin = np.cos(angles), np.sin(angles)
    x, y = points[..., 0], points[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def _about(motions: PairMotions, theta: Array, centres: Array) -> Array:
    """Return the shifts of the motions about the centroids of both particles, (n, n, 2).

    They are small, so that a turn by a part of a circle, which a symmetric structure leaves open, matters little.
    """
    given = np.stack([np.nan_to_num(motions.tx), np.nan_to_num(motions.ty)], axis=-1)
    shifts: Array = given + _turn_by(theta, centres[:, None, :]) - centres[None, :, :]
    return shifts


def _wrap(angles: Array, symmetry: int) -> Array:
    period = 2 * np.pi / symmetry
    found: Array = (angles + period / 2) % period - period / 2
    return found


def _rotations(weights: Array, theta: Array, symmetry: int) -> Array:
    """Synchronise angles: leading eigenvectors of the normalised graph, reweighted by what disagrees."""
    angles = np.zeros(len(weights))
    kept = weights
    for _ in range(_ROUNDS):
        degrees = np.maximum(kept.sum(axis=1), 1e-300)
        graph = kept * np.exp(1j * symmetry * theta) / np.sqrt(np.outer(degrees, degrees))
        angles = np.angle(_find_leading(graph)) / symmetry
        off = _wrap(angles[:, None] - angles[None, :] - theta, symmetry)
        kept = weights / (1 + (off / _LOOSE_ANGLE) ** 2)
    return angles


def _find_leading(graph: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the eigenvector of the largest eigenvalue of a Hermitian matrix."""
    n = len(graph)
    hermitian = (graph + graph.conj().T) / 2
    if n > _DENSE:
        from scipy.sparse.linalg import eigsh

        return np.asarray(eigsh(hermitian, k=1, which="LA", v0=np.ones(n))[1][:, 0])
    from scipy.linalg import eigh

    return np.asarray(eigh(hermitian, subset_by_index=[n - 1, n - 1])[1][:, 0])


def _translations(weights: Array, angles: Array, given: Array, scale: float) -> Array:
    """Place particles: weighted least squares on the Laplacian of the graph, reweighted; their centre is the origin."""
    wanted = _turn_by(angles[None, :], given)
    kept, shifts = weights, np.zeros((len(weights), 2))
    for _ in range(_ROUNDS):
        laplacian = np.diag(kept.sum(axis=1)) - kept
        right = (kept[:, :, None] * (wanted - wanted.transpose(1, 0, 2)) / 2).sum(axis=1)
        shifts = np.linalg.lstsq(laplacian, right, rcond=None)[0]
        off = np.linalg.norm(shifts[:, None] - shifts[None, :] - wanted, axis=-1)
        kept = weights / (1 + (off / (2 * scale)) ** 2)
        kept = (kept + kept.T) / 2
    centred: Array = shifts - shifts.mean(axis=0)
    return centred


def _refine(points: list[Array], angles: Array, shifts: Array, scale: float) -> tuple[Array, Array]:
    """Refine each particle against the union of the others, from its present pose only."""
    angles, shifts = angles.copy(), shifts.copy()
    for _ in range(_REFINEMENTS if len(points) > 1 else 0):
        placed = [move_points(one, angle, shift) for one, angle, shift in zip(points, angles, shifts)]
        before = angles.copy()
        for k, one in enumerate(points):
            template = thin_points(np.concatenate([*placed[:k], *placed[k + 1 :]]), _TEMPLATE_POINTS)
            pose = np.array([*shifts[k], angles[k]])
            for length in (2 * scale, None):
                pose = climb(one, template, pose, scale, length)
            angles[k], shifts[k] = pose[2], pose[:2]
        if np.abs(angles - before).max() < _STILL:
            break
    return angles, shifts


def climb(a: Array, b: Array, motion: Array, scale: float, length: float | None) -> Array:
    """Maximise F at a length, or B, from one motion (tx, ty, theta) of ``a`` onto ``b``, by trust-region Newton."""
    radius = float(np.sqrt(np.square(a[:, :2] - a[:, :2].mean(axis=0)).sum(axis=1).mean()))
    centre = a[:, :2].mean(axis=0)
    units = np.array([1.0, 1.0, 1 / radius])
    step = length or scale
    trusted = step / 2
    value, gradient, hessian = _sums(a, b, motion, length, units)
    for _ in range(_STEPS):
        if np.linalg.norm(gradient) * step <= 1e-5 * value:
            break
        wanted = _newton(gradient, hessian, trusted)
        if np.linalg.norm(wanted) < 1e-6 * step:
            break
        after = _turn_motion(motion, centre, wanted * units)
        found = _sums(a, b, after, length, units)
        gain = gradient @ wanted + wanted @ hessian @ wanted / 2
        ratio = (found[0] - value) / gain if gain > 0 else -1.0
        trusted = min(2 * trusted, 2 * step) if ratio > 0.7 else trusted * 0.4 if ratio < 0.25 else trusted
        if ratio > 0.01:
            motion, (value, gradient, hessian) = after, found
    return motion


def _sums(a: Array, b: Array, motion: Array, length: float | None, units: Array) -> tuple[float, Array, Array]:
    """Return the objective with its derivatives by the shift and the way of a turn about the centroid of ``a``."""
    numbers = _native.microscopy_evaluate(a, b, motion[None, :], scale=length)[0]
    xx, xy, yy, xt, yt, tt = numbers[4:]
    hessian = np.array([[xx, xy, xt], [xy, yy, yt], [xt, yt, tt]])
    return float(numbers[0]), numbers[1:4] * units, hessian * np.outer(units, units)


def _newton(gradient: Array, hessian: Array, trusted: float) -> Array:
    """Return the damped Newton step of at most a length."""
    values, vectors = np.linalg.eigh(-hessian)
    parts = vectors.T @ gradient
    damping = max(0.0, -float(values[0]) * 1.0001 + 1e-12 * float(np.abs(values).max()))
    for _ in range(60):
        step = parts / np.maximum(values + damping, 1e-300)
        if np.linalg.norm(step) <= trusted:
            break
        damping = max(2 * damping, 1e-3 * float(np.linalg.norm(parts)) / trusted)
    else:
        step = parts * trusted / np.linalg.norm(parts)
    found: Array = vectors @ step
    return found


def _turn_motion(motion: Array, centre: Array, step: Array) -> Array:
    """Return a motion after a shift and a turn about where it brings a centre."""
    cos, sin = np.cos(motion[2]), np.sin(motion[2])
    there = np.array([cos * centre[0] - sin * centre[1], sin * centre[0] + cos * centre[1]]) + motion[:2] + step[:2]
    theta = motion[2] + step[2]
    cos, sin = np.cos(theta), np.sin(theta)
    back = np.array([cos * centre[0] - sin * centre[1], sin * centre[0] + cos * centre[1]])
    return np.array([*(there - back), theta])


# What a fusion writes: points and poses as tables, for MATLAB, and the detail in which two halves agree.

# Fourier ring correlation: up to which detail two sets of points agree.

# By convention: Nieuwenhuizen and others, Nature Methods (2013).
THRESHOLD = 1 / 7
# By judgement: a Hann edge that leaves eight tenths of the picture. `tartan bench fuse` measures the resolution.
_EDGE = 0.1
# Measured: a transform of 1,024 x 1,024 takes 30 ms; of twice the side four times that.
# By judgement: a transform of 1,024 x 1,024 takes a tenth of a second.
_MOST_SIDE = 1024
# By judgement: the curve crosses the threshold once. `tartan bench fuse` measures the resolution.
_SMOOTHED = 3


def correlate_rings(a: Array, b: Array, pixel: float) -> tuple[Array, Array]:
    """Return frequencies (1 / length) and the correlation of the rings of two sets of points, (m, 2) or wider.

    Points are counted in pixels of a common square whose edges are faded out (Hann).
    """
    both = np.concatenate([a[:, :2], b[:, :2]])
    centre = (both.max(axis=0) + both.min(axis=0)) / 2
    width = float(np.ptp(both, axis=0).max()) * (1 + 2 * _EDGE)
    side = int(np.clip(np.ceil(width / pixel), 16, _MOST_SIDE))
    ends = [(middle - side * pixel / 2, middle + side * pixel / 2) for middle in centre]
    window = _window(side)
    first, second = (
        np.fft.rfft2(np.histogram2d(one[:, 0], one[:, 1], bins=side, range=ends)[0] * window) for one in (a, b)
    )
    x, y = np.fft.fftfreq(side), np.fft.rfftfreq(side)
    ring = np.rint(np.hypot(x[:, None], y[None, :]) * side).astype(np.int64).ravel()
    n_rings = side // 2
    sums = [
        np.bincount(ring, values.ravel(), minlength=n_rings)[:n_rings]
        for values in ((first * second.conj()).real, np.abs(first) ** 2, np.abs(second) ** 2)
    ]
    correlation = sums[0] / np.maximum(np.sqrt(sums[1] * sums[2]), 1e-300)
    return np.arange(n_rings) / (side * pixel), correlation


def resolution(frequencies: Array, correlation: Array) -> float:
    """Return the length at which the smoothed correlation first falls below 1/7; NaN where it never does."""
    kernel = np.ones(_SMOOTHED) / _SMOOTHED
    smooth = np.convolve(np.pad(correlation, _SMOOTHED // 2, mode="edge"), kernel, mode="valid")
    below = np.flatnonzero(smooth[1:] < THRESHOLD) + 1
    if not len(below):
        return float("nan")
    at = int(below[0])
    share = (smooth[at - 1] - THRESHOLD) / max(smooth[at - 1] - smooth[at], 1e-300)
    crossing = frequencies[at - 1] + np.clip(share, 0, 1) * (frequencies[at] - frequencies[at - 1])
    return float(1 / crossing) if crossing > 0 else float("nan")


def _window(side: int) -> Array:
    """Return a square that is 1 inside and falls to 0 at its edges."""
    fading = max(1, round(side * _EDGE))
    line = np.ones(side)
    ramp = (1 - np.cos(np.pi * (np.arange(fading) + 0.5) / fading)) / 2
    line[:fading], line[side - fading :] = ramp, ramp[::-1]
    square: Array = np.outer(line, line)
    return square


# By judgement: halves have thousands of points, and a registration costs their square (20 ms at 1,500: `tartan bench
# microscopy`).
_ALIGNED_POINTS = 2000
# By judgement: a quarter of the uncertainty, so that pixels do not bound the resolution. `tartan bench fuse`.
_PIXELS = 4.0


@dataclass(frozen=True)
class Detail:
    """Fourier ring correlation of a fusion.

    Attributes
    ----------
    frequencies, correlation : ndarray
        Of two halves of the particles, fused apart.
    fused, single : float
        Length at which the correlation of the halves falls to 1/7, and the median of that of single particles whose
        points are split at random; NaN where it cannot be said.
    """

    frequencies: Array
    correlation: Array
    fused: float
    single: float


def measure_detail(points: Sequence[Array], motions: PairMotions, symmetry: int) -> Detail | None:
    """Fuse two random halves of the particles apart, lay them onto each other, and correlate them.

    Of each half those particles count that pairs within it connect; None where a half has none.
    """
    n, rng = len(points), np.random.default_rng(0)
    pixel = float(np.median(np.concatenate([one[:, 2] for one in points]))) / _PIXELS
    order = rng.permutation(n)
    halves = []
    for half in (np.sort(order[: n // 2]), np.sort(order[n // 2 :])):
        half = half[groups(pair_weights(motions.of(half).scores, np.array([len(points[k]) for k in half]))) == 0]
        if len(half) < 2:
            return None
        chosen = [points[k] for k in half]
        found = fuse(chosen, motions.of(half), symmetry)
        halves.append(np.concatenate([found.moved(one, k) for k, one in enumerate(chosen) if found.fits[k]]))
    few = [thin_points(half, _ALIGNED_POINTS) for half in halves]
    x, y, theta = _native.microscopy_register([few[0]], [few[1]], symmetry=symmetry)[0, 0, 1:4]
    frequencies, correlation = correlate_rings(move_points(halves[0], theta, np.array([x, y])), halves[1], pixel)
    alone = []
    for one in points:
        mixed = one[rng.permutation(len(one))]
        alone.append(resolution(*correlate_rings(mixed[::2], mixed[1::2], pixel)))
    known = [length for length in alone if np.isfinite(length)]
    single = float(np.median(known)) if known else float("nan")
    return Detail(frequencies, correlation, resolution(frequencies, correlation), single)


def fuse_points(points: Sequence[Array], fusion: Fusion) -> tuple[Array, NDArray[np.int64]]:
    """Return the points of the particles that fit in the common frame, (m, 3), and the particle of each."""
    kept: list[int] = np.flatnonzero(fusion.fits).tolist()
    placed = [fusion.moved(points[k], k) for k in kept]
    return np.concatenate(placed), np.repeat(np.array(kept, np.int64), [len(points[k]) for k in kept])


def spread(points: Array, particle: NDArray[np.int64], symmetry: int) -> Array:
    """Turn the particles of a symmetric structure to its copies in turn, about the centre of all points."""
    if symmetry == 1:
        return points
    angles = 2 * np.pi * (particle % symmetry) / symmetry
    centre = points[:, :2].mean(axis=0)
    x, y = (points[:, :2] - centre).T
    cos, sin = np.cos(angles), np.sin(angles)
    return np.column_stack([cos * x - sin * y + centre[0], sin * x + cos * y + centre[1], points[:, 2]])


def write_points(folder: Path, points: Array, particle: NDArray[np.int64], keys: Sequence[str]) -> None:
    """Write ``fused.parquet`` and ``fused.mat``: x, y, sigma and the particle of each point."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.io

    names = pa.array([keys[k] for k in particle.tolist()]).dictionary_encode()
    columns = {"x": points[:, 0], "y": points[:, 1], "sigma": points[:, 2], "particle": names}
    _replace(folder / "fused.parquet", lambda path: pq.write_table(pa.table(columns), path))
    stored = {"points": points[:, :2], "sigma": points[:, 2:], "particle": particle[:, None] + 1}
    _replace(folder / "fused.mat", lambda path: scipy.io.savemat(path, stored, appendmat=False, do_compression=True))


def write_rows(path: Path, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table as CSV."""

    def write(partial: Path) -> None:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            writer.writerows([cell_of(one) if isinstance(one, str) else one for one in row] for row in rows)

    _replace(path, write)


def _replace(path: Path, write: object) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)  # type: ignore[operator]
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


Array = NDArray[np.float64]

# _DRAWN and _LEAST_HALVES, by judgement: a row of pictures; halves of fewer particles are single ones.
_DRAWN = 4
# By judgement, see _DRAWN.
_LEAST_HALVES = 4
_OF_SOME = ("frc.csv", "fused.png")
_POSES = ("particle", "angle", "x", "y", "weight", "overlap", "fits")
_SHARE: Fit = ("a share of the particles, above 0 to 1", lambda value: 0 < value <= 1)


@dataclass(frozen=True)
class FusedParticle:
    """What the particles of a run show together.

    Attributes
    ----------
    points : ndarray (m, 3)
        x, y and uncertainty of the points of all particles that fit, in one frame.
    particle : int64 array (m,)
        The particle of each point, as a position in ``keys``.
    keys : list of str
        The n particles of the largest group that pairs connect.
    fusion : Fusion
        The pose of each of them, how well its pairs agree with it, and whether it fits.
    detail : Detail or None
        Fourier ring correlation of two halves; None below four particles that fit, where a half is not connected, and
        where ``fusion.trusted`` is false.
    apart : list of (str, int)
        Particles of other groups, each with the number of its group, the second largest first.
    single : list of ndarray
        Up to four particles of the highest weight, in the same frame.
    n_pairs_failed : int
    """

    points: Array
    particle: NDArray[np.int64]
    keys: list[str]
    fusion: Fusion
    detail: Detail | None
    apart: list[tuple[str, int]]
    single: list[Array]
    n_pairs_failed: int

    def spread(self) -> Array:
        """Return the points as they are drawn: those of a symmetric structure are spread over its copies."""
        return spread(self.points, self.particle, self.fusion.symmetry)

    def write(self, folder: Path) -> None:
        """Write points, poses, particles apart and correlation into a folder.

        Raises
        ------
        StoreError
            If the system refuses.
        """
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in _OF_SOME:  # of another fusion; not every one has them
                (folder / name).unlink(missing_ok=True)
            write_points(folder, self.points, self.particle, self.keys)
            write_rows(folder / "particles.csv", _POSES, self._poses())
            write_rows(folder / "apart.csv", ("particle", "group"), self.apart)
            if self.detail is not None:
                curve = list(zip(self.detail.frequencies.tolist(), self.detail.correlation.tolist()))
                write_rows(folder / "frc.csv", ("frequency", "correlation"), curve)

    def _poses(self) -> list[tuple[object, ...]]:
        found = self.fusion
        overlaps = np.full(len(self.keys), np.nan) if found.overlaps is None else found.overlaps
        return [
            (key, found.angles[k], *found.shifts[k], found.weights[k], overlaps[k], "yes" if found.fits[k] else "no")
            for k, key in enumerate(self.keys)
        ]


def require_motions(run: Any) -> None:
    """Refuse runs that have no motions of all pairs.

    Raises
    ------
    ConfigError
        If the run is another application's, keeps less than all pairs, or is not finished.
    """
    manifest = run.manifest
    if manifest.application.get("source") != "builtin:microscopy" and manifest.application["name"] != "microscopy":
        raise ConfigError(f"{run.path} is a run of {manifest.application['name']}; fuse takes one of microscopy")
    if manifest.workload["kind"] == "rectangle" or manifest.reduce is not None:
        raise ConfigError(f"{run.path} keeps not all motions of one set of particles; run again without that")
    if run.n_pairs_left:
        raise ConfigError(f"{run.path} is not finished: {run.n_pairs_left:,} pairs are left; tartan resume finishes it")


def fuse_run(run: Any, items: Sequence[Any], keep: float | None = None) -> FusedParticle:
    """Lay the particles of a run onto each other.

    Parameters
    ----------
    run : Run
        Finished, of this application; see ``require_motions``.
    items : sequence
        Its particles as ``Microscopy.parse`` returns them; None where one cannot be read.
    keep : float, optional
        As of ``fuse_fitting``.

    Raises
    ------
    ConfigError
        If no pair connects two particles that could be read, or ``keep`` is no share.
    """
    if keep is not None:
        keep = number("keep", keep, _SHARE, option="--keep")
    good = np.array([at for at, item in enumerate(items) if item is not None], np.intp)
    if len(good) < 2:
        raise ConfigError(f"{run.path} has {len(good)} particles that could be read; fusion takes two or more")
    points = [items[at][0] for at in good]
    motions = PairMotions(*(run.matrix(output=name) for name in ("scores", "theta", "tx", "ty"))).of(good)
    group = groups(pair_weights(motions.scores, np.array([len(one) for one in points])))
    members = np.flatnonzero(group == 0)
    if len(members) < 2:
        raise ConfigError(f"no pairs of {run.path} connect two particles; nothing can be fused")
    symmetry = int(run.manifest.application["parameters"].get("symmetry", 1))
    chosen, theirs = [points[k] for k in members], motions.of(members)
    found = fuse_fitting(chosen, theirs, symmetry, keep)
    best = [k for k in np.argsort(-found.weights, kind="stable").tolist() if found.fits[k]][:_DRAWN]
    fitting = np.flatnonzero(found.fits)
    measured = found.trusted and len(fitting) >= _LEAST_HALVES
    return FusedParticle(
        *fuse_points(chosen, found),
        keys=[str(run.keys[good[k]]) for k in members],
        fusion=found,
        detail=measure_detail([chosen[k] for k in fitting], theirs.of(fitting), symmetry) if measured else None,
        apart=[(str(run.keys[good[k]]), int(group[k])) for k in np.flatnonzero(group > 0)],
        single=[found.moved(chosen[k], k) for k in best],
        n_pairs_failed=run.n_pairs_failed,
    )
