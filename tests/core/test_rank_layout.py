"""How runs on several ranks are cut, and how ranks divide their slots."""

from __future__ import annotations

import numpy as np
import pytest
from core_problems import SEEDS
from core_world import Problem, World
from hypothesis import given, settings
from hypothesis import strategies as st

from tartan.core.pairs.schedule import check_room
from tartan.core.pairs.sizing import choose_grid
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.division import Divider, Sharer, chunk_pairs
from tartan.core.ranks.layout import choose_cluster_grid, divide_slots


@pytest.mark.parametrize(
    ("n_items", "slots", "n_ranks"), [(500, 50, 4), (500, 250, 15), (4980, 1050, 16), (2500, 280, 48)]
)
def test_there_are_enough_chunks_for_each_rank(n_items: int, slots: int, n_ranks: int) -> None:
    grid = choose_cluster_grid(AllPairs(n_items), slots, n_ranks)
    assert grid.n_chunks * (grid.n_chunks + 1) // 2 >= max(512, 64 * n_ranks)
    assert divide_slots(grid, slots, slots * n_ranks).strips_stream


@pytest.mark.parametrize(("n_items", "slots", "lines"), [(2000, 100, 7), (2000, 200, 8), (500, 50, 2), (500, 150, 12)])
def test_bands_are_some_whole_chunks_high_and_fill_their_room(n_items: int, slots: int, lines: int) -> None:
    grid = choose_cluster_grid(AllPairs(n_items), slots, 4)
    rows = divide_slots(grid, slots, slots * 4).band_items
    assert rows // grid.chunk >= lines
    assert rows % grid.chunk <= 0.06 * rows


def test_items_of_unlike_size_do_not_stream_in_strips() -> None:
    grid = choose_cluster_grid(AllPairs(500), 50, 4, streams=False)
    assert grid == choose_grid(AllPairs(500), 50, chunk=grid.chunk)


def test_few_items_make_small_chunks() -> None:
    assert choose_cluster_grid(AllPairs(5), 5, 4).chunk == 4


@given(n=st.integers(2, 200), slots=st.integers(1, 220), ranks=st.integers(1, 9), chunk=st.none() | st.integers(1, 50))
def test_the_parts_of_a_room_fit_it(n: int, slots: int, ranks: int, chunk: int | None) -> None:
    room, workload = max(2, slots), AllPairs(n)
    grid = choose_cluster_grid(workload, room, ranks) if chunk is None else choose_grid(workload, room, chunk=chunk)
    found = divide_slots(grid, slots, slots * ranks)
    used = found.layout.room.total if found.layout is not None else 0
    assert used + found.n_kept * grid.longest_span <= slots
    assert found.band_items == 0 or found.layout is not None
    if found.layout is not None:
        check_room(grid, found.layout.room, "--host-cache")


def test_a_rank_of_two_slots_is_home_only_where_tiles_are_larger() -> None:
    grid = choose_grid(AllPairs(500), 100)
    found = divide_slots(grid, 2, 400)
    assert (found.band_items, found.n_kept) == (0, 2 // grid.longest_span)


@pytest.mark.slow
@settings(max_examples=15)
@given(n=st.integers(8, 40), rooms=st.lists(st.integers(6, 45), min_size=1, max_size=4), seed=SEEDS)
def test_ranks_of_unlike_rooms_compute_all(n: int, rooms: list[int], seed: int) -> None:
    workload = AllPairs(n)
    grid = choose_cluster_grid(workload, min(rooms), len(rooms))
    pairs = chunk_pairs(grid, workload)
    slots = [divide_slots(grid, room, sum(rooms)) for room in rooms]
    ranks = [Sharer(k, 1.0, s.band_items) for k, s in enumerate(slots) if s.layout is not None]
    divider = Divider(pairs, grid.chunk, circle=all(s.strips_stream for s in slots))
    computed = np.zeros((n, n), dtype=np.int64)
    while ranks and not divider.finished:
        for k, share in divider.next_panel(ranks).items():
            layout = slots[k].layout
            assert layout is not None
            mine = np.zeros((n, n), dtype=bool)
            for region in share:
                rows, columns = (slice(s.start * grid.chunk, s.stop * grid.chunk) for s in region.area)
                mine[rows, columns] = True
            world = World(Problem(workload, rooms[k]), grid, seed, ~mine, room=layout.room)
            allotment = Allotment(grid, pairs, layout.panel_items, world.wants, strips_stream=slots[k].strips_stream)
            allotment.on_granted(share)
            world.segments = iter(allotment.segments(10**6))
            world.run()
            computed += world.computed
    if ranks:
        np.testing.assert_array_equal(computed, np.triu(np.ones((n, n)), 1))
