"""One rank of a session: gathers the ranges of subtasks, runs them, and keeps what they wrote.

One thread, the loop, owns the state; workers, the threads that fetch, and whoever posts commands only put events into
its inbox. Orders begin in the order in which they come. A few more than there are workers are prepared at a time, so
that ranges arrive while others compute. An order begins when there is room for all its arrays at once, so that orders
never wait for each other.
"""

from __future__ import annotations

import contextlib
import gc
import math
import queue
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from tartan.base.format import format_bytes, pluralize
from tartan.blocks.calls import ARENA, ArrayHeld, ArrayPlace, CallArgument, run_subtask
from tartan.blocks.gathering import FetchParts, RangeGatherer
from tartan.blocks.loans import LoanTable
from tartan.blocks.node_events import (
    CallEnded,
    Copied,
    Filled,
    GatheredRange,
    Halt,
    RangeNames,
    SubtaskCall,
    error_of,
    too_small,
)
from tartan.blocks.origins import KnownOrigins
from tartan.blocks.store import BlockStore, StoredArray, align_size
from tartan.blocks.subtask_lane import SubtaskLane, needs_of
from tartan.blocks.work import (
    AddFunction,
    AddSpace,
    BlockFunction,
    CancelOrders,
    Command,
    CopyPieces,
    CrewEvent,
    DropFunctions,
    DropPieces,
    NodeCounts,
    OrderDone,
    OrderFailed,
    PartOrigin,
    RangeKey,
    RankGone,
    SubtaskKey,
    WorkOrder,
)
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.space import Box, shape_of, within
from tartan.errors import ResourceError, SubtaskError, TartanError, TransportError
from tartan.workers.executor import Completed, Executor, Outcome, WorkerContext

# By judgement: words in the arena wake nobody, so they are looked at; 20 ms while a subtask waits is little beside one.
# No benchmark.
_LOOK_SECONDS = 0.02
# By judgement: two fetches overlap with what runs; 32 where memory is free, so that short subtasks do not wait for a
# link. `tartan bench blocks only=link` measures it (1.05 to 1.25 of the work).
_AHEAD, _FAR_AHEAD = 2, 32
"""Subtasks that are prepared beyond those that run; the latter where nothing must leave the memory for them."""


class OpenExecutor(Protocol):
    """Starts the workers of a node."""

    def __call__(self, *, in_processes: bool) -> Executor:
        """Return threads or processes."""


