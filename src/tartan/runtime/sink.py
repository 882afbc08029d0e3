"""Where finished chunks go: the seam between a node and whatever keeps the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tartan.core.ledger import Failure
from tartan.runtime.events import Event
from tartan.store.keeper import Keeper


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk whose tiles are all compared; its arrays are views of buffers that are used again after the commit.

    Attributes
    ----------
    chunk : (int, int)
    outputs : mapping of str to array (rows, columns), or None
        Clipped to the items. None where the keeper of the sink has chosen from all tiles.
    status : uint8 array (rows, columns)
        Codes of the ledger.
    failures : sequence of Failure
        Reasons of its failed pairs.
    mirrored : mapping of str to array (columns, rows), or None
        Scores of (j, i) where they are not those of (i, j).
    """

    chunk: tuple[int, int]
    outputs: Mapping[str, np.ndarray] | None
    status: np.ndarray
    failures: Sequence[Failure]
    mirrored: Mapping[str, np.ndarray] | None


class ChunkSink(Protocol):
    """Keeps finished chunks: in a run folder of this machine (``Committer``), or on another rank.

    Attributes
    ----------
    commit_seconds : float
        Time spent on commits so far.
    committed_bytes : int
        Scores and codes committed so far.
    keeper : Keeper or None
        What chooses from tiles while their scores are in the cache; such tiles leave no scores in a chunk. None where
        all scores are kept.
    """

    commit_seconds: float
    committed_bytes: int
    keeper: Keeper | None

    def commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        """Start to commit a chunk; post ChunkCommitted when its buffers may be used again, or NodeBroken."""

    def close(self) -> None:
        """Wait for the chunks that are being committed."""
