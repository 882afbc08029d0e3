"""Halving of tiles that failed as a whole, with ends that become known in any order and as late as one likes."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from tartan.runtime.parts import HalvedTiles, Part, TileMask, halves


def whole(key: str, m: int, k: int) -> Part:
    return Part(cast(Any, key), ([], []), (m, k), (0, 0), (0, 0), (0, 0), TileMask(None), None)


def calls_until(n_failed: int, most: int, seed: int) -> int:
    """Compare three large tiles in which every pair fails, until ``n_failed`` pairs have; return the calls made."""
    rng = random.Random(seed)
    halved = HalvedTiles(most)
    running = [whole(str(key), 2**10, 2**10) for key in range(3)]
    calls, failed = len(running), 0
    while failed < n_failed:
        # Some ends are known at once, others long after; those of a batch are handled one after another.
        for part in rng.sample(running, rng.randint(1, len(running))):
            running.remove(part)
            halved.on_ended(part)
            if part.shape == (1, 1):
                failed += 1
            else:
                halved.add(halves(part))
            started = list(halved.next())
            calls += len(started)
            running += started
    return calls


@pytest.mark.parametrize("most", [1, 2, 8])
def test_the_way_to_failing_pairs_is_a_path(most: int) -> None:
    # Two calls for each pair found, and a path of twenty halvings for each part under way and each tile.
    assert max(calls_until(100, most, seed) for seed in range(20)) <= 2 * 100 + 20 * (most + 3)


def test_few_parts_are_under_way() -> None:
    halved = HalvedTiles(2)
    tile = whole("t", 8, 8)
    halved.add(halves(tile))
    first, second = halved.next()
    assert (first.origin, second.origin) == ((0, 0), (4, 0))
    assert list(halved.next()) == []
    halved.on_ended(tile)  # a whole tile frees no place
    assert list(halved.next()) == []
    halved.add(halves(second))
    halved.on_ended(second)
    (deeper,) = halved.next()
    assert (deeper.depth, deeper.origin) == (2, (4, 0))
