"""The parent's side of one worker process: start it, exchange messages with it, collect its end. No policy, no threads.

A handle belongs to one thread, the one that started the process: the kernel kills a worker when the thread that
started it ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import socket
import subprocess
from collections import deque
from collections.abc import Mapping

from tartan.base.child import describe_exit, start_child
from tartan.workers.arena import Arena, memory_file
from tartan.workers.executor import QueuedCall, Raised
from tartan.workers.worker import ATTACH, HEADER

# Everything that starts threads of its own: the workers are the threads.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
# By convention of Linux: 208 KiB is the default of a socket's buffer (net.core.rmem_default), so one read empties it.
_RECEIVE_BYTES = 1 << 18
# By judgement: copying 16 KiB takes a microsecond or two, as long as another call of the system; `tartan bench reads`
# measures the large ones.
_COPIED_BYTES = 1 << 14
# By judgement: faulthandler's stacks of some threads have a few KiB. No benchmark.
_CRASH_REPORT_BYTES = 1 << 16
# By judgement: a killed process is gone within milliseconds; one in an uninterruptible read may never be, and must not
# hold up the end. No benchmark.
_REAP_SECONDS = 5.0


class WorkerHandle:
    """One worker process and what it was sent.

    Attributes
    ----------
    tasks : deque of QueuedCall
        Sent and not answered; the first one runs.
    ready : bool
        Whether the application is loaded.
    stopping : bool
        Whether it was asked to end.
    failure : Raised or None
        Why it cannot start.
    started : float
        When the first task, or the process, started.
    deadline : float
        When that takes too long; infinity for never.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.tasks: deque[QueuedCall] = deque()
        self.ready = False
        self.stopping = False
        self.failure: Raised | None = None
        self.started = 0.0
        self.deadline = math.inf
        self._inbox = bytearray()
        self._outbox: deque[tuple[memoryview, int | None]] = deque()
        self._crash_fd = memory_file(0)
        self.socket, theirs = socket.socketpair()
        try:
            descriptors = (theirs.fileno(), self._crash_fd)
            self.process = start_child(
                "tartan.workers.worker:main", *descriptors, os.getpid(), pass_fds=descriptors, env=environment
            )
        except BaseException:
            self.socket.close()
            os.close(self._crash_fd)
            raise
        finally:
            theirs.close()
        self.socket.setblocking(False)
        self.exit_fd = _exit_descriptor(self.process.pid)

    def send(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        """Queue one message and write what the socket takes."""
        head = HEADER.pack(kind, number, len(payload))
        # A copy costs less than a call of the system, up to some length.
        parts = (head + payload,) if len(payload) < _COPIED_BYTES else (head, payload)
        self._outbox += [(memoryview(part), None) for part in parts]
        self.flush()

    def attach(self, name: str, arena: Arena) -> None:
        """Hand over an arena."""
        self.send(ATTACH, 0, pickle.dumps((name, arena.n_bytes)))
        self._outbox.append((memoryview(b"\0"), arena.fd))
        self.flush()

    @property
    def wants_to_write(self) -> bool:
        """Whether messages wait for the socket."""
        return bool(self._outbox)

    def flush(self) -> None:
        """Write what the socket takes; a dead worker takes everything."""
        while self._outbox:
            data, fd = self._outbox[0]
            try:
                n = self.socket.send(data) if fd is None else socket.send_fds(self.socket, [data], [fd])
            except BlockingIOError:
                return
            except OSError:
                self._outbox.clear()  # it hung up; reading will find out
                return
            if n < len(data):
                self._outbox[0] = (data[n:], None)
            else:
                self._outbox.popleft()

    def receive(self) -> list[tuple[int, int, bytes]] | None:
        """Read once; return the complete messages as (kind, number, payload), None when it hung up."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._inbox += data
        return _unpack(self._inbox)

    def receive_rest(self) -> list[tuple[int, int, bytes]]:
        """Read all that a dead worker had still sent."""
        messages: list[tuple[int, int, bytes]] = []
        before = -1
        while (more := self.receive()) is not None and (more or len(self._inbox) != before):
            before = len(self._inbox)
            messages += more
        return messages

    def kill(self) -> None:
        """Kill the process; harmless when it is dead."""
        self.process.kill()

    def bury(self) -> tuple[str, str]:
        """Wait for a killed or dead process and close what belongs to it.

        Returns
        -------
        tuple of str
            How it ended, and the traceback that it left, or "".
        """
        self._reap()
        how = describe_exit(self.process.returncode)
        report = os.pread(self._crash_fd, _CRASH_REPORT_BYTES, 0).decode(errors="replace")
        report = report.partition("\n\nExtension modules")[0]
        self.socket.close()
        os.close(self._crash_fd)
        if self.exit_fd is not None:
            os.close(self.exit_fd)
        return how, report

    def _reap(self) -> None:
        # A killed process is gone at once, unless it hangs inside the kernel (a dead network drive).
        if self.exit_fd is not None:
            poll = select.poll()
            poll.register(self.exit_fd, select.POLLIN)
            poll.poll(_REAP_SECONDS * 1000)
            self.process.poll()
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_REAP_SECONDS)


def _unpack(inbox: bytearray) -> list[tuple[int, int, bytes]]:
    """Remove the complete messages from the front of ``inbox``; return them as (kind, number, payload)."""
    messages = []
    start = 0
    while len(inbox) - start >= HEADER.size:
        kind, number, length = HEADER.unpack_from(inbox, start)
        end = start + HEADER.size + length
        if end > len(inbox):
            break
        messages.append((kind, number, bytes(memoryview(inbox)[start + HEADER.size : end])))
        start = end
    del inbox[:start]
    return messages


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker: that of this process, but one thread for every library."""
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1")}


def _exit_descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel: the socket's end has to do
        return None
