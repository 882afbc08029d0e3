"""Regions and the division of chunks among ranks: each chunk once, for every workload, room and speed."""

from __future__ import annotations

import numpy as np
import pytest
from core_problems import SEEDS, workloads
from core_world import Problem, World
from hypothesis import given, settings
from hypothesis import strategies as st

from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.region import Region, cover
from tartan.core.pairs.workload import AllPairs, Rectangle, Workload
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.division import Divider, Sharer, chunk_pairs, fills
from tartan.core.ranks.stealing import split_off


def divided(pairs: np.ndarray, ranks: list[Sharer], *, circle: bool = True, chunk: int = 1) -> list[list[Region]]:
    """Return the regions of every rank over all panels."""
    divider = Divider(pairs, chunk, circle=circle)
    shares: dict[int, list[Region]] = {sharer.rank: [] for sharer in ranks}
    while not divider.finished:
        for rank, regions in divider.next_panel(ranks).items():
            shares[rank] += regions
    return [shares[sharer.rank] for sharer in ranks]


def count(regions: list[Region], pairs: np.ndarray) -> np.ndarray:
    """Return how often each chunk is in a region."""
    found = np.zeros(pairs.shape, dtype=int)
    for region in regions:
        for chunk in region.chunks():
            found[chunk] += 1
    return found


SHARERS = st.lists(st.tuples(st.floats(0.05, 20), st.integers(1, 60)), min_size=1, max_size=9).map(
    lambda found: [Sharer(rank, speed, room) for rank, (speed, room) in enumerate(found)]
)


@given(workload=workloads(), chunk=st.integers(1, 9), ranks=SHARERS, circle=st.booleans(), seed=SEEDS)
def test_every_chunk_is_in_one_region(
    workload: Workload, chunk: int, ranks: list[Sharer], circle: bool, seed: int
) -> None:
    grid = Grid(workload.n_items, chunk, 0, 4, 2, workload.borders, workload.has_diagonal)
    pairs = chunk_pairs(grid, workload)
    assert pairs.sum() == workload.n_pairs
    # Some chunks are done, as after a resume.
    pairs[np.random.default_rng(seed).random(pairs.shape) < seed % 3 / 4] = 0
    shares = divided(pairs, ranks, circle=circle, chunk=chunk)
    regions = [region for share in shares for region in share]
    np.testing.assert_array_equal(count(regions, pairs), pairs > 0)
    assert circle or all(region.stays == "rows" for region in regions)


@pytest.mark.parametrize(
    ("n_ranks", "room", "most_fills", "most_excess"),
    [(4, 0.29, 3.0, 0.01), (4, 0.24, 4.4, 0.03), (4, 0.1, 7.2, 0.05), (16, 0.2, 6.2, 0.01), (48, 0.075, 11.3, 0.05)],
)
def test_equal_ranks_fill_few_slots_and_have_equal_work(
    n_ranks: int, room: float, most_fills: float, most_excess: float
) -> None:
    grid = Grid(960, 15, 0, 5, 5)
    pairs = chunk_pairs(grid, AllPairs(960))
    shares = divided(pairs, [Sharer(rank, 1.0, int(room * 960)) for rank in range(n_ranks)], chunk=15)
    work = np.array([sum(pairs[region.area].sum() for region in share) for share in shares])
    assert sum(map(fills, shares)) / grid.n_chunks <= most_fills
    assert work.max() <= work.mean() * (1 + most_excess)


def test_shares_follow_speeds() -> None:
    pairs = chunk_pairs(Grid(960, 15, 0, 5, 5), AllPairs(960))
    shares = divided(pairs, [Sharer(rank, 2.0**rank, 480) for rank in range(4)], chunk=15)
    work = np.array([sum(pairs[region.area].sum() for region in share) for share in shares])
    np.testing.assert_allclose(work / work.sum(), np.array([1, 2, 4, 8]) / 15, atol=0.02)


def test_products_are_shared_in_two_dimensions() -> None:
    grid = Grid(128, 4, 0, 4, 4, (64,))
    pairs = chunk_pairs(grid, Rectangle(64, 128))
    shares = divided(pairs, [Sharer(rank, 1.0, 64) for rank in range(4)], chunk=4)
    # Two by two: each of four ranks needs half the rows and half the columns, of 16 each.
    assert [fills(share) for share in shares] == [16, 16, 16, 16]


def test_ranks_of_nearly_equal_speed_fill_their_rooms() -> None:
    pairs = chunk_pairs(Grid(100, 2, 0, 2, 2), AllPairs(100))
    shares = Divider(pairs, 2, circle=True).next_panel([Sharer(k, 1 + k / 100, 8) for k in range(3)])
    assert [len(share[-1].band) for share in shares.values()] == [4, 4, 4]


