"""The scheduler: every pair once, in any order of events, whatever the caches hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from core_problems import SEEDS, problems
from core_world import Problem, World
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.pairs.actions import Load, Origin, Prepare, Upload
from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.order import Segment
from tartan.core.pairs.schedule import DeviceSlots, Scheduler
from tartan.core.pairs.sizing import tile_filter
from tartan.core.pairs.workload import AllPairs, NewAgainstOld
from tartan.errors import ConfigError, InternalError


@pytest.mark.slow
@given(problems(), SEEDS)
def test_every_pair_is_computed_once(problem: Problem, seed: int) -> None:
    world = World(problem, problem.grid(), seed)
    world.run()
    world.check_complete()
    assert sum(map(world.grid.span_length, world.loads)) == world.scheduler.n_loads
    assert world.most_open <= world.layout.open_chunks


@pytest.mark.slow
@given(problems(), SEEDS, st.data())
def test_a_resumed_run_computes_what_is_missing(problem: Problem, seed: int, data: st.DataObject) -> None:
    grid = problem.grid()
    committed = data.draw(st.sets(st.sampled_from(list(grid.chunks()))))
    done = np.zeros((grid.n_items, grid.n_items), dtype=bool)
    for chunk in committed:
        rect = grid.chunk_rect(chunk)
        done[rect.r0 : rect.r1, rect.c0 : rect.c1] = True
    world = World(problem, grid, seed, done)
    world.run()
    world.check_complete()
    assert not committed & set(world.committed)


@pytest.mark.slow
@given(problems(), SEEDS, st.integers(0, 200))
def test_a_run_that_is_stopped_can_be_resumed(problem: Problem, seed: int, events: int) -> None:
    grid = problem.grid()
    first = World(problem, grid, seed)
    first.run(stop_after=events)
    done = np.zeros((grid.n_items, grid.n_items), dtype=bool)
    for chunk in first.committed:
        rect = grid.chunk_rect(chunk)
        done[rect.r0 : rect.r1, rect.c0 : rect.c1] = True
    second = World(problem, grid, seed + 1, done)
    second.run()
    second.check_complete()
    assert not set(first.committed) & set(second.committed)


@pytest.mark.slow
@given(st.data(), st.lists(st.integers(1, 9), min_size=2, max_size=3), st.booleans(), SEEDS)
def test_items_may_be_added_again_and_again(data: st.DataObject, sizes: list[int], diagonal: bool, seed: int) -> None:
    n = sizes[0] + 1
    problem = data.draw(problems(st.just(AllPairs(n, diagonal))))
    grid = problem.grid()
    total = World(problem, grid, seed)
    total.run()
    borders: tuple[int, ...] = ()
    computed = total.computed
    for more in sizes[1:]:
        borders, n_old, n = (*borders, n), n, n + more
        grid = Grid(n, **grid.parameters(), borders=borders, diagonal=diagonal)
        done = np.zeros((n, n), dtype=bool)
        done[:n_old, :n_old] = computed > 0
        problem.workload = NewAgainstOld(AllPairs(n, diagonal), n_old)
        problem.slots = max(problem.slots, grid.longest_strip + grid.longest_span)
        problem.device_slots = tuple(s and max(s, grid.longest_strip + grid.longest_span) for s in problem.device_slots)
        world = World(problem, grid, seed, done)
        world.run()
        world.check_complete()
        world.computed[:n_old, :n_old] += computed
        computed = world.computed
    np.testing.assert_array_equal(computed, np.triu(np.ones((n, n)), 0 if diagonal else 1))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("order", ["panel", "quadrant"])
@pytest.mark.parametrize("prepare", [False, True])
def test_the_smallest_caches_come_to_an_end(slots: int, order: str, prepare: bool) -> None:
    for device_slots in [(None,), (2,), (3,), (2, 3), (None, 2)]:
        for chunk in (1, 3, None):
            problem = Problem(AllPairs(7), slots, device_slots, chunk, order, 1, prepare, depth=1)
            world = World(problem, problem.grid())
            world.run()
            world.check_complete()


@pytest.mark.exhaustive
@given(problems(), SEEDS)
def test_loads_are_a_function_of_the_order(problem: Problem, seed: int) -> None:
    """What ends first, the devices and where items are prepared move no load: not its place in the sequence either."""
    grid = problem.grid()
    other = replace(problem, device_slots=(None,), prepare_on_device=False, depth=1, max_admitted=2)
    loads = []
    for variant, number in ((problem, seed), (problem, seed + 1), (other, seed)):
        world = World(variant, grid, number)
        world.run()
        loads.append(world.loads)
    assert loads == loads[:1] * 3


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("device_slots", [(5,), (5, 12), (36, 36), (None,), (None, None, None)])
@pytest.mark.parametrize("prepare", [False, True])
def test_loads_can_be_counted_by_hand(device_slots: tuple[int | None, ...], prepare: bool) -> None:
    """Panels of 8 rows and a column at a time: 36 + 28 + 20 + 12 + 4 loads, less 2 at each of four turns."""
    problem = Problem(AllPairs(36), 10, device_slots, prepare_on_device=prepare)
    grid = Problem(AllPairs(36), 10, (5,)).grid()
    for seed in range(3):
        world = World(problem, grid, seed)
        world.run()
        assert world.scheduler.n_loads == 100 - 4 * 2


def test_idle_devices_take_from_the_longest_queue() -> None:
    """A device that never answers keeps what it holds; the other one does the rest."""
    problem = Problem(AllPairs(40), 12, (None, None))
    world = World(problem, problem.grid(), deaf_device=1)
    world.run(expect_end=False)
    held = world.computed.sum() + world.pairs_under_way()
    assert world.computed.sum() > 0
    assert world.pairs_under_way() <= problem.depth * problem.grid().strip * problem.grid().span
    assert held <= AllPairs(40).n_pairs


def scheduler(grid: Grid, host: Room, device: Room | None) -> Scheduler:
    workload = AllPairs(grid.n_items)
    needed = tile_filter(grid, workload)
    return Scheduler(grid, needed, host, [DeviceSlots(device, 4)])


@pytest.mark.parametrize("origin", list(Origin))
def test_loads_are_counted_by_where_they_come_from(origin: Origin) -> None:
    """A span that was evicted is fetched from the nearest place that has it; only storage has unprepared items."""
    grid = Grid(3, 3, 0, 1, 1)
    needed = tile_filter(grid, AllPairs(3))
    made = Scheduler(grid, needed, Room(0, 2), [DeviceSlots(Room(1, 1, row_frame=1), 4)], prepare_on_device=True)
    made.start()
    tiles = [Tile(0, 1), Tile(1, 2), Tile(0, 2)]
    order = Segment(0)
    for tile in tiles:
        order.append(tile)
    made.on_located(0, origin)
    actions = made.on_granted([order], last=True)
    first, second = actions[:2]
    assert (first, second) == (Load(0, first.address, origin), Load(1, second.address, Origin.STORAGE))
    followed = [*made.on_loaded(0, origin=origin), *made.on_loaded(1)]
    assert {type(action) for action in followed if action.span == 0} == {Upload if origin.ready else Prepare}
    assert {type(action) for action in followed if action.span == 1} == {Prepare}
    assert made.fills == Counter({origin: 1}) + Counter({Origin.STORAGE: 1})
    assert made.n_loads == 2


def test_only_devices_with_slots_of_their_own_preprocess_items() -> None:
    grid = Grid(3, 3, 0, 1, 1)
    with pytest.raises(InternalError, match="works in host memory"):
        Scheduler(grid, tile_filter(grid, AllPairs(3)), Room(0, 2), [DeviceSlots(None, 1)], prepare_on_device=True)


def test_a_cache_smaller_than_a_tile_is_refused_before_anything_starts() -> None:
    grid = Grid(40, 10, 10, 5, 2)
    with pytest.raises(ConfigError, match=r"--host-cache has room for 6 items.*give --host-cache 7items"):
        scheduler(grid, Room(4, 2, column_frame=2), None)
    with pytest.raises(ConfigError, match="--device-cache"):
        scheduler(grid, Room(6, 2, column_frame=2), Room(4, 2, row_frame=5, column_frame=2))


@pytest.mark.slow
def test_spans_of_unequal_size_share_bytes() -> None:
    """Where slots are not addressed, only sizes count; a span may turn out larger than expected."""
    grid = Grid(12, 4, 0, 2, 1)
    workload = AllPairs(12)
    problem = Problem(workload, 8)
    world = World(problem, grid, room=Room(0, 100, addressed=False), span_size=lambda span: 10 + span)
    world.run()
    world.check_complete()
    assert world.scheduler.host.stats.peak <= 100
    assert len(world.loads) > grid.n_spans
