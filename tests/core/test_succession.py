"""Who may go on with a run, in virtual time: a dead driver is replaced at once, a silent one after its lease."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.ranks.succession import GRACE_SECONDS, Act, Fate, SeenWriter, judge_writers

LEASE = 15.0
RENEWAL = 5.0


def driver(fate: Fate, silent: float = 0.0) -> SeenWriter:
    return SeenWriter("driver", fate, silent, drives=True)


def rank(fate: Fate, silent: float = 0.0) -> SeenWriter:
    return SeenWriter("rank", fate, silent)


@pytest.mark.parametrize(
    ("writers", "act"),
    [
        ([], Act.FREE),
        ([driver("gone"), rank("gone")], Act.FREE),  # however new their leases are
        ([driver("runs", 1e6)], Act.FOLLOW),  # its disk may be slow
        ([driver("stopped", 19.9)], Act.FOLLOW),
        ([driver("stopped", 20.0)], Act.TAKE),
        ([driver("elsewhere", 19.9)], Act.FOLLOW),
        ([driver("elsewhere", 20.0), rank("gone")], Act.TAKE),
        ([driver("gone"), rank("runs", 100.0)], Act.WAIT),
        ([driver("gone"), rank("elsewhere", 3.0)], Act.WAIT),
        ([driver("stopped", 30.0), rank("runs", 0.0)], Act.WAIT),
        ([rank("elsewhere", 20.0), rank("stopped", 21.0)], Act.TAKE),
    ],
)
def test_what_is_seen_decides(writers: list[SeenWriter], act: Act) -> None:
    assert judge_writers(writers, LEASE).act is act


def replacement(dies_at: float, fate: Fate, lease: float, step: float = 0.25) -> float:
    """Return how long after a driver falls silent another one goes on, in a world of renewals and looks."""
    now = 0.0
    while True:
        renewed = min(now, dies_at) // RENEWAL * RENEWAL
        seen = driver("runs" if now < dies_at and fate != "elsewhere" else fate, now - renewed)
        if judge_writers([seen], lease).act is not Act.FOLLOW:
            return now - dies_at
        now += step


@given(dies_at=st.integers(0, 400).map(lambda n: n / 4), lease=st.integers(1, 60).map(float))
def test_a_replacement_comes_at_once_or_after_lease_and_grace_and_never_before_the_death(
    dies_at: float, lease: float
) -> None:
    assert replacement(dies_at, "gone", lease) <= 0.25
    for fate in ("stopped", "elsewhere"):
        waited = replacement(dies_at, fate, lease)
        assert max(0.0, lease + GRACE_SECONDS - RENEWAL) <= waited <= lease + GRACE_SECONDS + 0.25


@pytest.mark.slow
def test_the_time_left_is_that_of_the_last_one_to_fall_silent() -> None:
    judged = judge_writers([driver("stopped", 12.0), rank("elsewhere", 17.0)], LEASE)
    assert (judged.act, judged.seconds) == (Act.FOLLOW, 8.0)
    assert judge_writers([driver("gone"), rank("runs")], LEASE).seconds == float("inf")
