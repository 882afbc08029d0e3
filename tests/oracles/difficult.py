"""Rows and matrices on which programs go astray: ties, duplicates, other units, zero and constant rows."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist, squareform

#: How the rows of :func:`rows` are difficult.
KINDS = (
    "plain", "ties", "duplicates", "tiny", "huge", "zeros", "constants", "sizes", "far", "one-column", "whole-numbers",
)  # fmt: skip


def rows(kind: str, n: int = 60, d: int = 48, seed: int = 0) -> np.ndarray:
    """Return n rows, the difficult ones among them in front, in the middle and at the end."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    plain = rng.standard_normal((n, d))
    some = [0, 1, n // 2, n - 1]
    match kind:
        case "ties":
            return rng.integers(0, 3, (n, d)).astype(float)
        case "duplicates":
            return plain[rng.integers(0, n // 4, n)]
        case "tiny":
            return plain * 1e-17
        case "huge":
            return plain * 1e17
        case "zeros":
            plain[some] = 0.0
        case "constants":
            plain[some] = rng.integers(1, 4, (len(some), 1))
        case "sizes":
            plain *= 10.0 ** rng.uniform(-9, 9, (n, 1))
        case "far":
            plain = 1e4 + 0.1 * plain
        case "one-column":
            plain = np.abs(plain[:, :1])
        case "whole-numbers":
            return rng.integers(-(10**9), 10**9, (n, d))
    return plain


def distances(kind: str, n: int = 60, seed: int = 0) -> np.ndarray:
    """Return the Euclidean distances of such rows, (n, n) float64."""
    return np.asarray(squareform(pdist(rows(kind, n, 5, seed).astype(float))))


def as_groups(labels: np.ndarray) -> set[frozenset[int]]:
    """Return the groups whatever they are called."""
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


#: Names of leaves that have a meaning in Newick, in PHYLIP or to a shell, or that look alike.
NAMES = (
    "plain", "two words", "under_score", "it's", "a:b", "(x,y)", "[note]", "semi;colon", '"quoted"', "Zürich", "日本",
    "a very long name indeed, of more than ten letters", "a very long name indeed, of more than eleven", "12", "1e5",
    "-", "#1", "%s", "a/b", "Homo sapiens (GCF_000001405.40)",
)  # fmt: skip


def tree_distances(n: int, seed: int, noise: float = 0.0) -> np.ndarray:
    """Return distances along a random tree with branches of 0.1 to 1.1, each times up to 1 + noise."""
    rng = np.random.default_rng([n, seed])
    D, free, ages = np.zeros((n, n)), [[i] for i in range(n)], np.zeros(n)
    while len(free) > 1:
        a, b = (free.pop(int(rng.integers(len(free)))) for _ in range(2))
        for side in (a, b):
            ages[side] += 0.1 + rng.random()
        D[np.ix_(a, b)] = ages[a][:, None] + ages[b]
        free.append(a + b)
    D += D.T
    blur = np.triu(1 + noise * rng.random((n, n)), 1)
    return np.asarray(D * (blur + blur.T))
