"""Block tasks of well-known computations, as sequences of tasks whose pieces need and write units.

The three are those of Beri, Bansal and Kumar (2015): the product of two matrices, a sequence of stencils over an image
from one space into another and back, and LU in place, all of square blocks. Only where data lies and what moves is
described, and how many operations a piece takes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tartan.core.affinity import TaskNeeds, moved_bytes
from tartan.core.shares_of_grid import layouts, whole_shares
from tartan.errors import ConfigError

Placement = Literal["source", "centralized", "row cyclic", "column cyclic", "random", "grid"]


@dataclass(frozen=True, eq=False)
class TaskOfBlocks:
    """One task: pieces that may be computed at the same time.

    Attributes
    ----------
    demand : TaskNeeds
        Over the units of the whole workload.
    writes : TaskNeeds
        What the pieces write, as their "needs".
    work : ndarray of float64, shape (n_pieces,)
        Operations of each piece.
    index : ndarray of int, shape (n_pieces, n_indices), optional
    in_place : ndarray of int, shape (n_pieces,), optional
        The unit that each piece updates, where ``index`` says which block that is.
    """

    demand: TaskNeeds
    writes: TaskNeeds
    work: np.ndarray
    index: np.ndarray | None = None
    in_place: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class BlockWorkload:
    """A sequence of tasks, and the blocks that are there before the first.

    Attributes
    ----------
    name : str
    tasks : callable
        Returns an iterator over the tasks.
    sizes : ndarray of float64, shape (n_units,)
        Bytes of each unit.
    places : ndarray of int, shape (n_parts, 2)
        Row and column of the block of every part of the input; a part lies where its block does.
    units : ndarray of int, shape (n_parts,)
        The unit that each part belongs to.
    blocks : ndarray of int, shape (n_parts,)
        The number of its block.
    part_bytes : ndarray of float64, shape (n_parts,)
    shape : tuple of int
        Rows and columns of blocks.
    """

    name: str
    tasks: Callable[[], Iterator[TaskOfBlocks]]
    sizes: np.ndarray
    places: np.ndarray
    units: np.ndarray
    blocks: np.ndarray
    part_bytes: np.ndarray
    shape: tuple[int, int]

    def held(self, placement: Placement, n_ranks: int, seed: int = 0) -> np.ndarray:
        """Return the bytes of each unit that each rank holds before the first task.

        Parameters
        ----------
        placement : {"source", "centralized", "row cyclic", "column cyclic", "random", "grid"}
            Nowhere but in storage; all on one rank; rows or columns of blocks on the ranks in turn; each block on any
            rank; contiguous near-square shares.
        n_ranks : int
        seed : int

        Returns
        -------
        ndarray of float64, shape (n_ranks, n_units)
        """
        held = np.zeros((n_ranks, len(self.sizes)))
        if placement != "source":
            np.add.at(held, (self._ranks(placement, n_ranks, seed), self.units), self.part_bytes)
        return held

    def _ranks(self, placement: Placement, n_ranks: int, seed: int) -> np.ndarray:
        rows, columns = self.places.T
        if placement == "random":
            drawn = np.random.default_rng(seed).integers(0, n_ranks, int(self.blocks.max()) + 1)
            return np.asarray(drawn[self.blocks])
        high = next(k for k in range(int(n_ranks**0.5), 0, -1) if n_ranks % k == 0)
        wide = n_ranks // high
        found = {
            "centralized": lambda: np.zeros_like(rows),
            "row cyclic": lambda: rows % n_ranks,
            "column cyclic": lambda: columns % n_ranks,
            "grid": lambda: rows * high // self.shape[0] * wide + columns * wide // self.shape[1],
        }.get(placement)
        if found is None:
            raise ConfigError(f"{placement!r} is no placement of blocks")
        return np.asarray(found())


# -- product -----------------------------------------------------------------------------------------------------


def product_of_blocks(n_blocks: int, side: int, item_bytes: float = 4.0, *, lines: bool = False) -> BlockWorkload:
    """Describe the product of two square matrices.

    Parameters
    ----------
    n_blocks : int
        Rows, and columns, of blocks of each matrix.
    side : int
        Rows and columns of a block.
    item_bytes : float
    lines : bool
        Whether units are whole rows of blocks of the left and whole columns of the right matrix, and not blocks, and
        what is written is left out: for many blocks.
    """
    n, size = n_blocks, side * side * item_bytes
    rows, columns = (part.ravel() for part in np.indices((n, n)))
    index = np.stack([rows, columns], axis=1)
    if lines:
        needs = TaskNeeds(np.arange(n * n + 1) * 2, np.stack([rows, n + columns], axis=1).ravel(), np.zeros(0))
        units, n_units = np.concatenate([rows, n + columns]), 2 * n
    else:
        inner = np.arange(n)
        left = rows[:, None] * n + inner
        right = n * n + inner * n + columns[:, None]
        needs = TaskNeeds(np.arange(n * n + 1) * 2 * n, np.concatenate([left, right], axis=1).ravel(), np.zeros(0))
        units, n_units = np.arange(2 * n * n), 2 * n * n
    outputs = np.arange(0 if lines else n * n)
    sizes = np.concatenate([np.full(n_units, size * (n if lines else 1)), np.full(len(outputs), size)])
    writes = np.minimum(np.arange(n * n + 1), len(outputs))
    task = TaskOfBlocks(
        TaskNeeds(needs.starts, needs.units, sizes),
        TaskNeeds(writes, n_units + outputs, sizes),
        np.full(n * n, 2.0 * side**3 * n),
        index,
    )
    return BlockWorkload(
        "product",
        lambda: iter([task]),
        sizes,
        np.concatenate([index, index]),
        units,
        np.arange(2 * n * n),
        np.full(2 * n * n, size),
        (n, n),
    )


# -- LU ----------------------------------------------------------------------------------------------------------


def lu_of_blocks(n_blocks: int, side: int, item_bytes: float = 4.0) -> BlockWorkload:
    """Describe block LU in place: 3 n - 2 tasks, the rows and the columns of a step in one task."""
    n, size = n_blocks, side * side * item_bytes
    rows, columns = (part.ravel() for part in np.indices((n, n)))
    sizes = np.full(n * n, size)

    def task(needs: Sequence[Sequence[int]], operations: float, index: np.ndarray | None = None) -> TaskOfBlocks:
        """Make a task whose pieces update the last unit that they need."""
        starts = np.cumsum([0, *map(len, needs)])
        written = np.array([units[-1] for units in needs])
        demand = TaskNeeds(starts, np.array([unit for units in needs for unit in units]), sizes)
        writes = TaskNeeds(np.arange(len(needs) + 1), written, sizes)
        return TaskOfBlocks(demand, writes, np.full(len(needs), operations * side**3), index, written)

    def tasks() -> Iterator[TaskOfBlocks]:
        for k in range(n):
            rest, first = range(k + 1, n), k * n + k
            yield task([[first]], 2 / 3)
            if rest:
                yield task([[first, i * n + k] for i in rest] + [[first, k * n + j] for j in rest], 1.0)
                index = np.array([(i, j) for i in rest for j in rest])
                yield task([[i * n + k, k * n + j, i * n + j] for i, j in index.tolist()], 2.0, index)

    places = np.stack([rows, columns], axis=1)
    return BlockWorkload("lu", tasks, sizes, places, np.arange(n * n), np.arange(n * n), sizes, (n, n))


# -- stencil -----------------------------------------------------------------------------------------------------


def stencil_of_blocks(
    shape: tuple[int, int], side: int, halo: int, repeats: int, item_bytes: float, operations: float
) -> BlockWorkload:
    """Describe stencils over an image, one after the other, from one space into another and back.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of blocks.
    side : int
        Rows and columns of a block.
    halo : int
        Rows and columns that a block needs beyond each of its sides, less than half of a block.
    repeats : int
    item_bytes : float
        Of one element, all channels together.
    operations : float
        For one element.
    """
    lengths = np.array([halo, side - 2 * halo, halo])
    areas = np.outer(lengths, lengths).ravel() * item_bytes
    n = shape[0] * shape[1]
    sizes = np.tile(areas, 2 * n)
    index = np.array(list(np.ndindex(*shape)))
    wanted = [_with_halo(shape, i, j) for i, j in index.tolist()]
    starts = np.cumsum([0, *map(len, wanted)])
    units = np.concatenate(wanted)
    work = np.full(n, operations * side * side)

    def tasks() -> Iterator[TaskOfBlocks]:
        for turn in range(repeats):
            old, new = (turn % 2) * 9 * n, (1 - turn % 2) * 9 * n
            demand = TaskNeeds(starts, old + units, sizes)
            yield TaskOfBlocks(demand, TaskNeeds(np.arange(n + 1) * 9, new + np.arange(9 * n), sizes), work, index)

    parts = np.arange(9 * n)
    return BlockWorkload(
        "convolution", tasks, sizes, np.repeat(index, 9, axis=0), parts, parts // 9, np.tile(areas, n), shape
    )


def _with_halo(shape: tuple[int, int], i: int, j: int) -> np.ndarray:
    """Return the parts that a block needs: nine of its own, and those of its neighbours that lie next to it."""
    found = []
    for a in (-1, 0, 1):
        for b in (-1, 0, 1):
            if 0 <= i + a < shape[0] and 0 <= j + b < shape[1]:
                block = (i + a) * shape[1] + j + b
                rows, columns = ({-1: [2], 0: [0, 1, 2], 1: [0]}[side] for side in (a, b))
                found += [block * 9 + r * 3 + c for r in rows for c in columns]
    return np.array(found)


# -- bounds ------------------------------------------------------------------------------------------------------


def product_bound(row_held: np.ndarray, column_held: np.ndarray, line_bytes: float, counts: np.ndarray) -> float:
    """Return the least bytes that ranks must fetch for a product whose pieces need whole rows and columns.

    Parameters
    ----------
    row_held, column_held : ndarray of float64, shape (n_ranks, n_lines)
        Bytes of each line that a rank holds.
    line_bytes : float
        Bytes of one line.
    counts : ndarray of int, shape (n_ranks,)
        Pieces of each rank.

    Notes
    -----
    A rank with t pieces touches r rows and c columns with r c >= t: it fetches r + c lines less what it holds of the
    r rows and c columns of which it holds the most.
    """
    missing = [np.cumsum(np.sort(line_bytes - held, axis=1), axis=1) for held in (row_held, column_held)]
    total = 0.0
    for rank, count in enumerate(counts.tolist()):
        heights = np.arange(1, row_held.shape[1] + 1)
        widths = -(-count // heights)
        fits = widths <= column_held.shape[1]
        if count:
            total += float((missing[0][rank, heights[fits] - 1] + missing[1][rank, widths[fits] - 1]).min())
    return total


def halo_bound(workload: BlockWorkload, n_ranks: int) -> float:
    """Return the bytes that stencils move between near-square shares of equal size that lie where they are computed."""
    counts = whole_shares(np.full(n_ranks, workload.shape[0] * workload.shape[1] / n_ranks))
    owners = next(layouts(workload.shape, counts)).ravel()
    total, held = 0.0, np.zeros((n_ranks, len(workload.sizes)))
    held[owners[workload.blocks], workload.units] = workload.part_bytes
    for task in workload.tasks():
        total += float(moved_bytes(task.demand, held, owners).sum())
        held[:] = 0.0
        held[owners[task.writes.pieces], task.writes.units] = workload.sizes[task.writes.units]
    return total


def needs_of(demand: TaskNeeds, piece: int) -> dict[Hashable, float]:
    """Return the units of one piece with their bytes."""
    units = demand.units[demand.starts[piece] : demand.starts[piece + 1]]
    return dict(zip(units.tolist(), demand.sizes[units].tolist()))
