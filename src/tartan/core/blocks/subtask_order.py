"""In which order a rank computes its pieces of a task.

A product of two index ranges, of which a rank has whole lines at least in parts: where all that its pieces need fits,
lines come in so that the part that can be computed grows as a square, because that lets the device begin early and
wait the least. Where it does not fit, some rows stay and the columns stream past them (``core/pairs/order.py``).
Pieces of other tasks come by next use: the next one is among those that need the fewest bytes besides what came for
the pieces before it; where there are many, what is there already comes first, then the rest in the order of indices.
"""

from __future__ import annotations

import heapq
from math import ceil

import numpy as np

from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.shares_of_grid import PieceGrid, ProductForm
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.order import panel_order
from tartan.core.pairs.workload import Rectangle

#: Units of all pieces of a rank up to which each next piece is looked for among all.
#: By judgement, held by the bar of `tartan bench blocks_plan only=scheduling`: looking at all pieces each time is
#: quadratic; MANY_NEEDS keeps that below the bar.
MANY_NEEDS = 20_000


class PieceOrder:
    """Orders the pieces of a task, rank by rank.

    Parameters
    ----------
    demand : TaskNeeds
    index : ndarray of int, shape (n_pieces, n_indices), optional
        Index of each piece in the grid of its task.
    """

    def __init__(self, demand: TaskNeeds, index: np.ndarray | None = None) -> None:
        self._demand = demand
        grid = None if index is None else PieceGrid.of(index)
        if grid is not None and min(grid.shape) > 1:
            merged, _ = demand.merge(np.zeros((1, demand.n_units)))
            grid = grid if ProductForm.of(merged, grid) is not None else None
        self._grid = grid if grid is not None and min(grid.shape) > 1 else None

    def of(self, pieces: np.ndarray, missing: np.ndarray, room: float = np.inf) -> np.ndarray:
        """Put the pieces of one rank into order.

        Parameters
        ----------
        pieces : ndarray of int
            Those of the rank.
        missing : ndarray of float64, shape (n_units,)
            Bytes of each unit that the rank must fetch.
        room : float
            Bytes of units that the rank can keep at a time.

        Returns
        -------
        ndarray of int
            The pieces; a function of the arguments alone.
        """
        pieces = np.sort(pieces)
        part = self._demand.part(pieces)
        if self._grid is None or len(pieces) < 2:
            few = len(part.units) <= MANY_NEEDS
            return np.asarray(pieces[_by_next_use(part, missing) if few else _by_missing(part, missing)])
        lines = [
            np.unique(line[pieces], return_inverse=True)[1].ravel() for line in (self._grid.rows, self._grid.columns)
        ]
        orders = [_by_cost(part, line, missing) for line in lines]
        n_rows, n_columns = map(len, orders)
        units = np.unique(part.units)
        shared = np.diff(self._demand.needers[0])[units] > 1  # what one piece alone needs belongs to no line
        mean = max(1e-300, part.sizes[units].sum(where=shared) / (n_rows + n_columns))
        places = _places(n_rows, n_columns, min(room / mean, n_rows + n_columns))
        turn = np.empty((n_rows, n_columns), dtype=np.int64)
        turn[tuple(places.T)] = np.arange(len(places))
        rows, columns = (np.argsort(order)[line] for order, line in zip(orders, lines))
        return np.asarray(pieces[np.argsort(turn[rows, columns], kind="stable")])


def _by_cost(demand: TaskNeeds, lines: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return the lines, numbered from 0, those first whose pieces need the fewest missing bytes."""
    costs = np.bincount(lines, demand.sums(missing)) / np.bincount(lines)
    return np.argsort(costs, kind="stable")


def _places(n_rows: int, n_columns: int, room: float) -> np.ndarray:
    """Return the places of a rectangle in their order, with room for a number of lines.

    Returns
    -------
    ndarray of int64, shape (n_rows * n_columns, 2)
        Row and column.
    """
    if room >= n_rows + n_columns:
        return _squares(n_rows, n_columns)
    resident = _count_resident(room)
    if _count_streamed(n_rows, n_columns, resident) <= _count_streamed(n_columns, n_rows, resident):
        return _panels(n_rows, n_columns, resident)
    return _panels(n_columns, n_rows, resident)[:, ::-1]


def n_loads(n_rows: int, n_columns: int, room: float) -> int:
    """Return how many lines a rank loads for a product, with room for a number of lines."""
    if room >= n_rows + n_columns:
        return n_rows + n_columns
    resident = _count_resident(room)
    return min(_count_streamed(n_rows, n_columns, resident), _count_streamed(n_columns, n_rows, resident))


def _count_resident(room: float) -> int:
    """Return the lines that stay: there is a line that streams past them, and the next one on its way."""
    return max(1, int(room) - 2)


def _count_streamed(n_staying: int, n_streaming: int, resident: int) -> int:
    return n_staying + n_streaming * ceil(n_staying / resident)


def _squares(n_rows: int, n_columns: int) -> np.ndarray:
    """Return the places of a rectangle so that each next line, of either side in proportion, is used at once."""
    ends = np.concatenate([np.arange(1, count + 1) / count for count in (n_rows, n_columns)])
    arrival = np.argsort(np.argsort(ends, kind="stable"))  # rows before columns that come at the same time
    rows, columns = arrival[:n_rows, None], arrival[n_rows:]
    # A place is reached with the later one of its lines, and then in the order of the earlier ones.
    order = np.argsort(np.maximum(rows, columns) * len(ends) + np.minimum(rows, columns), axis=None)
    return np.stack(np.unravel_index(order, (n_rows, n_columns)), axis=1)


def _panels(n_rows: int, n_columns: int, resident: int) -> np.ndarray:
    """Return the places of a rectangle in the order of panels: some rows stay, the columns stream past.

    Panels are of one height: what room is left keeps columns from one panel to the next.
    """
    resident = ceil(n_rows / ceil(n_rows / resident))
    grid = Grid(n_rows + n_columns, n_rows + n_columns, 0, 1, 1)
    order = panel_order(grid, Rectangle(n_rows, n_rows + n_columns), resident, lambda tile: True)
    return np.array([(tile.strip, tile.span - n_rows) for segment in order for tile in segment.tiles])


def _by_missing(demand: TaskNeeds, missing: np.ndarray) -> np.ndarray:
    """Return the pieces that need the fewest missing bytes first; of equal ones the order stays."""
    return np.argsort(demand.sums(missing), kind="stable")


def _by_next_use(demand: TaskNeeds, missing: np.ndarray) -> np.ndarray:
    """Return the pieces so that the next one always needs the fewest bytes that are not there yet."""
    starts, needers = demand.needers
    left, costs = missing.copy(), demand.sums(missing)
    heap = [(cost, piece) for piece, cost in enumerate(costs.tolist())]
    heapq.heapify(heap)
    done, order = np.zeros(demand.n_pieces, dtype=bool), []
    while heap:
        cost, piece = heapq.heappop(heap)
        if done[piece] or cost > costs[piece]:
            continue
        done[piece] = True
        order.append(piece)
        for unit in demand.units[demand.starts[piece] : demand.starts[piece + 1]].tolist():
            if left[unit] > 0:
                relieved = needers[starts[unit] : starts[unit + 1]]
                costs[relieved] -= left[unit]
                left[unit] = 0.0
                for other in relieved[~done[relieved]].tolist():
                    heapq.heappush(heap, (costs[other], other))
    return np.array(order, dtype=np.int64)
