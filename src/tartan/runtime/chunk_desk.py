"""Chunks of a node: their buffers are opened by the first tile, filled by tiles, and read once by the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tartan.core.actions import Action, Commit
from tartan.core.grid import Grid
from tartan.core.ledger import DONE, Failure
from tartan.core.schedule import Scheduler
from tartan.errors import InternalError, ResourceError
from tartan.runtime.events import ChunkCommitted, Event
from tartan.runtime.execution import Wanted
from tartan.runtime.parts import OpenChunk, Part
from tartan.runtime.sink import ChunkSink, FinishedChunk
from tartan.workers.arena import Arena

Window = tuple[slice, slice]


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
class Coverage:
    """Where the compared parts of a chunk lie: the plain ones, whose pairs are all done, and those that left codes."""

    plain: list[Window] = field(default_factory=list)
    coded: list[Window] = field(default_factory=list)

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
    """Opens the buffers of chunks, collects the failures of their pairs, and hands finished chunks to the sink.

    Parameters
    ----------
    grid : Grid
    scheduler : Scheduler
    buffers : ChunkBuffers
    wanted : Wanted
        Learns what is committed.
    sink : ChunkSink
    post : callable
        Gives an event to the loop.
    """

    def __init__(
        self,
        grid: Grid,
        scheduler: Scheduler,
        buffers: ChunkBuffers,
        wanted: Wanted,
        sink: ChunkSink,
        post: Callable[[Event], None],
    ) -> None:
        self.buffers = buffers
        self._grid = grid
        self._scheduler = scheduler
        self._wanted = wanted
        self._sink = sink
        self._post = post
        self._failures: dict[tuple[int, int], list[Failure]] = {}
        self._covered: dict[tuple[int, int], Coverage] = {}

    def note(self, chunk: tuple[int, int], part: Part, failures: Sequence[Failure]) -> None:
        """Remember until the chunk is committed where the pairs of a part lie in it, and why some of them failed.

        Where all pairs count and none fails, no code was written.
        """
        covered = self._covered.setdefault(chunk, Coverage())
        (covered.plain if part.mask.plain and not failures else covered.coded).append(part.window)
        if failures:
            self._failures.setdefault(chunk, []).extend(failures)

    def commit(self, action: Commit) -> None:
        """Hand a finished chunk to the sink, clipped to the items."""
        chunk = action.chunk
        m, k = self._grid.chunk_rect(chunk).shape
        whole = self.buffers.open(chunk).views(self.buffers.arena)
        scores = {name: block[:m, :k] for name, block in whole.scores.items()} or None
        mirrored = None
        if whole.mirrored:
            mirrored = {name: block[:k, :m] for name, block in whole.mirrored.items()}
        status = self._covered.pop(chunk, Coverage()).status(whole.status[:m, :k])
        finished = FinishedChunk(chunk, scores, status, self._failures.pop(chunk, []), mirrored)
        self._sink.commit(finished, self._post)

    def committed(self, event: ChunkCommitted) -> list[Action]:
        """Give the buffers of a chunk back."""
        self.buffers.close(event.chunk)
        self._wanted.committed(event.chunk)
        return self._scheduler.committed(event.chunk)
