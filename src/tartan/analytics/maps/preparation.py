"""From parameters and a matrix to a descent that can start: everything checked, in stored units."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.maps.acceleration import Acceleration, Lbfgs, Plain
from tartan.analytics.maps.descent import Descent, Schedule
from tartan.analytics.maps.guttman import ExactSolve, GradientSolve, Mask, Solve
from tartan.analytics.maps.smacof import CpuPasses, Floats, Passes, Problem, Rule
from tartan.analytics.maps.start import start_points
from tartan.analytics.maps.weights import as_weights, squares_that_count
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.base.checks import floats, one_of, require_apart, require_near, whole
from tartan.base.option_groups import Checked, Flag, Fraction, FromOne, NotNegative, Positive
from tartan.comm.communicator import Communicator
from tartan.errors import ConfigError

_ACCELERATIONS: dict[str, type[Acceleration]] = {"none": Plain, "lbfgs": Lbfgs}
#: Stored values within these bounds can be squared and summed in float32.
_NARROW = (1e-9, 1e9)


@dataclass(frozen=True)
class Temperatures:
    """Which temperatures there are."""

    annealing: Flag
    alpha: Fraction
    # At 0 the temperature would fall for ever.
    t_min_factor: Positive
    max_temperatures: Annotated[int | None, Checked(whole, 1)]


@dataclass(frozen=True)
class Steps:
    """How steps are made, and when there are enough of them."""

    max_iter: FromOne
    tol: NotNegative
    accelerate: Annotated[str, Checked(one_of, ("auto", *_ACCELERATIONS))]
    cg_max_iter: FromOne
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
    zeros: Annotated[str | None, Checked(one_of, ("smallest", "keep"))]
    precision: Annotated[str | None, Checked(one_of, ("float32", "float64"))]
    device: Annotated[str, Checked(one_of, ("cpu", "cuda"))]


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
        self._given = self._given_points()
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
            temperatures = Schedule.cooling(
                check.largest / scale,
                check.smallest_positive / scale,
                options.n_components,
                alpha=falling.alpha,
                t_min_factor=falling.t_min_factor,
                max_loops=falling.max_temperatures,
            )
        return Schedule(temperatures, options.n_components, steps.tol, steps.max_iter)

    def _given_points(self) -> Floats | None:
        """Return the coordinates that the user gave, in stored units."""
        init = self._init
        if isinstance(init, str):
            if self.free is not None:
                raise ConfigError("fixed points need coordinates: give init as an array (n, n_components)")
            return None
        points = floats("init", init)
        expected = (self._matrix.n, self._options.n_components)
        if points.shape != expected:
            raise ConfigError(f"init has shape {points.shape}; it is (n, n_components) = {expected}")
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
        from tartan.analytics.maps.smacof_gpu import GpuPasses
        from tartan.devices import open_device

        return GpuPasses(self.problem, open_device("cuda"), self._monitor)

    def _solve(self, passes: Passes) -> Solve:
        problem, steps = self.problem, self._options.steps
        if problem.exact:
            return ExactSolve(problem.n, self.free)
        shape = (problem.n, problem.dim)
        return GradientSolve(passes, shape, self.free, max_iter=steps.cg_max_iter, tol=steps.cg_tol)

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
        raise ConfigError(f"fixed has shape {given.shape}, type {given.dtype}; it is a list of points, or n booleans")
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
