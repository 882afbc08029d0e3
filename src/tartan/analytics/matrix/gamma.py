"""The "4D" transform: distances in many dimensions to what they would be in four."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

Values = NDArray[np.float64]
_TERMS = 80  # of the continued fraction; it is used where the argument is far above its parameter


def to_four_dimensions(mean: float, std: float, largest: float) -> Callable[[Values], Values]:
    """Return the function that makes squared distances in four dimensions of squared distances in many.

    Parameters
    ----------
    mean, std, largest : float
        Of the dissimilarities.

    Notes
    -----
    Dissimilarities with this mean and deviation are taken to be Gamma distributed with the shape a = (mean / std)^2 and
    the scale b = std^2 / mean, as squared distances in 2 a dimensions are. The result E has the same probability to be
    exceeded under the shape 2, that of four dimensions: Q(2, E) = Q(a, d / b). It is divided by its largest value.

    Raises
    ------
    ConfigError
        If all dissimilarities are equal: then there is no shape.
    """
    if not std > 1e-9 * mean:
        raise ConfigError(
            f"`transform='4D'` needs dissimilarities that differ; their mean is {mean:.6g} and their standard "
            f"deviation {std:.2g}"
        )
    shape, scale = (mean / std) ** 2, std**2 / mean
    top = float(_equal_tail(np.array([largest / scale]), shape)[0])
    return lambda values: _equal_tail(values / scale, shape) / top


def _equal_tail(x: Values, shape: float) -> Values:
    """Return E with Q(2, E) = Q(shape, x); NaN stays NaN."""
    from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

    below, above = gammainc(shape, x), gammaincc(shape, x)
    found: Values = np.where(below < 0.5, gammaincinv(2.0, below), gammainccinv(2.0, above))
    far = above < 1e-250
    if far.any():
        found[far] = _far_tail(x[far], shape)
    return found


def _far_tail(x: Values, shape: float) -> Values:
    """Return E = -ln Q(shape, x) + ln(1 + E) where Q itself is too small for a float."""
    fraction = np.zeros_like(x)
    for term in range(_TERMS, 0, -1):
        fraction = term * (shape - term) / (x - shape + 2 * term + 1 + fraction)
    log_q = (shape - 1) * np.log(x) - x - math.lgamma(shape) + np.log(x / (x - shape + 1 + fraction))
    found: Values = -log_q
    for _ in range(50):
        found = -log_q + np.log1p(found)
    return found
