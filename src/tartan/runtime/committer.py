"""The sinks of a local run folder: commit chunks on their own threads, and make them durable every few seconds."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tartan.base.trace import Tracer
from tartan.core.ledger import Failure
from tartan.runtime.events import ChunkCommitted, Event, NodeBroken
from tartan.runtime.sink import FinishedChunk
from tartan.store.folder import RunFolder
from tartan.store.keeper import Keeper, Rows
from tartan.store.triples import TripleFolder

FLUSH_SECONDS = 5.0


@dataclass(frozen=True)
class FinishedTriples:
    """A chunk of triples whose tiles are all compared.

    Attributes
    ----------
    chunk : (int, int)
        As a ``TripleGrid`` names it.
    rows : dict of arrays
        What is kept of it.
    counts : tuple of int
        How its triples ended, by the codes of the ledger.
    failures : sequence of Failure
    """

    chunk: tuple[int, int]
    rows: Rows
    counts: tuple[int, ...]
    failures: Sequence[Failure]


class _Finished(Protocol):
    @property
    def chunk(self) -> tuple[int, int]: ...


F = TypeVar("F", bound=_Finished)
R = TypeVar("R", bound=RunFolder)


class _FolderSink(ABC, Generic[R, F]):
    """Writes finished chunks to a run folder.

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
        folder: R,
        tracer: Tracer,
        flushed: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        n_threads: int = 2,
    ) -> None:
        self.commit_seconds = 0.0
        self.committed_bytes = 0
        self._folder = folder
        self._tracer = tracer
        self._on_flush = flushed
        self._prepare = prepare
        self._clock = clock
        self._flushed = clock()
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="tartan-commit")
        self._lock = threading.Lock()

    def commit(self, finished: F, post: Callable[[Event], None]) -> None:
        """Start to commit a chunk; see ``ChunkSink``."""
        self._threads.submit(self._commit, finished, post)

    def close(self) -> None:
        """Wait for the chunks that are being committed."""
        self._threads.shutdown(wait=True)

    def _commit(self, finished: F, post: Callable[[Event], None]) -> None:
        try:
            self._commit_timed(finished)
            post(ChunkCommitted(finished.chunk))
            self._flush_when_due()
        except BaseException as error:
            post(NodeBroken(error))

    def _commit_timed(self, finished: F) -> None:
        start = self._tracer.now()
        self._prepare()
        n_bytes = self._write(finished)
        end = self._tracer.now()
        thread = f"host/{threading.current_thread().name}"
        self._tracer.record("commit {},{}".format(*finished.chunk), "commit", thread, start, end)
        with self._lock:
            self.commit_seconds += (end - start) / 1e9
            self.committed_bytes += n_bytes

    @abstractmethod
    def _write(self, finished: F) -> int:
        """Commit a chunk; return its bytes."""

    def _flush_when_due(self) -> None:
        with self._lock:
            now = self._clock()
            due = now - self._flushed >= FLUSH_SECONDS
            if due:
                self._flushed = now
        if due:
            self._folder.flush()
            self._on_flush()


class Committer(_FolderSink[RunFolder, FinishedChunk]):
    """Writes finished chunks of pairs to a run folder; a ``ChunkSink``."""

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
        super().__init__(folder, tracer, flushed, prepare, clock=clock, n_threads=n_threads)
        self.keeper = folder.new_keeper()

    def _write(self, finished: FinishedChunk) -> int:
        (row, column), outputs, status = finished.chunk, finished.outputs, finished.status
        self._folder.commit(row, column, outputs, status, finished.failures, finished.mirrored)
        return sum(block.nbytes for block in (outputs or {}).values()) + status.nbytes


class TripleCommitter(_FolderSink[TripleFolder, FinishedTriples]):
    """Writes finished chunks of triples to a run folder."""

    keeper: Keeper | None = None

    def _write(self, finished: FinishedTriples) -> int:
        return self._folder.commit_triples(finished.chunk, finished.rows, finished.counts, finished.failures)
