"""The dispatcher of block tasks in virtual time: who is told what and when, whatever fails, comes or is lost."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tartan.core.blocks import dispatcher as dispatching
from tartan.core.blocks.dispatcher import AHEAD, FAR_AHEAD, Dispatcher, copy_rank
from tartan.errors import ClusterError

GIGABYTE = 1e9


class World:
    """Ranks that compute pieces one after the other, and the data that these read: a unit each."""

    def __init__(
        self,
        speeds: Sequence[float],
        *,
        unit_of: Mapping[int, str] | None = None,
        held: Mapping[int, set[str]] | None = None,
        size: float = 0.0,
        **options: Any,
    ) -> None:
        self.speeds, self.unit_of, self.size = speeds, unit_of or {}, size
        self.held = {rank: set((held or {}).get(rank, ())) for rank in range(len(speeds))}
        self.makers: dict[int, list[int]] = {}
        self.saved: set[int] = set()
        self.now, self.n_begun = 0.0, 0
        self.turns: list[tuple[float, int, int, int]] = []
        self.waiting: dict[int, list[int]] = {rank: [] for rank in range(len(speeds))}
        self.running: dict[int, int] = {}
        self.given: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.fails: set[tuple[int, int]] = set()
        self.kind: Any = "user"
        self.dispatcher = Dispatcher[int](dict.fromkeys(range(len(speeds)), 1), self, 0.0, **options)

    # -- what the dispatcher asks

    def needs(self, piece: int, /) -> dict[str, float]:
        return {self.unit_of[piece]: self.size} if piece in self.unit_of else {}

    def is_at(self, rank: int, unit: str, /) -> bool:
        return unit in self.held[rank]

    def find_lost_inputs(self, piece: int, /) -> list[int]:
        return self.makers.get(piece, [])

    def is_lost(self, piece: int, /) -> bool:
        return piece not in self.saved

    # -- time

    def begin(self, queues: Sequence[Sequence[int]]) -> None:
        for rank, pieces in enumerate(queues):
            self.dispatcher.add(pieces, [rank] * len(pieces))
        self.send()

    def send(self) -> None:
        for rank, piece in self.dispatcher.orders(self.now):
            self.given.append((rank, piece))
            self.held[rank] |= set(self.needs(piece))
            self.waiting[rank].append(piece)
            self.start(rank)

    def start(self, rank: int) -> None:
        if rank not in self.running and self.waiting[rank]:
            self.running[rank] = piece = self.waiting[rank].pop(0)
            self.n_begun += 1
            heapq.heappush(self.turns, (self.now + 1 / self.speeds[rank], self.n_begun, rank, piece))

    def step(self) -> None:
        self.now, _, rank, piece = heapq.heappop(self.turns)
        if self.running.get(rank) != piece:
            return
        del self.running[rank]
        if (rank, piece) in self.fails:
            self.fails.remove((rank, piece))
            assert self.dispatcher.note_failed(rank, piece, self.kind)
        else:
            self.makers = {other: [one for one in made if one != piece] for other, made in self.makers.items()}
            self.dispatcher.note_done(rank, piece)
            self.ended.append((rank, piece))
        self.start(rank)
        self.send()

    def run(self) -> None:
        while not self.dispatcher.is_finished:
            self.step()

    def lose(self, rank: int) -> None:
        self.running.pop(rank, None)
        self.waiting[rank].clear()
        self.dispatcher.lose_rank(rank)
        self.send()


def pieces_of(world: World, rank: int) -> list[int]:
    return [piece for number, piece in world.ended if number == rank]


@pytest.mark.parametrize("n_pieces", [1, 4, 9, 40, 200])
def test_a_rank_has_few_orders_beyond_what_it_computes(n_pieces: int) -> None:
    world = World([1.0], steal=None)
    world.begin([range(n_pieces)])
    while not world.dispatcher.is_finished:
        n_left = n_pieces - len(world.ended)
        assert min(1 + AHEAD, n_left) <= world.dispatcher.n_ordered <= max(1 + AHEAD, min(1 + FAR_AHEAD, n_left // 2))
        world.step()
    assert pieces_of(world, 0) == [*range(n_pieces)]
    assert len(world.given) == n_pieces


def test_a_slow_rank_is_far_ahead_by_its_share_of_the_speed() -> None:
    """It has what it would keep if the fastest rank took its share: half, when it is the fastest itself."""
    world = World([4.0, 1.0, 0.01], steal=None)
    world.begin([range(33), range(100, 160), [200]])
    while len(pieces_of(world, 1)) < 8:
        world.step()

    def n_ordered() -> int:
        return sum(world.dispatcher.is_ordered(1, piece) for piece in range(200))

    assert n_ordered() == 52 * 8 // (8 + 32)
    world.saved = set(pieces_of(world, 0))
    world.lose(0)
    while len(pieces_of(world, 1)) < 9:
        world.step()
    assert n_ordered() == 51 // 2


def test_who_may_have_all_orders_at_once_has_them() -> None:
    found = Dispatcher[int]({0: None}, World([1.0]), 0.0)
    found.add([*range(99)], [0] * 99)
    assert [*found.orders(0.0)] == [(0, piece) for piece in range(99)]


@pytest.mark.parametrize("steal", ["difference", "plain"])
def test_who_has_nothing_takes_from_who_would_end_last(steal: str) -> None:
    world = World([1.0, 0.1, 0.4], steal=steal)
    world.begin([range(40), range(40, 80), range(80, 120)])
    world.run()
    assert sorted(piece for _, piece in world.ended) == [*range(120)]
    assert world.dispatcher.steals == sum(rank != piece // 40 for rank, piece in world.ended) > 0
    assert world.dispatcher.n_ended == Counter(rank for rank, _ in world.ended)
    assert {piece // 40 for piece in pieces_of(world, 0)} == {0, 1, 2}
    assert world.now < 250 < 40 / 0.1


def test_nothing_is_taken_where_it_may_not_be() -> None:
    world = World([1.0, 0.1], steal=None)
    world.begin([range(8), range(8, 16)])
    world.run()
    assert world.dispatcher.steals == 0
    assert world.now == pytest.approx(80)


@pytest.mark.parametrize(("n_cores", "steals"), [(1, False), (2, True), (float("inf"), True)])
def test_ranks_that_share_cores_take_only_what_an_idle_core_can_compute(n_cores: float, steals: bool) -> None:
    world = World([1.0, 0.1], n_cores=n_cores)
    world.begin([range(8), range(8, 48)])
    world.run()
    assert (world.dispatcher.steals > 0) is steals


@pytest.mark.parametrize(("size", "steals"), [(1e6, True), (100 * GIGABYTE, False)])
def test_what_is_taken_pays_over_a_slow_link(size: float, steals: bool) -> None:
    world = World([1.0, 0.1], unit_of={piece: str(piece) for piece in range(48)}, size=size)
    world.begin([range(8), range(8, 48)])
    world.run()
    assert (world.dispatcher.steals > 0) is steals


@pytest.mark.parametrize(("steal", "of_its_own"), [("difference", True), ("plain", False)])
def test_what_costs_the_thief_nothing_goes_first(steal: str, of_its_own: bool) -> None:
    """Every second piece of the victim reads what the thief has."""
    unit_of = {piece: "a" if piece % 2 else "b" for piece in range(48)}
    world = World([1.0, 0.1], unit_of=unit_of, held={0: {"a"}, 1: {"b"}}, size=1e6, steal=steal)
    world.begin([range(1, 9, 2), [0, *range(8, 48)]])
    while not world.dispatcher.steals:
        world.step()
    taken = [piece for rank, piece in world.given if rank == 0][4:]
    assert all(piece % 2 for piece in taken) is of_its_own


def test_a_thief_looks_at_no_more_than_some_pieces_for_each_that_it_takes() -> None:
    asked: list[int] = []

    class Asked(World):
        def needs(self, piece: int, /) -> dict[str, float]:
            asked.append(piece)
            return super().needs(piece)

    world = Asked([100.0, 0.001])
    world.begin([[], range(400)])
    world.now = 1e-3
    asked.clear()
    world.send()
    n_taken = world.dispatcher.steals
    assert n_taken == (400) // 2
    assert len(set(asked)) <= dispatching.LOOKED_AT * n_taken


def test_what_fails_by_its_own_fault_is_tried_once_more_and_elsewhere() -> None:
    """The rank on which it failed does not take it back."""
    world = World([1.0, 0.01])
    world.fails = {(0, 1)}
    world.begin([[0, 1], range(2, 30)])
    world.run()
    assert (1, 1) in world.ended
    assert world.dispatcher.repeated == 1
    assert (0, 1) not in world.given[3:]
    alone = Dispatcher[int]({0: 1}, world, 0.0)
    alone.add([1], [0])
    tried = []
    for _ in range(2):
        assert [*alone.orders(0.0)] == [(0, 1)]
        tried.append(alone.note_failed(0, 1, "user"))
    assert tried == [True, False]


@pytest.mark.parametrize("kind", ["node", "cancelled"])
def test_what_no_other_rank_could_do_better_is_given_up(kind: Any) -> None:
    found = Dispatcher[int]({0: 1, 1: 1}, World([1.0, 1.0]), 0.0)
    found.add([1], [0])
    assert [*found.orders(0.0)] == [(0, 1)]
    assert not found.note_failed(0, 1, kind)


def test_what_could_not_fetch_its_input_is_tried_later() -> None:
    found = Dispatcher[int]({0: 1}, World([1.0]), 0.0)
    found.add([1], [0])
    for turn in range(dispatching.MOST_INPUT_FAILURES):
        assert [*found.orders(0.0)] == [(0, 1)]
        assert found.note_failed(0, 1, "input") is (turn < dispatching.MOST_INPUT_FAILURES - 1)
        assert [*found.orders(0.0)] == []
        found.retry()


def test_what_is_lost_with_a_rank_is_computed_by_the_others() -> None:
    world = World([1.0, 1.0, 1.0], steal=None)
    world.begin([range(6), range(6, 12), range(12, 18)])
    for _ in range(6):
        world.step()
    lost = pieces_of(world, 1)
    world.saved = {lost[0]}
    world.lose(1)
    world.run()
    assert {piece for rank, piece in world.ended if rank != 1} == {*range(18)} - {lost[0]}
    assert (world.dispatcher.ranks_lost, world.dispatcher.repeated) == (1, len(lost) - 1)
    assert abs(len(pieces_of(world, 0)) - len(pieces_of(world, 2))) <= 1


def test_a_rank_that_is_lost_answers_no_more() -> None:
    world = World([1.0, 1.0])
    world.begin([[0], [1]])
    world.lose(1)
    assert not world.dispatcher.note_done(1, 1)
    assert world.dispatcher.note_failed(1, 1, "node")
    assert not world.dispatcher.is_finished
    with pytest.raises(ClusterError, match="no rank is left"):
        world.lose(0)


def test_a_piece_waits_for_what_makes_its_input_again() -> None:
    """Two pieces need one of an earlier task, and that needs an earlier one still."""
    world = World([1.0, 1.0], steal=None)
    world.makers = {0: [100], 1: [100], 100: [99]}
    world.begin([[0, 2], [1, 3]])
    world.run()
    order = [piece for _, piece in world.ended]
    assert sorted(order) == [0, 1, 2, 3, 99, 100]
    assert order.index(99) < order.index(100) < min(order.index(0), order.index(1))
    assert world.dispatcher.repeated == 2
    assert sorted(world.dispatcher.list_recomputed()) == [99, 100]
    assert not world.dispatcher.is_wanted(99)


def test_a_rank_that_comes_takes_from_the_others() -> None:
    world = World([1.0, 1.0])
    world.dispatcher.lose_rank(1)
    world.begin([range(60), []])
    while len(world.ended) < 9:
        world.step()
    world.dispatcher.add_rank(1, 1)
    world.dispatcher.add_rank(1, 1)
    world.run()
    assert len(pieces_of(world, 1)) > 15


def test_who_has_stopped_gives_no_order_and_notes_answers() -> None:
    world = World([1.0, 1.0])
    world.begin([range(20), range(20, 40)])
    world.dispatcher.stop()
    n_given = world.dispatcher.n_ordered
    world.lose(1)
    world.step()
    world.step()
    assert len(world.given) == n_given
    assert 0 < world.dispatcher.n_ordered < n_given / 2
    world.dispatcher.lose_rank(0)
    assert world.dispatcher.n_ordered == 0


@pytest.mark.parametrize("seed", range(20))
def test_every_piece_ends_whatever_happens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_ranks, n_pieces = int(rng.integers(2, 6)), int(rng.integers(1, 120))
    speeds = rng.uniform(0.05, 2.0, n_ranks).tolist()
    world = World(speeds, unit_of={piece: str(piece % 7) for piece in range(n_pieces)}, size=1e5)
    world.fails = {(int(rng.integers(n_ranks)), piece) for piece in range(0, n_pieces, 9)}
    world.makers = {piece: [1000 + piece % 3] for piece in range(0, n_pieces, 5)}
    owners = rng.integers(0, n_ranks, n_pieces)
    losses = {int(rng.integers(1, n_pieces + 1)): rank for rank in rng.permutation(n_ranks)[:-1].tolist()}
    world.begin([np.flatnonzero(owners == rank).tolist() for rank in range(n_ranks)])
    n_steps = 0
    while not world.dispatcher.is_finished:
        world.step()
        n_steps += 1
        if n_steps in losses:
            world.lose(losses.pop(n_steps))
    assert {piece for _, piece in world.ended if piece < 1000} == {*range(n_pieces)}
    assert world.dispatcher.n_ordered == 0
    assert sum(world.dispatcher.n_ended.values()) >= n_pieces


@pytest.mark.parametrize(
    ("holders", "live", "taker"),
    [([0], [0, 1, 2], 1), ([2], [0, 1, 2], 0), ([0, 1], [0, 1, 2], 2), ([1], [0, 2], 2), ([0, 1], [0, 1], None)],
)
def test_copies_go_around_the_circle(holders: list[int], live: list[int], taker: int | None) -> None:
    assert copy_rank(holders, holders[0], live) == taker
