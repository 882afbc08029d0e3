"""Ranks that run out of device memory, freeze, come late, or fail on their own, while the others go on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import OPTIONS, N, Once, Sums, asked, check, ranks

import tartan
from tartan import apps
from tartan.errors import DeviceMemoryError, RunFailedError
from tartan.options import run_options
from tartan.run.execute import start
from tartan.run.request import request

pytestmark = pytest.mark.slow


class Rows(tartan.Application):
    """Sums of the first numbers of two rows of an array."""

    releases_gil = True
    ragged = False

    def parse(self, key: str, data: Any) -> Any:
        return np.array(data, np.float64)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        a, b = left[:, 0][:, None], right[:, 0][None, :]
        return xp.minimum(a, b) * 1000 + xp.maximum(a, b)


def on_device(app: Any, **options: Any) -> Any:
    items = np.tile(np.arange(N, dtype=np.float64)[:, None], (1, 100))
    return request(app, items, run_options(OPTIONS | {"host_cache": "100items"} | options), registry=apps)


def test_ranks_whose_devices_have_less_memory_begin_again_with_fewer_slots(tmp_path: Path) -> None:
    wanted = on_device(Rows(), device="sim:memory=30KB", device_cache="45items")
    run = start(wanted, tmp_path / "run", ranks=ranks(2))
    check(run)
    assert run.stats["ranks_lost"] == 0


class Hungry(Rows):
    """Never fits into the device of the first rank."""

    copies = itertools.count()

    def __init__(self, hungry: bool = False) -> None:
        self.hungry = hungry

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if self.hungry:
            raise DeviceMemoryError("no pair fits")
        return super().compare(left, right, xp)

    def __reduce__(self) -> tuple[Any, ...]:
        return _hungry, ()


def _hungry() -> Hungry:
    return Hungry(next(Hungry.copies) == 0)


def test_a_rank_whose_device_has_no_room_ends_alone(tmp_path: Path) -> None:
    run = start(on_device(Hungry(), device="sim", device_cache="12items"), tmp_path / "run", ranks=ranks(3))
    check(run)
    assert run.stats["ranks_lost"] <= 1  # none where the others were faster


def test_a_rank_that_is_frozen_for_too_long_is_given_up_and_ends_when_it_wakes(tmp_path: Path) -> None:
    ways = ranks(rank_timeout_seconds=0.5)
    freeze = Once(12, lambda: ways.hubs[-1].freeze("rank-1"))
    run = start(asked(Sums(happens=freeze)), tmp_path / "run", ranks=ways)
    check(run)
    assert run.stats["ranks_lost"] == 1


class BadAbove(Sums):
    """All items from a number on are bad."""

    def parse(self, key: str, data: Any) -> Any:
        if data >= self.bad:
            raise ValueError("bad item")
        return super().parse(key, data)


@pytest.mark.parametrize(("most", "stops"), [(3, True), (4, False)])
def test_failures_of_all_ranks_are_counted_together(tmp_path: Path, most: int, stops: bool) -> None:
    wanted = asked(BadAbove(bad=N - 4), max_failures=most)
    if stops:
        with pytest.raises(RunFailedError, match="4 items and pairs failed, more than --max-failures 3"):
            start(wanted, tmp_path / "run", ranks=ranks())
    else:
        assert len(start(wanted, tmp_path / "run", ranks=ranks()).failures) == 4


def test_a_program_that_is_wrong_everywhere_stops_the_run_on_all_ranks(tmp_path: Path) -> None:
    class Wrong(Sums):
        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            raise TypeError("a misprint")

    with pytest.raises(RunFailedError, match=r"the first \d+ pairs that were compared all failed"):
        start(asked(Wrong()), tmp_path / "run", ranks=ranks())
    assert not list((tmp_path / "run").glob("writers*"))
