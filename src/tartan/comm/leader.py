"""What a node exchanges with other nodes: one process speaks for all of its ranks, over a link.

For a collective, each leader sends one message to each other node of the group, with the contributions of its ranks,
and a second one where some are too large for the first. How many messages go does not depend on the ranks of a node.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from tartan._native import CommProxy
from tartan.comm.state import DEADLOCK, DEFECT, LOST, NO_ROOM, all_wait
from tartan.errors import RankLostError

Meeting = tuple[int, int, int, int, int]

_FRAME = struct.Struct("<BxxxIII")  # kind, first rank of the group, its number, round
_POINT, _COLLECTIVE, _STOP, _STUCK, _END = range(5)
_STATE = struct.Struct("<QQQ")  # stamp, messages sent, messages received
_HEAD_BYTES = 72
_TURN_SECONDS = 0.1


class NodeLink(Protocol):
    """Carries messages between leaders, in order for each pair of nodes; used by one thread.

    ``send`` does not wait for the receiver. ``receive`` waits for a message, at most some seconds, and returns early
    when ``wake`` becomes readable; it raises RankLostError when a node is gone that has not said that it ends.
    """

    def open(self) -> None:
        """Join the other nodes, in the thread that will use the link."""
        ...

    def send(self, node: int, message: bytes) -> None:
        """Send a message to another node."""
        ...

    def receive(self, wake: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return the messages that have come, with the nodes that they come from."""
        ...

    def forget(self, node: int) -> None:
        """Expect that a node ends: that is no loss."""
        ...

    def close(self, parting: bytes) -> None:
        """Send what is queued and, where no launcher collects reports, a parting to all nodes; end."""
        ...


