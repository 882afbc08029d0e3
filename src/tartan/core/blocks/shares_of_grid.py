"""Near-square shares of a grid of pieces.

The grid is cut into strips, strips into shares: a line runs through one strip after the other, forwards and backwards
in turn, and is cut where a share has its number of pieces. Several numbers of strips are tried, of rows and of columns.
Shares are laid upon ranks, and where pieces need whole rows and columns of the grid alone, lines of the grid are
permuted too, so that ranks need what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np

from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.distinct import distinct
from tartan.core.blocks.transport import transport

#: Times that lines and ranks are laid out again by turns.
#: By judgement: the sum falls at every turn; three bound the time. `tartan bench blocks_plan only=auto`: the product is
#: within 5 % of its bound.
TURNS = 3
#: Numbers of strips that are looked at.
#: By judgement: the best number of strips lies near the square root of the ranks; the twelve nearest to it bound the
#: time. `tartan bench blocks_plan only=auto`: the product is within 5 % of its bound.
STRIPS = 12


@dataclass(frozen=True, eq=False)
class PieceGrid:
    """Pieces that fill a grid of two indices.

    Attributes
    ----------
    rows, columns : ndarray of int64, shape (n_pieces,)
        The place of each piece, from 0.
    shape : tuple of int
    """

    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, index: np.ndarray) -> PieceGrid | None:
        """Recognise a grid in the indices of pieces; None if two indices do not fill one.

        Parameters
        ----------
        index : ndarray of int, shape (n_pieces, n_indices)
        """
        places = [distinct(column)[1] for column in index.T]
        places = [place for place in places if place.any()]
        if len(index) == 0 or len(places) > 2:
            return None
        rows, columns = (*places, *[np.zeros(len(index), dtype=np.int64)] * 2)[:2]
        shape = int(rows.max()) + 1, int(columns.max()) + 1
        if len(index) != shape[0] * shape[1]:
            return None
        filled = len(distinct(rows * shape[1] + columns)[0]) == len(index)
        return cls(rows, columns, shape) if filled else None


@dataclass(frozen=True, eq=False)
class ProductForm:
    """A task in which pieces share what belongs to a row, or to a column, and nothing else.

    Attributes
    ----------
    row_units, column_units : ndarray of int64
        The unit of each row and column of the grid; -1 where it has none.
    alone : bool
        Whether pieces need nothing else.
    """

    row_units: np.ndarray
    column_units: np.ndarray
    alone: bool

    @classmethod
    def of(cls, demand: TaskNeeds, grid: PieceGrid) -> ProductForm | None:
        """Recognise a product in a merged demand; None if units are shared in another way.

        Units of one piece alone, and of all pieces, may be there too.
        """
        n_rows, n_columns = grid.shape
        starts, pieces = demand.needers
        counts, used = np.diff(starts), np.flatnonzero(np.diff(starts))
        if min(grid.shape) < 2 or not len(used):
            return None
        rows, columns = (_common(place[pieces], starts[:-1][used]) for place in (grid.rows, grid.columns))
        of_row = (rows >= 0) & (counts[used] == n_columns)
        of_column = (columns >= 0) & (counts[used] == n_rows)
        rest = counts[used][~of_row & ~of_column]
        if not (of_row.any() and of_column.any() and np.isin(rest, (1, demand.n_pieces)).all()):
            return None
        found = np.full(n_rows, -1), np.full(n_columns, -1)
        found[0][rows[of_row]], found[1][columns[of_column]] = used[of_row], used[of_column]
        return cls(*found, alone=len(rest) == 0)


def _common(places: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the value that all places of a run have; -1 where they differ."""
    least, most = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)
    return np.where(least == most, least, -1)


def whole_shares(shares: np.ndarray) -> np.ndarray:
    """Round exact shares up or down to whole numbers of the same sum, which is whole.

    Examples
    --------
    >>> whole_shares(np.array([2.5, 2.5, 1.0, 1.0])).tolist()
    [3, 2, 1, 1]
    """
    # Not numpy's rounding, which takes halves to even numbers: then a whole share may be changed by one.
    return np.diff(np.floor(np.cumsum(shares) + 0.5 + 1e-9).astype(np.int64), prepend=0)


def layouts(shape: tuple[int, int], counts: np.ndarray) -> Iterator[np.ndarray]:
    """Yield ways to cut a grid into shares of given numbers of pieces, those first that touch the fewest lines.

    Returns
    -------
    iterator of ndarray of int, shape ``shape``
        The share of each place.
    """
    tried = [_in_strips(shape, counts, strips) for strips in _strip_numbers(shape, len(counts))]
    turned = shape[1], shape[0]
    tried += [_in_strips(turned, counts, strips).T for strips in _strip_numbers(turned, len(counts))]
    lines = [sum(float(find_touched(layout, len(counts), axis).sum()) for axis in (0, 1)) for layout in tried]
    for number in np.argsort(lines, kind="stable"):
        yield tried[number]


