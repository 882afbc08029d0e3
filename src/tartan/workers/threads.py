"""Runs functions on threads of this process: for code that spends its time outside the interpreter lock.

A thread cannot be stopped from outside. A function that runs into its timeout is reported and its thread
abandoned: it stays stuck, a new thread takes its seat, and ``n_stuck`` counts it until it comes back.

One more thread, the keeper, watches the timeouts and delivers the outcomes that no worker can deliver.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from typing import Any

from tartan.base.checks import whole
from tartan.workers import worker
from tartan.workers.arena import Arena
from tartan.workers.executor import (
    Cancelled,
    Done,
    Function,
    Outcome,
    QueuedCall,
    TimedOut,
    WorkerContext,
    make_closed_error,
)


class _Seat:
    """The place of one worker thread; an abandoned thread has lost its own."""

    def __init__(self) -> None:
        self.task: QueuedCall | None = None
        self.started = 0.0
        self.deadline = math.inf
        self.abandoned = False


class ThreadExecutor:
    """Runs functions on ``n_workers`` threads; see ``tartan.workers.executor.Executor``.

    Parameters
    ----------
    application : Any
        Put into the context that all threads share.
    n_workers : int
        Number of threads.
    bounds_blas : bool
        Whether one worker has one thread of BLAS, too: the results of some functions depend on it.

    Notes
    -----
    Where there are several workers, BLAS has one thread in each while the executor lives. Libraries that are loaded
    later are not covered.

    Attributes
    ----------
    n_stuck : int
        Threads that ran into a timeout, or were abandoned by ``close(kill=True)``, and are not back.
    """

    in_processes = False

    def __init__(self, application: Any, n_workers: int, *, bounds_blas: bool = False) -> None:
        whole("workers", n_workers, 1, option="--workers")
        self.n_workers = n_workers
        self.n_stuck = 0
        self.context = WorkerContext(application, shares_arguments=True)
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._attention = threading.Condition(self._lock)
        self._waiting: list[QueuedCall] = []  # a heap
        self._numbers = itertools.count()
        self._seats: set[_Seat] = set()
        self._notices: list[tuple[QueuedCall, Outcome]] = []
        self._keeper_wakes = math.inf
        self._closing = False
        self._finished = False
        self._blas = _BLAS if bounds_blas or n_workers > 1 else None
        self._start()

    def submit(
        self,
        function: Function,
        args: tuple[Any, ...],
        done: Done,
        *,
        priority: int = 0,
        timeout_seconds: float | None = None,
    ) -> None:
        """Queue one call; see ``Executor.submit``."""
        task = QueuedCall(function, args, done, priority, timeout_seconds, next(self._numbers))
        with self._lock:
            if self._finished:
                raise make_closed_error()
            if self._closing:
                self._notify(task, Cancelled())
                return
            heapq.heappush(self._waiting, task)
            self._work.notify()

    @property
    def worker_pids(self) -> list[int]:
        """Return the id of this process."""
        return [os.getpid()]

    def share(self, name: str, arena: Arena) -> None:
        """Put one more arena into the context."""
        self.context.arenas[name] = arena

    def drop_waiting(self) -> None:
        """Drop what has not started; later submits are taken."""
        with self._lock:
            self._drop_waiting()

    def close(self, *, kill: bool = False) -> None:
        """Drop what has not started, wait for what has (unless ``kill``), end the threads."""
        with self._lock:
            self._closing = True
            self._drop_waiting()
            if kill:
                for seat in list(self._seats):
                    self._abandon(seat, Cancelled())
            self._work.notify_all()
            self._attention.notify()
        if threading.current_thread() not in self._threads:
            self._keeper.join()

    def _start(self) -> None:
        if self._blas:
            self._blas.enter()
        self._keeper = threading.Thread(target=self._keep, name="tartan-keeper", daemon=True)
        self._threads = {self._keeper}
        with self._lock:
            for _ in range(self.n_workers):
                self._add_worker()
        self._keeper.start()

    def _add_worker(self) -> None:
        seat = _Seat()
        self._seats.add(seat)
        # Daemons: a stuck thread must not keep the interpreter from ending.
        thread = threading.Thread(target=self._serve, args=(seat,), name="tartan-worker", daemon=True)
        self._threads.add(thread)
        thread.start()

    # Worker threads

    def _serve(self, seat: _Seat) -> None:
        if self._blas:
            self._blas.bound_this_thread()
        while (task := self._take(seat)) is not None:
            outcome = worker.call(task.function, self.context, task.args)
            if not self._give_back(seat):
                break
            task.deliver(outcome)
            del task, outcome  # an idle worker holds nothing
        with self._lock:
            self._threads.discard(threading.current_thread())
            if seat.abandoned:
                self.n_stuck -= 1
            self._seats.discard(seat)
            self._attention.notify()

    def _take(self, seat: _Seat) -> QueuedCall | None:
        with self._lock:
            while not self._waiting:
                if self._closing:
                    return None
                self._work.wait()
            task = seat.task = heapq.heappop(self._waiting)
            if task.timeout_seconds is not None:
                seat.started = time.monotonic()
                seat.deadline = seat.started + task.timeout_seconds
                if seat.deadline < self._keeper_wakes:
                    self._attention.notify()
            return task

    def _give_back(self, seat: _Seat) -> bool:
        with self._lock:
            seat.task = None
            seat.deadline = math.inf
            return not seat.abandoned

    # The keeper

    def _keep(self) -> None:
        while True:
            with self._lock:
                while not (self._notices or self._expire() or self._is_over()):
                    self._wait()
                notices, self._notices = self._notices, []
                if not notices:
                    self._finished = True
                    break
            for task, outcome in notices:
                task.deliver(outcome)
        if self._blas:
            self._blas.leave()

    def _wait(self) -> None:
        self._keeper_wakes = min((seat.deadline for seat in self._seats), default=math.inf)
        remaining = self._keeper_wakes - time.monotonic()
        self._attention.wait(None if math.isinf(remaining) else min(max(0.0, remaining), threading.TIMEOUT_MAX))
        self._keeper_wakes = -math.inf  # awake: it looks at every deadline before it waits again

    def _expire(self) -> bool:
        now = time.monotonic()
        expired = [seat for seat in self._seats if seat.deadline <= now]
        for seat in expired:
            self._abandon(seat, TimedOut(now - seat.started))
            if not self._closing:
                self._add_worker()
        return bool(expired)

    def _is_over(self) -> bool:
        return self._closing and not self._seats

    # Under the lock

    def _abandon(self, seat: _Seat, outcome: Outcome) -> None:
        if seat.task is None:
            return  # idle, or delivering: it sees that the executor closes, and ends
        self._seats.discard(seat)
        seat.abandoned = True
        self.n_stuck += 1
        self._notify(seat.task, outcome)

    def _drop_waiting(self) -> None:
        for task in sorted(self._waiting):
            self._notify(task, Cancelled())
        self._waiting.clear()

    def _notify(self, task: QueuedCall, outcome: Outcome) -> None:
        self._notices.append((task, outcome))
        self._attention.notify()


class _BlasBound:
    """Keeps BLAS at one thread from the first ``enter`` to the last ``leave``.

    The number of BLAS threads belongs to the process, so its guard does too: two executors that each saved and
    restored the number on their own would leave it wrong unless they closed in reverse order. A thread of its own
    does both, since threadpoolctl obeys one thread at a time; where user code has bounded BLAS already
    (``with threadpool_limits(...)``), that stays in force.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._over = threading.Event()
        self._guard = threading.Thread()
        self._per_thread: Any = None

    def enter(self) -> None:
        """Bound BLAS."""
        with self._lock:
            self._n_inside += 1
            if self._n_inside == 1:
                bounded, self._over = threading.Event(), threading.Event()
                self._guard = threading.Thread(
                    target=self._hold, args=(bounded, self._over), name="tartan-blas", daemon=True
                )
                self._guard.start()
                bounded.wait()

    def leave(self) -> None:
        """Restore the number of threads after the last one has left."""
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._over.set()
                self._guard.join()

    def bound_this_thread(self) -> None:
        """Bound those libraries that count for each calling thread; between ``enter`` and ``leave``."""
        self._per_thread.limit(limits=1)

    def _hold(self, bounded: threading.Event, over: threading.Event) -> None:
        """Find the libraries and bound them.

        Here, and not in each worker: the search walks the loader's list in callbacks that need the interpreter lock,
        and stands still for ever beside a thread that holds this lock and waits for the loader in an import.
        """
        try:
            import numpy.linalg  # noqa: F401  (loads the library that is to be bounded)
            from threadpoolctl import ThreadpoolController

            found = ThreadpoolController()
            self._per_thread = found.select(internal_api="mkl", threading_layer="openmp")
            limits = found.limit(limits=1, user_api="blas")
        finally:
            bounded.set()
        over.wait()
        limits.restore_original_limits()


_BLAS = _BlasBound()
