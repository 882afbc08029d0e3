"""What block tasks must at least move between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.assignment import Assignment
from tartan.core.blocks.shares_of_grid import PieceGrid, ProductForm, layouts, whole_shares


def product_bound(
    row_held: np.ndarray, column_held: np.ndarray, line_bytes: float | tuple[np.ndarray, np.ndarray], counts: np.ndarray
) -> float:
    """Return the least bytes that ranks must fetch for a product whose pieces need whole rows and columns.

    Parameters
    ----------
    row_held, column_held : ndarray of float64, shape (n_ranks, n_lines)
        Bytes of each line that a rank holds.
    line_bytes : float or (ndarray, ndarray)
        Bytes of one line, or of each row and each column.
    counts : ndarray of int, shape (n_ranks,)
        Pieces of each rank.

    Notes
    -----
    A rank with t pieces touches r rows and c columns with r c >= t: it fetches r + c lines less what it holds of the
    r rows and c columns of which it holds the most.

    Examples
    --------
    >>> nothing = np.zeros((4, 16))
    >>> product_bound(nothing, nothing, 1.0, np.full(4, 64))
    64.0
    """
    sizes = line_bytes if isinstance(line_bytes, tuple) else (line_bytes, line_bytes)
    held = row_held, column_held
    missing = [np.cumsum(np.sort(size - there, axis=1), axis=1) for size, there in zip(sizes, held, strict=True)]
    total = 0.0
    for rank, count in enumerate(counts.tolist()):
        heights = np.arange(1, row_held.shape[1] + 1)
        widths = -(-count // heights)
        fits = widths <= column_held.shape[1]
        if count:
            total += float((missing[0][rank, heights[fits] - 1] + missing[1][rank, widths[fits] - 1]).min())
    return total


def bound_moved_bytes(task: Assignment) -> float | None:
    """Return the bytes that ranks must at least receive from each other, each with its share of the pieces.

    Parameters
    ----------
    task : Assignment
        What no rank holds comes from storage, and is not counted.

    Returns
    -------
    float or None
        0 where there is one rank, and where no rank holds anything. Else known for products alone: where each piece
        needs what belongs to its row and its column of a grid, and nothing besides. None for other tasks.
    """
    if task.n_ranks == 1 or not task.held.any():
        return 0.0
    grid = None if task.index is None else PieceGrid.of(task.index)
    merged = task.merge()
    lines = None if grid is None else _lines(merged.demand, grid)
    if lines is None:
        return None
    elsewhere = np.clip(merged.held.sum(axis=0) - merged.held, 0, merged.missing)
    missing = [np.where(units >= 0, elsewhere[:, np.maximum(units, 0)], 0.0) for units in lines]
    nothing = np.zeros(missing[0].shape[1]), np.zeros(missing[1].shape[1])
    return product_bound(-missing[0], -missing[1], nothing, task.bounds[0])


def _lines(demand: TaskNeeds, grid: PieceGrid) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the unit of each row and each column of a product, -1 where it has none; None for other tasks."""
    if min(grid.shape) > 1:
        form = ProductForm.of(demand, grid)
        return (form.row_units, form.column_units) if form is not None and form.alone else None
    counts = np.bincount(demand.units, minlength=demand.n_units)
    if not np.isin(counts, (0, 1, demand.n_pieces)).all():
        return None
    single = np.full(demand.n_pieces, -1)
    of_one = counts[demand.units] < max(2, demand.n_pieces)
    single[demand.pieces[of_one]] = demand.units[of_one]
    common = np.append(demand.units[~of_one], -1)[:1]
    return common, single


def halo_bound(edges: Sequence[Sequence[int]], widths: tuple[int, int], n_ranks: int) -> int:
    """Return the elements that one stencil moves between near-square shares that lie where they are computed.

    Parameters
    ----------
    edges : sequence of two sequences of int
        Rows, and columns, of each block of the first, and of the second, dimension.
    widths : tuple of int
        Rows and columns that a block needs beyond its sides.
    n_ranks : int

    Examples
    --------
    >>> halo_bound([(8, 8), (8, 8)], (1, 1), 2)
    32
    """
    shape = len(edges[0]), len(edges[1])
    owners = next(layouts(shape, whole_shares(np.full(n_ranks, shape[0] * shape[1] / n_ranks))))
    ends = [np.array([0, *accumulate(lengths)]) for lengths in edges]
    cuts = [
        np.unique(np.clip(np.concatenate([end, end - width, end + width]), 0, end[-1]))
        for end, width in zip(ends, widths, strict=True)
    ]
    rows, columns = (np.searchsorted(end, cut[:-1], side="right") - 1 for end, cut in zip(ends, cuts, strict=True))
    cells, areas = owners[np.ix_(rows, columns)], np.outer(*map(np.diff, cuts))
    total = 0
    for rank in range(n_ranks):
        needed = np.zeros(cells.shape, dtype=bool)
        for block in np.argwhere(owners == rank).tolist():
            needed[
                tuple(
                    slice(*np.searchsorted(cut, np.clip([end[k] - width, end[k + 1] + width], 0, end[-1])))
                    for k, end, cut, width in zip(block, ends, cuts, widths, strict=True)
                )
            ] = True
        total += int(areas[needed & (cells != rank)].sum())
    return total
