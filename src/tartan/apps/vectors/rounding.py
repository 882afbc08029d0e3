"""Vectors of fewer bits for products on tensor cores: how they are rounded, kept and multiplied.

A vector is rounded to float32 and then to the nearest number of the precision, of two equally near ones to the even
one. Rounded rows end in zeros up to a multiple of 8 numbers, as tensor cores want them. The CPU and other devices widen
them to float32, which holds every rounded number; a GPU multiplies them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tartan.base.products import row_products

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
"""Precisions of products; the first rounds nothing."""

_ALIGNED = 8
_LARGEST_FLOAT16 = 65504.0
_NAN_BITS = {13: np.uint32(0x7FFFE000), 16: np.uint32(0x7FFF0000)}
_DROPPED_BITS = {"tf32": 13, "bfloat16": 16}


class ProductMetric(Protocol):
    """A metric that begins as a matrix product of float32 rows."""

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, int] | None:
        """Say how long a row of ``dtype`` may be: (largest p-norm, p), or None when any will do."""
        ...

    def rows(self, rows: Any, xp: Any) -> Any:
        """Turn (m, d) rows into those that are multiplied, (m, d) float32; NaN for rows that cannot be compared."""
        ...

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        """Write the scores of prepared rows to ``out``."""
        ...

    def ready(self, rows: Any, xp: Any) -> Any:
        """Turn float32 rows as ``rows`` returns them into prepared ones."""
        ...

    def finish(self, sides: Callable[[], list[Any]], products: Any, xp: Any) -> None:
        """Turn the products of the float32 rows of two sides into scores in place."""
        ...


@dataclass(frozen=True)
class Rounded:
    """A metric of rounded vectors."""

    metric: ProductMetric
    precision: str

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, int] | None:
        """Say how long a row may be: as of float32, and for float16 no longer than its largest number."""
        found = self.metric.limit(np.dtype(np.float32))
        if found is None or self.precision != "float16":
            return found
        return min(found[0], _LARGEST_FLOAT16), found[1]

    def prepare(self, rows: Any, xp: Any) -> Any:
        """Round rows, (m, d) to (m, d' >= d): uint16 bits of bfloat16, else float16, or float32 of TF32."""
        wide = self.metric.rows(rows, xp)
        m, d = wide.shape
        padded = xp.zeros((m, -(-d // _ALIGNED) * _ALIGNED), dtype=np.float32)
        padded[:, :d] = wide
        return rounded(padded, self.precision, xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        """Write the distances of the rounded vectors to ``out``."""

        def wide() -> list[Any]:
            return [widened(rows, self.precision) for rows in (left, right)]

        if row_products(left, right, left.shape[1], out, xp, precision=self.precision):
            self.metric.finish(wide, out, xp)
        else:
            first, second = (self.metric.ready(rows, xp) for rows in wide())
            self.metric.tile(first, second, out, xp)


def rounded(rows: Any, precision: str, xp: Any) -> Any:
    """Round float32 numbers, to NaN where they are too large; see ``Rounded.prepare`` for the types."""
    if precision == "float16":
        with np.errstate(over="ignore"):
            found = rows.astype(np.float16)
        return xp.where(xp.isinf(found) & ~xp.isinf(rows), np.float16(np.nan), found)
    dropped = _DROPPED_BITS[precision]
    bits = xp.ascontiguousarray(rows).view(np.uint32)
    even = (bits >> np.uint32(dropped)) & np.uint32(1)
    nearest = bits + (even + np.uint32((1 << (dropped - 1)) - 1))
    nearest = xp.where(rows != rows, _NAN_BITS[dropped], nearest)
    if precision == "bfloat16":
        return (nearest >> np.uint32(16)).astype(np.uint16)
    return (nearest & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view(np.float32)


def widened(rows: Any, precision: str) -> Any:
    """Return rounded numbers as float32."""
    if precision == "bfloat16":
        return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return rows.astype(np.float32, copy=False)
