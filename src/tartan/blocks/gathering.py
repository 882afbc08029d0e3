"""Fills the arrays of one rank: from sources, from its own pieces, and from other ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from tartan.blocks.halo import inside, pad
from tartan.blocks.node_events import GatheredRange
from tartan.blocks.sources import OpenSources
from tartan.blocks.store import BlockStore
from tartan.blocks.work import FROM_SOURCE, PartOrigin, RangeKey, WorkOrder
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.space import shape_of, within
from tartan.errors import ResourceError

FetchParts = Callable[[int, list[PartOrigin], list[np.ndarray]], int]
"""Fills arrays with parts of pieces that a rank has; returns the bytes received."""


class RangeGatherer:
    """Brings ranges and pieces into the store of a rank; its methods are called in several threads.

    Parameters
    ----------
    rank : int
    store : BlockStore
    fetch_parts : callable
    count : callable
        Receives counts as keywords, named as in ``NodeCounts``.

    Attributes
    ----------
    sources : OpenSources
    """

    def __init__(self, rank: int, store: BlockStore, fetch_parts: FetchParts, count: Callable[..., None]) -> None:
        self.rank, self.sources = rank, OpenSources()
        self._store, self._fetch_parts, self._count = store, fetch_parts, count

    def dtype(self, space: int) -> np.dtype:
        """Return the dtype of a space."""
        return np.dtype(self.sources[space].source.dtype)

    def shares(self, origins: tuple[PartOrigin, ...]) -> dict[int, list[PartOrigin]]:
        """Return the parts of a range by the rank that gives them; this one reads sources that are everywhere."""
        found: dict[int, list[PartOrigin]] = defaultdict(list)
        for origin in origins:
            found[self.rank if origin.rank == FROM_SOURCE else origin.rank].append(origin)
        return found

    def gather(self, key: GatheredRange, rank: int, share: list[PartOrigin]) -> None:
        """Fill the array of a range, which has its place in the store, with what one rank gives of it.

        Raises
        ------
        TransportError
            If another rank does not give it.
        """
        target = inside(self._store.array(key), key.range)
        parts = [target[within(origin.box, key.range.box)] for origin in share]
        if rank != self.rank:
            self._count(bytes_from_ranks=self._fetch_parts(rank, share, parts))
            return
        for origin, part in zip(share, parts, strict=True):
            if origin.key.from_source:
                self._count(bytes_from_source=self.sources[origin.key.subtask].read(origin.box, part))
            else:
                self._store.copy(origin.key, within(origin.box, origin.piece_box), part)

    def pad(self, key: GatheredRange) -> None:
        """Fill what lies outside the space in the array of a range all shares of which are there."""
        if key.range.padding:
            pad(self._store.array(key), key.range)

    def in_piece(self, key: RangeKey, origins: tuple[PartOrigin, ...]) -> PieceKey | None:
        """Return the piece of this rank in which all of a range lies, so that nothing need be copied."""
        if key.padding or len(origins) != 1:
            return None
        origin = origins[0]
        return origin.key if origin.rank == self.rank and not origin.key.from_source else None

    def in_source(self, order: WorkOrder, key: RangeKey) -> np.ndarray | None:
        """Return a range where it lies, if that is the array that its space was made from; else None.

        What is only read must lie in one piece, as it does wherever it is gathered: sums depend on that.
        """
        here = (self.rank, FROM_SOURCE)
        if key.padding or any(one.key[:2] != (0, key.space) or one.rank not in here for one in order.origins[key]):
            return None
        array = self.sources[key.space].view(key.box)
        is_read = any(one == ("read", key) for one in order.subtask.arguments)
        return None if array is None or (is_read and not array.flags.c_contiguous) else array

    def copy_piece(self, space: int, origin: PartOrigin) -> None:
        """Fetch a piece from another rank, to have it here as well.

        Raises
        ------
        ResourceError
            If there is no room for it.
        TransportError
            If the other rank does not have it.
        """
        if origin.key in self._store:
            return
        if not self._store.add(origin.key, shape_of(origin.piece_box), self.dtype(space), forgettable=False):
            raise ResourceError("there is no room for a second copy; choose a larger --host-cache, or copies=1")
        try:
            moved = self._fetch_parts(origin.rank, [origin], [self._store.array(origin.key)])
        except BaseException:
            self._store.unpin(origin.key)
            self._store.drop([origin.key])
            raise
        self._store.unpin(origin.key)
        self._count(bytes_from_ranks=moved)
