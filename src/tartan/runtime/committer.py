"""The sink of a local run folder: commits chunks on its own threads, and makes them durable every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tartan.base.logs import logger_of
from tartan.base.trace import Tracer
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import Failure
from tartan.runtime.events import ChunkCommitted, ChunkSaved, Event, NodeBroken
from tartan.store.bars import BarKeeper
from tartan.store.folder import RunFolder
from tartan.store.keeper import Keeper, Rows

_log = logger_of(__name__)

# By judgement: statistics that a kill -9 loses (docs/performance.md: "the last seconds") against a few small writes
# each time. No benchmark.
FLUSH_SECONDS = 5.0


class Committer:
    """Writes finished chunks to a run folder; a ``ChunkSink``.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing.
    tracer : Tracer
    flushed : callable
        Called on a thread of the committer after the folder was made durable.
    prepare : callable
        Called on a thread of the committer before a chunk is committed.
    clock : callable
        Seconds.
    n_threads : int
        Chunks that are written at a time.
    """

    def __init__(
        self,
        folder: RunFolder,
        tracer: Tracer,
        flushed: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        n_threads: int = 2,
    ) -> None:
        self.commit_seconds = 0.0
        self.committed_bytes = 0
        self.keeper: Keeper | BarKeeper | None = folder.new_keeper()
        self._folder = folder
        self._tracer = tracer
        self._on_flush = flushed
        self._prepare = prepare
        self._clock = clock
        self._flushed = clock()
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="tartan-commit")
        self._lock = threading.Lock()

    def commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        """Start to commit a chunk; see ``ChunkSink``."""
        self._threads.submit(self._commit, finished, post)

    def close(self) -> None:
        """Wait for the chunks that are being committed."""
        self._threads.shutdown(wait=True)

    def _commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        try:
            seconds = self._commit_timed(finished)
            _log.debug("chunk %d,%d is %s", *finished.chunk, "committed" if finished.last else "saved")
            post(ChunkCommitted(finished.chunk) if finished.last else ChunkSaved(finished.chunk, seconds))
            self._flush_when_due()
        except BaseException as error:
            post(NodeBroken(error))

    def _commit_timed(self, finished: FinishedChunk) -> float:
        start = self._tracer.now()
        self._prepare()
        n_bytes = self._write(finished)
        end = self._tracer.now()
        thread = f"host/{threading.current_thread().name}"
        self._tracer.record("commit {},{}".format(*finished.chunk), "commit", thread, start, end)
        with self._lock:
            self.commit_seconds += (end - start) / 1e9
            self.committed_bytes += n_bytes
        return (end - start) / 1e9

    def _write(self, finished: FinishedChunk) -> int:
        """Commit a chunk; return its bytes."""
        chunk, outputs, status, rows = finished.chunk, finished.outputs, finished.status, finished.rows
        if rows is not None:
            return self._folder.commit_kept(chunk, rows, status.tolist(), finished.failures, finished.tiles)
        self._folder.commit(*chunk, outputs, status, finished.failures, finished.mirrored, last=finished.last)
        return sum(block.nbytes for block in (outputs or {}).values()) + status.nbytes

    def _flush_when_due(self) -> None:
        with self._lock:
            now = self._clock()
            due = now - self._flushed >= FLUSH_SECONDS
            if due:
                self._flushed = now
        if due:
            self._folder.flush()
            self._on_flush()
            _log.debug("what is committed is durable")


# Where finished chunks go: the seam between a node and whatever keeps the result.


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk whose tiles are all compared, or what is finished of it; its arrays are views of its buffers.

    Attributes
    ----------
    chunk : (int, int)
        As the grid names it.
    outputs : mapping of str to array (rows, columns), or None
        Clipped to the items. None where the keeper of the sink has chosen from all tiles.
    status : uint8 array (rows, columns), or (4,) of int64
        Codes of the ledger; where there are ``rows`` only the number of cells of each code.
    failures : sequence of Failure
        Reasons of its failed cells.
    mirrored : mapping of str to array (columns, rows), or None
        Scores of (j, i) where they are not those of (i, j).
    last : bool
        Whether nothing more of it follows, so that its buffers are used again after the commit.
    rows : dict of arrays, or None
        What is kept of it, where it has no buffers.
    tiles : sequence of Tile, or None
        Those that ``rows`` and ``status`` are of, where there are no buffers and more follows.
    """

    chunk: tuple[int, int]
    outputs: Mapping[str, np.ndarray] | None
    status: np.ndarray
    failures: Sequence[Failure]
    mirrored: Mapping[str, np.ndarray] | None
    last: bool = True
    rows: Rows | None = None
    tiles: Sequence[Tile] | None = None


class ChunkSink(Protocol):
    """Keeps finished chunks: in a run folder of this machine (``Committer``), or on another rank.

    Attributes
    ----------
    commit_seconds : float
        Time spent on commits so far.
    committed_bytes : int
        Scores and codes committed so far.
    keeper : Keeper, BarKeeper or None
        What chooses from tiles while their scores are in the cache; such tiles leave no scores in a chunk. None where
        all scores are kept.
    """

    commit_seconds: float
    committed_bytes: int
    keeper: Keeper | BarKeeper | None

    def commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        """Start to commit a chunk.

        Posts ChunkCommitted when its buffers may be used again, ChunkSaved where more of it follows, or NodeBroken.
        """

    def close(self) -> None:
        """Wait for the chunks that are being committed."""
