"""The node process: starts CPU ranks and watches them, runs the proxy of slots and the leader, ends all together.

Ranks are forks of it, made before it has a thread: they share its memory by inheritance, and start in milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import resource
import selectors
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from tartan._native import CommArena, CommProxy
from tartan.base.child import describe_exit
from tartan.base.format import clip_middle
from tartan.base.logs import LogSettings
from tartan.comm import program
from tartan.comm.channel import Channel
from tartan.comm.link import NodeLink, Share, SocketLink
from tartan.comm.process import new_arena, waits
from tartan.comm.slots import SlotPlan
from tartan.comm.state import DEADLOCK, DEFECT, LOST, NO_ROOM, TURN_SECONDS, all_wait
from tartan.errors import ConfigError, RankLostError

# By format: what a launcher tells besides why all must end: a signal for all ranks; that they had one.
SIGNAL, GRACE = "signal", "grace"
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PASSED_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Those that ranks of a script get as they came; after SIGUSR1 they may go on."""
# By judgement: a line or two of each rank's log. No benchmark.
_LONGEST_REASON = 300
"""Of the failure of a rank that all others repeat."""
# By contract: above _GRACE_SECONDS of comm/program (0.4), and `tartan bench comm_kill` wants all to end within a
# second.
GRACE_SECONDS = 0.6


@dataclass(frozen=True)
class NodeTask:
    """What a node process is to do.

    Attributes
    ----------
    me : int
        Number of the node.
    nodes : tuple of int
        The node of each rank.
    program : tartan.comm.program.Program
        What each rank does.
    links : dict of int to int
        Descriptors of the sockets to other nodes.
    grace_seconds : float
        How long the ranks may take to end once one has failed.
    slots : tartan.comm.slots.SlotPlan, optional
        The slots of the node, its last ranks.
    log : LogSettings
        Of the process that starts the nodes.
    signal_grace_seconds : float, optional
        How long they may take once a signal came; default: as long.
    held : bool
        The ranks begin when the nodes have come together, are processes of no ``mpiexec``, and are killed with their
        node process.
    """

    me: int
    nodes: tuple[int, ...]
    program: program.Program
    links: dict[int, int]
    grace_seconds: float = GRACE_SECONDS
    slots: SlotPlan | None = None
    held: bool = False
    log: LogSettings = field(default_factory=LogSettings)
    signal_grace_seconds: float | None = None


@dataclass
class _Child:
    """A process of one rank, or of the slots of a GPU, as its node sees it."""

    name: str
    ranks: tuple[int, ...]
    pid: int
    pidfd: int
    channel: Channel
    report: program.RankEnding | None = None
    lives: bool = True


