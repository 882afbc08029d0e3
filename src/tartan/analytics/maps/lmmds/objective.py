"""What a least-squares map minimises, and the passes over the matrix that evaluate it.

chi2 is the sum over ordered pairs of (W (delta - D))^2. Gradient and Hessian are half derivatives, so that
chi2(x - s) = chi2(x) - 2 s.g + s.H s to second order. Rows are partitioned over the ranks; after a pass the results of
all rows are gathered, and every rank computes the same scalars from them: one exchange of n times the dimension a pass,
and results that do not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.comm.communicator import Communicator, partition

Floats = NDArray[np.float64]

# Names of the weightings, and the power of the mean dissimilarity that each is divided by.
WEIGHTINGS = {"relative": (0, 0.0), "relative34": (1, 0.5), "sammon": (2, 1.0), "even": (3, 2.0), "large": (4, 3.0)}
# By judgement: a stop is heard between calls. `tartan bench chisq` holds the time.
_BLOCK_BYTES = 16 << 20  # a native call takes a tenth of a second


@dataclass(frozen=True)
class Objective:
    """The numbers that the native passes read by these names; see the module ``chisq`` of the kernels."""

    scale: float
    swapped: bool = False
    squared: bool = False
    minimum: float = 0.0
    weighting: int = 3
    factor: float = 1.0
    floor: float = 0.0
    cut: float = float("inf")
    missing: float = float("nan")
    limits: tuple[float, ...] = ()
    bin_weights: tuple[float, ...] = ()
    second: bool = False


@dataclass(frozen=True)
class Survey:
    """Statistics of the pairs of each row; pairs that are missing, cut or without weight do not count."""

    links: NDArray[np.int64]
    total: Floats
    smallest_positive: float
    largest: float
    bins: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Mean dissimilarity."""
        return float(self.total.sum() / max(1, self.links.sum()))


@dataclass(frozen=True)
class Evaluation:
    """chi2 and its half derivatives at one map, for some rows."""

    varied: float
    cross: float
    gradient: Floats
    blocks: Floats

    @property
    def chisq(self) -> float:
        """Sum over ordered pairs, of which one point or both are varied."""
        return self.varied + 2.0 * self.cross


class WeighedPairs:
    """The pairs of a matrix, with the weights of its points.

    Parameters
    ----------
    D : Dissimilarities
    ranks : Communicator
    monitor : Monitor
        Checked between native calls.
    """

    def __init__(self, D: Dissimilarities, ranks: Communicator, monitor: Monitor) -> None:
        self.D, self.ranks, self.monitor = D, ranks, monitor
        array = D.array
        self.swapped = array is not None and array.dtype.kind == "i" and not array.dtype.isnative

    def survey(self, objective: Objective, weights: Floats) -> Survey:
        """Look at all rows."""
        numbers, counts = [np.empty((0, 3))], [np.empty((0, len(objective.limits) + 1), np.int64)]
        for items, block in self._blocks(np.arange(self.D.n)):
            numbers.append(np.empty((len(items), 3)))
            counts.append(np.empty((len(items), len(objective.limits) + 1), np.int64))
            _native.chisq_survey(objective, block, items, weights, numbers[-1], counts[-1])
        found, bins = self.ranks.all_gather(np.concatenate(numbers)), self.ranks.all_gather(np.concatenate(counts))
        return Survey(bins.sum(1), found[:, 0], float(found[:, 1].min()), float(found[:, 2].max()), bins.sum(0))

    def evaluate(
        self, objective: Objective, x: Floats, weights: Floats, rows: NDArray[np.int64], fixed: Floats
    ) -> Evaluation:
        """Return chi2, half gradient (rows, L) and half diagonal blocks (rows, L, L) of some rows.

        ``fixed`` is 1 for the points whose pairs make up the cross part, else 0.
        """
        dimension = x.shape[1]
        width = 2 + dimension + dimension**2
        columns = np.ascontiguousarray(x.T)
        found = [np.empty((0, width))]
        for items, block in self._blocks(rows):
            n = len(items)
            chisq, gradient = np.empty((n, 2)), np.empty((n, dimension))
            blocks = np.empty((n, dimension, dimension))
            _native.chisq_derivatives(objective, block, items, columns, weights, fixed, chisq, gradient, blocks)
            found.append(np.concatenate([chisq, gradient, blocks.reshape(n, -1)], axis=1))
        gathered = self.ranks.all_gather(np.concatenate(found))
        total, cross = gathered[:, 0].sum(), gathered[:, 1].sum()
        gradient, blocks = gathered[:, 2 : 2 + dimension], gathered[:, 2 + dimension :]
        return Evaluation(
            float(total - cross), float(cross), gradient.copy(), blocks.reshape(-1, dimension, dimension).copy()
        )

    def product(
        self, objective: Objective, x: Floats, weights: Floats, rows: NDArray[np.int64], vector: Floats
    ) -> Floats:
        """Return the half Hessian times a vector (n, L), for some rows."""
        columns, across = np.ascontiguousarray(x.T), np.ascontiguousarray(vector.T)
        found = [np.empty((0, x.shape[1]))]
        for items, block in self._blocks(rows):
            found.append(np.empty((len(items), x.shape[1])))
            _native.chisq_product(objective, block, items, columns, weights, across, found[-1])
        return self.ranks.all_gather(np.concatenate(found))

    def density(
        self, objective: Objective, x: Floats, weights: Floats, ends: tuple[float, float], shape: tuple[int, int]
    ) -> NDArray[np.int64]:
        """Count the ordered pairs by dissimilarity (down, from 0 to the first end) and distance (across)."""
        columns, counts = np.ascontiguousarray(x.T), np.zeros(shape, np.int64)
        for items, block in self._blocks(np.arange(self.D.n)):
            _native.chisq_density(objective, block, items, columns, weights, ends, counts)
        return self.ranks.all_reduce(counts)

    def _blocks(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield this rank's share of some rows, block after block."""
        start, stop = partition(len(rows), self.ranks.size)[self.ranks.rank]
        height = self.D.block_rows(_BLOCK_BYTES)
        for first in range(start, stop, height):
            self.monitor.check()
            items = rows[first : min(stop, first + height)]
            yield items, self._block(items)

    def _block(self, items: NDArray[np.int64]) -> NDArray[Any]:
        first, last = int(items[0]), int(items[-1]) + 1
        if last - first == len(items):
            return self._read(first, last)
        starts = np.flatnonzero(np.diff(items, prepend=-2) != 1)
        stops = np.append(starts[1:], len(items))
        return np.concatenate([self._read(int(items[a]), int(items[b - 1]) + 1) for a, b in zip(starts, stops)])

    def _read(self, first: int, last: int) -> NDArray[Any]:
        if self.swapped and self.D.array is not None:
            return self.D.array[first:last].view(np.int16)
        return np.ascontiguousarray(self.D.block(first, last))
