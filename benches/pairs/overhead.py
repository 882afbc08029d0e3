"""What the runtime itself costs: a run whose compare call does nothing, divided by its tiles.

The application returns an array of zeros that exists already, in threads of this process. Tiles are 32 x 32, cut by a
grid made by hand. *Commit apart* is a run whose folder throws chunks away; the full run is shown beside it. The
third line streams: a small cache, so that each step of a panel loads a span as well. Every line is the least of
several runs. The bare loop calls compare as often and does nothing else: what nobody can do without.

The last two lines are a function of two items that does nothing much, in threads and in worker processes, in a run of
some hundred items: what a pair costs beyond a bare double loop, start and end of the workers apart.

Words: ``n=4000 few=400 rounds=3``; ``profile`` prints where the loop's time goes.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import load_average, options_of, print_table
from tartan.options import RunOptions, parse_size
from tartan.run.request import request
from tartan.run.session import RunSession, folder_grid
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest

BAR_MS = 0.5
PAIR_BARS_US = {"threads": 1.0, "processes": 2.0}
SIDE = 32
STREAMING_SLOTS = 200


class Nothing(tartan.Application):
    """Compares nothing."""

    releases_gil = True
    ragged = False

    def __init__(self) -> None:
        self._zeros = np.zeros((SIDE, SIDE), np.float32)

    def preprocess_block(self, items: Any, xp: Any) -> Any:
        """Take rows a block at a time."""
        return items

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return zeros."""
        return self._zeros[: len(left), : len(right)]


class Difference(tartan.Application):
    """Compares two numbers."""

    def __init__(self, threads: bool = True) -> None:
        self.threads = threads
        self.releases_gil = threads

    def compare_pair(self, a: int, b: int) -> float:
        """Return their distance."""
        return abs(a - b)


class Forgetful(RunFolder):
    """Throws chunks away."""

    def commit(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def make_folder(kind: type[RunFolder], path: Path, n: int, grid: dict[str, int]) -> RunFolder:
    """Create a run with a grid made by hand."""
    application = {
        "name": "nothing", "kind": "object", "source": "", "source_hash": "", "parameters": {},
        "outputs": {"scores": "<f4"}, "symmetric": True, "diagonal": False, "releases_gil": True, "ragged": False,
        "item": {"dtype": "<f4", "shape": [4]},
    }  # fmt: skip
    return kind.create(path, Manifest(application, {"kind": "all"}, n_items=n, grid=grid), None)


def resident_grid() -> dict[str, int]:
    """Return square tiles, everything resident."""
    return {"chunk": 16 * SIDE, "panel": 0, "strip": SIDE, "span": SIDE}


def streaming_grid() -> dict[str, int]:
    """Return the tiles that a small cache gets: high and narrow."""
    panel = STREAMING_SLOTS - 8
    return {"chunk": panel * 2, "panel": panel, "strip": SIDE, "span": 4}


def run_once(
    kind: type[RunFolder],
    n: int,
    grid: dict[str, int],
    device: str = "cpu",
    host_cache: str | None = None,
    around: Callable[[Callable[[], None]], None] | None = None,
) -> dict[str, float]:
    """Make one run; return its seconds and tiles."""
    items = np.zeros((n, 4), np.float32)
    options = RunOptions(
        workers=len(os.sched_getaffinity(0)),
        device=(device,),
        host_cache=parse_size(host_cache, option="--host-cache") if host_cache else None,
        quiet=True,
    )
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        folder = make_folder(kind, Path(name) / "run", n, grid)
        cut = folder_grid(folder)
        tiles = sum(1 for chunk in cut.chunks() for _ in cut.chunk_tiles(chunk))
        with RunSession(request(Nothing(), items, options)) as session:
            session.facts  # noqa: B018 - learnt before the clock starts
            if around is not None:
                around(lambda: session.execute(folder))
            else:
                session.execute(folder)
        stats = folder.stats
    return {"seconds": stats["wall_seconds"], "tiles": tiles, "commit": stats["seconds_per_stage"]["commit"]}


def bare_loop(tiles: int) -> float:
    """Return the seconds of calling compare that often."""
    app, block = Nothing(), np.zeros((SIDE, 4), np.float32)
    start = time.perf_counter()
    for _ in range(tiles):
        app.compare(block, block, np)
    return time.perf_counter() - start


def pair_overhead(n: int, threads: bool, rounds: int) -> dict[str, float]:
    """Return what a pair costs in a run and in a bare double loop, in microseconds."""
    app, items, pairs = Difference(threads), list(range(n)), n * (n - 1) / 2
    runs, loops = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
            run = tartan.allpairs(app, items, Path(name) / "run", quiet=True)
            runs.append(float(run.stats["wall_seconds"]))
        start = time.perf_counter()
        [[app.compare_pair(items[i], items[j]) for j in range(i + 1, n)] for i in range(n)]
        loops.append(time.perf_counter() - start)
    run_us, bare_us = 1e6 * min(runs) / pairs, 1e6 * min(loops) / pairs
    return {"run_us": run_us, "bare_us": bare_us, "overhead_us": run_us - bare_us}


def profile(n: int) -> None:
    """Print where the loop between scheduler and workers spends its time."""
    profiler = cProfile.Profile()
    run_once(Forgetful, n, resident_grid(), around=lambda call: profiler.runcall(call))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, n=4000, few=400, rounds=3, profile=False)
    n, rounds = options.n, options.rounds
    if options.profile:
        profile(n)
    cases: dict[str, tuple[Any, ...]] = {
        "cpu, commit apart": (Forgetful, n, resident_grid()),
        "cpu, with commit": (RunFolder, n, resident_grid()),
        "cpu, streaming, commit apart": (Forgetful, n // 2, streaming_grid(), "cpu", f"{STREAMING_SLOTS}items"),
        "sim, commit apart": (Forgetful, n, resident_grid(), "sim"),
    }
    results: dict[str, Any] = {}
    for name, case in cases.items():
        best = min((run_once(*case) for _ in range(rounds)), key=lambda found: found["seconds"])
        best["ms_per_tile"] = 1e3 * best["seconds"] / best["tiles"]
        best["bare_ms"] = 1e3 * bare_loop(int(best["tiles"])) / best["tiles"]
        results[name] = best
    rows = [
        [name, int(r["tiles"]), r["seconds"], r["ms_per_tile"], r["bare_ms"], f"<= {BAR_MS}" if not i else ""]
        for i, (name, r) in enumerate(results.items())
    ]
    print_table(
        f"overhead of an empty {SIDE} x {SIDE} tile",
        rows,
        ("", "tiles", "seconds", "ms/tile", "bare loop ms", "bar"),
    )
    functions = {kind: pair_overhead(options.few, kind == "threads", rounds) for kind in PAIR_BARS_US}
    print_table(
        f"a function of two items, {options.few} items",
        [[k, r["bare_us"], r["run_us"], r["overhead_us"], f"<= {PAIR_BARS_US[k]}"] for k, r in functions.items()],
        ("", "bare loop us", "run us", "more us", "bar"),
    )
    return results | {"functions": functions, "load": load_average()}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
