"""Which pairs of a run are still to be computed: what its ledger does not have.

Chunks are verified once, when an execution begins. Those that need nothing are known by name; of those that need only
some of their pairs (after ``add`` or a save) it is kept which, compressed, because a mask takes a byte a pair and there
is a row of such chunks. It is not read again, but for chunks that another rank had, before they are begun: the
order of tiles and the number of tiles of a chunk are made of it at different times, and must agree while this execution
and other writers commit.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np

from tartan.core.pairs.grid import Grid, Rect, Tile
from tartan.core.pairs.shares import ShareOf
from tartan.core.pairs.triples import TripleGrid
from tartan.core.pairs.workload import AllPairs, LivePairs, NewAgainstOld, Workload
from tartan.core.ranks.division import chunk_pairs
from tartan.store.folder import RunFolder

Chunk = tuple[int, int]

# By judgement: tiles that are handed out lie in a few chunks; a mask is 4 MiB at LARGEST_CHUNK (2,048). No benchmark.
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
    tell : callable
        Is told each chunk that was committed here; by default nobody hears of it.
    """

    def __init__(self, folder: RunFolder, grid: Grid, share: Collection[Chunk] | None = None) -> None:
        self._folder = folder
        self._grid = grid
        self.share = None if share is None else frozenset(share)
        self.tell: Callable[[Chunk], None] = lambda chunk: None
        self._complete: set[Chunk] = set()
        self._partial: dict[Chunk, bytes] = {}  # one bit a pair
        self._masks: OrderedDict[Chunk, np.ndarray] = OrderedDict()
        old_pairs_are_there = self._look(self._n_old())
        self.workload = self._restrict(old_pairs_are_there)
        if self.share is not None:
            self.workload = ShareOf(self.workload, grid.chunk, self.share)

    def count_wanted(self) -> np.ndarray:
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
        missing = self._find_missing(chunk, rect)
        return missing is None or bool(missing.any())

    def cells(self, tile: Tile) -> np.ndarray | None:
        """Return which pairs of a tile are to be computed, as a boolean array of its shape; None for all."""
        chunk, rect = self._grid.chunk_of(tile), self._grid.rect(tile)
        wanted, missing = self.workload.mask(rect), self._find_missing(chunk, rect)
        if missing is None:
            return wanted
        return missing.copy() if wanted is None else wanted & missing

    def on_committed(self, chunk: Chunk) -> None:
        """Take note that a chunk needs nothing any more."""
        self._complete.add(chunk)
        self._partial.pop(chunk, None)
        self._masks.pop(chunk, None)
        self.tell(chunk)

    def look_again(self, chunk: Chunk) -> None:
        """Take note of what another writer committed of a chunk; only before any of it is begun here."""
        self._complete.discard(chunk)
        self._partial.pop(chunk, None)
        self._masks.pop(chunk, None)
        self._sort(chunk)

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
            self._partial[chunk] = zlib.compress(np.packbits(missing[chunk]).tobytes(), 1)
            return missing[chunk]
        return None

    def _restrict(self, old_pairs_are_there: bool) -> Workload:
        workload, n_old = self._folder.pairs.workload, self._n_old()
        if n_old and old_pairs_are_there and isinstance(workload, AllPairs | LivePairs):
            return NewAgainstOld(workload, n_old)
        return workload

    def _find_missing(self, chunk: Chunk, rect: Rect) -> np.ndarray | None:
        """Return the missing pairs of a rectangle in a chunk that has some already, else None."""
        if chunk not in self._partial:
            return None
        mask = self._masks.pop(chunk, None)
        if mask is None:
            bits = np.frombuffer(zlib.decompress(self._partial[chunk]), np.uint8)
            rows, columns = self._folder.chunk_shape(*chunk)
            mask = np.unpackbits(bits, count=rows * columns).view(bool).reshape(rows, columns)
        self._masks[chunk] = mask
        if len(self._masks) > REMEMBERED_MASKS:
            self._masks.popitem(last=False)
        r, c = rect.r0 - chunk[0] * self._grid.chunk, rect.c0 - chunk[1] * self._grid.chunk
        return mask[r : r + rect.r1 - rect.r0, c : c + rect.c1 - rect.c0]


class RemainingTriples:
    """What is left of a run of triples: chunks without a part, and tiles that parts lack.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing: damaged parts lose their place in the ledger.
    grid : TripleGrid
    """

    share = None

    def __init__(self, folder: RunFolder, grid: TripleGrid) -> None:
        self.workload: Workload = AllPairs(grid.n_items)
        self._grid = grid
        self._lacking = {chunk: self._find_finished(folder, chunk) for chunk in folder.lacking()}

    def _find_finished(self, folder: RunFolder, chunk: Chunk) -> frozenset[Tile]:
        """Return the tiles that an unfinished chunk has."""
        return (folder.cubes.finished_tiles(chunk) if folder.cubes is not None else None) or frozenset()

    def needs(self, tile: Tile) -> bool:
        """Whether a triple of a tile is to be computed."""
        finished = self._lacking.get(self._grid.chunk_of(tile))
        return finished is not None and tile not in finished and self._grid.count(tile) > 0

    def cells(self, tile: Tile) -> np.ndarray | None:
        """Return which triples of a tile count, as a boolean array of its shape; None for all."""
        return self._grid.mark_wanted(tile)

    def on_committed(self, chunk: Chunk) -> None:
        """Note that a chunk needs nothing any more."""
        self._lacking.pop(chunk, None)
