"""Shares of parts: every chunk once, equal in pairs, the same whatever is done, compact."""

from __future__ import annotations

import numpy as np
import pytest
from core_problems import workloads
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.pairs.grid import Grid, Rect
from tartan.core.pairs.shares import Chunk, ShareOf, shares
from tartan.core.pairs.workload import AllPairs, Rectangle, Workload


def divided(workload: Workload, side: int, n_parts: int) -> tuple[Grid, dict[Chunk, int], list[list[Chunk]]]:
    grid = Grid(workload.n_items, side, 0, side, side, workload.borders)
    counts = {chunk: workload.count(grid.chunk_rect(chunk)) for chunk in grid.chunks()}
    wanted = {chunk: count for chunk, count in counts.items() if count}
    return grid, wanted, shares(list(wanted), list(wanted.values()), n_parts)


@given(workloads(), st.integers(1, 45), st.integers(1, 40))
def test_every_chunk_is_in_one_share(workload: Workload, side: int, n_parts: int) -> None:
    _, wanted, found = divided(workload, side, n_parts)
    assert len(found) == n_parts
    assert sorted(chunk for share in found for chunk in share) == sorted(wanted)
    assert all(share == sorted(share) for share in found)


@given(workloads(), st.integers(1, 45), st.integers(1, 9))
def test_a_share_counts_and_masks_its_chunks_alone(workload: Workload, side: int, n_parts: int) -> None:
    grid, wanted, found = divided(workload, side, n_parts)
    n = workload.n_items
    for share in found:
        own = ShareOf(workload, side, frozenset(share))
        whole = np.zeros((n, n), bool)
        for chunk in wanted:
            rect = grid.chunk_rect(chunk)
            mask = own.mask(rect)
            cells = whole[rect.r0 : rect.r1, rect.c0 : rect.c1]
            cells[...] = True if mask is None else mask
            assert own.count(rect) == cells.sum() == (wanted[chunk] if chunk in share else 0)
        i, j = np.nonzero(whole)
        assert (own.n_pairs, own.n_mixed_pairs) == (len(i), np.count_nonzero(i != j))
        assert own.n_occurring == len({*i.tolist(), *j.tolist()})
        assert set(i.tolist()) <= set(own.rows())
        assert set(j.tolist()) <= set(own.columns())
        assert (own.n_items, own.borders, own.has_diagonal) == (n, workload.borders, workload.has_diagonal)


@pytest.mark.parametrize("n_parts", [1, 2, 3, 4, 7, 16, 48])
@pytest.mark.parametrize("workload", [AllPairs(960), Rectangle(200, 800)], ids=["all", "rectangle"])
def test_shares_are_equal_in_pairs_up_to_a_few_chunks(workload: Workload, n_parts: int) -> None:
    _, wanted, found = divided(workload, 20, n_parts)
    pairs = [sum(wanted[chunk] for chunk in share) for share in found]
    mean = workload.n_pairs / n_parts
    assert max(pairs) - mean <= 3 * 400


def n_items_loaded(found: list[list[Chunk]]) -> int:
    return sum(len({line for chunk in share for line in chunk}) for share in found)


@pytest.mark.parametrize("n_parts", [4, 16, 48])
def test_shares_need_few_items(n_parts: int) -> None:
    """No division needs less than about sqrt(p) n items in all; consecutive rows need several times that."""
    side, n = 20, 960
    _, wanted, found = divided(AllPairs(n), side, n_parts)
    loads = n_items_loaded(found) / (n // side)
    assert loads <= 1.55 * n_parts**0.5
    ends = np.cumsum(list(wanted.values())) * n_parts // (AllPairs(n).n_pairs + 1)
    by_rows = [[chunk for chunk, end in zip(wanted, ends) if end == part] for part in range(n_parts)]
    assert n_items_loaded(found) < 0.85 * n_items_loaded(by_rows)


def test_more_parts_than_chunks_leave_some_empty() -> None:
    found = shares([(0, 0), (0, 1), (1, 1)], [3, 9, 3], 16)
    assert sorted(len(share) for share in found) == [0] * 13 + [1] * 3
    assert shares([], [], 3) == [[], [], []]
    empty = ShareOf(AllPairs(4), 2, frozenset())
    assert (empty.n_pairs, empty.n_occurring, empty.rows(), empty.columns()) == (0, 0, range(0), range(0))
    assert empty.count(Rect(0, 2, 0, 2)) == 0


@pytest.mark.slow
def test_the_shares_of_a_run_never_change() -> None:
    """Parts of different versions of the program may compute one run: these are the shares of all of them."""
    chunks = [(i, j) for i in range(4) for j in range(i, 4)]
    found = shares(chunks, [6 if i == j else 16 for i, j in chunks], 3)
    assert found == [[(0, 0), (0, 1), (0, 2)], [(0, 3), (1, 1), (1, 2)], [(1, 3), (2, 2), (2, 3), (3, 3)]]
