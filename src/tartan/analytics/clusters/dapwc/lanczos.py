"""The extreme eigenvalues of the matrices that decide about splits, by Lanczos, for all clusters side by side.

Cluster k with memberships m, costs B + A and size C has, at temperature T, the matrix

    S_ab = f m_a delta_ab + f m_a m_b (d_ab - B_a - B_b - 2 A) / (T C).

It is never formed: one product of the dissimilarities with one column a cluster serves all clusters. Missing pairs
contribute nothing; C is then the geometric mean of the masses of known pairs of a and b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.product import Columns, Product

Vector = NDArray[np.float64]
# By judgement: in a rougher space the smallest eigenvalue may not show yet; at 0.03 some did not. `tartan bench
# answers` holds what comes out.
_GIVEN_UP = 0.01  # tolerance of a search that is given up
# By judgement: extremes converge in a few dozen products; the published program allows 200 of power iteration. `tartan
# bench pwc` holds the time.
MOST_STEPS = 60


@dataclass(frozen=True)
class Focus:
    """The clusters under test, a column each.

    Attributes
    ----------
    members, distances, weights : ndarray (n, p)
        m; B, the mean dissimilarity of each point to the cluster; 1 / sqrt(C), of each point where pairs are missing.
    inner : ndarray (p,)
        A.
    factor : float
        f: 1/2 where m is divided among the two copies of each cluster, 1 where m is already one copy's.
    """

    members: Columns
    distances: Columns
    weights: Columns
    inner: Vector
    factor: float

    def keep(self, stays: NDArray[np.bool_]) -> Focus:
        """Return the same of some of the clusters."""
        members, distances, weights = (
            np.ascontiguousarray(of_all[:, stays]) for of_all in (self.members, self.distances, self.weights)
        )
        return Focus(members, distances, weights, self.inner[stays], self.factor)


@dataclass(frozen=True)
class Extremes:
    """Smallest and largest eigenvalue of each cluster's matrix (p,), and the eigenvectors of the smallest (n, p).

    The largest is a scale: right to a few percent, since the search ends when the smallest is known.
    """

    smallest: Vector
    largest: Vector
    vectors: Columns
    n_products: int


def focus_on(members: Columns, product: Product, factor: float) -> Focus:
    """Compute what the matrices of clusters with these memberships (n, p) need: one product."""
    products, mass = product(members)
    sizes = members.sum(0)
    if mass is None:
        mass = np.broadcast_to(sizes, members.shape)
    known = mass > 1e-12 * sizes
    distances = np.where(known, product.scale * products / np.where(known, mass, 1.0), product.unknown)
    inner = -0.5 * np.einsum("np,np->p", distances, members) / sizes
    return Focus(members, distances, np.where(known, mass, np.inf) ** -0.5, inner, factor)


def extremes(
    focus: Focus, temperature: float, product: Product, start: Vector, tol: float = 1e-3, wanted: float = math.inf
) -> Extremes:
    """Return the extreme eigenvalues of the matrices of all clusters in focus.

    Parameters
    ----------
    start : ndarray (n,)
        Where the Krylov spaces begin.
    tol : float
        A smallest eigenvalue is accepted when the residual of its vector is below this share of the spread of the
        eigenvalues; its error is of the order of the square.
    wanted : float
        A share of the largest eigenvalue. A cluster is given up when its smallest one comes down neither to this share
        nor below that of another cluster; its numbers and vector are then rough. Minus infinity: only the least of all
        smallest eigenvalues is looked for.

    Notes
    -----
    A cluster takes part in products until it is known or given up. Each step's vector is made orthogonal to all before
    it, twice. References: Lanczos, J. Res. Nat. Bur. Stand. 45 (1950) 255; Parlett: The symmetric eigenvalue problem.
    """
    n, p = focus.members.shape
    steps = min(MOST_STEPS, n)
    spaces = [_Krylov(start / np.linalg.norm(start), steps) for _ in range(p)]
    left, n_products = np.arange(p), 0
    while n_products < steps and len(left):
        n_products += 1
        vectors = np.column_stack([spaces[k].next for k in left])
        for k, image in zip(left, _apply(focus, temperature, vectors, product).T):
            spaces[k].grow(image)
        least = min(space.low for space in spaces)
        stays = np.array([not spaces[k].is_known(tol) and spaces[k].may_reach(least, wanted) for k in left])
        if not stays.all():
            left, focus = left[stays], focus.keep(stays)
    low, high = (np.array([getattr(space, name) for space in spaces]) for name in ("low", "high"))
    return Extremes(low, high, np.column_stack([space.vector() for space in spaces]), n_products)


class _Krylov:
    """The Krylov space of one cluster's matrix, and the extreme eigenvalues in it.

    Sums are not by BLAS, whose order may depend on the number of its threads.

    Attributes
    ----------
    next : ndarray (n,)
        What the matrix is to be multiplied with.
    low, high : float
        The smallest and the largest eigenvalue so far; the least one of the matrix is at most ``residual`` below.
    residual : float
    """

    def __init__(self, start: Vector, steps: int) -> None:
        self.next = start
        self.low, self.high, self.residual = math.inf, -math.inf, math.inf
        self._basis = np.empty((steps, len(start)))
        self._alpha: list[float] = []
        self._beta: list[float] = []
        self._small = np.ones(1)

    def grow(self, image: Vector) -> None:
        """Take the product of the matrix and ``next``."""
        size = len(self._alpha) + 1
        basis = self._basis[:size]
        basis[-1] = self.next
        self._alpha.append(float(np.einsum("n,n->", self.next, image)))
        for _ in range(2):
            image = image - np.einsum("j,jn->n", np.einsum("jn,n->j", basis, image), basis)
        self.low, self.high, self._small = _ritz(self._alpha, self._beta)
        norm = math.sqrt(np.einsum("n,n->", image, image))
        is_exhausted = norm <= 1e-12 * max(abs(self.low), abs(self.high))
        self.residual = 0.0 if is_exhausted else norm * abs(float(self._small[-1]))
        if not is_exhausted:
            self._beta.append(norm)
            self.next = image / norm

    def is_known(self, tol: float) -> bool:
        """Whether the smallest eigenvalue is right within a share of the spread of all."""
        return self.residual == 0 or (len(self._alpha) > 2 and self.residual <= tol * (self.high - self.low))

    def may_reach(self, least: float, wanted: float) -> bool:
        """Whether the smallest eigenvalue may lie as low as one of these, the second a share of the largest."""
        below = self.low - self.residual <= max(least, wanted * max(self.high, np.finfo(float).tiny))
        return below or not self.is_known(_GIVEN_UP)

    def vector(self) -> Vector:
        """Return the eigenvector of the smallest eigenvalue, its largest component above 0."""
        found: Vector = np.einsum("j,jn->n", self._small, self._basis[: len(self._alpha)])
        found *= np.sign(found[np.abs(found).argmax()])
        return found


def _ritz(alpha: list[float], beta: list[float]) -> tuple[float, float, Vector]:
    """Return the extreme eigenvalues of a small tridiagonal matrix, and the vector of the least."""
    if len(alpha) == 1:
        return alpha[0], alpha[0], np.ones(1)
    from scipy.linalg.lapack import dstev  # unlike NumPy's eigh wakes no threads

    values, columns, failure = dstev(alpha, beta)
    if failure:
        raise np.linalg.LinAlgError("no eigenvalues of a tridiagonal matrix: values that are not finite")
    return float(values[0]), float(values[-1]), columns[:, 0]


def _apply(focus: Focus, temperature: float, vectors: Columns, product: Product) -> Columns:
    """Return S times one vector a cluster."""
    p = vectors.shape[1]
    weighted = focus.members * vectors * focus.weights
    if product.masses:
        products, mass = product(np.hstack([weighted, weighted * focus.distances]))
        assert mass is not None
        sums, moments = mass[:, :p], mass[:, p:]
    else:
        products, _ = product(weighted)
        sums, moments = weighted.sum(0), np.einsum("np,np->p", weighted, focus.distances)
    mixed = product.scale * products[:, :p] - (2.0 * focus.inner + focus.distances) * sums - moments
    return focus.factor * focus.members * (vectors + focus.weights * mixed / temperature)
