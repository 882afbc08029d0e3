"""A plan and a run make the same loads: to the last one, on every device, however many workers there are."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.core.replay import Cost, Machine, ReplayResult, WorkloadCosts, replay
from tartan.run.execute import folder_grid
from tartan.store.folder import RunFolder

#: Items and slots of the full shapes of ``tartan bench loads``.
BENCH_LOADS = [(100 * times, 100) for times in (5, 10, 20, 50)] + [(128 * times, 128) for times in (5, 10, 20, 50)]
#: Items, slots of the host and of the device of ``tartan bench simulated``.
BENCH_SIMULATED = [(500, 105, 29), (1000, 112, 32), (500, 105, 105)]


class Sums(tartan.Application):
    """Cheap on purpose; a device of its own preprocesses."""

    releases_gil = True
    ragged = False

    def __init__(self) -> None:
        self.parsed: list[int] = []

    def parse(self, key: str, data: Any) -> Any:
        self.parsed.append(int(data))
        return np.full(2, data, np.float32)

    def preprocess(self, item: Any, xp: Any) -> Any:
        return item + 0

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left[:, 0][:, None] + right[:, 0][None, :]


def loads_of_both(
    folder: Path, n: int, slots: int, device_slots: int | None, workers: int = 1, order: str = "panel"
) -> tuple[Counter[int], int, ReplayResult]:
    """Run; return how often every item was loaded, the loads of the run, and its replay."""
    app = Sums()
    run = tartan.allpairs(
        app,
        list(range(n)),
        out=folder,
        device="cpu" if device_slots is None else "sim",
        host_cache=f"{slots}items",
        device_cache=None if device_slots is None else f"{device_slots}items",
        workers=workers,
        order=order,
        quiet=True,
    )
    grid = folder_grid(RunFolder.open(folder))
    machine = Machine(slots, (device_slots,), workers)
    return (
        Counter(app.parsed),
        run.stats["loads"],
        replay(WorkloadCosts(n, preprocess=Cost(1e-6)), machine, grid=grid, order=order),
    )


def check(folder: Path, n: int, slots: int, device_slots: int | None, workers: int = 1, order: str = "panel") -> None:
    parsed, loads, plan = loads_of_both(folder, n, slots, device_slots, workers, order)
    assert loads == plan.loads
    lines = folder_grid(RunFolder.open(folder)).span_lines
    planned = Counter(chain.from_iterable(range(lines[span], lines[span + 1]) for span in plan.load_sequence))
    # A few items are parsed once more before the run, to learn their form.
    assert parsed >= planned
    assert (parsed - planned).total() <= 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("device_slots", [None, 8])
@pytest.mark.parametrize("order", ["panel", "quadrant"])
def test_a_plan_makes_the_loads_of_the_run(tmp_path: Path, order: str, device_slots: int | None, workers: int) -> None:
    check(tmp_path / "run", 60, 20, device_slots, workers, order)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("n", "slots"), BENCH_LOADS)
def test_full_shapes_make_the_loads_of_their_plans(
    tmp_path: Path, n: int, slots: int, device: str, workers: int
) -> None:
    for repeat in range(5):
        check(tmp_path / f"{repeat}", n, slots, None if device == "cpu" else int(0.4 * slots), workers)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("n", "slots", "device_slots"), BENCH_SIMULATED)
def test_simulated_shapes_make_the_loads_of_their_plans(
    tmp_path: Path, n: int, slots: int, device_slots: int, device: str, workers: int
) -> None:
    for repeat in range(5):
        check(tmp_path / f"{repeat}", n, slots, None if device == "cpu" else device_slots, workers)
