"""One map laid onto another: the best scale, rotation, reflection and translation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.base.checks import floats
from tartan.errors import ConfigError

Floats = NDArray[np.float64]
# By arithmetic.
_FARTHEST = 1e75  # the product of two squares is still finite


@dataclass(frozen=True, eq=False)
class Alignment:
    """A similarity of space: x goes to ``scale * rotation @ x + translation``.

    Attributes
    ----------
    scale : float
    rotation : ndarray (L, L)
        Orthogonal; its determinant is -1 where ``reflected``.
    translation : ndarray (L,)
    reflected : bool
    error : float
        Root of the weighted mean of the squared distances that remain, in units of the target.
    n_points : int
        Points that were compared: those with weight, known in both maps.
    """

    scale: float
    rotation: Floats
    translation: Floats
    reflected: bool
    error: float
    n_points: int

    def apply(self, points: ArrayLike) -> Floats:
        """Return points (m, L) of the source where they lie in the target.

        Raises
        ------
        ConfigError
            If the points have another dimension.
        """
        given = np.asarray(points, np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.translation):
            raise ConfigError(
                f"points have shape {given.shape}; this alignment is of {len(self.translation)} dimensions"
            )
        moved: Floats = self.scale * (given @ self.rotation.T) + self.translation
        return moved


def align(
    source: ArrayLike,
    target: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    scale: bool = True,
    reflection: bool = True,
) -> Alignment:
    """Find how one map has to be moved to lie best on another map of the same points.

    Minimises the sum of ``w_i |s R x_i + t - y_i|^2`` in closed form.

    Parameters
    ----------
    source, target : array_like (n, L)
        Points x and y, in the same order. Points with a NaN in either are left out.
    weights : array_like (n,), optional
        w, 0 or more; default: 1.
    scale : bool
        Whether s may be other than 1.
    reflection : bool
        Whether R may mirror.

    Raises
    ------
    ConfigError
        If the maps do not fit together, or fewer than two points have weight.

    References
    ----------
    Umeyama: Least-squares estimation of transformation parameters between two point patterns. IEEE PAMI 13 (1991)
    376-380.

    Examples
    --------
    >>> x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> found = align(x, 3 * x[:, ::-1] + 1)
    >>> round(found.scale, 6), found.reflected, round(found.error, 6)
    (3.0, True, 0.0)
    """
    x, y, w = _check(source, target, weights)
    total = w.sum()
    x_mean, y_mean = w @ x / total, w @ y / total
    x, y = x - x_mean, y - y_mean
    u, sizes, v = np.linalg.svd((y * w[:, None]).T @ x)
    signs = np.ones(len(sizes))
    if not reflection and np.linalg.det(u @ v) < 0:
        signs[-1] = -1.0
    rotation = (u * signs) @ v
    spread = float(w @ (x * x).sum(1))
    # On a line, a map that must not be mirrored may fit best when it is shrunk to a point.
    factor = max(0.0, float(sizes @ signs)) / spread if scale and spread > 0 else 1.0
    rest = factor * (x @ rotation.T) - y
    error = float(np.sqrt(w @ (rest * rest).sum(1) / total))
    translation = y_mean - factor * rotation @ x_mean
    return Alignment(factor, rotation, translation, bool(np.linalg.det(rotation) < 0), error, len(w))


def _check(source: ArrayLike, target: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    x, y = floats("source", source), floats("target", target)
    if x.ndim != 2 or x.shape != y.shape or x.shape[1] == 0:
        raise ConfigError(
            f"maps of shape {x.shape} and {y.shape} cannot be laid onto each other; both have a row for each point "
            "and a column for each dimension"
        )
    w = np.ones(len(x)) if weights is None else floats("weights", weights)
    if w.shape != (len(x),):
        raise ConfigError(f"weights have shape {w.shape}; there are {len(x)} points")
    wrong = np.flatnonzero(~(w >= 0) | np.isinf(w))
    if len(wrong):
        raise ConfigError(f"the weight of point {wrong[0]} is {w[wrong[0]]}; weights must be 0 or more")
    for name, points in (("source", x), ("target", y)):
        if np.isinf(points).any():
            raise ConfigError(f"point {np.flatnonzero(np.isinf(points).any(1))[0]} of the {name} is infinite")
        farthest = np.nanmax(np.abs(points), initial=0.0)
        if farthest > _FARTHEST:
            raise ConfigError(f"the {name} reaches {farthest:g}, and its square is beyond float64; divide it by that")
    known = (w > 0) & ~np.isnan(x).any(1) & ~np.isnan(y).any(1)
    if known.sum() < 2:
        raise ConfigError(f"{int(known.sum())} points have weight and are known in both maps; two or more are needed")
    return x[known], y[known], w[known]