class SocketLink:
    """A link over sockets, one for each other node: the loopback among simulated nodes.

    Parameters
    ----------
    sockets : mapping of int to socket
        By node.
    """

    def __init__(self, sockets: dict[int, socket.socket]) -> None:
        self._sockets = sockets
        self._selector = selectors.DefaultSelector()
        self._received = {node: bytearray() for node in sockets}
        self._queues: dict[int, deque[memoryview]] = {node: deque() for node in sockets}
        self._ended: set[int] = set()
        for node, one in sockets.items():
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, node)
        self._wake: int | None = None

    def open(self) -> None:
        """Do nothing: the sockets are connected."""

    def send(self, node: int, message: bytes) -> None:
        """Queue a message, and send what the socket takes."""
        self._queues[node].append(memoryview(struct.pack("<Q", len(message)) + message))
        self._push(node)

    def _push(self, node: int) -> None:
        queue, one = self._queues[node], self._sockets[node]
        try:
            while queue:
                sent = one.send(queue[0])
                if sent == len(queue[0]):
                    queue.popleft()
                else:
                    queue[0] = queue[0][sent:]
        except BlockingIOError:
            pass
        except OSError:
            queue.clear()  # the loss is found where messages are received
        if one in self._selector.get_map():
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if queue else 0)
            self._selector.modify(one, events, node)

    def receive(self, wake: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return the messages that have come, with the nodes that they come from."""
        if self._wake is None:
            self._wake = wake
            self._selector.register(wake, selectors.EVENT_READ, None)
        messages: list[tuple[int, bytes]] = []
        for key, events in self._selector.select(seconds):
            if key.data is None:
                os.eventfd_read(wake)
                continue
            if events & selectors.EVENT_WRITE:
                self._push(key.data)
            if events & selectors.EVENT_READ:
                self._read(key.data)
                messages += ((key.data, message) for message in self._whole(key.data))
        return messages

    def _read(self, node: int) -> None:
        try:
            data = self._sockets[node].recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._received[node] += data
            return
        self._selector.unregister(self._sockets[node])
        if node not in self._ended:
            raise RankLostError(f"node process {node} is lost", context={"node": node})

    def _whole(self, node: int) -> list[bytes]:
        waiting, found = self._received[node], []
        while len(waiting) >= 8:
            (length,) = struct.unpack_from("<Q", waiting)
            if len(waiting) < 8 + length:
                break
            found.append(bytes(waiting[8 : 8 + length]))
            del waiting[: 8 + length]
        return found

    def forget(self, node: int) -> None:
        """Expect that a node ends."""
        self._ended.add(node)

    def close(self, parting: bytes) -> None:
        """Send what is queued, and end; the launcher of the nodes needs no parting."""
        for node, one in self._sockets.items():
            try:
                one.setblocking(True)
                one.settimeout(1.0)
                for part in self._queues[node]:
                    one.sendall(part)
            except OSError:
                pass  # it has ended
            one.close()
        self._selector.close()


class Leader:
    """The thread of a node that talks to other nodes.

    Parameters
    ----------
    link : NodeLink
    proxy : CommProxy
        Of this node.
    nodes : sequence of int
        The node of each rank.
    me : int
        This node.
    stop : callable
        Ends all waits of this node, given a kind and a reason.
    waits : callable
        Returns who waits for what on this node.
    """

    def __init__(
        self,
        link: NodeLink,
        proxy: CommProxy,
        nodes: Sequence[int],
        me: int,
        stop: Callable[[int, str], None],
        waits: Callable[[], str],
    ) -> None:
        self._link, self._proxy, self._nodes, self._me, self._stop = link, proxy, tuple(nodes), me, stop
        self._waits = waits
        self._others = sorted(set(nodes) - {me})
        self._meetings: dict[tuple[int, int, int], _OpenMeeting] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._ended: set[int] = set()
        self._search = _DeadlockSearch(self._others, me)
        self.n_sent = self.n_received = 0
        self._traffic, self._calm_since = (0, 0), time.monotonic()
        self._ends = False
        self._halted = False
        self._parting = b""
        self._opened = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tartan-leader", daemon=True)
        self._thread.start()

    def require_open(self) -> None:
        """Wait until the link is open; raise what has kept it from that."""
        self._opened.wait()
        if self._problem is not None:
            raise self._problem

    def halt(self, kind: int, reason: str) -> None:
        """End all waits here, and let the other nodes do so; from any thread."""
        self._stop(kind, reason)
        self._inbox.append(lambda: self._tell_halt(kind, reason))
        self._wake()

    def say_end(self) -> None:
        """Say that all ranks of this node have returned; from any thread."""
        self._inbox.append(self._tell_end)
        self._wake()

    def end(self, parting: bytes = b"") -> None:
        """Say so, wait until the ranks of the other nodes have returned too, and close the link."""
        self._parting = parting
        self.say_end()
        self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake, or has ended
            os.eventfd_write(self._proxy.outbox_fd, 1)

    def _tell_halt(self, kind: int, reason: str) -> None:
        self._halted = True
        self._post_all(_STOP, struct.pack("<I", kind) + reason.encode())

    def _tell_end(self) -> None:
        if not self._ends:
            self._ends = True
            self._post_all(_END, b"")

    def _run(self) -> None:
        try:
            self._link.open()
        except BaseException as error:
            self._problem = error
            return
        finally:
            self._opened.set()
        try:
            while not (self._ends and (self._halted or self._ended >= set(self._others))):
                try:
                    self._turn()
                except RankLostError as error:
                    self.halt(LOST, str(error))
                except Exception as error:  # the ranks would wait for ever
                    kind = NO_ROOM if isinstance(error, OSError) else DEFECT
                    self.halt(kind, f"the leader of node {self._me}: {type(error).__name__}: {error}")
        finally:
            self._link.close(self._parting)

    def _turn(self) -> None:
        messages = self._link.receive(self._proxy.outbox_fd, _TURN_SECONDS)
        for node, message in messages:
            self._received(node, message)
        posted, meetings = self._proxy.take()
        for node, head, block in posted:
            self._post(node, _POINT, head + block)
        for meeting in meetings:
            self._meet(meeting)
        while self._inbox:
            self._inbox.popleft()()
        now, traffic = time.monotonic(), (self.n_sent, self.n_received)
        if traffic != self._traffic:
            self._traffic, self._calm_since = traffic, now
        elif now - self._calm_since >= _TURN_SECONDS:
            self._calm_since = now
            self._look_for_deadlock()

    def _post(self, node: int, kind: int, payload: bytes, about: tuple[int, int, int] = (0, 0, 0)) -> None:
        if kind in (_POINT, _COLLECTIVE):
            self.n_sent += 1
        self._link.send(node, _FRAME.pack(kind, *about) + payload)

    def _post_all(self, kind: int, payload: bytes) -> None:
        for node in self._others:
            self._post(node, kind, payload)

    def _received(self, node: int, message: bytes) -> None:
        kind, *about = _FRAME.unpack_from(message)
        payload = message[_FRAME.size :]
        if kind in (_POINT, _COLLECTIVE):
            self.n_received += 1
        if kind == _POINT:
            self._proxy.deliver(payload[:_HEAD_BYTES], payload[_HEAD_BYTES:])
        elif kind == _COLLECTIVE:
            exchange = self._meetings.setdefault((about[0], about[1], about[2]), _OpenMeeting())
            exchange.payloads[node] = payload
            self._complete((about[0], about[1], about[2]))
        elif kind == _STOP:
            self._stop(struct.unpack_from("<I", payload)[0], payload[4:].decode())
            self._halted = True
        elif kind == _STUCK:
            self._search.told(node, _STATE.unpack_from(payload), payload[_STATE.size :].decode())
        else:
            self._ended.add(node)
            self._link.forget(node)

    def _meet(self, meeting: Meeting) -> None:
        group, slot, _, _, round_number = meeting
        members = self._proxy.members(slot)
        key = (members[0], group, round_number)
        exchange = self._meetings.setdefault(key, _OpenMeeting())
        exchange.meeting = meeting
        for place, member in enumerate(members):
            exchange.places.setdefault(self._nodes[member], []).append(place)
        packed = self._proxy.pack(meeting, exchange.places[self._me])
        for node in exchange.places:
            if node != self._me:
                self._post(node, _COLLECTIVE, packed, key)
        self._complete(key)

    def _complete(self, key: tuple[int, int, int]) -> None:
        """Let the ranks go on, if all nodes of the group have sent what is theirs."""
        exchange = self._meetings[key]
        if exchange.meeting is None or not exchange.payloads.keys() >= exchange.places.keys() - {self._me}:
            return
        del self._meetings[key]
        for node, payload in exchange.payloads.items():
            self._proxy.unpack(exchange.meeting, exchange.places[node], payload)
        self._proxy.release(exchange.meeting[1], key[2])

    def _look_for_deadlock(self) -> None:
        """Tell the others where this node stands; stop when all have stood still, twice, and nothing is under way."""
        stamp = 0 if self._ends else self._proxy.stuck()
        state = None if stamp is None else (stamp, self.n_sent, self.n_received)
        text = "" if self._ends or state is None else self._waits()
        if self._search.stands(state, text) and state is not None:
            self._post_all(_STUCK, _STATE.pack(*state) + text.encode())
        if self._search.found() and not (self._ends or self._halted):
            self.halt(DEADLOCK, all_wait(self._search.texts()))


class _OpenMeeting:
    """What has come for one meeting: that of this node's ranks, and the contributions of other nodes."""

    def __init__(self) -> None:
        self.meeting: Meeting | None = None
        self.places: dict[int, list[int]] = {}
        self.payloads: dict[int, bytes] = {}


class _DeadlockSearch:
    """Whether all nodes stand still: each says so again and again with its counts, and nothing changes in between."""

    def __init__(self, others: Sequence[int], me: int) -> None:
        self._me = me
        self._last: dict[int, tuple[int, ...] | None] = dict.fromkeys([*others, me])
        self._turns: dict[int, int] = dict.fromkeys([*others, me], 0)
        self._texts: dict[int, str] = {}

    def stands(self, state: tuple[int, ...] | None, text: str) -> bool:
        """Note this node's own state; return whether to tell it."""
        if state is None:
            self._last[self._me], self._turns[self._me] = None, 0
            return False
        self.told(self._me, state, text)
        return True

    def texts(self) -> list[str]:
        """Return who waits for what, node after node."""
        return [text for _, text in sorted(self._texts.items()) if text]

    def told(self, node: int, state: tuple[int, ...], text: str) -> None:
        """Note the state of a node and who waits there; any change begins the count of all anew."""
        if self._last[node] != state:
            self._turns = dict.fromkeys(self._turns, 0)
        self._last[node], self._texts[node] = state, text
        self._turns[node] += 1

    def found(self) -> bool:
        """Whether every node has stood still for three turns, and all that was sent has arrived."""
        if any(turns < 3 for turns in self._turns.values()):
            return False
        states = [state for state in self._last.values() if state is not None]
        return sum(state[1] for state in states) == sum(state[2] for state in states)
