"""Pairwise clustering of clear groups, many and unequal ones, and of none: right, and in what time.

- clear: points around centres in 30 dimensions, with their number and without; the largest distance within a group is
  below half of the smallest between two. Times are shares of that of average linkage of the same matrix, cut at the
  right number.
- spread: 2,000 items without groups, divided all the same, and average linkage of them.
- none: 300 items without groups, of which one cluster is to be found where no number is given.

    tartan bench groups [seeds=10] [largest=500] [parts=clear,spread,none]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

from benches.shared._measure import load_average, options_of, print_table
from tartan.analytics import cluster

NUMBERS = (20, 40, 76, 100, 200, 500)
RIGHT, TIMES, EXTRA_SECONDS = 0.999, 3.0, 2.0
MOST_ITEMS = 5000
SPREAD_ITEMS, SPREAD_NUMBERS = 2000, (6, 12, 24, 60)
NONE_ITEMS, NONE_RIGHT = 300, 0.9


def sizes_of(n_groups: int, unequal: bool, rng: np.random.Generator) -> np.ndarray:
    """Return sizes from 3 to 20 or to 300, as often in each octave; smaller where there would be too many items."""
    most = 300 if unequal else 20
    sizes = np.exp(rng.uniform(np.log(3), np.log(most), n_groups)).astype(int)
    return np.maximum(3, (sizes * min(1.0, MOST_ITEMS / sizes.sum())).astype(int))


def clear_groups(sizes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances (n, n) of clear groups in any order, and the group of each item."""
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = rng.standard_normal((len(sizes), 30)) * 10
    D = squareform(pdist(centres[labels] + 0.5 * rng.standard_normal((len(labels), 30))))
    same = labels[:, None] == labels
    assert 2 * D[same].max() < D[~same].min(), "the groups are not clear"
    return D.astype(np.float32), labels


def timed(D: np.ndarray, labels: np.ndarray, k: int | None, method: str | None = None) -> tuple[float, float]:
    """Return the adjusted Rand index of what is found, and the seconds that it takes."""
    began = time.perf_counter()
    found = cluster(D, k, method=method)
    return float(adjusted_rand_score(labels, found.labels)), time.perf_counter() - began


def without_groups(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the distances (n, n) of points in one group: of a cube, a heap, directions, a ring or a sphere."""
    shape, dimensions = kind.split()[0], int(kind.split()[1])
    points = rng.random((n, dimensions)) if shape == "cube" else rng.standard_normal((n, dimensions))
    if shape in ("ring", "sphere"):
        points /= np.linalg.norm(points, axis=1)[:, None]
    D: np.ndarray = squareform(pdist(points, "cosine" if shape == "cosine" else "euclidean"))
    return D.astype(np.float32)


KINDS = ("cube 2", "cube 10", "cube 50", "heap 2", "heap 10", "heap 50", "cosine 2", "cosine 10", "cosine 50")
SURFACES = ("ring 2", "sphere 3")


def measure_spread() -> bool:
    """Print how long items without groups take; return whether the bar is met."""
    rows, met = [], True
    for kind in ("cube 2", "heap 10", "cosine 10"):
        D = without_groups(kind, SPREAD_ITEMS, np.random.default_rng(0))
        nobody = np.zeros(len(D), int)
        _, average = timed(D, nobody, 2, "average")
        seconds = [timed(D, nobody, k)[1] for k in SPREAD_NUMBERS]
        met &= max(seconds) <= TIMES * average + EXTRA_SECONDS
        rows.append((kind, average, *seconds))
    print_table("2,000 items without groups", rows, ("", "average linkage, s", *(f"{k}, s" for k in SPREAD_NUMBERS)))
    return met


def count_none(seeds: int) -> bool:
    """Print how often one cluster is found where there are no groups; return whether the bar is met."""
    rows, met = [], True
    for kind in (*KINDS, *SURFACES):
        drawn = (without_groups(kind, NONE_ITEMS, np.random.default_rng(seed)) for seed in range(seeds))
        found = sum(cluster(D).n_clusters == 1 for D in drawn)
        met &= found >= NONE_RIGHT * seeds
        rows.append((kind, f"{found} of {seeds}"))
    print_table("300 items without groups", rows, ("", "one cluster"))
    return met


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 1 where a bar is missed."""
    options = options_of(arguments, seeds=10, largest=500, parts="clear,spread,none")
    met = "clear" not in options.parts or measure_clear(options)
    met &= "spread" not in options.parts or measure_spread()
    met &= "none" not in options.parts or count_none(2 * options.seeds)
    print(f"bars {'met' if met else 'MISSED'}: all right, and up to 2,000 items at most 3 x average linkage + 2 s")
    print(f"load average {load_average():.1f}")
    return 0 if met else 1


def measure_clear(options: Any) -> bool:
    """Print how often clear groups are found, and in what time; return whether the bars are met."""
    rows, met = [], True
    for unequal in (False, True):
        for n_groups in (number for number in NUMBERS if number <= options.largest):
            right, shares, n_most, in_time = [0, 0], [0.0, 0.0], 0, True
            for seed in range(options.seeds):
                rng = np.random.default_rng([seed, n_groups, unequal])
                D, labels = clear_groups(sizes_of(n_groups, unequal, rng), rng)
                n_most = max(n_most, len(D))
                _, average = timed(D, labels, n_groups, "average")
                for place, k in enumerate((n_groups, None)):
                    index, seconds = timed(D, labels, k)
                    right[place] += index >= RIGHT
                    shares[place] = max(shares[place], seconds / average)
                    in_time &= len(D) > 2000 or seconds <= TIMES * average + EXTRA_SECONDS
            met &= in_time and right == [options.seeds] * 2
            counts = [f"{found} of {options.seeds}" for found in right]
            rows.append((n_groups, "3 to 300" if unequal else "3 to 20", n_most, *counts, *shares))
    heads = ("groups", "sizes", "items, most", "right with k", "without k", "longest / average linkage", "without k")
    print_table("Clear groups", rows, heads)
    return met


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
