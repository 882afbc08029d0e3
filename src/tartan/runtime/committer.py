"""Commits chunks on threads of its own, and makes them durable every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tartan.base.trace import Tracer
from tartan.core.ledger import Failure
from tartan.store.folder import RunFolder

__all__ = ["Committer"]

FLUSH_SECONDS = 5.0


class Committer:
    """Writes finished chunks to the run folder.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing.
    fatal : callable
        Gets an exception that ends the run.
    flushed : callable
        Called on a thread of the committer after the folder was made durable.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        folder: RunFolder,
        fatal: Callable[[BaseException], None],
        tracer: Tracer,
        flushed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.commit_seconds = 0.0
        self.committed_bytes = 0
        self._folder = folder
        self._fatal = fatal
        self._tracer = tracer
        self._on_flush = flushed
        self._clock = clock
        self._flushed = clock()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="tartan-commit")
        self._lock = threading.Lock()

    def commit(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        status: np.ndarray,
        failures: Sequence[Failure],
        mirrored: Mapping[str, np.ndarray] | None,
        done: Callable[[], None],
    ) -> None:
        """Commit a chunk; ``done`` is called when its buffers may be used again."""
        self._threads.submit(self._commit, chunk, outputs, status, failures, mirrored, done)

    def close(self) -> None:
        """Wait for what is being committed."""
        self._threads.shutdown(wait=True)

    def _commit(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        status: np.ndarray,
        failures: Sequence[Failure],
        mirrored: Mapping[str, np.ndarray] | None,
        done: Callable[[], None],
    ) -> None:
        try:
            start = self._tracer.now()
            self._folder.commit(*chunk, outputs, status, failures, mirrored)
            end = self._tracer.now()
            row = f"host/{threading.current_thread().name}"
            self._tracer.record(f"commit {chunk[0]},{chunk[1]}", "commit", row, start, end)
            with self._lock:
                self.commit_seconds += (end - start) / 1e9
                self.committed_bytes += sum(block.nbytes for block in outputs.values()) + status.nbytes
            done()
            self._flush_when_due()
        except BaseException as error:
            self._fatal(error)

    def _flush_when_due(self) -> None:
        with self._lock:
            now = self._clock()
            due = now - self._flushed >= FLUSH_SECONDS
            if due:
                self._flushed = now
        if due:
            self._folder.flush()
            self._on_flush()
