"""Similarities that become dissimilarities, functions of dissimilarities, and values that mean "missing".

int16 has few values: there a function is a table, computed once.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.dissimilarities import Dissimilarities, MadeOf
from tartan.analytics.matrix.formula import Formula
from tartan.analytics.matrix.rows import squares
from tartan.analytics.matrix.sources import Mapped, MatrixSource, native
from tartan.errors import ConfigError

# The "4D" transform: distances in many dimensions to what they would be in four.

# By arithmetic: the fraction converges to float64 in fewer where it is used.
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


Values = NDArray[np.float64]
Function = Callable[[Values], Values]
Transform = str | float | Function

# By arithmetic: as _TOLERANCE of matrix/check.
_ROUNDING = 1e-5


def with_missing(source: MatrixSource, missing: str | float | None, label: str) -> MatrixSource:
    """Return a source in which what means "missing" is NaN, or -1 in int16."""
    if missing is None or missing in ("nan", "error"):
        return source
    integer = native(source.dtype) == np.int16
    if missing == "negative":
        return source if integer else _mark(source, _negative_to_nan)
    if isinstance(missing, bool) or not isinstance(missing, numbers.Real):
        raise ConfigError(f"{label}: missing is {missing!r}; it must be 'nan', 'negative', 'error' or a number")
    value = float(missing)
    instead = native(source.dtype).type(-1 if integer else np.nan)
    return _mark(source, lambda tile: np.where(tile == value, instead, tile))


def _mark(source: MatrixSource, function: Callable[[NDArray[Any]], NDArray[Any]]) -> MatrixSource:
    made = Mapped(source, function, native(source.dtype), None)
    made.rounded_to = source.rounded_to
    return made


def _negative_to_nan(tile: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):
        return np.where(tile < 0, tile.dtype.type(np.nan), tile)


def convert_scores(D: Dissimilarities, distance: str | Function) -> Dissimilarities:
    """Return dissimilarities made of similarities: a formula of ``s``, or a function of arrays."""
    return apply_formula(D, *function_of_scores(D, distance))


def apply_transform(D: Dissimilarities, transform: Transform) -> Dissimilarities:
    """Return a function of dissimilarities: a formula of ``d``, an exponent, "4D", "sqrt(4D)", or a function."""
    return apply_formula(D, *function_of_transform(D, transform))


def function_of_scores(D: Dissimilarities, distance: str | Function) -> tuple[Function, str]:
    """Return the function that a conversion means, with the statistics of this matrix, and its name in messages."""
    if callable(distance):
        return distance, f"`distance={_name(distance)}`"
    if not isinstance(distance, str):
        raise ConfigError(f"`distance={distance!r}`: it is a formula of s such as 'max-s', or a function")
    return _with_statistics(D, Formula(distance, "s")), f"`distance={distance!r}`"


def function_of_transform(D: Dissimilarities, transform: Transform) -> tuple[Function, str]:
    """Return the function that a transform means, with the statistics of this matrix, and its name in messages."""
    if callable(transform):
        return transform, f"`transform={_name(transform)}`"
    what = f"`transform={transform!r}`"
    if isinstance(transform, str) and transform.lower() in ("4d", "sqrt(4d)"):
        checked = D.check()
        checked.require_positive(D)
        four = to_four_dimensions(checked.mean, checked.std, checked.largest)
        return (four if transform.lower() == "4d" else lambda values: np.sqrt(four(values))), what
    if isinstance(transform, str):
        named = {"sqrt": "sqrt(d)", "square": "d^2"}.get(transform, transform)
        return _with_statistics(D, Formula(named, "d")), what
    return _power(transform), what


def _power(exponent: float) -> Function:
    if isinstance(exponent, bool) or not isinstance(exponent, int | float) or not 0 < exponent < math.inf:
        raise ConfigError(f"`transform={exponent!r}`: an exponent is a number above 0, a formula is a text")
    return lambda values: values**exponent


def _with_statistics(D: Dissimilarities, formula: Formula) -> Function:
    """Bind ``max`` and ``mean`` of a formula, which takes a pass over the matrix."""
    if not formula.names:
        return formula
    names = _statistics(D)
    return lambda values: formula(values, **{name: names[name] for name in formula.names})


def _statistics(D: Dissimilarities) -> dict[str, float]:
    """Return the largest value and the mean over all known pairs; the diagonal counts where it is stored."""
    largest, total, count = -math.inf, 0.0, 0
    for rows, columns in squares(D.n, D.dtype.itemsize):
        values = D.values(rows, columns)
        pairs = ~np.isnan(values)
        if rows == columns:
            stored = values[pairs & (not D.source.symmetric)]
            largest = max(largest, float(stored.max(initial=-math.inf)))
            pairs &= np.triu(np.ones(pairs.shape, bool), 1)
        chosen = values[pairs]
        largest = max(largest, float(chosen.max(initial=-math.inf)))
        total, count = total + float(chosen.sum()), count + len(chosen)
    return {"max": largest, "mean": total / count if count else math.nan}


def apply_formula(D: Dissimilarities, function: Function, what: str) -> Dissimilarities:
    """Return a function of every dissimilarity; messages call it ``what``."""
    integer = native(D.dtype) == np.int16
    dtype = np.dtype(np.float32) if integer else native(D.dtype)
    checked = _numeric(function, what)
    made = _table(checked, D.scale) if integer else _compile_formula(checked, D.scale)

    def named(tile: NDArray[Any]) -> NDArray[Any]:
        found = made(tile).astype(dtype, copy=False)
        if found.shape != tile.shape:
            raise ConfigError(f"{what} made {found.shape} of {tile.shape}; a function of arrays keeps their shape")
        return found

    source = _Guarded(D, named, dtype, what)
    found = Dissimilarities(source, names=D.names, label=D.label, missing_allowed=D.missing_allowed).like(D)
    found.made_of = _origin(D, checked)
    return found


def _origin(D: Dissimilarities, function: Function) -> MadeOf:
    """Return what a function of dissimilarities is made of, those that were made themselves included."""
    before = D.made_of
    if before is None:
        return MadeOf(D, lambda values: _without_rounding(function(values)))
    return MadeOf(before.scores, lambda values: _without_rounding(function(before.function(values))))


def strict(function: Function, what: str) -> Function:
    """Return a function of arrays that refuses to make what is not a distance, except of NaN; messages call it
    ``what``.

    Raises
    ------
    ConfigError
        When the function is called with a number that becomes negative (by more than rounding), infinite or NaN.
    """
    made = _compile_formula(_numeric(function, what), 1.0)

    def distances(values: NDArray[Any]) -> Values:
        found = made(values)
        wrong = ~np.isnan(values) & ~(np.isfinite(found) & (found >= 0))
        if wrong.any():
            value, result = float(values[wrong][0]), float(found[wrong][0])
            raise ConfigError(
                f"{what} makes {result:.9g} of the score {value:.9g}, which is not a distance; choose another formula",
                context={"value": value},
            )
        return np.where(np.isnan(values), np.nan, found)

    return distances


def _numeric(function: Function, what: str) -> Function:
    """Refuse results of a function that are not an array of numbers."""

    def made(values: Values) -> Values:
        found = np.asarray(function(values))
        if found.dtype.kind not in "fiub":
            raise ConfigError(f"{what} made {found.dtype} of numbers; it must make numbers")
        return found.astype(np.float64, copy=False)

    return made


class _Guarded(Mapped):
    """A function that must be finite for every pair that is not missing."""

    def __init__(self, D: Dissimilarities, function: Function, dtype: np.dtype[Any], what: str) -> None:
        super().__init__(D.source, function, dtype, 0.0)
        self._D, self._what = D, what

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        found = super().tile(rows, columns)
        wrong = ~np.isfinite(found)
        if wrong.any():
            self._refuse_made(rows, columns, wrong)
        return found

    def _refuse_made(self, rows: slice, columns: slice, wrong: NDArray[np.bool_]) -> None:
        """Refuse what is not finite, except where the input is not."""
        D = self._D
        values = D.values(rows, columns)
        wrong &= np.isfinite(values)
        if wrong.any():
            i, j = (int(at) for at in np.argwhere(wrong)[0])
            row, column = rows.start + i, columns.start + j
            raise ConfigError(
                f"{D.label}: {self._what} is not defined for the value {values[i, j]:.9g} of {D.name_of(row)} and "
                f"{D.name_of(column)}; choose another function, or say `missing={values[i, j]:g}`",
                context={"row": row, "column": column, "value": float(values[i, j])},
            )


def _compile_formula(function: Function, scale: float) -> Callable[[NDArray[Any]], Values]:
    def apply(tile: NDArray[Any]) -> Values:
        values = tile.astype(np.float64)
        with np.errstate(all="ignore"):
            return _without_rounding(function(values if scale == 1.0 else values * scale))

    return apply


def _table(function: Function, scale: float) -> Callable[[NDArray[Any]], Values]:
    stored = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    with np.errstate(all="ignore"):
        made = function(np.maximum(stored, 0) * scale)
    if made.shape != stored.shape:
        return lambda tile: made  # refused by the caller
    made = np.where(stored < 0, np.nan, _without_rounding(made))
    return lambda tile: made[np.ascontiguousarray(tile).view(np.uint16)]


def _without_rounding(values: Values) -> Values:
    """Set to 0 what is below it by rounding only."""
    return np.where((values < 0) & (values > -_ROUNDING), 0.0, values)


def _name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)
