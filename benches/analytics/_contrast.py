"""Cluster 4,000 items of high contrast and print the seconds of one fit, for two versions of Tartan to take turns.

python benches/analytics/_contrast.py blobs|groups
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from scipy.spatial.distance import pdist, squareform

from tartan.analytics import DAPWC

ITEMS, CLUSTERS = 4000, 8


def blobs() -> np.ndarray:
    """Return distances of points in clusters that nearly touch each other."""
    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(CLUSTERS, 10))
    return squareform(pdist(centres[rng.integers(0, CLUSTERS, size=ITEMS)] + rng.normal(0, 1.0, size=(ITEMS, 10))))


def groups() -> np.ndarray:
    """Return 0.2 within groups and 1 between them, with noise."""
    truth = np.arange(ITEMS) % CLUSTERS
    D = np.where(truth[:, None] == truth, 0.2, 1.0)
    D += np.triu(np.random.default_rng(0).normal(0, 0.8 / 30, D.shape), 1)
    D = np.triu(D, 1)
    return D + D.T


def main(kind: str) -> None:
    """Print the result as JSON."""
    D = np.maximum({"blobs": blobs, "groups": groups}[kind](), 0.0).astype(np.float32)
    DAPWC(2, random_state=0).fit(D[:200, :200].copy())
    start = time.perf_counter()
    DAPWC(CLUSTERS, random_state=0).fit(D)
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(sys.argv[1])
