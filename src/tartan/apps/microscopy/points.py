"""Points of one particle: what can be registered, what is thinned, what people see of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.base.format import pluralize
from tartan.errors import ItemError

Points = NDArray[np.float64]

# By arithmetic: a motion has three unknowns.
_LEAST_POINTS = 3
# By arithmetic: float32 squares of it are finite.
_LARGEST = 1e12
# By arithmetic: float32 tells 1e-7 of the radius, which is a two-thousandth of an uncertainty there.
# By arithmetic: beyond, two uncertainties are less than float32 can tell of coordinates in units of the radius, times a
# hundred.
_MOST_RESOLVED = 5_000.0
# By judgement: a thumbnail. A look.
_PICTURE = 96


def check_points(key: str, points: Points) -> Points:
    """Return the points of a particle that can be registered, without those whose uncertainty is infinite or missing.

    Raises
    ------
    ItemError
        If there are too few points, numbers that are not lengths, or an extent that does not fit the uncertainties.
    """
    known = np.isfinite(points[:, 2])
    problem = _problem(points[known], np.flatnonzero(known))
    if problem is not None and not known.all():
        problem = f"without {_count_unknown(known)} of unknown uncertainty, {problem}"
    if problem is not None:
        raise ItemError(f"{key}: {problem}", context={"key": key})
    return points[known]


def _count_unknown(known: NDArray[np.bool_]) -> str:
    return f"{np.count_nonzero(~known):,} of {pluralize(len(known), 'point')}"


def _problem(points: Points, places: NDArray[np.intp]) -> str | None:
    """Return why points cannot be registered; ``places`` are their numbers among all of the particle."""
    if len(points) < _LEAST_POINTS:
        count = "1 point" if len(points) == 1 else f"{len(points)} points"
        return f"it has {count}; a motion needs at least {_LEAST_POINTS}: leave the particle out"
    for column, name in enumerate(("x", "y", "uncertainty")):
        values = points[:, column]
        bad = np.flatnonzero(~np.isfinite(values) | (np.abs(values) > _LARGEST))
        if len(bad):
            where, value = places[bad[0]], values[bad[0]]
            return f"{name} of point {where} is {value}, no length up to {_LARGEST:g}: leave the point out"
    bad = np.flatnonzero(~(points[:, 2] > 1 / _LARGEST))
    if len(bad):
        where, value = places[bad[0]], points[bad[0], 2]
        return f"the uncertainty of point {where} is {value}; it must be above zero: leave the point out"
    return _find_extent_problem(points)


def _find_extent_problem(points: Points) -> str | None:
    """Compare the extent with the uncertainty: both must be in one unit, and an angle must be there to be found."""
    sigma = float(np.median(points[:, 2]))
    radius = float(np.sqrt(np.square(points[:, :2] - points[:, :2].mean(axis=0)).sum(axis=1).mean()))
    if (points[:, :2] == points[0, :2]).all():
        place = f"({points[0, 0]:g}, {points[0, 1]:g})"
        return f"all {len(points)} points are equal {place}: no motion can be found; leave the particle out"
    same = "are points and uncertainties in the same unit (nanometres, pixels)?"
    if sigma > radius:
        return f"its median uncertainty {sigma:.4g} exceeds its radius {radius:.4g}, so it has no shape; {same}"
    if radius > _MOST_RESOLVED * sigma:
        return (
            f"its radius {radius:.4g} is more than {_MOST_RESOLVED:,.0f} median uncertainties of {sigma:.4g}; {same} "
            "Of a whole field of view, pick particles: a column 'particle' or 'group' tells them apart"
        )
    return None


def thin_points(points: Points, most: int) -> Points:
    """Return at most ``most`` points, the more of a region the denser it is; the choice is fixed."""
    if len(points) <= most:
        return np.ascontiguousarray(points)
    kept: NDArray[np.uint64] = _native.microscopy_thin(np.ascontiguousarray(points), most)
    return np.ascontiguousarray(points[kept])


def score_itself(points: Points) -> float:
    """Return B of a particle with itself, unmoved; in 1 / length^2."""
    return float(_native.microscopy_evaluate(points, points, np.zeros((1, 3)))[0, 0])


def describe_particle(points: Points, most: int) -> dict[str, Any]:
    """Return facts of a particle and its density as a picture, y downwards."""
    known = np.isfinite(points[:, 2])
    about: dict[str, Any] = {"points": len(points)}
    if not known.all():
        about["left out"] = f"{_count_unknown(known)}, whose uncertainty is infinite or missing"
    if known.sum() > most:
        about["points compared"] = most
    usable = points[np.isfinite(points).all(axis=1)]
    if not len(usable):
        return about
    wide, high = np.ptp(usable[:, 0]), np.ptp(usable[:, 1])
    about |= {"width": float(wide), "height": float(high), "median uncertainty": float(np.median(usable[:, 2]))}
    side = max(float(wide), float(high)) or 1.0
    centre = (usable[:, :2].max(axis=0) + usable[:, :2].min(axis=0)) / 2
    ends = [(middle - side / 2, middle + side / 2) for middle in centre]
    counts, _, _ = np.histogram2d(usable[:, 1], usable[:, 0], bins=_PICTURE, range=[ends[1], ends[0]])
    return about | {"density": counts.astype(np.float32)}
