"""Which rank computes which piece of a task.

``assign`` gives every rank its share of the pieces, to one piece. What it minimises is said by ``affinity``:

- "none": nothing; pieces are dealt at random.
- "local", "transfers", "remote": the scores of Beri, Bansal and Kumar, "Locality Aware Work-Stealing based Scheduling
  in Hybrid CPU-GPU Clusters" (2015). Ranks take turns, each takes the piece with its best score: the most bytes that
  lay there before the task, the fewest units to be fetched, or the fewest bytes.
- "marginal": the same by turns, but what a rank is bound to fetch for pieces that it took counts as held.
- "auto": the least bytes over all ranks among several divisions. Those are near-square shares where pieces fill a grid,
  the least sum of the bytes of single pieces, and all of the above; the best are improved by exchanging pieces. What
  may come back in later tasks counts too (``extra``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Literal, get_args

import numpy as np

from tartan.core.affinity import TaskNeeds, count_moved_bytes
from tartan.core.blocks.shares_of_grid import (
    PieceGrid,
    ProductForm,
    lay_on_ranks,
    layouts,
    permute_product,
    whole_shares,
)
from tartan.core.blocks.transport import by_regret, cheapest_moves, negative_cycle, transport, with_slack

Affinity = Literal["auto", "marginal", "local", "transfers", "remote", "none"]
AFFINITIES: tuple[Affinity, ...] = get_args(Affinity)

#: Pieces times ranks up to which "auto" tries everything, and exchanges pieces.
#: By judgement, held by the bar of `tartan bench blocks_plan only=scheduling` (5 us a subtask): below it all ways
#: together take a fraction of a second; the exchanges alone grow with the square of the pieces.
SMALL = 30_000
#: Divisions that are improved by exchanging pieces.
#: By judgement: each takes about as long as all ways before; the rest are further from the least cost already. No
#: benchmark.
IMPROVED = 2
#: Layouts of near-square shares that are tried where there are few pieces, and many.
#: Six and two at first; four and two since large tasks are scheduled faster and move as few bytes (`tartan bench
#: blocks_plan`, parts auto and scheduling).
LAYOUTS = 4, 2
#: Pieces times ranks up to which the least sum of single pieces is exact; units a piece up to which many stay unmerged.
#: EXACT and FEW_UNITS, by judgement: a table of as many float64 is 8 MB and its cycles take about a second (see
#: MOST_WORK of transport); merging pays where units are many a piece. `tartan bench blocks_plan only=scheduling` holds
#: the time.
EXACT = 1_000_000
FEW_UNITS = 16
#: Turns in which a rank takes its pieces where "marginal" has many.
#: TURNS and FEW_PIECES, by judgement: one piece a turn is the rule itself and costs pieces x ranks a turn, which grows
#: with the square of the pieces; 32 turns bound that. No benchmark.
TURNS = 32
FEW_PIECES = 4096


@dataclass(frozen=True, eq=False)
class Assignment:
    """A task that is to be divided among ranks.

    Attributes
    ----------
    demand : TaskNeeds
    held : ndarray of float64, shape (n_ranks, n_units)
        Bytes of each unit that a rank holds before the task.
    speeds : ndarray of float64, shape (n_ranks,)
        Relative; shares are in proportion.
    index : ndarray of int, shape (n_pieces, n_indices), optional
        Index of each piece in the grid of its task.
    extra : ndarray of float64, shape (n_pieces, n_ranks), optional
        Bytes that will move in later tasks if a rank computes a piece; for "auto" and "marginal".
    seed : int
        Decides between equal pieces, and deals at random.
    """

    demand: TaskNeeds
    held: np.ndarray
    speeds: np.ndarray
    index: np.ndarray | None = None
    extra: np.ndarray | None = None
    seed: int = 0

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.speeds)

    @cached_property
    def missing(self) -> np.ndarray:
        """Bytes of each unit that a rank would have to fetch, shape (n_ranks, n_units)."""
        return np.asarray(self.demand.sizes - self.held)

    @cached_property
    def shares(self) -> np.ndarray:
        """The exact share of each rank, in pieces; seldom whole."""
        return np.asarray(self.demand.n_pieces * self.speeds / self.speeds.sum())

    @cached_property
    def counts(self) -> np.ndarray:
        """Pieces of each rank: its share, rounded up or down so that they sum to all pieces."""
        return whole_shares(self.shares)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The share of each rank rounded down, and rounded up."""
        exact = np.round(self.shares, 9)
        return np.floor(exact).astype(np.int64), np.ceil(exact).astype(np.int64)

    def cost(self, owners: np.ndarray) -> float:
        """Return the bytes that all ranks fetch, now and later."""
        later = 0.0 if self.extra is None else self.extra[np.arange(len(owners)), owners].sum()
        return float(count_moved_bytes(self.demand, self.held, owners).sum() + later)

    def single_costs(self, *, shared: bool = False) -> np.ndarray:
        """Return the bytes that each piece alone costs each rank, shape (n_pieces, n_ranks).

        With ``shared``, all pieces that need a unit bear an equal part of it.
        """
        parts = np.maximum(np.diff(self.demand.needers[0]), 1) if shared else 1.0
        return self.demand.sums((self.missing / parts).T) + (0.0 if self.extra is None else self.extra)

    def merge(self) -> Assignment:
        """Return the same task with one unit for all that the same pieces need."""
        demand, held = self.demand.merge(self.held)
        return replace(self, demand=demand, held=held)

    def within_bounds(self, owners: np.ndarray) -> bool:
        """Whether every rank has its share, to one piece."""
        counts = np.bincount(owners, minlength=self.n_ranks)
        low, high = self.bounds
        return bool((counts >= low).all() and (counts <= high).all())


