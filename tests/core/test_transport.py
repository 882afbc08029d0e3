"""Transport: things into groups at the least sum of costs."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from tartan.core.blocks.transport import by_regret, negative_cycle, transport


@pytest.mark.parametrize("seed", range(10))
def test_the_sum_is_the_least_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 9, (6, 3)).astype(float)
    low, high = np.array([1, 2, 0]), np.array([2, 4, 3])
    every = np.array(list(product(range(3), repeat=6)))
    counts = np.stack([(every == group).sum(axis=1) for group in range(3)], axis=1)
    allowed = every[((counts >= low) & (counts <= high)).all(axis=1)]
    least = costs[np.arange(6), allowed].sum(axis=1).min()
    groups = transport(costs, low, high)
    found = np.bincount(groups, minlength=3)
    assert (found >= low).all()
    assert (found <= high).all()
    assert costs[np.arange(6), groups].sum() == least


def test_one_thing_a_group_is_the_assignment_problem() -> None:
    costs = np.random.default_rng(3).random((6, 6))
    one = np.ones(6, dtype=int)
    least = min(costs[np.arange(6), list(order)].sum() for order in permutations(range(6)))
    groups = transport(costs, one, one)
    assert sorted(groups.tolist()) == list(range(6))
    assert costs[np.arange(6), groups].sum() == pytest.approx(least)


def test_many_groups_are_filled_greedily_and_within_bounds() -> None:
    costs = np.random.default_rng(0).random((400, 100))
    groups = transport(costs, np.full(100, 3), np.full(100, 5))
    counts = np.bincount(groups, minlength=100)
    assert counts.min() >= 3
    assert counts.max() <= 5
    assert costs[np.arange(400), groups].mean() < 0.1


def test_nothing_and_one_group() -> None:
    assert transport(np.zeros((0, 3)), np.zeros(3, int), np.ones(3, int)).tolist() == []
    assert by_regret(np.ones((2, 1)), np.array([2]), np.array([2])).tolist() == [0, 0]


@pytest.mark.slow
def test_a_cycle_is_found_where_there_is_one() -> None:
    steps = np.full((4, 4), np.inf)
    steps[0, 1], steps[1, 2], steps[2, 0], steps[2, 3] = 3.0, -5.0, 1.0, -9.0
    cycle = negative_cycle(steps, -1e-9)
    assert sorted(cycle) == [0, 1, 2]
    assert sum(steps[a, b] for a, b in zip(cycle, [*cycle[1:], cycle[0]])) == -1
    steps[2, 0] = 2.0
    assert negative_cycle(steps, -1e-9) == []
