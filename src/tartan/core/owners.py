"""Which chunks of a run are not committed yet, and to which rank each of them was granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from tartan.core.coordination import Run
from tartan.core.region import Region, covering

NOBODY = -1


class ChunkOwners:
    """The table of chunks that a coordinator keeps.

    Parameters
    ----------
    pairs : array of int (chunks, chunks)
        Pairs of each chunk; 0 where there is nothing to compute.

    Attributes
    ----------
    pairs : array of int64 (chunks, chunks)
        Those of chunks that are not committed.
    pairs_left : int
        Their sum.
    """

    def __init__(self, pairs: np.ndarray) -> None:
        self.pairs = pairs.astype(np.int64)
        self.pairs_left = int(self.pairs.sum())
        self._owner = np.full(self.pairs.shape, NOBODY, dtype=np.int32)

    def weight(self, region: Region) -> int:
        """Count the pairs of a region that are not committed."""
        return int(self.pairs[region.area].sum())

    def left_of(self, region: Region) -> list[Region]:
        """Return the parts of a region that are not committed."""
        return covering(self.pairs > 0, region)

    def granted_to(self, rank: int) -> list[Region]:
        """Return what a rank was granted and has not committed."""
        return covering(self._mine(rank))

    def grant(self, region: Region, rank: int) -> None:
        """Give what is left of a region to a rank."""
        self._owner[region.area][self.pairs[region.area] > 0] = rank

    def take_back(self, rank: int, regions: Iterable[Region] | None = None) -> list[Region]:
        """Take what a rank was granted, all of it or only in some regions; return what that was."""
        mine = self._mine(rank)
        parts = covering(mine) if regions is None else [part for one in regions for part in covering(mine, one)]
        for part in parts:
            self._owner[part.area][mine[part.area]] = NOBODY
        return parts

    def commit(self, runs: Iterable[Run]) -> Counter[int]:
        """Take note of committed chunks; return how many pairs that was of each rank that they were granted to."""
        done: Counter[int] = Counter()
        for row, first, end in runs:
            for column in range(first, end):
                count = int(self.pairs[row, column])
                done[int(self._owner[row, column])] += count
                self.pairs_left -= count
                self.pairs[row, column] = 0
                self._owner[row, column] = NOBODY
        return done

    def _mine(self, rank: int) -> np.ndarray:
        mine: np.ndarray = (self._owner == rank) & (self.pairs > 0)
        return mine
