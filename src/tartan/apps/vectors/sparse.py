"""Sparse rows of cosine and Jaccard: from entries to the words that the kernels take.

Cosine: a row is its positions and then the bits of its values, uint32 of float32 or uint64 of float64. Jaccard: a row
is its positions, uint32. What is behind the last entry is no position. So rows of words are what dense rows of the
same metric never are: of these, unit rows are floats, and packed bits are uint64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tartan.base.entries import BEHIND, count_entries

WORDS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.uint64),
}


def prepare_unit(rows: np.ndarray, scores: np.dtype[Any]) -> np.ndarray:
    """Divide rows of entries (m, length) by their norms; return words (m, 2 length).

    A norm is the root of the sum of squares in float64, from the first entry to the last: it depends on the row alone.
    A row without direction holds NaN.
    """
    m, length = rows.shape
    values = rows["value"]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        _, exponents = np.frexp(np.abs(values).max(axis=1))
        wide = np.ldexp(values, -exponents[:, None])
        wide /= np.sqrt(np.add.accumulate(wide * wide, axis=1)[:, -1:])
    found: np.ndarray = np.empty((m, 2 * length), WORDS[scores])
    found[:, :length] = rows["position"]
    found[:, length:] = np.where(rows["position"] == BEHIND, 0, wide).astype(scores).view(WORDS[scores])
    return found


def prepare_set(rows: np.ndarray) -> np.ndarray:
    """Return the positions of rows of entries (m, length), uint32."""
    return np.ascontiguousarray(rows["position"])


def tile(kernel: Callable[[Any, Any, Any], None], left: Any, right: Any, out: Any, xp: Any) -> None:
    """Score rows of words by a kernel of the CPU, wherever they are."""
    if isinstance(out, np.ndarray):
        kernel(left, right, out)
        return
    scores = np.empty(out.shape, out.dtype)
    kernel(left.get(), right.get(), scores)
    out[...] = xp.asarray(scores)


def explain_rows(rows: np.ndarray, *, directed: bool) -> list[str | None] | None:
    """Say for each row of entries why it cannot be compared; None when all can.

    Parameters
    ----------
    rows : entries (m, length)
    directed : bool
        Whether rows need a direction, so that not all values are 0.
    """
    wrong = ~np.isfinite(rows["value"]).all(axis=1)
    if directed:
        wrong |= count_entries(rows) == 0
    if not wrong.any():
        return None
    return [_explain(row) if bad else None for row, bad in zip(rows, wrong.tolist(), strict=True)]


def _explain(row: np.ndarray) -> str:
    bad = np.flatnonzero(~np.isfinite(row["value"]))
    if len(bad):
        return f"value {row['value'][bad[0]]} at position {row['position'][bad[0]]}"
    return "all values are 0: a zero vector has no direction"
