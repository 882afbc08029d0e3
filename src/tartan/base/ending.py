"""How a process ends that has run code of users: as Python does, also where it is a fork, or where threads are left."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import weakref
from typing import NoReturn


def forget_parent() -> None:
    """Leave to the parent of this fork what it has to do at its end with files and memory of its own."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False


def finish_threads_and_exit_handlers() -> None:
    """Wait for threads that are no daemons, and call exit handlers, as Python does after the last line of a program."""
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
