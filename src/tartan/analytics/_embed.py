"""A map of any matrix in one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics._monitor import Monitor
from tartan.analytics.matrix import as_dissimilarities
from tartan.errors import ConfigError

__all__ = ["METHODS", "Embedding", "embed"]

METHODS = ("damds", "smacof", "lmmds")


@dataclass(frozen=True, eq=False)
class Embedding:
    """A map of a matrix.

    Attributes
    ----------
    points : ndarray of float64, shape (n, L)
        NaN for items that have no place.
    keys : tuple of str
        Names of the items; their numbers where the matrix has none.
    method : str
    numbers : dict
        What the method says of the map: stress or chisq, and the number of steps.
    estimator : DAMDS or LMMDS
        The fitted estimator, with everything else.
    """

    points: NDArray[np.float64]
    keys: tuple[str, ...]
    method: str
    numbers: dict[str, Any] = field(repr=False)
    estimator: Any = field(repr=False)


def embed(
    D: Any,
    method: str = "damds",
    n_components: int = 3,
    *,
    similarity: Any = None,
    transform: Any = None,
    missing: Any = None,
    output: str | None = None,
    start: ArrayLike | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> Embedding:
    """Place the items of a matrix so that distances match dissimilarities.

    Parameters
    ----------
    D : array_like, Dissimilarities, Run or path
    method : {"damds", "smacof", "lmmds"}
        Deterministic annealing; plain SMACOF from the classical solution; least squares by Levenberg and Marquardt.
    n_components : int
        Dimension of the map.
    similarity, transform, missing, output : optional
        As in :func:`tartan.analytics.as_dissimilarities`.
    start : array_like (n, L), optional
        Coordinates to begin with.
    monitor : Monitor, optional
        Progress, cancel and checkpoint.
    **options
        Parameters of ``DAMDS`` or ``LMMDS``, such as ``random_state``.

    Raises
    ------
    ConfigError
        If the method is unknown, or the matrix or an option is wrong.

    Examples
    --------
    >>> D = abs(np.arange(4.0)[:, None] - np.arange(4.0))
    >>> embed(D, "smacof", 1, random_state=0).points.shape
    (4, 1)
    """
    if method not in METHODS:
        raise ConfigError(f"method is {method!r}; it is one of {', '.join(METHODS)}")
    matrix = as_dissimilarities(D, similarity=similarity, transform=transform, missing=missing, output=output)
    matrix = matrix if matrix.array is not None else matrix.materialized()
    estimator = _estimator(method, n_components, options)
    estimator.fit(matrix, init=start, monitor=monitor)
    keys = tuple(map(str, range(matrix.n) if matrix.names is None else matrix.names))
    return Embedding(np.asarray(estimator.embedding_), keys, method, _numbers(estimator), estimator)


def _estimator(method: str, n_components: int, options: dict[str, Any]) -> Any:
    from tartan.analytics._damds import DAMDS
    from tartan.analytics._lmmds import LMMDS

    if method == "lmmds":
        return LMMDS(n_components, **options)
    if method == "smacof":
        options = {"annealing": False, "init": "classical", **options}
    return DAMDS(n_components, **options)


def _numbers(estimator: Any) -> dict[str, Any]:
    names = ("stress_", "chisq_", "n_iter_", "stop_reason_")
    return {name.rstrip("_"): getattr(estimator, name) for name in names if hasattr(estimator, name)}
