"""One pass over a matrix: what is wrong with it, and the numbers that algorithms begin with.

The matrix is read in squares, each together with its mirror image, so that every value is read once whatever the
size. Sources that store a pair once are read above the diagonal only.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.matrix.rows import SQUARE_BYTES, Rows, squares
from tartan.analytics.matrix.sources import Mapped, native
from tartan.base.format import name_some, pluralize
from tartan.errors import ConfigError
from tartan.store.lacking import is_past, name_command_to_mend, say_way_on

if TYPE_CHECKING:
    from tartan.analytics.monitor import Monitor

# By arithmetic: sums of thousands of float32 products in another order differ by some 1e-6 of the largest.
_TOLERANCE = 1e-5
# By arithmetic: 16 times the rounding of float32, 6e-8.
_BELOW_ZERO = 1e-6  # of the largest: what is negative by less is 0 but for rounding, as 1 - cosine in float32 is
# By convention of Linux: fault_around_bytes is 64 KiB by default.
_FAULT_BYTES = 64 << 10  # the kernel maps this much around every page that is touched
# By judgement: `tartan bench mds large=100000`: 341 MB beside the pages of the file.
RELEASED_BYTES = 128 << 20
# By judgement: a line of a message.
_NAMED = 5  # members of a component that a message lists

# Of the largest dissimilarity where squares are summed: its fourth power is still finite.
# By arithmetic.
_SMALLEST = 1e-75


@dataclass(frozen=True)
class Check:
    """What one pass over a matrix has found; all numbers are of unordered pairs i < j that are not missing.

    Attributes
    ----------
    n : int
        Number of items.
    n_valid, n_missing, n_zero : int
        Pairs that have a dissimilarity, that have none, and whose dissimilarity is 0.
    smallest_positive, largest : float
        NaN where there is none.
    total, total_squares : float
        Sums of the dissimilarities and of their squares; sums over ordered pairs are twice as large.
    largest_asymmetry : float
        Largest difference of d(i, j) and d(j, i).
    components : ndarray of int64, shape (n,), or None
        Where missing pairs cut the items into groups without a pair between them: the group of each item, counted
        from 0 in the order of their first items. None: all items are connected.
    tolerance : float or None
        As given.
    """

    n: int
    n_valid: int
    n_missing: int
    n_zero: int
    smallest_positive: float
    largest: float
    total: float
    total_squares: float
    largest_asymmetry: float
    components: NDArray[np.int64] | None = field(repr=False)
    tolerance: float | None

    @property
    def mean(self) -> float:
        """Mean dissimilarity; NaN where no pair has one."""
        return self.total / self.n_valid if self.n_valid else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the dissimilarities."""
        if not self.n_valid:
            return math.nan
        return math.sqrt(max(0.0, self.total_squares / self.n_valid - self.mean**2))

    def require_connected(self, D: Rows) -> None:
        """Raise ConfigError where missing pairs cut the items into groups; the message names them."""
        refuse_groups(D, self.components, f"missing pairs cut the {self.n} items", without_gaps(D))

    def require_complete(self, D: Rows, purpose: str) -> None:
        """Raise ConfigError where a pair is missing."""
        if self.n_missing:
            have = "has" if self.n_missing == 1 else "have"
            out = way_around(D) or without_gaps(D)
            raise ConfigError(
                f"{pluralize(self.n_missing, 'pair')} of {D.label} {have} no distance; {purpose} needs all of "
                f"them: {out}"
            )

    def require_positive(self, D: Rows) -> None:
        """Raise ConfigError where no dissimilarity is larger than 0."""
        if self.n_valid == 0:
            raise ConfigError(f"{D.label}: every pair is missing; nothing can be said of these {self.n} items")
        if not self.largest > 0:
            raise ConfigError(f"{D.label}: every dissimilarity is 0; the {self.n} items are all the same")

    def require_moderate(self, D: Rows) -> None:
        """Raise ConfigError where sums of squares would leave the range of float64."""
        if not _SMALLEST < self.largest < 1 / _SMALLEST:
            raise ConfigError(
                f"{D.label}: the largest dissimilarity is {self.largest:g}, and its square is beyond float64; divide "
                f"all by {self.largest:g}"
            )


def way_around(D: Rows) -> str | None:
    """Return what can be done about failed items, where a run has some."""
    failed = getattr(D, "failed", ())
    if not len(failed):
        return None
    named, run = name_some([D.name_of(int(item)) for item in failed]), getattr(D, "run", None)
    return (
        f"leave out what failed ({named}) with `failed='drop'`, or mend it and try again with "
        f"{name_command_to_mend(run) if run is not None else '`tartan resume RUN --retry-failed`'}"
    )


