"""Maps against scikit-learn's ``smacof`` in one run: seconds a step, memory, quality, passes; and a roofline.

Words: ``n=4000`` size of the comparison, ``large=40000`` size of the mapped int16 matrix (0 leaves it out),
``rounds=3``, ``folder=.`` where that matrix is written (2 n^2 bytes, removed at the end).

Seconds a step come from the difference of a long and a short run of each, in turns. scikit-learn runs once from the
same start (``n_init=1``, ``eps=0``, no normalised stress). Memory is the peak beyond a process that only holds the
input.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import smacof

from benches.shared._measure import alternate, cores, options_of, print_table, seconds_of, with_peak_memory
from tartan.analytics import DAMDS, as_dissimilarities

_CHUNK_BYTES = 32 << 20


def clusters(n: int) -> NDArray[np.float64]:
    """Return distances of five Gaussian clusters in ten dimensions, the largest 1."""
    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(5, 10))
    points = centres[rng.integers(0, 5, size=n)] + rng.normal(0, 1.0, size=(n, 10))
    distances: NDArray[np.float64] = squareform(pdist(points))
    return distances / distances.max()


def start(n: int) -> NDArray[np.float64]:
    """Return the start that both use."""
    return np.random.default_rng(7).uniform(-1, 1, size=(n, 3))


def ours(D: Any, X: NDArray[Any], steps: int) -> DAMDS:
    """Make plain steps."""
    return DAMDS(annealing=False, tol=0, max_iter=steps).fit(D, init=X)


def peer(D: NDArray[Any], X: NDArray[Any], steps: int) -> None:
    """Make scikit-learn's."""
    smacof(D, n_components=3, init=X, n_init=1, max_iter=steps, eps=0, normalized_stress=False)


def step_seconds(run: Callable[[int], object], short: int, long: int) -> float:
    """Return the seconds of a step, by the difference of two runs."""
    return (seconds_of(lambda: run(long)) - seconds_of(lambda: run(short))) / (long - short)


def speed(n: int, rounds: int) -> dict[str, float]:
    """Compare the seconds a step; the check of the input is made before."""
    D, X = clusters(n).astype(np.float32), start(n)
    matrix = as_dissimilarities(D)
    check = seconds_of(matrix.check)
    ours(matrix, X, 20)
    contest = alternate(
        lambda: step_seconds(lambda steps: ours(matrix, X, steps), 20, 220),
        lambda: step_seconds(lambda steps: peer(D, X, steps), 2, 6),
        rounds,
    )
    return {
        "ours_ms": 1000 * min(contest.ours),
        "peer_ms": 1000 * min(contest.peer),
        "ratio": contest.best_ratio,
        "median_ratio": contest.median_ratio,
        "check_ms": 1000 * check,
    }


def memory(n: int) -> dict[str, float]:
    """Compare the peaks beyond the input."""
    peaks = {who: with_peak_memory(__file__, "alone", who, n)[1] / 1e6 for who in ("nobody", "ours", "peer")}
    beyond = {who: peaks[who] - peaks["nobody"] for who in ("ours", "peer")}
    return {"ours_mb": beyond["ours"], "peer_mb": beyond["peer"], "ratio": beyond["peer"] / max(beyond["ours"], 1e-3)}


def alone(who: str, n: int) -> None:
    """Hold the input, and let one of them make four steps."""
    D, X = np.load(_cached(n)), start(n)
    matrix = as_dissimilarities(D)
    if who == "ours":
        ours(matrix, X, 4)
    elif who == "peer":
        peer(D, X, 4)
    time.sleep(0.3)  # long enough for a process that only holds the input to be seen
    print("{}")


def _cached(n: int) -> Path:
    return Path(tempfile.gettempdir()) / f"tartan-mds-{n}.npy"


def quality(n: int) -> dict[str, float]:
    """Compare the annealed with the plain map from the same start, in stress and in plain passes of time."""
    D, X = as_dissimilarities(np.rint(clusters(n) * 32767).astype(np.int16)), start(n)
    D.check()
    plain = DAMDS(annealing=False, accelerate="none").fit(D, init=X)
    a_pass = step_seconds(lambda steps: ours(D, X, steps), 20, 120)
    annealed = DAMDS()
    seconds = seconds_of(lambda: annealed.fit(D, init=X))
    return {
        "plain_stress": plain.stress_,
        "annealed_stress": annealed.stress_,
        "annealed_passes": annealed.n_passes_,
        "in_plain_passes": seconds / a_pass,
    }


