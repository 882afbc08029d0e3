"""One connection for large buffers: sends and receives whole pieces by a deadline, with or without TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

_TIMEVAL = struct.Struct("@ll")
# _PIECE_BYTES and _AT_ONCE_BYTES: a throttled link (bench cluster_stages) waits after each piece, so it must be
# small; else 8 MiB a call keep both sides busy, 1.46 times a bare socket (`tartan bench cluster_bulk`).
_PIECE_BYTES = 1 << 18
_AT_ONCE_BYTES = 8 << 20


class Throttle:
    """Bounds the bytes a second of all connections that share it: a slow link, for tests and benchmarks.

    Parameters
    ----------
    bytes_per_second : float
    clock, sleep : callable
        Tell the time in seconds, and wait.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    def pass_bytes(self, n_bytes: int) -> None:
        """Wait until this number of bytes has gone through, after those of all earlier calls."""
        with self._lock:
            begin = max(self._free_at, self._clock())
            self._free_at = begin + n_bytes / self._rate
            wait = self._free_at - self._clock()
        if wait > 0:
            self._sleep(wait)


class BulkSocket:
    """A connected socket. One thread uses it at a time, but ``hang_up`` may be called from any.

    Parameters
    ----------
    connection : socket
        Plain, or wrapped by TLS with its handshake done.
    throttle : Throttle, optional
    """

    def __init__(self, connection: socket.socket, throttle: Throttle | None = None) -> None:
        self.raw = connection
        self._throttle = throttle
        self._deadline = 0.0
        self._whole = 0 if isinstance(connection, ssl.SSLSocket) else socket.MSG_WAITALL
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)  # the kernel keeps the limits: that takes half the system calls

    def limit(self, seconds: float) -> None:
        """Set the deadline of what follows, except of large buffers."""
        self._deadline = time.monotonic() + seconds

    def send(self, data: bytes) -> None:
        """Send small data."""
        self._wait_at_most(self._deadline - time.monotonic())
        with _in_time():
            self.raw.sendall(data)

    def receive(self, n_bytes: int) -> bytes:
        """Receive exactly this number of bytes, which the caller has bounded."""
        data = bytearray(n_bytes)
        view = memoryview(data)
        while view:
            self._wait_at_most(self._deadline - time.monotonic())
            with _in_time():
                view = view[self._receive(view) :]
        return bytes(data)

    def receive_some(self, n_bytes: int) -> bytes:
        """Receive at least one byte, or none where the peer has hung up."""
        self._wait_at_most(self._deadline - time.monotonic())
        with _in_time():
            return self.raw.recv(n_bytes)

    def send_large(self, view: memoryview, seconds: float) -> None:
        """Send a buffer from where it lies; ``seconds`` bounds every pause."""
        self._wait_at_most(seconds)
        step = _AT_ONCE_BYTES if self._throttle is None else _PIECE_BYTES
        while view:
            piece = view[:step]
            if self._throttle is not None:
                self._throttle.pass_bytes(piece.nbytes)
            with _in_time():
                view = view[self.raw.send(piece) :]

    def receive_large(self, view: memoryview, seconds: float) -> None:
        """Receive into a buffer until it is full; ``seconds`` bounds every pause."""
        self._wait_at_most(seconds)
        with _in_time():  # around all calls: with TLS each of them brings 16 kB
            while view:
                view = view[self._receive(view) :]

    def is_quiet(self) -> bool:
        """Whether nothing has arrived since the last exchange, not even the peer's end."""
        poll = select.poll()
        poll.register(self.raw, select.POLLIN)
        return not poll.poll(0)

    def hang_up(self) -> None:
        """End the connection from any thread: one that waits on it gets an error, and closes it."""
        hang_up(self.raw)

    def close(self) -> None:
        """End the connection and give it back."""
        hang_up(self.raw)
        self.raw.close()

    def _receive(self, view: memoryview) -> int:
        n_bytes = self.raw.recv_into(view, 0, self._whole)
        if not n_bytes:
            raise ConnectionResetError("the other side has hung up")
        return n_bytes

    def _wait_at_most(self, seconds: float) -> None:
        if seconds <= 0:
            raise TimeoutError("timed out")
        limit = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6) or 1)
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """Turn the kernel's word that a limit has passed into TimeoutError."""
    try:
        yield
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise TimeoutError("timed out") from None


def hang_up(connection: socket.socket) -> None:
    """Shut a socket down, below its TLS; nothing happens where it is closed."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
