"""What happens next in a node: events in, actions out.

The scheduler walks the segments of the order that it is granted, admits tiles while their items get host room, hands
them to devices, and counts chunks to their end. It holds no clock, thread or array: the runtime and the replay both
drive it, so a run and its prediction make the same loads.

A tile's way: *admitted* (all its spans have host room and are pinned) -> *queued* for a device -> *pulled* (they have
device room too, where the device has its own memory) -> *compared*. Admission follows the order and is all or nothing,
so a running tile never waits for room that another running tile holds: there is no deadlock for slots.

A span's way in the host level: loading -> parsed -> (prepared on a device, stored) -> ready. With ``prepare_on_device``
false a load ends ready, because it includes preprocessing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tartan.core.pairs.actions import (
    Action,
    AskSegments,
    Chunk,
    Commit,
    Compare,
    Evict,
    Load,
    Move,
    Origin,
    Prepare,
    Upload,
)
from tartan.core.pairs.cache import Arrival, Level, Need, Room, SpanState
from tartan.core.pairs.grants import Grants, Upcoming
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.order import Segment
from tartan.errors import ConfigError, InternalError

# Tiles that each of several devices may hold at least, so that copies run while it compares.
# By construction: one tile runs, one is copied in, one out, one waits. Fewer leave an engine idle; more keep another
# device from work. No benchmark.
FEWEST_HELD = 4
# Tiles that come one after the other to one device in an order without resident rows: they share items.
# By judgement: several rows of tiles, so that a device uses an item more than once in a turn, and few enough that
# devices end together. No benchmark.
TILES_A_TURN = 96


@dataclass
class DeviceSlots:
    """A device as the scheduler sees it.

    Attributes
    ----------
    room : Room or None
        Its own slots; None when it works in host memory.
    depth : int
        Tiles that it may hold at a time, waiting and running.
    """

    room: Room | None
    depth: int


@dataclass(frozen=True)
class AdmissionLimits:
    """Tiles and chunks that may be under way at a time."""

    tiles: int = 256
    open_chunks: int = 64


@dataclass
class _Job:
    """A tile between admission and its end."""

    tile: Tile
    spans: tuple[int, ...]
    position: tuple[int, int]
    missing: int = 0


@dataclass
class _DeviceState:
    slots: DeviceSlots
    level: Level | None
    needs: Needs | None
    queue: deque[_Job] = field(default_factory=deque)
    held: int = 0
    done: int = 0
    waiting: dict[int, list[_Job]] = field(default_factory=dict)


class Scheduler:
    """The policy of one node.

    Parameters
    ----------
    grid : Grid
    needed : callable
        Whether a tile is still to be computed (as given to the order).
    host : Room
        Host slots.
    devices : sequence of DeviceSlots
    span_size : callable, optional
        Size of a span where slots are unequal; default its number of items.
    policy : {"planned", "lru"}
    limits : AdmissionLimits
    prepare_on_device : bool
        Whether loads from storage end parsed and a device preprocesses them; then all devices have their own slots.

    Attributes
    ----------
    n_loads : int
        Loads so far, in items.
    fills : Counter of Origin to int
        Items that were loaded, by where they came from.
    """

    def __init__(
        self,
        grid: Grid,
        needed: Callable[[Tile], bool],
        host: Room,
        devices: Sequence[DeviceSlots],
        *,
        span_size: Callable[[int], int] | None = None,
        policy: str = "planned",
        limits: AdmissionLimits = AdmissionLimits(),
        prepare_on_device: bool = False,
    ) -> None:
        check_room(grid, host, "--host-cache")
        if prepare_on_device and any(slots.room is None for slots in devices):
            raise InternalError("a device that works in host memory does not preprocess items")
        self.grid = grid
        self.host = Level(host, "lru" if policy == "lru" else "planned")
        self.n_loads = 0
        self.fills: Counter[Origin] = Counter()
        self._needed = needed
        self._size = span_size or grid.span_length
        self._limits = limits
        self._prepare_on_device = prepare_on_device
        self._devices = [self._device_state(slots) for slots in devices]
        self._grants = Grants(grid)
        self._jobs: dict[Tile, _Job] = {}
        self._host_waiting: dict[int, list[_Job]] = {}
        self._origins: dict[int, Origin] = {}
        self._parsed: set[int] = set()
        self._moving_parsed: set[int] = set()
        self._preparing: dict[int, int] = {}
        self._uploads_waiting: dict[int, list[int]] = {}
        self._open: dict[Chunk, int] = {}
        self._committing = 0
        self._stopped = False
        self._needs = Needs(grid, host)
        self._lone: dict[int, Need] = {}

    def _device_state(self, slots: DeviceSlots) -> _DeviceState:
        if slots.room is None:
            return _DeviceState(slots, None, None)
        check_room(self.grid, slots.room, "--device-cache")
        return _DeviceState(slots, Level(slots.room, waits=False), Needs(self.grid, slots.room))

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do or under way, and nothing more will be granted."""
        return (self._grants.exhausted or self._stopped) and self.idle

    @property
    def idle(self) -> bool:
        """Whether nothing is under way; more may be granted."""
        return not self._jobs and not self._committing

    @property
    def drained(self) -> bool:
        """Whether every tile that was granted is admitted; more may be granted."""
        return self._grants.current is None

    @property
    def n_open_chunks(self) -> int:
        return len(self._open)

    def _find_own_level(self, device: int) -> Level:
        level = self._devices[device].level
        if level is None:
            raise InternalError("a device that works in host memory gets no copies")
        return level

    # -- events ----------------------------------------------------------------------------------------------

    def start(self) -> list[Action]:
        return self._advance([])

    def on_granted(self, segments: Sequence[Segment], *, last: bool = False) -> list[Action]:
        """Segments may be computed, after those granted before; an empty sequence says that there are none now.

        All tiles of a chunk must be granted to the same rank. ``last`` says that nothing more will be granted.
        """
        self._grants.on_granted(segments, last)
        return self._advance([])

    def revoke(self, most: int) -> list[Segment]:
        """Take back up to ``most`` granted segments; return those that were not begun and share no chunk with others.

        Nothing is asked for until segments are granted again.
        """
        return self._grants.revoke(most, self._open)

    def stop(self) -> None:
        """Admit nothing more; what is under way may end."""
        self._stopped = True

    def on_located(self, span: int, origin: Origin) -> None:
        """From now on a span can be loaded from ``origin``."""
        self._origins[span] = origin

    def on_loaded(self, span: int, size: int | None = None, *, origin: Origin = Origin.STORAGE) -> list[Action]:
        """A Load ended; ``size`` corrects the size of an unaddressed span, ``origin`` is where it came from."""
        self.fills[origin] += self.grid.span_length(span)
        if size is not None:
            self.host.resize(span, size)
        if self._prepare_on_device and not origin.ready:
            return self._host_parsed(span, [])
        return self._host_ready(span, [])

    def on_moved(self, span: int) -> list[Action]:
        """A Move ended."""
        if span in self._moving_parsed:
            self._moving_parsed.remove(span)
            return self._host_parsed(span, [])
        return self._host_ready(span, [])

    def on_prepared(self, device: int, span: int) -> list[Action]:
        """A span is preprocessed and lies in its device slot."""
        return self.on_uploaded(device, span)

    def on_stored(self, span: int) -> list[Action]:
        """A prepared span lies in its host slot."""
        self.host.release([span])
        self._find_own_level(self._preparing.pop(span)).release([span])
        return self._host_ready(span, [])

    def on_uploaded(self, device: int, span: int) -> list[Action]:
        actions: list[Action] = []
        self._device_ready(device, span, actions)
        return self._advance(actions)

    def on_compared(self, device: int, tile: Tile) -> list[Action]:
        """A tile is done: its scores lie in the buffer of its chunk."""
        job = self._jobs.pop(tile)
        state = self._devices[device]
        state.held -= 1
        state.done += 1
        self.host.release(job.spans)
        if state.level is not None:
            state.level.release(job.spans)
        actions: list[Action] = []
        chunk = self.grid.chunk_of(tile)
        self._open[chunk] -= 1
        if not self._open[chunk]:
            del self._open[chunk]
            self._committing += 1
            actions.append(Commit(chunk))
        return self._advance(actions)

    def on_committed(self, chunk: Chunk) -> list[Action]:
        self._committing -= 1
        return self._advance([])

    # -- admission -------------------------------------------------------------------------------------------

    def _advance(self, actions: list[Action]) -> list[Action]:
        while not (self._stopped or self.host.blocked) and self._admit(actions):
            pass
        for device in range(len(self._devices)):
            while self._pull(device, actions):
                pass
        if not self._stopped and (most := self._grants.lacking):
            self._grants.asked = True
            actions.append(AskSegments(most))
        return actions

    def _admit(self, actions: list[Action]) -> bool:
        """Admit the next tile of the order, if there is room."""
        segment = self._grants.current
        if segment is None or len(self._jobs) >= self._limits.tiles:
            return False
        tile = segment.tiles[self._grants.position]
        chunk = self.grid.chunk_of(tile)
        busy = len(self._open) + self._committing
        if chunk not in self._open and busy >= self._limits.open_chunks and (self._jobs or self._committing):
            return False
        spans = self.grid.tile_spans(tile)
        reservation = self.host.reserve(self._host_needs(tile, spans, segment.rows), self._grants.next_use)
        if reservation is None:
            if not (self._jobs or self._preparing or self.host.n_arriving):
                if evicted := self.host.evict_idle():
                    self._evict(evicted, actions)
                    return True
                raise ConfigError(
                    f"the host cache has room for {self.host.room.total}, too little for one tile of "
                    f"{len(spans)} spans; give more with --host-cache",
                    context={"option": "--host-cache"},
                )
            return False
        job = _Job(tile, spans, (segment.index, self._grants.position))
        self._grants.position += 1
        self._jobs[tile] = job
        if chunk not in self._open:
            self._open[chunk] = sum(1 for t in self.grid.chunk_tiles(chunk) if self._needed(t))
        self._evict(reservation.evicted, actions)
        self._fill(reservation.arrivals, actions)
        self._await_host(job, reservation.awaited)
        return True

    def _host_needs(self, tile: Tile, spans: tuple[int, ...], resident_rows: range) -> list[Need]:
        if not self.host.room.rows:
            return [self._make_single_need(span) for span in spans]
        return self._needs.of(tile, resident_rows)

    def _make_single_need(self, span: int) -> Need:
        """Return the need of a span that lies by itself; remembered, because every tile asks."""
        need = self._lone.get(span)
        if need is None:
            need = self._lone[span] = Need(span, self._size(span), -1, 0, 0)
        return need

    def _fill(self, arrivals: list[Arrival], actions: list[Action]) -> None:
        for arrival in arrivals:
            if arrival.source is None:
                self.n_loads += self.grid.span_length(arrival.span)
                origin = self._origins.get(arrival.span, Origin.STORAGE)
                actions.append(Load(arrival.span, arrival.address, origin))
            else:
                if arrival.span in self._parsed:
                    self._parsed.remove(arrival.span)
                    self._moving_parsed.add(arrival.span)
                actions.append(Move(arrival.span, arrival.address, arrival.source))

    def _await_host(self, job: _Job, awaited: list[int]) -> None:
        """Queue a job for a device: at once when devices prepare, else when its spans are ready."""
        if not self._prepare_on_device:
            job.missing = len(awaited)
            for span in awaited:
                self._host_waiting.setdefault(span, []).append(job)
        if not job.missing:
            self._queue(job)

    def _evict(self, spans: list[int], actions: list[Action]) -> None:
        for span in spans:
            self._parsed.discard(span)
            actions.append(Evict(span))

    def _host_parsed(self, span: int, actions: list[Action]) -> list[Action]:
        """Let the first device that waits for a span preprocess it; where none does, it may be evicted again."""
        self.host.on_parsed(span)
        self._parsed.add(span)
        for device in self._uploads_waiting.get(span, [])[:1]:
            self._prepare(device, span, actions)
        return self._advance(actions)

    def _host_ready(self, span: int, actions: list[Action]) -> list[Action]:
        self.host.ready(span)
        for job in self._host_waiting.pop(span, []):
            job.missing -= 1
            if not job.missing:
                self._queue(job)
        for device in self._uploads_waiting.pop(span, []):
            level = self._devices[device].level
            if level is not None and level.state(span) is SpanState.ARRIVING:
                actions.append(Upload(device, span, level.address(span)))
        return self._advance(actions)

    # -- devices ---------------------------------------------------------------------------------------------

    def _queue(self, job: _Job) -> None:
        self._devices[self._owner(job)].queue.append(job)

    def _owner(self, job: _Job) -> int:
        """Share the strips of a panel among the devices, in proportion to what each has done.

        An order without panels is shared in turns of consecutive tiles, which are neighbours.
        """
        if len(self._devices) == 1:
            return 0
        current = self._grants.current
        rows = current.rows if current is not None else range(0)
        first = int(self.grid.strip_spans[job.tile.strip])
        first = first if first in rows else job.tile.span
        place = (first - rows.start) / len(rows) if rows else job.position[1] % TILES_A_TURN / TILES_A_TURN
        weights = [state.done + 1 for state in self._devices]
        limit, total = 0.0, sum(weights)
        for device, weight in enumerate(weights):
            limit += weight / total
            if place < limit:
                return device
        return len(weights) - 1

    def _pull(self, device: int, actions: list[Action]) -> bool:
        """Let a device take its next tile, its own first, else the last one of the longest queue."""
        state = self._devices[device]
        if state.held >= self._most_held(state) or (state.level is not None and state.level.blocked):
            return False
        source = state.queue or max((d.queue for d in self._devices), key=len)
        if not source:
            return False
        job = source[0] if source is state.queue else source[-1]
        awaited = self._occupy(device, job, actions)
        if awaited is None:
            return False
        if source is state.queue:
            source.popleft()
        else:
            source.pop()
        state.held += 1
        job.missing = len(awaited)
        for span in awaited:
            state.waiting.setdefault(span, []).append(job)
        if not job.missing:
            actions.append(Compare(device, job.tile))
        return True

    def _most_held(self, state: _DeviceState) -> int:
        """Return how many tiles a device may hold: fewer where few wait, so that the fastest device takes the last."""
        if len(self._devices) == 1:
            return state.slots.depth
        waiting = sum(len(other.queue) for other in self._devices)
        return min(state.slots.depth, max(FEWEST_HELD, waiting // len(self._devices)))

    def _occupy(self, device: int, job: _Job, actions: list[Action]) -> list[int] | None:
        """Reserve device room for a job and start what must be copied or prepared.

        Returns
        -------
        list of int or None
            The spans that are not there yet; None where there is no room.
        """
        level, needs = self._devices[device].level, self._devices[device].needs
        if level is None or needs is None:
            return []
        reservation = level.reserve(needs.of(job.tile), Upcoming(self._grants.current, job.position, self.grid))
        if reservation is None:
            if not self._devices[device].held and device not in self._preparing.values():
                if evicted := level.evict_idle():
                    actions.extend(Evict(span, device) for span in evicted)
                    return self._occupy(device, job, actions)
                raise ConfigError(
                    f"the device cache has room for {level.room.total} items, too little for one tile; "
                    "give more with --device-cache",
                    context={"option": "--device-cache"},
                )
            return None
        actions.extend(Evict(span, device) for span in reservation.evicted)
        for arrival in reservation.arrivals:
            self._load_missing(device, arrival.span, actions)
        return reservation.awaited

    def _load_missing(self, device: int, span: int, actions: list[Action]) -> None:
        if self.host.state(span) is SpanState.READY:
            actions.append(Upload(device, span, self._find_own_level(device).address(span)))
            return
        self._uploads_waiting.setdefault(span, []).append(device)
        if span in self._parsed:
            self._prepare(device, span, actions)

    def _prepare(self, device: int, span: int, actions: list[Action]) -> None:
        """Let a device preprocess a parsed span; its slots stay pinned until the outcome is stored."""
        self._parsed.discard(span)
        self._preparing[span] = device
        self.host.hold(span)
        waiting = self._uploads_waiting.get(span, [])
        if device in waiting:
            waiting.remove(device)
        level = self._find_own_level(device)
        level.hold(span)
        actions.append(Prepare(device, span, level.address(span)))

    def _device_ready(self, device: int, span: int, actions: list[Action]) -> None:
        self._find_own_level(device).ready(span)
        for job in self._devices[device].waiting.pop(span, []):
            job.missing -= 1
            if not job.missing:
                actions.append(Compare(device, job.tile))


# What a tile needs of a level: which spans, and in which block each must lie.
#
# Two ways, decided by the room of the level. Streaming: the rows of a tile lie in the block of their strip; its columns
# lie alone, unless they are rows of the same panel. Where columns stay, their strips lie in the panel, and the strip of
# the rows streams, whole. Whole: everything fits, each span lies in its strip, for ever.

NO_ROWS = range(0)
STREAMS = -1


class Needs:
    """The needs of tiles in one level; those of a strip are remembered, because every tile asks.

    Parameters
    ----------
    grid : Grid
    room : Room
        Of the level; without columns, everything fits.
    """

    def __init__(self, grid: Grid, room: Room) -> None:
        self._grid = grid
        self._whole = not room.columns
        self._strips: dict[tuple[int, int], list[Need]] = {}

    def of(self, tile: Tile, resident: range = NO_ROWS) -> list[Need]:
        """Return what a tile needs; ``resident`` are the spans that stay, if any do."""
        rows = self._grid.row_spans(tile)
        start = self._grid.span_items(resident.start).start if resident else 0
        span = tile.span
        streams = bool(resident) and span in resident and self._grid.spans_of(tile.strip).start not in resident
        needs = self._strip(tile.strip, STREAMS if streams and not self._whole else start)[: len(rows)]
        if rows.stop > span:
            return needs
        if self._whole or span in resident:
            strip = self._grid.strip_of(span)
            needs.append(self._strip(strip, start)[span - self._grid.spans_of(strip).start])
        else:
            needs.append(Need(span, self._grid.span_length(span), -1, 0, 0))
        return needs

    def _strip(self, strip: int, panel_start: int) -> list[Need]:
        """Return the needs of a whole strip in the panel that starts at an item, or of one that streams."""
        needs = self._strips.get((strip, panel_start))
        if needs is None:
            items = self._grid.strip_items(strip)
            streams = panel_start == STREAMS
            anchor = 0 if streams else items.start - (0 if self._whole else panel_start)
            needs = []
            for span in self._grid.spans_of(strip):
                offset = self._grid.span_items(span).start - items.start
                needs.append(Need(span, self._grid.span_length(span), strip, offset, len(items), anchor, streams))
            self._strips[strip, panel_start] = needs
        return needs


def check_room(grid: Grid, room: Room, option: str) -> None:
    """Refuse a level that cannot hold one tile of a grid.

    Raises
    ------
    ConfigError
        Naming the option and the least value.
    """
    if not room.addressed or not room.columns:
        return
    if room.rows:
        least = grid.longest_strip + grid.longest_span
        fits = room.rows >= grid.longest_strip and room.columns >= grid.longest_span
    else:
        # Spans lie where there is room, those of a strip too.
        n_spans = grid.most_spans + 1
        least, fits = n_spans * grid.span, room.columns // room.column_frame >= n_spans
    if not fits:
        raise ConfigError(
            f"{option} has room for {room.total} items; a tile of this run needs {least}: "
            f"give {option} {least}items or more",
            context={"option": option, "least_items": least},
        )
