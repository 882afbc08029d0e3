"""Where the time of what compares goes: one cause at a time, by what is under way, in virtual time."""

from __future__ import annotations

import pytest

from tartan.core.pairs.device_time import (
    CALLS,
    CAUSES,
    COMPARE,
    COPIES,
    PARSE,
    PREPROCESS,
    RANKS,
    RESULTS,
    START,
    STORAGE,
    TAIL,
    DeviceTime,
)
from tartan.devices.sim import VirtualClock


@pytest.mark.parametrize(
    ("on_workers", "under_way", "wanted"),
    [
        (False, [STORAGE], {STORAGE: 30}),
        (False, [STORAGE, PARSE], {PARSE: 30}),
        (False, [STORAGE, PARSE, COPIES], {COPIES: 30}),
        (False, [STORAGE, PREPROCESS, COPIES], {PREPROCESS: 30}),
        (False, [STORAGE, RANKS], {STORAGE: 30}),
        (False, [RANKS, RESULTS], {RANKS: 30}),
        (False, [COMPARE, STORAGE], {COMPARE: 10, STORAGE: 20}),
        (False, [COMPARE] * 5 + [STORAGE], {COMPARE: 30}),
        (True, [STORAGE, PARSE], {COMPARE: 10, STORAGE: 20}),  # a worker that parses works
        (True, [PARSE], {COMPARE: 10, PARSE: 20}),
        (True, [RESULTS], {RESULTS: 30}),
        (True, [], {START: 30}),
    ],
)
def test_servers_that_wait_are_put_down_to_what_holds_them_up(
    on_workers: bool, under_way: list[str], wanted: dict[str, float]
) -> None:
    clock = VirtualClock()
    time = DeviceTime(3, on_workers, clock.now)
    for stage in under_way:
        time.begin(stage)
    clock.advance(10)
    found = time.seconds({COMPARE: wanted.get(COMPARE, 0.0)})
    assert found == dict.fromkeys(CAUSES, 0.0) | wanted


def test_the_end_is_a_tail_while_some_compare_and_results_when_none_does() -> None:
    clock = VirtualClock()
    time = DeviceTime(4, True, clock.now)
    time.begin(COMPARE)
    time.begin(RESULTS)
    clock.advance(1)  # more is to come: the result holds it up
    time.note_drained(True)
    clock.advance(2)
    time.end(COMPARE)
    clock.advance(5)
    time.end(RESULTS)
    clock.advance(7)
    found = time.seconds({COMPARE: 3.0})
    assert (found[COMPARE], found[RESULTS], found[TAIL]) == (3, 1 * 3 + 5 * 4, 2 * 3 + 7 * 4)
    assert sum(found.values()) == 4 * 15


def test_what_servers_did_not_measure_lies_between_calls_and_too_much_is_scaled() -> None:
    clock = VirtualClock()
    time = DeviceTime(1, True, clock.now)
    time.begin(COMPARE)
    clock.advance(10)
    assert time.seconds({COMPARE: 4.0, PARSE: 1.0})[CALLS] == 5
    scaled = time.seconds({COMPARE: 15.0, PARSE: 5.0})
    assert (scaled[COMPARE], scaled[PARSE], scaled[CALLS]) == (7.5, 2.5, 0)


def test_a_clock_that_runs_backwards_counts_nothing() -> None:
    now = [5.0]
    time = DeviceTime(1, True, lambda: now[0])
    time.begin(STORAGE)
    now[0] = 3.0
    assert sum(time.seconds({}).values()) == 0
