"""Matrices with known clusters, for the tests of pairwise clustering."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.spatial.distance import pdist, squareform


@cache
def blobs(n: int, k: int = 5, dimension: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return big-endian int16 distances of n points in k Gaussian clusters, and the clusters."""
    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(k, dimension))
    labels = rng.integers(0, k, size=n)
    points = centres[labels] + rng.normal(0, 1.0, size=(n, dimension))
    distances = squareform(pdist(points))
    return np.rint(distances / distances.max() * 32767).astype(">i2"), labels


@cache
def points_and_squares(n: int, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return points of k clusters in a plane and their squared Euclidean distances, float64."""
    rng = np.random.default_rng(5)
    points = rng.normal(0, 4.0, size=(k, 2))[rng.integers(0, k, size=n)] + rng.normal(0, 1.0, size=(n, 2))
    return points, squareform(pdist(points, "sqeuclidean"))


def with_holes(D: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    """Return int16 with missing pairs."""
    holes = np.triu(np.random.default_rng(seed).random(D.shape) < share, 1)
    return np.where(holes | holes.T, -1, D.astype(np.int16)).astype(np.int16)
