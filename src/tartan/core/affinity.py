"""What pieces of work need, and what that costs where.

A piece of work *needs* units of data, each with a weight (its bytes): ``needs(piece)`` returns them. A unit is what
always goes together: the items of a chunk line for pairs, a range of a space for block tasks. A rank *holds* units, or
a part of their bytes: what it has and what it is bound to fetch for work that it has. The *marginal* cost of a piece
for a rank is the weight of what it would still have to fetch. Work that is stolen is chosen by what it costs the thief
and saves the victim.

For the pieces of a whole task the same is said in arrays: ``TaskNeeds`` holds what ``needs`` returns for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

import numpy as np

Unit = Hashable
Needs = Mapping[Any, float]
Piece = TypeVar("Piece")
Steal = Literal["difference", "plain"]
STEALS: tuple[Steal, ...] = get_args(Steal)


def weigh_missing(needs: Needs, held: Set[Unit]) -> float:
    """Return the weight of the units that a rank would have to fetch."""
    return sum(weight for unit, weight in needs.items() if unit not in held)


def marginal(needs: Needs, thief: Set[Unit], victim: Set[Unit]) -> float:
    """Return what a piece costs a thief more than its victim.

    Parameters
    ----------
    needs : mapping of unit to weight
    thief : set
        Units that the thief holds or is bound to fetch.
    victim : set
        Units that the victim holds, or will fetch for the work that it keeps.
    """
    return weigh_missing(needs, thief) - weigh_missing(needs, victim)


def choose_pieces(
    pieces: Sequence[Piece],
    amount: float,
    size: Callable[[Piece], float],
    cost: Callable[[Piece], float],
) -> list[Piece]:
    """Choose pieces of no more than the wanted amount together, those first that cost least for their size.

    Of equal ones the last come first: their turn is farthest away. A piece that does not fit is left out.
    """
    order = sorted(range(len(pieces)), key=lambda k: (cost(pieces[k]) / max(size(pieces[k]), 1e-300), -k))
    taken: list[Piece] = []
    for k in order:
        weight = size(pieces[k])
        if amount >= weight:
            taken.append(pieces[k])
            amount -= weight
    return taken


def choose_stolen(
    pieces: Sequence[Piece],
    count: int,
    needs: Callable[[Piece], Needs],
    thief: Set[Unit],
    victim: Set[Unit],
    steal: Steal = "difference",
) -> list[Piece]:
    """Choose the pieces that a victim gives away, of equal size each.

    Parameters
    ----------
    pieces : sequence
        What the victim has not begun, in the order in which it will come to it.
    count : int
        Pieces that go.
    needs : callable
        Units of a piece with their bytes.
    thief, victim : set
        As for ``marginal``.
    steal : {"difference", "plain"}
        Those that cost the thief least and save the victim most; or the last ones.
    """
    cost = {"difference": lambda piece: marginal(needs(piece), thief, victim), "plain": lambda piece: 0.0}[steal]
    return choose_pieces(pieces, count, lambda piece: 1.0, cost)


@dataclass(frozen=True, eq=False)
class TaskNeeds:
    """What the pieces of a task need, in compressed rows.

    Attributes
    ----------
    starts : ndarray of int64, shape (n_pieces + 1,)
        Where the units of each piece begin in ``units``.
    units : ndarray of int64
        Units of the first piece, then those of the second, and so on; none twice in a piece.
    sizes : ndarray of float64, shape (n_units,)
        Bytes of each unit.
    """

    starts: np.ndarray
    units: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, pieces: Iterable[Piece], needs: Callable[[Piece], Needs]) -> tuple[TaskNeeds, list[Unit]]:
        """Ask every piece for its needs; return also the units in the order of their numbers."""
        numbers: dict[Unit, int] = {}
        sizes: list[float] = []
        starts, units = [0], []
        for piece in pieces:
            for unit, weight in needs(piece).items():
                number = numbers.setdefault(unit, len(sizes))
                if number == len(sizes):
                    sizes.append(weight)
                units.append(number)
            starts.append(len(units))
        return cls(np.array(starts), np.array(units, dtype=np.int64), np.array(sizes, dtype=float)), [*numbers]

    @property
    def n_pieces(self) -> int:
        """The number of pieces."""
        return len(self.starts) - 1

    @property
    def n_units(self) -> int:
        """The number of units."""
        return len(self.sizes)

    @cached_property
    def pieces(self) -> np.ndarray:
        """The piece of every entry of ``units``, shape of ``units``."""
        return np.repeat(np.arange(self.n_pieces), np.diff(self.starts))

    @cached_property
    def needers(self) -> tuple[np.ndarray, np.ndarray]:
        """The same by units: where the pieces of each unit begin, and the pieces."""
        order = np.argsort(self.units, kind="stable")
        counts = np.bincount(self.units, minlength=self.n_units)
        return np.concatenate(([0], np.cumsum(counts))), self.pieces[order]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Add values of units over what each piece needs.

        Parameters
        ----------
        values : ndarray, shape (n_units,) or (n_units, k)

        Returns
        -------
        ndarray of float64, shape (n_pieces,) or (n_pieces, k)
        """
        found = np.zeros((self.n_pieces, *values.shape[1:]))
        some = self.starts[:-1] < self.starts[1:]
        if some.any():
            found[some] = np.add.reduceat(values[self.units], self.starts[:-1][some], axis=0)
        return found

    def part(self, pieces: np.ndarray) -> TaskNeeds:
        """Return the demand of some pieces; units keep their numbers."""
        counts = np.diff(self.starts)[pieces]
        starts = np.concatenate(([0], np.cumsum(counts)))
        at = np.repeat(self.starts[pieces] - starts[:-1], counts) + np.arange(starts[-1])
        return TaskNeeds(starts, self.units[at], self.sizes)

    def merge(self, held: np.ndarray) -> tuple[TaskNeeds, np.ndarray]:
        """Make one unit of all units that the same pieces need.

        Parameters
        ----------
        held : ndarray of float64, shape (n_ranks, n_units)
            Bytes of each unit that a rank holds.

        Returns
        -------
        demand : TaskNeeds
        held : ndarray of float64, shape (n_ranks, n_units of the new demand)
        """
        found = self._merging
        if found is None:
            return self, held
        demand, order, edges = found
        return demand, np.add.reduceat(held[:, order], edges, axis=1)

    @cached_property
    def _merging(self) -> tuple[TaskNeeds, np.ndarray, np.ndarray] | None:
        """The merged needs, the units in the order of their new numbers, and where each of these begins.

        None where no two units are needed by the same pieces.
        """
        # Sums of random numbers, always in the order of the pieces: equal for equal sets, and for no others.
        marks = np.random.default_rng(0).random(self.n_pieces)
        sums = np.bincount(self.units, marks[self.pieces], minlength=self.n_units)
        _, first, group = np.unique(sums, return_index=True, return_inverse=True)
        if len(first) == self.n_units:
            return None
        chosen_entries = first[group[self.units]] == self.units
        counts = np.bincount(self.pieces[chosen_entries], minlength=self.n_pieces)
        starts = np.concatenate(([0], np.cumsum(counts)))
        sizes = np.bincount(group, self.sizes, minlength=len(first))
        order = np.argsort(group, kind="stable")
        edges = np.searchsorted(group[order], np.arange(len(first)))
        return TaskNeeds(starts, group[self.units[chosen_entries]], sizes), order, edges


def count_moved_bytes(demand: TaskNeeds, held: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return the bytes that each rank must fetch for its pieces, each unit once a rank.

    Parameters
    ----------
    demand : TaskNeeds
    held : ndarray of float64, shape (n_ranks, n_units)
        Bytes of each unit that a rank holds.
    owners : ndarray of int, shape (n_pieces,)
        The rank of each piece.

    Returns
    -------
    ndarray of float64, shape (n_ranks,)
    """
    there = np.zeros(held.shape, dtype=bool)
    there[owners[demand.pieces], demand.units] = True
    return np.asarray(((demand.sizes - held) * there).sum(axis=1))
