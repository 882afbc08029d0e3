"""The sort of numbers in memory against ``np.sort``, in one run, for every path that this machine has.

Times are of the processor (all threads together), so that others on the machine disturb less; wall times stand beside
them. Structured input is compared with random input of the same path.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benches.shared._measure import options_of
from tartan import _native

N = 10_000_000
ROUNDS = 3
DTYPES = ("int64", "uint32", "float64")
PATHS = ("avx512", "avx2", "radix")


def shapes(n: int) -> dict[str, np.ndarray]:
    """Return inputs that break naive sorts, as int64."""
    rng = np.random.default_rng(1)
    steps = np.arange(n)
    return {
        "random": rng.integers(-(1 << 63), (1 << 63) - 1, n),
        "all equal": np.full(n, 7),
        "two values": rng.integers(0, 2, n),
        "sorted": steps,
        "reversed": steps[::-1].copy(),
        "Zipf": rng.zipf(1.3, n),
        "organ pipe": np.minimum(steps, n - steps),
        "extremes": np.where(steps % 2, np.iinfo(np.int64).min, np.iinfo(np.int64).max),
    }


def best(numbers: np.ndarray, sort: Callable[[np.ndarray], object]) -> tuple[float, float]:
    """Return the least processor and wall seconds of sorting copies."""
    times = []
    for _ in range(ROUNDS):
        copy = numbers.copy()
        cpu, wall = time.process_time(), time.perf_counter()
        sort(copy)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(t[0] for t in times), min(t[1] for t in times)


def available(path: str) -> bool:
    """Return whether this machine has the instructions of a path."""
    try:
        _native.sort_keys(np.zeros(1), path, 1)
    except ValueError:
        return False
    return True


def peers(n: int) -> None:
    """Print each path against NumPy."""
    rng = np.random.default_rng(2)
    print("| dtype | sort | threads | processor ns a key | wall ns a key | NumPy / it (processor) |")
    print("|---|---|---|---|---|---|")
    for dtype in DTYPES:
        bits = rng.integers(0, 1 << 32, n, dtype=np.uint32)
        numbers = bits if dtype == "uint32" else rng.standard_normal(n) if dtype == "float64" else shapes(n)["random"]
        cpu, wall = best(numbers, np.ndarray.sort)
        print(f"| {dtype} | NumPy | 1 | {cpu / n * 1e9:.2f} | {wall / n * 1e9:.2f} | 1 |")
        for path in filter(available, PATHS):
            for threads in (1, 2):
                mine = best(numbers, partial(_native.sort_keys, path=path, threads=threads))
                ns = [seconds / n * 1e9 for seconds in mine]
                print(f"| {dtype} | {path} | {threads} | {ns[0]:.2f} | {ns[1]:.2f} | {cpu / mine[0]:.2f} |")


def structure(n: int) -> None:
    """Print how structured input compares with random input."""
    print("| int64 | processor ns a key | against random |")
    print("|---|---|---|")
    random = 0.0
    for name, numbers in shapes(n).items():
        cpu, _ = best(numbers, lambda a: _native.sort_keys(a, "auto", 1))
        random = random or cpu
        print(f"| {name} | {cpu / n * 1e9:.2f} | {cpu / random:.2f} |")


def main(arguments: Sequence[str] = ()) -> None:
    """Run both tables for ``n=`` numbers."""
    n = options_of(arguments, n=N).n
    peers(n)
    print()
    structure(n)


if __name__ == "__main__":
    main(sys.argv[1:])
