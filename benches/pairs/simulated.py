"""Runs on the simulated device: how much of the measured time is what perfect overlap would take.

Three workloads of the Rocket paper (its Table 1), scaled down: fewer items, and costs such that compare, preprocess
and parse keep their shares of the whole. Caches hold the fraction of the items that the paper's host caches hold, 11
and 21 %, on the device too (microscopy, which fits there, gets that of forensics). Parsing sleeps in a thread; the
device takes its time as told; storage costs nothing.

The figure is the time that equations 1 to 3 of the paper give for the run's own number of loads, over the measured
time, from the first load to the last commit. The whole call, with its set-up, is shown beside it.

A host that takes processor time away shows in this figure like nothing else: see the last line of the table.

Words: ``only=forensics`` ``seconds=25`` ``workers=1`` ``rounds=1``; ``small`` gives the device the paper's
fraction of the items (3 and 6 %), so that its tiles hold a few pairs each; ``gaps`` records a trace and prints when the
compute engine had nothing to do.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import load_average, options_of, print_table
from tartan.core.replay.model import StageTimes, compute_model_seconds, device_seconds, host_seconds
from tartan.core.replay.node import Cost, Machine, WorkloadCosts, replay

BAR = 0.98


@dataclass(frozen=True)
class Workload:
    """One line of Table 1, and the size that it is scaled to.

    Attributes
    ----------
    paper_items : int
    parse, preprocess, compare : float
        Seconds, in the paper.
    spread : float
        Standard deviation of compare, as a fraction of its mean.
    n_items, host_slots : int
        Of the scaled run.
    small_device : int
        Slots of a device that holds the paper's fraction of the items.
    """

    paper_items: int
    parse: float
    preprocess: float
    compare: float
    spread: float
    n_items: int
    host_slots: int
    small_device: int

    def scaled(self, seconds: float) -> StageTimes:
        """Return costs for a run of about so many seconds, with the shares of the paper.

        Pairs grow with the square of the items and loads with the items, so with k times fewer items a compare must
        cost k times more, relative to a load.
        """
        compare = seconds / (self.n_items * (self.n_items - 1) / 2)
        per_load = compare / self.compare * (self.n_items - 1) / (self.paper_items - 1)
        return StageTimes(parse=self.parse * per_load, preprocess=self.preprocess * per_load, compare=compare)


WORKLOADS = {
    "forensics": Workload(4980, 0.1308, 0.0205, 0.0011, 0.01, 500, 105, 29),
    "bioinformatics": Workload(2500, 0.0369, 0.0270, 0.0021, 0.38, 1000, 112, 32),
    "microscopy": Workload(256, 0.0274, 0.0, 0.5643, 0.62, 500, 105, 105),
}


class Slow(tartan.Application):
    """Parses as slowly as it is told to; the device does the same with the rest."""

    releases_gil = True
    ragged = False

    def __init__(self, *, parse_seconds: float = 0.0) -> None:
        self.parse_seconds = parse_seconds

    def parse(self, key: str, data: Any) -> Any:
        """Sleep, then return a small array."""
        time.sleep(self.parse_seconds)
        return np.full(4, data, np.float32)

    def preprocess(self, item: Any, xp: Any) -> Any:
        """Let the device preprocess."""
        return item * 1

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return something."""
        return left[:, 0][:, None] + right[:, 0][None, :]


