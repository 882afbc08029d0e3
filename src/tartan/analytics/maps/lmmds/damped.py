"""Levenberg-Marquardt with conjugate gradients: one damped least-squares problem after the other, matrix-free.

A step solves (S H S + Q I) y = S g with S = diag(H)^(-1/2), and goes to x - S y. It is taken only if chi2 falls. The
damping Q follows the ratio of the true and the predicted fall.

References
----------
Levenberg: A method for the solution of certain non-linear problems in least squares. Q. Appl. Math. 2 (1944) 164-168.
Marquardt: An algorithm for least-squares estimation of nonlinear parameters. J. SIAM 11 (1963) 431-441.
Nielsen: Damping parameter in Marquardt's method. Technical University of Denmark, IMM-REP-1999-05 (the change of Q).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tartan.base.checks import NOT_NEGATIVE, Fit, flag, number
from tartan.base.signatures import Checked, FromZero

Floats = NDArray[np.float64]
# By arithmetic: its inverse root is finite.
_TINY = 1e-300
# By arithmetic: half of the digits of float64.
_Q_CEILING = 1e8  # times the largest eigenvalue: with more damping than that a step is lost in rounding
# By judgement: a damping that is wrong by orders is found by doublings. `tartan bench chisq` holds the time.
_STARTING_STEPS = 8
# _FIRST_DAMPING by rule of the published program (QHighInitialFactor). _LEAST_DAMPING by judgement: rounding makes
# smaller ones none. `tartan bench chisq`: 0.01 to 10 change which start ends where, not how often badly.
_FIRST_DAMPING, _LEAST_DAMPING = 0.01, 1e-6  # times the largest eigenvalue
# By convention: Nocedal and Wright, Numerical Optimization (2006), section 4.1, take from 0 to 1/4.
_LEAST_RATIO = 1e-4  # of the true fall and the predicted one, below which a step is not taken
# By rule of the published program (nbadgo).
MOST_REJECTED = 6  # steps in a row, with which the iteration ends
# _CG_STEPS by rule of the published program (CGIterationLimit). _CG_TOL by judgement: a rough step costs few products
# and is damped anyway; the program takes 1e-5. `tartan bench chisq` holds the time.
_CG_STEPS, _CG_TOL = 200, 0.3  # of conjugate gradients, for one step
_SECONDS: Fit = ("a number, 0 or more", lambda value: value >= 0)


class LeastSquares(Protocol):
    """A sum of squares of some parameters, all in one vector."""

    def evaluate(self, x: Floats) -> tuple[float, Floats, Floats]:
        """Return chi2, half gradient and the diagonal of the half Hessian of Gauss and Newton."""
        ...

    def product(self, x: Floats, vector: Floats, exact: bool) -> Floats:
        """Return the half Hessian, exact or that of Gauss and Newton, times a vector."""
        ...


@dataclass(frozen=True)
class StepLimits:
    """When to stop, and whether second derivatives count."""

    max_iter: FromZero
    small_gain: Annotated[float, Checked(number, NOT_NEGATIVE, option="tol")]
    max_seconds: Annotated[float | None, Checked(number, _SECONDS)]
    exact: Annotated[bool, Checked(flag, option="second_derivatives")]


@dataclass(frozen=True)
class Step:
    """What one iteration did."""

    iteration: int
    chisq: float
    predicted: float
    ratio: float
    damping: float
    n_products: int
    accepted: bool


@dataclass
class Minimum:
    """The state of the iteration; ``stop_reason`` is "" while it continues."""

    x: Floats
    chisq: float
    damping: float = -1.0
    growth: float = 2.0
    highest: float = 1.0
    rejected: int = 0
    not_finite: int = 0
    iteration: int = 0
    stop_reason: str = ""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return asdict(self)


def minimise(
    problem: LeastSquares,
    start: Minimum,
    limits: StepLimits,
    follow: Callable[[Minimum, Step], bool],
) -> Minimum:
    """Minimise from a start, or from where a checkpoint stands.

    Parameters
    ----------
    problem : LeastSquares
    start : Minimum
        Changed and returned. ``chisq`` need not be known.
    limits : StepLimits
    follow : callable
        Called after each step; a true answer ends the iteration.
    """
    now, began = start, time.monotonic()
    chisq, gradient, diagonal = problem.evaluate(now.x)
    now.chisq = chisq
    while not now.stop_reason:
        if now.iteration >= limits.max_iter:
            now.stop_reason = "max_iter"
        elif limits.max_seconds is not None and time.monotonic() - began >= limits.max_seconds:
            now.stop_reason = "time"
        else:
            found = _iterate(problem, now, gradient, diagonal, limits, follow)
            gradient, diagonal = found if found is not None else (gradient, diagonal)
    return now


def _iterate(
    problem: LeastSquares,
    now: Minimum,
    gradient: Floats,
    diagonal: Floats,
    limits: StepLimits,
    follow: Callable[[Minimum, Step], bool],
) -> tuple[Floats, Floats] | None:
    """Try one step; return the derivatives at the new place if it was taken."""
    if not np.isfinite(now.chisq) or not np.isfinite(gradient).all():
        now.stop_reason = "boundary"
        return None
    if not diagonal.any():
        now.stop_reason = "singular" if gradient.any() else "small_gain"
        return None
    scaled = _Scaled(problem, now.x, gradient, diagonal)
    if now.damping < 0:
        now.highest = _highest(scaled)
        now.damping = _FIRST_DAMPING * now.highest
    solved = _solve_damped_step(scaled, now, limits.exact)
    if solved is None:
        now.stop_reason = "singular"
        return None
    # A prediction that is small because of the damping after failures says nothing.
    if solved.predicted <= limits.small_gain and not now.rejected:
        now.stop_reason = "small_gain"
        return None
    target = now.x - scaled.factors * solved.y
    chisq, new_gradient, new_diagonal = problem.evaluate(target)
    ratio = (now.chisq - chisq) / solved.predicted if np.isfinite(chisq) else -np.inf
    accepted = bool(chisq < now.chisq) and ratio >= _LEAST_RATIO
    damping = now.damping
    if accepted:
        now.x, now.chisq = target, chisq
    _adapt(now, ratio, accepted)
    now.iteration += 1
    now.not_finite = 0 if np.isfinite(chisq) else now.not_finite + 1
    step = Step(now.iteration, now.chisq, solved.predicted, float(ratio), damping, solved.n_products, accepted)
    _stop(now, follow(now, step))
    return (new_gradient, new_diagonal) if accepted else None


def _adapt(now: Minimum, ratio: float, accepted: bool) -> None:
    """Change the damping as Nielsen does: smoothly by the ratio after a success, ever faster after failures."""
    if accepted:
        now.damping *= max(1 / 3, 1 - (2 * ratio - 1) ** 3) if ratio < 2 else 1 / 3
        now.damping = max(now.damping, _LEAST_DAMPING * now.highest)
        now.growth, now.rejected = 2.0, 0
    else:
        now.damping *= now.growth
        now.growth *= 2.0
        now.rejected += 1


def _stop(now: Minimum, asked: bool) -> None:
    if asked:
        now.stop_reason = "user"
    elif now.not_finite >= 3:
        now.stop_reason = "boundary"
    elif now.rejected >= MOST_REJECTED:
        now.stop_reason = "no_progress"


class _Scaled:
    """The problem in units in which the diagonal of the half Hessian is 1."""

    def __init__(self, problem: LeastSquares, x: Floats, gradient: Floats, diagonal: Floats) -> None:
        # With second derivatives an entry may be negative or tiny; a floor keeps the units sensible.
        size = np.maximum(np.abs(diagonal), 1e-6 * np.abs(diagonal).mean())
        self.factors = 1.0 / np.sqrt(np.maximum(size, _TINY))
        self.right = self.factors * gradient
        self._problem, self._x = problem, x

    def product(self, vector: Floats, exact: bool) -> Floats:
        found: Floats = self.factors * self._problem.product(self._x, self.factors * vector, exact)
        return found


@dataclass(frozen=True)
class _Solved:
    y: Floats
    predicted: float
    n_products: int


def _solve_damped_step(scaled: _Scaled, now: Minimum, exact: bool) -> _Solved | None:
    """Solve for a step; where the first direction has negative curvature, with more damping. None: no damping helps."""
    n_products = 0
    while now.damping <= _Q_CEILING * now.highest:
        solved = _conjugate_gradients(scaled, now, exact)
        n_products += solved.n_products
        if solved.predicted > 0 or not scaled.right.any():
            return replace(solved, n_products=n_products)
        now.damping *= 4.0
    return None


def _conjugate_gradients(scaled: _Scaled, now: Minimum, exact: bool) -> _Solved:
    """Solve (A + Q) y = b from 0, up to the first direction of negative curvature (Steihaug).

    The largest eigenvalue of A is estimated on the way.
    """
    b = scaled.right
    y, r = np.zeros_like(b), b.copy()
    p, rr = r, float(r @ r)
    stop = _CG_TOL**2 * rr
    n = 0
    while n < _CG_STEPS and rr > stop:
        q = scaled.product(p, exact) + now.damping * p
        n += 1
        curvature = float(p @ q)
        if not curvature > 0:
            break
        now.highest = max(now.highest, curvature / float(p @ p) - now.damping)
        a = rr / curvature
        y = y + a * p
        r = r - a * q
        rr, before = float(r @ r), rr
        p = r + (rr / before) * p
    # b - r = (A + Q) y, so that 2 y.b - y.A y is this.
    predicted = float(y @ (b + r) + now.damping * (y @ y))
    return _Solved(y, predicted, n)


def _highest(scaled: _Scaled) -> float:
    """Estimate the largest eigenvalue by a few steps of the power method from the gradient."""
    vector, highest = scaled.right, 1.0
    for _ in range(_STARTING_STEPS):
        size = float(np.sqrt(vector @ vector))
        if size == 0.0:
            break
        vector = scaled.product(vector / size, exact=False)
        highest = max(highest, float(np.sqrt(vector @ vector)))
    return highest


def restore_minimum(state: Mapping[str, Any], x: Floats) -> Minimum:
    """Return where a checkpoint stands."""
    names = set(Minimum.__dataclass_fields__) - {"x"}
    return Minimum(x=x, **{name: state[name] for name in names})
