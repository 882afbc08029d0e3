"""Fills the arrays of one rank: from sources, from its own pieces, and from other ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from tartan.blocks.halo import pad
from tartan.blocks.node_events import GatheredRange
from tartan.blocks.sources import OpenSources
from tartan.blocks.store import BlockStore
from tartan.blocks.work import FROM_SOURCE, PartOrigin, RangeKey, WorkOrder
from tartan.core.pieces import PieceKey
from tartan.core.space import shape_of, within
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

    def fill(self, key: GatheredRange, origins: tuple[PartOrigin, ...]) -> None:
        """Fill the array of a range, which has its place in the store.

        Raises
        ------
        TransportError
            If another rank does not give its part.
        """
        target = self._store.array(key)
        wanted = key.range
        inside = np.empty(shape_of(wanted.box), target.dtype) if wanted.padding else target
        self._gather(wanted, origins, inside)
        if wanted.padding:
            pad(inside, wanted, target)

    def _gather(self, key: RangeKey, origins: tuple[PartOrigin, ...], target: np.ndarray) -> None:
        remote: dict[int, list[PartOrigin]] = defaultdict(list)
        for origin in origins:
            part = target[within(origin.box, key.box)]
            if origin.key.from_source and origin.rank in (self.rank, FROM_SOURCE):
                self._count(bytes_from_source=self.sources[origin.key.subtask].read(origin.box, part))
            elif origin.rank == self.rank:
                self._store.copy(origin.key, within(origin.box, origin.piece_box), part)
            else:
                remote[origin.rank].append(origin)
        for rank, wanted in remote.items():
            parts = [target[within(origin.box, key.box)] for origin in wanted]
            self._count(bytes_from_ranks=self._fetch_parts(rank, wanted, parts))

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
        is_read = any(one == ("read", key) for one in order.arguments)
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
