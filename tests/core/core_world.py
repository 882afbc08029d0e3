"""A world for the scheduler: its actions end in any order, on simulated memory that notices every wrong address.

The world plays what loaders, engines and the committer do. It holds what every slot contains, so that a block that is
evicted too early, two blocks in one slot, a strip that is not contiguous or a copy from the wrong place show as wrong
contents when a tile is compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tartan.core.pairs.actions import Action, AskSegments, Commit, Compare, Evict, Load, Move, Prepare, Upload
from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.schedule import AdmissionLimits, DeviceSlots, Scheduler
from tartan.core.pairs.setup import next_segments
from tartan.core.pairs.sizing import Costs, Layout, choose_grid, choose_layout, device_room, make_order
from tartan.core.pairs.workload import Workload

NOTHING = -1
PARSED = 10**6


@dataclass
class Problem:
    """Everything that decides what a scheduler does."""

    workload: Workload
    slots: int
    device_slots: tuple[int | None, ...] = (None,)
    chunk: int | None = None
    order: str = "panel"
    max_admitted: int = 256
    prepare_on_device: bool = False
    costs: Costs = field(default_factory=Costs)
    depth: int = 4
    pair_bytes: int = 5

    def grid(self) -> Grid:
        own = [slots for slots in self.device_slots if slots is not None]
        return choose_grid(
            self.workload,
            self.slots,
            device_slots=min(own) if own else None,
            chunk=self.chunk,
            order=self.order,
            costs=self.costs,
        )


def wanted_pairs(workload: Workload, grid: Grid) -> np.ndarray:
    """Return the wanted pairs as a boolean matrix, from the masks of all chunks."""
    matrix = np.zeros((grid.n_items, grid.n_items), dtype=bool)
    for chunk in grid.chunks():
        rect = grid.chunk_rect(chunk)
        mask = workload.mask(rect)
        matrix[rect.r0 : rect.r1, rect.c0 : rect.c1] = True if mask is None else mask
    return matrix


class World:
    """Runs one execution.

    Parameters
    ----------
    problem : Problem
    grid : Grid
    seed : int
        Decides which of the actions under way ends next.
    done : ndarray of bool, shape (n, n), optional
        Pairs that an earlier execution computed.
    room : Room, optional
        Of the host level; default as a run would divide it.
    span_size : callable, optional
        Size of a span in an unaddressed room.
    deaf_device : int
        A device whose comparisons never end.
    """

    def __init__(
        self,
        problem: Problem,
        grid: Grid,
        seed: int = 0,
        done: np.ndarray | None = None,
        *,
        room: Room | None = None,
        span_size: Callable[[int], int] | None = None,
        deaf_device: int = -1,
    ) -> None:
        self.grid = grid
        self._deaf = deaf_device
        self._unanswered: list[Tile] = []
        self.layout: Layout = choose_layout(grid, problem.workload, problem.slots, problem.order, problem.pair_bytes)
        self.missing = wanted_pairs(problem.workload, grid)
        if done is not None:
            self.missing &= ~done
        self.computed = np.zeros(self.missing.shape, dtype=np.int64)
        self.committed: list[tuple[int, int]] = []
        self.loads: list[int] = []
        self.most_open = 0
        self._random = random.Random(seed)
        self._pending: list[Callable[[], list[Action]]] = []
        self.segments = make_order(grid, problem.workload, self.layout, self.wants, problem.order)
        self._prepare_on_device = problem.prepare_on_device and None not in problem.device_slots
        self.scheduler = Scheduler(
            grid,
            self.wants,
            room or self.layout.room,
            [DeviceSlots(None if s is None else device_room(grid, s), problem.depth) for s in problem.device_slots],
            span_size=span_size,
            policy="lru" if problem.order == "quadrant" else "planned",
            limits=AdmissionLimits(problem.max_admitted, self.layout.open_chunks),
            prepare_on_device=self._prepare_on_device,
        )
        host = self.scheduler.host.room
        # Where room is only counted, an address is the number of a window, which holds any span.
        self._window = 1 if host.addressed else grid.longest_span
        self._host = np.full(host.total if host.addressed else grid.n_spans * self._window, NOTHING)
        self._host_places: dict[int, int] = {}
        self._device_places: dict[tuple[int, int], int] = {}
        self._device = [
            None if slots is None else np.full(device_room(grid, slots).total, NOTHING)
            for slots in problem.device_slots
        ]

    def run(self, stop_after: int | None = None, *, expect_end: bool = True) -> None:
        """Let things end until nothing is under way; fails where the scheduler would wait for ever.

        Parameters
        ----------
        stop_after : int, optional
            Ask for a stop after so many events.
        expect_end : bool
            Whether the scheduler must then be finished.
        """
        self.begin()
        events = 0
        while self._pending:
            if events == stop_after:
                self.scheduler.stop()
            self.advance()
            events += 1
        assert self.scheduler.finished or not expect_end, "nothing is under way and the end is not reached"

    def begin(self) -> None:
        self._act(self.scheduler.start())

    def advance(self) -> None:
        """Let one thing end."""
        self._act(self.step())

    def finish(self) -> None:
        """Let everything end that is under way; nothing more is granted."""
        self._act(self.scheduler.on_granted((), last=True))
        while self._pending:
            self.advance()
        assert self.scheduler.finished

    def pairs_under_way(self) -> int:
        """Return the pairs that the deaf device holds."""
        rects = [self.grid.rect(tile) for tile in self._unanswered]
        return sum(int(self.missing[r.r0 : r.r1, r.c0 : r.c1].sum()) for r in rects)

    def step(self) -> list[Action]:
        index = self._random.randrange(len(self._pending))
        self._pending[index], self._pending[-1] = self._pending[-1], self._pending[index]
        return self._pending.pop()()

    def check_complete(self) -> None:
        """Every missing pair was computed once, and every chunk that had some was committed once."""
        np.testing.assert_array_equal(self.computed, self.missing)
        assert len(set(self.committed)) == len(self.committed)
        chunks = {(i // self.grid.chunk, j // self.grid.chunk) for i, j in np.argwhere(self.missing).tolist()}
        assert set(self.committed) == chunks

    # -- what ends -------------------------------------------------------------------------------------------

    def wants(self, tile: Tile) -> bool:
        """Whether a tile has missing pairs."""
        rect = self.grid.rect(tile)
        return bool(self.missing[rect.r0 : rect.r1, rect.c0 : rect.c1].any())

    def _act(self, actions: Sequence[Action]) -> None:
        self.most_open = max(self.most_open, self.scheduler.n_open_chunks)
        for action in actions:
            match action:
                case AskSegments(count):
                    assert action is actions[-1]
                    self._later(self._grant, count)
                case Evict(span, None):
                    self._empty(self._host, span, self._host_places.pop(span))
                case Evict(span, int(device)):
                    self._empty(self._memory_of(device), span, self._device_places.pop((device, span)))
                case Load(span, address):
                    self.loads.append(span)
                    self._take(self._host, span, address * self._window)
                    self._host_places[span] = address * self._window
                    self._later(self._end_load, span)
                case Move(span, address, source):
                    self._take(self._host, span, address)
                    self._host_places[span] = address
                    self._later(self._end_move, span, address, source)
                case Prepare(device, span, address):
                    self._later(self._end_prepare, device, span, self._leave(device, span, address), address)
                case Upload(device, span, address):
                    self._later(self._end_upload, device, span, self._leave(device, span, address), address)
                case Compare(device, tile):
                    self._check_tile(device, tile)
                    if device == self._deaf:
                        self._unanswered.append(tile)
                    else:
                        self._later(self._end_compare, device, tile)
                case Commit(chunk):
                    self._check_chunk(chunk)
                    self._later(self._end_commit, chunk)

    def _grant(self, count: int) -> list[Action]:
        found, last = next_segments(self.segments, count)
        return self.scheduler.on_granted(found, last=last)

    def _later(self, end: Callable[..., list[Action]], *args: object) -> None:
        self._pending.append(partial(end, *args))

    def _end_load(self, span: int) -> list[Action]:
        self._fill(self._host, span, self._host_places[span], self._prepare_on_device)
        return self.scheduler.on_loaded(span)

    def _end_move(self, span: int, address: int, source: int) -> list[Action]:
        self._host[self._slots(self._host, span, address)] = self._host[self._slots(self._host, span, source)]
        self._empty(self._host, span, source)
        return self.scheduler.on_moved(span)

    def _end_prepare(self, device: int, span: int, old: int | None, address: int) -> list[Action]:
        self._expect(self._host, span, self._host_places[span], parsed=True)
        self._arrive(device, span, old, address)
        self._later(self._end_store, device, span, address)
        return self.scheduler.on_prepared(device, span)

    def _end_store(self, device: int, span: int, address: int) -> list[Action]:
        memory = self._device[device]
        there = self._host_places[span]
        self._expect(self._host, span, there, parsed=True)
        if memory is not None:
            self._expect(memory, span, address)
        self._fill(self._host, span, there)
        return self.scheduler.on_stored(span)

    def _end_upload(self, device: int, span: int, old: int | None, address: int) -> list[Action]:
        self._expect(self._host, span, self._host_places[span])
        self._arrive(device, span, old, address)
        return self.scheduler.on_uploaded(device, span)

    def _end_compare(self, device: int, tile: Tile) -> list[Action]:
        self._check_tile(device, tile)
        rect = self.grid.rect(tile)
        area = np.s_[rect.r0 : rect.r1, rect.c0 : rect.c1]
        self.computed[area] += self.missing[area]
        return self.scheduler.on_compared(device, tile)

    def _end_commit(self, chunk: tuple[int, int]) -> list[Action]:
        self.committed.append(chunk)
        return self.scheduler.on_committed(chunk)

    # -- memory ----------------------------------------------------------------------------------------------

    def _memory_of(self, device: int) -> np.ndarray:
        memory = self._device[device]
        assert memory is not None
        return memory

    def _slots(self, memory: np.ndarray, span: int, address: int) -> slice:
        stop = address + self.grid.span_length(span)
        assert 0 <= address < stop <= len(memory), "outside the room of the level"
        return slice(address, stop)

    def _leave(self, device: int, span: int, address: int) -> int | None:
        """Begin to fill slots of a device; return where the span lay before, if it was there."""
        if self._device[device] is None:
            return None
        self._take(self._memory_of(device), span, address)
        old = self._device_places.get((device, span))
        self._device_places[device, span] = address
        return old

    def _arrive(self, device: int, span: int, old: int | None, address: int) -> None:
        if self._device[device] is not None:
            self._fill(self._memory_of(device), span, address)
        if old is not None:
            self._empty(self._memory_of(device), span, old)

    def _take(self, memory: np.ndarray, span: int, address: int) -> None:
        """Begin to fill slots, which must be empty: what lay there was evicted first."""
        assert (memory[self._slots(memory, span, address)] == NOTHING).all()

    def _empty(self, memory: np.ndarray, span: int, address: int) -> None:
        memory[self._slots(memory, span, address)] = NOTHING

    def _fill(self, memory: np.ndarray, span: int, address: int, parsed: bool = False) -> None:
        items = np.arange(*self.grid.span_lines[span : span + 2])
        memory[self._slots(memory, span, address)] = items + PARSED * parsed

    def _expect(self, memory: np.ndarray, span: int, address: int, parsed: bool = False) -> None:
        """The memory holds a span there, ready unless ``parsed``."""
        first = self.grid.span_items(span).start + PARSED * parsed
        found = memory[self._slots(memory, span, address)].tolist()
        assert found == list(range(first, first + len(found)))

    def _check_tile(self, device: int, tile: Tile) -> None:
        """The rows of a tile lie in order in one block, its columns in another, where it is compared."""
        rows = self.grid.row_spans(tile)
        own = self._device[device] is not None
        memory = self._memory_of(device) if own else self._host
        places = {s: self._device_places[device, s] if own else self._host_places[s] for s in {*rows, tile.span}}
        for span, address in places.items():
            self._expect(memory, span, address)
        starts = {places[span] - self.grid.span_items(span).start for span in rows}
        assert len(starts) <= 1 or not (own or self.scheduler.host.room.addressed), (
            "the rows of a tile do not lie in order"
        )

    def _check_chunk(self, chunk: tuple[int, int]) -> None:
        rect = self.grid.chunk_rect(chunk)
        area = np.s_[rect.r0 : rect.r1, rect.c0 : rect.c1]
        np.testing.assert_array_equal(self.computed[area], self.missing[area])
