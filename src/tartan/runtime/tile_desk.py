"""Tiles of a node: compared as a whole, or in halves after something failed, until the guilty cell is alone.

A *cell* is a pair or a triple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tartan.core.pairs.actions import Action, Compare
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.ledger import Failure
from tartan.core.pairs.schedule import Scheduler
from tartan.core.pairs.setup import HALVES_A_WORKER
from tartan.core.pairs.verdict import Death, NodeReport, PairCounts
from tartan.errors import DeviceMemoryError, RunFailedError
from tartan.runtime.chunk_desk import ChunkDesk
from tartan.runtime.compare import CELLS, CellFailure
from tartan.runtime.events import PartCompared, PartDropped, PartFailed
from tartan.runtime.execution import Wanted
from tartan.runtime.item_desk import ItemDesk
from tartan.runtime.parts import HalvedTiles, Part, TileMask, halves, scouts
from tartan.store.keeper import Rows

# By judgement: one or two could meet the pair that ends workers; four single pairs cost no more than a tile. No
# benchmark.
SCOUTS = 4
"""Single cells that are tried when the first worker dies."""

# By judgement: 10,000 reasons are some megabytes of `failures.jsonl`, and nobody reads more. No benchmark.
MOST_LISTED = 10_000
"""Failed cells of one execution whose reasons are all kept; the ledger has every one."""


class Lane(Protocol):
    """Executes compare calls on one device."""

    @property
    def name(self) -> str:
        """Name of the device."""

    @property
    def n_workers(self) -> int:
        """How many parts it compares at a time."""

    @property
    def shares_host_memory(self) -> bool:
        """Whether the device has no memory of its own."""

    @property
    def can_stop(self) -> bool:
        """Whether a compare call that takes too long is ended, and not only reported."""

    def compare(self, part: Part) -> None:
        """Start to compare a part; its end is posted once."""


@dataclass
class _TileWork:
    """A tile that a device compares, in one part or, after something failed, in several."""

    tile: Tile
    device: int
    outstanding: int = 1
    tried: set[tuple[int, ...]] = field(default_factory=set)


class TileDesk:
    """Has tiles compared, counts their pairs or triples, and finds those that fail.

    Parameters
    ----------
    grid : Grid
    scheduler : Scheduler
    wanted : Wanted
    items : ItemDesk
        Knows where items lie and which failed.
    chunks : ChunkDesk
    lanes : sequence of Lane
        One for each device.
    keys : sequence of str
        Of all items, for the reasons of failures.
    report : callable
        Adds up what happened; raises what ends the run.
    """

    def __init__(
        self,
        grid: Grid,
        scheduler: Scheduler,
        wanted: Wanted,
        items: ItemDesk,
        chunks: ChunkDesk,
        lanes: Sequence[Lane],
        keys: Sequence[str],
        report: Callable[[NodeReport], None],
    ) -> None:
        self.compare_seconds = 0.0
        self.pairs_computed = 0
        self._grid = grid
        self._scheduler = scheduler
        self._wanted = wanted
        self._items = items
        self._chunks = chunks
        self._lanes = lanes
        self._keys = keys
        self._report = report
        self._works: dict[Tile, _TileWork] = {}
        self._halved = [HalvedTiles(HALVES_A_WORKER * lane.n_workers) for lane in lanes]
        self._n_under_way = 0
        self._stopping = False
        self._n_listed = 0
        self._scouted = False
        self._loads_reported = 0
        self._any_ended = False

    def compare(self, action: Compare) -> None:
        """Have a tile compared, whole."""
        grid, tile = self._grid, action.tile
        groups, spans, chunk = grid.groups(tile), grid.group_spans(tile), grid.chunk_of(tile)
        corner, shape = tuple([group.start for group in groups]), tuple(map(len, groups))
        failed = tuple([self._find_failed(part, length) for part, length in zip(spans, shape, strict=True)])
        buffers, bars = self._chunks.open(chunk, groups)
        part = Part(
            tile=tile,
            places=tuple(map(self._items.places, spans)),
            shape=shape,
            at=(0,) * len(shape),
            corner=corner,
            origin=tuple([start % grid.chunk for start in corner]),  # no tile lies in two chunks
            mask=TileMask(self._wanted.cells(tile), failed),
            chunk=buffers,
            bars=bars,
        )
        self._works[tile] = _TileWork(tile, action.device)
        self._start(action.device, part)

    def _find_failed(self, spans: Sequence[int], length: int) -> tuple[int, ...]:
        """Return the positions of failed items in a group, which ends before its spans do where nothing is wanted."""
        return tuple([position for position in self._items.find_failed(spans) if position < length])

    @property
    def n_under_way(self) -> int:
        """Parts that lanes have, and whose end was not handled yet."""
        return self._n_under_way

    def stop(self) -> None:
        """Start no part any more."""
        self._stopping = True

    def _start(self, device: int, part: Part) -> None:
        if not self._stopping:
            self._n_under_way += 1
            self._lanes[device].compare(part)

    # -- events ----------------------------------------------------------------------------------------------

    def on_compared(self, event: PartCompared) -> list[Action]:
        """Count the cells of a part."""
        self._n_under_way -= 1
        self.compare_seconds += event.seconds
        if event.part.depth:
            self._halved[event.device].on_ended(event.part)
        if event.part.scout:
            self._report(NodeReport(survived=True))
        actions = self._part_ended(event.part, event.failures, event.counts, event.rows)
        if event.part.depth:
            self._start_halves(event.device)
        return actions

    def on_failed(self, event: PartFailed) -> list[Action]:
        """Halve a part that failed as a whole, until the guilty cell is alone."""
        self._n_under_way -= 1
        part, lane, halved = event.part, self._lanes[event.device], self._halved[event.device]
        if event.kind == "late" and not lane.can_stop:
            raise RunFailedError(
                f"{event.error.reason}, and a thread cannot be stopped. What is done is kept; run it again to resume",
                context={"traceback": event.error.traceback, "reason": event.error.reason},
            )
        alone = part.alone
        if alone and event.kind == "memory" and not lane.shares_host_memory:
            raise DeviceMemoryError(f"{lane.name}: {event.error.reason}")
        work, actions = self._works[part.tile], list[Action]()
        halved.on_ended(part)
        self._report_survival(event)
        again = alone and not part.scout and event.kind in ("died", "late") and part.corner not in work.tried
        if event.kind == "late" and (again or not part.depth):
            self._tell_late(part, event.error.reason)
        if part.scout:
            actions = self._part_ended(part, (), PairCounts())
        elif not alone:
            actions = self._halve(part, halved, self._first_scouts(part) if event.kind == "died" else [])
        elif again:
            work.tried.add(part.corner)
            halved.add_last(replace(part, depth=part.depth + 1, again=True))
        elif event.kind == "late" and self._chunks.can_pass_on(self._grid.chunk_of(part.tile)):
            actions = self._pass_on(part, event.error.reason)
        else:
            actions = self._mark_failed(part, event.error)
        self._start_halves(event.device)
        return actions

    def _halve(self, part: Part, halved: HalvedTiles, first: Sequence[Part]) -> list[Action]:
        """Have the halves of a part compared, after some others; one without a cell that counts is done."""
        parts = [*first, *halves(part)]
        self._works[part.tile].outstanding += len(parts) - 1
        halved.add([half for half in parts if half.counts_any])
        # Not only to save time: below the diagonal a guilty cell lies a second time, and is late again and again.
        return [action for half in parts if not half.counts_any for action in self._mark_failed(half)]

    def _report_survival(self, event: PartFailed) -> None:
        """Report a worker that died, or that outlived a cell which was tried to learn just that."""
        if event.kind == "died":
            items = event.part.corner if event.part.alone else None
            self._report(NodeReport(death=Death(items, event.error.reason, event.error.traceback)))
        elif event.part.scout:
            self._report(NodeReport(survived=True))

    def _tell_late(self, part: Part, reason: str) -> None:
        """Say of a part that was late what it is and what becomes of it."""
        first = self._name(part)
        line = f"{first}: {reason}; compared once more, by another worker"
        if not part.alone:
            cells = f"{' x '.join(map(str, part.shape))} {CELLS[len(part.shape)]}"
            line = f"{cells} from {first} on: {reason}; compared in halves, by another worker"
        self._report(NodeReport(late=[line]))

    def _pass_on(self, part: Part, reason: str) -> list[Action]:
        """Leave a single pair that is late here again and again to another rank: it is neither done nor failed."""
        self._chunks.pass_on(self._grid.chunk_of(part.tile), f"{self._name(part)}: {reason}")
        return self._finish(part)

    def _name(self, part: Part) -> str:
        return ", ".join(self._keys[item] for item in part.corner)

    def _first_scouts(self, part: Part) -> list[Part]:
        """Return single cells to try at the first death: whether all of them end a worker must be known soon."""
        if self._scouted:
            return []
        self._scouted = True
        return scouts(part, SCOUTS)

    def on_dropped(self, event: PartDropped) -> list[Action]:
        """Forget the part: the run ends."""
        self._n_under_way -= 1
        return []

    def _start_halves(self, device: int) -> None:
        for part in self._halved[device].next():
            self._start(device, part)

    def _mark_failed(self, part: Part, *error: CellFailure) -> list[Action]:
        """Mark the cell of a part of one as failed, if it counts at all; in others none does, and none failed."""
        return self._part_ended(part, *self._chunks.mark_failed(part, *error))

    def _part_ended(
        self, part: Part, failures: Sequence[CellFailure], counts: PairCounts, rows: Rows | None = None
    ) -> list[Action]:
        self.pairs_computed += counts.scores - counts.scores_without_item
        self._any_ended = True
        records = self._records(part, failures)
        if not part.scout:  # its cell is compared with others, too
            self._chunks.note(part, counts, records, rows)
        # Before the tile ends: what stops the run may have failed in it, and its chunk is then left to the resume.
        self._report(NodeReport(self._new_loads(), counts, records))
        return self._finish(part)

    def tell_loads(self) -> None:
        """Report loads until the first pairs have ended, which then report them."""
        if not self._any_ended:
            self._report(NodeReport(self._new_loads()))

    def _new_loads(self) -> int:
        n_loads = self._items.n_loaded - self._loads_reported
        self._loads_reported += n_loads
        return n_loads

    def _finish(self, part: Part) -> list[Action]:
        """Tell the scheduler of a tile once the last of its parts has ended."""
        work = self._works[part.tile]
        work.outstanding -= 1
        if work.outstanding:
            return []
        del self._works[part.tile]
        self._chunks.end_tile(part.tile)
        return self._scheduler.on_compared(work.device, part.tile)

    def _records(self, part: Part, failures: Sequence[CellFailure]) -> list[Failure]:
        """Return the failed cells of a part whose reasons are kept: all at first, later one a part."""
        kept = failures if self._n_listed < MOST_LISTED else failures[:1]
        self._n_listed += len(kept)
        return [self._record(part, failure) for failure in kept]

    def _record(self, part: Part, failure: CellFailure) -> Failure:
        items = [start + at for start, at in zip(part.corner, failure.place, strict=True)]
        reason = f"{', '.join(self._keys[item] for item in items)}: {failure.reason}"
        return Failure(items[0], items[1], "compare", reason, failure.traceback, *items[2:])
