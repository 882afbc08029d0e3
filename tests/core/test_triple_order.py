"""Triples: tiles that cover each triple once, an order near the bound, loads that are known beforehand."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tartan.core.pairs.actions import Action, AskSegments, Commit, Compare, Load
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.planned import count_loads
from tartan.core.pairs.setup import NodePlan, make_scheduler, make_segments, next_segments
from tartan.core.pairs.triples import (
    TripleGrid,
    choose_triple_grid,
    choose_triple_layout,
    triple_order,
    triple_side,
    triples_bound,
)
from tartan.core.pairs.workload import AllPairs
from tartan.errors import ConfigError, InternalError

CUTS = [(3, 3), (4, 3), (9, 3), (13, 5), (20, 7), (24, 20), (31, 40), (40, 13)]


def grid_of(n_items: int, slots: int, side: int | None = None) -> TripleGrid:
    """Cut a run as a session would."""
    return choose_triple_grid(n_items, slots, side or triple_side(n_items, 1))


def setup_of(grid: TripleGrid, slots: int, n_workers: int = 1) -> NodePlan:
    """Describe the execution of a run that has nothing yet."""
    layout = choose_triple_layout(grid, slots)
    return NodePlan(grid, AllPairs(grid.n_items), layout, n_workers=n_workers)


def triples_of(grid: TripleGrid, tile: Tile) -> list[tuple[int, ...]]:
    """Return the triples of a tile by its mask."""
    groups, mask = grid.groups(tile), grid.mark_wanted(tile)
    mask = np.ones(tuple(map(len, groups)), bool) if mask is None else mask
    starts = [group.start for group in groups]
    return [tuple(at + start for at, start in zip(place, starts, strict=True)) for place in np.argwhere(mask).tolist()]


@pytest.mark.parametrize(("n_items", "slots"), CUTS)
def test_tiles_cover_each_triple_once(n_items: int, slots: int) -> None:
    grid = grid_of(n_items, slots)
    layout = choose_triple_layout(grid, slots)
    order = triple_order(grid, layout.panel_items, lambda tile: grid.count(tile) > 0)
    tiles = [tile for segment in order for tile in segment.tiles]
    found = [triple for tile in tiles for triple in triples_of(grid, tile)]
    assert sorted(found) == list(itertools.combinations(range(n_items), 3))
    assert [grid.count(tile) for tile in tiles] == [len(triples_of(grid, tile)) for tile in tiles]


@pytest.mark.parametrize(("n_items", "slots"), CUTS)
def test_chunks_are_made_of_their_tiles(n_items: int, slots: int) -> None:
    grid = grid_of(n_items, slots)
    chunks = list(grid.chunks())
    assert len(set(chunks)) == len(chunks)
    assert sum(map(grid.chunk_count, chunks)) == grid.n_triples
    for chunk in chunks:
        tiles = list(grid.chunk_tiles(chunk))
        assert {grid.chunk_of(tile) for tile in tiles} == {chunk}
        assert sum(map(grid.count, tiles)) == grid.chunk_count(chunk)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n_items", "slots"), [(13, 5), (40, 13), (31, 40)])
def test_a_plan_makes_the_loads_of_every_run(n_items: int, slots: int, seed: int) -> None:
    """Whatever ends first, and however many tiles are under way at a time."""
    grid = grid_of(n_items, slots)
    chance = random.Random(seed)
    setup = setup_of(grid, slots, n_workers=chance.choice([1, 2, 5]))
    scheduler, segments = make_scheduler(setup), make_segments(setup)
    under_way: list[Action] = []
    new = scheduler.start()
    while not scheduler.finished:
        for action in new:
            if isinstance(action, Compare):
                states = [scheduler.host.state(span) for span in grid.tile_spans(action.tile)]
                assert all(state is not None and state.name == "READY" for state in states)
            if isinstance(action, AskSegments | Load | Compare | Commit):
                under_way.append(action)
        match under_way.pop(chance.randrange(len(under_way))):
            case AskSegments(most):
                granted, last = next_segments(segments, most)
                new = scheduler.on_granted(granted, last=last)
            case Load() as load:
                new = scheduler.on_loaded(load.span)
            case Compare(device, tile):
                new = scheduler.on_compared(device, tile)
            case Commit(chunk):
                new = scheduler.on_committed(chunk)
    assert scheduler.host.stats.peak <= slots
    assert scheduler.n_loads == count_loads(setup_of(grid, slots))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("slots", "most"), [(31, 2.3), (61, 2.7)])
def test_loads_are_near_the_bound(slots: int, most: float) -> None:
    loads = count_loads(setup_of(grid_of(300, slots), slots))
    assert 1 <= loads / (300**3 / (3 * slots**2)) <= most


@pytest.mark.slow
@pytest.mark.parametrize("slots", [90, 150])
def test_loads_are_near_the_bound_in_other_rooms(slots: int) -> None:
    loads = count_loads(setup_of(grid_of(200, slots), slots))
    assert loads <= 3 * triples_bound(200, slots)


def test_everything_is_loaded_once_where_it_fits() -> None:
    assert count_loads(setup_of(grid_of(60, 60), 60)) == 60
    assert triples_bound(60, 60) == 60


def test_a_run_may_continue_with_another_room() -> None:
    grid = grid_of(40, 13)
    for slots in (11, 25, 64):
        layout = choose_triple_layout(grid, slots)
        tiles = [t for s in triple_order(grid, layout.panel_items, lambda tile: grid.count(tile) > 0) for t in s.tiles]
        assert sum(map(grid.count, tiles)) == grid.n_triples
        assert count_loads(setup_of(grid, slots)) >= 40
    with pytest.raises(ConfigError, match="--host-cache has room for 4 items; a tile of this run needs"):
        count_loads(setup_of(grid, 4))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 5, 7, 40])
def test_the_side_of_a_chunk_may_be_given(chunk: int) -> None:
    for slots in (11, 50):
        grid = choose_triple_grid(40, slots, 5, chunk)
        assert grid.chunk == chunk
        assert sum(map(grid.chunk_count, grid.chunks())) == grid.n_triples
        assert count_loads(setup_of(grid, slots)) >= 40


def test_too_few_items_and_too_little_room_are_refused() -> None:
    with pytest.raises(ConfigError, match="triples need at least 3 items, and there are 2"):
        choose_triple_grid(2, 10, 1)
    with pytest.raises(ConfigError, match="--host-cache has room for 2 items; comparing triples needs at least 3"):
        choose_triple_grid(10, 2, 1)


def test_chunks_that_would_be_too_many_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"--tile 2 would cut 300 items into 573,800 chunks .* give --tile 3 or more"):
        choose_triple_grid(300, 300, 16, 2)
    assert choose_triple_grid(300, 300, 16, 3).chunk == 3


def test_a_box_is_no_larger_than_a_slow_comparison_allows() -> None:
    assert triple_side(1000, 1) == 16
    assert triple_side(1000, 64) == 64
    assert triple_side(20, 64) == 3
    assert triple_side(1000, 1, triple_seconds=0.1) == 1


@pytest.mark.slow
def test_a_tile_of_triples_is_no_rectangle() -> None:
    grid = grid_of(9, 9)
    with pytest.raises(InternalError):
        grid.rect(next(grid.chunk_tiles(next(grid.chunks()))))
