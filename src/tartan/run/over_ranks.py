"""A call of the analytics on several ranks of this machine: all share the work, one reports, writes and answers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tartan.analytics import Monitor
from tartan.base.signals import cancel_on_signals
from tartan.comm import RankCommunicator, run
from tartan.errors import RunCancelledError

T = TypeVar("T")
_MODULES = ("tartan.analytics.monitor", "sklearn.base", "scipy.linalg", "scipy.sparse.linalg")
_GRACE_SECONDS = 5.0  # a call ends within a second of being cancelled, and a checkpoint is written


def over_ranks(n_ranks: int, call: Callable[..., T], *args: Any, monitor: Monitor, **options: Any) -> T:
    """Make a call on several ranks, which takes ``communicator`` and ``monitor``; return what it returned on rank 0.

    Parameters
    ----------
    n_ranks : int
    call : callable
        Every rank makes it with the same arguments; they travel as pickles, so matrices are given as paths.
    monitor : Monitor
        Says what rank 0 reports, and where the checkpoint is, which rank 0 writes and all ranks read.

    Raises
    ------
    RunCancelledError
        After SIGINT or SIGTERM; the checkpoint is written.
    Exception
        What the call has raised on the first rank that failed by itself.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {caught: signal.signal(caught, interrupt) for caught in (signal.SIGINT, signal.SIGTERM)}
    work = partial(_on_rank, call, monitor.verbose, monitor.checkpoint, args, options)
    try:
        found: list[T] = run(work, cpus=n_ranks, modules=_MODULES, grace_seconds=_GRACE_SECONDS)
        return found[0]
    except RunCancelledError as error:
        error.context["signal"] = received[0] if received else signal.SIGINT
        raise
    finally:
        for caught, handler in before.items():
            signal.signal(caught, signal.SIG_DFL if handler is None else handler)


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
