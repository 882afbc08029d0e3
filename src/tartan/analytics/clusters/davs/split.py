"""Decisions of vector-sponge clustering on sums: which clusters split and how, which are too close. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Splits:
    """Clusters to split, the most unstable first, and the way their children go, in coordinates."""

    clusters: NDArray[np.int64]
    displacements: Floats


def find_splits(
    moments: Floats, counts: Floats, widths: Floats, scales: Floats, eligible: NDArray[np.bool_], temperature: float
) -> Splits:
    """Find the clusters that a phase transition splits.

    Parameters
    ----------
    moments : ndarray, shape (K, d (d + 1) / 2 + d)
        As `Field.moments` gives them.
    counts, widths : ndarray, shape (K,)
        Mass of each cluster, and its mean energy.
    scales : ndarray, shape (K, d)
        Squares of the standard deviations.
    eligible : ndarray of bool, shape (K,)
        Which may split.
    temperature : float
        A cluster is unstable when the largest eigenvalue of its scaled covariance is above it.
    """
    chosen = np.flatnonzero(eligible)
    dim = scales.shape[1]
    covariance = _squares(moments[chosen, :-dim], dim) / counts[chosen, None, None]
    values, vectors = np.linalg.eigh(covariance)
    largest, direction = values[:, -1], vectors[:, :, -1]
    excess = 0.5 * counts[chosen] * (1 - largest / temperature)
    unstable = np.flatnonzero(excess < 0)
    unstable = unstable[np.argsort(excess[unstable], kind="stable")]
    clusters = chosen[unstable]
    direction = _signed(direction[unstable])
    slope = np.abs((direction * moments[clusters, -dim:]).sum(axis=1))
    root = np.sqrt(widths[clusters])
    with np.errstate(divide="ignore"):
        length = np.clip(0.025 * counts[clusters] / slope, 0.05 * root, 0.2 * root)
    return Splits(clusters, length[:, None] * direction * np.sqrt(scales[clusters]))


def _squares(upper: Floats, dim: int) -> Floats:
    out = np.empty((len(upper), dim, dim))
    rows, columns = np.triu_indices(dim)
    out[:, rows, columns] = upper
    out[:, columns, rows] = upper
    return out


def _signed(vectors: Floats) -> Floats:
    """Return vectors whose largest component is positive: eigenvectors come with either sign."""
    largest = np.argmax(np.abs(vectors), axis=1)
    signs = np.sign(vectors[np.arange(len(vectors)), largest])
    turned: Floats = vectors * signs[:, None]
    return turned


def close_pairs(positions: Floats, scales: Floats, limit: float) -> NDArray[np.int64]:
    """Return pairs of centres with a scaled squared distance below ``limit``, shape (m, 2).

    Distances take the smaller scale of the two. Cost: the sort along coordinate 0, and a pass for each neighbour there
    that is near enough in this coordinate alone.
    """
    order = np.argsort(positions[:, 0], kind="stable")
    y, s = positions[order], scales[order]
    # Scales may grow along coordinate 0; a distance measured with the largest one is never too large.
    widest = s[:, 0].max(initial=0.0)
    found = [np.empty((0, 2), dtype=np.int64)]
    for gap in range(1, len(y)):
        near = np.flatnonzero(np.square(y[gap:, 0] - y[:-gap, 0]) < limit * widest)
        if not len(near):
            break
        far = near + gap
        energy = (np.square(y[near] - y[far]) / np.minimum(s[near], s[far])).sum(axis=1)
        close = energy < limit
        found.append(np.column_stack([order[near[close]], order[far[close]]]))
    return np.concatenate(found)
