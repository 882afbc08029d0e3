"""Parameters of vector-sponge clustering, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.davs.field import CHUNK
from tartan.analytics.clusters.davs.model import SpongeSettings
from tartan.errors import ConfigError

__all__ = ["checked"]

_CHOICES = {
    "scaling": ("absolute", "relative", "annealed"),
    "sponge": ("never", "late", "always"),
    "assignment": ("distance", "mass"),
}
_POSITIVE = ("final_sigma_temperature", "temperature_ratio", "cooling_switch")
_NOT_NEGATIVE = (
    "min_split_width", "min_split_count", "min_count", "min_count_with_sponge", "closeness", "closeness_temperature",
    "tol", "final_tol",
)  # fmt: skip
_WHOLE = {
    "wait": 0, "wait_after_removal": 0, "min_points": 0, "refresh": 1, "max_iter": 1,
    "final_max_iter": 1,
}  # fmt: skip


_LARGEST_FACTOR = 1e100


def checked(given: Mapping[str, Any], points: NDArray[np.float64]) -> SpongeSettings:
    """Return the settings for these points.

    Raises
    ------
    ConfigError
        If a parameter is out of its range or does not fit to the points; the message names it.
    """
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            raise _wrong(name, given[name], "one of " + ", ".join(map(repr, choices)))
    if not isinstance(given["priors"], bool | np.bool_):
        raise _wrong("priors", given["priors"], "True or False")
    values: dict[str, Any] = {name: _positive(name, given[name]) for name in _POSITIVE}
    values |= {name: _positive(name, given[name], zero=True) for name in _NOT_NEGATIVE}
    values |= {name: _whole(name, given[name], least) for name, least in _WHOLE.items()}
    sigma = _sigma(given, points)
    _check_temperatures(given)
    return SpongeSettings(
        scaling=given["scaling"],
        sigma=sigma,
        initial_sigma=_optional(given, "initial_sigma") or 100 * sigma[0],
        min_temperature=_optional(given, "min_temperature"),
        cooling=_factors("cooling", given["cooling"]),
        cooling_below=_factors("cooling_below", given["cooling_below"]),
        max_clusters=_max_clusters(given["max_clusters"], len(points)),
        max_splits=len(points) if given["max_splits"] is None else _whole("max_splits", given["max_splits"], 1),
        sample=len(points) if given["sample"] is None else _whole("sample", given["sample"], 1),
        priors=bool(given["priors"]),
        **_sponge(given),
        centers_per_point=_list_lengths(given["centers_per_point"]),
        cuts=_pair("cuts", given["cuts"]),
        **values,
    )


def _wrong(name: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"{name}: {value!r} must be {wanted}", context={"option": name})


def _positive(name: str, value: Any, *, zero: bool = False) -> float:
    wanted = "a finite number, " + ("0 or more" if zero else "more than 0")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _wrong(name, value, wanted) from None
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise _wrong(name, value, wanted)
    return number


def _optional(given: Mapping[str, Any], name: str) -> float | None:
    return None if given[name] is None else _positive(name, given[name])


def _whole(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int | np.integer) or value < least:
        raise _wrong(name, value, f"a whole number, {least} or more")
    return int(value)


def _pair(name: str, values: Any) -> tuple[float, float]:
    try:
        first, second = values
    except (TypeError, ValueError):
        raise _wrong(name, values, "two numbers") from None
    return _positive(name, first), _positive(name, second)


def _factors(name: str, values: Any) -> tuple[float, float]:
    factors = _pair(name, values)
    if max(factors) >= 1:
        raise _wrong(name, values, "two numbers below 1, or nothing ever cools")
    return factors


def _list_lengths(values: Any) -> tuple[int, int]:
    first, second = _pair("centers_per_point", values)
    least, most = _whole("centers_per_point", int(first), 1), int(second)
    if most < least or (least, most) != (first, second) or most * CHUNK > 65_535:
        raise _wrong("centers_per_point", values, f"a least and a largest length, 1 to {65_535 // CHUNK}")
    return least, most


def _max_clusters(value: Any, n_points: int) -> int:
    if value is None:
        return n_points
    if _whole("max_clusters", value, 1) > n_points:
        raise _wrong("max_clusters", value, f"at most the number of points, {n_points}")
    return int(value)


def _sigma(given: Mapping[str, Any], points: NDArray[np.float64]) -> tuple[float, ...]:
    dim = points.shape[1]
    listed: list[Any] = np.atleast_1d(np.asarray(given["sigma"], dtype=object)).tolist()
    values: list[float] = [_positive("sigma", value) for value in (listed * dim if len(listed) == 1 else listed)]
    if len(values) != dim:
        raise _wrong("sigma", given["sigma"], f"one number, or one for each of {dim} coordinates")
    if given["scaling"] != "absolute" and points[:, 0].min() <= 0:
        row = int(points[:, 0].argmin())
        raise ConfigError(
            f"X: coordinate 0 is {points[row, 0]} in row {row}; with scaling {given['scaling']!r} it must be positive"
        )
    return (*values,)


def _check_temperatures(given: Mapping[str, Any]) -> None:
    low, restart = _optional(given, "min_temperature"), _optional(given, "restart_temperature")
    if low is not None and restart is not None and restart < low:
        raise _wrong("restart_temperature", restart, f"at least min_temperature, {low}")


def _sponge(given: Mapping[str, Any]) -> dict[str, Any]:
    last = _positive("sponge_factor", given["sponge_factor"])
    first, prior = _optional(given, "sponge_factor_start"), given["sponge_prior"]
    if max(last, first or 0.0) > _LARGEST_FACTOR:
        raise _wrong("sponge_factor", max(last, first or 0.0), f"at most {_LARGEST_FACTOR:g}")
    temperatures, width = given["sponge_temperatures"], _optional(given, "sponge_width")
    if temperatures is not None:
        temperatures = _pair("sponge_temperatures", temperatures)
        if temperatures[0] <= temperatures[1]:
            raise _wrong("sponge_temperatures", temperatures, "a higher one and a lower one")
    if given["sponge"] == "late" and temperatures is None and width is None:
        raise _wrong("sponge", "late", "told its time: give sponge_temperatures or sponge_width")
    if prior is not None and _positive("sponge_prior", prior) >= 1:
        raise _wrong("sponge_prior", prior, "below 1")
    return {
        "sponge": given["sponge"],
        "sponge_factors": (last if first is None else first, last),
        "sponge_temperatures": temperatures,
        "sponge_width": width,
        "sponge_prior": prior,
    }
