"""Matrices whose maps are known: by other programs, or because they were made from points."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

Floats = NDArray[np.float64]


@cache
def clusters(n: int) -> Floats:
    """Return distances of five Gaussian clusters in ten dimensions, the largest 1."""
    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(5, 10))
    labels = rng.integers(0, 5, size=n)
    points = centres[labels] + rng.normal(0, 1.0, size=(n, 10))
    distances: Floats = squareform(pdist(points))
    return distances / distances.max()


def as_int16(distances: Floats, order: str = ">") -> NDArray[np.int16]:
    """Return distances as 16-bit numbers, 32767 for 1."""
    return np.rint(distances * 32767).astype(f"{order}i2")


def start(n: int) -> Floats:
    """Return the start that goes with ``clusters``."""
    return np.random.default_rng(7).uniform(-1, 1, size=(n, 3))


def weights_and_missing() -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Return symmetric weights for 500 items, and a symmetric tenth of the pairs."""
    rng = np.random.default_rng(3)
    upper = np.triu(rng.integers(1, 32768, size=(500, 500)), 1)
    weights = upper + upper.T
    weights[np.diag_indices(500)] = 32767
    missing = np.triu(rng.random((500, 500)) < 0.1, 1)
    return weights.astype(">i2"), missing | missing.T


def with_diagonal(stress: float, distances: NDArray[Any], missing: Any = False) -> float:
    """Return a stress as a program has it that counts the diagonal, at the smallest positive dissimilarity."""
    values = np.where(missing, 0.0, np.asarray(distances, np.float64))
    own = len(values) * values[values > 0].min() ** 2
    squares = float((values**2).sum())
    return (stress * squares + own) / (squares + own)


def points_and_distances(n: int, dim: int = 3, seed: int = 0) -> tuple[Floats, Floats]:
    """Return random points and their distances."""
    points = np.random.default_rng(seed).normal(size=(n, dim))
    return points, squareform(pdist(points))


def same_shape(found: Floats, expected: Floats, tolerance: float) -> bool:
    """Whether two maps have the same distances."""
    return bool(np.allclose(pdist(found), pdist(expected), rtol=0, atol=tolerance))
