"""Which work goes where, so that little must be moved.

A piece of work *needs* units of data, each with a weight (its bytes); a unit need not be an item. A node *holds* units:
those that it has and those that it is bound to fetch for work that it has. The *marginal* cost of a piece for a node is
the weight of what it would still have to fetch. Work that is stolen is chosen by what it costs the thief and saves the
victim.

``local``, ``transfers`` and ``remote`` are the scores of Beri, Bansal and Kumar, "Locality Aware Work-Stealing based
Scheduling in Hybrid CPU-GPU Clusters" (2015): they look at what lies on a node before the work begins, not at what its
work will bring there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import TypeVar

Unit = Hashable
Needs = Mapping[Unit, float]
Piece = TypeVar("Piece")


def missing_weight(needs: Needs, held: Set[Unit]) -> float:
    """Return the weight of the units that a node would have to fetch."""
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
    return missing_weight(needs, thief) - missing_weight(needs, victim)


def local(needs: Needs, held: Set[Unit]) -> float:
    """Score: less for a node that has more of the data already."""
    return -sum(weight for unit, weight in needs.items() if unit in held)


def transfers(needs: Needs, held: Set[Unit]) -> float:
    """Score: the number of units that must be fetched, whatever their weight."""
    return sum(1.0 for unit in needs if unit not in held)


def remote(needs: Needs, held: Set[Unit]) -> float:
    """Score: the weight of the units that must be fetched."""
    return missing_weight(needs, held)


def chosen(
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
