"""What a rank has, apart from what a run makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tartan
from tartan.core.pairs.sizing import Costs
from tartan.core.pairs.workload import AllPairs
from tartan.errors import ConfigError, DeviceError
from tartan.options import RunOptions, Size
from tartan.run.plan import describe_sizing, plan_run
from tartan.run.probing import ItemFacts
from tartan.run.rank import Rank, open_rank
from tartan.runtime.items import ItemForm

FORM = ItemForm(np.dtype(np.float32), (25,))  # 100 bytes an item
FACTS = ItemFacts(FORM, FORM, 100.0, 100, np.zeros(25), np.zeros(25), Costs(), 0.0)


class Dot(tartan.Application):
    """Works in threads."""

    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


def rank_with(host_bytes: int, **devices: int | None) -> Rank:
    """Return what planning needs of a rank: numbers, and the names of devices."""
    threads, named = cast("Any", SimpleNamespace(in_processes=False, n_workers=1)), devices or {"cpu": None}
    return Rank(
        tuple(cast("Any", SimpleNamespace(name=name)) for name in named), threads, host_bytes, (*named.values(),)
    )


def test_planning_needs_the_numbers_of_a_rank_and_nothing_else() -> None:
    """The same run on two ranks: neither has a device open."""
    workload = AllPairs(1000)
    small, large = rank_with(50 * 100), rank_with(50_000 * 100)
    sizings = [describe_sizing(1000, FACTS, RunOptions(), rank, Dot()) for rank in (small, large)]
    plans = [
        plan_run(sizing.grid(workload), workload, FACTS, RunOptions(), rank, Dot())
        for sizing, rank in zip(sizings, (small, large), strict=True)
    ]
    assert [plan.slots for plan in plans] == [50, 1000]
    assert all(plan.device_rooms == (None,) and plan.device_slots == 0 for plan in plans)
    assert plans[0].host_bytes < plans[1].host_bytes


def test_what_the_user_names_comes_before_what_the_rank_has() -> None:
    options = RunOptions(host_cache=Size(20, in_items=True), device_cache=Size(700))
    rank = rank_with(10**9, sim=10**6, cpu=None)
    asked, free = (describe_sizing(1000, FACTS, given, rank, Dot()) for given in (options, RunOptions()))
    assert asked.device_slots(1000) == [7, None]
    assert free.device_slots(1000) == [1000, None]
    grid = asked.grid(AllPairs(1000))
    assert plan_run(grid, AllPairs(1000), FACTS, options, rank, Dot()).slots == 20


def test_too_small_a_rank_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"holds 1 items of 100 bytes; .* give --host-cache 200B or more"):
        describe_sizing(9, FACTS, RunOptions(), rank_with(199), Dot())
    with pytest.raises(ConfigError, match=r"holds 1 items on cuda; .* give --device-cache 2items or more"):
        describe_sizing(9, FACTS, RunOptions(), rank_with(10**6, cuda=199), Dot())


def test_a_rank_is_measured_once_when_it_is_opened() -> None:
    options = RunOptions(workers=2, device=("cpu", "sim"))
    with open_rank(Dot(), options) as rank:
        assert rank.executor.n_workers == 2
        assert [device.name for device in rank.devices] == ["cpu", "sim"]
        assert rank.device_bytes[0] is None
        assert (rank.device_bytes[1] or 0) > 0
        assert not rank.executor.in_processes
        assert rank.host_bytes.bit_count() == 1, "a power of two, whatever other programs use"


def test_a_device_that_is_not_there_opens_nothing() -> None:
    with pytest.raises(DeviceError, match="cuda"), open_rank(Dot(), RunOptions(device=("sim", "cuda:97"))):
        pytest.fail("opened")
