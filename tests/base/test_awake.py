"""The clock that stands still while its process does not run."""

from __future__ import annotations

import pytest

from tartan.base.machine import MOST_SECONDS, AwakeClock


class Moments:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_stop_of_an_hour_is_no_hour_of_silence() -> None:
    moments = Moments()
    awake = AwakeClock(clock=moments)
    for _ in range(10):
        moments.now += 0.5
        before = awake()
    moments.now += 3600
    assert awake() - before == pytest.approx(MOST_SECONDS)
    moments.now += 0.5
    assert awake() - before == pytest.approx(MOST_SECONDS + 0.5)


def test_what_passes_between_readings_counts() -> None:
    moments = Moments()
    awake = AwakeClock(clock=moments)
    for _ in range(40):
        moments.now += 0.5
        found = awake()
    assert found == pytest.approx(20.0)
