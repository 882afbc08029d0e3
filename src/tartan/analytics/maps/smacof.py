"""Passes over the matrix that SMACOF needs, and their implementation on the CPU.

Lengths are in stored units here: a matrix of int16 is never scaled, the coordinates are instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.monitor import Monitor
from tartan.comm.communicator import Communicator, partition

Floats = NDArray[np.float64]

#: Pairs of one native call: a tenth of a second on one slow core, so that a call can be cancelled.
#: Measured (`tartan bench mds`): 40,000 items take 0.3 s a step on two cores, 2.7e9 pairs a second each.
_PAIRS_PER_CALL = 30_000_000
_GROUP = _native.SMACOF_GROUP


@dataclass(frozen=True)
class Rule:
    """How stored values become target distances and weights; the native code reads these names.

    Attributes
    ----------
    diff : float
        What the temperature takes off every dissimilarity.
    floor : float
        Smaller dissimilarities count as this.
    tiny : float
        Squared distance that is added to all, so that nothing is divided by 0.
    missing : bool
        Negative values and NaN are missing pairs.
    swap, weights_swap : bool
        int16 dissimilarities or weights lie in the other byte order.
    sammon : float or None
        Divide weights by the dissimilarity, or by this where it is smaller.
    product : bool
        Multiply with the matrix of weights instead.
    """

    diff: float = 0.0
    floor: float = 0.0
    tiny: float = 1e-30
    missing: bool = False
    swap: bool = False
    sammon: float | None = None
    product: bool = False
    weights_swap: bool = False


@dataclass(frozen=True)
class Weights:
    """Weights of pairs.

    Attributes
    ----------
    points : ndarray of float64, shape (n,), or None
        w_ij is the product of those of i and j.
    matrix : ndarray of int16 or float32, shape (n, n), or None
        In memory or mapped.
    scale : float
        A weight is the stored number times this.
    """

    points: Floats | None = None
    matrix: NDArray[Any] | None = None
    scale: float = 1.0

    @property
    def unit(self) -> bool:
        """Whether all weights are 1."""
        return self.points is None and self.matrix is None


@dataclass(frozen=True)
class Problem:
    """What is to be embedded.

    Attributes
    ----------
    delta : ndarray of int16, float32 or float64, shape (n, n)
        In memory or mapped; int16 in either byte order.
    dim : int
    weights : Weights
    rule : Rule
        All of it but ``diff`` and the byte orders, which are found here.
    squares : float
        Sum of the squared dissimilarities of ordered pairs that count: the denominator of the stress.
    wide : bool
        Compute in float64 rather than float32.
    """

    delta: NDArray[Any]
    dim: int
    weights: Weights
    rule: Rule
    squares: float
    wide: bool

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.delta)

    @property
    def exact(self) -> bool:
        """Whether the majorising step has a closed form: all pairs count alike."""
        return self.weights.unit and not self.rule.missing and self.rule.sammon is None


def inner(a: Floats, b: Floats) -> float:
    """Return the sum of the products of two arrays (n, dim).

    Not by BLAS: its threads would fight those of the passes, and its sums depend on how many they are.
    """
    return float(np.einsum("ij,ij->", a, b))


class Passes(Protocol):
    """Passes over one matrix, on the CPU or a GPU."""

    def residual(self, points: Floats, diff: float, out: Floats) -> float:
        """Write B(X) X - V X of all points; return the sum of the weighted squared errors over ordered pairs."""
        ...

    def product(self, points: Floats, out: Floats) -> Floats:
        """Write V X of all points; return the sum of the weights of each point, shape (n,)."""
        ...


def native_order(array: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return an array in the machine's byte order by name, and whether its bytes are in the other one."""
    if array.dtype.kind == "i" and not array.dtype.isnative:
        return array.view(array.dtype.newbyteorder("=")), True
    return array, False


class CpuPasses:
    """Passes of the native code, on all threads of this process.

    The residual meets each unordered pair once: the rows of the triangle are divided into shares, as many as n alone
    says, whose sums are added in their order. With a communicator, each rank has some of the shares, and for products
    some of the rows. The results are the same bits for every number of ranks, and without a communicator.

    Parameters
    ----------
    problem : Problem
    communicator : Communicator, optional
    monitor : Monitor
        Checked between native calls.
    """

    def __init__(self, problem: Problem, communicator: Communicator | None, monitor: Monitor) -> None:
        self._communicator, self._monitor, self._scale = communicator, monitor, problem.weights.scale
        self._delta, swap = native_order(problem.delta)
        self._weights, weights_swap = None, False
        if problem.weights.matrix is not None:
            self._weights, weights_swap = native_order(problem.weights.matrix)
        self._rule = replace(problem.rule, swap=swap, weights_swap=weights_swap)
        self._pass = _native.SmacofPass(problem.n, problem.dim, problem.wide, problem.weights.points)
        self.n, self.dim = problem.n, problem.dim
        if communicator is not None:
            first, last = partition(self.n, communicator.size)[communicator.rank]
            self._own = first, last
            self._rows = np.empty((last - first, self.dim + 1))
            n_shares, length = self._pass.shares
            begin, end = partition(n_shares, communicator.size)[communicator.rank]
            self._pass.keep(begin, end)
            self._partials = np.empty((end - begin, length))

    def residual(self, points: Floats, diff: float, out: Floats) -> float:
        """See :class:`Passes`."""
        self._pass.place(points)
        rule = replace(self._rule, diff=diff)
        return 2.0 * self._triangle(rule, out) * self._scale

    def product(self, points: Floats, out: Floats) -> Floats:
        """See :class:`Passes`."""
        self._pass.place(points)
        return self._by_rows(replace(self._rule, product=True), out)

    def _triangle(self, rule: Rule, out: Floats) -> float:
        start = 0
        while start < self.n:
            step = max(1, _PAIRS_PER_CALL // (self.n - start) // _GROUP) * _GROUP
            stop = min(self.n, start + step)
            self._monitor.check()
            self._pass.triangle(self._delta, rule, start, stop, self._weights)
            start = stop
        if self._communicator is None:
            return self._pass.finish(out)
        self._pass.partial(self._partials)
        return self._pass.finish(out, self._communicator.all_gather(self._partials, shared=True))

    def _by_rows(self, rule: Rule, out: Floats) -> Floats:
        """Write the sums of all rows; return what the native code has for each row in addition."""
        if self._communicator is None:
            losses = np.empty(self.n)
            self._some_rows(rule, 0, out, losses)
            return losses
        mine = self._rows
        sums, losses = np.empty((len(mine), self.dim)), np.empty(len(mine))
        self._some_rows(rule, self._own[0], sums, losses)
        mine[:, :-1], mine[:, -1] = sums, losses
        gathered = self._communicator.all_gather(mine, shared=True)
        out[:] = gathered[:, :-1]
        return np.ascontiguousarray(gathered[:, -1])

    def _some_rows(self, rule: Rule, first: int, sums: Floats, losses: Floats) -> None:
        step = max(1, _PAIRS_PER_CALL // self.n)
        for start in range(0, len(losses), step):
            part = slice(start, min(len(losses), start + step))
            rows = slice(first + part.start, first + part.stop)
            weights = None if self._weights is None else self._weights[rows]
            self._monitor.check()
            self._pass.rows(self._delta[rows], rule, rows.start, sums[part], losses[part], weights)
