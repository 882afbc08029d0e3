"""Dissimilarities of items in known groups that are hardly nearer to their own group than to the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ODDITIES = ("", "duplicate", "copies", "single")


def groups(gap: float, sizes: list[int], seed: int, oddity: str = "") -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return D (n, n) and the group of each item.

    D is 1 - gap within groups and 1 between them, with normal noise of gap / 30 (standard deviation). An oddity is a
    pair of two of one group at distance 0, three copies of one item, or one item more, at 1 from all others.
    """
    generator = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    n = len(truth)
    D = np.where(truth[:, None] == truth, 1.0 - gap, 1.0) + generator.normal(0, gap / 30, (n, n))
    D = np.maximum(np.triu(D, 1), 0.0)
    D += D.T
    if oddity == "duplicate":
        D[0, 1] = D[1, 0] = 0.0
    if oddity == "copies":
        D[1:3], D[:, 1:3] = D[0], D[:, :1]
        D[:3, :3] = 0.0
    if oddity == "single":
        D, truth = np.pad(D, (0, 1), constant_values=1.0), np.append(truth, len(sizes))
        D[-1, -1] = 0.0
    return D, truth


def noisy(gap: float, sizes: list[int], seed: int) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return D (n, n) with noise as large as the gap, so that groups show in their means only, and the groups."""
    generator = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    D = np.where(truth[:, None] == truth, 1.0 - gap, 1.0) + generator.normal(0, gap, (len(truth), len(truth)))
    D = np.maximum(np.triu(D, 1), 0.0)
    return D + D.T, truth