def _strip_numbers(shape: tuple[int, int], n_shares: int) -> list[int]:
    """Return numbers of strips of columns, about those that make shares square."""
    square = max(1, round(sqrt(n_shares * shape[1] / shape[0])))
    most = min(n_shares, shape[1])
    nearest = sorted(range(1, most + 1), key=lambda strips: abs(strips - square))
    return sorted(nearest[:STRIPS])


def _in_strips(shape: tuple[int, int], counts: np.ndarray, n_strips: int) -> np.ndarray:
    """Cut a grid into strips of columns, and the line that runs through all of them into shares."""
    ends = np.cumsum(counts)
    shares = np.round(len(counts) * np.arange(1, n_strips + 1) / n_strips).astype(int)
    edges = [0, *np.round(shape[1] * ends[shares - 1] / ends[-1]).astype(int)]
    line = []
    for strip, (first, last) in enumerate(pairwise(edges)):
        rows = np.arange(shape[0])[:: -1 if strip % 2 else 1]
        line.append((rows[:, None] * shape[1] + np.arange(first, last)).ravel())
    layout = np.empty(shape[0] * shape[1], dtype=np.int64)
    layout[np.concatenate(line)] = np.repeat(np.arange(len(counts)), counts)
    return layout.reshape(shape)


def find_touched(layout: np.ndarray, n_shares: int, axis: int) -> np.ndarray:
    """Return which lines of the grid each share touches.

    Parameters
    ----------
    axis : int
        0 for rows, 1 for columns.

    Returns
    -------
    ndarray of bool, shape (n_shares, lines)
    """
    found = np.zeros((n_shares, layout.shape[axis]), dtype=bool)
    found[layout, np.arange(layout.shape[axis])[:, None] if axis == 0 else np.arange(layout.shape[axis])] = True
    return found


def lay_on_ranks(
    layout: np.ndarray, grid: PieceGrid, demand: TaskNeeds, missing: np.ndarray, extra: np.ndarray | None
) -> np.ndarray:
    """Lay the shares of a grid upon ranks so that they fetch the least, each rank one share.

    Parameters
    ----------
    layout : ndarray of int, shape of the grid
    grid : PieceGrid
    demand : TaskNeeds
    missing : ndarray of float64, shape (n_ranks, n_units)
        Bytes that each rank would have to fetch.
    extra : ndarray of float64, shape (n_pieces, n_ranks), optional
        Costs of pieces besides.

    Returns
    -------
    ndarray of int64, shape (n_pieces,)
        The rank of each piece.
    """
    shares = layout[grid.rows, grid.columns]
    needed = np.zeros(missing.shape, dtype=bool)
    needed[shares[demand.pieces], demand.units] = True
    ranks = rank_of_shares(needed @ missing.T + _extra_of_shares(shares, extra, len(missing)))
    return np.asarray(ranks[shares])


def rank_of_shares(costs: np.ndarray) -> np.ndarray:
    """Return the rank of each share, given the costs of shape (n_shares, n_ranks)."""
    one = np.ones(len(costs), dtype=np.int64)
    return transport(costs, one, one)


def _extra_of_shares(shares: np.ndarray, extra: np.ndarray | None, n_shares: int) -> np.ndarray | float:
    if extra is None:
        return 0.0
    return np.stack([np.bincount(shares, column, minlength=n_shares) for column in extra.T], axis=1)


def permute_product(layout: np.ndarray, grid: PieceGrid, form: ProductForm, missing: np.ndarray) -> np.ndarray:
    """Lay the shares of a product upon ranks, and permute rows and columns, so that ranks fetch the least.

    Parameters and result are those of ``lay_on_ranks``.
    """
    n_ranks = len(missing)
    costs = [_compute_line_costs(missing, units) for units in (form.row_units, form.column_units)]
    lines = [find_touched(layout, n_ranks, axis) for axis in (0, 1)]
    orders = [np.arange(length) for length in layout.shape]
    ranks = np.arange(n_ranks)
    for _ in range(TURNS):
        wanted = sum(line @ cost[:, order].T for line, cost, order in zip(lines, costs, orders))
        ranks = rank_of_shares(np.asarray(wanted, dtype=float))
        orders = [_order_of_lines(line, cost[ranks]) for line, cost in zip(lines, costs)]
    places = [np.argsort(order) for order in orders]
    return np.asarray(ranks[layout[places[0][grid.rows], places[1][grid.columns]]])


def _compute_line_costs(missing: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return what each rank would have to fetch for each line of the grid, shape (n_ranks, lines)."""
    return np.where(units >= 0, missing[:, np.maximum(units, 0)], 0.0)


def _order_of_lines(lines: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the line of the grid for each place.

    Parameters
    ----------
    lines : ndarray of bool, shape (n_shares, places)
        Which places each share touches.
    costs : ndarray of float64, shape (n_shares, lines)
        Of each line for each share.
    """
    kinds, kind = np.unique(lines, axis=1, return_inverse=True)
    counts = np.bincount(kind.ravel())
    kind_of_line = transport(costs.T @ kinds, counts, counts)
    order = np.empty(lines.shape[1], dtype=np.int64)
    order[np.argsort(kind.ravel(), kind="stable")] = np.argsort(kind_of_line, kind="stable")
    return order
