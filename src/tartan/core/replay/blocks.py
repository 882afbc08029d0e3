"""Drive the policy of block tasks in virtual time: what a cluster would move, and how long it would take.

The division of pieces among ranks, their order within a rank and the dispatcher that sends them out are those of a
real run; only what a rank does with an order is modelled here. It fetches what its orders need while it computes; links
are shared by all that goes over them; what was fetched stays until the task ends, then the rank that wrote a unit is
the only one that holds it. What earlier tasks wrote and a lost rank alone had costs all others the time to compute it
again, without being sent out piece by piece. A task begins when the one before it has ended. The outcome is a function
of the arguments.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tartan.core.affinity import Steal
from tartan.core.blocks.assignment import Affinity, Assignment
from tartan.core.blocks.dispatcher import Dispatcher, copy_rank
from tartan.core.blocks.placement import Place
from tartan.core.blocks.subtask_order import PieceOrder
from tartan.core.blocks.task_divider import TaskDivider, UpdatedBlocks
from tartan.core.blocks.workloads import BlockWorkload, TaskOfBlocks, needs_of
from tartan.errors import ConfigError, InternalError

#: Stands for the link of a rank, among the pieces that end.
LINK = -1

Ended = Callable[[int, int, int], None]
"""Receives the number of a task, a rank and a piece of the task that it has ended."""


@dataclass(frozen=True)
class BlockRank:
    """One rank as a plan describes it.

    Attributes
    ----------
    speed : float
        Operations a second, over all its lanes.
    lanes : int
        Pieces that it computes at a time.
    room : float
        Bytes of units that it can keep at a time; decides the order of its pieces.
    guess : float, optional
        What its speed is believed to be when pieces are divided, in the unit of ``speed``; default: what it is.
    """

    speed: float
    lanes: int = 1
    room: float = float("inf")
    guess: float | None = None


@dataclass(frozen=True)
class BlockNetwork:
    """What joins the ranks.

    Attributes
    ----------
    link_bytes_per_second : float
        Of one rank, each way.
    storage_bytes_per_second : float
        Of all ranks together.
    latency_seconds : float
        Of one message, and of the end of a task.
    """

    link_bytes_per_second: float = float("inf")
    storage_bytes_per_second: float = float("inf")
    latency_seconds: float = 1e-4


@dataclass(frozen=True)
class BlockOptions:
    """How a replay is driven.

    Attributes
    ----------
    affinity : {"auto", "marginal", "local", "transfers", "remote", "none"}
    steal : {"difference", "plain"} or None
        None: ranks keep what they were given.
    evaluate : float
        Share of the pieces that each rank looks at.
    placement : {"source", "centralized", "row cyclic", "column cyclic", "random", "grid"}
    copies : int
        Ranks that hold what a task has written: 1 or 2.
    losses : tuple of (float, int)
        Ranks that are lost, and when.
    seed : int
    """

    affinity: Affinity = "auto"
    steal: Steal | None = "difference"
    evaluate: float = 1.0
    placement: Place = "random"
    copies: int = 1
    losses: tuple[tuple[float, int], ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class BlockPrediction:
    """What came out.

    Attributes
    ----------
    seconds : float
    bytes_moved : float
        Between ranks, every received copy counted.
    bytes_from_storage : float
    bytes_copied : float
        For second copies.
    waited_seconds : float
        During which lanes had pieces to compute, but not their units; mean over ranks.
    pieces : tuple of int
        Computed by each rank; those that were computed twice count twice.
    steals, lost, recomputed : int
        Pieces stolen; ranks lost; pieces computed again, because a lost rank alone held what they wrote.
    """

    seconds: float
    bytes_moved: float
    bytes_from_storage: float
    bytes_copied: float
    waited_seconds: float
    pieces: tuple[int, ...]
    steals: int
    lost: int
    recomputed: int


@dataclass(eq=False)
class _Computing:
    """The state of one rank."""

    number: int
    about: BlockRank
    fetched: deque[tuple[int, float]] = field(default_factory=deque)
    """Pieces that it was told to compute and has not begun, and when all that they need is there."""
    unfetched: deque[int] = field(default_factory=deque)
    """Pieces that it comes to after those, whose units it has not asked for."""
    n_running: int = 0
    down_free: float = 0.0
    debt: float = 0.0
    """Seconds for which it computes again what was lost, before its next piece."""
    alive: bool = True
    n_pieces: int = 0
    waited: float = 0.0


@dataclass(eq=False)
class _ReplayedRanks:
    """What lasts from task to task."""

    workload: BlockWorkload
    ranks: list[_Computing]
    network: BlockNetwork
    options: BlockOptions
    held: np.ndarray
    up_free: np.ndarray
    divider: TaskDivider
    losses: deque[tuple[float, int]]
    rework: np.ndarray
    """Operations, and pieces, that must be computed again where a unit is lost, shape (2, n_units)."""
    now: float = 0.0
    storage_free: float = 0.0
    moved: list[float] = field(default_factory=list)
    bytes_from_storage: float = 0.0
    bytes_copied: float = 0.0
    steals: int = 0
    recomputed: float = 0.0

    @property
    def alive(self) -> list[_Computing]:
        return [rank for rank in self.ranks if rank.alive]

    def guesses(self) -> np.ndarray:
        """Return what is believed to be the speed of every rank; 0 for those that are lost."""
        return np.array([(rank.about.guess or rank.about.speed) if rank.alive else 0.0 for rank in self.ranks])

    def divide(self, task: TaskOfBlocks) -> np.ndarray:
        """Return the rank of each piece of a task, by the policy."""
        updated = None
        if task.in_place is not None and task.index is not None:
            held = self.held[:, task.in_place]
            holders = np.where(held.any(axis=0), held.argmax(axis=0), -1)
            updated = UpdatedBlocks(0, task.index, self.workload.sizes[task.in_place], holders)
        whole = Assignment(task.demand, self.held, self.guesses(), task.index)
        return self.divider.divide(whole, len(self.moved), updated)

    def transfer(self, rank: _Computing, unit: int) -> float:
        """Bring a unit to a rank; return when it is there."""
        missing = float(self.workload.sizes[unit] - self.held[rank.number, unit])
        if missing <= 0:
            return self.now
        column = self.held[:, unit].copy()
        column[rank.number] = 0.0
        holders = np.flatnonzero(column)
        if column.sum() > missing * (1 + 1e-9):  # two copies: the holder that is free first sends its own
            holders = holders[[self.up_free[holders].argmin()]]
        parts = column[holders]
        rate, storage = self.network.link_bytes_per_second, self.network.storage_bytes_per_second
        rank.down_free = max(rank.down_free, self.now) + missing / rate
        end = rank.down_free
        if len(holders):
            self.up_free[holders] = np.maximum(self.up_free[holders], self.now) + parts / rate
            end = max(end, float(self.up_free[holders].max()))
        rest = missing - float(parts.sum())
        if rest > 1e-9 * missing:
            self.storage_free = max(self.storage_free, self.now) + rest / storage
            self.bytes_from_storage += rest
            end = max(end, self.storage_free)
        self.moved[-1] += float(parts.sum())
        return end + self.network.latency_seconds

    def on_written(self, task: TaskOfBlocks, owners: np.ndarray) -> None:
        """Let the ranks that wrote units be the only ones that hold them, or one of two."""
        units, ranks = task.writes.units, owners[task.writes.pieces]
        sizes = self.workload.sizes[units]
        self.held[:, units] = 0.0
        self.held[ranks, units] = sizes
        if self.options.copies == 2:
            self._copy(units, ranks)
        part = 1 / np.maximum(1, np.diff(task.writes.starts))[task.writes.pieces]
        before = 0.0 if task.in_place is None else self.rework[:, units]
        self.rework[:, units] = before + np.stack([task.work[task.writes.pieces] * part, part])

    def _copy(self, units: np.ndarray, ranks: np.ndarray) -> None:
        """Let another rank have what each of these ranks wrote."""
        live = [rank.number for rank in self.alive]
        takers = np.array([copy_rank([number], number, live) for number in live], dtype=float)[
            np.searchsorted(live, ranks)
        ]
        some = np.isfinite(takers)
        units, takers = units[some], takers[some].astype(np.int64)
        self.held[takers, units] = self.workload.sizes[units]
        new = True if self.workload.repeated is None else ~self.workload.repeated[units]
        self.bytes_copied += float(self.workload.sizes[units].sum(where=new))

    def forget(self, lost: _Computing) -> None:
        """Lose what a rank held; what no other rank holds is read, or computed, again by all others together."""
        alive = self.alive
        mine = np.flatnonzero(self.held[lost.number])
        self.held[lost.number] = 0.0
        alone = mine[~self.held[:, mine].any(axis=0) & (self.rework[1, mine] > 0)]
        operations, pieces = self.rework[:, alone].sum(axis=1)
        self.recomputed += float(pieces)
        takers = np.array([alive[k % len(alive)].number for k in range(len(alone))], dtype=np.int64)
        self.held[takers, alone] = self.workload.sizes[alone]
        for rank in alive:
            rank.debt += float(operations) / sum(other.about.speed for other in alive)


class _ReplayedTask:
    """One task in virtual time."""

    def __init__(self, cluster: _ReplayedRanks, task: TaskOfBlocks, ended: Ended | None) -> None:
        self._cluster = cluster
        self._task = task
        self._ended = ended
        self._work: list[float] = task.work.tolist()
        self._owners = np.full(task.demand.n_pieces, -1)
        self._serial = 0
        self._there: list[dict[int, float]] = [{} for _ in cluster.ranks]
        self._expected: dict[int, set[int]] = {}
        self._told: list[list[int]] = [[] for _ in cluster.ranks]
        self._events: list[tuple[float, int, int, int]] = []
        lanes: dict[int, int | None] = {rank.number: rank.about.lanes for rank in cluster.alive}
        self._dispatcher = Dispatcher[int](lanes, self, cluster.now, steal=cluster.options.steal)

    def run(self) -> None:
        """Replay the task; the clock of the cluster stands at its end then."""
        cluster = self._cluster
        self._divide()
        self._send_orders()
        while not self._dispatcher.is_finished:
            if cluster.losses and cluster.losses[0][0] <= (self._events[0][0] if self._events else np.inf):
                when, number = cluster.losses.popleft()
                cluster.now = max(cluster.now, when)
                self._lose(cluster.ranks[number])
                continue
            cluster.now, _, number, piece = heapq.heappop(self._events)
            rank = cluster.ranks[number]
            if rank.alive and piece != LINK:
                self._end(rank, piece)
            elif rank.alive and rank.down_free <= cluster.now:
                self._advance(rank)
        cluster.now += cluster.network.latency_seconds
        cluster.steals += self._dispatcher.steals
        cluster.on_written(self._task, self._owners)

    # -- what the dispatcher asks -------------------------------------------------------------------------------------

    def needs(self, piece: int, /) -> dict[Hashable, float]:
        """Return the units that a piece reads with their bytes."""
        return needs_of(self._task.demand, piece)

    def is_at(self, rank: int, unit: int, /) -> bool:
        """Whether a rank has a unit, or will fetch it for its orders."""
        expected, told = self._expected.get(rank), self._told[rank]
        if expected is None:
            held = self._cluster.held[rank] >= self._cluster.workload.sizes
            expected = self._expected[rank] = {*np.flatnonzero(held).tolist(), *self._there[rank]}
            told.extend(self._cluster.ranks[rank].unfetched)
        while told:
            expected.update(self._units(told.pop()))
        return unit in expected

    def find_lost_inputs(self, piece: int, /) -> Sequence[int]:
        """Return none: all ranks together compute what is lost, before their next pieces."""
        return ()

    def is_lost(self, piece: int, /) -> bool:
        """Whether what a piece wrote is lost with its rank: there are copies only when the task has ended."""
        return True

    # -- orders --------------------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Put all pieces into the queues of ranks."""
        owners, order = self._cluster.divide(self._task), PieceOrder(self._task.demand, self._task.index)
        for rank in self._cluster.alive:
            missing = self._cluster.workload.sizes - self._cluster.held[rank.number]
            pieces = order.of(np.flatnonzero(owners == rank.number), missing, rank.about.room).tolist()
            self._dispatcher.add(pieces, [rank.number] * len(pieces))

    def _send_orders(self) -> None:
        ranks = self._cluster.ranks
        told: dict[int, None] = {}
        for number, piece in self._dispatcher.orders(self._cluster.now):
            self._told[number].append(piece)
            ranks[number].unfetched.append(piece)
            told[number] = None
        for number in told:
            self._advance(ranks[number])

    def _advance(self, rank: _Computing) -> None:
        """Begin pieces on lanes that are free, and fetch what the next ones need while the link is free."""
        fetched, unfetched, lanes = rank.fetched, rank.unfetched, rank.about.lanes
        while rank.n_running < lanes and (fetched or unfetched):
            self._begin(rank, *(fetched.popleft() if fetched else self._fetch(rank)))
        while unfetched and rank.down_free <= self._cluster.now:
            fetched.append(self._fetch(rank))
        if unfetched:
            self._at(rank.down_free, rank, LINK)

    def _at(self, when: float, rank: _Computing, piece: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, rank.number, piece))

    def _units(self, piece: int) -> list[int]:
        demand = self._task.demand
        units: list[int] = demand.units[demand.starts[piece] : demand.starts[piece + 1]].tolist()
        return units

    def _fetch(self, rank: _Computing) -> tuple[int, float]:
        """Bring in what its next piece needs; return the piece, and when all of that is there."""
        piece, there, ready = rank.unfetched.popleft(), self._there[rank.number], 0.0
        for unit in self._units(piece):
            if unit not in there:
                there[unit] = self._cluster.transfer(rank, unit)
            ready = max(ready, there[unit])
        return piece, ready

    def _begin(self, rank: _Computing, piece: int, ready: float) -> None:
        now = self._cluster.now
        start = max(now, ready)
        rank.waited += (start - now) / rank.about.lanes
        seconds = self._work[piece] / (rank.about.speed / rank.about.lanes)
        rank.n_running += 1
        self._at(start + rank.debt + seconds, rank, piece)
        rank.debt = 0.0

    def _end(self, rank: _Computing, piece: int) -> None:
        rank.n_running -= 1
        rank.n_pieces += 1
        self._owners[piece] = rank.number
        if self._ended is not None:
            self._ended(len(self._cluster.moved), rank.number, piece)
        self._dispatcher.note_done(rank.number, piece)
        self._advance(rank)
        self._send_orders()

    def _lose(self, rank: _Computing) -> None:
        """End a rank: all that it had of this task is computed elsewhere."""
        if not rank.alive:
            return
        rank.alive = False
        if not self._cluster.alive:
            raise InternalError("all ranks of the replay are lost")
        rank.fetched.clear()
        rank.unfetched.clear()
        self._expected.clear()
        self._cluster.forget(rank)
        self._dispatcher.lose_rank(rank.number)
        self._send_orders()


