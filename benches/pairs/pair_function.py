"""Python functions of two items: two workers against one, and the cost of calling them from a tile.

Scaling: pure Python that holds the interpreter lock for tens of microseconds, in worker processes. Both numbers of
workers take turns; the clock is the run's own, from the first load to the last commit. What two bare loops in two
processes gain over one is shown beside it: a machine whose cores are busy or shared has no more to give.

Overhead: what a pair costs on one worker beyond a bare double loop over the same function in this process, for a
function that does nothing much. The last line counts the whole call too: start and end of the workers, creation of the
run.

Words: ``n=450 trivial=1600 rounds=5``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tartan
from benches.shared._measure import alternate, cores, environment, load_average, options_of, print_table, seconds_of

SCALING_BAR = 1.8
OVERHEAD_BAR_US = 2.0
STEPS = 600


def busy(a: int, b: int) -> float:
    """Take tens of microseconds of the interpreter's time."""
    x = min(a, b) * 31 + max(a, b)  # symmetric, or the run would be refused
    for _ in range(STEPS):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x / 0x7FFFFFFF


def trivial(a: int, b: int) -> float:
    """Do nothing much."""
    return a * b


def run_seconds(function: Callable[[int, int], float], n: int, workers: int) -> tuple[float, float]:
    """Return the seconds of the run itself and of the whole call."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        start = time.perf_counter()
        run = tartan.allpairs(function, list(range(n)), out=Path(name) / "run", workers=workers)
        return float(run.stats["wall_seconds"]), time.perf_counter() - start


def bare_loop(function: Callable[[int, int], float], n: int) -> float:
    """Return the seconds of a double loop that keeps the scores."""
    items = list(range(n))

    def loop() -> list[list[float]]:
        return [[function(items[i], items[j]) for j in range(i + 1, n)] for i in range(n)]

    return seconds_of(loop)


def machine_scaling(n: int, rounds: int) -> float:
    """Return how much more two bare loops in two processes do than one alone."""

    def together(count: int) -> float:
        words = [sys.executable, __file__, "--bare", str(n)]
        loops = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(count)]
        return max(float(loop.communicate()[0]) for loop in loops)

    times = alternate(lambda: together(2), lambda: together(1), rounds)
    return 2 * times.best_ratio


def scaling(n: int, rounds: int) -> dict[str, float]:
    """Compare two workers with one."""
    times = alternate(lambda: run_seconds(busy, n, 2)[0], lambda: run_seconds(busy, n, 1)[0], rounds)
    pairs = n * (n - 1) / 2
    return {
        "two_seconds": min(times.ours),
        "one_seconds": min(times.peer),
        "ratio": times.best_ratio,
        "median_ratio": times.median_ratio,
        "machine_ratio": machine_scaling(n, rounds),
        "bare_us": 1e6 * bare_loop(busy, n // 2) / (n // 2 * (n // 2 - 1) / 2),
        "one_us": 1e6 * min(times.peer) / pairs,
        "bar": SCALING_BAR,
    }


def overhead(n: int, rounds: int) -> dict[str, float]:
    """Compare one worker with a bare loop."""
    whole: list[float] = []

    def ours() -> float:
        run, call = run_seconds(trivial, n, 1)
        whole.append(call)
        return run

    times = alternate(ours, lambda: bare_loop(trivial, n), rounds)
    pairs = n * (n - 1) / 2
    bare = min(times.peer)
    return {
        "bare_us": 1e6 * bare / pairs,
        "run_us": 1e6 * min(times.ours) / pairs,
        "call_us": 1e6 * min(whole) / pairs,
        "overhead_us": 1e6 * (min(times.ours) - bare) / pairs,
        "overhead_of_call_us": 1e6 * (min(whole) - bare) / pairs,
        "bar": OVERHEAD_BAR_US,
    }


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, n=450, trivial=1600, rounds=5)
    many = scaling(options.n, options.rounds)
    few = overhead(options.trivial, options.rounds)
    two, one = many["two_seconds"], many["one_seconds"]
    rows: list[list[object]] = [
        [f"{many['bare_us']:.0f} us of Python, 1 and 2 workers (s)", one, two, many["ratio"], f">= {SCALING_BAR}"],
        ["the same, medians", "", "", many["median_ratio"], ""],
        ["bare loops, 1 and 2 processes", "", "", many["machine_ratio"], ""],
        ["trivial function, bare loop and run (us)", few["bare_us"], few["run_us"], few["overhead_us"], ""],
        ["trivial function, bare loop and call (us)", few["bare_us"], few["call_us"], few["overhead_of_call_us"], ""],
    ]
    rows[3][4] = f"<= {OVERHEAD_BAR_US} us"
    print_table(f"functions of a pair ({cores()} cores)", rows, ("", "peer", "Tartan", "ratio or more", "bar"))
    return {"scaling": many, "overhead": few, "load": load_average()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        print(bare_loop(busy, int(sys.argv[2])))
    else:
        main(sys.argv[1:])
