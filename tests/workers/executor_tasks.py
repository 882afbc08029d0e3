"""What the tests of executors run on workers; imported there by name, so it must import fast."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tartan.workers.executor import WorkerContext


class UnpicklableError(Exception):
    """Holds what cannot travel."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class UnreadableError(Exception):
    """Can be written, and not read back."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(left + right)


def echo(_context: WorkerContext, *args: Any) -> Any:
    return args


def application_of(context: WorkerContext) -> Any:
    return context.application


class Explosive:
    """An application that cannot be loaded."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> tuple[Any, ...]:
        return explode, (self.how,)


def explode(how: str) -> None:
    if how == "raise":
        raise ImportError("no module named nonsense")
    if how == "hang":
        signal.pause()
    os._exit(7)


def apply(context: WorkerContext, *args: Any) -> Any:
    return context.application(*args)


def pid(_context: WorkerContext) -> int:
    return os.getpid()


def fail(_context: WorkerContext, kind: str) -> None:
    raise {
        "value": ValueError("the value 7 is wrong"),
        "unpicklable": UnpicklableError("holds a lock"),
        "unreadable": UnreadableError("two ", "arguments"),
        "exit": SystemExit(3),
    }[kind]


def give_lock(_context: WorkerContext) -> Any:
    return threading.Lock()


def count(context: WorkerContext) -> int:
    context.state["n"] = context.state.get("n", 0) + 1
    return int(context.state["n"])


def die(_context: WorkerContext, how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)


def block_until_readable(_context: WorkerContext, fd_path: str) -> str:
    """Wait in Python until the other end of a named pipe writes or closes."""
    with open(fd_path) as pipe:
        return pipe.read()


def announce_and_wait(_context: WorkerContext, announce: str, release: str) -> str:
    """Tell through one named pipe that the task runs, wait on another."""
    with open(announce, "w") as pipe:
        pipe.write("running")
    with open(release) as pipe:
        return pipe.read()


def spin(_context: WorkerContext) -> None:
    while True:
        pass


def announce_and_pause(_context: WorkerContext, announce: str) -> None:
    """Tell through a named pipe that the task runs, then hang in C, holding the interpreter lock."""
    with open(announce, "w") as pipe:
        pipe.write("running")
    ctypes.PyDLL(None).pause()


def pause_in_c(_context: WorkerContext) -> None:
    # PyDLL keeps the interpreter lock: no thread of the worker can run any more.
    ctypes.PyDLL(None).pause()


def fill(context: WorkerContext, name: str, value: float) -> float:
    view = context.arenas[name].view(4096, (8,), "float64")
    before = float(view.sum())
    view[:] = value
    return before


def arena_names(context: WorkerContext) -> list[str]:
    return sorted(context.arenas)


def surroundings(_context: WorkerContext) -> dict[str, Any]:
    import resource

    return {
        "files": _open_files(),
        "stdin": str(Path("/proc/self/fd/0").readlink()),
        "stdout_is_stderr": os.path.sameopenfile(1, 2),
        "threads": os.environ["OPENBLAS_NUM_THREADS"],
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "sigterm": callable(signal.getsignal(signal.SIGTERM)),
        "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "main": sys.modules["__main__"].__dict__.get("__file__"),
    }


def _open_files() -> list[str]:
    links = list(Path("/proc/self/fd").iterdir())
    # The descriptor of the listing itself is closed by now.
    return [str(link.readlink()) for link in links if link.is_symlink()]


def leaves_to_the_end(context: WorkerContext, folder: str) -> None:
    """Leave a file open, an exit handler and a thread behind."""
    context.state["open"] = Path(folder, "unclosed").open("w")  # noqa: SIM115
    context.state["open"].write("x")
    atexit.register(lambda: Path(folder, "atexit").write_text("x"))
    threading.Thread(target=lambda: (threading.main_thread().join(), Path(folder, "thread").write_text("x"))).start()
