"""Counts what a node moves, from one answer to the next."""

from __future__ import annotations

import threading

from tartan.blocks.store import BlockStore
from tartan.blocks.subtask_lane import SubtaskLane
from tartan.blocks.work import NodeCounts


class Tally:
    """What a node has moved since it was last asked; may be used from any thread.

    Parameters
    ----------
    store : BlockStore
    lane : SubtaskLane or None
    """

    def __init__(self, store: BlockStore, lane: SubtaskLane | None) -> None:
        self._store, self._lane = store, lane
        self._lock = threading.Lock()
        self._counts = NodeCounts()
        self._disk_counted = (0, 0)

    def count(self, **more: float) -> None:
        """Add to the counts of these names."""
        with self._lock:
            self._counts += NodeCounts(**more)  # type: ignore[arg-type]

    def take(self) -> NodeCounts:
        """Return the counts, and begin anew; of the loop of the node."""
        spilled, restored = self._store.bytes_spilled, self._store.bytes_restored
        before = self._disk_counted
        self._disk_counted = (spilled, restored)
        with self._lock:
            counts, self._counts = self._counts, NodeCounts()
        if self._lane is not None:
            counts += self._lane.take_counts()
        return counts + NodeCounts(bytes_spilled=spilled - before[0], bytes_restored=restored - before[1])
