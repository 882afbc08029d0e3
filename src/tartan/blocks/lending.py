"""The arrays that functions on a node have views of: who holds them, and what is done where memory runs out."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable

from tartan.base.format import counted, format_bytes
from tartan.blocks.loans import LoanTable
from tartan.blocks.node_events import too_small
from tartan.blocks.store import BlockStore, StoredArray
from tartan.blocks.work import WorkOrder
from tartan.errors import ResourceError
from tartan.workers.executor import Executor, Outcome, WorkerContext

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
        self._calls: dict[tuple[int, int], list[tuple[int, Hashable, str, Executor]]] = {}
        self._kept: dict[int, tuple[StoredArray, str, Executor]] = {}
        self._waits_until: float | None = None

    @property
    def waits(self) -> bool:
        return self._waits_until is not None

    def lend(self, call: tuple[int, int], key: Hashable, name: str, executor: Executor) -> int:
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

    def call_ended(self, call: tuple[int, int]) -> None:
        """Keep the memory of those arrays of a call that are referred to still."""
        for loan, key, name, executor in self._calls.pop(call, ()):
            if self._loans.holder(loan) in executor.worker_pids:
                self._kept[loan] = self._store.lend(key), name, executor
            else:  # also where its worker process has ended, or has never begun
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
        names = ", ".join(f"{name} ({counted(n, 'array')})" for name, n in Counter(arrays.values()).most_common(3))
        return ResourceError(
            f"subtask {order.index} needs {format_bytes(needed_bytes)} at once; of the host cache of "
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
