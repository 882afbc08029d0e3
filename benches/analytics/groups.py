"""Pairwise clustering of clear groups, many and unequal ones, with and without their number: right, and in what time.

Points around centres in 30 dimensions; the largest distance within a group is below half of the smallest between two.
Times are shares of that of average linkage of the same matrix, cut at the right number.

    tartan bench groups [seeds=10] [largest=500]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

from benches.shared._measure import load_average, options_of, print_table
from tartan.analytics import cluster

NUMBERS = (20, 40, 76, 100, 200, 500)
RIGHT, TIMES, EXTRA_SECONDS = 0.999, 3.0, 2.0
MOST_ITEMS = 5000


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


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 where a bar is missed."""
    options = options_of(arguments, seeds=10, largest=500)
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
    print(f"bars {'met' if met else 'MISSED'}: all right, and up to 2,000 items at most 3 x average linkage + 2 s")
    print(f"load average {load_average():.1f}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
