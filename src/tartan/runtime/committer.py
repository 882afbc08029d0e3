"""The sink of a local run folder: commits chunks on its own threads, and makes them durable every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tartan.base.trace import Tracer
from tartan.runtime.events import ChunkCommitted, Event, NodeBroken
from tartan.runtime.sink import FinishedChunk
from tartan.store.folder import RunFolder

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
        *,
        clock: Callable[[], float] = time.monotonic,
        n_threads: int = 2,
    ) -> None:
        self.commit_seconds = 0.0
        self.committed_bytes = 0
        self.keeper = folder.new_keeper()
        self._folder = folder
        self._tracer = tracer
        self._on_flush = flushed
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
            self._write(finished)
            post(ChunkCommitted(finished.chunk))
            self._flush_when_due()
        except BaseException as error:
            post(NodeBroken(error))

    def _write(self, finished: FinishedChunk) -> None:
        (row, column), outputs, status = finished.chunk, finished.outputs, finished.status
        start = self._tracer.now()
        self._folder.commit(row, column, outputs, status, finished.failures, finished.mirrored)
        end = self._tracer.now()
        thread = f"host/{threading.current_thread().name}"
        self._tracer.record(f"commit {row},{column}", "commit", thread, start, end)
        with self._lock:
            self.commit_seconds += (end - start) / 1e9
            self.committed_bytes += sum(block.nbytes for block in (outputs or {}).values()) + status.nbytes

    def _flush_when_due(self) -> None:
        with self._lock:
            now = self._clock()
            due = now - self._flushed >= FLUSH_SECONDS
            if due:
                self._flushed = now
        if due:
            self._folder.flush()
            self._on_flush()