class BlockReplay:
    """One replay; ``run`` returns the prediction.

    Parameters
    ----------
    workload : BlockWorkload
    ranks : sequence of BlockRank
    network : BlockNetwork
    options : BlockOptions

    Raises
    ------
    ConfigError
        If there are fewer ranks than copies.
    """

    def __init__(
        self,
        workload: BlockWorkload,
        ranks: Sequence[BlockRank],
        network: BlockNetwork = BlockNetwork(),
        options: BlockOptions = BlockOptions(),
    ) -> None:
        if not 1 <= options.copies <= min(2, len(ranks)):
            raise ConfigError(
                f"{options.copies} copies of blocks on {len(ranks)} ranks: one or two, each on another rank"
            )
        self._cluster = _ReplayedRanks(
            workload,
            [_Computing(number, rank) for number, rank in enumerate(ranks)],
            network,
            options,
            held=workload.count_held(options.placement, len(ranks), options.seed),
            up_free=np.zeros(len(ranks)),
            divider=TaskDivider(options.affinity, options.evaluate, options.seed),
            losses=deque(sorted(options.losses)),
            rework=np.zeros((2, len(workload.sizes))),
        )

    def run(self, ended: Ended | None = None) -> BlockPrediction:
        """Replay to the end.

        Parameters
        ----------
        ended : callable, optional
            Told of every piece that a rank has ended, with the number of its task from 1.

        Raises
        ------
        InternalError
            If all ranks are lost.
        """
        cluster = self._cluster
        for task in cluster.workload.tasks():
            cluster.moved.append(0.0)
            _ReplayedTask(cluster, task, ended).run()
        return BlockPrediction(
            seconds=cluster.now,
            bytes_moved=sum(cluster.moved),
            bytes_from_storage=cluster.bytes_from_storage,
            bytes_copied=cluster.bytes_copied,
            waited_seconds=sum(rank.waited for rank in cluster.ranks) / len(cluster.ranks),
            pieces=tuple(rank.n_pieces for rank in cluster.ranks),
            steals=cluster.steals,
            lost=len(cluster.ranks) - len(cluster.alive),
            recomputed=round(cluster.recomputed),
        )