class BlockNode:
    """Carries out the orders of a session on one rank.

    Parameters
    ----------
    rank : int
    store : BlockStore
        Owned by the node from now on.
    open_executor : callable
        Starts the workers when the first order needs them.
    fetch : callable
        Brings parts of pieces from other ranks.
    answer : callable
        Receives what became of orders; called in the loop.
    lane : SubtaskLane, optional
        Where functions run that have a form for GPUs; over the arena of the store, and owned by the node.
    lent : LentArrays, optional
        Of the store; default: one with the usual patience.
    """

    def __init__(
        self,
        rank: int,
        store: BlockStore,
        open_executor: OpenExecutor,
        fetch: FetchParts,
        answer: Callable[[CrewEvent], None],
        lane: SubtaskLane | None = None,
        lent: LentArrays | None = None,
    ) -> None:
        self.rank = rank
        self._store, self._lent = store, lent or LentArrays(store)
        store.next_use = self._next_use
        self._open_executor, self._answer, self._lane = open_executor, answer, lane
        if lane is not None:
            lane.answer = lambda call, outcome: self._inbox.put(CallEnded(call, outcome))
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._executors: dict[bool, Executor] = {}
        self._tally = Tally(store, lane)
        self._gatherer = RangeGatherer(rank, store, fetch, self._tally.count)
        self._filler = RangeFiller(self._gatherer, lambda key, error: self._inbox.put(Filled(key, error)))
        self._functions: dict[int, BlockFunction] = {}
        self._origins = KnownOrigins()
        self._boxes: dict[PieceKey, Box] = {}
        self._waiting: deque[WorkOrder] = deque()
        self._calls: dict[SubtaskKey, SubtaskCall] = {}
        self._filling: dict[GatheredRange, list[SubtaskCall]] = {}
        self._uses: dict[Hashable, deque[int]] = defaultdict(deque)
        self._n_received = 0
        self._thread = threading.Thread(target=self._run, name="tartan-blocks", daemon=True)
        self._thread.start()

    def post(self, command: Command) -> None:
        """Take a command; it is carried out after those before it."""
        self._inbox.put(command)

    def close(self) -> None:
        """End the workers, and forget everything."""
        self._inbox.put(Halt())
        self._thread.join()
        self._filler.close()
        for executor in self._executors.values():
            executor.close(kill=bool(self._calls))  # else workers end as Python does
        if self._lane is not None:
            self._lane.close()
        self._store.close()

    def provide(self, key: PieceKey, box: Box) -> tuple[np.ndarray, Callable[[], None]]:
        """Return a part of a piece as a contiguous array, and what releases it; may be called from any thread.

        Raises
        ------
        TransportError
            If this rank does not have it.
        """
        if key.from_source:
            reader = self._gatherer.sources.wait_for(key.subtask)
            target = np.empty(shape_of(box), reader.source.dtype)
            self._tally.count(bytes_from_source=reader.read(box, target))
            return target, _release_nothing
        with contextlib.suppress(KeyError):
            part = within(box, self._boxes[key])
            if not self._store.pin(key):
                target = np.empty(shape_of(box), self._store.dtype_of(key))
                self._store.copy(key, part, target)
                return target, _release_nothing
            array = self._store.array(key)[part]
            if array.flags.c_contiguous:
                return array, partial(self._store.unpin, key)
            packed = np.ascontiguousarray(array)
            self._store.unpin(key)
            return packed, _release_nothing
        raise TransportError(f"rank {self.rank} does not have piece {tuple(key)}")

    # -- the loop ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            event = None
            with contextlib.suppress(queue.Empty):
                event = self._inbox.get(timeout=_LOOK_SECONDS if self._lent.waits else None)
            if isinstance(event, Halt):
                return
            try:
                self._take(event)
                self._begin_orders()
            except Exception as error:
                self._answer(RankGone(self.rank, f"{type(error).__name__}: {error}"))
                raise

    def _take(self, event: Any) -> None:
        match event:
            case WorkOrder():
                self._receive(event)
            case AddSpace(number, source):
                self._gatherer.sources.add(number, source.open())
            case AddFunction(number, function):
                self._functions[number] = function
            case DropFunctions(numbers):
                for number in numbers:
                    self._functions.pop(number, None)
                self._origins.forget()
            case DropPieces(keys):
                self._drop(keys)
            case CopyPieces():
                self._filler.submit(partial(self._copy_pieces, event))
            case CancelOrders():
                self._cancel_waiting()
            case Filled(key, error):
                self._note_filled(key, error)
            case CallEnded(call, outcome):
                self._note_ended(call, outcome)
            case Copied(command, error):
                self._on_copied(command, error)

    def _receive(self, order: WorkOrder) -> None:
        order = self._origins.complete(order)
        self._waiting.append(order)
        self._n_received += 1
        for key in self._list_keys_read(order):
            self._uses[key].append(self._n_received)
        lane = self._find_lane(order)
        if lane is not None:
            lane.expect(GatheredRange.of(wanted, origins) for wanted, origins in order.origins.items())

    def _find_lane(self, order: WorkOrder) -> SubtaskLane | None:
        """Return the device where a subtask runs; None for the CPU."""
        return None if self._functions[order.subtask.function].gpu is None else self._lane

    def _list_keys_read(self, order: WorkOrder) -> set[Hashable]:
        keys: set[Hashable] = set()
        for wanted, origins in order.origins.items():
            keys.add(GatheredRange.of(wanted, origins))
            keys |= {origin.key for origin in origins if origin.rank == self.rank and not origin.key.from_source}
        return keys

    def _next_use(self, key: Hashable) -> float:
        uses = self._uses.get(key)
        return uses[0] if uses else math.inf

    def _drop(self, keys: tuple[PieceKey, ...]) -> None:
        self._store.drop(keys)
        for key in keys:
            self._boxes.pop(key, None)
        old = set(keys)
        self._store.forget(lambda key: isinstance(key, GatheredRange) and any(one in old for _, one in key.parts))
        self._uses.clear()
        if self._lane is not None:
            self._lane.expect_nothing()
            self._lane.forget_pieces(keys)

    def _cancel_waiting(self) -> None:
        for order in self._waiting:
            self._answer(OrderFailed(self.rank, order.key, "cancelled", SubtaskError("cancelled", code="cancelled")))
        self._waiting.clear()
        self._lent.end_wait()
        self._uses.clear()
        if self._lane is not None:
            self._lane.expect_nothing()

    def _begin_orders(self) -> None:
        while self._waiting and self._may_begin(self._waiting[0]):
            order = self._waiting[0]
            if self._is_done(order):
                self._waiting.popleft()
                self._answer(OrderDone(self.rank, order.key, self._tally.take()))
                continue
            try:
                self._require_room_on_device(order)
                call = self._place(order)
                if call is None and self._lent.look():
                    call = self._place(order)
                if call is None and not self._calls:
                    self._store.forget(lambda key: isinstance(key, GatheredRange))
                    call = self._place(order)
                    if call is None and not self._lent.await_room(self._executors.values()):
                        raise self._lent.no_room(order, self._count_needed_bytes(order), self._store.n_bytes)
            except TartanError as error:
                self._lent.end_wait()
                self._waiting.popleft()
                self._answer(OrderFailed(self.rank, order.key, "node", error, counts=self._tally.take()))
                continue
            if call is None:
                return  # there is room when another one ends, or lets go of what it has kept
            self._lent.end_wait()
            self._waiting.popleft()
            self._begin(call)

    def _may_begin(self, order: WorkOrder) -> bool:
        lane = self._find_lane(order)
        n_workers = (self._executor(self._functions[order.subtask.function]) if lane is None else lane).n_workers
        if len(self._calls) < n_workers + _AHEAD:
            return True
        return len(self._calls) < n_workers + _FAR_AHEAD and self._store.has_free(self._count_needed_bytes(order))

    def _count_needed_bytes(self, order: WorkOrder) -> int:
        ranges = [wanted for wanted in order.origins if self._in_source(order, wanted) is None]
        ranges += [wanted for _, wanted in order.subtask.outputs()]
        return sum(align_size(math.prod(one.shape) * self._dtype(one).itemsize) for one in ranges)

    def _is_done(self, order: WorkOrder) -> bool:
        """Whether the pieces of an order are there: it was given twice, after a false alarm."""
        outputs = order.subtask.outputs()
        return bool(outputs) and all(key in self._boxes for key, _ in outputs)

    def _place(self, order: WorkOrder) -> SubtaskCall | None:
        """Give every array of an order its place; None, with nothing taken, where there is not room for all."""
        call = SubtaskCall(order, self._functions[order.subtask.function])
        fresh: dict[GatheredRange, tuple[PartOrigin, ...]] = {}
        try:
            placed = self._place_arrays(call, fresh)
        except BaseException:  # the disk is full
            self._undo(call, fresh)
            raise
        if not placed:
            self._undo(call, fresh)
            return None
        self._tally.count(ranges=len(order.origins), hits=len(order.origins) - len(fresh))
        for key, origins in fresh.items():
            self._filling[key] = []
            self._filler.fill(key, origins)
        for wanted, origins in order.origins.items():
            key = GatheredRange.of(wanted, origins)
            if key in self._filling:
                call.waits.add(key)
                self._filling[key].append(call)
        return call

    def _place_arrays(self, call: SubtaskCall, fresh: dict[GatheredRange, tuple[PartOrigin, ...]]) -> bool:
        for wanted, origins in call.order.origins.items():
            lies_here = self._in_source(call.order, wanted) is not None
            if not lies_here and not self._place_range(call, GatheredRange.of(wanted, origins), origins, fresh):
                return False
        for piece, wanted in call.order.subtask.outputs():
            self._store.drop([piece])  # of an order that was given before and came to nothing here
            shape, dtype = shape_of(wanted.box), self._dtype(wanted)
            if piece in self._store or not self._store.add(piece, shape, dtype, forgettable=False):
                return False
            call.outputs.append(piece)
        return True

    def _place_range(
        self,
        call: SubtaskCall,
        key: GatheredRange,
        origins: tuple[PartOrigin, ...],
        fresh: dict[GatheredRange, tuple[PartOrigin, ...]],
    ) -> bool:
        held = self._gatherer.in_piece(key.range, origins)
        if held is not None:
            placed = self._store.pin(held)
        elif key in self._store:
            placed = not self._store.is_dropped(key) and self._store.pin(key)
        else:
            placed = self._store.add(key, key.range.shape, self._dtype(key.range), forgettable=True)
            if placed:
                fresh[key] = origins
        if placed:
            call.pinned.append(key if held is None else held)
        return placed

    def _in_source(self, order: WorkOrder, key: RangeKey) -> np.ndarray | None:
        """Return a range as it lies in the array that its space was made from, so that nothing need be copied."""
        in_thread = self._functions[order.subtask.function].releases_gil and self._find_lane(order) is None
        return self._gatherer.in_source(order, key) if in_thread else None

    def _undo(self, call: SubtaskCall, fresh: Iterable[GatheredRange]) -> None:
        for key in call.pinned:
            self._store.unpin(key)
        for piece in call.outputs:
            self._store.unpin(piece)
        self._store.drop([*fresh, *call.outputs])

    def _begin(self, call: SubtaskCall) -> None:
        order = call.order
        self._calls[order.key] = call
        for key in self._list_keys_read(order):
            if self._uses.get(key):
                self._uses[key].popleft()
        if not call.waits:
            self._start(call)

    def _note_filled(self, key: GatheredRange, error: Exception | None) -> None:
        for call in self._filling.pop(key):
            call.waits.discard(key)
            call.error = call.error or error
            if not call.waits:
                self._start(call)
        if error is not None:
            self._store.drop([key])

    def _start(self, call: SubtaskCall) -> None:
        order = call.order
        if call.error is not None:
            kind = "input" if isinstance(call.error, TransportError) else "node"
            self._end(call, OrderFailed(self.rank, order.key, kind, call.error))  # type: ignore[arg-type]
            return
        call.arguments = tuple(self._call_argument(call, number) for number in range(len(order.subtask.arguments)))
        call.began = time.perf_counter()
        lane = self._find_lane(order)
        if lane is not None:
            lane.submit(call)
            return
        self._executor(call.function).submit(
            run_subtask,
            (call.function, order.subtask.index, call.arguments),
            lambda outcome: self._inbox.put(CallEnded(call, outcome)),
            timeout_seconds=call.function.timeout_seconds,
        )

    def _require_room_on_device(self, order: WorkOrder) -> None:
        lane = self._find_lane(order)
        if lane is not None:
            sizes = [math.prod(one.range.shape) * self._dtype(one.range).itemsize for one in order.subtask.arguments]
            debug = self._functions[order.subtask.function].debug
            lane.require_room(order.subtask.index, needs_of(RangeNames.of(order), sizes, takes_copies=debug))

    def _call_argument(self, call: SubtaskCall, number: int) -> CallArgument:
        order, argument = call.order, call.order.subtask.arguments[number]
        piece: Hashable | None = None
        before: ArrayPlace | ArrayHeld | None = None
        after = None
        if argument.access != "write":
            before, piece = self._place_of_range(order, argument.range)
        if argument.access != "read":
            piece = PieceKey(*order.key, number)
            after = ArrayPlace(*self._store.place(piece))
        if piece is None or self._find_lane(order) is not None:
            return CallArgument(before, after)
        executor = self._executor(call.function)
        return CallArgument(before, after, self._lent.lend(order.key, piece, call.function.name, executor))

    def _place_of_range(self, order: WorkOrder, key: RangeKey) -> tuple[ArrayPlace | ArrayHeld, Hashable | None]:
        """Return where a range is, and the key of its array in the store."""
        source = self._in_source(order, key)
        if source is not None:
            return ArrayHeld(source), None
        held = self._gatherer.in_piece(key, order.origins[key])
        if held is None:
            gathered = GatheredRange.of(key, order.origins[key])
            return ArrayPlace(*self._store.place(gathered)), gathered
        part = within(key.box, order.origins[key][0].piece_box)
        return ArrayPlace(*self._store.place(held), tuple((one.start, one.stop) for one in part)), held

    def _note_ended(self, call: SubtaskCall, outcome: Outcome) -> None:
        key = call.order.key
        self._lent.call_ended(key)
        self._lent.look()
        seconds = time.perf_counter() - call.began
        if isinstance(outcome, Completed) and outcome.value is not None:
            seconds = outcome.value  # of a device, without the wait for it and without copies
        self._tally.count(seconds_computing=seconds)
        if isinstance(outcome, Completed):
            self._end(call, OrderDone(self.rank, key))
            return
        kind, error, traceback = error_of(outcome, call)
        self._end(call, OrderFailed(self.rank, key, kind, error, traceback))

    def _end(self, call: SubtaskCall, answer: OrderDone | OrderFailed) -> None:
        del self._calls[call.order.key]
        for key in call.pinned:
            self._store.unpin(key)
        for piece in call.outputs:
            self._store.unpin(piece)
        if isinstance(answer, OrderDone):
            self._boxes.update((piece, wanted.box) for piece, wanted in call.order.subtask.outputs())
        else:
            self._store.drop(call.outputs)
        self._answer(replace(answer, counts=self._tally.take()))

    def _executor(self, function: BlockFunction) -> Executor:
        in_processes = not function.releases_gil
        if in_processes not in self._executors:
            executor = self._open_executor(in_processes=in_processes)
            executor.share(ARENA, self._store.arena)
            self._executors[in_processes] = executor
        return self._executors[in_processes]

    def _dtype(self, key: RangeKey) -> np.dtype:
        return self._gatherer.dtype(key.space)

    def _on_copied(self, command: CopyPieces, error: Exception | None) -> None:
        counts = self._tally.take()
        if error is None:
            self._boxes.update((origin.key, origin.piece_box) for _, origin in command.pieces)
            self._answer(OrderDone(self.rank, command.key, counts))
        else:
            kind = "input" if isinstance(error, TransportError) else "node"
            self._answer(OrderFailed(self.rank, command.key, kind, error, counts=counts))  # type: ignore[arg-type]

    # -- the threads that fetch ----------------------------------------------------------------------------------

    def _copy_pieces(self, command: CopyPieces) -> None:
        error: Exception | None = None
        try:
            for space, origin in command.pieces:
                self._gatherer.copy_piece(space, origin)
        except Exception as found:
            error = found
        self._inbox.put(Copied(command, error))


