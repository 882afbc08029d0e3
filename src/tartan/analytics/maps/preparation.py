"""From parameters and a matrix to a descent that can start: everything checked, in stored units."""

from __future__ import annotations

import numbers
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.acceleration import Acceleration, Lbfgs, Plain
from tartan.analytics.maps.descent import Descent, Schedule
from tartan.analytics.maps.guttman import ExactSolve, GradientSolve, Mask, Solve
from tartan.analytics.maps.smacof import CpuPasses, Floats, Passes, Problem, Rule, Weights
from tartan.analytics.maps.start import start_points
from tartan.analytics.matrix import Dissimilarities, read_matrix
from tartan.analytics.matrix.check import Components, refuse_groups
from tartan.analytics.matrix.materialize import INT16_ONE
from tartan.analytics.monitor import Monitor
from tartan.base.checks import check_one_of, floats, require_apart, require_near, whole
from tartan.base.signatures import Checked, Flag, Fraction, FromOne, NotNegative
from tartan.comm.communicator import Communicator
from tartan.devices.protocol import Device
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.matrix import Dissimilarities
    from tartan.analytics.monitor import Monitor

_ACCELERATIONS: dict[str, type[Acceleration]] = {"none": Plain, "lbfgs": Lbfgs}
#: Of conjugate gradients, for one step.
#: By judgement: a bound; solutions are rough and steps repeat them. `tartan bench mds` holds the time.
_CG_STEPS = 100
#: Stored values within these bounds can be squared and summed in float32.
#: By arithmetic: 1e18 times 1e12 pairs is below the largest float32, 3.4e38, and 1e-18 above the least.
_NARROW = (1e-9, 1e9)


@dataclass(frozen=True)
class Temperatures:
    """Which temperatures there are."""

    annealing: Flag
    alpha: Fraction
    max_temperatures: Annotated[int | None, Checked(whole, 1)]


@dataclass(frozen=True)
class Steps:
    """How steps are made, and when there are enough of them."""

    max_iter: FromOne
    tol: NotNegative
    accelerate: Annotated[str, Checked(check_one_of, ("auto", *_ACCELERATIONS))]
    cg_tol: Fraction

    @property
    def acceleration(self) -> Acceleration:
        """How steps are chosen."""
        name = self.accelerate
        if name == "auto":
            name = "lbfgs" if self.tol > 0 else "none"
        return _ACCELERATIONS[name]()


@dataclass(frozen=True)
class PairTerms:
    """What each pair counts, and how it is computed."""

    weights: Any
    sammon: Flag
    zeros: Annotated[str | None, Checked(check_one_of, ("smallest", "keep"))]
    precision: Annotated[str | None, Checked(check_one_of, ("float32", "float64"))]
    device: Annotated[str, Checked(check_one_of, ("cpu", "cuda"))]


@dataclass(frozen=True)
class DamdsOptions:
    """The options of ``DAMDS``, checked, in groups."""

    n_components: FromOne
    fixed: Any
    temperatures: Temperatures
    steps: Steps
    pairs: PairTerms

    @property
    def lift_zeros(self) -> bool:
        """Whether zero dissimilarities count as the smallest positive one."""
        return self.temperatures.annealing if self.pairs.zeros is None else self.pairs.zeros == "smallest"


