"""Reduce the matrix of a run to the size of a picture, in bounded memory.

A matrix of up to `DENSE_SIDE` rows and columns is read whole. A larger one is read chunk by chunk, each committed
chunk once, and averaged in blocks; memory is a few copies of one chunk and of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError
from tartan.store.view import require_real

# By judgement: 2,000 x 2,000 float64 are 32 MB, read in a tenth of a second; more than pictures have pixels. No
# benchmark.
DENSE_SIDE: Final = 2000
# _MAX_LEAVES and _OPTIMAL_LEAVES, by judgement: a linkage takes 1 s for 6,000 items (docs/benchmarks.md, tree) and
# 100 MB of distances; SciPy's optimal ordering takes time of n**3, a second at 400. No benchmark.
_MAX_LEAVES: Final = 5000
_OPTIMAL_LEAVES: Final = 400


def require_shown(run: Any) -> None:
    """Refuse runs whose first output, which pictures show, is complex.

    Raises
    ------
    ConfigError
    """
    name, dtype = next(iter(run.manifest.outputs.items()))
    require_real(name, dtype, "pictures show")


def block_means(run: Any, side: int = DENSE_SIDE, *, order: NDArray[np.integer] | None = None) -> NDArray[np.float64]:
    """Return a run's matrix, averaged in blocks when it is larger than the picture.

    Parameters
    ----------
    run : Run
        A finished or unfinished run with a dense matrix.
    side : int
        Largest side of the result.
    order : ndarray of int, shape (n,), optional
        Row and column p of the result shows item ``order[p]``; not for A x B.

    Returns
    -------
    ndarray of float64, shape (min(rows, side), min(columns, side))
        Means over the finite scores of each block; NaN where there is none. Scores of items with themselves do not
        count: pictures show pairs.

    Raises
    ------
    ConfigError
        If ``order`` is not a permutation of the items, or the matrix is not square.
    """
    require_shown(run)
    shape = run.shape
    order = _check_order(order, shape)
    if max(shape) > DENSE_SIDE:
        return _stream_means(run, shape, side, order)
    matrix = np.array(run.matrix(), dtype=np.float64)
    if is_square(run):
        np.fill_diagonal(matrix, np.nan)
    return shrink(matrix if order is None else matrix[np.ix_(order, order)], side)


def is_square(run: Any) -> bool:
    """Whether rows and columns are the same items, so that on the diagonal each meets itself."""
    return bool(run.shape[0] == run.shape[1] == run.n_items)


def mean_cells(
    tiles: Iterable[tuple[int, int, NDArray[np.float64]]], n: int, side: int, order: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Average a symmetric matrix whose upper triangle comes in squares.

    Parameters
    ----------
    tiles : iterable of (int, int, ndarray of float64)
        First row, first column, values; NaN does not count. Squares on the diagonal are whole, others come once.
    n : int
    side : int
        Largest side of the result.
    order : ndarray of int, shape (n,)
        Row and column p of the result shows item ``order[p]``.

    Returns
    -------
    ndarray of float64, shape (min(n, side), min(n, side))
        NaN where no value is known.
    """
    cells = min(n, side)
    cell_of = _cell_of(np.argsort(order), n, cells)
    # Apart, because squares on the diagonal have both halves already.
    sums, counts, whole_sums, whole_counts = (np.zeros((cells, cells)) for _ in range(4))
    for row, column, values in tiles:
        known = np.isfinite(values)
        rows, columns = cell_of[row : row + len(values)], cell_of[column : column + values.shape[1]]
        to_sums, to_counts = (whole_sums, whole_counts) if row == column else (sums, counts)
        _add_blocks(to_sums, np.where(known, values, 0.0), rows, columns)
        _add_blocks(to_counts, known, rows, columns)
    return _mean(sums + sums.T + whole_sums, counts + counts.T + whole_counts)


def shrink(matrix: NDArray[np.floating], side: int) -> NDArray[np.float64]:
    """Average a matrix in blocks so that neither side exceeds ``side``; NaN and infinities do not count.

    Returns
    -------
    ndarray of float64, shape (min(rows, side), min(columns, side))
    """
    values = np.asarray(matrix, dtype=np.float64)
    if max(values.shape, default=0) <= side:
        return values
    known = np.isfinite(values)
    sums, counts = np.where(known, values, 0.0), known.astype(np.float64)
    for axis in (0, 1):
        starts = _block_starts(values.shape[axis], min(values.shape[axis], side))
        sums, counts = np.add.reduceat(sums, starts, axis), np.add.reduceat(counts, starts, axis)
    return _mean(sums, counts)


