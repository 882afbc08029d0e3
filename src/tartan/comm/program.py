"""What a rank runs: a function or a script, and the report of how it has ended."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import cloudpickle

from tartan._native import CommArena
from tartan.base.format import LONGEST_LINE, clip_middle, printable, reason_of, traceback_of
from tartan.base.freed_memory import set_freed_memory
from tartan.base.logs import LogSettings, host_name, logger_of, logging_to, rank_settings
from tartan.base.signals import end, finish_threads_and_exit_handlers, forget_parent
from tartan.comm.channel import Channel
from tartan.comm.link import Share
from tartan.comm.link_mpi import without_mpi
from tartan.comm.process import enter, was_asked
from tartan.comm.slots import SlotPlan, run_slots
from tartan.comm.state import LOST
from tartan.errors import ClusterError, ConfigError, RankLostError, TartanError

_log = logger_of(__name__)

# By judgement: a rank that is told to stop ends its call and prints its error; then its process ends. `tartan bench
# comm_kill` wants all to end within a second.
_GRACE_SECONDS = 0.4
_SET_DEATH_SIGNAL = 1

# By limit of glibc: 32 MiB is DEFAULT_MMAP_THRESHOLD_MAX, the largest that its own adaptation reaches. `tartan bench
# comm parts=programs` measured the three programs with it.
_MAPPED_BYTES = 32 << 20


@dataclass(frozen=True)
class Program:
    """What each rank does: a pickled function of its communicator, or a script with its arguments.

    ``modules`` are imported once a node, before the ranks are forked.
    """

    function: bytes | None = None
    modules: tuple[str, ...] = ()
    script: str = ""
    arguments: tuple[str, ...] = ()


def sendable(what: Any, name: str) -> bytes:
    """Return the pickle by which something travels between the ranks and the process that starts them.

    Raises
    ------
    ConfigError
        If it cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(what))
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be sent between processes: {type(error).__name__}: {error}; open or create on the rank "
            "what has no pickle, such as files, locks and connections"
        ) from error


@dataclass(frozen=True)
class RankEnding:
    """How a rank has ended.

    Attributes
    ----------
    rank : int
    result : bytes
        Pickle of what its function has returned.
    failure : str, optional
        What it has raised, as text.
    error : bytes
        The exception as a pickle, where it has one.
    lost : str
        How its process has ended, where it ended without a report.
    exit_status : int
        Of a script.
    asked : bool
        Whether a script has asked for its communicator.
    """

    rank: int
    result: bytes = b""
    failure: str | None = None
    error: bytes = b""
    lost: str = ""
    exit_status: int = 0
    asked: bool = True

    def exception(self) -> Exception | KeyboardInterrupt:
        """Return what the rank has raised, as near as it can be."""
        if self.lost:
            return RankLostError(self.lost, context={"rank": self.rank})
        try:
            error = pickle.loads(self.error)
        except Exception:  # an exception whose class cannot be found here, or that cannot be made again
            error = None
        if isinstance(error, Exception | KeyboardInterrupt):
            return error
        return ClusterError(f"rank {self.rank} has failed: {self.failure}")


def log_ending(report: RankEnding) -> None:
    """Log how a rank has ended."""
    if report.lost:
        _log.warning("rank %d is lost: %s", report.rank, report.lost)
    elif report.failure is not None:
        _log.warning("rank %d has failed: %s", report.rank, report.failure)
    else:
        _log.info("rank %d has ended", report.rank)


def report_followed(rank: int, reason: str) -> RankEnding:
    """Return the report of a rank that was ended because of another one."""
    return RankEnding(rank, failure=reason, error=pickle.dumps(RankLostError(reason)))


@dataclass(frozen=True)
class RankPlace:
    """The place of a process among the ranks.

    Attributes
    ----------
    arena : CommArena
        The memory of its node.
    local, rank : int
        Its number on the node and among all; of slots, that of the first.
    nodes : tuple of int
        The node of each rank.
    near : dict of int to tuple
        By which to map the memory of other nodes of this machine.
    """

    arena: CommArena
    local: int
    rank: int
    nodes: tuple[int, ...]
    near: dict[int, Share] = field(default_factory=dict)


def await_beginning(report_to: socket.socket, parent: int) -> dict[int, Share]:
    """Wait until the node process lets this rank begin; end with it, also where that is killed.

    Return the memory of other nodes of this machine that ranks may read.
    """
    os.setpgid(0, 0)  # a Ctrl-C of the terminal reaches the node process, which passes it on
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    for name in set(os.environ) - set(without_mpi(os.environ)):
        del os.environ[name]
    told = Channel(report_to)
    near: list[dict[int, Share]] = []
    while os.getppid() == parent and not told.closed and not near:
        near = told.receive()
    if not near:
        os._exit(1)
    return near[0]


