"""Tiles of triples: compared on the workers, in halves after something failed, chosen from, committed in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tartan.core.actions import Action, Commit, Compare
from tartan.core.ledger import DONE, FAILED_ITEM, Failure
from tartan.core.schedule import Scheduler
from tartan.core.setup import HALVES_A_WORKER
from tartan.core.triples import TripleGrid
from tartan.core.verdict import Death, NodeReport, PairCounts
from tartan.errors import RunFailedError
from tartan.runtime.boxes import FAILED_TRIPLE, BoxCounts, BoxPart, Triple, TripleFailure, compare_box
from tartan.runtime.committer import FinishedTriples, TripleCommitter
from tartan.runtime.cpu_lane import failed_call
from tartan.runtime.events import BoxCompared, BoxDropped, BoxFailed, ChunkCommitted, NodeBroken
from tartan.runtime.item_desk import ItemDesk
from tartan.runtime.parts import HalvedTiles
from tartan.runtime.tile_desk import MOST_LISTED
from tartan.runtime.wiring import Wiring
from tartan.store.ledger import N_CODES
from tartan.store.triple_keeper import TripleKeeper
from tartan.workers.executor import Completed, Outcome


@dataclass
class _Work:
    """A tile that is compared, in one part or, after something failed, in several."""

    device: int
    outstanding: int = 1
    died: set[Triple] = field(default_factory=set)


@dataclass
class _OpenCube:
    """How the triples of an open chunk ended so far."""

    counts: list[int] = field(default_factory=lambda: [0] * N_CODES)
    failures: list[Failure] = field(default_factory=list)


class BoxDesk:
    """Has tiles of triples compared, finds those that fail, and hands finished chunks to the sink.

    Parameters
    ----------
    wiring : Wiring
    grid : TripleGrid
    scheduler : Scheduler
    items : ItemDesk
        Knows where items lie and which failed.
    keeper : TripleKeeper
    sink : TripleCommitter
    report : callable
        Adds up what happened; raises what ends the run.
    """

    def __init__(
        self,
        wiring: Wiring,
        grid: TripleGrid,
        scheduler: Scheduler,
        items: ItemDesk,
        keeper: TripleKeeper,
        sink: TripleCommitter,
        report: Callable[[NodeReport], None],
    ) -> None:
        self.compare_seconds = 0.0
        self.pairs_computed = 0
        self._wiring = wiring
        self._grid = grid
        self._scheduler = scheduler
        self._items = items
        self._keeper = keeper
        self._sink = sink
        self._report = report
        self._works: dict[tuple[int, int], _Work] = {}
        self._open: dict[tuple[int, int], _OpenCube] = {}
        self._halved = HalvedTiles[BoxPart](HALVES_A_WORKER * wiring.executor.n_workers)
        self._n_listed = 0
        self._loads_reported = 0

    # -- actions ---------------------------------------------------------------------------------------------

    def compare(self, action: Compare) -> None:
        """Have a tile compared, whole."""
        grid, tile = self._grid, action.tile
        a, b = grid.strips(tile)
        spans = (grid.spans_until(a, tile.span), grid.spans_until(b, tile.span), range(tile.span, tile.span + 1))
        first, second, third = (self._items.places(group) for group in spans)
        failed = (
            grid.span_items(group.start).start + position for group in spans for position in self._items.failed(group)
        )
        box = grid.box(tile)
        part = BoxPart(tile, box, (first, second, third), frozenset(failed), self._keeper.bars(box))
        self._works[tile] = _Work(action.device)
        self._submit(part)

    def commit(self, action: Commit) -> None:
        """Hand a finished chunk to the sink."""
        cube = self._open.pop(action.chunk, _OpenCube())
        rows = self._keeper.take(action.chunk)
        self._sink.commit(FinishedTriples(action.chunk, rows, tuple(cube.counts), cube.failures), self._wiring.post)

    def _submit(self, part: BoxPart) -> None:
        wiring = self._wiring
        wiring.executor.submit(
            compare_box,
            (wiring.item_plan.items, part, self._keeper.rule),
            partial(self._ended, part),
            priority=part.priority,
            timeout_seconds=wiring.timeout_seconds,
        )

    def _ended(self, part: BoxPart, outcome: Outcome) -> None:
        """Post how a call ended; on a thread of the executor."""
        post = self._wiring.post
        if isinstance(outcome, Completed):
            when = outcome.value.when
            name = "compare {}x{}x{}".format(*part.box.shape)
            self._wiring.tracer.record(name, "compare", f"cpu/{when.worker}", when.start_ns, when.end_ns)
            post(BoxCompared(part, outcome.value))
            return
        found = failed_call(outcome)
        if found is None or isinstance(found, NodeBroken):
            post(found or BoxDropped(part))
        else:
            post(BoxFailed(part, *found))

    # -- events ----------------------------------------------------------------------------------------------

    def compared(self, event: BoxCompared) -> list[Action]:
        """Take what was chosen from a part, and count its triples."""
        part, found = event.part, event.found
        self.compare_seconds += found.when.seconds
        self._halved.ended(part)
        self._keeper.choose(self._grid.chunk_of(part.tile), found.rows)
        actions = self._part_ended(part, found.failures, found.counts)
        self._start_halves()
        return actions

    def failed(self, event: BoxFailed) -> list[Action]:
        """Halve a part that failed as a whole, until the guilty triple is alone."""
        part, work = event.part, self._works[event.part.tile]
        if event.kind == "late" and not self._wiring.executor.in_processes:
            raise RunFailedError(
                f"{event.reason}, and a thread cannot be stopped. What is done is kept; run it again to resume",
                context={"traceback": event.traceback, "reason": event.reason},
            )
        self._halved.ended(part)
        if event.kind == "died":
            self._report(NodeReport(death=Death(part.triple, event.reason, event.traceback)))
        actions = list[Action]()
        if part.triple is None:
            actions = self._halve(part)
        elif event.kind == "died" and part.triple not in work.died:
            work.died.add(part.triple)
            self._halved.add_last(replace(part, depth=part.depth + 1, again=True))
        else:
            actions = self._triple_failed(part, event)
        self._start_halves()
        return actions

    def dropped(self, event: BoxDropped) -> list[Action]:
        """Do nothing: the executor closes, so the run ends."""
        return []

    def committed(self, event: ChunkCommitted) -> list[Action]:
        """Tell the scheduler that a chunk is committed."""
        return self._scheduler.committed(event.chunk)

    def _halve(self, part: BoxPart) -> list[Action]:
        """Have the halves of a part compared; one without a triple that counts is done."""
        self._works[part.tile].outstanding += 1
        actions = list[Action]()
        for half in part.halves():
            if half.wanted:
                self._halved.add([half])
            else:
                codes = half.codes()
                without_item = 0 if codes is None else int((codes == FAILED_ITEM).sum())
                actions += self._part_ended(half, [], BoxCounts(without_item=without_item))
        return actions

    def _triple_failed(self, part: BoxPart, event: BoxFailed) -> list[Action]:
        """Mark a triple as failed, if it counts at all."""
        codes = part.codes()
        code = DONE if codes is None else int(codes[0, 0, 0])
        if code == DONE:
            return self._part_ended(part, [part.failure(event.reason, event.traceback)], BoxCounts(failed=1))
        return self._part_ended(part, [], BoxCounts(without_item=int(code == FAILED_ITEM)))

    def _start_halves(self) -> None:
        for part in self._halved.next():
            self._submit(part)

    def _part_ended(self, part: BoxPart, failures: Sequence[TripleFailure], counts: BoxCounts) -> list[Action]:
        self.pairs_computed += counts.good + counts.failed
        cube = self._open.setdefault(self._grid.chunk_of(part.tile), _OpenCube())
        cube.counts[DONE] += counts.good
        cube.counts[FAILED_ITEM] += counts.without_item
        cube.counts[FAILED_TRIPLE] += counts.failed
        records = self._records(failures)
        cube.failures += records
        # Before the tile ends: what stops the run may have failed in it, and its chunk is then left to the resume.
        n_loads = self._scheduler.n_loads - self._loads_reported
        self._loads_reported += n_loads
        ended = PairCounts(*counts, sum(counts), counts.without_item)
        self._report(NodeReport(n_loads, ended, records))
        work = self._works[part.tile]
        work.outstanding -= 1
        if work.outstanding:
            return []
        del self._works[part.tile]
        return self._scheduler.compared(work.device, part.tile)

    def _records(self, failures: Sequence[TripleFailure]) -> list[Failure]:
        """Return the failed triples of a part whose reasons are kept: all at first, later one a part."""
        kept = failures if self._n_listed < MOST_LISTED else failures[:1]
        self._n_listed += len(kept)
        keys = self._wiring.source.keys
        return [
            Failure(i, j, "compare", f"{keys[i]}, {keys[j]}, {keys[k]}: {one.reason}", one.traceback, k)
            for one in kept
            for i, j, k in [one.triple]
        ]
