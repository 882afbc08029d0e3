"""Estimate the range of the values of a file from a sample: it tells how well its run files can be packed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.sort.dtypes import DType
from tartan.sort.formats import SourceFile

PLACES = 64
VALUES_A_PLACE = 512


def sampled_width_bits(sources: Sequence[SourceFile], dtype: DType) -> float | None:
    """Return the logarithm of the range of the values, None if they are not numbers of at least 4 bytes.

    Reads some ten thousand values, spread evenly.
    """
    if dtype.kind not in "iuf" or dtype.itemsize < 4:
        return None
    values = np.concatenate([_ordered(values) for values in _samples(sources, dtype)] or [np.empty(0, np.int64)])
    if not len(values):
        return None
    return math.log2(int(values.max()) - int(values.min()) + 1)


def _samples(sources: Sequence[SourceFile], dtype: DType) -> list[NDArray[Any]]:
    whole = sum(source.n_bytes for source in sources)
    found = []
    for source in sources:
        n_values = source.n_bytes // dtype.itemsize
        places = max(1, PLACES * source.n_bytes // max(whole, 1))
        for first in sorted({n_values * number // places for number in range(places)}):
            at = source.offset + first * dtype.itemsize
            found.append(np.fromfile(source.path, dtype, min(VALUES_A_PLACE, n_values - first), offset=at))
    return found


def _ordered(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers in the order of the values, with the same differences as their sort keys."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind != "f":
        return native
    bits: NDArray[Any] = native.view(np.int64 if native.itemsize == 8 else np.int32)
    ordered: NDArray[Any] = bits ^ ((bits >> (8 * native.itemsize - 1)) & np.iinfo(bits.dtype).max)
    return ordered
