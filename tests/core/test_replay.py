"""Replays: repeatable, close to the bound, and as good as promised for the workloads of the Rocket paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tartan.core.pairs.workload import AllPairs, NewAgainstOld, Rectangle
from tartan.core.replay.node import Cost, Machine, ReplayResult, WorkloadCosts, replay
from tartan.plan import list_shipped_plans, read_plan
from tartan.plan.report import Plan

NOISY = WorkloadCosts(60, parse=Cost(0.1, 0.03), preprocess=Cost(0.02, 0.01), compare=Cost(1e-3, 5e-4))
QUIET = WorkloadCosts(0, compare=Cost(1e-3))

# Largest R / R_min, by n / S.
RATIOS = {5: 1.25, 10: 1.15, 20: 1.1}
LEAST_EFFICIENCY = {"forensics": 0.98, "bioinformatics": 0.955, "microscopy": 0.99}
LEAST_EFFICIENCY_WITH_DISK = 0.985


@pytest.mark.slow
def test_a_seed_decides_everything() -> None:
    machine = Machine(14, (None,), cpu_workers=2)
    first = replay(NOISY, machine, seed=7)
    assert replay(NOISY, machine, seed=7) == first
    assert replay(NOISY, machine, seed=8).seconds != first.seconds


@pytest.mark.parametrize(("workers", "seconds"), [(1, 10.0), (2, 5.0)])
def test_what_only_parses_takes_as_long_as_its_workers_parse(workers: int, seconds: float) -> None:
    result = replay(WorkloadCosts(20, parse=Cost(0.5)), Machine(20, cpu_workers=workers))
    assert result.seconds == pytest.approx(seconds)


def test_what_only_reads_takes_as_long_as_its_storage_reads() -> None:
    result = replay(WorkloadCosts(20, file_bytes=50), Machine(20, storage_bytes_per_second=100))
    assert result.seconds == pytest.approx(10.0)


@pytest.mark.slow
def test_loads_do_not_depend_on_stage_times() -> None:
    """Same cuts, other times: the order alone decides what is loaded and when."""
    times = [0.001, 0.1, 3.0]
    results = [
        replay(replay_costs, Machine(14, (8,), cpu_workers=3), chunk=20)
        for replay_costs in (replace(NOISY, parse=Cost(t, t / 2), compare=Cost(1e-3, 1e-3)) for t in times)
    ]
    assert len({result.seconds for result in results}) == 3
    assert len({result.load_sequence for result in results}) == 1


@pytest.mark.slow
def test_loads_do_not_depend_on_the_number_or_speed_of_devices() -> None:
    one = replay(NOISY, Machine(14, (8,)))
    three = replay(NOISY, Machine(14, (8, 8, 8), device_speed=(1.0, 3.0, 0.5)))
    assert three.loads == one.loads


@pytest.mark.slow
def test_unlike_devices_share_the_work_by_speed() -> None:
    costs = replace(NOISY, n_items=240, parse=Cost(0.0), preprocess=Cost(0.0))
    machine = Machine(240, (240, 240, 240), device_speed=(1.0, 2.0, 4.0))
    result = replay(costs, machine)
    assert result.system_efficiency > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 64, 7])
def test_loads_are_close_to_the_bound(chunk: int | None) -> None:
    _check_ratio(40, 5, chunk)


@pytest.mark.exhaustive
@pytest.mark.parametrize("slots", [100, 101, 115, 128, 150, 163, 200, 255])
@pytest.mark.parametrize("times", [5, 10, 20])
@pytest.mark.parametrize("chunk", [None, 64, 100, 7, 25, 300])
def test_loads_are_close_to_the_bound_for_many_sizes(slots: int, times: int, chunk: int | None) -> None:
    _check_ratio(slots, times, chunk)


def _check_ratio(slots: int, times: int, chunk: int | None) -> None:
    result = replay(replace(QUIET, n_items=slots * times), Machine(slots), chunk=chunk)
    assert result.load_factor <= RATIOS[times] * result.load_factor_bound


@pytest.mark.exhaustive
@pytest.mark.parametrize("slots", [50, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_quadrants_load_two_and_a_half_times_as_much(slots: int) -> None:
    costs = replace(QUIET, n_items=5 * slots)
    panel, quadrant = (replay(costs, Machine(slots), order=order) for order in ("panel", "quadrant"))
    assert quadrant.loads >= 2.5 * panel.loads


@pytest.mark.slow
def test_a_product_loads_each_side_as_the_smaller_one_allows() -> None:
    """20 new items stay; everything else passes once."""
    costs = replace(QUIET, n_items=400)
    assert replay(costs, Machine(60), workload=Rectangle(380, 400)).loads == 400
    assert replay(costs, Machine(60), workload=NewAgainstOld(AllPairs(400), 380)).loads <= 420


def scaled(plan: Plan, factor: int, *, disk_level: bool) -> ReplayResult:
    """Replay fewer items with fewer slots and longer comparisons: the shares of all stages stay."""
    compare, machine = plan.costs.compare, plan.machine
    costs = replace(
        plan.costs,
        n_items=plan.costs.n_items // factor,
        compare=Cost(compare.mean * factor, compare.std * factor),
    )
    slots = tuple(s and s // factor for s in machine.device_slots)
    machine = replace(machine, host_slots=machine.host_slots // factor, device_slots=slots, disk_level=disk_level)
    return replay(costs, machine)


@pytest.mark.slow
def test_a_workload_that_compares_most_of_the_time_is_efficient() -> None:
    [path] = [path for path in list_shipped_plans() if path.stem == "microscopy"]
    assert scaled(read_plan(path), 4, disk_level=False).system_efficiency >= LEAST_EFFICIENCY["microscopy"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", list_shipped_plans(), ids=lambda path: path.stem)
def test_efficiency_at_a_quarter(path: Path) -> None:
    plan = read_plan(path)
    assert scaled(plan, 4, disk_level=False).system_efficiency >= LEAST_EFFICIENCY[plan.name]
    assert scaled(plan, 4, disk_level=True).system_efficiency >= LEAST_EFFICIENCY_WITH_DISK


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", list_shipped_plans(), ids=lambda path: path.stem)
def test_efficiency_at_full_scale(path: Path) -> None:
    plan = read_plan(path)
    assert scaled(plan, 1, disk_level=False).system_efficiency >= LEAST_EFFICIENCY[plan.name]
    assert scaled(plan, 1, disk_level=True).system_efficiency >= LEAST_EFFICIENCY_WITH_DISK


@pytest.mark.slow
def test_the_disk_level_saves_parses() -> None:
    machine = Machine(14, (8,), cpu_workers=2, copy_bytes_per_second=1e9)
    without, with_disk = (replay(NOISY, replace(machine, disk_level=disk)) for disk in (False, True))
    assert without.disk_hits == 0
    assert with_disk.disk_hits == with_disk.loads - NOISY.n_items
    assert with_disk.busy_seconds["parse"] < without.busy_seconds["parse"] / 2
