"""Checks the options of least-squares maps and puts them into groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tartan import _native
from tartan.analytics.maps.lmmds.damped import StepLimits
from tartan.analytics.maps.lmmds.objective import WEIGHTINGS
from tartan.analytics.maps.start import STARTS
from tartan.base.checks import FINITE, NOT_NEGATIVE, Fit, check_one_of, floats, number, whole
from tartan.base.signatures import Checked, Flag, FromOne, Positive
from tartan.errors import ConfigError

_SHARE: Fit = ("a share, 0 to 1", lambda value: 0 <= value <= 1)
_ABOVE_ZERO: Fit = ("a number above 0", lambda value: value > 0)


def _check_ascending(name: str, given: Any) -> tuple[float, ...]:
    if given is None:
        return ()
    limits = floats(name, given)
    if limits.ndim != 1 or not len(limits) or np.isnan(limits).any() or (np.diff(limits) <= 0).any():
        raise ConfigError(f"{name} is {given}; limits of bins ascend", context={"option": name})
    return tuple(limits.tolist())


def _cut(name: str, given: Any) -> float:
    return math.inf if given is None else number(name, given, _ABOVE_ZERO)


def _function(name: str, given: Any) -> Any:
    if not callable(given):
        raise ConfigError(f"{name} is {given!r}; it must be a function of one step")
    return given


@dataclass(frozen=True)
class Weighing:
    """Which pairs count, and what they weigh; without a cut it is infinite, without a missing value NaN."""

    weighting: Annotated[str, Checked(check_one_of, tuple(WEIGHTINGS))]
    formula: Annotated[str, Checked(check_one_of, ("distance", "squared"))]
    minimum_distance: Annotated[float, Checked(number, FINITE)]
    multiplier: Positive
    bins: Annotated[tuple[float, ...], Checked(_check_ascending)]
    missing_value: Annotated[float | None, Checked(number, NOT_NEGATIVE)]
    distance_cut: Annotated[float, Checked(_cut)]


@dataclass(frozen=True)
class PointChoice:
    """Which points are placed, which stay, and which are left out.

    ``varied`` and ``fixed`` are checked where the points are known.
    """

    varied: Any
    fixed: Any
    link_cut: Annotated[int | None, Checked(whole)]
    max_left_out: Annotated[float, Checked(number, _SHARE)]


@dataclass(frozen=True)
class LmmdsOptions:
    """The options of ``LMMDS``, checked, in groups; ``limits.small_gain`` is that of one varied point."""

    n_components: Annotated[int, Checked(whole, 1, _native.CHISQ_MAX_DIMENSION)]
    weighing: Weighing
    points: PointChoice
    gauge: Annotated[str, Checked(check_one_of, ("free", "pinned"))]
    limits: StepLimits
    init: Annotated[str, Checked(check_one_of, STARTS)]
    n_init: FromOne
    calculate_fixed: Flag
    callback: Annotated[Callable[[dict[str, Any]], Any] | None, Checked(_function)]