def _release_nothing() -> None:
    """Release nothing."""


# Threads that fill ranges: what several ranks hold of a range comes at the same time.

# By judgement: copies within memory, which two threads saturate; four for files as IO_THREADS. No benchmark.
_N_THREADS = 4
"""That read what is on this rank; each other rank is asked by one, so that what is wanted first comes first."""


class RangeFiller:
    """Fills the arrays of ranges, in the order in which it is told of them.

    Each rank is asked by a thread of its own, so that one that answers slowly does not keep the others waiting.

    Parameters
    ----------
    gatherer : RangeGatherer
    filled : callable
        Receives the name of each range that is filled or could not be, and the first error; called in any thread.
    """

    def __init__(self, gatherer: RangeGatherer, filled: Callable[[GatheredRange, Exception | None], None]) -> None:
        self._gatherer, self._filled = gatherer, filled
        self._here = ThreadPoolExecutor(_N_THREADS, "tartan-gather")
        self._asking: dict[int, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self._n_left: dict[GatheredRange, int] = {}
        self._errors: dict[GatheredRange, Exception] = {}

    def fill(self, key: GatheredRange, origins: tuple[PartOrigin, ...]) -> None:
        """Begin to fill the array of a range, which has its place in the store."""
        shares = self._gatherer.shares(origins)
        with self._lock:
            self._n_left[key] = len(shares)
        for rank, share in shares.items():
            self._threads(rank).submit(self._fill_share, key, rank, share)

    def submit(self, call: Callable[[], None]) -> None:
        """Make a call in a thread."""
        self._here.submit(call)

    def close(self) -> None:
        """Wait for what is under way, and begin nothing more."""
        for threads in (self._here, *self._asking.values()):
            threads.shutdown(cancel_futures=True)

    def _threads(self, rank: int) -> ThreadPoolExecutor:
        if rank == self._gatherer.rank:
            return self._here
        if rank not in self._asking:
            self._asking[rank] = ThreadPoolExecutor(1, f"tartan-fetch-{rank}")
        return self._asking[rank]

    def _fill_share(self, key: GatheredRange, rank: int, share: list[PartOrigin]) -> None:
        try:
            self._gatherer.gather(key, rank, share)
        except Exception as error:
            with self._lock:
                self._errors.setdefault(key, error)
        with self._lock:
            self._n_left[key] -= 1
            if self._n_left[key]:
                return
            del self._n_left[key]
            first = self._errors.pop(key, None)
        self._filled(key, first or self._pad(key))

    def _pad(self, key: GatheredRange) -> Exception | None:
        """Complete a range all parts of which are there; return the error, if there is one."""
        try:
            self._gatherer.pad(key)
        except Exception as error:
            return error
        return None


# Counts what a node moves, from one answer to the next.


class Tally:
    """What a node has moved since it was last asked; may be used from any thread.

    Parameters
    ----------
    store : BlockStore
    lane : SubtaskLane or None
    """

    def __init__(self, store: BlockStore, lane: SubtaskLane | None) -> None:
        self._store, self._lane = store, lane
        self._lock = threading.Lock()
        self._counts = NodeCounts()
        self._disk_counted = (0, 0)

    def count(self, **more: float) -> None:
        """Add to the counts of these names."""
        with self._lock:
            self._counts += NodeCounts(**more)  # type: ignore[arg-type]

    def take(self) -> NodeCounts:
        """Return the counts, and begin anew; of the loop of the node."""
        spilled, restored = self._store.bytes_spilled, self._store.bytes_restored
        before = self._disk_counted
        self._disk_counted = (spilled, restored)
        with self._lock:
            counts, self._counts = self._counts, NodeCounts()
        if self._lane is not None:
            counts += self._lane.take_counts()
        return counts + NodeCounts(bytes_spilled=spilled - before[0], bytes_restored=restored - before[1])


# The arrays that functions on a node have views of: who holds them, and what is done where memory runs out.

# By judgement: views that threads or tracebacks keep go within moments; one that stays is the function's, and the error
# says so. No benchmark.
_PATIENCE_SECONDS = 20.0


class LentArrays:
    """Keeps the memory of arrays as long as functions have views of them; of the loop of a node.

    Parameters
    ----------
    store : BlockStore
    patience_seconds : float
        How long a subtask waits for memory that only views hold, before that is an error.

    Attributes
    ----------
    waits : bool
        Whether a subtask waits for that.
    """

    def __init__(self, store: BlockStore, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._store, self._loans, self._patience = store, LoanTable(store.arena), patience_seconds
        self._calls: dict[SubtaskKey, list[tuple[int, Hashable, str, Executor]]] = {}
        self._kept: dict[int, tuple[StoredArray, str, Executor]] = {}
        self._waits_until: float | None = None

    @property
    def waits(self) -> bool:
        return self._waits_until is not None

    def lend(self, call: SubtaskKey, key: Hashable, name: str, executor: Executor) -> int:
        """Return a loan for a pinned array that a call of a function of this name gets, on a worker of an executor.

        Raises
        ------
        ResourceError
            If functions keep so many arrays that there is none.
        """
        loan = self._loans.take()
        if loan is None:
            raise ResourceError(f"functions keep {len(self._kept):,} arrays; copy what is needed later", code="views")
        self._calls.setdefault(call, []).append((loan, key, name, executor))
        return loan

    def call_ended(self, call: SubtaskKey) -> None:
        """Keep the memory of those arrays of a call that are referred to still."""
        for loan, key, name, executor in self._calls.pop(call, ()):
            if self._loans.holder(loan) in executor.worker_pids:
                self._kept[loan] = self._store.lend(key), name, executor
            else:  # also where its worker process has ended, or has never call
                self._loans.give(loan)

    def look(self) -> bool:
        """Give memory back whose last view is gone; return whether there was any."""
        holders: dict[Executor, Collection[int]] = {}
        gone = []
        for loan, (_, _, executor) in self._kept.items():
            if executor not in holders:
                holders[executor] = executor.worker_pids
            if self._loans.holder(loan) not in holders[executor]:
                gone.append(loan)
        for loan in gone:
            self._store.take_back(self._kept.pop(loan)[0])
            self._loans.give(loan)
        return bool(gone)

    def await_room(self, executors: Iterable[Executor]) -> bool:
        """Whether it is worth while to wait for views to go; what only cycles refer to goes now."""
        if not self._kept:
            return False
        now = time.monotonic()
        if self._waits_until is None:
            self._waits_until = now + self._patience
            for executor in executors:
                for _ in range(executor.n_workers):
                    executor.submit(_collect, (), _ignore)
        return now < self._waits_until

    def end_wait(self) -> None:
        """Note that no subtask waits."""
        self._waits_until = None

    def no_room(self, order: WorkOrder, needed_bytes: int, room_bytes: int) -> ResourceError:
        """Return the error for an order that finds no room."""
        arrays = {stored: name for stored, name, _ in self._kept.values()}
        if not arrays or needed_bytes > room_bytes:
            return too_small(order, needed_bytes, room_bytes)
        kept = format_bytes(sum(stored.n_bytes for stored in arrays))
        names = ", ".join(f"{name} ({pluralize(n, 'array')})" for name, n in Counter(arrays.values()).most_common(3))
        return ResourceError(
            f"subtask {order.subtask.index} needs {format_bytes(needed_bytes)} at once; of the host cache of "
            f"{format_bytes(room_bytes)}, {kept} are held by views that functions have kept after their end: {names}; "
            "let them copy what is needed later, or choose a larger --host-cache",
            code="views",
            context={"needed_bytes": needed_bytes},
        )


def _collect(context: WorkerContext) -> None:
    """Let go of what nothing refers to but itself, such as the frames of a failure; on a worker."""
    gc.collect()


def _ignore(outcome: Outcome) -> None:
    """Take no note of an outcome."""