def without_gaps(D: Rows) -> str:
    """Return what makes a matrix with missing pairs one without."""
    if (folder := getattr(D, "run", None)) is None:
        return "leave out items of missing pairs with `failed='drop'`"
    run = shlex.quote(D.label)
    value = f"give the missing pairs a value X (`tartan export {run} D.csv --missing X --diagonal 0`)"
    if is_past(folder):
        way_on = f"{say_way_on(folder)}, or "
    else:
        way_on = f"finish the run (`tartan resume {run}`), or " if getattr(folder, "folder", folder).n_left else ""
    return f"{way_on}{value} and take D.csv in its place"


def refuse_groups(
    D: Rows,
    labels: NDArray[np.int64] | None,
    what: str,
    way_out: str,
    used: NDArray[np.bool_] | None = None,
) -> None:
    """Raise ConfigError where items fall into groups without a pair between them; the message names the groups.

    Parameters
    ----------
    labels : ndarray of int64, shape (n,), or None
        Group of each item, as :meth:`Components.labels` returns it.
    what, way_out : str
        What cuts them, and what else can be done about it.
    used : ndarray of bool, shape (n,), optional
        The items that count; default: all.
    """
    if labels is None:
        return
    groups = np.unique(labels if used is None else labels[used])
    if len(groups) < 2:
        return
    counted = labels if used is None else np.where(used, labels, -1)
    text = "; ".join(_members(D, np.flatnonzero(counted == group)) for group in groups[:_NAMED])
    more = f"; and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    failed = way_around(D)
    out = f"{failed[:1].upper()}{failed[1:]}" if failed else f"Analyse each group on its own, or {way_out}"
    raise ConfigError(
        f"{D.label}: {what} into {len(groups)} groups without a pair between them: {text}{more}. {out}",
        context={"components": len(groups)},
    )


def check(
    D: Rows,
    tolerance: float | None,
    monitor: Monitor | None,
    *,
    square_bytes: int = SQUARE_BYTES,
    released_bytes: int = RELEASED_BYTES,
) -> Check:
    """Look at every pair once; see :meth:`Dissimilarities.check`.

    Parameters
    ----------
    D : Rows
    tolerance : float or None
    monitor : Monitor or None
    square_bytes : int
        Size of the squares that are read.
    released_bytes : int
        How much of a mapped file is read before its pages are given back: they count as memory of this process.
    """
    try:
        return _survey(D, tolerance, monitor, square_bytes, released_bytes)
    except _WrongPairError as error:
        if not (_lacks_diagonal(D) if error.on_diagonal else _is_rounding(D, error.value)):
            raise error.refused from None
    return check(D, tolerance, monitor, square_bytes=square_bytes, released_bytes=released_bytes)


class _WrongPairError(Exception):
    """A pair has a value below 0, or an item has NaN on the diagonal: a look at the whole matrix may mend it."""

    def __init__(self, value: float, on_diagonal: bool, refused: ConfigError) -> None:
        super().__init__(value)
        self.value, self.on_diagonal, self.refused = value, on_diagonal, refused


def _lacks_diagonal(D: Rows) -> bool:
    """Whether the whole diagonal is NaN, as in exports of functions of two items; then it is 0 from now on."""
    on_diagonal = ((r, c) for r, c in squares(D.n, D.dtype.itemsize) if r.start == c.start)
    if not all(np.isnan(np.diagonal(D.source.tile(rows, columns))).all() for rows, columns in on_diagonal):
        return False
    _clear_diagonal(D)
    return True


def _clear_diagonal(D: Rows) -> None:
    """Let the matrix have 0 there: the distance of an item to itself."""
    before = D.source
    D.source = Mapped(before, np.copy, native(D.dtype), 0.0)
    D.source.rounded_to = before.rounded_to


