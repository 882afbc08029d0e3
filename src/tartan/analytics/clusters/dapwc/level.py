"""The level from which pairwise clustering measures dissimilarities, and the operator measured from it.

Where every pair of items is about equally far apart, as photos are by 1 - NCC, most of each cluster's cost is the same
for all clusterings: taking one number c off all dissimilarities between different items lowers the cost of n items in K
clusters by c (n - K). What is left is what tells clusters apart. c is the median distance to a nearest neighbour, which
neither a few copies of an item nor a gross outlier moves; values below it count as 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tartan import _native
from tartan.analytics.clusters.dapwc.product import Columns, Product
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.base.format import pluralize

# By judgement: rows that are read at a time, as BLOCK_BYTES of matrix/rows.
_BLOCK_BYTES = 64 << 20
# Quantiles of the distances to nearest neighbours; the first with few enough pairs below it is the level.
# By judgement: the median is the level of ordinary groups (docs/analytics-pwc.md); lower ones where duplicates pull it.
# `tartan bench answers` has such groups.
_QUANTILES = (0.5, 0.25, 0.1)
# By judgement: a group of 8 has so few pairs an item that lie below the level. `tartan bench answers`: groups of 6 and
# 40 are right.
_CLIPPED_A_ITEM = 8
# By judgement: a value ten times the typical one is an outlier. `tartan bench answers` has an item far from all.
_FAR = 10


@dataclass(frozen=True)
class ZeroLevel:
    """What is taken off all dissimilarities between different items.

    Attributes
    ----------
    value : float
        The level c, in units of dissimilarities; 0 takes nothing off.
    below : csr_array (n, n)
        c - d of the pairs with d < c, which count as 0.
    mean : float
        Mean of the values measured from the level, over known pairs of different items.
    least : float
        The least of these values that is not 0, of an item and its nearest one; the mean where there is none.
    """

    value: float
    below: Any
    mean: float
    least: float

    @property
    def n_clipped(self) -> int:
        """Number of pairs that count as 0."""
        return int(self.below.nnz) // 2

    def note(self, unit: float = 1.0) -> str:
        """Return one sentence on the pairs that count as 0; empty where there are none.

        ``unit`` is what the level is in, in units of the input.
        """
        if not self.n_clipped:
            return ""
        return (
            f"distances below {self.value * unit:.3g} count as 0, and all others from there: that is so of "
            f"{pluralize(self.n_clipped, 'pair')}, whose differences are taken for noise"
        )


def find_level(D: Dissimilarities, monitor: Monitor) -> ZeroLevel:
    """Find the level of a checked matrix: the largest quantile of the nearest distances that clips few pairs."""
    nearest = _nearest(D, monitor)
    for quantile in _QUANTILES if len(nearest) else ():
        value = float(nearest[int(quantile * (len(nearest) - 1))])
        few = _CLIPPED_A_ITEM * D.n
        if 0 < value < D.check().largest and (level := _find_clipping(D, value, nearest, monitor, few)) is not None:
            return level
    return make_level(D, 0.0, monitor)


def make_level(D: Dissimilarities, value: float, monitor: Monitor) -> ZeroLevel:
    """Return a level of this value."""
    nearest = _nearest(D, monitor)
    if value > 0 and (level := _find_clipping(D, value, nearest, monitor, D.n**2)) is not None:
        return level
    mean = D.check().mean
    return ZeroLevel(0.0, csr_array((D.n, D.n)), mean, _least(nearest, mean))


def _nearest(D: Dissimilarities, monitor: Monitor) -> NDArray[np.float64]:
    """Return the distances of items to their nearest ones, in order; none of an item without a known pair."""
    nearest = np.empty(D.n)
    for start, block in _blocks(D, monitor):
        _native.pwc_nearest(block, start, nearest[start : start + len(block)])
    return D.scale * np.sort(nearest[np.isfinite(nearest)])


def _least(values: NDArray[np.float64], mean: float) -> float:
    return float(min(values[values > 0], default=mean))


def _find_clipping(
    D: Dissimilarities, value: float, nearest: NDArray[np.float64], monitor: Monitor, most: int
) -> ZeroLevel | None:
    """Return the level of a value, or None where more than ``most`` entries of the matrix lie below it."""
    counts, columns, values = [np.zeros(1, np.int32)], [], []
    limit = value / D.scale
    if D.dtype.kind == "f":  # rounding must not put a value below itself
        limit = float(D.dtype.type(limit))
    n_below = 0
    for start, block in _blocks(D, monitor):
        found = _native.pwc_below(block, start, limit, most - n_below)
        if found is None:
            return None
        n_below += len(found[1])
        counts.append(found[0])
        columns.append(found[1])
        values.append(found[2])
    gaps = value - D.scale * np.concatenate(values)
    starts = np.cumsum(np.concatenate(counts), dtype=np.int32)
    below = csr_array((gaps, np.concatenate(columns), starts), shape=(D.n, D.n))
    known = D.check()
    n_known = D.n * (D.n - 1) - 2 * known.n_missing
    mean = known.mean - value + float(gaps.sum()) / max(1, n_known)
    return ZeroLevel(value, below, mean, _least(nearest - value, mean))


def _blocks(D: Dissimilarities, monitor: Monitor) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (first row, block of stored values) in the order of bytes and rows that the kernels read."""
    for start, block in D.blocks(_BLOCK_BYTES):
        yield start, np.require(block, block.dtype.newbyteorder("="), ["C", "A"])
        monitor.check()


class LeveledProduct:
    """An operator whose dissimilarities are measured from a level; see ``Product``.

    Parameters
    ----------
    product : Product
    level : ZeroLevel
    """

    def __init__(self, product: Product, level: ZeroLevel) -> None:
        self._product, self._level = product, level
        self.n, self.scale, self.masses = product.n, product.scale, product.masses
        self.unknown = product.unknown - level.value
        self._shift = level.value / product.scale
        below = level.below
        self._below = (below.indptr, below.indices, below.data / product.scale)
        self.unit = self._typical()

    def __call__(self, columns: Columns) -> tuple[Columns, Columns | None]:
        products, mass = self._product(columns)
        _native.pwc_measure(products, mass, columns, self._shift, *self._below)
        return products, mass

    def _typical(self) -> float:
        """Return the largest value, but at most a multiple of the mean distance of a median item: no outlier counts."""
        products, mass = self(np.ones((self.n, 1)))
        known = self.n - 1 if mass is None else np.maximum(mass - 1, 1)
        return min(self.unknown, _FAR * float(np.median(self.scale * products / known)))

    def close(self) -> None:
        """Give back what the operator holds."""
        self._product.close()
