"""Messages between the leaders of ranks (``tartan.comm``) over an engine of a cluster: each member of it is a node."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import struct
import threading
from collections.abc import Mapping, Sequence

from tartan.cluster.engine import LIMIT_BYTES, Call, ClusterEngine, ClusterView, Handler
from tartan.errors import ClusterError, RankLostError, TransportError

_PART_BYTES = LIMIT_BYTES // 2
_HEAD = struct.Struct("<Q?")  # number of the part for its receiver, whether it ends a message
_DO = "leader"
_ANSWER_SECONDS, _RETRY_SECONDS, _VIEW_SECONDS, _CLOSE_SECONDS = 10.0, 0.01, 0.5, 1.0


class EngineLink:
    """A link of leaders: start the engine with ``handlers`` and ``on_view``, and hand the link to the leader.

    Messages are cut into parts that an engine carries. Each part is a request, so that a receiver that has too many is
    asked again; its number shows a part that has come already. The engine stays open when the link is closed.

    Parameters
    ----------
    engine : ClusterEngine
        Of this node.
    members : sequence of str
        The member that is each node.
    join_seconds : float
        Longest wait for all of them.
    """

    def __init__(self, engine: ClusterEngine, members: Sequence[str], *, join_seconds: float = 60.0) -> None:
        self._engine, self._members, self._join_seconds = engine, tuple(members), join_seconds
        self._places = {name: node for node, name in enumerate(members)}
        self._changed = threading.Condition()
        self._view = ClusterView()
        self._ready, self._closed = os.eventfd(0, os.EFD_NONBLOCK), False
        self._parts = {node: bytearray() for node in range(len(self._members))}
        self._n_parts = dict.fromkeys(self._parts, 0)
        self._messages: list[tuple[int, bytes]] = []
        self._lost: dict[int, str] = {}
        self._forgotten: set[int] = set()
        self._queue: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name="tartan-leader-link", daemon=True)
        self.handlers: Mapping[str, Handler] = {_DO: self._take}

    # What the engine calls

    def on_view(self, view: ClusterView) -> None:
        """Note who is a member, and who is lost."""
        with self._changed:
            self._view = view
            for name, reason in view.gone.items():
                if name in self._places:
                    self._lose(self._places[name], reason)
            self._changed.notify_all()

    def _take(self, call: Call) -> bytes:
        number, ends = _HEAD.unpack_from(call.body)
        node = self._places[call.sender]
        with self._changed:
            if number == self._n_parts[node]:
                self._n_parts[node] += 1
                self._parts[node] += call.body[_HEAD.size :]
                if ends:
                    self._messages.append((node, bytes(self._parts[node])))
                    self._parts[node].clear()
                    self._poke()
        return b""

    def _poke(self) -> None:
        if not self._closed:
            os.eventfd_write(self._ready, 1)

    def _lose(self, node: int, reason: str) -> None:
        if node not in self._forgotten:
            self._lost.setdefault(node, reason)
            self._poke()

    # What the leader calls

    def open(self) -> None:
        """Wait for all nodes.

        Raises
        ------
        TransportError
            If one does not come.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing() or self._lost, self._join_seconds):
                raise TransportError(f"{', '.join(self._missing())} did not join within {self._join_seconds:g} s")
        self._sender.start()

    def _missing(self) -> list[str]:
        return [name for name in self._members if name not in self._view.members]

    def send(self, node: int, message: bytes) -> None:
        """Queue a message for another node."""
        self._queue.put((node, message))

    def receive(self, wake: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return the messages that have come; raise RankLostError once for a node that is lost."""
        looked = select.poll()
        for one in (wake, self._ready):
            looked.register(one, select.POLLIN)
        for one, _ in looked.poll(seconds * 1000):
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(one)
        with self._changed:
            messages, self._messages = self._messages, []
            lost = None if messages else next((node for node in self._lost if node not in self._forgotten), None)
            if lost is None:
                return messages
            self._forgotten.add(lost)
            raise RankLostError(f"node process {lost} is lost: {self._lost[lost]}", context={"node": lost})

    def forget(self, node: int) -> None:
        """Expect that a node ends."""
        with self._changed:
            self._forgotten.add(node)

    def close(self, parting: bytes) -> None:
        """Send what is queued; who has started the engine ends it, and collects reports."""
        self._queue.put(None)
        if self._sender.is_alive():
            self._sender.join(_CLOSE_SECONDS)
        with self._changed:
            self._closed = True
            os.close(self._ready)

    # The thread that sends

    def _send_all(self) -> None:
        n_sent = [0] * len(self._members)
        while (item := self._queue.get()) is not None:
            node, message = item
            for start in range(0, max(len(message), 1), _PART_BYTES):
                ends = start + _PART_BYTES >= len(message)
                body = _HEAD.pack(n_sent[node], ends) + message[start : start + _PART_BYTES]
                n_sent[node] += 1
                try:
                    self._ask(node, body)
                except ClusterError as error:
                    self._failed(node, error)
                    break

    def _failed(self, node: int, error: ClusterError) -> None:
        """Take a node for lost that a request has not reached; the view says why, a little later."""
        with self._changed:
            self._changed.wait_for(lambda: node in self._lost, _VIEW_SECONDS)
            self._lose(node, str(error))

    def _ask(self, node: int, body: bytes) -> None:
        """Send a part, again where the receiver had no room for it."""
        pause = threading.Event()
        while True:
            try:
                self._engine.request(self._members[node], _DO, body, timeout_seconds=_ANSWER_SECONDS)
                return
            except TransportError as error:
                if not error.retryable:
                    raise
                pause.wait(_RETRY_SECONDS)
