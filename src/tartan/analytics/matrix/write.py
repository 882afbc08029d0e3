"""Writes a matrix as raw int16, as the programs of the SPIDAL family read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.dissimilarities import Dissimilarities
from tartan.analytics.matrix.materialize import INT16_ONE
from tartan.base.checks import path_of
from tartan.base.files import whole_file
from tartan.errors import ConfigError


def write_int16(
    D: Any, path: str | Path, *, byteorder: str = "little", maximum: float | None = None, **options: Any
) -> Path:
    """Write the square matrix row by row: trunc(32767 d / maximum), missing pairs -1, no header.

    Parameters
    ----------
    D : anything that ``as_dissimilarities`` takes
    path : path
        Replaced if it is there; D may lie in it.
    byteorder : {"little", "big"}
    maximum : float, optional
        What becomes 32767; default: the largest dissimilarity.
    **options
        For ``as_dissimilarities``.

    Raises
    ------
    ConfigError
        If a dissimilarity is larger than ``maximum``, or the matrix is not one of dissimilarities.

    Notes
    -----
    Values are truncated, not rounded: that is what the readers' own writers do. Values that are int16 already, of the
    same maximum, are written as they are.
    """
    from tartan.analytics.matrix.open import as_dissimilarities

    target = path_of("path", path)
    matrix = as_dissimilarities(D, **options)
    if byteorder not in ("little", "big"):
        raise ConfigError(f"byteorder is {byteorder!r}; it must be 'little' or 'big'")
    largest = matrix.check().largest
    one = maximum if maximum is not None else (largest if largest > 0 else 1.0)
    if largest > one:
        raise ConfigError(f"{matrix.label}: the largest dissimilarity is {largest:.9g}, above the maximum {one:.9g}")
    dtype = np.dtype("<i2" if byteorder == "little" else ">i2")
    # Under another name first: the matrix may be mapped from the same file.
    with whole_file(target) as unfinished, open(unfinished, "wb") as file:
        for start, block in matrix.blocks():
            file.write(_scale(matrix, start, block, one).astype(dtype).data)
    return target


def _scale(matrix: Dissimilarities, start: int, block: NDArray[Any], one: float) -> NDArray[Any]:
    if block.dtype.kind == "i" and matrix.scale == one / INT16_ONE:
        kept: NDArray[Any] = np.maximum(block, np.int16(-1))
        return kept
    values = matrix.values(slice(start, start + len(block)), slice(0, matrix.n))
    scaled: NDArray[Any] = np.where(np.isnan(values), -1.0, np.trunc(values * (INT16_ONE / one)))
    return scaled
