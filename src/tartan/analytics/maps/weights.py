"""Weights of pairs, checked: one a point, or a matrix."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.maps.smacof import Weights
from tartan.analytics.matrix import read_matrix
from tartan.analytics.matrix.check import Components, refuse_groups
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.matrix import Dissimilarities
    from tartan.analytics.monitor import Monitor

_INT16_ONE = 32767
_SIDE = 512
_LARGEST = 1e15  # the product of two, times the square of a dissimilarity, is still a float32
_TOO_LARGE = f"weights are at most {_LARGEST:g}: divide all of them by the largest"


def as_weights(given: Any, n: int, monitor: Monitor) -> Weights:
    """Return weights in the form of the passes.

    Parameters
    ----------
    given : None, array_like (n,) or (n, n), or path
        One weight a point, whose products are the weights of pairs; or a symmetric matrix. int16 means 32767 for 1.
        A path names a file that :func:`read_matrix` reads. A float64 matrix is rounded to float32.

    Raises
    ------
    ConfigError
        If weights are not finite, negative, asymmetric (the pair is named), all zero, or of another size.
    """
    if given is None:
        return Weights()
    array = _as_array(given, monitor)
    if array.shape == (n,):
        return _of_points(array)
    if array.shape != (n, n):
        raise ConfigError(f"weights of shape {array.shape} for {n} points; give ({n},) or ({n}, {n})")
    integer = array.dtype.newbyteorder("=") == np.int16
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        matrix = np.ascontiguousarray(array if integer else array.astype(np.float32, copy=False))
    _check_matrix(matrix, monitor)
    return Weights(matrix=matrix, scale=1.0 / _INT16_ONE if integer else 1.0)


def _as_array(given: Any, monitor: Monitor) -> NDArray[Any]:
    if isinstance(given, str | os.PathLike):
        array = read_matrix(given).materialized(monitor=monitor).array
        assert array is not None  # that is what `materialized` is for
        return array
    try:
        found = np.ma.filled(given, 0) if np.ma.isMaskedArray(given) else np.asarray(given)
    except ValueError as error:
        raise ConfigError("weights are no array: their rows have unlike lengths") from error
    if found.dtype.kind not in "fiub":
        raise ConfigError(f"weights are numbers; these are {found.dtype}")
    return found


def _of_points(array: NDArray[Any]) -> Weights:
    points = np.ascontiguousarray(array, np.float64)
    bad = np.flatnonzero(~(np.isfinite(points) & (points >= 0)))
    if bad.size:
        raise ConfigError(f"weight {points[bad[0]]} of point {bad[0]}; weights are finite and not negative")
    if not points.any():
        raise ConfigError("all weights are 0; at least two points need one above 0")
    if points.max() > _LARGEST:
        raise ConfigError(f"weight {points.max():g} of point {points.argmax()}; {_TOO_LARGE}")
    return Weights(points=points)


def _check_matrix(matrix: NDArray[Any], monitor: Monitor) -> None:
    """Check every weight once, each square with its mirror image."""
    n, largest = len(matrix), 0.0
    for top in range(0, n, _SIDE):
        monitor.report("weights", rows=top, of=n)
        monitor.check()
        for left in range(top, n, _SIDE):
            upper = matrix[top : top + _SIDE, left : left + _SIDE]
            lower = matrix[left : left + _SIDE, top : top + _SIDE].T
            _refuse(~(np.isfinite(upper) & (upper >= 0)), top, left, upper, "weights are finite and not negative")
            _refuse(upper > _LARGEST, top, left, upper, _TOO_LARGE)
            apart = np.triu(upper != lower, 1) if top == left else upper != lower
            _refuse(apart, top, left, upper, "the mirror image differs; weights are symmetric: (W + W.T) / 2")
            off = np.triu(upper, 1) if top == left else upper
            largest = max(largest, float(off.max(initial=0)))
    if largest == 0.0:
        raise ConfigError("all weights are 0 in float32; at least one pair needs one above 0")


def _refuse(bad: NDArray[np.bool_], top: int, left: int, values: NDArray[Any], rule: str) -> None:
    if bad.any():
        i, j = np.argwhere(bad)[0].tolist()
        raise ConfigError(f"weight {values[i, j]} of the pair ({top + i}, {left + j}): {rule}")


def squares_that_count(
    D: Dissimilarities, weights: Weights, floor: float, free: NDArray[np.bool_] | None, monitor: Monitor
) -> float:
    """Return the sum of the squares of stored values over ordered pairs that have a weight and are not missing.

    Values below ``floor`` count as it.

    Raises
    ------
    ConfigError
        If no pair counts, or the pairs that count leave groups of points apart, except where each has a fixed point.
    """
    check = D.check()
    if weights.unit and check.components is None:
        return 2.0 * (check.total_squares / D.scale**2 + check.n_zero * floor**2)
    total, together = 0.0, Components(D.n)
    if free is not None:
        together.join_items(np.flatnonzero(~free))
    for start, block in D.blocks(4 << 20):
        valid = _counted(block, start, weights)
        if not together.connected:
            together.join(start, 0, valid)
        values = np.maximum(block[valid], floor).astype(np.float64)
        total += float(np.vdot(values, values))
        monitor.report("weights", rows=start + len(block), of=D.n)
        monitor.check()
    if total == 0.0:
        raise ConfigError("no pair with a dissimilarity above 0 has a weight above 0; there is nothing to embed")
    what = "missing pairs cut the items" if weights.unit else "weights of 0, and missing pairs, cut the items"
    refuse_groups(D, together.labels(), what, "give some pairs between them a weight and a value")
    return total


def _counted(block: NDArray[Any], start: int, weights: Weights) -> NDArray[np.bool_]:
    """Mark the pairs of some rows that have a weight and are not missing."""
    rows = slice(start, start + len(block))
    valid: NDArray[np.bool_] = block >= 0
    valid[np.arange(len(block)), np.arange(rows.start, rows.stop)] = False
    if weights.points is not None:
        valid &= (weights.points[rows, None] * weights.points) > 0
    if weights.matrix is not None:
        valid &= weights.matrix[rows] > 0
    return valid
