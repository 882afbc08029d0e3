"""Predictions from finished runs: loads to the last one, times by the same costs, and what cannot be predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.sizing import Costs
from tartan.core.pairs.workload import AllPairs, Candidates
from tartan.core.ranks.run_sizing import RunSizing
from tartan.core.replay.node import Cost, Machine, Replay, WorkloadCosts
from tartan.errors import ConfigError
from tartan.options import Size
from tartan.plan.cache_curve import cache_curves, cache_sizes
from tartan.plan.file import read_plan
from tartan.plan.from_run import MeasuredRun, OtherRun, measure_run
from tartan.run.session import folder_grid


class Sums(tartan.Application):
    """Cheap on purpose; a device of its own preprocesses."""

    releases_gil = True
    ragged = False

    def parse(self, key: str, data: Any) -> Any:
        return np.full(2, data, np.float32)

    def preprocess(self, item: Any, xp: Any) -> Any:
        return item + 0

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left[:, 0][:, None] + right[:, 0][None, :]


class Unequal(tartan.Application):
    """Items of unequal size."""

    releases_gil = True
    ragged = True

    def parse(self, key: str, data: Any) -> Any:
        return np.full(2 + data % 3, data, np.float32)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return np.array([[float(a[0] + b[0]) for b in right] for a in left])


def compute(folder: Path, n: int, app: tartan.Application | None = None, **options: Any) -> Any:
    return tartan.allpairs(app or Sums(), list(range(n)), out=folder, quiet=True, **options)


def measured(run: Any) -> MeasuredRun:
    return measure_run("small", folder_grid(run.folder), run.folder.pairs.workload, run.n_pairs, run.stats)


CASES: list[tuple[dict[str, Any], tartan.Application | None]] = [
    ({"device": "sim", "host_cache": "12items", "device_cache": "9items"}, None),
    ({"device": "sim", "host_cache": "30items", "device_cache": "7items", "order": "quadrant"}, None),
    ({"device": ["sim", "sim"], "host_cache": "16items", "device_cache": "8items"}, None),
    ({"host_cache": "15items", "workers": 2}, None),
    ({"host_cache": "200B", "workers": 1, "tile": 8}, None),
    ({"host_cache": "21items", "workers": 1}, Unequal()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "app"), CASES)
def test_loads_of_four_times_the_items_are_exact(
    options: dict[str, Any], app: tartan.Application | None, tmp_path: Path
) -> None:
    small = measured(compute(tmp_path / "small", 12, app, **options))
    large = compute(tmp_path / "large", 48, app, **options)
    found = small.predict(OtherRun(n_items=48))
    assert found.loads == large.stats["loads"]
    assert found.load_factor_bound == pytest.approx(large.stats["load_factor_bound"])
    assert small.predict().loads == small.stats["loads"]


@pytest.mark.slow
def test_other_caches_and_devices_are_those_of_a_run_with_them(tmp_path: Path) -> None:
    small = measured(compute(tmp_path / "a", 30, device="sim", host_cache="9items", device_cache="6items"))
    other = compute(tmp_path / "b", 30, device=["sim", "sim"], host_cache="14items", device_cache="8items")
    wanted = OtherRun(None, 2, Size(14, in_items=True), Size(64))  # 8 items of 8 bytes
    assert small.predict(wanted).loads == other.stats["loads"]


def in_virtual_time(n: int, costs: WorkloadCosts, machine: Machine) -> tuple[MeasuredRun, float]:
    """Return a run that took just what its costs say, and its seconds."""
    sizing, workload = RunSizing(machine.host_slots, machine.device_slots, costs=Costs()), AllPairs(n)
    grid = sizing.grid(workload)
    rooms = tuple(sizing.device_rooms(grid))
    setup = NodePlan(grid, workload, sizing.mean_layout(grid, workload), rooms, machine.cpu_workers, "panel", True)
    found = Replay(setup, replace(costs, n_items=n), machine).run()
    copied = 2 * found.loads * costs.item_bytes + found.uploads * costs.item_bytes
    stats = {
        "loads": found.loads,
        "parses": found.loads,
        "pairs_computed": workload.n_pairs,
        "wall_seconds": found.seconds,
        "bytes_per_level": {"storage": found.loads * costs.file_bytes, "upload": copied, "download": 0},
        "seconds_per_stage": {
            "read": found.busy_seconds["read"],
            "parse": found.busy_seconds["parse"],
            "preprocess": found.loads * costs.preprocess.mean,
            "compare": found.busy_seconds["compute"] - found.loads * costs.preprocess.mean,
            "upload": copied / machine.copy_bytes_per_second,
            "download": 0.0,
        },
        "sizing": {
            **sizing.as_dict(),
            "item_bytes": costs.item_bytes,
            "n_workers": machine.cpu_workers,
            "prepare_on_device": True,
            "whole_tiles": costs.whole_tiles,
        },
    }
    stats = json.loads(json.dumps(stats))  # as a run folder keeps it
    return measure_run("virtual", grid, workload, workload.n_pairs, stats), found.seconds


@pytest.mark.slow
@pytest.mark.parametrize("parse", [0.001, 0.02])
def test_time_of_four_times_the_items_is_within_five_percent(parse: float) -> None:
    costs = WorkloadCosts(
        0, 4e6, 1e5, Cost(parse), Cost(0.002), Cost(2e-4), whole_tiles=True
    )  # compared or parsed most of the time
    machine = Machine(20, (16,), 2, storage_bytes_per_second=1e9, copy_bytes_per_second=1e10)
    small, _ = in_virtual_time(26, costs, machine)
    large, seconds = in_virtual_time(104, costs, machine)
    found = small.predict(OtherRun(n_items=104))
    assert found.loads == large.stats["loads"]
    assert found.seconds == pytest.approx(seconds, rel=0.05)
    assert small.rest_seconds == pytest.approx(0, abs=0.05 * small.stats["wall_seconds"])
    assert small.costs.compare.mean == pytest.approx(2e-4)
    assert small.predict(OtherRun(n_items=104, n_devices=2)).seconds < found.seconds


@pytest.mark.slow
def test_what_a_run_takes_once_is_added_once() -> None:
    """Here the start of workers, 1.5 s of both runs; without it the prediction is 20 % too short."""
    start, costs = 1.5, WorkloadCosts(0, 4e6, 1e5, Cost(0.01), Cost(0.002), Cost(1e-3), whole_tiles=True)
    machine = Machine(20, (16,), 2, storage_bytes_per_second=1e9, copy_bytes_per_second=1e10)
    small, seconds = in_virtual_time(26, costs, machine)
    small = replace(small, stats={**small.stats, "wall_seconds": seconds + start})
    _, large_seconds = in_virtual_time(104, costs, machine)
    found, own = small.predict(OtherRun(n_items=104)), small.predict()
    assert found.seconds == pytest.approx(large_seconds + start, rel=0.05)
    assert large_seconds < 0.82 * (large_seconds + start)
    assert own.seconds == pytest.approx(seconds, rel=0.05)
    assert small.rest_seconds == pytest.approx(start, rel=0.05)
    plain = replace(small, stats={**small.stats, "wall_seconds": own.seconds}).predict(OtherRun(n_items=104))
    assert found.system_efficiency == pytest.approx(plain.system_efficiency * plain.seconds / found.seconds)
    early = replace(small, stats={**small.stats, "wall_seconds": 0.5 * seconds})
    assert early.rest_seconds == 0


def test_what_cannot_be_predicted_is_named(tmp_path: Path) -> None:
    run = compute(tmp_path / "run", 12, host_cache="6items")
    known = measured(run)
    grid, workload = known.grid, known.workload
    for stats, says in (
        ({**run.stats, "sizing": {}}, "an older version of Tartan computed it: compute a run like it again"),
        ({**run.stats, "n_ranks": 4}, "was computed by several ranks"),
        ({**run.stats, "sizing": {"host_items": 3}}, "its statistics are damaged"),
        ({**run.stats, "seconds_per_stage": {}}, "its statistics are damaged"),
    ):
        with pytest.raises(ConfigError, match=f"^old.*{says}"):
            measure_run("old", grid, workload, run.n_pairs, stats)
    with pytest.raises(ConfigError, match="compares a list of pairs"):
        measure_run("some", grid, Candidates(12, np.array([[0, 1]])), 1, run.stats)
    for other, says in (
        (OtherRun(n_items=1), "--items 1: a run compares 2 or more"),
        (OtherRun(n_devices=2), "--devices: small compared in host memory"),
        (OtherRun(device_cache=Size(100)), "--device-cache: small compared in host memory"),
        (OtherRun(host_cache=Size(8)), "--host-cache 8B: it has room for 1 items of 8 bytes; comparing needs 2"),
    ):
        with pytest.raises(ConfigError, match=says):
            known.predict(other)


@pytest.mark.slow
def test_larger_caches_are_more_efficient(tmp_path: Path) -> None:
    assert cache_sizes(500)[0] == 10
    assert cache_sizes(500)[-1] == 500
    assert cache_sizes(2) == [2]
    costs = WorkloadCosts(0, 0, 1e5, Cost(0.02), Cost(0.002), Cost(2e-4))
    run, _ = in_virtual_time(30, costs, Machine(10, (10,)))
    (curve,) = cache_curves([run], processes=1)
    factors = [point.load_factor or 0 for point in curve.points]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == 1
    assert [point.slots for point in curve.known] == [10]
    assert "10 items         33.3%" in curve.as_text()


def test_published_figures_stand_in_the_curve() -> None:
    plan = read_plan(Path(tartan.__file__).parent / "plan" / "bioinformatics.toml")
    assert plan.published is not None
    assert [(one.slots, one.system_efficiency) for one in plan.published.caches] == [(41, 0.525)]