def run(workload: Workload, words: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """Make one run and return its figures."""
    workers, slots = words.workers, workload.small_device if words.small else workload.host_slots
    costs = workload.scaled(words.seconds)
    n = workload.n_items
    device = f"sim:compare={costs.compare * 1e9:.0f}ns,preprocess={costs.preprocess * 1e9:.0f}ns"
    start, processor = time.perf_counter(), time.process_time()
    result = tartan.allpairs(
        Slow(parse_seconds=costs.parse),
        list(range(n)),
        out=folder,
        device=f"{device},spread={workload.spread}",
        host_cache=f"{workload.host_slots}items",
        device_cache=f"{slots}items",
        workers=workers,
        trace=words.gaps,
    )
    call, processor = time.perf_counter() - start, time.process_time() - processor
    stats = result.stats
    factor = stats["load_factor"]
    modelled = compute_model_seconds(n, n * (n - 1) // 2, factor, costs, workers=workers)
    return {
        "load_factor": factor,
        "device_seconds": device_seconds(n, n * (n - 1) // 2, factor, costs),
        "host_seconds": host_seconds(n, n * (n - 1) // 2, factor, costs) / workers,
        "modelled_seconds": modelled,
        "measured_seconds": stats["wall_seconds"],
        "call_seconds": call,
        "processor_seconds": processor,
        "ratio": modelled / stats["wall_seconds"],
        "ratio_of_call": modelled / call,
        "replay_ratio": replayed(workload, costs, workers, slots),
    }


def replayed(workload: Workload, costs: StageTimes, workers: int, slots: int) -> float:
    """Return the same figure of the replay in virtual time, where nothing but the policy costs time."""
    found = replay(
        WorkloadCosts(
            workload.n_items,
            parse=Cost(costs.parse),
            preprocess=Cost(costs.preprocess),
            compare=Cost(costs.compare, workload.spread * costs.compare),
        ),
        Machine(workload.host_slots, (slots,), workers),
    )
    return found.modelled_seconds / found.seconds


def gaps(folder: Path) -> list[tuple[float, float, str]]:
    """Return when the compute engine waited: (start, seconds, what came next), longest first."""
    events = [e for e in json.loads((folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    last = max(e["ts"] + e["dur"] for e in events)
    work = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events if e["cat"] in ("compare", "preprocess"))
    found, free = [], 0.0
    for start, end, name in [*work, (last, last, "end")]:
        if start > free:
            found.append((free / 1e6, (start - free) / 1e6, name))
        free = max(free, end)
    return sorted(found, key=lambda gap: -gap[1])


def print_gaps(name: str, found: list[tuple[float, float, str]]) -> None:
    """Print how gaps add up by length, and the longest."""
    total = sum(gap[1] for gap in found)
    print(f"{name}: {len(found)} gaps of the compute engine, {total:.3f} s in all")
    for low, high in ((0, 1e-4), (1e-4, 1e-3), (1e-3, 1e-2), (1e-2, 1e9)):
        part = [gap[1] for gap in found if low <= gap[1] < high]
        print(f"  {low:g} to {high:g} s: {len(part)} gaps, {sum(part):.3f} s")
    for start, seconds, what in found[:12]:
        print(f"  at {start:8.3f} s: {1e3 * seconds:7.2f} ms, then {what}")


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, only="", seconds=25.0, workers=1, rounds=1, small=False, gaps=False)
    results: dict[str, Any] = {}
    for name, workload in WORKLOADS.items():
        if options.only not in ("", name):
            continue
        found = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
                folder = Path(place) / "run"
                found.append(run(workload, options, folder))
                if options.gaps:
                    print_gaps(name, gaps(folder))
        results[name] = max(found, key=lambda result: result["ratio"])
    rows = [
        [
            name, f"{r['load_factor']:.2f}", r["device_seconds"], r["host_seconds"], f"{r['modelled_seconds']:.2f}",
            f"{r['measured_seconds']:.2f}", f"{r['ratio']:.4f}", f">= {BAR}", f"{r['ratio_of_call']:.4f}",
            f"{r['replay_ratio']:.4f}", r["processor_seconds"],
        ]
        for name, r in results.items()
    ]  # fmt: skip
    head = ("", "R", "device s", "parse s", "model s", "measured s", "ratio", "bar", "whole call", "replay", "CPU s")
    print_table("simulated device: modelled time over measured time", rows, head)
    return results | {"load": load_average()}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
