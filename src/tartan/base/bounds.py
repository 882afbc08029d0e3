"""Bounds on scores: rounded to the type of the scores, and inclusive. Every comparison with a bound asks here.

A score of 0.1 that is kept in float32 is 0.100000001, and beyond the 0.1 that a user types. So the bound is rounded as
the score was, and what is equal to it is within it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike, NDArray

Values = NDArray[np.float64]

#: Means are sums of many rounded values: each is right to this share of it in float64.
#: By arithmetic: 2.2e-16 for each of some thousand terms.
_ARITHMETIC = 1e-12


def round_bound(bound: float, dtype: DTypeLike) -> float:
    """Return a bound as scores of a type have it; whole numbers leave it as it is."""
    kind = np.dtype(dtype)
    with np.errstate(over="ignore"):  # beyond all scores: infinite
        return float(np.asarray(bound).astype(kind)) if kind.kind == "f" else float(bound)


def slack_of_means(bound: float, dtype: DTypeLike) -> float:
    """Return how far from a bound rounding may put a mean of scores of a type that is equal to it."""
    kind = np.dtype(dtype)
    step = float(np.finfo(kind).eps) if kind.kind == "f" else 0.0
    return abs(bound) * max(step / 2, _ARITHMETIC)


def compute_spacing(values: Values, dtype: DTypeLike) -> Values:
    """Return how far apart numbers of a type are at some values; whole numbers are not rounded."""
    kind = np.dtype(dtype)
    if kind.kind != "f":
        return np.zeros_like(values)
    steps: Values = np.spacing(np.abs(values).astype(kind)).astype(np.float64)
    return steps


def bound_rounding(function: Callable[[Values], Values], scores: Values, step: Values | float) -> tuple[Values, Values]:
    """Return the least and the largest distance that a function makes of scores, and of what is a step beside them."""
    with np.errstate(all="ignore"):
        made = [function(scores + shift) for shift in (-step, 0.0, step)]
    return np.fmin.reduce(made), np.fmax.reduce(made)
