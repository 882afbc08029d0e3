"""Chunks of a node: their buffers are opened by the first tile, filled by tiles, and read once by the sink.

Chunks of triples have no buffers: a cube of codes would not fit. Of them it is known what is kept and how all ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tartan.base.logs import logger_of
from tartan.core.pairs.actions import Action, Commit
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.core.pairs.saves import SavePolicy
from tartan.core.pairs.schedule import Scheduler
from tartan.core.pairs.verdict import PairCounts
from tartan.errors import InternalError, ResourceError
from tartan.runtime.committer import ChunkSink, FinishedChunk
from tartan.runtime.compare import CellFailure, count_cells
from tartan.runtime.events import ChunkCommitted, ChunkSaved, Event
from tartan.runtime.execution import OtherRanks, Wanted
from tartan.runtime.parts import OpenChunk, Part
from tartan.store.bars import BarKeeper, Bars
from tartan.store.keeper import Rows
from tartan.workers.arena import Arena

_log = logger_of(__name__)

Window = tuple[slice, ...]


class ChunkBuffers:
    """A pool of equal buffers in one arena; the last one given back is the first one taken, while it is warm.

    Parameters
    ----------
    side : int
        Side of a chunk.
    dtypes : mapping of str to dtype
        Of each output; empty where scores do not wait in chunks.
    n_buffers : int
        Most chunks that are open or being committed at a time.
    mirrored : bool
        Whether (i, j) and (j, i) are two scores.
    shared : bool
        Whether worker processes write into them.
    counted_twice : bool, optional
        Whether those two count as two pairs; default as ``mirrored``.
    """

    def __init__(
        self,
        side: int,
        dtypes: Mapping[str, np.dtype[Any]],
        n_buffers: int,
        *,
        mirrored: bool,
        shared: bool,
        counted_twice: bool | None = None,
    ) -> None:
        self._side = side
        self.dtypes = dict(dtypes)
        self._mirrored = mirrored
        self._counted_twice = mirrored if counted_twice is None else counted_twice
        pair_bytes = sum(dtype.itemsize for dtype in dtypes.values()) * (2 if mirrored else 1) + 1
        self._slot_bytes = -(-pair_bytes * side * side // 4096) * 4096
        try:
            self.arena = Arena(self._slot_bytes * n_buffers, shared)
        except ResourceError as error:
            raise ResourceError(
                f"the system refuses {n_buffers} buffers of {self._slot_bytes:,} bytes for chunks of {side} x {side} "
                "pairs; choose a smaller --tile",
                context={"option": "--tile"},
            ) from error
        self._free = list(range(n_buffers))[::-1]
        self._open: dict[tuple[int, int], OpenChunk] = {}

    def open(self, chunk: tuple[int, int]) -> OpenChunk:
        """Return the buffers of a chunk; they hold what an earlier chunk left."""
        found = self._open.get(chunk)
        if found is None:
            if not self._free:
                raise InternalError("more chunks are open than the order announced")
            found = self._open[chunk] = self._lay_out(self._free.pop())
        return found

    def close(self, chunk: tuple[int, int]) -> None:
        """Give the buffers of a committed chunk back."""
        slot = self._open.pop(chunk).slot
        if not self.dtypes:  # only codes: most chunks write none, and would not touch the memory
            self.arena.punch(slot * self._slot_bytes, self._slot_bytes)
        self._free.append(slot)

    def _lay_out(self, slot: int) -> OpenChunk:
        offset = slot * self._slot_bytes
        places: list[dict[str, tuple[int, str]]] = []
        for _ in range(2 if self._mirrored else 1):
            outputs = {}
            for name, dtype in self.dtypes.items():
                outputs[name] = (offset, dtype.str)
                offset += dtype.itemsize * self._side * self._side
            places.append(outputs)
        return OpenChunk(
            slot, self._side, places[0], places[1] if self._mirrored else None, offset, self._counted_twice
        )


@dataclass
class OpenWork:
    """What is known of the compared parts of an open chunk.

    Attributes
    ----------
    plain, coded : list of windows
        Where the parts lie whose cells are all done, and those that left codes.
    counts : list of int
        Cells of each code, where the chunk has no buffers.
    tiles : list of Tile
        Those that the cells are of, where the chunk has no buffers.
    failures : list of Failure
    """

    plain: list[Window] = field(default_factory=list)
    coded: list[Window] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0] * (FAILED_PAIR + 1))
    tiles: list[Tile] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def count(self, counts: PairCounts) -> None:
        """Add how the cells of a part ended."""
        self.counts[DONE] += counts.good
        self.counts[FAILED_ITEM] += counts.without_item
        self.counts[FAILED_PAIR] += counts.failed

    def status(self, codes: np.ndarray) -> np.ndarray:
        """Return the codes of the chunk: one value for all where every pair is done, which takes no memory."""
        area = sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in self.plain)
        if area == codes.size:
            return np.broadcast_to(np.uint8(DONE), codes.shape)
        status = np.zeros(codes.shape, np.uint8)  # NOT_COMPUTED, in pages that need not be touched
        for window in self.plain:
            status[window] = DONE
        for window in self.coded:
            status[window] = codes[window]
        return status


class ChunkDesk:
    """Opens the buffers of chunks, collects the failures of their cells, and hands finished chunks to the sink.

    Parameters
    ----------
    grid : Grid
    scheduler : Scheduler
    buffers : ChunkBuffers or None
        None where the sink has a ``BarKeeper``, which is all that holds scores.
    wanted : Wanted
        Learns what is committed.
    sink : ChunkSink
    post : callable
        Gives an event to the loop.
    saves : SavePolicy, optional
        When finished tiles of open chunks are saved; default: never.
    others : OtherRanks, optional
        Who else may try what takes too long here.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        grid: Grid,
        scheduler: Scheduler,
        buffers: ChunkBuffers | None,
        wanted: Wanted,
        sink: ChunkSink,
        post: Callable[[Event], None],
        saves: SavePolicy | None = None,
        others: OtherRanks | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,  # a ninth parameter, for tests alone
    ) -> None:
        self.buffers = buffers
        self._grid = grid
        self._scheduler = scheduler
        self._wanted = wanted
        self._sink = sink
        self._post = post
        self._saves = saves
        self._others = others
        self._clock = clock
        self._bar_keeper = sink.keeper if isinstance(sink.keeper, BarKeeper) else None
        self._works: dict[tuple[int, int], OpenWork] = {}
        # Without buffers, of tiles of which a part is left: half a tile cannot be told from a whole one.
        self._begun: dict[Tile, list[tuple[PairCounts, Sequence[Failure], Rows | None]]] = {}
        self._late: dict[tuple[int, int], list[str]] = {}
        self._saving: dict[tuple[int, int], Commit | None] = {}  # with the commit that waits for it

    def open(self, chunk: tuple[int, int], groups: Sequence[range]) -> tuple[OpenChunk | None, Bars | None]:
        """Return where the scores of a tile go, and by which bars of its groups of items they are chosen from."""
        buffers = None if self.buffers is None else self.buffers.open(chunk)
        return buffers, None if self._bar_keeper is None else self._bar_keeper.bars(groups)

    def note(self, part: Part, counts: PairCounts, failures: Sequence[Failure], rows: Rows | None) -> None:
        """Remember until its chunk is committed where a part lies in it, what is kept, and why some of it failed.

        Where all pairs count and none fails, no code was written.
        """
        if part.chunk is None:
            self._begun.setdefault(part.tile, []).append((counts, failures, rows))
            return
        work = self._open_work(chunk := self._grid.chunk_of(part.tile))
        (work.plain if part.mask.plain and not failures else work.coded).append(part.window)
        work.failures += failures
        if self._saves is not None:
            self._saves.on_finished(chunk, self._clock())

    def end_tile(self, tile: Tile) -> None:
        """Take note that no part of a tile is left."""
        parts = self._begun.pop(tile, None)
        if parts is None:
            return
        work = self._open_work(chunk := self._grid.chunk_of(tile))
        work.tiles.append(tile)
        for counts, failures, rows in parts:
            work.count(counts)
            work.failures += failures
            if self._bar_keeper is not None and rows is not None:
                self._bar_keeper.add(chunk, rows)
        if self._saves is not None:
            self._saves.on_finished(chunk, self._clock())

    def _open_work(self, chunk: tuple[int, int]) -> OpenWork:
        work = self._works.get(chunk)
        if work is None:
            work = self._works[chunk] = OpenWork()
        return work

    def can_pass_on(self, chunk: tuple[int, int]) -> bool:
        """Whether another rank may try pairs of a chunk that were late here."""
        return self._others is not None and self._others.can_try(chunk)

    def pass_on(self, chunk: tuple[int, int], why: str) -> None:
        """Leave a pair of a chunk to another rank, once all others of the chunk are committed."""
        self._late.setdefault(chunk, []).append(why)

    def mark_failed(self, part: Part, *error: CellFailure) -> tuple[Sequence[CellFailure], PairCounts]:
        """Mark the cell of a part of one as failed, if it counts at all; in others none does, and none failed."""
        codes = part.mask.codes(part.shape)
        status = np.empty(part.shape, np.uint8)
        if part.chunk is not None and self.buffers is not None:
            status = part.chunk.views(self.buffers.arena).status[part.window]
        status[...] = codes
        failures = error if part.counts_any else ()
        if failures:
            status[...] = FAILED_PAIR
        return failures, count_cells(codes, status, failures, part.offset)

    def commit(self, action: Commit) -> None:
        """Hand a finished chunk to the sink, once no save of it is being written."""
        if action.chunk in self._saving:
            self._saving[action.chunk] = action
            return
        self._sink.commit(self._take_finished(action.chunk, last=True), self._post)

    def save_due(self) -> None:
        """Save the chunks whose finished tiles have waited for long enough."""
        if self._saves is not None:
            self._save(self._saves.due(self._clock()))

    def save_all(self) -> None:
        """Save all finished tiles."""
        if self._saves is not None:
            self._save(self._saves.list_unsaved())

    def _save(self, chunks: Iterable[tuple[int, int]]) -> None:
        """Hand what is finished of chunks to the sink; not while it still writes an earlier part of them."""
        for chunk in chunks:
            if chunk not in self._saving:
                self._saving[chunk] = None
                _log.info("what is finished of chunk %d,%d is saved", *chunk)
                self._sink.commit(self._take_finished(chunk, last=False), self._post)

    @property
    def is_saving(self) -> bool:
        """Whether the sink writes what is finished of a chunk."""
        return bool(self._saving)

    def on_saved(self, event: ChunkSaved) -> list[Action]:
        """Go on with the commit that waited for a save."""
        if self._saves is not None:
            self._saves.on_ended(event.seconds)
        waiting = self._saving.pop(event.chunk)
        if waiting is not None:
            self.commit(waiting)
        return []

    def _take_finished(self, chunk: tuple[int, int], *, last: bool) -> FinishedChunk:
        """Return what was compared of a chunk since it was saved, clipped to the items."""
        if self._saves is not None:
            self._saves.on_begun(chunk)
        work = self._works.pop(chunk, None) or OpenWork()
        if self.buffers is None:
            assert self._bar_keeper is not None
            rows, counts = self._bar_keeper.take(chunk), np.array(work.counts, np.int64)
            return FinishedChunk(chunk, None, counts, work.failures, None, last, rows, None if last else work.tiles)
        m, k = self._grid.chunk_rect(chunk).shape
        whole = self.buffers.open(chunk).views(self.buffers.arena)
        scores = {name: block[:m, :k] for name, block in whole.scores.items()} or None
        mirrored = None
        if whole.mirrored:
            mirrored = {name: block[:k, :m] for name, block in whole.mirrored.items()}
        return FinishedChunk(chunk, scores, work.status(whole.status[:m, :k]), work.failures, mirrored, last)

    def on_committed(self, event: ChunkCommitted) -> list[Action]:
        """Give the buffers of a chunk back."""
        if self.buffers is not None:
            self.buffers.close(event.chunk)
        late = self._late.pop(event.chunk, None)
        if late and self._others is not None:
            more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
            self._others.pass_on(event.chunk, f"{late[0]}{more}")
        else:
            self._wanted.on_committed(event.chunk)
        return self._scheduler.on_committed(event.chunk)
