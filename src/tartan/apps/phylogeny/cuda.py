"""Tiles of distances of composition vectors on a GPU, by the kernels of ``composition.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.kernels import CudaFile
from tartan.base.products import sliced_products

KERNELS = CudaFile(Path(__file__).with_name("composition.cu"))
"""Kernels of composition vectors."""

_THREADS = 128
_PAIRS_OF_A_BLOCK = 4
_SHARDS = 64
_COUNT_SHIFT = np.uint32(20)
_ARRAYS = 5
_STRINGS = 400  # of a middle
_SPAN = 10  # middles of a slice
_HALVES = 3  # float16 numbers of a string in a row
_PART_BYTES = 2**28
_DENSE_SHARE = 256
_DENSE_K = range(4, 8)


def least_dense(k: int) -> float:
    """Return how many of the 20^k strings a vector has from which on it is multiplied as a dense row.

    A product takes 6 * 20^k operations a pair on tensor cores, a merge reads both vectors. At k = 6 a bacterium is well
    above, a virus below; at k = 7 nearly all are below. At k = 3 all values can be so small that rows of float16 are
    wrong by more than 1e-6; from k = 8 on no proteome has so many strings.
    """
    return 20**k / _DENSE_SHARE if k in _DENSE_K else math.inf


def distance_tile(left: Sequence[Any], right: Sequence[Any], k: int, xp: Any, n_dense: float | None = None) -> Any:
    """Return the distances of m with n vectors on the current stream, (m, n) float64; nothing returns to the host.

    Parameters
    ----------
    left, right : sequences of vectors
        As ``Phylogeny.parse`` returns them, of the GPU.
    k : int
        Length of the strings.
    n_dense : float, optional
        Pairs of vectors that both have at least so many strings are multiplied as dense rows, all others are merged:
        how a pair is compared depends on its two vectors alone. By default that of ``least_dense``.
    """
    vectors = {id(vector): vector for vector in (*left, *right)}  # a tile of the diagonal has each once
    numbers = {name: number for number, name in enumerate(vectors)}
    packed = _pack(list(vectors.values()), xp)
    least = least_dense(k) if n_dense is None else n_dense
    sides = [
        [(place, numbers[id(one)], one[2].shape[0] >= least) for place, one in enumerate(s)] for s in (left, right)
    ]
    out = xp.empty((len(left), len(right)), dtype=np.float64)
    rows, columns = ([entry[:2] for entry in side] for side in sides)
    dense_rows, dense_columns = ([entry[:2] for entry in side if entry[2]] for side in sides)
    other_rows, other_columns = ([entry[:2] for entry in side if not entry[2]] for side in sides)
    if not (dense_rows and dense_columns):
        _write(packed, rows, columns, out, k, xp, dense=False)
        return out
    _write(packed, dense_rows, dense_columns, out, k, xp, dense=True)
    _write(packed, other_rows, columns, out, k, xp, dense=False)
    _write(packed, dense_rows, other_columns, out, k, xp, dense=False)
    return out


@dataclass(frozen=True)
class _Packed:
    """The vectors of a tile, one behind the other, and where each begins."""

    middles: Any
    masks: Any
    ends: Any
    codes: Any
    values: Any
    starts: Any
    numbers: Any

    @property
    def strings(self) -> tuple[Any, ...]:
        return self.middles, self.masks, self.ends, self.codes, self.values, self.starts

    @property
    def suffix(self) -> str:
        return f"u{self.middles.dtype.itemsize}"


def _pack(vectors: Sequence[Any], xp: Any) -> _Packed:
    middles, masks, codes, values, numbers = (
        xp.concatenate([vector[part] for vector in vectors]) for part in range(_ARRAYS)
    )
    starts = np.cumsum([0, *(vector[0].shape[0] for vector in vectors)], dtype=np.int64)
    ends = xp.cumsum(masks[:, 0] >> _COUNT_SHIFT, dtype=np.int64)
    return _Packed(middles, masks, ends, codes, values, xp.asarray(starts), numbers)


def _write(
    packed: _Packed,
    left: list[tuple[int, int]],
    right: list[tuple[int, int]],
    out: Any,
    k: int,
    xp: Any,
    *,
    dense: bool,
) -> None:
    """Write the distances of some rows with some columns, each given by its place in ``out`` and its vector."""
    if not (left and right):
        return
    lines, rows, places, columns = (xp.asarray(np.array(side, np.int32)) for side in (*zip(*left), *zip(*right)))
    parts = (_multiplied if dense else _merged)(packed, rows, columns, k, xp)
    m, n = rows.shape[0], columns.shape[0]
    sizes = (np.int32(parts.shape[0]), np.int32(m), np.int32(n), np.int32(out.shape[1]))
    given = (parts, packed.numbers, rows, columns, lines, places, out, *sizes)
    KERNELS.launch(xp, "composition_distances", (-(-m * n // _THREADS),), (_THREADS,), given)


def _merged(packed: _Packed, rows: Any, columns: Any, k: int, xp: Any) -> Any:
    """Return parts of the sums of products of all pairs, (shards, m n) float64."""
    m, n = rows.shape[0], columns.shape[0]
    parts = xp.empty((_SHARDS, m * n), dtype=np.float64)
    span = np.uint64(-(-(20 ** (k - 2)) // _SHARDS))
    given = (*packed.strings, rows, columns, parts, np.int32(m), np.int32(n), span)
    KERNELS.launch(xp, f"composition_{packed.suffix}", (-(-m * n // _PAIRS_OF_A_BLOCK), _SHARDS), (_THREADS,), given)
    return parts


def _multiplied(packed: _Packed, rows: Any, columns: Any, k: int, xp: Any) -> Any:
    """Return the sums of products of all pairs, (1, m n) float64: ranges of middles are expanded and multiplied."""
    sides = (rows, columns)
    m, n = (side.shape[0] for side in sides)
    scales = xp.empty((packed.starts.shape[0] - 1,), dtype=np.float32)
    KERNELS.launch(
        xp, "composition_scales", scales.shape, (_THREADS,), (packed.ends, packed.values, packed.starts, scales)
    )
    sums = xp.zeros((1, m * n), dtype=np.float64)
    n_slices, step = 20 ** (k - 2) // _SPAN, slices_at_once(m, n)
    memory = [
        xp.empty((side.shape[0] * min(step, n_slices) * _HALVES * _SPAN * _STRINGS,), dtype=np.float16)
        for side in sides
    ]
    for first in range(0, n_slices, step):
        count = min(step, n_slices - first)
        operands = []
        for is_right, (side, numbers) in enumerate(zip(sides, memory)):
            shape = (side.shape[0], count * _HALVES * _SPAN * _STRINGS)
            operands.append(numbers[: shape[0] * shape[1]].reshape(shape))
            where = (np.uint64(first * _SPAN), np.int32(count), np.int32(is_right))
            given = (*packed.strings, side, scales, operands[-1].view(np.uint32), *where)
            KERNELS.launch(xp, "composition_rows", (count, shape[0]), (_THREADS,), given)
        products = sliced_products(operands[0], operands[1], xp, n_slices=_HALVES * count)
        added = (products, scales, rows, columns, sums, np.int32(count), np.int32(m), np.int32(n))
        KERNELS.launch(xp, "composition_add", (-(-m * n // _THREADS),), (_THREADS,), added)
    return sums


def slices_at_once(m: int, n: int) -> int:
    """Return how many slices of m and n rows take at most about 256 MB for each operand and for their products."""
    a_row, a_product = _HALVES * _SPAN * _STRINGS * 2 * max(m, n), _HALVES * 4 * m * n
    return max(1, _PART_BYTES // max(a_row, a_product))