class Preparation:
    """Everything that a fit needs, made once.

    Parameters
    ----------
    options : DamdsOptions
    matrix : Dissimilarities
        With an array, and checked.
    init : str or array_like
        As the parameter of ``DAMDS``.
    communicator : Communicator, optional
    monitor : Monitor

    Attributes
    ----------
    problem : Problem
    schedule : Schedule
    free : ndarray of bool, shape (n,), or None
        The points that may move; None: all.
    """

    def __init__(
        self,
        options: DamdsOptions,
        matrix: Dissimilarities,
        init: Any,
        communicator: Communicator | None,
        monitor: Monitor,
    ) -> None:
        self._options, self._matrix, self._init = options, matrix, init
        self._communicator, self._monitor = communicator, monitor
        check = matrix.check()
        check.require_positive(matrix)
        check.require_moderate(matrix)
        self.free = free_points(options.fixed, matrix.n)
        if self.free is None:
            check.require_connected(matrix)
        self._given = self._read_given_points()
        self.problem = self._problem()
        self.schedule = self._schedule()

    def _problem(self) -> Problem:
        matrix, options, check = self._matrix, self._options, self._matrix.check()
        weights = as_weights(options.pairs.weights, matrix.n, self._monitor)
        scale, array = matrix.scale, matrix.array
        if options.pairs.sammon:  # stored dissimilarities divide weights, while the stress is in the user's units
            weights = replace(weights, scale=weights.scale / scale)
        assert array is not None  # the caller has materialised the matrix
        floor = check.smallest_positive / scale if options.lift_zeros else 0.0
        rule = Rule(
            floor=floor,
            tiny=(1e-10 * check.largest / scale) ** 2,
            missing=check.n_missing > 0,
            sammon=self._sammon_floor() if options.pairs.sammon else None,
        )
        squares = squares_that_count(matrix, weights, floor, self.free, self._monitor)
        return Problem(array, options.n_components, weights, self._without_idle_floor(rule), squares, self._wide())

    def _sammon_floor(self) -> float:
        """Return a thousandth of the mean of all stored values, the diagonal among them as in the original."""
        check = self._matrix.check()
        return 0.001 * 2.0 * check.total / self._matrix.scale / (2.0 * check.n_valid + check.n)

    def _without_idle_floor(self, rule: Rule) -> Rule:
        """Leave the floor out where no pair is below it, so that the shorter loop is used."""
        return rule if self._matrix.check().n_zero else replace(rule, floor=0.0)

    def _wide(self) -> bool:
        """Whether to compute in float64."""
        precision, check, scale = self._options.pairs.precision, self._matrix.check(), self._matrix.scale
        if not _NARROW[0] < check.largest / scale < _NARROW[1]:
            return True  # whatever was asked for: squares of these are 0 or infinite in float32
        if precision is not None:
            return precision == "float64"
        return self._matrix.dtype.newbyteorder("=") == np.float64

    def _schedule(self) -> Schedule:
        options, check, scale = self._options, self._matrix.check(), self._matrix.scale
        temperatures: tuple[float, ...] = (0.0,)
        falling, steps = options.temperatures, options.steps
        if falling.annealing:
            temperatures = Schedule.list_temperatures(
                check.largest / scale,
                check.smallest_positive / scale,
                options.n_components,
                alpha=falling.alpha,
                max_loops=falling.max_temperatures,
            )
        return Schedule(temperatures, options.n_components, steps.tol, steps.max_iter)

    def _read_given_points(self) -> Floats | None:
        """Return the coordinates that the user gave, in stored units."""
        init = self._init
        if isinstance(init, str):
            if self.free is not None:
                raise ConfigError("fixed points need coordinates: give init as an array (n, n_components)")
            return None
        points = floats("init", init)
        expected = (self._matrix.n, self._options.n_components)
        if points.shape != expected:
            raise ConfigError(f"init has shape {points.shape}; it must be (n, n_components) = {expected}")
        known = np.isfinite(points) if self.free is None else np.isfinite(points) | self.free[:, None]
        if not known.all():
            raise ConfigError(f"init: the coordinates of point {np.argwhere(~known)[0][0]} are not finite")
        require_near("init", points[np.isfinite(points)], self._matrix.check().largest)
        if np.isfinite(points).all():
            require_apart("init", points)
        return points / self._matrix.scale

    def start(self, rng: Any) -> Floats:
        """Return where the points begin: the same on all ranks."""
        points = self._start(rng)
        return points if self._communicator is None else self._communicator.broadcast(points)

    def _start(self, rng: Any) -> Floats:
        if self._given is None:
            return start_points(self._init, self._matrix, self._options.n_components, rng, self._monitor)
        points = self._given
        unknown = ~np.isfinite(points)
        if unknown.any():
            random = start_points("random", self._matrix, self._options.n_components, rng, self._monitor)
            assert self.free is not None  # otherwise all are known
            centre = points[~self.free].mean(axis=0)
            points = np.where(unknown, random + centre, points)
        return points

    def descent(self, points: Floats) -> Descent:
        """Return a descent from these points."""
        passes = self._passes()
        solve = self._solve(passes)
        return Descent(passes, solve, self._options.steps.acceleration, self.problem.squares, points)

    def _passes(self) -> Passes:
        if self._options.pairs.device == "cpu":
            return CpuPasses(self.problem, self._communicator, self._monitor)
        if self._communicator is not None:
            raise ConfigError("device='cuda' works without a communicator; give one of the two")
        from tartan.devices import open_device

        return GpuPasses(self.problem, open_device("cuda"), self._monitor)

    def _solve(self, passes: Passes) -> Solve:
        problem, steps = self.problem, self._options.steps
        if problem.exact:
            return ExactSolve(problem.n, self.free)
        shape = (problem.n, problem.dim)
        return GradientSolve(passes, shape, self.free, max_iter=_CG_STEPS, tol=steps.cg_tol)

    def rule_in_units(self, scale: float) -> Rule:
        """Return the rule in the user's units, for new points."""
        rule = self.problem.rule
        sammon = None if rule.sammon is None else rule.sammon * scale
        return Rule(floor=rule.floor * scale, tiny=rule.tiny * scale**2, sammon=sammon, missing=True)


