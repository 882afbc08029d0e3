"""Loads of real runs against the bound, for both orders, and against the replay of the same run.

The items are a few numbers each, so that a run is over soon; loads depend on n, on the slots S and on the order
only. Panel runs are made twice, on the CPU and on the simulated device. The replay of each run in virtual time must
make the same loads.

Words: ``slots=100,128`` ``times=5,10,20,50`` (n as multiples of S).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import load_average, options_of, print_table
from tartan.base.machine import usable_cores
from tartan.core.pairs.bound import loads_bound
from tartan.core.replay.node import Cost, Machine, WorkloadCosts, replay
from tartan.run.session import folder_grid
from tartan.store.folder import RunFolder

BARS = {5: 1.25, 10: 1.15, 20: 1.1, 50: 1.1}
QUADRANT_BAR = 2.5
QUADRANT_TIMES = (5, 10)
DEVICE_SHARE = 0.4


class Sums(tartan.Application):
    """Cheap on purpose."""

    releases_gil = True
    ragged = False

    def preprocess_block(self, items: Any, xp: Any) -> Any:
        """Make a device of its own preprocess."""
        return items + 0

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return sums of first values."""
        return left[:, 0][:, None] + right[:, 0][None, :]


def real_run(folder: Path, n: int, slots: int, order: str, device: str) -> int:
    """Run and return the loads."""
    items = np.arange(n * 2, dtype=np.float32).reshape(n, 2)
    run = tartan.allpairs(
        Sums(),
        items,
        out=folder,
        host_cache=f"{slots}items",
        device_cache=f"{device_slots(slots)}items",
        order=order,
        device=device,
    )
    if run.stats["host_peak"] > slots:
        raise ValueError(f"{run.stats['host_peak']} slots were in use, {slots} were allowed")
    return int(run.stats["loads"])


def device_slots(slots: int) -> int:
    """Return the slots of the simulated device."""
    return int(DEVICE_SHARE * slots)


def replayed(folder: Path, slots: int, device: str, order: str = "panel") -> int:
    """Return the loads that the replay of a run makes."""
    grid = folder_grid(RunFolder.open(folder))
    machine = Machine(slots, (device_slots(slots) if device == "sim" else None,), usable_cores())
    return replay(WorkloadCosts(grid.n_items, preprocess=Cost(1e-6)), machine, grid=grid, order=order).loads


def measure(folder: Path, slots: int, times: int) -> dict[str, float]:
    """Run all three for one shape."""
    n = slots * times
    bound = loads_bound(n, n * (n - 1) // 2, slots)
    panel = real_run(folder / "panel", n, slots, "panel", "cpu")
    on_device = real_run(folder / "sim", n, slots, "panel", "sim")
    found = {
        "n": n,
        "slots": slots,
        "bound": bound,
        "panel": panel,
        "ratio": panel / bound,
        "bar": BARS.get(times, 1.1),
        "panel_replay": replayed(folder / "panel", slots, "cpu"),
        "sim": on_device,
        "sim_replay": replayed(folder / "sim", slots, "sim"),
    }
    if times in QUADRANT_TIMES:
        quadrant = real_run(folder / "quadrant", n, slots, "quadrant", "cpu")
        found |= {
            "quadrant": quadrant,
            "quadrant_replay": replayed(folder / "quadrant", slots, "cpu", "quadrant"),
            "quadrant_ratio": quadrant / panel,
        }
    return found


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, slots="100,128", times="5,10,20,50")
    shapes = [(int(s), int(t)) for s in options.slots.split(",") for t in options.times.split(",")]
    results: dict[str, Any] = {}
    for slots, times in shapes:
        with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
            results[f"S={slots} n/S={times}"] = measure(Path(name), slots, times)
    rows = [
        [
            name, f"{r['bound']:.0f}", r["panel"], r["panel_replay"], f"{r['ratio']:.3f}", f"<= {r['bar']}", r["sim"],
            r["sim_replay"], r.get("quadrant", ""), r.get("quadrant_replay", ""),
            f"{r['quadrant_ratio']:.2f}" if "quadrant_ratio" in r else "",
            f">= {QUADRANT_BAR}" if "quadrant_ratio" in r else "",
        ]
        for name, r in results.items()
    ]  # fmt: skip
    head = (
        "", "bound", "panel", "replay", "ratio", "bar", "panel, sim", "replay", "quadrant", "replay", "/ panel", "bar",
    )  # fmt: skip
    print_table("loads", rows, head)
    return results | {"load": load_average()}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
