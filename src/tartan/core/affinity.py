"""Which work goes where, so that little must be moved.

A piece of work *needs* units of data, each with a weight (its bytes); a unit need not be an item. A node *holds* units:
those that it has and those that it is bound to fetch for work that it has. The *marginal* cost of a piece for a node is
the weight of what it would still have to fetch. Work that is stolen is chosen by what it costs the thief and saves the
victim.

The scores "local", "transfers" and "remote" are those of Beri, Bansal and Kumar, "Locality Aware Work-Stealing based
Scheduling in Hybrid CPU-GPU Clusters" (2015): they look at what lies on a node before the work begins, not at what its
work will bring there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Literal, TypeVar

import numpy as np

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


Score = Literal["marginal", "local", "transfers", "remote"]


def deal(needs: np.ndarray, held: np.ndarray, score: Score, rng: np.random.Generator) -> np.ndarray:
    """Deal pieces of work to nodes, which take turns: each takes the piece with its best score.

    Parameters
    ----------
    needs : ndarray, shape (n_pieces, n_units)
        Weight of every unit that a piece needs; 0 where it does not.
    held : ndarray of bool, shape (n_nodes, n_units)
        What lies where before the work begins.
    score : {"marginal", "local", "transfers", "remote"}
        The least weight to be fetched, given what a node is bound to fetch for pieces that it took; or, given what it
        held before: the most weight there, the fewest units or the least weight to be fetched.
    rng : Generator
        Decides between pieces of equal score.

    Returns
    -------
    ndarray of int, shape (n_pieces,)
        The node of each piece.
    """
    order = rng.permutation(len(needs))
    needs, held = needs[order].astype(float), held.copy()
    costs = {
        "local": -needs @ held.T,
        "transfers": (needs > 0).astype(float) @ ~held.T,
        "remote": needs @ ~held.T,
        "marginal": needs @ ~held.T,
    }[score]
    owners = np.empty(len(needs), dtype=int)
    for turn in range(len(needs)):
        node = turn % len(held)
        piece = int(np.argmin(costs[:, node]))
        owners[order[piece]] = node
        costs[piece] = np.inf
        if score == "marginal":
            fetched = (needs[piece] > 0) & ~held[node]
            held[node] |= fetched
            costs[:, node] -= needs[:, fetched].sum(axis=1)
    return owners


def moved_weight(needs: np.ndarray, held: np.ndarray, owners: np.ndarray) -> float:
    """Return the weight of all units that nodes must fetch for their pieces, each unit once a node."""
    fetched = [needs[owners == node].max(axis=0, initial=0) * ~held[node] for node in range(len(held))]
    return float(np.sum(fetched))
