"""Tiles of the vectors application against SciPy ``cdist`` and scikit-learn ``pairwise_distances``, in one run.

Each score type is float32 for Tartan and what the peer gives (float64 for SciPy). All on one core: BLAS is held to one
thread, the others have one. Tartan's tile includes ``compare`` alone (rows are prepared once a load, not once a tile);
the preparation of both operands is shown beside it.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances
from threadpoolctl import threadpool_limits

from tartan.apps.vectors.app import Vectors

SIDE = 1024
ROUNDS = 5
WIDTHS = (128, 512)
#: Metric, dtype of the items.
CASES = (
    ("cosine", "float32"),
    ("correlation", "float32"),
    ("euclidean", "float32"),
    ("euclidean", "float64"),
    ("sqeuclidean", "float32"),
    ("manhattan", "float32"),
    ("manhattan", "float64"),
    ("hamming", "uint8"),
    ("hamming", "int32"),
    ("hamming", "bool"),
    ("jaccard", "bool"),
)


def seconds(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median time of a call on this thread's processor, after one call that is not timed."""
    call()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def items(dtype: str, d: int, seed: int) -> np.ndarray:
    """Return SIDE random vectors."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return rng.standard_normal((SIDE, d)).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 5, (SIDE, d)).astype(dtype)


def far(dtype: str, d: int, seed: int) -> np.ndarray:
    """Return vectors that are close together and far from the origin, where every distance is recomputed."""
    return (items(dtype, d, seed) + 1000).astype(dtype)


def measure(metric: str, dtype: str, d: int, make: Callable[[str, int, int], np.ndarray] = items) -> dict[str, float]:
    """Return millions of pairs a second of the three, and the ratios."""
    left, right = make(dtype, d, 1), make(dtype, d, 2)
    app, out = Vectors(metric=metric), np.empty((SIDE, SIDE), np.float32)
    a, b = app.preprocess_block(left, np), app.preprocess_block(right, np)
    peer = "cityblock" if metric == "manhattan" else metric
    million_pairs = SIDE * SIDE / 1e6
    tile = seconds(lambda: app.compare(a, b, np, out=out))
    scipy = seconds(lambda: cdist(left, right, peer), 1)
    sklearn = seconds(lambda: pairwise_distances(left, right, metric=metric), 1)
    return {
        "tartan_mpairs_per_s": million_pairs / tile,
        "scipy_mpairs_per_s": million_pairs / scipy,
        "sklearn_mpairs_per_s": million_pairs / sklearn,
        "times_scipy": scipy / tile,
        "times_sklearn": sklearn / tile,
        "prepare_ms": 1000 * seconds(lambda: app.preprocess_block(left, np)),
        "check_ms": 1000 * seconds(lambda: app.check_block(left)),
    }


def main() -> dict[str, Any]:
    """Measure all cases, print a table, return the numbers."""
    results: dict[str, dict[str, float]] = {}
    print(f"tile {SIDE} x {SIDE}, one core, Mpairs/s; prepare and check: ms for {SIDE} rows")
    heads = ("tartan", "scipy", "sklearn", "x scipy", "x sklearn", "prepare", "check")
    print(f"{'metric':<28} {'d':>5}" + "".join(f"{head:>10}" for head in heads))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that it converts to booleans
        for d in WIDTHS:
            for metric, dtype in CASES:
                _row(results, f"{metric} {dtype}", d, measure(metric, dtype, d))
            _row(results, "euclidean float32 far away", d, measure("euclidean", "float32", d, far))
    return results


def _row(results: dict[str, dict[str, float]], name: str, d: int, numbers: dict[str, float]) -> None:
    results[f"{name} {d}"] = numbers
    print(f"{name:<28} {d:>5}" + "".join(f"{value:>10.1f}" for value in numbers.values()), flush=True)


if __name__ == "__main__":
    main()
