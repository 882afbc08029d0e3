"""The bounds on loads: of workloads that do not want every pair, and on several ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.core.pairs.bound import (
    cluster_fills_bound,
    cluster_loads_bound,
    fills_bound,
    loads_bound,
    workload_bound,
)
from tartan.core.pairs.grid import Rect
from tartan.core.pairs.workload import AllPairs, Candidates, NewAgainstOld, Rectangle, Workload
from tartan.errors import ConfigError


def test_all_pairs_have_the_plain_bound() -> None:
    assert workload_bound(AllPairs(4980), 1050) == loads_bound(4980, 4980 * 4979 // 2, 1050) / 4980


@pytest.mark.parametrize("diagonal", [False, True])
def test_where_everything_fits_each_item_is_loaded_once(diagonal: bool) -> None:
    assert workload_bound(AllPairs(50, diagonal), 50) == 1
    assert workload_bound(AllPairs(50, diagonal), 500) == 1


def test_an_item_compared_with_itself_needs_no_second_load() -> None:
    assert workload_bound(AllPairs(100, diagonal=True), 10) == workload_bound(AllPairs(100), 10)


def test_items_that_no_candidate_names_need_no_load() -> None:
    assert workload_bound(Candidates(1000, np.array([[1, 2], [2, 7]])), 50) == 3 / 1000
    assert workload_bound(Candidates(10, np.array([[4, 4]])), 5) == 1 / 10
    assert workload_bound(Candidates(10, np.empty((0, 2), np.int64)), 5) == 0


def test_one_item_alone_needs_no_load_unless_it_meets_itself() -> None:
    assert workload_bound(AllPairs(1), 2) == 0
    assert workload_bound(AllPairs(1, diagonal=True), 2) == 1


@pytest.mark.parametrize(
    "workload",
    [
        AllPairs(9),
        AllPairs(9, diagonal=True),
        Rectangle(3, 9),
        NewAgainstOld(AllPairs(9), 6),
        NewAgainstOld(AllPairs(9, diagonal=True), 6),
        Candidates(9, np.array([[0, 1], [1, 8], [3, 3], [8, 0]])),
    ],
)
def test_counts_equal_those_of_the_pairs_themselves(workload: Workload) -> None:
    pairs = [(i, j) for i in range(9) for j in range(i, 9) if workload.count(Rect(i, i + 1, j, j + 1))]
    assert workload.n_pairs == len(pairs)
    assert workload.n_mixed_pairs == sum(i != j for i, j in pairs)
    assert workload.n_occurring == len({item for pair in pairs for item in pair})


def least_fills(n_items: int, pairs: frozenset[tuple[int, int]], slots: int) -> int:
    """Find by search how few fills make these pairs in a cache of so many slots."""
    start: tuple[frozenset[int], frozenset[tuple[int, int]]] = (frozenset(), frozenset())
    seen, level, fills = {start}, [start], 0
    while not any(done == pairs for _, done in level):
        fills += 1
        found = set()
        for held, done in level:
            for new in set(range(n_items)) - held:
                rooms = [held] if len(held) < slots else [held - {old} for old in held]
                for room in rooms:
                    made = {(min(new, other), max(new, other)) for other in room} & pairs
                    found.add((room | {new}, done | made))
        level = [state for state in found if state not in seen]
        seen |= found
    return fills


@pytest.mark.parametrize(("n_items", "slots"), [(3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (4, 4)])
def test_no_order_fills_less_than_the_bound(n_items: int, slots: int) -> None:
    pairs = frozenset((i, j) for i in range(n_items) for j in range(i + 1, n_items))
    least = least_fills(n_items, pairs, slots)
    assert fills_bound(len(pairs), slots) <= least
    assert loads_bound(n_items, len(pairs), slots) <= least
    for n_pairs in range(1, len(pairs)):
        some = frozenset(sorted(pairs)[:n_pairs])
        assert fills_bound(n_pairs, slots) <= least_fills(n_items, some, slots)


@pytest.mark.parametrize(
    ("n_ranks", "room", "loads", "fills"),
    [
        (4, 0.05, 2.63, 10.5),
        (4, 0.1, 1.46, 5.3),
        (4, 0.2, 1.03, 2.9),
        (4, 0.25, 1, 2.5),
        (4, 0.3, 1, 2.3),
        (16, 0.1, 1, 5.9),
        (16, 0.21, 1, 4.1),
        (48, 0.08, 1, 8.4),
    ],
)
def test_bounds_of_a_cluster(n_ranks: int, room: float, loads: float, fills: float) -> None:
    """The published table: ranks with an equal share of the pairs, and room for a part of the items each."""
    n = 480
    n_pairs = n * (n - 1) // 2
    assert cluster_loads_bound(n, n_pairs, [room * n] * n_ranks) / n == pytest.approx(loads, rel=0.01)
    shares = [(n_pairs // n_ranks, room * n)] * n_ranks
    assert cluster_fills_bound(n, shares) / n == pytest.approx(fills, rel=0.03)


def test_equal_ranks_with_much_room_need_the_root_of_their_number() -> None:
    n = 10_000
    shares = [(n * (n - 1) // 2 // 9, float(n))] * 9
    assert cluster_fills_bound(n, shares) / n == pytest.approx(3, rel=1e-3)


def test_one_rank_has_one_bound() -> None:
    assert cluster_loads_bound(100, 4950, [20]) == loads_bound(100, 4950, 20) == cluster_fills_bound(100, [(4950, 20)])
    assert cluster_fills_bound(10, [(0, 5), (45, 10)]) == 10


@pytest.mark.slow
def test_a_slot_is_too_little_for_a_pair() -> None:
    with pytest.raises(ConfigError, match="cannot hold a pair"):
        fills_bound(1, 1)
