"""A formula that makes distances of similarities that do not all look alike, found from the scores.

Most pairs of a large set have nothing in common, and their scores crowd at one value; alike pairs lie far above it,
some ten times as far as others. By 1 - s, or below the best pair, most of these look as far apart as all else: a map is
flat.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.convert import function_of_similarity
from tartan.analytics.matrix.dissimilarities import Dissimilarities

_SAMPLED_ROWS = 256
#: Distances are spread where an item is at most this far from its nearest one, as a share of a typical distance.
_SPREAD = 1 / 3


def spreading(D: Dissimilarities, formula: str = "max-s") -> str:
    """Return a formula of s whose distances spread.

    It is the given one if that does: if the distance of a typical item to its nearest one is at most a third of that of
    a typical pair. Else it is c / (c + s - b), and 1 for scores below b: b is the median score, and c a quarter of what
    the median nearest score has above b, so that typical neighbours are at 0.2.

    Parameters
    ----------
    D : Dissimilarities
        Of similarities as they are. Up to 256 rows are read, and all for a formula with max or mean.
    formula : str
    """
    formula = "max-s" if formula == "spread" else formula
    typical, near = _typical(D)
    if not near > typical:  # nothing stands out, or there is no pair
        return formula
    far, close = function_of_similarity(D, formula)[0](np.array([typical, near]))
    if close <= _SPREAD * far:
        return formula
    scale = f"{(near - typical) / 4:.4g}"
    return f"{scale}/({scale}+max(0,s{-typical:+.4g}))"


def _typical(D: Dissimilarities) -> tuple[float, float]:
    """Return the median score, and the median of the largest score of each item."""
    scores, largest = [], []
    for row in np.unique(np.linspace(0, D.n - 1, min(D.n, _SAMPLED_ROWS)).astype(np.int64)).tolist():
        values: NDArray[np.float64] = D.values(slice(row, row + 1), slice(0, D.n))[0]
        values = np.delete(values, row)
        known = values[np.isfinite(values)]
        if len(known):
            scores.append(known)
            largest.append(known.max())
    if not scores:
        return np.nan, np.nan
    return float(np.median(np.concatenate(scores))), float(np.median(largest))