def free_points(fixed: ArrayLike | None, n: int) -> Mask | None:
    """Return which points may move; None: all.

    Raises
    ------
    ConfigError
        If a fixed point is named twice or does not exist, or all are fixed.
    """
    if fixed is None:
        return None
    given = np.asarray(fixed)
    free = np.ones(n, np.bool_)
    if given.dtype == np.bool_ and given.shape == (n,):
        free = ~given
    else:
        free[_indices(given, n)] = False
    if not free.any():
        raise ConfigError(f"all {n} points are fixed; nothing is left to place")
    return None if free.all() else free


def _indices(given: NDArray[Any], n: int) -> NDArray[np.int64]:
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ConfigError(
            f"fixed has shape {given.shape}, type {given.dtype}; it must be a list of points, or n booleans"
        )
    indices = given.astype(np.int64)
    if ((indices < 0) | (indices >= n)).any():
        raise ConfigError(f"fixed point {indices[(indices < 0) | (indices >= n)][0]}; the points are 0 to {n - 1}")
    if len(np.unique(indices)) != len(indices):
        values, counts = np.unique(indices, return_counts=True)
        raise ConfigError(f"point {values[counts > 1][0]} is fixed twice")
    return indices


def elementwise(transform: Any) -> Callable[[Floats], Floats]:
    """Return a transform of dissimilarities that needs no statistics of the matrix as a function of an array."""
    if callable(transform):
        function: Callable[[Floats], Floats] = transform
        return function
    if isinstance(transform, numbers.Real):
        return lambda values: values ** float(transform)
    raise ConfigError(
        f"new points cannot be placed with distance_transform={transform!r}; "
        "transform both matrices yourself, or give an exponent or a function"
    )


# Passes over the matrix on a GPU: the twin of ``CpuPasses``, in array code on the streams of a device.
#
# The matrix lies on the GPU as it is stored where it fits, and is sent a block of rows at a time where it does not.

