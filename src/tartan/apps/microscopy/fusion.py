"""Fusion: the pose of every particle in one frame, from the motions of all pairs.

Particle k lies in the common frame at R(phi_k) x + u_k. The motion of a onto b says phi_a - phi_b = theta_ab and
u_a - u_b = R(phi_b) t_ab. Rotations are the leading eigenvector of the weighted graph of pairs, translations least
squares on it, both reweighted (Cauchy), so that wrong pairs count less; each particle is then refined against all
others.

Nothing here reads runs or files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.apps.microscopy.points import thinned

Array = NDArray[np.float64]

_ROUNDS = 20
_LOOSE_ANGLE = 0.1
_LEAST_WEIGHT = 0.1
_DENSE = 2000
_REFINEMENTS = 3
_STILL = 1e-3
_TEMPLATE_POINTS = 5000
_STEPS = 30
_MISFIT = 0.3
#: Of n particles with random motions, the median weight exceeds the mere chance of an angle by this over sqrt(n).
_CHANCE = 0.6
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
    """

    angles: Array
    shifts: Array
    weights: Array
    fits: NDArray[np.bool_]
    symmetry: int = 1

    @property
    def trusted(self) -> bool:
        """Whether pairs agree with the poses at least twice as much as random pairs would with the best poses."""
        by_chance = min(1.0, _LOOSE_ANGLE * self.symmetry / np.pi) + _CHANCE / np.sqrt(len(self.weights))
        return bool(np.median(self.weights) >= min(_MOST_NEEDED, 2 * by_chance))

    def moved(self, points: Array, k: int) -> Array:
        """Return the points of particle k, (m, 3), in the common frame."""
        return moved(points, self.angles[k], self.shifts[k])


def moved(points: Array, angle: float, shift: Array) -> Array:
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
    off = np.abs(_wrapped(angles[:, None] - angles[None, :] - theta, symmetry))
    agreed = weights / (1 + (off / _LOOSE_ANGLE) ** 2)
    shifts = _translations(agreed, angles, _about(motions, theta, centres), scale) - _turned_by(angles, centres)
    if refine:
        angles, shifts = _refined(points, angles, shifts, scale)
        off = np.abs(_wrapped(angles[:, None] - angles[None, :] - theta, symmetry))
    agreeing = (weights * (off < _LOOSE_ANGLE)).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-300)
    return Fusion(angles, shifts, agreeing, agreeing >= _MISFIT * float(np.median(agreeing)), symmetry)


def _turned_by(angles: Array, points: Array) -> Array:
    """Return points (.., 2) after turns about the origin."""
    cos, sin = np.cos(angles), np.sin(angles)
    x, y = points[..., 0], points[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def _about(motions: PairMotions, theta: Array, centres: Array) -> Array:
    """Return the shifts of the motions about the centroids of both particles, (n, n, 2).

    They are small, so that a turn by a part of a circle, which a symmetric structure leaves open, matters little.
    """
    given = np.stack([np.nan_to_num(motions.tx), np.nan_to_num(motions.ty)], axis=-1)
    shifts: Array = given + _turned_by(theta, centres[:, None, :]) - centres[None, :, :]
    return shifts


def _wrapped(angles: Array, symmetry: int) -> Array:
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
        angles = np.angle(_leading(graph)) / symmetry
        off = _wrapped(angles[:, None] - angles[None, :] - theta, symmetry)
        kept = weights / (1 + (off / _LOOSE_ANGLE) ** 2)
    return angles


def _leading(graph: NDArray[np.complex128]) -> NDArray[np.complex128]:
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
    wanted = _turned_by(angles[None, :], given)
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


def _refined(points: list[Array], angles: Array, shifts: Array, scale: float) -> tuple[Array, Array]:
    """Refine each particle against the union of the others, from its present pose only."""
    angles, shifts = angles.copy(), shifts.copy()
    for _ in range(_REFINEMENTS if len(points) > 1 else 0):
        placed = [moved(one, angle, shift) for one, angle, shift in zip(points, angles, shifts)]
        before = angles.copy()
        for k, one in enumerate(points):
            template = thinned(np.concatenate([*placed[:k], *placed[k + 1 :]]), _TEMPLATE_POINTS)
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
        after = _turned(motion, centre, wanted * units)
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


def _turned(motion: Array, centre: Array, step: Array) -> Array:
    """Return a motion after a shift and a turn about where it brings a centre."""
    cos, sin = np.cos(motion[2]), np.sin(motion[2])
    there = np.array([cos * centre[0] - sin * centre[1], sin * centre[0] + cos * centre[1]]) + motion[:2] + step[:2]
    theta = motion[2] + step[2]
    cos, sin = np.cos(theta), np.sin(theta)
    back = np.array([cos * centre[0] - sin * centre[1], sin * centre[0] + cos * centre[1]])
    return np.array([*(there - back), theta])