def assign(task: Assignment, affinity: Affinity = "auto", *, evaluate: float = 1.0) -> np.ndarray:
    """Divide the pieces of a task among ranks.

    Parameters
    ----------
    task : Assignment
    affinity : {"auto", "marginal", "local", "transfers", "remote", "none"}
    evaluate : float
        Share of the pieces that each rank looks at, as in the paper; of others it knows nothing and takes them last.
        0 to 1.

    Returns
    -------
    ndarray of int64, shape (n_pieces,)
        The rank of each piece. Every rank has its share, rounded up or down. A function of the arguments alone.

    Notes
    -----
    "auto" takes a few microseconds a piece where there are many, and tries all that it can where there are few.
    """
    if task.n_ranks == 1 or affinity == "none":
        return dealt_at_random(task)
    if evaluate < 1 and affinity in ("auto", "marginal"):
        return _partly(task, affinity, evaluate)
    if affinity == "auto":
        return _auto(task)
    return dealt_by_marginal(task) if affinity == "marginal" else dealt_by_score(task, affinity, evaluate)


def dealt_at_random(task: Assignment) -> np.ndarray:
    """Deal without regard to what lies where."""
    owners = np.repeat(np.arange(task.n_ranks), task.counts)
    return np.random.default_rng(task.seed).permutation(owners)


def _partly(task: Assignment, affinity: Affinity, evaluate: float) -> np.ndarray:
    """Divide a part of the pieces by affinity, and deal the others."""
    rng = np.random.default_rng(task.seed)
    owners = dealt_at_random(task)
    looked_at = np.sort(rng.permutation(len(owners))[: round(evaluate * len(owners))])
    part = replace(
        task,
        demand=task.demand.part(looked_at),
        speeds=np.bincount(owners[looked_at], minlength=task.n_ranks).astype(float),
        index=None if task.index is None else task.index[looked_at],
        extra=None if task.extra is None else task.extra[looked_at],
    )
    if len(looked_at):
        owners[looked_at] = assign(part, affinity)
    return owners


# -- dealing by turns --------------------------------------------------------------------------------------------


def dealt_by_score(task: Assignment, affinity: Affinity, evaluate: float = 1.0) -> np.ndarray:
    """Deal by what lies where before the task: ranks take turns, each takes the piece with its best score."""
    demand, rng = task.demand, np.random.default_rng(task.seed)
    scores = {
        "local": lambda: -demand.sums(task.held.T),
        "transfers": lambda: demand.sums((task.missing.T > 0).astype(float)),
        "remote": lambda: demand.sums(task.missing.T),
    }[affinity]()
    for rank in range(task.n_ranks if evaluate < 1 else 0):
        scores[rng.permutation(len(scores))[round(evaluate * len(scores)) :], rank] = np.inf
    order = rng.permutation(len(scores))
    queues = [order[np.argsort(scores[order, rank], kind="stable")].tolist() for rank in range(task.n_ranks)]
    return _by_turns(queues, task.counts)


def _by_turns(queues: list[list[int]], counts: np.ndarray) -> np.ndarray:
    """Let ranks take the first piece of their queue that is left, one after the other, until each has its number."""
    owners = np.full(len(queues[0]), -1)
    found = owners.tolist()
    waiting = [iter(queue) for queue in queues]
    for turn in range(int(counts.max(initial=0))):
        for rank, queue in enumerate(waiting):
            if turn < counts[rank]:
                piece = next(piece for piece in queue if found[piece] < 0)
                found[piece] = rank
    owners[:] = found
    return owners


