"""A cache level against a naive model: nothing in use goes, nothing overlaps, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tartan.core.pairs.cache import Arrival, Level, Need, Policy, Reservation, Room, SpanState
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.schedule import Needs, check_room
from tartan.errors import ConfigError, InternalError

PANEL = 12
GRID = Grid(n_items=36, chunk=18, panel=PANEL, strip=4, span=2)
ROOMS = {
    "anchored": Room(PANEL, 5, column_frame=2),
    "frames": Room(9, 4, row_frame=4, column_frame=2),
    "whole": Room(GRID.n_items, 0),
    "bytes": Room(0, 14, addressed=False),
    "alone": Room(0, 13, column_frame=2),
}


def panel_of(strip: int) -> range:
    """Return the spans of the panel that a strip is part of."""
    start = GRID.strip_items(strip).start // PANEL * PANEL
    spans = [s for s in range(GRID.n_spans) if start <= GRID.span_items(s).start < start + PANEL]
    return range(spans[0], spans[-1] + 1)


def needs_of(kind: str, tile: Tile, needs: Needs) -> list[Need]:
    """Return what the scheduler would ask for a tile."""
    if kind in ("bytes", "alone"):
        spans = dict.fromkeys([*GRID.row_spans(tile), tile.span])
        return [Need(span, GRID.span_length(span), -1, 0, 0) for span in spans]
    return needs.of(tile, panel_of(tile.strip) if kind == "anchored" else range(0))


# Strip and -1, or -1 and a span that lies alone.
Block = tuple[int, int]


def next_use(span: int) -> tuple[int, int] | None:
    """Return when a span is used again, as the order of a run would."""
    return (0, span * 7 % 11) if span % 3 else None


@dataclass
class Resident:
    """What the model knows of a span."""

    strip: int
    address: int
    pins: int
    state: SpanState


class LevelMachine(RuleBasedStateMachine):
    """The model holds every span by itself; what is in a block together is worked out anew each time."""

    @initialize(kind=st.sampled_from(sorted(ROOMS)), policy=st.sampled_from(["planned", "lru"]), waits=st.booleans())
    def begin(self, kind: str, policy: Policy, waits: bool) -> None:
        self.waits = waits
        self.kind = kind
        self.room = ROOMS[kind]
        self.level = Level(self.room, policy, waits=waits)
        self.needs = Needs(GRID, self.room)
        self.model: dict[int, Resident] = {}
        self.moving: dict[int, Resident] = {}
        self.order: list[Block] = []  # of the last reservations
        self.jobs: list[list[Need]] = []
        self.held: list[int] = []

    # -- what may happen -------------------------------------------------------------------------------------

    @rule(data=st.data())
    def reserve(self, data: st.DataObject) -> None:
        strip = data.draw(st.integers(0, GRID.n_strips - 1))
        span = data.draw(st.integers(GRID.spans_of(strip).start, GRID.n_spans - 1))
        needs = needs_of(self.kind, Tile(strip, span), self.needs)
        expected = self._victims(needs)
        before = {s: (r.pins, r.address) for s, r in self.model.items()}
        reservation = self.level.reserve(needs, next_use)
        if reservation is None:
            assert expected is None
            assert before == {s: (r.pins, r.address) for s, r in self.model.items()}
            return
        assert not self.level.blocked
        assert set(reservation.evicted) == expected
        self._note_evictions(reservation.evicted)
        self.jobs.append(needs)
        self._note_arrivals(needs, reservation.arrivals)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        needs = self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1)))
        self.level.release([need.span for need in needs])
        for need in needs:
            self.model[need.span].pins -= 1

    @precondition(lambda self: self._arriving())
    @rule(data=st.data(), parsed=st.booleans())
    def arrive(self, data: st.DataObject, parsed: bool) -> None:
        span = data.draw(st.sampled_from(self._arriving()))
        if parsed:
            self.level.on_parsed(span)
        else:
            self.level.ready(span)
        self.model[span].state = SpanState.PARSED if parsed else SpanState.READY
        self.moving.pop(span, None)

    @precondition(lambda self: self._parsed())
    @rule(data=st.data())
    def preprocess(self, data: st.DataObject) -> None:
        span = data.draw(st.sampled_from(self._parsed()))
        self.level.ready(span)
        self.model[span].state = SpanState.READY

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        span = data.draw(st.sampled_from(sorted(self.model)))
        self.level.hold(span)
        self.held.append(span)
        self.model[span].pins += 1

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self) -> None:
        span = self.held.pop()
        self.level.release([span])
        self.model[span].pins -= 1

    @rule()
    def evict_idle(self) -> None:
        idle = self._idle_spans()
        evicted = self.level.evict_idle()
        assert set(evicted) == idle
        self._note_evictions(evicted)

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "level"):
            return
        assert sorted(self.level.list_resident()) == sorted(self.model)
        for span, resident in self.model.items():
            assert self.level.state(span) is resident.state
            assert self.level.address(span) == resident.address
            assert self.level.is_pinned(span) == (self._pins(resident) > 0)
        assert self.level.n_arriving == len(self._arriving())

    @invariant()
    def room_is_not_exceeded(self) -> None:
        if not hasattr(self, "level"):
            return
        assert self.level.used <= self.room.total
        assert self.level.stats.peak <= self.room.total
        if self.kind == "bytes":
            assert self.level.used == sum(GRID.span_length(span) for span in self.model)

    @invariant()
    def addresses_do_not_overlap(self) -> None:
        if not hasattr(self, "level") or not self.room.addressed:
            return
        taken: set[int] = set()
        for span, resident in [*self.model.items(), *self.moving.items()]:
            slots = set(range(resident.address, resident.address + GRID.span_length(span)))
            assert not slots & taken
            assert slots <= set(range(self.room.total))
            taken |= slots

    @invariant()
    def strips_are_contiguous(self) -> None:
        if not hasattr(self, "level"):
            return
        starts: dict[int, set[int]] = {}
        for span, resident in self.model.items():
            if resident.strip >= 0:
                offset = GRID.span_items(span).start - GRID.strip_items(resident.strip).start
                starts.setdefault(resident.strip, set()).add(resident.address - offset)
        assert all(len(addresses) == 1 for addresses in starts.values())

    # -- the model -------------------------------------------------------------------------------------------

    def _arriving(self) -> list[int]:
        return sorted(span for span, resident in self.model.items() if resident.state is SpanState.ARRIVING)

    def _parsed(self) -> list[int]:
        return sorted(span for span, resident in self.model.items() if resident.state is SpanState.PARSED)

    def _mates(self, strip: int) -> list[Resident]:
        """Return what lies in the block of a strip, with what is still being copied out of it."""
        return [r for r in [*self.model.values(), *self.moving.values()] if r.strip == strip]

    def _pins(self, resident: Resident) -> int:
        return resident.pins if resident.strip < 0 else sum(r.pins for r in self._mates(resident.strip))

    def _in_use(self, resident: Resident) -> bool:
        mates = [resident] if resident.strip < 0 else self._mates(resident.strip)
        return any(r.pins or r.state is SpanState.ARRIVING for r in mates)

    def _idle_spans(self) -> set[int]:
        return {span for span, resident in self.model.items() if not self._in_use(resident)}

    def _victims(self, needs: list[Need]) -> set[int] | None:
        """Return the spans that must leave for a tile; None where it must wait."""
        absent = [n for n in needs if n.span not in self.model or (n.group >= 0 > self.model[n.span].strip)]
        if any(n.span in self.model and self._in_use(self.model[n.span]) for n in absent):
            return None
        kept = {self._block_of(n.span) for n in needs if n.span in self.model}
        kept |= {(n.group, -1 if n.group >= 0 else n.span) for n in needs}
        rows, columns = self._row_victims(absent, kept), self._column_victims(absent, kept)
        if rows is None or columns is None:
            return None
        gone = {span for span in self.model if self._block_of(span) in {*rows, *columns}}
        return None if any(self._in_use(self.model[span]) for span in gone) else gone

    def _block_of(self, span: int) -> Block:
        strip = self.model[span].strip
        return (strip, -1 if strip >= 0 else span)

    def _row_victims(self, absent: list[Need], kept: set[Block]) -> list[Block] | None:
        there = [block for block in self.order if block[0] >= 0]
        new = {n.group: n for n in absent if n.group >= 0 and (n.group, -1) not in there}
        if self.room.row_frame is not None:
            return self._first_to_go(there, kept, len(new) + len(there) - self.room.rows // self.room.row_frame)
        wanted = {slot for n in new.values() for slot in range(n.anchor, n.anchor + n.group_size)}
        offset = {"anchored": PANEL, "whole": GRID.n_items}.get(self.kind, 1)
        found = [b for b in there if wanted & {item % offset for item in GRID.strip_items(b[0])}]
        return None if set(found) & kept else found

    def _column_victims(self, absent: list[Need], kept: set[Block]) -> list[Block] | None:
        new = [n.span for n in absent if n.group < 0]
        there = [block for block in self.order if block[0] < 0]
        copied = [s for s, r in self.moving.items() if r.strip < 0]
        if self.room.addressed:
            lacking = len(new) + len(there) + len(copied) - self.room.columns // self.room.column_frame
        else:
            lacking = sum(map(GRID.span_length, [*new, *(span for _, span in there)])) - self.room.columns
        if not new or lacking <= 0:
            return []
        return None if copied and self.waits else self._first_to_go(there, kept, lacking)

    def _first_to_go(self, there: list[Block], kept: set[Block], lacking: int) -> list[Block] | None:
        candidates = [block for block in there if block not in kept]
        if self.level.policy == "planned":
            candidates = [*sorted(candidates[:-1], key=self._next_use, reverse=True), *candidates[-1:]]
        if not self.waits:
            candidates = [block for block in candidates if not self._block_in_use(block)]
        found: list[Block] = []
        while lacking > 0 and candidates:
            found.append(candidates.pop(0))
            lacking -= 1 if self.room.addressed else GRID.span_length(found[-1][1])
        return None if lacking > 0 else found

    def _block_in_use(self, block: Block) -> bool:
        return any(self._in_use(self.model[span]) for span in self.model if self._block_of(span) == block)

    def _next_use(self, block: Block) -> tuple[int, int]:
        return min(next_use(span) or (99, 0) for span in self.model if self._block_of(span) == block)

    def _note_evictions(self, evicted: list[int]) -> None:
        for span in evicted:
            assert not self._in_use(self.model[span])
        gone = {self._block_of(span) for span in evicted}
        self.order = [block for block in self.order if block not in gone]
        for span in evicted:
            del self.model[span]

    def _note_arrivals(self, needs: list[Need], arrivals: list) -> None:
        by_span = {arrival.span: arrival for arrival in arrivals}
        for need in needs:
            old = self.model.get(need.span)
            if old is not None and not (need.group >= 0 > old.strip):
                assert need.span not in by_span
                old.pins += 1
                continue
            arrival = by_span.pop(need.span)
            assert arrival.source == (None if old is None else old.address)
            if old is not None:
                self.moving[need.span] = old
                self.order.remove((-1, need.span))
            self.model[need.span] = Resident(need.group, arrival.address, 1, SpanState.ARRIVING)
        assert not by_span
        for need in needs:
            block = self._block_of(need.span)
            self.order = [*(b for b in self.order if b != block), block]


LevelMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLevel = pytest.mark.slow(LevelMachine.TestCase)


def alone(span: int) -> Need:
    return Need(span, 1, -1, 0, 0)


def test_the_least_recently_used_span_goes() -> None:
    level = Level(Room(0, 3), "lru")
    for span in (1, 2, 3, 1):
        level.reserve([alone(span)], lambda _: None)
        if level.state(span) is SpanState.ARRIVING:
            level.ready(span)
        level.release([span])
    level.reserve([alone(4)], lambda _: None)
    assert sorted(level.list_resident()) == [1, 3, 4]


def test_the_span_whose_next_use_is_farthest_goes() -> None:
    level = Level(Room(0, 3), "planned")
    for span in (1, 2, 3):
        level.reserve([alone(span)], lambda _: None)
        level.ready(span)
        level.release([span])
    level.reserve([alone(4)], {1: (0, 5), 2: (1, 0), 3: (0, 9)}.get)
    assert sorted(level.list_resident()) == [1, 3, 4]
    level.ready(4)
    level.release([4])
    level.reserve([alone(5)], {1: (0, 5), 4: (0, 0)}.get)
    assert sorted(level.list_resident()) == [1, 4, 5]


def full_level(*, waits: bool) -> Level:
    """Return a level whose three spans are in use, but for span 2, which is also the only one that is used again."""
    level = Level(Room(0, 3), "planned", waits=waits)
    for span in (1, 2, 3):
        level.reserve([alone(span)], lambda _: None)
        level.ready(span)
    level.release([2])
    return level


def test_a_reservation_waits_for_the_span_that_must_leave() -> None:
    level = full_level(waits=True)
    assert level.reserve([alone(4)], {2: (0, 5)}.get) is None
    assert level.blocked
    level.release([1])
    assert not level.blocked
    assert level.reserve([alone(4)], {2: (0, 5)}.get) == Reservation([1], [Arrival(4, 0, None)], [4])


def test_a_level_that_does_not_wait_evicts_what_is_free() -> None:
    level = full_level(waits=False)
    assert level.reserve([alone(4)], {2: (0, 5)}.get) == Reservation([2], [Arrival(4, 1, None)], [4])
    level.ready(4)
    assert level.reserve([alone(5)], lambda _: None) is None
    assert level.blocked
    level.release([3])
    assert not level.blocked


def test_the_span_reserved_last_stays_while_another_may_leave() -> None:
    """Else a span that is used again later would leave one slot to stream through."""
    level = Level(Room(0, 2), "planned")
    for span in (1, 2):
        level.reserve([alone(span)], lambda _: None)
        level.ready(span)
        level.release([span])
    assert level.reserve([alone(3)], {1: (0, 5)}.get) == Reservation([1], [Arrival(3, 0, None)], [3])


def test_a_size_that_turns_out_larger_is_counted() -> None:
    level = Level(Room(0, 10, addressed=False))
    level.reserve([Need(1, 4, -1, 0, 0)], lambda _: None)
    level.resize(1, 9)
    assert level.used == level.stats.peak == 9
    assert level.reserve([Need(2, 4, -1, 0, 0)], lambda _: None) is None
    level.ready(1)
    level.release([1])
    assert level.reserve([Need(2, 4, -1, 0, 0)], lambda _: None) is not None
    assert level.used == 4


def test_misuse_is_noticed() -> None:
    level = Level(Room(0, 2))
    level.reserve([alone(1)], lambda _: None)
    with pytest.raises(InternalError, match="only unaddressed"):
        level.resize(1, 2)
    level.ready(1)
    with pytest.raises(InternalError, match="twice"):
        level.on_parsed(1)
    level.release([1])
    with pytest.raises(InternalError, match="more often"):
        level.release([1])
    assert level.evict_idle() == [1]
    assert level.list_resident() == []


@pytest.mark.parametrize(
    ("room", "least"),
    [(Room(3, 2), 6), (Room(4, 1), 6), (Room(3, 3, row_frame=3, column_frame=2), 6), (Room(0, 5, column_frame=2), 6)],
)
def test_a_room_too_small_for_a_tile_is_refused(room: Room, least: int) -> None:
    with pytest.raises(ConfigError, match=f"--host-cache {least}items") as caught:
        check_room(GRID, room, "--host-cache")
    assert caught.value.context == {"option": "--host-cache", "least_items": least}


@pytest.mark.parametrize(
    ("enough", "less"),
    [(Room(4, 2), Room(4, 1)), (Room(4, 2), Room(3, 2)), (Room(0, 6, column_frame=2), Room(0, 5, column_frame=2))],
)
def test_room_for_a_tile_is_just_enough(enough: Room, less: Room) -> None:
    check_room(GRID, enough, "--host-cache")
    with pytest.raises(ConfigError):
        check_room(GRID, less, "--host-cache")


@pytest.mark.parametrize("room", [Room(36, 0), Room(0, 1, addressed=False)])
def test_without_columns_or_addresses_any_room_is_enough(room: Room) -> None:
    check_room(GRID, room, "--host-cache")
    with pytest.raises(ConfigError):
        check_room(GRID, Room(room.rows, 1), "--host-cache")


def test_spans_that_are_named_leave_unless_they_are_in_use() -> None:
    level = Level(Room(0, 10, addressed=False), waits=False)
    assert level.reserve([Need(span, 3, -1, 0, 3) for span in (1, 2, 3)], lambda span: None) is not None
    for span in (1, 2, 3):
        level.ready(span)
    level.release([1, 3])
    assert level.drop([1, 2, 7]) == [1]
    assert level.list_resident() == [2, 3]
    assert level.used == 6
    level.release([2])
    assert level.drop([2, 3]) == [2, 3]
    assert level.used == 0


def test_blocks_of_strips_that_stay_or_stream_and_spans_alone_are_never_the_same() -> None:
    needs = [Need(number, 1, -1, 0, 0) for number in range(9)]
    needs += [Need(0, 1, number, 0, 4, streams=streams) for number in range(9) for streams in (False, True)]
    assert len({need.key for need in needs}) == len(needs)
