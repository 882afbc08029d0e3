"""Linkage over rows on disk against fastcluster, else SciPy, on the same distances, in turn.

    tartan bench linkage [n=16000] [methods=average] [rounds=3] [folder=.] [peer=1]

Points of 16 dimensions in groups of 50, float32, in a .npy file. Ours is ``tartan.analytics.linkage`` in a process of
its own with 100 MB for rows: with the check of the input, and the join alone (from what its progress says). The peer
joins condensed float64 pairs, which takes 8 n^2 bytes with SciPy's copy; ``peer=0`` leaves it out, for an n of which
that is too much.

Bars: the join at least 1.5 times as fast as fastcluster; at most 300 MB; heights equal to 1e-12 of themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benches.shared._measure import alternate, options_of, print_table
from tartan.analytics import Monitor, linkage

BYTES = 300e6
TIMES = 1.5
CLOSE = 1e-12
# By judgement: a block of rows of 100,000 points takes 200 MB.
ROWS = 256


class Joining(Monitor):
    """Notes when the join began."""

    began = 0.0

    def report(self, phase: str, **numbers: Any) -> None:
        if numbers.get("joined") == 0 and not self.began:
            self.began = time.perf_counter()


def write_distances(path: Path, n: int) -> None:
    """Write a symmetric matrix of distances: each pair is computed once, in squares."""
    rng = np.random.default_rng(1)
    groups = max(1, n // 50)
    points = (3 * rng.normal(size=(groups, 16)))[rng.integers(0, groups, n)] + rng.normal(size=(n, 16))
    squared = np.square(points).sum(axis=1)
    array = np.lib.format.open_memmap(path, "w+", np.float32, (n, n))
    for i in range(0, n, ROWS):
        rows = slice(i, i + ROWS)
        products = points[rows] @ points[i:].T
        found = np.sqrt(np.maximum(squared[rows, None] + squared[i:] - 2 * products, 0)).astype(np.float32)
        side = found.shape[0]
        found[:, :side] = np.triu(found[:, :side], 1)
        found[:, :side] += found[:, :side].T.copy()
        array[rows, i:] = found
        array[i:, rows] = found.T
    array.flush()


def ours(path: str, method: str) -> None:
    """Link, and print what it took; in a process of its own."""
    start, monitor = time.perf_counter(), Joining()
    found = linkage(path, method, memory="100MB", monitor=monitor)
    end = time.perf_counter()
    np.save(f"{path}.{method}.npy", np.sort(found[:, 2]))
    status = Path("/proc/self/status").read_text()  # that of rusage begins with the parent's
    peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    print(json.dumps({"all": end - start, "join": end - monitor.began, "peak": peak}))


def peer(path: str, method: str) -> tuple[str, float, np.ndarray]:
    """Link by the peer; return its name, seconds and heights."""
    array = np.load(path, mmap_mode="r")
    n, at = len(array), 0
    pairs = np.empty(n * (n - 1) // 2)
    for i in range(n):
        pairs[at : at + n - 1 - i] = array[i, i + 1 :]
        at += n - 1 - i
    try:
        import fastcluster as library

        options = {"preserve_input": False}
    except ImportError:
        from scipy.cluster import hierarchy as library

        options = {}
    start = time.perf_counter()
    found = library.linkage(pairs, method, **options)
    return library.__name__, time.perf_counter() - start, np.sort(found[:, 2])


def measure(path: Path, method: str, rounds: int, *, with_peer: bool) -> dict[str, Any]:
    """Let both take turns; return times, memory and the largest difference of heights."""
    told: dict[str, Any] = {}
    peaks, alls = [], []

    def run_ours() -> float:
        words = [sys.executable, __file__, str(path), method]
        seen = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        said = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, env=seen).stdout)
        peaks.append(said["peak"])
        alls.append(said["all"])
        return float(said["join"])

    def run_peer() -> float:
        told["peer"], seconds, told["heights"] = peer(str(path), method)
        return seconds

    if not with_peer:
        joins = [run_ours() for _ in range(rounds)]
        return {"join": min(joins), "all": min(alls), "peak": max(peaks)}
    contest = alternate(run_ours, run_peer, rounds)
    mine, heights = np.load(f"{path}.{method}.npy"), told.pop("heights")
    told["difference"] = float(np.max(np.abs(mine - heights) / np.maximum(heights, np.finfo(float).tiny)))
    times = {"join": min(contest.ours), "peer_seconds": min(contest.peer), "times": contest.median_ratio}
    return {**times, "all": min(alls), "peak": max(peaks), **told}


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Print one table; return the numbers."""
    given = options_of(arguments, n=16_000, methods="average", rounds=3, folder=".", peer=1)
    results = {}
    with TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "D.npy"
        write_distances(path, given.n)
        for method in given.methods.split(","):
            results[method] = measure(path, method, given.rounds, with_peer=bool(given.peer))
    keys = ["join", "all", "peak", "peer", "peer_seconds", "times", "difference"]
    rows = [[method, given.n, *(found.get(key, "") for key in keys)] for method, found in results.items()]
    print_table("linkage", rows, ["method", "items", "join s", "all s", "peak", "peer", "s", "times", "difference"])
    met = all(
        found["peak"] <= BYTES and found.get("times", TIMES) >= TIMES and found.get("difference", 0.0) <= CLOSE
        for found in results.values()
    )
    print(f"bars {'met' if met else 'MISSED'}")
    return {"n": given.n, "methods": results, "met": met}


if __name__ == "__main__":
    ours(*sys.argv[1:])
