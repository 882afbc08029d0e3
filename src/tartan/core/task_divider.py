"""The tasks of a session, one after the other: each divided among the ranks, with regard to those that will follow."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from tartan.core.assignment import Affinity, Assignment, assign
from tartan.core.lookahead import Lookahead


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

    def divided(self, task: Assignment, number: int, updated: UpdatedBlocks | None = None) -> np.ndarray:
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
