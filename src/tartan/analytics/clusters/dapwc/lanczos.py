"""The extreme eigenvalues of the matrices that decide about splits, by Lanczos, for all clusters side by side.

Cluster k with memberships m, costs B + A and size C has, at temperature T, the matrix

    S_ab = f m_a delta_ab + f m_a m_b (d_ab - B_a - B_b - 2 A) / (T C).

It is never formed: one product of the dissimilarities with one column a cluster serves all clusters. Missing pairs
contribute nothing; C is then the geometric mean of the masses of known pairs of a and b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.product import Columns, Product

Vector = NDArray[np.float64]
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
    focus: Focus,
    temperature: float,
    product: Product,
    start: Vector,
    tol: float = 1e-3,
    least_only: bool = False,
) -> Extremes:
    """Return the extreme eigenvalues of the matrices of all clusters in focus.

    Parameters
    ----------
    start : ndarray (n,)
        Where the Krylov spaces begin.
    tol : float
        A smallest eigenvalue is accepted when the residual of its vector is below this share of the spread of the
        eigenvalues; its error is of the order of the square.
    least_only : bool
        Look only for the least of all smallest eigenvalues: the search ends when it is known, and no other cluster's
        can come below it. The numbers and vectors of the others are then rough.

    Notes
    -----
    Each step's vector is made orthogonal to all before it, twice. References: Lanczos, J. Res. Nat. Bur. Stand. 45
    (1950) 255; Parlett: The symmetric eigenvalue problem.
    """
    n, p = focus.members.shape
    steps = min(MOST_STEPS, n)
    basis, alpha, beta = np.zeros((p, steps, n)), np.zeros((steps, p)), np.zeros((steps, p))
    vectors = np.repeat((start / np.linalg.norm(start))[:, None], p, axis=1)
    for step in range(steps):
        basis[:, step] = vectors.T
        image = np.ascontiguousarray(_apply(focus, temperature, vectors, product).T)
        alpha[step] = np.einsum("pn,pn->p", basis[:, step], image)
        for _ in range(2):
            image -= _within(basis[:, : step + 1], image)
        beta[step] = np.linalg.norm(image, axis=1)
        low, high, small = _ritz(alpha[: step + 1], beta[:step])
        exhausted = beta[step] <= 1e-12 * np.maximum(np.abs(low), np.abs(high))
        residual = beta[step] * np.abs(small[:, -1])
        known = (residual <= tol * (high - low)) & (step > 1) | exhausted
        if known.all() or (least_only and known[np.argmin(low)] and (known | (low - residual > low.min())).all()):
            break
        vectors = np.where(exhausted, 0.0, np.ascontiguousarray(image.T) / np.where(exhausted, 1.0, beta[step]))
    found = np.einsum("pj,pjn->np", small, basis[:, : step + 1])
    found *= np.sign(found[np.abs(found).argmax(0), np.arange(p)])  # a sign that rounding does not decide
    return Extremes(low, high, found, step + 1)


def _within(basis: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the parts of vectors (p, n) that lie in the spaces of their own orthonormal rows (p, j, n).

    Not by BLAS, whose sums may depend on the number of its threads.
    """
    shares = np.einsum("pjn,pn->pj", basis, vectors)
    parts: NDArray[np.float64] = np.einsum("pj,pjn->pn", shares, basis)
    return parts


def _ritz(alpha: Columns, beta: Columns) -> tuple[Vector, Vector, Columns]:
    """Return the extreme eigenvalues (p,) of the p small tridiagonal matrices, and the vectors (p, j) of the least."""
    from scipy.linalg import eigh_tridiagonal  # unlike NumPy's eigh wakes no threads

    j, p = alpha.shape
    low, high, vectors = np.empty(p), np.empty(p), np.empty((p, j))
    for at in range(p):
        values, columns = eigh_tridiagonal(alpha[:, at], beta[:, at], lapack_driver="stev")
        low[at], high[at], vectors[at] = values[0], values[-1], columns[:, 0]
    return low, high, vectors


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
