"""Many boxes at once, as arrays of shape (n, n_dimensions, 2): what ``core/blocks/space.py`` says of one box.

A task of many subtasks names as many ranges; they are compared, numbered, and cut into blocks here without a Python
object for each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tartan.core.blocks.distinct import distinct
from tartan.core.blocks.space import BlockGrid, Box

# By arithmetic: codes are int64, and a product below 2**62 leaves the sign and one bit.
_MOST = 2**62


def boxes_of(boxes: list[Box]) -> np.ndarray:
    """Return boxes of the same number of dimensions as an array."""
    flat = [bound for box in boxes for interval in box for bound in interval]
    return np.array(flat, dtype=np.int64).reshape(len(boxes), -1, 2)


def box_of(row: np.ndarray) -> Box:
    """Return one box of an array as the tuple that it is alone."""
    return tuple((start, stop) for start, stop in row.tolist())


def sizes_of(boxes: np.ndarray) -> np.ndarray:
    """Return the number of elements of each box."""
    return np.asarray((boxes[:, :, 1] - boxes[:, :, 0]).prod(axis=1))


def codes_of(rows: np.ndarray) -> np.ndarray:
    """Return one number for each row, in the order of the rows: equal for equal rows and for no others.

    Parameters
    ----------
    rows : ndarray of int, shape (n, n_columns)

    Returns
    -------
    ndarray of int64, shape (n,)

    Examples
    --------
    >>> codes_of(np.array([[3, 9], [0, 2], [3, 9]])).tolist()
    [31, 0, 31]
    """
    codes, n_codes = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T if len(rows) else ():
        least = int(column.min())
        width = int(column.max()) - least + 1
        if n_codes * width > _MOST:
            values, codes = np.unique(codes, return_inverse=True)
            n_codes = len(values)
        if n_codes * width > _MOST:
            values, places = np.unique(column, return_inverse=True)
            codes, n_codes = codes * len(values) + places, n_codes * len(values)
        elif width > 1:
            codes, n_codes = codes * width + (column - least), n_codes * width
    return codes


def surely_disjoint(boxes: np.ndarray) -> bool:
    """Whether no two boxes share an element and a lattice shows it, as it does where boxes are blocks of one grid.

    In every dimension two intervals of a lattice are equal or disjoint. False says nothing.

    Examples
    --------
    >>> surely_disjoint(np.array([[[0, 2], [0, 2]], [[0, 2], [2, 4]]]))
    True
    >>> surely_disjoint(np.array([[[0, 3], [0, 2]], [[2, 4], [2, 4]]]))
    False
    """
    lattice = []
    for intervals in boxes.transpose(1, 0, 2):
        starts, places = distinct(intervals[:, 0])
        stops = np.empty_like(starts)
        stops[places] = intervals[:, 1]
        if (stops[places] != intervals[:, 1]).any() or (stops[:-1] > starts[1:]).any():
            return False
        lattice.append(places)
    return len(distinct(codes_of(np.stack(lattice, axis=1)))[0]) == len(boxes)


def first_overlap(boxes: np.ndarray) -> tuple[int, int] | None:
    """Find two boxes that have an element in common.

    Parameters
    ----------
    boxes : ndarray of int, shape (n, n_dimensions, 2)

    Returns
    -------
    tuple of int or None
        Their places in ``boxes``, the smaller one first; None if all are disjoint.

    Notes
    -----
    Where a lattice does not show that all are disjoint: a sweep along the first dimension, O(n log n) and for each box
    the boxes that begin beside it in that dimension.
    """
    if len(boxes) < 2 or surely_disjoint(boxes):
        return None
    order = np.lexsort(tuple(boxes[:, k, 0] for k in reversed(range(boxes.shape[1]))))
    ordered = boxes[order]
    starts, stops = ordered[:, 0, 0], np.maximum.accumulate(ordered[:, 0, 1])
    # Boxes reach back at most to the first whose running end lies beyond their start.
    firsts = np.searchsorted(stops, starts, side="right")
    for place in np.flatnonzero(firsts < np.arange(len(boxes))):
        beside = ordered[firsts[place] : place]
        meets = (beside[:, :, 0] < ordered[place, :, 1]) & (ordered[place, :, 0] < beside[:, :, 1])
        found = np.flatnonzero(meets.all(axis=1))
        if len(found):
            one, other = sorted((int(order[place]), int(order[firsts[place] + found[0]])))
            return one, other
    return None


class BlockParts(NamedTuple):
    """The parts of boxes that lie in one block each.

    Attributes
    ----------
    boxes : ndarray of int64, shape (n_parts,)
        Which box, ascending.
    blocks : ndarray of int64, shape (n_parts,)
        The number of the block; ascending for each box.
    sizes : ndarray of int64, shape (n_parts,)
        Elements that both have in common.
    """

    boxes: np.ndarray
    blocks: np.ndarray
    sizes: np.ndarray


def block_parts(grid: BlockGrid, boxes: np.ndarray) -> BlockParts:
    """Cut boxes at the edges of blocks.

    Parameters
    ----------
    grid : BlockGrid
    boxes : ndarray of int, shape (n, n_dimensions, 2)

    Examples
    --------
    >>> parts = block_parts(BlockGrid((5, 4), (2, 4)), np.array([[[1, 3], [0, 2]]]))
    >>> parts.blocks.tolist(), parts.sizes.tolist()
    ([0, 1], [2, 2])
    """
    steps = np.array(grid.block)
    firsts = boxes[:, :, 0] // steps
    counts = -(-boxes[:, :, 1] // steps) - firsts
    totals = counts.prod(axis=1)
    which = np.repeat(np.arange(len(boxes)), totals)
    place = np.arange(len(which)) - np.repeat(np.cumsum(totals) - totals, totals)
    blocks, sizes, stride = np.zeros_like(which), np.ones_like(which), 1
    for k in reversed(range(len(steps))):
        place, inner = np.divmod(place, counts[which, k])
        at = firsts[which, k] + inner
        start, stop = np.maximum(boxes[which, k, 0], at * steps[k]), np.minimum(boxes[which, k, 1], (at + 1) * steps[k])
        blocks, sizes, stride = blocks + at * stride, sizes * (stop - start), stride * grid.counts[k]
    return BlockParts(which, blocks, sizes)
