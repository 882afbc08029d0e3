"""What a rank was granted and has not begun."""

from __future__ import annotations

from tartan.core.pairs.grid import Grid
from tartan.core.pairs.region import Region
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.division import chunk_pairs
from tartan.core.ranks.messages import GivenUp, Shed

GRID = Grid(40, 10, 0, 10, 10)


def test_what_another_rank_passed_on_comes_first_and_is_not_given_up() -> None:
    allotment = Allotment(GRID, chunk_pairs(GRID, AllPairs(40)), 40, lambda tile: True)
    passed, other = Region(0, 1, 1, 2), Region(0, 1, 2, 4)
    allotment.on_granted([other])
    allotment.on_granted([passed], passed_on=True)
    assert not allotment.low
    assert allotment.give_back(Shed(1, 1000)) == GivenUp(1, (other,))
    assert not allotment.low
    assert allotment.left_pairs == 100
    [segment] = allotment.segments(9)
    assert {GRID.chunk_of(tile) for tile in segment.tiles} == {(0, 1)}
    assert allotment.low
    allotment.on_committed((0, 1))
    assert allotment.left_pairs == 0
