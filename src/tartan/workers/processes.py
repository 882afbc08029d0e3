"""Runs functions in worker processes: for user code that holds the interpreter lock, crashes, or never returns.

One I/O thread owns all workers: it starts them, sends tasks, receives answers, watches deadlines and exits, and
calls ``done``. Other threads only queue work for it. It waits in one ``select``; nothing polls.

The life of a worker: starting (application sent) -> ready -> stopping or lost -> replaced by a fresh one. When a
worker is lost, the task that ran has its outcome (Died, TimedOut); one that was only queued there is submitted
again. Workers that get nothing done are not replaced for ever: if the application cannot be loaded, or worker
after worker dies without a task, the executor is *broken*: all that waits, and all that is submitted later, gets
the reason as a Raised outcome.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import pickle
import selectors
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle

from tartan.base.checks import whole
from tartan.base.signals import leave_interrupts_to_others
from tartan.errors import InternalError, RunFailedError
from tartan.workers import shipping, worker
from tartan.workers.arena import Arena
from tartan.workers.executor import (
    Cancelled,
    Completed,
    Died,
    Done,
    Function,
    Outcome,
    QueuedCall,
    Raised,
    TimedOut,
    make_closed_error,
)
from tartan.workers.handle import WorkerHandle, worker_environment

# A second task is sent ahead only behind a function that takes little time as a rule: what is sent ahead cannot go
# to another worker any more, and waiting for it would cost about a tenth of a millisecond.
# By arithmetic: 0.1 ms is 2 % of 5 ms. `tartan bench pair_function` holds the cost of a call.
_SEND_AHEAD_BELOW_SECONDS = 0.005
# By judgement: the mean follows about the last five calls; one odd call of ten times the length does not turn it for
# long. No benchmark.
_MEAN_WEIGHT = 0.2
# By judgement: a worker that dies before its first task five times in a row will die again; fewer may be bad luck on a
# machine short of memory. No benchmark.
_MAX_FRUITLESS_DEATHS = 5
# By judgement: as long as exit handlers of libraries take; the worker is killed then. No benchmark.
_STOP_SECONDS = 5.0
# By limit of poll(2): 2**31 milliseconds are 24.8 days.
_LONGEST_WAIT_SECONDS = 86_400.0  # the system waits for 24 days at most, and refuses more


class ProcessExecutor:
    """Runs functions in ``n_workers`` processes; see ``tartan.workers.executor.Executor``.

    Parameters
    ----------
    application : Any
        Sent to every worker when it starts.
    n_workers : int
        Number of processes.
    start_timeout_seconds : float
        Longest time that a worker may take to load the application.
    clock : callable
        Returns the time in seconds by which limits are kept.

    Raises
    ------
    ConfigError
        If the application cannot be pickled.

    Notes
    -----
    Workers ignore SIGINT, print to standard error, leave no core files, and run one thread in each numerical
    library. They end when this process ends, however it does.
    """

    in_processes = True

    def __init__(
        self,
        application: Any,
        n_workers: int,
        *,
        start_timeout_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        whole("workers", n_workers, 1, option="--workers")
        self.n_workers = n_workers
        self._application = shipping.dump(application)
        self._arenas: dict[str, Arena] = {}
        self._environment = worker_environment()
        self._start_timeout_seconds = start_timeout_seconds
        self._clock = clock
        # Under the lock:
        self._lock = threading.Lock()
        self._waiting: list[QueuedCall] = []  # a heap
        self._numbers = itertools.count()
        self._notices: list[tuple[QueuedCall, Outcome]] = []
        self._new_arenas: list[tuple[str, Arena]] = []
        self._awake = True
        self._closing = self._killing = self._finished = False
        self._broken: Raised | None = None
        # Of the I/O thread:
        self._workers: list[WorkerHandle] = []
        self._n_fruitless = 0
        self._was_ready = False
        self._mean_seconds: dict[Function, float] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._on_wake)
        # A daemon: an executor that was not closed must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name="tartan-processes", daemon=True)
        self._thread.start()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that live now."""
        return [handle.process.pid for handle in list(self._workers)]

    def submit(
        self,
        function: Function,
        args: tuple[Any, ...],
        done: Done,
        *,
        priority: int = 0,
        timeout_seconds: float | None = None,
    ) -> None:
        """Queue one call; see ``Executor.submit``. What cannot be pickled ends as Raised."""
        task = QueuedCall(function, args, done, priority, timeout_seconds, next(self._numbers))
        refusal: Outcome | None = _pack_call(task)
        with self._lock:
            if self._finished:
                raise make_closed_error()
            refusal = refusal or self._broken or (Cancelled() if self._closing else None)
            self._wake()
            if refusal:
                self._notices.append((task, refusal))
            else:
                heapq.heappush(self._waiting, task)

    def share(self, name: str, arena: Arena) -> None:
        """Send one more shared arena to every worker."""
        _check_shared(name, arena)
        with self._lock:
            self._new_arenas.append((name, arena))
            self._wake()

    def drop_waiting(self) -> None:
        """Drop what has not started; later submits are taken."""
        with self._lock:
            self._drop_waiting(Cancelled())

    def close(self, *, kill: bool = False) -> None:
        """Drop what has not started, wait for what has (or kill it), end the workers."""
        with self._lock:
            self._closing = True
            self._killing = self._killing or kill
            self._drop_waiting(Cancelled())
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # Under the lock

    def _wake(self) -> None:
        # One write for everything that is queued until the I/O thread looks again.
        if not self._awake and not self._finished:
            self._awake = True
            os.eventfd_write(self._wake_fd, 1)

    def _drop_waiting(self, outcome: Outcome) -> None:
        self._notices += [(task, outcome) for task in sorted(self._waiting)]
        self._waiting.clear()
        self._wake()

    # The I/O thread: its loop

    def _run(self) -> None:
        leave_interrupts_to_others()  # before workers can ignore it, Ctrl-C would end them with a traceback
        try:
            for _ in range(self.n_workers):
                self._start_worker()
            while self._step():
                events = self._selector.select(self._seconds_to_deadline())
                self._awake = True
                for key, mask in events:
                    key.data(mask)
        except BaseException as error:  # a defect: every caller that waits gets it as its outcome
            self._give_up(worker.describe_error(error))
        self._selector.close()
        os.close(self._wake_fd)

    def _step(self) -> bool:
        """Do all that needs no waiting; return whether there is anything left to wait for."""
        self._awake = False  # from here on, whatever is queued is announced
        self._expire()
        self._hand_over_arenas()
        if self._closing:
            self._stop_workers()
        for handle in self._workers:
            self._feed(handle)
        for handle in self._workers:
            self._feed_ahead(handle)
        self._deliver_notices()
        with self._lock:
            self._finished = self._closing and not self._workers and not self._notices
            return not self._finished

    def _deliver_notices(self) -> None:
        with self._lock:
            notices, self._notices = self._notices, []
        for task, outcome in notices:
            task.deliver(outcome)

    def _seconds_to_deadline(self) -> float | None:
        deadline = min((handle.deadline for handle in self._workers), default=math.inf)
        return None if math.isinf(deadline) else min(max(0.0, deadline - self._clock()), _LONGEST_WAIT_SECONDS)

    def _on_wake(self, _mask: int) -> None:
        os.eventfd_read(self._wake_fd)

    def _on_socket(self, handle: WorkerHandle, mask: int) -> None:
        if handle not in self._workers:
            return  # lost by an earlier event of the same select
        if mask & selectors.EVENT_WRITE:
            handle.flush()
            self._watch(handle)
        if mask & selectors.EVENT_READ:
            messages = handle.receive()
            if messages is None:
                self._lose(handle)
            for message in messages or ():
                self._take_message(handle, *message)

    def _on_exit(self, handle: WorkerHandle, _mask: int) -> None:
        if handle in self._workers:
            self._lose(handle)

    # The I/O thread: tasks and answers

    def _feed(self, handle: WorkerHandle) -> None:
        if handle.ready and not handle.stopping and not handle.tasks and self._send_next(handle):
            _begin(handle, self._clock())

    def _feed_ahead(self, handle: WorkerHandle) -> None:
        if handle.ready and len(handle.tasks) == 1:
            mean = self._mean_seconds.get(handle.tasks[0].function, math.inf)
            if mean < _SEND_AHEAD_BELOW_SECONDS:
                self._send_next(handle)

    def _send_next(self, handle: WorkerHandle) -> bool:
        with self._lock:
            if not self._waiting:
                return False
            task = heapq.heappop(self._waiting)
        # What was shared before this call was submitted must be there before it: look only now.
        if self._new_arenas:
            self._hand_over_arenas()
        handle.tasks.append(task)
        handle.send(worker.TASK, task.number, task.message)
        self._watch(handle)
        return True

    def _watch(self, handle: WorkerHandle) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if handle.wants_to_write else 0)
        key = self._selector.get_key(handle.socket)
        if key.events != wanted:
            self._selector.modify(handle.socket, wanted, key.data)

    def _take_message(self, handle: WorkerHandle, kind: int, number: int, payload: bytes) -> None:
        if kind == worker.READY:
            handle.ready = self._was_ready = True
            handle.deadline = math.inf
            self._feed(handle)
        elif kind == worker.BROKEN:
            handle.failure = pickle.loads(payload)
            handle.kill()  # its exit is noticed like any other
        else:
            self._answer(handle, kind, number, payload)

    def _answer(self, handle: WorkerHandle, kind: int, number: int, payload: bytes) -> None:
        task = handle.tasks.popleft()
        if task.number != number:
            raise InternalError(f"a worker answers call {number} where {task.number} ran")
        self._n_fruitless = 0
        self._note_seconds(task.function, self._clock() - handle.started)
        handle.deadline = math.inf
        if handle.tasks:
            _begin(handle, self._clock())
        self._feed(handle)  # the worker continues while the outcome is handled
        self._feed_ahead(handle)
        task.deliver(_unpack_answer(kind, payload))

    def _note_seconds(self, function: Function, seconds: float) -> None:
        mean = self._mean_seconds.get(function, seconds)
        self._mean_seconds[function] = mean + _MEAN_WEIGHT * (seconds - mean)

    def _hand_over_arenas(self) -> None:
        with self._lock:
            arenas, self._new_arenas = self._new_arenas, []
        for name, arena in arenas:
            self._arenas[name] = arena
            for handle in self._workers:
                handle.attach(name, arena)
                self._watch(handle)

    # The I/O thread: the lives of workers

    def _start_worker(self) -> None:
        try:
            handle = WorkerHandle(self._environment)
        except (OSError, ValueError) as error:
            self._break(_start_failure(f"{type(error).__name__}: {error}", ""))
            return
        handle.started = self._clock()
        handle.deadline = handle.started + self._start_timeout_seconds
        self._workers.append(handle)
        on_socket, on_exit = partial(self._on_socket, handle), partial(self._on_exit, handle)
        self._selector.register(handle.socket, selectors.EVENT_READ, on_socket)
        if handle.exit_fd is not None:
            self._selector.register(handle.exit_fd, selectors.EVENT_READ, on_exit)
        for name, arena in self._arenas.items():
            handle.attach(name, arena)
        handle.send(worker.LOAD, 0, self._application)
        self._watch(handle)

    def _expire(self) -> None:
        now = self._clock()
        for handle in [handle for handle in self._workers if handle.deadline <= now]:
            if not handle.ready:
                handle.failure = _start_failure(f"not ready after {now - handle.started:.0f} seconds", "")
            self._lose(handle, TimedOut(now - handle.started))

    def _stop_workers(self) -> None:
        for handle in list(self._workers):
            if self._killing or not handle.ready:
                self._lose(handle, Cancelled())
            elif not handle.tasks and not handle.stopping:
                handle.stopping = True
                handle.deadline = self._clock() + _STOP_SECONDS
                handle.send(worker.STOP)
                self._watch(handle)

    def _lose(self, handle: WorkerHandle, cause: TimedOut | Cancelled | None = None) -> None:
        """Bury a worker that died, or that ``cause`` condemns; settle its tasks; start another."""
        condemned = handle.tasks[0] if cause and handle.tasks else None
        self._workers.remove(handle)
        self._selector.unregister(handle.socket)
        if handle.exit_fd is not None:
            self._selector.unregister(handle.exit_fd)
        handle.ready = False
        handle.kill()
        for message in handle.receive_rest():
            self._take_message(handle, *message)
        handle.ready = False  # whatever its last messages said
        seconds = self._clock() - handle.started
        how, report = handle.bury()
        # A condemned task may have been answered at the last moment: then nothing that runs is to blame.
        ran = bool(handle.tasks) and (cause is None or handle.tasks[0] is condemned)
        outcome = (cause or Died(how, seconds, report)) if ran else None
        self._settle(handle, outcome)
        if not self._closing:
            self._replace(handle, ran, how, report)

    def _settle(self, handle: WorkerHandle, outcome: Outcome | None) -> None:
        """Give the task that ran its outcome, if there is one, and submit the others again."""
        with self._lock:
            if outcome is not None:
                self._notices.append((handle.tasks.popleft(), outcome))
            for task in handle.tasks:
                refusal = self._broken or (Cancelled() if self._closing else None)
                if refusal:
                    self._notices.append((task, refusal))
                else:
                    heapq.heappush(self._waiting, task)
            self._wake()

    def _replace(self, handle: WorkerHandle, ran: bool, how: str, report: str) -> None:
        self._n_fruitless = 0 if ran else self._n_fruitless + 1
        hopeless = handle.failure is not None and not self._was_ready
        if hopeless or self._n_fruitless >= _MAX_FRUITLESS_DEATHS:
            failure = handle.failure
            reason = f"{failure.name}: {failure.message}" if failure else how
            self._break(_start_failure(reason, failure.traceback if failure else report))
        elif self._broken is None:
            self._start_worker()

    def _break(self, reason: Raised) -> None:
        with self._lock:
            self._broken = self._broken or reason
            self._drop_waiting(self._broken)

    def _give_up(self, reason: Raised) -> None:
        """End everything after a defect in the loop itself."""
        self._break(reason)
        with self._lock:
            for handle in self._workers:
                handle.kill()
                handle.bury()
                self._notices += [(task, reason) for task in handle.tasks]
            self._workers.clear()
            self._finished = True
        self._deliver_notices()


def _begin(handle: WorkerHandle, now: float) -> None:
    handle.started = now
    limit = handle.tasks[0].timeout_seconds
    handle.deadline = math.inf if limit is None else handle.started + limit


def _pack_call(task: QueuedCall) -> Raised | None:
    """Pickle the call of a task; return why that is impossible, if it is."""
    try:
        task.message = cloudpickle.dumps((task.function, task.args))
    except Exception as error:
        return worker.describe_error(error)
    task.args = ()  # the message holds them
    return None


def _unpack_answer(kind: int, payload: bytes) -> Completed | Raised:
    try:
        value = pickle.loads(payload)
    except Exception as error:
        return worker.describe_error(error)
    if kind == worker.VALUE:
        return Completed(value)
    raised: Raised = value
    return raised


def _start_failure(reason: str, traceback: str) -> Raised:
    message = f"no worker process can be started: {reason}"
    return Raised(RunFailedError(message, code="worker-start"), "RunFailedError", message, traceback)


def _check_shared(name: str, arena: Arena) -> None:
    if not arena.shared:
        raise InternalError(f"the arena {name!r} is not shared: worker processes cannot see it")
