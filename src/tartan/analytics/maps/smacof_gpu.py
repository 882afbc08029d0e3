"""Passes over the matrix on a GPU: the twin of ``CpuPasses``, in array code.

The matrix lies on the GPU as it is stored where it fits, and is sent a block of rows at a time where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tartan.analytics.maps.smacof import Floats, Problem
from tartan.analytics.monitor import Monitor

#: Pairs of one block; a block takes about ten arrays of this length.
BLOCK_PAIRS = 16_000_000
#: Share of the free memory that the matrix may take.
_RESIDENT_SHARE = 0.6


class GpuPasses:
    """See :class:`tartan.analytics.maps.smacof.Passes`.

    Parameters
    ----------
    problem : Problem
    cupy : module
        CuPy, or a stand-in.
    monitor : Monitor
        Checked between blocks.
    block_pairs : int
        Pairs that are computed at a time.
    """

    def __init__(self, problem: Problem, cupy: Any, monitor: Monitor, block_pairs: int = BLOCK_PAIRS) -> None:
        self._block_pairs = block_pairs
        self._problem, self._xp, self._monitor = problem, cupy, monitor
        self._real = cupy.float64 if problem.wide else cupy.float32
        self._matrices = [problem.delta, problem.weights.matrix]
        size = sum(matrix.nbytes for matrix in self._matrices if matrix is not None)
        self.resident = size <= _RESIDENT_SHARE * cupy.cuda.runtime.memGetInfo()[0]
        if self.resident:
            self._matrices = [None if matrix is None else self._sent(matrix) for matrix in self._matrices]
        points = problem.weights.points
        self._points = None if points is None else cupy.asarray(points, self._real)

    def residual(self, points: Floats, diff: float, out: Floats) -> float:
        """See :class:`tartan.analytics.maps.smacof.Passes`."""
        xp, rule, total = self._xp, self._problem.rule, 0.0
        x = xp.asarray(points - points.mean(axis=0), self._real)
        for rows in self._blocks():
            delta, weight = self._pairs(rows)
            apart = [x[rows, k, None] - x[:, k] for k in range(x.shape[1])]
            distance = xp.sqrt(sum(a * a for a in apart) + self._real(rule.tiny))
            target = xp.maximum(delta - self._real(diff), self._real(0))
            force = weight * (target / distance - self._real(1))
            for k, a in enumerate(apart):
                out[rows, k] = xp.asnumpy((force * a).sum(axis=1, dtype=xp.float64))
            total += float((weight * (target - distance) ** 2).sum(dtype=xp.float64))
        return total * self._problem.weights.scale

    def product(self, points: Floats, out: Floats) -> Floats:
        """See :class:`tartan.analytics.maps.smacof.Passes`."""
        xp, degrees = self._xp, np.empty(len(points))
        x = xp.asarray(points - points.mean(axis=0), self._real)
        for rows in self._blocks():
            _, weight = self._pairs(rows)
            degrees[rows] = xp.asnumpy(weight.sum(axis=1, dtype=xp.float64))
            for k in range(x.shape[1]):
                out[rows, k] = xp.asnumpy((weight * (x[rows, k, None] - x[:, k])).sum(axis=1, dtype=xp.float64))
        return degrees

    def _blocks(self) -> Iterator[slice]:
        step = max(1, self._block_pairs // self._problem.n)
        for start in range(0, self._problem.n, step):
            self._monitor.check()
            yield slice(start, min(self._problem.n, start + step))

    def _sent(self, rows: Any) -> Any:
        """Copy rows to the GPU, in its byte order."""
        return self._xp.asarray(np.ascontiguousarray(rows, rows.dtype.newbyteorder("=")))

    def _rows(self, which: int, rows: slice) -> Any:
        matrix = self._matrices[which]
        if matrix is None:
            return None
        part = matrix[rows] if self.resident else self._sent(matrix[rows])
        return part.astype(self._real)

    def _pairs(self, rows: slice) -> tuple[Any, Any]:
        """Return dissimilarities and weights of some rows; missing pairs and the diagonal weigh nothing."""
        xp, rule = self._xp, self._problem.rule
        delta, weight = self._rows(0, rows), self._rows(1, rows)
        valid = delta >= 0
        valid[xp.arange(rows.stop - rows.start), xp.arange(rows.start, rows.stop)] = False
        delta = xp.maximum(xp.where(valid, delta, self._real(0)), self._real(rule.floor))
        if self._points is not None:
            weight = self._points[rows, None] * self._points
        weight = valid.astype(self._real) if weight is None else weight * valid
        if rule.sammon is not None:
            weight = weight / xp.maximum(delta, self._real(rule.sammon))
        return delta, weight
