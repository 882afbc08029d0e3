"""Start ranks on this machine, watch them, end them together."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import pickle
import resource
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from tartan.base.checks import NOT_NEGATIVE, number, whole
from tartan.base.child import describe_exit, start_child
from tartan.base.format import pluralize
from tartan.base.logs import active_settings, logger_of
from tartan.base.machine import memory, thread_limits
from tartan.base.signals import Repeats
from tartan.comm.channel import Channel
from tartan.comm.communicator import partition
from tartan.comm.node import GRACE, GRACE_SECONDS, PASSED_SIGNALS, SIGNAL, NodeTask
from tartan.comm.process import new_arena
from tartan.comm.program import Program, RankEnding, log_ending, report_followed, sendable
from tartan.comm.rank import RankCommunicator
from tartan.comm.slots import Kernel, SlotDevice, SlotPlan
from tartan.comm.slots_gpu import GpuSlots
from tartan.comm.state import LOST
from tartan.errors import ConfigError, DeadlockError, RankLostError, ResourceError, RunCancelledError

T = TypeVar("T")
_log = logger_of(__name__)

# What a rank takes at least: a Python process with NumPy, most of it shared with its node process.
# By judgement: what a forked Python with NumPy touches of its own; a refusal before the machine swaps. No benchmark.
_RANK_BYTES = 32 << 20
# By convention of schedulers: Slurm kills 30 s after its SIGTERM (KillWait), and so does Kubernetes.
SIGNAL_GRACE_SECONDS = 30.0
"""How long ranks of a script may take to end after a signal."""
# By judgement: standard streams, selectors, libraries; with room. No benchmark.
_OTHER_DESCRIPTORS = 40


def run(  # the shape of a world, which callers name
    cpu: Callable[[RankCommunicator], T] | None = None,
    *,
    gpu: Kernel | None = None,
    cpus: int | Sequence[int] | None = None,
    gpus: int = 1,
    slots: int = 1,
    device: SlotDevice | None = None,
    nodes: int | None = None,
    groups: int = 1,
    modules: Sequence[str] = (),
    grace_seconds: float = GRACE_SECONDS,
) -> list[T]:
    """Run a function once on each CPU rank, and a kernel on each GPU, at the same time; return what each rank returned.

    Parameters
    ----------
    cpu : callable, optional
        Takes the communicator of its rank. It travels as a pickle; so does what it returns.
    gpu : Kernel, optional
        Its slots are ranks, too: on each node, they come after the CPU ranks, those of one GPU after those of another.
        They return None.
    cpus : int or sequence of int, optional
        CPU ranks of a node, each a process, or a number for each node; default: 1, and none without a function.
    gpus, slots : int
        GPUs of a node that run the kernel, and slots of each.
    device : SlotDevice, optional
        Where the kernel runs; default: the GPUs of this machine, through CuPy.
        ``tartan.testing.emulated_gpu.EmulatedGpu`` runs slots on threads of the CPU.
    nodes : int, optional
        Nodes to simulate on this machine, each with a memory and a leader of its own; default: as many as ``cpus`` has
        numbers.
    groups : int
        Memory groups of a node, each with a leader.
    modules : sequence of str
        Imported once a node, before its ranks begin: what takes long to import is better named here.
    grace_seconds : float
        How long ranks may take to end after one of them has failed, or after Ctrl-C.

    Raises
    ------
    Exception
        What the first rank that failed by itself has raised.
    RankLostError
        If the process of a rank or a node has ended without a report.
    DeadlockError
        If all ranks wait for each other, or call different collectives.
    ConfigError
        If the function or what it returns cannot be pickled, a number is wrong, a module cannot be imported, what is
        given as a kernel or device is none, or the kernel does not compile or makes a wrong call.
    DeviceError
        If there is no GPU for a kernel, or no CuPy.
    ResourceError
        If so many ranks do not fit into memory, or so many slots on a GPU.

    Notes
    -----
    The threads of native code are divided among the ranks of the machine, unless RAYON_NUM_THREADS says otherwise.

    Examples
    --------
    >>> run(lambda ranks: ranks.rank * 10, cpus=3)  # doctest: +SKIP
    [0, 10, 20]
    """
    if cpus is None:
        cpus = 0 if cpu is None else 1
    plan = _slot_plan(gpu, device, gpus, slots)
    if cpu is None and (plan is None or cpus):
        raise ConfigError(f"{cpus} CPU ranks have no function to run; give one, or a kernel and no CPU ranks (cpus)")
    if cpu is not None and not callable(cpu):
        raise ConfigError(f"ranks run a function of their communicator, not {cpu!r} (cpu)")
    if not isinstance(modules, list | tuple) or not all(isinstance(name, str) for name in modules):
        raise ConfigError(f"modules are named by a list of texts, not {modules!r} (modules)")
    number("grace_seconds", grace_seconds, NOT_NEGATIVE)
    pickled = sendable(cpu, f"the function {getattr(cpu, '__qualname__', cpu)!s}")
    sendable(plan, "the kernel")
    n_slots = plan.gpus * plan.slots if plan else 0
    program, places = Program(pickled, tuple(modules)), divide_ranks(cpus, nodes, groups, n_slots=n_slots)
    reports = _Launch(program, places, grace_seconds, plan).supervise()
    failure = first_failure(reports)
    if failure is not None:
        raise failure
    return [pickle.loads(report.result) for report in reports]


def run_script(
    script: str,
    arguments: Sequence[str],
    *,
    cpus: int | Sequence[int],
    nodes: int | None = None,
    groups: int = 1,
    signal_grace_seconds: float = SIGNAL_GRACE_SECONDS,
) -> list[RankEnding]:
    """Run a script once on each rank; return how each has ended. See ``run``.

    SIGTERM and SIGUSR1 reach the ranks, where this is called in the main thread and nothing handles them.

    Raises
    ------
    RunCancelledError
        If the ranks ended by SIGTERM, and none of them says more of itself.
    """
    program, places = script_program(script, arguments), divide_ranks(cpus, nodes, groups)
    launch = _Launch(program, places, GRACE_SECONDS, signal_grace_seconds=signal_grace_seconds)
    with launch.passing_signals_on():
        return launch.supervise()


def script_program(script: str, arguments: Sequence[str]) -> Program:
    """Return the program that runs a script, which must be there."""
    if not Path(script).is_file():
        raise ConfigError(f"there is no script {script}")
    return Program(script=script, arguments=tuple(arguments))


def _slot_plan(gpu: Kernel | None, device: SlotDevice | None, gpus: int, slots: int) -> SlotPlan | None:
    if gpu is None:
        return None
    if not isinstance(gpu, Kernel):
        raise ConfigError(f"slots run a comm.Kernel, not {gpu!r} (gpu)")
    if device is not None and not callable(getattr(device, "load", None)):
        raise ConfigError(f"slots run on a device that loads kernels, not {device!r}; leave it out for GPUs (device)")
    whole("gpus", gpus, 1)
    whole("slots", slots, 1)
    if device is None:
        device = GpuSlots()
        device.require(gpus)
    return SlotPlan(gpu, device, gpus, slots)


def ranks_of_nodes(cpus: int | Sequence[int], nodes: int | None, *, least: int = 1) -> tuple[int, ...]:
    """Return the CPU ranks of each node, given one number for all nodes or one for each.

    Raises
    ------
    ConfigError
        If a number is wrong, or there are other nodes than numbers.
    """
    if nodes is not None:
        whole("nodes", nodes, 1, option="--nodes")
    if not isinstance(cpus, list | tuple):
        return (whole("cpus", cpus, least, option="--cpus"),) * (nodes or 1)
    counts = tuple(whole("cpus", count, least, option="--cpus") for count in cpus)
    if not counts or nodes not in (None, len(counts)):
        told = ",".join(map(str, counts)) or "empty"
        raise ConfigError(
            f"cpus is {told}, which says how many ranks each of {pluralize(len(counts), 'node')} has, and there are "
            f"{nodes or 1}; give one number for each node, or one for all (--cpus)"
        )
    return counts


def divide_ranks(cpus: int | Sequence[int], nodes: int | None, groups: int, *, n_slots: int = 0) -> tuple[int, ...]:
    """Return the leader of each rank: ranks are consecutive within a node and a memory group, slots after CPU ranks.

    Raises
    ------
    ConfigError
        If a number is wrong, or a group has no rank.
    ResourceError
        If so many ranks do not fit into memory.
    """
    counts = ranks_of_nodes(cpus, nodes, least=0 if n_slots else 1)
    whole("groups", groups, 1, option="--groups")
    if n_slots and groups > 1:
        raise ConfigError(f"{groups} memory groups on a node with slots: a GPU serves one (--groups)")
    if groups > max(min(counts), 1):
        node, fewest = counts.index(min(counts)), pluralize(min(counts), "CPU rank")
        raise ConfigError(f"{groups} memory groups on node {node} of {fewest}: each needs a rank (--groups, --cpus)")
    needed, available = sum(counts) * _RANK_BYTES, memory().available_bytes
    if needed > available:
        raise ResourceError(
            f"{sum(counts)} ranks need at least {needed >> 20} MiB, and {available >> 20} MiB are available; use fewer "
            "(--cpus)"
        )
    sizes = [stop - start for count in counts for start, stop in partition(count, groups)]
    _require_descriptors(sizes)
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        new_arena(max(sizes), sum(sizes))  # refused here with a reason, not in a node process
    return tuple(itertools.chain.from_iterable([leader] * (size + n_slots) for leader, size in enumerate(sizes)))


def _require_descriptors(sizes: Sequence[int]) -> None:
    """Refuse more ranks or nodes than this process, or a node process, can have open files for."""
    cpus, leaders = sum(sizes), len(sizes)
    needed = max(2 * max(sizes) + leaders, leaders * (leaders + 1)) + _OTHER_DESCRIPTORS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise ResourceError(
            f"{pluralize(cpus, 'rank')} with {pluralize(leaders, 'leader')} need about {needed} open files, "
            "and a process "
            f"may have {limit}; use fewer, or raise the limit (ulimit -n)"
        )


def first_failure(reports: Sequence[RankEnding]) -> BaseException | None:
    """Return why the ranks have failed: what a rank raised by itself, before what others raised because of it."""
    failed = [report for report in reports if report.failure is not None or report.lost]
    if not failed:
        return None
    errors = [(report, report.exception()) for report in failed]

    def weight(pair: tuple[RankEnding, BaseException]) -> tuple[int, int]:
        report, error = pair
        if report.lost:
            return 1, report.rank
        follows = isinstance(error, RankLostError | KeyboardInterrupt)
        return 3 if follows else 2 if isinstance(error, DeadlockError) else 0, report.rank

    return min(errors, key=weight)[1]


class _NodeHandle:
    """A node process, as the launcher sees it."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self.number, self.process, self.channel = number, process, channel
        self.pidfd = os.pidfd_open(process.pid)
        self.ended = self.lost = False
        self.lives = True

    def status(self) -> int:
        """Return how the process has ended, as a return code; it stays a zombie, so that its group keeps its number."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        assert found is not None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def forget(self) -> None:
        """Forget the process."""
        if self.lives:
            self.lives = False
            self.process.wait()
            self.channel.close()
            os.close(self.pidfd)

    def kill(self) -> None:
        """Kill the process and its ranks: they are a process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class _Launch:
    """The node processes of one program, from their start to their end."""

    def __init__(
        self,
        program: Program,
        nodes: tuple[int, ...],
        grace_seconds: float,
        slots: SlotPlan | None = None,
        *,
        signal_grace_seconds: float | None = None,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._signal_grace_seconds = grace_seconds if signal_grace_seconds is None else signal_grace_seconds
        self._terminated = False
        self._inbox, self._outbox = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._size = len(nodes)
        self._reports: dict[int, RankEnding] = {}
        self._selector = selectors.DefaultSelector()
        self._places = nodes
        self._deadline: float | None = None
        self._loss: str | None = None
        self._interrupted = False
        self._nodes: list[_NodeHandle] = []
        links = _sockets(nodes[-1] + 1)
        try:
            for number, sockets in enumerate(links):
                grace = self._signal_grace_seconds
                task = NodeTask(number, nodes, program, {}, grace_seconds, slots, log=active_settings())
                task = replace(task, signal_grace_seconds=grace)
                self._nodes.append(self._start(number, task, sockets))
        except BaseException:
            self._kill()
            for node in self._nodes:
                node.forget()
            os.close(self._inbox)
            os.close(self._outbox)
            raise
        finally:
            for sockets in links:
                for one in sockets.values():
                    one.close()

    def _start(self, number: int, task: NodeTask, sockets: dict[int, socket.socket]) -> _NodeHandle:
        mine, its = socket.socketpair()
        descriptors = {other: one.fileno() for other, one in sockets.items()}
        process = start_child(
            "tartan.comm.node:main",
            its.fileno(),
            pass_fds=(its.fileno(), *descriptors.values()),
            env=os.environ | thread_limits(self._size),
            stdout=1,  # what a program prints is its result
            own_group=True,
        )
        its.close()
        node = _NodeHandle(number, process, Channel(mine))
        node.channel.send(cloudpickle.dumps(replace(task, links=descriptors)))
        self._selector.register(node.pidfd, selectors.EVENT_READ, node)
        self._selector.register(node.channel, selectors.EVENT_READ, node)
        _log.info("node %d is started: process %d, %d ranks", number, process.pid, self._places.count(number))
        return node

    @contextlib.contextmanager
    def passing_signals_on(self) -> Iterator[None]:
        """Pass signals on to the ranks meanwhile that nothing handles, where this is the main thread."""
        passed = []
        if threading.current_thread() is threading.main_thread():
            passed = [one for one in PASSED_SIGNALS if signal.getsignal(one) == signal.SIG_DFL]
        repeats = Repeats()

        def note(came: int, _frame: object) -> None:
            if not repeats.has(came):
                with contextlib.suppress(OSError):  # so many wait that one more tells nothing
                    os.write(self._outbox, bytes([came]))

        for one in passed:
            signal.signal(one, note)
        try:
            yield
        finally:
            for one in passed:
                signal.signal(one, signal.SIG_DFL)

    def supervise(self) -> list[RankEnding]:
        """Wait for all ranks; return their reports, in order."""
        self._selector.register(self._inbox, selectors.EVENT_READ, None)
        try:
            while any(node.lives for node in self._nodes):
                try:
                    self._turn()
                except KeyboardInterrupt:
                    self._interrupt()
        finally:
            self._kill()
            for node in self._nodes:
                node.forget()
            self._selector.close()
            os.close(self._inbox)
            os.close(self._outbox)
        if self._interrupted and not any(_is_own(report) for report in self._reports.values()):
            raise KeyboardInterrupt
        missing = (
            RankEnding(rank, lost=f"node process {self._places[rank]} has ended without a report of rank {rank}")
            for rank in range(self._size)
            if rank not in self._reports
        )
        reports = [report for _, report in sorted(self._reports.items())] + list(missing)
        if self._terminated and first_failure(reports) and not any(one.exit_status or _is_own(one) for one in reports):
            raise RunCancelledError("the ranks have ended by a signal", context={"signal": signal.SIGTERM})
        return reports

    def _interrupt(self) -> None:
        """Let all ranks raise KeyboardInterrupt; the second Ctrl-C kills them."""
        if self._interrupted:
            self._kill()
            raise KeyboardInterrupt
        self._interrupted = True
        self._deadline = self._end_of_grace()
        for node in self._nodes:
            node.channel.send((GRACE, None))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.process.pid, signal.SIGINT)

    def _end_of_grace(self) -> float:
        """Return when this process kills what is left after a signal and its node has not killed."""
        return time.monotonic() + self._signal_grace_seconds + self._grace_seconds

    def _pass_on(self, came: int) -> None:
        """Let the ranks have a signal; the second that ends them kills them."""
        if came == signal.SIGTERM:
            if self._terminated or self._interrupted:
                self._kill()
                return
            self._terminated = True
            self._deadline = self._end_of_grace()
        _log.info("the ranks get signal %d", came)
        for node in self._nodes:
            if node.lives:
                node.channel.send((SIGNAL, came))

    def _turn(self) -> None:
        limit = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        for key, _ in self._selector.select(limit):
            if key.data is None:
                for came in os.read(self._inbox, 64):
                    self._pass_on(came)
                continue
            node: _NodeHandle = key.data
            if key.fd != node.pidfd:
                self._hear(node, node.channel.receive())
            elif node.lives:
                self._reap(node)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._kill()

    def _hear(self, node: _NodeHandle, messages: list[Any]) -> None:
        if node.channel.closed:
            self._selector.unregister(node.channel)
        for kind, content in messages:
            if kind == "rank":
                self._reports[content.rank] = content
                log_ending(content)
            else:
                node.ended = True

    def _reap(self, node: _NodeHandle) -> None:
        """Take note that a node process has ended; its ranks see it themselves, and are killed when they do not."""
        self._selector.unregister(node.pidfd)
        if not node.channel.closed:
            self._hear(node, node.channel.drain())
        if node.ended:
            if any(report.failure is not None or report.lost for report in self._reports.values()):
                node.kill()  # what its ranks have started
            node.forget()
            return
        reason = f"node process {node.number} ended: {describe_exit(node.status())}"
        _log.warning("node %d is lost: %s", node.number, reason)
        if self._loss is None:
            self._loss = reason
        for rank, place in enumerate(self._places):
            if place == node.number and rank not in self._reports:
                self._reports[rank] = (
                    RankEnding(rank, lost=reason) if reason == self._loss else report_followed(rank, self._loss)
                )
        for other in self._nodes:
            if other.lives and other is not node:
                other.channel.send((LOST, reason))
        # Its ranks end by themselves, as a rule; none of them is left when the time is over.
        node.lost = True
        self._deadline = min(self._deadline or math.inf, time.monotonic() + self._grace_seconds)

    def _kill(self) -> None:
        """Kill all that is left."""
        self._deadline = None
        for node in self._nodes:
            if node.lives:
                self._loss = self._loss or f"node process {node.number} did not end in time"
                node.kill()
            if node.lost:
                node.forget()


def _is_own(report: RankEnding) -> bool:
    """Whether a rank has something to say that is more than the stop by Ctrl-C."""
    return bool(report.error) and not isinstance(report.exception(), KeyboardInterrupt | RankLostError)


def _sockets(n_nodes: int) -> list[dict[int, socket.socket]]:
    """Return a socket for each pair of nodes, by node and other node."""
    found: list[dict[int, socket.socket]] = [{} for _ in range(n_nodes)]
    for one, other in itertools.combinations(range(n_nodes), 2):
        found[one][other], found[other][one] = socket.socketpair()
    return found
