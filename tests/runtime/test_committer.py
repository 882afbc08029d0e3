"""Commits: when the folder is made durable, and what the loop learns. The clock is the test's."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tartan.base.trace import NO_TRACER
from tartan.errors import DiskFullError
from tartan.runtime.committer import FLUSH_SECONDS, Committer, FinishedChunk
from tartan.runtime.events import ChunkCommitted, Event, NodeBroken
from tartan.store.folder import RunFolder

BLOCK = np.zeros((1, 1))
CHUNK = FinishedChunk((0, 0), {"scores": BLOCK}, BLOCK, [], None)


class Recorded:
    """A folder that only remembers what was asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.error = error

    def new_keeper(self) -> None:
        """Keep the whole matrix."""

    def commit(self, *_: Any, last: bool) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append("commit")

    def flush(self) -> None:
        self.calls.append("flush")


def commit_each(folder: Recorded, n_chunks: int, *times: float) -> list[Event]:
    """Commit chunks one after the other; the clock shows one of the times when it is asked."""
    now, events = iter(times), list[Event]()
    committer = Committer(
        cast(RunFolder, folder), NO_TRACER, lambda: folder.calls.append("flushed"), clock=now.__next__, n_threads=1
    )

    def post(event: Event) -> None:
        events.append(event)
        folder.calls.append("posted")

    for _ in range(n_chunks):
        committer.commit(CHUNK, post)
    committer.close()
    return events


def test_statistics_are_written_with_every_flush() -> None:
    folder = Recorded()
    events = commit_each(folder, 3, 0.0, 1.0, FLUSH_SECONDS, FLUSH_SECONDS + 1)
    assert events == [ChunkCommitted((0, 0))] * 3
    assert folder.calls == ["commit", "posted", "commit", "posted", "flush", "flushed", "commit", "posted"]


def test_a_full_disk_breaks_the_node() -> None:
    full = DiskFullError("no space left")
    assert commit_each(Recorded(full), 1, 0.0) == [NodeBroken(full)]
