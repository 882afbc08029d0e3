"""The grid: tiles cover every pair once, and lines stay where they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.pairs.grid import MAX_ITEMS, Grid, Tile
from tartan.core.pairs.workload import AllPairs
from tartan.errors import ConfigError


@st.composite
def grids(draw: st.DrawFn, most_items: int = 30) -> Grid:
    n = draw(st.integers(1, most_items))
    side = st.integers(1, n + 3)
    borders = draw(st.lists(st.integers(1, n), max_size=3).map(sorted))
    return Grid(n, draw(side), draw(st.integers(0, n)), draw(side), draw(side), tuple(borders), draw(st.booleans()))


def all_tiles(grid: Grid) -> list[Tile]:
    return [tile for chunk in grid.chunks() for tile in grid.chunk_tiles(chunk)]


@pytest.mark.slow
@given(grids())
def test_tiles_cover_every_pair_once(grid: Grid) -> None:
    covered = np.zeros((grid.n_items, grid.n_items), dtype=int)
    for tile in all_tiles(grid):
        rect = grid.rect(tile)
        covered[rect.r0 : rect.r1, rect.c0 : rect.c1] += 1
    first = 0 if grid.diagonal else 1
    wanted = np.triu(np.ones_like(covered), first)
    np.testing.assert_array_equal(np.triu(covered, first), wanted)
    assert covered.max(initial=0) <= 1


@pytest.mark.slow
@given(grids())
def test_a_tile_lies_in_one_chunk(grid: Grid) -> None:
    for chunk in grid.chunks():
        area = grid.chunk_rect(chunk)
        for tile in grid.chunk_tiles(chunk):
            rect = grid.rect(tile)
            assert grid.chunk_of(tile) == chunk
            assert area.r0 <= rect.r0 <= rect.r1 <= area.r1
            assert area.c0 <= rect.c0 < rect.c1 <= area.c1


@given(grids())
def test_a_strip_is_a_whole_number_of_spans(grid: Grid) -> None:
    assert set(grid.strip_lines.tolist()) <= set(grid.span_lines.tolist())
    for strip in range(grid.n_strips):
        spans = [grid.span_items(span) for span in grid.spans_of(strip)]
        assert [item for span in spans for item in span] == list(grid.strip_items(strip))
        assert {grid.strip_of(span) for span in grid.spans_of(strip)} == {strip}
    assert grid.longest_strip <= grid.strip
    assert grid.longest_span <= grid.span


@given(grids())
def test_row_spans_hold_the_rows_of_a_tile(grid: Grid) -> None:
    for tile in all_tiles(grid):
        rows = [item for span in grid.row_spans(tile) for item in grid.span_items(span)]
        rect = grid.rect(tile)
        assert rows[: rect.r1 - rect.r0] == list(range(rect.r0, rect.r1))


@pytest.mark.slow
@given(grids(), st.integers(1, 30))
def test_old_lines_stay_when_items_are_added(grid: Grid, more: int) -> None:
    n = grid.n_items
    larger = Grid(n + more, **grid.parameters(), borders=(*grid.borders, n), diagonal=grid.diagonal)
    old = [line for line in larger.span_lines.tolist() if line <= n]
    assert old == grid.span_lines.tolist()
    assert [line for line in larger.strip_lines.tolist() if line <= n] == grid.strip_lines.tolist()
    before = {grid.rect(tile) for tile in all_tiles(grid)}
    assert before == {rect for rect in map(larger.rect, all_tiles(larger)) if rect.c1 <= n}


def test_indices_beyond_32_bits_of_pairs() -> None:
    n = MAX_ITEMS
    grid, workload = Grid(n, 2**24, 0, 2**16, 2**15), AllPairs(n)
    assert sum(workload.count(grid.chunk_rect(chunk)) for chunk in grid.chunks()) == n * (n - 1) // 2
    last = Tile(grid.n_strips - 1, grid.n_spans - 1)
    assert grid.rect(last) == (n - 2**16, n, n - 2**15, n)
    assert grid.span_lines.dtype == np.int64
    assert workload.count(grid.rect(Tile(0, grid.n_spans - 1))) == 2**31


@pytest.mark.parametrize("n", [0, MAX_ITEMS + 1])
def test_too_few_or_too_many_items_are_refused(n: int) -> None:
    with pytest.raises(ConfigError, match="n_items"):
        Grid(n, 1, 0, 1, 1)


def test_sides_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="positive"):
        Grid(10, 0, 0, 1, 1)
