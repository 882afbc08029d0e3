"""Cosine distances of 20,000 x 512 float32, from a file to a result on disk, against scikit-learn with the same cores.

The peer is ``pairwise_distances_chunked`` writing into a memory map: the whole square, since it has no other way. Both
take turns, each in a process of its own; the clock starts after the imports that everybody needs and stops when the
result is complete, ours with all its files forced to the disk. The peer is timed both ways: left in the page cache
(``seconds``) and forced to the disk (``durable``). Memory is measured in runs of its own.

Words: ``rounds=5 n=20000 d=512``.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _measure import alternate, in_process, load_average, options_of, print_table, with_peak_memory

RATIO_BAR = 1.5
MEMORY_BAR = 0.25


def make_items(path: Path, n: int, d: int) -> None:
    """Write random vectors."""
    np.save(path, np.random.default_rng(0).standard_normal((n, d), dtype=np.float32))


def run_ours(items: Path, out: Path, in_memory: bool) -> dict[str, float]:
    """Compute with Tartan; return seconds and one score."""
    import tartan
    from tartan.apps.vectors.app import Vectors

    given: Any = np.load(items) if in_memory else str(items)
    start = time.perf_counter()
    run = tartan.allpairs(Vectors(metric="cosine"), given, out=out)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "score": float(run.scores[3, 17]), "commit": run.stats["seconds_per_stage"]["commit"]}


def run_peer(items: Path, out: Path, in_memory: bool) -> dict[str, float]:
    """Compute with scikit-learn; return seconds, those until everything is on the disk, and one score."""
    from sklearn.metrics import pairwise_distances_chunked

    given = np.load(items, mmap_mode=None if in_memory else "r")
    start = time.perf_counter()
    n = len(given)
    result = np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=(n, n))
    row = 0
    for block in pairwise_distances_chunked(given, metric="cosine"):
        result[row : row + len(block)] = block
        row += len(block)
    written = time.perf_counter() - start
    result.flush()
    return {"seconds": written, "durable": time.perf_counter() - start, "score": float(result[3, 17])}


def contest(folder: Path, n: int, rounds: int) -> dict[str, float]:
    """Let both take turns."""
    durable, scores = [], []

    def once(who: str, name: str) -> float:
        out = folder / name
        result = in_process(__file__, "--child", who, folder / "items.npy", out, 0)
        _remove(out)
        scores.append(result["score"])
        if "durable" in result:
            durable.append(result["durable"])
        return float(result["seconds"])

    times = alternate(lambda: once("ours", "run"), lambda: once("peer", "peer.npy"), rounds)
    if np.ptp(scores) > 1e-5:
        raise ValueError(f"the two do not agree: {scores}")
    pairs = n * (n - 1) / 2
    return {
        "ours_seconds": min(times.ours),
        "peer_seconds": min(times.peer),
        "ours_mpairs_per_second": pairs / min(times.ours) / 1e6,
        "peer_mpairs_per_second": pairs / min(times.peer) / 1e6,
        "ratio": times.best_ratio,
        "median_ratio": times.median_ratio,
        "durable_ratio": min(durable) / min(times.ours),
        "durable_median_ratio": statistics.median(durable) / statistics.median(times.ours),
        "bar": RATIO_BAR,
    }


def memory(folder: Path, n: int, d: int) -> dict[str, dict[str, float]]:
    """Measure the peak memory of both, from a file and from memory."""
    bar = MEMORY_BAR * 4 * n * n + 4 * n * d
    found = {}
    for who in ("ours", "peer"):
        for in_memory in (0, 1):
            out = folder / "memory-run"
            _, peak = with_peak_memory(__file__, "--child", who, folder / "items.npy", out, in_memory)
            _remove(out)
            name = f"{who}, input {'in memory' if in_memory else 'on disk'}"
            found[name] = {"peak_bytes": float(peak), "bar_bytes": bar, "ratio": peak / bar}
    return found


def _remove(path: Path) -> None:
    import shutil

    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, rounds=5, n=20_000, d=512)
    n, d = options.n, options.d
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        folder = Path(name)
        make_items(folder / "items.npy", n, d)
        speed = contest(folder, n, options.rounds)
        peaks = memory(folder, n, d)
    rows: list[list[object]] = [
        ["time, best (s)", speed["ours_seconds"], speed["peer_seconds"], speed["ratio"], f">= {RATIO_BAR}"],
        ["million pairs/s", speed["ours_mpairs_per_second"], speed["peer_mpairs_per_second"], speed["ratio"], ""],
        ["time, medians", "", "", speed["median_ratio"], ""],
        ["peer forced to disk, best", "", "", speed["durable_ratio"], ""],
        ["peer forced to disk, medians", "", "", speed["durable_median_ratio"], ""],
    ]
    for where in ("on disk", "in memory"):
        ours, peer = peaks[f"ours, input {where}"], peaks[f"peer, input {where}"]
        text = f"<= {ours['bar_bytes'] / 1e6:.0f} MB"
        rows.append(
            [f"peak PSS, input {where} (MB)", ours["peak_bytes"] / 1e6, peer["peak_bytes"] / 1e6, ours["ratio"], text]
        )
    print_table(f"cosine, {n:,} x {d} float32", rows, ("", "Tartan", "scikit-learn", "ratio", "bar"))
    return {"speed": speed, "memory": peaks, "load": load_average()}


def _child(words: list[str]) -> None:
    who, items, out, in_memory = words
    run = run_ours if who == "ours" else run_peer
    print(json.dumps(run(Path(items), Path(out), bool(int(in_memory)))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2:])
    else:
        main(sys.argv[1:])
