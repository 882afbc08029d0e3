"""Steps that lower the stress faster than SMACOF's; none may raise it.

A plain step X' = X + V^+ r, with r the residual B(X) X - V X, never raises the stress. It is also the gradient step in
the metric of V, since -2 r is the gradient. L-BFGS in this metric (its first direction is the plain step) needs a
third of the passes to the usual tolerance and a seventh to a fine one. A step that does not lower the stress enough is
shortened once; if that does not help it is thrown away, its memory with it, and a plain one is taken.

References
----------
Nocedal: Updating quasi-Newton matrices with limited storage. Math. Comp. 35 (1980) 773-782.
Rosman, Bronstein, Bronstein, Sidi, Kimmel: Fast multidimensional scaling using vector extrapolation. Technion
CIS-2008-01 (acceleration of SMACOF, with a safeguard).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from tartan.analytics.maps.guttman import Solve
from tartan.analytics.maps.smacof import Floats, inner

#: Share of the fall that the slope predicts which a step must reach (Armijo's rule).
#: By convention: Nocedal and Wright, Numerical Optimization (2006), section 3.1.
_SUFFICIENT = 1e-4
#: Steps that L-BFGS learns from.
#: By convention: Nocedal and Wright (2006), section 7.2, say 3 to 20; SciPy's L-BFGS-B has 10. `tartan bench mds`
#: counts passes.
_REMEMBERED = 10


class Acceleration(Protocol):
    """Propose steps, and learn from those that were taken."""

    def propose(self, residual: Floats, solve: Solve) -> Floats:
        """Return a step from the current points."""
        ...

    def shorten(self, step: Floats, residual: Floats, before: float, after: float) -> float:
        """Return by what to multiply a step that led from one sum of squared errors to another; 1: it is good."""
        ...

    def learn(self, step: Floats, change: Floats) -> None:
        """Learn from an accepted step and the fall of the residual."""
        ...

    def forget(self) -> None:
        """Drop what was learnt."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what a restart needs."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a state back."""
        ...


class Plain:
    """SMACOF itself."""

    def propose(self, residual: Floats, solve: Solve) -> Floats:
        """See :class:`Acceleration`."""
        return solve(residual)

    def shorten(self, step: Floats, residual: Floats, before: float, after: float) -> float:
        """See :class:`Acceleration`: never."""
        return 1.0

    def learn(self, step: Floats, change: Floats) -> None:
        """See :class:`Acceleration`: nothing."""

    def forget(self) -> None:
        """See :class:`Acceleration`: nothing."""

    def state(self) -> dict[str, Any]:
        """See :class:`Acceleration`: empty."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See :class:`Acceleration`: nothing."""


class Lbfgs:
    """Limited-memory BFGS in the metric of the weights."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=_REMEMBERED)

    def propose(self, residual: Floats, solve: Solve) -> Floats:
        """See :class:`Acceleration`: the product of the inverse Hessian as far as known with the residual."""
        if not self._pairs:
            return solve(residual)
        q, shares = residual.copy(), []
        for step, change, curvature in reversed(self._pairs):
            share = inner(step, q) / curvature
            shares.append(share)
            q -= share * change
        step, change, curvature = self._pairs[-1]
        scale = curvature / inner(change, solve.estimate(change))
        d = scale * solve.estimate(q)
        for (step, change, curvature), share in zip(self._pairs, reversed(shares)):
            d += (share - inner(change, d) / curvature) * step
        return d

    def shorten(self, step: Floats, residual: Floats, before: float, after: float) -> float:
        """See :class:`Acceleration`: good if the stress falls by a share of what its slope predicts.

        Otherwise go to the minimum of the parabola through both values and the slope, a tenth to a half of the way.
        """
        slope = 2.0 * inner(step, residual)
        if slope > 0.0 and after <= before - _SUFFICIENT * slope:
            return 1.0
        bend = after - before + slope
        return min(0.5, max(0.1, slope / (2.0 * bend))) if bend > 0.0 else 0.1

    def learn(self, step: Floats, change: Floats) -> None:
        """See :class:`Acceleration`."""
        curvature = inner(step, change)
        size = (inner(step, step) * inner(change, change)) ** 0.5
        if curvature > 1e-10 * size:
            self._pairs.append((step, change, curvature))

    def forget(self) -> None:
        """See :class:`Acceleration`."""
        self._pairs.clear()

    def state(self) -> dict[str, Any]:
        """See :class:`Acceleration`."""
        if not self._pairs:
            return {}
        steps, changes, _ = zip(*self._pairs)
        return {"steps": np.stack(steps), "changes": np.stack(changes)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See :class:`Acceleration`."""
        self.forget()
        for step, change in zip(state.get("steps", ()), state.get("changes", ())):
            self._pairs.append((step, change, inner(step, change)))