def leaf_tree(matrix: NDArray[np.floating], *, similarity: bool) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
    """Order items so that alike ones stand together: the leaves of an average-link tree.

    Parameters
    ----------
    matrix : ndarray of float, shape (n, n)
        Symmetric scores; the diagonal is ignored, missing scores count as the least alike.
    similarity : bool
        Whether a larger score means more alike.

    Returns
    -------
    order : ndarray of int, shape (n,)
    joined : ndarray of float64, shape (n - 1, 4), or None
        The tree, as ``scipy.cluster.hierarchy.linkage`` returns it, but for its heights, which are scores: the mean
        score of the items of two branches, where they join; None below 3 items.

    Raises
    ------
    ConfigError
        If n exceeds 5000: the tree needs n^2 memory.

    Notes
    -----
    Up to 400 items the leaves are turned so that neighbours are as alike as the tree allows (Bar-Joseph,
    Gifford and Jaakkola, Bioinformatics 17, 2001).
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    n = len(matrix)
    if n > _MAX_LEAVES:
        raise ConfigError(f"ordering {n} items by a tree is limited to {_MAX_LEAVES}; pass clusters instead")
    if n < 3:
        return np.arange(n, dtype=np.intp), None
    scores = np.asarray(matrix, dtype=np.float64)[np.triu_indices(n, 1)]
    distances = -scores if similarity else scores.copy()
    known = np.isfinite(distances)
    low, high = (distances[known].min(), distances[known].max()) if known.any() else (0.0, 0.0)
    distances = np.where(known, distances, high) - low
    tree = linkage(distances, method="average", optimal_ordering=n <= _OPTIMAL_LEAVES)
    order = np.asarray(leaves_list(tree), dtype=np.intp)
    tree[:, 2] += low
    tree[:, 2] *= -1.0 if similarity else 1.0
    return order, tree


def _check_order(order: Any, shape: tuple[int, int]) -> NDArray[np.intp] | None:
    if order is None:
        return None
    n = shape[0]
    if shape[1] != n:
        raise ConfigError(f"a matrix of shape {shape} cannot be reordered: its rows are not its columns")
    checked = np.asarray(order, dtype=np.intp)
    if checked.shape != (n,) or not np.array_equal(np.sort(checked), np.arange(n)):
        raise ConfigError(f"order must hold each of the {n} item indices once")
    return checked


def _block_starts(n: int, side: int) -> NDArray[np.intp]:
    return (np.arange(side, dtype=np.intp) * n) // side


def _mean(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    means = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _stream_means(run: Any, shape: tuple[int, int], side: int, order: NDArray[np.intp] | None) -> NDArray[np.float64]:
    cells = CellSums(shape, side, order)
    for block in run.view().blocks():
        known = block.done & np.isfinite(block.scores)
        cells.add(block.row, block.column, block.scores, without_self(run, block.row, block.column, known))
    return cells.means(run.manifest.symmetric)


def without_self(run: Any, row: int, column: int, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which scores of a block, whose first one stands at (row, column), are those of two different items."""
    if not is_square(run) or row >= column + known.shape[1] or column >= row + known.shape[0]:
        return known
    rows, columns = np.arange(row, row + known.shape[0]), np.arange(column, column + known.shape[1])
    two: NDArray[np.bool_] = rows[:, None] != columns
    return known & two


class CellSums:
    """Means of the cells of a picture, from blocks and pairs in any order.

    Parameters
    ----------
    shape : (int, int)
        Of the matrix.
    side : int
        Largest side of the picture.
    order : ndarray of int, shape (n,), optional
        Row and column p of the picture show item ``order[p]``.
    """

    def __init__(self, shape: tuple[int, int], side: int, order: NDArray[np.intp] | None = None) -> None:
        self._shape = shape
        self._places = None if order is None else np.argsort(order)
        self._sums = np.zeros((min(side, shape[0]), min(side, shape[1])))
        self._counts = np.zeros_like(self._sums)

    def add(self, row: int, column: int, values: NDArray[Any], known: NDArray[np.bool_]) -> None:
        """Add a block whose first value stands at (row, column); only those that are known count."""
        if known.size:
            rows, columns = (
                self._cells(axis, np.arange(start, start + known.shape[axis]))
                for axis, start in ((0, row), (1, column))
            )
            _add_blocks(self._sums, np.where(known, values, 0.0), rows, columns)
            _add_blocks(self._counts, known, rows, columns)

    def add_pairs(self, i: NDArray[np.integer], j: NDArray[np.integer], values: NDArray[Any]) -> None:
        """Add single values at (i, j)."""
        at = self._cells(0, i), self._cells(1, j)
        np.add.at(self._sums, at, values)
        np.add.at(self._counts, at, 1)

    def _cells(self, axis: int, items: NDArray[np.integer]) -> NDArray[np.intp]:
        """Return the rows or columns of the picture that show items; of those alone, as there may be very many."""
        places = items if self._places is None else self._places[items]
        return _cell_of(places, self._shape[axis], self._sums.shape[axis])

    def means(self, symmetric: bool) -> NDArray[np.float64]:
        """Return the means, NaN where there is nothing; of a symmetric matrix one half was added."""
        if symmetric:
            return _mean(self._sums + self._sums.T, self._counts + self._counts.T)
        return _mean(self._sums, self._counts)


def _cell_of(places: NDArray[np.integer], n: int, side: int) -> NDArray[np.intp]:
    """Return the block of ``_block_starts`` that holds each place."""
    cells: NDArray[np.intp] = ((places.astype(np.intp) + 1) * side - 1) // n
    return cells


def _add_blocks(
    target: NDArray[np.float64], values: NDArray[Any], rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> None:
    """Add values[a, b] to target[rows[a], columns[b]]."""
    for axis, cells in ((1, columns), (0, rows)):
        sorted_cells = np.argsort(cells, kind="stable")
        _, starts = np.unique(cells[sorted_cells], return_index=True)
        values = np.add.reduceat(np.take(values, sorted_cells, axis), starts, axis, dtype=np.float64)
    target[np.ix_(np.unique(rows), np.unique(columns))] += values
