"""What runs user code: the contract of executors, and what the two kinds share.

An executor calls module-level functions as ``function(context, *args)`` on its workers, which are threads
(``ThreadExecutor``) or processes (``ProcessExecutor``), and hands the outcome of each call to a callback.

Invariants
----------
- ``done`` is called exactly once for each submit, whatever happens: return, exception, death of the worker,
  timeout, cancel, close. When ``close`` returns, every ``done`` has been called.
- ``done`` runs on a thread of the executor, and no lock of the executor is held meanwhile: it may submit. It
  must be short, since other outcomes wait for it.
- The lower priority value goes first; equal priorities go in the order of submits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tartan.errors import InternalError
from tartan.workers.arena import Arena


@dataclass(frozen=True)
class Completed:
    """The function returned ``value``."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The function raised.

    Attributes
    ----------
    error : Exception
        The exception itself, without its frames; a TartanError with code "user-error" in its place when it
        cannot travel between processes or is not an Exception (SystemExit).
    name : str
        Name of the exception's class.
    message : str
        Its text.
    traceback : str
        The full text of the traceback, from the called function on.
    """

    error: Exception
    name: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Died:
    """The worker process ended while the function ran.

    Attributes
    ----------
    how : str
        "killed by SIGSEGV", "exit status 1".
    seconds : float
        How long the function had run.
    traceback : str
        Where the code was, when the process could still say so, else "".
    """

    how: str
    seconds: float
    traceback: str = ""


@dataclass(frozen=True)
class TimedOut:
    """The function ran for longer than its limit."""

    seconds: float


@dataclass(frozen=True)
class Cancelled:
    """The function was dropped before it started, or abandoned by ``close(kill=True)``."""


Outcome: TypeAlias = Completed | Raised | Died | TimedOut | Cancelled
Function: TypeAlias = Callable[..., Any]
Done: TypeAlias = Callable[[Outcome], None]


@dataclass
class WorkerContext:
    """What a function finds on its worker; threads share one, each process has its own.

    Attributes
    ----------
    application : Any
        The user's application.
    arenas : dict of str to Arena
        The memory that executor and workers share.
    state : dict
        What functions keep between calls.
    shares_arguments : bool
        Whether arguments of functions are the objects of the program itself, and not copies.
    """

    application: Any
    arenas: dict[str, Arena] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    shares_arguments: bool = False


class Executor(Protocol):
    """Runs functions on workers; see the module for the invariants."""

    @property
    def n_workers(self) -> int:
        """How many functions run at a time."""

    @property
    def in_processes(self) -> bool:
        """Whether workers are processes, which see nothing of this one but its shared arenas."""

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that live now; of threads, that of this process."""

    def submit(
        self,
        function: Function,
        args: tuple[Any, ...],
        done: Done,
        *,
        priority: int = 0,
        timeout_seconds: float | None = None,
    ) -> None:
        """Queue one call.

        Parameters
        ----------
        function : callable
            A module-level function.
        args : tuple
            Its arguments after the context; small and picklable.
        done : callable
            Gets the outcome.
        priority : int
            Lower goes first.
        timeout_seconds : float, optional
            Longest time the function may run, counted from its start.

        Raises
        ------
        InternalError
            If the executor is closed.
        """

    def share(self, name: str, arena: Arena) -> None:
        """Put one more arena into the context of every worker; calls submitted from now on find it there."""

    def drop_waiting(self) -> None:
        """Drop what has not started; later submits are taken."""

    def close(self, *, kill: bool = False) -> None:
        """Drop what has not started, wait for what has, and stop the workers.

        With ``kill`` it does not wait: processes are killed, threads abandoned. Harmless when repeated.
        """


@dataclass(eq=False)
class QueuedCall:
    """One submitted call; ``number`` says which of those of one priority came first."""

    function: Function
    args: tuple[Any, ...]
    done: Done
    priority: int
    timeout_seconds: float | None
    number: int
    message: bytes = b""

    def __lt__(self, other: QueuedCall) -> bool:
        """Whether it starts first; what was submitted first keeps its place when it is queued again."""
        return (self.priority, self.number) < (other.priority, other.number)

    def deliver(self, outcome: Outcome) -> None:
        """Call ``done``. An error in it is a defect of the caller: it is printed, and the executor keeps working."""
        try:
            self.done(outcome)
        except Exception:
            kind, error, trace = sys.exc_info()
            hook = threading.ExceptHookArgs((kind or Exception, error, trace, threading.current_thread()))
            threading.excepthook(hook)


def make_closed_error() -> InternalError:
    """Return the error of a submit after close."""
    return InternalError("the executor is closed", code="executor-closed")
