"""A call of the analytics on several ranks: all share the work, one reports, writes and answers."""

from __future__ import annotations

import importlib
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from tartan.analytics import Monitor
from tartan.base.signals import Repeats, cancel_on_signals
from tartan.comm import RankCommunicator, run
from tartan.comm.launch import first_failure
from tartan.comm.mpi_node import run_on_mpi
from tartan.comm.program import Program
from tartan.errors import RunCancelledError

T = TypeVar("T")
_MODULES = ("tartan.analytics.monitor", "scipy.linalg", "scipy.sparse.linalg")
# By judgement, as said; as _GRACE_SECONDS of cluster/relay.
_GRACE_SECONDS = 5.0  # a call ends within a second of being cancelled, and a checkpoint is written


@dataclass(frozen=True)
class AskedRanks:
    """On what a call is made: so many ranks of this machine; with the link "mpi", of each node of ``mpiexec``."""

    n_ranks: int
    link: str | None = None


def over_ranks(ranks: AskedRanks, call: Callable[..., T], *args: Any, monitor: Monitor, **options: Any) -> T:
    """Make a call on several ranks, which takes ``communicator`` and ``monitor``; return what it returned on rank 0.

    Parameters
    ----------
    ranks : AskedRanks
    call : callable
        Every rank makes it with the same arguments; they travel as pickles, so matrices are given as paths.
    monitor : Monitor
        Says what rank 0 reports, and where the checkpoint is, which rank 0 writes and all ranks read.

    Raises
    ------
    RunCancelledError
        After SIGINT or SIGTERM; the checkpoint is written.
    SystemExit
        Over MPI, on all nodes but the first, which alone receives the result or the error.
    Exception
        What the call has raised on the first rank that failed by itself.
    """
    work = partial(_on_rank, call, monitor.verbose, monitor.checkpoint, args, options)
    if ranks.link == "mpi":
        on_first: T = _over_mpi(ranks.n_ranks, work)
        return on_first
    received: list[int] = []
    repeats = Repeats()

    def interrupt(number: int, _frame: object) -> None:
        if repeats.has(number):
            return
        received.append(number)
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {caught: signal.signal(caught, interrupt) for caught in (signal.SIGINT, signal.SIGTERM)}
    try:
        found: list[T] = run(work, cpus=ranks.n_ranks, modules=_MODULES, grace_seconds=_GRACE_SECONDS)
        return found[0]
    except RunCancelledError as error:
        error.context["signal"] = received[0] if received else signal.SIGINT
        raise
    finally:
        for caught, handler in before.items():
            signal.signal(caught, signal.SIG_DFL if handler is None else handler)


def _over_mpi(n_ranks: int, work: Callable[[RankCommunicator], Any]) -> Any:
    program = Program(cloudpickle.dumps(work))
    for name in _MODULES:
        importlib.import_module(name)
    outcome = run_on_mpi(program, cpus=n_ranks, command=sys.argv[1:], grace_seconds=_GRACE_SECONDS)
    failure = first_failure(outcome.reports)
    if outcome.node:
        raise SystemExit(0 if failure is None else getattr(failure, "exit_status", 1))
    if isinstance(failure, RunCancelledError):
        failure.context["signal"] = outcome.signal or signal.SIGINT
    if failure is not None:
        raise failure
    return pickle.loads(outcome.reports[0].result)


def _on_rank(
    call: Callable[..., Any],
    verbose: int,
    checkpoint: Path | None,
    args: tuple[Any, ...],
    options: dict[str, Any],
    ranks: RankCommunicator,
) -> Any:
    first = ranks.rank == 0
    monitor = Monitor(verbose if first else 0, checkpoint, writes=first)
    try:
        with cancel_on_signals(monitor.cancel):
            found = call(*args, monitor=monitor, communicator=ranks, **options)
    except KeyboardInterrupt as stop:
        if isinstance(stop.__cause__, RunCancelledError):
            raise stop.__cause__ from None
        raise
    return found if first else None