def test_a_rank_that_gets_no_band_now_gets_one_later() -> None:
    divider = Divider(chunk_pairs(Grid(100, 2, 0, 2, 2), AllPairs(100)), 2, circle=True)
    panels = [divider.next_panel([Sharer(0, 1.0, 2), Sharer(1, 0.4, 2)]) for _ in range(5)]
    assert [sorted(shares) for shares in panels] == [[0], [0, 1], [0], [0, 1], [0]]


def test_panels_stream_the_same_columns_to_and_fro() -> None:
    pairs = chunk_pairs(Grid(100, 2, 0, 2, 2), AllPairs(100))
    divider = Divider(pairs, 2, circle=True)
    ranks = [Sharer(rank, 1.0, 10) for rank in range(3)]
    first, second = divider.next_panel(ranks), divider.next_panel(ranks)
    assert divider.beyond == range(30, 50)
    assert {share[-1].stream for share in first.values()} == {range(15, 50)}
    assert {share[-1].stream for share in second.values()} == {range(30, 50)}
    assert [share[-1].backwards for share in (*first.values(), *second.values())] == [False] * 3 + [True] * 3


@given(seed=SEEDS, rows=st.integers(0, 5), stays=st.sampled_from(["rows", "columns"]), backwards=st.booleans())
def test_covering_has_each_wanted_chunk_once(seed: int, rows: int, stays: str, backwards: bool) -> None:
    wanted = np.triu(np.random.default_rng(seed).random((9, 9)) < 0.6)
    like = Region(rows, 7, 2, 9, "columns" if stays == "columns" else "rows", backwards)
    regions = cover(wanted, like)
    inside = np.zeros_like(wanted)
    inside[like.area] = wanted[like.area]
    np.testing.assert_array_equal(count(regions, wanted), inside)
    assert all((region.stays, region.backwards) == (like.stays, like.backwards) for region in regions)


@given(seed=SEEDS, amount=st.floats(0, 900), lines=st.frozensets(st.integers(0, 11)), split=st.integers(0, 7))
def test_what_is_split_off_is_no_more_than_asked_and_nothing_is_lost(
    seed: int, amount: float, lines: frozenset[int], split: int
) -> None:
    pairs = np.random.default_rng(seed).integers(1, 30, (12, 12))
    regions = [Region(0, 4, 4, 4 + split), Region(0, 3, 11, 12), Region(4, 6, 6, 12, "columns", True)]
    regions = [region for region in regions if region.stream]
    kept, taken = split_off(regions, amount, pairs, thief=lines, victim=frozenset({0, 1, 2, 3}))
    assert sum(pairs[region.area].sum() for region in taken) <= amount
    np.testing.assert_array_equal(count([*kept, *taken], pairs), count(regions, pairs))


@pytest.mark.slow
@settings(max_examples=15)
@given(
    n=st.integers(2, 40),
    chunk=st.integers(1, 9),
    strip=st.integers(1, 4),
    span=st.integers(1, 3),
    ranks=SHARERS,
    seed=SEEDS,
    device=st.none() | st.integers(12, 30),
)
def test_ranks_compute_their_regions_in_their_rooms(
    n: int, chunk: int, strip: int, span: int, ranks: list[Sharer], seed: int, device: int | None
) -> None:
    grid, workload = Grid(n, chunk, 0, strip, span), AllPairs(n)
    pairs = chunk_pairs(grid, workload)
    computed = np.zeros((n, n), dtype=np.int64)
    for sharer, share in zip(ranks, divided(pairs, ranks, chunk=chunk), strict=True):
        mine = np.zeros((n, n), dtype=bool)
        for region in share:
            mine[region.r0 * chunk : region.r1 * chunk, region.c0 * chunk : region.c1 * chunk] = True
        rows, frame = max(strip, sharer.band_items), max(strip, span)
        world = World(
            Problem(workload, rows + 2 * frame, (device,)),
            grid,
            seed,
            ~mine,
            room=Room(rows, 2 * frame, column_frame=frame),
        )
        allotment = Allotment(grid, pairs, rows, world.wants)
        allotment.on_granted(share)
        assert allotment.left_pairs == np.triu(mine, 1).sum()
        world.segments = iter(allotment.segments(10**6))
        assert allotment.low
        world.run()
        world.check_complete()
        for done in world.committed:
            allotment.on_committed(done)
        assert allotment.left_pairs == 0
        computed += world.computed
    np.testing.assert_array_equal(computed, np.triu(np.ones((n, n)), 1))
