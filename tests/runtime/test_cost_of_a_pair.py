"""What a pair and a call are found to cost, with functions of every kind of constant cost, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest

from tartan.core.pairs.sizing import Costs
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.run_sizing import RunSizing
from tartan.run.probing import measure_costs
from tartan.runtime.tasks import PROBE_SIDES, ProbedCost, cost_of_one_more


class Function:
    """Takes some time at its first call, at every call, and for every pair."""

    def __init__(self, first: float, each: float, pair: float, noise: float = 0.0) -> None:
        self.first, self.each, self.pair, self.noise = first, each, pair, noise
        self.n_calls = self.n_pairs = 0
        self.seconds = 0.0

    def __call__(self, last: int, others: int) -> float:
        seconds = self.each + last * others * self.pair + (0.0 if self.n_calls else self.first)
        seconds *= 1 + self.noise * (-1) ** self.n_calls
        self.n_calls += 1
        self.n_pairs += last * others
        self.seconds += seconds
        return seconds


def probed(function: Callable[[int, int], float], n_items: int) -> ProbedCost:
    n_pairs = n_items * (n_items - 1) // 2
    return cost_of_one_more(function, PROBE_SIDES[2], 2, max(6, n_pairs // 100))


def cut(function: Function, n_items: int, chunk: int | None = None) -> tuple[int, int]:
    """Return the shape of calls of a run."""
    costs = measure_costs(probed(function, n_items))
    sizing = RunSizing(10**6, (None,), True, 5, costs, 1, False, False, chunk, "panel")
    grid = sizing.grid(AllPairs(n_items))
    return grid.longest_strip, grid.longest_span


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("first", [0.0, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("each", [0.0, 1e-3, 0.1, 3.0])
def test_what_a_call_costs_is_not_taken_for_the_cost_of_a_pair(first, each, noise):
    function = Function(first, each, 1e-6, noise)
    strip, span = cut(function, 400)
    n_calls = ceil(400 / strip) * ceil(400 / span) / 2
    assert n_calls * each <= 150 * max(each, 0.01)
    if each >= 0.1:
        assert (strip, span) == (50, 50)
    assert function.seconds - first <= 0.5 + 5 * each


@pytest.mark.parametrize("first", [0.0, 3.0, 60.0])
@pytest.mark.parametrize(("pair", "most"), [(0.1, 16), (3.0, 1), (300.0, 1)])
def test_slow_pairs_get_small_calls_however_slow_the_first_call_is(first, pair, most):
    strip, span = cut(Function(first, 0.0, pair), 400)
    assert strip * span <= most


def test_a_call_that_costs_much_beside_slow_pairs_gets_as_many_as_hide_it():
    strip, span = cut(Function(0.0, 3.0, 0.1), 400)
    assert 2 * 3.0 <= strip * span * 0.1 <= 20 * 3.0


@pytest.mark.parametrize(("pair", "most"), [(300.0, 4), (15.0, 4), (1.0, 20)])
def test_few_slow_pairs_are_compared_to_learn_that_they_are_slow(pair, most):
    function = Function(0.0, 0.0, pair)
    probed(function, 50)
    assert function.n_pairs <= most


def test_a_single_call_is_taken_as_it_is():
    assert cost_of_one_more(Function(0.0, 0.0, 2.0), PROBE_SIDES[2], 2, 1) == ProbedCost(2.0, 1)


def test_costs_are_orders_of_magnitude_so_that_two_runs_are_cut_alike():
    shapes = {
        cut(Function(1.0, each, pair, noise), 400)
        for each in (0.8, 1.3)
        for pair in (0.08, 0.13)
        for noise in (0.0, 0.03)
    }
    assert len(shapes) == 1


def test_quick_functions_cost_as_before():
    assert measure_costs(ProbedCost(1e-5, 300, 1e-3)) == Costs()
