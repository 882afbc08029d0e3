"""Sizing: tiles no longer than asked for, panels that use the room, clear errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.pairs.schedule import check_room
from tartan.core.pairs.sizing import Costs, choose_grid, choose_layout, device_room, make_order, tile_filter
from tartan.core.pairs.workload import AllPairs, NewAgainstOld, Rectangle
from tartan.core.replay.node import Machine, WorkloadCosts, replay
from tartan.errors import ConfigError

COSTS = st.builds(
    Costs,
    load_seconds=st.sampled_from([0.0, 1e-3, 1.0]),
    compare_seconds=st.sampled_from([0.0, 1e-9, 1e-4, 1e-2, 0.3, 5.0]),
    upload_seconds=st.sampled_from([0.0, 1e-2]),
)
ORDERS = st.sampled_from(["panel", "quadrant"])
CHUNKS = st.none() | st.integers(1, 3000)


@pytest.mark.slow
@given(st.integers(2, 5000), st.integers(2, 3000), st.none() | st.integers(2, 3000), CHUNKS, ORDERS, COSTS)
def test_no_tile_is_longer_than_the_target(
    n: int, slots: int, device_slots: int | None, chunk: int | None, order: str, costs: Costs
) -> None:
    grid = choose_grid(AllPairs(n), slots, device_slots=device_slots, chunk=chunk, order=order, costs=costs)
    seconds = grid.longest_strip * grid.longest_span * costs.compare_seconds
    assert seconds <= 1.0 or grid.longest_strip * grid.longest_span == 1


@pytest.mark.slow
@given(st.integers(3, 5000), st.integers(2, 3000), st.none() | st.integers(2, 3000), CHUNKS, ORDERS, COSTS)
def test_every_level_has_room_for_a_tile(
    n: int, slots: int, device_slots: int | None, chunk: int | None, order: str, costs: Costs
) -> None:
    workloads = [AllPairs(n), Rectangle(max(1, n // 3), n), NewAgainstOld(AllPairs(n), n - 1)]
    for workload in workloads:
        grid = choose_grid(workload, slots, device_slots=device_slots, chunk=chunk, order=order, costs=costs)
        layout = choose_layout(grid, workload, slots, order)
        assert layout.room.total <= max(slots, n)
        check_room(grid, layout.room, "--host-cache")
        if device_slots is not None:
            room = device_room(grid, device_slots)
            assert room.total <= device_slots
            check_room(grid, room, "--device-cache")


@pytest.mark.slow
@given(st.integers(200, 5000), st.integers(100, 190), CHUNKS)
def test_streaming_takes_little_of_the_room(n: int, slots: int, chunk: int | None) -> None:
    grid = choose_grid(AllPairs(n), slots, chunk=chunk)
    assert choose_layout(grid, AllPairs(n), slots).panel_items >= slots * 0.95


@pytest.mark.parametrize(
    ("slots", "device_slots", "option"),
    [(1, None, "--host-cache"), (0, None, "--host-cache"), (9, 1, "--device-cache")],
)
def test_a_cache_that_holds_no_pair_is_refused(slots: int, device_slots: int | None, option: str) -> None:
    with pytest.raises(ConfigError, match=option) as caught:
        choose_grid(AllPairs(20), slots, device_slots=device_slots)
    assert caught.value.context["option"] == option


def test_the_shapes_depend_on_the_grid_alone() -> None:
    """Another cache, another order of visits: the same tiles."""
    workload = AllPairs(300)
    grid = choose_grid(workload, 60)
    tiles = []
    for slots, order in [(60, "panel"), (31, "panel"), (300, "panel"), (120, "quadrant")]:
        needed = tile_filter(grid, workload)
        layout = choose_layout(grid, workload, slots, order)
        segments = make_order(grid, workload, layout, needed, order)
        tiles.append(sorted(grid.rect(tile) for segment in segments for tile in segment.tiles))
    assert tiles == tiles[:1] * 4


def test_few_columns_stay() -> None:
    """New against old: the new items stay in the column slots while the old ones pass once."""
    workload = NewAgainstOld(AllPairs(1000), 990)
    grid = choose_grid(workload, 100)
    layout = choose_layout(grid, workload, 100)
    assert layout.room.columns >= 10
    assert layout.room.rows >= 80


def test_an_unknown_order_is_refused() -> None:
    grid = choose_grid(AllPairs(20), 10)
    with pytest.raises(ConfigError, match="choose panel or quadrant"):
        make_order(grid, AllPairs(20), choose_layout(grid, AllPairs(20), 10), lambda _: True, "spiral")


@pytest.mark.slow
@pytest.mark.parametrize("order", ["panel", "quadrant"])
def test_nothing_is_loaded_twice_where_everything_fits(order: str) -> None:
    for chunk in (None, 7, 33):
        assert replay(WorkloadCosts(50), Machine(50), order=order, chunk=chunk).loads == 50