def dealt_by_marginal(task: Assignment) -> np.ndarray:
    """Deal by what a rank would still have to fetch; with many pieces, ranks take several at a turn."""
    task = task.merge()
    demand = task.demand
    starts, needers = demand.needers
    order = np.random.default_rng(task.seed).permutation(demand.n_pieces)
    rank_in_order = np.argsort(order)
    costs, missing = task.single_costs()[order], task.missing.copy()
    owners, left = np.full(demand.n_pieces, -1), task.counts.copy()
    steps = 1 if demand.n_pieces <= FEW_PIECES else -(-task.counts // TURNS).max()
    while left.any():
        for rank in np.flatnonzero(left):
            taken = _cheapest(costs[:, rank], min(int(left[rank]), int(steps)))
            owners[order[taken]], costs[taken], left[rank] = rank, np.inf, left[rank] - len(taken)
            units = np.unique(demand.part(order[taken]).units)
            units = units[missing[rank, units] > 0]
            relieved, saved = _runs(starts, needers, units), np.repeat(missing[rank, units], np.diff(starts)[units])
            np.subtract.at(costs[:, rank], rank_in_order[relieved], saved)
            missing[rank, units] = 0.0
    return owners


def _cheapest(costs: np.ndarray, count: int) -> np.ndarray:
    if count == 1:
        return np.array([costs.argmin()])
    return np.argpartition(costs, count - 1)[:count]


def _runs(starts: np.ndarray, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the runs of compressed rows with these numbers, one after the other."""
    counts = np.diff(starts)[numbers]
    ends = np.cumsum(counts)
    at = np.repeat(starts[numbers] - ends + counts, counts) + np.arange(counts.sum())
    return np.asarray(values[at])


# -- the least of several ----------------------------------------------------------------------------------------


def _auto(task: Assignment) -> np.ndarray:
    """Return the best of all divisions that are tried."""
    size = task.demand.n_pieces * task.n_ranks
    small, few_units = size <= SMALL, len(task.demand.units) <= FEW_UNITS * task.demand.n_pieces
    merged = task.merge() if small or not few_units else task
    grid = None if task.index is None else PieceGrid.of(task.index)
    form = None if grid is None else ProductForm.of(merged.demand, grid)
    found = [] if grid is None else [*_near_square(merged, grid, form, LAYOUTS[0 if small else 1])]
    found = [owners for owners in found if task.within_bounds(owners)]
    if form is None or not form.alone or task.extra is not None:
        found += _by_single_costs(merged, small=small)
        found += [dealt_by_marginal(task)] if small else []
    scores: tuple[Affinity, ...] = ("local", "transfers", "remote") if small else ("local", "remote")
    found += [dealt_by_score(task, score) for score in scores if size <= EXACT]
    found.append(dealt_at_random(task))
    found.sort(key=merged.cost)
    if small:
        found = [*(_improve(merged, owners) for owners in found[:IMPROVED]), *found]
    return min(found, key=merged.cost)


def _improve(task: Assignment, owners: np.ndarray) -> np.ndarray:
    return exchange_pieces(task.demand, task.missing, task.extra, owners, *task.bounds)


def _by_single_costs(task: Assignment, *, small: bool) -> list[np.ndarray]:
    """Return the divisions of the least sum of the bytes of single pieces, as if no piece shared anything."""
    solve: Callable[..., np.ndarray] = transport if task.demand.n_pieces * task.n_ranks <= EXACT else by_regret
    ways = (False, True) if small else (False,)
    return [solve(task.single_costs(shared=shared), *task.bounds) for shared in ways]


def _near_square(task: Assignment, grid: PieceGrid, form: ProductForm | None, n_layouts: int) -> Iterator[np.ndarray]:
    for layout in islice(layouts(grid.shape, task.counts), n_layouts):
        if form is None or not form.alone or task.extra is not None:
            yield lay_on_ranks(layout, grid, task.demand, task.missing, task.extra)
        if form is not None:
            yield permute_product(layout, grid, form, task.missing)


# Improve a division of pieces among ranks by moving and exchanging single pieces.
#
# The cost of a division is what all ranks fetch, each unit once a rank, so pieces of a rank that share a unit save it
# together. A step moves one piece, or exchanges two, or sends several around a cycle of ranks; it is taken if the exact
# cost falls. The end is a division that no such step improves, or that of the last of ``STEPS`` steps.

# By judgement: a limit of time, some 0.1 s for SMALL; a division that could still be improved is good by then. No
# benchmark.
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


def exchange_pieces(
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
