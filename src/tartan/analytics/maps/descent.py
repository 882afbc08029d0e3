"""The two loops of deterministic annealing: SMACOF to convergence at each temperature, and the temperatures.

References
----------
Bae, Qiu, Fox: High performance multidimensional scaling for large high-dimensional data visualization (2012).
Klock, Buhmann: Data visualization by multidimensional scaling: a deterministic annealing approach (2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tartan.analytics.maps.acceleration import Acceleration
from tartan.analytics.maps.guttman import Solve
from tartan.analytics.maps.smacof import Floats, Passes
from tartan.analytics.monitor import Monitor

#: Temperatures below this share of the first one do nothing.
#: By judgement: far below what float32 coordinates can tell. `tartan bench mds` holds the stress.
_COLD = 1e-9
#: The lowest temperature but 0, as a share of that at which the smallest dissimilarity vanishes.
#: By rule of the published program (TminFactor).
_LOWEST = 0.5


@dataclass(frozen=True)
class Schedule:
    """Temperatures, and when to leave each.

    Attributes
    ----------
    temperatures : tuple of float
        Falling; the last is 0 unless the number of loops is limited. In stored units.
    dim : int
    tol : float
        Fall of the stress that ends the loop at a temperature; 0: only ``max_iter`` does.
    max_iter : int
        Most steps at a temperature.
    """

    temperatures: tuple[float, ...]
    dim: int
    tol: float
    max_iter: int

    @staticmethod
    def list_temperatures(
        largest: float, smallest: float, dim: int, *, alpha: float, max_loops: int | None
    ) -> tuple[float, ...]:
        """Return alpha^(k+1) times the highest temperature, down to the lowest, and 0.

        The highest temperature is where all dissimilarities up to ``largest`` vanish; the lowest is half of that of
        ``smallest``.
        """
        unit = (2.0 * dim) ** 0.5
        found = list(_yield_temperatures(alpha * largest / unit, _LOWEST * smallest / unit, alpha))
        return tuple(found if max_loops is None else found[:max_loops])

    def diff(self, temperature: float) -> float:
        """Return what a temperature takes off every dissimilarity: sqrt(2 dim) T."""
        return 0.0 if temperature <= _COLD * self.temperatures[0] else (2.0 * self.dim) ** 0.5 * temperature


def _yield_temperatures(temperature: float, lowest: float, alpha: float) -> Iterator[float]:
    """Yield temperatures; what is below the lowest is 0, and 0 is the last."""
    while temperature > 0.0:
        yield temperature
        temperature *= alpha
        temperature = 0.0 if temperature < lowest else temperature
    yield 0.0


@dataclass
class Descent:
    """Where the embedding is, and how it got there.

    Attributes
    ----------
    points : ndarray of float64, shape (n, dim)
        In stored units.
    stress : float
        At the current temperature, normalised.
    loop, n_iter, n_here, n_passes : int
        Temperatures done, steps in all, steps at this temperature, passes over the matrix for residuals.
    history : list of float
        The stress after every pass of this temperature.
    temperatures : list of (float, int, float)
        Temperature, steps and stress at the end of each loop.
    """

    passes: Passes
    solve: Solve
    acceleration: Acceleration
    squares: float
    points: Floats
    stress: float = np.inf
    loop: int = 0
    n_iter: int = 0
    n_here: int = 0
    n_passes: int = 0
    history: list[float] = field(default_factory=list)
    temperatures: list[tuple[float, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.residual = np.empty_like(self.points)
        self._spare = np.empty_like(self.points)

    def look(self, diff: float) -> None:
        """Compute the residual and the stress of the current points."""
        self.stress = self._pass(self.points, diff, self.residual)
        self.history.append(self.stress)

    def _pass(self, points: Floats, diff: float, out: Floats) -> float:
        self.n_passes += 1
        return self.passes.residual(points, diff, out) / self.squares

    def step(self, diff: float) -> float:
        """Take a step; return by how much the stress fell."""
        step = self.acceleration.propose(self.residual, self.solve)
        stress = self._try(step, diff)
        shorter = self.acceleration.shorten(step, self.residual, self.stress * self.squares, stress * self.squares)
        if shorter < 1.0:
            step = step * shorter
            stress = self._try(step, diff)
            if self.acceleration.shorten(step, self.residual, self.stress * self.squares, stress * self.squares) < 1.0:
                return self._plain_step(diff)
        return self._take(step, stress)

    def _plain_step(self, diff: float) -> float:
        """Take a step that cannot fail, without what was learnt; where only rounding is left, stay."""
        self.acceleration.forget()
        step = self.solve(self.residual)
        stress = self._try(step, diff)
        if stress <= self.stress:
            return self._take(step, stress)
        self.n_iter, self.n_here = self.n_iter + 1, self.n_here + 1
        return 0.0

    def _try(self, step: Floats, diff: float) -> float:
        """Return the stress after a step; its residual goes to the spare place."""
        return self._pass(self.points + step, diff, self._spare)

    def _take(self, step: Floats, stress: float) -> float:
        self.acceleration.learn(step, self.residual - self._spare)
        self.residual, self._spare = self._spare, self.residual
        fall = self.stress - stress
        self.points, self.stress = self.points + step, stress
        self.n_iter, self.n_here = self.n_iter + 1, self.n_here + 1
        self.history.append(stress)
        return fall

    def next_temperature(self, temperature: float) -> None:
        """Record a finished temperature and begin the next."""
        self.temperatures.append((temperature, self.n_here, self.stress))
        self.loop, self.n_here = self.loop + 1, 0
        self.acceleration.forget()

    def state(self) -> dict[str, Any]:
        """Return what a restart needs to continue identically."""
        return {
            "points": self.points,
            "residual": self.residual,
            "stress": self.stress,
            "counts": np.array([self.loop, self.n_iter, self.n_here, self.n_passes, self.solve.n_products]),
            "history": np.array(self.history),
            "temperatures": np.array(self.temperatures, np.float64).reshape(-1, 3),
            **self.acceleration.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a state back."""
        self.points, self.residual = state["points"].copy(), state["residual"].copy()
        self.stress = float(state["stress"])
        self.loop, self.n_iter, self.n_here, self.n_passes, self.solve.n_products = map(int, state["counts"])
        self.history = list(map(float, state["history"]))
        self.temperatures = [(float(t), int(n), float(s)) for t, n, s in state["temperatures"]]
        self.acceleration.restore(state)


def anneal(descent: Descent, schedule: Schedule, monitor: Monitor, unit: float) -> None:
    """Run the loops from where the descent stands; ``unit`` turns stored units into the user's for reports."""
    while descent.loop < len(schedule.temperatures):
        temperature = schedule.temperatures[descent.loop]
        _settle(descent, schedule, temperature, monitor, unit)
        descent.next_temperature(temperature)


def _settle(descent: Descent, schedule: Schedule, temperature: float, monitor: Monitor, unit: float) -> None:
    """Steps at one temperature until the stress falls by less than the tolerance."""
    diff = schedule.diff(temperature)
    if descent.n_here == 0:
        descent.look(diff)
    fall = np.inf
    while descent.n_here < schedule.max_iter:
        fall = descent.step(diff)
        share = descent.loop / max(len(schedule.temperatures), 1)
        at = {"temperature": temperature * unit, "stress": descent.stress}
        monitor.report("anneal" if diff else "settle", share=share if diff else None, **at)
        if schedule.tol > 0.0 and fall < schedule.tol:
            return
        if monitor.checkpoint is not None:  # a state takes time to gather
            monitor.save(descent.state())
