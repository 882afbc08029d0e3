"""Passes over the matrix on a GPU: the twin of ``CpuPasses``, in array code on the streams of a device.

The matrix lies on the GPU as it is stored where it fits, and is sent a block of rows at a time where it does not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tartan.analytics.maps.smacof import Floats, Problem
from tartan.analytics.monitor import Monitor
from tartan.devices.protocol import Device

#: Pairs of one block; a block takes about ten arrays of this length.
BLOCK_PAIRS = 16_000_000
#: Share of the free memory that the matrix may take.
_RESIDENT_SHARE = 0.6


class GpuPasses:
    """See :class:`tartan.analytics.maps.smacof.Passes`.

    Parameters
    ----------
    problem : Problem
    device : Device
        Closed when the passes are garbage.
    monitor : Monitor
        Checked between blocks.
    block_pairs : int
        Pairs that are computed at a time.
    resident_share : float
        Share of the device's free memory that the matrix may take.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        monitor: Monitor,
        block_pairs: int = BLOCK_PAIRS,
        resident_share: float = _RESIDENT_SHARE,
    ) -> None:
        weakref.finalize(self, device.close)
        self._block_pairs = block_pairs
        self._problem, self._device, self._xp, self._monitor = problem, device, device.xp, monitor
        self._real = np.dtype(np.float64 if problem.wide else np.float32).type
        self._matrices = [problem.delta, problem.weights.matrix]
        size = sum(matrix.nbytes for matrix in self._matrices if matrix is not None)
        self.resident = size <= resident_share * device.free_bytes()
        if self.resident:
            self._matrices = [None if matrix is None else self._sent(matrix) for matrix in self._matrices]
        points = problem.weights.points
        self._points = None if points is None else self._sent(np.asarray(points, self._real))

    def residual(self, points: Floats, diff: float, out: Floats) -> float:
        """See :class:`tartan.analytics.maps.smacof.Passes`."""
        total = 0.0
        for rows, found in self._computed(points, partial(self._residual, diff)):
            out[rows] = found[:, :-1]
            total += float(found[:, -1].sum())
        return total * self._problem.weights.scale

    def product(self, points: Floats, out: Floats) -> Floats:
        """See :class:`tartan.analytics.maps.smacof.Passes`."""
        degrees = np.empty(len(points))
        for rows, found in self._computed(points, self._product):
            out[rows], degrees[rows] = found[:, :-1], found[:, -1]
        return degrees

    def _computed(self, points: Floats, call: Callable[..., Any]) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of rows and what a call finds of them: float64 columns."""
        x = self._sent(np.asarray(points - points.mean(axis=0), self._real))
        for rows in self._blocks():
            stored = [self._stored(matrix, rows) for matrix in self._matrices]
            found = self._device.compute("map", rows.stop - rows.start, partial(call, x, rows, stored))
            host = np.empty(found.shape)
            self._device.download(found, host)
            yield rows, host

    def _residual(self, diff: float, x: Any, rows: slice, stored: list[Any]) -> Any:
        """Return the forces on some points, and what each adds to the stress."""
        xp, (delta, weight) = self._xp, self._pairs(rows, stored)
        apart = [x[rows, k, None] - x[:, k] for k in range(x.shape[1])]
        distance = xp.sqrt(sum(a * a for a in apart) + self._real(self._problem.rule.tiny))
        target = xp.maximum(delta - self._real(diff), self._real(0))
        force = weight * (target / distance - self._real(1))
        squares = weight * (target - distance) ** 2
        return xp.stack([*(self._sums(force * a) for a in apart), self._sums(squares)], axis=1)

    def _product(self, x: Any, rows: slice, stored: list[Any]) -> Any:
        """Return the products of some rows of weights with the differences of points, and the sums of the rows."""
        _, weight = self._pairs(rows, stored)
        found = [self._sums(weight * (x[rows, k, None] - x[:, k])) for k in range(x.shape[1])]
        return self._xp.stack([*found, self._sums(weight)], axis=1)

    def _sums(self, rows: Any) -> Any:
        return self._xp.sum(rows, axis=1, dtype=np.float64)

    def _blocks(self) -> Iterator[slice]:
        step = max(1, self._block_pairs // self._problem.n)
        for start in range(0, self._problem.n, step):
            self._monitor.check()
            yield slice(start, min(self._problem.n, start + step))

    def _sent(self, rows: Any) -> Any:
        """Copy rows to the GPU, in its byte order."""
        host = np.ascontiguousarray(rows, rows.dtype.newbyteorder("="))
        array = self._device.allocate(host.shape, host.dtype)
        self._device.upload(host, array)
        return array

    def _stored(self, matrix: Any, rows: slice) -> Any:
        if matrix is None:
            return None
        return matrix[rows] if self.resident else self._sent(matrix[rows])

    def _pairs(self, rows: slice, stored: list[Any]) -> tuple[Any, Any]:
        """Return dissimilarities and weights of some rows; missing pairs and the diagonal weigh nothing."""
        xp, rule = self._xp, self._problem.rule
        delta: Any = xp.astype(stored[0], self._real)
        weight: Any = None if stored[1] is None else xp.astype(stored[1], self._real)
        valid = delta >= 0
        valid[xp.arange(rows.stop - rows.start), xp.arange(rows.start, rows.stop)] = False
        delta = xp.maximum(xp.where(valid, delta, self._real(0)), self._real(rule.floor))
        if self._points is not None:
            weight = self._points[rows, None] * self._points
        weight = valid.astype(self._real) if weight is None else weight * valid
        if rule.sammon is not None:
            weight = weight / xp.maximum(delta, self._real(rule.sammon))
        return delta, weight
