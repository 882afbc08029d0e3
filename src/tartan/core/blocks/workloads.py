"""Block tasks of well-known computations, as sequences of tasks whose pieces need and write units.

The three are those of Beri, Bansal and Kumar (2015): the product of two matrices, a sequence of stencils over an image
from one space into another and back, and LU in place, all of square blocks. Only where data lies and what moves is
described, and how many operations a piece takes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.placement import Place, place_blocks


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
    units : ndarray of int, shape (n_parts,)
        The unit that each part of the input belongs to.
    blocks : ndarray of int, shape (n_parts,)
        The number of its block, where it lies; blocks of a second space follow those of the first.
    part_bytes : ndarray of float64, shape (n_parts,)
    shape : tuple of int
        Rows and columns of blocks of a space.
    repeated : ndarray of bool, shape (n_units,), optional
        Units that are part of another one of the same block. Default: none.
    """

    name: str
    tasks: Callable[[], Iterator[TaskOfBlocks]]
    sizes: np.ndarray
    units: np.ndarray
    blocks: np.ndarray
    part_bytes: np.ndarray
    shape: tuple[int, int]
    repeated: np.ndarray | None = None

    def count_held(self, placement: Place, n_ranks: int, seed: int = 0) -> np.ndarray:
        """Return the bytes of each unit that each rank holds before the first task.

        Parameters
        ----------
        placement : {"source", "centralized", "row cyclic", "column cyclic", "random", "grid"}
            Nowhere but in storage; or as ``place_blocks`` has it, for each space with the next seed.
        n_ranks : int
        seed : int

        Returns
        -------
        ndarray of float64, shape (n_ranks, n_units)
        """
        held = np.zeros((n_ranks, len(self.sizes)))
        if placement != "source":
            n_spaces = -(-(int(self.blocks.max()) + 1) // (self.shape[0] * self.shape[1]))
            ranks = [place_blocks(self.shape, placement, n_ranks, seed + number) for number in range(n_spaces)]
            np.add.at(held, (np.concatenate(ranks)[self.blocks], self.units), self.part_bytes)
        return held


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
        units,
        np.arange(2 * n * n),
        np.full(2 * n * n, size),
        (n, n),
    )


# -- LU ----------------------------------------------------------------------------------------------------------


def lu_of_blocks(n_blocks: int, side: int, item_bytes: float = 4.0, *, ahead: bool = False) -> BlockWorkload:
    """Describe block LU in place: 3 n - 2 tasks, the rows and the columns of a step in one task.

    Parameters
    ----------
    n_blocks : int
        Rows, and columns, of blocks.
    side : int
        Rows and columns of a block.
    item_bytes : float
    ahead : bool
        Whether a diagonal block is factored by the subtask that changes it last: 2 n - 1 tasks, as ``tartan blocks lu``
        has them; in a task of its own otherwise.
    """
    n, size = n_blocks, side * side * item_bytes
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
            if k == 0 or not ahead:
                yield task([[first]], 2 / 3)
            if rest:
                yield task([[first, i * n + k] for i in rest] + [[first, k * n + j] for j in rest], 1.0)
                index = np.array([(i, j) for i in rest for j in rest])
                yield task([[i * n + k, k * n + j, i * n + j] for i, j in index.tolist()], 2.0, index)

    return BlockWorkload("lu", tasks, sizes, np.arange(n * n), np.arange(n * n), sizes, (n, n))


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
    n = shape[0] * shape[1]
    strips = [_strip(side, halo, *towards) for towards in _TOWARDS]
    index = np.array(list(np.ndindex(*shape)))
    there = np.array([[_inside(shape, i + a, j + b) for a, b in _TOWARDS] for i, j in index.tolist()])
    areas = (there * np.array(strips) * item_bytes).ravel()
    sizes = np.tile(areas, 2)
    wanted = [_with_halo(shape, i, j) for i, j in index.tolist()]
    starts = np.cumsum([0, *map(len, wanted)])
    units = np.concatenate(wanted)
    work = np.full(n, operations * side * side)

    def tasks() -> Iterator[TaskOfBlocks]:
        for turn in range(repeats):
            old, new = (turn % 2) * 9 * n, (1 - turn % 2) * 9 * n
            demand = TaskNeeds(starts, old + units, sizes)
            yield TaskOfBlocks(demand, TaskNeeds(np.arange(n + 1) * 9, new + np.arange(9 * n), sizes), work, index)

    parts, repeated = np.arange(9 * n), np.tile(np.arange(9) > 0, 2 * n)
    return BlockWorkload("convolution", tasks, sizes, parts, parts // 9, areas, shape, repeated)


#: The units of a block of a stencil: the block itself, and the strip along each side and corner.
_TOWARDS = ((0, 0), (-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))


def _strip(side: int, halo: int, a: int, b: int) -> int:
    return (halo if a else side) * (halo if b else side)


def _inside(shape: tuple[int, int], i: int, j: int) -> bool:
    return 0 <= i < shape[0] and 0 <= j < shape[1]


def _with_halo(shape: tuple[int, int], i: int, j: int) -> np.ndarray:
    """Return the units that a block needs: itself, and of its neighbours the strips that lie next to it.

    Strips of one block overlap, as the ranges do that a rank fetches: what two blocks of a rank need comes twice.
    """
    found = []
    for a, b in _TOWARDS:
        if _inside(shape, i + a, j + b):
            found.append(((i + a) * shape[1] + j + b) * 9 + _TOWARDS.index((-a, -b)))
    return np.array(found)


def needs_of(demand: TaskNeeds, piece: int) -> dict[Hashable, float]:
    """Return the units of one piece with their bytes."""
    units = demand.units[demand.starts[piece] : demand.starts[piece + 1]]
    return dict(zip(units.tolist(), demand.sizes[units].tolist()))
