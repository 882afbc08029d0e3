"""Pickles over a socket between processes that one program has started, and how a process has ended."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")


class Channel:
    """One end of a socket that carries pickles.

    Attributes
    ----------
    closed : bool
        Whether the other end is gone.
    """

    def __init__(self, one: socket.socket) -> None:
        self._socket, self._waiting, self.closed = one, bytearray(), False

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Send an object; nothing happens where the other end is gone."""
        data = pickle.dumps(message)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError:
            self.closed = True

    def receive(self, *, wait: bool = True) -> list[Any]:
        """Return the objects that have come, after one read."""
        try:
            data = self._socket.recv(1 << 20, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.closed = not data
        self._waiting += data
        found = []
        while len(self._waiting) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._waiting)
            end = _LENGTH.size + length
            if len(self._waiting) < end:
                break
            found.append(pickle.loads(bytes(self._waiting[_LENGTH.size : end])))
            del self._waiting[:end]
        return found

    def drain(self) -> list[Any]:
        """Return all that the other end has sent, which has ended."""
        found: list[Any] = []
        while True:
            before = len(self._waiting)
            more = self.receive(wait=False)
            found += more
            if self.closed or (not more and len(self._waiting) == before):
                return found

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
