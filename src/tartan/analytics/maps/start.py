"""Where an embedding begins: at random, or at the classical solution.

References
----------
Torgerson: Multidimensional scaling: I. Psychometrika 17 (1952) 401-419 (classical scaling).
Halko, Martinsson, Tropp: Finding structure with randomness. SIAM Rev. 53 (2011) 217-288 (subspace iteration).
de Silva, Tenenbaum: Sparse multidimensional scaling using landmark points. Stanford (2004).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.maps.smacof import Floats
    from tartan.analytics.matrix import Dissimilarities
    from tartan.analytics.monitor import Monitor

STARTS = ("random", "classical", "landmark")

# _EXTRA by convention: Halko, Martinsson and Tropp (2011) take 5 or 10 columns more. _ROUNDS by judgement: one or two
# do for spectra that fall, two more for those that hardly do. `tartan bench chisq` compares starts.
# _EXTRA and _ROUNDS, by convention: Halko, Martinsson and Tropp (2011) take 5 to 10 columns more and one to four
# rounds. `tartan bench chisq` compares starts.
_EXTRA = 5  # columns beside those wanted, which make the subspace converge
# By convention, see _EXTRA.
_ROUNDS = 4
# Measured: eigenvectors of 500 x 500 take 76 ms, of twice as many eight times that; each landmark costs a row of the
# matrix.
# By judgement: 500 x 500 eigenvectors take a tenth of a second; each landmark costs a row of the matrix. No benchmark.
_LANDMARKS = 500
# By judgement: a block and its products stay in the last cache. No benchmark.
_BLOCK_BYTES = 4 << 20


def start_points(name: str, D: Dissimilarities, dim: int, rng: Any, monitor: Monitor) -> Floats:
    """Return where the points begin, in stored units, shape (n, dim).

    "random": uniform between minus and plus the largest dissimilarity. "classical": the dim largest components of the
    doubly centred squares, five passes over the matrix. "landmark": the same of 500 items, and the others placed by
    their dissimilarities to those; reads no more than these rows. A missing pair counts as the mean there.
    """
    if name == "random":
        largest = D.check().largest / D.scale
        return np.asarray(rng.uniform(-1.0, 1.0, (D.n, dim)) * largest, np.float64)
    if name == "classical":
        return _classical(D, dim, rng, monitor)
    if name == "landmark":
        return _landmark(D, dim, rng)
    raise ConfigError(f"init is {name!r}; it must be an array of coordinates or one of {', '.join(STARTS)}")


def _squares(block: NDArray[Any], typical: float) -> Floats:
    """Return squared stored values; missing ones are ``typical``."""
    values: Floats = np.square(block, dtype=np.float64)
    missing = block < 0 if block.dtype.kind == "i" else ~(block >= 0)
    values[missing] = typical
    return values


def _typical(D: Dissimilarities) -> float:
    check = D.check()
    return check.total_squares / check.n_valid / D.scale**2


def _classical(D: Dissimilarities, dim: int, rng: Any, monitor: Monitor) -> Floats:
    width = min(D.n, dim + _EXTRA)
    basis = np.linalg.qr(_centre(rng.standard_normal((D.n, width))))[0]
    for number in range(_ROUNDS):
        monitor.report("classical start", round=number + 1, of=_ROUNDS + 1)
        basis = np.linalg.qr(_times_products(D, basis, monitor))[0]
    products = basis.T @ _times_products(D, basis, monitor)
    return _scale_axes(basis, (products + products.T) / 2, dim)


def _scale_axes(basis: Floats, products: Floats, dim: int) -> Floats:
    """Return the points of the largest eigenvalues in a basis; dimensions beyond those are 0."""
    values, vectors = np.linalg.eigh(products)
    order = np.argsort(values)[::-1][:dim]
    axes = basis @ vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    return np.pad(axes, ((0, 0), (0, dim - axes.shape[1])))


def _times_products(D: Dissimilarities, columns: Floats, monitor: Monitor) -> Floats:
    """Return the matrix of scalar products, -J D^2 J / 2, times some columns."""
    centred, typical = _centre(columns), _typical(D)
    out = np.empty_like(columns)
    for start, block in D.blocks(_BLOCK_BYTES):
        monitor.check()
        out[start : start + len(block)] = _squares(block, typical) @ centred
    return _centre(out) * -0.5


def _centre(columns: Floats) -> Floats:
    return np.asarray(columns - columns.mean(axis=0), np.float64)


def _landmark(D: Dissimilarities, dim: int, rng: Any) -> Floats:
    chosen = np.sort(rng.permutation(D.n)[:_LANDMARKS])
    typical = _typical(D)
    rows = np.stack([_squares(D.block(i, i + 1)[0], typical) for i in chosen.tolist()])
    among = rows[:, chosen]
    products = -0.5 * (among - among.mean(axis=0) - among.mean(axis=1)[:, None] + among.mean())
    values, vectors = np.linalg.eigh(products)
    order = np.argsort(values)[::-1][: min(dim, len(chosen))]
    roots = np.sqrt(np.maximum(values[order], 0.0))
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 1e-9 * max(roots[0], 1e-300))
    points = -0.5 * (rows - among.mean(axis=1)[:, None]).T @ (vectors[:, order] * inverse)
    return np.pad(points, ((0, 0), (0, dim - points.shape[1])))
