"""Workloads: counts agree with masks, whatever the rectangle."""

from __future__ import annotations

import numpy as np
import pytest
from core_problems import workloads
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.pairs.grid import Grid, Rect
from tartan.core.pairs.workload import AllPairs, Candidates, NewAgainstOld, Rectangle, Workload
from tartan.errors import ConfigError


@st.composite
def rectangles(draw: st.DrawFn, n: int) -> Rect:
    rows = sorted(draw(st.sets(st.integers(0, n), min_size=2, max_size=2)))
    columns = sorted(draw(st.sets(st.integers(0, n), min_size=2, max_size=2)))
    return Rect(*rows, *columns)


@pytest.mark.slow
@given(st.data(), workloads())
def test_count_is_the_sum_of_the_mask(data: st.DataObject, workload: Workload) -> None:
    rect = data.draw(rectangles(workload.n_items))
    mask = workload.mask(rect)
    if mask is None:
        assert workload.count(rect) == rect.shape[0] * rect.shape[1]
    else:
        assert mask.shape == rect.shape
        assert workload.count(rect) == mask.sum()


@given(workloads(), st.integers(1, 45))
def test_chunks_hold_all_pairs(workload: Workload, chunk: int) -> None:
    grid = Grid(workload.n_items, chunk, 0, chunk, chunk)
    assert sum(workload.count(grid.chunk_rect(c)) for c in grid.chunks()) == workload.n_pairs


@pytest.mark.slow
@given(workloads())
def test_rows_and_columns_bound_the_pairs(workload: Workload) -> None:
    n = workload.n_items
    mask = workload.mask(Rect(0, n, 0, n))
    i, j = np.nonzero(np.ones((n, n)) if mask is None else mask)
    assert set(i.tolist()) <= set(workload.rows())
    assert set(j.tolist()) <= set(workload.columns())
    assert workload.has_diagonal or not (i == j).any()


def test_counts_by_hand() -> None:
    assert AllPairs(4).n_pairs == 6
    assert AllPairs(4, diagonal=True).n_pairs == 10
    assert Rectangle(3, 5).n_pairs == 6
    assert NewAgainstOld(AllPairs(5), 3).n_pairs == 10 - 3
    assert NewAgainstOld(Rectangle(2, 6), 4).n_pairs == 4


def test_candidates_count_once_in_any_order() -> None:
    candidates = Candidates(5, np.array([[3, 1], [1, 3], [1, 3], [4, 4]]))
    assert candidates.n_pairs == 2
    mask = candidates.mask(Rect(0, 5, 0, 5))
    assert mask is not None
    assert np.argwhere(mask).tolist() == [[1, 3], [4, 4]]


def test_a_candidate_that_is_no_item_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"candidate pair 1 is \(2, 5\), but the items are 0 to 4"):
        Candidates(5, np.array([[0, 1], [2, 5]]))


@pytest.mark.slow
@pytest.mark.parametrize("n_left", [0, 5])
def test_both_sides_of_a_rectangle_need_items(n_left: int) -> None:
    with pytest.raises(ConfigError, match="both sides"):
        Rectangle(n_left, 5)
