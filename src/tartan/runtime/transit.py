"""How spans travel between ranks: as bytes out of the host places of one, and into those of another.

Items of one form travel as they lie in their slots: no byte is copied on the way. Where a device preprocesses, a span
travels parsed, or ready once the device has given it back; ``ready`` says which. Items of unequal size travel in the
encoding in which worker processes share them, a pickle with the arrays beside it. Ranks of a run accept it from each
other as they accept their job from the driver: behind the token of the run.
"""

from __future__ import annotations

import numpy as np

from tartan.errors import ResourceError
from tartan.runtime.codec import decode, encode, encoded_bytes, encoded_parts, nbytes_of
from tartan.runtime.host import HOST_ARENA, Place, RaggedBlobs, RaggedObjects, UniformItems
from tartan.runtime.tasks import ItemPlan
from tartan.workers.arena import Arena


class Transit:
    """Takes spans out of the host places of a rank, and puts others in.

    Parameters
    ----------
    plan : ItemPlan
    arenas : dict of str to Arena

    Notes
    -----
    May be called from any thread; what a place holds must not change meanwhile.
    """

    def __init__(self, plan: ItemPlan, arenas: dict[str, Arena]) -> None:
        self._plan = plan
        self._items = plan.items
        self._arenas = arenas

    @property
    def arrives_ready(self) -> bool:
        """Whether spans that come from storage need nothing more."""
        return self._plan.parsed is None

    def bytes_of(self, place: Place, *, ready: bool) -> np.ndarray:
        """Return a span as bytes; a view where it can be."""
        if isinstance(self._items, UniformItems):
            return self._block(place, ready=ready)
        if isinstance(self._items, RaggedObjects):
            parts, n_bytes = encoded_parts(self._items.spans[place.address])
            memory = np.empty(n_bytes, np.uint8)
            encode(parts, memory)
            return memory
        window = self._window(place)
        return window[: encoded_bytes(window)]

    def landing(self, place: Place, n_bytes: int, *, ready: bool) -> np.ndarray:
        """Return memory into which a span can come; ``landed`` then has it in its place.

        Raises
        ------
        ResourceError
            If it does not fit.
        """
        if isinstance(self._items, RaggedObjects):
            return np.empty(n_bytes, np.uint8)
        room = self._block(place, ready=ready) if isinstance(self._items, UniformItems) else self._window(place)
        fits = n_bytes == len(room) if isinstance(self._items, UniformItems) else n_bytes <= len(room)
        if not fits:
            raise ResourceError(f"a span of {n_bytes:,} bytes came where {len(room):,} are expected")
        return room[:n_bytes]

    def landed(self, place: Place, memory: np.ndarray) -> None:
        """Take in a span that has come into ``memory``."""
        if isinstance(self._items, RaggedObjects):
            self._items.spans[place.address] = decode(memory)

    def copy(self, source: Place, target: Place, *, ready: bool) -> int:
        """Copy a span from one place to another; return its bytes."""
        if isinstance(self._items, RaggedObjects):
            items = self._items.spans[target.address] = self._items.spans[source.address]
            return sum(map(nbytes_of, items))
        there = self.bytes_of(source, ready=ready)
        self.landing(target, len(there), ready=ready)[...] = there
        return len(there)

    def clear(self, place: Place) -> None:
        """Give the memory of a place back that no slot fixes."""
        if isinstance(self._items, RaggedObjects):
            self._items.spans.pop(place.address, None)
        elif isinstance(self._items, RaggedBlobs):
            window_bytes = self._items.window_bytes
            self._arenas[HOST_ARENA].punch(place.address * window_bytes, window_bytes)

    def _block(self, place: Place, *, ready: bool) -> np.ndarray:
        found: np.ndarray = self._plan.block(self._arenas, place, ready=ready).reshape(-1).view(np.uint8)
        return found

    def _window(self, place: Place) -> np.ndarray:
        assert isinstance(self._items, RaggedBlobs)
        n_bytes = self._items.window_bytes
        return self._arenas[HOST_ARENA].view(place.address * n_bytes, (n_bytes,), np.uint8)
