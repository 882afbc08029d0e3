"""A process of ``mpiexec`` as a node: it forks the ranks of this machine, then joins the other nodes over MPI."""

from __future__ import annotations

import pickle
import platform
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tartan.base.logs import active_settings
from tartan.base.machine import tartan_version
from tartan.base.signals import Repeats
from tartan.comm.launch import divide_ranks, ranks_of_nodes
from tartan.comm.link_mpi import NODES_DIFFER, MpiLink, mpi_place
from tartan.comm.node import ENDING_SIGNALS, GRACE_SECONDS, PASSED_SIGNALS, NodeProcess, NodeTask
from tartan.comm.program import Program, RankEnding, log_ending
from tartan.errors import ConfigError

# After its ranks have ended a node waits so long, and the grace, for those of the others.
# By judgement: nodes of one program end within a second of each other (`tartan bench comm_kill`: 0.7 s at most); five
# for a busy machine.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class MpiOutcome:
    """How the ranks of all nodes have ended.

    Attributes
    ----------
    node : int
        This one; node 0 reports for all.
    reports : list of RankEnding
        Of all ranks; results are those of this node's ranks alone.
    signal : int or None
        Which one this process has received.
    """

    node: int
    reports: list[RankEnding]
    signal: int | None


def run_on_mpi(
    program: Program,
    *,
    cpus: int | Sequence[int],
    command: Sequence[str],
    grace_seconds: float = GRACE_SECONDS,
    signal_grace_seconds: float | None = None,
) -> MpiOutcome:
    """Be a node of ``mpiexec``: run a program on the ranks of this node, together with those of the others.

    Parameters
    ----------
    program : Program
    cpus : int or sequence of int
        Ranks of a node, or a number for each node; the same on all.
    command : sequence of str
        What the user has asked for; it must be the same on all nodes.
    grace_seconds : float
        How long ranks may take to end after one of them has failed.
    signal_grace_seconds : float, optional
        How long after a signal; default: as long.

    Raises
    ------
    ConfigError
        Outside ``mpiexec``, without MPI, or where the nodes differ.
    SystemExit
        In place of a difference of the nodes, on all of them but the first, which says what it is.
    """
    place = mpi_place()
    counts = ranks_of_nodes(cpus, place.n_nodes)
    divide_ranks(counts[place.node], 1, 1)
    nodes = tuple(node for node, count in enumerate(counts) for _ in range(count))
    after_signal = grace_seconds if signal_grace_seconds is None else signal_grace_seconds
    task = NodeTask(place.node, nodes, program, {}, grace_seconds, held=True, log=active_settings())
    task = replace(task, signal_grace_seconds=after_signal)
    patience = max(grace_seconds, after_signal) + _PATIENCE_SECONDS
    link = MpiLink(place, _description(counts, command), patience_seconds=patience)
    received: list[int] = []
    repeats = Repeats()
    node = NodeProcess(task, None)
    link.share = node.share()

    def interrupt(number: int, _frame: object) -> None:
        if repeats.has(number):
            return
        if number in ENDING_SIGNALS:
            received.append(number)
        node.note_signal(number)

    with _signals(signal.SIG_DFL):  # while MPI begins, nothing else of this process runs
        try:
            node.join(link)
        except ConfigError as error:
            if error.code == NODES_DIFFER and place.node:
                raise SystemExit(error.exit_status) from None
            raise
        with _signals(interrupt, *(PASSED_SIGNALS if program.script else ())):
            node.serve()
    reports = dict(node.reports)
    for report in reports.values():
        log_ending(report)
    for parting in link.partings.values():
        reports |= {report.rank: report for report in pickle.loads(parting)}
    return MpiOutcome(place.node, [report for _, report in sorted(reports.items())], received[0] if received else None)


def _description(counts: Sequence[int], command: Sequence[str]) -> dict[str, str]:
    return {
        "the version of Tartan": tartan_version(),
        "the version of Python": platform.python_version(),
        "the version of NumPy": np.__version__,
        "the number of ranks": ",".join(map(str, counts if len(set(counts)) > 1 else counts[:1])),
        "the command": shlex.join(command),
    }


@contextmanager
def _signals(handler: Any, *others: int) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM and other signals so, where this is the main thread."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number in {signal.SIGINT, signal.SIGTERM, *others}}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
