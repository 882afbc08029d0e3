"""Tiles of distances by the kernels of ``vectors.cu``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tartan._native import REFINE_BELOW
from tartan.base.kernels import CudaFile

KERNELS = CudaFile(Path(__file__).with_name("vectors.cu"))
"""Kernels of Manhattan, Hamming and Jaccard distances, and of the last step of Euclidean and cosine ones."""

# _SIDE, _THREADS and _BLOCK_THREADS, by convention of CUDA: 16 x 16 threads compute 4 x 4 cells each of a tile in
# shared memory. No benchmark: no GPU measured yet.
_SIDE = 64
# By convention, see _SIDE.
_THREADS = 16
# By convention, see _SIDE.
_BLOCK_THREADS = 256
# By judgement: as _MOST_BLOCKS of forensics/cuda.
_MOST_BLOCKS = 4096


def launch_tile(metric: str, left: Any, right: Any, out: Any, xp: Any, *, n_behind: int = 0) -> bool:
    """Score a tile by a kernel; False where the arrays are not those of a GPU.

    Parameters
    ----------
    metric : {"manhattan", "hamming", "hamming_bits", "jaccard_bits"}
    left, right : arrays (m, d), (k, d)
        Prepared rows.
    out : array (m, k)
        Contiguous.
    n_behind : int
        Items at the end of each row that are not compared.
    """
    if not KERNELS.runs_on(xp):
        return False
    (m, stride), k = left.shape, right.shape[0]
    items = "" if metric.endswith("_bits") else f"_{left.dtype.kind}{left.dtype.itemsize}"
    sizes = (np.int32(m), np.int32(k), np.int32(stride - n_behind), np.int32(stride))
    args = (xp.ascontiguousarray(left), xp.ascontiguousarray(right), out, *sizes)
    grid = (-(-k // _SIDE), -(-m // _SIDE))
    KERNELS.launch(xp, f"{metric}{items}_{out.dtype.kind}{out.dtype.itemsize}", grid, (_THREADS, _THREADS), args)
    return True


def finish_euclidean(left: Any, right: Any, norms: tuple[Any, Any] | None, root: bool, products: Any, xp: Any) -> bool:
    """Turn products of rows into (squared) Euclidean distances in place; False where the arrays are not those of a GPU.

    What has cancelled is computed again from the differences. The GPU itself finds out what that is; the host does not
    wait.

    Parameters
    ----------
    left, right : arrays (m, d), (k, d)
        Rows; without ``norms`` each ends with its squared norm.
    norms : pair of arrays (m,) and (k,), or None
        Squared norms of the rows, of their dtype.
    root : bool
        Whether distances are wanted, and not their squares.
    products : array (m, k)
        Contiguous, of the dtype of the rows.
    """
    if not KERNELS.runs_on(xp):
        return False
    left, right = xp.ascontiguousarray(left), xp.ascontiguousarray(right)
    (m, stride), k = left.shape, right.shape[0]
    width = stride if norms else stride - 1
    norm_at, norm_stride = (0, 1) if norms else (width, stride)
    sizes = [np.int32(number) for number in (m, k, width, stride, norm_at, norm_stride, root)]
    args = (left, right, *(norms or (left, right)), products, np.float64(REFINE_BELOW), *sizes)
    grid = (min(_MOST_BLOCKS, -(-m * k // _BLOCK_THREADS)),)
    KERNELS.launch(xp, f"finish_euclidean_f{products.dtype.itemsize}", grid, (_BLOCK_THREADS,), args)
    return True


def finish_cosine(left: Any, right: Any, near: Any, products: Any, xp: Any) -> bool:
    """Turn products of unit rows into cosine distances in place; False where the arrays are not those of a GPU.

    Equal rows are at exactly 0: where a distance is small enough for that, the GPU compares the rows.

    Parameters
    ----------
    left, right : arrays (m, d), (k, d)
        Unit rows, rounded or not, of the dtype of the products.
    near : array (m,) of float64
        For each row of ``left`` the largest distance that a row equal to it may have by rounding.
    products : array (m, k)
        Contiguous.
    """
    if not KERNELS.runs_on(xp):
        return False
    (m, width), k = left.shape, right.shape[0]
    sizes = [np.int32(number) for number in (m, k, width)]
    args = (xp.ascontiguousarray(left), xp.ascontiguousarray(right), near, products, *sizes)
    grid = (min(_MOST_BLOCKS, -(-m * k // _BLOCK_THREADS)),)
    KERNELS.launch(xp, f"finish_cosine_f{products.dtype.itemsize}", grid, (_BLOCK_THREADS,), args)
    return True
