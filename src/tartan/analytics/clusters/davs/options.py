"""Checks the options of vector-sponge clustering and puts them into groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.davs.model import SpongeSettings
from tartan.base.checks import POSITIVE, Fit, number, one_of, wrong_option
from tartan.base.option_groups import grouped
from tartan.errors import ConfigError

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
    unlimited = {name: len(points) for name in ("sample", "max_clusters", "max_splits") if given[name] is None}
    found = grouped(
        SpongeSettings, {**given, **unlimited, **_scales(given, points), "sponge_factors": _sponge_factors(given)}
    )
    _refuse_contradictions(found, given, len(points))
    return found


def _scales(given: Mapping[str, Any], points: NDArray[np.float64]) -> dict[str, Any]:
    scaling = one_of("scaling", given["scaling"], ("absolute", "relative", "annealed"))
    dim = points.shape[1]
    listed: list[Any] = np.atleast_1d(np.asarray(given["sigma"], dtype=object)).tolist()
    sigma = tuple(number("sigma", value, POSITIVE) for value in (listed * dim if len(listed) == 1 else listed))
    if len(sigma) != dim:
        raise wrong_option("sigma", given["sigma"], f"one number, or one for each of {dim} coordinates")
    if scaling != "absolute" and points[:, 0].min() <= 0:
        row = int(points[:, 0].argmin())
        raise ConfigError(
            f"X: coordinate 0 is {points[row, 0]} in row {row}; with scaling {scaling!r} it must be positive"
        )
    initial = given["initial_sigma"]
    initial = 100 * sigma[0] if initial is None else number("initial_sigma", initial, POSITIVE)
    return {"sigma": sigma, "initial_sigma": initial}


def _sponge_factors(given: Mapping[str, Any]) -> tuple[float, float]:
    last, first = number("sponge_factor", given["sponge_factor"], _SMALL_ENOUGH), given["sponge_factor_start"]
    return last if first is None else number("sponge_factor_start", first, _SMALL_ENOUGH), last


def _refuse_contradictions(found: SpongeSettings, given: Mapping[str, Any], n_points: int) -> None:
    """Raise ConfigError where options are right one by one, but not together."""
    low, restart, masses = found.cooling.min_temperature, given["restart_temperature"], found.masses
    if restart is not None and number("restart_temperature", restart, POSITIVE) < (low or 0.0):
        raise wrong_option("restart_temperature", restart, f"at least min_temperature, {low}")
    if found.splitting.max_clusters > n_points:
        raise wrong_option("max_clusters", found.splitting.max_clusters, f"at most the number of points, {n_points}")
    temperatures = masses.sponge_temperatures
    if temperatures is not None and temperatures[0] <= temperatures[1]:
        raise wrong_option("sponge_temperatures", temperatures, "a higher temperature and a lower one")
    if masses.sponge == "late" and temperatures is None and masses.sponge_width is None:
        raise ConfigError("sponge is 'late' without a time: give sponge_temperatures or sponge_width")
