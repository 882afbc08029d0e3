"""Phase transitions: which cluster is unstable at a temperature, and how it becomes two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.clusters.dapwc.lanczos import extremes, focus_on
from tartan.analytics.clusters.dapwc.product import Columns, Product
from tartan.analytics.clusters.dapwc.state import Memberships, PairwiseSettings, assign

Vector = NDArray[np.float64]

_COPY_STEPS = 200
_COPY_TOL = 1e-3
_BATCH_BYTES = 256 << 20
_ARRAYS_OF_A_COPY = 6


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


def most_unstable(
    state: Memberships, temperature: float, product: Product, settings: PairwiseSettings, start: Vector
) -> Instability | None:
    """Return the cluster with the smallest eigenvalue; None where all are too small to split."""
    large = np.flatnonzero(state.members.sum(0) > settings.division.min_split_size)
    found: Instability | None = None
    for group in _groups(large, state):
        if state.k == 1 or settings.continuous_prior:
            focus = focus_on(np.ascontiguousarray(state.members[:, group]), product, 0.5)
        else:
            focus = focus_on(_doubled(state, group, temperature, product), product, 1.0)
        result = extremes(focus, temperature, product, start, least_only=True)
        best = int(np.argmin(result.smallest))
        if found is None or result.smallest[best] < found.smallest:
            found = Instability(
                int(group[best]), float(result.smallest[best]), float(result.largest[best]), result.vectors[:, best]
            )
    return found


def _groups(clusters: NDArray[np.intp], state: Memberships) -> list[NDArray[np.intp]]:
    """Divide clusters into groups whose copies fit into the memory set aside for them."""
    if not len(clusters):
        return []
    fit = max(1, _BATCH_BYTES // (state.members.nbytes * _ARRAYS_OF_A_COPY))
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


def split(state: Memberships, found: Instability, temperature: float, settings: PairwiseSettings) -> Memberships:
    """Return the state with the unstable cluster in two: costs move apart along its direction, and members follow."""
    k, direction = found.cluster, found.direction
    costs = state.costs[:, k]
    slope = state.members[:, k] / 2 * direction / temperature
    gradient = abs(float(np.abs(slope).sum() if state.k == 1 else slope.sum()))
    step = 0.1 * float(np.sqrt((costs**2).sum() / (direction**2).sum()))
    if gradient > 0:
        step = min(step, 0.05 * float(state.members[:, k].sum()) / gradient)
    new = Memberships(*(np.concatenate([v, v[..., [k]]], axis=-1) for v in state.arrays().values()))
    new.change[:] = np.inf
    new.costs[:, k] = costs + step * direction
    new.costs[:, -1] = costs - step * direction
    if settings.continuous_prior:
        new.prior[[k, -1]] /= 2
    assign(new, temperature, settings)
    return new
