"""Drive the policy of block tasks in virtual time: what a cluster would move, and how long it would take.

The division of pieces among ranks, their order within a rank and the choice of what is stolen are those of a real run.
A rank fetches what its next pieces need while it computes; links are shared by all that goes over them; what was
fetched stays until the task ends, then the rank that wrote a unit is the only one that holds it. A task begins when the
one before it has ended. The outcome is a function of the arguments.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tartan.core.affinity import Steal, stolen
from tartan.core.assignment import Affinity, Assignment
from tartan.core.block_stealing import StealChance
from tartan.core.block_workloads import BlockWorkload, TaskOfBlocks, needs_of
from tartan.core.placement import Place
from tartan.core.subtask_order import PieceOrder
from tartan.core.task_divider import TaskDivider, UpdatedBlocks
from tartan.errors import ConfigError, InternalError

#: Stands for the link of a rank, among the pieces that end.
LINK = -1


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
    ahead : int, optional
        Pieces, besides those that it computes, whose units a rank may have fetched; 0: it fetches what a piece needs
        when a lane is free. Default: all of its pieces.
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
    ahead: int | None = None
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
    queue: deque[int] = field(default_factory=deque)
    unfetched: deque[int] = field(default_factory=deque)
    """Those of its pieces, in their order, whose units it has not asked for."""
    n_running: int = 0
    down_free: float = 0.0
    debt: float = 0.0
    """Seconds for which it computes again what was lost, before its next piece."""
    alive: bool = True
    n_pieces: int = 0
    waited: float = 0.0

    @property
    def left(self) -> int:
        """Pieces that it has not ended."""
        return len(self.queue) + self.n_running


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

    def divided(self, task: TaskOfBlocks, pieces: np.ndarray) -> np.ndarray:
        """Return the rank of each of some pieces of a task, by the policy."""
        whole, updated = len(pieces) == task.demand.n_pieces, None
        if whole and task.in_place is not None and task.index is not None:
            held = self.held[:, task.in_place]
            holders = np.where(held.any(axis=0), held.argmax(axis=0), -1)
            updated = UpdatedBlocks(0, task.index, self.workload.sizes[task.in_place], holders)
        demand = task.demand if whole else task.demand.part(pieces)
        index = None if task.index is None else task.index[pieces]
        return self.divider.divided(Assignment(demand, self.held, self.guesses(), index), len(self.moved), updated)

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

    def written(self, task: TaskOfBlocks, owners: np.ndarray) -> None:
        """Let the ranks that wrote units be the only ones that hold them, or one of two."""
        units, ranks = task.writes.units, owners[task.writes.pieces]
        sizes = self.workload.sizes[units]
        self.held[:, units] = 0.0
        self.held[ranks, units] = sizes
        if self.options.copies == 2:
            self.held[self._next_alive()[ranks], units] = sizes
            new = True if self.workload.repeated is None else ~self.workload.repeated[units]
            self.bytes_copied += float(sizes.sum(where=new))
        part = 1 / np.maximum(1, np.diff(task.writes.starts))[task.writes.pieces]
        before = 0.0 if task.in_place is None else self.rework[:, units]
        self.rework[:, units] = before + np.stack([task.work[task.writes.pieces] * part, part])

    def _next_alive(self) -> np.ndarray:
        """Return for every rank the next one that is alive, around the circle."""
        alive = [rank.number for rank in self.alive]
        return np.array([next((k for k in alive if k > rank.number), alive[0]) for rank in self.ranks])

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

    def __init__(self, cluster: _ReplayedRanks, task: TaskOfBlocks) -> None:
        self._cluster = cluster
        self._task = task
        self._order = PieceOrder(task.demand, task.index)
        self._owners = np.full(task.demand.n_pieces, -1)
        self._begun = np.zeros(task.demand.n_pieces, dtype=bool)
        self._n_left = task.demand.n_pieces
        self._serial = 0
        self._there = np.full(cluster.held.shape, np.inf)
        self._events: list[tuple[float, int, int, int]] = []
        self._began = cluster.now

    def run(self) -> None:
        """Replay the task; the clock of the cluster stands at its end then."""
        cluster = self._cluster
        for rank in cluster.ranks:
            rank.unfetched.clear()
        self._give(np.arange(self._task.demand.n_pieces))
        while self._n_left:
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
        cluster.written(self._task, self._owners)

    def _give(self, pieces: np.ndarray) -> None:
        """Divide pieces among the ranks that are alive, and let these begin."""
        owners = self._cluster.divided(self._task, pieces)
        for rank in self._cluster.alive:
            mine = pieces[owners == rank.number]
            missing = self._cluster.workload.sizes - self._cluster.held[rank.number]
            missing[np.isfinite(self._there[rank.number])] = 0.0
            order = self._order.of(mine, missing, rank.about.room).tolist()
            rank.queue.extend(order)
            rank.unfetched.extend(order)
        for rank in self._cluster.alive:
            self._advance(rank)

    def _advance(self, rank: _Computing) -> None:
        """Begin pieces on lanes that are free, and fetch what the next ones need while the link is free."""
        while rank.queue and rank.n_running < rank.about.lanes:
            piece = rank.queue.popleft()
            self._begin(rank, piece, self._fetch(rank, piece))
        ahead = len(rank.queue) if self._cluster.options.ahead is None else self._cluster.options.ahead
        while rank.unfetched and rank.down_free <= self._cluster.now:
            piece = rank.unfetched[0]
            if self._begun[piece]:
                rank.unfetched.popleft()
            elif len(rank.queue) - len(rank.unfetched) < ahead:
                self._fetch(rank, rank.unfetched.popleft())
            else:
                return
        if rank.unfetched and ahead:
            self._at(rank.down_free, rank, LINK)

    def _at(self, when: float, rank: _Computing, piece: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, rank.number, piece))

    def _fetch(self, rank: _Computing, piece: int) -> float:
        """Bring in what a piece needs; return when all of it is there."""
        demand, there = self._task.demand, self._there[rank.number]
        units = demand.units[demand.starts[piece] : demand.starts[piece + 1]]
        for unit in units[np.isinf(there[units])].tolist():
            there[unit] = self._cluster.transfer(rank, unit)
        return float(there[units].max(initial=0.0))

    def _begin(self, rank: _Computing, piece: int, ready: float) -> None:
        now = self._cluster.now
        start = max(now, ready)
        rank.waited += (start - now) / rank.about.lanes
        seconds = self._task.work[piece] / (rank.about.speed / rank.about.lanes)
        rank.n_running += 1
        self._begun[piece] = True
        self._at(start + rank.debt + seconds, rank, piece)
        rank.debt = 0.0

    def _end(self, rank: _Computing, piece: int) -> None:
        rank.n_running -= 1
        rank.n_pieces += 1
        self._n_left -= 1
        self._owners[piece] = rank.number
        self._advance(rank)
        if not rank.queue and rank.n_running < rank.about.lanes:
            self._steal(rank)

    def _steal(self, thief: _Computing) -> None:
        """Take pieces from the rank that would end last, as many as let both end together."""
        steal = self._cluster.options.steal
        victims = [rank for rank in self._cluster.alive if rank.queue and rank is not thief]
        if steal is None or not victims:
            return
        victim = max(victims, key=lambda rank: (rank.left / rank.about.speed, -rank.number))
        demand, work = self._task.demand, float(self._task.work[victim.queue[0]])
        chance = StealChance(
            victim.left,
            work / thief.about.speed,
            work / victim.about.speed,
            self._cluster.now - self._began,
        )
        count = chance.count(len(victim.queue))
        if count < 1:
            return
        last = list(victim.queue)[-8 * count :]
        there = [self._reached(rank) for rank in (thief, victim)]
        taken = stolen(last, count, lambda piece: needs_of(demand, piece), there[0], there[1], steal)
        if not chance.pays(count, self._missing(thief, taken) / self._cluster.network.link_bytes_per_second):
            return
        gone = {*taken}
        victim.queue = deque(piece for piece in victim.queue if piece not in gone)
        victim.unfetched = deque(piece for piece in victim.unfetched if piece not in gone)
        self._cluster.steals += len(taken)
        thief.queue.extend(taken)
        thief.unfetched.extend(taken)
        self._advance(thief)

    def _missing(self, rank: _Computing, pieces: list[int]) -> float:
        """Return the bytes that a rank must fetch for pieces."""
        units = np.unique(self._task.demand.part(np.array(pieces)).units)
        units = units[np.isinf(self._there[rank.number, units])]
        return float((self._task.demand.sizes[units] - self._cluster.held[rank.number, units]).sum())

    def _reached(self, rank: _Computing) -> set[Hashable]:
        """Return the units that a rank holds or is bound to fetch."""
        held = self._cluster.held[rank.number] >= self._cluster.workload.sizes
        return set(np.flatnonzero(held | np.isfinite(self._there[rank.number])).tolist())

    def _lose(self, rank: _Computing) -> None:
        """End a rank: all that it had of this task is computed elsewhere."""
        if not rank.alive:
            return
        rank.alive = False
        if not self._cluster.alive:
            raise InternalError("all ranks of the replay are lost")
        running = {piece for _, _, number, piece in self._events if number == rank.number and piece != LINK}
        ended = {*np.flatnonzero(self._owners == rank.number).tolist()}
        again = np.array(sorted({*rank.queue, *running, *ended}), dtype=np.int64)
        rank.queue.clear()
        rank.unfetched.clear()
        self._cluster.forget(rank)
        self._begun[again] = False
        self._n_left += len(ended)
        self._owners[again] = -1
        if len(again):
            self._give(again)


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
            held=workload.held(options.placement, len(ranks), options.seed),
            up_free=np.zeros(len(ranks)),
            divider=TaskDivider(options.affinity, options.evaluate, options.seed),
            losses=deque(sorted(options.losses)),
            rework=np.zeros((2, len(workload.sizes))),
        )

    def run(self) -> BlockPrediction:
        """Replay to the end.

        Raises
        ------
        InternalError
            If all ranks are lost.
        """
        cluster = self._cluster
        for task in cluster.workload.tasks():
            cluster.moved.append(0.0)
            _ReplayedTask(cluster, task).run()
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
