"""The runtime with devices that have memory of their own, in small runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR
from tartan.errors import DeviceError, DeviceMemoryError


class Sums(tartan.Application):
    """Items of unequal size: the score is the difference of their sums."""

    releases_gil = True
    ragged = True
    outputs: ClassVar[dict[str, Any]] = {"scores": np.float64}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.stack([xp.stack([xp.abs(xp.sum(a) - xp.sum(b)) for b in right]) for a in left])


class Doubled(tartan.Application):
    """Preprocessed on the device; an item that begins with -1 cannot be."""

    releases_gil = True
    outputs: ClassVar[dict[str, Any]] = {"scores": np.float64}

    def preprocess(self, item: Any, xp: Any) -> Any:
        return 2 * item

    def describe_failure(self, item: Any) -> str | None:
        return "is negative" if float(item[0]) < 0 else None

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.abs(left[:, 0][:, None] - right[:, 0][None, :])


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("tartan-sim")}


@pytest.mark.slow
def test_a_device_forgets_the_unequal_items_that_leave_it() -> None:
    items = [np.full(900 + index, 1.0) for index in range(40)]
    # Room for 16 of the 40 items; what a compare makes is small.
    run = tartan.allpairs(
        Sums(), items, device="sim:memory=128KB", device_cache="10items", host_cache="12items", workers=1
    )
    np.testing.assert_array_equal(run.matrix()[0], [np.nan, *(float(index) for index in range(1, 40))])


@pytest.mark.slow
@pytest.mark.parametrize("order", ["panel", "quadrant"])
@pytest.mark.parametrize("device_cache", ["8items", "60items"])
def test_pairs_of_a_failed_item_are_marked_wherever_it_still_lies(order: str, device_cache: str) -> None:
    items = np.arange(60.0).reshape(60, 1) + np.zeros((1, 3))
    items[[7, 31]] = -1
    run = tartan.allpairs(
        Doubled(), list(items), device="sim", host_cache="14items", device_cache=device_cache, order=order, workers=1
    )
    wanted = 2 * np.abs(items[:, 0][:, None] - items[:, 0][None, :])
    above = np.triu(np.ones((60, 60), bool), 1)
    bad = np.zeros((60, 60), bool)
    bad[[7, 31]] = bad[:, [7, 31]] = True
    status, scores = np.asarray(run.status), np.asarray(run.scores)
    assert (status[above & bad] == FAILED_ITEM).all()
    assert (status[above & ~bad] == DONE).all()
    np.testing.assert_array_equal(scores[above & ~bad], wanted[above & ~bad])
    assert sorted(failure.i for failure in run.failures) == [7, 31]


def test_a_score_that_is_no_number_one_way_fails_the_pair() -> None:
    class OneWay(tartan.Application):
        releases_gil = True
        symmetric = False

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            scores = left[:, 0][:, None] - right[:, 0][None, :]
            return xp.where(scores > 2.5, xp.asarray(np.nan, dtype=scores.dtype), scores)

    run = tartan.allpairs(OneWay(), np.arange(4.0).reshape(4, 1), device="sim", workers=1)
    assert run.status[0, 3] == FAILED_PAIR
    assert [(failure.i, failure.j) for failure in run.failures] == [(0, 3)]
    assert run.n_pairs_failed == 2


def test_a_postprocess_that_raises_fails_its_pairs_on_a_device_too() -> None:
    class Post(Doubled):
        def postprocess(self, scores: np.ndarray) -> np.ndarray:
            if (np.abs(scores) > 9).any():
                raise ValueError("too far apart")
            return scores

    run = tartan.allpairs(Post(), np.arange(6.0).reshape(6, 1), device="sim", workers=1)
    assert [(failure.i, failure.j) for failure in run.failures] == [(0, 5)]
    assert "too far apart" in run.failures[0].reason


def test_a_lost_device_stops_the_run_and_condemns_no_pair(tmp_path: Path) -> None:
    class Loses(Doubled):
        calls = 0

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            type(self).calls += 1
            if type(self).calls > 3:
                raise DeviceError("sim: gone")
            return super().compare(left, right, xp)

    items = np.arange(20.0).reshape(20, 1)
    before = threads()
    with pytest.raises(DeviceError, match="gone"):
        tartan.allpairs(Loses(), items, tmp_path / "run", device="sim", host_cache="8items", workers=1)
    run = tartan.open(tmp_path / "run")
    assert run.n_pairs_failed == 0
    assert run.failures == []
    assert threads() <= before


def test_slots_that_the_device_has_no_memory_for_are_reduced_until_they_fit() -> None:
    items = np.arange(4000.0).reshape(40, 100)
    before = threads()
    run = tartan.allpairs(Doubled(), items, device="sim:memory=30KB", device_cache="40items", workers=1)
    assert run.n_pairs_done == 780
    with pytest.raises(DeviceMemoryError):
        tartan.allpairs(Doubled(), items, device="sim:memory=1KB", device_cache="40items", workers=1)
    assert threads() <= before


def test_an_item_that_fails_on_the_device_gives_way_to_one_of_its_form() -> None:
    class Longer(Doubled):
        def parse(self, key: str, data: Any) -> Any:
            return np.array([data, 0.0])

        def preprocess(self, item: Any, xp: Any) -> Any:
            return xp.concat([item, item, item])

    run = tartan.allpairs(Longer(), [0.0, 1.0, 2.0, -1.0, 4.0, 5.0], device="sim", workers=1)
    assert [(failure.i, failure.j) for failure in run.failures] == [(3, None)]
    assert run.matrix()[0, [1, 2, 4, 5]].tolist() == [1, 2, 4, 5]
