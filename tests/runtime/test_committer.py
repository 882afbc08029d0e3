"""Commits: when the folder is made durable, and who hears of it. The clock is the test's."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tartan.base.trace import NO_TRACER
from tartan.runtime.committer import FLUSH_SECONDS, Committer
from tartan.store.folder import RunFolder


class Recorded:
    """A folder that only remembers what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def commit(self, *_: Any) -> None:
        self.calls.append("commit")

    def flush(self) -> None:
        self.calls.append("flush")


def test_statistics_are_written_with_every_flush() -> None:
    folder, errors, now = Recorded(), list[BaseException](), iter([0.0, 1.0, FLUSH_SECONDS, FLUSH_SECONDS + 1])
    committer = Committer(
        cast(RunFolder, folder), errors.append, NO_TRACER, lambda: folder.calls.append("flushed"), clock=now.__next__
    )
    block = np.zeros((1, 1))
    for _ in range(3):
        committer._commit((0, 0), {"scores": block}, block, [], None, lambda: folder.calls.append("done"))
    committer.close()
    assert errors == []
    assert folder.calls == ["commit", "done", "commit", "done", "flush", "flushed", "commit", "done"]
