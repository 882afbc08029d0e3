"""Segments that are granted and revoked: one rank asks for its order, several could share it."""

from __future__ import annotations

import numpy as np
import pytest
from core_world import Problem, World

from tartan.core.pairs.actions import AskSegments, Load
from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.order import Segment, panel_order
from tartan.core.pairs.schedule import DeviceSlots, Scheduler
from tartan.core.pairs.sizing import tile_filter
from tartan.core.pairs.workload import AllPairs

N_ITEMS = 40
PANEL = 8
ROOM = Room(PANEL, 4, column_frame=2)


def make(chunk: int = PANEL) -> tuple[Scheduler, list[Segment]]:
    """Return a scheduler and the whole order: a segment for every panel."""
    grid, workload = Grid(N_ITEMS, chunk, PANEL, 4, 2), AllPairs(N_ITEMS)
    needed = tile_filter(grid, workload)
    return Scheduler(grid, needed, ROOM, [DeviceSlots(None, 4)]), list(panel_order(grid, workload, PANEL, needed))


def test_a_rank_may_be_idle_without_being_finished() -> None:
    scheduler, _ = make()
    assert scheduler.start() == [AskSegments(3)]
    assert scheduler.idle
    assert not scheduler.finished
    assert scheduler.on_granted([]) == []
    assert not scheduler.finished
    assert scheduler.on_granted([], last=True) == []
    assert scheduler.finished


def test_a_segment_is_begun_when_the_next_one_is_known() -> None:
    scheduler, segments = make()
    scheduler.start()
    assert scheduler.on_granted(segments[:1]) == [AskSegments(2)]
    actions = scheduler.on_granted(segments[1:2])
    assert isinstance(actions[0], Load)
    assert actions[-1] == AskSegments(1)


def test_a_segment_is_begun_when_there_is_no_other_now() -> None:
    scheduler, segments = make()
    scheduler.start()
    scheduler.on_granted(segments[:1])
    actions = scheduler.on_granted([])
    assert isinstance(actions[0], Load)
    assert not any(isinstance(action, AskSegments) for action in actions)
    assert not scheduler.finished


def test_segments_that_are_not_begun_can_be_revoked() -> None:
    scheduler, segments = make()
    scheduler.start()
    scheduler.on_granted(segments[:3])
    assert scheduler.revoke(1) == segments[2:3]
    assert scheduler.revoke(5) == segments[1:2]
    assert scheduler.revoke(5) == []


def test_a_segment_stays_where_its_chunks_are_shared() -> None:
    """Two panels lie in a row of chunks: the second belongs to the rank that has begun the first."""
    scheduler, segments = make(chunk=2 * PANEL)
    scheduler.start()
    scheduler.on_granted(segments[:3])
    assert scheduler.revoke(5) == segments[2:3]


@pytest.mark.slow
@pytest.mark.parametrize("events", [4, 20, 60])
def test_what_is_revoked_can_be_computed_elsewhere(events: int) -> None:
    problem = Problem(AllPairs(N_ITEMS), ROOM.total)
    grid = Grid(N_ITEMS, PANEL, PANEL, 4, 2)
    first, second = World(problem, grid, 1), World(problem, grid, 2)
    first.begin()
    for _ in range(events):
        first.advance()
    revoked = first.scheduler.revoke(2)
    second.segments = iter([*revoked, *first.segments])
    first.segments = iter(())
    first.finish()
    second.run()
    assert first.computed.any()
    np.testing.assert_array_equal(first.computed + second.computed, np.triu(np.ones((N_ITEMS, N_ITEMS)), 1))
    assert not set(first.committed) & set(second.committed)
