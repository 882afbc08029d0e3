"""A link between leaders that fails on command: messages that are lost or late, and nodes that cannot be reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tartan.comm.link import Arrived, NodeLink, Room, Share, SocketLink
from tartan.errors import RankLostError


class FailingLink:
    """A ``NodeLink`` whose messages fail on command. Commands come from any thread.

    Parameters
    ----------
    link : NodeLink
        Carries what is not lost.
    """

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self.near: dict[int, Share] = {}
        self._changed = threading.Condition()
        self._drops = self._holds = False
        self._held: list[tuple[int, bytes, memoryview | None]] = []
        self._cut: set[int] = set()
        self._found: set[int] = set()
        self._n_met = 0

    # Commands

    def drop(self) -> None:
        """Lose all messages that are sent from now on."""
        with self._changed:
            self._drops = True

    def hold(self) -> None:
        """Keep all messages that are sent from now on, until ``release``."""
        with self._changed:
            self._holds = True

    def release(self) -> None:
        """Let messages pass; those that were kept go first, in their order."""
        with self._changed:
            self._drops = self._holds = False

    def cut(self, node: int) -> None:
        """Lose a node: nothing goes there or comes from there, and the next call that receives finds it gone."""
        with self._changed:
            self._cut.add(node)

    def wait_met(self, n_messages: int, seconds: float = 60.0) -> bool:
        """Wait until some messages were lost or kept; return whether they were in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._n_met >= n_messages, seconds)

    # NodeLink

    def open(self, room: Room) -> None:
        """Join the other nodes."""
        self._link.open(room)

    def send(
        self, node: int, message: bytes, bulk: memoryview | None = None, sent: Callable[[], None] | None = None
    ) -> None:
        """Send a message to another node, or do what was commanded."""
        with self._changed:
            if self._drops or self._holds or node in self._cut:
                if self._holds and node not in self._cut:
                    self._held.append((node, message, None if bulk is None else memoryview(bytes(bulk))))
                if sent is not None:
                    sent()
                self._n_met += 1
                self._changed.notify_all()
                return
        self._flush()
        self._link.send(node, message, bulk, sent)

    def receive(self, wake: int, seconds: float) -> list[Arrived]:
        """Return the messages that have come; raise where a node was cut off."""
        with self._changed:
            new = self._cut - self._found
            self._found |= new
            holds, cut = self._holds, set(self._cut)
        if new:
            raise RankLostError(f"node process {min(new)} is lost")
        if not holds:
            self._flush()
        return [arrived for arrived in self._link.receive(wake, seconds) if arrived[0] not in cut]

    def _flush(self) -> None:
        with self._changed:
            held, self._held = self._held, []
        for node, message, bulk in held:
            self._link.send(node, message, bulk)

    def forget(self, node: int) -> None:
        """Expect that a node ends."""
        self._link.forget(node)

    def close(self, parting: bytes) -> None:
        """Send what was kept, and end."""
        self._flush()
        self._link.close(parting)


def failing_links(links: list[FailingLink]) -> Callable[[dict[int, socket.socket]], FailingLink]:
    """Return what makes the link of a node for ``ThreadWorld``, and adds it to a list, in the order of the nodes."""

    def made(sockets: dict[int, socket.socket]) -> FailingLink:
        links.append(FailingLink(SocketLink(sockets)))
        return links[-1]

    return made
