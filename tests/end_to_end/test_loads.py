"""A plan and a run make the same loads: to the last one, on every device, however many workers there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.core.pairs.grid import Grid
from tartan.core.replay.node import Cost, Machine, WorkloadCosts, replay
from tartan.run.session import folder_grid
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


@dataclass(frozen=True)
class Shape:
    """What decides the loads of a run."""

    n: int
    slots: int
    device_slots: int | None
    workers: int = 1
    order: str = "panel"


def loads_of_run(folder: Path, shape: Shape) -> tuple[Counter[int], int]:
    """Run; return how often every item was parsed, and the loads of the run."""
    app = Sums()
    run = tartan.allpairs(
        app,
        list(range(shape.n)),
        out=folder,
        device="cpu" if shape.device_slots is None else "sim",
        host_cache=f"{shape.slots}items",
        device_cache=None if shape.device_slots is None else f"{shape.device_slots}items",
        workers=shape.workers,
        order=shape.order,
        quiet=True,
    )
    return Counter(app.parsed), run.stats["loads"]


def planned_loads(grid: Grid, shape: Shape) -> Counter[int]:
    """Replay; return how often every item is loaded."""
    machine = Machine(shape.slots, (shape.device_slots,), shape.workers)
    plan = replay(WorkloadCosts(shape.n, preprocess=Cost(1e-6)), machine, grid=grid, order=shape.order)
    lines = grid.span_lines
    planned = Counter(chain.from_iterable(range(lines[span], lines[span + 1]) for span in plan.load_sequence))
    assert planned.total() == plan.loads
    return planned


def check(folder: Path, shape: Shape, repeats: int = 1) -> None:
    planned: Counter[int] | None = None
    for repeat in range(repeats):
        path = folder / str(repeat)
        parsed, loads = loads_of_run(path, shape)
        if planned is None:  # no run has any part in it but for its grid, which is the same in all
            planned = planned_loads(folder_grid(RunFolder.open(path)), shape)
        assert loads == planned.total()
        # A few items are parsed once more before the run, three to learn their form, seven to try pairs both ways.
        assert parsed >= planned
        assert (parsed - planned).total() <= 3 + 7


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("device_slots", [None, 8])
@pytest.mark.parametrize("order", ["panel", "quadrant"])
def test_a_plan_makes_the_loads_of_the_run(tmp_path: Path, order: str, device_slots: int | None, workers: int) -> None:
    check(tmp_path, Shape(60, 20, device_slots, workers, order))


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("n", "slots"), BENCH_LOADS)
def test_full_shapes_make_the_loads_of_their_plans(
    tmp_path: Path, n: int, slots: int, device: str, workers: int
) -> None:
    check(tmp_path, Shape(n, slots, None if device == "cpu" else int(0.4 * slots), workers), repeats=5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("n", "slots", "device_slots"), BENCH_SIMULATED)
def test_simulated_shapes_make_the_loads_of_their_plans(
    tmp_path: Path, n: int, slots: int, device_slots: int, device: str, workers: int
) -> None:
    check(tmp_path, Shape(n, slots, None if device == "cpu" else device_slots, workers), repeats=5)
