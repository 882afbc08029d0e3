"""One call of ``Session.run``: sends the orders of the dispatcher to ranks, and tells it what became of them.

What is decided is decided there (``core/blocks/dispatcher.py``): who computes what, and what happens after a failure or
a loss. Here is what the session knows of its ranks, and what it says to them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from tartan.base.logs import logger_of
from tartan.blocks.crew import BlockCrew
from tartan.blocks.directory import BlockDirectory
from tartan.blocks.jobs import Parts, RunTable
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
    Subtask,
    SubtaskKey,
    WorkOrder,
)
from tartan.core.affinity import Steal
from tartan.core.blocks.dispatcher import Dispatcher, copy_rank
from tartan.core.blocks.pieces import PieceKey, PiecePart
from tartan.errors import ClusterError, RankLostError, SubtaskError

_log = logger_of(__name__)

# By contract: as TICK_SECONDS of cluster/driver.
_TICK_SECONDS = 0.5
# By judgement: a rank answers when its running calls have ended. No benchmark.
_FAREWELL_SECONDS = 10.0


class SubtaskLocator:
    """What subtasks need, and where that is, as the dispatcher asks for it.

    Parameters
    ----------
    directory : BlockDirectory
    table_of : callable
        Returns the table of a call of ``run`` by its number; a ClusterError where it is not known any more.

    Attributes
    ----------
    subtasks : dict of (int, int) to Subtask
        Those that were asked for.
    """

    def __init__(self, directory: BlockDirectory, table_of: Callable[[int], RunTable]) -> None:
        self._directory, self._table_of = directory, table_of
        self._tables: dict[int, RunTable] = {}
        self._expected: dict[int, set[RangeKey]] = defaultdict(set)
        self.subtasks: dict[SubtaskKey, Subtask] = {}

    def table(self, number: int) -> RunTable:
        """Return the table of a call, asked for once."""
        found = self._tables.get(number)
        if found is None:
            found = self._tables[number] = self._table_of(number)
        return found

    def subtask(self, key: SubtaskKey) -> Subtask:
        """Return a subtask by its key, made when it is first asked for."""
        found = self.subtasks.get(key)
        if found is None:
            found = self.subtasks[key] = self.table(key[0])[key[1]]
        return found

    def parts_of(self, subtask: Subtask) -> Parts:
        """Return what the ranges that a subtask reads consist of."""
        return self.table(subtask.task).parts_of(subtask)

    def expect(self, rank: int, wanted: Iterable[RangeKey]) -> None:
        """Note that a rank will fetch ranges."""
        self._expected[rank].update(wanted)

    def needs(self, piece: SubtaskKey, /) -> dict[tuple[RangeKey, PiecePart], float]:
        """Return the parts of the ranges that a subtask reads, with their bytes."""
        return self._directory.needs(self.parts_of(self.subtask(piece)))

    def is_at(self, rank: int, unit: tuple[RangeKey, PiecePart], /) -> bool:
        """Whether a rank has a part of a range, or will fetch it."""
        return unit[0] in self._expected[rank] or self._directory.has(rank, unit[1])

    def find_lost_inputs(self, piece: SubtaskKey, /) -> list[SubtaskKey]:
        """Return the subtasks that must run again before this one."""
        inputs = self.table(piece[0]).inputs_of(self.subtask(piece))
        lost = sorted(self._directory.find_missing(inputs))
        return [self.subtask(key).key for key in dict.fromkeys((piece.task, piece.subtask) for piece in lost)]

    def is_lost(self, piece: SubtaskKey, /) -> bool:
        """Whether a piece that a subtask wrote is nowhere any more."""
        return bool(self._directory.find_missing(key for key, _ in self.subtask(piece).outputs()))


class BlockExecution:
    """Runs subtasks to their end on a crew.

    Parameters
    ----------
    crew : BlockCrew
    directory : BlockDirectory
    table_of : callable
        Returns the table of a call of ``run`` by its number; a ClusterError where it is not known any more.
    copies : int
        Ranks that have each piece when the subtasks have ended.
    steal : {"difference", "plain"} or None
        How a rank that has nothing to do takes work from another; None: not at all.
    progress : callable
        Receives how many of the subtasks are done.
    trace : SubtaskTrace or None
    """

    def __init__(
        self,
        crew: BlockCrew,
        directory: BlockDirectory,
        table_of: Callable[[int], RunTable],
        *,
        copies: int = 1,
        steal: Steal | None = "difference",
        progress: Callable[[int], None] = lambda done: None,
        trace: SubtaskTrace | None = None,
    ) -> None:
        self._crew, self._directory, self._progress = crew, directory, progress
        self._copies, self._trace = copies, trace
        self._counts = NodeCounts()
        self._locator = SubtaskLocator(directory, table_of)
        self._copying: dict[tuple[int, SubtaskKey], list[PieceKey]] = {}
        self._sent_functions: set[tuple[int, int]] = set()
        self._told = ToldRanges()
        self._error: Exception | None = None
        workers = {rank: crew.n_workers(rank) for rank in crew.ranks}
        self._dispatcher = Dispatcher[SubtaskKey](workers, self._locator, crew.now(), steal=steal, n_cores=crew.n_cores)

    def run(self, keys: Sequence[SubtaskKey], owners: Sequence[int]) -> None:
        """Run subtasks, each on the rank chosen for it.

        Parameters
        ----------
        keys : sequence of (int, int)
            In the order in which a rank comes to them.
        owners : sequence of int
            The rank of each.

        Raises
        ------
        SubtaskError
            If a subtask failed twice.
        ClusterError
            If what was lost cannot be computed again, or no rank is left.
        """
        self._dispatcher.add(keys, owners)
        self._handle(None)  # nothing has happened yet: the first orders go out
        self._await_answers()
        for _ in range(self._copies - 1):
            if self._error is None:
                self._ask_for_copies(keys)
                self._await_answers()
        if self._error is not None:
            self._wind_up()
        for rank in self._crew.ranks:
            self._crew.send(rank, DropFunctions(tuple(sorted({number for number, _ in self._sent_functions}))))
        if self._error is not None:
            raise self._error

    def list_recomputed(self) -> set[PieceKey]:
        """Return the pieces of earlier tasks that were made again."""
        return {
            piece for key in self._dispatcher.list_recomputed() for piece, _ in self._locator.subtask(key).outputs()
        }

    def report(self, seconds: float, subtasks: int, bytes_bound: int | None) -> RunReport:
        """Return what users see of it."""
        counts, dispatcher = self._counts, self._dispatcher
        return RunReport(
            seconds=seconds,
            subtasks=subtasks,
            bytes_moved=counts.bytes_from_ranks,
            bytes_bound=bytes_bound,
            bytes_read=counts.bytes_from_source,
            bytes_spilled=counts.bytes_spilled,
            bytes_restored=counts.bytes_restored,
            ranges=counts.ranges,
            hits=counts.hits,
            steals=dispatcher.steals,
            repeated=dispatcher.repeated,
            ranks_lost=dispatcher.ranks_lost,
            device_subtasks=counts.device_subtasks,
            bytes_uploaded=counts.bytes_uploaded,
            bytes_downloaded=counts.bytes_downloaded,
            device_ranges=counts.device_ranges,
            device_hits=counts.device_hits,
            seconds_device_waited=counts.seconds_device_waited,
            per_rank=dict(dispatcher.n_ended),
        )

    # -- orders ------------------------------------------------------------------------------------------------------

    def _send_orders(self) -> None:
        for rank, key in self._dispatcher.orders(self._crew.now()):
            subtask = self._locator.subtask(key)
            parts = self._locator.parts_of(subtask)
            self._locator.expect(rank, parts)
            self._send_function(subtask, rank)
            self._crew.send(rank, self._order(subtask, parts, rank))

    def _order(self, subtask: Subtask, parts: Parts, rank: int) -> WorkOrder:
        origins = {
            wanted: self._directory.origins(found, rank)
            for wanted, found in parts.items()
            if self._told.is_new(rank, subtask.task, wanted)
        }
        return WorkOrder(subtask, origins)

    def _send_function(self, subtask: Subtask, rank: int) -> None:
        """Send a rank the function of a subtask, once."""
        if (subtask.function, rank) not in self._sent_functions:
            self._sent_functions.add((subtask.function, rank))
            function = self._locator.table(subtask.task).function_of(subtask)
            self._crew.send(rank, AddFunction(subtask.function, function))

    # -- events ------------------------------------------------------------------------------------------------------

    def _await_answers(self) -> None:
        while (self._copying or not self._dispatcher.is_finished) and self._error is None:
            self._handle(self._crew.next_event(_TICK_SECONDS))

    def _handle(self, event: CrewEvent | None) -> None:
        """Tell the dispatcher what happened, and send the orders that follow."""
        try:
            if event is None:
                self._dispatcher.retry()
            else:
                self._take(event)
            self._send_orders()
        except ClusterError as error:
            self._error = error

    def _take(self, event: CrewEvent) -> None:
        match event:
            case OrderDone(rank, key, counts):
                self._counts += counts
                for piece in self._copying.pop((rank, key), ()):
                    self._directory.note(piece, self._directory.boxes[piece], rank)
                if self._dispatcher.is_ordered(rank, key):
                    self._note_done(rank, self._locator.subtask(key), counts.seconds_computing)
            case OrderFailed(rank=rank, key=key, counts=counts):
                self._counts += counts
                if self._copying.pop((rank, key), None) and event.kind != "input":
                    self._error = event.error
                elif self._dispatcher.is_ordered(rank, key):
                    self._told.forget()
                    again = self._dispatcher.note_failed(rank, key, event.kind)
                    level = logging.DEBUG if event.kind == "input" else logging.INFO  # a loss fails many inputs at once
                    _log.log(level, "a subtask failed on rank %d: %s; again: %s", rank, event.error, bool(again))
                    if not again:
                        self._error = self._error or _with_traceback(event)
            case RankGone(rank, _):
                self._copying = {one: pieces for one, pieces in self._copying.items() if one[0] != rank}
                self._directory.lose(rank)
                self._told.forget()
                self._dispatcher.lose_rank(rank)
                _log.info("what lost rank %d was to do, or only it had, goes to other ranks", rank)
            case RankCame(rank):
                self._dispatcher.add_rank(rank, self._crew.n_workers(rank))

    def _note_done(self, rank: int, subtask: Subtask, seconds: float) -> None:
        if self._trace is not None:
            name = self._locator.table(subtask.task).function_of(subtask).name
            self._trace.record(rank, f"{name} {subtask.index}", seconds)
        for piece, wanted in subtask.outputs():
            self._directory.note(piece, wanted.box, rank)
        if self._dispatcher.note_done(rank, subtask.key) and self._dispatcher.is_wanted(subtask.key):
            self._progress(self._dispatcher.n_done)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _ask_for_copies(self, keys: Sequence[SubtaskKey]) -> None:
        """Ask for one copy more of every new piece."""
        live = sorted(self._dispatcher.ranks)
        wanted: dict[int, list[tuple[PieceKey, int, int]]] = defaultdict(list)
        for key in sorted(keys):
            for piece, output in self._locator.subtask(key).outputs():
                holders = self._directory.holders.get(piece, [])
                rank = copy_rank(holders, holders[0], live) if 0 < len(holders) < self._copies else None
                if rank is not None:
                    wanted[rank].append((piece, output.space, holders[0]))
        for rank, pieces in wanted.items():
            task, subtask = min(keys)[0], -1 - rank
            found = tuple(
                (space, self._directory.origins([PiecePart(self._directory.boxes[piece], piece)], holder)[0])
                for piece, space, holder in pieces
            )
            self._copying[rank, (task, subtask)] = [piece for piece, _, _ in pieces]
            self._crew.send(rank, CopyPieces(task, subtask, found))

    def _wind_up(self) -> None:
        """Stop what has not begun, wait for what has, and drop what was written."""
        self._dispatcher.stop()
        for rank in self._crew.ranks:
            self._crew.send(rank, CancelOrders())
        deadline = self._crew.now() + _FAREWELL_SECONDS
        while self._dispatcher.n_ordered and self._crew.now() < deadline:
            event = self._crew.next_event(_TICK_SECONDS)
            if event is not None:
                self._take(event)
        wanted = [one for key, one in self._locator.subtasks.items() if self._dispatcher.is_wanted(key)]
        self.drop(piece for subtask in wanted for piece, _ in subtask.outputs())

    def drop(self, keys: Iterable[PieceKey]) -> None:
        """Let all ranks forget pieces, and ranges that were made of them."""
        found = tuple(keys)
        self._directory.forget(found)
        for rank in self._crew.ranks:
            self._crew.send(rank, DropPieces(found))


def make_lost_error() -> ClusterError:
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
