"""Bounds on dissimilarities: which of them count as up to a distance, or as far as a score.

The rule is that of ``tartan.base.checks``: a bound is rounded as the scores were. Of distances that a formula made of
scores the scores were rounded, not the distances: 1 - s is 0.10000002 where s is 0.9 in float32. There a distance is
within a bound if a score that would be rounded to the same value makes one that is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.dissimilarities import Dissimilarities, MadeOf
from tartan.analytics.matrix.rows import squares
from tartan.analytics.matrix.sources import native
from tartan.base.bounds import bound_rounding, compute_spacing, round_bound, slack_of_means
from tartan.errors import ConfigError

Values = NDArray[np.float64]

#: Scores whose distances are at most this many times a bound, or this part of it, tell how far rounding moves them.
#: By judgement: values within a factor of two of a bound have its exponent, so their rounding is its. No benchmark.
_AROUND = 2.0


def reach(D: Dissimilarities, bound: float, *, of_means: bool = False) -> float:
    """Return the largest value of ``D.values`` that counts as a distance of ``bound`` or less.

    Parameters
    ----------
    D : Dissimilarities
        One that was made of scores by a formula takes a pass.
    bound : float
    of_means : bool
        Whether means of dissimilarities are compared with it (average linkage), which rounding moves elsewhere.
    """
    exact = _round(D, bound)
    if D.made_of is not None:
        return _reach_of_scores(D, D.made_of, bound, exact, of_means=of_means)
    if not of_means:
        return exact
    slack = D.scale / 2 if _is_int16(D) else 0.0
    return max(exact, bound + max(slack, slack_of_means(bound, _type_of(D))))


def distance_at(D: Dissimilarities, score: float) -> float:
    """Return the distance that a score stands for; the score itself, where distances were not made of scores.

    Raises
    ------
    ConfigError
        If the formula makes no number of it.
    """
    if D.made_of is None:
        return _round(D, score)
    with np.errstate(all="ignore"):
        found = float(D.made_of.function(np.array([_round(D.made_of.scores, score)]))[0])
    if math.isnan(found):
        raise ConfigError(
            f"{D.label}: cut is {score:g}, and {D.conversion or 'the function'} makes no distance of this score; give "
            "one in the range of the scores, or a threshold, which is a distance"
        )
    return _round(D, found)


def _round(D: Dissimilarities, bound: float) -> float:
    """Round a number as the stored values are."""
    if _is_int16(D):
        return bound if math.isinf(bound) else round(bound / D.scale) * D.scale
    return round_bound(bound, _type_of(D))


def _reach_of_scores(D: Dissimilarities, origin: MadeOf, bound: float, exact: float, *, of_means: bool) -> float:
    best, moved = exact, slack_of_means(bound, _type_of(D))
    for rows, columns in squares(D.n, D.dtype.itemsize):
        distances = D.values(rows, columns)
        with np.errstate(invalid="ignore"):
            around = (distances <= _AROUND * bound) & (distances > (bound / _AROUND if of_means else exact))
        if around.any():
            found, scores = distances[around], origin.scores.values(rows, columns)[around]
            low, high = bound_rounding(origin.function, scores, _steps(origin.scores, scores))
            within = found[low - compute_spacing(found, _type_of(D)) <= bound]
            best = max(best, float(within.max(initial=exact)))
            moved = max(moved, float(np.nan_to_num(high - low).max()))
    return max(best, bound + moved) if of_means else best


def _steps(D: Dissimilarities, scores: Values) -> Values | float:
    """Return how far apart stored values are, at some of them."""
    return D.scale if _is_int16(D) else compute_spacing(scores, _type_of(D))


def _type_of(D: Dissimilarities) -> np.dtype[Any]:
    return native(D.dtype) if D.source.rounded_to is None else D.source.rounded_to


def _is_int16(D: Dissimilarities) -> bool:
    return native(D.dtype).kind == "i"
