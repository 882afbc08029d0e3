"""What a worker does: it calls functions, and catches whatever they do. With the main loop of a worker process.

A worker is a fresh interpreter (exec'd, never forked) that receives the application, then tasks, one after the
other, and answers each. It inherits a socket and a crash file, and nothing else.

It never outlives its parent: the kernel kills it when the parent's spawning thread ends (which works while user
code holds the interpreter lock), and a watcher thread ends it when the socket closes (which works where the
parent is gone before the worker could ask the kernel).

A message is a header (kind, number, length) and that many bytes; an ATTACH is followed by one byte that carries
a descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import resource
import select
import signal
import socket
import struct
import threading
import time
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle

from tartan.base.child import die_with_parent
from tartan.base.format import traceback_of
from tartan.errors import TartanError
from tartan.workers import shipping
from tartan.workers.arena import Arena
from tartan.workers.executor import Completed, Function, Raised, WorkerContext

# Parent to worker
LOAD, ATTACH, TASK, STOP = 1, 2, 3, 4
# Worker to parent
READY, BROKEN, VALUE, ERROR = 11, 12, 13, 14

HEADER = struct.Struct("<BQQ")  # kind, number, length
_PR_SET_NAME = 15


class When(NamedTuple):
    """Which worker did something, and from when to when (``time.perf_counter_ns``, one clock for all processes)."""

    worker: str
    start_ns: int
    end_ns: int

    @classmethod
    def since(cls, start_ns: int) -> When:
        """Return what ends now, on the worker that this is called on."""
        thread = threading.current_thread()
        alone = thread is threading.main_thread()
        worker = f"worker {os.getpid()}" if alone else f"{thread.name}-{thread.native_id}"
        return cls(worker, start_ns, time.perf_counter_ns())

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def pack(kind: int, number: int, payload: bytes) -> bytes:
    """Frame one message."""
    return HEADER.pack(kind, number, len(payload)) + payload


def main(connection_fd: int, crash_fd: int, parent_pid: int) -> None:
    """Serve the parent until it sends STOP; the process then ends as Python does."""
    _end_with_parent(connection_fd, parent_pid)
    _set_signals()
    faulthandler.enable(crash_fd, all_threads=False)
    for fd in (connection_fd, crash_fd):
        os.set_inheritable(fd, False)  # programs that user code starts get neither
    connection = socket.socket(fileno=connection_fd)
    try:
        _serve(connection)
    except ConnectionError:
        os._exit(1)  # the parent is gone
    connection.detach()  # it closes with the process: one that hangs up is killed, and user code has files to write


def _end_with_parent(connection_fd: int, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"tartan-worker", 0, 0, 0)
    threading.Thread(target=_exit_on_hangup, args=(connection_fd,), name="tartan-watcher", daemon=True).start()


def _exit_on_hangup(connection_fd: int) -> None:
    poll = select.poll()
    poll.register(connection_fd, select.POLLRDHUP)  # hang-ups are always reported, data is not
    poll.poll()
    os._exit(1)


def _set_signals() -> None:
    # Ctrl-C in a terminal reaches the whole process group; what it means is for the parent to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Schedulers of clusters send it to all processes of a job; the run ends its workers when their calls are saved. No
    # SIG_IGN, which programs that user code starts would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _serve(connection: socket.socket) -> None:
    context = WorkerContext(None)
    while True:
        kind, number, payload = _receive(connection)
        if kind == TASK:
            connection.sendall(_run(context, number, payload))
        elif kind == STOP:
            return
        else:
            connection.sendall(_prepare(connection, context, kind, payload))


def _receive(connection: socket.socket) -> tuple[int, int, bytearray]:
    # Exact reads: the byte that follows an ATTACH must be left for the call that takes descriptors.
    kind, number, length = HEADER.unpack(_receive_exactly(connection, HEADER.size))
    return kind, number, _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, length: int) -> bytearray:
    buffer = bytearray(length)
    with memoryview(buffer) as view:
        received = 0
        while received < length:
            if not (n := connection.recv_into(view[received:])):
                raise ConnectionResetError("the parent closed the socket")
            received += n
    return buffer


def _prepare(connection: socket.socket, context: WorkerContext, kind: int, payload: bytearray) -> bytes:
    try:
        if kind == ATTACH:
            _attach(connection, context, payload)
            return b""
        context.application = shipping.load(bytes(payload))
    except BaseException as error:  # user code may raise anything while it is imported
        return pack(BROKEN, 0, _dump_error(describe_error(error)))
    return pack(READY, 0, b"")


def _attach(connection: socket.socket, context: WorkerContext, payload: bytearray) -> None:
    _, fds, _, _ = socket.recv_fds(connection, 1, 1)
    name, n_bytes = pickle.loads(payload)
    previous = context.arenas.pop(name, None)
    if previous is not None:
        previous.close()
    context.arenas[name] = Arena.attach(fds[0], n_bytes)


def _run(context: WorkerContext, number: int, payload: bytearray) -> bytes:
    try:
        function, args = pickle.loads(payload)
        outcome = call(function, context, args)
        if isinstance(outcome, Completed):
            return pack(VALUE, number, cloudpickle.dumps(outcome.value))
    except BaseException as error:  # arguments that cannot be read, or a value that cannot be sent
        outcome = describe_error(error)
    return pack(ERROR, number, _dump_error(outcome))


def _dump_error(raised: Raised) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(raised)
        if type(pickle.loads(data).error) is type(raised.error):
            return data
    except Exception:  # many exceptions can be written, and fewer read
        pass
    return bytes(cloudpickle.dumps(replace(raised, error=rebuild(raised.name, raised.message))))


def call(function: Function, context: WorkerContext, args: tuple[Any, ...]) -> Completed | Raised:
    """Call a function on this worker and catch whatever it does."""
    process = os.getpid()
    try:
        outcome: Completed | Raised = Completed(function(context, *args))
    except BaseException as error:  # user code may raise anything, SystemExit included
        outcome = describe_error(error)
    if os.getpid() != process:
        os._exit(1)  # a copy that user code has forked and not ended: it must not answer as well
    return outcome


def describe_error(error: BaseException) -> Raised:
    """Turn an exception that was just caught into an outcome, and let go of its frames."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = traceback_of(error, frames)
    _forget_frames(error)
    name, message = type(error).__name__, _text(error)
    return Raised(error if isinstance(error, Exception) else rebuild(name, message), name, message, text)


def rebuild(name: str, message: str) -> TartanError:
    """Return a stand-in for an exception that cannot travel."""
    return TartanError(f"{name}: {message}" if message else name, code="user-error")


def _text(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return str(error)
    return ""


def _forget_frames(error: BaseException) -> None:
    # Frames hold the arguments of user code, views of the arena among them.
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            found.__traceback__ = None
            waiting += [found.__cause__, found.__context__]
            waiting += found.exceptions if isinstance(found, BaseExceptionGroup) else []