def acceleration(n: int = 2000) -> dict[str, float]:
    """Compare the passes to the stress at which plain steps stop."""
    D, X = as_dissimilarities(np.rint(clusters(n) * 32767).astype(np.int16)), start(n)
    fast = DAMDS(annealing=False, tol=1e-11).fit(D, init=X)
    rejected = fast.n_passes_ - len(fast.history_)
    found = {}
    for tol in (1e-6, 1e-9):
        plain = DAMDS(annealing=False, tol=tol, accelerate="none").fit(D, init=X)
        passes = int(np.flatnonzero(fast.history_ <= plain.stress_ + tol)[0]) + 1 + rejected
        found |= {f"plain_{tol:g}": plain.n_passes_, f"accelerated_{tol:g}": passes}
        found[f"ratio_{tol:g}"] = plain.n_passes_ / passes
    return found


def roofline(n: int, folder: Path) -> dict[str, float]:
    """Compare a pass over a mapped int16 matrix with reading its file, and with the arithmetic of one in cache."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path = Path(name) / "large.npy"
        write_large(path, n)
        mapped = np.load(path, mmap_mode="r")
        read = min(seconds_of(lambda: read_by_threads(mapped)) for _ in range(3))
        X = start(n)
        matrix = as_dissimilarities(mapped)
        matrix.check()
        with AnonymousPeak() as beyond:
            a_pass = step_seconds(lambda steps: ours(matrix, X, steps), 1, 6)
    small = as_dissimilarities(np.rint(clusters(2000) * 32767).astype(np.int16))
    small.check()
    in_cache = step_seconds(lambda steps: ours(small, start(2000), steps), 20, 220) * (n / 2000) ** 2
    size = 2.0 * n * n / 1e9
    return {
        "read_gb_s": size / read,
        "pass_s": a_pass,
        "pass_gb_s": size / a_pass,
        "touched_gb_s": size / 2 / a_pass,
        "arithmetic_gb_s": size / in_cache,
        "share_of_bound": max(read, in_cache) / a_pass,
        "memory_beyond_mb": beyond.n_bytes / 1e6,
    }


class AnonymousPeak:
    """Most memory that this process takes meanwhile, pages of mapped files left out."""

    n_bytes = 0

    def __enter__(self) -> AnonymousPeak:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            now = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
            self.n_bytes = max(self.n_bytes, now)
            if self._done.wait(0.05):
                return


def write_large(path: Path, n: int) -> None:
    """Write distances of random points as int16, by rows."""
    points = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    array = np.lib.format.open_memmap(path, "w+", np.int16, (n, n))
    squares = (points**2).sum(axis=1)
    for first in range(0, n, 500):
        rows = slice(first, first + 500)
        apart = np.maximum(squares[rows, None] + squares - 2 * points[rows] @ points.T, 0)
        apart = np.sqrt(apart)
        apart[np.arange(len(apart)), np.arange(first, first + len(apart))] = 0
        array[rows] = np.minimum(apart * 2000, 32767)
    for first in range(0, n, 2000):  # rounding must not make it asymmetric
        for left in range(first, n, 2000):
            square = array[first : first + 2000, left : left + 2000]
            if left == first:
                square[:] = np.triu(square) + np.triu(square, 1).T
            else:
                array[left : left + 2000, first : first + 2000] = square.T
    array.flush()


def read_by_threads(mapped: NDArray[Any]) -> None:
    """Read every byte once, with a thread for each core."""
    words = mapped.reshape(-1).view(np.uint64)
    step = _CHUNK_BYTES // 8
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(lambda at: np.bitwise_xor.reduce(words[at : at + step]), range(0, len(words), step)))


def main(arguments: list[str]) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    if arguments[:1] == ["alone"]:
        alone(arguments[1], int(arguments[2]))
        return {}
    words = options_of(arguments, n=4000, rounds=3, large=40_000, folder=".")
    n, rounds = words.n, words.rounds
    np.save(_cached(n), clusters(n).astype(np.float32))
    try:
        results: dict[str, Any] = {"speed": speed(n, rounds), "memory": memory(n), "quality": quality(n)}
    finally:
        _cached(n).unlink()
    results["acceleration"] = acceleration()
    if words.large:
        results["roofline"] = roofline(words.large, Path(words.folder))
    rows = [(part, name, value) for part, values in results.items() for name, value in values.items()]
    print_table(f"DAMDS and scikit-learn's smacof, N = {n}", rows, ("what", "number", "value"))
    return results


if __name__ == "__main__":
    main(sys.argv[1:])
