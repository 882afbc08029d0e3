"""How long calls may take, in virtual time: endless ones are found, slow ones that are right are not harmed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tartan.core.pairs.call_limit import LEAST_HALF_SECONDS, LEAST_SECONDS, CallLimit

HOUR = 3600.0


def test_it_grows_with_the_longest_call_that_ended() -> None:
    limit = CallLimit()
    assert limit.seconds() == LEAST_SECONDS == 15 * 60
    for seconds in (1.0, 200.0, 30.0):
        limit.on_ended(seconds)
    assert limit.seconds() == 2000.0


def test_items_that_are_loaded_together_have_the_time_of_each() -> None:
    limit = CallLimit()
    limit.on_ended(400.0, 4)
    assert limit.seconds(3) == 3000.0
    assert limit.seconds() == 1000.0


def test_halves_are_judged_sooner_only_after_a_call_ended() -> None:
    limit = CallLimit()
    assert limit.of_half == LEAST_SECONDS
    limit.on_ended(0.5)
    assert limit.of_half == LEAST_HALF_SECONDS
    limit.on_ended(200.0)
    assert limit.of_half == limit.seconds() == 2000.0


def test_the_last_try_is_the_longest() -> None:
    limit = CallLimit()
    assert limit.of_last_try == 10 * LEAST_SECONDS  # nothing has ended: nobody knows what a pair takes
    limit.on_ended(0.5)
    assert limit.of_last_try == LEAST_SECONDS
    limit.on_ended(200.0)
    assert limit.of_last_try == 20_000.0


def test_what_the_user_says_holds_whatever_ended() -> None:
    limit = CallLimit.of(2.0, grows=True)
    assert limit is not None
    limit.on_ended(500.0)
    assert (limit.seconds(), limit.of_half, limit.of_last_try, limit.seconds(3)) == (2.0, 2.0, 2.0, 6.0)


@pytest.mark.parametrize("grows", [True, False])
def test_zero_is_no_limit(grows: bool) -> None:
    assert CallLimit.of(0.0, grows=grows) is None


def test_without_a_word_there_is_one_only_where_it_may_grow() -> None:
    assert CallLimit.of(None, grows=False) is None
    grown = CallLimit.of(None, grows=True)
    assert grown is not None
    assert grown.given is None


class Worker:
    """Compares parts, each the seconds of its pairs, one after the other in virtual time, as a desk of tiles has it."""

    def __init__(self) -> None:
        self.limit = CallLimit()
        self.now = 0.0
        self.failed: list[float] = []

    def compare(self, tile: Sequence[float], *, half: bool = False) -> None:
        if self._ends(tile, self.limit.of_half if half else self.limit.seconds()):
            return
        if len(tile) > 1:
            middle = len(tile) // 2
            self.compare(tile[:middle], half=True)
            self.compare(tile[middle:], half=True)
        elif not self._ends(tile, self.limit.of_last_try):
            self.failed += tile

    def _ends(self, part: Sequence[float], most: float) -> bool:
        seconds = sum(part)
        self.now += min(seconds, most)
        if seconds < most:
            self.limit.on_ended(seconds)
        return seconds < most


def test_an_endless_pair_among_quick_ones_is_alone_within_an_hour() -> None:
    worker = Worker()
    worker.compare([0.001] * 4096)
    worker.compare([0.001] * 1234 + [math.inf] + [0.001] * 2861)
    assert worker.failed == [math.inf]
    assert worker.now < HOUR


def test_an_endless_pair_is_alone_after_some_hours_where_no_call_has_ended() -> None:
    worker = Worker()
    worker.compare([math.inf] + [0.001] * 4095)
    assert worker.failed == [math.inf]
    assert worker.now < 6 * HOUR


@pytest.mark.parametrize(
    "tile",
    [
        [10.0] * 4096,  # every tile takes half a day
        [2 * HOUR],  # and every pair two hours
        [2 * HOUR] * 3,
        [0.001] * 100 + [14 * 60.0],  # one pair takes long
        [60.0] * 64 + [0.001] * 1000,
    ],
)
def test_slow_pairs_that_are_right_do_not_fail(tile: list[float]) -> None:
    worker = Worker()
    for _ in range(3):
        worker.compare(tile)
    assert not worker.failed
    assert worker.limit.seconds() >= 10 * max(tile)
