"""Improve a division of pieces among ranks by moving and exchanging single pieces.

The cost of a division is what all ranks fetch, each unit once a rank, so pieces of a rank that share a unit save it
together. A step moves one piece, or exchanges two, or sends several around a cycle of ranks; it is taken if the exact
cost falls. The end is a division that no such step improves, or that of the last of ``STEPS`` steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tartan.core.affinity import TaskNeeds
from tartan.core.transport import cheapest_moves, negative_cycle, with_slack

STEPS = 400


@dataclass(eq=False)
class _Exchanged:
    """A division with, for every rank, the number of its pieces that need each unit."""

    demand: TaskNeeds
    missing: np.ndarray
    extra: np.ndarray | None
    owners: np.ndarray
    users: np.ndarray

    def changes(self) -> np.ndarray:
        """Return what the cost would change by if one piece went to a rank, shape (n_pieces, n_ranks)."""
        own = self.owners[self.demand.pieces]
        last = (self.users[own, self.demand.units] == 1) * self.missing[own, self.demand.units]
        saved = np.bincount(self.demand.pieces, last, minlength=self.demand.n_pieces)
        change = self.demand.sums((self.missing * (self.users == 0)).T) - saved[:, None]
        if self.extra is not None:
            change += self.extra - self.extra[np.arange(len(self.owners)), self.owners][:, None]
        change[np.arange(len(self.owners)), self.owners] = np.inf
        return np.asarray(change)

    def move(self, piece: int, rank: int) -> float:
        """Give a piece to a rank; return what the cost changed by."""
        units = self.demand.units[self.demand.starts[piece] : self.demand.starts[piece + 1]]
        before = int(self.owners[piece])
        self.users[before, units] -= 1
        change = (self.missing[rank, units] * (self.users[rank, units] == 0)).sum()
        change -= (self.missing[before, units] * (self.users[before, units] == 0)).sum()
        self.users[rank, units] += 1
        self.owners[piece] = rank
        if self.extra is not None:
            change += self.extra[piece, rank] - self.extra[piece, before]
        return float(change)

    def attempt(self, moves: list[tuple[int, int]], floor: float) -> bool:
        """Make moves if they lower the cost together; return whether they did."""
        back = [(piece, int(self.owners[piece])) for piece, _ in moves]
        if sum(self.move(piece, rank) for piece, rank in moves) < floor:
            return True
        for piece, rank in reversed(back):
            self.move(piece, rank)
        return False


def exchanged(
    demand: TaskNeeds,
    missing: np.ndarray,
    extra: np.ndarray | None,
    owners: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Improve a division.

    Parameters
    ----------
    demand : TaskNeeds
    missing : ndarray of float64, shape (n_ranks, n_units)
        Bytes that each rank would have to fetch.
    extra : ndarray of float64, shape (n_pieces, n_ranks), optional
        Costs of pieces besides.
    owners : ndarray of int, shape (n_pieces,)
        The division; it is not changed.
    low, high : ndarray of int, shape (n_ranks,)
        Least and largest number of pieces of each rank.

    Returns
    -------
    ndarray of int, shape (n_pieces,)
        A division of no larger cost.
    """
    users = np.zeros(missing.shape, dtype=np.int64)
    np.add.at(users, (owners[demand.pieces], demand.units), 1)
    division = _Exchanged(demand, missing, extra, owners.copy(), users)
    floor = -1e-9 * max(1e-300, float(missing.max(initial=0.0)))
    for _ in range(STEPS):
        if not _step(division, low, high, floor):
            break
    return division.owners


def _step(division: _Exchanged, low: np.ndarray, high: np.ndarray, floor: float) -> bool:
    """Take one step; return whether there was one."""
    counts = np.bincount(division.owners, minlength=len(low))
    steps, movers = cheapest_moves(division.changes(), division.owners, counts)
    steps = with_slack(steps, counts > low, counts < high)
    cycles = [*_exchanges(steps, floor), negative_cycle(steps, floor)]
    for cycle in cycles:
        pairs = zip(cycle, [*cycle[1:], *cycle[:1]])
        moves = [(int(movers[a, b]), b) for a, b in pairs if len(low) not in (a, b)]
        if moves and division.attempt(moves, floor):
            return True
    return False


def _exchanges(steps: np.ndarray, floor: float) -> list[list[int]]:
    """Return the cycles of two nodes that promise to lower the cost, the best first."""
    both = np.triu(np.where(np.isfinite(steps + steps.T), steps + steps.T, 0.0))
    first, second = np.nonzero(both < floor)
    order = np.argsort(both[first, second], kind="stable")
    return [[int(first[k]), int(second[k])] for k in order]
