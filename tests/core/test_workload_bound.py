"""The bound on loads of workloads that do not want every pair of every item."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.core.bound import load_factor_bound, workload_bound
from tartan.core.grid import Rect
from tartan.core.workload import AllPairs, Candidates, NewAgainstOld, Rectangle, Workload


def test_all_pairs_have_the_plain_bound() -> None:
    assert workload_bound(AllPairs(4980), 1050) == load_factor_bound(4980, 4980 * 4979 // 2, 1050)


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
