"""How well a map keeps the dissimilarities: a histogram of (delta, d) over all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.lmmds.objective import Objective, WeighedPairs
from tartan.analytics.maps.lmmds.setup import opened
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.base.checks import floats, whole
from tartan.comm.communicator import Alone, Communicator
from tartan.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Density:
    """Counts of pairs by dissimilarity and distance of the map (the cells of a Shepard diagram).

    Attributes
    ----------
    counts : ndarray of int64, shape (bins, bins)
        Unordered pairs; dissimilarity down, distance across, both from 0.
    dissimilarity_end, distance_end : float
        Where the last cells end.
    n_pairs : int
        Pairs that have a dissimilarity; those beyond the grid are not in ``counts``.
    """

    counts: NDArray[np.int64]
    dissimilarity_end: float
    distance_end: float
    n_pairs: int

    def levels(self, alpha: float = 2.0) -> NDArray[np.float64]:
        """Return the counts as levels from 0 to 1 for a picture: (count / largest)^(1 / alpha)."""
        largest = max(1, int(self.counts.max()))
        levels: NDArray[np.float64] = (self.counts / largest) ** (1.0 / alpha)
        return levels


def density(
    D: Any,
    embedding: ArrayLike,
    *,
    bins: int = 50,
    dissimilarity_end: float | None = None,
    distance_end: float | None = None,
    missing: Any = None,
    transform: Any = None,
    monitor: Monitor | None = None,
    communicator: Communicator | None = None,
) -> Density:
    """Count the pairs of a map by dissimilarity and distance.

    Parameters
    ----------
    D : array_like (n, n), Dissimilarities, Run or path
    embedding : array_like (n, L)
        The map; pairs with a point at NaN do not count.
    bins : int
        Cells along each axis.
    dissimilarity_end, distance_end : float, optional
        Where the axes end; default: a little beyond the largest dissimilarity, for both.
    missing, transform : optional
        As in :func:`tartan.analytics.matrix.as_dissimilarities`.
    monitor : Monitor, optional
    communicator : Communicator, optional

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [3.0]])
    >>> int(np.trace(density(abs(x - x.T), x).counts))
    3
    """
    matrix = opened(D, missing, transform, monitor)
    matrix.check(monitor=monitor)
    x = floats("embedding", embedding)
    if x.ndim != 2 or len(x) != matrix.n:
        raise ConfigError(f"the map has shape {x.shape}; the matrix has {matrix.n} points")
    whole("bins", bins, 1)
    pairs = WeighedPairs(matrix, communicator or Alone(), as_monitor(monitor))
    known = np.asarray(np.isfinite(x).all(axis=1))
    weights: NDArray[np.float64] = known.astype(np.float64)
    objective = Objective(scale=matrix.scale, swapped=pairs.swapped)
    survey = pairs.survey(objective, weights)
    beyond = max(survey.largest, 1e-300) * (1 + 1e-9)
    ends = (dissimilarity_end or beyond, distance_end or beyond)
    counts = pairs.density(objective, np.where(known[:, None], x, 0.0), weights, ends, (bins, bins))
    return Density(counts // 2, *ends, int(survey.links.sum()) // 2)
