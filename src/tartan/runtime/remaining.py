"""Which pairs of a run are still to be computed: what its ledger does not have.

Chunks are verified once, when an execution begins. Those that need nothing, and those that need only some of their
pairs (after ``add``), are known by name. Which pairs the latter need is read again when one of their tiles is asked
for, because a mask takes a byte a pair and there is a row of such chunks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import numpy as np

from tartan.core.division import chunk_pairs
from tartan.core.grid import Grid, Rect, Tile
from tartan.core.shares import ShareOf
from tartan.core.workload import AllPairs, NewAgainstOld, Workload
from tartan.store.folder import RunFolder

Chunk = tuple[int, int]

REMEMBERED_MASKS = 8


class Remaining:
    """What is left of a run.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing: chunks that do not match their checksums lose their place in the ledger. One of several
        writers verifies nothing: what is damaged is for the next process that holds the folder alone.
    grid : Grid
    share : collection of (I, J), optional
        Chunks to which one of several writers is restricted.

    Attributes
    ----------
    workload : Workload
        What is wanted; after ``add`` to a complete run only the pairs of new items.
    share : frozenset of (I, J) or None
    """

    def __init__(self, folder: RunFolder, grid: Grid, share: Collection[Chunk] | None = None) -> None:
        self._folder = folder
        self._grid = grid
        self.share = None if share is None else frozenset(share)
        self._complete: set[Chunk] = set()
        self._partial: set[Chunk] = set()
        self._masks: OrderedDict[Chunk, np.ndarray] = OrderedDict()
        old_pairs_are_there = self._look(self._n_old())
        self.workload = self._restricted(old_pairs_are_there)
        if self.share is not None:
            self.workload = ShareOf(self.workload, grid.chunk, self.share)

    def wanted_pairs(self) -> np.ndarray:
        """Count the pairs to compute in every chunk: int64 (n_chunks, n_chunks); all of a chunk that lacks some."""
        pairs = chunk_pairs(self._grid, self.workload)
        for chunk in self._complete:
            pairs[chunk] = 0
        return pairs

    def needs(self, tile: Tile) -> bool:
        """Whether a pair of a tile is to be computed."""
        chunk, rect = self._grid.chunk_of(tile), self._grid.rect(tile)
        if chunk in self._complete or not self.workload.count(rect):
            return False
        missing = self._missing(chunk, rect)
        return missing is None or bool(missing.any())

    def pairs(self, tile: Tile) -> np.ndarray | None:
        """Return which pairs of a tile are to be computed, as a boolean array of its shape; None for all."""
        chunk, rect = self._grid.chunk_of(tile), self._grid.rect(tile)
        wanted, missing = self.workload.mask(rect), self._missing(chunk, rect)
        if missing is None:
            return wanted
        return missing.copy() if wanted is None else wanted & missing

    def committed(self, chunk: Chunk) -> None:
        """Take note that a chunk needs nothing any more."""
        self._complete.add(chunk)
        self._partial.discard(chunk)
        self._masks.pop(chunk, None)

    def _n_old(self) -> int:
        """Return the number of items before the last ``add``; 0 where there was none."""
        generations = self._folder.manifest.generations
        return generations[-2] if len(generations) > 1 else 0

    def _look(self, n_old: int) -> bool:
        """Sort the chunks; return whether all pairs of the first ``n_old`` items are there."""
        side, there = self._grid.chunk, set(self._folder.committed())
        lacking = False
        for chunk in self._folder.pairs.chunks():
            if self.share is not None and chunk not in self.share:
                continue
            missing = self._sort(chunk) if chunk in there else None
            if chunk not in self._complete:
                rows, columns = (max(0, n_old - index * side) for index in chunk)
                lacking |= min(rows, columns) > 0 if missing is None else bool(missing[:rows, :columns].any())
        return not lacking

    def _sort(self, chunk: Chunk) -> np.ndarray | None:
        """Look at a committed chunk; return what it lacks where that is only some of its pairs."""
        missing = self._folder.missing([chunk], verify=not self._folder.is_shared)
        if not missing:
            self._complete.add(chunk)
        elif self._folder.chunk_status(*chunk) is not None:
            self._partial.add(chunk)
            return missing[chunk]
        return None

    def _restricted(self, old_pairs_are_there: bool) -> Workload:
        workload, n_old = self._folder.pairs.workload, self._n_old()
        if n_old and old_pairs_are_there and isinstance(workload, AllPairs):
            return NewAgainstOld(workload, n_old)
        return workload

    def _missing(self, chunk: Chunk, rect: Rect) -> np.ndarray | None:
        """Return the missing pairs of a rectangle in a chunk that has some already, else None."""
        if chunk not in self._partial:
            return None
        mask = self._masks.pop(chunk, None)
        if mask is None:
            mask = self._folder.missing([chunk], verify=False)[chunk]
        self._masks[chunk] = mask
        if len(self._masks) > REMEMBERED_MASKS:
            self._masks.popitem(last=False)
        r, c = rect.r0 - chunk[0] * self._grid.chunk, rect.c0 - chunk[1] * self._grid.chunk
        return mask[r : r + rect.r1 - rect.r0, c : c + rect.c1 - rect.c0]
