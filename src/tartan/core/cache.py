"""The state of one cache level: which spans are there, where, who reads them, who must go.

Room is either *slots* (equal items, addressed, so that the operands of a tile are views) or *bytes* (items of unequal
size, only counted). Slots are two regions: strips lie whole and in order in the row region, streaming spans in the
column region. What lies together is a *block*: a strip's spans, or one span. Blocks are pinned by tiles and evicted
whole, by planned next use or by least recent use.

Where a block may lie is fixed, so that room never breaks into holes that are too small: in *frames* as large as the
largest block of the region; or, in an anchored row region, at the address that the strip has in its panel.

Invariants: a pinned or arriving block is never evicted; room is never exceeded; a reservation is all or nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Literal, NamedTuple, Protocol

from tartan.errors import InternalError

__all__ = ["Arrival", "Level", "LevelStats", "Need", "Policy", "Reservation", "Room", "State"]

Policy = Literal["planned", "lru"]
NextUse = Callable[[int], tuple[int, int] | None]
BlockKey = tuple[bool, int]


class State(Enum):
    """State of a resident span: on its way, there but not preprocessed, or fit to be compared."""

    ARRIVING = 1
    READY = 2
    PARSED = 3


class Need(NamedTuple):
    """A span that a tile needs.

    ``group`` is the strip in whose block the span must lie, or -1 when it may lie alone. ``size`` is the size of
    the span and ``group_size`` that of the whole strip, in slots or bytes. ``anchor`` is where the strip's block lies
    in an anchored level.
    """

    span: int
    size: int
    group: int
    group_offset: int
    group_size: int
    anchor: int = 0

    @property
    def key(self) -> BlockKey:
        return (True, self.group) if self.group >= 0 else (False, self.span)

    @property
    def block_size(self) -> int:
        return self.group_size if self.group >= 0 else self.size


class Arrival(NamedTuple):
    """A span that got room and must now be filled: from outside, or from ``source`` in the same level."""

    span: int
    address: int
    source: int | None


class Reservation(NamedTuple):
    """What follows from giving a tile room: first the evicted spans are dropped, then the arrivals are filled."""

    evicted: list[int]
    arrivals: list[Arrival]


@dataclass(frozen=True)
class Room:
    """Capacity of a level.

    Attributes
    ----------
    rows, columns : int
        Slots for strips and for streaming spans; bytes in ``columns`` when not ``addressed``.
    addressed : bool
        Whether blocks have addresses.
    row_frame : int or None
        Size of the largest strip; None when strips lie at their anchors.
    column_frame : int
        Size of the largest span.
    """

    rows: int
    columns: int
    addressed: bool = True
    row_frame: int | None = None
    column_frame: int = 1

    @property
    def total(self) -> int:
        return self.rows + self.columns


@dataclass
class LevelStats:
    """What a level did, in spans; ``peak`` in slots or bytes."""

    arrivals: int = 0
    hits: int = 0
    evictions: int = 0
    moves: int = 0
    peak: int = 0


@dataclass(eq=False)
class _Block:
    key: BlockKey
    address: int
    size: int
    spans: dict[int, State] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    pins: int = 0
    arriving: int = 0
    unready: int = 0


class _Region(Protocol):
    """Room that blocks take and give back."""

    def fits(self, needs: Sequence[Need], idle: dict[BlockKey, _Block]) -> bool:
        """Whether all these new blocks could be taken, were the idle blocks evicted."""

    def take(self, need: Need) -> int | None: ...

    def give(self, block: _Block) -> None: ...

    def in_the_way(self, need: Need) -> list[BlockKey] | None:
        """Return the blocks that must go for a new one; None when any may."""


class _Frames:
    """Frames of one size; a block takes one."""

    def __init__(self, size: int, frame: int) -> None:
        self._frame = frame
        self._free = [index * frame for index in range(size // frame)][::-1]

    def fits(self, needs: Sequence[Need], idle: dict[BlockKey, _Block]) -> bool:
        return len(needs) <= len(self._free) + len(idle) and all(need.block_size <= self._frame for need in needs)

    def take(self, need: Need) -> int | None:
        return self._free.pop() if self._free else None

    def give(self, block: _Block) -> None:
        self._free.append(block.address)

    def in_the_way(self, need: Need) -> list[BlockKey] | None:
        return None


class _Anchored:
    """Every block has its address; two blocks that share a slot exclude each other."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: list[tuple[int, int, BlockKey]] = []

    def fits(self, needs: Sequence[Need], idle: dict[BlockKey, _Block]) -> bool:
        return all(
            need.anchor + need.block_size <= self._size and all(key in idle for key in self.in_the_way(need))
            for need in needs
        )

    def take(self, need: Need) -> int | None:
        if self.in_the_way(need):
            return None
        insort(self._taken, (need.anchor, need.anchor + need.block_size, need.key))
        return need.anchor

    def give(self, block: _Block) -> None:
        self._taken.remove((block.address, block.address + block.size, block.key))

    def in_the_way(self, need: Need) -> list[BlockKey]:
        start, stop = need.anchor, need.anchor + need.block_size
        first = bisect_left(self._taken, (start,))
        if first and self._taken[first - 1][1] > start:
            first -= 1
        last = bisect_left(self._taken, (stop,))
        return [key for _, _, key in self._taken[first:last]]