def run_rank(program: Program, seat: RankPlace, report_to: socket.socket, log: LogSettings) -> NoReturn:
    """Be a rank: run the program to its end, with its threads and exit handlers, report, and end the process.

    A rank that fails reports first, so that the others hear of it; what it leaves to do has the time that they have.
    """

    def work() -> RankEnding:
        _keep_freed_memory()
        communicator, _ = enter(seat.arena, seat.rank, seat.nodes, seat.near)
        rank = seat.rank
        report = _of_function(program.function, rank, communicator) if program.function else _of_script(program, rank)
        if report.failure is not None:
            return report
        try:
            finish_threads_and_exit_handlers()
            if os.getpid() == process:
                _warn(communicator.end_sends())
        except BaseException as error:
            return _report_failure(rank, error)
        if os.getpid() == process:
            seat.arena.end(seat.local)  # also where a handler of a signal has ended it in a call
        return report

    process = os.getpid()
    forget_parent()
    settings = rank_settings(log, f"{seat.rank}.{host_name()}") if log.level else log
    with logging_to(settings, f"rank-{seat.rank}", needed=False):
        _log.info("rank %d begins: process %d, node %d", seat.rank, process, seat.nodes[seat.rank])
        status = _run_and_report(work, seat, report_to)
    end(status)


def _warn(text: str) -> None:
    if text:
        print(printable(f"tartan: warning: {text}"), file=sys.stderr, flush=True)


def _keep_freed_memory() -> None:
    """Let temporary arrays take memory that was freed before, in place of new pages in each step.

    The thresholds are those that glibc arrives at by itself once a process has freed an array of 32 MiB.
    """
    set_freed_memory(_MAPPED_BYTES, 2 * _MAPPED_BYTES)


def run_gpu(plan: SlotPlan, gpu: int, seat: RankPlace, report_to: socket.socket) -> NoReturn:
    """Be the slots of a GPU: run their kernel, report, and end the process."""

    def work() -> RankEnding:
        try:
            run_slots(plan, gpu, seat.arena, seat.local, seat.rank)
        except BaseException as error:
            return _report_failure(seat.rank, error)
        return RankEnding(seat.rank, cloudpickle.dumps(None))

    status = _run_and_report(work, seat, report_to)
    _flush()
    os._exit(status)


def _run_and_report(work: Callable[[], RankEnding], seat: RankPlace, report_to: socket.socket) -> int:
    """Do the work and report; return the exit status."""
    status, process = 1, os.getpid()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)  # the program may set its own
        node = seat.nodes[seat.rank]
        threading.Thread(target=_watch, args=(report_to, seat.arena, node), name="tartan-watch", daemon=True).start()
        report = work()
        status = 0 if report.failure is None else report.exit_status or 1
        if os.getpid() == process:  # a fork of the rank ends here, too, and reports nothing
            log_ending(report)
            Channel(report_to).send(report)
    except BaseException:
        traceback.print_exc()
    return status


def _watch(report_to: socket.socket, arena: CommArena, node: int) -> None:
    """End this rank when its node process is gone, though it computes or waits."""
    while report_to.recv(1):
        pass
    arena.abort(LOST, f"node process {node} is lost")
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _of_function(function: bytes, rank: int, communicator: Any) -> RankEnding:
    try:
        result = cloudpickle.loads(function)(communicator)
        return RankEnding(rank, sendable(result, f"what rank {rank} has returned"))
    except SystemExit as stop:
        return _report_exit(rank, stop)
    except BaseException as error:
        return _report_failure(rank, error)


def _of_script(program: Program, rank: int) -> RankEnding:
    sys.argv[:] = [program.script, *program.arguments]
    sys.path[0] = str(Path(program.script).resolve().parent)
    try:
        _run_as_main(program.script)
    except SystemExit as stop:
        return _report_exit(rank, stop)
    except BaseException as error:
        if isinstance(error, TartanError):
            print(printable(f"tartan: rank {rank}: {reason_of(error)}"), file=sys.stderr)
        elif not isinstance(error, KeyboardInterrupt):
            print(printable(f"tartan: rank {rank}:\n{traceback_of(error).rstrip()}"), file=sys.stderr)
        return _report_failure(rank, error)
    return RankEnding(rank, asked=was_asked())


def _run_as_main(script: str) -> None:
    """Run a script as the main module, which it stays for its threads and exit handlers."""
    if zipfile.is_zipfile(script):
        runpy.run_path(script, run_name="__main__")
        return
    module = ModuleType("__main__")
    vars(module).update(__file__=script, __builtins__=builtins)
    sys.modules["__main__"] = module
    with io.open_code(str(Path(script).absolute())) as file:
        code = pkgutil.read_code(file)
        if code is None:
            file.seek(0)
            code = compile(file.read(), script, "exec")
    exec(code, vars(module))


def _report_exit(rank: int, stop: SystemExit) -> RankEnding:
    if stop.code is None or stop.code == 0:
        return RankEnding(rank, cloudpickle.dumps(None), asked=was_asked())
    code = (
        stop.code & 0xFF if isinstance(stop.code, int) else 0
    ) or 1  # what is not a number is text, and 256 is not 0
    if not isinstance(stop.code, int):
        print(printable(clip_middle(str(stop.code), LONGEST_LINE)), file=sys.stderr)
    return RankEnding(rank, failure=f"it ended itself with exit status {code}", exit_status=code)


def _report_failure(rank: int, error: BaseException) -> RankEnding:
    if not isinstance(error, TartanError):
        error.add_note(f"on rank {rank}:\n{traceback_of(error).rstrip()}")
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:  # what users raise may hold anything
        pickled = b""
    text = traceback.format_exception_only(type(error), error)[0].strip()
    if isinstance(error, TartanError):
        text = f"{type(error).__name__}: {error}"
    return RankEnding(rank, failure=clip_middle(text, LONGEST_LINE), error=pickled)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nothing reads it any more
            stream.flush()
