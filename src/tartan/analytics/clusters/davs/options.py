"""Checks the options of vector-sponge clustering and puts them into groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.davs.field import CHUNK
from tartan.analytics.clusters.davs.model import (
    Cooling,
    Masses,
    NearLists,
    Removal,
    Scales,
    Splitting,
    SpongeSettings,
    Stopping,
)
from tartan.base.checks import FRACTION, NOT_NEGATIVE, POSITIVE, Fit, flag, number, one_of, whole
from tartan.errors import ConfigError

_LONGEST = 65_535 // CHUNK  # of a list: places in the lists of a chunk are 16 bits wide
_SMALL_ENOUGH: Fit = ("a number above 0, 1e100 or less", lambda value: 0 < value <= 1e100)


def checked(given: Mapping[str, Any], points: NDArray[np.float64]) -> SpongeSettings:
    """Return the settings for these points.

    Parameters
    ----------
    given : mapping
        All options of `DAVS` by name.
    points : ndarray, shape (n, d)

    Raises
    ------
    ConfigError
        If an option is out of its range or does not fit to the points; the message names it.
    """
    one_of("assignment", given["assignment"], ("distance", "mass"))
    return SpongeSettings(
        scales=_scales(given, points),
        cooling=_cooling(given, len(points)),
        splitting=_splitting(given, len(points)),
        removal=_removal(given),
        masses=_masses(given),
        lists=_lists(given),
        stopping=_stopping(given),
    )


def _scales(given: Mapping[str, Any], points: NDArray[np.float64]) -> Scales:
    scaling = one_of("scaling", given["scaling"], ("absolute", "relative", "annealed"))
    dim = points.shape[1]
    listed: list[Any] = np.atleast_1d(np.asarray(given["sigma"], dtype=object)).tolist()
    sigma = tuple(number("sigma", value, POSITIVE) for value in (listed * dim if len(listed) == 1 else listed))
    if len(sigma) != dim:
        raise _wrong("sigma", given["sigma"], f"one number, or one for each of {dim} coordinates")
    if scaling != "absolute" and points[:, 0].min() <= 0:
        row = int(points[:, 0].argmin())
        raise ConfigError(
            f"X: coordinate 0 is {points[row, 0]} in row {row}; with scaling {scaling!r} it must be positive"
        )
    initial = _optional(given, "initial_sigma")
    switch = number("final_sigma_temperature", given["final_sigma_temperature"], POSITIVE)
    return Scales(scaling, sigma, 100 * sigma[0] if initial is None else initial, switch)


def _cooling(given: Mapping[str, Any], n_points: int) -> Cooling:
    low, restart = _optional(given, "min_temperature"), _optional(given, "restart_temperature")
    if low is not None and restart is not None and restart < low:
        raise _wrong("restart_temperature", restart, f"at least min_temperature, {low}")
    return Cooling(
        min_temperature=low,
        temperature_ratio=number("temperature_ratio", given["temperature_ratio"], POSITIVE),
        cooling=_pair("cooling", given["cooling"], FRACTION),
        cooling_below=_pair("cooling_below", given["cooling_below"], FRACTION),
        cooling_switch=number("cooling_switch", given["cooling_switch"], POSITIVE),
        sample=n_points if given["sample"] is None else whole("sample", given["sample"], 1),
    )


def _splitting(given: Mapping[str, Any], n_points: int) -> Splitting:
    most, splits = given["max_clusters"], given["max_splits"]
    if most is not None and whole("max_clusters", most, 1) > n_points:
        raise _wrong("max_clusters", most, f"at most the number of points, {n_points}")
    return Splitting(
        max_clusters=n_points if most is None else int(most),
        max_splits=n_points if splits is None else whole("max_splits", splits, 1),
        min_split_width=number("min_split_width", given["min_split_width"], NOT_NEGATIVE),
        min_split_count=number("min_split_count", given["min_split_count"], NOT_NEGATIVE),
        wait=whole("wait", given["wait"]),
        wait_after_removal=whole("wait_after_removal", given["wait_after_removal"]),
    )


def _removal(given: Mapping[str, Any]) -> Removal:
    names = ("min_count", "min_count_with_sponge", "closeness", "closeness_temperature")
    numbers = {name: number(name, given[name], NOT_NEGATIVE) for name in names}
    return Removal(min_points=whole("min_points", given["min_points"]), **numbers)


def _masses(given: Mapping[str, Any]) -> Masses:
    sponge = one_of("sponge", given["sponge"], ("never", "late", "always"))
    last = number("sponge_factor", given["sponge_factor"], _SMALL_ENOUGH)
    first, prior = given["sponge_factor_start"], given["sponge_prior"]
    temperatures, width = given["sponge_temperatures"], _optional(given, "sponge_width")
    if temperatures is not None:
        temperatures = _pair("sponge_temperatures", temperatures, POSITIVE)
        if temperatures[0] <= temperatures[1]:
            raise _wrong("sponge_temperatures", temperatures, "a higher temperature and a lower one")
    if sponge == "late" and temperatures is None and width is None:
        raise ConfigError("sponge is 'late' without a time: give sponge_temperatures or sponge_width")
    return Masses(
        priors=flag("priors", given["priors"]),
        sponge=sponge,
        sponge_factors=(last if first is None else number("sponge_factor_start", first, _SMALL_ENOUGH), last),
        sponge_temperatures=temperatures,
        sponge_width=width,
        sponge_prior=None if prior is None else number("sponge_prior", prior, FRACTION),
    )


def _lists(given: Mapping[str, Any]) -> NearLists:
    lengths = given["centers_per_point"]
    least, most = _pair("centers_per_point", lengths, POSITIVE)
    if not (least.is_integer() and most.is_integer() and 1 <= least <= most <= _LONGEST):
        raise _wrong("centers_per_point", lengths, f"a least and a largest length, 1 to {_LONGEST}")
    return NearLists(
        centers_per_point=(int(least), int(most)),
        cuts=_pair("cuts", given["cuts"], POSITIVE),
        refresh=whole("refresh", given["refresh"], 1),
    )


def _stopping(given: Mapping[str, Any]) -> Stopping:
    return Stopping(
        tol=number("tol", given["tol"], NOT_NEGATIVE),
        max_iter=whole("max_iter", given["max_iter"], 1),
        final_tol=number("final_tol", given["final_tol"], NOT_NEGATIVE),
        final_max_iter=whole("final_max_iter", given["final_max_iter"], 1),
    )


def _wrong(name: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}; it must be {wanted}", context={"option": name})


def _optional(given: Mapping[str, Any], name: str) -> float | None:
    return None if given[name] is None else number(name, given[name], POSITIVE)


def _pair(name: str, values: Any, fit: Fit) -> tuple[float, float]:
    try:
        first, second = values
    except (TypeError, ValueError):
        raise _wrong(name, values, "two numbers") from None
    return number(name, first, fit), number(name, second, fit)
