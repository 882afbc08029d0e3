"""Tiles of a node: compared as a whole, or in halves after something failed, until the guilty pair is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tartan.core.actions import Action, Compare
from tartan.core.grid import Grid, Tile
from tartan.core.ledger import DONE, FAILED_PAIR, Failure
from tartan.core.schedule import Scheduler
from tartan.core.setup import HALVES_A_WORKER
from tartan.core.verdict import Death, NodeReport, PairCounts
from tartan.errors import DeviceMemoryError, RunFailedError
from tartan.runtime.chunk_desk import ChunkDesk
from tartan.runtime.compare import PairFailure, count_pairs
from tartan.runtime.events import PartCompared, PartDropped, PartFailed
from tartan.runtime.execution import Wanted
from tartan.runtime.item_desk import ItemDesk
from tartan.runtime.parts import HalvedTiles, Part, TileMask, halves, scouts

SCOUTS = 4
"""Single pairs that are tried when the first worker dies."""

MOST_LISTED = 10_000
"""Failed pairs of one execution whose reasons are all kept; the ledger has every one."""


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
    died: set[tuple[int, int]] = field(default_factory=set)


class TileDesk:
    """Has tiles compared, counts their pairs, and finds the pairs that fail.

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
        self._halved = [HalvedTiles[Part](HALVES_A_WORKER * lane.n_workers) for lane in lanes]
        self._n_listed = 0
        self._scouted = False
        self._loads_reported = 0

    def compare(self, action: Compare) -> None:
        """Have a tile compared, whole."""
        grid, tile = self._grid, action.tile
        rect, chunk, row_spans = grid.rect(tile), grid.chunk_of(tile), grid.row_spans(tile)
        rows, columns = self._items.places(row_spans), self._items.places((tile.span,))
        failed_rows, failed_columns = self._items.failed(row_spans), self._items.failed((tile.span,))
        failed_rows = tuple(row for row in failed_rows if row < rect.r1 - rect.r0)
        part = Part(
            tile=tile,
            rows=rows,
            columns=columns,
            row_part=slice(0, rect.r1 - rect.r0),
            column_part=slice(0, rect.c1 - rect.c0),
            chunk=self._chunks.buffers.open(chunk),
            corner=(rect.r0, rect.c0),
            origin=(rect.r0 - chunk[0] * grid.chunk, rect.c0 - chunk[1] * grid.chunk),
            mask=TileMask(self._wanted.pairs(tile), failed_rows, failed_columns),
        )
        self._works[tile] = _TileWork(tile, action.device)
        self._lanes[action.device].compare(part)

    # -- events ----------------------------------------------------------------------------------------------

    def compared(self, event: PartCompared) -> list[Action]:
        """Count the pairs of a part."""
        self.compare_seconds += event.seconds
        if event.part.depth:
            self._halved[event.device].ended(event.part)
        if event.part.scout:
            self._report(NodeReport(survived=True))
        actions = self._part_ended(event.part, event.failures, event.counts)
        if event.part.depth:
            self._start_halves(event.device)
        return actions

    def failed(self, event: PartFailed) -> list[Action]:
        """Halve a part that failed as a whole, until the guilty pair is alone."""
        part, lane, halved = event.part, self._lanes[event.device], self._halved[event.device]
        if event.kind == "late" and not lane.can_stop:
            raise RunFailedError(
                f"{event.error.reason}, and a thread cannot be stopped. What is done is kept; run it again to resume",
                context={"traceback": event.error.traceback, "reason": event.error.reason},
            )
        alone = part.shape == (1, 1)
        if alone and event.kind == "memory" and not lane.shares_host_memory:
            raise DeviceMemoryError(f"{lane.name}: {event.error.reason}")
        work, actions = self._works[part.tile], list[Action]()
        halved.ended(part)
        self._report_survival(event, alone)
        if part.scout:
            actions = self._part_ended(part, (), PairCounts())
        elif not alone:
            parts = halves(part) if event.kind != "died" else [*self._first_scouts(part), *halves(part)]
            work.outstanding += len(parts) - 1
            halved.add(parts)
        elif event.kind == "died" and part.corner not in work.died:
            work.died.add(part.corner)
            halved.add_last(replace(part, depth=part.depth + 1, again=True))
        else:
            actions = self._pair_failed(part, event.error)
        self._start_halves(event.device)
        return actions

    def _report_survival(self, event: PartFailed, alone: bool) -> None:
        """Report a worker that died, or that outlived a pair which was tried to learn just that."""
        if event.kind == "died":
            self._report(
                NodeReport(death=Death(event.part.corner if alone else None, event.error.reason, event.error.traceback))
            )
        elif event.part.scout:
            self._report(NodeReport(survived=True))

    def _first_scouts(self, part: Part) -> list[Part]:
        """Return single pairs to try at the first death: whether all of them end a worker must be known soon."""
        if self._scouted:
            return []
        self._scouted = True
        return scouts(part, SCOUTS)

    def dropped(self, event: PartDropped) -> list[Action]:
        """Do nothing: the executor closes, so the run ends."""
        return []

    def _start_halves(self, device: int) -> None:
        for part in self._halved[device].next():
            self._lanes[device].compare(part)

    def _pair_failed(self, part: Part, error: PairFailure) -> list[Action]:
        """Mark the pair of a part of one pair as failed, if it counts at all."""
        status = part.chunk.views(self._chunks.buffers.arena).status[part.window]
        codes = part.mask.codes((1, 1))
        status[...] = codes
        guilty = int(status[0, 0]) == DONE
        if guilty:
            status[...] = FAILED_PAIR
        failures = [error] if guilty else []
        return self._part_ended(part, failures, count_pairs(codes, status, failures, part.offset))

    def _part_ended(self, part: Part, failures: Sequence[PairFailure], counts: PairCounts) -> list[Action]:
        self.pairs_computed += counts.scores - counts.scores_without_item
        records = self._records(part, failures)
        if not part.scout:  # its pair is compared with others, too
            self._chunks.note(self._grid.chunk_of(part.tile), part, records)
        # Before the tile ends: what stops the run may have failed in it, and its chunk is then left to the resume.
        n_loads = self._scheduler.n_loads - self._loads_reported
        self._loads_reported += n_loads
        self._report(NodeReport(n_loads, counts, records))
        work = self._works[part.tile]
        work.outstanding -= 1
        if work.outstanding:
            return []
        del self._works[part.tile]
        return self._scheduler.compared(work.device, part.tile)

    def _records(self, part: Part, failures: Sequence[PairFailure]) -> list[Failure]:
        """Return the failed pairs of a part whose reasons are kept: all at first, later one a part."""
        kept = failures if self._n_listed < MOST_LISTED else failures[:1]
        self._n_listed += len(kept)
        (top, left), keys = part.corner, self._keys
        return [
            Failure(
                top + pair.row,
                left + pair.column,
                "compare",
                f"{keys[top + pair.row]}, {keys[left + pair.column]}: {pair.reason}",
                pair.traceback,
            )
            for pair in kept
        ]
