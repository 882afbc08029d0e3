"""What carries messages between the leaders of nodes, and the link over sockets among simulated nodes."""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tartan.errors import RankLostError

Room = Callable[[bytes, int], tuple[memoryview, Any]]
"""Returns where the bulk of a message is to come, given the message and its bytes, and what stands for it then."""
Share = tuple[str, int, bytes]
"""By which another process of this machine maps the memory of a node: a path, bytes, and a token."""
Arrived = tuple[int, bytes, Any]
"""The node that a message comes from, the message, and what stands for its bulk; None where it has none."""


class NodeLink(Protocol):
    """Carries messages between leaders, in order for each pair of nodes; used by one thread.

    A message may have a bulk, which goes from where it lies to where the receiver has room, without a copy of the link.
    ``send`` does not wait for the receiver. ``receive`` waits for a message, at most some seconds, and returns early
    when ``wake`` becomes readable; it raises RankLostError when a node is gone that has not said that it ends.

    Attributes
    ----------
    near : dict of int to tuple
        That of each other node whose memory this one maps, and that maps this one's; known when it is open.
    """

    near: dict[int, Share]

    def open(self, room: Room) -> None:
        """Join the other nodes, in the thread that will use the link."""
        ...

    def send(
        self, node: int, message: bytes, bulk: memoryview | None = None, sent: Callable[[], None] | None = None
    ) -> None:
        """Send a message to another node, and its bulk, which stays as it is until ``sent`` is called."""
        ...

    def receive(self, wake: int, seconds: float) -> list[Arrived]:
        """Return the messages that have come whole."""
        ...

    def forget(self, node: int) -> None:
        """Expect that a node ends: that is no loss."""
        ...

    def close(self, parting: bytes) -> None:
        """Send what is queued and, where no launcher collects reports, a parting to all nodes; end."""
        ...


LENGTHS = struct.Struct("<QQ")  # of a message and of its bulk
# By judgement: so much is copied behind its message rather than sent by a call of its own; the sockets of Linux hold
# three times as much. `tartan bench comm parts=link` measures both sides of it.
SMALL_BULK = 1 << 16


class _Stream:
    """What comes over a socket, cut into messages.

    Parameters
    ----------
    room : Room
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._waiting = bytearray()
        self._message, self._bulk, self._token = b"", memoryview(b""), None

    @property
    def rest(self) -> memoryview:
        """Where the rest of a bulk is to come; empty where something else comes next."""
        return self._bulk

    def note_bulk(self, n_bytes: int) -> list[tuple[bytes, Any]]:
        """Take note that so many bytes of a bulk have come into ``rest``."""
        self._bulk = self._bulk[n_bytes:]
        return [] if len(self._bulk) else self._end_bulk()

    def take(self, data: bytes) -> list[tuple[bytes, Any]]:
        """Take in bytes; return the messages that are whole now."""
        self._waiting += data
        waiting, found = self._waiting, list[tuple[bytes, Any]]()
        while len(waiting) >= LENGTHS.size:
            length, n_bulk = LENGTHS.unpack_from(waiting)
            end = LENGTHS.size + length
            if len(waiting) < end:
                break
            message = bytes(waiting[LENGTHS.size : end])
            del waiting[:end]
            if not n_bulk:
                found.append((message, None))
                continue
            self._message = message
            self._bulk, self._token = self._room(message, n_bulk)
            here = min(n_bulk, len(waiting))
            self._bulk[:here] = waiting[:here]
            del waiting[:here]
            self._bulk = self._bulk[here:]
            if len(self._bulk):
                break
            found += self._end_bulk()
        return found

    def _end_bulk(self) -> list[tuple[bytes, Any]]:
        ended, self._message, self._token = (self._message, self._token), b"", None
        return [ended]


class SocketLink:
    """A link over sockets, one for each other node: the loopback among simulated nodes.

    Parameters
    ----------
    sockets : mapping of int to socket
        By node.
    """

    def __init__(self, sockets: dict[int, socket.socket]) -> None:
        self.near: dict[int, Share] = {}
        self._sockets = sockets
        self._selector = selectors.DefaultSelector()
        self._streams: dict[int, _Stream] = {}
        self._queues: dict[int, deque[tuple[memoryview, Callable[[], None] | None]]] = {
            node: deque() for node in sockets
        }
        self._ended: set[int] = set()
        for node, one in sockets.items():
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, node)
        self._wake: int | None = None

    def open(self, room: Room) -> None:
        """Take note of where bulks come; the sockets are connected."""
        self._streams = {node: _Stream(room) for node in self._sockets}

    def send(
        self, node: int, message: bytes, bulk: memoryview | None = None, sent: Callable[[], None] | None = None
    ) -> None:
        """Queue a message, and send what the socket takes."""
        n_bulk = 0 if bulk is None else len(bulk)
        framed = LENGTHS.pack(len(message), n_bulk) + message
        queue = self._queues[node]
        if bulk is None or n_bulk <= SMALL_BULK:
            queue.append((memoryview(framed if bulk is None else framed + bulk), sent))
        else:
            queue.append((memoryview(framed), None))
            queue.append((bulk, sent))
        self._push(node)

    def _push(self, node: int) -> None:
        queue, one = self._queues[node], self._sockets[node]
        try:
            while queue:
                part, sent = queue[0]
                n_sent = one.send(part)
                if n_sent < len(part):
                    queue[0] = part[n_sent:], sent
                    continue
                queue.popleft()
                if sent is not None:
                    sent()
        except BlockingIOError:
            pass
        except OSError:
            queue.clear()  # the loss is found where messages are received
        if one in self._selector.get_map():
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if queue else 0)
            self._selector.modify(one, events, node)

    def receive(self, wake: int, seconds: float) -> list[Arrived]:
        """Return the messages that have come, with the nodes that they come from."""
        if self._wake is None:
            self._wake = wake
            self._selector.register(wake, selectors.EVENT_READ, None)
        messages: list[Arrived] = []
        for key, events in self._selector.select(seconds):
            if key.data is None:
                os.eventfd_read(wake)
                continue
            if events & selectors.EVENT_WRITE:
                self._push(key.data)
            if events & selectors.EVENT_READ:
                messages += ((key.data, *found) for found in self._read(key.data))
        return messages

    def _read(self, node: int) -> list[tuple[bytes, Any]]:
        """Read once; a bulk comes straight to its place."""
        stream, one = self._streams[node], self._sockets[node]
        try:
            if len(stream.rest):
                if n_bytes := one.recv_into(stream.rest):
                    return stream.note_bulk(n_bytes)
            elif data := one.recv(SMALL_BULK):
                return stream.take(data)
        except BlockingIOError:
            return []
        except OSError:
            pass
        self._selector.unregister(one)
        if node not in self._ended:
            raise RankLostError(f"node process {node} is lost", context={"node": node})
        return []

    def forget(self, node: int) -> None:
        """Expect that a node ends."""
        self._ended.add(node)

    def close(self, parting: bytes) -> None:
        """Send what is queued, and end; the launcher of the nodes needs no parting."""
        for node, one in self._sockets.items():
            try:
                one.setblocking(True)
                one.settimeout(1.0)
                for part, _ in self._queues[node]:
                    one.sendall(part)
            except OSError:
                pass  # it has ended
            one.close()
        self._selector.close()
