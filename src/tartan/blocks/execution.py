"""One call of ``Session.run``: gives subtasks to ranks, and makes the next version when all have ended.

Subtasks whose inputs are nowhere wait while the subtasks that wrote those run again. A subtask that fails by its own
fault is tried once more, on another rank where there is one.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tartan.blocks.crew import BlockCrew
from tartan.blocks.directory import BlockDirectory
from tartan.blocks.jobs import SubtaskJob
from tartan.blocks.origins import ToldRanges
from tartan.blocks.report import RunReport
from tartan.blocks.subtask_trace import SubtaskTrace
from tartan.blocks.work import (
    AddFunction,
    CancelOrders,
    CopyPieces,
    CrewEvent,
    DropFunctions,
    DropPieces,
    NodeCounts,
    OrderDone,
    OrderFailed,
    RangeKey,
    RankCame,
    RankGone,
    WorkOrder,
)
from tartan.core.affinity import Steal, missing_weight, stolen
from tartan.core.block_stealing import StealChance
from tartan.core.pieces import PieceKey, PiecePart
from tartan.errors import ClusterError, RankLostError, SubtaskError

_TICK_SECONDS = 0.5
_MOST_USER_FAILURES = 2
_MOST_INPUT_FAILURES = 20
_FAREWELL_SECONDS = 10.0
_AHEAD, _FAR_AHEAD = 3, 32
"""Orders that a rank has besides those that run; the latter as long as others could not take half of what is left."""
_LOOKED_AT = 8
"""Subtasks of a queue that a thief looks at, for each that it takes."""
_SLOW_LINK = 1.25e8
"""Bytes a second that a steal must pay at."""

JobKey = tuple[int, int]


@dataclass
class RunTotals:
    """What one call of ``Session.run`` did.

    Attributes
    ----------
    counts : NodeCounts
        Of all ranks.
    ranks : dict of int to int
        Subtasks that each rank ended.
    owners : dict of (int, int) to int
        The rank of each subtask.
    steals, repeated, ranks_lost : int
    """

    counts: NodeCounts = field(default_factory=NodeCounts)
    ranks: Counter[int] = field(default_factory=Counter)
    owners: dict[tuple[int, int], int] = field(default_factory=dict)
    steals: int = 0
    repeated: int = 0
    ranks_lost: int = 0

    def report(self, seconds: float, subtasks: int, bytes_bound: int | None) -> RunReport:
        """Return what users see of it."""
        return RunReport(
            seconds=seconds,
            subtasks=subtasks,
            bytes_moved=self.counts.bytes_from_ranks,
            bytes_bound=bytes_bound,
            bytes_read=self.counts.bytes_from_source,
            bytes_spilled=self.counts.bytes_spilled,
            bytes_restored=self.counts.bytes_restored,
            ranges=self.counts.ranges,
            hits=self.counts.hits,
            steals=self.steals,
            repeated=self.repeated,
            ranks_lost=self.ranks_lost,
            device_subtasks=self.counts.device_subtasks,
            bytes_uploaded=self.counts.bytes_uploaded,
            bytes_downloaded=self.counts.bytes_downloaded,
            device_ranges=self.counts.device_ranges,
            device_hits=self.counts.device_hits,
            seconds_device_waited=self.counts.seconds_device_waited,
            per_rank=dict(self.ranks),
        )


class BlockExecution:
    """Runs jobs to their end on a crew.

    Parameters
    ----------
    crew : BlockCrew
    directory : BlockDirectory
    known : callable
        Returns the job that wrote a piece, for pieces that are lost; None where it is not known any more.
    copies : int
        Ranks that have each piece when the jobs have ended.
    steal : {"difference", "plain"} or None
        How a rank that has nothing to do takes work from another; None: not at all.
    progress : callable
        Receives how many of the jobs are done.
    trace : SubtaskTrace or None
    """

    def __init__(
        self,
        crew: BlockCrew,
        directory: BlockDirectory,
        known: Callable[[PieceKey], SubtaskJob | None],
        *,
        copies: int = 1,
        steal: Steal | None = "difference",
        progress: Callable[[int], None] = lambda done: None,
        trace: SubtaskTrace | None = None,
    ) -> None:
        self._crew, self._directory, self._known, self._progress = crew, directory, known, progress
        self._copies, self._steal = copies, steal
        self._trace = trace
        self.totals = RunTotals()
        self._jobs: dict[JobKey, SubtaskJob] = {}
        self._wanted: set[JobKey] = set()
        self._done: dict[tuple[int, int], int] = {}
        self._queues: dict[int, deque[JobKey]] = {rank: deque() for rank in crew.ranks}
        self._given: dict[int, dict[tuple[int, int], SubtaskJob]] = {rank: {} for rank in crew.ranks}
        self._reached: dict[int, set[RangeKey]] = defaultdict(set)
        self._parked: dict[tuple[int, int], set[PieceKey]] = {}
        self._later: list[SubtaskJob] = []
        self._failures: Counter[tuple[int, int]] = Counter()
        self._refused: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._functions: dict[int, int] = {}
        self._sent_functions: set[tuple[int, int]] = set()
        self._told = ToldRanges()
        self._error: Exception | None = None
        self._began = time.monotonic()

    def run(self, keys: Sequence[JobKey], owners: Sequence[int], job_of: Callable[[JobKey], SubtaskJob]) -> None:
        """Run jobs, each on the rank chosen for it.

        Parameters
        ----------
        keys : sequence of (int, int)
            In the order in which a rank comes to them.
        owners : sequence of int
            The rank of each.
        job_of : callable
            Returns a job by its key; called when the job is about to run.

        Raises
        ------
        SubtaskError
            If a subtask failed twice.
        ClusterError
            If what was lost cannot be computed again, or no rank is left.
        """
        self._wanted, self._job_of = set(keys), job_of
        for key, rank in zip(keys, owners, strict=True):
            if rank in self._queues:
                self._queues[rank].append(key)
            else:
                self._enqueue(self._job(key), rank)
        self._feed()
        while self._wanted - self._done.keys() and self._error is None:
            self._step()
        if self._error is None and self._copies > 1:
            self._make_copies()
        if self._error is not None:
            self._wind_up()
        for rank in self._crew.ranks:
            self._crew.send(rank, DropFunctions(tuple(self._functions.values())))
        if self._error is not None:
            raise self._error

    def recomputed(self) -> set[PieceKey]:
        """Return the pieces of earlier tasks that were made again."""
        return {piece for key in self._done.keys() - self._wanted for piece, _ in self._job(key).outputs()}

    def _job(self, key: JobKey) -> SubtaskJob:
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = self._job_of(key)
        return job

    # -- giving work ---------------------------------------------------------------------------------------------

    def _enqueue(self, job: SubtaskJob, rank: int, *, first: bool = False) -> None:
        self._jobs[job.key] = job
        if rank not in self._queues:
            rank = self._least_loaded(job)
        if first:
            self._queues[rank].appendleft(job.key)
        else:
            self._queues[rank].append(job.key)

    def _least_loaded(self, job: SubtaskJob) -> int:
        live = list(self._queues)
        if not live:
            raise ClusterError("no rank is left; the session cannot compute any more")
        fresh = [rank for rank in live if rank not in self._refused[job.key]] or live
        return min(fresh, key=lambda rank: len(self._queues[rank]) + len(self._given[rank]))

    def _feed(self) -> None:
        """Give every rank as many orders as it may have."""
        for rank in list(self._queues):
            while self._error is None and self._may_give(rank):
                self._give(self._job(self._queues[rank].popleft()), rank)

    def _may_give(self, rank: int) -> bool:
        n_workers, n_given = self._crew.n_workers(rank), len(self._given[rank])
        if n_workers is not None and n_given >= n_workers + _AHEAD:
            n_left = n_given + len(self._queues[rank])
            if n_given >= min(n_workers + _FAR_AHEAD, n_left // 2):
                return False
        if not self._queues[rank] and self._steal is not None:
            self._take_from_others(rank, self._steal)
        return bool(self._queues[rank])

    def _take_from_others(self, thief: int, steal: Steal) -> None:
        """Move subtasks from the queue of the rank that would end last, where the task ends sooner by it."""
        victims = [rank for rank in self._queues if self._queues[rank] and rank != thief]
        if not victims or self._given[thief]:
            return
        elapsed = time.monotonic() - self._began
        seconds = {rank: elapsed / max(1, self.totals.ranks[rank]) for rank in self._queues}
        left = {rank: len(self._queues[rank]) + len(self._given[rank]) for rank in victims}
        victim = max(victims, key=lambda rank: left[rank] * seconds[rank])
        thief_seconds = seconds[thief] if self.totals.ranks[thief] else min(seconds.values())
        busy = sum(min(len(given), self._crew.n_workers(rank) or 1) for rank, given in self._given.items())
        chance = StealChance(left[victim], thief_seconds, seconds[victim], elapsed, busy, self._crew.n_cores)
        queue = self._queues[victim]
        count = chance.count(len(queue))
        if count < 1 or not chance.pays(count, 0.0):
            return
        needs = {key: self._directory.needs(self._job(key)) for key in [*queue][-_LOOKED_AT * count :]}
        units = {unit for found in needs.values() for unit in found}
        there, kept = ({unit for unit in units if self._is_at(rank, *unit)} for rank in (thief, victim))
        taken = stolen([*needs], count, needs.__getitem__, there, kept, steal)
        fetched = {unit: size for key in taken for unit, size in needs[key].items()}
        if chance.pays(count, missing_weight(fetched, there) / _SLOW_LINK):
            keys = set(taken)
            self._queues[victim] = deque(key for key in queue if key not in keys)
            self._queues[thief].extend(taken)
            self.totals.steals += len(taken)

    def _is_at(self, rank: int, wanted: RangeKey, part: PiecePart) -> bool:
        """Whether a rank has a part of a range, or will fetch it."""
        return wanted in self._reached[rank] or self._directory.has(rank, part)

    def _give(self, job: SubtaskJob, rank: int) -> None:
        missing = self._directory.missing(job.inputs())
        if missing:
            self._park(job, missing)
            return
        order = WorkOrder(
            job.task,
            job.subtask,
            self._function_on(job, rank),
            job.index,
            job.arguments,
            {
                key: self._directory.origins(parts, rank)
                for key, parts in job.parts.items()
                if self._told.is_new(rank, job.task, key)
            },
        )
        self._given[rank][job.key] = job
        self._reached[rank] |= job.parts.keys()
        self._crew.send(rank, order)

    def _function_on(self, job: SubtaskJob, rank: int) -> int:
        number = self._functions.setdefault(id(job.function), (job.task << 20) + len(self._functions))
        if (number, rank) not in self._sent_functions:
            self._sent_functions.add((number, rank))
            self._crew.send(rank, AddFunction(number, job.function))
        return number

    def _park(self, job: SubtaskJob, missing: set[PieceKey]) -> None:
        """Let a job wait until what it needs was made again."""
        self._parked[job.key] = missing
        for key in missing:
            producer = self._known(key)
            if producer is None:
                raise lost_error()
            busy = any(producer.key in given for given in self._given.values())
            queued = any(producer.key in queue for queue in self._queues.values()) or producer in self._later
            if not busy and not queued and producer.key not in self._parked:
                self._done.pop(producer.key, None)
                self.totals.repeated += 1
                self._enqueue(producer, self._least_loaded(producer), first=True)

    # -- events ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        event = self._crew.next_event(_TICK_SECONDS)
        try:
            if event is None:
                later, self._later = self._later, []
                for job in later:
                    self._enqueue(job, self._least_loaded(job))
            else:
                self._take(event)
            self._feed()
        except ClusterError as error:
            self._error = error

    def _take(self, event: CrewEvent) -> None:
        match event:
            case OrderDone(rank, key, counts):
                self.totals.counts += counts
                job = self._given.get(rank, {}).pop(key, None)
                if job is not None:
                    if self._trace is not None:
                        self._trace.record(rank, f"{job.function.name} {job.index}", counts.seconds_computing)
                    self._note_done(job, rank)
            case OrderFailed(rank=rank, key=key, counts=counts):
                self.totals.counts += counts
                job = self._given.get(rank, {}).pop(key, None)
                if job is not None:
                    self._note_failed(job, event)
            case RankGone(rank, _):
                self._lose(rank)
            case RankCame(rank):
                self._queues.setdefault(rank, deque())
                self._given.setdefault(rank, {})

    def _note_done(self, job: SubtaskJob, rank: int) -> None:
        for piece, wanted in job.outputs():
            self._directory.note(piece, wanted.box, rank)
        if job.key not in self._done:
            self._done[job.key] = rank
            self.totals.ranks[rank] += 1
            self.totals.owners[job.key] = rank
            if job.key in self._wanted:
                self._progress(len(self._done))
        for key, missing in list(self._parked.items()):
            missing -= {piece for piece, _ in job.outputs()}
            if not missing:
                del self._parked[key]
                self._enqueue(self._job(key), self._least_loaded(self._job(key)), first=True)

    def _note_failed(self, job: SubtaskJob, event: OrderFailed) -> None:
        self._failures[job.key] += 1
        self._told.forget()
        self._refused[job.key].add(event.rank)
        if event.kind == "input" and self._failures[job.key] < _MOST_INPUT_FAILURES:
            self._later.append(job)  # the loss of the rank that had it is reported soon
        elif event.kind == "user" and self._failures[job.key] < _MOST_USER_FAILURES:
            self.totals.repeated += 1
            self._enqueue(job, self._least_loaded(job), first=True)
        else:
            self._error = _with_traceback(event)

    def _lose(self, rank: int) -> None:
        """Take back what a lost rank was to do, and what only it had done."""
        self.totals.ranks_lost += 1
        self._directory.lose(rank)
        self._told.forget()
        waiting = [*self._given.pop(rank, {}).values(), *map(self._job, self._queues.pop(rank, ()))]
        gone = [
            self._job(key)
            for key, where in self._done.items()
            if where == rank and self._directory.missing(piece for piece, _ in self._job(key).outputs())
        ]
        for job in gone:
            del self._done[job.key]
        again = [job for job in gone if job.key in self._wanted]
        self.totals.repeated += len(again)
        if not self._queues:
            self._error = ClusterError("no rank is left; the session cannot compute any more")
            return
        for job in [*waiting, *again]:
            self._enqueue(job, self._least_loaded(job))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _make_copies(self) -> None:
        """Have every new piece on further ranks, one after the other."""
        live = list(self._queues)
        for _ in range(self._copies - 1):
            waiting = self._ask_for_copies(live)
            while waiting and self._error is None:
                event = self._crew.next_event(_TICK_SECONDS)
                if isinstance(event, OrderDone) and (event.rank, event.key) in waiting:
                    self.totals.counts += event.counts
                    for piece in waiting.pop((event.rank, event.key)):
                        self._directory.note(piece, self._directory.boxes[piece], event.rank)
                elif isinstance(event, OrderFailed) and (event.rank, event.key) in waiting:
                    waiting.pop((event.rank, event.key))
                    if event.kind != "input":
                        self._error = event.error
                elif isinstance(event, RankGone):
                    waiting = {key: pieces for key, pieces in waiting.items() if key[0] != event.rank}
                    self._lose(event.rank)
                    self._catch_up()
                elif event is not None:
                    self._take(event)

    def _catch_up(self) -> None:
        """Run again what was lost with a rank."""
        self._feed()
        while self._wanted - self._done.keys() and self._error is None:
            self._step()

    def _ask_for_copies(self, live: Sequence[int]) -> dict[tuple[int, tuple[int, int]], list[PieceKey]]:
        """Ask for one copy more of each new piece; return which answers are waited for."""
        wanted: dict[int, list[tuple[PieceKey, int, int]]] = defaultdict(list)
        for key in sorted(self._wanted):
            for piece, output in self._job(key).outputs():
                holders = self._directory.holders.get(piece, [])
                if holders and len(holders) < min(self._copies, len(live)):
                    at = live.index(holders[0]) if holders[0] in live else 0
                    others = [live[(at + step) % len(live)] for step in range(1, len(live))]
                    rank = next(rank for rank in others if rank not in holders)
                    wanted[rank].append((piece, output.space, holders[0]))
        waiting = {}
        for rank, pieces in wanted.items():
            task, subtask = min(self._wanted)[0], -1 - rank
            found = tuple(
                (space, self._directory.origins([PiecePart(self._directory.boxes[piece], piece)], holder)[0])
                for piece, space, holder in pieces
            )
            self._crew.send(rank, CopyPieces(task, subtask, found))
            waiting[rank, (task, subtask)] = [piece for piece, _, _ in pieces]
        return waiting

    def _wind_up(self) -> None:
        """Stop what has not begun, wait for what has, and drop what was written."""
        for rank in self._crew.ranks:
            self._crew.send(rank, CancelOrders())
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while any(self._given.values()) and time.monotonic() < deadline:
            event = self._crew.next_event(_TICK_SECONDS)
            if isinstance(event, RankGone):
                self._directory.lose(event.rank)
                self._given.pop(event.rank, None)
            elif isinstance(event, OrderDone | OrderFailed):
                job = self._given.get(event.rank, {}).pop(event.key, None)
                if job is not None and isinstance(event, OrderDone):
                    self._note_done(job, event.rank)
        written = {piece for key in self._jobs for piece, _ in self._jobs[key].outputs() if key in self._wanted}
        self.drop(written)

    def drop(self, keys: Iterable[PieceKey]) -> None:
        """Let all ranks forget pieces, and ranges that were made of them."""
        found = tuple(keys)
        self._directory.forget(found)
        for rank in self._crew.ranks:
            self._crew.send(rank, DropPieces(found))


def lost_error() -> ClusterError:
    """Return the error for values that cannot be had again."""
    return ClusterError(
        "a rank is lost, and with it values that no source and no other rank has, nor any task can compute again",
        code="lost",
    )


def _with_traceback(event: OrderFailed) -> Exception:
    error = event.error
    if isinstance(error, SubtaskError) and event.traceback:
        error.context["traceback"] = event.traceback
        error.add_note(event.traceback.rstrip())  # Python prints it below the message
    if event.kind == "input":
        return RankLostError(f"what a subtask reads could not be fetched: {error}")
    return error
