"""Tiles of distances of composition vectors on a GPU, by the kernels of ``composition.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.kernels import CudaFile

KERNELS = CudaFile(Path(__file__).with_name("composition.cu"))
"""Kernels of composition vectors."""

_THREADS = 128
_PAIRS_OF_A_BLOCK = 4
_SHARDS = 64
_COUNT_SHIFT = np.uint32(20)
_ARRAYS = 5


def distance_tile(left: Sequence[Any], right: Sequence[Any], k: int, xp: Any) -> Any:
    """Return the distances of m with n vectors on the current stream, (m, n) float64; nothing returns to the host.

    Parameters
    ----------
    left, right : sequences of vectors
        As ``Phylogeny.parse`` returns them, of the GPU.
    k : int
        Length of the strings.
    """
    vectors = {id(vector): vector for vector in (*left, *right)}  # a tile of the diagonal has each once
    places = {name: place for place, name in enumerate(vectors)}
    rows, columns = (xp.asarray(np.array([places[id(one)] for one in side], np.int32)) for side in (left, right))
    middles, masks, codes, values, numbers = (
        xp.concatenate([vector[part] for vector in vectors.values()]) for part in range(_ARRAYS)
    )
    starts = np.cumsum([0, *(vector[0].shape[0] for vector in vectors.values())], dtype=np.int64)
    ends = xp.cumsum(masks[:, 0] >> _COUNT_SHIFT, dtype=np.int64)
    m, n = len(left), len(right)
    parts, out = xp.empty((_SHARDS, m * n), dtype=np.float64), xp.empty((m, n), dtype=np.float64)
    span = np.uint64(-(-(20 ** (k - 2)) // _SHARDS))
    sizes = (np.int32(m), np.int32(n))
    merged = (middles, masks, ends, codes, values, xp.asarray(starts), rows, columns, parts, *sizes, span)
    name = f"composition_u{middles.dtype.itemsize}"
    KERNELS.launch(xp, name, (-(-m * n // _PAIRS_OF_A_BLOCK), _SHARDS), (_THREADS,), merged)
    summed = (parts, numbers, rows, columns, out, *sizes)
    KERNELS.launch(xp, "composition_distances", (-(-m * n // _THREADS),), (_THREADS,), summed)
    return out
