"""The end of annealing: at temperature 0 single items move, and a cluster is split for two that are joined.

Each step lowers the cost.

An item weighs in the means of its own cluster, so a fixed point of expectation-maximisation need not be a minimum: to
move it from a cluster of C items, where it costs e, to one of C' items, where it costs e', changes the cost by
2 C' / (C' + 1) e' - 2 C / (C - 1) e (Hartigan's rule, which holds for any dissimilarities).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.lanczos import extremes, focus_on
from tartan.analytics.clusters.dapwc.product import Product
from tartan.analytics.clusters.dapwc.state import Memberships, first_state, update_costs
from tartan.analytics.clusters.search import join_costs

Labels = NDArray[np.int64]

_STEPS = 50
_EXCHANGES = 20
_GAIN = 1e-7  # of the cost: less is rounding of products in float32


def moved(labels: Labels, k: int, product: Product) -> Labels:
    """Return labels from which no move of a single item lowers the cost, or those after 50 products.

    All items that would gain move at once; where that does not lower the cost, only those that gain most.
    """
    share, state = 1.0, _costs(labels, k, product)
    for _ in range(_STEPS):
        targets, gains = _moves(labels, state)
        movers = np.flatnonzero(gains > _GAIN * state.hamiltonian)
        if not len(movers):
            break
        movers = movers[np.argsort(-gains[movers], kind="stable")][: max(1, int(share * len(movers)))]
        tried = labels.copy()
        tried[movers] = targets[movers]
        after = _costs(tried, k, product)
        if after.hamiltonian < state.hamiltonian and len(np.unique(tried)) == len(np.unique(labels)):
            labels, state, share = tried, after, min(1.0, 2 * share)
        elif len(movers) == 1:
            break
        else:
            share /= 4
    return labels


def exchanged(labels: Labels, k: int, product: Product, start: NDArray[np.float64]) -> Labels:
    """Return labels after clusters were split and others joined, as long as that and the moves after it lower the cost.

    An item that is equally far from all clusters is shared by them until the end, and then hides from the search for
    splits; once it belongs to one it stands out.

    Parameters
    ----------
    labels : ndarray (n,)
        Of k clusters, none empty.
    k : int
    product : Product
    start : ndarray (n,)
        Where the search for eigenvectors begins.
    """
    cost = _costs(labels, k, product).hamiltonian
    for _ in range(_EXCHANGES):
        tried = _joined(_split(labels, k, product, start), k + 1, product)
        tried = moved(tried, k, product)
        after = _costs(tried, k, product).hamiltonian
        if not after < cost * (1 - _GAIN):
            break
        labels, cost = tried, after
    return labels


def _split(labels: Labels, k: int, product: Product, start: NDArray[np.float64]) -> Labels:
    """Return labels of one cluster more: that one is split of which this lowers the cost most.

    Each is cut in the middle of its direction of largest variance.
    """
    members = _members(labels, k)
    directions = extremes(focus_on(members, product, 0.5), 1.0, product, start).vectors
    along = directions[np.arange(len(labels)), labels]
    low, high = np.full(k, np.inf), np.full(k, -np.inf)
    np.minimum.at(low, labels, along)
    np.maximum.at(high, labels, along)
    halves = np.where(along > ((low + high) / 2)[labels], labels + k, labels)
    costs = _means(product, _members(halves, 2 * k))
    whole = _means(product, members)
    gains = np.where(np.bincount(halves, minlength=2 * k)[k:] > 0, whole - costs[:k] - costs[k:], -np.inf)
    best = int(gains.argmax())
    return np.where(halves == best + k, k, labels)


def _joined(labels: Labels, k: int, product: Product) -> Labels:
    """Return labels of one cluster less: those two are joined that raise the cost least."""
    members = _members(labels, k)
    sizes = members.sum(0)
    sums = members.T @ (_known_mean(product, members) * sizes)
    _, joins = join_costs((sums + sums.T) / 2, np.maximum(sizes, 1.0))
    a, b = sorted(divmod(int(joins.argmin()), k))
    joined = np.where(labels == b, a, labels)
    return np.where(joined == k - 1, b, joined) if b != k - 1 else joined


def _means(product: Product, members: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return H of each cluster."""
    costs: NDArray[np.float64] = (_known_mean(product, members) * members).sum(0)
    return costs


def _known_mean(product: Product, members: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean dissimilarity (n, k) of each item to the items of each cluster, of pairs that are known."""
    products, mass = product(members)
    known = np.broadcast_to(members.sum(0), members.shape) if mass is None else mass
    divisor = np.where(known > 0, known, 1.0)
    means: NDArray[np.float64] = np.where(known > 0, product.scale * products / divisor, product.unknown)
    return means


def _members(labels: Labels, k: int) -> NDArray[np.float64]:
    members: NDArray[np.float64] = (labels[:, None] == np.arange(k)).astype(np.float64)
    return members


def _costs(labels: Labels, k: int, product: Product) -> Memberships:
    state = first_state(_members(labels, k))
    update_costs(state, product)
    return state


def _moves(labels: Labels, state: Memberships) -> tuple[Labels, NDArray[np.float64]]:
    """Return where each item would move, and what that gains; minus infinity for the last item of a cluster."""
    items, sizes = np.arange(len(labels)), state.sizes
    joining = np.where(sizes > 0, 2.0 * sizes / (sizes + 1.0), np.inf) * np.maximum(state.costs, 0.0)
    joining[items, labels] = np.inf
    targets = joining.argmin(1)
    own = sizes[labels]
    leaving = 2.0 * own / np.maximum(own - 1.0, 1.0) * state.costs[items, labels]
    return targets, np.where(own > 1, leaving - joining[items, targets], -np.inf)
