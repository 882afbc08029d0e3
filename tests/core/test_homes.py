"""Where items come from: questions and answers of ranks that run in any order, with very few kept slots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.pairs.ledger import Failure
from tartan.core.ranks.homes import Ask, Copy, GiveUp, HomeAction, Homes, Read, Respond, Send, home_of
from tartan.core.ranks.messages import Busy, Elsewhere, Failed, Fetch, Member, Yours

N_SPANS = 40
BAD = 7


def members(*ranks: int, kept: int = 1) -> list[Member]:
    """Return a view."""
    return [Member(rank, "host", f"address {rank}", 1.0, kept) for rank in ranks]


@dataclass
class Place:
    """One rank: what its level has, and what it still wants."""

    homes: Homes
    level: dict[int, bool]
    wanted: list[tuple[int, bool]]
    room: int
    pinned: Counter[int] = field(default_factory=Counter)
    waiting: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    got: list[int] = field(default_factory=list)


def _never(span: int) -> bool:
    return False


class Homestead:
    """Ranks whose actions end in any order; everything that ends is an event for one of them."""

    def __init__(
        self, wants: list[list[tuple[int, bool]]], *, kept: int, room: int, seed: int, disk: bool = False
    ) -> None:
        self.pending: list[tuple[int, Callable[[], list[HomeAction]]]] = []
        self.reads: Counter[int] = Counter()
        self._random = random.Random(seed)
        self.alive = list(range(len(wants)))
        self.kept = kept
        self.places: list[Place] = []
        for rank, wanted in enumerate(wants):
            level: dict[int, bool] = {}
            homes = Homes(rank, kept, level.__contains__, on_disk=partial(self.on_disk, rank) if disk else _never)
            self.places.append(Place(homes, level, list(wanted), room))
        self.view()
        for rank in self.alive:
            self.want_more(rank)

    def on_disk(self, rank: int, span: int) -> bool:
        """Say that a rank has some spans on its disk."""
        return (span + rank) % 3 == 0

    def view(self) -> None:
        """Tell all who is there."""
        for rank in self.alive:
            self.act(rank, self.places[rank].homes.view(members(*self.alive, kept=self.kept)))

    def lose(self, rank: int) -> None:
        """End a rank; what it was doing ends nowhere."""
        self.alive.remove(rank)
        self.pending = [(owner, end) for owner, end in self.pending if owner != rank]
        self.view()

    def run(self) -> None:
        """Let everything end."""
        while self.pending:
            self.step()

    def step(self) -> None:
        """Let one thing end."""
        at = self._random.randrange(len(self.pending))
        self.pending[at], self.pending[-1] = self.pending[-1], self.pending[at]
        rank, end = self.pending.pop()
        if rank in self.alive:
            self.act(rank, end())
            self.want_more(rank)

    def want_more(self, rank: int) -> None:
        """Let the scheduler of a rank ask for the next spans that its room allows."""
        place = self.places[rank]
        while place.wanted and len(place.waiting) < place.room:
            span, stays = place.wanted.pop(0)
            self.evict(place)
            place.waiting.add(span)
            self.act(rank, place.homes.source(span, stays=stays))

    def evict(self, place: Place) -> None:
        """Drop spans that do not stay and are not being sent, while there are more than the room."""
        idle = [span for span, stays in place.level.items() if not stays and not place.pinned[span]]
        for span in idle[: max(0, len(place.level) + len(place.waiting) + 1 - place.room)]:
            del place.level[span]

    def act(self, rank: int, actions: list[HomeAction]) -> None:
        """Begin what a rank wants done."""
        place = self.places[rank]
        for action in actions:
            match action:
                case Ask(other, fetch):
                    self.later(other, partial(self.places[other].homes.on_fetched, rank, fetch))
                case Respond(other, answer):
                    self.later(other, partial(self.places[other].homes.on_answered, rank, answer))
                case Read(span, kept):
                    assert kept is None or 0 <= kept < self.kept
                    self.later(rank, partial(self.end_read, rank, span, kept))
                case Copy(span, _):
                    self.later(rank, partial(self.end_copy, rank, span))
                case Send(other, span, kept):
                    if kept is None:
                        place.pinned[span] += 1
                    self.later(rank, partial(self.end_send, rank, other, span, kept))
                case GiveUp(span, _):
                    place.waiting.remove(span)
                    place.failed.add(span)

    def later(self, rank: int, end: Callable[[], list[HomeAction]]) -> None:
        """Let something end some time."""
        self.pending.append((rank, end))

    def arrive(self, rank: int, span: int) -> None:
        """A span lies where the scheduler of a rank wants it."""
        place = self.places[rank]
        place.waiting.remove(span)
        place.level[span] = span % 2 == 0
        place.got.append(span)

    def end_read(self, rank: int, span: int, kept: int | None) -> list[HomeAction]:
        """A load from storage ends."""
        if span == BAD:
            return self.places[rank].homes.read(span, (Failure(span, None, "parse", "broken"),))
        self.reads[span] += 1
        if kept is None:
            self.arrive(rank, span)
        return self.places[rank].homes.read(span)

    def end_copy(self, rank: int, span: int) -> list[HomeAction]:
        """A copy from a kept slot ends."""
        self.arrive(rank, span)
        return self.places[rank].homes.on_copied(span)

    def end_send(self, rank: int, other: int, span: int, kept: int | None) -> list[HomeAction]:
        """Items were sent, and received if they are still wanted."""
        place = self.places[rank]
        if kept is None:
            place.pinned[span] -= 1
        if other in self.alive and self.places[other].homes.expects(span, rank):
            self.arrive(other, span)
            self.act(other, self.places[other].homes.on_received(span, rank))
            self.want_more(other)
        return place.homes.on_sent(span, kept)

    def check(self) -> None:
        """Every live rank got all it wanted, or was told why not."""
        for rank in self.alive:
            place = self.places[rank]
            assert not place.waiting
            assert not place.wanted
            assert place.failed <= {BAD}


WANTS = st.lists(
    st.lists(st.integers(0, N_SPANS - 1), max_size=30, unique=True).map(lambda s: [(x, x % 2 == 0) for x in s]),
    min_size=1,
    max_size=6,
)


@given(
    wants=WANTS,
    kept=st.integers(0, 3),
    room=st.integers(1, 50),
    seed=st.integers(0, 2**16),
    losses=st.integers(0, 3),
    disk=st.booleans(),
)
def test_every_rank_gets_what_it_wants_and_nothing_waits_in_a_circle(
    wants: list[list[tuple[int, bool]]], kept: int, room: int, seed: int, losses: int, disk: bool
) -> None:
    world = Homestead(wants, kept=kept, room=room, seed=seed, disk=disk)
    chance = random.Random(seed)
    for _ in range(losses):
        for _ in range(chance.randrange(60)):
            if world.pending:
                world.step()
        if len(world.alive) > 1:
            world.lose(chance.choice(world.alive))
    world.run()
    world.check()


@pytest.mark.parametrize("kept", [0, 1])
def test_one_free_slot_is_enough(kept: int) -> None:
    """All ranks stream all spans through one slot, each in another order, with one kept slot or none."""
    for seed in range(20):
        chance = random.Random(seed)
        wants = [[(x, False) for x in chance.sample(range(1, N_SPANS, 2), 15)] for _ in range(4)]
        world = Homestead(wants, kept=kept, room=1, seed=seed)
        world.run()
        world.check()


def test_what_stays_somewhere_is_read_once() -> None:
    """Each rank keeps a quarter of the spans; then all stream all others."""
    spans = list(range(0, 80, 2))
    bands = [[(span, True) for span in spans[rank::4]] for rank in range(4)]
    world = Homestead(bands, kept=1, room=99, seed=3)
    world.run()
    assert set(world.reads.values()) == {1}
    for rank in world.alive:
        world.places[rank].wanted += [(span, False) for span in spans if span not in world.places[rank].level]
        world.want_more(rank)
    world.run()
    world.check()
    assert set(world.reads.values()) == {1}
    assert sum(place.homes.counts.from_ranks for place in world.places) >= 3 * len(spans)


def test_concurrent_questions_are_one_load() -> None:
    home = Homes(home_of(1, range(3)), 2, lambda span: False)
    home.view(members(0, 1, 2))
    first, second = [rank for rank in range(3) if rank != home.rank]
    assert home.on_fetched(first, Fetch(1)) == [Read(1, 0)]
    assert home.on_fetched(second, Fetch(1)) == []
    assert home.source(1, stays=False) == []
    assert home.read(1) == [Copy(1, 0), Send(first, 1, 0), Send(second, 1, 0)]


def test_a_home_says_who_has_a_span() -> None:
    home = Homes(home_of(1, range(3)), 1, lambda span: False)
    home.view(members(0, 1, 2))
    first, second = [rank for rank in range(3) if rank != home.rank]
    assert home.on_fetched(first, Fetch(1, stays=True)) == [Respond(first, Yours(1))]
    assert home.on_fetched(second, Fetch(1)) == [Respond(second, Elsewhere(1, first))]
    # It was not there any more: the home loads it after all.
    assert home.on_fetched(second, Fetch(1, missed=(first,))) == [Read(1, 0)]


def test_where_only_homes_read_they_do() -> None:
    home = Homes(home_of(1, range(2)), 1, lambda span: False, holders_load=False)
    home.view(members(0, 1))
    assert home.on_fetched(1 - home.rank, Fetch(1, stays=True)) == [Read(1, 0)]


def test_a_home_without_a_free_slot_is_busy() -> None:
    home = Homes(0, 1, lambda span: False)
    home.view(members(0, 1))
    mine = [span for span in range(N_SPANS) if home_of(span, (0, 1)) == 0]
    assert home.on_fetched(1, Fetch(mine[0])) == [Read(mine[0], 0)]
    assert home.on_fetched(1, Fetch(mine[1])) == [Respond(1, Busy(mine[1]))]
    assert home.read(mine[0]) == [Send(1, mine[0], 0)]
    # Its slot is being sent.
    assert home.on_fetched(1, Fetch(mine[1])) == [Respond(1, Busy(mine[1]))]
    home.on_sent(mine[0], 0)
    assert home.on_fetched(1, Fetch(mine[1])) == [Read(mine[1], 0)]


@pytest.mark.parametrize("event", ["busy", "yours", "silent", "lost"])
def test_a_rank_that_gets_no_items_loads_for_itself(event: str) -> None:
    home = home_of(1, (0, 1))
    asker = Homes(1 - home, 1, lambda span: False)
    asker.view(members(0, 1))
    assert asker.source(1, stays=False) == [Ask(home, Fetch(1))]
    match event:
        case "busy":
            actions = asker.on_answered(home, Busy(1))
        case "yours":
            actions = asker.on_answered(home, Yours(1))
        case "silent":
            actions = asker.on_silent(1)
        case _:
            actions = asker.view(members(1 - home))
    assert actions == [Read(1, None)]
    assert not asker.expects(1, home)
    assert asker.on_answered(home, Busy(1)) == []
    assert asker.read(1) == []


def test_a_rank_that_is_not_known_yet_does_not_wait() -> None:
    home = Homes(0, 1, lambda span: False)
    home.view(members(0, 1))
    assert home.on_fetched(2, Fetch(1)) == [Respond(2, Busy(1))]


def test_a_failure_reaches_all_that_asked() -> None:
    home = Homes(home_of(1, range(2)), 1, lambda span: False)
    home.view(members(0, 1))
    failures = (Failure(3, None, "parse", "broken"),)
    home.on_fetched(1 - home.rank, Fetch(1))
    home.source(1, stays=False)
    assert home.read(1, failures) == [Respond(1 - home.rank, Failed(1, failures)), GiveUp(1, failures)]
    asker = Homes(1 - home.rank, 1, lambda span: False)
    asker.view(members(0, 1))
    asker.source(1, stays=False)
    assert asker.on_answered(home.rank, Failed(1, failures)) == [GiveUp(1, failures)]


def test_homes_are_even_and_move_little() -> None:
    before = [home_of(span, range(10)) for span in range(5000)]
    counts = Counter(before)
    assert max(counts.values()) < 1.2 * min(counts.values()) + 60
    after = [home_of(span, [rank for rank in range(10) if rank != 3]) for span in range(5000)]
    assert all(new == old for new, old in zip(after, before, strict=True) if old != 3)


def test_what_all_ranks_were_given_leaves_a_kept_slot_first() -> None:
    home = Homes(0, 2, lambda span: False)
    home.view(members(0, 1))
    first, second, third = [span for span in range(N_SPANS) if home_of(span, (0, 1)) == 0][:3]
    for slot, span in enumerate((first, second)):
        assert home.on_fetched(1, Fetch(span)) == [Read(span, slot)]
        assert home.read(span) == [Send(1, span, slot)]
        home.on_sent(span, slot)
    assert home.source(first, stays=False) == [Copy(first, 0)]
    home.on_copied(first)
    # The second one was used longer ago, but this rank still wants it.
    assert home.on_fetched(1, Fetch(third)) == [Read(third, 0)]
