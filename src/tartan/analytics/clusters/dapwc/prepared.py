"""A matrix as pairwise clustering works on it: one array, in a unit of its own, with its linkages and levels."""

from __future__ import annotations

import math
from dataclasses import replace

from tartan.analytics.clusters.dapwc.level import ZeroLevel, find_level, make_level
from tartan.analytics.clusters.hierarchies import Hierarchies
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor

# By arithmetic: 2**-1022 is the least normal float64.
_LEAST = -1000  # exponent of the unit: numbers near the end of float64 have no inverse


class Prepared:
    """A matrix, ready for any way of clustering that reads it many times.

    Parameters
    ----------
    given : Dissimilarities
    monitor : Monitor

    Attributes
    ----------
    given : Dissimilarities
        Checked, as one array.
    unit : float
        The power of two that the matrix was divided by, so that its largest dissimilarity lies between 1 and 2: no
        threshold of an algorithm, and no sum, then depends on the unit of the input.
    D : Dissimilarities
        The matrix in that unit; the same array.
    hierarchies : Hierarchies
        Of ``D``.
    """

    def __init__(self, given: Dissimilarities, monitor: Monitor) -> None:
        found = given.check(monitor=monitor)
        self.given = given.materialized(monitor=monitor)
        self.given.checked = found
        self.unit = _power_of_two(found.largest) if found.largest > 0 else 1.0
        self.D = _divide(self.given, self.unit)
        self.hierarchies = Hierarchies(self.D, monitor)
        self._monitor = monitor
        self._levels: dict[float | None, ZeroLevel] = {}

    def level(self, value: float | None = None) -> ZeroLevel:
        """Return the level of a value, given in the unit of the input, or the one that is found; in this unit."""
        if value not in self._levels:
            found = find_level(self.D, self._monitor) if value is None else None
            self._levels[value] = found or make_level(self.D, (value or 0.0) / self.unit, self._monitor)
        return self._levels[value]


def _power_of_two(largest: float) -> float:
    """Return the power of two that is not above a number, and at least half of it."""
    return math.ldexp(1.0, max(_LEAST, math.frexp(largest)[1] - 1))


def _divide(D: Dissimilarities, unit: float) -> Dissimilarities:
    """Return the same array with another scale."""
    made = Dissimilarities(
        D.source, scale=D.scale / unit, names=D.names, label=D.label, missing_allowed=D.missing_allowed
    ).like(D)
    found = D.check()
    made.checked = replace(
        found,
        smallest_positive=found.smallest_positive / unit,
        largest=found.largest / unit,
        total=found.total / unit,
        total_squares=found.total_squares / unit / unit,
        largest_asymmetry=found.largest_asymmetry / unit,
    )
    return made
