"""The rank's end of the pipe to its relay: an engine for a process that may hold the interpreter lock for long.

The relay is the parent process. It started this one with ``BOOT``, keeps it a member, and passes messages on. This
process ends with its relay, whatever it is doing at that time.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from tartan.base.ending import end_beside_threads, has_workers
from tartan.base.format import printable
from tartan.base.reasons import reason_of
from tartan.cluster import wire
from tartan.cluster.engine import ClusterView, PeerLost
from tartan.cluster.pipe import HEADER, Kind, PassOn, RankSetup, Unframer, frame
from tartan.cluster.station import Station, fail, settle
from tartan.errors import ClusterError, ConfigError, TartanError

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from tartan.cluster.child import main; main(*sys.argv[1:])"
)
"""Program of the process; its arguments: descriptor of the socket, process id of the relay, entry, search path."""

_PR_SET_PDEATHSIG = 1
_JOIN_SECONDS = 60.0
_RECEIVE_BYTES = 1 << 18


class ChildEngine(Station):
    """The engine of a rank that is a child of its relay.

    Parameters
    ----------
    connection : socket
        To the relay, which sends the setup first.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._tickets = itertools.count(1)
        self._calls: dict[int, Future[bytes]] = {}
        self._joined: Future[bytes] = Future()
        setup = self._setup()
        super().__init__(setup.run, setup.me, setup.capabilities)
        self.credentials, self.resources, self.host = setup.credentials, setup.resources, setup.host
        self._reader = threading.Thread(target=self._read, name="tartan-relay", daemon=True)

    def _setup(self) -> RankSetup:
        head = self._exactly(HEADER.size)
        kind, _, length = HEADER.unpack(head)
        if kind != Kind.SETUP:
            raise ClusterError(f"the relay began with frame {kind} instead of a setup")
        return wire.decode(self._exactly(length), RankSetup)

    def _exactly(self, n_bytes: int) -> bytes:
        data = self._connection.recv(n_bytes, socket.MSG_WAITALL)
        if len(data) < n_bytes:
            raise ClusterError("the relay ended before its setup")
        return data

    # Station

    def _join(self) -> None:
        self._reader.start()
        self._frame(Kind.JOIN, 0)
        try:
            self._joined.result(_JOIN_SECONDS)
        except TimeoutError:
            raise ClusterError(f"the driver did not admit {self.me} within {_JOIN_SECONDS:g} s") from None

    def _carry(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        ticket = 0 if waiting is None else next(self._tickets)
        if waiting is not None:
            self._calls[ticket] = waiting
            waiting.add_done_callback(lambda _: self._calls.pop(ticket, None))
        self._frame(Kind.CALL, ticket, wire.encode(PassOn(peer, data, timeout_seconds)))

    def _depart(self, reason: str) -> None:
        self._frame(Kind.LEAVE, 0, reason.encode())

    # The socket

    def _frame(self, kind: Kind, ticket: int, body: bytes = b"") -> None:
        # A relay that is gone is noticed by the reader.
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(frame(kind, ticket, body))

    def _read(self) -> None:
        unframer = Unframer()
        with contextlib.suppress(OSError):
            while data := self._connection.recv(_RECEIVE_BYTES):
                for kind, ticket, body in unframer.feed(data):
                    self._take(kind, ticket, body)
        reason = "its relay is gone"
        fail(self._joined, ClusterError(f"{self.me} cannot join: {reason}"))
        self.adopt(ClusterView(self.view().epoch + 1, (), {**self.view().gone, self.me: reason}))

    def _take(self, kind: Kind, ticket: int, body: bytes) -> None:
        match kind:
            case Kind.JOINED:
                self.adopt(wire.decode(body, ClusterView))
                settle(self._joined, b"")
            case Kind.REFUSED:
                fail(self._joined, ClusterError(body.decode()))
            case Kind.VIEW:
                self.adopt(wire.decode(body, ClusterView))
            case Kind.MESSAGE:
                self.receive(body, partial(self._frame, Kind.ANSWER, ticket) if ticket else None)
            case Kind.REPLY if ticket in self._calls:
                settle(self._calls[ticket], body)
            case Kind.LOST if ticket in self._calls:
                fail(self._calls[ticket], PeerLost(body.decode()))


def main(descriptor: str, parent_pid: str, entry: str) -> None:
    """Run ``module:function`` with an engine; the process ends with it, as Python does, or with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent_pid):
        os._exit(1)  # it was gone before the line above
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; what it means, the driver decides
    os.set_inheritable(int(descriptor), False)
    status = 1
    try:
        with socket.socket(fileno=int(descriptor)) as connection:
            engine = ChildEngine(connection)
            entry_of(entry)(engine)
            engine.leave()
        status = 0
    except TartanError as error:
        print(printable(f"tartan: error: {reason_of(error)}"), file=sys.stderr)
    if has_workers():
        end_beside_threads(status)
    sys.exit(status)


def entry_of(entry: str) -> Callable[[ChildEngine], Any]:
    """Return the function that ``module:function`` names.

    Raises
    ------
    ConfigError
        If there is none.
    """
    module, _, name = entry.partition(":")
    try:
        found: Callable[[ChildEngine], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"there is no {entry!r} to run as a rank: {error}") from None
    return found
