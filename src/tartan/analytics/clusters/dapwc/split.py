"""Phase transitions: which cluster is unstable at a temperature, and how it becomes two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.clusters.dapwc.lanczos import MOST_STEPS, Focus, extremes, focus_on
from tartan.analytics.clusters.dapwc.product import Columns, Product
from tartan.analytics.clusters.dapwc.state import Memberships, PairwiseSettings, assign

Vector = NDArray[np.float64]

_COPY_STEPS = 200
_COPY_TOL = 1e-3
_BATCH_BYTES = 256 << 20
_ARRAYS_OF_A_COPY = 6
_CONVERGED_COPIES = 8  # clusters from which on copies take their share without a convergence of each of them
_SAME = 1e-4


@dataclass(frozen=True)
class Instability:
    """The least stable cluster: its column, the extreme eigenvalues of its matrix, the direction of its split."""

    cluster: int
    smallest: float
    largest: float
    direction: Vector

    def splits(self, threshold: float) -> bool:
        """Whether the cluster has passed its phase transition."""
        return self.smallest <= threshold * self.largest

    def critical(self, temperature: float) -> float:
        """The temperature of the phase transition, if memberships are 0 or 1 and stay as they are."""
        return temperature * (1.0 - 2.0 * self.smallest)


def unstable(
    state: Memberships, temperature: float, product: Product, settings: PairwiseSettings, start: Vector, most: int
) -> list[Instability]:
    """Return the least stable clusters, the least stable first, at most so many; none where all are too small to split.

    Of several, that is first which the cost falls by most when it is split: size times temperature of its transition.
    """
    large = np.flatnonzero(state.members.sum(0) > settings.division.min_split_size)
    found: list[Instability] = []
    for group in _groups(large, state):
        focus = _focus(state, group, temperature, product, settings)
        result = extremes(focus, temperature, product, start, least_only=most == 1)
        chosen = [int(np.argmin(result.smallest))] if most == 1 else range(len(group))
        found += [
            Instability(int(group[at]), float(result.smallest[at]), float(result.largest[at]), result.vectors[:, at])
            for at in chosen
        ]
    if most == 1:
        return sorted(found, key=lambda one: one.smallest)[:1]
    sizes = state.members.sum(0)
    ready = [one for one in found if one.splits(settings.division.split_threshold)]
    if not ready:
        return sorted(found, key=lambda one: one.smallest)[:1]
    return sorted(ready, key=lambda one: -sizes[one.cluster] * one.critical(temperature))[:most]


def _focus(
    state: Memberships, clusters: NDArray[np.intp], temperature: float, product: Product, settings: PairwiseSettings
) -> Focus:
    """Return what the matrices of clusters need: each as two coincident copies of itself."""
    if state.k == 1 or settings.continuous_prior:
        return focus_on(np.ascontiguousarray(state.members[:, clusters]), product, 0.5)
    if state.k < _CONVERGED_COPIES:
        return focus_on(_doubled(state, clusters, temperature, product), product, 1.0)
    members = state.members[:, clusters]
    return focus_on(np.ascontiguousarray(members / (1.0 + members)), product, 1.0)


def coincident(state: Memberships) -> list[tuple[int, int]]:
    """Return pairs of clusters with the same members: a split that did not last; no cluster is in two pairs."""
    inner = state.members.T @ state.members
    squares = np.diag(inner)
    apart = squares[:, None] + squares - 2.0 * inner
    same = np.triu(apart <= _SAME * np.minimum(squares[:, None], squares), 1)
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for a, b in np.argwhere(same).tolist():
        if not taken & {a, b}:
            taken |= {a, b}
            pairs.append((a, b))
    return pairs


def _groups(clusters: NDArray[np.intp], state: Memberships) -> list[NDArray[np.intp]]:
    """Divide clusters into groups whose copies fit into the memory set aside for them."""
    if not len(clusters):
        return []
    copy = state.members.nbytes * _ARRAYS_OF_A_COPY if state.k < _CONVERGED_COPIES else 0
    krylov = MOST_STEPS * state.members[:, 0].nbytes
    fit = max(1, _BATCH_BYTES // max(copy, krylov))
    return np.array_split(clusters, -(-len(clusters) // fit))


def _doubled(state: Memberships, clusters: NDArray[np.intp], temperature: float, product: Product) -> Columns:
    """Return the memberships (n, p) of one copy of each cluster when two coincident copies of it have converged.

    Each cluster is doubled in a problem of its own, all problems side by side in the columns of one matrix; those
    that have converged leave it.
    """
    k, n = state.k, len(state.members)
    result = np.empty((n, len(clusters)))
    waiting = np.arange(len(clusters))
    members, costs = (np.tile(value, len(clusters)) for value in (state.members, state.costs))
    for step in range(_COPY_STEPS):
        copies = np.ones((len(waiting), k))
        copies[np.arange(len(waiting)), clusters[waiting]] = 2.0
        sizes, inner, change = (np.empty(len(waiting) * k) for _ in range(3))
        products, mass = product(members)
        scratch = np.empty(_native.pwc_scratch_len(*members.shape))
        _native.pwc_costs(products, mass, members, product.scale, product.unknown, costs, sizes, inner, change, scratch)
        _native.pwc_assign(costs, np.ones(copies.size), copies.ravel(), k, temperature, members)
        moving = change.reshape(-1, k).max(1) > _COPY_TOL * product.unit * n
        if step == _COPY_STEPS - 1:
            moving[:] = False
        done = np.flatnonzero(~moving)
        result[:, waiting[done]] = members[:, done * k + clusters[waiting[done]]]
        if not moving.any():
            break
        if len(done):
            columns = np.repeat(moving, k)
            members, costs = (np.ascontiguousarray(value[:, columns]) for value in (members, costs))
            waiting = waiting[moving]
    return result


def split(state: Memberships, found: list[Instability], temperature: float, settings: PairwiseSettings) -> Memberships:
    """Return the state with unstable clusters in two: costs move apart along their directions, and members follow."""
    clusters = [one.cluster for one in found]
    new = Memberships(*(np.concatenate([v, v[..., clusters]], axis=-1) for v in state.arrays().values()))
    new.change[:] = np.inf
    for place, one in enumerate(found, state.k):
        step = _step(state, one, temperature)
        new.costs[:, one.cluster] = state.costs[:, one.cluster] + step * one.direction
        new.costs[:, place] = state.costs[:, one.cluster] - step * one.direction
        if settings.continuous_prior:
            new.prior[[one.cluster, place]] /= 2
    assign(new, temperature, settings)
    return new


def _step(state: Memberships, found: Instability, temperature: float) -> float:
    """Return how far costs move along the direction of a split."""
    k, direction = found.cluster, found.direction
    slope = state.members[:, k] / 2 * direction / temperature
    gradient = abs(float(np.abs(slope).sum() if state.k == 1 else slope.sum()))
    step = 0.1 * float(np.sqrt((state.costs[:, k] ** 2).sum() / (direction**2).sum()))
    return min(step, 0.05 * float(state.members[:, k].sum()) / gradient) if gradient > 0 else step
