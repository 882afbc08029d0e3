"""The buffers of open chunks: scores and codes of the ledger, filled by tiles, read once by the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.errors import InternalError, ResourceError
from tartan.workers.arena import Arena

__all__ = ["ChunkBuffers", "OpenChunk"]


@dataclass(frozen=True)
class OpenChunk:
    """One open chunk.

    Attributes
    ----------
    outputs, mirrored : dict of str to (offset, dtype)
        Where its buffers begin in the arena; ``mirrored`` is None for symmetric applications.
    status_offset : int
    """

    slot: int
    outputs: dict[str, tuple[int, str]]
    mirrored: dict[str, tuple[int, str]] | None
    status_offset: int


class ChunkBuffers:
    """A pool of equal buffers in one arena; the last one given back is the first one taken, while it is warm.

    Parameters
    ----------
    side : int
        Side of a chunk.
    dtypes : mapping of str to dtype
    n_buffers : int
        Most chunks that are open or being committed at a time.
    mirrored : bool
    shared : bool
        Whether worker processes write into them.
    """

    def __init__(
        self, side: int, dtypes: Mapping[str, np.dtype[Any]], n_buffers: int, *, mirrored: bool, shared: bool
    ) -> None:
        self.side = side
        self._dtypes = dict(dtypes)
        self._mirrored = mirrored
        pair_bytes = sum(dtype.itemsize for dtype in dtypes.values()) * (2 if mirrored else 1) + 1
        self._slot_bytes = -(-pair_bytes * side * side // 4096) * 4096
        try:
            self.arena = Arena(self._slot_bytes * n_buffers, shared)
        except ResourceError as error:
            raise ResourceError(
                f"the system refuses {n_buffers} buffers of {self._slot_bytes:,} bytes for chunks of {side} x {side} "
                "pairs; choose a smaller --tile",
                context={"option": "--tile"},
            ) from error
        self._free = list(range(n_buffers))[::-1]
        self._open: dict[tuple[int, int], OpenChunk] = {}

    def open(self, chunk: tuple[int, int]) -> OpenChunk:
        """Return the buffers of a chunk; its codes are 0 when it is new."""
        found = self._open.get(chunk)
        if found is None:
            if not self._free:
                raise InternalError("more chunks are open than the order announced")
            found = self._open[chunk] = self._lay_out(self._free.pop())
            self.status(found)[...] = 0
        return found

    def status(self, chunk: OpenChunk) -> np.ndarray:
        return self.arena.view(chunk.status_offset, (self.side, self.side), np.uint8)

    def views(self, places: Mapping[str, tuple[int, str]]) -> dict[str, np.ndarray]:
        return {
            name: self.arena.view(offset, (self.side, self.side), dtype) for name, (offset, dtype) in places.items()
        }

    def close(self, chunk: tuple[int, int]) -> None:
        """Give the buffers of a committed chunk back."""
        self._free.append(self._open.pop(chunk).slot)

    def _lay_out(self, slot: int) -> OpenChunk:
        offset = slot * self._slot_bytes
        places: list[dict[str, tuple[int, str]]] = []
        for _ in range(2 if self._mirrored else 1):
            outputs = {}
            for name, dtype in self._dtypes.items():
                outputs[name] = (offset, dtype.str)
                offset += dtype.itemsize * self.side * self.side
            places.append(outputs)
        return OpenChunk(slot, places[0], places[1] if self._mirrored else None, offset)