class NodeProcess:
    """Starts the ranks of a node and supervises them.

    Parameters
    ----------
    task : NodeTask
    launcher : Channel, optional
        Receives the report of each rank; what it sends, or its end, stops the node.
    """

    def __init__(self, task: NodeTask, launcher: Channel | None) -> None:
        self._task, self._launcher, self._pid = task, launcher, os.getpid()
        self._ranks = [rank for rank, node in enumerate(task.nodes) if node == task.me]
        pinned = task.slots is not None and task.slots.device.pins_memory
        n_here, size = len(self._ranks), len(task.nodes)
        self._arena: CommArena = new_arena(n_here, size, pinned=pinned, streams=task.slots is None)
        self._selector = selectors.DefaultSelector()
        self._deadline: float | None = None
        self._children: list[_Child] = []
        self._late: set[str] = set()
        self._stopped = False
        self.reports: dict[int, program.RankEnding] = {}
        self._signals: deque[int] = deque()
        self._n_ends = 0
        plan = task.slots
        n_slots = plan.gpus * plan.slots if plan else 0
        for local in range(len(self._ranks) - n_slots):
            self._children.append(self._fork(f"rank {self._ranks[local]}", local))
        for gpu in range(plan.gpus if plan else 0):
            assert plan is not None
            local = len(self._ranks) - n_slots + gpu * plan.slots
            first = self._ranks[local]
            name = f"GPU {gpu} of node {task.me} (ranks {first} to {first + plan.slots - 1})"
            self._children.append(self._fork(name, local, gpu))
        self._proxy = CommProxy(self._arena, list(task.nodes), task.me, self._ranks[0], n_slots > 0)
        self._leader: Leader | None = None

    def _fork(self, name: str, local: int, gpu: int | None = None) -> _Child:
        """Start a process for a rank, or for the slots of a GPU, of which the first is at this place of the node."""
        plan = self._task.slots
        n_ranks = 1 if gpu is None or plan is None else plan.slots
        mine, its = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads of libraries that rest
            pid = os.fork()
        if pid == 0:
            self._close_inherited(mine)
            near = program.await_beginning(its, self._pid) if self._task.held else {}
            seat = program.RankPlace(self._arena, local, self._ranks[local], self._task.nodes, near)
            if gpu is None or plan is None:
                program.run_rank(self._task.program, seat, its, self._task.log)
            program.run_gpu(plan, gpu, seat, its)
        its.close()
        return _Child(name, tuple(self._ranks[local : local + n_ranks]), pid, os.pidfd_open(pid), Channel(mine))

    def _close_inherited(self, mine: socket.socket) -> None:
        """Close what only the node process holds: the end of a process shows by the end of its sockets."""
        mine.close()
        for child in self._children:
            child.channel.close()
            os.close(child.pidfd)
        if self._launcher is not None:
            self._launcher.close()
        for descriptor in self._task.links.values():
            os.close(descriptor)

    def share(self) -> Share:
        """Return by which nodes of this machine map the memory of this one; nothing where addresses are limited."""
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            return "", 0, b""
        descriptor, n_bytes, token = self._arena.share()
        return f"/proc/{self._pid}/fd/{descriptor}", n_bytes, token

    def join(self, link: NodeLink) -> None:
        """Join the other nodes, and let the ranks begin; end them where the nodes do not come together."""
        task = self._task
        self._leader = Leader(link, self._proxy, task.nodes, task.me, self._stop_here, self._waits, self._arena.view)
        try:
            self._leader.require_open()
        except BaseException:
            for child in self._children:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                os.close(child.pidfd)
                child.channel.close()
            self._selector.close()
            raise
        for child in self._children:
            if task.held:
                child.channel.send(link.near)

    def serve(self) -> None:
        """Supervise until all ranks have ended and, without a failure, those of other nodes have too."""
        for child in self._children:
            self._selector.register(child.pidfd, selectors.EVENT_READ, child)
            self._selector.register(child.channel, selectors.EVENT_READ, child)
        if self._launcher is not None:
            self._selector.register(self._launcher, selectors.EVENT_READ, None)
        last = None
        while any(child.lives for child in self._children):
            self._turn()
            self._notice_stop()
            last = self._look_for_deadlock(last)
        if self._leader is not None:
            self._leader.end(pickle.dumps([replace(report, result=b"") for report in self.reports.values()]))
        self._tell(("ended", self._task.me))
        self._selector.close()
        for child in self._children:
            child.channel.close()

    def _turn(self) -> None:
        while self._signals:
            self._pass_on(self._signals.popleft())
        for key, _ in self._selector.select(TURN_SECONDS):
            if key.data is None:
                self._hear_launcher()
            elif key.fd == key.data.pidfd:
                self._reap(key.data)
            elif key.data.lives:
                self._hear(key.data, key.data.channel.receive())
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._deadline = None
            for child in self._children:
                if child.lives:
                    self._late.add(child.name)
                    os.kill(child.pid, signal.SIGKILL)

    def note_signal(self, number: int) -> None:
        """Pass a signal on to all ranks, from a signal handler of this process; the second that ends them kills them.

        Ranks of a script get what came. Those of a function get SIGINT, and raise KeyboardInterrupt.
        """
        self._signals.append(number if self._task.program.script else signal.SIGINT)

    def _pass_on(self, number: int) -> None:
        if number in ENDING_SIGNALS:
            self._begin_grace()
            self._n_ends += 1
        for child in self._children:
            if child.lives:
                os.kill(child.pid, number if self._n_ends < 2 else signal.SIGKILL)

    def _begin_grace(self) -> None:
        """Give the ranks the time that they have after a signal, also where one of them has failed by it already."""
        grace = self._task.signal_grace_seconds
        self._deadline = time.monotonic() + (self._task.grace_seconds if grace is None else grace)

    def _hear_launcher(self) -> None:
        assert self._launcher is not None
        for kind, what in self._launcher.receive():
            if kind == SIGNAL:
                self._pass_on(what)
            elif kind == GRACE:
                self._begin_grace()
            else:
                self._stop(kind, what)
        if self._launcher.closed:
            self._selector.unregister(self._launcher)
            self._stop(LOST, "the process that started the ranks is gone")

    def _hear(self, child: _Child, messages: list[Any]) -> None:
        if child.channel.closed:
            self._selector.unregister(child.channel)
        for report in messages:
            child.report = report
            if report.failure is not None:
                self._stop(LOST, f"{child.name} has failed: {clip_middle(report.failure, _LONGEST_REASON)}")

    def _reap(self, child: _Child) -> None:
        self._selector.unregister(child.pidfd)
        if not child.channel.closed:
            self._hear(child, child.channel.drain())
        if child.report is None or child.report.failure is not None:
            with contextlib.suppress(ProcessLookupError):  # of a node that was launched, all are one group
                os.killpg(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        child.lives = False
        os.close(child.pidfd)
        code = os.waitstatus_to_exitcode(status)
        late = child.name in self._late  # had done its part, and was killed because of another one
        if (
            self._task.program.script
            and child.report is not None
            and child.report.failure is None
            and code
            and not late
        ):
            # it could not write what was left, for example
            failure = f"its process ended: {describe_exit(code)}, at the end of its program"
            child.report = replace(child.report, failure=failure, exit_status=code if code > 0 else 128 - code)
            self._stop(LOST, f"{child.name} has failed: {failure}")
        if child.report is None:
            text = f"{child.name} ended: {describe_exit(code)}"
            reason = self._arena.reason()
            child.report = program.RankEnding(child.ranks[0], lost=text)
            if reason is not None and late:
                child.report = program.report_followed(child.ranks[0], reason[1])
            self._stop(LOST, text)
        for rank in child.ranks:
            self.reports[rank] = replace(child.report, rank=rank)
            self._tell(("rank", self.reports[rank]))

    def _tell(self, message: Any) -> None:
        if self._launcher is not None and not self._launcher.closed:
            self._launcher.send(message)

    def _look_for_deadlock(self, last: int | None) -> int | None:
        if self._leader is not None:
            return None
        stamp = self._proxy.stuck()
        if stamp is not None and stamp == last:
            self._stop(DEADLOCK, all_wait([self._waits()]))
        return stamp

    def _notice_stop(self) -> None:
        """Let all end after a rank or the proxy has ended the waits here."""
        reason = self._arena.reason()
        if reason is None or self._stopped:
            return
        self._stopped = True
        if self._deadline is None:
            self._deadline = time.monotonic() + self._task.grace_seconds
        if self._leader is not None:
            self._leader.halt(*reason)

    def _stop(self, kind: int, reason: str) -> None:
        """End all waits of all nodes; what follows from the first reason is none."""
        if self._arena.reason() is not None:
            return
        if self._leader is None:
            self._stop_here(kind, reason)
        else:
            self._leader.halt(kind, reason)

    def _stop_here(self, kind: int, reason: str) -> None:
        if self._deadline is None and self._arena.reason() is None:
            self._deadline = time.monotonic() + self._task.grace_seconds
        self._stopped = True
        self._arena.abort(kind, reason)

    def _waits(self) -> str:
        return waits(self._arena, self._ranks[0], len(self._ranks))


def main(descriptor: int) -> None:
    """Run a node process, which reads its task from a socket."""
    for number in (signal.SIGINT, *PASSED_SIGNALS):
        signal.signal(number, signal.SIG_IGN)  # also where they are sent to all processes of a job
    launcher = Channel(socket.socket(fileno=descriptor))
    found: list[Any] = []
    while not found and not launcher.closed:
        found = launcher.receive()
    if not found:
        return
    task: NodeTask = cloudpickle.loads(found[0])
    problem = _import_problem(task.program.modules)
    if problem is not None:
        for rank in (rank for rank, node in enumerate(task.nodes) if node == task.me):
            launcher.send(("rank", program.RankEnding(rank, failure=str(problem), error=pickle.dumps(problem))))
        launcher.send(("ended", task.me))
        return
    node = NodeProcess(task, launcher)
    sockets = {other: socket.socket(fileno=number) for other, number in task.links.items()}
    if sockets:
        node.join(SocketLink(sockets))
    node.serve()


def _import_problem(modules: Sequence[str]) -> ConfigError | None:
    """Import modules; return what is wrong with the first that cannot be."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # what a module does is its own
            return ConfigError(f"{name} cannot be imported: {type(error).__name__}: {error} (modules)")
    return None


# What a node exchanges with other nodes: one process speaks for all of its ranks, over a link.
#
# For a collective, each leader sends one message to each other node of the group, with the contributions of its ranks,
# and a second one where some are too large for the first. How many messages go does not depend on the ranks of a node.

Meeting = tuple[int, int, int, int, int]

_FRAME = struct.Struct("<BxxxIII")  # kind, first rank of the group, its number, round
_POINT, _COLLECTIVE, _STOP, _STUCK, _END = range(5)
_STATE = struct.Struct("<QQQ")  # stamp, messages sent, messages received
_NO_BYTES: NDArray[np.uint8] = np.empty(0, np.uint8)


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
    view : callable
        Returns a range of the memory of this node as an array of bytes.
    """

    def __init__(
        self,
        link: NodeLink,
        proxy: CommProxy,
        nodes: Sequence[int],
        me: int,
        stop: Callable[[int, str], None],
        waits: Callable[[], str],
        view: Callable[[int, int], NDArray[np.uint8]],
    ) -> None:
        self._link, self._proxy, self._nodes, self._me, self._stop = link, proxy, tuple(nodes), me, stop
        self._waits, self._view = waits, view
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
            self._link.open(self._find_room)
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
        messages = self._link.receive(self._proxy.outbox_fd, TURN_SECONDS)
        for node, message, bulk in messages:
            self._on_message(node, message, bulk)
        posted, meetings = self._proxy.take()
        for node, head, block in posted:
            self._post_point(node, head, block)
        for meeting in meetings:
            self._meet(meeting)
        while self._inbox:
            self._inbox.popleft()()
        now, traffic = time.monotonic(), (self.n_sent, self.n_received)
        if traffic != self._traffic:
            self._traffic, self._calm_since = traffic, now
        elif now - self._calm_since >= TURN_SECONDS:
            self._calm_since = now
            self._look_for_deadlock()

    def _post(self, node: int, kind: int, payload: bytes) -> None:
        self._link.send(node, _FRAME.pack(kind, 0, 0, 0) + payload)

    def _post_point(self, node: int, head: bytes, block: tuple[int, int] | None) -> None:
        """Send a message of a rank, its block from where the rank has laid it."""
        self.n_sent += 1
        message = _FRAME.pack(_POINT, 0, 0, 0) + head
        if block is None:
            self._link.send(node, message)
        else:
            self._link.send(node, message, self._view(*block).data, partial(self._proxy.sent, block[0]))

    def _find_room(self, message: bytes, n_bytes: int) -> tuple[memoryview, Any]:
        """Return where the bulk of a message comes: a block at once to where its receiver reads it."""
        if message[0] == _POINT:
            place = self._proxy.reserve(n_bytes)
            return self._view(place, n_bytes).data, (place, n_bytes)
        try:
            packed = np.empty(n_bytes, np.uint8)
        except MemoryError:
            raise OSError(f"there is no memory for {n_bytes:,} bytes of another node") from None
        return packed.data, packed

    def _post_all(self, kind: int, payload: bytes) -> None:
        for node in self._others:
            self._post(node, kind, payload)

    def _on_message(self, node: int, message: bytes, bulk: Any) -> None:
        kind, *about = _FRAME.unpack_from(message)
        payload = message[_FRAME.size :]
        if kind in (_POINT, _COLLECTIVE):
            self.n_received += 1
        if kind == _POINT:
            self._proxy.deliver(payload, bulk)
        elif kind == _COLLECTIVE:
            exchange = self._meetings.setdefault((about[0], about[1], about[2]), _OpenMeeting())
            exchange.payloads[node] = _NO_BYTES if bulk is None else bulk
            self._complete((about[0], about[1], about[2]))
        elif kind == _STOP:
            self._stop(struct.unpack_from("<I", payload)[0], payload[4:].decode())
            self._halted = True
        elif kind == _STUCK:
            self._search.note_waiting(node, _STATE.unpack_from(payload), payload[_STATE.size :].decode())
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
                self.n_sent += 1
                message = _FRAME.pack(_COLLECTIVE, *key)
                self._link.send(node, message, packed.data if packed.size else None)
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
        if self._search.is_found() and not (self._ends or self._halted):
            self.halt(DEADLOCK, all_wait(self._search.texts()))


class _OpenMeeting:
    """What has come for one meeting: that of this node's ranks, and the contributions of other nodes."""

    def __init__(self) -> None:
        self.meeting: Meeting | None = None
        self.places: dict[int, list[int]] = {}
        self.payloads: dict[int, NDArray[np.uint8]] = {}


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
        self.note_waiting(self._me, state, text)
        return True

    def texts(self) -> list[str]:
        """Return who waits for what, node after node."""
        return [text for _, text in sorted(self._texts.items()) if text]

    def note_waiting(self, node: int, state: tuple[int, ...], text: str) -> None:
        """Note the state of a node and who waits there; any change begins the count of all anew."""
        if self._last[node] != state:
            self._turns = dict.fromkeys(self._turns, 0)
        self._last[node], self._texts[node] = state, text
        self._turns[node] += 1

    def is_found(self) -> bool:
        """Whether every node has stood still for three turns, and all that was sent has arrived."""
        if any(turns < 3 for turns in self._turns.values()):
            return False
        states = [state for state in self._last.values() if state is not None]
        return sum(state[1] for state in states) == sum(state[2] for state in states)