#: Pairs of one block; a block takes about ten arrays of this length.
#: By arithmetic: ten arrays of float64 are 1.3 GB, or 0.6 GB of float32. No benchmark.
BLOCK_PAIRS = 16_000_000
#: Share of the free memory that the matrix may take.
#: By judgement: the rest is for what is made of it. `tartan bench mds` measures a mapped matrix, which reaches the same
#: speed.
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
            self._matrices = [None if matrix is None else self._send(matrix) for matrix in self._matrices]
        points = problem.weights.points
        self._points = None if points is None else self._send(np.asarray(points, self._real))

    def residual(self, points: Floats, diff: float, out: Floats) -> float:
        """See :class:`tartan.analytics.maps.smacof.Passes`."""
        total = 0.0
        for rows, found in self._compute(points, partial(self._residual, diff)):
            out[rows] = found[:, :-1]
            total += float(found[:, -1].sum())
        return total * self._problem.weights.scale

    def product(self, points: Floats, out: Floats) -> Floats:
        """See :class:`tartan.analytics.maps.smacof.Passes`."""
        degrees = np.empty(len(points))
        for rows, found in self._compute(points, self._product):
            out[rows], degrees[rows] = found[:, :-1], found[:, -1]
        return degrees

    def _compute(self, points: Floats, call: Callable[..., Any]) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of rows and what a call finds of them: float64 columns."""
        x = self._send(np.asarray(points - points.mean(axis=0), self._real))
        for rows in self._blocks():
            stored = [self._store(matrix, rows) for matrix in self._matrices]
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

    def _send(self, rows: Any) -> Any:
        """Copy rows to the GPU, in its byte order."""
        host = np.ascontiguousarray(rows, rows.dtype.newbyteorder("="))
        array = self._device.allocate(host.shape, host.dtype)
        self._device.upload(host, array)
        return array

    def _store(self, matrix: Any, rows: slice) -> Any:
        if matrix is None:
            return None
        return matrix[rows] if self.resident else self._send(matrix[rows])

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


# Weights of pairs, checked: one a point, or a matrix.

# By arithmetic: a square of 512 float32 and its mirror image are 2 MiB, a second cache.
_SIDE = 512
# By arithmetic.
_LARGEST = 1e15  # the product of two, times the square of a dissimilarity, is still a float32
_TOO_LARGE = f"weights are at most {_LARGEST:g}: divide all of them by the largest"


def as_weights(given: Any, n: int, monitor: Monitor) -> Weights:
    """Return weights in the form of the passes.

    Parameters
    ----------
    given : None, array_like (n,) or (n, n), or path
        One weight a point, whose products are the weights of pairs; or a symmetric matrix. int16 means 32767 for 1.
        A path names a file that :func:`read_matrix` reads. A float64 matrix is rounded to float32.

    Raises
    ------
    ConfigError
        If weights are not finite, negative, asymmetric (the pair is named), all zero, or of another size.
    """
    if given is None:
        return Weights()
    array = _as_array(given, monitor)
    if array.shape == (n,):
        return _of_points(array)
    if array.shape != (n, n):
        raise ConfigError(f"weights of shape {array.shape} for {n} points; give ({n},) or ({n}, {n})")
    integer = array.dtype.newbyteorder("=") == np.int16
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        matrix = np.ascontiguousarray(array if integer else array.astype(np.float32, copy=False))
    _check_matrix(matrix, monitor)
    return Weights(matrix=matrix, scale=1.0 / INT16_ONE if integer else 1.0)


def _as_array(given: Any, monitor: Monitor) -> NDArray[Any]:
    if isinstance(given, str | os.PathLike):
        array = read_matrix(given).materialized(monitor=monitor).array
        assert array is not None  # that is what `materialized` is for
        return array
    try:
        found = np.ma.filled(given, 0) if np.ma.isMaskedArray(given) else np.asarray(given)
    except ValueError as error:
        raise ConfigError("weights are not an array: their rows have different lengths") from error
    if found.dtype.kind not in "fiub":
        raise ConfigError(f"weights must be numbers; these have the type {found.dtype}")
    return found


def _of_points(array: NDArray[Any]) -> Weights:
    points = np.ascontiguousarray(array, np.float64)
    bad = np.flatnonzero(~(np.isfinite(points) & (points >= 0)))
    if bad.size:
        raise ConfigError(f"weight {points[bad[0]]} of point {bad[0]}; weights must be finite and not negative")
    if not points.any():
        raise ConfigError("all weights are 0; at least two points need one above 0")
    if points.max() > _LARGEST:
        raise ConfigError(f"weight {points.max():g} of point {points.argmax()}; {_TOO_LARGE}")
    return Weights(points=points)


def _check_matrix(matrix: NDArray[Any], monitor: Monitor) -> None:
    """Check every weight once, each square with its mirror image."""
    n, largest = len(matrix), 0.0
    for top in range(0, n, _SIDE):
        monitor.report("weights", rows=top, of=n)
        monitor.check()
        for left in range(top, n, _SIDE):
            upper = matrix[top : top + _SIDE, left : left + _SIDE]
            lower = matrix[left : left + _SIDE, top : top + _SIDE].T
            _refuse(~(np.isfinite(upper) & (upper >= 0)), top, left, upper, "weights are finite and not negative")
            _refuse(upper > _LARGEST, top, left, upper, _TOO_LARGE)
            apart = np.triu(upper != lower, 1) if top == left else upper != lower
            _refuse(apart, top, left, upper, "the mirror image differs; weights are symmetric: (W + W.T) / 2")
            off = np.triu(upper, 1) if top == left else upper
            largest = max(largest, float(off.max(initial=0)))
    if largest == 0.0:
        raise ConfigError("all weights are 0 in float32; at least one pair needs one above 0")


def _refuse(bad: NDArray[np.bool_], top: int, left: int, values: NDArray[Any], rule: str) -> None:
    if bad.any():
        i, j = np.argwhere(bad)[0].tolist()
        raise ConfigError(f"weight {values[i, j]} of the pair ({top + i}, {left + j}): {rule}")


def squares_that_count(
    D: Dissimilarities, weights: Weights, floor: float, free: NDArray[np.bool_] | None, monitor: Monitor
) -> float:
    """Return the sum of the squares of stored values over ordered pairs that have a weight and are not missing.

    Values below ``floor`` count as it.

    Raises
    ------
    ConfigError
        If no pair counts, or the pairs that count leave groups of points apart, except where each has a fixed point.
    """
    check = D.check()
    if weights.unit and check.components is None:
        return 2.0 * (check.total_squares / D.scale**2 + check.n_zero * floor**2)
    total, together = 0.0, Components(D.n)
    if free is not None:
        together.join_items(np.flatnonzero(~free))
    for start, block in D.blocks(4 << 20):
        valid = _mark_counted(block, start, weights)
        if not together.connected:
            together.join(start, 0, valid)
        values = np.maximum(block[valid], floor).astype(np.float64)
        total += float(np.vdot(values, values))
        monitor.report("weights", rows=start + len(block), of=D.n)
        monitor.check()
    if total == 0.0:
        raise ConfigError("no pair with a dissimilarity above 0 has a weight above 0; there is nothing to embed")
    what = "missing pairs cut the items" if weights.unit else "weights of 0, and missing pairs, cut the items"
    refuse_groups(D, together.labels(), what, "give some pairs between them a weight and a value")
    return total


def _mark_counted(block: NDArray[Any], start: int, weights: Weights) -> NDArray[np.bool_]:
    """Mark the pairs of some rows that have a weight and are not missing."""
    rows = slice(start, start + len(block))
    valid: NDArray[np.bool_] = block >= 0
    valid[np.arange(len(block)), np.arange(rows.start, rows.stop)] = False
    if weights.points is not None:
        valid &= (weights.points[rows, None] * weights.points) > 0
    if weights.matrix is not None:
        valid &= weights.matrix[rows] > 0
    return valid
