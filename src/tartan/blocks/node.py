"""One rank of a session: gathers the ranges of subtasks, runs them, and keeps what they wrote.

One thread, the loop, owns the state; workers, the threads that fetch, and whoever posts commands only put events into
its inbox. Orders begin in the order in which they come. A few more than there are workers are prepared at a time, so
that ranges arrive while others compute. An order begins when there is room for all its arrays at once, so that orders
never wait for each other.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from tartan.blocks.calls import ARENA, ArrayHeld, ArrayPlace, CallArgument, SubtaskCall, run_subtask
from tartan.blocks.filling import RangeFiller
from tartan.blocks.gathering import FetchParts, RangeGatherer
from tartan.blocks.lending import LentArrays
from tartan.blocks.node_events import BegunOrder, CallEnded, Copied, Filled, GatheredRange, Halt, error_of
from tartan.blocks.origins import KnownOrigins
from tartan.blocks.store import BlockStore, aligned
from tartan.blocks.subtask_lane import SubtaskLane, names_of, needs_of
from tartan.blocks.tally import Tally
from tartan.blocks.work import (
    AddFunction,
    AddSpace,
    BlockArgument,
    BlockFunction,
    CancelOrders,
    Command,
    CopyPieces,
    CrewEvent,
    DropFunctions,
    DropPieces,
    OrderDone,
    OrderFailed,
    PartOrigin,
    RangeKey,
    RankGone,
    WorkOrder,
)
from tartan.core.pieces import PieceKey
from tartan.core.space import Box, shape_of, within
from tartan.errors import SubtaskError, TartanError, TransportError
from tartan.workers.executor import Completed, Executor, Outcome

_LOOK_SECONDS = 0.02
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
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._executors: dict[bool, Executor] = {}
        self._tally = Tally(store, lane)
        self._gatherer = RangeGatherer(rank, store, fetch, self._tally.count)
        self._filler = RangeFiller(self._gatherer, lambda key, error: self._inbox.put(Filled(key, error)))
        self._functions: dict[int, BlockFunction] = {}
        self._origins = KnownOrigins()
        self._boxes: dict[PieceKey, Box] = {}
        self._waiting: deque[WorkOrder] = deque()
        self._begun: dict[tuple[int, int], BegunOrder] = {}
        self._filling: dict[GatheredRange, list[BegunOrder]] = {}
        self._uses: dict[Hashable, deque[int]] = defaultdict(deque)
        self._n_received = 0
        self._started: dict[tuple[int, int], float] = {}
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
            executor.close(kill=bool(self._begun))  # else workers end as Python does
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
            reader = self._gatherer.sources.awaited(key.subtask)
            target = np.empty(shape_of(box), reader.source.dtype)
            self._tally.count(bytes_from_source=reader.read(box, target))
            return target, _nothing
        with contextlib.suppress(KeyError):
            part = within(box, self._boxes[key])
            if not self._store.pin(key):
                target = np.empty(shape_of(box), self._store.dtype_of(key))
                self._store.copy(key, part, target)
                return target, _nothing
            array = self._store.array(key)[part]
            if array.flags.c_contiguous:
                return array, partial(self._store.unpin, key)
            packed = np.ascontiguousarray(array)
            self._store.unpin(key)
            return packed, _nothing
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
                self._range_filled(key, error)
            case CallEnded(order, outcome):
                self._call_ended(order, outcome)
            case Copied(command, error):
                self._copied(command, error)

    def _receive(self, given: WorkOrder) -> None:
        order = self._origins.completed(given)
        self._waiting.append(order)
        self._n_received += 1
        for key in self._keys_read(order):
            self._uses[key].append(self._n_received)
        lane = self._lane_of(order)
        if lane is not None:
            lane.expect(GatheredRange.of(wanted, origins) for wanted, origins in order.origins.items())

    def _lane_of(self, order: WorkOrder) -> SubtaskLane | None:
        """Return the device where a subtask runs; None for the CPU."""
        return None if self._functions[order.function].gpu is None else self._lane

    def _keys_read(self, order: WorkOrder) -> set[Hashable]:
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
                begun = self._place(order)
                if begun is None and self._lent.look():
                    begun = self._place(order)
                if begun is None and not self._begun:
                    self._store.forget(lambda key: isinstance(key, GatheredRange))
                    begun = self._place(order)
                    if begun is None and not self._lent.await_room(self._executors.values()):
                        raise self._lent.no_room(order, self._needed_bytes(order), self._store.n_bytes)
            except TartanError as error:
                self._lent.end_wait()
                self._waiting.popleft()
                self._answer(OrderFailed(self.rank, order.key, "node", error, counts=self._tally.take()))
                continue
            if begun is None:
                return  # there is room when another one ends, or lets go of what it has kept
            self._lent.end_wait()
            self._waiting.popleft()
            self._begin(begun)

    def _may_begin(self, order: WorkOrder) -> bool:
        lane = self._lane_of(order)
        n_workers = (self._executor(self._functions[order.function]) if lane is None else lane).n_workers
        if len(self._begun) < n_workers + _AHEAD:
            return True
        return len(self._begun) < n_workers + _FAR_AHEAD and self._store.has_free(self._needed_bytes(order))

    def _needed_bytes(self, order: WorkOrder) -> int:
        ranges = [wanted for wanted in order.origins if self._in_source(order, wanted) is None]
        ranges += [wanted for _, wanted in order.outputs()]
        return sum(aligned(math.prod(one.shape) * self._dtype(one).itemsize) for one in ranges)

    def _is_done(self, order: WorkOrder) -> bool:
        """Whether the pieces of an order are there: it was given twice, after a false alarm."""
        outputs = order.outputs()
        return bool(outputs) and all(key in self._boxes for key, _ in outputs)

    def _place(self, order: WorkOrder) -> BegunOrder | None:
        """Give every array of an order its place; None, with nothing taken, where there is not room for all."""
        begun = BegunOrder(order)
        fresh: dict[GatheredRange, tuple[PartOrigin, ...]] = {}
        try:
            placed = self._place_arrays(begun, fresh)
        except BaseException:  # the disk is full
            self._undo(begun, fresh)
            raise
        if not placed:
            self._undo(begun, fresh)
            return None
        self._tally.count(ranges=len(order.origins), hits=len(order.origins) - len(fresh))
        for key, origins in fresh.items():
            self._filling[key] = []
            self._filler.fill(key, origins)
        for wanted, origins in order.origins.items():
            key = GatheredRange.of(wanted, origins)
            if key in self._filling:
                begun.waits.add(key)
                self._filling[key].append(begun)
        return begun

    def _place_arrays(self, begun: BegunOrder, fresh: dict[GatheredRange, tuple[PartOrigin, ...]]) -> bool:
        for wanted, origins in begun.order.origins.items():
            lies_here = self._in_source(begun.order, wanted) is not None
            if not lies_here and not self._place_range(begun, GatheredRange.of(wanted, origins), origins, fresh):
                return False
        for piece, wanted in begun.order.outputs():
            self._store.drop([piece])  # of an order that was given before and came to nothing here
            shape, dtype = shape_of(wanted.box), self._dtype(wanted)
            if piece in self._store or not self._store.add(piece, shape, dtype, forgettable=False):
                return False
            begun.outputs.append(piece)
        return True

    def _place_range(
        self,
        begun: BegunOrder,
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
            begun.pinned.append(key if held is None else held)
        return placed

    def _in_source(self, order: WorkOrder, key: RangeKey) -> np.ndarray | None:
        """Return a range as it lies in the array that its space was made from, so that nothing need be copied."""
        in_thread = self._functions[order.function].releases_gil and self._lane_of(order) is None
        return self._gatherer.in_source(order, key) if in_thread else None

    def _undo(self, begun: BegunOrder, fresh: Iterable[GatheredRange]) -> None:
        for key in begun.pinned:
            self._store.unpin(key)
        for piece in begun.outputs:
            self._store.unpin(piece)
        self._store.drop([*fresh, *begun.outputs])

    def _begin(self, begun: BegunOrder) -> None:
        order = begun.order
        self._begun[order.key] = begun
        for key in self._keys_read(order):
            if self._uses.get(key):
                self._uses[key].popleft()
        if not begun.waits:
            self._call(begun)

    def _range_filled(self, key: GatheredRange, error: Exception | None) -> None:
        for begun in self._filling.pop(key):
            begun.waits.discard(key)
            begun.error = begun.error or error
            if not begun.waits:
                self._call(begun)
        if error is not None:
            self._store.drop([key])

    def _call(self, begun: BegunOrder) -> None:
        order = begun.order
        if begun.error is not None:
            kind = "input" if isinstance(begun.error, TransportError) else "node"
            self._end(begun, OrderFailed(self.rank, order.key, kind, begun.error))  # type: ignore[arg-type]
            return
        function = self._functions[order.function]
        arguments = tuple(self._call_argument(order, number, one) for number, one in enumerate(order.arguments))
        call = SubtaskCall(function, order.index, arguments)
        self._started[order.key] = time.perf_counter()
        lane = self._lane_of(order)
        if lane is not None:
            lane.submit(call, names_of(order), lambda outcome: self._inbox.put(CallEnded(order, outcome)))
            return
        self._executor(function).submit(
            run_subtask,
            (call,),
            lambda outcome: self._inbox.put(CallEnded(order, outcome)),
            timeout_seconds=function.timeout_seconds,
        )

    def _require_room_on_device(self, order: WorkOrder) -> None:
        lane = self._lane_of(order)
        if lane is not None:
            sizes = [math.prod(one.range.shape) * self._dtype(one.range).itemsize for one in order.arguments]
            debug = self._functions[order.function].debug
            lane.require_room(order.index, needs_of(names_of(order), sizes, takes_copies=debug))

    def _call_argument(self, order: WorkOrder, number: int, argument: BlockArgument) -> CallArgument:
        piece: Hashable | None = None
        before: ArrayPlace | ArrayHeld | None = None
        after = None
        if argument.access != "write":
            before, piece = self._place_of_range(order, argument.range)
        if argument.access != "read":
            piece = PieceKey(order.task, order.subtask, number)
            after = ArrayPlace(*self._store.place(piece))
        if piece is None or self._lane_of(order) is not None:
            return CallArgument(before, after)
        function = self._functions[order.function]
        return CallArgument(before, after, self._lent.lend(order.key, piece, function.name, self._executor(function)))

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

    def _call_ended(self, order: WorkOrder, outcome: Outcome) -> None:
        begun = self._begun[order.key]
        self._lent.call_ended(order.key)
        self._lent.look()
        seconds = time.perf_counter() - self._started.pop(order.key)
        if isinstance(outcome, Completed) and outcome.value is not None:
            seconds = outcome.value  # of a device, without the wait for it and without copies
        self._tally.count(seconds_computing=seconds)
        if isinstance(outcome, Completed):
            self._end(begun, OrderDone(self.rank, order.key))
            return
        kind, error, traceback = error_of(outcome, self._functions[order.function], order)
        self._end(begun, OrderFailed(self.rank, order.key, kind, error, traceback))

    def _end(self, begun: BegunOrder, answer: OrderDone | OrderFailed) -> None:
        del self._begun[begun.order.key]
        for key in begun.pinned:
            self._store.unpin(key)
        for piece in begun.outputs:
            self._store.unpin(piece)
        if isinstance(answer, OrderDone):
            self._boxes.update((piece, wanted.box) for piece, wanted in begun.order.outputs())
        else:
            self._store.drop(begun.outputs)
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

    def _copied(self, command: CopyPieces, error: Exception | None) -> None:
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


def _nothing() -> None:
    """Release nothing."""
