"""When the finished tiles of open chunks are saved: so that a kill costs a minute of work, and not a chunk.

A chunk is committed when its last tile is compared. Where pairs are slow that takes hours; its finished tiles are then
committed before, with codes that say what is there. The chunk is partial until its end, as after an ``add``.
"""

from __future__ import annotations

from collections.abc import Iterable

Chunk = tuple[int, int]

# By judgement: a minute of work is what a kill may cost; at half of it twice as many bytes are written. No benchmark.
OLDEST_SECONDS = 45.0
"""How long a finished tile waits for the commit of its chunk; with the write itself that stays below a minute."""

# By judgement: a hundredth is below what times of runs vary by; `tartan bench commit` measures the price of a save.
MOST_OF_TIME = 0.01
"""The part of the time of all workers that saves may take; where they would take more, tiles wait longer."""


class SavePolicy:
    """Says which chunks are saved; times are seconds by any clock that does not go back.

    Parameters
    ----------
    n_workers : int
        Calls that are compared at a time.
    """

    def __init__(self, n_workers: int) -> None:
        self._n_workers = max(1, n_workers)
        self._since: dict[Chunk, float] = {}
        self._seconds = 0.0
        self._n_saved = 0

    def on_finished(self, chunk: Chunk, now: float) -> None:
        """Note that a tile of a chunk is finished, and not on disk."""
        self._since.setdefault(chunk, now)

    def on_begun(self, chunk: Chunk) -> None:
        """Note that all finished tiles of a chunk are being written."""
        self._since.pop(chunk, None)

    def on_ended(self, seconds: float) -> None:
        """Note what a save took."""
        self._seconds += seconds
        self._n_saved += 1

    @property
    def wait_seconds(self) -> float:
        """How long a finished tile waits now."""
        mean = self._seconds / self._n_saved if self._n_saved else 0.0
        affordable = mean * len(self._since) / (MOST_OF_TIME * self._n_workers)
        return max(OLDEST_SECONDS, affordable)

    def due(self, now: float) -> list[Chunk]:
        """Return the chunks to save now."""
        if not self._since or now - next(iter(self._since.values())) < OLDEST_SECONDS:
            return []
        wait = self.wait_seconds
        return [chunk for chunk, since in self._since.items() if now - since >= wait]

    def list_unsaved(self) -> Iterable[Chunk]:
        """Return all chunks with finished tiles that are not on disk."""
        return list(self._since)
