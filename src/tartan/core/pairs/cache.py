"""The state of one cache level: which spans are there, where they lie, what pins them, which must leave.

Room is either *slots* (equal items, addressed, so that the operands of a tile are views) or *bytes* (items of unequal
size, only counted). Slots are two regions: strips lie whole and in order in the row region, streaming spans in the
column region. What lies together is a *block*: a strip's spans, or one span. Blocks are pinned by tiles and evicted
whole, by planned next use or by least recent use. A strip may stream too, where columns stay; then it is a block of the
column region, whose frames must be as large.

In the host level the block to evict depends on the order of the reservations alone, never on what ended first: where it
is still in use, the reservation waits for it and takes no other. So a run loads the same spans in the same order,
however many workers it has. Devices do not wait: an upload costs little, and no load depends on it.

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

Policy = Literal["planned", "lru"]
NextUse = Callable[[int], tuple[int, int] | None]
BlockKey = tuple[bool, int]

NEVER = (2**62, 0)
NEVER_FITS = 2**62


class SpanState(Enum):
    """State of a resident span: on its way, there but not preprocessed, or fit to be compared."""

    ARRIVING = 1
    READY = 2
    PARSED = 3


class Need(NamedTuple):
    """A span that a tile needs.

    ``group`` is the strip in whose block the span must lie, or -1 when it may lie alone. ``size`` is the size of
    the span and ``group_size`` that of the whole strip, in slots or bytes. ``anchor`` is where the strip's block lies
    in an anchored level. A strip that ``streams`` lies in the column region.
    """

    span: int
    size: int
    group: int
    group_offset: int
    group_size: int
    anchor: int = 0
    streams: bool = False

    @property
    def key(self) -> BlockKey:
        if self.streams:
            return (False, -1 - self.group)
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
    """What follows from giving a tile room: first the evicted spans are dropped, then the arrivals are filled.

    ``awaited`` are the spans of the tile that are not ready: arrivals, others on their way, and those only parsed.
    """

    evicted: list[int]
    arrivals: list[Arrival]
    awaited: list[int]


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
    spares_latest : bool
        Whether the block that was reserved last leaves last, so that its successor need not wait for it. Where a single
        span streams between blocks that stay, it is the one to leave.
    """

    rows: int
    columns: int
    addressed: bool = True
    row_frame: int | None = None
    column_frame: int = 1
    spares_latest: bool = True

    @property
    def total(self) -> int:
        return self.rows + self.columns


@dataclass
class LevelStats:
    """Spans that were there when they were needed; the most slots or bytes that were occupied."""

    hits: int = 0
    peak: int = 0


@dataclass(eq=False)
class _CacheBlock:
    key: BlockKey
    address: int
    size: int
    spans: dict[int, SpanState] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    pins: int = 0
    arriving: int = 0

    @property
    def in_use(self) -> bool:
        return self.pins > 0 or self.arriving > 0


class _SlotRegion(Protocol):
    """Room that blocks take and give back."""

    def compute_lacking(self, needs: Sequence[Need]) -> int:
        """Return how much room is missing for these new blocks."""

    def weight(self, block: _CacheBlock) -> int:
        """Return how much room a block gives back."""

    def take(self, need: Need) -> int:
        """Take room that is there; return its address."""

    def give(self, block: _CacheBlock) -> None: ...


