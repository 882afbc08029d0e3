"""The node process: starts CPU ranks and watches them, runs the proxy of slots and the leader, ends all together.

Ranks are forks of it, made before it has a thread: they share its memory by inheritance, and start in milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import selectors
import signal
import socket
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from tartan._native import CommArena, CommProxy
from tartan.comm import program
from tartan.comm.channel import Channel, ending
from tartan.comm.leader import Leader, NodeLink, SocketLink
from tartan.comm.process import new_arena, waits
from tartan.comm.slots import SlotPlan
from tartan.comm.state import DEADLOCK, LOST, all_wait
from tartan.errors import ConfigError

_TURN_SECONDS = 0.1
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
        How long the ranks may take to end once one has failed or a signal came.
    slots : tartan.comm.slots.SlotPlan, optional
        The slots of the node, its last ranks.
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
        self._arena: CommArena = new_arena(len(self._ranks), len(task.nodes), pinned=pinned)
        self._selector = selectors.DefaultSelector()
        self._deadline: float | None = None
        self._children: list[_Child] = []
        self._late: set[str] = set()
        self._stopped = False
        self.reports: dict[int, program.RankEnding] = {}
        self.n_interrupts = self._n_passed_on = 0
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
            if self._task.held:
                program.await_beginning(its, self._pid)
            seat = program.RankPlace(self._arena, local, self._ranks[local], self._task.nodes)
            if gpu is None or plan is None:
                program.run_rank(self._task.program, seat, its)
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

    def join(self, link: NodeLink) -> None:
        """Join the other nodes, and let the ranks begin; end them where the nodes do not come together."""
        task = self._task
        self._leader = Leader(link, self._proxy, task.nodes, task.me, self._stop_here, self._waits)
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
                child.channel.send("begin")

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
        if self._n_passed_on < self.n_interrupts:
            self._pass_on(self.n_interrupts)
        for key, _ in self._selector.select(_TURN_SECONDS):
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

    def interrupt(self) -> None:
        """Let all ranks raise KeyboardInterrupt, from a signal handler of this process; the second time kills them."""
        self.n_interrupts += 1

    def _pass_on(self, n_interrupts: int) -> None:
        self._n_passed_on = n_interrupts
        self._deadline = time.monotonic() + self._task.grace_seconds
        for child in self._children:
            if child.lives:
                os.kill(child.pid, signal.SIGINT if n_interrupts == 1 else signal.SIGKILL)

    def _hear_launcher(self) -> None:
        assert self._launcher is not None
        for kind, reason in self._launcher.receive():
            self._stop(kind, reason)
        if self._launcher.closed:
            self._selector.unregister(self._launcher)
            self._stop(LOST, "the process that started the ranks is gone")

    def _hear(self, child: _Child, messages: list[Any]) -> None:
        if child.channel.closed:
            self._selector.unregister(child.channel)
        for report in messages:
            child.report = report
            if report.failure is not None:
                self._stop(LOST, f"{child.name} has failed: {report.failure}")

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
        if self._task.program.script and child.report is not None and child.report.failure is None and code:
            failure = f"it {ending(code)}, at the end of its program"  # it could not write what was left, for example
            child.report = replace(child.report, failure=failure, exit_status=code if code > 0 else 128 - code)
            self._stop(LOST, f"{child.name} has failed: {failure}")
        if child.report is None:
            text = f"{child.name} {ending(code)}"
            reason = self._arena.reason()
            child.report = program.RankEnding(child.ranks[0], lost=text)
            if reason is not None and child.name in self._late:
                child.report = program.followed(child.ranks[0], reason[1])
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
