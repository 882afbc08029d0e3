"""Registration written again, in float64 NumPy and SciPy: the published rule, and a search that leaves little out.

Nothing here is shared with the kernels of Tartan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

Array = NDArray[np.float64]

BOUNDS = [(-1.0, 1.0), (-1.0, 1.0), (-2 * np.pi, 2 * np.pi)]


def moved(points: Array, motion: Any) -> tuple[Array, Array]:
    """Return the points at a motion, and how they change with its angle."""
    cos, sin = np.cos(motion[2]), np.sin(motion[2])
    x, y = points[:, 0], points[:, 1]
    turned = np.column_stack([cos * x - sin * y, sin * x + cos * y])
    return turned + motion[:2], np.column_stack([-turned[:, 1], turned[:, 0]])


def overlap(motion: Any, a: Array, b: Array, scale: float | None) -> tuple[float, Array]:
    """Return F at a scale, or B without one, and the gradient."""
    at, turning = moved(a, motion)
    dx, dy = at[:, 0, None] - b[None, :, 0], at[:, 1, None] - b[None, :, 1]
    square = dx * dx + dy * dy
    if scale is None:
        v = a[:, 2, None] ** 2 + b[None, :, 2] ** 2
        terms = np.exp(-square / (2 * v)) / v
        weights = terms / v
        value, factor = terms.sum(), 1.0
    else:
        weights = np.exp(-square / scale**2)
        value, factor = weights.sum() / weights.size, 2 / (scale**2 * weights.size)
    gx, gy = -factor * (weights * dx).sum(axis=1), -factor * (weights * dy).sum(axis=1)
    theta = (gx * turning[:, 0] + gy * turning[:, 1]).sum()
    return float(value), np.array([gx.sum(), gy.sum(), theta])


def climb(a: Array, b: Array, start: Any, scale: float | None, **options: Any) -> tuple[float, Array, int]:
    """Maximise from a start with L-BFGS-B; return the value, the motion and the evaluations."""
    unit = 1.0 if scale is not None else max(overlap(start, a, b, None)[0], 1e-300)

    def cost(motion: Any) -> tuple[float, Array]:
        value, gradient = overlap(motion, a, b, scale)
        return -value / unit, -gradient / unit

    found = scipy.optimize.minimize(cost, start, jac=True, method="L-BFGS-B", bounds=BOUNDS, options=options)
    return -float(found.fun) * unit, found.x, int(found.nfev)


def published(a: Array, b: Array, starts: int = 6, scale: float = 0.01) -> tuple[float, Array]:
    """Return B and the motion by the published rule: L-BFGS-B on F from six angles, the best B."""
    best = (-np.inf, np.zeros(3))
    for k in range(starts):
        _, motion, _ = climb(a, b, [0.0, 0.0, -np.pi + 2 * np.pi * k / starts], scale, maxfun=200)
        best = max(best, (overlap(motion, a, b, None)[0], motion), key=lambda found: found[0])
    return best


def thorough(a: Array, b: Array, starts: int = 96, kept: int = 16) -> float:
    """Return the best B of a search from 96 angles at three scales, ended by a simplex."""
    s0 = float(np.sqrt(np.median(a[:, 2] ** 2) + np.median(b[:, 2] ** 2)))
    rng = np.random.default_rng(0)
    few = [one[rng.permutation(len(one))[:200]] for one in (a, b)]
    centre = [one[:, :2].mean(axis=0) for one in (a, b)]
    coarse = []
    for k in range(starts):
        theta = -np.pi + 2 * np.pi * k / starts
        turned, _ = moved(np.array([[*centre[0], 0.0]]), [0.0, 0.0, theta])
        _, motion, _ = climb(*few, [*(centre[1] - turned[0]), theta], 4 * s0, maxfun=40)
        value, motion, _ = climb(*few, motion, 2 * s0, maxfun=40)
        coarse.append((overlap(motion, a, b, 2 * s0)[0], motion))
    coarse.sort(key=lambda found: -found[0])
    fine = []
    for _, motion in coarse:
        if len(fine) < kept and all(np.abs(motion - other)[:2].sum() > 1e-3 or abs(motion - other)[2] > 5e-3
                                    for other, _ in fine):  # fmt: skip
            fine.append((motion, climb(a, b, motion, None, maxfun=60)))
    value, motion, _ = max((found for _, found in fine), key=lambda found: found[0])
    polished = scipy.optimize.minimize(
        lambda m: -overlap(m, a, b, None)[0] / value, motion, method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-9, "initial_simplex": motion + 1e-3 * np.vstack([np.zeros(3), np.eye(3)])},
    )  # fmt: skip
    return max(value, -float(polished.fun) * value)
