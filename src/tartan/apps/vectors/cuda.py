"""Tiles of distances by the kernels of ``vectors.cu``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.kernels import CudaFile

KERNELS = CudaFile(Path(__file__).with_name("vectors.cu"))
"""Kernels of Manhattan, Hamming and Jaccard distances."""

_SIDE = 64
_THREADS = 16


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
