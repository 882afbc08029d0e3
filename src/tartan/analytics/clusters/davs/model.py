"""Checked options of vector-sponge clustering in groups, and what follows from them. Pure functions.

Points x and centres Y have the energy E = sum_i (x_i - Y_i)^2 / s_i; masses go with exp(-E / 2T), so that a cluster
whose standard deviation is the scale itself has the natural temperature 1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.davs.field import CHUNK, SpongeStep
from tartan.base.checks import FRACTION, POSITIVE, check_one_of, number, pair, wrong_option
from tartan.base.signatures import Checked, Flag, FromOne, FromZero, NotNegative, Positive
from tartan.errors import ConfigError

Floats = NDArray[np.float64]

# Coordinates and standard deviations, in units of each other: the squares of these and their sums are finite.
# By arithmetic: as said above.
_LARGEST = 1e140
# Temperatures fall by no more than this: beyond it the energies at the coldest are rounding errors of the hottest.
# By judgement: float64 has 16 digits, and products of two keep 30. No benchmark.
_MOST_COOLING = 1e30
# By rule of the published program (CoolingTemperatureSwitch).
_COOLING_SWITCH = 12.0  # the temperature from which ``cooling`` applies, and below which ``cooling_below``
# By judgement: twice _MASS_CUT of davs/anneal. `tartan bench vs` holds what comes out.
_LIST_CUT = 40.0  # lists end at centres that are farther than the nearest by this, in temperatures
# By format: 16 bits.
_LONGEST = 65_535 // CHUNK  # of a list: places in the lists of a chunk are 16 bits wide


def require_moderate(name: str, points: Floats, sigma: Floats) -> None:
    """Raise ConfigError where points, in units of their standard deviations (d,), overflow."""
    small = sigma < 1 / _LARGEST
    if small.any() or (sigma > _LARGEST).any():
        wrong = float(sigma.min() if small.any() else sigma.max())
        raise ConfigError(f"sigma is {wrong:g}, and its square is beyond float64; give points and sigma other units")
    sizes = np.abs(points).max(axis=0, initial=0.0) / sigma
    if sizes.max() > _LARGEST:
        column = int(sizes.argmax())
        value = points[np.abs(points[:, column]).argmax(), column]
        raise ConfigError(
            f"{name}: coordinate {column} has the value {value:g}, which is too large for sigma {sigma[column]:g}: its "
            "energy is beyond float64; leave such points out"
        )


@dataclass(frozen=True)
class Scales:
    """How wide a cluster is expected to be."""

    scaling: str
    sigma: tuple[float, ...]
    initial_sigma: float
    final_sigma_temperature: Positive

    @property
    def relative(self) -> bool:
        """Whether the scale of coordinate 0 goes with the coordinate."""
        return self.scaling in ("relative", "annealed")

    def first_temperature(self, points: Floats) -> float:
        """Return 1.5 times the mean energy of all points in one cluster, with the scales of the beginning.

        Raises
        ------
        ConfigError
            If it overflows.
        """
        centre = points.mean(axis=0)[None]
        scales = self.at(centre, self.final_sigma_temperature, 1.0)
        if self.scaling == "annealed":
            scales[:, 0] = np.square(self.initial_sigma * centre[:, 0])
        with np.errstate(all="ignore"):
            first = 1.5 * float((np.square(points - centre) / scales).sum(axis=1).mean())
        if not math.isfinite(first):
            raise ConfigError(f"X: points lie too far apart for sigma {self.sigma}: the squares of distances overflow")
        return first

    def require_moderate(self, name: str, points: Floats) -> None:
        """Raise ConfigError where energies of these points would leave the range of float64."""
        sigma = np.array(self.sigma)
        if self.relative:
            sigma[0] *= np.abs(points[:, 0]).min()
        require_moderate(name, points, sigma)

    def at(self, positions: Floats, temperature: float, start: float) -> Floats:
        """Return s_i of each centre, shape (K, d): squares of the standard deviations expected at a temperature.

        ``start`` is the temperature at which annealed scales begin.
        """
        out = np.broadcast_to(np.square(self.sigma), positions.shape).copy()
        if self.relative:
            out[:, 0] = np.square(self.first_sigma(temperature, start) * positions[:, 0])
        return out

    def first_sigma(self, temperature: float, start: float) -> float:
        """Return the relative standard deviation of coordinate 0 at a temperature: geometric in its logarithm."""
        final, switch = self.sigma[0], self.final_sigma_temperature
        if self.scaling != "annealed" or temperature <= switch or start <= switch:
            return final
        share = math.log(temperature / switch) / math.log(start / switch)
        return float(final * (self.initial_sigma / final) ** min(share, 1.0))


@dataclass(frozen=True)
class Cooling:
    """Which temperatures there are, and how many points are annealed at first."""

    min_temperature: Annotated[float | None, Checked(number, POSITIVE)]
    temperature_ratio: Positive
    cooling: Annotated[tuple[float, float], Checked(pair, FRACTION)]
    cooling_below: Annotated[tuple[float, float], Checked(pair, FRACTION)]
    sample: FromOne

    def lowest(self, start: float) -> float:
        """Return where the annealing ends; points without any spread have no temperature of their own."""
        if self.min_temperature is not None:
            return self.min_temperature
        return start / self.temperature_ratio or 1.0

    def require_range(self, start: float) -> None:
        """Raise ConfigError where the temperatures would span more than numbers can resolve."""
        lowest = self.lowest(start)
        if start > _MOST_COOLING * lowest:
            raise ConfigError(
                f"the temperature would fall from {start:.3g} to {lowest:.3g}, by more than {_MOST_COOLING:g}; leave "
                "out points that lie far away, or raise min_temperature or sigma"
            )

    def next(self, temperature: float, fine: bool) -> float:
        """Return the next temperature; ``fine`` from the first split to the last."""
        factors = self.cooling if temperature >= _COOLING_SWITCH else self.cooling_below
        return temperature * factors[fine]


@dataclass(frozen=True)
class Splitting:
    """Which clusters split, and when they are looked for."""

    max_clusters: FromOne
    min_split_width: NotNegative
    wait: FromZero


@dataclass(frozen=True)
class Removal:
    """Which clusters are removed."""

    min_count: NotNegative
    min_points: FromZero
    closeness: NotNegative


@dataclass(frozen=True)
class Masses:
    """Priors, and the sponge."""

    priors: Flag
    sponge: Annotated[str, Checked(check_one_of, ("never", "late", "always"))]
    sponge_factors: tuple[float, float]
    sponge_temperatures: Annotated[tuple[float, float] | None, Checked(pair, POSITIVE)]
    sponge_width: Annotated[float | None, Checked(number, POSITIVE)]
    sponge_prior: Annotated[float | None, Checked(number, FRACTION)]

    def factor(self, temperature: float) -> float:
        """Return the distance of the sponge from every point in standard deviations."""
        first, last = self.sponge_factors
        if self.sponge_temperatures is None:
            return last
        high, low = self.sponge_temperatures
        if temperature <= low:
            return last
        if temperature >= high:
            return first
        return last + (first - last) * (temperature - low) / (high - low)

    def wants_sponge(self, temperature: float, mean_width: float) -> bool:
        """Whether there is a sponge from now on."""
        if self.sponge != "late":
            return self.sponge == "always"
        narrow = self.sponge_width is not None and mean_width <= self.sponge_width
        cold = self.sponge_temperatures is not None and temperature < self.sponge_temperatures[0]
        return narrow or cold

    def rule(self, assignment: str, step: SpongeStep) -> tuple[Floats, float]:
        """Return what is added to the energy in each cluster before comparing, and the sum that makes noise."""
        if assignment == "distance":
            return np.zeros(len(step.positions)), np.inf if step.sponge is None else step.sponge[1]
        offsets = -2 * step.temperature * step.log_priors
        if step.sponge is None:
            return offsets, np.inf
        return offsets, step.sponge[1] - 2 * step.temperature * step.sponge[0]


def _lengths(name: str, given: Any) -> tuple[int, int]:
    least, most = pair(name, given, POSITIVE)
    if not (least.is_integer() and most.is_integer() and 1 <= least <= most <= _LONGEST):
        raise wrong_option(name, given, f"a least and a largest length, 1 to {_LONGEST}")
    return int(least), int(most)


@dataclass(frozen=True)
class NearLists:
    """Which centres are near a point."""

    centers_per_point: Annotated[tuple[int, int], Checked(_lengths)]

    def limits(self, temperature: float) -> tuple[int, int, float]:
        """Return the largest and least length of lists, and the energy beyond the nearest at which they end."""
        least, most = self.centers_per_point
        return most, least, 2 * _LIST_CUT * temperature


@dataclass(frozen=True)
class Stopping:
    """When a temperature is done, except the last: changes of masses, and steps at most."""

    tol: NotNegative
    max_iter: FromOne


@dataclass(frozen=True)
class SpongeSettings:
    """Checked options of one clustering, in groups; see `DAVS` for their meaning."""

    scales: Scales
    cooling: Cooling
    splitting: Splitting
    removal: Removal
    masses: Masses
    lists: NearLists
    stopping: Stopping

    def by_name(self) -> dict[str, Any]:
        """Return all options by name, whatever their group."""
        groups: dict[str, dict[str, Any]] = asdict(self)
        return {name: value for group in groups.values() for name, value in group.items()}
