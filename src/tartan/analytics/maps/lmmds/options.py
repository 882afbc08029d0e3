"""Checks the options of least-squares maps and puts them into groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan import _native
from tartan.analytics.maps.lmmds.damped import Method, StepLimits
from tartan.analytics.maps.lmmds.objective import WEIGHTINGS
from tartan.analytics.maps.start import STARTS
from tartan.base.checks import FINITE, NOT_NEGATIVE, POSITIVE, Fit, flag, floats, number, one_of, whole
from tartan.errors import ConfigError

_SHARE: Fit = ("a share, 0 to 1", lambda value: 0 <= value <= 1)
_BELOW_ONE: Fit = ("a number, 0 or more and below 1", lambda value: 0 <= value < 1)
_ABOVE_ZERO: Fit = ("a number above 0", lambda value: value > 0)
_SECONDS: Fit = ("a number, 0 or more", lambda value: value >= 0)


@dataclass(frozen=True)
class Weighing:
    """Which pairs count, and what they weigh; without a cut it is infinite, without a missing value NaN."""

    weighting: str
    formula: str
    minimum_distance: float
    multiplier: float
    bins: tuple[float, ...]
    missing_value: float | None
    distance_cut: float

    @staticmethod
    def of(given: Mapping[str, Any]) -> Weighing:
        """Check the options of pairs."""
        cut, missing = given["distance_cut"], given["missing_value"]
        return Weighing(
            weighting=one_of("weighting", given["weighting"], tuple(WEIGHTINGS)),
            formula=one_of("formula", given["formula"], ("distance", "squared")),
            minimum_distance=number("minimum_distance", given["minimum_distance"], FINITE),
            multiplier=number("multiplier", given["multiplier"], POSITIVE),
            bins=_ascending("bins", given["bins"]),
            missing_value=None if missing is None else number("missing_value", missing, NOT_NEGATIVE),
            distance_cut=math.inf if cut is None else number("distance_cut", cut, _ABOVE_ZERO),
        )


def _ascending(name: str, given: Any) -> tuple[float, ...]:
    if given is None:
        return ()
    limits = floats(name, given)
    if limits.ndim != 1 or not len(limits) or np.isnan(limits).any() or (np.diff(limits) <= 0).any():
        raise ConfigError(f"{name} is {given}; limits of bins ascend", context={"option": name})
    return tuple(limits.tolist())


@dataclass(frozen=True)
class PointChoice:
    """Which points are placed, which stay, and which are left out."""

    varied: Any
    fixed: Any
    link_cut: int | None
    max_left_out: float

    @staticmethod
    def of(given: Mapping[str, Any]) -> PointChoice:
        """Check the options of points; ``varied`` and ``fixed`` are checked where the points are known."""
        cut = given["link_cut"]
        return PointChoice(
            varied=given["varied"],
            fixed=given["fixed"],
            link_cut=None if cut is None else whole("link_cut", cut),
            max_left_out=number("max_left_out", given["max_left_out"], _SHARE),
        )


@dataclass(frozen=True)
class LmmdsOptions:
    """The options of ``LMMDS``, checked, in groups; ``limits.small_gain`` is that of one varied point."""

    n_components: int
    weighing: Weighing
    points: PointChoice
    gauge: str
    limits: StepLimits
    init: str
    n_init: int
    calculate_fixed: bool

    @staticmethod
    def of(given: Mapping[str, Any]) -> LmmdsOptions:
        """Check all options, given by name.

        Raises
        ------
        ConfigError
            If one is not what it must be.
        """
        if given["callback"] is not None and not callable(given["callback"]):
            raise ConfigError(f"callback is {given['callback']!r}; it must be a function of one step")
        return LmmdsOptions(
            n_components=whole("n_components", given["n_components"], 1, _native.CHISQ_MAX_DIMENSION),
            weighing=Weighing.of(given),
            points=PointChoice.of(given),
            gauge=one_of("gauge", given["gauge"], ("free", "pinned")),
            limits=_limits(given),
            init=one_of("init", given["init"], STARTS),
            n_init=whole("n_init", given["n_init"], 1),
            calculate_fixed=flag("calculate_fixed", given["calculate_fixed"]),
        )


def _limits(given: Mapping[str, Any]) -> StepLimits:
    seconds = given["max_seconds"]
    return StepLimits(
        max_iter=whole("max_iter", given["max_iter"]),
        small_gain=number("tol", given["tol"], NOT_NEGATIVE),
        max_rejected=whole("max_rejected", given["max_rejected"], 1),
        max_seconds=None if seconds is None else number("max_seconds", seconds, _SECONDS),
        method=_method(given),
    )


def _method(given: Mapping[str, Any]) -> Method:
    return Method(
        damping=number("damping", given["damping"], POSITIVE),
        damping_floor=number("damping_floor", given["damping_floor"], NOT_NEGATIVE),
        accept_ratio=number("accept_ratio", given["accept_ratio"], NOT_NEGATIVE),
        n_steepest=whole("n_steepest", given["n_steepest"]),
        cg_max_iter=whole("cg_max_iter", given["cg_max_iter"], 1),
        cg_tol=number("cg_tol", given["cg_tol"], _BELOW_ONE),
        exact=flag("second_derivatives", given["second_derivatives"]),
    )
