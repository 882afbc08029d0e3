"""The majorising step of SMACOF: solve V (X' - X) = B(X) X - V X.

V is the Laplacian of the weights, w_ij off the diagonal with a minus and the sums of rows on it. It has no inverse (a
common shift costs nothing); the solution without a shift is meant. Where some points are fixed, the rows and columns of
the free ones are left.

References
----------
de Leeuw, Heiser: Multidimensional scaling with restrictions on the configuration. Multivariate Analysis V (1980).
Borg, Groenen: Modern Multidimensional Scaling, 2nd ed. (2005), chapter 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.maps.smacof import Floats, Passes, inner

Mask = NDArray[np.bool_]


class Solve(Protocol):
    """Something that solves V d = r for the free points."""

    n_products: int

    def __call__(self, residual: Floats) -> Floats:
        """Return d, zero for fixed points. The residual is that of :meth:`Passes.residual`."""
        ...

    def estimate(self, residual: Floats) -> Floats:
        """Return a cheap linear approximation of d, symmetric and positive, without a pass over the matrix."""
        ...


@dataclass
class ExactSolve:
    """The closed form for unit weights: V = n I - 1 1'.

    With m fixed points the inverse of the block of the free ones is (I + 1 1' / m) / n.
    """

    n: int
    free: Mask | None = None
    n_products: int = 0

    def __call__(self, residual: Floats) -> Floats:
        """See :class:`Solve`."""
        if self.free is None:
            return residual / self.n
        kept = np.where(self.free[:, None], residual, 0.0)
        n_fixed = self.n - int(self.free.sum())
        return np.where(self.free[:, None], (kept + kept.sum(axis=0) / n_fixed) / self.n, 0.0)

    def estimate(self, residual: Floats) -> Floats:
        """See :class:`Solve`: the solution itself."""
        return self(residual)


class GradientSolve:
    """Conjugate gradients with the diagonal of V as a preconditioner, all dimensions as one vector.

    However few steps are taken, the majorising function falls, and so does the stress.

    Parameters
    ----------
    passes : Passes
    shape : (n, dim)
    free : ndarray of bool, shape (n,), optional
        The points that may move; default: all.
    max_iter : int
        Most steps.
    tol : float
        Stop when the squared residual is this small relative to the first one.

    Attributes
    ----------
    n_products : int
        How many products with V were made, each a pass over the matrix.
    """

    def __init__(self, passes: Passes, shape: tuple[int, int], free: Mask | None, *, max_iter: int, tol: float) -> None:
        self._passes, self._free, self._max_iter, self._tol = passes, free, max_iter, tol
        self._product = np.empty(shape)
        degrees = passes.product(np.zeros(shape), self._product)
        self.degrees = degrees
        self._inverse = np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)[:, None]
        self.n_products = 1

    def __call__(self, residual: Floats) -> Floats:
        """See :class:`Solve`."""
        r = self._remove_null_movement(residual)
        d, z = np.zeros_like(r), self._scale(r)
        p, rz, squared = z.copy(), inner(r, z), inner(r, r)
        stop = squared * self._tol
        for _ in range(self._max_iter):
            if squared <= stop or rz <= 0.0:
                break
            q = self._times(p)
            curvature = inner(p, q)
            if curvature <= 0.0:
                break
            step = rz / curvature
            d += step * p
            r -= step * q
            z, squared = self._scale(r), inner(r, r)
            rz, before = inner(r, z), rz
            p = z + (rz / before) * p
        return d

    def estimate(self, residual: Floats) -> Floats:
        """See :class:`Solve`: as if V were diagonal."""
        return self._scale(self._remove_null_movement(residual))

    def _times(self, points: Floats) -> Floats:
        self.n_products += 1
        self._passes.product(points, self._product)
        return self._remove_null_movement(self._product)

    def _remove_null_movement(self, values: Floats) -> Floats:
        """Leave out what is not movement: that of fixed points, or of all points together."""
        if self._free is not None:
            return np.where(self._free[:, None], values, 0.0)
        return np.asarray(values - values.mean(axis=0), np.float64)

    def _scale(self, values: Floats) -> Floats:
        return self._remove_null_movement(self._inverse * values)