def _is_rounding(D: Rows, value: float) -> bool:
    """Whether a negative value is 0 but for rounding; then all such values of the matrix are 0 from now on."""
    found = (D.source.tile(rows, columns) for rows, columns in squares(D.n, D.dtype.itemsize))
    largest = max((float(np.nan_to_num(tile, posinf=0.0, neginf=0.0).max(initial=0.0)) for tile in found), default=0.0)
    least = -_BELOW_ZERO * largest
    if not least <= value < 0:
        return False

    def mended(tile: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(invalid="ignore"):
            return np.where((tile < 0) & (tile >= least), tile.dtype.type(0), tile)

    before = D.source
    D.source = Mapped(before, mended, native(D.dtype), None)
    D.source.rounded_to = before.rounded_to
    return True


def _survey(D: Rows, tolerance: float | None, monitor: Monitor | None, square_bytes: int, released_bytes: int) -> Check:
    counts, n_bytes = _Counts(D, tolerance), 0
    for rows, columns in squares(D.n, D.dtype.itemsize, square_bytes):
        counts.take(rows, columns)
        n_bytes += 2 * (rows.stop - rows.start) * max(_FAULT_BYTES, (columns.stop - columns.start) * D.dtype.itemsize)
        if n_bytes > released_bytes:
            D.source.release()
            n_bytes = 0
        if monitor is not None:
            monitor.report("check", rows=rows.stop, of=D.n)
            monitor.check()
    found = counts.result()
    if counts.bare_diagonal:
        _clear_diagonal(D)
    return found


class _Counts:
    """Counts over the squares read so far, in stored values."""

    def __init__(self, D: Rows, tolerance: float | None) -> None:
        self.D, self.asked = D, tolerance
        self.integer = native(D.dtype).kind == "i"
        self.n_valid = self.n_missing = self.n_zero = 0
        self.smallest, self.largest = math.inf, 0.0
        self.totals: list[float] = []
        self.squares: list[float] = []
        self.asymmetry: tuple[float, int, int] = (0.0, 0, 0)
        self.diagonal: tuple[float, int] = (0.0, 0)
        self.bare_diagonal = False  # whether a place on the diagonal is marked as a missing pair
        self.components = Components(D.n)

    def take(self, rows: slice, columns: slice) -> None:
        """Count a square and its mirror image."""
        D, on_diagonal = self.D, rows.start == columns.start
        upper = _view_stored(D, rows, columns)
        lower = None if D.source.symmetric else upper if on_diagonal else _view_stored(D, columns, rows)
        swapped = self.integer and not D.dtype.isnative and D.array is not None
        counts, sums, asymmetry, diagonal, wrong = _native.survey_square(
            upper, lower, on_diagonal, swapped, D.missing_allowed
        )
        if wrong is not None:
            raise _wrong_pair(D, rows.start + wrong[0], columns.start + wrong[1])
        self._add(counts, sums)
        if on_diagonal:
            own = np.diagonal(upper).byteswap() if swapped else np.diagonal(upper)
            self.bare_diagonal |= not (own >= 0).all()
        if asymmetry[0] > self.asymmetry[0]:
            self.asymmetry = (asymmetry[0], rows.start + asymmetry[1], columns.start + asymmetry[2])
        if diagonal[0] > self.diagonal[0]:
            self.diagonal = (diagonal[0], rows.start + diagonal[1])
        if not self.components.connected:
            self._join(rows, columns, some_missing=counts[1] > 0)

    def _add(self, counts: tuple[int, int, int], sums: tuple[float, float, float, float]) -> None:
        self.n_valid, self.n_missing = self.n_valid + counts[0], self.n_missing + counts[1]
        self.n_zero += counts[2]
        self.smallest, self.largest = min(self.smallest, sums[0]), max(self.largest, sums[1])
        self.totals.append(sums[2])
        self.squares.append(sums[3])

    def _join(self, rows: slice, columns: slice, *, some_missing: bool) -> None:
        if not some_missing:
            self.components.join_all(rows, columns)
            return
        values = self.D.source.tile(rows, columns)
        with np.errstate(invalid="ignore"):
            self.components.join(rows.start, columns.start, values >= 0)

    def result(self) -> Check:
        """Return the numbers of all squares, or raise what the whole matrix shows to be wrong."""
        D, step = self.D, 1.0 if self.integer else 0.0
        allowed = max(step, (_TOLERANCE if self.asked is None else self.asked) * self.largest)
        if self.asymmetry[0] > allowed:
            raise _asymmetric(D, *self.asymmetry[1:], allowed * D.scale)
        if self.diagonal[0] > allowed:
            raise _not_zero(D, self.diagonal[1], self.diagonal[0] * D.scale)
        return Check(
            n=D.n,
            n_valid=self.n_valid,
            n_missing=self.n_missing,
            n_zero=self.n_zero,
            smallest_positive=self.smallest * D.scale if self.largest > 0 else math.nan,
            largest=self.largest * D.scale if self.n_valid else math.nan,
            total=math.fsum(self.totals) * D.scale,
            total_squares=math.fsum(self.squares) * D.scale**2,
            largest_asymmetry=self.asymmetry[0] * D.scale,
            components=self.components.labels(),
            tolerance=self.asked,
        )


def _view_stored(D: Rows, rows: slice, columns: slice) -> NDArray[Any]:
    """Return a rectangle with the bytes of integers as they are stored: nothing is copied to swap them."""
    if D.array is None:
        return D.source.tile(rows, columns)
    return D.array[rows, columns].view(native(D.dtype))


class Components:
    """Which items are connected by pairs that are not missing.

    Parameters
    ----------
    n : int
        Number of items, each on its own at first.
    """

    def __init__(self, n: int) -> None:
        self._labels = np.arange(n)
        self._n_groups = n

    @property
    def connected(self) -> bool:
        """Whether there is one group."""
        return self._n_groups <= 1

    def join(self, row: int, column: int, valid: NDArray[np.bool_]) -> None:
        """Join the items of every pair that a rectangle of the matrix marks."""
        for i, marks in enumerate(valid, row):
            if self.connected:
                return
            touched = self._labels[column : column + len(marks)][marks]
            if len(touched):
                self._merge(np.append(touched, self._labels[i]))

    def join_all(self, rows: slice, columns: slice) -> None:
        """Join the items of a rectangle in which no pair is missing."""
        if rows != columns or rows.stop - rows.start > 1:
            self._merge(np.concatenate([self._labels[rows], self._labels[columns]]))

    def _merge(self, touched: NDArray[np.int64]) -> None:
        if touched.min() == touched.max():
            return
        groups = np.unique(touched)
        renamed = np.arange(len(self._labels))
        renamed[groups] = groups[0]
        self._labels = renamed[self._labels]
        self._n_groups -= len(groups) - 1

    def join_items(self, items: NDArray[np.intp] | NDArray[np.int64]) -> None:
        """Join some items."""
        if len(items):
            self._merge(self._labels[items])

    def labels(self) -> NDArray[np.int64] | None:
        """Return the group of each item, counted from 0 in the order of their first items; None: one group."""
        if self.connected:
            return None
        labels: NDArray[np.int64] = np.unique(self._labels, return_inverse=True)[1].astype(np.int64)
        return labels


def _members(D: Rows, items: NDArray[np.int64]) -> str:
    return name_some([D.name_of(int(item)) for item in items[:_NAMED]], len(items), most=_NAMED)


def _wrong_pair(D: Rows, i: int, j: int) -> ConfigError | _WrongPairError:
    """Return what is wrong with a pair that has an invalid value."""
    places = ((i, j), (j, i))
    values = [float(D.source.tile(slice(a, a + 1), slice(b, b + 1))[0, 0]) for a, b in places]
    integer = native(D.dtype).kind == "i"
    for (a, b), value in zip(places, values):
        missing = value < 0 if integer else math.isnan(value)
        if (missing and not D.missing_allowed) or (not integer and (value < 0 or math.isinf(value))):
            refused = _wrong_value(D, a, b, value)
            mendable = not integer and (value < 0 or (i == j and math.isnan(value)))
            return _WrongPairError(value, i == j and math.isnan(value), refused) if mendable else refused
    return _make_one_sided_error(D, i, j, values[0] < 0 if integer else math.isnan(values[0]))


def _wrong_value(D: Rows, i: int, j: int, value: float) -> ConfigError:
    place = f"{D.label}: the dissimilarity of {D.name_of(i)} and {D.name_of(j)}"
    context = {"row": i, "column": j, "value": value}
    if math.isnan(value):
        text = (
            f"{place} is NaN; if that means a missing pair, say `missing='nan'`, or leave out the items of such pairs "
            "with `failed='drop'`"
        )
    elif math.isinf(value):
        text = f"{place} is infinite; if that means a missing pair, say `missing=inf`"
    elif native(D.dtype).kind == "i":
        text = f"{place} is {value:.0f} as stored, and missing pairs are not allowed here (`missing='error'`)"
    else:
        text = (
            f"{place} is negative: {value:.6g}; if negative values mean missing pairs, say `missing='negative'`, "
            "if these are similarities, say how they become distances (`distance='max-s'`)"
        )
    return ConfigError(text, context=context)


def _make_one_sided_error(D: Rows, i: int, j: int, upper: bool) -> ConfigError:
    there, missing = ((j, i), (i, j)) if upper else ((i, j), (j, i))
    return ConfigError(
        f"{D.label} is not symmetric: row {there[0]}, column {there[1]} has a value and row {missing[0]}, column "
        f"{missing[1]} is missing; make both missing, or read one triangle (`triangle='upper'` or `triangle='lower'`)",
        context={"row": i, "column": j},
    )


def _asymmetric(D: Rows, i: int, j: int, allowed: float) -> ConfigError:
    values = [float(D.values(slice(a, a + 1), slice(b, b + 1))[0, 0]) for a, b in ((i, j), (j, i))]
    return ConfigError(
        f"{D.label} is not symmetric: d({D.name_of(i)}, {D.name_of(j)}) is {values[0]:.9g}, d({D.name_of(j)}, "
        f"{D.name_of(i)}) is {values[1]:.9g}, and {allowed:.3g} is allowed; use (D + D.T) / 2, or read one triangle "
        "(`triangle='upper'` or `triangle='lower'`)",
        context={"row": i, "column": j, "values": values},
    )


def _not_zero(D: Rows, item: int, value: float) -> ConfigError:
    return ConfigError(
        f"{D.label}: the dissimilarity of {D.name_of(item)} and itself is {value:.6g}, not 0; if these are "
        "similarities, say how they become distances (`distance='max-s'`), else set the diagonal to 0",
        context={"item": item, "value": value},
    )
