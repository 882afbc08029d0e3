"""When the finished tiles of open chunks are saved, in virtual time."""

from __future__ import annotations

import random

import pytest

from tartan.core.pairs.saves import MOST_OF_TIME, OLDEST_SECONDS, SavePolicy

A, B = (0, 0), (0, 1)


def test_a_finished_tile_waits_no_longer_than_said() -> None:
    policy = SavePolicy(16)
    policy.on_finished(A, 0.0)
    policy.on_finished(A, OLDEST_SECONDS - 1)
    policy.on_finished(B, 10.0)
    assert policy.due(OLDEST_SECONDS - 0.01) == []
    assert policy.due(OLDEST_SECONDS) == [A]
    assert policy.due(OLDEST_SECONDS + 10) == [A, B]


def test_what_is_written_waits_no_more_and_what_ends_later_waits_anew() -> None:
    policy = SavePolicy(16)
    policy.on_finished(A, 0.0)
    policy.on_begun(A)
    assert policy.due(1e6) == [] == list(policy.list_unsaved())
    policy.on_finished(A, 50.0)
    assert policy.due(50.0 + OLDEST_SECONDS - 0.01) == []
    assert policy.due(50.0 + OLDEST_SECONDS) == [A]
    assert list(policy.list_unsaved()) == [A]


def test_a_chunk_that_lives_shorter_is_never_saved() -> None:
    policy = SavePolicy(2)
    for number in range(1000):
        chunk = (0, number)
        for tenth in range(10):
            now = number * OLDEST_SECONDS / 2 + tenth
            policy.on_finished(chunk, now)
            assert policy.due(now) == []
        policy.on_begun(chunk)


@pytest.mark.slow
@pytest.mark.parametrize("save_seconds", [0.01, 0.5, 5.0])
@pytest.mark.parametrize("n_open", [1, 20])
def test_saves_take_a_hundredth_of_the_time(save_seconds: float, n_open: int) -> None:
    """Sixteen workers finish a tile a second in each open chunk, for two days: what a kill loses, what saves cost."""
    policy, drawn = SavePolicy(16), random.Random(3)
    oldest: dict[tuple[int, int], float] = {}
    spent, longest, now = 0.0, 0.0, 0.0
    while now < 2 * 86400:
        now += 1.0
        for number in range(n_open):
            policy.on_finished((0, number), now)
            oldest.setdefault((0, number), now)
        for chunk in policy.due(now):
            longest = max(longest, now - oldest.pop(chunk))
            policy.on_begun(chunk)
            seconds = save_seconds * drawn.uniform(0.5, 1.5)
            policy.on_ended(seconds)
            spent += seconds
    assert spent <= 1.1 * MOST_OF_TIME * 16 * now
    affordable = save_seconds * n_open <= MOST_OF_TIME * 16 * OLDEST_SECONDS
    assert (longest <= OLDEST_SECONDS + 1) == affordable
