"""The tasks of a session, one after the other: each divided among the ranks, with regard to those that will follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from tartan.core.blocks.assignment import Affinity, Assignment, assign
from tartan.core.blocks.shares_of_grid import PieceGrid
from tartan.core.blocks.transport import transport


@dataclass(frozen=True, eq=False)
class UpdatedBlocks:
    """The blocks that a task updates in place, where every piece updates one whole block of the same space.

    Attributes
    ----------
    space : hashable
    index : ndarray of int, shape (n_pieces, n_dimensions)
        Index of the block of each piece.
    sizes : ndarray of float64, shape (n_pieces,)
        Bytes of each block.
    holders : ndarray of int, shape (n_pieces,)
        A rank that holds each block; -1 where no rank does.
    """

    space: Hashable
    index: np.ndarray
    sizes: np.ndarray
    holders: np.ndarray


class TaskDivider:
    """Divides the tasks of one session; remembers which of them came back.

    Parameters
    ----------
    affinity : {"auto", "marginal", "local", "transfers", "remote", "none"}
    evaluate : float
        Share of the pieces that each rank looks at.
    seed : int
        Every task draws with a seed of its own: what was dealt at random once is not dealt the same way again.
    """

    def __init__(self, affinity: Affinity = "auto", evaluate: float = 1.0, seed: int = 0) -> None:
        self._affinity, self._evaluate, self._seed = affinity, evaluate, seed
        self._lookahead: Lookahead | None = None

    def divide(self, task: Assignment, number: int, updated: UpdatedBlocks | None = None) -> np.ndarray:
        """Return the rank of each piece of a task.

        Parameters
        ----------
        task : Assignment
            Without ``extra``; its seed is not used.
        number : int
            Of the task in the session, from 1.
        updated : UpdatedBlocks, optional
            What it updates in place; None where pieces do not update one whole block of the same space each.

        Returns
        -------
        ndarray of int64, shape (n_pieces,)
        """
        extra = None
        if updated is not None and self._affinity == "auto":
            extra = self._ahead(task.n_ranks).extra(updated.space, updated.index, updated.sizes, updated.holders)
        given = replace(task, extra=extra, seed=self._seed * 10_007 + number)
        return assign(given, self._affinity, evaluate=self._evaluate)

    def _ahead(self, n_ranks: int) -> Lookahead:
        """Return what is remembered; with other ranks it begins anew."""
        if self._lookahead is None or self._lookahead.n_ranks != n_ranks:
            self._lookahead = Lookahead(n_ranks)
        return self._lookahead


# What comes back in later tasks: owners of blocks that tasks update in place, one task after the other.
#
# A task that updates a grid of blocks in place, where a piece needs what belongs to its row and its column too, is
# seldom the only one of its kind: factorisations shrink the same grid step by step. From the second such task of a
# space on, blocks have owners, block-cyclic in two dimensions, so that every rank keeps blocks of few rows and few
# columns however far the grid shrinks. A piece that another rank computes than the owner of its block will cost that
# block once more.

#: Longest side of the pattern of owners, over its shorter side: with more, rows and columns of a rank are not few.
#: By judgement: rows plus columns of a 1 x 3 share are 15 % more than those of a square; beyond that dealing by need
#: moves less. The LU of `tartan bench blocks_plan` uses 2 x 4.
LONGEST = 3


class Lookahead:
    """Remembers the tasks of a session that update blocks in place, and says what their results will cost later.

    Parameters
    ----------
    n_ranks : int

    Examples
    --------
    >>> blocks = np.array([(i, j) for i in range(4) for j in range(4)])
    >>> ahead = Lookahead(4)
    >>> ahead.extra("L", blocks, np.ones(16), np.zeros(16, int)) is None  # the first one may be the only one
    True
    >>> ahead.extra("L", blocks, np.ones(16), np.zeros(16, int)).shape
    (16, 4)
    """

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self._seen: Counter[Hashable] = Counter()
        self._patterns: dict[Hashable, np.ndarray] = {}

    def extra(self, space: Hashable, blocks: np.ndarray, sizes: np.ndarray, holders: np.ndarray) -> np.ndarray | None:
        """Return what the pieces of a task that updates blocks in place will cost later.

        Parameters
        ----------
        space : hashable
        blocks : ndarray of int, shape (n_pieces, n_dimensions)
            Index of the block that each piece updates.
        sizes : ndarray of float64, shape (n_pieces,)
            Bytes of these blocks.
        holders : ndarray of int, shape (n_pieces,)
            A rank that holds each of these blocks; -1 where no rank does.

        Returns
        -------
        ndarray of float64, shape (n_pieces, n_ranks), or None
            None where nothing is known: for the first task, for blocks that fill no grid of two dimensions, and for
            numbers of ranks with a large prime factor.
        """
        shape = self._pattern_shape()
        grid = PieceGrid.of(blocks) if blocks.shape[1] == 2 else None
        if shape is None or grid is None or min(grid.shape) < 2:
            return None
        self._seen[space] += 1
        if self._seen[space] < 2:
            return None
        cells = blocks[:, 0] % shape[0] * shape[1] + blocks[:, 1] % shape[1]
        if space not in self._patterns:
            self._patterns[space] = self._pattern(cells, sizes, holders)
        owners = self._patterns[space][cells]
        return np.asarray(sizes[:, None] * (owners[:, None] != np.arange(self.n_ranks)))

    def _pattern_shape(self) -> tuple[int, int] | None:
        """Return the most square pattern in which every rank is one cell."""
        rows = next(k for k in range(isqrt(self.n_ranks), 0, -1) if self.n_ranks % k == 0)
        columns = self.n_ranks // rows
        return (rows, columns) if 1 < columns <= LONGEST * rows else None

    def _pattern(self, cells: np.ndarray, sizes: np.ndarray, holders: np.ndarray) -> np.ndarray:
        """Return the rank of each cell of the pattern: those that hold the most of its blocks."""
        costs = np.zeros((self.n_ranks, self.n_ranks))
        some = holders >= 0
        np.add.at(costs, (cells[some], holders[some]), -sizes[some])
        one = np.ones(self.n_ranks, dtype=np.int64)
        return transport(costs, one, one)