class _Frames:
    """Frames of one size; a block takes one."""

    def __init__(self, size: int, frame: int) -> None:
        self._frame = frame
        self._free = [index * frame for index in range(size // frame)][::-1]

    def compute_lacking(self, needs: Sequence[Need]) -> int:
        if any(need.block_size > self._frame for need in needs):
            return NEVER_FITS
        return len(needs) - len(self._free)

    def weight(self, block: _CacheBlock) -> int:
        return 1

    def take(self, need: Need) -> int:
        return self._free.pop()

    def give(self, block: _CacheBlock) -> None:
        self._free.append(block.address)


class _Anchored:
    """Every block has its address; two blocks that share a slot exclude each other."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: list[tuple[int, int, BlockKey]] = []

    def compute_lacking(self, needs: Sequence[Need]) -> int:
        if any(need.anchor + need.block_size > self._size for need in needs):
            return NEVER_FITS
        return len(self.in_the_way(needs))

    def weight(self, block: _CacheBlock) -> int:
        return 1

    def take(self, need: Need) -> int:
        insort(self._taken, (need.anchor, need.anchor + need.block_size, need.key))
        return need.anchor

    def give(self, block: _CacheBlock) -> None:
        self._taken.remove((block.address, block.address + block.size, block.key))

    def in_the_way(self, needs: Sequence[Need]) -> list[BlockKey]:
        """Return the blocks that must leave for new ones."""
        keys = [key for need in needs for key in self._find_overlapping(need.anchor, need.anchor + need.block_size)]
        return list(dict.fromkeys(keys))

    def _find_overlapping(self, start: int, stop: int) -> list[BlockKey]:
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

    def compute_lacking(self, needs: Sequence[Need]) -> int:
        return self.used + sum(need.block_size for need in needs) - self._size

    def weight(self, block: _CacheBlock) -> int:
        return block.size

    def take(self, need: Need) -> int:
        self.used += need.block_size
        if self._free:
            return heappop(self._free)
        self._n_windows += 1
        return self._n_windows - 1

    def give(self, block: _CacheBlock) -> None:
        self.used -= block.size
        heappush(self._free, block.address)


class Level:
    """One cache level.

    Parameters
    ----------
    room : Room
    policy : {"planned", "lru"}
        Which block is evicted: the one whose next use is farthest (of several, the one that was reserved longest ago),
        or the one that was reserved longest ago.
    waits : bool
        Whether a reservation waits while the block that must leave is in use, so that evictions depend on the order
        of reservations alone. Otherwise another block leaves: sooner, and a little less well chosen.
    """

    def __init__(self, room: Room, policy: Policy = "planned", *, waits: bool = True) -> None:
        self.room = room
        self.policy = policy
        self._waits = waits
        self.stats = LevelStats()
        self.used = 0
        self.n_arriving = 0
        rows: _SlotRegion = _Anchored(room.rows) if room.row_frame is None else _Frames(room.rows, room.row_frame)
        columns: _SlotRegion = _Frames(room.columns, room.column_frame) if room.addressed else _Count(room.columns)
        self._regions = {True: rows, False: columns}
        # In the order of their last reservation.
        self._blocks: dict[bool, dict[BlockKey, _CacheBlock]] = {True: {}, False: {}}
        self._where: dict[int, _CacheBlock] = {}
        self._leaving: dict[int, _CacheBlock] = {}
        self._awaited: list[_CacheBlock] = []

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether the last reservation waits for blocks that are still in use, so that asking again is in vain."""
        return bool(self._awaited) and all(block.in_use for block in self._awaited)

    def state(self, span: int) -> SpanState | None:
        block = self._where.get(span)
        return block.spans[span] if block else None

    def address(self, span: int) -> int:
        """Return the first slot of a resident span (row region first, column region behind it), or its window."""
        block = self._where[span]
        start = block.address if block.key[0] else block.address + self.room.rows
        return start + block.offsets[span]

    def is_pinned(self, span: int) -> bool:
        block = self._where.get(span)
        return block is not None and block.pins > 0

    def list_resident(self) -> list[int]:
        return list(self._where)

    # -- what tiles ask --------------------------------------------------------------------------------------

    def reserve(self, needs: Sequence[Need], next_use: NextUse) -> Reservation | None:
        """Give all needed spans room and pin them, or change nothing and return None.

        Returns
        -------
        Reservation or None
            The spans that leave and those that must be filled; the others are here or already on the way.
        """
        self._awaited = []
        where = self._where
        absent = []
        for need in needs:
            block = where.get(need.span)
            if block is None or (need.group >= 0 and not block.key[0] and block.key != need.key):
                absent.append(need)
        reservation = self._place(absent, needs, next_use) if absent else Reservation([], [], [])
        if reservation is None:
            return None
        # Every need pins its block once, so that release is the mirror of reserve.
        for need in needs:
            block = where[need.span]
            block.pins += 1
            if block.spans[need.span] is not SpanState.READY:
                reservation.awaited.append(need.span)
            region = self._blocks[block.key[0]]
            region[block.key] = region.pop(block.key)
        self.stats.hits += len(needs) - len(reservation.arrivals)
        self.stats.peak = max(self.stats.peak, self.used)
        return reservation

    def hold(self, span: int) -> None:
        """Pin a resident span once more; ``release`` takes it back."""
        self._where[span].pins += 1

    def release(self, spans: Iterable[int]) -> None:
        """Take back one pin of each span."""
        for span in spans:
            block = self._where[span]
            if block.pins <= 0:
                raise InternalError(f"block {block.key} is released more often than reserved")
            block.pins -= 1

    def on_parsed(self, span: int) -> None:
        """Record that an arriving span is there, but not preprocessed: it may be evicted when nothing pins it."""
        self._note_arrived(span, SpanState.PARSED)

    def ready(self, span: int) -> None:
        """Record that a span is complete."""
        block = self._where[span]
        if block.spans[span] is SpanState.PARSED:
            block.spans[span] = SpanState.READY
        else:
            self._note_arrived(span, SpanState.READY)

    def _note_arrived(self, span: int, state: SpanState) -> None:
        block = self._where[span]
        if block.spans[span] is not SpanState.ARRIVING:
            raise InternalError(f"span {span} arrived twice")
        block.spans[span] = state
        block.arriving -= 1
        self.n_arriving -= 1
        old = self._leaving.pop(span, None)
        if old is not None:
            old.pins -= 1
            self._drop(old)

    def resize(self, span: int, size: int) -> None:
        """Correct the size of an unaddressed span when it is known; may exceed the room until others leave."""
        region = self._regions[False]
        if not isinstance(region, _Count):
            raise InternalError("only unaddressed spans change their size")
        block = self._where[span]
        region.used += size - block.size
        self.used += size - block.size
        block.size = size
        self.stats.peak = max(self.stats.peak, self.used)

    def evict_idle(self) -> list[int]:
        """Drop everything that is not in use; return the spans.

        For a level so small that a span could only move within it through room that the span itself takes.
        """
        idle = [block for blocks in self._blocks.values() for block in blocks.values() if not block.in_use]
        return [span for block in idle for span in self._evict(block)]

    def drop(self, spans: Iterable[int]) -> list[int]:
        """Drop the blocks of spans that are not in use; return the spans that left."""
        found = {block.key: block for span in spans if (block := self._where.get(span)) and not block.in_use}
        return [span for block in found.values() for span in self._evict(block)]

    # -- inside ----------------------------------------------------------------------------------------------

    def _place(self, absent: list[Need], needs: Sequence[Need], next_use: NextUse) -> Reservation | None:
        """Make room for what is absent, sparing what this tile already has; all or nothing."""
        new = {need.key: need for need in absent if not self._block(need.key)}
        kept = {self._where[need.span].key for need in needs if need.span in self._where}
        kept |= {need.key for need in needs}
        victims: list[_CacheBlock] = []
        for rows in (True, False):
            found = self._victims(rows, [need for key, need in new.items() if key[0] == rows], kept, next_use)
            if found is None:
                return None
            victims += found
        sources = [self._where[need.span] for need in absent if need.span in self._where]
        self._awaited = [block for block in [*victims, *sources] if block.in_use][:1]
        if self._awaited:
            return None
        evicted = [span for block in victims for span in self._evict(block)]
        for need in new.values():
            self._make_block(need)
        return Reservation(evicted, [self._arrive(need) for need in absent], [])

    def _block(self, key: BlockKey) -> _CacheBlock | None:
        return self._blocks[key[0]].get(key)

    def _victims(
        self, rows: bool, wanted: list[Need], kept: set[BlockKey], next_use: NextUse
    ) -> list[_CacheBlock] | None:
        """Return the blocks that must leave a region for new ones; None when nothing that may leave is enough."""
        region = self._regions[rows]
        lacking = region.compute_lacking(wanted) if wanted else 0
        if lacking <= 0:
            return []
        if isinstance(region, _Anchored):
            candidates = [self._blocks[rows][key] for key in region.in_the_way(wanted) if key not in kept]
        else:
            candidates = [block for block in self._blocks[rows].values() if block.key not in kept]
        moving = list(self._leaving.values())
        spared = reversed(candidates) if self.room.spares_latest else ()
        latest = next((block for block in spared if block not in moving), None)
        if not self._waits:
            self._awaited = [block for block in candidates if block.in_use]
            candidates = [block for block in candidates if not block.in_use]
        if sum(map(region.weight, candidates)) < lacking:
            return None
        victims = []
        for block in self._rank_victims(candidates, latest, next_use):
            if lacking <= 0:
                break
            victims.append(block)
            lacking -= region.weight(block)
        return victims

    def _rank_victims(
        self, candidates: list[_CacheBlock], latest: _CacheBlock | None, next_use: NextUse
    ) -> list[_CacheBlock]:
        """Return the blocks that may leave, in the order in which they must; those that are being moved first.

        The block that was reserved last is the last one: tiles that were admitted just now still use it, and where
        spans stream, waiting for it would leave a single slot to stream through.
        """
        moving = list(self._leaving.values())
        blocks = [block for block in candidates if block not in moving]
        if self.policy == "planned":
            uses = {id(b): min((next_use(s) or NEVER for s in b.spans), default=NEVER) for b in blocks}
            blocks.sort(key=lambda b: (b is not latest, uses[id(b)]), reverse=True)
        return [block for block in candidates if block in moving] + blocks

    def _make_block(self, need: Need) -> None:
        rows = need.key[0]
        block = _CacheBlock(need.key, self._regions[rows].take(need), need.block_size)
        self._blocks[rows][need.key] = block
        self.used += need.block_size

    def _arrive(self, need: Need) -> Arrival:
        block = self._blocks[need.key[0]][need.key]
        source = None
        old = self._where.get(need.span)
        if old is not None:
            source = self.address(need.span)
            old.pins += 1
            self._leaving[need.span] = old
        block.spans[need.span] = SpanState.ARRIVING
        block.offsets[need.span] = need.group_offset if need.group >= 0 else 0
        block.arriving += 1
        self.n_arriving += 1
        self._where[need.span] = block
        return Arrival(need.span, self.address(need.span), source)

    def _evict(self, block: _CacheBlock) -> list[int]:
        self._drop(block)
        return list(block.spans)

    def _drop(self, block: _CacheBlock) -> None:
        for span in block.spans:
            if self._where.get(span) is block:
                del self._where[span]
        rows = block.key[0]
        del self._blocks[rows][block.key]
        self._regions[rows].give(block)
        self.used -= block.size
