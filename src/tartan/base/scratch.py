"""Memory that each thread uses again and again, so that it stays in the cache and is never fresh."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

_ALIASED_BYTES = 512
_LINE_BYTES = 64


class Scratch(threading.local):
    """Blocks of memory by name, of each thread its own."""

    def __init__(self) -> None:
        self._blocks: dict[str, np.ndarray] = {}

    def block(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array of a shape, with contiguous rows; it holds what the last user left.

        Rows lie a cache line further apart where they would otherwise all fall into the same few sets of the cache: a
        matrix product is a third slower there.
        """
        row_bytes = shape[1] * dtype.itemsize
        if row_bytes % _ALIASED_BYTES == 0:
            row_bytes += _LINE_BYTES
        n_bytes = shape[0] * row_bytes
        found = self._blocks.get(name)
        if found is None or found.nbytes < n_bytes:
            found = self._blocks[name] = np.empty(n_bytes, np.uint8)
        rows = found[:n_bytes].view(dtype).reshape(shape[0], row_bytes // dtype.itemsize)
        return rows[:, : shape[1]]