class _Count:
    """Room of which only the sum is limited; a block gets a *window*, the smallest number that is free."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.used = 0
        self._free: list[int] = []
        self._n_windows = 0

    def fits(self, needs: Sequence[Need], idle: dict[BlockKey, _Block]) -> bool:
        wanted = sum(need.block_size for need in needs)
        free = self._size - self.used
        return wanted <= free or wanted <= free + sum(block.size for block in idle.values())

    def take(self, need: Need) -> int | None:
        if self.used + need.block_size > self._size:
            return None
        self.used += need.block_size
        if self._free:
            return heappop(self._free)
        self._n_windows += 1
        return self._n_windows - 1

    def give(self, block: _Block) -> None:
        self.used -= block.size
        heappush(self._free, block.address)

    def in_the_way(self, need: Need) -> list[BlockKey] | None:
        return None


class Level:
    """One cache level.

    Parameters
    ----------
    room : Room
    policy : {"planned", "lru"}
        Which block is evicted: the one whose next use is farthest, or the one used least recently.
    """

    def __init__(self, room: Room, policy: Policy = "planned") -> None:
        self.room = room
        self.policy = policy
        self.stats = LevelStats()
        self.used = 0
        self.n_arriving = 0
        rows: _Region = _Anchored(room.rows) if room.row_frame is None else _Frames(room.rows, room.row_frame)
        columns: _Region = _Frames(room.columns, room.column_frame) if room.addressed else _Count(room.columns)
        self._regions = {True: rows, False: columns}
        self._blocks: dict[BlockKey, _Block] = {}
        self._where: dict[int, _Block] = {}
        # In the order of their last use.
        self._idle: dict[bool, dict[BlockKey, _Block]] = {True: {}, False: {}}
        self._leaving: dict[int, _Block] = {}

    # -- questions -------------------------------------------------------------------------------------------

    def state(self, span: int) -> State | None:
        block = self._where.get(span)
        return block.spans[span] if block else None

    def unready(self, spans: Iterable[int]) -> list[int]:
        """Return those of some resident spans that cannot be compared yet."""
        where = self._where
        return [span for span in spans if (block := where[span]).unready and block.spans[span] is not State.READY]

    def address(self, span: int) -> int:
        """Return the first slot of a resident span (row region first, column region behind it), or its window."""
        block = self._where[span]
        start = block.address if block.key[0] else block.address + self.room.rows
        return start + block.offsets[span]

    def is_pinned(self, span: int) -> bool:
        block = self._where.get(span)
        return block is not None and block.pins > 0

    def resident(self) -> list[int]:
        return list(self._where)

    # -- what tiles ask --------------------------------------------------------------------------------------

    def reserve(self, needs: Iterable[Need], next_use: NextUse) -> Reservation | None:
        """Give all needed spans room and pin them, or change no pin and return None.

        Returns
        -------
        Reservation or None
            The spans that leave and those that must be filled; the others are here or already on the way.
        """
        needs = list(needs)
        where = self._where
        absent = []
        for need in needs:
            block = where.get(need.span)
            if block is None or (need.group >= 0 and not block.key[0]):
                absent.append(need)
        reservation = self._place(absent, needs, next_use) if absent else Reservation([], [])
        if reservation is None:
            return None
        # Every need pins its block once, so that release is the mirror of reserve.
        for need in needs:
            self._pin(where[need.span])
        self._count(needs, reservation.arrivals)
        return reservation

    def hold(self, span: int) -> None:
        """Pin a resident span once more; ``release`` takes it back."""
        self._pin(self._where[span])

    def release(self, spans: Iterable[int]) -> bool:
        """Take back one pin of each span; return whether anything may now be evicted that could not before."""
        idle = sum(map(len, self._idle.values()))
        for span in spans:
            self._unpin(self._where[span])
        return sum(map(len, self._idle.values())) > idle

    def parsed(self, span: int) -> None:
        """Record that an arriving span is there, but not preprocessed: it may be evicted when nobody pins it."""
        self._arrived(span, State.PARSED)

    def ready(self, span: int) -> None:
        """Record that a span is complete."""
        block = self._where[span]
        if block.spans[span] is State.PARSED:
            block.spans[span] = State.READY
            block.unready -= 1
        else:
            self._arrived(span, State.READY)

    def _arrived(self, span: int, state: State) -> None:
        block = self._where[span]
        if block.spans[span] is not State.ARRIVING:
            raise InternalError(f"span {span} arrived twice")
        block.spans[span] = state
        block.unready -= state is State.READY
        block.arriving -= 1
        self.n_arriving -= 1
        self._settle(block)
        old = self._leaving.pop(span, None)
        if old is not None:
            self._unpin(old)
            self._forget_span(old, span)

    def resize(self, span: int, size: int) -> None:
        """Correct the size of an unaddressed span when it is known; may exceed the room until others go."""
        region = self._regions[False]
        if not isinstance(region, _Count):
            raise InternalError("only unaddressed spans change their size")
        block = self._where[span]
        region.used += size - block.size
        self.used += size - block.size
        block.size = size
        self.stats.peak = max(self.stats.peak, self.used)

    def forget(self, span: int) -> None:
        """Drop an unpinned, settled span (tests and recovery)."""
        block = self._where[span]
        if block.pins or block.arriving:
            raise InternalError(f"span {span} is in use")
        self._evict(block)

    def evict_idle(self) -> list[int]:
        """Drop everything that is not in use; return the spans.

        For a level so small that a span could only move within it through room that the span itself takes.
        """
        idle = [block for blocks in self._idle.values() for block in blocks.values()]
        return [span for block in idle for span in self._evict(block)]

    # -- inside ----------------------------------------------------------------------------------------------

    def _count(self, needs: Sequence[Need], arrivals: Sequence[Arrival]) -> None:
        self.stats.hits += len(needs) - len(arrivals)
        if arrivals:
            moves = sum(arrival.source is not None for arrival in arrivals)
            self.stats.moves += moves
            self.stats.arrivals += len(arrivals) - moves
            self.stats.peak = max(self.stats.peak, self.used)

    def _place(self, absent: list[Need], needs: list[Need], next_use: NextUse) -> Reservation | None:
        """Make room for what is absent, sparing what this tile already has; all or nothing."""
        new = {need.key: need for need in absent if need.key not in self._blocks}
        kept = self._pin_resident(needs)
        done = self._fits(new, absent)
        evicted = [span for need in new.values() for span in self._make_block(need, next_use)] if done else []
        for block in kept:
            self._unpin(block)
        return Reservation(evicted, [self._arrive(need) for need in absent]) if done else None

    def _pin_resident(self, needs: list[Need]) -> list[_Block]:
        """Keep what this tile already has from being evicted for its own sake."""
        blocks = {}
        for need in needs:
            block = self._where.get(need.span)
            if block is not None:
                blocks[block.key] = block
            if need.group >= 0 and (group := self._blocks.get((True, need.group))):
                blocks[group.key] = group
        for block in blocks.values():
            self._pin(block)
        return list(blocks.values())

    def _fits(self, new: dict[BlockKey, Need], absent: list[Need]) -> bool:
        """Refuse early, so that nothing is evicted in vain."""
        for rows, region in self._regions.items():
            wanted = [need for key, need in new.items() if key[0] == rows]
            if wanted and not region.fits(wanted, self._idle[rows]):
                return False
        return all(self._movable(need) for need in absent)

    def _movable(self, need: Need) -> bool:
        block = self._where.get(need.span)
        # The only pin that a span may have while it moves is the one that this reservation just made.
        return block is None or (block.pins <= 1 and not block.arriving)

    def _make_block(self, need: Need, next_use: NextUse) -> list[int]:
        """Give a block room; return the spans that leave for it."""
        rows = need.key[0]
        region = self._regions[rows]
        evicted: list[int] = []
        while (address := region.take(need)) is None:
            evicted += self._evict(self._victim(rows, need, next_use))
        self._blocks[need.key] = _Block(need.key, address, need.block_size)
        self.used += need.block_size
        return evicted

    def _victim(self, rows: bool, need: Need, next_use: NextUse) -> _Block:
        idle = self._idle[rows]
        chosen = self._regions[rows].in_the_way(need)
        if chosen is not None:
            return idle[chosen[0]]
        if self.policy == "lru":
            return next(iter(idle.values()))
        never = (2**62, 0)
        return max(idle.values(), key=lambda block: min((next_use(s) or never for s in block.spans), default=never))

    def _forget_span(self, block: _Block, span: int) -> None:
        """Let go of a span that has moved away."""
        block.unready -= block.spans.pop(span) is not State.READY
        if not block.spans:
            self._drop(block)

    def _arrive(self, need: Need) -> Arrival:
        block = self._blocks[need.key]
        source = None
        old = self._where.get(need.span)
        if old is not None:
            source = self.address(need.span)
            self._pin(old)
            self._leaving[need.span] = old
        self._idle[block.key[0]].pop(block.key, None)
        block.spans[need.span] = State.ARRIVING
        block.offsets[need.span] = need.group_offset if need.group >= 0 else 0
        block.arriving += 1
        block.unready += 1
        self.n_arriving += 1
        self._where[need.span] = block
        return Arrival(need.span, self.address(need.span), source)

    def _pin(self, block: _Block) -> None:
        if not block.pins:
            self._idle[block.key[0]].pop(block.key, None)
        block.pins += 1

    def _unpin(self, block: _Block) -> None:
        if block.pins <= 0:
            raise InternalError(f"block {block.key} is released more often than reserved")
        block.pins -= 1
        if not block.pins:
            self._settle(block)

    def _settle(self, block: _Block) -> None:
        if not block.pins and not block.arriving and block.key in self._blocks:
            self._idle[block.key[0]][block.key] = block

    def _evict(self, block: _Block) -> list[int]:
        self.stats.evictions += len(block.spans)
        self._drop(block)
        return list(block.spans)

    def _drop(self, block: _Block) -> None:
        for span in block.spans:
            if self._where.get(span) is block:
                del self._where[span]
        self._idle[block.key[0]].pop(block.key, None)
        del self._blocks[block.key]
        self._regions[block.key[0]].give(block)
        self.used -= block.size
