"""Catch SIGINT and SIGTERM while a call runs that can be cancelled, and wait so that they are noticed."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from tartan.errors import RunCancelledError

# By judgement: a signal is answered within a second in the worst case, and the process sleeps otherwise. No benchmark.
WAKE_SECONDS = 1.0
"""How often a wait looks for signals: one that arrives right before the wait does not end it."""

# By judgement: nobody presses Ctrl-C twice within less and means it twice. No benchmark.
REPEAT_SECONDS = 1.0
"""What comes again within it belongs to the first: ``timeout`` signals its command and then the group of that."""


def leave_interrupts_to_others() -> None:
    """Let no Ctrl-C end the calling thread, nor the threads and processes that it starts from now on.

    It reaches all processes of a terminal at once; what it means, one of them decides. A handler that ignores it would
    not do: what runs in these processes may set its own.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


_interrupted = threading.Event()


@contextlib.contextmanager
def remember_interrupts() -> Iterator[None]:
    """Remember that Ctrl-C came, which raises KeyboardInterrupt as ever.

    It is raised wherever Python is, and is lost there in callbacks, and in compiled code that is being imported: that
    swallows it, or makes a SystemError of it. For programs whose end it is; in a thread other than the main one, and
    where SIGINT is handled or ignored already, nothing is done.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _interrupted.clear()


def was_interrupted() -> bool:
    """Return whether Ctrl-C came in ``remember_interrupts``, where nothing else caught it."""
    return _interrupted.is_set()


class Repeats:
    """Tells a signal that was sent twice at once from a second one.

    Parameters
    ----------
    clock : callable
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._came: dict[int, float] = {}

    def has(self, number: int) -> bool:
        """Return whether this arrival of a signal belongs to one before it."""
        now = self._clock()
        came = self._came.get(number)
        if came is not None and now - came < REPEAT_SECONDS:
            return True
        self._came[number] = now
        return False


def wait_for(happened: threading.Event) -> None:
    """Wait for an event, and let handlers of signals run meanwhile."""
    while not happened.wait(WAKE_SECONDS):
        pass


@contextlib.contextmanager
def cancel_on_signals(
    cancel: Callable[[int], object], *, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a clean stop; the second one acts as it does without this.

    What comes again within a second of the first is no second one.

    Parameters
    ----------
    cancel : callable
        Called with the number of the signal. In a thread other than the main one nothing is caught.
    clock : callable
        Seconds.

    Raises
    ------
    KeyboardInterrupt
        Where a RunCancelledError ends the call after SIGINT, as Python's programs and notebooks expect after Ctrl-C; it
        has the message of that error, and that error as its cause. Also where one was lost before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if was_interrupted():
        raise KeyboardInterrupt
    before: dict[signal.Signals, Any] = {}
    received: list[int] = []
    repeats = Repeats(clock)

    def handle(number: int, _frame: object) -> None:
        if repeats.has(number):
            return
        if received:
            restore()
            signal.raise_signal(number)
            return
        received.append(number)
        cancel(number)

    def restore() -> None:
        for caught, handler in before.items():
            # Python does not know a handler that was not set from Python.
            signal.signal(caught, signal.SIG_DFL if handler is None else handler)

    for caught in (signal.SIGINT, signal.SIGTERM):
        before[caught] = signal.signal(caught, handle)
    try:
        yield
    except RunCancelledError as error:
        if received == [signal.SIGINT]:
            raise KeyboardInterrupt(str(error)) from error
        raise
    finally:
        restore()


# How a process ends that has run code of users: as Python does, also where it is a fork, or where threads are left.


def forget_parent() -> None:
    """Leave to the parent of this fork what it has to do at its end with files and memory of its own."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False


def finish_threads_and_exit_handlers() -> None:
    """Wait for threads that are not daemons, and call exit handlers, as Python does after the last line of a
    program.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def end(status: int) -> NoReturn:
    """End a process as Python does, wherever its code is: threads, exit handlers, then modules with their open files.

    A fork cannot return: what called it belongs to its parent.
    """
    ctypes.pythonapi.Py_Exit(status)
    raise AssertionError("Py_Exit does not return")


def end_beside_threads(status: int) -> NoReturn:
    """End a process in which compiled code was left behind in a thread: it would abort an interpreter that ends."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def has_workers() -> bool:
    """Whether a thread lives that runs code of users."""
    return any(thread.name == "tartan-worker" for thread in threading.enumerate())
