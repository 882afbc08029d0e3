"""Which rank is told to compute which piece of a task, and when: the driver of block tasks, as a state machine.

What happens goes in: pieces are done or have failed, ranks come and are lost. Orders come out. The only clock is the
time that is handed in. A session drives it by the answers of its ranks, the replay in virtual time; what pieces need,
and where that is, both say as a ``DataLocator``.

Every rank has a queue, the pieces that it is to compute in their order, and *orders*, those that it was told of. An
order is never taken back: ranks fetch for it at once. So a rank has few orders more than it computes at a time, and who
has nothing left takes from the queue of the rank that would end last, where that pays (``core/blocks/dispatcher.py``).

Pieces that were lost with their ranks are computed again: those of this task at once, those of earlier tasks when a
piece needs them, which waits meanwhile. What fails by its own fault is tried once more, on another rank where there is
one; what failed because its input could not be fetched, after a while, as the loss of a rank is often told later.

Invariant: a piece that was asked for and is not done is in one queue, or among the orders of one rank, or waits for
others, or waits to be tried later, or was given up.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from tartan.core.affinity import Steal, choose_stolen, weigh_missing
from tartan.errors import ClusterError

Piece = TypeVar("Piece", bound=Hashable)
FailureKind = Literal["user", "input", "cancelled", "node"]

#: Orders of a rank beyond those that it computes, so that it has another one, with its input there, while an answer and
#: the next order are on their way. By judgement: virtual time knows no latency of orders. Over links that are busy for
#: 0.5 and 0.9 of the work (`tartan bench blocks_plan only=links`) 1 takes up to 0.02 of the time more than 2, and 3 no
#: less; a product of 8 x 8 with one rank of four at a quarter of the speed, which keeps what it was told, takes 1.22,
#: 1.42 and 1.62 of the least time with 1, 2 and 3.
AHEAD = 3
#: The same where others could not take part of it and end sooner. Lines of blocks come one by one, and one of 32 blocks
#: lets as many pieces begin: where links are busy for 0.9 of the work, 3, 8 and 32 take 1.63, 1.23 and 1.09 of it
#: (`tartan bench blocks_plan only=links`), and 128 no less.
FAR_AHEAD = 32
#: Pieces that a thief looks at for each that it takes, from the end of the queue. By judgement: it bounds the time that
#: a theft takes. In virtual time products and LU with one slow rank of four move the same with 8 as with all.
LOOKED_AT = 8
#: Bytes a second at which the input of what is stolen is taken to move: a link of 1 Gbit/s, as no rank knows its link,
#: and what pays over the slowest of a cluster pays over all. `tartan bench blocks only=convolve` holds it: blocks that
#: are stolen for less come back for the next task.
SLOW_LINK = 1.25e8
#: By judgement: a function that has failed on two ranks fails always. No benchmark.
MOST_USER_FAILURES = 2
#: By arithmetic: fetches from a lost rank fail until its loss is told, of a silent one after 15 s in a session. Each
#: failure there takes the time of a connection that is refused, and half a second of pause.
MOST_INPUT_FAILURES = 20


class DataLocator(Protocol[Piece]):
    """Says what pieces need, and where it is. Units are what always moves together."""

    def needs(self, piece: Piece, /) -> Mapping[Any, float]:
        """Return the units that a piece reads with their bytes."""

    def is_at(self, rank: int, unit: Any, /) -> bool:
        """Whether a rank has a unit, or will fetch it for its orders."""

    def find_lost_inputs(self, piece: Piece, /) -> Sequence[Piece]:
        """Return the pieces that must be computed again before this one: nothing else has what they wrote.

        Raises
        ------
        ClusterError
            If it cannot be computed again.
        """

    def is_lost(self, piece: Piece, /) -> bool:
        """Whether a part of what a piece wrote is nowhere any more."""


@dataclass(eq=False)
class DispatchedRank(Generic[Piece]):
    """What the dispatcher knows of a rank.

    Attributes
    ----------
    n_workers : int or None
        Pieces that it computes at a time; None: it may have all orders at once.
    queue : deque
    orders : dict
        In the order in which they went out; values mean nothing.
    n_ended : int
        Pieces that it was the first to end.
    """

    n_workers: int | None
    queue: deque[Piece] = field(default_factory=deque)
    orders: dict[Piece, None] = field(default_factory=dict)
    n_ended: int = 0

    @property
    def n_left(self) -> int:
        """Pieces that it has not ended."""
        return len(self.queue) + len(self.orders)


class Dispatcher(Generic[Piece]):
    """The driver of one task, or of several at the same time.

    Parameters
    ----------
    ranks : mapping of int to int or None
        How many pieces each rank computes at a time; None: it may have all orders at once.
    locator : DataLocator
    now : float
        When the task begins, in seconds.
    steal : {"difference", "plain"} or None
        None: ranks keep what they were given.
    n_cores : float
        Cores that all ranks share; infinity where each has its own.

    Attributes
    ----------
    steals, repeated, ranks_lost : int
        Pieces stolen; pieces that were put into a queue again, after a failure or a loss; ranks lost.
    n_ended : Counter of int
        Pieces that each rank was the first to end, of lost ranks too.

    Examples
    --------
    >>> class Nothing:
    ...     def needs(self, piece): return {}
    ...     def is_at(self, rank, unit): return True
    ...     def find_lost_inputs(self, piece): return []
    ...     def is_lost(self, piece): return True
    >>> dispatcher = Dispatcher({0: 1, 1: 1}, Nothing(), now=0.0)
    >>> dispatcher.add(["a", "b"], [0, 1])
    >>> [*dispatcher.orders(now=0.0)]
    [(0, 'a'), (1, 'b')]
    >>> dispatcher.note_done(0, "a"), dispatcher.lose_rank(1), [*dispatcher.orders(now=1.0)]
    (True, None, [(0, 'b')])
    """

    def __init__(
        self,
        ranks: Mapping[int, int | None],
        locator: DataLocator[Piece],
        now: float,
        *,
        steal: Steal | None = "difference",
        n_cores: float = inf,
    ) -> None:
        self._ranks = {rank: DispatchedRank[Piece](n_workers) for rank, n_workers in ranks.items()}
        self._locator, self._began, self._steal, self._n_cores = locator, now, steal, n_cores
        self._wanted: set[Piece] = set()
        self._done: dict[Piece, int] = {}
        self._n_missing = 0
        self._n_queued = 0
        self._most_ended = 0
        self._changed: set[int] = set()
        self._idle = set(self._ranks)
        self._thefts: dict[int, Theft | None] = {}
        """What a rank that has ended so many pieces might take, until an order goes out or pieces change hands."""
        self._waiting: dict[Piece, set[Piece]] = {}
        self._later: list[Piece] = []
        self._failures: Counter[Piece] = Counter()
        self._refused: dict[Piece, set[int]] = defaultdict(set)
        self._stopped = False
        self.n_ended: Counter[int] = Counter()
        self.steals = self.repeated = self.ranks_lost = 0

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def ranks(self) -> list[int]:
        """Numbers of the ranks that live."""
        return [*self._ranks]

    @property
    def is_finished(self) -> bool:
        """Whether all pieces that were asked for are done."""
        return not self._n_missing

    @property
    def n_done(self) -> int:
        """Pieces that are done, those of earlier tasks too that were computed again."""
        return len(self._done)

    @property
    def n_ordered(self) -> int:
        """Orders that are not answered."""
        return sum(len(rank.orders) for rank in self._ranks.values())

    def is_wanted(self, piece: Piece) -> bool:
        """Whether a piece was asked for, and is not of an earlier task."""
        return piece in self._wanted

    def is_ordered(self, rank: int, piece: Piece) -> bool:
        """Whether a rank has an order that it has not answered."""
        return rank in self._ranks and piece in self._ranks[rank].orders

    def list_recomputed(self) -> list[Piece]:
        """Return the pieces of earlier tasks that were computed again."""
        return [piece for piece in self._done if piece not in self._wanted]

    # -- events ------------------------------------------------------------------------------------------------------

    def add(self, pieces: Sequence[Piece], owners: Sequence[int]) -> None:
        """Ask for pieces, each of the rank that was chosen for it, in the order in which that comes to them."""
        n_before = len(self._wanted)
        self._wanted.update(pieces)
        self._n_missing += len(self._wanted) - n_before
        for piece, rank in zip(pieces, owners, strict=True):
            self._put(piece, rank if rank in self._ranks else self._least_loaded(piece))

    def note_done(self, rank: int, piece: Piece) -> bool:
        """Note that a rank has carried out an order; return whether the piece was not done before."""
        teller = self._take_order(rank, piece)
        if teller is None:
            return False
        is_new = piece not in self._done
        if is_new:
            self._done[piece] = rank
            self._n_missing -= piece in self._wanted
            teller.n_ended += 1
            self.n_ended[rank] += 1
            self._most_ended = max(self._most_ended, teller.n_ended)
        if self._waiting:
            self._end_waiting_for(piece)
        return is_new

    def _end_waiting_for(self, piece: Piece) -> None:
        """Put the pieces into queues that waited for this one alone."""
        for waiting, lost in [*self._waiting.items()]:
            lost.discard(piece)
            if not lost:
                del self._waiting[waiting]
                self._put(waiting, self._least_loaded(waiting), first=True)

    def note_failed(self, rank: int, piece: Piece, kind: FailureKind) -> bool:
        """Note that an order came to nothing; return whether the piece will be tried again."""
        if self._take_order(rank, piece) is None:
            return True
        self._failures[piece] += 1
        self._refused[piece].add(rank)
        if kind == "input" and self._failures[piece] < MOST_INPUT_FAILURES:
            self._later.append(piece)
        elif kind == "user" and self._failures[piece] < MOST_USER_FAILURES:
            self.repeated += 1
            self._put(piece, self._least_loaded(piece), first=True)
        else:
            return False
        return True

    def retry(self) -> None:
        """Try again what could not fetch its input; called when nothing has happened for a while."""
        later, self._later = self._later, []
        for piece in later:
            self._put(piece, self._least_loaded(piece))

    def add_rank(self, rank: int, n_workers: int | None) -> None:
        """Note that a rank has come; nothing happens where it is known."""
        if rank not in self._ranks:
            self._ranks[rank] = DispatchedRank(n_workers)
            self._idle.add(rank)

    def lose_rank(self, rank: int) -> None:
        """Note that a rank is lost; the locator knows of it.

        Raises
        ------
        ClusterError
            If it was the last one.
        """
        self.ranks_lost += 1
        lost = self._ranks.pop(rank, DispatchedRank(0))
        self._n_queued -= len(lost.queue)
        self._changed.discard(rank)
        self._idle.discard(rank)
        self._most_ended = max((other.n_ended for other in self._ranks.values()), default=0)
        gone = [piece for piece, where in self._done.items() if where == rank and self._locator.is_lost(piece)]
        for piece in gone:
            self._undo(piece)
        again = [piece for piece in gone if piece in self._wanted]
        self.repeated += len(again)
        if not self._stopped:
            for piece in (*lost.orders, *lost.queue, *again):
                self._put(piece, self._least_loaded(piece))
            self._require_ranks()

    def stop(self) -> None:
        """Give no order any more; answers are still noted."""
        self._stopped = True

    # -- actions -----------------------------------------------------------------------------------------------------

    def orders(self, now: float) -> Iterator[tuple[int, Piece]]:
        """Yield the orders that go out now: a rank and a piece each.

        Each must be known to the locator before the next one is asked for.

        Raises
        ------
        ClusterError
            If what a piece reads cannot be had again.
        """
        if not self._n_queued:
            return
        self._thefts.clear()
        turn = self._changed if self._steal is None else self._changed | self._idle
        while turn and not self._stopped:
            self._changed = set()
            for rank in sorted(turn):
                yield from self._orders_of(rank, now)
            turn = self._changed

    def _orders_of(self, number: int, now: float) -> Iterator[tuple[int, Piece]]:
        rank = self._ranks[number]
        while self._may_have_more(rank):
            if not rank.queue and not rank.orders and self._steal is not None:
                self._take_from_others(number, now, self._steal)
            if not rank.queue:
                break
            piece = rank.queue.popleft()
            self._n_queued -= 1
            self._thefts.clear()
            lost = self._locator.find_lost_inputs(piece)
            if lost:
                self._await(piece, lost)
            else:
                rank.orders[piece] = None
                yield number, piece
        self._note_idle(number, rank)

    def _may_have_more(self, rank: DispatchedRank[Piece]) -> bool:
        """Whether a rank has fewer orders than it may have.

        Far ahead it has no more than what it would keep if the fastest rank took its share. Before it has ended a piece
        nothing is known of its speed.
        """
        n_orders = len(rank.orders)
        if rank.n_workers is None or n_orders < rank.n_workers + AHEAD:
            return True
        if not rank.queue or n_orders >= rank.n_workers + FAR_AHEAD:
            return False
        n_left = len(rank.queue) + n_orders
        return n_orders < n_left * rank.n_ended // max(1, rank.n_ended + self._most_ended)

    def _take_from_others(self, number: int, now: float, steal: Steal) -> None:
        """Move pieces from the queue of the rank that would end last, where the task ends sooner by it."""
        thief = self._ranks[number]
        if thief.n_ended not in self._thefts:
            self._thefts[thief.n_ended] = self._find_theft(thief, now - self._began)
        theft = self._thefts[thief.n_ended]
        if theft is None:
            return
        victim, count = self._ranks[theft.victim], theft.n_pieces
        last = [piece for piece in [*victim.queue][-LOOKED_AT * count :] if number not in self._refused.get(piece, ())]
        needs = {piece: self._locator.needs(piece) for piece in last}
        units = {unit for found in needs.values() for unit in found}
        there, kept = ({unit for unit in units if self._locator.is_at(rank, unit)} for rank in (number, theft.victim))
        taken = choose_stolen([*needs], count, needs.__getitem__, there, kept, steal)
        fetched = {unit: size for piece in taken for unit, size in needs[piece].items()}
        if taken and theft.chance.pays(len(taken), weigh_missing(fetched, there) / SLOW_LINK):
            gone = set(taken)
            victim.queue = deque(piece for piece in victim.queue if piece not in gone)
            thief.queue.extend(taken)
            self.steals += len(taken)
            self._thefts.clear()

    def _find_theft(self, thief: DispatchedRank[Piece], elapsed: float) -> Theft | None:
        """Return what a rank might take, and from whom; None where it would not pay even if nothing had to move."""
        if not self._n_queued or elapsed <= 0:
            return None
        victim = max(
            (number for number, rank in self._ranks.items() if rank.queue),
            key=lambda number: self._ranks[number].n_left * self._seconds_each(number, elapsed),
        )
        chance = self._chance(thief, victim, elapsed)
        count = chance.count(len(self._ranks[victim].queue))
        return Theft(victim, count, chance) if count >= 1 and chance.pays(count, 0.0) else None

    def _chance(self, thief: DispatchedRank[Piece], victim: int, elapsed: float) -> StealChance:
        """Return what is known of a theft; a rank that has ended nothing yet is taken to be as fast as the fastest."""
        ranks, n_busy = self._ranks, 0
        if self._n_cores < inf:
            n_busy = sum(min(len(rank.orders), rank.n_workers or 1) for rank in ranks.values())
        return StealChance(
            ranks[victim].n_left,
            elapsed / max(1, thief.n_ended or self._most_ended),
            self._seconds_each(victim, elapsed),
            elapsed,
            n_busy,
            self._n_cores,
        )

    def _seconds_each(self, rank: int, elapsed: float) -> float:
        """Return the time between the ends of two pieces on a rank, as far as it is known."""
        return elapsed / max(1, self._ranks[rank].n_ended)

    # -- queues ------------------------------------------------------------------------------------------------------

    def _put(self, piece: Piece, number: int, *, first: bool = False) -> None:
        queue = self._ranks[number].queue
        if first:
            queue.appendleft(piece)
        else:
            queue.append(piece)
        self._n_queued += 1
        self._changed.add(number)
        self._idle.discard(number)

    def _least_loaded(self, piece: Piece) -> int:
        """Return the rank that has the least left, of those on which the piece has not failed, where there are any."""
        self._require_ranks()
        refused = self._refused.get(piece, ())
        fresh = [number for number in self._ranks if number not in refused] or self._ranks
        return min(fresh, key=lambda number: self._ranks[number].n_left)

    def _require_ranks(self) -> None:
        if not self._ranks:
            raise ClusterError("no rank is left; the session cannot compute any more")

    def _take_order(self, number: int, piece: Piece) -> DispatchedRank[Piece] | None:
        """Remove an order that was answered; return its rank, None where that had no such order."""
        rank = self._ranks.get(number)
        if rank is None or piece not in rank.orders:
            return None
        del rank.orders[piece]
        self._changed.add(number)
        self._note_idle(number, rank)
        return rank

    def _note_idle(self, number: int, rank: DispatchedRank[Piece]) -> None:
        if rank.queue or rank.orders:
            self._idle.discard(number)
        else:
            self._idle.add(number)

    def _await(self, piece: Piece, lost: Sequence[Piece]) -> None:
        """Let a piece wait until what it needs was computed again."""
        self._waiting[piece] = set(lost)
        for producer in lost:
            if not self._is_under_way(producer):
                self._undo(producer)
                self.repeated += 1
                self._put(producer, self._least_loaded(producer), first=True)

    def _is_under_way(self, piece: Piece) -> bool:
        held = any(piece in rank.orders or piece in rank.queue for rank in self._ranks.values())
        return held or piece in self._later or piece in self._waiting

    def _undo(self, piece: Piece) -> None:
        """Note that a piece is not done any more."""
        if self._done.pop(piece, None) is not None:
            self._n_missing += piece in self._wanted


def copy_rank(holders: Collection[int], first: int, live: Sequence[int]) -> int | None:
    """Return the rank that takes one copy more of what a piece wrote: the next one that has none, around the circle.

    Parameters
    ----------
    holders : collection of int
        Ranks that have it.
    first : int
        The one that wrote it.
    live : sequence of int
        Numbers of the ranks that live, ascending.

    Returns
    -------
    int or None
        None where all have it.

    Examples
    --------
    >>> copy_rank([1], 1, [0, 1, 3]), copy_rank([3], 3, [0, 1, 3]), copy_rank([1, 3], 1, [0, 1, 3])
    (3, 0, 0)
    """
    circle = sorted(live, key=lambda rank: (rank <= first, rank))
    return next((rank for rank in circle if rank not in holders), None)


# When a rank that has nothing to do takes pieces of a task from another one, and how many.
#
# Ranks never end at just the same moment, and who ends first has nothing to do until the task ends. What it takes must
# come to it first, and goes back where it was when the next task is divided into equal shares again. So pieces are
# taken only where the task ends sooner by more than both ways cost, and by a share of the time that it has run: what is
# less than that is chance, and shares stay where they are.

#: By how much sooner a task must end, as a share of the time since it began.
#: By judgement: what ranks of one machine end apart by is some per cent of a task. Convolutions then move their halos
#: alone (`tartan bench blocks only=convolve`); at half of it chance moves blocks, at twice unequal ranks idle longer.
LEAST_GAIN = 0.125


@dataclass(frozen=True)
class StealChance:
    """What is known when a rank has nothing to do.

    Attributes
    ----------
    n_left : int
        Pieces that its victim has not ended.
    thief_seconds, victim_seconds : float
        Between the ends of two pieces on each.
    elapsed_seconds : float
        Since the task began.
    n_busy, n_cores : int
        Subtasks that run, and cores that all ranks share, where they do: while no core is idle, what a thief computes
        slows the others down.

    Examples
    --------
    >>> chance = StealChance(n_left=8, thief_seconds=1.0, victim_seconds=1.0, elapsed_seconds=16.0)
    >>> chance.count(6), chance.pays(4, 0.5), chance.pays(4, 2.0), chance.pays(1, 0.0)
    (4, True, False, False)
    """

    n_left: int
    thief_seconds: float
    victim_seconds: float
    elapsed_seconds: float
    n_busy: int = 0
    n_cores: float = inf

    def count(self, n_free: int) -> int:
        """Return how many pieces let both end together, of those that the victim has not begun."""
        share = self.victim_seconds / (self.victim_seconds + self.thief_seconds)
        return min(n_free, int(self.n_left * share))

    def pays(self, count: int, transfer_seconds: float) -> bool:
        """Return whether some pieces are worth their transfer to the thief, and once more back.

        Parameters
        ----------
        count : int
        transfer_seconds : float
            Until all that they need is at the thief.
        """
        if self.n_busy >= self.n_cores:
            return False
        victim_ends = (self.n_left - count) * self.victim_seconds
        ends = max(victim_ends, transfer_seconds + count * self.thief_seconds)
        gain = self.n_left * self.victim_seconds - ends
        return gain > transfer_seconds + LEAST_GAIN * self.elapsed_seconds


class Theft(NamedTuple):
    """From whom a rank might take pieces, how many, and what is known of it."""

    victim: int
    n_pieces: int
    chance: StealChance
